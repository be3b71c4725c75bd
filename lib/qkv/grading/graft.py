"""Answers out of a submission, and onto the pristine notebook. Nothing here runs any code."""

import ast
import json
import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import nbformat
from nbformat import NotebookNode

LARGEST = 20 * 2**20  # bytes of a submission
MOST_CELLS = 2000
LONG_CALL = 1000  # characters of a check's call
LONG_CODE = 20_000  # characters of a cell that is looked into for names, and of an answer
MOST_CODE = 200_000  # characters that are looked into, of all cells that are no answers
SEED_CELL = "import qkv.checks\n\nqkv.checks.seed = {seed}"
MARKER = re.compile(r"\s*#\s*exercise:\s*(\w+)\s*$")
UNTOUCHED = re.compile(r"# YOUR CODE HERE\s+raise NotImplementedError\s*(#.*)?$", re.MULTILINE)
CONFLICT = re.compile(r"^(<{7}|>{7})( |$)", re.MULTILINE)
# What is handed in for a notebook by mistake.
MISTAKES = {
    re.compile(r"\A%PDF"): "it is a PDF; hand in the .ipynb file",
    re.compile(r"\APK\x03\x04"): "it is a zip; unpack it, and hand in the .ipynb file",
    re.compile(r"\A\s*<(!doctype|html)", re.IGNORECASE): "it is a web page, perhaps one to log in;"
    " download the notebook again",
    CONFLICT: "it holds the marks of a merge conflict (<<<<<<<); keep one side, and save it again",
    re.compile(
        r"\A(?!\s*\{).*?^(import \w|from [\w.]+ import |def \w+\(|class \w+[:(])",
        re.MULTILINE | re.DOTALL,
    ): "it is a Python script; hand in the .ipynb file",
}
# What hides code from who reads the feedback page.
HIDING = {
    re.compile(r"^.{2001}", re.MULTILINE): "a line of over 2,000 characters",
    re.compile(r"^([^\S\n]*\n){51}", re.MULTILINE): "over 50 blank lines in a row",
    re.compile(r"\S[^\S\n]{101}"): "over 100 blanks in a row",
    re.compile(
        r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)"
    ): "control characters",
}


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
    """Of a notebook what grading needs, whatever program saved it. Outputs are left out.

    Errors:
        NotUnderstood: this is no notebook; the message says why
    """
    if not content.strip():
        raise NotUnderstood("the file is empty")
    if len(content) > LARGEST:
        raise NotUnderstood(f"the file has {len(content):,} bytes, over {LARGEST:,}")
    text = _text(content)
    try:
        raw = json.loads(text)
    except RecursionError:
        raise NotUnderstood("the file is no notebook: it is nested too deeply") from None
    except ValueError as error:
        raise NotUnderstood(f"the file is no notebook: {_mistake(text, error)}") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("nbformat"), int):
        raise NotUnderstood("the file is no notebook: it names no nbformat")
    cells = _raw_cells(raw)
    if len(cells) > MOST_CELLS:
        raise NotUnderstood(f"the notebook has {len(cells):,} cells, over {MOST_CELLS:,}")
    kept = [cell for cell in map(_kept, cells) if cell]
    if not kept:
        raise NotUnderstood("the notebook has no cells")
    return _node({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": kept})


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
        remarks += [f"{exercise.name}: {odd}" for odd in _odd(chosen.source)]
        sources[exercise.name] = chosen.source
    if pristine is not None:
        others = [
            (number, cell.source)
            for number, (cell, owner) in enumerate(zip(cells, owners, strict=True), 1)
            if owner is None and cell.cell_type == "code"
        ]
        remarks += _left_out(others, pristine, sources)
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


def _mistake(text: str, error: ValueError) -> str:
    """Why a file that is not JSON is no notebook."""
    known = (words for pattern, words in MISTAKES.items() if pattern.search(text))
    return next(known, f"{error}; is it cut off?")


def _raw_cells(raw: dict[str, Any]) -> list[Any]:
    """A notebook's cells as they were saved. Before nbformat 4 they lie in worksheets."""
    if raw["nbformat"] not in (2, 3, 4):
        raise NotUnderstood(
            f"the notebook cannot be read: nbformat {raw['nbformat']} is not known; save it as 4"
        )
    sheets = [raw] if raw["nbformat"] == 4 else raw.get("worksheets")
    lists = [s.get("cells") if isinstance(s, dict) else None for s in _list(sheets)]
    if not lists or not all(isinstance(cells, list) for cells in lists):
        raise NotUnderstood("the notebook has no list of cells")
    return [cell for cells in lists for cell in _list(cells)]


def _kept(raw: Any) -> dict[str, Any] | None:
    """Of a cell what grading needs; None where it has no source."""
    if not isinstance(raw, dict):
        return None
    source = raw.get("source", raw.get("input"))  # "input" before nbformat 4
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        return None
    metadata = raw.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    kept = _plain(metadata, "id")
    kept["nbgrader"] = _plain(nbgrader, "grade", "grade_id", "points", "solution")
    cell = {"cell_type": "code"} | _plain(raw, "cell_type", "id")
    return cell | {"source": source, "metadata": kept}


def _plain(raw: Any, *keys: str) -> dict[str, Any]:
    """Of a dict these keys, where their values are words or numbers."""
    if not isinstance(raw, dict):
        return {}
    return {key: raw[key] for key in keys if isinstance(raw.get(key), str | int | float)}


def _list(raw: Any) -> list[Any]:
    return raw if isinstance(raw, list) else []


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


def _odd(source: str) -> Iterator[str]:
    """What an instructor should know of an answer's code."""
    if CONFLICT.search(source):
        yield "the answer holds the marks of a merge conflict (<<<<<<<); keep one side"
    if len(source) > LONG_CODE:
        yield f"the answer has {len(source):,} characters: look at it closely"
        return
    for pattern, words in HIDING.items():
        if pattern.search(source):
            yield f"the answer holds {words}: look at it closely"


def _left_out(
    others: list[tuple[int, str]], pristine: NotebookNode, sources: dict[str, str]
) -> list[str]:
    """A remark on code that an answer needs, or may be meant as one, in these other cells."""
    names = {exercise.answer_id: exercise.name for exercise in exercises(pristine)}
    there: set[str] = set()
    needed: set[str] = set()
    for cell in pristine.cells:
        if cell.cell_type == "code":
            is_answer = cell.id in names
            code = _Code.of(sources.get(names[cell.id], "") if is_answer else cell.source)
            there |= code.defined
            needed |= code.used - there if is_answer else set()
    found = []
    looked_at = 0
    for number, source in others:
        looked_at += min(len(source), LONG_CODE)
        if looked_at > MOST_CODE:
            break
        code = _Code.of(source)
        lost = code.defined & needed | code.functions & set(names.values())
        if lost:
            found.append(f"cell {number} defines {_some(sorted(lost))}")
    if not found:
        return []
    return [
        f"code outside the answer cells is not graded: {_some(found, 'more cells')};"
        " put it into the cell of the answer that needs it"
    ]


@dataclass(frozen=True)
class _Code:
    """The names that code defines at top level, those of functions, and those it only uses."""

    defined: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, source: str) -> "_Code":
        """All are empty where the code is long, or is no Python."""
        if len(source) > LONG_CODE:
            return cls()
        try:
            tables = [symtable.symtable(source, "cell", "exec")]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return cls()
        top = tables[0].get_symbols()
        functions = {s.get_name() for s in top if s.is_namespace()}
        defined = {s.get_name() for s in top if s.is_assigned() or s.is_imported()} | functions
        used = set()
        while tables:
            table = tables.pop()
            tables += table.get_children()
            used |= {s.get_name() for s in table.get_symbols() if s.is_global()}
        return cls(defined, functions, used - defined)


def _some(words: list[str], more: str = "more") -> str:
    """The first three of these words, and how many there are more."""
    more = f" and {len(words) - 3} {more}" if len(words) > 3 else ""
    return ", ".join(word[:100] for word in words[:3]) + more
