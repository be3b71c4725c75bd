"""The overview of chapter 08 leads to the chapters; the bars show whole models."""

import json
import re
from pathlib import Path
from unittest import mock

import pytest
from matplotlib.patches import Rectangle

from qkv.figures import transformer

CHAPTERS = Path(__file__).parents[1] / "chapters"


def test_each_link_lies_on_a_box_that_is_drawn_with_its_words_in_it():
    figure = transformer.overview()
    (axes,) = figure.axes
    drawn = {patch.get_bbox().bounds for patch in axes.patches if isinstance(patch, Rectangle)}
    for box, words, _ in figure.links:
        assert any(bounds == pytest.approx(tuple(box)) for bounds in drawn), words
        (inside,) = [text for text in axes.texts if text.get_position() == box.centre]
        assert inside.get_text().removeprefix("+ ") == words


def test_every_part_of_both_halves_is_linked():
    names = [link.words for link in transformer.overview().links]
    assert [names.count(words) for words in ("Embedding", "Positions", "Feed-forward")] == [2, 2, 2]
    assert names.count("Add & norm") == 5  # two in the encoder's block, three in the decoder's
    attentions = [words for words in names if "attention" in words]
    assert attentions == ["Self-attention", "Masked self-attention", "Cross-attention"]


def test_the_links_lead_to_chapters_and_to_a_heading_of_this_one():
    notebook = json.loads((CHAPTERS / "08-transformer.ipynb").read_text(encoding="utf-8"))
    text = "\n".join("".join(cell["source"]) for cell in notebook["cells"])
    headings = {
        "#" + heading.lower().replace(" ", "-") for heading in re.findall(r"(?m)^## (.+)$", text)
    }
    for link in transformer.overview().links:
        notebook_file = CHAPTERS / link.page.replace(".html", ".ipynb")
        assert link.page in headings or notebook_file.is_file(), link


def test_the_page_holds_the_png_its_alt_text_and_the_links_in_percent():
    figure = transformer.overview()
    figure.links = [transformer.Link(transformer.Box(0.7, 0.91, 3.5, 4.55), "A & B", "05-x.html")]
    page = figure.html(b"png")
    assert 'src="data:image/png;base64,cG5n"' in page
    assert f'alt="{transformer.OVERVIEW_ALT}"' in page
    assert 'href="05-x.html" title="A &amp; B: chapter 05" aria-label="A &amp; B: chapter' in page
    assert "left:10.00%;top:10.00%;width:50.00%;height:50.00%" in page


def test_a_cell_shows_the_page_and_for_those_that_cannot_the_png():
    figure = transformer.overview()
    with mock.patch("IPython.display.display") as display:
        figure._ipython_display_()
    (bundle,), options = display.call_args
    assert options == {"raw": True}
    assert set(bundle) == {"text/html", "image/png", "text/plain"}
    assert bundle["image/png"] == figure.png()
    assert bundle["text/html"] == figure.html(bundle["image/png"])


def test_the_notebook_describes_the_overview_as_its_page_does():
    notebook = json.loads((CHAPTERS / "08-transformer.ipynb").read_text(encoding="utf-8"))
    (cell,) = [cell for cell in notebook["cells"] if cell["id"] == "overview"]
    assert cell["metadata"]["mystnb"]["image"]["alt"] == transformer.OVERVIEW_ALT


def test_a_models_bar_is_as_long_as_anothers_and_its_parts_have_their_shares():
    figure = transformer.parameters(
        {"one": {"embeddings": 3, "norms": 1}, "two": {"self-attention": 1000}}
    )
    (axes,) = figure.axes
    frames = [patch for patch in axes.patches if not patch.get_fill() and patch.get_width() > 1]
    first, second = (frame.get_width() for frame in frames)
    assert first == second
    filled = [patch.get_width() for patch in axes.patches if patch.get_fill()][:3]
    assert [width / first for width in filled] == pytest.approx([0.75, 0.25, 1])
    written = {text.get_text() for text in axes.texts}
    assert {"75 %", "25 %", "100 %", "one: 4 parameters", "two: 1,000 parameters"} <= written


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"a": {"heads": 1}}, r"'a' has parts \['heads'\], expected of \['embeddings'"),
        ({name: {"norms": 1} for name in "abcd"}, "4 models, .* room for 3"),
    ],
)
def test_counts_that_cannot_be_drawn_are_refused_by_name(counts, message):
    with pytest.raises(ValueError, match=message):
        transformer.parameters(counts)
