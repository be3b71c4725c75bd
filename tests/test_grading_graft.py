"""Answers are found whatever saved the notebook, and grafted onto the pristine one."""

import json
import re
import time
from types import SimpleNamespace

import nbformat
import pytest
from nbformat import NotebookNode, v4

import grading_course as course
from qkv.grading.graft import answers, exercises, graft, matches
from qkv.grading.plugin import GraftedCell
from qkv.grading.reading import LARGEST, MOST_CELLS, NotUnderstood, read
from qkv.grading.remarks import LONG_CODE

MINE = "# exercise: double\ndef double(x): return x + x"


def found(made: NotebookNode) -> tuple[str | None, list[str]]:
    """The answer to `double` in a saved notebook, and the remarks."""
    return found_in(read(course.content(made)))


def found_in(read_: NotebookNode) -> tuple[str | None, list[str]]:
    pristine = course.solution()
    result = answers(read_, exercises(pristine), pristine=pristine)
    return result.sources.get("double"), result.remarks


def left_out(made: NotebookNode, *added: str) -> list[str]:
    """The remarks on code outside the answer cells, once these cells are added at the top."""
    made.cells[:0] = [v4.new_code_cell(source) for source in added]
    return [remark for remark in found(made)[1] if remark.startswith("code outside")]


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


def test_a_check_is_known_by_its_id_or_by_its_call() -> None:
    for changes in ({"source": "pass"}, {"id": "new"}, {"id": "new", "source": 'check("last", 1)'}):
        made = course.submission(double=MINE)
        course.cell(made, "double-check").update(changes)
        made.cells.append(v4.new_code_cell("# exercise: double\ndef double(x): return 1"))
        assert (found(made)[0] == MINE) == (len(changes) == 1)


def test_a_cell_that_was_left_untouched_does_not_count_beside_a_written_one() -> None:
    made = course.exercise()
    made.cells.append(v4.new_code_cell(MINE))
    assert found(made)[0] == MINE
    assert "YOUR CODE HERE" in (found(course.exercise())[0] or "")


USES = "def double(x): return helper(x)"


@pytest.mark.parametrize(
    "source",
    [
        "def helper(x): return x",
        "class helper: pass",
        "if True:\n    helper, y = min, 2",
        "import numpy as helper",
        "from numpy import (abs as helper)",
    ],
)
def test_code_that_an_answer_needs_and_that_is_in_no_answer_cell_is_said(source: str) -> None:
    assert left_out(course.submission(double=USES), "1", source) == [
        "code outside the answer cells is not graded: cell 2 defines helper;"
        " put it into the cell of the answer that needs it"
    ]


def test_code_in_a_check_cell_is_said_and_an_answer_in_a_cell_of_its_own() -> None:
    made = course.submission(double=USES)
    course.cell(made, "double-check").source += "\ndef helper(x): return x"
    assert "cell 6 defines helper;" in left_out(made)[0]
    assert "cell 1 defines double;" in left_out(course.exercise(), "def double(x): return x")[0]


@pytest.mark.parametrize(
    "source",
    [
        "x = double([1])\nresult = x\ndouble = 3",  # names of the answer's own, no functions
        "start = 2\nimport random",  # the pristine notebook has it too
        "# exercise: double\n# YOUR CODE HERE\nraise NotImplementedError\nhelper = 1",
        "helper(",
        "print(helper)",
        "helper = 1" + "  # long" * LONG_CODE,
        "\0",
    ],
)
def test_other_code_in_no_answer_cell_is_nobodys_trouble(source: str) -> None:
    uses = "import re as own\ndef double(x):\n    result = helper, start, random, own\n    return x"
    made = course.submission(double=uses)
    assert left_out(made, source) == []
    assert left_out(course.submission(), "def helper(x): return x") == []


def test_an_earlier_answer_is_there_and_a_later_one_is_not() -> None:
    made = course.submission(double="def double(x): return total(x)")
    assert left_out(made, "total = 3")[0].count("defines total;") == 1
    assert left_out(course.submission(), "double = 3") == []


def test_of_much_code_outside_the_first_cells_are_named() -> None:
    names = [f"helper_{i}" for i in range(5)]
    made = course.submission(double=f"def double(x): return {' + '.join(names)}")
    said = left_out(made, *(f"{name} = 1" for name in names))
    assert "cell 3 defines helper_2 and 2 more cells;" in said[0]
    every = "; ".join(f"{name} = 1" for name in names)
    made = course.submission(double=f"def double(x): return {' + '.join(names)}")
    assert "defines helper_0, helper_1, helper_2 and 2 more;" in left_out(made, every)[0]


def test_only_so_much_code_outside_is_looked_into() -> None:
    padding = "y = 1".ljust(LONG_CODE)
    assert left_out(course.submission(double=USES), *[padding] * 9, "helper = 1")
    assert not left_out(course.submission(double=USES), *[padding] * 10, "helper = 1")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("\n" * 30_000, "has 30,0.. characters"),
        ("#" + "a" * 2000, "a line of over 2,000 characters"),
        ("\n" + "  \n" * 51, "over 50 blank lines in a row"),
        ("x = 1;" + " " * 101 + "y = 2", "over 100 blanks in a row"),
        ("x = 1  # \u202e", "control characters"),
        ("x = 1  # \u2066", "control characters"),
        ("x = 1  # \x1b[8m", "control characters"),
        ("x = 1  #\ry = 2", "control characters"),
    ],
)
def test_what_hides_code_in_an_answer_is_said(source: str, words: str) -> None:
    answer, remarks = found(course.submission(double=f"{MINE}\n{source}"))
    assert answer == f"{MINE}\n{source}"
    assert len(remarks) == 1
    assert re.fullmatch(f"double: the answer (holds )?{words}: look at it closely", remarks[0])


