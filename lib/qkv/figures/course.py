"""The front page: which chapter needs which."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.patches import Rectangle

from qkv.figures.picture import QUIET, TEXT, Box, Picture, arrow, new, outline, sheet, text

GROUND = "#ececec"  # behind every other part, so that parts are told apart
HIGH, WIDE, STEP = 0.5, 2.5, 0.84  # inches: a chapter's box, and from one row to the next


class Chapter(NamedTuple):
    """A chapter's place on the map: its part, its row, its column from 0 (left) to 1.

    `needs` leaves out what those chapters need themselves.
    """

    name: str
    part: str
    row: int
    column: float
    needs: Sequence[str] = ()


CHAPTERS: Mapping[str, Chapter] = {
    "00": Chapter("vectors, slopes", "I", 0, 0.5),
    "01": Chapter("query, key, value", "I", 1, 0.5, ["00"]),
    "02": Chapter("why √d_k", "I", 2, 0.0, ["01"]),
    "03": Chapter("masks", "I", 2, 1.0, ["01"]),
    "04": Chapter("cross-attention", "II", 3, 1.0, ["03"]),
    "05": Chapter("many heads", "II", 4, 0.5, ["02", "04"]),
    "06": Chapter("positions", "III", 5, 0.5, ["05"]),
    "07": Chapter("blocks", "III", 6, 0.5, ["06"]),
    "08": Chapter("Transformer", "III", 7, 0.5, ["07"]),
    "09": Chapter("training", "III", 8, 0.5, ["08"]),
    "10": Chapter("gradients", "IV", 9, 0.5, ["09"]),
    "11": Chapter("attention, back", "IV", 10, 0.5, ["10"]),
    "12": Chapter("all of it, back", "IV", 11, 0.5, ["11"]),
    "13": Chapter("experiments", "V", 12, 0.5, ["12"]),
}


def chapters(course: Mapping[str, Chapter] = CHAPTERS) -> Picture:
    """Which chapter needs which: an arrow leads from what is needed to what needs it.

    >>> chapters()
    """
    rows = max(chapter.row for chapter in course.values()) + 1
    figure = new(7, rows * STEP)
    axes = sheet(figure)
    for index, part in enumerate(dict.fromkeys(chapter.part for chapter in course.values())):
        within = [chapter.row for chapter in course.values() if chapter.part == part]
        top, high = min(within) * STEP, (len(set(within))) * STEP
        if index % 2:
            axes.add_patch(Rectangle((0, top), 7, high, facecolor=GROUND, zorder=0))
        text(axes, 0.4, top + high / 2, part, colour=QUIET, size=24, bold=True)
    boxes = {}
    for number, chapter in course.items():
        x = 0.9 + chapter.column * (7 - 0.9 - 0.15 - WIDE)
        boxes[number] = Box(x, (chapter.row + 0.5) * STEP - HIGH / 2, WIDE, HIGH)
    for number, chapter in course.items():
        for needed in chapter.needs:
            arrow(axes, boxes[needed].south, boxes[number].north, gap=2)
    for number, box in boxes.items():
        axes.add_patch(Rectangle(box[:2], *box[2:], facecolor="white", zorder=1.5))
        outline(axes, box)
        text(axes, *box.centre, f"{number} {course[number].name}", size=TEXT)
    return figure
