"""A made-up class with every kind of trouble: each gets exactly its score, and nothing is left.

A few of the kinds, and two kills, run always; all of them, and twenty, with GRADE_PROOF=1.
"""

import csv
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import nbformat
import psutil
import pytest

import grading_course as course
from qkv.grading import cgroups, job, sandbox
from qkv.grading.sandbox import NoSandbox

ROOT = Path(__file__).resolve().parent.parent
ALL = bool(os.environ.get("GRADE_PROOF"))
FEW = ["perfect", "stubs", "half", "colab", "cut_off", "reads", "writes", "network", "orphans"]
FEW += ["deaf", "memory", "patches", "public"]

RIGHT = "def total(x): return [sum(double(x)) // 2]"
FULL = ["2", "3", "1", "", "6", "6", "graded"]
BUT_TOTAL = ["2", "0", "1", "", "3", "6", "graded"]
NO_LAST = ["2", "0", "0", "", "2", "6", "graded"]
NONE = ["0", "0", "0", "", "0", "6", "graded"]
NOT_UNDERSTOOD = ["", "", "", "", "", "", "not understood"]
Kind = tuple[Callable[[], bytes], list[str]]


def saved(**sources: str) -> Callable[[], bytes]:
    return lambda: course.content(course.submission(**sources))


def changed(change: Callable[[nbformat.NotebookNode], object]) -> Callable[[], bytes]:
    """A perfect submission, saved otherwise."""

    def make() -> bytes:
        made = course.submission()
        return course.content(change(made) or made)

    return make


# What another program, or another hand, may make of a notebook that is right.
SAVED: dict[str, Kind] = {
    "perfect": (saved(), FULL),
    "stubs": (lambda: course.content(course.exercise()), NONE),
    "half": (
        saved(last="def last(x): return 0", double="def double(x): return [v + v for v in x]"),
        ["2", "3", "0", "", "5", "6", "graded"],
    ),
    "other": (
        lambda: course.content(course.submission("02-other")),
        ["", "", "", "4", "4", "4", "graded"],
    ),
    "colab": (changed(course.by_colab), FULL),
    "old_jupyter": (changed(course.by_old_jupyter), FULL),
    "nbformat_3": (
        changed(lambda made: nbformat.convert(course.by_old_jupyter(made), 3)),
        # nbformat 3 loses the metadata; the markers stay
        FULL,
    ),
    "utf_16": (lambda: saved()().decode().encode("utf-16"), FULL),
    "latin_1": (
        lambda: (
            json.dumps(course.submission(last="# é\ndef last(x): return x[-1:]"))
            .replace("\\u00e9", "é")
            .encode("latin-1")
        ),
        FULL,
    ),
    "odd_kernel": (changed(lambda m: m.metadata.update(kernelspec={"name": "mine"})), FULL),
    "became_text": (
        changed(lambda made: course.cell(made, "last-answer").update(cell_type="markdown")),
        FULL,
    ),
    "checks_gone": (
        changed(lambda m: m.update(cells=[c for c in m.cells if not c.id.endswith("-check")])),
        FULL,
    ),
    "answer_gone": (
        changed(lambda m: m.update(cells=[c for c in m.cells if c.id != "total-answer"])),
        BUT_TOTAL,
    ),
    "empty": (lambda: b"", NOT_UNDERSTOOD),
    "cut_off": (lambda: saved()()[:-50], NOT_UNDERSTOOD),
    "not_ours": (lambda: b'{"nbformat": 4, "cells": [{"source": "1"}]}', NOT_UNDERSTOOD),
}

