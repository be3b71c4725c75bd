"""Ids to vectors that know their position, and the slope that finds its way back to a row."""

import math

import numpy as np

from qkv import _require_plain as plain
from qkv.byhand import _require
from qkv.byhand.layer import Array, Layer


def sinusoids(n: int, d_model: int) -> Array:
    """The paper's positions: waves of d_model / 2 frequencies, as sine and cosine.

    Column 2i is sin(p / 10000^(2i / d_model)), column 2i + 1 the cosine of the same.

    Shapes:
        returns: float64 [n, d_model]; row p is position p, counted from 0
    Errors:
        TypeError, ValueError: n or d_model is not a whole number of at least 1
    Source:
        Vaswani et al. 2017, section 3.5
    """
    plain.positive_int("n", n)
    plain.positive_int("d_model", d_model)
    position = np.arange(n)[:, None]  # [n, 1]
    angle = position / 10000.0 ** (np.arange(0, d_model, 2) / d_model)  # [n, ceil(d_model / 2)]
    table = np.stack([np.sin(angle), np.cos(angle)], axis=-1)  # [n, ceil(d_model / 2), 2]
    return table.reshape(n, -1)[:, :d_model]


class Table(Layer):
    """A row of numbers for each id. They start normal with the standard deviation ``std``.

    Looking an id up is multiplying its one-hot row with the table. So the backward is that
    of a product: one-hot^T times g, each row the sum over the places where its id stood.

    Shapes:
        ids: [B, n], 0 … vocab - 1 -> [B, n, d_model]
    """

    learned = ("weight",)

    def __init__(self, vocab: int, d_model: int, rng: np.random.Generator, std: float) -> None:
        super().__init__()
        plain.positive_int("vocab", vocab)
        plain.positive_int("d_model", d_model)
        self.weight: Array = rng.normal(0, std, (vocab, d_model))

    def forward(self, ids: Array) -> Array:
        self.ids = ids  # [B, n]
        x: Array = self.weight[ids]  # [B, n, d_model]
        return x

    def backward(self, g: Array) -> None:
        rows = g.reshape(-1, g.shape[-1])  # [B * n, d_model]
        one_hot = np.arange(len(self.weight))[:, None] == self.ids.reshape(-1)  # [vocab, B * n]
        self.slopes["weight"] = one_hot.astype(g.dtype) @ rows  # [vocab, d_model]


class Embedding(Layer):
    """Ids to vectors that know their position: sqrt(d_model) * table[id] + sinusoids.

    The table starts with variance 1 / d_model, so that the product has about the sinusoids'
    size. The factor comes back in the slope: a step of plain SGD moves what the table says
    d_model times as far as without it. With ``scaled=False`` there is no factor, and a table
    that starts as the product does.

    Shapes:
        ids: [B, n], 0 … vocab - 1 -> [B, n, d_model]
    Errors:
        TypeError, ValueError: ids that are no whole numbers [B, n], outside the vocabulary,
            or reaching beyond max_len positions
    Source:
        Vaswani et al. 2017, sections 3.4 and 3.5
    """

    def __init__(
        self,
        vocab: int,
        d_model: int,
        max_len: int,
        rng: np.random.Generator,
        *,
        scaled: bool = True,
    ) -> None:
        super().__init__()
        plain.positive_int("d_model", d_model)
        plain.positive_int("max_len", max_len)
        self.scale = math.sqrt(d_model) if scaled else 1.0
        self.table = Table(vocab, d_model, rng, std=1 / self.scale)
        self.positions = sinusoids(max_len, d_model)  # [max_len, d_model], not learned

    def forward(self, ids: Array) -> Array:
        self.check("ids", ids)
        x: Array = self.table(ids) * self.scale  # [B, n, d_model]
        x += self.positions[: ids.shape[1]].astype(x.dtype)  # the same for every row of the batch
        return x

    def backward(self, g: Array) -> None:
        """Ids have no slope: the way back ends in the table."""
        self.table.backward(g * self.scale)  # the positions were added: nothing to do for them

    def check(self, name: str, ids: Array) -> None:
        """Refuse ids that forward cannot take, under the name that the caller knows."""
        _require.ids(name, ids, len(self.table.weight))
        if ids.shape[1] > len(self.positions):
            raise ValueError(
                f"{name} needs {ids.shape[1]} positions, the table holds "
                f"max_len = {len(self.positions)}; build the model with a larger max_len"
            )
