"""The form that every notebook of the course is stored in, and its one set-up cell."""

import hashlib
import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from nbformat import NotebookNode, v4
from nbformat.validator import iter_validate

from qkv._files import write_whole

ROOT = Path(__file__).resolve().parent.parent
SET_UP_ID = "set-up"
SET_UP_TAG = "hide-cell"

# What a reader meets in each notebook and what makes it work alone in Colab. `--no-deps` keeps
# pip from replacing the numpy, torch or IPython that Colab has. See `set_up_source`.
SET_UP_TEMPLATE = """\
# Installs the course's package, qkv, where it is missing (as on Colab).
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("qkv") is None:
    source = "{source}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    done = subprocess.run([*pip, source], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(
            f"Could not install {{source}}. Connect to the internet, then run"
            f" this cell again.\\n{{done.stderr.strip()[-500:]}}"
        )
    print(f"Installed qkv from {{source}}, and nothing else.")"""

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
OWN_METADATA = "ask_match_blend"
KEPT_CELL_METADATA = ("tags", "mystnb", "nbgrader")

COMMAND = ".venv/bin/python tools/notebooks.py"  # as one can type it in the repository's folder
CONVERT = (
    'convert it with .venv/bin/python -c "import nbformat as f, sys; p = sys.argv[1];'
    ' f.write(f.v4.upgrade(f.read(p, 4)), p)" {path} and give each cell an id that speaks'
)


class NotebookError(Exception):
    """A notebook that cannot be read or run; the message says why and what to do."""


def public_address(pyproject: Path = ROOT / "pyproject.toml") -> tuple[str, str]:
    """The public repository, and the branch or tag of it that readers get."""
    table = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["ask-match-blend"]
    return table["repository"], table["ref"]


def set_up_source(address: tuple[str, str] | None = None) -> str:
    """The set-up cell's code for a repository and ref, those of pyproject.toml if not given."""
    repository, ref = address or public_address()
    return SET_UP_TEMPLATE.format(source=f"git+{repository}@{ref}")


def read(path: Path) -> NotebookNode:
    """Read a notebook exactly as it stands: no repair, no made-up ids."""
    try:
        text = path.read_text(encoding="utf-8")
        major = json.loads(text)["nbformat"]
        if major in (1, 2, 3):
            how = CONVERT.format(path=path)
            raise NotebookError(f"{path}: stored in nbformat {major}, the course's is 4.5: {how}")
        notebook: NotebookNode = v4.reads(text)
        json.dumps(notebook, ensure_ascii=False).encode()  # half a character cannot be stored
        if notebook["nbformat"] != 4 or not isinstance(notebook["cells"], list):
            raise ValueError("not nbformat 4")
        for cell in notebook.cells:
            if not isinstance(cell["cell_type"], str) or not isinstance(cell["source"], str):
                raise ValueError("a cell's type or source is no text")
    except FileNotFoundError:
        raise NotebookError(f"{path}: there is no such file") from None
    except OSError as error:
        raise NotebookError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise NotebookError(f"{path}: not a notebook: its JSON is nested too deeply") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise NotebookError(f"{path}: not a notebook in nbformat 4 ({reason})") from None
    return notebook


def refuse_made(path: Path) -> None:
    """Refuse a notebook in exercises/, which only its own tool may write."""
    if path.resolve().parent.name == "exercises":
        raise NotebookError(
            f"{path}: made from solutions/, never run or edited: change the notebook there, run"
            " it, then make exercises"
        )