# Answers to `total` that are after something else. {folder} is what the grader works on.
HOSTILE: dict[str, tuple[str, list[str]]] = {
    "kills": (
        "import contextlib, os\nos.kill(os.getppid(), 9)\n"
        f"with contextlib.suppress(ProcessLookupError): os.kill(-1, 9)\n{RIGHT}",
        FULL,  # it gets no one, and there may be no one to get
    ),
    "reads": (
        """\
import os, re
def total(x):
    for top in ("/tmp", "/home", "/root", "/var/tmp", "/dev/shm", {folder!r}):
        for place, _, files in os.walk(top):
            for name in files:
                try:
                    text = open(os.path.join(place, name), errors="replace").read(10**6)
                except OSError:
                    continue
                print(*re.findall(r"total: ok \\d+", text), sep="\\n")
                if "# Do it, made for this test" in text:
                    raise ValueError(f"read a notebook: {{place}}")""",
        BUT_TOTAL,
    ),
    "writes": (
        """\
import os
def total(x):
    for name in ("seed", "grades.csv", "results/mine.json", "../in/conftest.py"):
        path = {folder!r} + "/out/" + name
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "w").write("0")""",
        BUT_TOTAL,
    ),
    "network": (
        f"""\
import socket
try:
    socket.create_connection(("127.0.0.1", {{port}}), 5)
except OSError:
    {RIGHT}""",
        FULL,
    ),
    "public": ("def total(x):\n    print('total: ok {public}')\n    return [{public}]", BUT_TOTAL),
    "patches": (
        """\
import builtins
real = builtins.print
def fake(*words, **more):
    real(*(str(word).replace("wrong,", "ok") for word in words), **more)
builtins.print = fake
def check(name, answer):
    real(f"{{name}}: ok 1")
get_ipython().input_transformers_cleanup.append(
    lambda lines: ["print('total: ok 1')\\n"] if "total" in lines[0] else lines)
def total(x): return [0]""",
        NO_LAST,
    ),
    "silences": (
        "import sys\nsys.stdout = None\n" + RIGHT,
        NO_LAST,
    ),
    "skips": (
        "# NBVAL_SKIP\n# NBVAL_IGNORE_OUTPUT\n# NBVAL_RAISES_EXCEPTION\n1 / 0",
        BUT_TOTAL,
    ),
    "deaf": (
        """\
def total(x):
    while True:
        try:
            while True: pass
        except BaseException: pass""",
        BUT_TOTAL,
    ),
    "sleeps": ("import time\ndef total(x): time.sleep(10**6)", BUT_TOTAL),
    "leaves": ("def total(x): exit()\nimport os\nos._exit(0)", BUT_TOTAL),
    "crashes": ("import ctypes\ndef total(x): ctypes.string_at(0)", BUT_TOTAL),
    "asks": ("def total(x): return input()", BUT_TOTAL),
    "memory": ("def total(x):\n    b = []\n    while True: b.append(b'1' * 10**7)", BUT_TOTAL),
    "disk": (
        """\
def total(x):
    for i in range(10**6): open(f"/tmp/{{i}}", "wb").write(bytes(10**7))""",
        BUT_TOTAL,
    ),
    "output": ("def total(x):\n    while True: print('total: ok 1')", BUT_TOTAL),
    "forks": (
        """\
import os
def total(x):
    while True:
        try: os.fork()
        except OSError: pass""",
        BUT_TOTAL,
    ),
    "orphans": (
        f'import subprocess\nsubprocess.Popen(["sleep", "4323"], start_new_session=True)\n{RIGHT}',
        FULL,
    ),
    # This stays open, and grading.md says so: the answer stands on the page for all to see.
    "right_by_the_check": ("def total(x): return RIGHT['total'](x)", FULL),
}


@pytest.fixture(scope="module", autouse=True)
def sandboxed() -> None:
    try:
        sandbox.probe()
    except NoSandbox as error:
        assert "CI" not in os.environ, error  # never skipped there
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def small_course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return course.write(tmp_path_factory.mktemp("course"))


