"""What the pictures of chapter 11 must say."""

import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch

from qkv.figures import attention_backward as pictures
from qkv.figures import grid


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def cells(figure, role):
    return [p for axes in figure.axes for p in axes.patches if p.get_gid() == role.label]


def arrows(figure):
    """Where each arrow sets out and arrives, in drawing order."""
    patches = [p for axes in figure.axes for p in axes.patches if isinstance(p, FancyArrowPatch)]
    return [p._posA_posB for p in patches]


def test_the_backward_is_the_forward_with_all_arrows_turned_round():
    ways = arrows(pictures.flow())
    lower = 3.6  # inches from the forward's boxes to the backward's
    forward, backward = (
        {(round(x, 2), round(u, 2)) for (x, _), (u, _) in half} for half in (ways[:5], ways[5:])
    )
    assert backward == {(end, start) for start, end in forward}
    heights = [sorted(y for way in half for _, y in way) for half in (ways[:5], ways[5:])]
    assert np.allclose(np.array(heights[0]) + lower, heights[1])


def test_each_gradient_has_as_many_cells_as_its_matrix():
    figure = pictures.flow()
    for role, count in ((grid.Q, 12), (grid.K, 20), (grid.V, 10), (grid.OUTPUT, 6)):
        assert len(cells(figure, role)) == 2 * count
    assert {"3 × 4", "5 × 4", "5 × 2", "3 × 5", "3 × 2"} <= set(words(figure))


def test_three_roles_meet_in_self_and_two_in_cross():
    coloured = [end for _, end in arrows(pictures.roles())]
    into_self = [end for end in coloured if 1.4 < end[0] < 2]
    into_cross = [end for end in coloured if 5 < end[0] < 6]
    assert (len(into_self), len(into_cross)) == (3, 2)


def test_only_what_is_exactly_0_is_a_dash():
    figure = pictures.reach([[0.5, 0, 0], [1e-9, 1, 0], [0.2, 0.1, 0.4]])
    assert len(cells(figure, grid.MASKED)) == 3 and len(cells(figure, grid.X)) == 6


def test_each_row_is_a_share_of_its_strongest():
    figure = pictures.reach([[2.0, 1.0], [20.0, 10.0]])
    faces = [cell.get_facecolor()[:3] for cell in cells(figure, grid.X)]
    assert faces[0] == faces[2] == grid.mix(grid.X.colour, grid.FILL)
    assert faces[1] == faces[3] == grid.mix(grid.X.colour, grid.FILL / 2)


def test_the_query_goes_the_way_that_it_is_given():
    path = [[1, 1], [1.1, 0.6], [1.3, 0.1]]
    (axes,) = pictures.pull([[-1, 0], [1, 0]], [10, 0], path).axes
    assert np.array_equal(axes.lines[-1].get_xydata(), path)
    assert {"key 1 costs 10", "key 2 costs 0", "query"} <= {t.get_text() for t in axes.texts}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: pictures.reach([[1, 2, 3]]), r"lengths have shape \(1, 3\), expected \[n, n\]"),
        (lambda: pictures.reach(np.ones((8, 8))), "8 tokens, .* room for 7"),
        (lambda: pictures.pull([[1, 0]], [1, 2], [[0, 0]]), "1 keys, 2 prices: give as many"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