def validate(path: Path, notebook: NotebookNode) -> None:
    """Refuse a notebook that is not as nbformat 4.5 has it; NotebookError says where.

    (nbformat.validate would give cells new ids and then be content.)
    """
    minor = notebook.get("nbformat_minor")
    if minor in range(5):
        how = CONVERT.format(path=path)
        raise NotebookError(f"{path}: stored in nbformat 4.{minor}, the course's is 4.5: {how}")
    ids: set[str] = set()
    for number, cell in enumerate(notebook.cells, 1):
        given = cell.get("id", "")
        if not isinstance(given, str) or not given or given in ids:
            problem = f"a second cell has the id {given!r}" if given else "the cell has no id"
            raise NotebookError(f"{path} [cell {number}]: {problem}: give each cell its own")
        ids.add(given)
    for error in iter_validate(notebook, version=4, version_minor=5):
        reason, place = str(error.message)[:200], list(error.absolute_path)
        inside = " -> ".join(str(key) for key in place) or "the top"
        named = len(place) > 1 and place[0] == "cells"
        where = f"{path} [{notebook.cells[place[1]].id}]" if named else f"{path}"
        raise NotebookError(
            f"{where}: not a valid notebook ({reason}): in its JSON, mend {inside}, or take the"
            " file as git has it and change it anew"
        )


def table(value: object, *keys: str) -> dict[str, Any]:
    """The table below these keys, one in another; an empty one where there is no table."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def write(path: Path, notebook: NotebookNode, before: bytes | None = None) -> bool:
    """Write the canonical form, whole or not at all; say whether any byte changed.

    With `before` nothing is written unless the file still holds these bytes. A link stays one.
    """
    data = canonical_text(notebook).encode()
    try:
        return _write(path, path.resolve(), data, before)
    except OSError as error:
        raise NotebookError(f"{path}: cannot be written ({error.strerror})") from None


def _write(path: Path, file: Path, data: bytes, before: bytes | None) -> bool:
    stored = file.read_bytes() if file.exists() else None
    if before is not None and stored != before:
        raise NotebookError(f"{path}: changed while it ran; nothing written, run again")
    if stored == data:
        return False
    writable = stored is None or file.stat().st_mode & stat.S_IWUSR and os.access(file, os.W_OK)
    if not writable:
        raise NotebookError(f"{path}: is read-only, nothing written: chmod u+w {path}")
    write_whole(file, data.decode())
    return True


def canonical_text(notebook: NotebookNode) -> str:
    """The one way to store this notebook: sorted keys, minimal metadata, merged streams."""
    metadata: dict[str, Any] = {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
    if own := notebook.metadata.get(OWN_METADATA):
        metadata[OWN_METADATA] = own
    cells = [_canonical_cell(cell) for cell in notebook.cells]
    form = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return str(v4.writes(NotebookNode(form))) + "\n"


def _canonical_cell(cell: NotebookNode) -> NotebookNode:
    kept = {key: cell.metadata[key] for key in KEPT_CELL_METADATA if cell.metadata.get(key)}
    fields = {"cell_type": cell.cell_type, "metadata": kept, "source": cell.source.rstrip("\n")}
    fields |= {key: cell[key] for key in ("id", "attachments") if key in cell}
    if cell.cell_type == "code":
        fields["execution_count"] = cell.get("execution_count")
        fields["outputs"] = canonical_outputs(cell)
    return NotebookNode(fields)


def canonical_outputs(cell: NotebookNode) -> list[NotebookNode]:
    """A code cell's outputs, consecutive pieces of one stream joined."""
    joined: list[NotebookNode] = []
    for output in cell.get("outputs", []):
        last = joined[-1] if joined else None
        if last and output.output_type == "stream" == last.output_type and output.name == last.name:
            last["text"] += output.text
            continue
        copy = NotebookNode({key: output[key] for key in output if key != "transient"})
        if copy.output_type == "execute_result":
            copy["execution_count"] = cell.get("execution_count")
        joined.append(copy)
    return joined


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def run_hash(notebook: NotebookNode) -> str:
    """A hash of all code with its counts and outputs: `run` stores it, any later change breaks it.

    The set-up cell's source is left out, so that its template can change without running anything.
    """
    parts = [
        (
            "" if cell.get("id") == SET_UP_ID else cell.source.rstrip("\n"),
            cell.get("execution_count"),
            canonical_outputs(cell),
        )
        for cell in code_cells(notebook)
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
