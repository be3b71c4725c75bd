"""Chapter 08: the whole Transformer with its parts as links, and where its parameters are."""

import base64
import html
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from qkv.figures.grid import WEIGHTS, Colour, X, at_most, halo, mix, tile
from qkv.figures.picture import (
    DPI,
    INK,
    QUIET,
    Box,
    Picture,
    Point,
    arrow,
    new,
    outline,
    sheet,
    text,
)

OVERVIEW_ALT = (
    "Two columns of boxes, read from the top. Left, the encoder: source ids, embedding, positions,"
    " then N blocks of self-attention, add and norm, feed-forward, add and norm; below them stands"
    " the memory. Right, the decoder: target ids, embedding, positions, then N blocks of masked"
    " self-attention, add and norm, cross-attention, add and norm, feed-forward, add and norm;"
    " below them the output layer and the softmax. An arrow marked K, V leads from the memory to"
    " cross-attention. A line leads round each attention and each feed-forward to the add and norm"
    " after it."
)


class Link(NamedTuple):
    """A box of a picture that leads to a page."""

    box: Box
    words: str
    page: str

    @property
    def title(self) -> str:
        """What a reader who points at it, or who hears it, is told."""
        where = "below" if self.page.startswith("#") else f"chapter {self.page[:2]}"
        return f"{html.escape(self.words)}: {where}"


class LinkedPicture(Picture):
    """A picture whose boxes lead to pages of the book: as HTML, the PNG with links laid over it.

    Positions are in percent, so that the links stay on their boxes however wide the picture is.
    """

    links: Sequence[Link] = ()
    alt = ""

    def html(self, png: bytes) -> str:
        """The picture and its links, for a page that stands where the other pages stand."""
        width, height = self.get_size_inches()
        areas = "\n".join(
            f'<a href="{link.page}" title="{link.title}" aria-label="{link.title}"'
            f' style="position:absolute;left:{100 * link.box.x / width:.2f}%;'
            f"top:{100 * link.box.y / height:.2f}%;width:{100 * link.box.width / width:.2f}%;"
            f'height:{100 * link.box.height / height:.2f}%"></a>'
            for link in self.links
        )
        return (
            f'<div style="position:relative;max-width:{width * DPI:.0f}px;margin:auto">\n'
            f'<img style="display:block;width:100%;padding:0" alt="{html.escape(self.alt)}"'
            f' src="data:image/png;base64,{base64.b64encode(png).decode()}">\n{areas}\n</div>'
        )

    def _ipython_display_(self) -> None:
        from IPython.display import display

        png = self.png()
        bundle = {"text/html": self.html(png), "image/png": png, "text/plain": repr(self)}
        display(bundle, raw=True)  # type: ignore[no-untyped-call]


# The parts in the order in which they are drawn, and the page that builds each.
ROAD = (("Embedding", "00-words-vectors-slopes.html"), ("+ Positions", "06-positions.html"))
SELF = ("Self-attention", "05-multi-head.html")
MASKED = ("Masked self-attention", "03-masks.html")
CROSS = ("Cross-attention", "04-cross-attention.html")
FEED = ("Feed-forward", "07-blocks.html")
NORM = ("Add & norm", "07-blocks.html")
OUT = (("Output layer", "#a-token-comes-out"), ("Softmax", "00-words-vectors-slopes.html"))
TRAINED = "09-training-and-decoding.html"

TALL = 0.44  # a box, in inches
STEP = 0.2  # an arrow between two boxes
SIZED = 0.42  # an arrow with a size beside it


def overview() -> LinkedPicture:
    """The encoder–decoder with every part named, sizes on the arrows, and a page behind each part.

    Shapes: source ids [n_source], target ids [n_target]; d_model and vocab as everywhere.

    >>> overview()
    """
    figure = LinkedPicture(figsize=(7, 9.1), dpi=DPI, facecolor="white")
    axes = sheet(figure)
    links: list[Link] = []
    source, target = r"n_\mathrm{source}", r"n_\mathrm{target}"
    wide = r"d_\mathrm{model}"

    left = _Column(axes, links, 0.42, 2.3)
    left.words("source ids", "")
    left.part(*ROAD[0], size=f"$[{source}]$")
    left.part(*ROAD[1])
    left.block("$N$ encoder blocks", [SELF, NORM, FEED, NORM], f"$[{source}, {wide}]$", loop=-0.17)
    memory = left.words("memory", CROSS[1])
    text(axes, memory.centre[0], memory.bottom + 0.22, f"$[{source}, {wide}]$")

    right = _Column(axes, links, 3.72, 2.86)
    right.words("target ids", TRAINED)
    right.part(*ROAD[0], size=f"$[{target}]$")
    right.part(*ROAD[1])
    parts = [MASKED, NORM, CROSS, NORM, FEED, NORM]
    boxes = right.block("$N$ decoder blocks", parts, f"$[{target}, {wide}]$", loop=0.17)
    right.part(*OUT[0], size=f"$[{target}, {wide}]$")
    right.part(*OUT[1], size=rf"$[{target}, \mathrm{{vocab}}]$")
    right.words("next token", TRAINED)

    asked = boxes[2].west
    across = 3.3
    _line(axes, [(memory.right, memory.centre[1]), (across, memory.centre[1]), (across, asked[1])])
    arrow(axes, (across, asked[1]), asked, gap=0)
    text(axes, (memory.right + across) / 2, memory.centre[1] - 0.2, "K, V")
    figure.links, figure.alt = links, OVERVIEW_ALT
    return figure


