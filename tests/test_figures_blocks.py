"""What the pictures of chapter 07 must say."""

import numpy as np
import pytest

from qkv.figures import blocks

RUN = {"post-norm": [[0.5, 1.0]], "pre-norm": [[0.25, 0.5]]}


def words(figure):
    return [text for axes in figure.axes for text in axes.texts]


def test_the_norm_stands_on_the_road_in_post_norm_and_beside_it_in_pre_norm():
    texts = words(blocks.orders())
    roads = sorted({text.get_position()[0] for text in texts if text.get_text() == "+"})
    norms = [text.get_position() for text in texts if text.get_text() == "norm"]
    post, pre = ([y for x, y in norms if x == pytest.approx(road)] for road in roads)
    assert len(norms) == 5 and len(post) == 2
    plus = [text.get_position()[1] for text in texts if text.get_text() == "+"]
    assert len(pre) == 1 and pre[0] > max(plus), "the one on pre-norm's road comes after all"


def test_each_stage_of_the_layer_norm_shows_its_own_mean_and_spread():
    figure = blocks.layer_norm({"x": [1, 2, 3, 6], "centred": [-2, -1, 0, 3]})
    (axes,) = figure.axes
    bars = [line.get_xdata() for line in axes.lines if line.get_linewidth() == blocks.ROAD]
    spread = np.sqrt(3.5)  # biased: 14 / 4
    np.testing.assert_allclose(bars, [[3 - spread, 3 + spread], [-spread, spread]])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "centred"]


def test_gradients_share_one_logarithmic_scale_that_holds_every_run():
    figure = blocks.gradients(RUN, [2, 24], {"post-norm": [[1e-3, 4.0]], "pre-norm": [[1, 1]]})
    left, right = figure.axes[:2]
    assert left.get_yscale() == right.get_yscale() == "log"
    assert left.get_ylim() == right.get_ylim()
    assert left.get_ylim()[0] < 1e-3 and left.get_ylim()[1] > 4
    assert right.lines[0].get_xdata().tolist() == [2, 24]
    assert left.lines[0].get_xdata().tolist() == [1, 2], "blocks are counted from 1"


def test_training_has_a_panel_for_each_depth():
    figure = blocks.training({2: RUN, 12: RUN}, guess=0.1)
    assert [axes.get_title() for axes in figure.axes[:2]] == ["2 blocks", "12 blocks"]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ({"x": [1, 2], "y": [1, 2, 3]}, r"'y' has shape \(3,\), expected one token"),
        ({"x": [[1, 2]]}, r"'x' has shape \(1, 2\)"),
        ({"x": [1, 2, 3, 4, 5]}, "5 features, .* room for 4"),
    ],
)
def test_stages_that_are_not_the_same_token_are_refused(stages, message):
    with pytest.raises(ValueError, match=message):
        blocks.layer_norm(stages)
