#!/usr/bin/env python
"""Run every notebook as Colab would: alone in a folder, with Colab's versions of all packages.

The public address leads to this checkout meanwhile. Nothing outside a temporary folder changes.
"""

import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode, v4

from colab_form import as_saved, solved
from colab_stand_in import PYTHON, VERSIONS, like_colab, stand_in
from environments import NotServed
from notebook_form import ROOT, public_address, read
from notebooks import book_files


def button(path: Path) -> str:
    """Where the Colab button of a notebook leads."""
    address, ref = public_address()
    project = address.removeprefix("https://github.com/")
    return f"https://colab.research.google.com/github/{project}/blob/{ref}/{path.as_posix()}"


def grade(folder: Path, out: Path) -> list[str]:
    """Grade the notebooks in a folder as an instructor would; say which have not full points."""
    qkv = Path(sys.executable).with_name("qkv")
    command = [str(qkv), "grade", str(folder), "--out", str(out), "--course", str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return [f"qkv grade: {done.stderr.strip()}"]
    with open(out / "grades.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    poor = [row for row in rows if row["total"] != row["maximum"] or row["status"] != "graded"]
    missing = len(list(folder.glob("*.ipynb"))) - len(rows)
    return [f"not graded: {missing}"] * bool(missing) + [f"not full points: {row}" for row in poor]


def jobs() -> Iterator[tuple[str, Path, NotebookNode]]:
    """What is run: a name, the notebook's file, the notebook as it is opened."""
    for path in book_files("chapters", "solutions", "exercises"):
        yield str(path), path, read(path)
    for path in book_files("exercises"):
        written = solved(read(path), read(ROOT / "solutions" / path.name))
        yield f"{path}, solved", path, written


def run_all(folder: Path) -> int:
    """Run and grade all in a fresh environment; how many faults there were."""
    place = stand_in(folder, like_colab(folder))
    had = place.versions()
    print(f"Python {PYTHON}:", ", ".join(f"{n} {had[n]}" for n in VERSIONS), flush=True)
    handed_in = folder / "submissions"
    handed_in.mkdir()
    faults = 0
    for name, path, notebook in jobs():
        start = time.monotonic()
        try:
            done = place.run(as_saved(notebook, button(path)), path.stem)
        except Exception as error:
            faults += 1
            print(f"{name}: FAILED: {error}", flush=True)
            continue
        print(f"{name}: all cells ran, {time.monotonic() - start:.0f} s", flush=True)
        if name.endswith(", solved"):
            saved = v4.writes(as_saved(done, button(path)))
            (handed_in / path.name).write_text(saved, encoding="utf-8")
    found = grade(handed_in, folder / "grades")
    print(*found, sep="\n", end="\n" if found else "")
    count = len(list(handed_in.iterdir()))
    print(f"Solved, and graded as Colab saves them: {count}; without full points: {len(found)}")
    return faults + len(found)


def main() -> int:
    print("Making an environment like Colab's. With CUDA it takes 5 GB; it is removed at the end.")
    with tempfile.TemporaryDirectory(prefix="colab-") as folder:
        try:
            faults = run_all(Path(folder))
        except (NotServed, subprocess.CalledProcessError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    print(f"Faults: {faults}.", "" if faults else "No version that was there before changed.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
