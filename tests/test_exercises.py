"""tools/exercises.py: what it makes, what it hides, and what each rule refuses."""

import contextlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from nbformat import NotebookNode, v4

from qkv import checks
from qkv.checks.faults import Wrong

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import exercise_form  # noqa: E402
import exercises  # noqa: E402
import notebook_form  # noqa: E402
import notebook_rules  # noqa: E402
import notebooks  # noqa: E402
from test_notebooks import cell, code, drop, markdown, printed, put, replace, stored  # noqa: E402

NAME = "01-rows.ipynb"
Change = Callable[[NotebookNode], object]

OPENING = """\
# Build it yourself

You write two functions, and know at once whether they are right.

The chapter is [Rows](../chapters/01-rows.ipynb). Write where it says `YOUR CODE HERE`, then run
the check cell."""

TASK = """\
## {name}

*5 minutes, easy*

Twice a number.

```python
>>> {name}(4)
8
```

<details><summary>Hint</summary>

Add.

</details>"""

SOLUTION = """\
# exercise: {name}
import math

def {name}(x):  # one number
    unit = 1
    ### BEGIN SOLUTION
    summands = [x * unit, x * unit]
    return math.fsum(summands) if 0 else sum(summands)
    ### END SOLUTION"""

STUB = """\
# exercise: {name}
import math

def {name}(x):  # one number
    unit = 1
    # YOUR CODE HERE
    raise NotImplementedError"""


def exercise(name: str) -> list[NotebookNode]:
    stem = name.replace("_", "-")
    answer = code(f"{stem}-answer", SOLUTION.format(name=name))
    check = code(f"{stem}-check", f'check("{name}", {name})', printed(f"{name}: ok  8.000\n"))
    answer.metadata["nbgrader"] = exercise_form.nbgrader(answer.id, solution=True)
    check.metadata["nbgrader"] = exercise_form.nbgrader(name, points=2)
    return [markdown(f"{stem}-task", TASK.format(name=name)), answer, check]


def good_solutions(*names: str) -> NotebookNode:
    """A small notebook of solutions that keeps every rule."""
    imported = code("import-check", "from qkv.checks import check")
    imported.metadata["nbgrader"] = exercise_form.nbgrader("import-check")
    cells = [
        markdown("opening", OPENING),
        code("set-up", notebook_form.set_up_source(), tags=("hide-cell",)),
        imported,
        code("something-shown", "print(5)", printed("5\n")),
    ]
    for name in names or ("twice", "two_times"):
        cells += exercise(name)
    return v4.new_notebook(cells=cells)


def course(folder: Path, notebook: NotebookNode, name: str = NAME) -> Path:
    """Store it in solutions/ as `run` would, without running, beside a chapter."""
    (folder / "chapters").mkdir(exist_ok=True)
    (folder / "chapters" / name).write_text(v4.writes(v4.new_notebook()))
    return stored(folder / "solutions" / name, notebook)


def graded(name: str, **fields: object) -> Change:
    return lambda notebook: cell(notebook, name).metadata.nbgrader.update(fields)


def prints(name: str, text: str) -> Change:
    return put(name, outputs=[printed(text)])


def move(name: str, to: int) -> Change:
    def change(notebook: NotebookNode) -> None:
        moved = cell(notebook, name)
        notebook.cells.remove(moved)
        notebook.cells.insert(to, moved)

    return change


def known(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(checks, "exercises", lambda: dict.fromkeys(names))


@pytest.fixture(autouse=True)
def two_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, "twice", "two_times")


def test_make_writes_the_exercise_and_check_is_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = course(tmp_path, good_solutions())
    before = path.read_bytes()
    target = tmp_path / "exercises" / NAME
    assert exercises.main(["make", str(path)]) == 0
    assert exercises.check([path]) == 0
    assert f"{path}: in step" in capsys.readouterr().out
    first = target.read_bytes()
    assert exercises.main(["make", str(path)]) == 0
    assert target.read_bytes() == first and path.read_bytes() == before
    assert f"{target}: up to date" in capsys.readouterr().out


