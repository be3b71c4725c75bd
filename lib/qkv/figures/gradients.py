"""Chapter 10: the ways from a number to the loss, a product backward, softmax, and the nudge."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from qkv.figures import curves
from qkv.figures.grid import X, alike, array, at_most, matrix, scores, sizes, tokens
from qkv.figures.picture import (
    INK,
    QUIET,
    Box,
    Picture,
    Point,
    arrow,
    chart,
    new,
    outline,
    sheet,
    text,
)

PALE = 0.25  # cells that are not spoken of
MOST_SCORES = 5


def ways(a: float = 2, b: float = 5) -> Picture:
    """A tiny graph, u = a b, v = a + b, L = u v: a slope on each arrow, a gradient at each number.

    >>> ways()
    """
    u, v = a * b, a + b
    figure = new(7, 4.4)
    axes = sheet(figure)
    left, middle, last = 0.25, 2.65, 5.55
    at = {
        "a": _number(axes, left, 0.75, 0.95, "a", a, b * v + u),
        "b": _number(axes, left, 3.05, 0.95, "b", b, a * v + u),
        "u": _number(axes, middle, 0.75, 1.6, "u = a b", u, v),
        "v": _number(axes, middle, 3.05, 1.6, "v = a + b", v, u),
        "L": _number(axes, last, 1.9, 1.2, "L = u v", u * v, 1),
    }
    slopes = (("a", "u", b), ("a", "v", 1), ("b", "u", a), ("b", "v", 1), ("u", "L", v))
    for start, end, slope in (*slopes, ("v", "L", u)):
        spoken_of = start != "b"
        colour = INK if spoken_of else QUIET
        tail, head = at[start].east, at[end].west
        arrow(axes, tail, head, colour=colour, width=3 if spoken_of else 2)
        share = 0.27 if start in "ab" and tail[1] != head[1] else 0.45
        _on(axes, tail, head, share, f"{slope:g}", colour)
    text(axes, 0.25, 0.3, "on each arrow its slope", across="left", colour=QUIET)
    return figure


def _number(
    axes: Axes, x: float, y: float, width: float, name: str, value: float, gradient: float
) -> Box:
    """A box with a number's name above it, its value inside and its gradient below."""
    box = Box(x, y, width, 0.5)
    outline(axes, box)
    own = name.partition(" ")[0]
    words = f"{own} = {value:g}" if own == name else name
    text(axes, *box.centre, words)
    if own != name:
        text(axes, box.centre[0], box.bottom + 0.1, f"{value:g}", down="top")
    below = box.bottom + (0.1 if own == name else 0.42)
    text(axes, box.centre[0], below, f"$g_{own}$ = {gradient:g}", down="top", bold=True)
    return box


def _on(axes: Axes, tail: Point, head: Point, share: float, words: str, colour: str) -> None:
    """Words on an arrow, `share` of the way along it."""
    x, y = (start + share * (end - start) for start, end in zip(tail, head, strict=True))
    written = text(axes, x, y, words, colour=colour)
    written.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 2})


def product(n: int = 3, k: int = 2, m: int = 4, row: int = 1, column: int = 0) -> Picture:
    """One entry of A and the row of Y that it reaches; below, the same entries on the way back.

    Shapes: A [n, k], B [k, m], Y [n, m]; the entry at `row`, `column` of A is followed.

    >>> product()
    """
    figure = new(7, round(0.5 + n * 0.34 + 0.9 + max(n, m) * 0.34 + 0.2, 1))
    axes = sheet(figure)
    rows, columns, others = np.arange(n)[:, None], np.arange(k), np.ones((1, m))
    entry = (rows == row) & (columns == column)  # [n, k]
    used = (columns[:, None] == column) * others  # [k, m]
    reached = (rows == row) * others  # [n, m]
    first = {"A": entry, "B": used, "Y": reached}
    second = {"g": reached, "$B^T$": used.T, "$g_A$": entry}
    y = 0.5
    for line, result in ((first, "Y = A B"), (second, "$g_A = g \\, B^T$")):
        x, high = 0.5, max(len(table) for table in line.values())
        for (name, table), sign in zip(line.items(), ("", "", "="), strict=True):
            strength = np.where(table, 1.0, PALE)
            if sign:
                text(axes, x - 0.3, y + high * 0.17, sign)
            top = y + (high - len(table)) * 0.17
            tall, wide = strength.shape
            box = matrix(axes, x, top, rows=tall, columns=wide, role=X, strength=strength)
            sizes(axes, box, top=name)
            x = box.right + 0.6
        text(axes, 5.8, y + high * 0.17, result)
        y += high * 0.34 + 0.9
    return figure


