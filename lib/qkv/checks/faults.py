"""What is wrong with an answer, said in one line: shapes, values, and the likely cause."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Cause = Mapping[str, Any]  # the cause in words: what an answer with that fault would give


class Wrong(Exception):
    """An answer is wrong; the message says what was seen, what was expected, and why, if known."""


def numbers(what: str, value: object) -> Numbers:
    """What an answer gave, as float64; refuse what holds no numbers."""
    if value is None:
        raise Wrong(f"{what} is None: is there a return at the end?")
    try:
        if isinstance(value, torch.Tensor):
            return value.detach().cpu().to(torch.float64).numpy()
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise Wrong(f"{what} is {kind(value)}, expected numbers") from None


def kind(value: object) -> str:
    """Of which type a value is, in words: "an int"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def has_shape(
    what: str,
    value: object,
    expected: Sequence[int],
    causes: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """Refuse another shape; a shape listed in ``causes`` is named with its cause."""
    seen = list(numbers(what, value).shape)
    if seen == list(expected):
        return
    for cause, shape in (causes or {}).items():
        if seen == list(shape):
            raise Wrong(f"{what} has shape {seen}, expected {list(expected)}: {cause}")
    raise Wrong(f"{what} has shape {seen}, expected {list(expected)}")


def equal(
    what: str, value: object, expected: Any, causes: Cause | None = None, *, tolerance: float = 1e-3
) -> None:
    """Refuse other numbers; those that a known fault would give are named with their cause.

    The tolerance is relative to the largest number expected. A value in ``causes`` may be a
    function without arguments, which is called only if the answer is wrong.
    """
    want = numbers(f"what is expected of {what}", expected)
    has_shape(what, value, want.shape)
    seen = numbers(what, value)
    if close(seen, want, tolerance):
        return
    for cause, fault in (causes or {}).items():
        other = numbers(cause, fault() if callable(fault) else fault)
        if other.shape == seen.shape and close(seen, other, tolerance):
            raise Wrong(cause)
    if not np.isfinite(seen).all():
        raise Wrong(f"{what} holds {'NaN' if np.isnan(seen).any() else 'infinity'}")
    gap = np.where(np.isfinite(want), abs(seen - want), 0)
    worst = np.unravel_index(gap.argmax(), gap.shape)
    place = f"[{', '.join(str(int(i)) for i in worst)}]" if worst else ""
    pair = float(seen[worst]), float(want[worst])
    digits = 0 if all(map(float.is_integer, pair)) else 3
    told = [f"{round(number, digits) + 0.0:.{digits}f}" for number in pair]  # -0 becomes 0
    raise Wrong(f"{what}{place} is {told[0]}, expected {told[1]}")


def close(seen: Numbers, want: Numbers, tolerance: float) -> bool:
    """Whether all numbers agree; infinities and NaN must stand at the same places."""
    size = max(1.0, float(abs(want[np.isfinite(want)]).max(initial=0)))
    return bool(np.allclose(seen, want, rtol=0, atol=tolerance * size, equal_nan=True))


@contextmanager
def likely(cause: str) -> Iterator[None]:
    """Add the likely cause to whatever is found wrong within."""
    try:
        yield
    except Wrong as wrong:
        raise Wrong(f"{wrong}: {cause}") from None


def holds(true: bool, message: str | Callable[[], str]) -> None:
    """Refuse with the message unless it is true."""
    if not true:
        raise Wrong(message() if callable(message) else message)