def test_plain_answers_raise_no_remark() -> None:
    plain = MINE + "\r\n\tx = 'é 日本'" + "\n" * 51 + "#" + "x" * 1999 + "\n" + " " * 200 + "# far"
    assert found(course.submission(double=plain)) == (plain, [])


def test_marks_of_a_merge_conflict_in_an_answer_are_said() -> None:
    answer = f"<<<<<<< HEAD\n{MINE}\n=======\n{MINE}\n>>>>>>> mine"
    assert "merge conflict" in found(course.submission(double=answer))[1][0]


@pytest.mark.parametrize("file", ["2594382292.py", "<ipython-input-1-9b8c2>"])
def test_a_syntax_error_is_told_with_its_line_and_without_the_kernels_file(file: str) -> None:
    told = SimpleNamespace(
        output_type="error", ename="SyntaxError", evalue=f"invalid syntax ({file}, line 2)"
    )
    cell = SimpleNamespace(test_outputs=[told])
    assert GraftedCell.error(cell) == "SyntaxError: invalid syntax (line 2)"
    told.evalue = "sizes (2, 3) differ"
    assert GraftedCell.error(cell) == "SyntaxError: sizes (2, 3) differ"
    told.evalue = None  # a learner's code can send what it likes
    assert GraftedCell.error(cell) == "SyntaxError: None"


def test_an_answer_whose_cell_became_text() -> None:
    made = course.submission(double=MINE)
    cell = course.cell(made, "double-answer")
    cell.cell_type = "markdown"
    source, remarks = found(made)
    assert source == MINE
    assert "had become text" in remarks[0]


def test_many_cells_with_one_answer_take_no_time() -> None:
    made = course.submission(double=MINE)
    cell = v4.new_markdown_cell(MINE, id="double-answer")
    made.cells += [cell] * 5000
    start = time.process_time()
    source, remarks = found_in(made)
    assert time.process_time() - start < 5  # 20 s where each looked for its check by itself
    assert source == MINE and "5001 cells" in remarks[0]


def test_a_check_is_read_only_where_it_is_short() -> None:
    made = course.submission(double=MINE)
    for part in ("double", "total", "last"):
        course.cell(made, f"{part}-check").id = f"other-{part}"
    course.cell(made, "other-double").source += "\n" * 2000
    made.cells.append(v4.new_code_cell("# exercise: double\ndef double(x): return 1"))
    assert "the last" in found_in(made)[1][0]


def test_outputs_and_all_else_that_grading_does_not_need_are_thrown_away() -> None:
    made = course.by_colab(course.submission(double=MINE))
    made.metadata["widgets"] = [{}] * 1000
    cell = made.cells[5]
    cell.outputs = [v4.new_output("display_data", {"image/png": "A" * 1000})]
    kept = read(course.content(made))
    assert kept.metadata == {}
    assert "A" * 1000 not in json.dumps(kept)
    assert {key for one in kept.cells for key in one} == {"cell_type", "source", "metadata"}
    assert {key for one in kept.cells for key in one.metadata} == {"id", "nbgrader"}


def test_what_is_nested_beside_the_cells_costs_no_more_than_reading_it() -> None:
    bomb = [{} for _ in range(1_000_000)]
    worksheets = [{"cells": [{"cell_type": "code", "input": MINE, "outputs": bomb}]}]
    for raw in (
        {"nbformat": 4, "metadata": {"a": bomb}, "cells": [{"source": MINE}]},
        {"nbformat": 3, "metadata": {}, "worksheets": worksheets},
    ):
        content = json.dumps(raw).encode()
        start = time.process_time()
        json.loads(content)
        alone = time.process_time() - start
        start = time.process_time()
        assert read(content).cells[0].source == MINE
        assert time.process_time() - start < 3 * alone + 0.5


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b'{"cells": [', "cut off"),
        (b"[" * 100_000, "nested too deeply$"),
        (b"\xef\xbb\xbf\n<!DOCTYPE html><p>Log in</p>", "web page"),
        (b"<html></html>", "web page"),
        (b"%PDF-1.7\n\xe2", "a PDF"),
        (b"PK\x03\x04\x14", "a zip"),
        (b'{\n<<<<<<< HEAD\n "cells": [', "merge conflict"),
        (b"#!/usr/bin/env python\n\nimport torch\n", "Python script"),
        (b"def double(x):\n    return 2 * x\n", "Python script"),
        (b"Dear teacher,\nfrom my heart", "cut off"),
        (b"[1]", "no nbformat"),
        (b'{"nbformat": "4"}', "no nbformat"),
        (b'{"nbformat": 4}', "no list of cells"),
        (b'{"nbformat": 4, "cells": {}}', "no list of cells"),
        (b'{"nbformat": 4, "cells": []}', "no cells"),
        (b'{"nbformat": 4, "cells": [7, {"source": 3}]}', "no cells"),
        (b'{"nbformat": 3, "cells": []}', "no list of cells"),
        (b'{"nbformat": 3, "worksheets": [7]}', "no list of cells"),
        (b'{"nbformat": 99, "cells": []}', "nbformat 99 is not known"),
        (b"x" * (LARGEST + 1), "bytes"),
        (
            json.dumps({"nbformat": 4, "cells": [{"source": ""}] * (MOST_CELLS + 1)}).encode(),
            "2,001 cells, over 2,000",
        ),
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
        {"cell_type": ["code"], "id": {}, "source": "\udc80 = 1"},
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
