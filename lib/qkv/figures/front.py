"""The front page and the card of a shared link: a finished sum, and where the model looked."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from qkv.figures.grid import FILL, OUTPUT, Role, X, alike, array, at_most, halo, mix, tile, weights
from qkv.figures.picture import Box, Picture, new, outline, sheet, text

ROOM = 0.12  # inches between the tiles and the weights they belong to


def looking_back(table: ArrayLike, *, source: Sequence[str], written: Sequence[str]) -> Picture:
    """One head's weights while a sum was written: each digit's row says what it looked at.

    Shapes: table [n_target, n_source], each row sums to 1; n_source and n_target symbols.

    >>> looking_back(
    ...     [[0.9, 0.1, 0, 0, 0, 0], [0, 0.4, 0, 0, 0.6, 0], [0, 0, 0.3, 0, 0, 0.7]],
    ...     source="618+39",
    ...     written="657",
    ... )
    """
    figure = new(7, 4.35)
    axes = sheet(figure)
    _sum(axes, 1.85, 1.3, 0.84, array(table), source, written)
    return figure


def card(table: ArrayLike, *, source: Sequence[str], written: Sequence[str]) -> Picture:
    """What a shared link shows: the course's name, its promise, and the sum of the front page.

    Shapes: as in `looking_back`

    >>> card([[0.6, 0.4], [0.1, 0.9]], source="12", written="34")
    """
    figure = new(8, 4.2)
    axes = sheet(figure)
    text(axes, 0.4, 0.6, "Ask,\nMatch,\nBlend", size=38, bold=True, across="left", down="top")
    text(axes, 0.4, 3.2, "A Transformer,\nbuilt twice", size=20, across="left")
    _sum(axes, 3.95, 1.4, 0.62, array(table), source, written, size=20)
    return figure


def _sum(
    axes: Axes,
    x: float,
    y: float,
    cell: float,
    table: ArrayLike,
    source: Sequence[str],
    written: Sequence[str],
    size: float = 17.0,
) -> None:
    values = array(table)
    alike(rows_of_weights=len(values), written=len(written))
    alike(columns_of_weights=len(values[0]), source=len(source))
    at_most(6, source=len(source))
    at_most(3, written=len(written))
    above, left = y - ROOM - cell, x - ROOM - cell
    for column, symbol in enumerate(source):
        _token(axes, Box(x + column * cell, above, cell, cell), X, symbol)
    for row, symbol in enumerate(written):
        _token(axes, Box(left, y + row * cell, cell, cell), OUTPUT, symbol)
    text(axes, left + cell, above + cell / 2, "reads", size=size, across="right")
    text(axes, left + cell / 2, y + len(values) * cell + 0.08, "writes", size=size, down="top")
    weights(axes, x, y, values, cell=cell, numbers=".2f" if cell > 0.8 else "")


def _token(axes: Axes, box: Box, role: Role, symbol: str) -> None:
    tile(axes, box, role)
    outline(axes, box, colour=role.colour)
    halo(text(axes, *box.centre, symbol, size=28, bold=True), mix(role.colour, FILL))
