"""Chapter 04: self- and cross-attention side by side, and weights over two sequences."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from qkv.figures import grid
from qkv.figures.grid import OUTPUT, K, Q, Role, V, X, matrix, sizes, tokens
from qkv.figures.picture import INK, Box, Picture, arrow, new, outline, sheet, text

SMALL = 0.2  # inches: a cell where two pipelines stand side by side
PALE = 0.45  # how strong is what both sides have in common
THICK = 4.0  # points: a frame about what is spoken of


def self_and_cross() -> Picture:
    """The same pipeline twice. Self-attention has one input, cross-attention two.

    Shapes: self, n = 4 tokens of width 6; cross, n_q = 3 tokens of width 6 ask n_kv = 5 of width 4.
    Both have d_k = 2 and d_v = 7.

    >>> self_and_cross()
    """
    figure = new(7, 5.15)
    axes = sheet(figure)
    for left, name, n_q, n_kv in ((0.3, "self", 4, 4), (3.9, "cross", 3, 5)):
        text(axes, left + 1.4, 0.35, name, size=22, bold=True)
        q, k, v = _match_and_blend(axes, left, n_q, n_kv)
        target = _input(axes, left, n_q, 6, "target" if name == "cross" else "$X$")
        source = _input(axes, left + 1.75, n_kv, 4, "source") if name == "cross" else target
        for role, box, end in zip((Q, K, V), (target, source, source), (q, k, v), strict=True):
            nearest = min(max(end.centre[0], box.x + 0.15), box.right - 0.15)
            arrow(axes, (nearest, box.bottom), end.north, colour=role.colour, width=3)
    return figure


def _input(axes: Axes, x: float, rows: int, columns: int, name: str) -> Box:
    box = matrix(axes, x, 1.1, rows=rows, columns=columns, role=X, cell=SMALL)
    grid.halo(text(axes, *box.centre, f"{rows} × {columns}"), grid.mix(X.colour, grid.FILL))
    outline(axes, box, width=THICK)
    sizes(axes, box, top=name)
    return box


def _match_and_blend(axes: Axes, x: float, n_q: int, n_kv: int) -> tuple[Box, Box, Box]:
    # Q and K^T meet in the weights, the weights and V in the output; all of it pale.
    line, gap = 3.7, 0.1
    above = line - gap
    likeness = 2 * np.cos(np.subtract.outer(2.0 * np.arange(n_q), 1.7 * np.arange(n_kv)))
    shares = np.exp(likeness) / np.exp(likeness).sum(axis=1, keepdims=True)
    q = _pale(axes, x, line, n_q, 2, Q, "$Q$")
    a = grid.weights(axes, q.right + gap, line, shares, cell=SMALL)
    k = _pale(axes, a.x, above - 2 * SMALL, 2, n_kv, K, "$K^T$")
    out = _pale(axes, a.right + gap, line, n_q, 7, OUTPUT)
    v = _pale(axes, out.x, above - n_kv * SMALL, n_kv, 7, V, "$V$")
    for box, words in ((a, f"{n_q} × {n_kv}"), (out, "output")):
        text(axes, box.centre[0], 4.85, words, down="baseline")
    return q, k, v


def _pale(
    axes: Axes, x: float, y: float, rows: int, columns: int, role: Role, name: str = ""
) -> Box:
    box = matrix(axes, x, y, rows=rows, columns=columns, role=role, cell=SMALL, strength=PALE)
    if name:
        face = grid.mix(role.colour, grid.FILL * PALE)
        grid.halo(text(axes, *box.centre, name, size=20), face)
    return box


def over_tokens(
    weights: ArrayLike,
    target: Sequence[str],
    source: Sequence[str],
    *,
    mask: ArrayLike | None = None,
) -> Picture:
    """Weights over two sequences: the target asks on the left, the source is asked on top.

    Shapes: weights [n_q, n_kv], one word of the target a row, one of the source a column;
    mask [n_kv] or [n_q, n_kv], True = may attend.

    >>> over_tokens(
    ...     [[0.86, 0.02, 0.08, 0.04, 0], [0.04, 0.07, 0.85, 0.04, 0], [0.03, 0.80, 0.12, 0.05, 0]],
    ...     ["le", "chat", "noir"],
    ...     ["the", "black", "cat", "sleeps", "_"],
    ...     mask=[True] * 4 + [False],
    ... )
    """
    table = grid.array(weights)
    _hold_shape(table.shape, target, source)
    left, top = 0.3 + 0.13 * max(map(len, target)), 0.55
    cell = (6.85 - left) / len(source)
    figure = new(7, round(top + len(target) * cell + 0.15, 1))
    axes = sheet(figure)
    may = None if mask is None else np.broadcast_to(grid.array(mask), table.shape)
    box = grid.weights(axes, left, top, table, cell=cell, numbers=".2f", mask=may)
    tokens(axes, box, rows=target, columns=source)
    return figure


def alignments(
    weights: ArrayLike,
    asked: Sequence[str],
    cards: Sequence[str],
    right: Sequence[int],
    *,
    mask: ArrayLike,
) -> Picture:
    """The weights of several seeds over the same tokens, a small grid each; the right cell framed.

    Shapes: weights [seeds, n_q, n_kv], of which five seeds fit; `right` has the column that each
    row should find; mask [n_kv] or [n_q, n_kv], True = may attend.

    >>> cards = ["2♠", "7♥", "4♣", "9♠", "5♦", "_"]
    >>> found = 0.9 * np.eye(6)[[1, 4, 0]] + 0.1 * np.eye(6)[3]
    >>> alignments(
    ...     np.stack([found] * 5), ["7?", "5?", "2?"], cards, [1, 4, 0], mask=[True] * 5 + [False]
    ... )
    """
    table = grid.array(weights)
    if table.ndim != 3:
        raise ValueError(f"weights have shape {table.shape}, expected [seeds, n_q, n_kv]")
    _hold_shape(table.shape[1:], asked, cards)
    grid.at_most(5, seeds=len(table))
    grid.alike(rows=len(asked), right=len(right))
    may = np.broadcast_to(grid.array(mask), table.shape[1:])
    across = 2.26  # inches from one grid to the next
    cell = (across - 0.55) / len(cards)
    high = 0.72 + len(asked) * cell
    figure = new(7, round(2 * (high + 0.25), 1))
    axes = sheet(figure)
    for number, panel in enumerate(table):
        row, column = divmod(number, 3)
        x, y = 0.55 + across * column, 0.72 + row * (high + 0.25)
        box = grid.weights(axes, x, y, panel, cell=cell, mask=may)
        tokens(axes, box, rows=asked, columns=["\n".join(card) for card in cards])
        for i, j in enumerate(right):
            _framed(axes, x + j * cell, y + i * cell, cell)
    x, y = 0.55 + across * 2, 0.72 + high + 0.25
    _framed(axes, x, y + cell, cell)
    text(axes, x + cell + 0.12, y + 1.5 * cell, "the card\nasked for", across="left")
    return figure


def _framed(axes: Axes, x: float, y: float, cell: float) -> None:
    outline(axes, Box(x, y, cell, cell), colour=INK, width=THICK)


def _hold_shape(shape: tuple[int, ...], rows: Sequence[str], columns: Sequence[str]) -> None:
    if shape != (len(rows), len(columns)):
        raise ValueError(
            f"weights have shape {shape}, expected {(len(rows), len(columns))}: a row for each"
            " token that asks, a column for each that is asked"
        )
