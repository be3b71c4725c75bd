"""Scaled dot-product attention, and its backward: four matrix products."""

import math
from typing import Literal, overload

import numpy as np

from qkv.byhand import _require
from qkv.byhand.layer import Array
from qkv.byhand.softmax import softmax, softmax_backward


def causal(n: int) -> Array:
    """The causal mask: token i may attend to itself and to what came before it.

    Shapes:
        returns: Boolean [n, n], True on and below the diagonal
    """
    return np.tri(n, dtype=bool)


def padding(ids: Array, pad: int) -> Array:
    """The padding mask: every query may attend to the keys that are not padding.

    Shapes:
        ids: [B, n_kv]
        returns: Boolean [B, 1, 1, n_kv]; the two 1s stand for all heads, all queries
    """
    keep: Array = (ids != pad)[:, None, None, :]
    return keep


@overload
def attention(
    Q: Array, K: Array, V: Array, mask: Array | None = None, *, return_weights: Literal[True]
) -> tuple[Array, Array]: ...
@overload
def attention(
    Q: Array,
    K: Array,
    V: Array,
    mask: Array | None = None,
    *,
    return_weights: Literal[False] = False,
) -> Array: ...
def attention(
    Q: Array, K: Array, V: Array, mask: Array | None = None, *, return_weights: bool = False
) -> Array | tuple[Array, Array]:
    """softmax(Q K^T / sqrt(d_k) + M) V; a query that may attend to nothing gets zeros.

    Shapes:
        Q: [..., n_q, d_k]   K: [..., n_kv, d_k]   V: [..., n_kv, d_v], the same axes in front
        mask: broadcasts to [..., n_q, n_kv]; Boolean, True = may attend, or
            floating: the numbers M, added to the scores after the division
        returns: output [..., n_q, d_v]; with return_weights also A [..., n_q, n_kv]
    Errors:
        TypeError, ValueError: what does not fit together, named in the message
    Source:
        Vaswani et al. 2017, section 3.2.1, equation 1
    """
    _require.attention_inputs(Q, K, V, mask)
    scores = Q @ K.swapaxes(-1, -2)  # [..., n_q, d_k] [..., d_k, n_kv] -> [..., n_q, n_kv]
    scores *= 1 / math.sqrt(Q.shape[-1])
    if mask is not None:
        if mask.dtype == bool:
            np.copyto(scores, -np.inf, where=~mask)
        else:
            scores += mask
    A = softmax(scores)  # [..., n_q, n_kv]
    output: Array = A @ V  # [..., n_q, n_kv] [..., n_kv, d_v] -> [..., n_q, d_v]
    return (output, A) if return_weights else output


def attention_backward(
    g: Array, Q: Array, K: Array, V: Array, A: Array
) -> tuple[Array, Array, Array]:
    """From the slope by the output to the slopes by Q, K and V.

    The output is A V, a product, so two products lead back to A and V. The scores are a
    product too: two more lead back to Q and K, and both carry the forward's 1 / sqrt(d_k).
    Where the mask said no, A is 0, and softmax's backward passes nothing on.

    Shapes:
        g: [..., n_q, d_v]   Q, K, V: as in `attention`   A: [..., n_q, n_kv], its weights
        returns: gQ [..., n_q, d_k], gK [..., n_kv, d_k], gV [..., n_kv, d_v]
    """
    gV = A.swapaxes(-1, -2) @ g  # [..., n_kv, n_q] [..., n_q, d_v] -> [..., n_kv, d_v]
    gA = g @ V.swapaxes(-1, -2)  # [..., n_q, d_v] [..., d_v, n_kv] -> [..., n_q, n_kv]
    gS = softmax_backward(gA, A)  # [..., n_q, n_kv]
    gS *= 1 / math.sqrt(Q.shape[-1])
    gQ = gS @ K  # [..., n_q, n_kv] [..., n_kv, d_k] -> [..., n_q, d_k]
    gK = gS.swapaxes(-1, -2) @ Q  # [..., n_kv, n_q] [..., n_q, d_k] -> [..., n_kv, d_k]
    return gQ, gK, gV
