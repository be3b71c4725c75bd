"""A job: a second run grades only what changed, each result stands alone, memory stays flat."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import grading_course as course
from qkv.grading import cli, graft, job, sandbox
from qkv.grading.run import GradersFault, Outcome, Runner

OTHER = "02-other"


@pytest.fixture(scope="module")
def small_course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return course.write(tmp_path_factory.mktemp("course"))


@pytest.fixture
def graded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No kernels: an answer is right when it is the solution, letter by letter.

    Gives the first answer of each notebook that is graded.
    """
    runs: list[str] = []

    def grade(self, pristine, sources, seed, lines):
        runs.append(next(iter(sources.values()), ""))
        outcomes = []
        for one in graft.exercises(pristine):
            ok = sources.get(one.name) == course.cell(pristine, one.answer_id).source
            said = ("passed", one.points) if ok else ("wrong", 0)
            outcomes.append(Outcome(one.name, *said, one.points, f"{one.name}: ok"))
        return outcomes

    monkeypatch.setattr(Runner, "grade", grade)
    monkeypatch.setattr(Runner, "expected", lambda *_: {})
    monkeypatch.setattr(sandbox, "probe", lambda: None)
    return runs


def qkv(*words: object) -> Result:
    return CliRunner().invoke(cli.main, [str(word) for word in words], catch_exceptions=False)


