"""Rules for pictures: small, described, named once in the book."""

import base64
import re
from typing import Any

from nbformat import NotebookNode

from notebook_form import NotebookError, code_cells, read, table

from .page import WORDS, Found, Page

LARGEST_PNG = 60_000  # bytes


def pictures_are_described(page: Page) -> Found:
    for name, cell in page.code:
        bundles = [output.data for output in cell.outputs if "data" in output]
        images = [(kind, b[kind]) for b in bundles for kind in b if kind.startswith("image/")]
        figure = table(cell, "metadata", "mystnb", "figure")
        alt = _words(table(cell, "metadata", "mystnb", "image"), "alt")
        if cell.metadata.get("mystnb") and not images and cell.execution_count:
            yield name, "describes a picture (mystnb) and shows none: end it with the figure"
        if not images:
            continue
        if len(images) > 1:
            yield name, f"{len(images)} pictures: show one a cell"
        for kind, data in images:
            size = _size(data) if kind == "image/png" else 0
            if size is None:
                yield name, "the png is damaged (no base64): run the notebook again"
                continue
            if kind != "image/png":
                yield name, f"a picture of type {kind}: show a png"
            if size > LARGEST_PNG:
                yield name, f"the png has {size} bytes, at most {LARGEST_PNG}: draw less"
        if not alt.strip() or alt == figure.get("caption"):
            yield (
                name,
                "a picture without its own alt text: say what is seen in the metadata, mystnb ->"
                " image -> alt",
            )
        if not _words(figure, "caption").strip():
            yield name, "a picture without caption: say its point in mystnb -> figure -> caption"
        start = f"fig-{page.number}-"
        if not re.fullmatch(f"{start}{WORDS}", _words(figure, "name")):
            yield (
                name,
                f"the figure's name is {figure.get('name', '')!r}: let mystnb -> figure -> name"
                f" begin with {start!r}",
            )


def _words(described: dict[str, Any], key: str) -> str:
    return value if isinstance(value := described.get(key), str) else ""


def _size(data: str) -> int | None:
    try:
        return len(base64.b64decode(data))
    except ValueError:
        return None


def figure_names(notebook: NotebookNode) -> list[tuple[str, str]]:
    """The figures a notebook names, each with its cell's id."""
    return [
        (str(figure["name"]), cell.get("id", ""))
        for cell in code_cells(notebook)
        if (figure := table(cell, "metadata", "mystnb", "figure")).get("name")
    ]


def figures_have_own_names(page: Page) -> Found:
    others: dict[str, str] = {}
    for path in sorted(page.path.resolve().parent.parent.glob("*/*.ipynb")):
        if path.parent.name in ("chapters", "solutions") and path != page.path.resolve():
            try:
                others |= {figure: path.name for figure, _ in figure_names(read(path))}
            except NotebookError:
                continue  # told where that notebook is checked itself
    for figure, name in figure_names(page.notebook):
        if figure in others:
            yield name, f"a figure in {others[figure]} is called {figure!r} too: rename one"
        others[figure] = "this notebook"


RULES = (pictures_are_described, figures_have_own_names)
