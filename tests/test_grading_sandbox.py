"""What code in the sandbox can and cannot do, and that nothing of it is left behind."""

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from types import SimpleNamespace

import psutil
import pytest

import qkv
from qkv.grading import cgroups, sandbox
from qkv.grading.graft import SEED_CELL
from qkv.grading.kernel import KernelLost, WatchedKernel
from qkv.grading.sandbox import MEGABYTE, Limits, NoSandbox

ROOT = Path(__file__).parents[1]
NAME = f"qkv-test-{os.getpid()}"
LIMITS = Limits(memory=400 * MEGABYTE, output=MEGABYTE)


def run(kernel: WatchedKernel, source: str, seconds: float = 60) -> str:
    """What a cell prints, or the error it raises."""
    said = kernel.execute_cell_input(source, allow_stdin=False)
    kernel.await_reply(said, timeout=seconds)
    text = ""
    while True:
        message = kernel.get_message("iopub", timeout=10)
        content = message["content"]
        text += content.get("text", "")
        if message["msg_type"] == "error":
            text += f"{content['ename']}: {content['evalue']}"
        ours = message["parent_header"].get("msg_id") == said
        if ours and content.get("execution_state") == "idle":
            return text.strip()


def left_behind() -> list[str]:
    """Processes, files and cgroups with this test's name."""
    files = [str(p) for p in Path(sandbox.SHARED).glob(f"{NAME}*")]
    groups = [str(f) for group in cgroups.stale(NAME) for f in group.folders]
    return files + groups + processes_left()


def processes_left() -> list[str]:
    return [
        str(process.info)
        for process in psutil.process_iter(["pid", "cmdline"])
        if any(f"/{NAME}-" in word for word in process.info["cmdline"] or [])
    ]


@pytest.fixture(scope="module")
def sandboxed() -> None:
    try:
        sandbox.probe()
    except NoSandbox as error:
        assert "CI" not in os.environ, error  # never skipped there
        pytest.skip(str(error))


@pytest.fixture
def kernel(sandboxed: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchedKernel]:
    monkeypatch.setenv("QKV_SECRET", "1")
    one = WatchedKernel(NAME, LIMITS, sandboxed=True)
    yield one
    one.stop()
    assert left_behind() == []


def test_what_it_may_and_may_not(kernel: WatchedKernel) -> None:
    # its own few folders
    assert run(kernel, "open('a', 'w').write('x'); open('/tmp/a', 'w').write('x')") == ""
    run(kernel, "import os, re, socket, subprocess")
    # who it is, and what it was given
    assert run(kernel, "print(os.getuid(), os.getcwd())") == "65534 /home/learner"
    given = run(kernel, "print(open('/proc/self/environ').read(), os.environ)")
    assert "OMP_NUM_THREADS" in given and "QKV_SECRET" not in given
    # a read-only system
    places = [
        "/x",
        "/dev/x",
        "/usr/x",
        "/home/x",
        "/etc/x",
        "/proc/x",
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
        f"{sys.prefix}/x",
    ]
    places += [f"{folder}/x" for folder in qkv.__path__]
    for place in places:
        assert "Error" in run(kernel, f"open({place!r}, 'w')"), place
    # no one else's files
    for folder in ("solutions", "exercises", "tests", "chapters", ".git"):
        assert run(kernel, f"print(os.path.exists({str(ROOT / folder)!r}))") == "False"
    here = Path(__file__)
    assert run(kernel, f"print(os.path.exists({str(here)!r}))") == "False"
    # no rights, and no way to any
    assert run(
        kernel, "print({*re.findall(r'Cap.*:\\s*(\\w+)', open('/proc/self/status').read())})"
    ) == ("{'0000000000000000'}")
    assert run(kernel, "print(subprocess.getoutput('unshare -r true'))").startswith("unshare: ")
    # no network
    assert "OSError" in run(kernel, "socket.create_connection(('1.1.1.1', 53), 2)")
    # none of the machine's processes
    assert run(kernel, "print(len([p for p in os.listdir('/proc') if p.isdigit()]) < 6)") == "True"
    assert "ProcessLookupError" in run(kernel, f"os.kill({os.getpid()}, 9)")


def test_the_course_and_torch_work_in_it(sandboxed: None) -> None:
    kernel = WatchedKernel(NAME, Limits(), sandboxed=True)
    try:
        source = "import qkv.attention, qkv.data, torch\nprint(torch.ones(2, 2) @ torch.ones(2))"
        assert run(kernel, source) == "tensor([2., 2.])"
        assert run(kernel, f"{SEED_CELL.format(seed=1)}; print(gc.isenabled())") == "True"
        # PyTorch makes this one whole only when all of it is imported.
        assert run(kernel, "print(torch.Generator().manual_seed(1).initial_seed())") == "1"
    finally:
        kernel.stop()
    assert left_behind() == []


