"""Chapter 00: from words to a matrix, the dot product as likeness, and steps downhill."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from qkv.figures.grid import FAINT, K, Q, X, alike, array, lines, matrix, tile, tokens
from qkv.figures.picture import (
    INK,
    QUIET,
    TEXT,
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


def embedding(
    words: Sequence[str], ids: Sequence[int], table: ArrayLike, spoken_of: int = 1
) -> Picture:
    """Words, their ids, one-hot rows, and the rows of the table that these pick; one word framed.

    Shapes: one id a word, n; table [vocabulary, d], whole numbers of one digit.

    >>> table = [[2, 7, 1], [8, 2, 8], [1, 8, 2], [8, 4, 5], [9, 0, 4]]
    >>> embedding(["The", "cat", "sat"], [3, 0, 2], table)
    """
    alike(words=len(words), ids=len(ids))
    rows = array(table).astype(int)
    size, width = rows.shape
    n, cell, gap, left = len(words), 0.46, 0.2, 2.15
    line = 0.55 + size * cell + gap
    figure = new(7, line + n * cell + 0.65)
    axes = sheet(figure)
    hot = Box(left, line, size * cell, n * cell)
    for i, j in np.ndindex(n, size):
        place = Box(hot.x + j * cell, line + i * cell, cell, cell)
        if j == ids[i]:
            tile(axes, place, X, words="1")
        else:
            text(axes, *place.centre, "0", colour=QUIET)
    lines(axes, hot, n, size, frame=X.colour, inner=FAINT)
    beside = hot.right + gap + 0.25  # room for the ids of the table's rows
    picked = rows[list(ids)].tolist()
    x = matrix(axes, beside, line, rows=n, columns=width, role=X, numbers=picked, cell=cell)
    whole = matrix(
        axes, beside, 0.55, rows=size, columns=width, role=X, numbers=rows.tolist(), cell=cell
    )
    names = [str(j) for j in range(size)]
    tokens(axes, whole, rows=names)
    tokens(axes, hot, columns=names)
    for i, (word, number) in enumerate(zip(words, ids, strict=True)):
        y = line + (i + 0.5) * cell
        text(axes, 0.35, y, word, across="left", bold=i == spoken_of)
        arrow(axes, (0.95, y), (1.4, y))
        text(axes, 1.6, y, str(number), bold=i == spoken_of)
    chosen = line + spoken_of * cell
    for box in (
        Box(hot.x, chosen, hot.width, cell),
        Box(x.x, chosen, x.width, cell),
        Box(x.x, whole.y + ids[spoken_of] * cell, x.width, cell),
    ):
        outline(axes, box, width=3)
    text(axes, whole.centre[0], whole.y - 0.12, "table", down="baseline")
    for middle, name in (
        (0.6, "word"),
        (1.6, "id"),
        (hot.centre[0], "one-hot"),
        (x.centre[0], "$X$"),
    ):
        text(axes, middle, x.bottom + 0.4, name, down="baseline")
    return figure


def dot_products() -> Picture:
    """The dot product is large along, 0 across and negative against.

    >>> dot_products()
    """
    figure = new(7, 3.04)
    axes = sheet(figure)
    query = (2, 1)
    pairs = ((0.9, (1, 2), "along"), (3.45, (-1, 2), "across"), (5.75, (-2, -1), "against"))
    for middle, key, word in pairs:
        _pair(axes, (middle, 1.45), query, key)
        text(axes, middle, 2.4, f"{np.dot(query, key)}".replace("-", "−"), size=22, bold=True)
        text(axes, middle, 2.75, word)
    return figure


def length_counts() -> Picture:
    """A long key askew against a short key along: the dot product says one, the cosine the other.

    >>> length_counts()
    """
    figure = new(7, 2.3)
    axes = sheet(figure)
    query = (1, 1)
    for left, key, aside in ((1.3, (1, 1), 0.05), (4.4, (3, 0), 0.0)):
        _pair(axes, (left, 1.1), query, key, aside=aside)
        dot = np.dot(query, key)
        cosine = dot / np.linalg.norm(query) / np.linalg.norm(key)
        text(axes, left + 0.4, 1.55, f"dot {dot}", bold=dot == 3)
        text(axes, left + 0.4, 1.9, f"cosine {cosine:.2f}", bold=dot == 2)
    return figure


def _pair(
    axes: Axes, origin: Point, query: Point, key: Point, *, unit: float = 0.45, aside: float = 0.0
) -> None:
    # A query and a key as arrows; `aside` keeps two that lie along each other apart.
    for vector, role, name, shift in ((query, Q, "$q$", -aside), (key, K, "$k$", aside)):
        x, y = origin[0] + shift, origin[1] + shift
        right, up = unit * vector[0], unit * vector[1]
        arrow(axes, (x, y), (x + right, y - up), colour=role.colour, width=4, gap=0)
        beyond = 1 + 0.17 / float(np.hypot(right, up))
        text(axes, x + beyond * right + shift, y - beyond * up + shift, name, size=20)


def descent(
    loss: Callable[[float], float], small: Sequence[float], large: Sequence[float]
) -> Picture:
    """A loss over one parameter, and the places visited: in small steps, and in steps too large.

    Shapes: small and large are the values of the parameter, one after another.

    >>> small, large = [-2.0], [-2.0]
    >>> for _ in range(5):
    ...     small.append(small[-1] - 0.25 * 2 * (small[-1] - 1))
    ...     large.append(large[-1] - 0.95 * 2 * (large[-1] - 1))
    >>> descent(lambda w: (w - 1) ** 2, small, large)
    """
    figure = new(7, 4)
    reach = 1.15 * max(abs(w - small[-1]) for w in (*small, *large))
    curve = np.linspace(small[-1] - reach, small[-1] + reach, 200)
    for left, title, visited in ((0.5, "small steps", small), (3.85, "too large", large)):
        axes = chart(figure, Box(left, 0.6, 2.9, 2.85), title=title, across="parameter")
        axes.plot(curve, [loss(w) for w in curve], color=FAINT, linewidth=4)
        heights = [loss(w) for w in visited]
        axes.plot(visited, heights, color=INK, linewidth=1.5, marker="o", markersize=8)
        axes.set(xticks=[], yticks=[])
    figure.axes[0].set_ylabel("loss", size=TEXT, color=INK)
    return figure
