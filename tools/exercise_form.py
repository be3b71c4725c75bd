"""The parts of an exercise in a notebook of solutions/, and the exercise that is made from them.

An exercise is three cells in a row, here of `blend_one`: `blend-one-task` is its text,
`blend-one-answer` holds the answer, `blend-one-check` is one call of `check`. The two code cells
carry nbgrader's metadata. In the answer the solution stands between marks:

    # exercise: blend_one
    def blend_one(i, Q, K, V):
        ### BEGIN SOLUTION
        ...
        ### END SOLUTION
"""

import copy
import re
from typing import Any

from nbformat import NotebookNode

from notebook_form import code_cells, table

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
STUB = ("# YOUR CODE HERE", "raise NotImplementedError")
MARKER = re.compile(r"# exercise: ([a-z][a-z0-9_]*)")
IMPORT_CHECK_ID, IMPORT_CHECK = "import-check", "from qkv.checks import check"


class GapError(ValueError):
    """The marks in an answer are not in order; `line` says where, counted from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def nbgrader(grade_id: str, *, solution: bool = False, points: int | None = None) -> dict[str, Any]:
    """nbgrader's metadata: of an answer (solution), a check (points), or else a locked cell."""
    metadata: dict[str, Any] = {"grade": points is not None, "grade_id": grade_id}
    metadata |= {"locked": not solution, "schema_version": 3, "solution": solution, "task": False}
    return metadata if points is None else {**metadata, "points": points}


def cell_id(name: str, part: str) -> str:
    """blend_one, answer -> blend-one-answer"""
    return f"{name.replace('_', '-')}-{part}"


def marked_name(source: str) -> str | None:
    """The exercise that a code cell's first line says it answers."""
    match = MARKER.fullmatch(source.partition("\n")[0].rstrip())
    return match[1] if match else None


def check_call(name: str) -> str:
    return f'check("{name}", {name})'


def is_answer(cell: NotebookNode) -> bool:
    if cell.cell_type != "code":
        return False
    solution = table(cell, "metadata", "nbgrader").get("solution") is True
    return solution or cell.id.endswith("-answer") or marked_name(cell.source) is not None


def is_check(cell: NotebookNode) -> bool:
    if cell.cell_type != "code" or cell.id == IMPORT_CHECK_ID:
        return False
    return table(cell, "metadata", "nbgrader").get("grade") is True or cell.id.endswith("-check")


def gaps(source: str) -> list[tuple[int, int]]:
    """Where the solution stands: the lines of each pair of marks, counted from 0.

    Errors:
        GapError: a mark is misspelt, unpaired, nested or at another indent, or a gap is empty
    """
    found: list[tuple[int, int]] = []
    begin: int | None = None
    lines = source.split("\n")
    for number, line in enumerate(lines):
        if line.strip() == BEGIN:
            if begin is not None:
                raise GapError(number + 1, f"the region begun in line {begin + 1} is still open")
            begin = number
        elif line.strip() == END:
            if begin is None:
                raise GapError(number + 1, f"no {BEGIN} stands above")
            if _indent(line) != _indent(lines[begin]):
                raise GapError(number + 1, f"not at the indent of its {BEGIN}")
            if not any(between.strip() for between in lines[begin + 1 : number]):
                raise GapError(number + 1, "the region is empty")
            found.append((begin, number))
            begin = None
        elif has_mark(line):
            raise GapError(number + 1, f"write the mark exactly as {BEGIN} or {END}")
    if begin is not None:
        raise GapError(begin + 1, f"the region is never closed: add {END}")
    return found


def has_mark(text: str) -> bool:
    """Whether anything in a text looks like a mark, misspelt ones too."""
    return re.search(r"#[ \t]*(BEGIN|END)[ \t_]*SOLUTION", text, re.IGNORECASE) is not None


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def stub(source: str) -> str:
    """An answer with each region, its marks too, replaced by two lines at the same indent."""
    lines = source.split("\n")
    for begin, end in reversed(gaps(source)):
        lines[begin : end + 1] = [_indent(lines[begin]) + line for line in STUB]
    return "\n".join(lines)


def solution_lines(source: str) -> list[str]:
    """What stands between the marks, without its indent."""
    lines = source.split("\n")
    return [line.strip() for a, b in gaps(source) for line in lines[a + 1 : b] if line.strip()]


def examples(source: str) -> list[str]:
    """The fenced blocks of a markdown text that begin with a prompt."""
    blocks = source.split("```")[1::2]
    bodies = [block.partition("\n")[2] for block in blocks]
    return [body for body in bodies if body.lstrip().startswith(">>>")]


def exercise_of(solutions: NotebookNode) -> NotebookNode:
    """The notebook for learners.

    Answers become stubs. Answers and checks lose output and count, which would be untrue before
    the learner runs them (and a cell without a count is one that nbval does not compare). All
    other cells stay as they are, but for the names of figures, which a book can have only once.
    """
    done = copy.deepcopy(solutions)
    done["metadata"] = NotebookNode()  # the hash of the solutions' run
    for cell in code_cells(done):
        if is_answer(cell):
            cell["source"] = stub(cell.source)
        if is_answer(cell) or is_check(cell):
            cell["outputs"], cell["execution_count"] = [], None
        table(cell, "metadata", "mystnb", "figure").pop("name", None)
    return done
