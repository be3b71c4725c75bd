"""The drawing grammar and the palette of every picture in the book.

A matrix is a grid of equal square cells: rows are tokens, columns are features or keys. The side
that asks stands on the left, the side that is asked on top, so their product lies where they meet.
Query, key, value, weights and output have one colour and one hatch each. A masked cell is hatched
grey with a dash, so that it is never taken for a small number.

    from qkv.figures.grid import Q, matrix, sizes
    from qkv.figures.picture import arrow, new, sheet

    figure = new(7, 4)          # inches, at 150 dots each
    axes = sheet(figure)        # x to the right and y DOWN, both in inches
    queries = matrix(axes, 0.5, 1.0, rows=4, columns=3, role=Q, name="$Q$")
    sizes(axes, queries, left="$n_q$", top="$d_k$")
    arrow(axes, queries.east, (3.0, queries.east[1]))
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from numpy.typing import ArrayLike, NDArray

from qkv.figures.picture import QUIET, TEXT, Box, outline, text

NAME = 24.0
CELL = 0.34  # inches
FAINT = "#c4c4c4"  # lines between pale cells
FILL = 0.6  # how much of a role's colour fills its cells: the hatch shows, and ink reads on all

Colour = tuple[float, float, float]


class Role(NamedTuple):
    """What a matrix is for, and how that looks. The colours are Okabe and Ito's."""

    label: str
    colour: str
    hatch: str


X = Role("X", "#8a8a8a", "")
Q = Role("Q", "#0072B2", "//")
K = Role("K", "#D55E00", "\\\\")
V = Role("V", "#009E73", "..")
WEIGHTS = Role("weights", "#CC79A7", "")
OUTPUT = Role("output", "#E69F00", "xx")
MASKED = Role("masked", "#8a8a8a", "////")
ROLES = (X, Q, K, V, WEIGHTS, OUTPUT, MASKED)

WEIGHT_MAP = LinearSegmentedColormap.from_list("weights", ["#ffffff", WEIGHTS.colour])
SCORE_MAP = LinearSegmentedColormap.from_list("scores", ["#8C510A", "#ffffff", "#A0417A"])


def array(values: ArrayLike) -> NDArray[np.float64]:
    """Numbers for NumPy, also those of a tensor that requires gradients."""
    detached = getattr(values, "detach", lambda: values)()
    return np.asarray(detached, dtype=float)


def alike(**counts: int) -> None:
    """Refuse with a ValueError unless there are as many of each: `alike(words=3, weights=3)`."""
    if len(set(counts.values())) > 1:
        given = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise ValueError(f"{given}: give as many of each")


def at_most(most: int, **counts: int) -> None:
    """Refuse with a ValueError more than a picture has room for: `at_most(5, books=6)`."""
    for name, count in counts.items():
        if count > most:
            raise ValueError(f"{count} {name}, but the picture has room for {most}: leave some out")


def mix(colour: str, strength: float) -> Colour:
    """The colour thinned with white: 1 is the colour, 0 is white."""
    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(colour))
    return red, green, blue


def ink_on(face: Colour) -> str:
    """Black or white, whichever stands out more against a face (WCAG's relative luminance)."""
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in face]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if (light + 0.05) / 0.05 > 1.05 / (light + 0.05) else "white"


def halo(words: Text, face: Colour) -> None:
    """A rim in the face's colour about words, so that hatch and lines do not run through them."""
    words.set_path_effects([withStroke(linewidth=5, foreground=face)])


def _patch(
    axes: Axes, box: Box, face: Colour, role: str, hatch: str = "", strokes: Colour = (1, 1, 1)
) -> None:
    # The role's label as gid is how the tests know what a patch stands for.
    patch = Rectangle((box.x, box.y), box.width, box.height, linewidth=0, gid=role)
    patch.set(facecolor=face, edgecolor=strokes, hatch=hatch)
    axes.add_patch(patch)


def tile(
    axes: Axes,
    box: Box,
    role: Role,
    *,
    words: str = "",
    strength: float = 1,
    framed: bool = False,
    angle: float = 0,
) -> None:
    """A cell, or any other box, in a role's colour and hatch, thinned to `strength`; words inside.

    Weights are the exception: full colour, no hatch, as in their map.
    """
    fill = 1 if role is WEIGHTS else FILL
    face = mix(role.colour, fill * strength)
    _patch(axes, box, face, role.label, role.hatch, mix(role.colour, strength))
    if framed:
        outline(axes, box, colour=role.colour)
    if words:
        halo(text(axes, *box.centre, words, angle=angle), face)


def masked(axes: Axes, x: float, y: float, *, cell: float = CELL) -> None:
    """One masked cell: grey hatch and a dash."""
    box = Box(x, y, cell, cell)
    _patch(axes, box, (1, 1, 1), MASKED.label, MASKED.hatch, mix(MASKED.colour, 0.75))
    halo(text(axes, *box.centre, "–", bold=True), (1, 1, 1))


def lines(
    axes: Axes, box: Box, rows: int, columns: int, *, frame: str, inner: str = "white"
) -> None:
    """The lines between cells, and a frame about all of them."""
    for j in range(1, columns):
        x = box.x + j * box.width / columns
        axes.plot([x, x], [box.y, box.bottom], color=inner, linewidth=1, solid_capstyle="butt")
    for i in range(1, rows):
        y = box.y + i * box.height / rows
        axes.plot([box.x, box.right], [y, y], color=inner, linewidth=1, solid_capstyle="butt")
    outline(axes, box, colour=frame)


