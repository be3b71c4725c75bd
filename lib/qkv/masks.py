"""Masks: who may attend to whom.

A mask broadcasts against the scores [..., h, n_q, n_kv]. A Boolean mask says True
where a query *may attend* to a key, as in ``F.scaled_dot_product_attention``;
``nn.MultiheadAttention`` means the opposite. Two Boolean masks combine with ``&``:

>>> causal(3) & padding(torch.tensor([[5, 7, 0]]), pad=0)  # [1, 1, 3, 3]
tensor([[[[ True, False, False],
          [ True,  True, False],
          [ True,  True, False]]]])
"""

import torch
from torch import Tensor

from qkv import _require


def causal(n: int, *, device: torch.device | str | None = None) -> Tensor:
    """The causal mask: token i may attend to itself and to what came before it.

    Shapes:
        returns: Boolean [n, n], True on and below the diagonal
    Errors:
        TypeError, ValueError: n is not a whole number of at least 1
    Source:
        Vaswani et al. 2017, section 3.2.3
    """
    _require.positive_int("n", n)
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()


def padding(ids: Tensor, pad: int) -> Tensor:
    """The padding mask: every query may attend to the keys that are not padding.

    It hides columns (keys), not rows (queries): what a padded query answers is
    thrown away later, but a padded key would enter everyone's answer.

    Shapes:
        ids: [B, n_kv]
        returns: Boolean [B, 1, 1, n_kv]; the two 1s stand for all heads, all queries
    Errors:
        TypeError: ids is not a tensor of whole numbers, or pad not an int
        ValueError: ids is not [B, n_kv] with n_kv of at least 1
    """
    _require.tensor("ids", ids)
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TypeError(f"ids must hold whole numbers, got {ids.dtype}")
    if ids.dim() != 2 or ids.numel() == 0:
        raise ValueError(f"ids must have shape [B, n_kv], not empty, got {list(ids.shape)}")
    _require.whole("pad", pad)
    return (ids != pad)[:, None, None, :]


def additive(mask: Tensor, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """The same mask as numbers M to add to the scores: 0 may attend, -inf may not.

    Shapes:
        mask: Boolean, any shape
        returns: the same shape, of the given floating dtype
    Errors:
        TypeError: mask is not Boolean, or dtype not a floating one
    Source:
        softmax(Q K^T / sqrt(d_k) + M) V: M comes after the division
    """
    _require.tensor("mask", mask)
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be Boolean (True = may attend), got {mask.dtype}")
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype must be a floating type such as torch.float32, got {dtype}")
    zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return zeros.masked_fill(~mask, float("-inf"))
