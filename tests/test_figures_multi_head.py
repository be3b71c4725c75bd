"""What the pictures of chapter 05 must say."""

import numpy as np
import pytest

from qkv.figures import grid, multi_head


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def cells(figure, role):
    """Corner of each cell of a role, in the order of drawing: its column and row on the sheet."""
    return [p for axes in figure.axes for p in axes.patches if p.get_gid() == role.label]


def number_in(figure, cell):
    """What is written in a cell."""
    centre = cell.get_x() + cell.get_width() / 2, cell.get_y() + cell.get_height() / 2
    (found,) = (
        text.get_text()
        for axes in figure.axes
        for text in axes.texts
        if np.allclose(text.get_position(), centre)
    )
    return int(found)


def test_each_row_has_its_weights_and_its_blend():
    figure = multi_head.two_questions({"a": [0.25, 0.75]}, {"a": [7.5, 2.5]}, ["key 1", "key 2"])
    assert {"a", "0.250", "0.750", "7.50", "2.50", "key 1", "key 2"} <= set(words(figure))


def test_a_split_keeps_each_number_and_gives_each_head_its_columns():
    figure = multi_head.split_and_merge()
    numbers = [number_in(figure, cell) for cell in cells(figure, grid.Q)]
    assert numbers == [*range(12), 0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]


def test_the_tint_of_a_number_is_its_tokens_in_all_grids():
    figure = multi_head.view_and_transpose()
    tints = {}
    for cell in cells(figure, grid.X):
        tints.setdefault(number_in(figure, cell) // 4, set()).add(cell.get_facecolor())
    assert len(tints) == 3 and all(len(each) == 1 for each in tints.values())
    assert len(set.union(*tints.values())) == 3


def test_the_right_split_stands_above_and_view_alone_below():
    figure = multi_head.view_and_transpose()
    numbers = [number_in(figure, cell) for cell in cells(figure, grid.X)]
    assert numbers[12:24] == [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]
    assert numbers[24:] == list(range(12))


def test_bars_are_the_measured_times_and_dots_the_counted_ones():
    figure = multi_head.cost(
        [1, 16], {"short": [1, 1.02]}, {"short": [1, 9]}, {"short": [1.05, 16.8]}
    )
    above, below, _ = figure.axes
    assert [bar.get_height() for bar in above.patches] == [1, 9]
    assert above.lines[0].get_ydata().tolist() == [1, 1.02]
    assert [bar.get_height() for bar in below.patches] == [1.05, 16.8]


def test_heads_are_drawn_on_the_one_scale_of_weights():
    table = [[[0.1, 0.9], [0.6, 0.4]]]
    faces = [c.get_facecolor() for c in cells(multi_head.heads(table, ["a", "b"]), grid.WEIGHTS)]
    assert faces == [grid.WEIGHT_MAP(w)[:3] + (1.0,) for row in table[0] for w in row]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: multi_head.two_questions({"a": [1]}, {}, ["k"]), "1 weights, 0 blends: give as"),
        (lambda: multi_head.two_questions({"a": [1]}, {"a": [1]}, []), "0 keys, 1 weights: give"),
        (lambda: multi_head.heads([[1, 0]], ["a", "b"]), r"\(1, 2\), expected \[seeds, h, 2\]"),
        (lambda: multi_head.heads([[[1]]] * 7, ["a"]), "7 seeds, .* room for 6"),
        (
            lambda: multi_head.cost([1], *[{"a": [1], "b": [1], "c": [1]}] * 3),
            "3 panels, .* room for 2",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
