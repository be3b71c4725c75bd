"""Chapter 12: layer norm's three terms, where gradients meet, how well they were checked."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle, Rectangle
from numpy.typing import ArrayLike

from qkv.figures.grid import X, alike, array, at_most
from qkv.figures.picture import INK, LINE, QUIET, Box, Picture, arrow, chart, new, sheet, text

BACK = "#4B3FA8"  # gradients on their way back, and the limit they are held to
ROAD = 9.0  # points, as in chapter 07


def three_terms(terms: Mapping[str, ArrayLike]) -> Picture:
    """Terms of a sum as panels of bars, a bar for each feature, and their sum as the last panel.

    Shapes: for each term's name, its d features [d], at most four terms.

    >>> three_terms(
    ...     {
    ...         "itself": [0, 0, 0, 0.53],
    ...         "− mean": [-0.13, -0.13, -0.13, -0.13],
    ...         "− spread": [0.22, 0.11, 0, -0.33],
    ...     }
    ... )
    """
    rows = [array(numbers) for numbers in terms.values()]
    at_most(4, terms=len(rows))
    alike(**{f"features of {name!r}": len(row) for name, row in zip(terms, rows, strict=True)})
    total = np.sum(rows, axis=0)
    names, panels = [*terms, "sum"], [*rows, total]
    reach = 1.12 * max(np.abs(row).max() for row in panels)
    wide, gap, left = 1.16, 0.43, 0.85
    figure = new(7, 3.2)
    page = sheet(figure)
    for number, (name, row) in enumerate(zip(names, panels, strict=True)):
        x, last = left + number * (wide + gap), number == len(rows)
        axes = chart(figure, Box(x, 0.5, wide, 2.15), title=name)
        face, hatch = (INK, "") if last else ("white", "///")
        axes.bar(
            np.arange(1, len(row) + 1), row, 0.7, color=face, edgecolor=INK if last else BACK,
            hatch=hatch, linewidth=LINE,
        )  # fmt: skip
        axes.axhline(0, color=INK, linewidth=1)
        axes.set(ylim=(-reach, reach), xlim=(0.3, len(row) + 0.7))
        axes.set_xticks(range(1, len(row) + 1))
        axes.set_yticks([-0.5, 0, 0.5] if reach > 0.5 else [0])
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="x", length=0)
        if number:
            axes.tick_params(labelleft=False)
            axes.spines["left"].set_visible(False)
            axes.tick_params(axis="y", length=0)
            text(page, x - gap / 2, 1.575, "=" if last else "+", bold=True)
    return figure


def residuals_back() -> Picture:
    """A gradient comes up a residual from below: the road copies it, the detour adds its own.

    >>> residuals_back()
    """
    figure = new(7, 4.2)
    axes = sheet(figure)
    for x, name, post in ((0.75, "post-norm", True), (4.35, "pre-norm", False)):
        text(axes, x + 0.8, 0.28, name, bold=True)
        _residual_back(axes, x, post)
    return figure


def _residual_back(axes: Axes, x: float, post: bool) -> None:
    """One residual with its road at x; forward goes down, the gradients come up."""
    branch, top, plus, bottom = x + 1.45, 1.05, 2.95 if post else 3.25, 3.75
    axes.plot([x, x], [top, bottom], color=X.colour, linewidth=ROAD, alpha=0.5)
    text(axes, x, bottom + 0.2, "$g$")
    axes.plot([x, branch], [plus, plus], color=BACK, linewidth=3)
    spots = [(1.8, "sublayer")] if post else [(1.5, "norm"), (2.45, "sublayer")]
    axes.plot([branch, branch], [top, plus], color=BACK, linewidth=3, zorder=1.5)
    arrow(axes, (branch, top), (x + 0.22, top), colour=BACK, gap=0, width=3)
    arrow(axes, (x, bottom), (x, top + 0.2), colour=BACK, gap=0, width=3)
    arrow(axes, (x, top - 0.18), (x, 0.62), colour=BACK, gap=0, width=3)
    for y, words in spots:
        _node(axes, Box(branch - 0.65, y, 1.3, 0.44), words, dark=words == "norm")
    if post:
        _node(axes, Box(x - 0.4, plus + 0.2, 0.8, 0.44), "norm", dark=True)
    axes.add_patch(Circle((x, top), 0.2, facecolor="white", edgecolor=INK, lw=LINE, zorder=2.5))
    text(axes, x, top, "+")
    axes.add_patch(Circle((x, plus), 0.09, facecolor=BACK, linewidth=0, zorder=2.5))


def memory_meets(n_blocks: int = 3) -> Picture:
    """Each decoder block sends a gradient to the memory; there they add up and go on together.

    >>> memory_meets()
    """
    at_most(4, n_blocks=n_blocks)
    high, pitch, top = 0.62, 0.98, 0.85
    foot = top + n_blocks * pitch
    figure = new(7, round(foot + 0.55, 1))
    axes = sheet(figure)
    stack, hub, left = 4.4, 3.2, 0.2
    middle = top + ((n_blocks - 1) * pitch + high) / 2
    for number in range(n_blocks):
        y = top + number * pitch
        box = Box(stack, y, 2.4, high)
        _node(axes, box, f"block {number + 1}")
        arrow(axes, box.west, (hub + 0.2, middle), colour=BACK, width=3, gap=2)
        below = (box.south[0], y + pitch)
        arrow(axes, below, box.south, colour=BACK, width=3, gap=1)
    # Forward goes down, as in chapter 07, so the loss is at the foot and gradients rise.
    text(axes, stack + 1.2, foot + 0.15, "loss", colour=QUIET)
    arrow(axes, (stack + 1.2, top), (stack + 1.2, top - 0.4), colour=BACK, width=3, gap=1)
    text(axes, stack + 1.2, top - 0.58, "target ids", colour=QUIET)
    axes.add_patch(Circle((hub, middle), 0.2, facecolor="white", edgecolor=INK, lw=LINE))
    text(axes, hub, middle, "+")
    encoder = Box(left, middle - 0.55, 1.6, 1.1)
    _node(axes, encoder, "encoder")
    arrow(axes, (hub - 0.2, middle), encoder.east, colour=BACK, width=3, gap=1)
    text(axes, hub - 0.1, middle - 0.3, "memory", across="right", down="bottom")
    arrow(axes, encoder.north, (encoder.north[0], encoder.y - 0.4), colour=BACK, width=3, gap=1)
    text(axes, encoder.north[0], encoder.y - 0.58, "source ids", colour=QUIET)
    return figure


def errors(found: Mapping[str, float], line: float = 1e-6) -> Picture:
    """How far each layer's backward is from differences, dots on a log axis, with a line.

    >>> errors(
    ...     {"linear": 2e-11, "softmax": 1e-10, "layer norm": 3e-10, "whole model": 4e-9}
    ... )
    """
    at_most(14, layers=len(found))
    high = 0.36 * len(found)
    figure = new(7, round(high + 1.5, 1))
    axes = chart(figure, Box(2.35, 0.5, 4.4, high), across="largest relative error")
    heights = np.arange(len(found))
    largest = np.maximum(list(found.values()), 1e-14)  # an error of 0 stands at the edge
    axes.hlines(heights, 1e-14, largest, color=X.colour, linewidth=1)
    axes.plot(largest, heights, "o", color=INK, markersize=11)
    axes.axvline(line, color=BACK, linewidth=3, linestyle="dashed")
    axes.set(xscale="log", xlim=(1e-14, 1e-4), ylim=(len(found) - 0.5, -0.5))
    axes.set_yticks(heights, list(found))
    axes.set_xticks([1e-13, 1e-10, 1e-6])
    axes.minorticks_off()
    axes.tick_params(axis="y", length=0)
    axes.text(line, -0.75, "allowed", color=BACK, size=17, ha="center", va="bottom")
    return figure


def _node(axes: Axes, box: Box, words: str, *, dark: bool = False) -> None:
    face, ink = (INK, "white") if dark else ("white", INK)
    axes.add_patch(
        Rectangle(
            (box.x, box.y),
            box.width,
            box.height,
            facecolor=face,
            edgecolor=INK,
            lw=LINE,
            zorder=2.4,
        )
    )
    text(axes, *box.centre, words, colour=ink)
