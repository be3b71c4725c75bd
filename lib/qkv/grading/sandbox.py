"""Where a learner's code runs: no network, a read-only system, no one else's files, and limits."""

import functools
import importlib.resources
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import qkv

MEGABYTE = 2**20
HOME = "/home/learner"
OWN_FOLDERS = ("/tmp", HOME, "/dev/shm")  # in memory, each of a limited size
# Where the folder of the sockets lies: not below the sandbox's own folders, since files may be
# made there.
SHARED = next(filter(os.path.isdir, ("/var/tmp",)), tempfile.gettempdir())
HOW_TO = (
    "Install bubblewrap 0.8 or newer (Debian, Ubuntu: apt install bubblewrap) on a Linux that"
    " allows user namespaces, or accept with --no-sandbox that learners' code runs as you,"
    " with your files and your network"
)


class NoSandbox(Exception):
    """No sandbox can be had here; the message says why and what to do."""


@dataclass(frozen=True)
class Limits:
    """What one kernel may use. Sizes are in bytes."""

    seconds: float = 30.0  # of computing, for one cell
    memory: int = 3000 * MEGABYTE
    processes: int = 128  # threads count as well
    file: int = 64 * MEGABYTE  # the largest file, and all files of one folder
    open_files: int = 256
    output: int = 4 * MEGABYTE  # what one cell may print

    @property
    def patience(self) -> float:
        """Seconds by the clock for one cell: the machine may be busy, and a cell may sleep."""
        return 4 * self.seconds

    def resources(self, *, cgroup: bool, sandboxed: bool) -> dict[str, int]:
        """The limits that a process sets for itself, by their names in the module `resource`.

        Address space is no measure of memory: torch reserves far more than it uses. So that
        limit is wide, and there only where no cgroup holds the memory.
        """
        limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": self.file, "RLIMIT_NOFILE": self.open_files}
        if sandboxed:  # outside it would count all the processes of the user
            limits["RLIMIT_NPROC"] = self.processes
        if not cgroup and sys.platform == "linux":
            limits["RLIMIT_AS"] = 4 * self.memory
        return limits


def command(sockets: Path, limits: Limits, *, cgroup_joins: list[str]) -> list[str]:
    """The command that starts a kernel in the sandbox; jupyter_client fills in the connection file.

    `sockets` is the one folder that the kernel shares with the world outside.
    """
    kernel = _kernel(limits.resources(cgroup=bool(cgroup_joins), sandboxed=True), OWN_FOLDERS)
    line = [*_bubblewrap(limits), "--bind", str(sockets), str(sockets)]
    line += ["--chdir", HOME, "--remount-ro", "/", "--", *kernel]
    if not cgroup_joins:
        return line
    join = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 1; shift; done; shift; exec "$@"'
    return ["/bin/sh", "-c", join, "sh", *cgroup_joins, "--", *line]


def open_command(limits: Limits) -> list[str]:
    """The command that starts a kernel without a sandbox."""
    return _kernel(limits.resources(cgroup=False, sandboxed=False), ())


def environment(home: str) -> dict[str, str]:
    """All that a kernel gets of an environment: one thread, since sums depend on how many there
    are, and as many submissions run at a time as there are cores."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    return {"HOME": home, "LANG": "C.UTF-8", "PATH": path, "USER": "learner", **threads}


@functools.cache
def probe() -> None:
    """Start a process in the sandbox, to see that one can be had.

    Errors:
        NoSandbox: it cannot
    """
    if shutil.which("bwrap") is None:
        raise NoSandbox(f"bubblewrap (bwrap) is not installed. {HOW_TO}.")
    code = f"from qkv.grading.confine import confine; confine({OWN_FOLDERS})"
    line = [*_bubblewrap(Limits()), "--remount-ro", "/", "--", sys.executable, "-I", "-c", code]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSandbox(f"bubblewrap did not start: {error}. {HOW_TO}.") from None
    if done.returncode != 0:
        raise NoSandbox(f"bubblewrap did not start: {done.stderr.strip()[-300:]}. {HOW_TO}.")


def _kernel(resources: dict[str, int], folders: Sequence[str]) -> list[str]:
    line = [sys.executable, "-I", str(Path(__file__).with_name("launcher.py"))]
    return [*line, json.dumps(resources), json.dumps(folders), "-f", "{connection_file}"]


def _bubblewrap(limits: Limits) -> list[str]:
    """Nothing of the machine but what Python and the course's package need, all of it read-only."""
    line = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    line += ["--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
    line += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    for name, value in environment(HOME).items():
        line += ["--setenv", name, value]
    for folder in ("/bin", "/sbin", "/lib", "/lib64"):
        if os.path.islink(folder):
            line += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            line += ["--ro-bind", folder, folder]
    for folder in OWN_FOLDERS[:2]:  # first: Python or the course may itself stand below /tmp
        line += ["--size", str(limits.file), "--tmpfs", folder]
    for path in _read_only():
        line += ["--ro-bind-try", path, path]
    # Where the grader is root, /proc/sys would take settings of the whole machine from here too.
    line += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
    line += ["--size", str(limits.file), "--tmpfs", "/dev/shm"]
    return [*line, "--remount-ro", "/dev"]


def _read_only() -> list[str]:
    system = ["/usr", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"]
    # torch asks how many processors there are, and which.
    system += ["/sys/devices/system/cpu"]
    python = [sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))]
    data = importlib.resources.files("qkv.data")  # elsewhere, where qkv is installed to be edited
    package = [*qkv.__path__, str(data)]
    return list(dict.fromkeys(system + [os.path.abspath(path) for path in python + package]))
