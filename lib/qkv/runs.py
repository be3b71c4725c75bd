"""The files of a recorded run.

The record has a line a measurement, seed and epoch first, then what was measured. Lines in
front that begin with "# " are notes: settings and versions. The weights stand beside it, as
NumPy's .npz, in which each array is named by its seed and its parameter.
"""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from qkv.byhand.layer import Array

Row = tuple[float, ...]  # the epoch first


def text(
    runs: Mapping[int, Iterable[Iterable[float]]], columns: Sequence[str], notes: Sequence[str] = ()
) -> str:
    """Each seed's rows as comma-separated text, every digit kept."""
    lines = io.StringIO()
    lines.writelines(f"# {note}\n" for note in notes)
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(("seed", *columns))
    writer.writerows((seed, *row) for seed in sorted(runs) for row in runs[seed])
    return lines.getvalue()


def notes(text: str) -> tuple[str, ...]:
    """The notes in front of the header."""
    lines = text.splitlines()
    count = next((i for i, line in enumerate(lines) if not line.startswith("# ")), len(lines))
    return tuple(line[2:] for line in lines[:count])


def parse(written: str, columns: Sequence[str], where: str) -> dict[int, list[Row]]:
    """Each seed's rows, as `text` wrote them.

    Errors:
        ValueError: another header, or a line that is no row; the message says which
    """
    above = len(notes(written))
    expected = ["seed", *columns]
    try:
        header, *lines = list(csv.reader(written.splitlines()[above:])) or [[]]
    except csv.Error as error:
        raise ValueError(f"{where} is no record: {error}; move it away") from None
    if header != expected:
        raise ValueError(
            f"{where}, line {above + 1}: expected the header {','.join(expected)}, "
            f"got {','.join(header)!r}"
        )
    runs: dict[int, list[Row]] = {}
    for number, line in enumerate(lines, start=above + 2):
        try:
            seed, epoch, *values = line
            row = (int(epoch), *map(float, values))
            rows = runs.setdefault(int(seed), [])
            if len(row) != len(columns) or (rows and rows[-1][0] >= row[0]):
                raise ValueError
            if not all(math.isfinite(value) and value >= 0 for value in row):
                raise ValueError
        except ValueError:
            raise ValueError(
                f"{where}, line {number}: expected {len(expected)} finite numbers, a seed and a "
                f"later epoch than its last first, got {','.join(line)!r}"
            ) from None
        rows.append(row)
    return runs


def pack(weights: Mapping[int, Mapping[str, Array]]) -> bytes:
    """All seeds' weights as the bytes of an .npz file."""
    packed = io.BytesIO()
    named = {f"{seed}.{k}": v for seed, state in weights.items() for k, v in state.items()}
    np.savez(packed, **named)  # type: ignore[arg-type]
    return packed.getvalue()


def unpack(packed: bytes) -> dict[int, dict[str, Array]]:
    """Each seed's weights, as `pack` wrote them.

    Errors:
        ValueError, zipfile.BadZipFile: these are no such bytes
    """
    weights: dict[int, dict[str, Array]] = {}
    with np.load(io.BytesIO(packed)) as named:
        for key in named:
            seed, name = key.split(".", 1)
            weights.setdefault(int(seed), {})[name] = named[key]
    return weights
