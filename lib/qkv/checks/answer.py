"""Calling an answer so that it can do no harm to its own check, and telling what went wrong."""

import copy
import inspect
import linecache
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from textwrap import shorten
from types import FrameType
from typing import Any

import numpy as np
import torch

from qkv.checks.faults import Wrong, kind

OWN = ("qkv.checks", "qkv.checks.exercise")  # where the solutions are got at
LIBRARIES = ("torch", "numpy", "scipy", "qkv")  # where what may not be called comes from


class Answer:
    """An answer, to be called like the function it is.

    Each call gets copies of its inputs, in a known state of PyTorch and NumPy. What the answer
    raises, changes in its inputs, or calls though it should build it, ends the check.
    """

    def __init__(self, name: str, answer: Callable[..., Any], never: tuple[str, ...]) -> None:
        if not callable(answer):
            raise Wrong(f"{name} is {kind(answer)}, expected a function")
        self.name, self.answer, self.never = name, answer, frozenset(never)

    def __call__(self, *inputs: Any, **more: Any) -> Any:
        given, named = copy.deepcopy((inputs, more))
        with known_state(), forbidden(self.never):
            try:
                result = self.answer(*given, **named)
            except NotImplementedError as error:
                # PyTorch raises the same, with words, for what it cannot do.
                raise Wrong(
                    _told(error) if error.args else _unwritten(error, self.answer)
                ) from None
            except Wrong:
                raise
            except Exception as error:
                raise Wrong(_told(error)) from None
        for i, (before, after) in enumerate(zip(inputs, given, strict=True)):
            if not _same(before, after):
                what = f"its argument number {i + 1}{_called(self.answer, i)}"
                raise Wrong(f"it changes {what}: work on a copy, without += and [...] =")
        return result


@contextmanager
def known_state() -> Iterator[None]:
    """The defaults of PyTorch and NumPy while an answer runs, and afterwards what was before."""
    # An empty tensor says where tensors are made; get_default_device of PyTorch 2.5 cannot where
    # the default was set to None.
    dtype, device = torch.get_default_dtype(), torch.empty(0).device
    numpy_state = np.random.get_state()  # noqa: NPY002, the one that an answer may have used
    torch_state, python_state = torch.random.get_rng_state(), random.getstate()
    torch.set_default_dtype(torch.float32)
    if device.type != "cpu":
        torch.set_default_device("cpu")
    try:
        with np.errstate(all="ignore"), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)
        if torch.empty(0).device != device:
            torch.set_default_device(device)
        torch.random.set_rng_state(torch_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


@contextmanager
def forbidden(never: frozenset[str]) -> Iterator[None]:
    """Refuse an answer that calls what it should build, under whatever name it imported it."""
    before = sys.getprofile()
    if not (before is None or callable(before)):  # a profiler of C's, that could not be put back
        yield
        return
    called: list[str] = []

    def watch(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            if getattr(function, "__name__", "") in never:
                called.append(function.__name__)
        elif event == "call":
            name, module = frame.f_code.co_name, str(frame.f_globals.get("__name__", ""))
            if name in never and module.partition(".")[0] in LIBRARIES:
                called.append(name)
            elif module in OWN:
                called.append(f"{module}.{name}")

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)
        if called:
            raise Wrong(f"it calls {called[0]}, and that is what you are to build") from None


def _unwritten(error: NotImplementedError, answer: Callable[..., Any]) -> str:
    """Whose stub it was: the answer's own, or that of another function that it calls."""
    frame = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
    stub, code = frame.f_code.co_name, frame.f_code
    function = getattr(frame.f_globals.get(stub), "__code__", None) is code  # no method
    if function and code is not getattr(answer, "__code__", None):
        return f"not written yet: it calls {stub}, which is not written"
    return "not written yet: there still is a line raise NotImplementedError"


def _called(answer: Callable[..., Any], number: int) -> str:
    """The name of an argument, after a comma, where it has one."""
    with suppress(TypeError, ValueError):
        names = list(inspect.signature(answer).parameters.values())
        if number < len(names) and names[number].kind is not inspect.Parameter.VAR_POSITIONAL:
            return f", {names[number].name}"
    return ""


def _told(error: Exception) -> str:
    """What an answer raised, in its first sentence, and the line of its own where it did."""
    first = str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
    words = f"it stops with {type(error).__name__}"
    words += f": {shorten(first, 90, placeholder=' …')}" if first else ""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(f"/{library}/" in frame.filename for library in (*LIBRARIES, "site-packages"))
    ]
    if not own:
        return words
    line = linecache.getline(own[-1].filename, own[-1].lineno or 0).strip()
    return f"{words}; the line is {shorten(line, 50, placeholder=' …')!r}" if line else words


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, torch.Tensor):
        return before.shape == after.shape and bool(
            torch.equal(before.detach().nan_to_num(), after.detach().nan_to_num())
        )
    if isinstance(before, np.ndarray):
        return before.shape == after.shape and np.array_equal(
            np.nan_to_num(before), np.nan_to_num(after)
        )
    if isinstance(before, list | tuple):
        return len(before) == len(after) and all(map(_same, before, after))
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(_same(before[k], after[k]) for k in before)
    if isinstance(before, set | int | float | str | bool | None):
        return bool(before == after)
    return True  # a model or a function: what it does is the answer's business
