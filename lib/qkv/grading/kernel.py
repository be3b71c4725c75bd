"""A kernel for nbval that is watched from outside: over at once when it dies, hangs or floods."""

import os
import stat
import subprocess
import tempfile
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

import psutil  # type: ignore[import-untyped]
import zmq
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager
from nbval.kernel import RunningKernel  # type: ignore[import-untyped]

from qkv._files import remove_tree
from qkv.grading import cgroups, sandbox
from qkv.grading.sandbox import MEGABYTE, Limits

STEP = 0.1  # seconds between two looks at the kernel
SELDOM = 0.25  # between two counts of what it uses, which reads the state of all processes


class KernelLost(Exception):
    """The kernel ended, or was ended; the message says why, to the learner."""


class WatchedKernel(RunningKernel):  # type: ignore[misc]
    """nbval's kernel, started as told, with its messages counted and its process watched.

    `name` begins the names of all that the kernel needs outside: a cgroup and a folder.
    """

    def __init__(self, name: str, limits: Limits, *, sandboxed: bool, start_seconds: float = 60):
        self.limits = limits
        self._waiting: deque[dict[str, Any]] = deque()  # outputs that came before the reply
        self._printed = 0
        self._until = float("inf")  # by the clock, for the cell that runs
        self._used = (0.0, 0, 0)
        self._used_before = 0.0
        self._counted = -SELDOM
        self._lost: str | None = None
        self._breaks: zmq.Socket[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=sandbox.SHARED))
        self._sockets = self._folder / "s"
        self._group = None
        try:
            if sandboxed:
                self._group = cgroups.make(self._folder.name, limits.memory, limits.processes)
            self._start(sandboxed, start_seconds)
        except BaseException:
            self.stop()
            raise

    def _start(self, sandboxed: bool, seconds: float) -> None:
        sockets = self._sockets
        home = self._folder / "home"
        for folder in (sockets, home):
            folder.mkdir()
        if sandboxed:
            joins = self._group.joins if self._group else []
            argv = sandbox.command(sockets, self.limits, cgroup_joins=joins)
        else:
            argv = sandbox.open_command(self.limits)
        self.km = KernelManager(
            kernel_name="watched",
            kernel_spec_manager=_OneKernelSpec(argv),
            transport="ipc",
            ip=str(sockets / "k"),
            connection_file=str(sockets / "connection.json"),
            shutdown_wait_time=0.5,
        )
        nowhere = subprocess.DEVNULL
        environment = sandbox.environment(str(home))
        self.km.start_kernel(cwd=str(home), env=environment, stdout=nowhere, stderr=nowhere)
        self._popen = self.km.provisioner.process  # type: ignore[union-attr]
        self._process = psutil.Process(self._popen.pid)
        self.kc = self.km.client()
        # No message may fill the grader's memory: a larger one breaks the connection, and that
        # is watched. Nor may many that were not read yet.
        self.kc.context.setsockopt(zmq.MAXMSGSIZE, self.limits.output)
        self.kc.context.setsockopt(zmq.RCVHWM, 10)
        self.kc.start_channels()
        self._breaks = self.kc.iopub_channel.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._wait_for_ready(seconds)

    def _wait_for_ready(self, seconds: float) -> None:
        """Ask for the kernel's name until both channels answer.

        In place of jupyter_client's: that one ends with a pause, and sees a death late.
        """
        until = time.monotonic() + seconds
        while True:
            said = self.kc.kernel_info()
            try:
                self.await_reply(said, timeout=until - time.monotonic())
                self.await_idle(said, timeout=STEP)
                return
            except Empty:
                if time.monotonic() > until:
                    raise RuntimeError(f"the kernel did not start in {seconds:g} s") from None

    def execute_cell_input(self, cell_input: str, allow_stdin: bool | None = None) -> Any:
        """As nbval's; what the cell prints and how long it computes is counted from here."""
        self._printed = 0
        self._count_use()
        self._used_before = self._used[0]
        self._until = time.monotonic() + self.limits.patience
        self._waiting.clear()
        return super().execute_cell_input(cell_input, allow_stdin=allow_stdin)

    def get_message(self, stream: str, timeout: float | None = None) -> Any:
        """The next message, as nbval's.

        Errors:
            Empty: none came in time
            KernelLost: the kernel is gone
        """
        if stream == "iopub" and self._waiting:
            return self._waiting.popleft()
        wanted = self.kc.iopub_channel if stream == "iopub" else self.kc.shell_channel
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._look()
            if wanted.socket.poll(0):
                return self._receive(wanted)
            if until is not None and time.monotonic() > until:
                raise Empty
            if stream == "shell" and self.kc.iopub_channel.socket.poll(0):
                # Read outputs while the cell runs, or they pile up.
                self._waiting.append(self._receive(self.kc.iopub_channel))
                continue
            poller = zmq.Poller()
            poller.register(wanted.socket, zmq.POLLIN)
            if stream == "shell":
                poller.register(self.kc.iopub_channel.socket, zmq.POLLIN)
            poller.poll(int(1000 * STEP))

    def interrupt(self) -> None:
        """A cell ran out of time: end the kernel, since an interrupt can be caught."""
        self._end(self._too_long())

    def is_alive(self) -> bool:
        """Whether the kernel's process runs."""
        return hasattr(self, "km") and self._popen.poll() is None

    def stop(self) -> None:
        """End the kernel with all its processes, and remove what it needed outside."""
        if hasattr(self, "km"):
            below: list[psutil.Process] = []
            with suppress(psutil.Error, AttributeError):
                below = self._process.children(recursive=True)
            with suppress(Exception):
                if hasattr(self, "kc"):
                    self.kc.stop_channels()
                    self.kc.context.destroy(linger=0)
            with suppress(Exception):
                self._popen.kill()
                self._popen.wait(5)  # the next line would look for its end every 0.1 s
            with suppress(Exception):
                self.km.shutdown_kernel(now=True)
            for process in below:
                with suppress(psutil.Error):
                    process.kill()
            del self.km
        if self._group is not None:
            self._group.remove()
        remove_tree(self._folder)

    def _look(self) -> None:
        """See to the kernel, and end it where it does what it must not.

        Errors:
            KernelLost: it is gone, now or before
        """
        if self._lost is None:
            why = self._why_lost()
            if why is not None:
                self._end(why)
        if self._lost is not None:
            raise KernelLost(self._lost)

    def _why_lost(self) -> str | None:
        if not self.is_alive():
            return self._how_it_died()
        if self._breaks is not None and self._breaks.poll(0):
            time.sleep(STEP)  # it breaks when the kernel dies, too
            return self._too_much_output() if self.is_alive() else self._how_it_died()
        if self._misused_sockets():
            return "stopped: files were written into the folder of the kernel's sockets"
        if time.monotonic() > self._until:  # nbval's own clock starts anew at each message
            return self._too_long()
        self._count_use()
        seconds, memory, tasks = self._used
        if self._group is None and memory > self.limits.memory:
            return self._too_much_memory()
        if self._group is None and tasks > self.limits.processes:
            return f"stopped: ran over {self.limits.processes} processes and threads at a time"
        if seconds - self._used_before > self.limits.seconds:
            return f"stopped after {self.limits.seconds:g} s: is there a loop without an end?"
        return None

    def _how_it_died(self) -> str:
        in_want = self._group is not None and self._group.killed_for_memory()
        return self._too_much_memory() if in_want else "the kernel died"

    def _receive(self, channel: Any) -> dict[str, Any]:
        """The message that has come, its bytes counted before anything is made of them.

        Errors:
            KernelLost: it was one too many
        """
        parts = channel.socket.recv_multipart()
        self._printed += sum(map(len, parts))
        if self._printed > self.limits.output:
            self._end(self._too_much_output())
            raise KernelLost(self._lost)
        _, frames = self.kc.session.feed_identities(parts)
        message: dict[str, Any] = self.kc.session.deserialize(frames)
        return message

    def _end(self, why: str) -> None:
        if self._lost is None:
            self._lost = why
        with suppress(Exception):
            self._popen.kill()

    def _too_long(self) -> str:
        most = f"{self.limits.patience:g} s"
        return f"stopped: gave no answer within {most}: is there a loop without an end, or a wait?"

    def _too_much_memory(self) -> str:
        return f"stopped: used over {self.limits.memory / MEGABYTE:.0f} MB of memory"

    def _too_much_output(self) -> str:
        return f"stopped: one cell printed over {self.limits.output / MEGABYTE:g} MB"

    def _count_use(self) -> None:
        """Seconds of computing, bytes of memory, threads: of the kernel and what it started."""
        if time.monotonic() - self._counted < SELDOM:
            return
        seconds, memory, tasks = 0.0, 0, 0
        with suppress(psutil.Error):
            for process in [self._process, *self._process.children(recursive=True)]:
                with suppress(psutil.Error), process.oneshot():
                    seconds += sum(process.cpu_times()[:4])  # with those of ended children
                    memory += process.memory_info().rss
                    tasks += process.num_threads()
        self._used = (seconds, memory, tasks)
        self._counted = time.monotonic()

    def _misused_sockets(self) -> bool:
        """The folder is the disk's one place that code in the sandbox can write to."""
        with suppress(OSError):
            entries = [(e.name, e.stat(follow_symlinks=False)) for e in os.scandir(self._sockets)]
            return len(entries) > 16 or any(
                not stat.S_ISSOCK(seen.st_mode)
                and (name != "connection.json" or seen.st_size > 10_000)
                for name, seen in entries
            )
        return False


class _OneKernelSpec(KernelSpecManager):
    def __init__(self, argv: list[str]):
        super().__init__()
        self._argv = argv

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(argv=self._argv, interrupt_mode="message", language="python")