def test_files_are_limited(kernel: WatchedKernel) -> None:
    for place in (".", "/tmp", "/dev/shm"):
        write = f"open(f'{place}/{{i}}', 'wb').write(bytes({LIMITS.file // 9}))"
        many = f"for i in range(20):\n    {write}"
        assert "No space left" in run(kernel, many), place


def test_processes_are_limited_and_none_outlives_the_kernel(kernel: WatchedKernel) -> None:
    fork = """\
import os, subprocess
n = 0
try:
    for n in range(1000):
        subprocess.Popen(["sleep", "4321.0"], start_new_session=True)
except OSError:
    print(n < 140)"""
    assert run(kernel, fork) == "True"
    kernel.stop()
    left = [p for p in psutil.process_iter(["cmdline"]) if "4321.0" in (p.info["cmdline"] or [])]
    assert left == []


def test_a_death_is_seen_at_once(kernel: WatchedKernel) -> None:
    start = time.monotonic()
    with pytest.raises(KernelLost, match="died"):
        run(kernel, "import os; os._exit(1)")
    assert time.monotonic() - start < 5


def test_killing_all_it_can_see_ends_the_kernel_alone(kernel: WatchedKernel) -> None:
    run(kernel, "import os, subprocess\nos.kill(os.getppid(), 9)")
    run(kernel, "subprocess.Popen(['sleep', '60'])\nos.kill(-1, 9)")
    assert run(kernel, "print(1 + 1)") == "2"  # not even that
    with pytest.raises(KernelLost, match="died"):
        run(kernel, "os.kill(os.getpid(), 9)")


@pytest.mark.parametrize("grouped", [True, False])
def test_memory_is_limited(sandboxed: None, monkeypatch: pytest.MonkeyPatch, grouped: bool) -> None:
    if not grouped:
        monkeypatch.setattr(cgroups, "make", lambda *_: None)
    kernel = WatchedKernel(NAME, LIMITS, sandboxed=True)
    try:
        if grouped and kernel._group is None:
            pytest.skip("no cgroup can be made here")
        with pytest.raises(KernelLost, match="over 400 MB of memory"):
            run(kernel, f"x = b'1' * {2 * LIMITS.memory}\nimport time; time.sleep(60)")
    finally:
        kernel.stop()
    assert left_behind() == []


def test_a_folder_that_is_no_cgroup_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "MOUNTED", tmp_path)
    assert cgroups.make(NAME, LIMITS.memory, LIMITS.processes) is None
    assert list(tmp_path.iterdir()) == []


def test_a_death_for_memory_is_told_though_the_connection_broke_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = WatchedKernel.__new__(WatchedKernel)
    alive = iter([True, False])
    monkeypatch.setattr(kernel, "is_alive", lambda: next(alive), raising=False)
    kernel.limits = LIMITS
    kernel._group = SimpleNamespace(killed_for_memory=lambda: True)
    kernel._breaks = SimpleNamespace(poll=lambda timeout: 1)
    assert kernel._why_lost() == "stopped: used over 400 MB of memory"


def test_without_a_cgroup_one_leap_of_memory_is_refused(
    sandboxed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "make", lambda *_: None)
    kernel = WatchedKernel(NAME, LIMITS, sandboxed=True)
    try:
        assert run(kernel, f"x = bytes({5 * LIMITS.memory})").startswith("MemoryError")
    finally:
        kernel.stop()


@pytest.mark.parametrize(
    "source",
    [
        "for _ in range(10**7): print('y' * 1000)",
        "print('y' * 100_000_000)",
        "from IPython.display import publish_display_data as show\n"
        "while True: show({'application/json': [[]] * 100_000})",
        "raise ValueError('y' * 100_000_000)",
        "s = get_ipython().kernel\n"
        "while True: s.session.send(s.iopub_socket, 'status', buffers=[bytes(500_000)])",
    ],
)
def test_output_is_limited(sandboxed: None, source: str) -> None:
    kernel = WatchedKernel(NAME, Limits(output=MEGABYTE), sandboxed=True)
    before = psutil.Process().memory_info().rss
    try:
        with pytest.raises(KernelLost, match="printed over 1 MB"):
            run(kernel, source)
        assert psutil.Process().memory_info().rss - before < 200 * MEGABYTE
    finally:
        kernel.stop()


SOCKETS = """\
import os, time
from ipykernel import get_connection_file
folder = os.path.dirname(get_connection_file())
"""


def test_the_folder_of_the_sockets_takes_no_files(kernel: WatchedKernel) -> None:
    run(kernel, SOCKETS)
    for make in ("open(f'{folder}/x', 'w')", "os.mkdir(f'{folder}/x')", "os.mkfifo(f'{folder}/x')"):
        assert run(kernel, make).startswith("PermissionError"), make
    nameless = "os.open(folder, os.O_TMPFILE | os.O_RDWR)"
    assert "not supported" in run(kernel, nameless)


