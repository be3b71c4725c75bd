"""A course of two small exercise notebooks, and submissions made for it, for the grader's tests."""

import csv
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from nbformat import NotebookNode, v4

# Runs `qkv` with the small course's seed cell and limits that are soon reached.
QKV = """\
import functools
import signal
import grading_course
from qkv.grading import cli, graft, job, run
from qkv.grading.sandbox import MEGABYTE, Limits
graft.SEED_CELL = grading_course.SEED_CELL
limits = Limits(seconds=4, memory=400 * MEGABYTE, output=MEGABYTE)
job.Runner = functools.partial(run.Runner, limits=limits)
# Where the tests run in the background of a shell, Ctrl-C would be ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
cli.main()"""

# In place of the course's own checks: quick, and without torch.
SEED_CELL = """\
import sys
import types

sys.modules["qkv.checks"] = types.SimpleNamespace(seed={seed})"""

CHECK_CELL = """\
import random

from qkv import checks

RIGHT = {
    "double": lambda x: [2 * v for v in x],
    "total": lambda x: [sum(x)],
    "last": lambda x: x[-1:],
    "first": lambda x: x[:1],
}


def check(name, answer):
    rng = random.Random(f"{name} {checks.seed}")
    x = [rng.randint(1, 10**9) for _ in range(5)]
    try:
        seen = answer(list(x))
    except NotImplementedError:
        print(f"{name}: not written yet")
    except Exception as error:
        print(f"{name}: it raised {type(error).__name__}: {error}")
    else:
        ok = seen == RIGHT[name](x)
        print(f"{name}: ok {sum(seen)}" if ok else f"{name}: wrong, {str(seen)[:50]}")"""

BODIES = {
    "double": "return [2 * v for v in x]",
    "total": "return [sum(double(x)) // 2]",  # an exercise may build on the one before
    "last": "return x[-1:]",
    "first": "return x[:1]",
}
NOTEBOOKS = {"01-small": ("double", "total", "last"), "02-other": ("first",)}
POINTS = {"double": 2, "total": 3, "last": 1, "first": 4}


def write(root: Path) -> Path:
    """The course's folder, with solutions and exercises."""
    for kind, make in (("solutions", solution), ("exercises", exercise)):
        (root / kind).mkdir()
        for name in NOTEBOOKS:
            (root / kind / f"{name}.ipynb").write_bytes(content(make(name)))
    return root


def start(*words: object, **options: Any) -> subprocess.Popen[str]:
    """Start `qkv` in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", QKV, *map(str, words)]
    return subprocess.Popen(command, env=environment, text=True, **options)


def grades(out: Path) -> dict[str, list[str]]:
    """The rows of grades.csv by learner, without learner and id."""
    with open(out / "grades.csv", encoding="utf-8-sig", newline="") as file:
        return {row[0]: row[2:] for row in csv.reader(file)}


def right(name: str, seed: int) -> int:
    """The number that a check prints for a right answer to `total`."""
    rng = random.Random(f"{name} {seed}")
    return sum(rng.randint(1, 10**9) for _ in range(5))


def solution(notebook: str = "01-small") -> NotebookNode:
    """The pristine notebook, with its solutions."""
    cells = [
        v4.new_markdown_cell("# Do it, made for this test", id="opening"),
        v4.new_code_cell("start = 1", id="set-up"),
        v4.new_code_cell(CHECK_CELL, id="import-check"),
    ]
    for name in NOTEBOOKS[notebook]:
        body = f"    ### BEGIN SOLUTION\n    {BODIES[name]}\n    ### END SOLUTION"
        cells += [
            v4.new_markdown_cell(f"Write {name}.", id=f"{name}-task"),
            answer_cell(name, f"def {name}(x):\n{body}"),
            v4.new_code_cell(
                f'check("{name}", {name})',
                id=f"{name}-check",
                metadata={"nbgrader": _nbgrader(name, grade=True, points=POINTS[name])},
            ),
        ]
    return v4.new_notebook(cells=cells)


def answer_cell(name: str, source: str) -> NotebookNode:
    return v4.new_code_cell(
        f"# exercise: {name}\n{source}",
        id=f"{name}-answer",
        metadata={"nbgrader": _nbgrader(f"{name}-answer", grade=False)},
    )


def exercise(notebook: str = "01-small") -> NotebookNode:
    """The notebook that learners get."""
    made = solution(notebook)
    for name in NOTEBOOKS[notebook]:
        stub = f"def {name}(x):\n    # YOUR CODE HERE\n    raise NotImplementedError"
        put(made, name, f"# exercise: {name}\n{stub}")
    return made


def submission(notebook: str = "01-small", **sources: str) -> NotebookNode:
    """A perfect submission, but for these answers' sources."""
    made = solution(notebook)
    for name, source in sources.items():
        put(made, name, source)
    return made


def put(made: NotebookNode, name: str, source: str) -> None:
    cell(made, f"{name}-answer").source = source


def cell(made: NotebookNode, cell_id: str) -> NotebookNode:
    return next(c for c in made.cells if c.id == cell_id)


def content(made: NotebookNode) -> bytes:
    """The notebook as a file."""
    return json.dumps(made).encode()


def by_colab(made: NotebookNode) -> NotebookNode:
    """As Colab saves it: nbformat 4.0, ids in the metadata, who ran it."""
    made.nbformat_minor = 0
    made.metadata["colab"] = {"provenance": []}
    for one in made.cells:
        one.metadata = {"id": one.pop("id")}
        if one.cell_type == "code":
            user = {"displayName": "Ada Byron", "userId": "0815"}
            one.metadata["executionInfo"] = {"status": "ok", "user": user}
    first = v4.new_markdown_cell("Open in Colab", metadata={"id": "view-in-github"})
    first.pop("id")
    made.cells.insert(0, first)
    return made


def by_old_jupyter(made: NotebookNode) -> NotebookNode:
    """As Jupyter saved it before nbformat 4.5: no ids."""
    made.nbformat_minor = 4
    for one in made.cells:
        one.pop("id")
    return made


def _nbgrader(name: str, *, grade: bool, points: int | None = None) -> dict[str, Any]:
    settings = {"grade": grade, "grade_id": name, "locked": grade, "schema_version": 3}
    settings |= {"solution": not grade, "task": False}
    return settings | ({"points": points} if grade else {})
