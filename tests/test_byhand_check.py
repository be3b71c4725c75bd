"""The gradient check finds what is wrong, says where, and lets pass what is right."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from qkv.byhand.attention import attention, attention_backward
from qkv.byhand.check import GradientError, central_differences, check
from qkv.byhand.layer_norm import layer_norm, standardise
from qkv.byhand.linear import Linear, matmul_backward
from qkv.byhand.softmax import softmax
from support import says

Array = np.ndarray[Any, Any]


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def test_central_differences_of_known_slopes_leave_x_as_it_was() -> None:
    x = draw(2, 3)
    kept = x.copy()
    slopes = central_differences(lambda: float((x**3).sum()), x)
    np.testing.assert_allclose(slopes, 3 * kept**2, atol=1e-8)
    assert (x == kept).all()


X, GAIN = draw(2, 5, seed=1), draw(5, seed=2)
P, (X_HAT, STD) = softmax(X), standardise(X)
Q, K, V = draw(2, 3, 4), draw(2, 5, 4, seed=1), draw(2, 5, 6, seed=2)
A = attention(Q, K, V, return_weights=True)[1]
GQ_GK_GV = ("Q", "K", "V")


def mean(x: Array) -> Array:
    return x.mean(-1, keepdims=True)


def layer_norm_without(term: str) -> Callable[[Array], Array]:
    def backward(g: Array) -> Array:
        g = g * GAIN
        itself, through_mean, through_spread = g, mean(g), X_HAT * mean(g * X_HAT)
        terms = {"itself": itself, "mean": -through_mean, "spread": -through_spread}
        return sum(value for name, value in terms.items() if name != term) / STD

    return backward


def attention_with(wrong: str) -> Callable[[Array], tuple[Array, Array, Array]]:
    scale = 1 / math.sqrt(4)

    def backward(g: Array) -> tuple[Array, Array, Array]:
        gA = g @ V.swapaxes(-1, -2)
        gS = A * (gA - (0 if wrong == "softmax's sum" else (gA * A).sum(-1, keepdims=True)))
        gS = gS * (1 if wrong == "scale" else scale)
        gK = gS.swapaxes(-1, -2) @ (gS @ K if wrong == "gK from gQ" else Q)
        gV = A.swapaxes(-1, -2) @ (g * scale if wrong == "gV scaled" else g)
        return gS @ K, gK, gV

    return backward


WRONG: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, Array], str]] = {
    "softmax: no sum term": (softmax, lambda g: P * g, {"x": X}, "x"),
    "softmax: diagonal alone": (softmax, lambda g: P * (1 - P) * g, {"x": X}, "x"),
    "matmul: factors swapped": (
        np.matmul,
        lambda g: matmul_backward(g, X[:, :2].T, X[:, :2].T),
        {"A": X[:, :2].copy(), "B": X[:, :2].copy()},
        "A",
    ),
    **{
        f"layer_norm: without {term}": (
            *(lambda x: layer_norm(x, GAIN, GAIN), layer_norm_without(term), {"x": X}, "x"),
        )
        for term in ("itself", "mean", "spread")
    },
    **{
        f"attention: {wrong}": (attention, attention_with(wrong), dict(Q=Q, K=K, V=V), argument)
        for wrong, argument in (
            ("softmax's sum", "Q"),
            ("scale", "Q"),
            ("gK from gQ", "K"),
            ("gV scaled", "V"),
        )
    },
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_backward_is_named_with_its_argument_and_index(fault: str) -> None:
    forward, backward, inputs, argument = WRONG[fault]
    with pytest.raises(GradientError) as caught:
        check(fault, forward, backward, inputs)
    message = str(caught.value)
    assert message.startswith(f"{fault}: the slope by {argument}[")
    assert "by backward" in message and "by central differences" in message


def test_the_index_named_is_the_one_that_is_wrong() -> None:
    def backward(g: Array) -> Array:
        slope = 3 * X**2 * g
        slope[1, 3] *= 1.001
        return slope

    with says(GradientError, "cube: the slope by x[1, 3] is", "allowed 1e-06"):
        check("cube", lambda x: x**3, backward, {"x": X})
    check("cube", lambda x: x**3, backward, {"x": X}, tolerance=1e-2)


def test_not_a_number_is_wrong_too() -> None:
    with says(GradientError, "square: the slope by x[0, 0] is nan"):
        check("square", np.square, lambda g: g * np.nan, {"x": X})


def test_right_ones_pass_with_their_errors() -> None:
    backward = attention_with("nothing")
    errors = check("attention", attention, backward, {"Q": Q, "K": K, "V": V})
    assert set(errors) == {"Q", "K", "V"} and all(0 <= e < 1e-8 for e in errors.values())
    for ours, expected in zip(attention_backward(Q[..., [0] * 6], Q, K, V, A), "QKV", strict=True):
        assert ours.shape == {"Q": Q, "K": K, "V": V}[expected].shape


def test_a_scalar_has_a_slope_without_an_index() -> None:
    x = np.array(2.0)
    with says(GradientError, "square: the slope by x is"):
        check("square", np.square, lambda g: 3 * x * g, {"x": x})


def test_a_layers_parameters_are_checked() -> None:
    layer, x = Linear(3, 2, np.random.default_rng(0)), draw(4, 3)

    def backward(g: Array) -> Array:
        gx = layer.backward(g)
        layer.slopes["bias"] = layer.slopes["bias"] / 4  # the mean, not the sum
        return gx

    with says(GradientError, "Linear: the slope by bias"):
        check("Linear", layer, backward, {"x": x}, layer=layer)


def test_x_is_left_as_it_was_when_f_fails() -> None:
    x = draw(2, 3)
    kept = x.copy()

    def fails() -> float:
        raise RuntimeError("no number")

    with says(RuntimeError, "no number"):
        central_differences(fails, x)
    assert (x == kept).all()


def test_what_cannot_be_compared_is_refused() -> None:
    with says(ValueError, "nothing: there is nothing to check", "give inputs"):
        check("nothing", lambda: 0.0, lambda g: None, {})
    with says(TypeError, "x must be float64", "float32"):
        check("square", np.square, lambda g: g, {"x": X.astype(np.float32)})
    with says(TypeError, "x must be a numpy.ndarray", "list"):
        central_differences(lambda: 0.0, [1.0])  # type: ignore[arg-type]
    with says(ValueError, "nudge must be above 0"):
        central_differences(lambda: 0.0, X, nudge=0)
    with says(ValueError, "square: backward returns 2 slopes for 1 inputs, x"):
        check("square", np.square, lambda g: (g, g), {"x": X})
    with says(ValueError, "square: backward returns 1 slopes for 0 inputs, none"):
        check("square", lambda: X, lambda g: g, {})
    with says(ValueError, "square: the slope by x has shape [2]", "x has [2, 5]"):
        check("square", np.square, lambda g: g.sum(1), {"x": X})
