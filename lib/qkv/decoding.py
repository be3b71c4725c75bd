"""Decoding: one token after another, from a trained encoder–decoder.

Every function puts the model in eval mode, asks for no gradients, and leaves the
model in the mode in which it came. With the cache (the default) each step computes
the newest token only; without it, the whole row again. Both give the same ids.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from qkv import _require
from qkv.cache import Cache
from qkv.modes import evaluating
from qkv.transformer import Transformer


def greedy(
    model: Transformer,
    source: Tensor,
    *,
    start: int,
    limit: int,
    end: int | None = None,
    cache: bool = True,
) -> Tensor:
    """Write the likeliest token at each step, until every row has ended.

    Shapes:
        source: int64 [B, n_source]
        returns: int64 [B, n], n at most limit, without the start id; after a row's
            first `end` the row holds nothing but `end`
    Errors:
        TypeError, ValueError: model is no Transformer, ids outside the vocabulary, limit
            below 1 or beyond the model's max_len
        FloatingPointError: the model's logits are not finite
    """
    return _write(model, source, start, limit, end, cache, lambda logits: logits.argmax(-1))


def sample(
    model: Transformer,
    source: Tensor,
    *,
    start: int,
    limit: int,
    end: int | None = None,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    cache: bool = True,
) -> Tensor:
    """Draw each token from softmax(logits / temperature).

    A low temperature comes near to greedy, a high one near to chance.

    Shapes:
        as `greedy`
    Errors:
        as `greedy`; ValueError: temperature is not above 0
    """
    _require.number("temperature", temperature)
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}; for 0 use greedy")

    def draw(logits: Tensor) -> Tensor:
        logits = logits - logits.amax(-1, keepdim=True)  # a division by little overflows to -inf
        shares = (logits / max(temperature, torch.finfo(logits.dtype).tiny)).softmax(-1)
        return torch.multinomial(shares, 1, generator=generator).squeeze(-1)

    return _write(model, source, start, limit, end, cache, draw)


def beam(
    model: Transformer,
    source: Tensor,
    *,
    start: int,
    limit: int,
    width: int,
    end: int | None = None,
    cache: bool = True,
) -> Tensor:
    """Keep the `width` likeliest beginnings at each step; return the likeliest row.

    A row's score is the sum of its tokens' log probabilities, without a correction
    for length: of two rows that end, the shorter one is favoured.

    Shapes:
        as `greedy`
    Errors:
        as `greedy`; TypeError, ValueError: width is not a whole number of at least 1
    """
    _require.positive_int("width", width)
    B = _check(model, source, start, limit, end)
    with evaluating(model):
        memory = model.encode(source)
        kept = _Kept(model, cache)
        written = source.new_full((B, 1), start)  # [B * beams, 1 + n], one beam a row at first
        score = memory.new_zeros(B, 1)  # [B, beams]
        for _ in range(limit):
            beams = score.shape[1]
            logits = kept.logits(written, _times(memory, beams), _times(source, beams))
            step = logits.log_softmax(-1)  # [B * beams, vocab]
            if end is not None:  # a beam that has ended goes on as it is, at no cost
                ended = (written[:, 1:] == end).any(1)
                only_end = torch.full_like(step[0], float("-inf"))
                only_end[end] = 0
                step = torch.where(ended[:, None], only_end, step)
            total = (score[:, :, None] + step.view(B, beams, -1)).flatten(1)  # [B, beams * vocab]
            score, best = total.topk(min(width, total.shape[1]))  # [B, width]
            vocab = step.shape[1]
            row = (best // vocab + beams * torch.arange(B, device=best.device)[:, None]).flatten()
            token = (best % vocab).flatten()
            written = torch.cat([written[row], token[:, None]], dim=1)
            kept.select(row)
            if end is not None and bool((written[:, 1:] == end).any(1).all()):
                break
    return written.view(B, -1, written.shape[1])[:, 0, 1:]


def _write(
    model: Transformer,
    source: Tensor,
    start: int,
    limit: int,
    end: int | None,
    cache: bool,
    choose: Callable[[Tensor], Tensor],
) -> Tensor:
    """The loop that greedy and sample share: logits [B, vocab] to ids [B], again and again."""
    B = _check(model, source, start, limit, end)
    with evaluating(model):
        memory = model.encode(source)
        kept = _Kept(model, cache)
        written = source.new_full((B, 1), start)
        ended = torch.zeros(B, dtype=torch.bool, device=source.device)
        for _ in range(limit):
            token = choose(kept.logits(written, memory, source))
            if end is not None:
                token = token.masked_fill(ended, end)
                ended = ended | (token == end)
            written = torch.cat([written, token[:, None]], dim=1)
            if bool(ended.all()):
                break
    return written[:, 1:]


class _Kept:
    """The next token's logits, with a cache or by computing the whole row again."""

    def __init__(self, model: Transformer, cache: bool) -> None:
        self.model = model
        self.cache = Cache(len(model.decoder)) if cache else None

    def logits(self, written: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        logits = self.model.decode(written, memory, source, self.cache)[:, -1]
        if not bool(logits.amax(-1).isfinite().all()):  # -inf beside finite ones rules a token out
            raise FloatingPointError(
                "the model's logits are not finite, so there is no likeliest token; look for "
                "NaN or infinity in its weights"
            )
        return logits

    def select(self, rows: Tensor) -> None:
        if self.cache is not None:
            self.cache.select(rows)


def _times(x: Tensor, beams: int) -> Tensor:
    """[B, ...] -> [B * beams, ...], each row beside its copies."""
    return x if beams == 1 else x.repeat_interleave(beams, dim=0)


def _check(model: Transformer, source: Tensor, start: int, limit: int, end: int | None) -> int:
    _require.instance("model", model, Transformer, "a Transformer")
    _require.positive_int("limit", limit)
    embedding = model.target_embedding
    _require.one_id("start", start, embedding.vocab)
    if end is not None:
        _require.one_id("end", end, embedding.vocab)
    if limit > embedding.max_len:
        raise ValueError(
            f"limit is {limit}, the model has positions for max_len = {embedding.max_len}; "
            f"decode fewer tokens or build the model with a larger max_len"
        )
    model.source_embedding.check("source", source)
    return source.shape[0]
