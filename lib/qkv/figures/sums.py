"""Chapter 13: where sums go wrong, what the heads look at, which change of the recipe did what."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from qkv.figures.curves import LOOKS
from qkv.figures.grid import FAINT, OUTPUT, WEIGHTS, X, alike, array, at_most, lines, mix, tile
from qkv.figures.picture import INK, LINE, QUIET, Box, Picture, chart, new, outline, sheet, text
from qkv.sums import LARGEST_SUM, PAD, SYMBOLS

DIGITS = ("1st", "2nd", "3rd")  # from left to right, as a sum is written
CARRIES = (0, 1, 2)  # as many as there can be: nothing is carried out of the first of three digits
BARS = tuple(zip((look[0] for look in LOOKS), ("", "--", "++"), strict=False))  # no role's hatch
WRONG = "#B00020"
THICK = 5.0  # points: a frame about a digit that is wrong
RING: dict[str, Any] = {"color": INK, "fillstyle": "none", "markersize": 13, "mew": 1.5}
DOT: dict[str, Any] = {"color": LOOKS[2][0], "markeredgecolor": "white", "markersize": 11}


def by_carries(right: ArrayLike, *, counts: Sequence[int]) -> Picture:
    """The share of wrong digits at each place, by how many carries the sum has; a bar is the mean.

    A thin line is the range over the seeds; a 0 is no mistake; a dash is no sum: NaN for all seeds.

    Shapes: right [seeds, 3 digits, 3 numbers of carries], the share that is right; counts [3], how
    many sums have 0, 1 and 2 carries.

    >>> seed = [[0.99, 0.98, 0.97], [0.97, 0.9, 0.86], [0.98, 0.95, 0.97]]
    >>> by_carries([seed, np.square(seed)], counts=[234, 201, 65])
    """
    wrong = 1 - _shares("right", right)
    if wrong.shape[1:] != (len(DIGITS), len(CARRIES)) or not len(wrong):
        raise ValueError(
            f"right has shape {wrong.shape}, expected [seeds, {len(DIGITS)} digits,"
            f" {len(CARRIES)} numbers of carries]"
        )
    alike(counts=len(counts), numbers_of_carries=len(CARRIES))
    figure = new(7, 4.2)
    axes = chart(figure, Box(1.25, 0.3, 5.5, 2.55), across="digit, as written", up="share wrong")
    for digit, carries in np.ndindex(wrong.shape[1:]):
        x, (colour, hatch) = digit + 0.27 * (carries - 1), BARS[carries]
        found = wrong[:, digit, carries]
        empty = np.isnan(found)
        if empty.any() != empty.all():
            raise ValueError(
                f"right is NaN for some seeds only, at the {DIGITS[digit]} digit with {carries}"
                " carries: give NaN for all seeds where there are no sums, and for none elsewhere"
            )
        if empty.all() or not found.any():  # a bar of height 0 would be overlooked
            words = "–" if empty.all() else "0"
            text(axes, x, 0, words, colour=colour, bold=True, down="bottom")
            continue
        bar = axes.bar(x, found.mean(), 0.25, color=mix(colour, 0.35), linewidth=LINE)
        bar[0].set(edgecolor=colour, hatch=hatch)
        for edge, width in (("white", 6.0), (INK, LINE)):  # the line has a rim: hatches stop there
            axes.plot([x, x], [found.min(), found.max()], color=edge, linewidth=width)
    axes.set(xlim=(-0.5, len(DIGITS) - 0.5), ylim=(0, 1.08 * np.nanmax(wrong, initial=0) or 0.01))
    axes.set_xticks(range(len(DIGITS)), DIGITS)
    axes.tick_params(axis="x", length=0)
    axes.locator_params(axis="y", nbins=4)
    page, y = sheet(figure), 3.9
    text(page, 0.15, y, "carries (sums):", across="left")
    for carries, (colour, hatch) in zip(CARRIES, BARS, strict=True):
        x = 2.15 + 1.6 * carries
        swatch = Rectangle((x, y - 0.15), 0.36, 0.3, facecolor=mix(colour, 0.35), lw=LINE)
        swatch.set(edgecolor=colour, hatch=hatch)
        page.add_patch(swatch)
        text(page, x + 0.45, y, f"{carries} ({counts[carries]})", across="left")
    return figure


def _shares(name: str, values: ArrayLike) -> NDArray[np.float64]:
    shares = array(values)
    if (shares < 0).any() or (shares > 1).any():
        raise ValueError(
            f"{name} has numbers from {np.nanmin(shares):g} to {np.nanmax(shares):g}, expected"
            " shares in 0 … 1"
        )
    return shares


def heads(weights: ArrayLike, *, source: Sequence[str], written: Sequence[str]) -> Picture:
    """What each head gives to the source while a token is written: one thin row a seed.

    Shapes: weights [seeds, h, n_target, n_source], means over many sums, each row sums to 1;
    n_source labels of one or two characters and n_target labels.

    >>> early, late = [0.8, 0, 0, 0, 0.2, 0], [0, 0.1, 0.4, 0, 0.1, 0.4]
    >>> weights = np.array([[early, early, late], [late, early, early]])
    >>> heads(
    ...     [weights, weights[::-1], weights, weights, weights],
    ...     source=["a1", "a2", "a3", "+", "b1", "b2"],
    ...     written=["1st", "2nd", "3rd"],
    ... )
    """
    table = array(weights)
    if table.ndim != 4 or table.shape[2:] != (len(written), len(source)):
        raise ValueError(
            f"weights have shape {table.shape}, expected [seeds, h, {len(written)}, {len(source)}]"
            f" for {len(written)} written and {len(source)} source labels"
        )
    seeds, h, n_target, n_source = table.shape
    at_most(5, seeds=seeds)
    at_most(4, heads=h)
    at_most(3, written=n_target)
    at_most(6, source=n_source)
    at_most(2, **{"characters in a source label": max(map(len, source))})
    left, top, gap, thin = 1.12, 1.2, 0.2, 0.16
    wide, high = (6.85 - left + gap) / n_target, seeds * thin
    figure = new(7, round(top + h * (high + gap) + 0.4, 1))
    axes = sheet(figure)
    for i, j in np.ndindex(h, n_target):
        box = Box(left + j * wide, top + i * (high + gap), wide - gap, high)
        cell = box.width / n_source
        for seed, column in np.ndindex(seeds, n_source):
            place = Box(box.x + column * cell, box.y + seed * thin, cell, thin)
            tile(axes, place, WEIGHTS, strength=float(table[seed, i, j, column]))
        lines(axes, box, seeds, n_source, frame=WEIGHTS.colour, inner=FAINT)
        if j == 0:
            text(axes, left - 0.1, box.centre[1], f"head {i + 1}", across="right")
        if i == 0:
            text(axes, box.centre[0], 0.22, written[j], bold=True)
            for column, label in enumerate(source):
                x = box.x + (column + 0.5) * cell
                text(axes, x, top - 0.08, "\n".join(label), down="bottom")
    text(axes, left - 0.1, 0.22, "written", across="right")
    text(axes, left, box.bottom + 0.1, "one thin row a seed", across="left", down="top")
    return figure


def gallery(sums: Sequence[tuple[int, int, str]]) -> Picture:
    """Wrong sums: what is right in grey, below it what was written; wrong digits framed, crossed.

    Ones stand under ones. A small 1 stands above each column that receives a carry.

    Shapes: at most six sums (a, b, what was written): up to three symbols, padding may be left out.

    >>> gallery(
    ...     [(295, 7, "292"), (95, 5, "90_"), (328, 7, "325"), (199, 1, "190"), (3, 33, "46")]
    ... )
    """
    if not sums:
        raise ValueError("sums is empty: give one (a, b, written) or more")
    at_most(6, sums=len(sums))
    rows = -(-len(sums) // 3)
    across = -(-len(sums) // rows)  # four stand two by two
    high, left = 2.5, 1.1
    pitch = (7 - left) / across
    figure = new(7, rows * high + 0.1)
    axes = sheet(figure)
    for number, (a, b, written) in enumerate(sums):
        row, column = divmod(number, across)
        y = 0.1 + row * high
        if column == 0:
            text(axes, 0.1, y + 1.08, "right", across="left")
            text(axes, 0.1, y + 1.73, "written", across="left")
        _sum(axes, left + (column + 0.5) * pitch, y, a, b, written)
    return figure


def _sum(axes: Axes, middle: float, y: float, a: int, b: int, written: str) -> None:
    places, pitch, side = len(str(LARGEST_SUM)), 0.59, 0.5
    if min(a, b) < 0 or a + b > LARGEST_SUM:
        raise ValueError(f"sums has {a} + {b}, expected a, b ≥ 0 and a + b ≤ {LARGEST_SUM}")
    if len(written) > places:
        raise ValueError(f"sums has {written!r} written, expected at most {places} symbols")
    text(axes, middle, y + 0.2, f"{a} + {b}")
    right, got = str(a + b).rjust(places), written.rstrip(SYMBOLS[PAD]).rjust(places)
    for column in range(places):
        x = middle + (column - places / 2) * pitch + (pitch - side) / 2
        above, below = Box(x, y + 0.83, side, side), Box(x, y + 1.48, side, side)
        ten = 10 ** (places - 1 - column)  # 1 where the ones stand, which receive nothing
        if a % ten + b % ten >= ten:
            text(axes, above.centre[0], above.y - 0.17, "1", colour=QUIET)
        for box, role, digit in ((above, X, right[column]), (below, OUTPUT, got[column])):
            if digit != " ":
                tile(axes, box, role, words=digit, framed=True)
        if got[column] != right[column]:
            outline(axes, below, colour=WRONG, width=THICK)
            text(axes, below.centre[0], below.bottom + 0.2, "×", colour=WRONG, bold=True, size=22)


def ladder(steps: Mapping[str, ArrayLike]) -> Picture:
    """What each change of a recipe brings: a ring a seed, a dot and a number for their mean.

    Shapes: for each step, in order, the shares of right test sequences [seeds].

    >>> ladder(
    ...     {
    ...         "one head, SGD": [0.31, 0.42, 0.38, 0.29, 0.35],
    ...         "+ AdamW, rate goes up and down": [0.78, 0.84, 0.81, 0.7, 0.8],
    ...         "+ four heads": [0.93, 0.95, 0.91, 0.96, 0.94],
    ...     }
    ... )
    """
    if not steps:
        raise ValueError("steps is empty: give one step or more")
    at_most(8, steps=len(steps))
    rows = {name: _shares(f"steps[{name!r}]", found) for name, found in steps.items()}
    for name, found in rows.items():
        if found.ndim != 1 or not len(found) or np.isnan(found).any():
            raise ValueError(
                f"steps[{name!r}] is {found.tolist()}, expected a share for each seed: [seeds]"
            )
    everything = np.concatenate(list(rows.values()))
    high = max(0.1, np.ceil(10 * everything.max()) / 10)
    low = min(np.floor(10 * everything.min()) / 10, high - 0.1)
    left, top, pitch = 0.4, 0.45, 0.82
    tall = pitch * len(rows)
    figure = new(7, round(top + tall + 1.3, 1))
    axes = chart(figure, Box(left, top, 5.4, tall), across="share of right test sequences")
    page = sheet(figure)
    text(page, 6.85, 0.25, "mean", across="right", bold=True)
    for number, (name, found) in enumerate(rows.items()):
        at = np.full(len(found), number + 0.7)
        text(page, left - 0.25, top + pitch * (number + 0.25), name, across="left")
        axes.axhline(at[0], color=FAINT, linewidth=1, zorder=1)
        axes.plot([found.min(), found.max()], at[[0, 0]], color=QUIET, linewidth=3)
        axes.plot(found, at, "o", **RING)
        axes.plot(found.mean(), at[0], "o", **DOT)
        text(page, 6.85, top + pitch * (number + 0.7), f"{found.mean():.3f}", across="right")
    reach = 0.03 * (high - low)
    axes.set(ylim=(len(rows), 0), xlim=(low - reach, high + reach), yticks=[])
    axes.set_xticks([low, high], [f"{low:.1f}", f"{high:.1f}"])
    axes.spines["left"].set_visible(False)
    for x, name, look in ((left, "a seed", RING), (left + 1.5, "mean", DOT)):
        page.plot(x, top + tall + 1.05, "o", **look)
        text(page, x + 0.2, top + tall + 1.05, name, across="left")
    return figure
