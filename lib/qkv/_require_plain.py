"""What functions ask of plain numbers and options; nothing here needs torch."""

import math
from collections.abc import Collection
from numbers import Integral, Real

import numpy as np


def whole(name: str, value: object) -> int:
    """Refuse anything but a whole number, Python's or NumPy's."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}: {value!r}")
    return int(value)


def whole_or_none(name: str, value: object) -> None:
    """Refuse anything but a whole number or None."""
    if value is not None:
        whole(name, value)


def not_negative(name: str, value: object) -> None:
    """Refuse anything but a whole number of at least 0."""
    if whole(name, value) < 0:
        raise ValueError(f"{name} must be at least 0, got {value}")


def positive_int(name: str, value: object) -> None:
    """Refuse anything but a whole number of at least 1."""
    if whole(name, value) < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def number(name: str, value: object) -> float:
    """Refuse anything but a number, Python's or NumPy's."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}: {value!r}")
    return float(value)


def switch(name: str, value: object) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {type(value).__name__}: {value!r}")


def one_of(name: str, value: object, options: Collection[object]) -> None:
    """Refuse a value that is not among the options."""
    if value not in options:
        named = ", ".join(map(repr, options))
        raise ValueError(f"{name} must be one of {named}, got {value!r}")


def instance(name: str, value: object, kind: type, what: str) -> None:
    """Refuse what is not of this kind; ``what`` is the kind in words, with its article."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {what}, got {type(value).__name__}")


def one_id(name: str, value: object, vocab: int) -> None:
    """Refuse anything but one id of the vocabulary, as an int."""
    if not 0 <= whole(name, value) < vocab:
        raise ValueError(f"{name} is {value}, outside the vocabulary 0 … {vocab - 1}")


def above_0(name: str, value: object) -> float:
    """Refuse anything but a finite number above 0."""
    if not 0 < number(name, value) < math.inf:
        raise ValueError(f"{name} must be above 0 and finite, got {value}")
    return float(number(name, value))


def head_widths(
    d_model: int, n_heads: int, d_context: int | None, d_k: int | None, d_v: int | None
) -> tuple[int, int, int]:
    """d_context, d_k and d_v of multi-head attention, those left out by their defaults."""
    positive_int("d_model", d_model)
    positive_int("n_heads", n_heads)
    if (d_k is None or d_v is None) and d_model % n_heads:
        raise ValueError(
            f"d_model = {d_model} is not divisible by n_heads = {n_heads}; "
            f"change one of them, or give d_k and d_v (per head) yourself"
        )
    d_context = d_model if d_context is None else d_context
    d_k = d_model // n_heads if d_k is None else d_k
    d_v = d_model // n_heads if d_v is None else d_v
    for name, size in (("d_context", d_context), ("d_k", d_k), ("d_v", d_v)):
        positive_int(name, size)
    return d_context, d_k, d_v
