"""What the pictures of chapters 02 and 03, and learning curves, must say."""

import numpy as np
import pytest
import torch

from qkv.figures import curves, grid, masks, picture, query_key_value, scaling
from qkv.figures import words as chapter_00


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def masked(figure):
    return [patch for axes in figure.axes for patch in axes.patches if patch.get_gid() == "masked"]


@pytest.fixture
def axes():
    return picture.chart(picture.new(), picture.Box(1, 1, 5, 2))


def test_a_curve_is_the_median_over_seeds_and_its_band_reaches_from_worst_to_best(axes):
    runs = [[0.0, 0.1], [0.2, 0.3], [0.9, 1.0]]  # unlike mean, uneven range
    panel = curves.Panel("", {"model": runs})
    curves.draw(axes, panel, curves.looks([panel]))
    assert axes.lines[0].get_ydata().tolist() == [0.2, 0.3]
    (band,) = axes.collections
    low, high = band.get_datalim(axes.transData).intervaly
    assert (low, high) == (0.0, 1.0)


def test_baselines_are_dotted_with_their_height_beside_them(axes):
    panel = curves.Panel("", {"model": [[0.0, 1.0]]}, [0.104, 0.895])
    curves.draw(axes, panel, curves.looks([panel]))
    dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert [line.get_ydata()[0] for line in dotted] == [0.104, 0.895]
    assert [text.get_text() for text in axes.texts] == ["0.10", "0.90"]


def test_a_kind_of_model_looks_the_same_in_each_panel_and_in_the_legend():
    run = [[0.0, 1.0]]
    figure = curves.learning(
        [curves.Panel("a", {"one": run, "two": run}), curves.Panel("b", {"two": run})]
    )
    first, second, legend = figure.axes
    assert {line.get_color() for line in second.lines} == {first.lines[1].get_color()}
    assert [line.get_color() for line in legend.lines] == [line.get_color() for line in first.lines]


def test_more_curves_than_can_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="5 curves.*at most 4"):
        curves.learning([curves.Panel("", {str(k): [[0, 1]] for k in range(5)})])


def test_runs_without_a_seed_axis_are_refused():
    with pytest.raises(ValueError, match=r"'model'.*\(2,\), expected \[seeds, times\]"):
        curves.learning([curves.Panel("", {"model": [0, 1]})])


def test_sharpening_writes_the_softmax_of_its_scores():
    written = set(words(scaling.sharpening()))
    assert {"0.63", "0.23", "0.14", "0.9997", "0.0003", "0.0000"} <= written


def test_adding_and_filling_hide_the_same_cells_and_the_weights_are_the_softmax_of_the_rest():
    figure = masks.added_or_filled()
    assert len(masked(figure)) == 3 * 3  # three cells in both results and in the weights
    assert {"1.0", "0.1", "0.9", "0.2", "0.7"} <= set(words(figure))  # of 2 | 0 2 | 1 0 2


def test_the_gallery_hides_the_future_the_padding_and_both():
    future, padding = 15, 6  # of 36 cells each; no query is before the first key, the padding
    assert len(masked(masks.gallery())) == future + padding + (future + padding)


def test_a_leak_shows_as_bars_and_none_as_zeros():
    figure = masks.leak_test(["a", "b"], ["a", "c"], {"causal": [0, 1], "no mask": [0.5, 1]})
    bars = [p for axes in figure.axes for p in axes.patches if p.get_gid() == grid.OUTPUT.label]
    assert [round(bar.get_height() / bars[0].get_height(), 2) for bar in bars] == [1, 0.5, 1]
    assert words(figure).count("0") == 1


SHEET = picture.sheet(picture.new())
RUN = {"model": [[0.0, 1.0]]}
BOOKS = ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda: grid.weights(SHEET, 0, 0, [[1, 0]], mask=[True, False]),
            r"mask .*\(2,\).*\(1, 2\)",
        ),
        (lambda: grid.scores(SHEET, 0, 0, [[1, 0]], mask=[[True]]), r"mask has shape \(1, 1\)"),
        (lambda: grid.scores(SHEET, 0, 0, [1, 0]), r"scores have shape \(2,\), expected \[n_q"),
        (lambda: query_key_value.library("q", BOOKS, [0.1] * 5), "6 labels, 5 weights: give as"),
        (lambda: query_key_value.library("q", BOOKS, [0.1] * 6), "6 books, .* room for 5"),
        (lambda: query_key_value.row(["a", "b"], [1], "a"), "2 words, 1 weights: give as many"),
        (lambda: query_key_value.heat_map([[1, 0]], ["a"], ["b"]), r"\(1, 2\), expected \(1, 1\)"),
        (lambda: query_key_value.one_position(0, [[1, 0]]), r"\(1, 2\), expected \[n, n\]"),
        (lambda: query_key_value.lookup([1, 0], [[1, 2]]), "2 weights, 1 values: give as many"),
        (lambda: query_key_value.lookup([1], [[1, 2, 3]]), r"\(1, 3\), expected \[n, 2\]"),
        (lambda: query_key_value.lookup([1] * 4, [[1, 2]] * 4), "4 values, .* room for 3"),
        (lambda: chapter_00.embedding(["a", "b"], [0], [[1], [2]]), "2 words, 1 ids: give as many"),
        (lambda: masks.causal(["a", "b"], [[1]]), r"\(1, 1\), expected \(2, 2\) for 2 words"),
        (lambda: masks.leak_test(["a"], ["b", "c"], {"m": [0]}), "1 words, 2 changed: give as"),
        (
            lambda: masks.leak_test(["a"], ["b"], {"m": [0, 1]}),
            r"'m' have shape \(2,\), .* 1 words",
        ),
        (lambda: scaling.spread({d: [0, 1] for d in (1, 2, 3, 4)}), "4 widths, .* room for 3"),
        (lambda: scaling.sharpening([1, 2, 3, 4]), "4 scores, .* room for 3"),
        (lambda: curves.learning([]), "panels is empty: give one"),
        (lambda: curves.learning([curves.Panel("a", {})]), "panel 'a' has no runs"),
        (lambda: curves.learning([curves.Panel("a", RUN)], times=[1]), "1 times, 2 numbers_a_run"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


@pytest.mark.filterwarnings("error")
def test_scores_that_are_all_zero_are_white_and_outputs_that_never_move_are_zeros():
    axes = picture.sheet(picture.new())
    grid.scores(axes, 0, 0, [[0.0, 0.0]])
    grid.scores(axes, 0, 1, [[0.0, -np.inf]], reach=0, mask=[[True, False]])
    faces = [p.get_facecolor()[:3] for p in axes.patches if p.get_gid() == "scores"]
    assert len(faces) == 3 and np.allclose(faces, 1, atol=0.01)
    assert words(masks.leak_test(["a"], ["b"], {"m": [0]})).count("0") == 1


def test_tensors_that_require_gradients_are_drawn_as_their_numbers():
    weights = [0.6, 0.4]
    tensor = torch.tensor(weights, dtype=torch.float64, requires_grad=True)
    plain = query_key_value.row(["it", "is"], weights).png()
    assert query_key_value.row(["it", "is"], tensor).png() == plain
    query_key_value.heat_map(tensor[None], ["it"], ["it", "is"])
    curves.learning([curves.Panel("", {"model": tensor[None]})])
