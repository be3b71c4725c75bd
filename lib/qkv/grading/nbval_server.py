"""Runs nbval in a process of its own for each notebook, without importing it anew each time.

A server imports pytest and nbval once, which takes longer than a run of them, and forks for each
notebook that it is asked for. It runs no learner's code: that is what the kernels are for.
"""

import contextlib
import ctypes
import io
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from queue import Empty, SimpleQueue

import psutil  # type: ignore[import-untyped]

OPTIONS = ["-q", "-c", os.devnull, "--noconftest", "-p", "no:cacheprovider", "-p", "no:warnings"]
OPTIONS += ["-p", "nbval.plugin", "-p", "qkv.grading.plugin"]


class Stopped(BaseException):
    """Someone stopped the grader: no notebook is run any more."""


class Servers:
    """As many servers as there are runs at the same time."""

    def __init__(self) -> None:
        self._idle: SimpleQueue[_Server] = SimpleQueue()
        self._all: list[_Server] = []
        self._stopped = False

    def run(self, folder: Path, seconds: float) -> str:
        """Run `notebook.ipynb` in this folder; pytest's words go to `log`.

        A run that takes longer than `seconds` is ended. Gives the last words of a server that
        ended by itself.

        Errors:
            Stopped: `stop` was called
        """
        try:
            server = self._idle.get_nowait()
        except Empty:
            server = _Server()
            self._all.append(server)
        try:
            self._go_on()
            done = server.run(folder, seconds)
        except BaseException:
            server.end()
            raise
        self._go_on()
        if not done:
            return server.end()
        self._idle.put(server)
        return ""

    def stop(self) -> None:
        """End all servers now, with the notebooks that they run."""
        self._stopped = True
        for server in list(self._all):
            server.kill()

    def _go_on(self) -> None:
        if self._stopped:
            raise Stopped

    def close(self) -> None:
        """End the servers; a later run starts new ones."""
        with contextlib.suppress(Empty):
            while True:
                self._idle.get_nowait().end()


class _Server:
    """The grader's end of one server, which runs one notebook at a time."""

    def __init__(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        # -P: the grader may have been started in a folder that learners wrote.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "qkv.grading.nbval_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the grader, which then calls `stop`
        )

    def run(self, folder: Path, seconds: float) -> bool:
        """Whether the run ended in time, and the server still serves."""
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(str(folder)).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return bool(ready) and self._process.stdout.readline() == b"done\n"

    def end(self) -> str:
        """Kill it; give what it said of its own troubles."""
        self.kill()
        return self._process.communicate()[1].decode(errors="replace")

    def kill(self) -> None:
        """Kill it and what it runs, and see that all of it has ended."""
        below: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            below = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for process in below:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(below, timeout=5)


def main() -> None:
    """Serve: read the path of a folder, run the notebook in it, say so, until there are no more."""
    _end_with_parent()
    import nbformat
    import nbval.plugin  # type: ignore[import-untyped]  # noqa: F401
    import pytest

    import qkv.grading.plugin  # noqa: F401

    nbformat.validate(nbformat.v4.new_notebook())  # type: ignore[no-untyped-call]
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*OPTIONS, "--version"])  # imports the rest
    own = os.getpid()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _end_with_parent()
            if os.getppid() == own:
                _run(Path(json.loads(line)))
            os._exit(1)
        os.waitpid(child, 0)
        print("done", flush=True)


def _end_with_parent() -> None:
    """Have this process killed when its parent ends, where the system can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _run(folder: Path) -> None:
    """Run nbval, in the forked process, and end it."""
    import pytest

    try:
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open("log", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        # Without confcutdir pytest goes through the files of the folders above, too.
        words = [f"--rootdir={folder}", f"--confcutdir={folder}", "--grafted", str(folder)]
        pytest.main([*OPTIONS, *words, str(folder / "notebook.ipynb")])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
