"""The matrix product, with the chain rule for it, and the linear layer."""

import numpy as np

from qkv import _require_plain as plain
from qkv.byhand import _require
from qkv.byhand.layer import Array, Layer
from qkv.byhand.rows import column_sum


def matmul_backward(g: Array, A: Array, B: Array) -> tuple[Array, Array]:
    """From the slope by A B to the slopes by A and by B.

    (A B)_ij = sum over k of A_ik B_kj, so A_ik meets g_ij once for each j, each time with
    the factor B_kj: the sum of these is g B^T. In the same way B's slope is A^T g.

    Shapes:
        g: [..., n, m]   A: [..., n, k]   B: [..., k, m]
        returns: gA [..., n, k] and gB [..., k, m]
    """
    gA = g @ B.swapaxes(-1, -2)  # [..., n, m] [..., m, k] -> [..., n, k]
    gB = A.swapaxes(-1, -2) @ g  # [..., k, n] [..., n, m] -> [..., k, m]
    return gA, gB


class Linear(Layer):
    """Each token times one matrix, plus a bias: x W^T + b.

    ``weight`` is [d_out, d_in], as in ``torch.nn.Linear``: the W of a formula is weight.T.
    It starts uniform with variance 2 / (d_in + d_out), the bias with zeros.

    Shapes:
        x: [..., d_in] -> [..., d_out]
    Errors:
        TypeError, ValueError: a size is not a whole number of at least 1, or x does not fit
    Source:
        the start: Glorot and Bengio 2010
    """

    learned = ("weight", "bias")

    def __init__(
        self, d_in: int, d_out: int, rng: np.random.Generator, *, bias: bool = True
    ) -> None:
        super().__init__()
        plain.positive_int("d_in", d_in)
        plain.positive_int("d_out", d_out)
        reach = np.sqrt(6 / (d_in + d_out))
        self.weight: Array = rng.uniform(-reach, reach, (d_out, d_in))
        self.bias: Array | None = np.zeros(d_out) if bias else None

    def forward(self, x: Array) -> Array:
        _require.tokens("x", x, self.weight.shape[1], self.weight)
        # All tokens of all rows under one another: one large product, not B small ones.
        self.x = x.reshape(-1, x.shape[-1])  # [N, d_in]
        y = self.x @ self.weight.T  # [N, d_in] [d_in, d_out] -> [N, d_out]
        if self.bias is not None:
            y += self.bias
        return y.reshape(*x.shape[:-1], -1)  # [..., d_out]

    def backward(self, g: Array) -> Array:
        rows = g.reshape(-1, g.shape[-1])  # [N, d_out]
        self.slopes["weight"] = rows.T @ self.x  # [d_out, N] [N, d_in] -> [d_out, d_in]
        if self.bias is not None:
            self.slopes["bias"] = column_sum(rows)  # [d_out]; each token was given the same bias
        gx = rows @ self.weight  # [N, d_out] [d_out, d_in] -> [N, d_in]
        return gx.reshape(*g.shape[:-1], -1)  # [..., d_in]
