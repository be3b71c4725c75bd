"""What the pictures of chapter 04 must say."""

import numpy as np
import pytest
import torch

from qkv.figures import cross_attention, grid, picture


def cells(figure, role):
    return [p for axes in figure.axes for p in axes.patches if p.get_gid() == role]


def frames(figure):
    """Where the heavy frames of one cell stand, as (x, y)."""
    patches = [p for axes in figure.axes for p in axes.patches]
    heavy = [p for p in patches if p.get_linewidth() == cross_attention.THICK]
    return [(p.get_x(), p.get_y()) for p in heavy if p.get_width() == p.get_height()]


def test_cross_attention_is_drawn_with_unlike_sizes_and_self_attention_square():
    figure = cross_attention.self_and_cross()
    assert len(cells(figure, grid.WEIGHTS.label)) == 4 * 4 + 3 * 5
    assert len(cells(figure, grid.X.label)) == 4 * 6 + (3 * 6 + 5 * 4)
    assert len(cells(figure, grid.Q.label)) == (4 + 3) * 2
    assert len(cells(figure, grid.K.label)) == 2 * (4 + 5)
    assert len(cells(figure, grid.V.label)) == (4 + 5) * 7
    assert len(cells(figure, grid.OUTPUT.label)) == (4 + 3) * 7


@pytest.mark.parametrize("mask", [[True, True, False], [[True, True, False]] * 2])
def test_the_padding_of_the_source_hides_a_column_of_each_row(mask):
    figure = cross_attention.over_tokens([[1, 0, 0], [0, 1, 0]], "ab", "cd_", mask=mask)
    assert len(cells(figure, grid.MASKED.label)) == 2
    assert len(cells(figure, grid.WEIGHTS.label)) == 4


def test_a_frame_stands_on_the_right_card_of_each_question_in_each_panel():
    cards, right = ["2♠", "7♥", "_"], [1, 0]
    found = torch.rand(2, 2, 3, requires_grad=True)  # [seeds, n_q, n_kv]
    figure = cross_attention.alignments(found, ["7?", "2?"], cards, right, mask=[1, 1, 0])
    weights = cells(figure, grid.WEIGHTS.label)  # row by row, without the hidden column
    framed = [weights[i] for i in (1, 2, 4 + 1, 4 + 2)]
    expected = [(cell.get_x(), cell.get_y()) for cell in framed]
    assert np.allclose(frames(figure)[:-1], expected)  # the last one is in the key
    assert isinstance(figure, picture.Picture)


ONE = [[[1.0, 0.0]]]  # [seeds, n_q, n_kv]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: cross_attention.over_tokens([[1, 0]], "a", "b"), r"\(1, 2\), expected \(1, 1\)"),
        (
            lambda: cross_attention.alignments(ONE[0], "a", "bc", [0], mask=[1, 1]),
            r"\(1, 2\), expected \[seeds, n_q, n_kv\]",
        ),
        (
            lambda: cross_attention.alignments(ONE, "ab", "cd", [0], mask=[1, 1]),
            r"\(1, 2\), expected \(2, 2\)",
        ),
        (
            lambda: cross_attention.alignments(ONE * 6, "a", "bc", [0], mask=[1, 1]),
            "6 seeds, but the picture has room for 5",
        ),
        (
            lambda: cross_attention.alignments(ONE, "a", "bc", [0, 1], mask=[1, 1]),
            "1 rows, 2 right: give as many",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
