"""Rules for an exercise's three cells in solutions/: their order, marks and metadata.

By these the tool makes the exercise, and the grader finds each part. See exercise_form.py.
"""

import ast
import json

from nbformat import NotebookNode

from exercise_form import (
    BEGIN,
    END,
    IMPORT_CHECK,
    IMPORT_CHECK_ID,
    GapError,
    cell_id,
    check_call,
    gaps,
    has_mark,
    is_answer,
    is_check,
    marked_name,
    nbgrader,
    solution_lines,
    stub,
)
from notebook_form import table

from .page import Found, Page

SHORTEST_LEAK = 12  # characters: shorter lines of a solution may stand in an output by chance


def answers(page: Page) -> list[tuple[int, str]]:
    """The place and the exercise's name of each answer that names one."""
    named = [(i, marked_name(c.source)) for i, (_, c) in enumerate(page.cells) if is_answer(c)]
    return [(i, name) for i, name in named if name]


def answers_are_marked(page: Page) -> Found:
    for name, cell in page.cells:
        if is_answer(cell) and marked_name(cell.source) is None:
            yield name, "an answer: let its first line be  # exercise: name_of_the_function"


def three_cells_in_a_row(page: Page) -> Found:
    beside: set[int] = set()
    for i, name in answers(page):
        own = page.cells[i][0]
        if own != cell_id(name, "answer"):
            yield own, f"answers {name!r}: let its id be {cell_id(name, 'answer')!r}"
        for place, part, kind in ((i - 1, "task", "markdown"), (i + 1, "check", "code")):
            beside.add(place)
            seen = page.cells[place] if 0 <= place < len(page.cells) else None
            if seen is None or (seen[1].cell_type, seen[0]) != (kind, cell_id(name, part)):
                yield (
                    own,
                    f"let the {kind} cell {cell_id(name, part)!r} stand directly"
                    f" {'before' if place < i else 'after'} it, not"
                    f" {f'the {seen[1].cell_type} cell {seen[0]!r}' if seen else 'nothing'}",
                )
    for place, (name, cell) in enumerate(page.cells):
        part = is_check(cell) or (cell.cell_type == "markdown" and name.endswith("-task"))
        if part and place not in beside:
            yield name, "belongs to no answer beside it: put text, answer and check in a row"


def metadata_is_nbgraders(page: Page) -> Found:
    wanted: dict[str, dict[str, object]] = {IMPORT_CHECK_ID: nbgrader(IMPORT_CHECK_ID)}
    for i, name in answers(page):
        wanted[page.cells[i][0]] = nbgrader(cell_id(name, "answer"), solution=True)
        if i + 1 < len(page.cells) and is_check(cell := page.cells[i + 1][1]):
            points = table(cell, "metadata", "nbgrader").get("points")
            if type(points) is not int or points < 1:
                yield cell.id, f"points is {points!r}: give a whole number of at least 1"
                points = 1
            wanted[cell.id] = nbgrader(name, points=points)
            if cell.source.strip() != check_call(name):
                yield cell.id, f"let its one line be  {check_call(name)}"
    for name, cell in page.cells:
        seen = dict(table(cell, "metadata", "nbgrader"))
        if name in wanted and is_check(cell) and "points" in seen:
            seen["points"] = wanted[name].get("points")  # said above
        if seen != wanted.get(name, {}):
            mend = f"write {json.dumps(wanted[name])}" if name in wanted else "remove it"
            yield name, f"the metadata nbgrader is not that of this cell's part: {mend}"


def check_is_imported(page: Page) -> Found:
    names = [name for name, _ in page.cells]
    first = min((i for i, _ in answers(page)), default=len(names))
    place = names.index(IMPORT_CHECK_ID) if IMPORT_CHECK_ID in names else len(names)
    if place > first or place == len(names):
        yield (
            "",
            f"no cell {IMPORT_CHECK_ID!r} before the first exercise: add one with the line  "
            f"{IMPORT_CHECK}",
        )
    elif page.cells[place][1].source.strip() != IMPORT_CHECK:
        yield IMPORT_CHECK_ID, f"let its one line be  {IMPORT_CHECK}"


def solutions_stand_in_gaps(page: Page) -> Found:
    for name, cell in page.cells:
        if not is_answer(cell):
            if has_mark(cell.source):
                yield name, "a solution's mark outside an answer: remove it"
            continue
        try:
            if not gaps(cell.source):
                yield name, f"has no gap: put {BEGIN} and {END} around the solution"
            else:
                yield from ((name, fault) for fault in _stub_faults(cell))
        except GapError as error:
            yield name, f"line {error.line}: {error}"


def _stub_faults(cell: NotebookNode) -> list[str]:
    """What keeps the stub from being a function that says it is not written yet."""
    try:
        tree = ast.parse(stub(cell.source))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 1)
        return [f"its stub is no Python (line {line}): let a region hold whole statements"]
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    within = {id(inner) for function in functions for inner in ast.walk(function)}
    faults = []
    if any(isinstance(n, ast.Raise) and id(n) not in within for n in ast.walk(tree)):
        faults.append(
            "a region outside any function, whose stub stops the notebook: give the def line,"
            " and let the region be the body"
        )
    name = marked_name(cell.source)
    defined = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    if name and name not in defined:
        faults.append(f"its stub does not define {name}: give its def line outside the region")
    return faults


def nothing_leaks(page: Page) -> Found:
    """The exercise keeps the outputs of all cells but answers and checks."""
    lines = set()
    for _, cell in page.cells:
        try:
            lines |= set(solution_lines(cell.source)) if is_answer(cell) else set()
        except GapError:
            continue  # told above
    for name, cell in page.code:
        shown = "" if is_answer(cell) or is_check(cell) else json.dumps(cell.outputs)
        for line in sorted(lines):
            if len(line) >= SHORTEST_LEAK and json.dumps(line)[1:-1] in shown:
                yield name, f"its output shows the solution's line {line!r}: print something else"
                break


def solutions_pass(page: Page) -> Found:
    for i, name in answers(page):
        if i + 1 == len(page.cells) or not is_check(page.cells[i + 1][1]):
            continue  # told above
        cell = page.cells[i + 1][1]
        said = "".join(output.get("text", "") for output in cell.outputs)
        if not said.startswith(f"{name}: ok") or said.count("\n") != 1:
            yield (
                cell.id,
                f"the solution prints {said.strip()[:200]!r}, not one line  {name}: ok …: mend"
                " it and run the notebook again",
            )


RULES = (
    answers_are_marked,
    three_cells_in_a_row,
    metadata_is_nbgraders,
    check_is_imported,
    solutions_stand_in_gaps,
    nothing_leaks,
    solutions_pass,
)
