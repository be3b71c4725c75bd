"""What each submission gets: right answers pass, whatever else they do; all others do not."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import grading_course as course
from qkv.grading import graft, reading, sandbox
from qkv.grading.nbval_server import Servers
from qkv.grading.run import GradersFault, Outcome, Runner
from qkv.grading.sandbox import Limits, NoSandbox

NAME = f"qkv-test-{os.getpid()}"
SEED = 77
RUNNER = Runner(NAME, limits=Limits(seconds=3))


@pytest.fixture(autouse=True)
def small_course(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graft, "SEED_CELL", course.SEED_CELL)


@pytest.fixture(scope="module", autouse=True)
def no_server_is_left() -> Iterator[None]:
    before = set(psutil.Process().children())
    yield
    RUNNER.close()
    assert set(psutil.Process().children()) <= before


@pytest.fixture(scope="module")
def lines() -> dict[str, str]:
    try:
        sandbox.probe()
    except NoSandbox as error:
        assert "CI" not in os.environ, error  # never skipped there
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graft, "SEED_CELL", course.SEED_CELL)
        return RUNNER.expected(course.solution(), SEED)


def outcomes(lines: dict[str, str], **sources: str) -> dict[str, Outcome]:
    """What a submission gets that is perfect but for these answers."""
    pristine = course.solution()
    made = reading.read(course.content(course.submission(**sources)))
    found = graft.answers(made, graft.exercises(pristine)).sources
    graded = RUNNER.grade(pristine, found, SEED, lines)
    assert not [*Path("/tmp").glob(f"{NAME}*"), *Path(sandbox.SHARED).glob(f"{NAME}*")]
    return {outcome.name: outcome for outcome in graded}


def statuses(graded: dict[str, Outcome]) -> list[str]:
    return [outcome.status for outcome in graded.values()]


def test_the_lines_come_from_the_solution_and_the_seed(lines: dict[str, str]) -> None:
    assert list(lines) == ["double", "total", "last"]
    other = RUNNER.expected(course.solution(), SEED + 1)
    for name, line in lines.items():
        assert line.startswith(f"{name}: ok ")
        assert other[name] != line


def test_a_solution_that_fails_is_the_graders_fault() -> None:
    with pytest.raises(GradersFault, match="solution of last does not pass.*wrong"):
        RUNNER.expected(course.submission(last="def last(x): return x[:1]"), SEED)


def test_a_kernel_that_dies_before_any_answer_is_the_graders_fault(lines: dict[str, str]) -> None:
    pristine = course.solution()
    course.cell(pristine, "set-up").source = "import os; os._exit(1)"
    with pytest.raises(GradersFault, match="before any answer had run: the kernel died"):
        RUNNER.grade(pristine, {"double": "", "total": "", "last": ""}, SEED, lines)


def test_a_kernel_that_never_starts_is_the_graders_fault(
    lines: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tight = Runner(NAME, limits=Limits(processes=1))
    with pytest.raises(GradersFault, match="KernelLost|RuntimeError|Kernel"):
        tight.expected(course.solution(), SEED)
    tight.close()


def test_one_server_runs_all_and_one_that_died_is_replaced(lines: dict[str, str]) -> None:
    [server] = [p for p in psutil.Process().children() if "nbval_server" in " ".join(p.cmdline())]
    assert statuses(outcomes(lines)) == ["passed"] * 3
    assert server.is_running() and server.children() == []
    server.kill()
    assert statuses(outcomes(lines)) == ["passed"] * 3
    assert not server.is_running()


def test_a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    assert Servers().run(tmp_path, 0.01) == ""
    assert set(psutil.Process().children()) == before


def test_a_server_that_cannot_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nbval.py").write_text("raise ImportError('not today')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    runner = Runner(NAME, limits=Limits(seconds=3))
    with pytest.raises(GradersFault, match="(?s)nbval did not run.*not today"):
        runner.expected(course.solution(), SEED)


def test_right_answers_get_all_points_whatever_else_they_do(lines: dict[str, str]) -> None:
    noisy = """\
import sys, warnings
def double(x):
    warnings.warn("careful")
    print("double: 50%", end="\\r")
    print("no end of line", end="")
    sys.stderr.write("progress")
    from IPython.display import HTML, display
    display(HTML("<b>hello</b>"))
    return [2 * v for v in x]
5"""
    raised_after = "def total(x): return [sum(double(x)) // 2]\n1 / 0"
    marked = "# NBVAL_RAISES_EXCEPTION\ndef last(x): return x[-1:]"
    graded = outcomes(lines, double=noisy, total=raised_after, last=marked)
    assert statuses(graded) == ["passed"] * 3
    assert [o.points for o in graded.values()] == [2, 3, 1]
    assert [o.line for o in graded.values()] == list(lines.values())


def test_wrong_answers_get_nothing_and_say_why(lines: dict[str, str]) -> None:
    stub = "def total(x):\n    # YOUR CODE HERE\n    raise NotImplementedError"
    graded = outcomes(
        lines, double="# NBVAL_SKIP\ndef double(x): return 2 * x", total=stub, last="def last(x)"
    )
    assert [o.points for o in graded.values()] == [0, 0, 0]
    assert [o.maximum for o in graded.values()] == [2, 3, 1]
    assert statuses(graded) == ["wrong"] * 3
    assert graded["double"].line.startswith("double: wrong, [")
    assert graded["total"].line == "total: not written yet"
    assert graded["last"].line.startswith("last: SyntaxError")


def test_a_function_under_another_name_is_named(lines: dict[str, str]) -> None:
    graded = outcomes(lines, last="def lastt(x): return x[-1:]", double="double_ = None")
    assert graded["last"].line == (
        "last: NameError: name 'last' is not defined; this cell defines lastt"
    )
    assert graded["double"].line.endswith("not defined; this cell defines no function")


def test_what_is_printed_in_place_of_the_check_is_worth_nothing(lines: dict[str, str]) -> None:
    forged = f"""\
