"""Learning curves: the median over seeds, a band from the worst to the best, baselines dotted."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from qkv.figures.grid import alike, array
from qkv.figures.picture import INK, LINE, QUIET, TEXT, Box, Picture, chart, new, sheet, text

Look = tuple[str, str | tuple[float, Sequence[float]]]  # a colour, and a line style of matplotlib's

# Colours that stand for no matrix. The dashes tell the curves apart without them.
LOOKS: tuple[Look, ...] = (
    (INK, "solid"),
    ("#857A00", (0, (4, 1.5))),
    ("#4B3FA8", (0, (4, 1.2, 1.2, 1.2))),
    ("#7A4A21", (0, (1.8, 0.8))),
)
SAMPLE = 0.55  # inches: a piece of line before its name
LINE_OF_NAMES = 0.4  # inches: how high one is


class Panel(NamedTuple):
    """What one set of axes shows: each kind of model's name and runs, and where guessing gets.

    Shapes: runs [seeds, times] each. `up` names the upward axis, which ends at `top`; with None it
    ends above the largest number.
    """

    title: str
    runs: Mapping[str, ArrayLike]
    baselines: Sequence[float] = ()
    up: str = ""
    top: float | None = 1.0


def learning(
    panels: Sequence[Panel],
    *,
    times: ArrayLike | None = None,
    across: str = "step",
    baseline: str = "guessing",
) -> Picture:
    """Learning curves, two panels in a row: median and full range over the seeds.

    Shapes: times [times], the same for all panels (default 0, 1, 2, ...).

    >>> rng = np.random.default_rng(0)
    >>> step = np.linspace(0, 1, 50)
    >>> slow, fast = (1 - np.exp(-k * step * rng.uniform(0.7, 1, (5, 1))) for k in (2, 9))
    >>> learning(
    ...     [
    ...         Panel("plain", {"1 head": slow, "4 heads": fast}, [0.12], up="share right"),
    ...         Panel("reversed", {"1 head": slow**2, "4 heads": fast**2}, [0.12]),
    ...     ],
    ...     times=1000 * step,
    ...     across="epoch",
    ... )
    """
    if not panels:
        raise ValueError("panels is empty: give one Panel or more")
    columns = min(len(panels), 2)
    left, gap, margin = 0.85, 0.7, 0.65
    width = (7 - left - margin - (columns - 1) * gap) / columns
    high, above, below = 2.35, 0.45, 0.95
    rows = -(-len(panels) // columns)
    named = _entries(panels, baseline)
    figure = new(7, rows * (above + high + below) + LINE_OF_NAMES * len(named))
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        x, y = left + column * (width + gap), above + row * (above + high + below)
        axes = chart(figure, Box(x, y, width, high), title=panel.title, across=across, up=panel.up)
        draw(axes, panel, looks(panels), times)
        if column and panel.top is not None and panel.top == panels[number - 1].top:
            axes.tick_params(labelleft=False)  # its neighbour says it
    legend(figure, panels, baseline)
    return figure


def looks(panels: Sequence[Panel]) -> dict[str, Look]:
    """A colour and dashes for each name, so that it looks the same in every panel."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.runs))
    if len(names) > len(LOOKS):
        raise ValueError(
            f"panels name {len(names)} curves ({', '.join(names)}), but at most {len(LOOKS)} can "
            "be told apart: draw two pictures"
        )
    return dict(zip(names, LOOKS, strict=False))


def draw(
    axes: Axes, panel: Panel, looks: Mapping[str, Look], times: ArrayLike | None = None
) -> None:
    """One panel's curves, bands and baselines on axes that are there already."""
    if not panel.runs:
        raise ValueError(f"panel {panel.title!r} has no runs: give it at least one kind of model")
    largest = 0.0
    for name, runs in panel.runs.items():
        colour, dashes = looks[name]
        table = array(runs)
        if table.ndim != 2:
            raise ValueError(f"runs {name!r} have shape {table.shape}, expected [seeds, times]")
        at = np.arange(table.shape[1]) if times is None else array(times)
        alike(times=len(at), numbers_a_run=table.shape[1])
        low, high = table.min(axis=0), table.max(axis=0)
        axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(at, np.median(table, axis=0), color=colour, linestyle=dashes, linewidth=3)
        largest = max(largest, float(high.max()))
    axes.set_xlim(at[0], at[-1])
    axes.set_ylim(0, 1.03 * (panel.top or largest))  # room for half a line's width at the top
    axes.locator_params(nbins=2)
    if panel.top is not None:
        axes.set_yticks([0, panel.top / 2, panel.top])
    for height in panel.baselines:
        axes.axhline(height, color=QUIET, linestyle="dotted", linewidth=LINE)
        axes.annotate(
            f"{height:.2f}",
            (1, height),
            (4, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            size=TEXT,
            color=QUIET,
            va="center",
        )


def legend(figure: Picture, panels: Sequence[Panel], baseline: str) -> None:
    """Along the foot of the picture: a piece of each line, and its name."""
    axes, y = sheet(figure), float(figure.get_size_inches()[1]) - 0.25
    for line in reversed(_entries(panels, baseline)):
        x = 0.3
        for name, (colour, dashes) in line:
            axes.plot([x, x + SAMPLE], [y, y], color=colour, linestyle=dashes, linewidth=3)
            written = text(axes, x + SAMPLE + 0.1, y, name, across="left")
            x += SAMPLE + 0.1 + written.get_window_extent().width / figure.dpi + 0.35
        y -= LINE_OF_NAMES


def _entries(panels: Sequence[Panel], baseline: str) -> list[list[tuple[str, Look]]]:
    # The names and how they look, three a line.
    entries = list(looks(panels).items())
    if any(panel.baselines for panel in panels):
        entries.append((baseline, (QUIET, "dotted")))
    return [entries[start : start + 3] for start in range(0, len(entries), 3)]
