"""The whole encoder–decoder by hand, and greedy decoding with it."""

import numpy as np
from numpy.typing import DTypeLike

from qkv import _require_plain as plain
from qkv.byhand import _require
from qkv.byhand.attention import causal, padding
from qkv.byhand.blocks import DecoderBlock, EncoderBlock, Norm
from qkv.byhand.embedding import Embedding
from qkv.byhand.layer import Array, Identity, Layer
from qkv.byhand.layer_norm import LayerNorm
from qkv.byhand.linear import Linear


class Transformer(Layer):
    """Source ids and target ids in, logits out; and from the logits' slope back to all weights.

    ``norm="post"`` is the paper's order; ``norm="pre"`` adds the final norm that it needs
    after each stack. With ``pad``, the model masks that id itself, in source and target.
    ``d_k`` is per head; ``mix=False`` leaves W_O out of every attention, ``scaled=False``
    the factor sqrt(d_model) out of both embeddings.

    Shapes:
        source: ids [B, n_source]   target: ids [B, n_target], the decoder's input
        returns: logits [B, n_target, target_vocab]; row i depends on target ids 0 … i
    Errors:
        TypeError, ValueError: sizes below 1, ids outside the vocabulary, rows longer than
            max_len, unlike numbers of rows; named in the message
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
        d_k: int | None = None,
        bias: bool = False,
        mix: bool = True,
        scaled: bool = True,
        pad: int | None = None,
        seed: int = 0,
        dtype: DTypeLike = np.float32,
    ) -> None:
        super().__init__()
        sizes = {"source_vocab": source_vocab, "target_vocab": target_vocab, "n_layers": n_layers}
        for name, size in sizes.items():
            plain.positive_int(name, size)
        plain.not_negative("seed", seed)
        for name, value in (("bias", bias), ("mix", mix), ("scaled", scaled)):
            plain.switch(name, value)
        if pad is not None:
            plain.one_id("pad", pad, max(source_vocab, target_vocab))
        rng = np.random.default_rng(seed)
        self.pad = pad
        self.source_embedding = Embedding(source_vocab, d_model, max_len, rng, scaled=scaled)
        self.target_embedding = Embedding(target_vocab, d_model, max_len, rng, scaled=scaled)
        self.encoder = [
            EncoderBlock(d_model, n_heads, d_ff, rng, norm=norm, d_k=d_k, bias=bias, mix=mix)
            for _ in range(n_layers)
        ]
        self.decoder = [
            DecoderBlock(d_model, n_heads, d_ff, rng, norm=norm, d_k=d_k, bias=bias, mix=mix)
            for _ in range(n_layers)
        ]
        # The road of a pre-norm stack carries no norm of its own: one stands at its end.
        self.encoder_norm = LayerNorm(d_model) if norm == "pre" else Identity()
        self.decoder_norm = LayerNorm(d_model) if norm == "pre" else Identity()
        self.to_vocab = Linear(d_model, target_vocab, rng)
        self.to(dtype)

    def forward(self, source: Array, target: Array) -> Array:
        self.source_embedding.check("source", source)
        self.target_embedding.check("target", target)
        _require.same_rows("target", target, "source", source)
        return self.decode(target, self.encode(source), source)

    def backward(self, g: Array) -> None:
        """From the logits' slope to those of all parameters; ids have none.

        Shapes:
            g: [B, n_target, target_vocab]
        """
        g = self.to_vocab.backward(g)  # [B, n_target, d_model]
        g = self.decoder_norm.backward(g)
        g_memory: Array | None = None  # every decoder block has asked the one memory
        for block in reversed(self.decoder):
            g, g_block = block.backward(g)  # [B, n_target, d_model], [B, n_source, d_model]
            g_memory = g_block if g_memory is None else g_memory + g_block
        self.target_embedding.backward(g)
        assert g_memory is not None
        g = self.encoder_norm.backward(g_memory)  # [B, n_source, d_model]
        for encoder_block in reversed(self.encoder):
            g = encoder_block.backward(g)
        self.source_embedding.backward(g)

    def encode(self, source: Array) -> Array:
        """Source ids to memory: [B, n_source] -> [B, n_source, d_model]."""
        x = self.source_embedding(source)
        mask = None if self.pad is None else padding(source, self.pad)  # [B, 1, 1, n_source]
        for block in self.encoder:
            x = block(x, mask)
        memory: Array = self.encoder_norm(x)
        return memory

    def decode(self, target: Array, memory: Array, source: Array) -> Array:
        """Target ids and memory to logits; ``source`` is read for its padding alone.

        Shapes:
            target: [B, n_target]   memory: [B, n_source, d_model]   source: [B, n_source]
            returns: [B, n_target, target_vocab]
        """
        x = self.target_embedding(target)
        mask, memory_mask = causal(target.shape[1]), None  # [n_target, n_target]
        if self.pad is not None:
            mask = mask & padding(target, self.pad)  # [B, 1, n_target, n_target]
            memory_mask = padding(source, self.pad)  # [B, 1, 1, n_source]
        for block in self.decoder:
            x = block(x, memory, mask, memory_mask)
        logits: Array = self.to_vocab(self.decoder_norm(x))
        return logits


def greedy(
    model: Transformer, source: Array, *, start: int, limit: int, end: int | None = None
) -> Array:
    """Write the likeliest token at each step, until every row has ended.

    Shapes:
        source: ids [B, n_source]
        returns: ids [B, n], n at most limit, without the start id; after a row's first
            `end` the row holds nothing but `end`
    Errors:
        TypeError, ValueError: ids outside the vocabulary, limit below 1 or beyond max_len
        FloatingPointError: the model's logits are not finite
    """
    plain.positive_int("limit", limit)
    vocab, max_len = len(model.to_vocab.weight), len(model.target_embedding.positions)
    plain.one_id("start", start, vocab)
    if end is not None:
        plain.one_id("end", end, vocab)
    if limit > max_len:
        raise ValueError(
            f"limit is {limit}, the model has positions for max_len = {max_len}; decode fewer "
            f"tokens or build the model with a larger max_len"
        )
    model.source_embedding.check("source", source)
    memory = model.encode(source)  # [B, n_source, d_model], made once
    written = np.full((len(source), 1), start, dtype=np.int64)  # [B, 1 + n]
    ended = np.zeros(len(source), dtype=bool)  # [B]
    for _ in range(limit):
        logits = model.decode(written, memory, source)[:, -1]  # [B, target_vocab]
        if not np.isfinite(logits).all():
            raise FloatingPointError(
                "the model's logits are not finite, so there is no likeliest token; look for "
                "NaN or infinity in its weights"
            )
        token = logits.argmax(-1)  # [B]
        if end is not None:
            token[ended] = end
            ended |= token == end
        written = np.concatenate([written, token[:, None]], axis=1)
        if ended.all():
            break
    return written[:, 1:]
