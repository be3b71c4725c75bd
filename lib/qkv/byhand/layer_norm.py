"""Layer norm, and the three terms of its backward."""

import numpy as np

from qkv import _require_plain as plain
from qkv.byhand import _require
from qkv.byhand.layer import Array, Layer
from qkv.byhand.rows import column_sum, row_dot, row_sum

EPS = 1e-5  # PyTorch's


def standardise(x: Array, eps: float = EPS) -> tuple[Array, Array]:
    """Each token's numbers with mean 0 and variance 1, and what they were divided by.

    Shapes:
        x: [..., d] -> x_hat [..., d], std [..., 1]
    """
    centred = x - row_sum(x) / x.shape[-1]  # [..., d]
    variance = row_dot(centred, centred) / x.shape[-1]  # [..., 1], divided by d, not d - 1
    std: Array = np.sqrt(variance + eps)  # [..., 1]
    centred /= std
    return centred, std


def layer_norm(x: Array, gain: Array, bias: Array, eps: float = EPS) -> Array:
    """(x - mean) / sqrt(variance + eps) * gain + bias, along the last axis.

    Shapes:
        x: [..., d]   gain, bias: [d]
        returns: [..., d]
    Source:
        Ba et al. 2016
    """
    x_hat, _ = standardise(x, eps)
    y: Array = x_hat * gain + bias
    return y


def layer_norm_backward(
    g: Array, x: Array, gain: Array, eps: float = EPS
) -> tuple[Array, Array, Array]:
    """From the slope by the output to the slopes by x, gain and bias.

    Shapes:
        g, x: [..., d]   gain: [d]
        returns: gx [..., d], g_gain [d], g_bias [d]
    """
    x_hat, std = standardise(x, eps)
    g_gain = column_sum((g * x_hat).reshape(-1, len(gain)))  # [d]; all tokens share the gain
    g_bias = column_sum(g.reshape(-1, len(gain)))  # [d]
    return standardise_backward(g * gain, x_hat, std), g_gain, g_bias


def standardise_backward(g: Array, x_hat: Array, std: Array) -> Array:
    """From the slope by x_hat to the slope by x, in three terms.

    A number moves x_hat in three ways: by itself, through the mean that is taken from all,
    and through the spread that all are divided by. The first passes g on; the second takes
    away g's mean; the third takes away what g has along x_hat. All are divided by std.

    Shapes:
        g, x_hat: [..., d]   std: [..., 1], both from `standardise`
        returns: [..., d]; each token's numbers sum to 0
    """
    d = g.shape[-1]
    itself = g  # [..., d]
    through_mean = row_sum(g) / d  # [..., 1]
    through_spread = x_hat * (row_dot(g, x_hat) / d)  # [..., d]
    gx: Array = itself - through_mean
    gx -= through_spread
    gx /= std
    return gx


class LayerNorm(Layer):
    """Layer norm with a gain, here ``weight`` as in PyTorch, that starts at 1 and a bias at 0.

    Shapes:
        x: [..., d_model] -> [..., d_model]
    Errors:
        TypeError, ValueError: d_model is not a whole number of at least 1, or x does not fit
    Source:
        Ba et al. 2016
    """

    learned = ("weight", "bias")

    def __init__(self, d_model: int, eps: float = EPS) -> None:
        super().__init__()
        plain.positive_int("d_model", d_model)
        self.eps = eps
        self.weight: Array = np.ones(d_model)
        self.bias: Array = np.zeros(d_model)

    def forward(self, x: Array) -> Array:
        _require.tokens("x", x, len(self.weight), self.weight)
        self.x_hat, self.std = standardise(x, self.eps)  # [..., d_model], [..., 1]
        y: Array = self.x_hat * self.weight  # [..., d_model]
        y += self.bias
        return y

    def backward(self, g: Array) -> Array:
        rows = g.reshape(-1, g.shape[-1])  # [N, d_model]
        self.slopes["weight"] = column_sum(rows * self.x_hat.reshape(rows.shape))  # [d_model]
        self.slopes["bias"] = column_sum(rows)  # [d_model]
        return standardise_backward(g * self.weight, self.x_hat, self.std)  # [..., d_model]
