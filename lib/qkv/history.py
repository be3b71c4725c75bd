"""What a training run looked like: one record for each epoch that was measured."""

import csv
import io
import os
from pathlib import Path
from typing import NamedTuple

from qkv import _require
from qkv._files import write_whole
from qkv.metrics import accuracy
from qkv.tasks import Task
from qkv.teacher_forcing import free_running, teacher_forced
from qkv.transformer import Transformer


class Record(NamedTuple):
    """One epoch: its mean training loss, and eight accuracies measured at its end.

    ``teacher`` is teacher-forced: the model is given the right tokens before each
    position. ``free`` is free-running: it is given its own.
    """

    epoch: int
    loss: float
    train_teacher_token: float
    train_teacher_sequence: float
    train_free_token: float
    train_free_sequence: float
    test_teacher_token: float
    test_teacher_sequence: float
    test_free_token: float
    test_free_sequence: float


class History(list[Record]):
    """A list of records, oldest first; ``history[-1].test_free_sequence`` is the last result."""

    def column(self, name: str) -> list[float]:
        """One quantity over all records, ready to be drawn.

        Errors:
            ValueError: there is no such quantity; the message lists them
        """
        if name not in Record._fields:
            raise ValueError(f"name must be one of {', '.join(Record._fields)}, got {name!r}")
        return [getattr(record, name) for record in self]

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write all records, every digit kept; the file appears whole or not at all.

        Errors:
            OSError: the folder is missing or may not be written to
        """
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(Record._fields)
        writer.writerows(self)
        write_whole(path, lines.getvalue())

    @classmethod
    def read_csv(cls, path: str | os.PathLike[str]) -> "History":
        """Read what `write_csv` wrote.

        Errors:
            OSError: there is no such file
            ValueError: another header, or a line that is no record; the message says which
        """
        lines = list(csv.reader(Path(path).read_text(encoding="utf-8").splitlines()))
        header = ",".join(Record._fields)
        if not lines or lines[0] != list(Record._fields):
            found = ",".join(lines[0]) if lines else "an empty file"
            raise ValueError(f"{path} is no history: expected the header {header}, got {found}")
        history = cls()
        for number, line in enumerate(lines[1:], start=2):
            try:
                epoch, *values = line
                history.append(Record(int(epoch), *map(float, values)))
            except (TypeError, ValueError):
                raise ValueError(
                    f"{path}, line {number}: expected {len(Record._fields)} numbers, an epoch "
                    f"first, got {','.join(line)!r}"
                ) from None
        return history


def measure(model: Transformer, task: Task, pad: int | None = None) -> dict[str, float]:
    """The eight accuracies of a `Record`: train and test, teacher-forced and free-running.

    Errors:
        as `teacher_forced`, `free_running` and `accuracy`; TypeError: task is no Task
    """
    _require.instance("model", model, Transformer, "a Transformer")
    _require.instance("task", task, Task, "a Task, such as addition()")
    _require.whole_or_none("pad", pad)
    measured = {}
    for split, rows in (("train", task.train), ("test", task.test)):
        for way, answer in (("teacher", teacher_forced), ("free", free_running)):
            scores = accuracy(answer(model, rows, start=task.start), rows.target, pad)
            measured[f"{split}_{way}_token"] = scores.per_token
            measured[f"{split}_{way}_sequence"] = scores.per_sequence
    return measured
