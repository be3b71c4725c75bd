"""Chapter 01: the library, the pipeline, the row of "it", one position, and two ways to look up."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import ArrayLike, NDArray

from qkv.figures import grid
from qkv.figures.grid import FAINT, OUTPUT, WEIGHTS, K, Q, V, X, lines, matrix, sizes, tile, tokens
from qkv.figures.picture import (
    INK,
    LINE,
    QUIET,
    Box,
    Picture,
    Point,
    arrow,
    new,
    outline,
    sheet,
    text,
)

# Four tokens' scaled scores, made up so that each row leans another way.
EXAMPLE_SCORES = (
    (3.0, 0.4, -0.9, -1.6),
    (1.2, 2.6, -1.3, 0.3),
    (-1.0, 2.8, 1.6, -0.4),
    (-2.0, 0.3, 1.2, 3.4),
)


def library(query: str, labels: Sequence[str], weights: ArrayLike) -> Picture:
    """Five books: the query meets their labels, and what is read is a blend of their pages.

    Shapes: one label and one weight a book.

    >>> library("cats", ["kittens", "lions", "dogs", "milk", "maps"], [0.6, 0.2, 0.1, 0.08, 0.02])
    """
    share = grid.array(weights)
    grid.alike(labels=len(labels), weights=len(share))
    grid.at_most(5, books=len(labels))
    figure = new(7, 4.9)
    axes = sheet(figure)
    width, pitch, left, foot = 0.58, 0.7, 1.75, 3.2
    card = Box(0.25, 1.02, 1.05, 0.6)
    tile(axes, card, Q, words=query, framed=True)
    blend = Box(5.7, 3.4, 1.1, 1.3)
    tile(axes, blend, OUTPUT, strength=0.3, framed=True)
    for j, weight in enumerate(share):
        x = left + j * pitch
        spine = Box(x, 0.65, width, 1.4)
        tile(axes, spine, K, words=labels[j], angle=90, framed=True)
        for y in (spine.y + 0.1, spine.bottom - 0.1):
            axes.plot([x, spine.right], [y, y], color=K.colour, linewidth=LINE)
        bar = Box(x, foot - 0.95 * weight, width, 0.95 * weight)
        tile(axes, bar, WEIGHTS)
        text(axes, x + width / 2, bar.y - 0.05, f"{weight:.2f}", down="bottom")
        page = Box(x, 3.65, width, 0.8)
        outline(axes, page, colour=V.colour)
        _content(axes, page.centre, j, float(weight), 24)
        _content(axes, blend.centre, j, float(weight), 48)
    arrow(axes, card.east, (left, card.east[1]), colour=Q.colour)
    arrow(axes, page.east, blend.west)
    text(axes, card.centre[0], 0.42, "query")
    text(axes, spine.x - 1.5 * pitch, 0.42, "keys")
    text(axes, left - 0.2, foot, "weights", across="right", down="bottom")
    text(axes, left - 0.2, page.centre[1], "values", across="right")
    text(axes, blend.centre[0], blend.y - 0.1, "output", down="bottom")
    return figure


def _content(axes: Axes, centre: Point, number: int, strength: float, size: float) -> None:
    # What is written on a page: a shape of its own, as strong as its weight.
    shape = "os^D*"[number]
    axes.plot(*centre, marker=shape, markersize=size, color=V.colour, alpha=strength, linewidth=0)


def pipeline() -> Picture:
    """From X to the output: three projections, one comparison, one blend, all drawn to size.

    Shapes: n = 4 tokens, d_model = 8, d_k = 3, d_v = 2.

    >>> pipeline()
    """
    cell, gap, line = 0.35, 0.16, 3.9  # `line` is the top of the row in which products lie
    figure = new(7, 6.6)
    axes = sheet(figure)
    scaled = np.asarray(EXAMPLE_SCORES)

    x = matrix(axes, 0.5, 0.55, rows=4, columns=8, role=X, name="$X$", cell=cell)
    q = matrix(axes, 0.5, line, rows=4, columns=3, role=Q, name="$Q$", cell=cell)
    match = grid.scores(axes, q.right + gap, line, np.sqrt(3) * scaled, cell=cell)
    above = line - gap
    k = matrix(axes, match.x, above - 3 * cell, rows=3, columns=4, role=K, name="$K^T$", cell=cell)
    a = grid.weights(axes, match.right + 1.25, line, _softmax(scaled), cell=cell)
    out = matrix(axes, a.right + gap, line, rows=4, columns=2, role=OUTPUT, cell=cell)
    v = matrix(axes, out.x, above - 4 * cell, rows=4, columns=2, role=V, name="$V$", cell=cell)

    arrow(axes, (q.north[0], x.bottom), q.north, colour=Q.colour)
    arrow(axes, (k.north[0], x.bottom), k.north, colour=K.colour)
    arrow(axes, x.east, v.north, colour=V.colour, corner=True)
    text(axes, q.north[0] - 0.1, 2.28, "$W_Q$", size=20, across="right")
    text(axes, k.north[0] + 0.1, 2.28, "$W_K$", size=20, across="left")
    text(axes, 4.9, x.east[1] - 0.3, "$W_V$", size=20)
    arrow(axes, match.east, a.west)
    middle = (match.right + a.x) / 2
    text(axes, middle, match.centre[1] - 0.12, r"$\div\sqrt{d_k}$", down="bottom")
    text(axes, middle, match.centre[1] + 0.12, "softmax", down="top")

    sizes(axes, x, left="$n$", top=r"$d_{\mathrm{model}}$")
    sizes(axes, q, left="$n$", bottom="$d_k$")
    sizes(axes, k, left="$d_k$")
    sizes(axes, match, bottom="$n$")
    sizes(axes, a, bottom="$n$")
    sizes(axes, out, bottom="$d_v$")
    sizes(axes, v, right="$n$")
    for box, name in ((match, "$QK^T$"), (a, "weights $A$"), (out, "output")):
        text(axes, box.centre[0], 5.88, name, down="baseline")
    stages = (("ask", q.centre[0]), ("match", match.centre[0]), ("blend", (a.x + out.right) / 2))
    for word, middle in stages:
        text(axes, middle, 6.38, word, size=24, bold=True, down="baseline")
    return figure


def _softmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
    raised = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def row(words: Sequence[str], weights: ArrayLike, asking: str = "it") -> Picture:
    """One token's row of A: a bar over each word, and arcs from the word that asks.

    Shapes: one weight a word; `asking` is one of the words.

    >>> words = "The cat sat because it was tired".split()
    >>> row(words, [0.03, 0.62, 0.08, 0.05, 0.14, 0.03, 0.05])
    """
    share = grid.array(weights)
    grid.alike(words=len(words), weights=len(share))
    figure = new(7, 4.6)
    axes = sheet(figure)
    pitch, width, foot = 6.6 / len(words), 0.62, 2.45
    middles = [0.2 + (j + 0.5) * pitch for j in range(len(words))]
    start = middles[list(words).index(asking)]
    for word, middle, weight in zip(words, middles, share, strict=True):
        bar = Box(middle - width / 2, foot - 2.9 * weight, width, 2.9 * weight)
        tile(axes, bar, WEIGHTS)
        text(axes, middle, bar.y - 0.06, f"{weight:.2f}", down="bottom")
        colour, bold = (Q.colour, True) if word == asking else (INK, False)
        text(axes, middle, foot + 0.32, word, colour=colour, bold=bold, down="baseline")
        if word != asking:
            _arc(axes, start, middle, foot + 0.62, float(weight))
    axes.plot([0.2, 6.8], [foot, foot], color=QUIET, linewidth=1)
    return figure


def _arc(axes: Axes, start: float, end: float, y: float, weight: float) -> None:
    lowest = (start + end) / 2, y + 0.75 * abs(end - start)
    bow = Path([(start, y), lowest, (end, y)], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
    arc = PathPatch(bow, fill=False, edgecolor=WEIGHTS.colour, linewidth=24 * weight)
    arc.set_capstyle("round")
    axes.add_patch(arc)


def heat_map(weights: ArrayLike, rows: Sequence[str], columns: Sequence[str]) -> Picture:
    """Weights over the words: the words that ask on the left, those that are asked on top.

    Shapes: weights [n_q, n_kv]; one word a row, one a column.

    >>> words = "The cat sat because it was tired".split()
    >>> heat_map([[0.03, 0.62, 0.08, 0.05, 0.14, 0.03, 0.05]], ["it"], words)
    """
    table = grid.array(weights)
    if table.shape != (len(rows), len(columns)):
        raise ValueError(
            f"weights have shape {table.shape}, expected {(len(rows), len(columns))}: one row for"
            " each word that asks, one column for each that is asked"
        )
    left, top, n = (
        0.2 + 0.16 * max(map(len, rows)),
        0.35 + 0.14 * max(map(len, columns)),
        len(table),
    )
    cell = (6.8 - left) / table.shape[1]
    figure = new(7, top + n * cell + 0.2)
    axes = sheet(figure)
    box = grid.weights(axes, left, top, table, cell=cell, numbers=".2f")
    tokens(axes, box, rows=rows, columns=columns, upright=True)
    return figure


def one_position(i: int = 2, scores: ArrayLike = EXAMPLE_SCORES) -> Picture:
    """Position i by itself: its scores, its weights, the values in their strength, its output.

    Shapes: scores [n, n].

    >>> one_position()
    """
    table = grid.array(scores)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"scores have shape {table.shape}, expected [n, n]")
    share = _softmax(table[i])
    n, cell, top = len(table), 0.325, 0.35
    line, reach = top + i * cell, float(np.abs(table).max())
    figure = new(7, 2.5)
    axes = sheet(figure)
    match = _resting(axes, 0.38, top, n, n, cell)
    blend = _resting(axes, match.right + 1.15, top, n, n, cell)
    v = matrix(
        axes, blend.right + 0.75, top, rows=n, columns=2, role=V, cell=cell, strength=share[:, None]
    )
    out = _resting(axes, v.right + 0.6, top, n, 2, cell)
    grid.scores(axes, match.x, line, table[i : i + 1], reach=reach, cell=cell)
    grid.weights(axes, blend.x, line, [share], cell=cell)
    matrix(axes, out.x, line, rows=1, columns=2, role=OUTPUT, cell=cell)

    middle = line + cell / 2
    text(axes, match.x - 0.1, middle, "$i$", across="right", size=20)
    arrow(axes, (match.right, middle), (blend.x, middle))
    text(axes, (match.right + blend.x) / 2, middle - 0.12, "softmax", down="bottom")
    for j, weight in enumerate(share):
        text(axes, v.x - 0.08, top + (j + 0.5) * cell, f"{weight:.2f}", across="right")
    arrow(axes, (v.right, middle), (out.x, middle))
    text(axes, (v.right + out.x) / 2, middle - 0.12, "sum", down="bottom")
    for box, name in ((match, "scores"), (blend, "weights"), (v, "values"), (out, "output")):
        text(axes, box.centre[0], box.bottom + 0.35, name, down="baseline")
    return figure


def _resting(axes: Axes, x: float, y: float, rows: int, columns: int, cell: float) -> Box:
    # A grid that is there but not spoken of.
    box = Box(x, y, columns * cell, rows * cell)
    lines(axes, box, rows, columns, frame=FAINT, inner="#dddddd")
    return box


def lookup(
    weights: ArrayLike = (0.0900, 0.2447, 0.6652),
    values: ArrayLike = ((10, 0), (0, 10), (10, 10)),
) -> Picture:
    """Hard look-up takes one value and leaves the rest; soft look-up takes some of each.

    Shapes: weights [n]; values [n, 2], of which three fit.

    >>> lookup()
    """
    soft, contents = grid.array(weights), grid.array(values)
    grid.alike(weights=len(soft), values=len(contents))
    grid.at_most(3, values=len(contents))
    if contents.shape[1:] != (2,):
        raise ValueError(f"values have shape {contents.shape}, expected [n, 2]: two columns fit")
    hard = np.eye(len(soft))[soft.argmax()]
    figure = new(7, 4.0)
    axes = sheet(figure)
    for left, title, share in ((0.25, "hard", hard), (3.75, "soft", soft)):
        text(axes, left + 1.55, 0.35, title, size=22, bold=True)
        for j, weight in enumerate(share):
            key = Box(left, 0.8 + j * 0.7, 0.5, 0.5)
            tile(axes, key, K, words=f"$k_{j + 1}$", framed=True)
            bar = Box(key.right + 0.1, key.y, 0.8 * weight, 0.5)
            tile(axes, bar, WEIGHTS)
            text(axes, bar.right + 0.06, bar.east[1], f"{weight:.2f}", across="left")
            x, numbers = left + 2.1, [[f"{number:g}" for number in contents[j]]]
            v = matrix(
                axes,
                x,
                key.y,
                rows=1,
                columns=2,
                role=V,
                cell=0.5,
                numbers=numbers,
                strength=weight,
            )
        axes.plot([v.x - 0.1, v.right + 0.1], [v.bottom + 0.15] * 2, color=INK, linewidth=LINE)
        numbers = [[f"{number:.2g}" for number in share @ contents]]
        out = matrix(
            axes, v.x, v.bottom + 0.3, rows=1, columns=2, role=OUTPUT, cell=0.5, numbers=numbers
        )
        text(axes, out.x - 0.2, out.west[1], "output", across="right")
    return figure
