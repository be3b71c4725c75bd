"""What the pictures of chapter 06 must say."""

import numpy as np
import pytest

from qkv.figures import grid, positions

ORDERS = [["a", "b", "c"], ["c", "b", "a"]]


def bars(figure):
    return [p for axes in figure.axes for p in axes.patches if p.get_gid() == grid.OUTPUT.label]


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def curves(figure):
    return [line.get_xydata() for axes in figure.axes for line in axes.lines]


def test_equal_outputs_are_equal_bars_and_all_bars_have_one_scale():
    figure = positions.bag(ORDERS, [[1, 2], [1, 2]], [[4, 1], [2, 3]], asks=1)
    heights = np.array([bar.get_height() for bar in bars(figure)])
    assert heights / heights[0] == pytest.approx([1, 2, 4, 1, 1, 2, 2, 3])


def test_what_is_positive_stands_on_the_line_and_what_is_negative_hangs_from_it():
    figure = positions.bag(ORDERS, [[1, -1], [1, -1]], [[1, -1], [1, -1]], asks=1)
    lines = [line.get_ydata()[0] for line in figure.axes[0].lines]
    up, down = bars(figure)[:2]  # y goes down
    assert up.get_y() + up.get_height() == pytest.approx(lines[0])
    assert down.get_y() == pytest.approx(lines[0])


def test_a_wave_is_its_column_from_top_to_bottom():
    table = np.array([[0.0, 1.0], [0.5, -1.0], [1.0, 0.0]])
    zero, wave = curves(positions.waves(table, [0]))
    shift = wave[:, 0] - zero[:, 0][0]
    assert shift / shift[-1] == pytest.approx(table[:, 0])
    assert (np.diff(wave[:, 1]) > 0).all()


def test_a_hand_starts_upright_and_turns_clockwise():
    quarter = [[0, 1], [1, 0], [0, -1]]  # sine and cosine at 0, a quarter, a half of a turn
    hands = [hand[1] - hand[0] for hand in curves(positions.clocks(quarter, [4]))]
    long = np.linalg.norm(hands[0])
    assert np.array(hands) / long == pytest.approx(np.array([[0, -1], [1, 0], [0, 1]]))  # y down


def test_the_curve_is_the_row_that_is_asked_for():
    products = np.array([[3.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 3.0]])
    figure = positions.how_far(products, 1)
    assert curves(figure)[-1].tolist() == [[0, 1], [1, 3], [2, 1]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: positions.bag([["a"], ["a", "b"]]), "1 words, 2 words_in_the_other_order"),
        (lambda: positions.bag(ORDERS, [1, 2], asks=1), r"'no positions' .*\(2,\), expected \[2"),
        (lambda: positions.bag([["a"] * 6] * 2), "6 words, .* room for 5"),
        (lambda: positions.waves([[0, 0, 0, 0]], [0, 1, 2, 3]), "4 columns, .* room for 3"),
        (lambda: positions.clocks([[0, 1]], [6, 63]), "1 pairs_of_columns, 2 turns"),
        (lambda: positions.clocks([[0, 1] * 5], [6] * 5), "5 faces, .* room for 4"),
        (lambda: positions.how_far([[1, 0]], 0), r"\(1, 2\), expected \[n, n\]"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
