#!/usr/bin/env python
"""Test the package with the oldest and the newest of what pyproject.toml lets it run on.

One environment at a time, each removed before the next. The notebooks are not run: their outputs
are those of the pinned versions.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from environments import NotServed, fresh
from notebook_form import ROOT
from snapshot import publish

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
# What tests the package; whatever versions suit the Python.
TESTERS = ("hypothesis", "ipykernel", "nbclient", "nbformat", "pytest", "pytest-xdist")
# Not of the package: the book, the notebooks, the tools, the frame, the grader.
OTHERS = ("book", "colab", "compat", "course", "exercises", "grading*", "notebooks")
OTHERS += ("point_at", "release", "repository", "site*")
# Holds a picture to the pixel, which the pinned matplotlib has drawn.
PICTURE = "tests/test_figures.py::test_the_readmes_picture_is_the_one_that_the_book_draws"


@dataclass
class Row:
    """One environment: its Python, which end of the bounds, what it has, what came of it."""

    python: str
    end: str
    versions: dict[str, str] = field(default_factory=dict)
    outcome: str = ""
    passed: bool = False


def requirements() -> list[Requirement]:
    """What the package runs on, with the bounds that pyproject.toml gives."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [Requirement(text) for text in pyproject["project"]["dependencies"]]


def lowest(served: list[str], wanted: Requirement) -> str:
    """The lowest version served that the bounds admit, as pip is asked for it."""
    admitted = [v for v in map(Version, served) if wanted.specifier.contains(v, prereleases=False)]
    if not admitted:
        raise NotServed(f"{wanted} is not served for this Python")
    return f"{wanted.name}=={min(admitted).public}"


def oldest(python: Path, wanted: Requirement) -> str:
    """The lowest version that the bounds admit and that is served for this Python."""
    pip = [python, "-m", "pip", "index", "versions", "--only-binary", ":all:", wanted.name]
    said = subprocess.run(pip, check=True, capture_output=True, text=True).stdout
    listed = re.search(r"^Available versions: (.+)$", said, re.MULTILINE)
    return lowest(listed[1].split(", ") if listed else [], wanted)


def installed(python: Path) -> dict[str, str]:
    done = subprocess.run(
        [python, "-m", "pip", "list", "--format", "json"], check=True, stdout=subprocess.PIPE
    )
    return {found["name"].lower(): found["version"] for found in json.loads(done.stdout)}


def try_one(row: Row, folder: Path, bare: Path) -> None:
    """Make the environment, install, test; the outcome goes into the row."""
    python = fresh(folder, row.python)
    # What came with an older Python lists, unasked, what would have to be built from source.
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip"], check=True)
    wanted = [f"{need}" if row.end == "newest" else oldest(python, need) for need in requirements()]
    pip = [python, "-m", "pip", "install", "--quiet", "--upgrade", *wanted, *TESTERS]
    done = subprocess.run([*pip, f"git+{bare.as_uri()}@main"], capture_output=True, text=True)
    if done.returncode:
        row.outcome = f"does not install: {done.stderr.strip().splitlines()[-1]}"
        return
    has = installed(python)
    row.versions = {need.name: has[need.name] for need in requirements()}
    pytest = [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "tests"]
    pytest += [f"--ignore-glob=tests/test_{name}.py" for name in OTHERS]
    pytest += ["--deselect", PICTURE]
    # Two tests run at a time; and it is versions that are tried here, not many inputs.
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "SEEDS": "1"}
    checkout = bare.parent / "checkout"
    done = subprocess.run(pytest, cwd=checkout, env=settings, capture_output=True, text=True)
    row.passed = done.returncode == 0
    row.outcome = (done.stdout.strip().splitlines() or [done.stderr.strip()])[-1].strip("= ")
    if not row.passed:
        print(done.stdout[-6000:], done.stderr[-2000:])


def table(rows: list[Row]) -> str:
    names = [need.name for need in requirements()]
    lines = [["Python", "bounds", *names, "outcome"]]
    lines += [[r.python, r.end, *(r.versions.get(n, "-") for n in names), r.outcome] for r in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "\n".join(padded)


def main() -> int:
    rows = []
    for version in PYTHONS:
        for end in ("oldest", "newest"):
            row = Row(version, end)
            rows.append(row)
            print(f"Python {version}, {end}: trying", flush=True)
            with tempfile.TemporaryDirectory(prefix="compat-") as name:
                try:
                    try_one(row, Path(name, "env"), publish(Path(name), "main"))
                except (NotServed, subprocess.CalledProcessError) as error:
                    row.outcome = f"not tried: {error}"
            print(f"Python {version}, {end}: {row.outcome}", flush=True)
    print(table(rows))
    failed = sum(not row.passed for row in rows)
    print(f"{len(rows)} environments, {failed} without success.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
