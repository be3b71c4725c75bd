"""The key–value cache: what decoding one token after another need not compute again."""

import torch
from torch import Tensor

from qkv.attention import MultiHeadAttention


class BlockCache:
    """The keys and values that one decoder block need not make again."""

    def __init__(self) -> None:
        self._past: tuple[Tensor, Tensor] | None = None
        self._memory: tuple[Tensor, Tensor] | None = None

    def past(self, attention: MultiHeadAttention, x: Tensor) -> tuple[Tensor, Tensor]:
        """K [B, h, n_past + n, d_k] and V of the tokens so far, x's now among them."""
        K, V = attention.keys_values(x)
        if self._past is not None:
            K = torch.cat([self._past[0], K], dim=-2)
            V = torch.cat([self._past[1], V], dim=-2)
        self._past = K, V
        return self._past

    def memory(self, attention: MultiHeadAttention, memory: Tensor) -> tuple[Tensor, Tensor]:
        """K [B, h, n_source, d_k] and V of the memory, made at the first call only."""
        if self._memory is None:
            self._memory = attention.keys_values(memory)
        return self._memory

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order; a row may come twice."""
        self._past = _rows(self._past, rows)
        self._memory = _rows(self._memory, rows)


class Cache:
    """What decoding keeps between steps: how many tokens it has seen, and each block's share."""

    def __init__(self, n_layers: int) -> None:
        self.seen = 0
        self.blocks = [BlockCache() for _ in range(n_layers)]

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, as beam search does when beams fork or fall."""
        for block in self.blocks:
            block.select(rows)


def _rows(KV: tuple[Tensor, Tensor] | None, rows: Tensor) -> tuple[Tensor, Tensor] | None:
    return None if KV is None else (KV[0][rows], KV[1][rows])
