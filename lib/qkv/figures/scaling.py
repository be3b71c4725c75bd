"""Chapter 02: why scores are divided by the root of d_k."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from qkv.figures import curves
from qkv.figures.grid import FAINT, WEIGHTS, array, at_most
from qkv.figures.picture import INK, LINE, Box, Picture, chart, new, sheet, text

STYLES = ("solid", (0, (4, 1.5)), (0, (1.2, 1)))


def spread(dots: Mapping[int, ArrayLike]) -> Picture:
    """Three histograms of q·k on one axis, the root of d_k marked; divided by it, all three alike.

    Shapes: for each d_k, the dot products of n pairs [n].

    >>> rng = np.random.default_rng(0)
    >>> spread({d: rng.normal(size=(2, 5000, d)).prod(axis=0).sum(axis=-1) for d in (4, 64, 512)})
    """
    at_most(len(STYLES), widths=len(dots))
    figure = new(7, 5.2)
    words, high, gap = sheet(figure), 0.95, 0.25
    reach = 3 * max(dots) ** 0.5
    right = chart(figure, Box(4.9, 0.9, 1.8, 3 * high + 2 * gap), across="$q·k$ / $\\sqrt{d_k}$")
    for row, (d_k, values) in enumerate(dots.items()):
        products, root = array(values), d_k**0.5
        left = chart(figure, Box(0.3, 0.9 + row * (high + gap), 4.2, high), across="$q·k$")
        heights, edges = np.histogram(products, bins=60, range=(-reach, reach))
        left.stairs(heights, edges, fill=True, color=FAINT)
        _marks(left, root)
        top = 1.1 * float(heights.max())
        left.set(xlim=(-reach, reach), ylim=(0, top), xticks=[-50, 0, 50])
        text(left, -reach, 0.9 * top, f"$d_k$ = {d_k}", across="left", down="top")
        text(left, reach, 0.9 * top, f"±{root:.1f}", across="right", down="top")
        if row < len(dots) - 1:
            left.set(xticklabels=[], xlabel="")
        heights, edges = np.histogram(products / root, bins=25, range=(-4, 4), density=True)
        middles = (edges[1:] + edges[:-1]) / 2
        right.plot(middles, heights, color=INK, linewidth=LINE, linestyle=STYLES[row])
    _marks(right, 1)
    right.set(xlim=(-4, 4), xticks=[-1, 1])
    right.set_ylim(bottom=0)
    text(words, 2.4, 0.4, "as they are")
    text(words, 5.8, 0.4, "divided")
    return figure


def _marks(axes: Axes, spread: float) -> None:
    for at in (-spread, spread):
        axes.axvline(at, color=INK, linewidth=LINE, linestyle=(0, (2, 1)))
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])


def sharpening(scores: Sequence[float] = (2, 1, 0.5), marked: Sequence[int] = (1, 8)) -> Picture:
    """The weights of three scores as all are multiplied by t: soon the largest takes everything.

    >>> sharpening()
    """
    at_most(len(STYLES), scores=len(scores))
    figure = new(7, 4.2)
    axes = chart(figure, Box(0.9, 0.3, 5.9, 3.1), across="scores × t", up="weight")
    t = np.linspace(0, 10, 201)
    for row, score in enumerate(scores):
        weight = [_softmax(at * np.asarray(scores))[row] for at in t]
        axes.plot(t, weight, color=WEIGHTS.colour, linewidth=3.5, linestyle=STYLES[row])
        dots = [_softmax(at * np.asarray(scores))[row] for at in marked]
        axes.plot(marked, dots, "o", color=INK, markersize=9, clip_on=False)
        y = 0.6 - 0.14 * row
        axes.plot([2.6, 3.5], [y, y], color=WEIGHTS.colour, linewidth=3.5, linestyle=STYLES[row])
        text(axes, 4.3, y, f"{score:g}")
        for x, dot, digits in zip((5.9, 7.9), dots, (2, 4), strict=True):
            text(axes, x, y, f"{dot:.{digits}f}")
    for x, title in zip((4.3, 5.9, 7.9), ("score", *(f"t = {m}" for m in marked)), strict=True):
        text(axes, x, 0.76, title)
    axes.set(xlim=(0, 10), ylim=(0, 1.02), xticks=[0, *marked], yticks=[0, 0.5, 1])
    return figure


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    shares = np.exp(scores - scores.max())
    return np.asarray(shares / shares.sum())


def saturation(
    widths: Sequence[int],
    entropy: Mapping[str, ArrayLike],
    slope: Mapping[str, ArrayLike],
    *,
    n_kv: int = 16,
) -> Picture:
    """Entropy of the weights and size of the softmax's slopes against d_k, divided and not.

    Shapes: widths [m]; entropy and slope, each kind's name and its numbers [seeds, m].

    >>> more = np.array([[1.02], [0.98]])
    >>> saturation(
    ...     [4, 16, 64, 256, 1024],
    ...     {
    ...         "divided": more * [2.38, 2.36, 2.36, 2.36, 2.36],
    ...         "not divided": more * [1.76, 0.89, 0.41, 0.20, 0.09],
    ...     },
    ...     {
    ...         "divided": more * [0.294, 0.301, 0.304, 0.304, 0.304],
    ...         "not divided": more * [0.333, 0.330, 0.113, 0.006, 0],
    ...     },
    ... )
    """
    figure = new(7, 4.5)
    panels = (
        curves.Panel("entropy", entropy, [np.log(n_kv)], top=3),
        curves.Panel("slope", slope, top=0.4),
    )
    for left, panel in zip((0.65, 4.25), panels, strict=True):
        axes = chart(figure, Box(left, 0.5, 2.35, 2.75), title=panel.title, across="$d_k$")
        curves.draw(axes, panel, curves.looks(panels), widths)
        for line in axes.lines[: len(panel.runs)]:
            line.set(marker="o", markersize=8, clip_on=False)
        axes.set_xscale("log", base=2)
        axes.set_xticks([widths[0], 64, widths[-1]], [str(widths[0]), "64", str(widths[-1])])
        axes.minorticks_off()
    curves.legend(figure, panels, "all alike")
    return figure


def with_and_without(runs: Mapping[int, Mapping[str, ArrayLike]], guess: float) -> Picture:
    """The weight on the right key as training goes, with and without the division; a panel a d_k.

    Shapes: for each d_k, the names of the two kinds and their runs [seeds, steps].

    >>> rng = np.random.default_rng(0)
    >>> right = 1 - np.exp(-np.linspace(0, 4, 100) * rng.uniform(0.8, 1.2, (5, 1)))
    >>> with_and_without(
    ...     {
    ...         16: {"divided": right, "not divided": right**1.1},
    ...         512: {"divided": right, "not divided": 0.1 * right},
    ...     },
    ...     guess=1 / 16,
    ... )
    """
    return curves.learning(
        [
            curves.Panel(
                f"$d_k$ = {d_k}", kinds, [guess], up="" if row % 2 else "weight on right key"
            )
            for row, (d_k, kinds) in enumerate(runs.items())
        ]
    )
