"""What the pictures of chapter 13 must say."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from qkv.figures import grid, sums

LABELS = {"source": ["a1", "a2", "a3", "+", "b1", "b2"], "written": ["1st", "2nd", "3rd"]}


def cells(figure, role):
    return [p for p in figure.findobj(Rectangle) if p.get_gid() == role.label]


def inside(figure, patch):
    """The words at the centre of a patch."""
    (axes,) = figure.axes
    x, y = patch.get_x() + patch.get_width() / 2, patch.get_y() + patch.get_height() / 2
    return [t.get_text() for t in axes.texts if t.get_position() == pytest.approx((x, y))]


# by_carries


def bars(figure):
    """The bars by digit and number of carries, by where they stand."""
    found = {}
    for bar in figure.axes[0].patches:
        middle = bar.get_x() + bar.get_width() / 2
        found[round(middle), round((middle - round(middle)) / 0.27) + 1] = bar
    return found


def look(bar):
    return bar.get_facecolor(), bar.get_edgecolor(), bar.get_hatch() or ""


def shares(seeds=2):
    return np.linspace(0.8, 0.97, 9 * seeds).reshape(seeds, 3, 3)


def test_bars_are_the_mean_share_wrong_up_from_zero_and_lines_the_range():
    right = shares()
    figure = sums.by_carries(right, counts=[5, 4, 3])
    heights = [[bars(figure)[d, c].get_height() for c in range(3)] for d in range(3)]
    np.testing.assert_allclose(heights, 1 - right.mean(axis=0))
    assert {bar.get_y() for bar in bars(figure).values()} == {0}
    assert figure.axes[0].get_ylim()[0] == 0
    ends = [
        sorted(line.get_ydata()) for line in figure.axes[0].lines if line.get_color() != "white"
    ]
    np.testing.assert_allclose(ends, np.sort(1 - right, axis=0).reshape(2, 9).T)


def test_numbers_of_carries_differ_in_colour_and_in_hatch_and_the_key_says_which_is_which():
    figure = sums.by_carries(shares(), counts=[5, 4, 3])
    looks = [{look(bars(figure)[d, c]) for d in range(3)} for c in range(3)]
    assert all(len(found) == 1 for found in looks)  # the same at every digit
    key = figure.axes[1]
    assert [look(swatch) for swatch in key.patches] == [found.pop() for found in looks]
    for told_apart in zip(*map(look, key.patches), strict=True):  # by each of the three alone
        assert len(set(told_apart)) == 3
    assert [t.get_text() for t in key.texts][1:] == ["0 (5)", "1 (4)", "2 (3)"]


def test_no_sums_are_a_dash_no_mistakes_a_nought_and_neither_is_a_bar():
    right = shares()
    right[:, 0, 2] = np.nan
    right[:, 2, 1] = 1
    figure = sums.by_carries(right, counts=[5, 4, 0])
    assert set(np.ndindex(3, 3)) - set(bars(figure)) == {(0, 2), (2, 1)}
    said = {t.get_text(): t.get_position() for t in figure.axes[0].texts}
    assert said == {"–": pytest.approx((0.27, 0)), "0": pytest.approx((2, 0))}


def test_all_right_still_has_an_axis():
    figure = sums.by_carries(np.ones((1, 3, 3)), counts=[1, 1, 1])
    assert figure.axes[0].get_ylim() == (0, 0.01)


# heads


@pytest.mark.parametrize("h", [1, 2, 4])
def test_each_seeds_weights_are_a_row_of_the_block_of_their_head_and_token(h):
    weights = np.random.default_rng(0).dirichlet(np.ones(6), size=(5, h, 3))
    drawn = cells(sums.heads(weights, **LABELS), grid.WEIGHTS)
    assert len(drawn) == weights.size
    # By rows over the whole sheet: head, seed; then from left to right: token, place.
    drawn.sort(key=lambda cell: (round(cell.get_y(), 3), cell.get_x()))
    expected = weights.transpose(1, 0, 2, 3).ravel()
    wanted = [grid.mix(grid.WEIGHTS.colour, weight) for weight in expected]
    np.testing.assert_allclose([cell.get_facecolor()[:3] for cell in drawn], wanted, atol=1e-9)


def test_labels_of_the_source_stand_over_their_columns_once_and_heads_on_the_left():
    figure = sums.heads(np.full((5, 2, 3, 6), 1 / 6), **LABELS)
    (axes,) = figure.axes
    said = [t.get_text() for t in axes.texts]
    assert [said.count(name) for name in ("head 1", "head 2", "head 3", "2nd")] == [1, 1, 0, 1]
    columns = sorted({cell.get_x() + cell.get_width() / 2 for cell in cells(figure, grid.WEIGHTS)})
    columns = [x for x, before in zip(columns, [-1, *columns], strict=False) if x - before > 1e-6]
    letters = sorted((t for t in axes.texts if "\n" in t.get_text() or t.get_text() == "+"), key=at)
    assert [t.get_text().replace("\n", "") for t in letters] == 3 * LABELS["source"]
    np.testing.assert_allclose([at(t) for t in letters], columns)


def at(words):
    return words.get_position()[0]


# gallery


def columns(figure, pick):
    """Which of the columns 0, 1, 2 of a gallery of one sum have what is picked from its axes."""
    (axes,) = figure.axes
    (question,) = [t for t in axes.texts if " + " in t.get_text()]
    return [round((x - at(question)) / 0.59 + 1) for x in sorted(pick(axes))]


def crosses(axes):
    return [at(t) for t in axes.texts if t.get_text() == "×"]


def frames(axes):
    red = to_rgb(sums.WRONG)
    return [
        p.get_x() + p.get_width() / 2
        for p in axes.patches
        if p.get_edgecolor()[:3] == red and p.get_linewidth() == sums.THICK and not p.get_fill()
    ]


def carries(axes):
    # A carry is a 1 in no tile.
    tiles = [*cells(axes.figure, grid.X), *cells(axes.figure, grid.OUTPUT)]
    in_tiles = [p.get_y() + p.get_height() / 2 for p in tiles]
    ones = [t for t in axes.texts if t.get_text() == "1"]
    return [at(t) for t in ones if not np.isclose(t.get_position()[1], in_tiles).any()]


@pytest.mark.parametrize(
    ("a", "b", "receive"),
    [
        (199, 1, [0, 1]),
        (95, 5, [0, 1]),
        (328, 7, [1]),
        (3, 33, []),
        (295, 7, [0, 1]),
        (190, 20, [0]),
        (900, 99, []),
    ],
)
def test_a_carry_stands_over_the_column_that_receives_it(a, b, receive):
    assert columns(sums.gallery([(a, b, "0")]), carries) == receive


@pytest.mark.parametrize(
    ("a", "b", "written", "wrong"),
    [
        (295, 7, "292", [0, 1]),
        (328, 7, "325", [1]),
        (328, 7, "335", []),
        (3, 33, "46_", [1]),  # padding is no digit, and ones stand under ones
        (3, 33, "36", []),
        (3, 33, "136", [0]),
        (95, 5, "00", [0]),  # a digit that is missing is wrong too
        (5, 6, "1_1", [0, 1]),
        (1, 1, "", [2]),
    ],
)
def test_a_digit_is_framed_and_crossed_where_it_is_wrong_and_only_there(a, b, written, wrong):
    figure = sums.gallery([(a, b, written)])
    assert columns(figure, frames) == columns(figure, crosses) == wrong


def test_the_right_answer_stands_over_what_was_written_ones_over_ones():
    figure = sums.gallery([(3, 33, "365")])
    right, written = cells(figure, grid.X), cells(figure, grid.OUTPUT)
    assert [inside(figure, tile) for tile in right] == [["3"], ["6"]]
    assert [inside(figure, tile) for tile in written] == [["3"], ["6"], ["5"]]
    assert right[-1].get_x() == written[-1].get_x()
    assert right[0].get_y() < written[0].get_y()  # y goes down


@pytest.mark.parametrize(("n", "a_row"), [(1, 1), (3, 3), (4, 2), (5, 3), (6, 3)])
def test_sums_stand_two_or_three_a_row_in_their_order(n, a_row):
    figure = sums.gallery([(100 + i, 0, "0") for i in range(n)])
    (axes,) = figure.axes
    questions = [t for t in axes.texts if " + " in t.get_text()]
    assert [t.get_text() for t in questions] == [f"{100 + i} + 0" for i in range(n)]
    assert len({round(at(t), 3) for t in questions}) == a_row
    assert [t.get_text() for t in axes.texts].count("written") == -(-n // a_row)


# ladder


def test_a_step_is_a_ring_a_seed_a_dot_at_the_mean_and_the_mean_as_a_number():
    steps = {"first": [0.25, 0.3, 0.95], "then": [0.9, 0.91]}  # the mean is not the median
    chart, page = sums.ladder(steps).axes
    rings = [line for line in chart.lines if line.get_fillstyle() == "none"]
    dots = [line for line in chart.lines if line.get_marker() == "o" and line not in rings]
    assert [list(line.get_xdata()) for line in rings] == [*steps.values()]
    assert [line.get_xdata()[0] for line in dots] == pytest.approx([0.5, 0.905])
    spans = [line.get_xdata() for line in chart.lines if line.get_linewidth() == 3]
    np.testing.assert_allclose(spans, [[0.25, 0.95], [0.9, 0.91]])
    height = {t.get_text(): t.get_position()[1] for t in page.texts}
    assert height["first"] < height["0.500"] < height["then"] < height["0.905"]  # y goes down
    assert rings[0].get_ydata()[0] < rings[1].get_ydata()[0] and chart.yaxis_inverted()


@pytest.mark.parametrize(
    ("found", "ends"),
    [([0.25, 0.93], (0.2, 1)), ([0.62, 0.68], (0.6, 0.7)), ([1], (0.9, 1)), ([0], (0, 0.1))],
)
def test_the_axis_says_where_it_begins_and_ends_and_holds_every_ring(found, ends):
    (axes, _) = sums.ladder({"a": found}).axes
    assert list(axes.get_xticks()) == pytest.approx(ends)
    assert [t.get_text() for t in axes.get_xticklabels()] == [f"{end:.1f}" for end in ends]
    low, high = axes.get_xlim()
    assert low < min(found) and max(found) < high


# What is refused

WEIGHTS = np.full((5, 2, 3, 6), 1 / 6)
HALF_NAN = np.where(np.arange(2)[:, None, None] == 0, np.nan, shares())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: sums.by_carries(shares()[0], counts=[1] * 3), r"right has shape \(3, 3\), exp"),
        (lambda: sums.by_carries(shares()[:0], counts=[1] * 3), r"right has shape \(0, 3, 3\)"),
        (lambda: sums.by_carries(shares(), counts=[1, 2]), "2 counts, 3 numbers_of_carries"),
        (lambda: sums.by_carries(100 * shares(), counts=[1] * 3), "right has numbers .* to 97, "),
        (lambda: sums.by_carries(HALF_NAN, counts=[1] * 3), "right is NaN for some .* 1st digit"),
        (lambda: sums.heads(WEIGHTS[0], **LABELS), r"weights have shape \(2, 3, 6\), expected"),
        (lambda: sums.heads(WEIGHTS[..., :5], **LABELS), r"h, 3, 6\] for 3 written and 6 source"),
        (lambda: sums.heads(WEIGHTS[:, :, :2], **LABELS), r"weights have shape \(5, 2, 2, 6\)"),
        (lambda: sums.heads(np.ones((6, 1, 3, 6)), **LABELS), "6 seeds, .* room for 5"),
        (lambda: sums.heads(np.ones((1, 5, 3, 6)), **LABELS), "5 heads, .* room for 4"),
        (
            lambda: sums.heads(np.ones((1, 1, 4, 1)), source=["a"], written=[*"abcd"]),
            "4 written, .* room for 3",
        ),
        (
            lambda: sums.heads(np.ones((1, 1, 1, 7)), source=[*"abcdefg"], written=["1st"]),
            "7 source, .* room for 6",
        ),
        (
            lambda: sums.heads(np.ones((1, 1, 1, 1)), source=["a10"], written=["1st"]),
            "3 characters in a source label, .* room for 2",
        ),
        (lambda: sums.gallery([]), "sums is empty"),
        (lambda: sums.gallery([(1, 1, "3")] * 7), "7 sums, .* room for 6"),
        (lambda: sums.gallery([(999, 1, "000")]), r"sums has 999 \+ 1, expected .* 999"),
        (lambda: sums.gallery([(-1, 1, "0")]), r"sums has -1 \+ 1, expected a, b ≥ 0"),
        (lambda: sums.gallery([(1, 1, "2___")]), "sums has '2___' written, .* at most 3 symbols"),
        (lambda: sums.ladder({}), "steps is empty"),
        (lambda: sums.ladder({str(i): [1] for i in range(9)}), "9 steps, .* room for 8"),
        (lambda: sums.ladder({"a": [0.5], "b": [97]}), r"steps\['b'\] has numbers from 97 to 97"),
        (lambda: sums.ladder({"a": [[0.5, 0.6]]}), r"steps\['a'\] is \[\[0.5, 0.6\]\], expected"),
        (lambda: sums.ladder({"a": []}), r"steps\['a'\] is \[\], expected a share for each seed"),
        (lambda: sums.ladder({"a": [0.5, np.nan]}), r"steps\['a'\] is \[0.5, nan\], expected"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
