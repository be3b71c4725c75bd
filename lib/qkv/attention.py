"""Attention: ask (Q), match (K), blend (V); with one head and with many."""

import math
from typing import Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv import _require, _require_plain


@overload
def attention(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, *, return_weights: Literal[True]
) -> tuple[Tensor, Tensor]: ...
@overload
def attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    mask: Tensor | None = None,
    *,
    return_weights: Literal[False] = False,
) -> Tensor: ...
def attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    mask: Tensor | None = None,
    *,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Scaled dot-product attention: softmax(Q K^T / sqrt(d_k) + M) V.

    Each query is compared with all keys; the scores become weights; the weights
    blend the values. A query that may attend to nothing gets zeros. Without
    ``return_weights`` PyTorch's fused kernel does the work.

    Shapes:
        Q: [..., n_q, d_k]   K: [..., n_kv, d_k]   V: [..., n_kv, d_v]
        mask: broadcasts to [..., n_q, n_kv]; Boolean, True = may attend, or
            floating: the numbers M, added to the scores after the division
        returns: output [..., n_q, d_v]; with return_weights also
            weights [..., n_q, n_kv], whose rows sum to 1, or to 0 where
            nothing may be attended to
    Errors:
        TypeError: an argument is no tensor, or dtypes differ
        ValueError: shapes or devices do not fit, or Q's dtype cannot hold the mask's
            numbers; the message says which and how
    Source:
        Vaswani et al. 2017, section 3.2.1, equation 1
    """
    mask = _require.attention_inputs(Q, K, V, mask)
    if not return_weights:
        return F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
    scores = _products(Q, K) / math.sqrt(Q.shape[-1])  # [..., n_q, n_kv]
    if mask is not None:
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, float("-inf"))
        else:
            scores = scores + mask
    weights = _softmax(scores).to(Q.dtype)
    return weights @ V, weights


class MultiHeadAttention(nn.Module):
    """h attentions side by side, each in its own small space, mixed by W_O.

    The same module does self-attention, ``mha(x)``, and cross-attention,
    ``mha(x_q, x_kv)``. ``d_context`` is the width of x_kv where it differs from
    ``d_model``; ``d_k`` and ``d_v`` are per head and default to d_model / n_heads.

    Shapes:
        x_q: [..., n_q, d_model]   x_kv: [..., n_kv, d_context]
        mask: broadcasts to [..., h, n_q, n_kv], as in `attention`
        returns: [..., n_q, d_model]; with return_weights also
            weights [..., h, n_q, n_kv]
    Errors:
        TypeError, ValueError: sizes below 1, d_model not divisible by n_heads,
            or inputs that do not fit, named in the message
    Source:
        Vaswani et al. 2017, section 3.2.2
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_context: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        widths = _require_plain.head_widths(d_model, n_heads, d_context, d_k, d_v)
        self.d_context, self.d_k, self.d_v = widths
        self.d_model, self.n_heads = d_model, n_heads
        self.W_Q = nn.Linear(d_model, n_heads * self.d_k, bias=bias)
        self.W_K = nn.Linear(self.d_context, n_heads * self.d_k, bias=bias)
        self.W_V = nn.Linear(self.d_context, n_heads * self.d_v, bias=bias)
        self.W_O = nn.Linear(n_heads * self.d_v, d_model, bias=bias)
        for linear in (self.W_Q, self.W_K, self.W_V, self.W_O):
            nn.init.xavier_uniform_(linear.weight)
            if bias:
                nn.init.zeros_(linear.bias)

    def forward(
        self,
        x_q: Tensor,
        x_kv: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Ask x_kv (default: x_q itself) on behalf of x_q; shapes stand at the class."""
        _require.tokens("x_q", x_q, self.d_model, self.W_Q.weight)
        if x_kv is not None:
            _require.tokens("x_kv", x_kv, self.d_context, self.W_K.weight)
        else:
            if self.d_context != self.d_model:
                raise ValueError(
                    f"x_kv is missing: keys and values come from tokens of width "
                    f"d_context = {self.d_context}, x_q has width d_model = {self.d_model}"
                )
            x_kv = x_q
        _require.heads_inputs(x_q, x_kv, self.n_heads, mask)
        Q = self._split(self.W_Q(x_q), self.d_k)  # [..., h, n_q, d_k]
        K = self._split(self.W_K(x_kv), self.d_k)  # [..., h, n_kv, d_k]
        V = self._split(self.W_V(x_kv), self.d_v)  # [..., h, n_kv, d_v]
        return self._blend(Q, K, V, mask, return_weights)

    def keys_values(self, x_kv: Tensor) -> tuple[Tensor, Tensor]:
        """What x_kv has to offer: labels and content, split into heads.

        Shapes:
            x_kv: [..., n_kv, d_context]
            returns: K [..., h, n_kv, d_k] and V [..., h, n_kv, d_v]
        """
        _require.tokens("x_kv", x_kv, self.d_context, self.W_K.weight)
        return self._split(self.W_K(x_kv), self.d_k), self._split(self.W_V(x_kv), self.d_v)

    def attend(
        self,
        x_q: Tensor,
        K: Tensor,
        V: Tensor,
        mask: Tensor | None = None,
        *,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend with keys and values made before, as decoding with a cache does.

        Shapes:
            x_q: [..., n_q, d_model]   K: [..., h, n_kv, d_k]   V: [..., h, n_kv, d_v]
            returns: as forward
        """
        _require.tokens("x_q", x_q, self.d_model, self.W_Q.weight)
        _require.heads("K", K, self.n_heads, "d_k", self.d_k)
        _require.heads("V", V, self.n_heads, "d_v", self.d_v)
        if mask is not None:
            _require.heads_mask(x_q, mask)
        return self._blend(self._split(self.W_Q(x_q), self.d_k), K, V, mask, return_weights)

    def _blend(
        self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, return_weights: bool
    ) -> Tensor | tuple[Tensor, Tensor]:
        """All heads in one go, then W_O."""
        if not return_weights:
            return self._merge(attention(Q, K, V, mask))
        heads, weights = attention(Q, K, V, mask, return_weights=True)
        return self._merge(heads), weights

    def _split(self, x: Tensor, width: int) -> Tensor:
        """[..., n, h * width] -> [..., h, n, width]."""
        return x.reshape(*x.shape[:-1], self.n_heads, width).transpose(-3, -2)

    def _merge(self, heads: Tensor) -> Tensor:
        """[..., h, n, d_v] -> [..., n, h * d_v] -> W_O -> [..., n, d_model]."""
        merged: Tensor = self.W_O(heads.transpose(-3, -2).flatten(-2))
        return merged


def _products(Q: Tensor, K: Tensor) -> Tensor:
    """Q K^T; of half types in float32, where large products do not overflow."""
    if Q.dtype not in (torch.float16, torch.bfloat16):
        return Q @ K.transpose(-2, -1)
    with torch.autocast(Q.device.type, enabled=False):  # it would make them half again
        return Q.float() @ K.float().transpose(-2, -1)


def _softmax(scores: Tensor) -> Tensor:
    """Softmax over the keys; a row of nothing but -inf gives zeros, not NaN."""
    largest = scores.detach().amax(-1, keepdim=True)
    e = (scores - largest.masked_fill(largest == float("-inf"), 0)).exp()
    total = e.sum(-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1)
