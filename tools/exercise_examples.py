"""The examples in the exercises' texts, held true: what stands below `>>>` is what it prints."""

import contextlib
import doctest
import io
import warnings
from typing import Any

import numpy as np
import torch

from exercise_form import examples, is_check
from notebook_form import SET_UP_ID
from notebook_rules.page import Found, Page


def examples_hold(page: Page) -> Found:
    """Run the code of all answers, here and without a kernel, then each text's examples."""
    names: dict[str, Any] = {"__name__": "examples"}
    torch.set_printoptions(profile="default")  # what the notebook before may have set
    torch.set_default_dtype(torch.float32)
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        with (
            contextlib.chdir(page.path.resolve().parent),
            warnings.catch_warnings(),
            np.printoptions(),
        ):
            warnings.simplefilter("ignore")
            for name, cell in page.code:
                if name == SET_UP_ID or is_check(cell):
                    continue
                try:
                    exec(compile(cell.source, f"{page.path} [{name}]", "exec"), names)
                except Exception as error:
                    yield name, f"stops with {type(error).__name__}: {error}: run the notebook"
                    return
            found = [
                (name, fault)
                for name, cell in page.cells
                if cell.cell_type == "markdown"
                for body in examples(cell.source)
                for fault in _faults(body, names)
            ]
    yield from found


def _faults(body: str, names: dict[str, Any]) -> list[str]:
    faults: list[str] = []

    class Runner(doctest.DocTestRunner):
        def report_failure(self, out: Any, test: Any, example: Any, got: str) -> None:
            faults.append(
                f"the example  {example.source.strip()}  prints {got.strip()!r}, the text says"
                f" {example.want.strip()!r}: mend the text"
            )

        def report_unexpected_exception(
            self, out: Any, test: Any, example: Any, exc_info: Any
        ) -> None:
            kind, error, _ = exc_info
            faults.append(f"the example  {example.source.strip()}  stops: {kind.__name__}: {error}")

    test = doctest.DocTestParser().get_doctest(body, dict(names), "example", None, 0)
    Runner(verbose=False).run(test, out=lambda _: None)
    return faults
