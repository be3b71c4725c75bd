"""What the pictures of chapter 10 must say."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from qkv.figures import gradients, grid


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.mark.parametrize(("a", "b"), [(2, 5), (3, 4)])
def test_the_ways_carry_the_slopes_that_nudging_finds(a, b):
    def loss(a, b):
        return (a * b) * (a + b)

    said, nudge = words(gradients.ways(a, b)), 1e-4
    g_a = (loss(a + nudge, b) - loss(a - nudge, b)) / (2 * nudge)
    g_b = (loss(a, b + nudge) - loss(a, b - nudge)) / (2 * nudge)
    assert f"$g_a$ = {g_a:.0f}" in said and f"$g_b$ = {g_b:.0f}" in said
    assert f"{loss(a, b)}" in said
    for slope in (a, b, a * b, a + b):
        assert f"{slope}" in said, "a slope on an arrow"


def test_the_same_entry_is_dark_on_the_way_and_on_the_way_back():
    n, k, m = 3, 2, 4
    figure = gradients.product(n, k, m, row=2, column=1)
    cells = [p for p in figure.findobj(Rectangle) if p.get_gid() == grid.X.label]
    dark = [p.get_facecolor()[0] < 0.8 for p in cells]
    shapes = [(n, k), (k, m), (n, m), (n, m), (m, k), (n, k)]
    assert len(dark) == sum(rows * columns for rows, columns in shapes)
    A, B, Y, g, B_T, g_A = (
        part.reshape(shape)
        for part, shape in zip(
            np.split(np.array(dark), np.cumsum([np.prod(shape) for shape in shapes])[:-1]),
            shapes,
            strict=True,
        )
    )
    assert np.argwhere(A).tolist() == np.argwhere(g_A).tolist() == [[2, 1]]
    assert (Y == g).all() and Y[2].all() and Y.sum() == m
    assert (B_T == B.T).all() and B[1].all() and B.sum() == m


def test_the_jacobian_is_that_of_a_softmax():
    p = np.array([0.5, 0.3, 0.2])
    said = words(gradients.jacobian(p))
    expected = [f"{p[i] * ((i == j) - p[j]):.2f}" for i in range(3) for j in range(3)]
    assert [word for word in said if "." in word and "$" not in word] == [
        number.replace("-", "−") for number in expected
    ]
    assert said.count("0") == 3, "each row's sum"


@pytest.mark.parametrize(
    ("p", "message"),
    [
        ([0.5, 0.2], r"sum 0.70: give \[n\], sum 1"),
        ([[1.0]], r"shape \(1, 1\)"),
        ([1 / 6] * 6, "6 shares, .* room for 5"),
    ],
)
def test_shares_that_are_none_are_refused(p, message):
    with pytest.raises(ValueError, match=message):
        gradients.jacobian(p)


def test_nudges_are_drawn_on_two_logarithmic_axes_and_leave_out_an_error_of_0():
    figure = gradients.nudges([0.1, 0.01, 0.001], {"float64": [1e-2, 0, 1e-9]})
    axes = figure.axes[0]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert axes.lines[0].get_ydata().tolist() == [1e-2, 1e-9]
    assert axes.get_ylim()[0] < 1e-9 and axes.get_ylim()[1] > 1e-2


def test_nudges_need_an_error_each():
    with pytest.raises(ValueError, match="2 nudges, 1 errors"):
        gradients.nudges([0.1, 0.01], {"float64": [1e-2]})
