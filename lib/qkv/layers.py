"""The parts of a block that are not attention: positions, embedding, feed-forward, residual."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from qkv import _require

Norm = Literal["post", "pre"]


def sinusoids(n: int, d_model: int) -> Tensor:
    """The paper's positions: waves of d_model / 2 frequencies, as sine and cosine.

    Column 2i is sin(p / 10000^(2i / d_model)), column 2i + 1 the cosine of the same.
    An odd d_model ends with a sine that has no cosine.

    Shapes:
        returns: float64 [n, d_model]; row p is position p, counted from 0
    Errors:
        TypeError, ValueError: n or d_model is not a whole number of at least 1
    Source:
        Vaswani et al. 2017, section 3.5
    """
    _require.positive_int("n", n)
    _require.positive_int("d_model", d_model)
    position = torch.arange(n, dtype=torch.float64)[:, None]  # [n, 1]
    even = torch.arange(0, d_model, 2, dtype=torch.float64)  # 2i: [ceil(d_model / 2)]
    angle = position / 10000 ** (even / d_model)  # [n, ceil(d_model / 2)]
    table = torch.stack([angle.sin(), angle.cos()], dim=-1)  # [n, ceil(d_model / 2), 2]
    return table.flatten(1)[:, :d_model]


class Embedding(nn.Module):
    """Ids to vectors that know their position: sqrt(d_model) * table[id] + sinusoids.

    The table starts with variance 1 / d_model, so that after the factor sqrt(d_model)
    its entries are of the sinusoids' own size.

    Shapes:
        ids: int64 [B, n], 0 … vocab - 1
        returns: [B, n, d_model]; the first id stands at position `first`
    Errors:
        TypeError, ValueError: ids that are no int64 [B, n], outside the vocabulary,
            or reaching beyond max_len positions; first is no whole number of at least 0
    Source:
        Vaswani et al. 2017, sections 3.4 and 3.5; dropout: section 5.4
    """

    positions: Tensor

    def __init__(self, vocab: int, d_model: int, max_len: int, dropout: float = 0.0) -> None:
        super().__init__()
        for name, size in (("vocab", vocab), ("d_model", d_model), ("max_len", max_len)):
            _require.positive_int(name, size)
        self.vocab, self.max_len = vocab, max_len
        self.scale = math.sqrt(d_model)
        # A buffer follows .to(device); not persistent: it can always be made again.
        positions = sinusoids(max_len, d_model).to(torch.get_default_dtype())
        self.register_buffer("positions", positions, persistent=False)
        self.table = nn.Embedding(vocab, d_model)
        nn.init.normal_(self.table.weight, std=1 / self.scale)
        self.dropout = make_dropout(dropout)

    def forward(self, ids: Tensor, first: int = 0) -> Tensor:
        self.check("ids", ids, first)
        return self.embed(ids, first)

    def embed(self, ids: Tensor, first: int = 0) -> Tensor:
        """What forward does, for ids that have been checked."""
        x = self.table(ids) * self.scale + self.positions[first : first + ids.shape[1]]
        embedded: Tensor = self.dropout(x)
        return embedded

    def check(self, name: str, ids: Tensor, first: int = 0) -> None:
        """Refuse ids that forward cannot take, under the name that the caller knows."""
        _require.ids(name, ids, self.vocab, self.table.weight.device)
        _require.not_negative("first", first)
        last = first + ids.shape[1]
        if last > self.max_len:
            raise ValueError(
                f"{name} needs {last} positions, the table holds max_len = {self.max_len}; "
                f"build the model with a larger max_len"
            )


class FeedForward(nn.Module):
    """Each token by itself through a wide layer and back: max(0, x W_1 + b_1) W_2 + b_2.

    Shapes:
        x: [..., n, d_model] -> [..., n, d_ff] -> [..., n, d_model]
    Errors:
        TypeError, ValueError: a size is not a whole number of at least 1, or x does not fit
    Source:
        Vaswani et al. 2017, section 3.3, equation 2
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        _require.positive_int("d_model", d_model)
        _require.positive_int("d_ff", d_ff)
        self.d_model = d_model
        self.W_1 = nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        _require.tokens("x", x, self.d_model, self.W_1.weight)
        out: Tensor = self.W_2(self.W_1(x).relu())
        return out


class Residual(nn.Module):
    """A sublayer as a detour from a straight road, with its layer norm.

    post (the paper): norm(x + sublayer(x)), the norm stands on the road.
    pre: x + sublayer(norm(x)), the norm stands in the detour, the road stays free.

    Shapes:
        x: [..., d_model], and so what sublayer takes and returns; so the result
    Errors:
        TypeError, ValueError: d_model is not a whole number of at least 1, norm neither
            "post" nor "pre", dropout not in [0, 1); sublayer returns another shape than x
    Source:
        Vaswani et al. 2017, section 3.1; pre-norm: Xiong et al. 2020
    """

    def __init__(self, d_model: int, norm: Norm = "post", dropout: float = 0.0) -> None:
        super().__init__()
        _require.positive_int("d_model", d_model)
        _require.one_of("norm", norm, ("post", "pre"))
        self.order = norm
        self.norm = nn.LayerNorm(d_model)
        self.dropout = make_dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        out: Tensor
        if self.order == "post":
            out = self.norm(x + self.dropout(_same_shape(sublayer(x), x)))
        else:
            out = x + self.dropout(_same_shape(sublayer(self.norm(x)), x))
        return out


def _same_shape(detour: Tensor, x: Tensor) -> Tensor:
    """Refuse what comes back from a detour and cannot join the road."""
    if not isinstance(detour, Tensor):
        raise TypeError(f"sublayer must return a torch.Tensor, got {type(detour).__name__}")
    if detour.shape != x.shape:
        raise ValueError(
            f"sublayer must return the shape of x, {list(x.shape)}, got {list(detour.shape)}"
        )
    return detour


def make_dropout(rate: float) -> nn.Module:
    """Dropout, or nothing at all where the rate is 0 (it would still cost a call)."""
    _require.number("dropout", rate)
    if not 0 <= rate < 1:
        raise ValueError(f"dropout must lie in [0, 1), got {rate}")
    return nn.Dropout(rate) if rate else nn.Identity()
