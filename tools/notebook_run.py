"""Execute a notebook in a fresh kernel, and keep its pictures' bytes where nothing changed."""

import base64
import copy
import io
import time
from collections.abc import Iterator
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from PIL import Image

from notebook_form import NotebookError, code_cells

LIMIT = 60  # seconds a notebook may take


def execute(path: Path, notebook: NotebookNode) -> NotebookNode:
    """A copy of the notebook, executed in a fresh kernel; NotebookError where a cell fails."""
    done = copy.deepcopy(notebook)
    for cell in code_cells(done):
        cell["outputs"], cell["execution_count"] = [], None
    end = time.monotonic() + LIMIT
    client = NotebookClient(
        done,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.resolve().parent)}},
        timeout_func=lambda _: max(1, round(end - time.monotonic())),
        force_raise_errors=True,
        record_timing=False,
        shutdown_kernel="immediate",
    )
    count = 0
    with client.setup_kernel():
        for index, cell in enumerate(done.cells):
            if cell.cell_type != "code":
                continue
            count += 1
            try:
                client.execute_cell(cell, index)
                problem = stderr_of(cell)
            except CellExecutionError as error:
                problem = f"{error.ename}: {error.evalue}".split("\n")[0]
            except CellTimeoutError:
                problem = f"the notebook was stopped after {LIMIT} s: make it shorter"
            except DeadKernelError:
                problem = "the kernel died"
            if problem:
                raise NotebookError(f"{path} [{cell.id}]: {problem}; the file was left as it was")
            cell["execution_count"] = count
    if time.monotonic() > end:
        raise NotebookError(f"{path}: took over {LIMIT} s: make it shorter; it was left as it was")
    return done


def stderr_of(cell: NotebookNode) -> str:
    """What to say of a cell that wrote to stderr; nothing if it did not."""
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stderr":
            lines = output.text.strip().split("\n")
            return f"wrote to stderr ({lines[0][:200]}): mend the warning or print to stdout"
    return ""


def keep_equal_pictures(old: NotebookNode, new: NotebookNode) -> None:
    """Give a new png the old one's bytes where their pixels are the same.

    The bytes also hold Matplotlib's version, and depend on the compressor.
    """
    before = {cell.id: cell for cell in code_cells(old)}
    for cell in code_cells(new):
        pairs = zip(pngs(before.get(cell.id, NotebookNode())), pngs(cell), strict=False)
        for stored, fresh in pairs:
            if same_pixels(stored["image/png"], fresh["image/png"]):
                fresh["image/png"] = stored["image/png"]


def pngs(cell: NotebookNode) -> Iterator[NotebookNode]:
    return (out.data for out in cell.get("outputs", []) if "image/png" in out.get("data", {}))


def same_pixels(stored: str, fresh: str) -> bool:
    try:
        one, other = (Image.open(io.BytesIO(base64.b64decode(png))) for png in (stored, fresh))
        return (
            one.size == other.size
            and one.convert("RGBA").tobytes() == other.convert("RGBA").tobytes()
        )
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):  # a damaged one
        return False
