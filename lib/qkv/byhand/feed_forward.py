"""The feed-forward layer: each token by itself, wide and back."""

import numpy as np

from qkv.byhand.layer import Array, Layer
from qkv.byhand.linear import Linear


def relu(x: Array) -> Array:
    """max(0, x), number by number.

    Shapes:
        x: any, and so the result
    """
    return np.maximum(x, 0)


def relu_backward(g: Array, y: Array) -> Array:
    """From the slope by y = relu(x) to the slope by x: what was cut off passes nothing on.

    Shapes:
        g, y: the same, and so the result
    """
    gx: Array = g * (y > 0)
    return gx


class FeedForward(Layer):
    """max(0, x W_1 + b_1) W_2 + b_2.

    Shapes:
        x: [..., n, d_model] -> [..., n, d_ff] -> [..., n, d_model]
    Errors:
        TypeError, ValueError: a size is not a whole number of at least 1, or x does not fit
    Source:
        Vaswani et al. 2017, section 3.3, equation 2
    """

    def __init__(self, d_model: int, d_ff: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.W_1 = Linear(d_model, d_ff, rng)
        self.W_2 = Linear(d_ff, d_model, rng)

    def forward(self, x: Array) -> Array:
        self.inner = relu(self.W_1(x))  # [..., n, d_ff]
        out: Array = self.W_2(self.inner)  # [..., n, d_model]
        return out

    def backward(self, g: Array) -> Array:
        g = self.W_2.backward(g)  # [..., n, d_ff]
        g = relu_backward(g, self.inner)  # [..., n, d_ff]
        return self.W_1.backward(g)  # [..., n, d_model]