def jacobian(p: ArrayLike) -> Picture:
    """The Jacobian of a softmax whose shares are p: how share i moves when score j is nudged.

    Shapes: p [n], at most 5 shares that sum to 1.

    >>> jacobian([0.1, 0.4, 0.2, 0.2, 0.1])
    """
    shares = array(p)
    if shares.ndim != 1 or not np.isclose(shares.sum(), 1):
        raise ValueError(f"p has shape {shares.shape} and sum {shares.sum():.2f}: give [n], sum 1")
    at_most(MOST_SCORES, shares=len(shares))
    table = np.diag(shares) - np.outer(shares, shares)
    cell, n = 0.84, len(shares)
    figure = new(7, round(0.95 + n * cell + 0.25, 1))
    axes = sheet(figure)
    box = scores(axes, 1.6, 0.95, table, cell=cell, numbers=".2f")
    own = [f"$p_{i + 1}$ = {share:.1f}" for i, share in enumerate(shares)]
    tokens(axes, box, rows=own, columns=[f"$x_{j + 1}$" for j in range(n)])
    text(axes, box.north[0], 0.25, "nudged score")
    text(axes, box.right + 0.6, box.y - 0.08, "sum", down="bottom")
    for i in range(n):
        total = abs(table[i].sum())
        text(axes, box.right + 0.6, box.y + (i + 0.5) * cell, f"{total:.0f}")
    return figure


def nudges(eps: ArrayLike, errors: Mapping[str, ArrayLike]) -> Picture:
    """The error of central differences against the size of the nudge, both logarithmic.

    Shapes: eps [sizes]; for each name (a dtype), errors [sizes], at most four names.

    >>> eps = 10.0 ** -np.arange(1, 13)
    >>> short = np.minimum(eps**2 + 1e-7 / eps, 1)
    >>> nudges(eps, {"float64": eps**2 + 1e-16 / eps, "float32": short})
    """
    at = array(eps)
    names = list(errors)
    at_most(len(curves.LOOKS), curves=len(names))
    figure = new(7, 4.6)
    axes = chart(figure, Box(1.25, 0.2, 5.5, 2.95), across="nudge", up="error")
    lows, highs = [], []
    for name, (colour, dashes) in zip(names, curves.LOOKS, strict=False):
        table = array(errors[name])
        alike(nudges=len(at), errors=len(table))
        seen = table > 0  # a logarithmic axis has no place for 0
        axes.plot(at[seen], table[seen], color=colour, linestyle=dashes, linewidth=3, marker="o")
        lows.append(table[seen].min())
        highs.append(table[seen].max())
    axes.set(xscale="log", yscale="log", ylim=(min(lows) / 5, 200 * max(highs)))
    axes.set_xticks([1e-12, 1e-8, 1e-4])
    axes.set_yticks([10.0**power for power in (-12, -8, -4, 0)])
    axes.minorticks_off()
    for share, words, side in ((0.02, "← rounding", "left"), (0.98, "curvature →", "right")):
        axes.text(
            share, 0.97, words, size=17, color=QUIET, ha=side, va="top", transform=axes.transAxes
        )
    panel = curves.Panel("", {name: [array(errors[name])] for name in names})
    curves.legend(figure, [panel], "")
    return figure
