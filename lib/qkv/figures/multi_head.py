"""Chapter 05: many heads: how they are split and merged, what they keep apart, what they cost."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from qkv.figures import grid
from qkv.figures.grid import FAINT, OUTPUT, WEIGHTS, Q, X, matrix, sizes, tokens
from qkv.figures.picture import (
    INK,
    LINE,
    Box,
    Picture,
    arrow,
    chart,
    new,
    sheet,
    text,
)

TOKENS, HEADS, WIDTH = 3, 2, 4  # of the drawings: 12 numbers, 0 to 11
HEAD_TINTS = (1.0, 0.35)  # how strong the columns of each head are
TOKEN_TINTS = (1.0, 0.55, 0.15)  # how strong the numbers of each token are


def two_questions(
    weights: Mapping[str, ArrayLike], blends: Mapping[str, ArrayLike], keys: Sequence[str]
) -> Picture:
    """What each kind of head gives to the same keys, and what it hands on: one row a head.

    Shapes: for each name, weights [n_kv] and a blend [d_v]; n_kv keys.

    >>> two_questions(
    ...     {"one head": [0.090, 0.245, 0.665], "head 1": [0.108, 0.446, 0.446]},
    ...     {"one head": [7.55, 9.10], "head 1": [5.54, 8.92]},
    ...     ["key 1", "key 2", "key 3"],
    ... )
    """
    grid.alike(weights=len(weights), blends=len(blends))
    cell, pitch = 0.78, 1.0
    figure = new(7, 0.75 + pitch * len(weights))
    axes = sheet(figure)
    for row, (name, shares) in enumerate(weights.items()):
        table = grid.array(shares)[None, :]
        grid.alike(keys=len(keys), weights=table.shape[1])
        y = 0.65 + pitch * row
        box = grid.weights(axes, 1.5, y, table, cell=cell, numbers=".3f")
        text(axes, 0.15, box.west[1], name, across="left")
        if row == 0:
            tokens(axes, box, columns=keys)
        written = [f"{number:.2f}" for number in grid.array(blends[name])]
        x = 6.85 - cell * len(written)
        blend = matrix(
            axes, x, y, rows=1, columns=len(written), role=OUTPUT, cell=cell, numbers=[written]
        )
        arrow(axes, box.east, blend.west)
    text(axes, blend.centre[0], 0.57, "blend", down="bottom")
    return figure


def split_and_merge() -> Picture:
    """Each token's numbers are shared out to the heads, and their blends come back side by side.

    Shapes: n = 3 tokens, d_model = 4, h = 2 heads of width 2.

    >>> split_and_merge()
    """
    cell, width, pitch = 0.36, WIDTH // HEADS, 1.95
    figure = new(7, 4.1)
    axes = sheet(figure)
    numbers = np.arange(TOKENS * WIDTH).reshape(TOKENS, WIDTH)
    by_head = np.repeat(HEAD_TINTS, width)[None, :]
    whole = _numbered(axes, 0.15, 1.5, numbers, Q, cell, by_head)
    sizes(axes, whole, top="$Q$", bottom="$n × d_\\mathrm{model}$")
    merged = matrix(
        axes, 5.4, 0.55, rows=TOKENS, columns=WIDTH, role=OUTPUT, cell=cell, strength=by_head
    )
    for head, tint in enumerate(HEAD_TINTS):
        part = numbers[:, head * width : (head + 1) * width]
        small = _numbered(axes, 2.4, 0.55 + pitch * head, part, Q, cell, tint)
        blend = matrix(
            axes, 4.05, small.y, rows=TOKENS, columns=width, role=OUTPUT, cell=cell, strength=tint
        )
        sizes(axes, small, top=f"head {head + 1}")
        arrow(axes, (whole.right, whole.centre[1] + 0.3 * (2 * head - 1)), small.west)
        arrow(axes, small.east, blend.west)
        arrow(axes, blend.east, (merged.x, merged.centre[1] + 0.2 * head))
        if head == 0:
            text(axes, (small.right + blend.x) / 2, small.centre[1] - 0.1, "attend", down="bottom")
    sizes(axes, small, bottom="$n × d_k$")
    sizes(axes, merged, top="merged")
    out = matrix(axes, merged.x, 0.55 + pitch, rows=TOKENS, columns=WIDTH, role=OUTPUT, cell=cell)
    arrow(axes, merged.south, out.north)
    text(axes, merged.centre[0] + 0.12, (merged.bottom + out.y) / 2, "$W_O$", across="left")
    sizes(axes, out, bottom="output")
    text(axes, (whole.right + small.x) / 2 + 0.05, whole.centre[1], "split")
    return figure


def view_and_transpose() -> Picture:
    """The same twelve numbers cut into two heads: rightly, and by `view` alone, which mixes tokens.

    Shapes: 3 tokens of width 4, h = 2.

    >>> view_and_transpose()
    """
    cell, width = 0.44, WIDTH // HEADS
    numbers = np.arange(TOKENS * WIDTH).reshape(TOKENS, WIDTH)
    wrong = numbers.reshape(HEADS, TOKENS, width)
    right = numbers.reshape(TOKENS, HEADS, width).transpose(1, 0, 2)
    figure = new(7, 4.8)
    axes = sheet(figure)
    whole = _numbered(axes, 1.25, 1.7, numbers, X, cell, np.array(TOKEN_TINTS)[:, None])
    tokens(axes, whole, rows=[f"token {i}" for i in range(TOKENS)])
    for y, heads, how in ((0.95, right, "view, then transpose"), (3.35, wrong, "view alone")):
        text(axes, 5.45, y - 0.7, how)
        for head in range(HEADS):
            tints = np.array(TOKEN_TINTS)[heads[head] // WIDTH]
            x = 4.35 + 1.3 * head
            small = _numbered(axes, x, y, heads[head], X, cell, tints)
            sizes(axes, small, top=f"head {head + 1}")
            if head == 0:
                arrow(axes, whole.east, (small.x, small.centre[1]))
    return figure


def _numbered(
    axes: Axes,
    x: float,
    y: float,
    numbers: NDArray[np.int_],
    role: grid.Role,
    cell: float,
    strength: ArrayLike,
) -> Box:
    rows, columns = numbers.shape
    return matrix(
        axes,
        x,
        y,
        rows=rows,
        columns=columns,
        role=role,
        cell=cell,
        numbers=numbers.tolist(),
        strength=strength,
    )


def cost(
    heads: Sequence[int],
    counted: Mapping[str, ArrayLike],
    measured: Mapping[str, ArrayLike],
    memory: Mapping[str, ArrayLike],
) -> Picture:
    """Time against the number of heads at equal width, and the memory of the scores below it.

    Shapes: m numbers of heads; for each panel's title, counted operations and measured time [m],
    both as multiples of one head's, and megabytes of scores [m].

    >>> cost(
    ...     [1, 2, 4, 8, 16],
    ...     {"64 tokens": [1, 1, 1, 1.01, 1.01], "512 tokens": [1, 1, 1, 1.01, 1.02]},
    ...     {"64 tokens": [1, 1.2, 1.3, 1.5, 2.2], "512 tokens": [1, 1.4, 2.2, 5.5, 11.7]},
    ...     {"64 tokens": [0.02, 0.03, 0.07, 0.13, 0.26], "512 tokens": [1, 2, 4.2, 8.4, 16.8]},
    ... )
    """
    grid.at_most(2, panels=len(measured))
    figure = new(7, 5.9)
    at = np.arange(len(heads))
    top = 1.1 * max(float(grid.array(bars).max()) for bars in measured.values())
    most = 1.1 * max(float(grid.array(bars).max()) for bars in memory.values())
    for column, (title, bars) in enumerate(measured.items()):
        left = 0.85 + 3.15 * column
        above = chart(figure, Box(left, 0.45, 2.85, 2.1), title=title)
        above.bar(at, grid.array(bars), color=FAINT, edgecolor=INK, linewidth=1)
        above.plot(at, grid.array(counted[title]), color=INK, linewidth=LINE, marker="o")
        above.set(ylim=(0, top), xticks=at, xticklabels=[])
        below = chart(figure, Box(left, 2.95, 2.85, 1.5), across="heads")
        below.bar(at, grid.array(memory[title]), color=grid.mix(WEIGHTS.colour, 0.7))
        below.set(ylim=(0, most), xticks=at, xticklabels=[str(h) for h in heads])
        for axes in (above, below):
            axes.locator_params(axis="y", nbins=2)
            if column:
                axes.tick_params(labelleft=False)
        if not column:
            above.set_ylabel("time, × h = 1")
            below.set_ylabel("MB")
    _legend(sheet(figure))
    return figure


def _legend(axes: Axes) -> None:
    y, half = 5.6, 0.13
    for x, colour, name in (
        (0.2, FAINT, "measured"),
        (4.15, grid.mix(WEIGHTS.colour, 0.7), "scores in memory"),
    ):
        axes.add_patch(Rectangle((x, y - half), 2 * half, 2 * half, facecolor=colour))
        text(axes, x + 0.4, y, name, across="left")
    axes.plot([2.1, 2.6], [y, y], color=INK, linewidth=LINE, marker="o")
    text(axes, 2.75, y, "counted", across="left")


def heads(weights: ArrayLike, places: Sequence[str]) -> Picture:
    """What the heads of several trained models give to each kind of place: one grid a seed.

    Shapes: weights [seeds, h, places], means over many inputs; each row sums to 1.

    >>> neat = [[0.95, 0.02, 0.03], [0.03, 0.96, 0.01]]
    >>> heads([neat, neat[::-1], neat, neat, neat[::-1]], ["1st", "2nd", "rest"])
    """
    table = grid.array(weights)
    if table.ndim != 3 or table.shape[2] != len(places):
        raise ValueError(
            f"weights have shape {table.shape}, expected [seeds, h, {len(places)}] for"
            f" {len(places)} places"
        )
    seeds, h, columns = table.shape
    grid.at_most(6, seeds=seeds)
    left, gap = 1.05, 0.22
    cell = min(0.55, (6.85 - left - (seeds - 1) * gap) / (seeds * columns))
    figure = new(7, 1.2 + h * cell)
    axes = sheet(figure)
    for seed in range(seeds):
        x = left + seed * (columns * cell + gap)
        box = grid.weights(axes, x, 1.0, table[seed], cell=cell)
        text(axes, box.centre[0], 0.12, f"seed {seed}", down="top")
        tokens(axes, box, columns=places, upright=True)
        if seed == 0:
            tokens(axes, box, rows=[f"head {i + 1}" for i in range(h)])
    return figure
