"""The pictures of chapter 09: the shift is one place, and only what waits is thick."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from qkv.figures import grid, training


def words(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def arrows(figure: Figure) -> list[FancyArrowPatch]:
    return [
        arrow for axes in figure.axes for arrow in axes.patches if hasattr(arrow, "set_arrowstyle")
    ]


def tiles(figure: Figure, role: grid.Role) -> int:
    return sum(patch.get_gid() == role.label for axes in figure.axes for patch in axes.patches)


def test_the_input_is_the_target_one_place_later_behind_the_start():
    figure = training.teacher_forcing("941", ">")
    tokens = [word for word in words(figure) if len(word) == 1]
    assert "".join(tokens) == "941>94" * 2  # training, then writing
    assert (tiles(figure, grid.X), tiles(figure, grid.OUTPUT)) == (9, 3)
    assert len(arrows(figure)) == 2 + 2 + 3  # a shift twice, and what is written three times


def test_only_the_rnn_and_the_writer_wait():
    figure = training.ladders(4)
    heights = {}
    for arrow in arrows(figure):
        if arrow.get_linewidth() == 4:
            row = int(arrow._posA_posB[0][1] // 1.95)
            heights[row] = heights.get(row, 0) + 1
    assert heights == {0: 3, 2: 3}
    assert len(arrows(figure)) == (4 + 3) + 10 + (10 + 3)  # a causal mask lets 10 of 16 pass


def test_times_are_drawn_in_milliseconds_over_the_lengths():
    figure = training.times([8, 64], {"RNN": [0.001, 0.02], "writing": [0.1, 1.5]})
    (chart,) = [axes for axes in figure.axes if axes.get_xscale() == "log"]
    assert [line.get_ydata().tolist() for line in chart.lines] == [[1, 20], [100, 1500]]
    assert all(np.array_equal(line.get_xdata(), [8, 64]) for line in chart.lines)
    assert {"RNN", "writing"} <= set(words(figure))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: training.teacher_forcing("12345"), "5 tokens, .* room for 4"),
        (lambda: training.ladders(5), "5 tokens, .* room for 4"),
        (lambda: training.times([8, 64], {"RNN": [1]}), "2 lengths, 1 times: give as many"),
        (lambda: training.times([8], {name: [1] for name in "abcde"}), "name 5 curves"),
    ],
)
def test_what_does_not_fit_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
