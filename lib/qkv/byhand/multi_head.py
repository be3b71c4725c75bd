"""Multi-head attention: h attentions side by side, and where their slopes meet again."""

import numpy as np

from qkv import _require_plain as plain
from qkv.byhand import _require
from qkv.byhand.attention import attention, attention_backward
from qkv.byhand.layer import Array, Identity, Layer
from qkv.byhand.linear import Linear


class MultiHeadAttention(Layer):
    """h attentions side by side, each in its own small space, mixed by W_O.

    ``mha(x)`` is self-attention, ``mha(x_q, x_kv)`` cross-attention. ``d_context`` is the
    width of x_kv where it differs; ``d_k`` and ``d_v`` are per head and default to
    d_model / n_heads. With ``mix=False`` there is no W_O: the heads' blends stand side by
    side and are the output, which takes h * d_v = d_model.

    Shapes:
        x_q: [..., n_q, d_model]   x_kv: [..., n_kv, d_context]
        mask: broadcasts to [..., h, n_q, n_kv], as in `attention`
        returns: [..., n_q, d_model]; ``weights`` is afterwards A [..., h, n_q, n_kv]
    Errors:
        TypeError, ValueError: sizes or inputs that do not fit, named in the message
    Source:
        Vaswani et al. 2017, section 3.2.2
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        rng: np.random.Generator,
        *,
        d_context: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = False,
        mix: bool = True,
    ) -> None:
        super().__init__()
        d_context, d_k, d_v = plain.head_widths(d_model, n_heads, d_context, d_k, d_v)
        if not mix and n_heads * d_v != d_model:
            raise ValueError(
                f"without W_O the heads' blends are the output, so n_heads * d_v must be "
                f"d_model = {d_model}, got {n_heads} * {d_v}"
            )
        self.n_heads = n_heads
        self.W_Q = Linear(d_model, n_heads * d_k, rng, bias=bias)
        self.W_K = Linear(d_context, n_heads * d_k, rng, bias=bias)
        self.W_V = Linear(d_context, n_heads * d_v, rng, bias=bias)
        self.W_O = Linear(n_heads * d_v, d_model, rng, bias=bias) if mix else Identity()

    def forward(self, x_q: Array, x_kv: Array | None = None, mask: Array | None = None) -> Array:
        x_kv = x_q if x_kv is None else x_kv
        _require.heads_inputs(x_q, x_kv, self.n_heads, mask)
        self.Q = self._split(self.W_Q(x_q))  # [..., h, n_q, d_k]
        self.K = self._split(self.W_K(x_kv))  # [..., h, n_kv, d_k]
        self.V = self._split(self.W_V(x_kv))  # [..., h, n_kv, d_v]
        heads, self.weights = attention(self.Q, self.K, self.V, mask, return_weights=True)
        out: Array = self.W_O(self._merge(heads))  # [..., h, n_q, d_v] -> [..., n_q, d_model]
        return out

    def backward(self, g: Array) -> tuple[Array, Array]:
        """From the slope by the output to the slopes by x_q and by x_kv.

        K and V are made from the same tokens, so their slopes meet in x_kv. In
        self-attention x_q is x_kv: add the two, and all three roles of x have met.

        Shapes:
            g: [..., n_q, d_model]
            returns: gx_q [..., n_q, d_model] and gx_kv [..., n_kv, d_context]
        """
        heads = self._split(self.W_O.backward(g))  # [..., n_q, h * d_v] -> [..., h, n_q, d_v]
        gQ, gK, gV = attention_backward(heads, self.Q, self.K, self.V, self.weights)
        gx_q = self.W_Q.backward(self._merge(gQ))  # [..., n_q, d_model]
        gx_kv = self.W_K.backward(self._merge(gK))  # [..., n_kv, d_context]
        gx_kv += self.W_V.backward(self._merge(gV))
        return gx_q, gx_kv

    def _split(self, x: Array) -> Array:
        """[..., n, h * width] -> [..., h, n, width], a view."""
        return x.reshape(*x.shape[:-1], self.n_heads, -1).swapaxes(-3, -2)

    def _merge(self, heads: Array) -> Array:
        """[..., h, n, width] -> [..., n, h * width]; the way back, and so _split's backward."""
        side_by_side = heads.swapaxes(-3, -2)  # [..., n, h, width]
        return side_by_side.reshape(*side_by_side.shape[:-2], -1)