def test_make_finds_its_way_from_the_folder_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(course(tmp_path, good_solutions()).parent)
    assert exercises.main(["make", NAME]) == 0
    assert (tmp_path / "exercises" / NAME).is_file()


def test_only_gaps_outputs_and_counts_differ(tmp_path: Path) -> None:
    solutions = notebook_form.read(course(tmp_path, good_solutions()))
    made = exercise_form.exercise_of(solutions)
    for was, now in zip(solutions.cells, made.cells, strict=True):
        part = was.id.rpartition("-")[2] if was.id != "import-check" else ""
        name = was.id.rpartition("-")[0].replace("-", "_")
        if part == "answer":
            assert was.source == SOLUTION.format(name=name)
            assert now.source == STUB.format(name=name)
        else:
            assert now.source == was.source
        if part in ("answer", "check"):
            assert (now.outputs, now.execution_count) == ([], None)
        elif was.cell_type == "code":
            assert now.outputs == was.outputs and now.execution_count == was.execution_count
        assert now.metadata == was.metadata and now.id == was.id
    assert cell(made, "something-shown").outputs and cell(solutions, "twice-check").outputs


def test_nothing_of_the_solution_is_in_the_exercise(tmp_path: Path) -> None:
    notebook = good_solutions()
    notebook.metadata["widgets"] = {"state": "summands"}
    cell(notebook, "twice-answer").metadata["mine"] = "summands"
    prints("twice-answer", "summands")(notebook)
    cell(notebook, "something-shown").metadata["mystnb"] = {"figure": {"name": "a", "caption": "b"}}
    path = course(tmp_path, notebook)
    run_hash = notebook_form.read(path).metadata.ask_match_blend.run_hash
    assert exercises.make([path]) == 0
    text = (tmp_path / "exercises" / NAME).read_text()
    for hidden in ("summands", "SOLUTION", "8.000", run_hash, "widgets"):
        assert hidden not in text
    # A book can name a figure once, and the solutions are in it too.
    figure = cell(notebook_form.read(tmp_path / "exercises" / NAME), "something-shown").metadata
    assert figure == {"mystnb": {"figure": {"caption": "b"}}}


def test_the_metadata_is_that_of_nbgraders_third_schema() -> None:
    fields = {"schema_version": 3, "task": False}
    assert exercise_form.nbgrader("a-answer", solution=True) == fields | {
        "grade": False,
        "grade_id": "a-answer",
        "locked": False,
        "solution": True,
    }
    assert exercise_form.nbgrader("a", points=2) == fields | {
        "grade": True,
        "grade_id": "a",
        "locked": True,
        "points": 2,
        "solution": False,
    }
    assert exercise_form.nbgrader("b")["locked"] and not exercise_form.nbgrader("b")["grade"]


def test_methods_of_a_class_have_a_gap_each() -> None:
    source = (
        "class A:\n    def f(self):\n        ### BEGIN SOLUTION\n        return 1\n"
        "        ### END SOLUTION\n\n    def g(self):\n        x = 2\n"
        "        ### BEGIN SOLUTION\n\n        y = 3\n        ### END SOLUTION\n        return x"
    )
    assert exercise_form.stub(source) == (
        "class A:\n    def f(self):\n        # YOUR CODE HERE\n        raise NotImplementedError\n"
        "\n    def g(self):\n        x = 2\n"
        "        # YOUR CODE HERE\n        raise NotImplementedError\n        return x"
    )
    assert exercise_form.solution_lines(source) == ["return 1", "y = 3"]


BEGIN, END = "    ### BEGIN SOLUTION\n", "\n    ### END SOLUTION"
BODY = "    summands = [x * unit, x * unit]\n    return math.fsum(summands) if 0 else sum(summands)"

