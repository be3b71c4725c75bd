"""Softmax, and the loss that follows it: cross-entropy, with or without padding."""

import numpy as np

from qkv.byhand import _require
from qkv.byhand.layer import Array, Layer
from qkv.byhand.rows import row_dot, row_sum


def softmax(x: Array) -> Array:
    """exp(x) along the last axis, divided by its sum; a row of nothing but -inf gives zeros.

    Shapes:
        x: [..., n] -> [..., n]; each row of the result sums to 1, or to 0
    """
    largest = x.max(-1, keepdims=True)  # [..., 1]
    largest[np.isneginf(largest)] = 0  # -inf - -inf would be NaN
    p: Array = np.exp(x - largest)  # [..., n]; at most 1, so nothing overflows
    total = row_sum(p)  # [..., 1]
    total[total == 0] = 1
    p /= total
    return p


def softmax_backward(g: Array, p: Array) -> Array:
    """From the slope by p = softmax(x) to the slope by x.

    One score moves all weights of its row: dp_j / dx_i = p_j (1 if i = j else 0) - p_j p_i.
    So the slope by x_i is p_i (g_i - sum over j of g_j p_j): what i gains, the others lose.

    Shapes:
        g, p: [..., n] -> [..., n]; each row of the result sums to 0
    """
    shared = row_dot(g, p)  # [..., 1]
    gx = g - shared  # [..., n]
    gx *= p
    return gx


def log_softmax(x: Array) -> Array:
    """log(softmax(x)) without the log of a number that was rounded to 0.

    Shapes:
        x: [..., n], finite -> [..., n]
    """
    z: Array = x - x.max(-1, keepdims=True)  # [..., n]
    z -= np.log(row_sum(np.exp(z)))  # the log of the whole total: at least log 1
    return z


def cross_entropy(logits: Array, target: Array, pad: int | None = None) -> float:
    """Mean of -log softmax(logits)[target] over the positions whose target is not ``pad``.

    Shapes:
        logits: [..., vocab]   target: ids [...]
        returns: one number, in nats
    Errors:
        TypeError, ValueError: target holds no whole numbers, does not fit the logits, lies
            outside the vocabulary, or there is nothing to count
    """
    counted = _require.targets(logits, target, pad)  # bool [N]
    log_p = log_softmax(logits).reshape(target.size, -1)  # [N, vocab]
    of_target = log_p[np.arange(target.size), target.reshape(-1)]  # [N]
    return float(-of_target[counted].mean())


def cross_entropy_backward(logits: Array, target: Array, pad: int | None = None) -> Array:
    """The slope of `cross_entropy` by the logits: (softmax(logits) - one-hot) / count.

    -log p has the slope -1 / p at the target and 0 elsewhere; softmax's Jacobian makes of
    that p - 1 at the target, and p elsewhere.

    Shapes:
        logits: [..., vocab]   target: ids [...]
        returns: [..., vocab]; each row sums to 0
    """
    counted = _require.targets(logits, target, pad)  # bool [N]
    g: Array = softmax(logits).reshape(target.size, -1)  # [N, vocab]
    g[np.arange(target.size), target.reshape(-1)] -= 1
    g *= counted[:, None]  # what does not count has no slope
    g /= np.count_nonzero(counted)
    return g.reshape(logits.shape)


class CrossEntropy(Layer):
    """The loss as a layer: forward gives the number, backward the logits' slope.

    Shapes, errors:
        as `cross_entropy`
    """

    def __init__(self, pad: int | None = None) -> None:
        super().__init__()
        self.pad = pad

    def forward(self, logits: Array, target: Array) -> float:
        self.logits, self.target = logits, target
        return cross_entropy(logits, target, self.pad)

    def backward(self) -> Array:
        return cross_entropy_backward(self.logits, self.target, self.pad)
