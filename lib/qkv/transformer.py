"""The encoder–decoder Transformer, from blocks."""

from torch import Tensor, nn

from qkv import _require, masks
from qkv.attention import MultiHeadAttention
from qkv.cache import BlockCache, Cache
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
        return self._decode(target, self._encode(source), source, Cache(len(self.decoder)))

    def encode(self, source: Tensor) -> Tensor:
        """Source ids to memory: [B, n_source] -> [B, n_source, d_model]."""
        self.source_embedding.check("source", source)
        return self._encode(source)

    def _encode(self, source: Tensor) -> Tensor:
        x = self.source_embedding.embed(source)
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
        Errors:
            TypeError, ValueError: as the class; a cache for another number of layers, or
                one that has seen all of target
        """
        n_layers = len(self.decoder)
        cache = Cache(n_layers) if cache is None else cache
        _require.instance("cache", cache, Cache, "a Cache")
        if len(cache.blocks) != n_layers:
            raise ValueError(
                f"cache is for {len(cache.blocks)} layers, the model has {n_layers}; "
                f"make it with Cache({n_layers})"
            )
        self.target_embedding.check("target", target)
        _require.tensor("memory", memory)
        if memory.dim() != 3:
            raise ValueError(
                f"memory must have shape [B, n_source, d_model], got {list(memory.shape)}; "
                f"encode(source) makes it"
            )
        _require.tokens("memory", memory, self.to_vocab.in_features, self.to_vocab.weight)
        _require.same_rows("target", target, "memory", memory)
        _require.id_rows("source", source)
        if source.shape != memory.shape[:2]:
            raise ValueError(
                f"source must have the shape [B, n_source] of memory, {list(memory.shape[:2])}, "
                f"got {list(source.shape)}; give the ids that encode was given"
            )
        _require.same_device("source", source, memory.device)
        if target.shape[1] <= cache.seen:
            raise ValueError(
                f"target has {target.shape[1]} ids, the cache has seen {cache.seen}; "
                f"give all ids so far and a new one"
            )
        return self._decode(target, memory, source, cache)

    def _decode(self, target: Tensor, memory: Tensor, source: Tensor, cache: Cache) -> Tensor:
        seen, n = cache.seen, target.shape[1]
        x = self.target_embedding.embed(target[:, seen:], first=seen)
        mask = self._padding(target)  # [B, 1, 1, n]
        if n - seen > 1:  # the newest token by itself may attend to all
            causal = masks.causal(n, device=target.device)[seen:]  # [n - seen, n]
            mask = causal if mask is None else causal & mask
        memory_mask = self._padding(source)
        for block, block_cache in zip(self.decoder, cache.blocks, strict=True):
            x = block(x, memory, mask, memory_mask, block_cache)
        cache.seen = n
        logits: Tensor = self.to_vocab(self.decoder_norm(x))
        return logits

    def _padding(self, ids: Tensor) -> Tensor | None:
        return None if self.pad is None else masks.padding(ids, self.pad)
