"""Answers out of a submission, and onto the pristine notebook. Nothing here runs any code."""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nbformat import NotebookNode

from qkv.grading.reading import node
from qkv.grading.remarks import left_out, odd

LONG_CALL = 1000  # characters of a check's call
# The launcher starts the kernel without garbage collection: the imports take a tenth less.
SEED_CELL = """\
import gc

import qkv.checks

gc.freeze()
gc.enable()
qkv.checks.seed = {seed}"""
MARKER = re.compile(r"\s*#\s*exercise:\s*(\w+)\s*$")
UNTOUCHED = re.compile(r"# YOUR CODE HERE\s+raise NotImplementedError\s*(#.*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Exercise:
    """One exercise of a pristine notebook: its name, its points, and its two cells' ids."""

    name: str
    points: float
    answer_id: str
    check_id: str


@dataclass(frozen=True)
class Answers:
    """What a learner wrote: the source by exercise, and remarks on what was odd."""

    sources: dict[str, str]
    remarks: list[str] = field(default_factory=list)


def exercises(pristine: NotebookNode) -> list[Exercise]:
    """The exercises of a pristine notebook, in its order.

    Errors:
        ValueError: a check cell has no answer cell above it
    """
    found = []
    answer_id = None
    for cell in pristine.cells:
        settings = cell.metadata.get("nbgrader", {})
        if settings.get("solution"):
            answer_id = cell.id
        elif settings.get("grade"):
            name = settings["grade_id"]
            if answer_id is None:
                raise ValueError(f"the check cell {name!r} has no answer cell above it")
            found.append(Exercise(name, settings["points"], answer_id, cell.id))
            answer_id = None
    return found


def answers(
    submission: NotebookNode, wanted: list[Exercise], *, pristine: NotebookNode | None = None
) -> Answers:
    """The learner's answers to these exercises, and remarks on what was odd.

    A cell is an answer by its id, else by the id that Colab keeps in its metadata, else by
    nbgrader's grade_id, else by the marker in its first line. Of several for one exercise, those
    still untouched do not count, and the one directly above its check does, else the last.

    Where the pristine notebook is given, a remark tells of code that is in no answer cell, and
    that an answer needs.
    """
    sources: dict[str, str] = {}
    remarks: list[str] = []
    cells = submission.cells
    owners = [_owner(cell, wanted) for cell in cells]
    checks = _checks_below(cells, wanted)
    for exercise in wanted:
        places = [i for i, name in enumerate(owners) if name == exercise.name]
        if not places:
            remarks.append(f"{exercise.name}: no cell with this answer was found")
            continue
        worked = [i for i in places if not UNTOUCHED.search(cells[i].source)] or places
        at_home = [i for i in worked if checks[i] == exercise.name]
        chosen = cells[(at_home or worked)[-1]]
        if len(places) > 1:
            which = "the one above its check" if at_home else "the last"
            remarks.append(f"{exercise.name}: {len(places)} cells with this answer; took {which}")
        if chosen.cell_type != "code":
            remarks.append(f"{exercise.name}: its cell had become text; taken as code")
        remarks += [f"{exercise.name}: {words}" for words in odd(chosen.source)]
        sources[exercise.name] = chosen.source
    if pristine is not None:
        others = [
            (number, cell.source)
            for number, (cell, owner) in enumerate(zip(cells, owners, strict=True), 1)
            if owner is None and cell.cell_type == "code"
        ]
        names = {exercise.answer_id: exercise.name for exercise in exercises(pristine)}
        remarks += left_out(others, pristine, names, sources)
    return Answers(sources, remarks)


def graft(
    pristine: NotebookNode,
    sources: dict[str, str],
    seed: int,
    *,
    lines: dict[str, str] | None = None,
    without: set[str] | None = None,
) -> NotebookNode:
    """The pristine notebook with these answers, to be run with this seed.

    Left empty are both cells of an exercise without an answer, and the cells whose ids are in
    `without`. `lines` are what checks must print; where they are None nothing is compared.
    """
    grafted = node(json.loads(json.dumps(pristine)))
    by_answer = {e.answer_id: e.name for e in exercises(pristine)}
    by_check = {e.check_id: e.name for e in exercises(pristine)}
    for cell in grafted.cells:
        if cell.cell_type != "code":
            continue
        cell.outputs, cell.execution_count = [], None
        name = by_answer.get(cell.id) or by_check.get(cell.id)
        if cell.id in (without or ()) or (name is not None and name not in sources):
            cell.source = ""
        elif cell.id in by_answer:
            cell.source = sources[by_answer[cell.id]]
        elif cell.id in by_check and lines is not None:
            line = lines[by_check[cell.id]]
            cell.execution_count = 1  # nbval compares only what has a count
            cell.outputs = [stdout(line)]
    grafted.cells.insert(0, code_cell("qkv-seed", SEED_CELL.format(seed=seed)))
    return grafted


def code_cell(cell_id: str, source: str, **metadata: Any) -> NotebookNode:
    """A code cell that has not run."""
    cell = {"cell_type": "code", "id": cell_id, "source": source, "metadata": metadata}
    return node({**cell, "outputs": [], "execution_count": None})


def stdout(line: str) -> NotebookNode:
    """A line that a cell has printed."""
    return node({"output_type": "stream", "name": "stdout", "text": line + "\n"})


def matches(submission: NotebookNode, wanted: list[Exercise]) -> int:
    """How many of these exercises have a cell in the submission."""
    return len({_owner(cell, wanted) for cell in submission.cells} - {None})


def _names(cell: NotebookNode) -> Iterator[Any]:
    """By what a cell may be known, surest first."""
    yield cell.get("id")
    yield cell.metadata.get("id")
    yield cell.metadata.get("nbgrader", {}).get("grade_id")


def _owner(cell: NotebookNode, wanted: list[Exercise]) -> str | None:
    """The exercise that a cell answers, None where it answers none."""
    for name in _names(cell):
        for exercise in wanted:
            if name == exercise.answer_id:
                return exercise.name
    lines = cell.source[:200].splitlines()
    found = MARKER.match(lines[0]) if lines else None
    names = {e.name for e in wanted}
    return found[1] if found and found[1] in names else None


def _checks_below(cells: list[NotebookNode], wanted: list[Exercise]) -> list[str | None]:
    """For each cell the exercise whose check is the next code cell, None where it is no check."""
    by_id: dict[Any, str] = {exercise.check_id: exercise.name for exercise in wanted}
    below: list[str | None] = []
    name = None
    for cell in reversed(cells):
        below.append(name)
        if cell.cell_type == "code":
            known = by_id.get(cell.get("id")) or by_id.get(cell.metadata.get("id"))
            name = known or _checks(cell.source)
    return below[::-1]


def _checks(source: str) -> str | None:
    """The name in a cell that is one call check("name", …)."""
    if len(source) > LONG_CALL:  # reading code takes far more time and memory than it has letters
        return None
    try:
        call = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "check":
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return first.value
    return None
