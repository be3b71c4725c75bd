"""Sums along rows and down columns, as products: NumPy's einsum and BLAS do them quickest.

``x.sum(-1, keepdims=True)`` and ``x.sum(0)`` give the same, at several times the cost
when rows are as short as here.
"""

import numpy as np

from qkv.byhand.layer import Array


def row_sum(x: Array) -> Array:
    """Each row's sum, as a column.

    Shapes:
        x: [..., d] -> [..., 1]
    """
    total: Array = np.einsum("...d->...", x)[..., None]
    return total


def row_dot(x: Array, y: Array) -> Array:
    """Each row of x times the same row of y, as a column: (x * y).sum(-1).

    Shapes:
        x, y: [..., d] -> [..., 1]
    """
    total: Array = np.einsum("...d,...d->...", x, y)[..., None]
    return total


def column_sum(x: Array) -> Array:
    """The sum over all rows: what a row that was added to each of them gets back.

    Shapes:
        x: [N, d] -> [d]
    """
    total: Array = np.ones(len(x), x.dtype) @ x
    return total