# What is done to the good solutions -> the cell that is named, a piece of the message.
BREACHES: dict[str, tuple[Change, str, str]] = {
    "no marker": (replace("twice-answer", "# exercise: twice\n", ""), "twice-answer", "first line"),
    "other marker": (
        replace("twice-answer", "# exercise: twice", "# exercise: thrice"),
        "twice-answer",
        "answers 'thrice': let its id be 'thrice-answer'",
    ),
    "marker below": (
        replace("twice-answer", "# exercise: twice\nimport math", "import math\n# exercise: twice"),
        "twice-answer",
        "let its first line be  # exercise:",
    ),
    "no text": (
        drop("twice-task"),
        "twice-answer",
        "let the markdown cell 'twice-task' stand directly before it, not the code cell 'someth",
    ),
    "no check": (
        drop("twice-check"),
        "twice-answer",
        "cell 'twice-check' stand directly after it, not the markdown cell 'two-times-task'",
    ),
    "no check at the end": (
        drop("two-times-check"),
        "two-times-answer",
        "directly after it, not nothing",
    ),
    "no answer": (drop("twice-answer"), "twice-check", "belongs to no answer beside it"),
    "text after": (move("twice-task", 5), "twice-answer", "stand directly before it, not the"),
    "text far off": (move("twice-task", 3), "twice-task", "belongs to no answer beside it"),
    "check before": (move("twice-check", 5), "twice-answer", "stand directly before it, not the"),
    "metadata gone": (
        lambda n: cell(n, "twice-answer").metadata.pop("nbgrader"),
        "twice-answer",
        'write {"grade": false, "grade_id": "twice-answer", "locked": false',
    ),
    "locked answer": (graded("twice-answer", locked=True), "twice-answer", '"locked": false'),
    "open check": (graded("twice-check", locked=False), "twice-check", '"points": 2'),
    "other grade id": (graded("twice-check", grade_id="three"), "twice-check", '"twice"'),
    "open import": (graded("import-check", locked=False), "import-check", '"locked": true'),
    "metadata elsewhere": (
        lambda n: cell(n, "something-shown").metadata.update(nbgrader={"task": True}),
        "something-shown",
        "remove it",
    ),
    "points none": (graded("twice-check", points=0), "twice-check", "points is 0: give a whole"),
    "points half": (graded("twice-check", points=1.5), "twice-check", "points is 1.5"),
    "points true": (graded("twice-check", points=True), "twice-check", "points is True"),
    "points missing": (
        lambda n: cell(n, "twice-check").metadata.nbgrader.pop("points"),
        "twice-check",
        "points is None",
    ),
    "other call": (
        replace("twice-check", ", twice", ", two_times"),
        "twice-check",
        'let its one line be  check("twice", twice)',
    ),
    "no import": (drop("import-check"), "", "no cell 'import-check' before the first exercise"),
    "late import": (move("import-check", 6), "", "no cell 'import-check' before the first"),
    "other import": (
        replace("import-check", "import check", "import *"),
        "import-check",
        "let its one line be  from qkv.checks import check",
    ),
    "no gap": (
        put("twice-answer", source=STUB.format(name="twice")),
        "twice-answer",
        "has no gap",
    ),
    "never closed": (replace("twice-answer", END, ""), "twice-answer", "line 6: the region is nev"),
    "never begun": (replace("twice-answer", BEGIN, ""), "twice-answer", "line 8: no ### BEGIN"),
    "nested": (
        replace("twice-answer", BEGIN, BEGIN * 2),
        "twice-answer",
        "begun in line 6 is still open",
    ),
    "empty": (replace("twice-answer", BODY, ""), "twice-answer", "the region is empty"),
    "other indent": (
        replace("twice-answer", END, "\n### END SOLUTION"),
        "twice-answer",
        "line 9: not at the ind",
    ),
    "misspelt": (
        replace("twice-answer", "### BEGIN", "## Begin"),
        "twice-answer",
        "write the mark exactly",
    ),
    "beside code": (
        replace("twice-answer", "sum(summands)\n    ###", "sum(summands)  ###"),
        "twice-answer",
        "line 8: write the mark exactly",
    ),
    "mark in a text": (
        replace("twice-task", "Add.", "### END SOLUTION"),
        "twice-task",
        "outside an answer",
    ),
    "mark in other code": (
        replace("something-shown", "print(5)", f"if 1:\n{BEGIN}    print(5){END}"),
        "something-shown",
        "a solution's mark outside an answer",
    ),
    "half a statement": (
        replace("twice-answer", BEGIN, f"    y = (\n{BEGIN}"),
        "twice-answer",
        "is no Python (line",
    ),
    "whole function": (
        put(
            "twice-answer",
            source="# exercise: twice\n### BEGIN SOLUTION\ndef twice(x):\n    return 2 * x\n"
            "### END SOLUTION",
        ),
        "twice-answer",
        "its stub does not define twice",
    ),
    "no function": (
        put(
            "twice-answer",
            source="# exercise: twice\ndef twice(x):\n    return y\n"
            "### BEGIN SOLUTION\ny = 2\n### END SOLUTION",
        ),
        "twice-answer",
        "a region outside any function",
    ),
    "leak": (
        prints("something-shown", "so:\nsummands = [x * unit, x * unit]\n"),
        "something-shown",
        "shows the solution's line 'summands = [x * unit, x * unit]'",
    ),
    "wrong": (
        prints("twice-check", "twice: it stops\n"),
        "twice-check",
        "prints 'twice: it stops', not one line  twice: ok",
    ),
    "more than a line": (prints("twice-check", "twice: ok\nhm\n"), "twice-check", "ok\\nhm', not"),
    "never run": (
        put("twice-check", outputs=[]),
        "twice-check",
        "the solution prints '', not",
    ),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_make_and_check_refuse(
    breach: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, name, message = BREACHES[breach]
    notebook = good_solutions()
    change(notebook)
    path = course(tmp_path, notebook)
    assert exercises.main(["make", str(path)]) == 1
    made = capsys.readouterr().err
    assert not (tmp_path / "exercises").exists() or not list((tmp_path / "exercises").iterdir())
    assert exercises.check([path]) == 1
    checked = capsys.readouterr().out
    where = f"{NAME} [{name}]: " if name else f"{NAME}: "
    for said in (made, checked):
        assert any(where in line and message in line for line in said.splitlines()), said


# What a learner reads: held by notebooks.py check.
UNREADABLE: dict[str, tuple[Change, str, str]] = {
    "no sentence": (replace("opening", "You write", "- You"), "opening", "one sentence"),
    "two sentences": (replace("opening", "s, and know", "s. And"), "opening", "one sentence"),
    "no chapter": (replace("opening", "chapters/01-rows.ipynb", "README.md"), "opening", "link"),
    "no way to work": (replace("opening", "YOUR CODE HERE", "so"), "opening", "say how to work"),
    "one exercise": (drop("twice-task"), "", "1 exercises: a chapter has at least 2"),
    "no heading": (replace("twice-task", "## twice", "Twice"), "twice-task", "with a heading"),
    "no minutes": (replace("twice-task", "5 minutes, ", ""), "twice-task", "how long"),
    "no difficulty": (replace("twice-task", "easy", "nice"), "twice-task", "how hard"),
    "no hint": (replace("twice-task", "Hint", "More"), "twice-task", "fold a hint"),
    "no example": (replace("twice-task", ">>> ", ""), "twice-task", "show an example"),
    "no result": (replace("twice-task", "\n8\n", "\n"), "twice-task", "show an example"),
    "41 lines": (
        replace("twice-answer", "    unit = 1\n", "    unit = 1\n" * 33),
        "twice-answer",
        "41 lines of code, at most 40",
    ),
    "21 lines": (
        replace("something-shown", "print(5)", "print(5)\n" * 21),
        "something-shown",
        "21 lines of code, at most 20",
    ),
}


@pytest.mark.parametrize("breach", UNREADABLE)
def test_notebooks_check_refuses(breach: str, tmp_path: Path) -> None:
    change, name, message = UNREADABLE[breach]
    notebook = good_solutions()
    change(notebook)
    (tmp_path / "README.md").touch()
    found = list(notebook_rules.problems(course(tmp_path, notebook)))
    where = f"{NAME} [{name}]: " if name else f"{NAME}: "
    assert any(where in problem and message in problem for problem in found), found


def test_the_good_solutions_keep_every_rule(tmp_path: Path) -> None:
    notebook = good_solutions()
    replace("twice-answer", "    unit = 1\n", "    unit = 1\n" * 32)(notebook)
    assert list(notebook_rules.problems(course(tmp_path, notebook))) == []


def test_exercises_are_never_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = course(tmp_path, good_solutions())
    exercises.make([path])
    target = tmp_path / "exercises" / NAME
    before = target.read_bytes()
    for command in ("run", "check"):
        assert notebooks.main([command, str(target)]) == 1
        said = capsys.readouterr()
        assert f"{target}: made from solutions/, never run or edited" in said.out + said.err
    assert target.read_bytes() == before


def test_a_new_set_up_cell_keeps_both_in_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = course(tmp_path, good_solutions())
    exercises.make([path])
    monkeypatch.setattr(notebooks, "set_up_source", lambda: "import elsewhere")
    both = [str(path), str(tmp_path / "exercises" / NAME)]
    before = Path(both[1]).read_bytes()
    assert notebooks.main(["set-up", *both]) == 0
    assert Path(both[1]).read_bytes() != before
    assert list(exercises.out_of_step(path)) == []


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("unit = 1", "unit = 2", " [twice-answer]"),
        ("raise NotImplementedError", "return 2 * x", " [twice-answer]"),
        ("Add.", "Multiply.", " [twice-task]"),
        ('"points": 2', '"points": 3', " [twice-check]"),
        ('"5\\n"', '"6\\n"', " [something-shown]"),
        ('"execution_count": null', '"execution_count": 5', " [twice-answer]"),
        ('"name": "python3"', '"name": "python4"', ""),
        ('{\n "cells"', '{\n\n "cells"', ""),
        ("{", "", "not a notebook"),
    ],
)
def test_check_tells_where_an_exercise_was_changed(
    old: str, new: str, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = course(tmp_path, good_solutions())
    exercises.make([path])
    target = tmp_path / "exercises" / NAME
    assert old in target.read_text()
    target.write_text(target.read_text().replace(old, new, 1))
    capsys.readouterr()
    assert exercises.check([path]) == 1
    said = capsys.readouterr().out
    assert f"run .venv/bin/python tools/exercises.py make {path}" in said
    assert (where if where.startswith("not") else f"{target}{where}: not what its sol") in said
    assert exercises.make([path]) == 0 and exercises.check([path]) == 0


def test_a_missing_exercise_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = course(tmp_path, good_solutions())
    assert exercises.check([path]) == 1
    assert f"exercises/{NAME}: there is none: run " in capsys.readouterr().out


def test_cells_added_or_dropped_in_an_exercise_are_told(tmp_path: Path) -> None:
    path = course(tmp_path, good_solutions())
    exercises.make([path])
    target = tmp_path / "exercises" / NAME
    made = notebook_form.read(target)
    for cells, where in (
        (made.cells[:-1], " [two-times-check]"),
        ([*made.cells, code("more", "x")], ""),
    ):
        notebook_form.write(target, v4.new_notebook(cells=cells))
        (told,) = exercises.out_of_step(path)
        assert told.startswith(f"{target}{where}: not what its solution makes")


def test_names_are_used_once_and_known_and_none_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = course(tmp_path, good_solutions())
    two = course(tmp_path, good_solutions("twice", "thrice"), "02-more.ipynb")
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / "03-old.ipynb").touch()
    assert exercises.make([one, two]) == 0
    known(monkeypatch, "twice", "two_times", "four_times")
    assert exercises.check([one, two]) == 1
    said = capsys.readouterr().out
    for told in (
        f"{two} [twice-answer]: the grade id 'twice-answer' stands in {one} [twice-answer] too",
        f"{two} [twice-check]: the grade id 'twice' stands in {one} [twice-check] too",
        f"{two} [thrice-check]: qkv.checks knows no 'thrice'",
        "solutions/: no exercise for the check 'four_times' of qkv.checks",
        "exercises/03-old.ipynb: no such notebook in solutions/: delete it",
        "2 notebooks of solutions checked, problems: 5",
    ):
        assert told in said
    # Of single files only what they hold is told.
    assert exercises.main(["check", str(one)]) == 0
    assert exercises.main(["check", str(two)]) == 1
    assert "problems: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "name", "message"),
    [
        (replace("twice-task", "\n8\n", "\n9\n"), "twice-task", "prints '8', the text says '9'"),
        (replace("twice-task", "(4)", "(4, 5)"), "twice-task", "stops: TypeError: twice() takes"),
        (replace("twice-answer", "import math", "import maths"), "twice-answer", "stops with Mod"),
    ],
)
def test_examples_are_held_true(
    change: Change, name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = good_solutions()
    change(notebook)
    path = course(tmp_path, notebook)
    assert exercises.make([path]) == 0
    assert exercises.check([path]) == 1
    said = capsys.readouterr().out
    assert f"{NAME} [{name}]: " in said and message in said


@pytest.mark.parametrize("command", ["make", "check"])
def test_one_bad_file_does_not_stop_the_others(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = course(tmp_path, good_solutions())
    exercises.make([good])
    bad = tmp_path / "solutions" / "00-bad.ipynb"
    bad.write_text("[" * 100_000)
    assert exercises.main([command, str(bad), str(good)]) == 1
    said = capsys.readouterr()
    assert f"{bad}: not a notebook" in said.out + said.err
    assert f"{good}: in step" in said.out or f"{NAME}: up to date" in said.out


SOLUTIONS = sorted((ROOT / "solutions").glob("*.ipynb"))


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_the_courses_stubs_differ_only_in_the_gaps(path: Path) -> None:
    made = json.loads((ROOT / "exercises" / path.name).read_text(encoding="utf-8"))
    theirs = json.loads(path.read_text(encoding="utf-8"))
    gap = re.compile(r" *### BEGIN SOLUTION\n.*?### END SOLUTION(?=\n|$)", re.DOTALL)
    stub = re.compile(r" *# YOUR CODE HERE\n +raise NotImplementedError(?=\n|$)")
    for was, now in zip(theirs["cells"], made["cells"], strict=True):
        old, new = "".join(was["source"]), "".join(now["source"])
        if was["id"].endswith("-answer"):
            assert gap.search(old) and gap.sub("", old) == stub.sub("", new)
        else:
            assert old == new


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_the_courses_stubs_run_and_are_told_apart(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    made = notebook_form.read(ROOT / "exercises" / path.name)
    names: dict[str, object] = {"__name__": "exercises"}
    for part in notebook_form.code_cells(made):
        if part.id.endswith("-answer"):
            exec(part.source, names)  # a stub raises only when it is called
        elif not part.id.endswith("-check"):
            with contextlib.suppress(Exception):  # what shows an answer at work
                exec(part.source, names)
    for part in filter(exercise_form.is_check, made.cells):
        name = part.metadata.nbgrader.grade_id
        with pytest.raises(Wrong, match="not written yet"):
            checks.exercises()[name].run(names[name], seed=0)
