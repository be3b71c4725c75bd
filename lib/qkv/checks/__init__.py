"""The exercises' checks: ``check("softmax", softmax)`` says in one line whether an answer is right.

Each exercise has a function that tries an answer, in the module of its chapter. It draws inputs
from a seed and looks at one thing at a time: shapes, then values, then what else must hold. The
first fault ends it, and is named with its likely cause.
"""

import importlib
from collections.abc import Callable
from typing import Any

from qkv.checks.exercise import EXERCISES, Exercise
from qkv.checks.faults import Wrong

__all__ = ["EXERCISES", "Exercise", "check", "exercises", "seed"]

# One for each chapter, in their order.
CHAPTERS = (
    "words",
    "query_key_value",
    "scaling",
    "masks",
    "cross_attention",
    "multi_head",
    "positions",
    "blocks",
    "transformer",
    "training",
    "gradients",
    "attention_backward",
    "byhand",
    "sums",
)

seed = 0  # decides which inputs are drawn


def check(name: str, answer: Callable[..., Any]) -> None:
    """Print one line: ``name: ok`` and numbers that the answer computed, or what is wrong with it.

    Errors:
        ValueError: no exercise has that name
    """
    known = exercises()
    if name not in known:
        named = ", ".join(map(repr, known))
        raise ValueError(f"there is no exercise {name!r}; the exercises are {named}")
    try:
        numbers = known[name].run(answer, seed)
    except Wrong as wrong:
        line = " ".join(str(wrong).split())  # one line, whatever is in it
    else:
        line = "  ".join(["ok", *numbers])
    print(f"{name}: {line}", flush=True)


def exercises() -> dict[str, Exercise]:
    """All exercises by name, in the order of the chapters."""
    for chapter in CHAPTERS:
        importlib.import_module(f"qkv.checks.{chapter}")
    return EXERCISES