def test_where_it_does_take_files_the_kernel_ends_and_they_go(
    sandboxed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "OWN_FOLDERS", (*sandbox.OWN_FOLDERS, sandbox.SHARED))
    kernel = WatchedKernel(NAME, LIMITS, sandboxed=True)
    try:
        run(kernel, SOCKETS)
        with pytest.raises(KernelLost, match="folder of the kernel's sockets"):
            run(
                kernel,
                "os.mkdir(f'{folder}/x'); open(f'{folder}/x/y', 'w'); os.chmod(f'{folder}/x', 0)\n"
                "time.sleep(60)",
            )
    finally:
        kernel.stop()
    assert left_behind() == []


def test_no_file_without_a_name_and_no_key_that_another_could_read(kernel: WatchedKernel) -> None:
    run(kernel, "import ctypes, os, tempfile\nlibc = ctypes.CDLL(None, use_errno=True)")
    assert run(kernel, "os.memfd_create('x')").startswith("OSError: [Errno 38]")
    if platform.machine() == "x86_64":
        add_key = "libc.syscall(248, b'user', b'note', b'for the next', 12, -3)"
        for call in (add_key, "libc.syscall(250, 0, -3, 0)", "libc.syscall(1073742074, 0, -3, 0)"):
            assert run(kernel, f"print({call})") == "-1", call
    with_a_name = "with tempfile.TemporaryFile() as file: print(file.write(b'12'))"
    assert run(kernel, with_a_name) == "2"


def test_a_cell_that_sends_something_now_and_then_is_ended_all_the_same(sandboxed: None) -> None:
    kernel = WatchedKernel(NAME, Limits(seconds=1), sandboxed=True)
    try:
        with pytest.raises(KernelLost, match="no answer within 4 s"):
            run(kernel, "import time\nwhile True: print('.', flush=True); time.sleep(0.5)")
    finally:
        kernel.stop()


def test_seconds_of_children_that_have_ended_count(sandboxed: None) -> None:
    kernel = WatchedKernel(NAME, Limits(seconds=2), sandboxed=True)
    burn = "import subprocess\nwhile True: subprocess.run(['timeout', '.1', 'yes'], stdout=-3)"
    try:
        with pytest.raises(KernelLost, match="after 2 s"):
            run(kernel, burn)
    finally:
        kernel.stop()


def test_where_root_may_start_as_many_as_it_likes_they_are_counted(
    sandboxed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "make", lambda *_: None)
    kernel = WatchedKernel(NAME, Limits(processes=60), sandboxed=True)
    many = "import subprocess, time\nfor _ in range(80): subprocess.Popen(['sleep', '60'])\n"
    try:
        said = run(kernel, many + "time.sleep(60)")
    except KernelLost as lost:
        said = str(lost)
    finally:
        kernel.stop()
    # To anyone else the kernel of the machine may say no first.
    assert "over 60 processes" in said or (os.getuid() != 0 and "unavailable" in said)


def test_a_loop_that_catches_everything_is_ended(kernel: WatchedKernel) -> None:
    deaf = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    with pytest.raises(Empty):
        run(kernel, deaf, seconds=1)
    kernel.interrupt()
    with pytest.raises(KernelLost, match="no answer within"):
        while True:  # what came before
            kernel.get_message("iopub", timeout=5)


def test_the_kernel_ends_with_the_grader(sandboxed: None) -> None:
    source = f"""\
import os, signal
from qkv.grading.kernel import WatchedKernel
from qkv.grading.sandbox import Limits
WatchedKernel({NAME!r}, Limits(), sandboxed=True)
print("started", flush=True)
os.kill(os.getpid(), signal.SIGKILL)"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stdout == "started\n"
    until = time.monotonic() + 5
    while processes_left() and time.monotonic() < until:
        time.sleep(0.1)
    assert processes_left() == []
    # Files and groups stay, and are found by their name.
    for group in cgroups.stale(NAME):
        group.remove()
    for folder in Path(sandbox.SHARED).glob(f"{NAME}*"):
        shutil.rmtree(folder)
    assert left_behind() == []


def test_without_bubblewrap_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoSandbox, match=r"not installed.*apt install bubblewrap.*--no-sandbox"):
        sandbox.probe.__wrapped__()


def test_a_bubblewrap_that_cannot_start_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho no namespaces for you >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoSandbox, match="no namespaces for you"):
        sandbox.probe.__wrapped__()


def test_seconds_of_computing_are_limited_on_a_busy_machine_too(sandboxed: None) -> None:
    kernel = WatchedKernel(NAME, Limits(seconds=1), sandboxed=True)
    try:
        assert run(kernel, "import time\ntime.sleep(1.5)") == ""
        with pytest.raises(KernelLost, match="after 1 s: is there a loop"):
            run(kernel, "while True: pass")
    finally:
        kernel.stop()