class _Column:
    """One half of the model, drawn from the top down."""

    def __init__(self, axes: Axes, links: list[Link], x: float, width: float) -> None:
        self.axes, self.links, self.x, self.width = axes, links, x, width
        self.y = 0.08

    def words(self, words: str, page: str) -> Box:
        """What goes in or comes out."""
        if self.y > 1:
            self.road("")
        box = Box(self.x + 0.3, self.y, self.width - 0.6, 0.36)
        tile(self.axes, box, X, words=words, strength=0.4)
        return self._placed(box, words, page)

    def part(self, words: str, page: str, *, size: str = "") -> Box:
        """One box of the model, with the arrow that leads to it."""
        self.road(size)
        box = Box(self.x, self.y, self.width, TALL)
        _fill(self.axes, box, mix(WEIGHTS.colour if "attention" in words else "white", 0.5))
        outline(self.axes, box)
        text(self.axes, *box.centre, words)
        return self._placed(box, words, page)

    def block(
        self, name: str, parts: Sequence[tuple[str, str]], size: str, *, loop: float
    ) -> list[Box]:
        """A frame with the sublayers of a block; a line leads round each to its add and norm."""
        self.road(size)
        top = self.y
        text(self.axes, self.x + self.width / 2, top + 0.22, name)
        self.y += 0.36
        boxes = []
        for words, page in parts:
            boxes.append(self.part(words, page))
            if words == NORM[0]:
                sublayer, norm = boxes[-2:]
                side = norm.west if loop < 0 else norm.east
                start = sublayer.y - STEP / 2
                away = side[0] + loop
                path = [(sublayer.centre[0], start), (away, start), (away, side[1])]
                _line(self.axes, path)
                arrow(self.axes, path[-1], side, gap=0)
        self.y += 0.14
        edge = 0.27
        outline(
            self.axes,
            Box(self.x - edge, top, self.width + 2 * edge, self.y - top),
            colour=QUIET,
            width=1.5,
        )
        return boxes

    def road(self, size: str) -> None:
        """The arrow to what comes next, its size beside it."""
        middle, long = self.x + self.width / 2, SIZED if size else STEP
        arrow(self.axes, (middle, self.y), (middle, self.y + long), gap=0)
        if size:
            text(self.axes, middle + 0.12, self.y + long / 2, size, across="left")
        self.y += long

    def _placed(self, box: Box, words: str, page: str) -> Box:
        if page:
            self.links.append(Link(box, words.removeprefix("+ "), page))
        self.y = box.bottom
        return box


def _line(axes: Axes, points: Sequence[Point]) -> None:
    axes.plot(*zip(*points, strict=True), color=INK, linewidth=2, solid_joinstyle="miter")


def _fill(axes: Axes, box: Box, face: Colour, hatch: str = "") -> None:
    patch = Rectangle((box.x, box.y), box.width, box.height, linewidth=0, facecolor=face)
    patch.set(hatch=hatch, edgecolor=(1, 1, 1))
    axes.add_patch(patch)


# What each part of a count looks like: a face and a hatch.
PARTS: Mapping[str, tuple[Colour, str]] = {
    "embeddings": (mix(X.colour, 0.8), ""),
    "self-attention": (mix(WEIGHTS.colour, 1), ""),
    "cross-attention": (mix(WEIGHTS.colour, 0.4), "--"),
    "feed-forward": (mix("#56B4E9", 0.8), ""),
    "norms": (mix(INK, 1), ""),
    "output layer": (mix("#F0E442", 0.9), "||"),
}


def parameters(counts: Mapping[str, Mapping[str, int]]) -> Picture:
    """Where a model's parameters are: one bar a model, each as long as the others, part by part.

    Shapes: for each model's name the count of each part, of those that `PARTS` names.

    >>> parameters(
    ...     {
    ...         "small model": {"embeddings": 832, "self-attention": 8192, "norms": 320},
    ...         "base model": {"embeddings": 38_000_000, "feed-forward": 25_000_000},
    ...     }
    ... )
    """
    for name, parts in counts.items():
        if unknown := parts.keys() - PARTS.keys():
            raise ValueError(f"{name!r} has parts {sorted(unknown)}, expected of {list(PARTS)}")
    at_most(3, models=len(counts))
    figure = new(7, 1.5 + 1.15 * len(counts))
    axes = sheet(figure)
    left, width = 0.15, 6.7
    for row, (name, parts) in enumerate(counts.items()):
        y, total, x = 0.12 + 1.15 * row, sum(parts.values()), left
        text(axes, left, y + 0.14, f"{name}: {total:,} parameters", across="left")
        for part, count in parts.items():
            face, hatch = PARTS[part]
            box = Box(x, y + 0.34, width * count / total, 0.52)
            _fill(axes, box, face, hatch)
            if box.width > 0.66:  # room for its share
                halo(text(axes, *box.centre, f"{100 * count / total:.0f} %"), face)
            x = box.right
        outline(axes, Box(left, y + 0.34, width, 0.52))
    for i, (part, (face, hatch)) in enumerate(PARTS.items()):
        place = Box(left + 3.4 * (i // 3), 0.2 + 1.15 * len(counts) + 0.42 * (i % 3), 0.4, 0.3)
        _fill(axes, place, face, hatch)
        outline(axes, place, width=1)
        text(axes, place.right + 0.12, place.centre[1], part, across="left")
    return figure