def double(x):
    print("double: ok 12")
    return [0]
def check(name, answer):
    print(f"{{name}}: ok 12")
    for i in range(100): print(f"{{name}}: ok {{i}}")
print({lines["double"]!r})  # not even the right line, where it is no check's"""
    graded = outcomes(lines, double=forged)
    assert statuses(graded) == ["wrong"] * 3
    assert "not with the numbers" in graded["double"].line
    assert not any(line.split()[-1] in o.line for line in lines.values() for o in graded.values())


def test_a_guess_among_many_lines_does_not_count(lines: dict[str, str]) -> None:
    many = f"def last(x):\n    print({lines['last']!r})\n    print('last: ok 3')\n    return [3]"
    assert outcomes(lines, last=many)["last"].status == "wrong"


def test_a_missing_answer_does_not_get_the_solutions_points(lines: dict[str, str]) -> None:
    pristine = course.solution()
    sources = {"last": course.cell(pristine, "last-answer").source}
    graded = RUNNER.grade(pristine, sources, SEED, lines)
    assert [o.status for o in graded] == ["missing", "missing", "passed"]
    assert sum(o.maximum for o in graded) == 6


def test_after_a_death_the_others_are_graded_with_the_earlier_answers(
    lines: dict[str, str],
) -> None:
    start = time.monotonic()
    graded = outcomes(lines, total="import os\ndef total(x): os._exit(1)")
    assert statuses(graded) == ["passed", "stopped", "passed"]
    assert graded["total"].line == "the kernel died"
    assert time.monotonic() - start < 300  # nbval by itself would wait 2,000 s

    graded = outcomes(lines, last="import os\nos._exit(1)")
    assert statuses(graded) == ["passed", "passed", "stopped"]

    # `total` calls `double`, which is still there; the kernel is lost again in its check.
    graded = outcomes(lines, double="import os\ndef double(x): os._exit(1)")
    assert statuses(graded) == ["stopped", "stopped", "passed"]


def test_after_a_hang_the_others_are_graded(lines: dict[str, str]) -> None:
    deaf = """\
def last(x):
    while True:
        try:
            while True: pass
        except BaseException: pass"""
    graded = outcomes(lines, last=deaf)
    assert statuses(graded) == ["passed", "passed", "stopped"]
    # on a very busy machine the clock is first
    assert re.search("3 s: is there a loop|no answer within 12 s", graded["last"].line)

    graded = outcomes(lines, double="while True: pass")
    assert statuses(graded) == ["stopped", "wrong", "passed"]


def test_a_late_death_ends_the_run_in_the_end(lines: dict[str, str]) -> None:
    bomb = "import os, threading\ndef double(x): threading.Timer(0, os._exit, (1,)).start()"
    late = outcomes(lines, double=bomb, total="def total(x): import time; time.sleep(1)")
    assert late["double"].points == late["total"].points == 0
    assert late["last"].status == "passed"


def test_a_flood_is_cut(lines: dict[str, str]) -> None:
    graded = outcomes(lines, total="def total(x):\n    while True: print('y' * 10_000)")
    assert statuses(graded) == ["passed", "stopped", "passed"]
    assert len(graded["total"].line) < 100


def test_a_long_line_is_cut(lines: dict[str, str]) -> None:
    graded = outcomes(lines, last="def last(x): raise ValueError('y' * 100_000)")
    assert graded["last"].status == "wrong"
    assert len(graded["last"].line) <= 2000


def test_without_a_sandbox_the_same_scores_and_nothing_left() -> None:
    open_runner = Runner(NAME, sandboxed=False, limits=Limits(seconds=5))
    pristine = course.solution()
    lines = open_runner.expected(pristine, SEED)
    sources = {e.name: course.cell(pristine, e.answer_id).source for e in graft.exercises(pristine)}
    sources["double"] = """\
import os, subprocess
subprocess.Popen(["sleep", "4322.0"], start_new_session=True)
def double(x): os._exit(1)"""
    graded = open_runner.grade(pristine, sources, SEED, lines)
    assert [o.status for o in graded] == ["stopped", "stopped", "passed"]
    open_runner.close()
    assert not [*Path("/tmp").glob(f"{NAME}*"), *Path(sandbox.SHARED).glob(f"{NAME}*")]
    left = [p for p in psutil.process_iter(["cmdline"]) if "4322.0" in (p.info["cmdline"] or [])]
    assert left == []
