#!/usr/bin/env python
"""Run the course's notebooks, check their form, and keep their set-up cells the same."""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

from nbformat import NotebookNode, v4

import notebook_rules
from notebook_form import (
    OWN_METADATA,
    ROOT,
    SET_UP_ID,
    SET_UP_TAG,
    NotebookError,
    canonical_text,
    code_cells,
    read,
    refuse_made,
    run_hash,
    set_up_source,
    table,
    validate,
    write,
)
from notebook_run import execute, keep_equal_pictures

RUN_HELP = """\
Execute the notebooks whose code or outputs are not as `run` last left them, each from top to
bottom in a fresh kernel and in its own folder, and store them canonically. What is up to date is
not touched, so running twice changes no byte. A change in the package shows in no notebook: after
one, use --all. With --all, only outputs that really differ change, such as times in cells tagged
nbval-ignore-output; a picture with the same pixels keeps its bytes. A notebook that fails, writes
to stderr or takes over 60 seconds stays as it was, and so does one that is changed while it runs.
FILES: by default all of chapters/ and solutions/."""
CHECK_HELP = """\
Hold the rules that a program can hold, and say of each breach where it is and how to mend it.
FILES: by default all of chapters/ and solutions/, which have rules of their own besides; what is
in exercises/ is held by exercises.py."""
SET_UP_HELP = """\
Write the set-up cell of every notebook anew from its template and from the repository and ref in
pyproject.toml, [tool.ask-match-blend]; where there is none, put it before the first code cell.
Nothing is executed; counts and outputs stay. FILES: by default all of chapters/,
solutions/ and exercises/."""


# What can be wrong with one file; the others are still looked at.
FILE_ERRORS = (NotebookError, OSError, ValueError, RecursionError)


def tell(path: Path, error: BaseException) -> None:
    """Say on stderr what is wrong with a file."""
    known = isinstance(error, NotebookError)
    reason = f"{error}" if known else f"{path}: {type(error).__name__}: {error}"
    print(f"error: {reason}", file=sys.stderr, flush=True)


def run_one(path: Path, everything: bool) -> str:
    """Bring one notebook up to date and say what was done."""
    refuse_made(path)
    before = path.read_bytes() if path.is_file() else None  # `read` says what is wrong otherwise
    notebook = read(path)
    validate(path, notebook)
    if table(notebook, "metadata", OWN_METADATA).get("run_hash") == run_hash(notebook):
        if not everything:
            return "written canonically, not run" if write(path, notebook, before) else "up to date"
    start = time.monotonic()
    done = execute(path, notebook)
    seconds = time.monotonic() - start
    keep_equal_pictures(notebook, done)
    done.metadata[OWN_METADATA] = {"run_hash": run_hash(done)}
    changed = write(path, done, before)
    return f"ran in {seconds:.1f} s, {'' if changed else 'un'}changed"


def run(paths: list[Path], everything: bool = False) -> int:
    """Bring all up to date, each by itself; 1 if any failed, else 0."""
    failed = 0
    for path in paths:
        try:
            print(f"{path}: {run_one(path, everything)}", flush=True)
        except FILE_ERRORS as error:
            failed = 1
            tell(path, error)
    return failed


def check(paths: list[Path]) -> int:
    """Print every breach of the rules, and how long the cells are; 1 if any rule is broken."""
    found = 0
    for path in paths:
        try:
            problems = list(notebook_rules.problems(path))
            code = [] if problems else code_cells(read(path))
        except FILE_ERRORS as error:
            found += 1
            tell(path, error)
            continue
        found += len(problems)
        print(*problems, sep="\n", end="\n" if problems else "")
        if not problems:
            lengths = [len(c.source.splitlines()) for c in code[1:]] or [0]
            middle = statistics.median(lengths)
            print(f"{path}: in order; {len(lengths)} code cells, median {middle:g} lines")
    print(f"{len(paths)} checked, problems: {found}")
    return 1 if found else 0


def with_set_up(path: Path, source: str) -> NotebookNode:
    """The notebook with this source in its set-up cell, which is added where there is none."""
    notebook = read(path)
    validate(path, notebook)
    cell = next((c for c in code_cells(notebook) if c.id == SET_UP_ID), None)
    if cell is None:
        if any(c.id == SET_UP_ID for c in notebook.cells):
            raise NotebookError(f"{path} [{SET_UP_ID}]: is no code cell: give it another id")
        kinds = [c.cell_type for c in notebook.cells]
        cell = v4.new_code_cell(id=SET_UP_ID)
        notebook.cells.insert([*kinds, "code"].index("code"), cell)
    cell["source"], cell.metadata["tags"] = source, [SET_UP_TAG]
    return notebook


def set_up(paths: list[Path], only_check: bool = False) -> int:
    """Write the set-up cells anew, or only say which differ; 1 if any does or cannot be written."""
    failed = 0
    for path in paths:
        try:
            notebook = with_set_up(path, set_up_source())
            if canonical_text(notebook) == canonical_text(read(path)):
                continue
            if only_check:
                failed = 1
                print(f"{path}: the set-up cell differs: run make set-up")
            elif write(path, notebook):
                print(f"{path}: set-up cell written")
        except FILE_ERRORS as error:
            failed = 1
            tell(path, error)
    return failed


def book_files(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((ROOT / folder).glob("*.ipynb"))]
    return [Path(os.path.relpath(path)) for path in found]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("run", RUN_HELP), ("check", CHECK_HELP), ("set-up", SET_UP_HELP)):
        command = commands.add_parser(name, help=text.split(".")[0], description=text)
        command.add_argument("files", nargs="*", type=Path, metavar="FILES")
        if name == "run":
            command.add_argument("--all", action="store_true", help="run what is up to date too")
        if name == "set-up":
            command.add_argument("--check", action="store_true", help="change nothing, only tell")
    given = parser.parse_args(arguments)
    if given.command == "run":
        return run(given.files or book_files("chapters", "solutions"), given.all)
    if given.command == "check":
        return check(given.files or book_files("chapters", "solutions"))
    return set_up(given.files or book_files("chapters", "solutions", "exercises"), given.check)


if __name__ == "__main__":
    sys.exit(main())
