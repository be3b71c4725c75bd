"""The encoder–decoder Transformer, from blocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from qkv import _require, masks
from qkv.attention import MultiHeadAttention
from qkv.layers import Embedding, FeedForward, Norm, Residual


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward, each with its residual and norm.

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
        *,
        norm: Norm = "post",
        dropout: float = 0.0,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.self_attention = MultiHeadAttention(d_model, n_heads, bias=bias)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.around_self_attention = Residual(d_model, norm, dropout)
        self.around_feed_forward = Residual(d_model, norm, dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        _require.tokens("x", x, self.d_model, self.feed_forward.W_1.weight)
        x = self.around_self_attention(x, lambda y: self.self_attention(y, mask=mask))
        x = self.around_feed_forward(x, self.feed_forward)
        return x


class DecoderBlock(nn.Module):
    """Masked self-attention, cross-attention to the encoder's memory, feed-forward.

    With a cache, x holds the new tokens only; the keys and values of the tokens
    before them, and of the memory, come from the cache.

    Shapes:
        x: [B, n, d_model]   memory: [B, n_source, d_model]
        mask: broadcasts to [B, h, n, n], or [B, h, n, n_past + n] with a cache
        memory_mask: broadcasts to [B, h, n, n_source]
        returns: [B, n, d_model]
    Source:
        Vaswani et al. 2017, section 3.1
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        norm: Norm = "post",
        dropout: float = 0.0,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.self_attention = MultiHeadAttention(d_model, n_heads, bias=bias)
        self.cross_attention = MultiHeadAttention(d_model, n_heads, bias=bias)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.around_self_attention = Residual(d_model, norm, dropout)
        self.around_cross_attention = Residual(d_model, norm, dropout)
        self.around_feed_forward = Residual(d_model, norm, dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: BlockCache | None = None,
    ) -> Tensor:
        for name, tokens in (("x", x), ("memory", memory)):
            _require.tokens(name, tokens, self.d_model, self.feed_forward.W_1.weight)
        cache = BlockCache() if cache is None else cache
        x = self.around_self_attention(
            x, lambda y: self.self_attention.attend(y, *cache.past(self.self_attention, y), mask)
        )
        x = self.around_cross_attention(
            x,
            lambda y: self.cross_attention.attend(
                y, *cache.memory(self.cross_attention, memory), memory_mask
            ),
        )
        x = self.around_feed_forward(x, self.feed_forward)
        return x


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


class Transformer(nn.Module):
    """The whole encoder–decoder: source ids and target ids in, logits out.

    ``norm="post"`` is the paper's order; ``norm="pre"`` adds the final norm that it
    needs after each stack. With ``pad``, the model masks that id itself, in source
    and target.

    Shapes:
        source: int64 [B, n_source]   target: int64 [B, n_target], the decoder's input
        returns: logits [B, n_target, target_vocab]; row i depends on target ids 0 … i
    Errors:
        TypeError, ValueError: sizes below 1, ids outside the vocabulary, rows longer
            than max_len, unlike numbers of rows, another device than the model's;
            named in the message, before anything is computed
    Source:
        Vaswani et al. 2017, section 3
    """

    def __init__(
        self,
        source_vocab: int,
        target_vocab: int,
        *,
        d_model: int,
        n_heads: int,
        d_ff: int,
        n_layers: int = 1,
        max_len: int = 512,
        norm: Norm = "post",
        dropout: float = 0.0,
        bias: bool = False,
        pad: int | None = None,
    ) -> None:
        super().__init__()
        sizes = {"source_vocab": source_vocab, "target_vocab": target_vocab, "n_layers": n_layers}
        for name, size in sizes.items():
            _require.positive_int(name, size)
        if pad is not None:
            _require.one_id("pad", pad, max(source_vocab, target_vocab))
        self.pad = pad
        self.source_embedding = Embedding(source_vocab, d_model, max_len, dropout)
        self.target_embedding = Embedding(target_vocab, d_model, max_len, dropout)
        self.encoder = nn.ModuleList(
            EncoderBlock(d_model, n_heads, d_ff, norm=norm, dropout=dropout, bias=bias)
            for _ in range(n_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderBlock(d_model, n_heads, d_ff, norm=norm, dropout=dropout, bias=bias)
            for _ in range(n_layers)
        )
        # The road of a pre-norm stack carries no norm of its own: one stands at its end.
        self.encoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.to_vocab = nn.Linear(d_model, target_vocab)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        self.source_embedding.check("source", source)
        self.target_embedding.check("target", target)
        _require.same_rows("target", target, "source", source)
        return self.decode(target, self.encode(source), source)

    def encode(self, source: Tensor) -> Tensor:
        """Source ids to memory: [B, n_source] -> [B, n_source, d_model]."""
        self.source_embedding.check("source", source)
        x = self.source_embedding(source)
        mask = self._padding(source)
        for block in self.encoder:
            x = block(x, mask)
        memory: Tensor = self.encoder_norm(x)
        return memory

    def decode(
        self, target: Tensor, memory: Tensor, source: Tensor, cache: Cache | None = None
    ) -> Tensor:
        """Target ids and memory to logits.

        With a cache, ``target`` still holds all ids so far, but only those that the
        cache has not seen are computed, and only their logits come back.

        Shapes:
            target: [B, n_target]   memory: [B, n_source, d_model]
            source: [B, n_source], read for its padding alone
            returns: [B, n_target - seen, target_vocab]; without a cache, seen is 0
        """
        cache = Cache(len(self.decoder)) if cache is None else cache
        self.target_embedding.check("target", target)
        _require.tensor("memory", memory)
        _require.same_rows("target", target, "memory", memory)
        seen, n = cache.seen, target.shape[1]
        if n <= seen:
            raise ValueError(
                f"target has {n} ids, the cache has seen {seen}; give all ids so far and a new one"
            )
        x = self.target_embedding(target[:, seen:], first=seen)
        mask = masks.causal(n, device=target.device)[seen:]  # [n - seen, n]
        padded = self._padding(target)
        if padded is not None:
            mask = mask & padded  # [B, 1, n - seen, n]
        memory_mask = self._padding(source)
        for block, block_cache in zip(self.decoder, cache.blocks, strict=True):
            x = block(x, memory, mask, memory_mask, block_cache)
        cache.seen = n
        logits: Tensor = self.to_vocab(self.decoder_norm(x))
        return logits

    def _padding(self, ids: Tensor) -> Tensor | None:
        return None if self.pad is None else masks.padding(ids, self.pad)
