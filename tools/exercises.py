#!/usr/bin/env python
"""Make the exercises from their solutions, and prove that both are in step."""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode, v4

from exercise_examples import examples_hold
from exercise_form import exercise_of, is_answer, is_check
from notebook_form import NotebookError, canonical_text, read, table, validate, write
from notebook_rules import exercises as rules
from notebook_rules.page import Page
from notebooks import FILE_ERRORS, book_files, tell

COMMAND = ".venv/bin/python tools/exercises.py"

MAKE_HELP = """\
Write exercises/NAME.ipynb from each solutions/NAME.ipynb. What stands between the marks BEGIN
SOLUTION and END SOLUTION becomes a stub; answers and checks are stored without output and count:
an output would be untrue before the learner has run them, and nbval compares no cell without a
count. All else stays as it is, so that the same solutions give the same bytes. A notebook of
solutions that breaks a rule is told, and no exercise is made from it.
FILES: notebooks in solutions/, by default all."""
CHECK_HELP = """\
Hold that each exercise is what `make` writes, byte for byte; that each solution stands between its
marks, passes its check and gives the examples in the text; and that every check of qkv.checks has
one exercise. FILES: notebooks in solutions/, by default all; with FILES, checks
without exercise and exercises without solution are not looked for."""


def exercise_path(path: Path) -> Path:
    return Path(os.path.normpath(path.parent / ".." / "exercises" / path.name))


def faults(path: Path) -> Iterator[str]:
    """What keeps an exercise from being made from this notebook of solutions."""
    try:
        notebook = read(path)
        validate(path, notebook)
    except NotebookError as error:
        yield str(error)
        return
    page = Page(path, notebook)
    for rule in rules.RULES:
        yield from (f"{path} [{c}]: {what}" if c else f"{path}: {what}" for c, what in rule(page))


def make(paths: list[Path]) -> int:
    """Write the exercises, each by itself; 1 if any cannot be made, else 0."""
    failed = 0
    for path in paths:
        try:
            if problems := list(faults(path)):
                raise NotebookError("\n".join(problems))
            target = exercise_path(path)
            target.parent.mkdir(exist_ok=True)
            changed = write(target, exercise_of(read(path)))
            print(f"{target}: {'written' if changed else 'up to date'}", flush=True)
        except FILE_ERRORS as error:
            failed = 1
            tell(path, error)
    return failed


def out_of_step(path: Path) -> Iterator[str]:
    """Say where an exercise differs from what `make` would write."""
    target, mend = exercise_path(path), f"run {COMMAND} make {path}"
    if not target.exists():
        yield f"{target}: there is none: {mend}"
        return
    made = exercise_of(read(path))
    if target.read_bytes() == canonical_text(made).encode():
        return
    try:
        stored = read(target).cells
    except NotebookError as error:
        yield f"{error}: {mend}"
        return
    pairs = zip(canonical_cells(made), [*stored, *[None] * len(made.cells)], strict=False)
    cell = next((expected.id for expected, seen in pairs if expected != seen), None)
    where = f"{target} [{cell}]" if cell else f"{target}"
    yield f"{where}: not what its solution makes (never edit it by hand): {mend}"


def canonical_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return list(v4.reads(canonical_text(notebook)).cells)


def across(paths: list[Path], known: set[str], everything: bool) -> Iterator[str]:
    """Names used once and known to qkv.checks; with everything, none left out or left over."""
    seen: dict[str, str] = {}
    for path in paths:
        for cell in read(path).cells:
            grade_id = table(cell, "metadata", "nbgrader").get("grade_id")
            if not is_answer(cell) and not is_check(cell):
                continue
            where = f"{path} [{cell.id}]"
            if grade_id in seen:
                yield f"{where}: the grade id {grade_id!r} stands in {seen[grade_id]} too: rename"
            elif is_check(cell) and grade_id not in known:
                yield (
                    f"{where}: qkv.checks knows no {grade_id!r}: mend the name, or add the check,"
                    " and its module to CHAPTERS there"
                )
            seen.setdefault(str(grade_id), where)
    if not everything:
        return
    for name in sorted(known - seen.keys()):
        yield f"solutions/: no exercise for the check {name!r} of qkv.checks: add it"
    made = {exercise_path(path) for path in paths}
    for path in sorted({p.parent.parent / "exercises" for p in paths}):
        for left in sorted(set(path.glob("*.ipynb")) - made):
            yield f"{left}: no such notebook in solutions/: delete it"


def check(paths: list[Path], everything: bool = True) -> int:
    """Print every fault; 1 if there is any."""
    found = 0
    for path in paths:
        try:
            problems = list(faults(path))
            if not problems:
                page = Page(path, read(path))
                problems += out_of_step(path)
                problems += [f"{path} [{cell}]: {what}" for cell, what in examples_hold(page)]
        except FILE_ERRORS as error:
            found += 1
            tell(path, error)
            continue
        found += len(problems)
        print(*problems or [f"{path}: in step"], sep="\n", flush=True)
    if not found:
        from qkv.checks import exercises  # here, for it imports torch

        problems = list(across(paths, set(exercises()), everything))
        found += len(problems)
        print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(paths)} notebooks of solutions checked, problems: {found}")
    return 1 if found else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("make", MAKE_HELP), ("check", CHECK_HELP)):
        command = commands.add_parser(name, help=text.split(".")[0], description=text)
        command.add_argument("files", nargs="*", type=Path, metavar="FILES")
    given = parser.parse_args(arguments)
    files = given.files or book_files("solutions")
    return make(files) if given.command == "make" else check(files, not given.files)


if __name__ == "__main__":
    sys.exit(main())
