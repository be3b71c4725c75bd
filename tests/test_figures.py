"""Every figure keeps to the grammar: small, legible at phone width, nothing on top of anything.

A figure is a public function in a module of qkv.figures that returns a Picture. It is drawn by the
example at the end of its docstring, so a new module is held to all this without a word here.
"""

import base64
import doctest
import importlib
import inspect
import io
import itertools
import pkgutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import get_type_hints
from unittest import mock

import nbclient
import nbformat
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

from qkv import figures
from qkv.figures import grid, picture, query_key_value

ROOT = Path(__file__).parents[1]
PHONE = 360  # pixels: the width of a small phone
LARGEST = 60_000  # bytes

ALL: dict[str, Callable[..., Figure]] = {
    f"{info.name}.{name}": function
    for info in pkgutil.iter_modules(figures.__path__)
    if info.name not in ("grid", "picture")
    for module in [importlib.import_module(f"qkv.figures.{info.name}")]
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and not name.startswith("_")
    for returned in [get_type_hints(function).get("return")]
    if isinstance(returned, type) and issubclass(returned, Figure)
}


def draw(name: str) -> picture.Picture:
    """The figure that the example in its docstring draws."""
    function = ALL[name]
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(function) or "")
    assert examples, f"{name}: end its docstring with an example call, `>>> {function.__name__}()`"
    names = dict(vars(inspect.getmodule(function)))
    for example in examples[:-1]:
        exec(example.source, names)
    return eval(examples[-1].source, names)


@cache
def drawn(name: str) -> tuple[picture.Picture, bytes, list[Text]]:
    """A figure, its PNG, and the texts that are really on it (not, say, ticks out of view)."""
    figure, texts, plain = draw(name), [], Text.draw

    def noting(self: Text, renderer: object) -> None:
        if self.get_visible() and self.get_text().strip():
            texts.append(self)
        plain(self, renderer)

    with mock.patch.object(Text, "draw", noting):
        png = figure.png()
    return figure, png, texts


def opened(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png))


def patches(figure: Figure, gid: str) -> list[Rectangle]:
    return [p for p in figure.findobj(Rectangle) if p.get_gid() == gid]


each = pytest.mark.parametrize("name", ALL)


def test_the_figures_are_found():
    assert {"words.embedding", "query_key_value.pipeline"} <= set(ALL)


@each
def test_png_is_small_and_at_150_dots_an_inch(name):
    figure, png, _ = drawn(name)
    assert isinstance(figure, picture.Picture), "make it with picture.new: it shows itself"
    assert len(png) <= LARGEST
    assert opened(png).size == tuple(round(150 * inches) for inches in figure.get_size_inches())


@each
def test_png_is_the_same_each_time_and_names_no_software(name):
    _, png, _ = drawn(name)
    assert draw(name).png() == png
    assert opened(png).text == {}


@each
def test_text_is_legible_on_a_phone(name):
    figure, _, texts = drawn(name)
    inches = figure.get_size_inches()[0]
    assert texts
    for words in texts:
        wide = words.get_fontsize() * 7 / inches  # points, were the picture 7 in wide
        assert wide >= 17, f"{words.get_text()!r} is {wide * PHONE / 7 / 96:.1f} pt at {PHONE} px"


@each
def test_text_is_on_the_picture_and_on_no_other_text(name):
    figure, _, texts = drawn(name)
    boxes = [(words.get_text(), words.get_window_extent().padded(-1)) for words in texts]
    width, height = figure.bbox.size
    for words, box in boxes:
        assert 0 <= box.x0 and box.x1 <= width and 0 <= box.y0 and box.y1 <= height, words
    for (one, box), (other, second) in itertools.combinations(boxes, 2):
        assert not box.overlaps(second), f"{one!r} and {other!r} overlap"


@each
def test_roles_keep_their_colour_and_hatch(name):
    figure, _, _ = drawn(name)
    for role in grid.ROLES:
        for patch in patches(figure, role.label):
            assert (patch.get_hatch() or "") == role.hatch, role
            if role is not grid.MASKED and role is not grid.WEIGHTS:
                assert is_thinned(patch.get_facecolor()[:3], role.colour), role


def is_thinned(face, colour: str) -> bool:
    """Whether a face is a colour with white mixed in."""
    lack, most = 1 - np.array(face), 1 - np.array(to_rgb(colour))
    return bool(np.allclose(lack, most * (lack @ most) / (most @ most), atol=1e-6))


@each
def test_masked_cells_are_hatched_grey_with_a_dash(name):
    figure, _, texts = drawn(name)
    hold_masked_cells(figure, texts)


