"""Chapter 07: feed-forward, layer norm, the straight road, and where the norm stands on it."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle, Rectangle
from numpy.typing import ArrayLike

from qkv.figures import curves
from qkv.figures.grid import X, array, at_most, matrix, sizes
from qkv.figures.picture import (
    INK,
    LINE,
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

ROAD = 9.0  # points: the way that no sublayer interrupts
PITCH = 2.25  # inches from one detour to the next
MARKERS = ("o", "s", "^", "D")


def feed_forward(n: int = 4, d_model: int = 3, d_ff: int = 12, row: int = 1) -> Picture:
    """Each token by itself goes wide and back; no row of the result reads another row.

    Shapes: x [n, d_model], hidden [n, d_ff], the result [n, d_model]; `row` is followed.

    >>> feed_forward()
    """
    cell, gap, y = 0.28, 0.75, 0.55
    figure = new(7, round(y + n * cell + 0.5, 1))  # whole pixels
    axes = sheet(figure)
    strength = np.where(np.arange(n)[:, None] == row, 1.0, 0.25)
    x = (7 - (2 * d_model + d_ff) * cell - 2 * gap) / 2
    boxes = []
    for columns in (d_model, d_ff, d_model):
        box = matrix(axes, x, y, rows=n, columns=columns, role=X, cell=cell, strength=strength)
        boxes.append(box)
        x = box.right + gap
    followed = y + (row + 0.5) * cell
    for left, right, name in zip(boxes, boxes[1:], ("$W_1$", "$W_2$"), strict=False):
        arrow(axes, (left.right, followed), (right.x, followed))
        text(axes, (left.right + right.x) / 2, followed - 0.12, name, down="bottom")
    for box, name in zip(boxes, ("$d_{model}$", "$d_{ff}$", "$d_{model}$"), strict=True):
        sizes(axes, box, top=name)
    sizes(axes, boxes[1], bottom="below 0 becomes 0")
    return figure


def layer_norm(stages: Mapping[str, ArrayLike]) -> Picture:
    """One token's features on a number line, a line for each stage of the layer norm.

    Shapes: for each stage's name, the same token's d features [d], at most four.

    >>> layer_norm(
    ...     {
    ...         "x": [1, 2, 3, 6],
    ...         "− mean": [-2, -1, 0, 3],
    ...         "÷ spread": [-1.05, -0.53, 0, 1.58],
    ...         "gain, bias": [-2.05, 0.47, 2, 4.16],
    ...     }
    ... )
    """
    rows = [array(numbers) for numbers in stages.values()]
    for name, numbers in zip(stages, rows, strict=True):
        if numbers.shape != rows[0].shape or numbers.ndim != 1:
            raise ValueError(
                f"stage {name!r} has shape {numbers.shape}, expected one token's features [d],"
                " as many in each stage"
            )
    at_most(len(MARKERS), features=len(rows[0]))
    high = 0.8
    figure = new(7, high * len(rows) + 0.6)
    axes = chart(figure, Box(1.75, 0.1, 5.05, high * len(rows)))
    axes.spines["left"].set_visible(False)
    axes.axvline(0, color=QUIET, linestyle="dotted", linewidth=2)
    for row, numbers in enumerate(rows):
        axes.axhline(row, color=X.colour, linewidth=1, zorder=1)
        mean, spread = numbers.mean(), numbers.std()
        axes.plot([mean - spread, mean + spread], [row, row], color=X.colour, linewidth=ROAD)
        axes.plot([mean, mean], [row - 0.28, row + 0.28], color=INK, linewidth=3)
    for feature, marker in enumerate(MARKERS[: len(rows[0])]):
        places = [numbers[feature] for numbers in rows]
        axes.plot(places, range(len(rows)), color=QUIET, linewidth=1.5, linestyle="dashed")
        axes.plot(places, range(len(rows)), marker, color=INK, markersize=11, mec="white")
    low, top = min(map(np.min, rows)), max(map(np.max, rows))
    axes.set(xlim=(low - 0.6, top + 0.6), ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), list(stages))
    axes.tick_params(axis="y", length=0)
    axes.set_xticks(range(2 * int(np.ceil(low / 2)), int(top) + 1, 2))
    return figure


def orders() -> Picture:
    """Post-norm and pre-norm: the norm stands on the straight road, or in the detour.

    >>> orders()
    """
    figure = new(7, 6.4)
    axes = sheet(figure)
    for x, name, post in ((0.55, "post-norm", True), (4.15, "pre-norm", False)):
        text(axes, x + 1.15, 0.28, name, bold=True)
        text(axes, x, 0.7, "x")
        end = 0.9 + 2 * PITCH
        axes.plot([x, x], [0.9, end], color=X.colour, linewidth=ROAD, solid_capstyle="butt")
        for y, sublayer in ((0.9, "attention"), (0.9 + PITCH, "feed-forward")):
            _detour(axes, x, y, sublayer, post)
        axes.plot(
            [x, x], [end, end + 0.34], color=X.colour, linewidth=ROAD, linestyle=(0, (1, 0.7))
        )
        text(axes, x + 0.55, end + 0.2, "more blocks", across="left", colour=QUIET)
        if not post:
            _node(axes, Box(x - 0.4, end + 0.43, 0.8, 0.42), "norm", dark=True)
            text(axes, x + 0.55, end + 0.65, "at the end", across="left", colour=QUIET)
    return figure


def _detour(axes: Axes, x: float, y: float, sublayer: str, post: bool) -> None:
    """One sublayer beside the road, which comes down at x; the detour leaves it at y."""
    branch, leave = x + 1.75, y + 0.14
    plus = y + (1.5 if post else 1.85)
    box = Box(branch - 0.875, y + (0.62 if post else 1.0), 1.75, 0.44)
    axes.plot([x, branch], [leave, leave], color=INK, linewidth=LINE)
    before: Point = (branch, leave)
    if not post:
        norm = Box(branch - 0.4, y + 0.32, 0.8, 0.42)
        axes.plot([branch, branch], [leave, norm.y], color=INK, linewidth=LINE)
        _node(axes, norm, "norm", dark=True)
        before = norm.south
    arrow(axes, before, box.north, gap=0)
    _node(axes, box, sublayer)
    axes.plot([branch, branch], [box.bottom, plus], color=INK, linewidth=LINE)
    arrow(axes, (branch, plus), (x + 0.2, plus), gap=0)
    axes.add_patch(Circle((x, plus), 0.2, facecolor="white", edgecolor=INK, lw=LINE, zorder=2.5))
    text(axes, x, plus, "+")
    if post:
        _node(axes, Box(x - 0.4, plus + 0.3, 0.8, 0.42), "norm", dark=True)


def _node(axes: Axes, box: Box, words: str, *, dark: bool = False) -> None:
    face, ink = (INK, "white") if dark else ("white", INK)
    place = Rectangle((box.x, box.y), box.width, box.height, facecolor=face, linewidth=0)
    place.set_zorder(2.4)
    axes.add_patch(place)
    outline(axes, box)
    text(axes, *box.centre, words, colour=ink)


def gradients(
    by_block: Mapping[str, ArrayLike], depths: Sequence[int], by_depth: Mapping[str, ArrayLike]
) -> Picture:
    """The size of the gradient: at each block of a deep stack, and at the last of each depth.

    Shapes: for each order's name, by_block [seeds, blocks] and by_depth [seeds, depths].

    >>> seeds = np.linspace(0.8, 1.2, 5)[:, None]
    >>> block, depths = np.arange(1, 13), np.array([2, 4, 8, 12, 24])
    >>> gradients(
    ...     {"post-norm": seeds * 0.6 + 0 * block, "pre-norm": seeds * 0.5 / np.sqrt(block)},
    ...     depths,
    ...     {"post-norm": seeds * 0.5 + 0 * depths, "pre-norm": seeds * 0.5 / np.sqrt(depths)},
    ... )
    """
    figure = new(7, 4.6)
    blocks = max(array(runs).shape[-1] for runs in by_block.values())
    panels = (
        (curves.Panel(f"{blocks} blocks", by_block, top=None), range(1, blocks + 1), "block"),
        (curves.Panel("last block", by_depth, top=None), depths, "blocks in all"),
    )
    lowest = min(array(runs).min() for kinds in (by_block, by_depth) for runs in kinds.values())
    highest = max(array(runs).max() for kinds in (by_block, by_depth) for runs in kinds.values())
    for left, (panel, at, across) in zip((1.05, 4.3), panels, strict=True):
        box, up = Box(left, 0.5, 2.35, 2.75), "" if left > 2 else "gradient"
        axes = chart(figure, box, title=panel.title, across=across, up=up)
        curves.draw(axes, panel, curves.looks([panel]), list(at))
        axes.set(yscale="log", ylim=(lowest / 1.5, highest * 1.5))
        axes.set_xticks([at[0], at[len(at) // 2], at[-1]])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter("{x:g}")
        if not up:
            axes.tick_params(labelleft=False)  # its neighbour says it
    curves.legend(figure, [panel for panel, _, _ in panels], "")
    return figure


def training(runs: Mapping[int, Mapping[str, ArrayLike]], guess: float) -> Picture:
    """The share of right answers as training goes, both orders, a panel for each depth.

    Shapes: for each depth, the names of the orders and their runs [seeds, steps].

    >>> rng = np.random.default_rng(0)
    >>> right = 0.1 + 0.9 * (1 - np.exp(-np.linspace(0, 4, 100) * rng.uniform(0.8, 1.2, (5, 1))))
    >>> flat = 0.1 + 0.02 * rng.random((5, 100))
    >>> training(
    ...     {
    ...         2: {"post-norm": right, "pre-norm": right**1.2},
    ...         12: {"post-norm": flat, "pre-norm": right},
    ...     },
    ...     guess=0.1,
    ... )
    """
    return curves.learning(
        [
            curves.Panel(f"{depth} blocks", kinds, [guess], up="" if row % 2 else "share right")
            for row, (depth, kinds) in enumerate(runs.items())
        ]
    )
