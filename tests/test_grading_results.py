"""Grades, feedback and the other files, from results made by hand."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import click.testing
import pytest
from click.testing import CliRunner

import grading_course as course
from qkv.grading import cli, feedback, results, tables
from qkv.grading.course import Pristine
from qkv.grading.graft import exercises
from qkv.grading.results import Result
from qkv.grading.run import Outcome
from qkv.grading.submissions import Refused

EVIL = "<script>alert(1)</script>\x00\x1b[31m"
COURSE = [
    Pristine(name, course.solution(name), exercises(course.solution(name)))
    for name in course.NOTEBOOKS
]


def made(learner: str, **changes: object) -> Result:
    outcomes = [
        Outcome("double", "passed", 2, 2, "double: ok 1"),
        Outcome("total", "wrong", 0, 3, f"total: wrong {EVIL}"),
        Outcome("last", "missing", 0, 1, "no cell with this answer was found"),
    ]
    values = {
        "learner": learner,
        "platform_id": "7",
        "notebook": "01-small",
        "path": f"{learner}.ipynb",
        "fingerprint": "f",
        "status": "graded",
        "outcomes": outcomes,
        "answers": {"double": f"def double(x): return '{learner} & {EVIL}'", "total": " "},
    }
    return Result(**(values | changes))


def rows(path: Path) -> list[list[str]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def test_a_result_comes_back_as_it_was_written(tmp_path: Path) -> None:
    one = made("Ada \udc80 日本", remarks=["odd"])
    path = results.path_of(tmp_path, one.learner, "7", one.notebook, one.path)
    results.write(path, one)
    assert results.read(path) == one
    assert (one.points, one.maximum) == (2, 6)
    for broken in ("", "{}", '{"outcomes": 3}', path.read_text()[:-10]):
        path.write_text(broken)
        assert results.read(path) is None
    assert results.read(tmp_path / "nowhere") is None


def test_file_names_are_plain_and_differ() -> None:
    names = [
        results.file_name(*words)
        for words in [
            ("../a",),
            ("a",),
            ("A",),
            ("a", ""),
            ("a/b",),
            ("a_b",),
            ("日本",),
            ("日本", "103"),
            ("-rf", "7"),
            ("x" * 999,),
        ]
    ]
    assert len(set(map(str.lower, names))) == len(names)
    assert all(name.isascii() and "/" not in name and len(name) < 100 for name in names)
    assert all(name[0].isalnum() for name in names)
    assert results.file_name("日本", "103").startswith("103-")
    assert results.file_name("日本").startswith("learner-")


def test_grades(tmp_path: Path) -> None:
    broken = made("=cmd()", status="not understood", notebook="", reason="empty", outcomes=[])
    tables.grades(tmp_path / "grades.csv", [made("Ada"), broken], COURSE)
    assert rows(tmp_path / "grades.csv") == [
        ["learner", "id", "notebook", "double", "total", "last", "total", "maximum", "status"],
        ["Ada", "7", "01-small", "2", "0", "0", "2", "6", "graded"],
        ["'=cmd()", "7", "'=cmd().ipynb", "", "", "", "", "", "not understood"],
    ]
    assert '"Ada","7","01-small","2"' in (tmp_path / "grades.csv").read_text()


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("Ada-Lou Byron", "Ada-Lou Byron"),
        ("  =1+1", "'  =1+1"),
        ("\n=1+1", "' =1+1"),
        ("\t@x", "' @x"),
        ("\u3000＝1", "'\u3000＝1"),
        ("\ufeff-1", "'\ufeff-1"),
        ("＋1", "'＋1"),
        ("－1", "'－1"),
        ("＠x", "'＠x"),
        ("a\r\nb\x1b[31m\x9b\u202ec\udc80", "a  b?[31m??c?"),
    ],
)
def test_names_do_nothing_in_a_spreadsheet(tmp_path: Path, name: str, cell: str) -> None:
    tables.grades(tmp_path / "grades.csv", [made(name)], COURSE)
    assert rows(tmp_path / "grades.csv")[1][0] == cell


def test_problems(tmp_path: Path) -> None:
    alike = made("Ben", answers={"double": made("Ada").answers["double"] + "\n", "total": " "})
    stub = "# YOUR CODE HERE\nraise NotImplementedError"
    stubs = [made(name, answers={"double": stub}, remarks=["odd one"]) for name in ("C", "D")]
    broken = made("E", status="grader's fault", reason="it fell over")
    older = [Refused("ada-0.ipynb", "Ada", "an older version")]
    tables.problems(tmp_path / "p.csv", [made("Ada"), alike, *stubs, broken], older)
    found = rows(tmp_path / "p.csv")
    assert ["E", "E.ipynb", "grader's fault", "it fell over"] in found
    assert ["Ada", "ada-0.ipynb", "not graded", "an older version"] in found
    assert ["C", "C.ipynb", "odd", "odd one"] in found
    same = [row for row in found if row[2] == "identical"]
    why = "double: the same answer, letter by letter"
    assert same == [["Ada; Ben", "Ada.ipynb; Ben.ipynb", "identical", why]]


def test_identical_answers_are_one_row_for_each_group_and_notebook() -> None:
    def answers(**sources: str) -> dict[str, str]:
        return sources

    a, b = made("A", answers=answers(x="1", y="2", z="3")), made("B", answers=answers(x="1", y="2"))
    c = made("C", answers=answers(z="3 "))
    other = [replace(one, notebook="02-other") for one in (a, b)]
    assert tables.identical([a, b, c, *other]) == [
        ([a, b], ["x", "y"]),
        ([a, c], ["z"]),
        (other, ["x", "y"]),
    ]
    # No one is identical with themselves; two who have the same name are two.
    assert tables.identical([a, replace(a, path="again.ipynb")]) == []
    assert len(tables.identical([a, replace(a, platform_id="8", path="b.ipynb")])) == 1


def test_junit(tmp_path: Path) -> None:
    broken = made("Ben", status="grader's fault", reason=EVIL, outcomes=[])
    tables.junit(tmp_path / "junit.xml", [made("Ada"), broken])
    suites = list(ElementTree.parse(tmp_path / "junit.xml").getroot())
    assert [(s.get("tests"), s.get("failures"), s.get("errors")) for s in suites] == [
        ("3", "2", "0"),
        ("1", "0", "1"),
    ]


def test_gradescope(tmp_path: Path) -> None:
    tables.gradescope(tmp_path, [made("Ada"), made("Ada", notebook="02-other"), made("Ben")])
    folders = sorted(tmp_path.iterdir())
    assert len(folders) == 2
    ada = json.loads((folders[0] / "results.json").read_text())
    assert ada["score"] == 4
    assert [t["status"] for t in ada["tests"]] == ["passed", "failed", "failed"] * 2
    assert "Ben" not in json.dumps(ada)


def test_gradescope_says_nothing_of_a_learner_who_could_not_be_graded(tmp_path: Path) -> None:
    fault = made("Ben", status="grader's fault", reason="the seed is 77", outcomes=[])
    pdf = made("Ben", status="not understood", notebook="", path="b.pdf", outcomes=[])
    half = replace(fault, learner="Ada", notebook="02-other", path="other.ipynb")
    tables.gradescope(tmp_path, [made("Ben"), made("Ada")])
    tables.gradescope(tmp_path, [fault, pdf, made("Ada"), half])
    (folder,) = tmp_path.iterdir()
    ada = json.loads((folder / "results.json").read_text())
    assert ada["score"] == 2 and len(ada["tests"]) == 3
    assert "other.ipynb: not graded yet" in ada["output"] and "seed" not in ada["output"]


def test_gradescope_removes_its_own_folders_of_learners_who_are_gone(tmp_path: Path) -> None:
    for name, file in (("gone", "results.json"), ("killed", ".results.json.7.tmp")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    (tmp_path / "mine").mkdir()
    for file in ("results.json", "notes.txt"):
        (tmp_path / "mine" / file).write_text("x")
    (tmp_path / "file").write_text("x")
    elsewhere = tmp_path / "mine" / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "results.json").write_text("x")
    (tmp_path / "link").symlink_to(elsewhere, target_is_directory=True)
    tables.gradescope(tmp_path, [made("Ada")])
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept[1:] == ["file", "link", "mine"] and kept[0].startswith("Ada")
    assert len(list((tmp_path / "mine").rglob("*"))) == 4


class NoJob:
    """In place of a grading job: it gives these results."""

    results: list[Result] = []
    older: list[Refused] = []
    earlier = 0  # results of another run

    def __init__(self, out: Path, *words: object, **more: object) -> None:
        out.mkdir(parents=True, exist_ok=True)

    def grade(self, found: object, refused: object, done: Callable[[Result], None]) -> list[Result]:
        for result in self.results:
            done(result)
        return self.results


@pytest.fixture
def grade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., click.testing.Result]:
    """Run `qkv grade` on the folder "in", with results made by hand."""
    monkeypatch.setattr(cli.sandbox, "probe", lambda: None)
    monkeypatch.setattr(cli, "load", lambda *_: COURSE)
    monkeypatch.setattr(cli, "Job", NoJob)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "Ada.ipynb").write_text("x")

    def run(results: list[Result], out: str = "out", place: str = "in") -> click.testing.Result:
        monkeypatch.setattr(NoJob, "results", results)
        words = ["grade", str(tmp_path / place), "--out", str(tmp_path / out)]
        return CliRunner().invoke(cli.main, words, catch_exceptions=False)

    return run


def test_the_exit_code_says_whether_all_could_be_graded(
    grade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = made("Ben", status="not understood", notebook="", outcomes=[])
    fault = made("Cyd", status="grader's fault", outcomes=[])
    assert grade([made("Ada"), broken]).exit_code == 0
    assert grade([made("Ada"), fault]).exit_code == 1
    assert len(rows(tmp_path / "out" / "grades.csv")) == 3
    assert grade([broken]).exit_code == 1
    assert len(rows(tmp_path / "out" / "grades.csv")) == 2
    monkeypatch.setattr(NoJob, "earlier", 1)
    assert grade([made("Ada"), broken]).exit_code == 1


def test_where_there_is_no_notebook_nothing_is_touched(grade, tmp_path: Path) -> None:
    (tmp_path / "in" / "Ada.ipynb").unlink()
    done = grade([], out="a/out")
    assert done.exit_code == 1 and f"no notebook in {tmp_path / 'in'}" in done.output
    (tmp_path / "in" / "Ada\x1b[31m.zip").write_text("x")
    done = grade([], out="a/out")
    assert "1 of other kinds, such as Ada?[31m.zip: a zip inside: unpack it" in done.output
    assert not (tmp_path / "a").exists()


def test_the_grades_may_lie_in_the_folder_that_is_graded(grade, tmp_path: Path) -> None:
    (tmp_path / "in" / "Ada.ipynb").rename(tmp_path / "Ada.ipynb")
    (tmp_path / "in" / "grades.csv").write_text("x")
    assert grade([made("Ada")], out="in", place=".").exit_code == 0
    (tmp_path / "Ada.ipynb").unlink()
    done = grade([made("Ada")], out="in", place=".")
    assert done.exit_code == 1 and "of other kinds" not in done.output


def test_what_cannot_be_written_is_said_to_be_out(grade, tmp_path: Path) -> None:
    (tmp_path / "afile").write_text("x")
    done = grade([made("Ada")], out="afile/x")
    assert done.exit_code == 1 and f"--out {tmp_path}/afile/x: cannot write there" in done.output
    (tmp_path / "out" / "grades.csv").mkdir(parents=True)
    done = grade([made("Ada")])
    assert done.exit_code == 1 and f"--out {tmp_path}/out: cannot write there" in done.output


def test_the_progress_bar_ends_full_where_there_are_older_versions(
    grade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in" / "Ada-1.ipynb").write_text("x")
    monkeypatch.setattr(NoJob, "older", [Refused("Ada-1.ipynb", "Ada", "an older version")])
    assert "2/2" in grade([made("Ada")]).output


def test_names_do_nothing_to_the_terminal(grade) -> None:
    done = grade([made("A\x1b]0;x\x07\nB\udc80\u202e日本")])
    assert "A?]0;x? B??日本" in done.output


def test_feedback_shows_a_learner_only_what_is_theirs_and_escapes_it(tmp_path: Path) -> None:
    stale = tmp_path / "old.html"
    stale.write_text("x")
    fault = made("Ben", status="grader's fault", reason="the seed is 77")
    feedback.write(tmp_path, [made("Ada"), fault])
    assert not stale.exists()
    pages = {path.name[:3]: path.read_text() for path in tmp_path.glob("*.html")}
    assert "def double(x)" in pages["Ada"] and "double: ok 1" in pages["Ada"]
    assert "2 of 6 points" in pages["Ada"]
    assert "Ben" not in pages["Ada"] and "Ada" not in pages["Ben"]
    assert "the seed" not in pages["Ben"]
    assert "<script>" not in pages["Ada"] and "&lt;script&gt;" in pages["Ada"]


def test_feedback_shows_the_whole_answer_however_long(tmp_path: Path) -> None:
    forger = "\n" * 150_000 + "forge()"
    feedback.write(tmp_path, [made("Ada", answers={"double": forger})])
    (page,) = tmp_path.glob("*.html")
    assert forger in page.read_text()
