"""One notebook under examination, and what a rule finds in it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nbformat import NotebookNode

from notebook_markdown import Prose

WORDS = "[a-z0-9]+(-[a-z0-9]+)*"  # the form of cell ids and figure names
SPEAKING_ID = re.compile(WORDS)

Found = Iterator[tuple[str, str]]  # the cell's name ("" for the whole notebook) and what is wrong


@dataclass(frozen=True)
class Page:
    """One notebook under examination."""

    path: Path
    notebook: NotebookNode

    @cached_property
    def cells(self) -> list[tuple[str, NotebookNode]]:
        """All cells, each with its id, by which messages name it."""
        return [(cell.id, cell) for cell in self.notebook.cells]

    @cached_property
    def code(self) -> list[tuple[str, NotebookNode]]:
        return [(name, cell) for name, cell in self.cells if cell.cell_type == "code"]

    @cached_property
    def prose(self) -> Prose:
        markdown = [(name, c.source) for name, c in self.cells if c.cell_type == "markdown"]
        return Prose(tuple(markdown))

    @property
    def number(self) -> str:
        """The chapter's number, with which the file's name begins."""
        return self.path.name[:2]
