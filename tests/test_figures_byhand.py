"""What the pictures of chapter 12 must say."""

import numpy as np
import pytest

from qkv.figures import byhand


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_the_last_panel_is_the_sum_of_the_terms_on_the_same_scale():
    figure = byhand.three_terms({"itself": [1.0, 0.0], "− mean": [-0.5, -0.5], "b": [0.2, -0.2]})
    panels = [axes for axes in figure.axes if axes.get_title()]
    heights = [[bar.get_height() for bar in axes.patches] for axes in panels]
    np.testing.assert_allclose(heights[-1], np.sum(heights[:-1], axis=0), atol=1e-12)
    assert len({axes.get_ylim() for axes in panels}) == 1
    assert words(figure) == ["+", "+", "="]


def test_in_post_norm_the_norm_comes_before_the_ways_part_in_pre_norm_on_the_detour():
    (axes,) = byhand.residuals_back().axes
    at = [(t.get_text(), *t.get_position()) for t in axes.texts]
    roads = sorted(x for name, x, _ in at if name == "+")
    norms = sorted((x, y) for name, x, y in at if name == "norm")
    detours = sorted((x, y) for name, x, y in at if name == "sublayer")
    assert norms[0][0] == roads[0] and norms[0][1] > detours[0][1]
    assert norms[1][0] == detours[1][0] and norms[1][1] < detours[1][1]


def test_every_decoder_block_sends_its_gradient_to_the_memory():
    for n in (1, 3):
        (axes,) = byhand.memory_meets(n).axes
        found = words(axes.figure)
        blocks = [t for t in axes.texts if t.get_text().startswith("block")]
        assert len(blocks) == n and found.count("+") == 1
        loss = next(t for t in axes.texts if t.get_text() == "loss").get_position()[1]
        last = max(blocks, key=lambda t: t.get_text()).get_position()[1]
        assert all(t.get_position()[1] <= last < loss for t in blocks)


def test_errors_stand_at_their_value_and_the_line_where_it_was_asked_for():
    (axes,) = byhand.errors({"a": 1e-9, "b": 0.0}, line=1e-7).axes
    dots = next(line for line in axes.lines if line.get_marker() == "o")
    np.testing.assert_allclose(dots.get_xdata(), [1e-9, 1e-14])
    assert axes.get_xscale() == "log"
    assert any(set(line.get_xdata()) == {1e-7} for line in axes.lines)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: byhand.three_terms({str(i): [1.0] for i in range(5)}), "5 terms, .* room for 4"),
        (lambda: byhand.three_terms({"a": [1.0], "b": [1.0, 2.0]}), "give as many of each"),
        (lambda: byhand.memory_meets(5), "5 n_blocks, .* room for 4"),
        (lambda: byhand.errors({str(i): 1e-9 for i in range(15)}), "15 layers, .* room for 14"),
    ],
)
def test_more_than_fits_is_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
