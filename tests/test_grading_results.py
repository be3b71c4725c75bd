"""Grades, feedback and the other files, from results made by hand."""

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import grading_course as course
from qkv.grading import feedback, results, tables
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
            ("x" * 999,),
        ]
    ]
    assert len(set(map(str.lower, names))) == len(names)
    assert all(name.isascii() and "/" not in name and len(name) < 100 for name in names)
    assert not any(name.startswith(".") for name in names)


def test_grades(tmp_path: Path) -> None:
    broken = made("=cmd()", status="not understood", notebook="", reason="empty", outcomes=[])
    tables.grades(tmp_path / "grades.csv", [made("Ada"), broken], COURSE)
    assert rows(tmp_path / "grades.csv") == [
        ["learner", "id", "notebook", "double", "total", "last", "total", "maximum", "status"],
        ["Ada", "7", "01-small", "2", "0", "0", "2", "6", "graded"],
        ["'=cmd()", "7", "", "", "", "", "", "", "not understood"],
    ]


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
    assert [(row[0], row[3].split()[-1]) for row in same] == [("Ada", "Ben"), ("Ben", "Ada")]


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
