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

import torch
from torch import Tensor

from qkv import _require, sums
from qkv._files import write_whole
from qkv.sums import PAD, START, SYMBOLS, Sum
from qkv.vocabulary import Vocabulary

__all__ = ["Rows", "Task", "Vocabulary", "addition", "copy", "write_tsv"]


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

    `qkv.sums` draws them, in a way that no version of any library changes.

    With ``reverse`` each source is turned round as it stands, padding and all:
    "328+7_" becomes "_7+823". Targets stay as they are.

    Shapes:
        source: [n, digits of max_a + 1 + digits of max_b], 6 by default
        target: [n, 3]
    Errors:
        TypeError, ValueError: a size that is no whole number or out of range; more rows
            than there are pairs
    """
    return _task("addition", _draw(n_train, n_test, max_a, max_b, seed), n_train, reverse)


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
    drawn = _draw(n_train, n_test, max_a, max_b, seed)
    return _task("copy", [Sum(row.source, row.source) for row in drawn], n_train, reverse)


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


def _draw(n_train: int, n_test: int, max_a: int, max_b: int, seed: int) -> list[Sum]:
    """Test rows, then train rows."""
    _require.positive_int("n_train", n_train)
    _require.not_negative("n_test", n_test)
    n = n_train + n_test
    return sums.draw(n, max_a=max_a, max_b=max_b, seed=seed, name="n_train + n_test")


def _task(name: str, texts: list[Sum], n_train: int, reverse: bool) -> Task:
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
