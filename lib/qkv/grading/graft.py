"""Answers out of a submission, and onto the pristine notebook. Nothing here runs any code."""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import nbformat
from nbformat import NotebookNode

LARGEST = 50 * 2**20  # bytes of a submission
SEED_CELL = "import qkv.checks\n\nqkv.checks.seed = {seed}"
MARKER = re.compile(r"\s*#\s*exercise:\s*(\w+)\s*$")
UNTOUCHED = re.compile(r"# YOUR CODE HERE\s+raise NotImplementedError\s*(#.*)?$", re.MULTILINE)


class NotUnderstood(Exception):
    """A submission cannot be graded; the message gives the reason."""


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


def read(content: bytes) -> NotebookNode:
    """A notebook, whatever program saved it.

    Errors:
        NotUnderstood: this is no notebook; the message says why
    """
    if not content.strip():
        raise NotUnderstood("the file is empty")
    if len(content) > LARGEST:
        raise NotUnderstood(f"the file has {len(content):,} bytes, over {LARGEST:,}")
    try:
        raw = json.loads(_text(content))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise NotUnderstood(f"the file is no notebook: {reason}; is it cut off?") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("nbformat"), int):
        raise NotUnderstood("the file is no notebook: it names no nbformat")
    try:
        if raw["nbformat"] != 4:
            old = nbformat.reads(json.dumps(raw), raw["nbformat"])  # type: ignore[no-untyped-call]
            raw = nbformat.convert(old, 4)  # type: ignore[no-untyped-call]
        return _checked(_node(raw))
    except NotUnderstood:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise NotUnderstood(f"the notebook cannot be read: {reason}") from None


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


def answers(submission: NotebookNode, wanted: list[Exercise]) -> Answers:
    """The learner's answers to these exercises, and remarks on what was odd.

    A cell is an answer by its id, else by the id that Colab keeps in its metadata, else by
    nbgrader's grade_id, else by the marker in its first line. Of several for one exercise, those
    still untouched do not count, and the one directly above its check does, else the last.
    """
    sources: dict[str, str] = {}
    remarks: list[str] = []
    owners = [_owner(cell, wanted) for cell in submission.cells]
    for exercise in wanted:
        places = [i for i, name in enumerate(owners) if name == exercise.name]
        if not places:
            remarks.append(f"{exercise.name}: no cell with this answer was found")
            continue
        cells = submission.cells
        worked = [i for i in places if not UNTOUCHED.search(_source(cells[i]))] or places
        at_home = [i for i in worked if _next_is_check(cells, i, exercise)]
        chosen = (at_home or worked)[-1]
        if len(places) > 1:
            which = "the one above its check" if at_home else "the last"
            remarks.append(f"{exercise.name}: {len(places)} cells with this answer; took {which}")
        if cells[chosen].cell_type != "code":
            remarks.append(f"{exercise.name}: its cell had become text; taken as code")
        sources[exercise.name] = _source(cells[chosen])
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
    grafted = _node(json.loads(json.dumps(pristine)))
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
    return _node({**cell, "outputs": [], "execution_count": None})


def stdout(line: str) -> NotebookNode:
    """A line that a cell has printed."""
    return _node({"output_type": "stream", "name": "stdout", "text": line + "\n"})


def matches(submission: NotebookNode, wanted: list[Exercise]) -> int:
    """How many of these exercises have a cell in the submission."""
    return len({_owner(cell, wanted) for cell in submission.cells} - {None})


def _node(raw: dict[str, Any]) -> NotebookNode:
    node: NotebookNode = nbformat.from_dict(raw)  # type: ignore[no-untyped-call]
    return node


def _text(content: bytes) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", errors="replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _checked(notebook: NotebookNode) -> NotebookNode:
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        raise NotUnderstood("the notebook has no list of cells")
    notebook.cells = [c for c in cells if isinstance(c, dict) and isinstance(_source(c), str)]
    for cell in notebook.cells:
        cell.setdefault("cell_type", "code")
        if not isinstance(cell.get("metadata"), dict):
            cell.metadata = _node({})
    if not notebook.cells:
        raise NotUnderstood("the notebook has no cells")
    return notebook


def _source(cell: Any) -> Any:
    source = cell.get("source")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        return "".join(source)
    return source


def _names(cell: NotebookNode) -> Iterator[Any]:
    """By what a cell may be known, surest first."""
    yield cell.get("id")
    yield cell.metadata.get("id")
    nbgrader = cell.metadata.get("nbgrader")
    yield nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None


def _owner(cell: NotebookNode, wanted: list[Exercise]) -> str | None:
    """The exercise that a cell answers, None where it answers none."""
    for name in _names(cell):
        for exercise in wanted:
            if name == exercise.answer_id:
                return exercise.name
    lines = _source(cell).splitlines()
    found = MARKER.match(lines[0]) if lines else None
    names = {e.name for e in wanted}
    return found[1] if found and found[1] in names else None


def _next_is_check(cells: list[NotebookNode], i: int, exercise: Exercise) -> bool:
    """Whether the next code cell is this exercise's check."""
    for cell in cells[i + 1 :]:
        if cell.cell_type != "code":
            continue
        known = exercise.check_id in (cell.get("id"), cell.metadata.get("id"))
        return known or _checks(_source(cell)) == exercise.name
    return False


def _checks(source: str) -> str | None:
    """The name in a cell that is one call check("name", …)."""
    try:
        call = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "check":
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return first.value
    return None