def test_each_solution_of_the_course_gets_all_points_and_each_exercise_none(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from qkv.grading.cli import main; main()", "grade"]
    command += [ROOT / "solutions", ROOT / "exercises", "--out", tmp_path, "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "grades.csv", encoding="utf-8-sig", newline="") as file:
        rows = [(r["learner"], r["total"], r["maximum"], r["status"]) for r in csv.DictReader(file)]
    assert len(rows) == 28
    for learner, total, maximum, status in rows:
        assert status == "graded" and int(maximum) > 0
        assert total == (maximum if learner == "solutions" else "0")


def left_behind(pid: int) -> list[str]:
    """Files, cgroups and processes of the grading job that had this process id."""
    own = f"{job.SCRATCH}{pid}-"
    places = (tempfile.gettempdir(), sandbox.SHARED)
    files = [str(path) for place in places for path in Path(place).glob(f"{own}*")]
    groups = [str(f) for group in cgroups.stale(own) for f in group.folders]
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return files + groups + [str(c) for c in commands if f"/{own}" in str(c) or "4323" in c]


def test_a_class(small_course: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        filled = {
            "folder": str(tmp_path),
            "port": server.getsockname()[1],
            "public": course.right("total", seed=0),
        }
        kinds = dict(SAVED)
        for name, (source, row) in HOSTILE.items():
            kinds[name] = (saved(total=source.format(**filled)), row)
        if not ALL:
            kinds = {name: kinds[name] for name in FEW}
        expected = {f"in/{name}": row for name, (_, row) in kinds.items()}
        for name, (make, _) in kinds.items():
            (folder / f"{name}.ipynb").write_bytes(make())

        # Who it was is said by the platform's names, not by the notebook.
        lying = course.submission()
        lying.metadata["authors"] = [{"name": "perfect"}]
        (folder / "ada_70_80_x.ipynb").write_bytes(course.content(course.exercise()))
        (folder / "ada_70_90_x-1.ipynb").write_bytes(course.content(lying))
        (folder / "conftest.py").write_text("open('here', 'w')")
        moodle = tmp_path / "moodle.zip"
        with zipfile.ZipFile(moodle, "w") as packed:
            packed.writestr("Ben Li_12_assignsubmission_file_/Kopie von x.ipynb", saved()())
            packed.writestr("../../Eve_13_assignsubmission_file_/x.ipynb", saved()())
            link = zipfile.ZipInfo("Dan_14_assignsubmission_file_/x.ipynb")
            link.external_attr = (stat.S_IFLNK | 0o777) << 16
            packed.writestr(link, str(out / "seed"))
        expected |= {"ada": FULL, "Ben Li": FULL, "in/conftest": NOT_UNDERSTOOD}
        expected |= {"Eve": NOT_UNDERSTOOD, "Dan": NOT_UNDERSTOOD}

        words = ["grade", folder, moodle, "--out", out, "--course", small_course, "--workers", "2"]
        done = course.start(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, _ = done.communicate()
        assert done.returncode == 0, said
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()

    seen = course.grades(out)
    header = seen.pop("learner")
    if not ALL:  # no one handed in the other notebook, so it has no column
        seen = {name: [*row[:4], "", *row[4:]] for name, row in seen.items()}
    assert header[0] == "notebook" and header[-3:] == ["total", "maximum", "status"]
    assert {name: row[1:] for name, row in seen.items()} == expected

    assert left_behind(done.pid) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "moodle.zip", "out"]
    assert len(list(folder.iterdir())) == len(kinds) + 3
    assert not (out / "results" / "mine.json").exists()
    with open(out / "problems.csv", encoding="utf-8-sig", newline="") as file:
        problems = {(row["learner"], row["what"]): row["why"] for row in csv.DictReader(file)}
    assert problems["in/cut_off", "not understood"].endswith("is it cut off?")
    assert "an older version; in/ada_70_90_x-1.ipynb" in problems["ada", "not graded"]
    assert "leads out of the zip" in problems["Eve", "not understood"]
    pages = {path.name.split("-")[0]: path.read_text() for path in (out / "feedback").iterdir()}
    said = re.findall(r'class="line[^>]*>(.*?)</p>', pages["in_reads"])
    assert said and "read a notebook" not in "".join(said)
    assert (folder / "conftest.py").read_text() == "open('here', 'w')"
    assert "is there a loop" in pages["in_deaf"] or "no answer within" in pages["in_deaf"]
    # Nothing that tells who used Colab is for learners to see, and the seed is gone.
    assert not (out / "seed").exists()
    for path in [*out.rglob("*.html"), *out.rglob("*.json"), *out.rglob("*.csv")]:
        text = path.read_text(encoding="utf-8-sig")
        assert "Ada Byron" not in text and "0815" not in text


def test_killed_at_any_moment_it_goes_on_to_the_same_grades(
    small_course: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    bad = course.submission("02-other", first="import os; os._exit(1)")
    for name, made in (
        ("ada", course.submission("02-other")),
        ("ben", course.exercise("02-other")),
        ("cyd", bad),
    ):
        (folder / f"{name}.ipynb").write_bytes(course.content(made))
    words = ["grade", folder, "--course", small_course, "--workers", "2", "--out"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    begin = time.monotonic()
    assert course.start(*words, tmp_path / "whole", **quiet).wait() == 0
    seconds = time.monotonic() - begin
    whole = (tmp_path / "whole" / "grades.csv").read_bytes()
    rows = {name: row[1] for name, row in course.grades(tmp_path / "whole").items()}
    assert rows == {"learner": "first", "ada": "4", "ben": "0", "cyd": "0"}

    moments = random.Random(int(os.environ.get("GRADE_PROOF_SEED", "0")))
    for _ in range(20 if ALL else 2):
        below: list[psutil.Process] = []
        out = tmp_path / "out"
        running = course.start(*words, out, **quiet)
        time.sleep(moments.uniform(0, seconds))
        with suppress(psutil.NoSuchProcess):  # it was quick, and is over
            below = psutil.Process(running.pid).children(recursive=True)
        running.send_signal(signal.SIGKILL)
        running.wait()
        assert psutil.wait_procs(below, timeout=10)[1] == []
        again = course.start(*words, out, **quiet)
        assert again.wait() == 0
        assert (out / "grades.csv").read_bytes() == whole
        assert not list(out.rglob(".*"))
        assert left_behind(running.pid) == left_behind(again.pid) == []
        shutil.rmtree(out)


def test_ctrl_c_ends_it_at_once_and_it_goes_on_later(small_course: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    slow = course.submission("02-other", first="import time; time.sleep(20)")
    for name, made in (("ada", course.submission("02-other")), ("ben", slow)):
        (folder / f"{name}.ipynb").write_bytes(course.content(made))
    words = ["grade", folder, "--course", small_course, "--out", out]
    # As a terminal does: to the whole group of processes.
    running = course.start(*words, stderr=subprocess.PIPE, start_new_session=True)
    until = time.monotonic() + 60
    while not list((out / "results").glob("ada*.json")) and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(3)  # ben's cell sleeps
    begin = time.monotonic()
    os.killpg(running.pid, signal.SIGINT)
    said = running.communicate()[1]
    assert time.monotonic() - begin < 10  # far from the 20 s that ben's cell would take
    assert running.returncode == 130 and "to go on" in said
    assert left_behind(running.pid) == []
    assert [path.name[:3] for path in (out / "results").glob("*.json")] == ["ada"]


@pytest.mark.skipif(not ALL, reason="200 submissions take minutes: see `make grade-proof`")
def test_200_submissions_take_no_more_memory_than_50(small_course: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for i in range(200):
        made = course.submission("02-other", first=f"def first(x): return x[:1]  # {i}")
        (folder / f"n{i}.ipynb").write_bytes(course.content(made))
    words = ["grade", folder, "--course", small_course, "--out", out, "--workers", "2"]
    running = course.start(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    grader = psutil.Process(running.pid)
    at: dict[int, float] = {}  # MB of the grader and its servers, by how many are graded
    while running.poll() is None:
        graded = len(list((out / "results").glob("*.json")))
        with suppress(psutil.NoSuchProcess):
            at[graded] = sum(p.memory_info().rss for p in [grader, *grader.children()]) / 1e6
        time.sleep(0.05)
    assert running.returncode == 0
    assert {row[1] for row in course.grades(out).values()} == {"first", "4"}
    early, late = (max(mb for graded, mb in at.items() if n - 10 < graded <= n) for n in (50, 199))
    print(f"{early:.1f} MB at 50, {late:.1f} at 199")
    assert late < early + 5
