"""The rules that a program can hold. Every message says what is wrong and how to mend it."""

from collections.abc import Iterator
from pathlib import Path

from notebook_form import NotebookError, read, validate

from . import cells, chapters, pictures, prose
from .page import Page


def problems(path: Path) -> Iterator[str]:
    """What breaks the rules in one notebook: those of form, and in chapters/ a chapter's too."""
    try:
        page = Page(path, read(path))
        validate(path, page.notebook)
    except NotebookError as error:
        yield str(error)
        return
    rules = [*cells.RULES, *pictures.RULES, *prose.RULES]
    if path.resolve().parent.name == "chapters":
        rules += chapters.RULES
    for rule in rules:
        for cell, message in rule(page):
            yield f"{path} [{cell}]: {message}" if cell else f"{path}: {message}"
