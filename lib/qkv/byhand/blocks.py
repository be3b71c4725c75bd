"""Residuals and blocks: what is straight going forward is a plus sign going back."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from qkv import _require_plain as plain
from qkv.byhand.feed_forward import FeedForward
from qkv.byhand.layer import Array, Layer
from qkv.byhand.layer_norm import LayerNorm
from qkv.byhand.multi_head import MultiHeadAttention

Norm = Literal["post", "pre"]
Sublayer = Callable[[Array], Array]


class Residual(Layer):
    """A sublayer as a detour from a straight road, with its layer norm.

    post (the paper): norm(x + sublayer(x)), the norm stands on the road.
    pre: x + sublayer(norm(x)), the norm stands in the detour, the road stays free.

    Shapes:
        x: [..., d_model], and so what sublayer takes and returns; so the result
    Errors:
        ValueError: norm is neither "post" nor "pre"
    Source:
        Vaswani et al. 2017, section 3.1; pre-norm: Xiong et al. 2020
    """

    def __init__(self, d_model: int, norm: Norm = "post") -> None:
        super().__init__()
        plain.one_of("norm", norm, ("post", "pre"))
        self.order = norm
        self.norm = LayerNorm(d_model)

    def forward(self, x: Array, sublayer: Sublayer) -> Array:
        out: Array
        if self.order == "post":
            out = self.norm(x + sublayer(x))
        else:
            out = x + sublayer(self.norm(x))
        return out

    def backward(self, g: Array, sublayer_backward: Sublayer) -> Array:
        """x went two ways, so its slope is the sum of what comes back on both."""
        if self.order == "post":
            g = self.norm.backward(g)
            return g + sublayer_backward(g)
        return g + self.norm.backward(sublayer_backward(g))


class EncoderBlock(Layer):
    """Self-attention, then feed-forward, each with its residual and norm.

    d_k, bias and mix are the attention's.

    Shapes:
        x: [B, n, d_model]   mask: broadcasts to [B, h, n, n]
        returns: [B, n, d_model]
    Source:
        Vaswani et al. 2017, section 3.1
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        rng: np.random.Generator,
        *,
        norm: Norm = "post",
        d_k: int | None = None,
        bias: bool = False,
        mix: bool = True,
    ) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, n_heads, rng, d_k=d_k, bias=bias, mix=mix)
        self.feed_forward = FeedForward(d_model, d_ff, rng)
        self.around_self_attention = Residual(d_model, norm)
        self.around_feed_forward = Residual(d_model, norm)

    def forward(self, x: Array, mask: Array | None = None) -> Array:
        x = self.around_self_attention(x, lambda y: self.self_attention(y, mask=mask))
        x = self.around_feed_forward(x, self.feed_forward)
        return x

    def backward(self, g: Array) -> Array:
        g = self.around_feed_forward.backward(g, self.feed_forward.backward)
        g = self.around_self_attention.backward(g, roles_meet(self.self_attention))
        return g


class DecoderBlock(Layer):
    """Masked self-attention, cross-attention to the encoder's memory, feed-forward.

    d_k, bias and mix are the attentions'.

    Shapes:
        x: [B, n, d_model]   memory: [B, n_source, d_model]
        mask: broadcasts to [B, h, n, n]   memory_mask: broadcasts to [B, h, n, n_source]
        returns: [B, n, d_model]
    Source:
        Vaswani et al. 2017, section 3.1
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        rng: np.random.Generator,
        *,
        norm: Norm = "post",
        d_k: int | None = None,
        bias: bool = False,
        mix: bool = True,
    ) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, n_heads, rng, d_k=d_k, bias=bias, mix=mix)
        self.cross_attention = MultiHeadAttention(
            d_model, n_heads, rng, d_k=d_k, bias=bias, mix=mix
        )
        self.feed_forward = FeedForward(d_model, d_ff, rng)
        self.around_self_attention = Residual(d_model, norm)
        self.around_cross_attention = Residual(d_model, norm)
        self.around_feed_forward = Residual(d_model, norm)

    def forward(
        self,
        x: Array,
        memory: Array,
        mask: Array | None = None,
        memory_mask: Array | None = None,
    ) -> Array:
        x = self.around_self_attention(x, lambda y: self.self_attention(y, mask=mask))
        x = self.around_cross_attention(x, lambda y: self.cross_attention(y, memory, memory_mask))
        x = self.around_feed_forward(x, self.feed_forward)
        return x

    def backward(self, g: Array) -> tuple[Array, Array]:
        """Returns the slopes by x [B, n, d_model] and by memory [B, n_source, d_model]."""
        g_memory: Array = np.zeros(0)

        def cross(g: Array) -> Array:
            nonlocal g_memory
            gx, g_memory = self.cross_attention.backward(g)
            return gx

        g = self.around_feed_forward.backward(g, self.feed_forward.backward)
        g = self.around_cross_attention.backward(g, cross)
        g = self.around_self_attention.backward(g, roles_meet(self.self_attention))
        return g, g_memory


def roles_meet(attention: MultiHeadAttention) -> Sublayer:
    """Self-attention's backward: x asked, and it was asked, so the two slopes add up."""

    def backward(g: Array) -> Array:
        gx, gx_kv = attention.backward(g)
        gx += gx_kv
        return gx

    return backward