def matrix(
    axes: Axes,
    x: float,
    y: float,
    *,
    rows: int,
    columns: int,
    role: Role,
    cell: float = CELL,
    name: str = "",
    numbers: Sequence[Sequence[object]] | None = None,
    strength: ArrayLike = 1.0,
) -> Box:
    """A matrix of one role, its top left corner at (x, y); its name or its numbers inside.

    `strength` thins the colour, 0 to 1: one number, or one a row as [rows, 1], or [rows, columns].
    """
    box = Box(x, y, columns * cell, rows * cell)
    thinned = np.broadcast_to(array(strength), (rows, columns))
    for i, j in np.ndindex(rows, columns):
        place = Box(x + j * cell, y + i * cell, cell, cell)
        words = f"{numbers[i][j]}" if numbers is not None else ""
        tile(axes, place, role, words=words, strength=float(thinned[i, j]))
    inner = "white" if thinned.min() == 1 else FAINT  # white lines are lost between pale cells
    lines(axes, box, rows, columns, frame=role.colour, inner=inner)
    if name:
        halo(text(axes, *box.centre, name, size=NAME), mix(role.colour, FILL * thinned.mean()))
    return box


def weights(
    axes: Axes,
    x: float,
    y: float,
    values: ArrayLike,
    *,
    cell: float = CELL,
    numbers: str = "",
    mask: ArrayLike | None = None,
) -> Box:
    """Attention weights [n_q, n_kv] as a heat map, white at 0 to purple at 1, never rescaled.

    `numbers` is their format, as ".2f"; none are written without it. `mask`: True = may attend.
    """
    table = array(values)
    return _heat(axes, x, y, table, WEIGHT_MAP(table), WEIGHTS.label, cell, numbers, mask)


def scores(
    axes: Axes,
    x: float,
    y: float,
    values: ArrayLike,
    *,
    reach: float | None = None,
    cell: float = CELL,
    numbers: str = "",
    mask: ArrayLike | None = None,
) -> Box:
    """Scores [n_q, n_kv] as a heat map centred at 0: brown below, purple above.

    The colours end at -reach and reach (default: the largest score). `mask`: True = may attend.
    """
    table = array(values)
    if reach is None:
        reach = float(np.abs(table[np.isfinite(table)]).max(initial=0))
    reach = reach or 1.0  # where all scores are 0, all are white
    faces = SCORE_MAP(0.5 + table / (2 * reach))
    return _heat(axes, x, y, table, faces, "scores", cell, numbers, mask)


def _heat(
    axes: Axes,
    x: float,
    y: float,
    table: NDArray[np.float64],
    faces: NDArray[np.float64],
    role: str,
    cell: float,
    numbers: str,
    mask: ArrayLike | None,
) -> Box:
    seen = np.ones(table.shape, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    if table.ndim != 2:
        raise ValueError(f"{role} have shape {table.shape}, expected [n_q, n_kv]")
    if seen.shape != table.shape:
        raise ValueError(f"mask has shape {seen.shape}, {role} have {table.shape}: make them equal")
    rows, columns = table.shape
    for i, j in np.ndindex(rows, columns):
        place = Box(x + j * cell, y + i * cell, cell, cell)
        if not seen[i, j]:
            masked(axes, place.x, place.y, cell=cell)
            continue
        red, green, blue = faces[i, j, :3]
        _patch(axes, place, (red, green, blue), role)
        if numbers:
            written = f"{table[i, j]:{numbers}}".replace("-", "−")
            text(axes, *place.centre, written, colour=ink_on((red, green, blue)))
    box = Box(x, y, columns * cell, rows * cell)
    frame = WEIGHTS.colour if role == WEIGHTS.label else QUIET
    lines(axes, box, rows, columns, frame=frame, inner=FAINT)
    return box


def sizes(
    axes: Axes,
    box: Box,
    *,
    left: str = "",
    top: str = "",
    right: str = "",
    bottom: str = "",
    size: float = TEXT,
    gap: float = 0.08,
) -> None:
    """Sizes, or a name, at the edges of a grid."""
    if left:
        text(axes, box.x - gap, box.west[1], left, size=size, across="right")
    if right:
        text(axes, box.right + gap, box.east[1], right, size=size, across="left")
    if top:
        text(axes, box.north[0], box.y - gap, top, size=size, down="bottom")
    if bottom:
        text(axes, box.south[0], box.bottom + gap, bottom, size=size, down="top")


def tokens(
    axes: Axes,
    box: Box,
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    upright: bool = False,
    gap: float = 0.08,
) -> None:
    """One word a row on the left of a grid (it asks), one a column on top (it is asked)."""
    for i, word in enumerate(rows):
        y = box.y + (i + 0.5) * box.height / len(rows)
        text(axes, box.x - gap, y, word, across="right")
    for j, word in enumerate(columns):
        x = box.x + (j + 0.5) * box.width / len(columns)
        text(axes, x, box.y - gap, word, down="bottom", angle=90 if upright else 0)
