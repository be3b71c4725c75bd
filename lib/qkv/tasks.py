"""Tasks small enough to train in minutes: copying a sum, and working it out.

A row of `addition` reads "328+7_" and asks for "335"; the same row of `copy` asks for
"328+7_" again. Every row has the same width: "_" pads it on the right, ">" starts the
decoder. The rows depend on the arguments alone, on no version of any library, so that
``python -m qkv.tasks data/addition.tsv`` writes the same bytes everywhere.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from qkv import _require
from qkv._files import write_whole
from qkv.vocabulary import Vocabulary

__all__ = ["Rows", "Task", "Vocabulary", "addition", "copy", "write_tsv"]

LARGEST_SUM = 999
SYMBOLS = "0123456789+_>"
PAD = SYMBOLS.index("_")  # 11
START = SYMBOLS.index(">")  # 12


class Rows(NamedTuple):
    """What is asked and what is to be answered, row by row.

    Shapes:
        source: int64 [n, n_source]   target: int64 [n, n_target]
    """

    source: Tensor
    target: Tensor

    def to(self, device: torch.device | str) -> "Rows":
        """The same rows on another device."""
        return Rows(self.source.to(device), self.target.to(device))


def check_rows(name: str, rows: Rows, *, may_be_none: bool = False) -> None:
    """Refuse what is no Rows, sides that are no int64 [n, length] or not equally many."""
    _require.instance(name, rows, Rows, "Rows(source, target), such as task.test")
    for side, ids in zip(Rows._fields, rows, strict=True):
        _require.tensor(f"{name}.{side}", ids)
        if not may_be_none or ids.dim() != 2 or len(ids):
            _require.id_rows(f"{name}.{side}", ids)
    if len(rows.source) != len(rows.target):
        raise ValueError(
            f"{name} has {len(rows.source)} sources and {len(rows.target)} targets; "
            f"each source needs its own target"
        )
    _require.same_device(f"{name}.target", rows.target, rows.source.device)


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """Rows to learn from, other rows to be tested on, and how to read them.

    ``start`` is the id that a decoder is given before its first token, ``pad`` the id
    that fills a row up. A target's first padding is also how a number says that it has
    ended: "36_" is right where "365" is wrong.

    Errors:
        TypeError, ValueError: vocabulary is no Vocabulary, rows that are no int64
            [n, length], sources and targets that are not equally many, ids outside the
            vocabulary
    """

    name: str
    train: Rows
    test: Rows
    vocabulary: Vocabulary
    start: int
    pad: int

    def __post_init__(self) -> None:
        _require.instance("vocabulary", self.vocabulary, Vocabulary, "a Vocabulary")
        for name, value in (("start", self.start), ("pad", self.pad)):
            _require.one_id(name, value, len(self.vocabulary))
        for split, rows in (("train", self.train), ("test", self.test)):
            check_rows(split, rows, may_be_none=split == "test")
            for side, ids in zip(Rows._fields, rows, strict=True):
                if len(ids):
                    _require.ids(f"{split}.{side}", ids, len(self.vocabulary), ids.device)

    def __repr__(self) -> str:
        source, target = self.train
        return (
            f"Task({self.name!r}: {len(source)} rows to train, {len(self.test.source)} to test, "
            f"{source.shape[1]} ids to {target.shape[1]})"
        )


def addition(
    *,
    n_train: int = 5000,
    n_test: int = 500,
    max_a: int = 999,
    max_b: int = 99,
    reverse: bool = False,
    seed: int = 0,
) -> Task:
    """Sums a + b: from "328+7_" to "335", from "3+33__" to "36_".

    Rows are drawn without replacement from all pairs with a <= max_a, b <= max_b and
    a + b <= 999 (95,050 pairs by default), so no row is in both train and test. The
    test rows are drawn first: they stay the same when only n_train changes. Digits are
    ids 0 to 9, "+" is 10, "_" is 11, ">" (start) is 12.

    The draw sorts the raw 64-bit integers of NumPy's PCG64, the one stream that NumPy
    promises never to change; the orders that ``torch.randperm`` and NumPy's own
    ``permutation`` give may change with their versions.

    With ``reverse`` each source is turned round as it stands, padding and all:
    "328+7_" becomes "_7+823". Targets stay as they are.

    Shapes:
        source: [n, digits of max_a + 1 + digits of max_b], 6 by default
        target: [n, 3]
    Errors:
        TypeError, ValueError: a size that is no whole number or out of range; more rows
            than there are pairs
    """
    texts = [
        (source, str(a + b).ljust(len(str(LARGEST_SUM)), SYMBOLS[PAD]))
        for source, a, b in _draw(n_train, n_test, max_a, max_b, seed)
    ]
    return _task("addition", texts, n_train, reverse)


def copy(
    *,
    n_train: int = 5000,
    n_test: int = 500,
    max_a: int = 999,
    max_b: int = 99,
    reverse: bool = False,
    seed: int = 0,
) -> Task:
    """The sources of `addition`, to be written again: from "328+7_" to "328+7_".

    Arguments, rows and errors are those of `addition`. With ``reverse`` the source is
    turned round and the target is not: from "_7+823" to "328+7_".

    Shapes:
        source, target: [n, digits of max_a + 1 + digits of max_b], 6 by default
    """
    texts = [(source, source) for source, _, _ in _draw(n_train, n_test, max_a, max_b, seed)]
    return _task("copy", texts, n_train, reverse)


def write_tsv(task: Task, path: str | os.PathLike[str]) -> None:
    """Write a task as text: split, source and target, one row a line, train rows first.

    Padding is kept and shown as "_", so each line is exactly what a model is given. The
    file appears whole or not at all.

    Errors:
        TypeError: task is no Task
        OSError: the folder is missing or may not be written to
    """
    _require.instance("task", task, Task, "a Task, such as addition()")
    lines = ["split\tsource\ttarget"]
    for split, rows in (("train", task.train), ("test", task.test)):
        for source, target in zip(*rows, strict=True):
            text = task.vocabulary.text
            lines.append(f"{split}\t{text(source)}\t{text(target)}")
    write_whole(path, "\n".join(lines) + "\n")


def _draw(
    n_train: int, n_test: int, max_a: int, max_b: int, seed: int
) -> list[tuple[str, int, int]]:
    """Test rows, then train rows: each as (padded source, a, b)."""
    _require.positive_int("n_train", n_train)
    for name, value, largest in (
        ("n_test", n_test, None),
        ("max_a", max_a, LARGEST_SUM),
        ("max_b", max_b, LARGEST_SUM),
        ("seed", seed, None),
    ):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an int, got {type(value).__name__}: {value!r}")
        if value < 0 or (largest is not None and value > largest):
            span = "at least 0" if largest is None else f"in 0 … {largest}"
            raise ValueError(f"{name} must be {span}, got {value}")
    pairs = [(a, b) for a in range(max_a + 1) for b in range(min(max_b, LARGEST_SUM - a) + 1)]
    n = n_train + n_test
    if n > len(pairs):
        raise ValueError(
            f"n_train + n_test is {n}, but there are only {len(pairs)} pairs with a <= {max_a}, "
            f"b <= {max_b} and a + b <= {LARGEST_SUM}; ask for fewer rows, or raise max_a or max_b"
        )
    order = np.random.PCG64(seed).random_raw(len(pairs)).argsort(kind="stable")
    width = len(str(max_a)) + 1 + len(str(max_b))
    drawn = (pairs[i] for i in order[:n])
    return [(f"{a}+{b}".ljust(width, SYMBOLS[PAD]), a, b) for a, b in drawn]


def _task(name: str, texts: list[tuple[str, str]], n_train: int, reverse: bool) -> Task:
    """Texts to a task; the last n_train of them are to train on."""
    vocabulary = Vocabulary(SYMBOLS)
    sources, targets = zip(*texts, strict=True)
    source, target = (
        vocabulary.ids("".join(rows)).view(len(rows), -1) for rows in (sources, targets)
    )
    if reverse:
        source = source.flip(1)
    n_test = len(texts) - n_train
    train = Rows(source[n_test:], target[n_test:])
    test = Rows(source[:n_test], target[:n_test])
    return Task(name, train, test, vocabulary, START, PAD)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the default addition task to the path on the command line."""
    parser = argparse.ArgumentParser(prog="python -m qkv.tasks", description=main.__doc__)
    parser.add_argument("path", help="where to, for example data/addition.tsv")
    path = parser.parse_args(arguments).path
    task = addition()
    write_tsv(task, path)
    print(f"{path}: {task}")


if __name__ == "__main__":
    main()