def hold_masked_cells(figure: Figure, texts: list[Text]) -> None:
    for patch in patches(figure, grid.MASKED.label):
        red, green, blue = patch.get_edgecolor()[:3]
        assert red == green == blue < 0.75 and patch.get_hatch(), "hatched in a grey that shows"
        dashes = [words for words in texts if words.get_text() == "–"]
        centre = patch.get_x() + patch.get_width() / 2, patch.get_y() + patch.get_height() / 2
        assert any(np.allclose(dash.get_position(), centre) for dash in dashes), "a dash in it"


def test_the_palette_is_the_one_in_the_notation():
    assert {role.label: (role.colour, role.hatch) for role in grid.ROLES} == {
        "X": ("#8a8a8a", ""),
        "Q": ("#0072B2", "//"),
        "K": ("#D55E00", "\\\\"),
        "V": ("#009E73", ".."),
        "weights": ("#CC79A7", ""),
        "output": ("#E69F00", "xx"),
        "masked": ("#8a8a8a", "////"),
    }


@pytest.fixture
def axes():
    return picture.sheet(picture.new(7, 4))


def test_a_matrix_is_as_large_as_its_shape(axes):
    box = grid.matrix(axes, 1, 1, rows=4, columns=3, role=grid.Q)
    cells = patches(axes.figure, "Q")
    assert len(cells) == 12
    assert {(cell.get_width(), cell.get_height()) for cell in cells} == {(grid.CELL, grid.CELL)}
    assert (box.width, box.height) == pytest.approx((3 * grid.CELL, 4 * grid.CELL))


def test_rows_go_down_and_columns_right(axes):
    grid.matrix(axes, 1, 1, rows=2, columns=2, role=grid.V, numbers=[[1, 2], [3, 4]])
    at = {words.get_text(): words.get_window_extent().p0 for words in axes.texts}
    assert at["1"][0] < at["2"][0] and at["1"][1] > at["3"][1]


def test_weights_have_one_scale_for_all_pictures(axes):
    grid.weights(axes, 1, 1, [[0.1, 0.2]])  # not stretched to their own largest
    faces = [patch.get_facecolor() for patch in patches(axes.figure, "weights")]
    assert faces == [grid.WEIGHT_MAP(0.1), grid.WEIGHT_MAP(0.2)]


def test_a_score_of_zero_is_white_whatever_the_others_are(axes):
    grid.scores(axes, 1, 1, [[0.0, 9.0, -1.0, -np.inf]], mask=[[True, True, True, False]])
    low, high, negative = (patch.get_facecolor()[:3] for patch in patches(axes.figure, "scores"))
    assert low == pytest.approx((1, 1, 1), abs=0.01)
    assert high == pytest.approx(grid.SCORE_MAP(1.0)[:3]) and negative[2] < negative[0]


def test_a_masked_weight_is_no_weight(axes):
    grid.weights(axes, 1, 1, [[0.3, 0.7, 0.0]], mask=[[True, True, False]], numbers=".2f")
    assert len(patches(axes.figure, "weights")) == 2 and len(patches(axes.figure, "masked")) == 1
    assert [words.get_text() for words in axes.texts] == ["0.30", "0.70", "–"]
    hold_masked_cells(axes.figure, axes.texts)


@pytest.mark.parametrize("colours", [grid.WEIGHT_MAP, grid.SCORE_MAP], ids=["weights", "scores"])
def test_numbers_stand_out_from_every_weight_and_score(colours):
    for share in np.linspace(0, 1, 101):
        face = colours(share)[:3]
        light, dark = sorted([luminance(face), luminance(to_rgb(grid.ink_on(face)))], reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, share


def luminance(colour) -> float:
    part = np.array(colour)
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_a_cell_shows_one_png_at_its_size_with_and_without_the_inline_backend():
    cells = [
        "from qkv.figures.query_key_value import pipeline",
        "pipeline()",
        "%matplotlib inline\n%config InlineBackend.figure_formats = ['svg', 'png']\npipeline()",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(book, kernel_name="python3").execute()
    expected = query_key_value.pipeline().png()
    for cell in book.cells[1:]:
        (output,) = cell.outputs
        assert set(output.data) == {"image/png", "text/plain"}
        assert base64.b64decode(output.data["image/png"]) == expected


def test_the_readmes_picture_is_the_one_that_the_book_draws():
    file = ROOT / "_static" / "pipeline.png"
    assert file.stat().st_size <= LARGEST
    made = opened(query_key_value.pipeline().png()).convert("RGB")
    kept = Image.open(file).convert("RGB")
    assert kept.size == made.size and kept.tobytes() == made.tobytes(), (
        "out of date: write query_key_value.pipeline().png() to _static/pipeline.png"
    )
