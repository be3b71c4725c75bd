"""A picture in a notebook, and the bare sheet that everything is drawn on: words, boxes, arrows."""

from io import BytesIO
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.text import Text
from PIL import Image

DPI = 150
TEXT = 17.0  # points on a picture 7 in wide: 9 points or so where it is shown 360 pixels wide
LINE = 2.0  # points: arrows and frames
INK = "#222222"
QUIET = "#6b6b6b"  # what is there but not spoken of

Point = tuple[float, float]


class Picture(Figure):
    """A figure that shows itself in a notebook as one PNG, always the same bytes."""

    def png(self) -> bytes:
        """The picture as PNG, with 256 colours and without the name of what drew it."""
        canvas = FigureCanvasAgg(self)
        canvas.draw()  # type: ignore[no-untyped-call]
        pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
        flat = Image.fromarray(pixels).convert("RGB")
        out = BytesIO()
        flat.quantize(256, dither=Image.Dither.NONE).save(out, "PNG", optimize=True, dpi=(DPI, DPI))
        return out.getvalue()

    def _ipython_display_(self) -> None:
        # The one hook that comes before a formatter for all Figures, which the inline backend
        # registers and which would draw at another size, cut to the ink.
        from IPython.display import display

        display({"image/png": self.png(), "text/plain": repr(self)}, raw=True)  # type: ignore[no-untyped-call]


class Box(NamedTuple):
    """Where something lies on the sheet, in inches; its edges' middles are points for arrows."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Where its right edge is."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Where its lower edge is."""
        return self.y + self.height

    @property
    def centre(self) -> Point:
        """Its middle."""
        return self.x + self.width / 2, self.y + self.height / 2

    @property
    def west(self) -> Point:
        """The middle of its left edge."""
        return self.x, self.centre[1]

    @property
    def east(self) -> Point:
        """The middle of its right edge."""
        return self.right, self.centre[1]

    @property
    def north(self) -> Point:
        """The middle of its upper edge."""
        return self.centre[0], self.y

    @property
    def south(self) -> Point:
        """The middle of its lower edge."""
        return self.centre[0], self.bottom


def new(width: float = 7, height: float = 4) -> Picture:
    """An empty picture on white ground, width and height in inches."""
    return Picture(figsize=(width, height), dpi=DPI, facecolor="white")


def sheet(figure: Figure) -> Axes:
    """Bare axes over the whole figure: both in inches, x to the right, y down from the top."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    width, height = figure.get_size_inches()
    axes.set(xlim=(0, width), ylim=(height, 0))
    return axes


def chart(
    figure: Figure, box: Box, *, title: str = "", across: str = "", up: str = "", size: float = TEXT
) -> Axes:
    """Axes for curves inside a box (inches, y down): two spines, a title, what the axes mean."""
    width, height = figure.get_size_inches()
    axes = figure.add_axes(
        (box.x / width, 1 - box.bottom / height, box.width / width, box.height / height)
    )
    axes.set_facecolor("white")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(labelsize=size, colors=INK)
    axes.set_title(title, size=size, color=INK)
    axes.set_xlabel(across, size=size, color=INK)
    axes.set_ylabel(up, size=size, color=INK)
    return axes


def text(
    axes: Axes,
    x: float,
    y: float,
    words: str,
    *,
    size: float = TEXT,
    colour: str = INK,
    bold: bool = False,
    across: str = "center",
    down: str = "center",
    angle: float = 0,
) -> Text:
    """Words at a point; `across` (left, center, right) and `down` (top, center, bottom) say how."""
    weight = "bold" if bold else "normal"
    return axes.text(
        x, y, words, size=size, color=colour, weight=weight, ha=across, va=down, rotation=angle
    )


def outline(axes: Axes, box: Box, *, colour: str = INK, width: float = LINE) -> None:
    """A frame about a box: a whole grid, or the rows of it that are spoken of."""
    axes.add_patch(
        Rectangle(
            (box.x, box.y),
            box.width,
            box.height,
            fill=False,
            edgecolor=colour,
            linewidth=width,
            joinstyle="miter",
            zorder=2.5,
        )
    )


def arrow(
    axes: Axes,
    start: Point,
    end: Point,
    *,
    colour: str = INK,
    bend: float = 0.0,
    corner: bool = False,
    width: float = LINE,
    gap: float = 4.0,
) -> None:
    """An arrow between two points, with `gap` points left free at both ends.

    `bend` curves it; a `corner` sets out sideways and arrives from above or below.
    """
    path = "angle3,angleA=0,angleB=90" if corner else f"arc3,rad={bend}"
    head = "-|>,head_length=7,head_width=3.5"
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle=head,
            connectionstyle=path,
            mutation_scale=1,
            color=colour,
            linewidth=width,
            shrinkA=gap,
            shrinkB=gap,
            capstyle="butt",
        )
    )