def put(folder: Path, **files: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.ipynb").write_bytes(content)
    return folder


def test_a_second_run_grades_only_what_changed(
    small_course: Path, tmp_path: Path, graded: list[str]
) -> None:
    inside = put(
        tmp_path / "in",
        ada=course.content(course.submission()),
        ben=course.content(course.submission(OTHER)),
        cyd=course.content(course.exercise()),
        dan=b"",
    )
    out = tmp_path / "out"
    words = ["grade", inside, "--out", out, "--course", small_course]
    done = qkv(*words)
    full = ["01-small", "2", "3", "1", "", "6", "6", "graded"]
    rows = {
        "learner": ["notebook", "double", "total", "last", "first", "total", "maximum", "status"],
        "ada": full,
        "ben": [OTHER, "", "", "", "4", "4", "4", "graded"],
        "cyd": ["01-small", "0", "0", "0", "", "0", "6", "graded"],
        "dan": ["dan.ipynb", "", "", "", "", "", "", "not understood"],
    }
    assert course.grades(out) == rows
    assert "3 graded, 1 not" in done.output
    assert len(graded) == 3

    put(inside, cyd=course.content(course.submission()))
    (inside / "dan.ipynb").unlink()
    qkv(*words)
    assert len(graded) == 4
    assert course.grades(out) == {n: r for n, r in rows.items() if n != "dan"} | {"cyd": full}
    assert len(list((out / "results").iterdir())) == 3

    qkv(*words, "--again")
    assert len(graded) == 7
    # A solution that changed is another notebook.
    path = small_course / "solutions" / f"{OTHER}.ipynb"
    before = path.read_bytes()
    path.write_bytes(before.replace(b"Write first", b"Do write first"))
    qkv(*words)
    path.write_bytes(before)
    assert len(graded) == 8


def test_a_seed_lasts_as_long_as_its_job(
    small_course: Path, tmp_path: Path, graded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = put(tmp_path / "in", ada=course.content(course.submission(OTHER)))
    out = tmp_path / "out"
    words = ["grade", inside, "--out", out, "--course", small_course, "--again"]
    seeds = []
    grade = Runner.grade

    def noting(self, pristine, sources, seed, lines):
        seeds.append(seed)
        if len(seeds) == 1:
            raise KeyboardInterrupt
        return grade(self, pristine, sources, seed, lines)

    monkeypatch.setattr(Runner, "grade", noting)
    done = qkv(*words)
    assert done.exit_code == 130 and "to go on" in done.output
    for _ in range(2):
        qkv(*words)
        assert not (out / "seed").exists()
    assert seeds[0] == seeds[1] != seeds[2]


def test_what_was_graded_stays_when_other_files_are_given(
    small_course: Path, tmp_path: Path, graded: list[str]
) -> None:
    first = put(tmp_path / "first", ada=course.content(course.submission(OTHER)), dan=b"")
    second = put(tmp_path / "second", ben=course.content(course.submission(OTHER)))
    out = tmp_path / "out"
    for inside in (first, second):
        done = qkv("grade", inside, "--out", out, "--course", small_course)
    assert list(course.grades(out)) == ["learner", "ada", "ben"]
    assert "1 of an earlier run" in done.output
    assert len(graded) == 2


def test_what_was_graded_stays_where_grading_it_anew_fails(
    small_course: Path, tmp_path: Path, graded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = put(tmp_path / "in", ada=course.content(course.submission(OTHER)))
    words = ["grade", inside, "--out", tmp_path / "out", "--course", small_course]
    qkv(*words)

    def fails(*_):
        raise GradersFault("no kernel came up")

    monkeypatch.setattr(Runner, "grade", fails)
    qkv(*words, "--again")
    assert course.grades(tmp_path / "out")["ada"][-1] == "graded"
    assert "no kernel came up" in (tmp_path / "out" / "problems.csv").read_text()


def test_what_goes_wrong_with_one_is_the_graders_fault_and_tried_again(
    small_course: Path, tmp_path: Path, graded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fine = course.content(course.submission(OTHER))
    inside = put(tmp_path / "in", ada=fine, ben=course.content(course.exercise(OTHER)))
    out = tmp_path / "out"
    words = ["grade", inside, "--out", out, "--course", small_course, "--workers", "2"]
    grade = Runner.grade

    def fails(error: Exception) -> Callable[..., list[Outcome]]:
        def broken(self, pristine, sources, *rest):
            if "YOUR CODE HERE" in sources["first"]:
                raise error
            return grade(self, pristine, sources, *rest)

        return broken

    for error in (ZeroDivisionError("oh"), GradersFault("oh")):
        with monkeypatch.context() as patch:
            patch.setattr(Runner, "grade", fails(error))
            qkv(*words, "--again")
        assert course.grades(out)["ben"][-1] == "grader's fault"
        assert "oh" in (out / "problems.csv").read_text()
        assert course.grades(out)["ada"][-1] == "graded"
    qkv(*words)
    assert course.grades(out)["ben"][-1] == "graded"


def test_the_graders_memory_stays_flat(
    small_course: Path, tmp_path: Path, graded: list[str]
) -> None:
    one = course.submission(OTHER)
    one.cells.append({"cell_type": "raw", "source": "x" * 300_000, "metadata": {}})
    content = course.content(one)
    inside = put(tmp_path / "in", **{f"n{i}": content for i in range(200)})
    assert len(content) * 200 > 50e6
    tracemalloc.start()
    qkv("grade", inside, "--out", tmp_path / "out", "--course", small_course)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(graded) == 200
    assert most < 15e6


def test_what_killed_jobs_left_is_swept_away(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(job.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(sandbox, "SHARED", str(tmp_path))
    monkeypatch.setattr(job.psutil, "pid_exists", lambda pid: pid == 7)
    names = [f"{job.SCRATCH}{end}" for end in ("7-abc", "8-abc", "x")] + ["else"]
    for name in names:
        (tmp_path / name).mkdir()
    job.sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["else", names[0]]


def test_without_a_sandbox_it_refuses_unless_told(
    small_course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graft, "SEED_CELL", course.SEED_CELL)
    inside = put(tmp_path / "in", ada=course.content(course.submission(OTHER)))
    monkeypatch.setattr(sandbox, "probe", sandbox.probe.__wrapped__)
    words = ["grade", inside, "--out", tmp_path / "out", "--course", small_course]
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        done = qkv(*words)
    assert done.exit_code == 1
    assert "--no-sandbox" in done.output
    assert not (tmp_path / "out").exists()
    assert qkv(*words, "--no-sandbox").exit_code == 0
    assert course.grades(tmp_path / "out")["ada"][1] == "4"


def test_check_tells_a_learner(
    small_course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graft, "SEED_CELL", course.SEED_CELL)
    wrong = "def total(x): return 0"
    path = put(tmp_path, mine=course.content(course.submission(total=wrong))) / "mine.ipynb"
    done = qkv("check", path, "--course", small_course)
    assert done.exit_code == 1
    assert "computes for over 30 s is stopped" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("double: ok ")
    assert lines[1].startswith("total: wrong, 0")
    assert lines[2].startswith("last: ok ")
    assert lines[3] == "2 of 3 right."

    path.write_bytes(course.content(course.submission()))
    assert qkv("check", path, "--course", small_course).exit_code == 0
    path.write_bytes(b"")
    done = qkv("check", path, "--course", small_course)
    assert done.exit_code == 1 and "empty" in done.output


def test_no_course(tmp_path: Path, graded: list[str]) -> None:
    inside = put(tmp_path / "in", ada=b"x")
    done = qkv("grade", inside, "--out", tmp_path / "out", "--course", tmp_path)
    assert done.exit_code == 1 and "Clone the course's repository" in done.output
