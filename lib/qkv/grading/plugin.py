"""A plugin for pytest: runs one grafted notebook through nbval, and keeps what each cell gave.

It is loaded with `-p qkv.grading.plugin --grafted FOLDER`, in a process of its own. In FOLDER lie
`notebook.ipynb` and `settings.json`; the plugin writes `cells.jsonl`, a line as each cell ends.
"""

import ctypes
import json
import re
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from nbformat import NotebookNode
from nbval.plugin import IPyNbCell, IPyNbFile  # type: ignore[import-untyped]

from qkv.grading.graft import stdout
from qkv.grading.kernel import KernelLost, WatchedKernel
from qkv.grading.sandbox import Limits

LONGEST = 2000  # characters kept of what a learner's code printed or raised


def pytest_addoption(parser: pytest.Parser) -> None:
    """One option: the folder to work in."""
    parser.addoption("--grafted", type=Path, help="the folder of the grafted notebook")


def pytest_configure(config: pytest.Config) -> None:
    """Adopt what a kernel without a sandbox leaves behind."""
    if config.option.grafted is not None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
        config.option.nbval_cell_timeout = _limits(config).patience


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what a kernel without a sandbox left running."""
    if config.option.grafted is not None:
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.kill()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "GraftedFile | None":
    """Collect the grafted notebook, and nothing else."""
    if parent.config.option.grafted is None or file_path.suffix != ".ipynb":
        return None
    file: GraftedFile = GraftedFile.from_parent(parent, path=file_path)
    return file


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[None]"
) -> Generator[None, Any, None]:
    """Write down what a cell gave, and end the run when the kernel is gone."""
    outcome = yield
    if not isinstance(item, GraftedCell) or call.when == "teardown":
        return
    if call.when == "setup" and call.excinfo is None:
        return
    report = outcome.get_result()
    error = call.excinfo.value if call.excinfo else None
    lost = str(error) if isinstance(error, KernelLost) else None
    if lost is None and call.when == "call" and not item.parent.kernel.is_alive():
        lost = "the kernel fell silent"
    record = {
        "cell": item.cell.id,
        "passed": bool(report.passed),
        "line": item.line(),
        "error": item.error(),
        "lost": lost,
        "trouble": repr(error) if call.when == "setup" else None,
    }
    with open(item.config.option.grafted / "cells.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    if record["lost"] or record["trouble"]:
        item.session.shouldstop = "the kernel is gone"


class GraftedFile(IPyNbFile):  # type: ignore[misc]
    """nbval's notebook, with a watched kernel."""

    def setup(self) -> None:
        """Start the kernel."""
        settings = _settings(self.config)
        self.kernel = WatchedKernel(
            settings["name"], _limits(self.config), sandboxed=settings["sandboxed"]
        )

    def collect(self) -> Iterator["GraftedCell"]:
        """A cell's own words for nbval, such as # NBVAL_SKIP, do not count: a learner wrote it."""
        for cell in super().collect():
            yield GraftedCell.from_parent(
                self, name=cell.name, cell_num=cell.cell_num, cell=cell.cell, options=_options(cell)
            )

    def teardown(self) -> None:
        """End the kernel, alive or not."""
        if self.kernel is not None:
            self.kernel.stop()


class GraftedCell(IPyNbCell):  # type: ignore[misc]
    """nbval's cell. Of a check only its own line is compared."""

    def setup(self) -> None:
        """nbval would expect failures after a time-out; here the run has ended by then."""
        self.output_timeout = 60  # from the end of a cell to its last output, on a busy machine

    def runtest(self) -> None:
        """Run the cell; a cell that was emptied costs nothing."""
        if self.cell.source:
            super().runtest()

    def compare_outputs(
        self, test: list[NotebookNode], ref: list[NotebookNode], skip_compare: Any = None
    ) -> bool:
        """As nbval's, with the check's line in place of all that the cell printed and showed."""
        line = self.line()
        seen = [] if line is None else [stdout(line)]
        return bool(super().compare_outputs(seen, ref, skip_compare))

    def line(self) -> str | None:
        """The check's line: the last that begins with the exercise's name."""
        settings = self.cell.metadata.get("nbgrader", {})
        if not settings.get("grade"):
            return None
        mark: str = settings["grade_id"] + ": "
        text = "".join(
            str(out.text)
            for out in self.test_outputs or []
            if out.output_type == "stream" and out.name == "stdout"
        )
        for line in reversed(text.splitlines()):
            if line.startswith(mark):
                return line[:LONGEST]
            _, found, rest = line.rpartition(mark)
            if found:  # what the answer printed without an end of line stands before it
                return (mark + rest)[:LONGEST]
        return None

    def error(self) -> str | None:
        """The error that the cell raised."""
        for out in self.test_outputs or []:
            if out.output_type == "error":
                # Of a SyntaxError the line, not the file that the kernel made of the cell.
                told = re.sub(r" \([^ ()]+, line (\d+)\)$", r" (line \1)", str(out.evalue))
                return f"{out.ename}: {told}"[:LONGEST]
        return None


def _options(cell: IPyNbCell) -> dict[str, bool]:
    compared = cell.cell.execution_count is not None
    return {"check": compared, "skip": False, "check_exception": False}


def _settings(config: pytest.Config) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads((config.option.grafted / "settings.json").read_text())
    return settings


def _limits(config: pytest.Config) -> Limits:
    return Limits(**_settings(config)["limits"])
