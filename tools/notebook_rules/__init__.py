"""The rules that a program can hold. Every message says what is wrong and how to mend it."""

from collections.abc import Iterator
from pathlib import Path

from notebook_form import NotebookError, read, refuse_made, validate

from . import cells, chapters, pictures, prose, solutions
from .page import Page

OF_FOLDER = {"chapters": chapters.RULES, "solutions": solutions.RULES}


def problems(path: Path) -> Iterator[str]:
    """What breaks the rules in one notebook: those of form, and those of its folder."""
    try:
        refuse_made(path)
        page = Page(path, read(path))
        validate(path, page.notebook)
    except NotebookError as error:
        yield str(error)
        return
    rules = [*cells.RULES, *pictures.RULES, *prose.RULES]
    rules += OF_FOLDER.get(path.resolve().parent.name, ())
    for rule in rules:
        for cell, message in rule(page):
            yield f"{path} [{cell}]: {message}" if cell else f"{path}: {message}"
