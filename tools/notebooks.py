#!/usr/bin/env python
"""Run the course's notebooks, check their form, and keep their set-up cells the same."""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

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
    run_hash,
    set_up_source,
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
to stderr or takes over 60 seconds stays as it was. FILES: by default all of chapters/ and
solutions/; exercises/ is made from solutions/ by another tool."""
CHECK_HELP = """\
Hold the rules that a program can hold, and say of each breach where it is and how to mend it.
FILES: by default all of chapters/, solutions/ and exercises/; the chapters' own rules hold for
files in a folder of that name."""
SET_UP_HELP = """\
Write the set-up cell of every notebook anew from its template and from the repository and ref in
pyproject.toml, [tool.ask-match-blend]. Nothing is executed; counts and outputs stay.
FILES: by default all of chapters/, solutions/ and exercises/."""


def run_one(path: Path, everything: bool) -> str:
    """Bring one notebook up to date and say what was done."""
    notebook = read(path)
    validate(path, notebook)
    if notebook.metadata.get(OWN_METADATA, {}).get("run_hash") == run_hash(notebook):
        if not everything:
            return "written canonically, not run" if write(path, notebook) else "up to date"
    start = time.monotonic()
    done = execute(path, notebook)
    seconds = time.monotonic() - start
    keep_equal_pictures(notebook, done)
    done.metadata[OWN_METADATA] = {"run_hash": run_hash(done)}
    changed = write(path, done)
    return f"ran in {seconds:.1f} s, {'' if changed else 'un'}changed"


def run(paths: list[Path], everything: bool = False) -> int:
    """Bring all up to date, each by itself; 1 if any failed, else 0."""
    failed = 0
    for path in paths:
        try:
            print(f"{path}: {run_one(path, everything)}", flush=True)
        except NotebookError as error:
            failed = 1
            print(f"error: {error}", file=sys.stderr, flush=True)
    return failed


def check(paths: list[Path]) -> int:
    """Print every breach of the rules, and how long the cells are; 1 if any rule is broken."""
    found = 0
    for path in paths:
        problems = list(notebook_rules.problems(path))
        found += len(problems)
        print(*problems, sep="\n", end="\n" if problems else "")
        if not problems:
            lengths = [len(c.source.splitlines()) for c in code_cells(read(path))[1:]] or [0]
            middle = statistics.median(lengths)
            print(f"{path}: in order; {len(lengths)} code cells, median {middle:g} lines")
    print(f"{len(paths)} checked, problems: {found}")
    return 1 if found else 0


def set_up(paths: list[Path], only_check: bool = False) -> int:
    """Write the set-up cells anew, or only say which differ; 1 if any does or has none."""
    failed = 0
    for path in paths:
        try:
            notebook = read(path)
            validate(path, notebook)
            cell = next((c for c in code_cells(notebook) if c.id == SET_UP_ID), None)
            if cell is None:
                raise NotebookError(
                    f"{path}: no code cell with the id {SET_UP_ID!r}: put one first"
                )
            before = canonical_text(notebook)
            cell["source"], cell.metadata["tags"] = set_up_source(), [SET_UP_TAG]
            if canonical_text(notebook) == before:
                continue
            if only_check:
                failed = 1
                print(f"{path}: the set-up cell differs: run tools/notebooks.py set-up")
            elif write(path, notebook):
                print(f"{path}: set-up cell written")
        except NotebookError as error:
            failed = 1
            print(f"error: {error}", file=sys.stderr)
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
    files = given.files or book_files("chapters", "solutions", "exercises")
    return check(files) if given.command == "check" else set_up(files, given.check)


if __name__ == "__main__":
    sys.exit(main())
