"""Notebooks as Colab saves them."""

import copy

from nbformat import NotebookNode, v4

from exercise_form import is_answer
from notebook_form import code_cells

USER = {"displayName": "Ada Byron", "userId": "08150815081508150815"}


def as_saved(notebook: NotebookNode, link: str) -> NotebookNode:
    """nbformat 4.0, ids in the metadata, who ran which cell when, and first a link to Colab.

    Of a cell's other metadata nothing is kept: what works without it works with it. What was
    saved so before may be saved again.
    """
    saved = copy.deepcopy(notebook)
    saved["nbformat_minor"] = 0
    saved["metadata"] = NotebookNode(
        colab={"provenance": [], "include_colab_link": True},
        kernelspec={"name": "python3", "display_name": "Python 3"},
        language_info={"name": "python"},
    )
    for cell in saved.cells:
        ran = cell.get("execution_count") is not None
        cell["metadata"] = NotebookNode(id=cell.pop("id", cell.metadata.get("id")))
        if cell.cell_type == "code":
            cell.metadata["colab"] = {"base_uri": "https://localhost:8080/"}
        if ran:
            cell.metadata["executionInfo"] = {
                "status": "ok",
                "timestamp": 1767225600000,
                "user_tz": 0,
                "elapsed": 1,
                "user": USER,
            }
    if saved.cells[0].metadata.id == "view-in-github":
        return saved
    badge = f'<a href="{link}" target="_parent"><img alt="Open In Colab"/></a>'
    first = v4.new_markdown_cell(badge, metadata={"id": "view-in-github"})
    first.pop("id")
    saved.cells.insert(0, first)
    return saved


def solved(exercise: NotebookNode, solutions: NotebookNode) -> NotebookNode:
    """The exercise with each answer written as in the solutions."""
    written = copy.deepcopy(exercise)
    sources = {cell.id: cell.source for cell in code_cells(solutions) if is_answer(cell)}
    for cell in code_cells(written):
        cell["source"] = sources.get(cell.id, cell.source)
    return written
