"""Chapter 03: masks, two ways to write them, what goes wrong, and who means what by True."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from qkv.figures import grid
from qkv.figures.grid import FAINT, OUTPUT, X, lines, masked, sizes, tile, tokens
from qkv.figures.picture import (
    INK,
    QUIET,
    Box,
    Picture,
    arrow,
    new,
    outline,
    sheet,
    text,
)

WORDS = ("The", "cat", "sat", "on")
PUBLISHED = (
    (1.00, 0.00, 0.00, 0.00),
    (0.30, 0.70, 0.00, 0.00),
    (0.10, 0.60, 0.30, 0.00),
    (0.05, 0.20, 0.45, 0.30),
)


def causal(words: Sequence[str] = WORDS, weights: ArrayLike = PUBLISHED) -> Picture:
    """Each token attends to itself and to those before it; what comes later is masked.

    Shapes: n words; weights [n, n], made up.

    >>> causal()
    """
    n, table = len(words), grid.array(weights)
    if table.shape != (n, n):
        raise ValueError(f"weights have shape {table.shape}, expected {(n, n)} for {n} words")
    figure = new(7, 4)
    axes = sheet(figure)
    may = np.tri(n, dtype=bool)
    box = grid.weights(axes, 2.1, 0.6, table, cell=0.8, numbers=".2f", mask=may)
    tokens(axes, box, rows=words, columns=words)
    return figure


def added_or_filled() -> Picture:
    """Two ways to one result: add M, or fill where the mask is False; the softmax gives zeros.

    Shapes: n = 3 tokens.

    >>> added_or_filled()
    """
    raw = np.array([[2, 1, 3], [0, 2, 1], [1, 0, 2]])
    may = np.tri(3, dtype=bool)
    shares = np.where(may, np.exp(raw), 0)
    shares = shares / shares.sum(axis=1, keepdims=True)
    cell, gap, equals = 0.42, 0.46, 0.34
    figure = new(7, 4.3)
    axes = sheet(figure)
    added = np.where(may, "0", "−∞").tolist()
    truth = np.where(may, "T", "F").tolist()
    for y, operator, name, mask in ((0.55, "+", "$M$", added), (2.75, "fill", "mask", truth)):
        scores = grid.scores(axes, 0.08, y, raw, cell=cell, numbers=".0f")
        second = _entries(axes, scores.right + gap, y, mask, cell)
        result = grid.scores(
            axes, second.right + equals, y, raw, cell=cell, numbers=".0f", mask=may, reach=3
        )
        sizes(axes, second, top=name)
        text(axes, scores.right + gap / 2, y + scores.height / 2, operator)
        text(axes, second.right + equals / 2, y + scores.height / 2, "=")
        if name == "$M$":
            sizes(axes, scores, top="scores")
            sizes(axes, result, top="masked")
            weights = grid.weights(
                axes, result.right + 1.02, y, shares, cell=cell, numbers=".1f", mask=may
            )
            sizes(axes, weights, top="weights")
            arrow(axes, result.east, weights.west)
            text(axes, result.right + 0.51, result.centre[1] - 0.12, "softmax", down="bottom")
    text(axes, result.centre[0], result.y - 0.45, "=", size=26, angle=90)
    return figure


def _entries(axes: Axes, x: float, y: float, entries: Sequence[Sequence[str]], cell: float) -> Box:
    # A grid of words on white: a mask as it is written, not what it hides.
    rows, columns = len(entries), len(entries[0])
    box = Box(x, y, columns * cell, rows * cell)
    lines(axes, box, rows, columns, frame=QUIET, inner=FAINT)
    for i, j in np.ndindex(rows, columns):
        text(axes, x + (j + 0.5) * cell, y + (i + 0.5) * cell, entries[i][j])
    return box


def gallery() -> Picture:
    """No mask, causal, padding, both; a row that may attend to nothing is NaN or, with us, 0.

    Shapes: n = 6 tokens, of which the first is padding.

    >>> gallery()
    """
    n, cell = 6, 0.26
    figure = new(7, 4.4)
    axes = sheet(figure)
    everything, past = np.ones((n, n), dtype=bool), np.tri(n, dtype=bool)
    words = everything & (np.arange(n) > 0)
    for column, (name, may) in enumerate(
        (("none", everything), ("causal", past), ("padding", words), ("both", past & words))
    ):
        box = Box(0.14 + column * (n * cell + 0.16), 0.5, n * cell, n * cell)
        _may(axes, box, may)
        sizes(axes, box, top=name)
    row = Box(box.x, box.y, box.width, cell)
    outline(axes, row, width=4)
    for y, name, entry in ((2.6, "naive code", "NaN"), (3.4, "ours", "0")):
        strip = Box(2.25, y, 4.6, 0.5)
        lines(axes, strip, 1, n, frame=INK, inner=FAINT)
        outline(axes, strip, width=4)
        text(axes, 0.14, strip.centre[1], name, across="left")
        for j in range(n):
            text(axes, strip.x + (j + 0.5) * strip.width / n, strip.centre[1], entry)
    return figure


def _may(axes: Axes, box: Box, may: NDArray[np.bool_]) -> None:
    rows, columns = may.shape
    cell = box.width / columns
    for i, j in np.argwhere(~may):
        masked(axes, box.x + j * cell, box.y + i * cell, cell=cell)
    lines(axes, box, rows, columns, frame=QUIET, inner=FAINT)


def leak_test(
    words: Sequence[str], changed: Sequence[str], differences: Mapping[str, ArrayLike]
) -> Picture:
    """Change the last words: with a causal mask nothing moves before them; without one, all does.

    Shapes: n words each, of which the last differ; for each model's name the outputs' largest
    difference at each position [n].

    >>> leak_test(
    ...     ["The", "cat", "sat", "on", "the", "mat"],
    ...     ["The", "cat", "sat", "on", "his", "hat"],
    ...     {"causal": [0, 0, 0, 0, 0.7, 0.9], "no mask": [0.3, 0.2, 0.3, 0.4, 0.9, 1.0]},
    ... )
    """
    outputs = {name: grid.array(values) for name, values in differences.items()}
    grid.alike(words=len(words), changed=len(changed))
    for name, moved in outputs.items():
        if moved.shape != (len(words),):
            raise ValueError(
                f"differences {name!r} have shape {moved.shape}, expected one for each of"
                f" {len(words)} words"
            )
    figure = new(7, 1.8 + 1.3 * len(differences))
    axes = sheet(figure)
    left, pitch, height = 1.45, 5.4 / len(words), 0.5
    for y, name, strip in ((0.2, "run 1", words), (0.8, "run 2", changed)):
        text(axes, 0.15, y + height / 2, name, across="left")
        for j, word in enumerate(strip):
            place = Box(left + j * pitch, y, pitch - 0.08, height)
            same = words[j] == changed[j]
            tile(axes, place, X, words=word, strength=0.4 if same else 1, framed=True)
            if not same:
                outline(axes, place, width=4)
    text(axes, left, 1.65, "outputs differ by", across="left")
    largest = max(float(moved.max()) for moved in outputs.values()) or 1.0
    for row, (name, moved) in enumerate(outputs.items()):
        foot = 2.9 + 1.3 * row
        text(axes, 0.15, foot - 0.2, name, across="left")
        axes.plot([left, left + 5.4], [foot, foot], color=INK, linewidth=2)
        for j, value in enumerate(moved):
            tall = 0.95 * value / largest
            bar = Box(left + j * pitch, foot - tall, pitch - 0.08, tall)
            if value:
                tile(axes, bar, OUTPUT, framed=True)
            else:
                text(axes, bar.centre[0], foot - 0.05, "0", down="bottom")
    return figure


def conventions() -> Picture:
    """What True and False mean in a Boolean mask: ours and SDPA's against nn.MultiheadAttention's.

    >>> conventions()
    """
    figure = new(7, 4.6)
    axes = sheet(figure)
    left, cell = (3.6, 5.4), 0.5
    for x, name in zip(left, ("True", "False"), strict=True):
        text(axes, x, 0.35, name, across="left", bold=True)
    for row, (name, true_attends) in enumerate(
        (
            ("qkv.attention", True),
            ("F.scaled_dot_product_\n    attention", True),
            ("nn.MultiheadAttention", False),
        )
    ):
        y = 0.75 + 1.3 * row
        axes.plot([0.15, 6.85], [y, y], color=FAINT, linewidth=1)
        text(axes, 0.15, y + 0.65, name, across="left")
        for x, attends in zip(left, (true_attends, not true_attends), strict=True):
            box = Box(x, y + 0.15, cell, cell)
            _may(axes, box, np.array([[attends]]))
            text(
                axes,
                x,
                box.bottom + 0.12,
                "attend" if attends else "ignore",
                across="left",
                down="top",
            )
    return figure
