"""Chapter 06: order that attention does not see, and positions as waves, clocks and distances."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from numpy.typing import ArrayLike, NDArray

from qkv.figures.grid import FAINT, OUTPUT, SCORE_MAP, X, alike, array, at_most, mix, tile
from qkv.figures.picture import INK, LINE, Box, Picture, chart, new, outline, sheet, text

ORDERS = (("the", "dog", "saw", "the", "cat"), ("the", "cat", "saw", "the", "dog"))


def bag(
    orders: Sequence[Sequence[str]] = ORDERS,
    without: ArrayLike = ((0.6, -0.4, 0.8, 0.3), (0.6, -0.4, 0.8, 0.3)),
    positioned: ArrayLike = ((0.2, 0.7, -0.5, 0.9), (0.8, 0.3, -0.9, 0.4)),
    asks: int = 2,
) -> Picture:
    """The same words in two orders: one word's output is the same; with positions it is another.

    Shapes: two orders of n words, alike at place `asks`; without and positioned [2, m], the
    numbers of that word's output for each order.

    >>> bag()
    """
    outputs = {"no positions": array(without), "positions": array(positioned)}
    first, second = orders
    alike(words=len(first), words_in_the_other_order=len(second))
    at_most(5, words=len(first))
    for name, numbers in outputs.items():
        if numbers.ndim != 2 or len(numbers) != 2:
            raise ValueError(f"outputs {name!r} have shape {numbers.shape}, expected [2, m]")
        at_most(4, numbers=numbers.shape[1])
    reach = max(float(np.abs(numbers).max()) for numbers in outputs.values()) or 1.0
    figure = new(7, 3.9)
    axes = sheet(figure)
    pitch = 3.2 / len(first)
    text(axes, 1.75, 0.75, "two orders")
    for middle, name in zip((4.4, 6.05), outputs, strict=True):
        text(axes, middle, 0.75, name)
    text(axes, 5.2, 0.3, f"output of {first[asks]}", bold=True)
    for y, (row, words) in zip((1.65, 3.05), enumerate(orders), strict=True):
        for j, word in enumerate(words):
            place = Box(0.15 + j * pitch, y - 0.25, pitch - 0.06, 0.5)
            tile(axes, place, X, words=word, strength=0.45, framed=True)
            if j == asks:
                outline(axes, place, width=4)
        for left, numbers in zip((3.65, 5.4), outputs.values(), strict=True):
            _bars(axes, left, y, numbers[row], reach)
    return figure


def _bars(axes: Axes, left: float, zero: float, numbers: NDArray[np.float64], reach: float) -> None:
    # Up from the line where positive, down from it where negative.
    for j, number in enumerate(numbers):
        tall = 0.65 * float(number) / reach
        bar = Box(left + 0.1 + 0.33 * j, zero - max(tall, 0), 0.27, abs(tall))
        tile(axes, bar, OUTPUT, framed=True)
    axes.plot([left, left + 0.15 + 0.33 * len(numbers)], [zero] * 2, color=INK, linewidth=LINE)


def waves(table: ArrayLike, columns: Sequence[int]) -> Picture:
    """Positions as a heat map, one a row, and a few of its columns as waves beside it.

    Shapes: table [n, d_model], numbers from -1 to 1; at most three columns.

    >>> angle = np.arange(64)[:, None] / 10000 ** (np.arange(0, 32, 2) / 32)
    >>> waves(np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(64, 32), [0, 4, 8])
    """
    numbers = array(table)
    n, width = numbers.shape
    at_most(3, columns=len(columns))
    figure = new(7, 4.6)
    axes = sheet(figure)
    box = Box(0.6, 0.85, 3.1, 3.6)
    _map(axes, box, numbers, 1)
    text(axes, box.x - 0.1, box.y + 0.1, "0", across="right")
    text(axes, box.x - 0.1, box.bottom - 0.1, f"{n - 1}", across="right")
    text(axes, box.x - 0.25, box.centre[1], "position", angle=90)
    text(axes, box.centre[0], 0.25, "column")
    text(axes, 5.4, 0.25, "the same as waves")
    cell = box.width / width
    down = box.y + (np.arange(n) + 0.5) * box.height / n
    for middle, column in zip((4.4, 5.4, 6.4), columns, strict=False):
        text(axes, box.x + (column + 0.5) * cell, box.y - 0.08, f"{column}", down="bottom")
        outline(axes, Box(box.x + column * cell, box.y, cell, box.height), width=1.5)
        text(axes, middle, box.y - 0.08, f"{column}", down="bottom")
        axes.plot([middle] * 2, [box.y, box.bottom], color=FAINT, linewidth=LINE)
        axes.plot(middle + 0.38 * numbers[:, column], down, color=INK, linewidth=LINE)
    return figure


def _map(axes: Axes, box: Box, numbers: NDArray[np.float64], reach: float) -> None:
    # A heat map centred at 0 of more cells than can have lines between them.
    rows, columns = numbers.shape
    across = np.linspace(box.x, box.right, columns + 1)
    down = np.linspace(box.y, box.bottom, rows + 1)
    axes.pcolormesh(across, down, numbers, cmap=SCORE_MAP, vmin=-reach, vmax=reach)
    outline(axes, box)


def clocks(table: ArrayLike, turns: Sequence[float]) -> Picture:
    """Each pair of columns as a clock: its hand at every position, the first ones faintest.

    Shapes: table [n, 2 * faces], a sine and a cosine for each of at most four faces; turns
    [faces], after how many positions each hand is back.

    >>> angle = np.arange(8)[:, None] / 10.0 ** np.arange(4)
    >>> table = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(8, 8)
    >>> clocks(table, 2 * np.pi * 10.0 ** np.arange(4))
    """
    numbers = array(table)
    n, width = numbers.shape
    alike(pairs_of_columns=width // 2, turns=len(turns))
    at_most(4, faces=len(turns))
    figure = new(7, 3.0)
    axes = sheet(figure)
    radius, y = 0.76, 1.3
    for face, turn in enumerate(turns):
        x = 0.88 + 1.75 * face
        axes.add_patch(Circle((x, y), radius, fill=False, edgecolor=INK, linewidth=LINE))
        for p, (sine, cosine) in enumerate(numbers[:, 2 * face : 2 * face + 2]):
            shade = mix(INK, 0.2 + 0.8 * p / max(n - 1, 1))
            tip = (x + 0.9 * radius * sine, y - 0.9 * radius * cosine)  # clockwise, from the top
            axes.plot([x, tip[0]], [y, tip[1]], color=shade, linewidth=2 + 2 * (p == n - 1))
            if face == 0 and p in (0, n - 1):
                text(axes, x + 1.2 * radius * sine, y - 1.22 * radius * cosine, f"{p}")
        text(axes, x, 2.32, f"{turn:.3g}" if turn < 1000 else f"{turn:.0f}", bold=True)
    text(axes, 3.5, 2.72, "positions in one turn")
    return figure


def how_far(products: ArrayLike, row: int) -> Picture:
    """Products of all positions with each other, and one row of them: highest at the row itself.

    Shapes: products [n, n].

    >>> angle = np.arange(50)[:, None] / 10000 ** (np.arange(0, 64, 2) / 64)
    >>> table = np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
    >>> how_far(table @ table.T, 25)
    """
    numbers = array(products)
    if numbers.ndim != 2 or numbers.shape[0] != numbers.shape[1]:
        raise ValueError(f"products have shape {numbers.shape}, expected [n, n]")
    n, most = len(numbers), float(numbers.max())
    figure = new(7, 3.9)
    axes = sheet(figure)
    box = Box(0.65, 0.5, 2.6, 2.6)
    _map(axes, box, numbers, most)
    for p in (0, row, n - 1):
        at = (p + 0.5) / n
        text(axes, box.x - 0.08, box.y + at * box.height, f"{p}", across="right")
        text(axes, box.x + at * box.width, box.y - 0.08, f"{p}", down="bottom")
    cell = box.height / n
    outline(axes, Box(box.x, box.y + row * cell, box.width, cell), width=1.5)
    text(axes, box.centre[0], 3.55, "position · position")
    line = chart(figure, Box(4.2, 0.5, 2.5, 2.6), title=f"row {row}", across="position")
    line.plot(np.arange(n), numbers[row], color=INK, linewidth=3)
    line.set(xlim=(0, n - 1), ylim=(min(0, float(numbers[row].min())), 1.05 * most))
    line.set(xticks=[0, row, n - 1], yticks=[0, round(most)])
    return figure
