"""The course's own notebooks, which answers are grafted onto."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

import qkv
from qkv.grading.graft import Exercise, code_cell, exercises, matches
from qkv.grading.reading import NotUnderstood, read


@dataclass(frozen=True)
class Pristine:
    """One notebook of the course: its name without .ipynb, its cells, its exercises."""

    name: str
    notebook: NotebookNode
    exercises: list[Exercise]

    @property
    def digest(self) -> str:
        """Changes when the notebook does."""
        return hashlib.sha256(json.dumps(self.notebook, sort_keys=True).encode()).hexdigest()


def load(folder: Path | None, kind: str) -> list[Pristine]:
    """The notebooks in `kind` ("solutions" or "exercises") of the course's folder.

    Without a folder: of the repository that qkv is installed from, else of the current folder.

    Errors:
        ValueError: there are none; the message says what to do
    """
    places = [folder] if folder else [Path(qkv.__file__).parents[2], Path.cwd()]
    for place in places:
        paths = sorted((place / kind).glob("*.ipynb"))
        if paths:
            found = [(path.stem, read(path.read_bytes())) for path in paths]
            return [Pristine(name, notebook, exercises(notebook)) for name, notebook in found]
    tried = ", ".join(str(place / kind) for place in places)
    raise ValueError(
        f"no notebooks of the course in {tried}. Clone the course's repository, and name its"
        " folder with --course"
    )


def which(submission: NotebookNode, file_name: str, course: list[Pristine]) -> Pristine:
    """The notebook of the course that was handed in: by its cells, else by the file's name.

    Errors:
        NotUnderstood: it is none of them
    """
    counts = [matches(submission, pristine.exercises) for pristine in course]
    named = [p for p in course if p.name.lower() in file_name.lower()]
    best = [p for p, n in zip(course, counts, strict=True) if n == max(counts) > 0]
    both = [p for p in best if p in named]
    if len(best) == 1 or both:
        return (both or best)[0]
    if not best and named:
        return named[0]
    if best:
        names = ", ".join(p.name for p in best)
        raise NotUnderstood(f"its exercises are those of several notebooks: {names}")
    raise NotUnderstood("it holds none of the course's exercises, and its name is none of theirs")


def from_checks(submission: NotebookNode) -> Pristine:
    """A notebook made of the exercises that `qkv.checks` knows and this one answers."""
    import qkv.checks

    known = [Exercise(n, 1, _id(n, "answer"), _id(n, "check")) for n in qkv.checks.exercises()]
    cells = [code_cell("import-check", "from qkv.checks import check")]
    for one in known:
        if matches(submission, [one]):
            told = {"schema_version": 3, "task": False}
            answer = {"grade": False, "grade_id": one.answer_id, "locked": False, "solution": True}
            check = {"grade": True, "grade_id": one.name, "locked": True, "solution": False}
            call = f'check("{one.name}", {one.name})'
            cells += [
                code_cell(one.answer_id, "", nbgrader=answer | told),
                code_cell(one.check_id, call, nbgrader=check | told | {"points": 1}),
            ]
    if len(cells) == 1:
        raise NotUnderstood("it holds none of the exercises that this version of qkv knows")
    made = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    notebook = read(json.dumps(made).encode())
    return Pristine("exercises", notebook, exercises(notebook))


def _id(name: str, part: str) -> str:
    return re.sub("_", "-", name) + f"-{part}"
