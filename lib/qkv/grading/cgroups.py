"""A limit on the memory and the processes of a whole group of processes, where Linux grants one."""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOUNTED = Path("/sys/fs/cgroup")
# File names by version of the interface.
MEMORY = {1: "memory.limit_in_bytes", 2: "memory.max"}
EVENTS = {1: "memory.oom_control", 2: "memory.events"}


@dataclass(frozen=True)
class Cgroup:
    """One group: a folder in version 2; in version 1 a folder in each controller's hierarchy."""

    folders: tuple[Path, ...]
    version: int

    @property
    def joins(self) -> list[str]:
        """The files into which a process writes its own id to join."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def killed_for_memory(self) -> bool:
        """Whether the kernel of the system killed a process here because the memory was used up."""
        with suppress(OSError):
            for line in (self.folders[0] / EVENTS[self.version]).read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count) > 0
        return False

    def remove(self) -> None:
        """Remove the group, once its processes have ended."""
        until = time.monotonic() + 20  # a busy machine takes its time
        for folder in self.folders:
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:  # a killed process is not quite gone yet
                    if time.monotonic() > until:
                        break
                    time.sleep(0.01)


def make(name: str, memory: int, processes: int) -> Cgroup | None:
    """A new group under this process's own, or None where none can be had."""
    for version, folders in _places():
        group = Cgroup(tuple(folder / name for folder in folders), version)
        try:
            for folder in group.folders:
                folder.mkdir()
            (group.folders[0] / MEMORY[version]).write_text(str(memory))
            (group.folders[-1] / "pids.max").write_text(str(processes))
            if version == 2:  # no way around the limit through swap
                with suppress(OSError):
                    (group.folders[0] / "memory.swap.max").write_text("0")
            return group
        except OSError:
            group.remove()
    return None


def stale(prefix: str) -> list[Cgroup]:
    """Groups under this process's own whose name begins so."""
    return [
        Cgroup((found,), version)
        for version, folders in _places()
        for folder in folders
        for found in sorted(folder.glob(f"{prefix}*"))
        if found.is_dir()
    ]


def _places() -> list[tuple[int, list[Path]]]:
    """Version and folders of this process's own groups that could hold new ones."""
    own: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            own.update(dict.fromkeys(controllers.split(","), path.lstrip("/")))
    places = []
    if "memory" in own and "pids" in own:
        places.append((1, [MOUNTED / name / own[name] for name in ("memory", "pids")]))
    # Beside version 1, version 2 is mounted elsewhere and holds neither memory nor processes.
    if "" in own and (MOUNTED / "cgroup.controllers").is_file():
        places.append((2, [MOUNTED / own[""]]))
    return places
