"""Of a notebook what grading needs, whatever program saved it. Nothing here runs any code."""

import json
import re
from typing import Any

import nbformat
from nbformat import NotebookNode

LARGEST = 20 * 2**20  # bytes of a submission
MOST_CELLS = 2000
CONFLICT = re.compile(r"^(<{7}|>{7})( |$)", re.MULTILINE)
# What is handed in for a notebook by mistake.
MISTAKES = {
    re.compile(r"\A%PDF"): "it is a PDF; hand in the .ipynb file",
    re.compile(r"\APK\x03\x04"): "it is a zip; unpack it, and hand in the .ipynb file",
    re.compile(r"\A\s*<(!doctype|html)", re.IGNORECASE): "it is a web page, perhaps one to log in;"
    " download the notebook again",
    CONFLICT: "it holds the marks of a merge conflict (<<<<<<<); keep one side, and save it again",
    re.compile(
        r"\A(?!\s*\{).*?^(import \w|from [\w.]+ import |def \w+\(|class \w+[:(])",
        re.MULTILINE | re.DOTALL,
    ): "it is a Python script; hand in the .ipynb file",
}


class NotUnderstood(Exception):
    """A submission cannot be graded; the message gives the reason."""


def read(content: bytes) -> NotebookNode:
    """Of a notebook what grading needs, whatever program saved it. Outputs are left out.

    Errors:
        NotUnderstood: this is no notebook; the message says why
    """
    if not content.strip():
        raise NotUnderstood("the file is empty")
    if len(content) > LARGEST:
        raise NotUnderstood(f"the file has {len(content):,} bytes, over {LARGEST:,}")
    text = _text(content)
    try:
        raw = json.loads(text)
    except RecursionError:
        raise NotUnderstood("the file is no notebook: it is nested too deeply") from None
    except ValueError as error:
        raise NotUnderstood(f"the file is no notebook: {_mistake(text, error)}") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("nbformat"), int):
        raise NotUnderstood("the file is no notebook: it names no nbformat")
    cells = _raw_cells(raw)
    if len(cells) > MOST_CELLS:
        raise NotUnderstood(f"the notebook has {len(cells):,} cells, over {MOST_CELLS:,}")
    kept = [cell for cell in map(_kept, cells) if cell]
    if not kept:
        raise NotUnderstood("the notebook has no cells")
    return node({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": kept})


def node(raw: dict[str, Any]) -> NotebookNode:
    """As nbformat has it, with attributes for keys."""
    made: NotebookNode = nbformat.from_dict(raw)  # type: ignore[no-untyped-call]
    return made


def _text(content: bytes) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", errors="replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _mistake(text: str, error: ValueError) -> str:
    """Why a file that is not JSON is no notebook."""
    known = (words for pattern, words in MISTAKES.items() if pattern.search(text))
    return next(known, f"{error}; is it cut off?")


def _raw_cells(raw: dict[str, Any]) -> list[Any]:
    """A notebook's cells as they were saved. Before nbformat 4 they lie in worksheets."""
    if raw["nbformat"] not in (2, 3, 4):
        raise NotUnderstood(
            f"the notebook cannot be read: nbformat {raw['nbformat']} is not known; save it as 4"
        )
    sheets = [raw] if raw["nbformat"] == 4 else raw.get("worksheets")
    lists = [s.get("cells") if isinstance(s, dict) else None for s in _list(sheets)]
    if not lists or not all(isinstance(cells, list) for cells in lists):
        raise NotUnderstood("the notebook has no list of cells")
    return [cell for cells in lists for cell in _list(cells)]


def _kept(raw: Any) -> dict[str, Any] | None:
    """Of a cell what grading needs; None where it has no source."""
    if not isinstance(raw, dict):
        return None
    source = raw.get("source", raw.get("input"))  # "input" before nbformat 4
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        return None
    metadata = raw.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    kept = _plain(metadata, "id")
    kept["nbgrader"] = _plain(nbgrader, "grade", "grade_id", "points", "solution")
    cell = {"cell_type": "code"} | _plain(raw, "cell_type", "id")
    return cell | {"source": source, "metadata": kept}


def _plain(raw: Any, *keys: str) -> dict[str, Any]:
    """Of a dict these keys, where their values are words or numbers."""
    if not isinstance(raw, dict):
        return {}
    return {key: raw[key] for key in keys if isinstance(raw.get(key), str | int | float)}


def _list(raw: Any) -> list[Any]:
    return raw if isinstance(raw, list) else []
