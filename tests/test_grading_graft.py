"""Answers are found whatever saved the notebook, and grafted onto the pristine one."""

import json

import nbformat
import pytest
from nbformat import NotebookNode, v4

import grading_course as course
from qkv.grading.graft import NotUnderstood, answers, exercises, graft, matches, read

MINE = "# exercise: double\ndef double(x): return x + x"


def found(made: NotebookNode) -> tuple[str | None, list[str]]:
    """The answer to `double` in a saved notebook, and the remarks."""
    wanted = exercises(course.solution())
    result = answers(read(course.content(made)), wanted)
    return result.sources.get("double"), result.remarks


def test_the_exercises_of_a_pristine_notebook() -> None:
    first, second, third = exercises(course.solution())
    assert (first.name, first.points) == ("double", 2)
    assert (first.answer_id, first.check_id) == ("double-answer", "double-check")
    assert (second.name, third.name) == ("total", "last")


def test_a_check_without_an_answer_is_the_courses_mistake() -> None:
    made = course.solution()
    made.cells = [c for c in made.cells if c.id != "double-answer"]
    with pytest.raises(ValueError, match="'double'"):
        exercises(made)


@pytest.mark.parametrize("saved", [lambda n: n, course.by_colab, course.by_old_jupyter])
def test_found_whatever_saved_it(saved) -> None:
    assert found(saved(course.submission(double=MINE))) == (MINE, [])


def test_found_by_the_marker_alone() -> None:
    made = course.by_old_jupyter(course.submission(double=MINE))
    for cell in made.cells:
        cell.metadata = NotebookNode()
    assert found(made) == (MINE, [])


def test_found_by_the_id_though_the_marker_is_gone_or_names_another() -> None:
    for source in ("def double(x): ...", "# exercise: last\ndef double(x): ..."):
        made = course.submission(double=source)
        assert found(made) == (source, [])
        last = answers(made, exercises(made)).sources["last"]
        assert "x[-1:]" in last


def test_found_in_nbformat_3() -> None:
    made = course.by_old_jupyter(course.submission(double=MINE))
    for cell in made.cells:
        cell.metadata = NotebookNode()
    old = nbformat.convert(made, 3)
    assert old.nbformat == 3
    assert found(old) == (MINE, [])


def test_a_source_in_lines_and_in_other_encodings() -> None:
    made = json.loads(course.content(course.submission(double=MINE + "  # é")))
    for cell in made["cells"]:
        cell["source"] = cell["source"].splitlines(keepends=True)
    text = json.dumps(made, ensure_ascii=False)
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "latin-1"):
        assert answers(read(text.encode(encoding)), exercises(course.solution())).sources[
            "double"
        ] == (MINE + "  # é")


def test_a_missing_answer_is_said() -> None:
    made = course.submission()
    made.cells = [c for c in made.cells if c.id != "double-answer"]
    source, remarks = found(made)
    assert source is None
    assert remarks == ["double: no cell with this answer was found"]


def test_of_two_the_one_above_its_check_counts_else_the_last() -> None:
    made = course.submission(double=MINE)
    other = v4.new_code_cell("# exercise: double\ndef double(x): return 1")
    made.cells.append(other)
    source, remarks = found(made)
    assert source == MINE
    assert "2 cells" in remarks[0] and "above its check" in remarks[0]

    made.cells = [c for c in made.cells if c.id != "double-check"]
    source, remarks = found(made)
    assert source == other.source
    assert "the last" in remarks[0]


def test_a_cell_that_was_left_untouched_does_not_count_beside_a_written_one() -> None:
    made = course.exercise()
    made.cells.append(v4.new_code_cell(MINE))
    assert found(made)[0] == MINE
    assert "YOUR CODE HERE" in (found(course.exercise())[0] or "")


def test_an_answer_whose_cell_became_text() -> None:
    made = course.submission(double=MINE)
    cell = course.cell(made, "double-answer")
    cell.cell_type = "markdown"
    source, remarks = found(made)
    assert source == MINE
    assert "had become text" in remarks[0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b'{"cells": [', "cut off"),
        (b"[" * 100_000, "no notebook"),
        (b"<html></html>", "no notebook"),
        (b"[1]", "no nbformat"),
        (b'{"nbformat": "4"}', "no nbformat"),
        (b'{"nbformat": 4}', "no list of cells"),
        (b'{"nbformat": 4, "cells": {}}', "no list of cells"),
        (b'{"nbformat": 4, "cells": []}', "no cells"),
        (b'{"nbformat": 4, "cells": [7, {"source": 3}]}', "no cells"),
        (b'{"nbformat": 99, "cells": []}', "cannot be read"),
        (b"x" * (50 * 2**20 + 1), "bytes"),
    ],
)
def test_what_is_no_notebook_is_refused_with_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(NotUnderstood, match=reason):
        read(content)


def test_odd_cells_do_no_harm() -> None:
    made = json.loads(course.content(course.submission(double=MINE)))
    made["cells"][:0] = [
        {"source": ""},
        {"source": [1]},
        {"cell_type": "code", "metadata": 3, "source": "("},
        {"cell_type": "code", "metadata": {"nbgrader": 3, "id": ["x"]}, "source": "\0"},
    ]
    notebook = read(json.dumps(made).encode())
    assert answers(notebook, exercises(course.solution())).sources["double"] == MINE


def test_the_graft_takes_answers_and_nothing_else() -> None:
    made = course.submission(double=MINE)
    course.cell(made, "set-up").source = "import evil"
    course.cell(made, "double-check").source = "print('double: ok')"
    made.metadata["kernelspec"] = {"name": "odd"}
    made.cells.append(v4.new_code_cell("evil()"))
    pristine = course.solution()
    before = json.dumps(pristine)
    sources = answers(made, exercises(pristine)).sources
    grafted = graft(pristine, sources, 5, lines={"double": "a", "total": "b", "last": "c"})
    assert json.dumps(pristine) == before
    assert "evil" not in json.dumps(grafted)
    assert "odd" not in json.dumps(grafted)
    assert "seed = 5" in grafted.cells[0].source
    assert course.cell(grafted, "double-answer").source == MINE
    check = course.cell(grafted, "double-check")
    assert check.source == 'check("double", double)'
    assert check.outputs[0].text == "a\n"
    compared = [c.id for c in grafted.cells if c.get("execution_count")]
    assert compared == ["double-check", "total-check", "last-check"]


def test_without_an_answer_neither_the_solution_runs_nor_the_check() -> None:
    grafted = graft(course.solution(), {"last": "pass"}, 5, without={"last-check"})
    sources = {c.id: c.source for c in grafted.cells}
    assert sources["double-answer"] == sources["double-check"] == ""
    assert sources["last-answer"] == "pass" and sources["last-check"] == ""


def test_matches_counts_exercises_once() -> None:
    made = course.submission()
    made.cells += [v4.new_code_cell(MINE), v4.new_code_cell(MINE)]
    assert matches(made, exercises(course.solution())) == 3
    assert matches(made, exercises(course.solution("02-other"))) == 0
