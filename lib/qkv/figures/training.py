"""Chapter 09: the shift of teacher forcing, who waits for whom, and time against length."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import ArrayLike

from qkv.figures import curves
from qkv.figures.grid import FAINT, OUTPUT, Role, X, alike, array, at_most, tile
from qkv.figures.picture import QUIET, Box, Picture, arrow, chart, new, sheet, text

MOST_TOKENS = 4


def teacher_forcing(target: str = "941", start: str = ">") -> Picture:
    """In training the input is the target, one place later; in writing it is what was written.

    Shapes: one character a token, at most 4.

    >>> teacher_forcing("941")
    """
    at_most(MOST_TOKENS, tokens=len(target))
    figure = new(7, 5.7)
    axes = sheet(figure)
    given = start + target[:-1]
    for y, name, above, role in (
        (0.35, "training: one pass", "target", X),
        (3.3, "writing: one pass a token", "written", OUTPUT),
    ):
        text(axes, 0.15, y, name, across="left", bold=True)
        top = _tiles(axes, y + 0.3, target, role)
        bottom = _tiles(axes, y + 1.5, given, X)
        text(axes, 0.15, top[0].centre[1], above, across="left")
        text(axes, 0.15, bottom[0].centre[1], "decoder's input", across="left")
        for here, following in zip(top, bottom[1:], strict=False):
            arrow(axes, (here.right - 0.12, here.bottom), (following.x + 0.12, following.y))
        if role is OUTPUT:
            for asked, answer in zip(bottom, top, strict=True):
                arrow(axes, asked.north, answer.south, colour=QUIET)
    return figure


def _tiles(axes: Axes, y: float, words: str, role: Role) -> list[Box]:
    # One tile a token.
    pitch = 4.5 / len(words)
    boxes = [Box(2.4 + j * pitch, y, 0.62, 0.55) for j in range(len(words))]
    for box, word in zip(boxes, words, strict=True):
        tile(axes, box, role, words=word, framed=True)
    return boxes


def ladders(n: int = 4) -> Picture:
    """Who waits for whom: an RNN's states, a Transformer in training, and one that writes.

    Shapes: n tokens, at most 4. Thick arrows are steps that wait for the one before.

    >>> ladders()
    """
    at_most(MOST_TOKENS, tokens=n)
    figure = new(7, 5.9)
    axes = sheet(figure)
    for row, (name, says) in enumerate(
        (
            ("RNN", "n steps"),
            ("Transformer,\ntraining", "1 step"),
            ("Transformer,\nwriting", "n steps"),
        )
    ):
        y, pitch = 0.2 + 1.95 * row, 0.98
        text(axes, 0.15, y + 0.75, name, across="left")
        text(axes, 6.85, y + 0.75, says, across="right")
        inputs = [Box(1.95 + j * pitch, y + 1.1, 0.42, 0.42) for j in range(n)]
        outputs = [Box(box.x, y, box.width, box.height) for box in inputs]
        for boxes, role in ((inputs, X), (outputs, OUTPUT)):
            for box in boxes:
                tile(axes, box, role, framed=True)
        for i, j in np.ndindex(n, n):
            if i == j or (row > 0 and j < i):  # a mask lets token i see the tokens j <= i
                end = outputs[i].x + (j + 0.5) * outputs[i].width / n if row else inputs[j].north[0]
                colour = FAINT if row == 2 and j < i else QUIET
                arrow(axes, inputs[j].north, (end, outputs[i].bottom), colour=colour, width=1.2)
        for here, above, following in zip(outputs, outputs[1:], inputs[1:], strict=False):
            if row == 0:
                arrow(axes, here.east, above.west, width=4)
            if row == 2:
                arrow(axes, (here.right, here.bottom), (following.x, following.y), width=4)
    return figure


def accuracies(
    epochs: ArrayLike,
    sequences: Mapping[str, ArrayLike],
    tokens: Mapping[str, ArrayLike],
    guess: float,
) -> Picture:
    """The share of right sequences and of right tokens while a model learns; guessing dotted.

    Shapes: one run a seed, [seeds, epochs] for each way of asking.

    >>> forced = np.array([[0.2, 0.7, 0.9, 1.0], [0.3, 0.8, 0.9, 1.0]])
    >>> ways = {"teacher-forced": forced, "free-running": forced**1.5}
    >>> accuracies([2, 4, 6, 8], {name: runs**3 for name, runs in ways.items()}, ways, 0.24)
    """
    panels = [
        curves.Panel("sequences", sequences, up="right"),
        curves.Panel("tokens", tokens, [guess]),
    ]
    figure = curves.learning(panels, times=epochs, across="epoch", baseline="guess")
    last = int(array(epochs)[-1])
    for axes in figure.axes:
        if axes.get_xlabel():  # not the sheet of the names
            axes.set_xticks([last // 2, last])
    return figure


def times(lengths: Sequence[int], seconds: Mapping[str, ArrayLike]) -> Picture:
    """Time against length, both on logarithmic axes: twice as long is one step to the right.

    Shapes: n lengths, each with a tick; for each name n times in seconds, at most 4 names.

    >>> times(
    ...     [8, 32, 128, 512],
    ...     {
    ...         "RNN": [2e-4, 7e-4, 2.5e-3, 1e-2],
    ...         "training": [2e-4, 2.2e-4, 4e-4, 3e-3],
    ...         "writing": [3e-3, 1e-2, 4e-2, 1.7e-1],
    ...     },
    ... )
    """
    panel = curves.Panel("", {name: [array(values)] for name, values in seconds.items()})
    looks = curves.looks([panel])
    figure = new(7, 4.3)
    axes = chart(figure, Box(1.15, 0.25, 5.6, 2.7), across="tokens", up="ms")
    for name, values in seconds.items():
        alike(lengths=len(lengths), times=len(array(values)))
        colour, dashes = looks[name]
        axes.plot(lengths, 1000 * array(values), color=colour, linestyle=dashes, linewidth=3)
    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    curves.legend(figure, [panel], "")
    return figure
