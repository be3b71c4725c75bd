"""Chapter 08: the parameters counted, and the whole Transformer wired from its parts."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from qkv.checks.answer import Answer, known_state
from qkv.checks.draw import Draw
from qkv.checks.exercise import exercise
from qkv.checks.faults import Numbers, Wrong, equal, has_shape, holds, likely, numbers
from qkv.masks import causal, padding
from qkv.transformer import Transformer


def count_parameters(
    source_vocab: int, target_vocab: int, d_model: int, h: int, d_ff: int, n_layers: int
) -> int:
    """The right answer: each part by formula. The number of heads does not matter."""
    attention, norm = 4 * d_model**2, 2 * d_model
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    encoder_block = attention + feed_forward + 2 * norm
    decoder_block = 2 * attention + feed_forward + 3 * norm
    embeddings = (source_vocab + target_vocab) * d_model
    output_layer = d_model * target_vocab + target_vocab
    return embeddings + n_layers * (encoder_block + decoder_block) + output_layer


def _miscounts(s: int, t: int, d: int, h: int, f: int, N: int) -> dict[str, float]:
    """What people count instead."""
    right = count_parameters(s, t, d, h, f, N)
    A, F, norm = 4 * d * d, 2 * d * f + f + d, 2 * d
    encoder, decoder, output = A + F + 2 * norm, 2 * A + F + 3 * norm, d * t + t
    heads = "the h heads together are as wide as d_model, so h does not matter"
    return {
        f"attention is counted h times: {heads}": right + 3 * N * A * (h - 1),
        f"W_Q, W_K and W_V are counted h times: {heads}": right + 9 * N * d * d * (h - 1),
        f"attention is counted for one head alone: {heads}": right - 3 * N * A * (1 - 1 / h),
        f"W_Q, W_K and W_V are counted for one head alone: {heads}": (
            right - 9 * N * d * d * (1 - 1 / h)
        ),
        "the decoder's cross-attention is missing": right - N * A,
        "2 d_model a layer are missing: the decoder's third norm, or both b_2 of feed-forward": (
            right - N * norm
        ),
        "the decoder block is counted like the encoder's: add an attention and a norm": (
            right - N * (A + norm)
        ),
        "the encoder block is counted like the decoder's: it has one attention and two norms": (
            right + N * (A + norm)
        ),
        "the encoder block has one attention": right + N * A,
        "a norm has a gain and a bias: 2 d_model": right - 5 * N * d,
        "the norms are missing": right - 5 * N * norm,
        "each block has one norm: there is one for each sublayer": right - 3 * N * norm,
        "the feed-forward's two biases are missing": right - 2 * N * (f + d),
        "the feed-forward's bias b_1, of d_ff numbers, is missing": right - 2 * N * f,
        "the feed-forward has two matrices": right - 2 * N * d * f,
        "the feed-forward has two matrices, and its biases are missing": (
            right - 2 * N * (d * f + f + d)
        ),
        "the feed-forward's biases have d_ff and d_model numbers": right - 2 * N * (f - d),
        "the feed-forward's biases have d_ff and d_model numbers, not d_ff each": (
            right + 2 * N * (f - d)
        ),
        "the decoder's feed-forward is missing": right - N * F,
        "the feed-forwards are missing": right - 2 * N * F,
        "W_O is missing in the attentions": right - 3 * N * d * d,
        "the attentions have no biases here": right + 3 * N * 4 * d,
        "the attentions have no biases here, nor has W_O": right + 3 * N * d,
        "the blocks are counted twice": right + N * (encoder + decoder),
        "the blocks are counted once, not n_layers times": right - (N - 1) * (encoder + decoder),
        "the decoder's blocks are counted once, not n_layers times": right - (N - 1) * decoder,
        "the encoder's blocks are counted once, not n_layers times": right - (N - 1) * encoder,
        "the decoder's blocks are missing": right - N * decoder,
        "the encoder's blocks are missing": right - N * encoder,
        "the blocks are missing": right - N * (encoder + decoder),
        "everything is multiplied by n_layers: embeddings and output layer stand once": N * right,
        "n_layers multiplies the embeddings too": right + (N - 1) * (s + t) * d,
        "n_layers multiplies the output layer too": right + (N - 1) * output,
        "the output layer is missing": right - output,
        "the output layer's bias is missing": right - t,
        "d_model times target_vocab is missing: the target's table, or the output layer's matrix": (
            right - d * t
        ),
        "the output layer gives a score for each id of the target's vocabulary": (
            right + (d + 1) * (s - t)
        ),
        "the embeddings are missing": right - (s + t) * d,
        "the source's embedding is missing": right - s * d,
        "each vocabulary has a table of its own size, the source's is counted twice": (
            right + (s - t) * d
        ),
        "each vocabulary has a table of its own size, the target's is counted twice": (
            right + (t - s) * d
        ),
        "both final norms are counted: a post-norm stack ends in a norm as it is": (
            right + 2 * norm
        ),
        "a final norm is counted: a post-norm stack ends in a norm as it is": right + norm,
        "positions are counted: sinusoids are not learned": right + 2 * 512 * d,
        "positions are counted, once: sinusoids are not learned": right + 512 * d,
    }


@exercise("count_parameters", count_parameters, never=("parameters", "named_parameters"))
def try_count_parameters(answer: Answer, draw: Draw) -> Iterable[object]:
    """source_vocab, target_vocab, d_model, h, d_ff, n_layers -> a whole number."""
    while True:
        h = draw.whole(3, 4)
        d, f, N = h * draw.whole(5, 8), draw.whole(45, 70), draw.whole(2, 3)
        t = draw.whole(80, 99)
        sizes = t + draw.whole(5, 40), t, d, h, f, N
        right, wrong = count_parameters(*sizes), _miscounts(*sizes)
        if len({right, *wrong.values()}) == 1 + len(wrong):  # each mistake gives its own number
            break
    count = answer(*sizes)
    equal(f"count_parameters{sizes}", count, right, wrong, tolerance=1e-9)
    for more in (
        (13, 13, 32, 4, 32, 1),
        (draw.whole(5, 9), draw.whole(10, 20), 12, 1, draw.whole(3, 9), draw.whole(4, 6)),
    ):
        with likely("other sizes are counted rightly: is one of the arguments not used?"):
            equal(f"count_parameters{more}", answer(*more), count_parameters(*more), tolerance=1e-9)
    return [numbers("count", count)]


class Parts:
    """A model's parts, to be wired by whoever is given them; it notes what the encoder reads."""

    def __init__(self, model: Transformer, read: list[int]) -> None:
        def encoder_block(block: nn.Module, note: bool) -> Callable[..., Any]:
            def run(x: Tensor, mask: Tensor | None = None) -> Any:
                if note:
                    read.append(len(x))
                return block(x, mask)

            return run

        def decoder_block(block: nn.Module) -> Callable[..., Any]:
            def run(
                x: Tensor,
                memory: Tensor,
                mask: Tensor | None = None,
                memory_mask: Tensor | None = None,
            ) -> Any:
                return block(x, memory, mask, memory_mask)

            return run

        def plain(part: nn.Module) -> Callable[[Tensor], Any]:
            return lambda x: part(x)

        self.source_embedding = plain(model.source_embedding)
        self.target_embedding = plain(model.target_embedding)
        self.encoder = [encoder_block(b, i == 0) for i, b in enumerate(model.encoder)]
        self.decoder = [decoder_block(block) for block in model.decoder]
        self.encoder_norm, self.decoder_norm = plain(model.encoder_norm), plain(model.decoder_norm)
        self.to_vocab = plain(model.to_vocab)

    def __call__(self, *given: Any) -> Any:
        raise Wrong("it calls the model, and that is what you are to build")

    def encode(self, *given: Any) -> Any:
        """Not given away."""
        raise Wrong("it calls encode, and that is what you are to build")

    def decode(self, *given: Any) -> Any:
        """Not given away."""
        raise Wrong("it calls decode, and that is what you are to build")


def forward(model: Any, source: Tensor, target: Tensor, pad: int) -> Tensor:
    """The right answer: encode once, hand the memory to each decoder block, logits last."""
    return _wired(model, source, target, pad)


def _wired(
    model: Any,
    source: Tensor,
    target: Tensor,
    pad: int,
    *,
    embed: Sequence[str] = ("source_embedding", "target_embedding"),
    masks: Callable[[Any, Any, Any], tuple[Any, Any, Any]] = lambda *masks: masks,
    encode: Callable[[Any, Tensor, Any], Tensor] | None = None,
    memories: Callable[[Any, Tensor, Any], list[Tensor]] | None = None,
    decode: Callable[[list[Callable[[Tensor], Tensor]], Tensor], Tensor] | None = None,
    norms: tuple[str | None, str | None] = ("encoder_norm", "decoder_norm"),
) -> Tensor:
    """The model, with some of its wires laid otherwise."""

    def norm(name: str | None, x: Tensor) -> Tensor:
        out: Tensor = getattr(model, name)(x) if name else x
        return out

    source_mask, target_mask, memory_mask = masks(
        padding(source, pad),
        causal(target.shape[1]) & padding(target, pad),
        padding(source, pad),
    )
    x, y = getattr(model, embed[0])(source), getattr(model, embed[1])(target)
    n = len(model.decoder)
    if memories:
        all_memories = memories(model, x, source_mask)
    else:
        memory = norm(norms[0], (encode or _chained)(model, x, source_mask))
        all_memories = [memory] * n

    def step(i: int) -> Callable[[Tensor], Tensor]:
        return lambda y: model.decoder[i](y, all_memories[i], target_mask, memory_mask)

    steps = [step(i) for i in range(n)]
    if decode:
        y = decode(steps, y)
    else:
        for one in steps:
            y = one(y)
    logits: Tensor = model.to_vocab(norm(norms[1], y))
    return logits


def _chained(model: Any, x: Tensor, mask: Any) -> Tensor:
    for block in model.encoder:
        x = block(x, mask)
    return x


def _per_layer(model: Any, x: Tensor, mask: Any) -> list[Tensor]:
    """The memory of each encoder block, for the decoder block of the same number."""
    found = []
    for block in model.encoder:
        x = block(x, mask)
        found.append(x)
    return found


def _misrouted(model: Any, source: Tensor, target: Tensor, pad: int) -> dict[str, Any]:
    """What people wire instead: each is computed only if the answer is wrong."""

    def wired(**other: Any) -> Callable[[], Tensor]:
        return lambda: _wired(model, source, target, pad, **other)

    right = wired()
    rows, n_source = padding(target, pad), source.shape[1]
    road = "in pre-norm the road needs a norm at its end"
    chain = "each block takes what the one before it gives"
    return {
        "the target's mask is not causal: a token sees what comes after it": wired(
            masks=lambda s, t, m: (s, rows, m)
        ),
        "the target's padding is not masked in the decoder's self-attention": wired(
            masks=lambda s, t, m: (s, causal(target.shape[1]), m)
        ),
        "the decoder's self-attention has no mask": wired(masks=lambda s, t, m: (s, None, m)),
        "the two masks of the target are joined by |: both must allow it, so &": wired(
            masks=lambda s, t, m: (s, causal(target.shape[1]) | rows, m)
        ),
        "the encoder has no mask: it attends to the source's padding": wired(
            masks=lambda s, t, m: (None, t, m)
        ),
        "cross-attention has no mask: the padding has rows in the memory too": wired(
            masks=lambda s, t, m: (s, t, None)
        ),
        "the source's padding is masked nowhere": wired(masks=lambda s, t, m: (None, t, None)),
        "no mask at all": wired(masks=lambda s, t, m: (None, None, None)),
        "the encoder's mask is causal: it may see the whole source": wired(
            masks=lambda s, t, m: (causal(n_source) & s, t, m)
        ),
        "the masks are the wrong way round: True means may attend": wired(
            masks=lambda s, t, m: (~s, ~t, ~m)
        ),
        "the encoder's mask is the wrong way round: True means may attend": wired(
            masks=lambda s, t, m: (~s, t, m)
        ),
        "the target's mask is the wrong way round: True means may attend": wired(
            masks=lambda s, t, m: (s, ~t, m)
        ),
        "cross-attention's mask is the wrong way round: True means may attend": wired(
            masks=lambda s, t, m: (s, t, ~m)
        ),
        "encoder_norm is missing: " + road: wired(norms=(None, "decoder_norm")),
        "decoder_norm is missing: " + road: wired(norms=("encoder_norm", None)),
        "encoder_norm and decoder_norm are missing: " + road: wired(norms=(None, None)),
        "encoder_norm and decoder_norm are exchanged": wired(
            norms=("decoder_norm", "encoder_norm")
        ),
        "encoder_norm is used for both halves": wired(norms=("encoder_norm", "encoder_norm")),
        "decoder_norm is used for both halves": wired(norms=("decoder_norm", "decoder_norm")),
        "the memory is the embedded source: the encoder has no effect": wired(
            encode=lambda model, x, mask: x
        ),
        "the memory is the embedded source, without a norm: the encoder has no effect": wired(
            encode=lambda model, x, mask: x, norms=(None, "decoder_norm")
        ),
        "each decoder block gets the memory of its own layer: all get that of the last": wired(
            memories=_per_layer
        ),
        "each decoder block gets the memory of its own layer, normed: all get the last's": wired(
            memories=lambda *given: [model.encoder_norm(x) for x in _per_layer(*given)]
        ),
        "only the first encoder block has an effect: " + chain: wired(
            encode=lambda model, x, mask: model.encoder[0](x, mask)
        ),
        "only the last encoder block has an effect: " + chain: wired(
            encode=lambda model, x, mask: model.encoder[-1](x, mask)
        ),
        "encoder_norm stands behind each encoder block: it stands at the end": wired(
            encode=lambda model, x, mask: model.encoder[1](
                model.encoder_norm(model.encoder[0](x, mask)), mask
            )
        ),
        "a norm stands behind each block: one stands at the end of each half": wired(
            encode=lambda model, x, mask: model.encoder[1](
                model.encoder_norm(model.encoder[0](x, mask)), mask
            ),
            decode=lambda steps, y: steps[1](model.decoder_norm(steps[0](y))),
        ),
        "the encoder's blocks run in the wrong order": wired(
            encode=lambda model, x, mask: model.encoder[0](model.encoder[1](x, mask), mask)
        ),
        "only the first decoder block has an effect: " + chain: wired(
            decode=lambda steps, y: steps[0](y)
        ),
        "only the last decoder block has an effect: " + chain: wired(
            decode=lambda steps, y: steps[-1](y)
        ),
        "decoder_norm stands behind each decoder block: it stands at the end": wired(
            decode=lambda steps, y: steps[1](model.decoder_norm(steps[0](y)))
        ),
        "the decoder's blocks run in the wrong order": wired(
            decode=lambda steps, y: steps[0](steps[1](y))
        ),
        "the decoder's blocks have no effect": wired(decode=lambda steps, y: y),
        "source_embedding and target_embedding are exchanged": wired(
            embed=("target_embedding", "source_embedding")
        ),
        "the target goes through source_embedding: it has a table of its own": wired(
            embed=("source_embedding", "source_embedding")
        ),
        "the source goes through target_embedding: it has a table of its own": wired(
            embed=("target_embedding", "target_embedding")
        ),
        "these are shares: the logits come before the softmax": lambda: right().softmax(-1),
        "these are logarithms of shares: the logits come before them": lambda: right().log_softmax(
            -1
        ),
    }


def _model(draw: Draw) -> Transformer:
    """A pre-norm Transformer, random in every parameter, norms and biases too."""
    with known_state():
        model = Transformer(
            9, 7, d_model=8, n_heads=2, d_ff=6, n_layers=2, max_len=8, norm="pre", bias=True
        )
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(draw.tensor(*p.shape) * (0.8 if "table" in name else 0.5))
                if "norm.weight" in name:
                    p.copy_(p.abs() + 0.5)
    return model.float().requires_grad_(False)


def _sentences(draw: Draw, pad: int) -> tuple[Tensor, Tensor]:
    """Three sources [3, 6] and targets [3, 5], padded behind, in front and not at all."""
    words = [i for i in range(7) if i != pad]
    source, target = (
        torch.tensor(words, device="cpu")[draw.ids(6, *shape)] for shape in ((3, 6), (3, 5))
    )
    source[1, 4:], source[2, 2:] = pad, pad
    target[1, :2], target[2, 3:] = pad, pad
    return source, target


@exercise("forward", forward)
def try_forward(answer: Answer, draw: Draw) -> Iterable[object]:
    """model, source [B, n_source], target [B, n_target], pad -> logits [B, n_target, vocab]."""
    model, read = _model(draw), list[int]()
    parts = Parts(model, read)

    def counted(logits: object, target: Tensor, pad: int) -> Numbers:
        """The logits of tokens; what stands at padding is nobody's business."""
        return np.where((target == pad)[..., None].numpy(), 0, numbers("logits", logits))

    source, target = _sentences(draw, 0)
    logits = answer(parts, source, target, 0)
    rows = sum(read)
    has_shape(
        "forward(model, source, target, pad)",
        logits,
        [3, 5, 7],
        {
            "to_vocab is missing": [3, 5, 8],
            "these are ids: the logits are wanted": [3, 5],
            "these are the logits of the last position alone": [3, 7],
            "there is a row for each token of the source: are target and memory exchanged?": [
                3,
                6,
                7,
            ],
            "this is the memory: the decoder is missing": [3, 6, 8],
            "a token of the target is cut off: it is the decoder's input already": [3, 4, 7],
        },
    )
    seen = counted(logits, target, 0)
    equal(
        "the logits",
        seen,
        counted(_wired(parts, source, target, 0), target, 0),
        {
            cause: lambda given=given: counted(given(), target, 0)
            for cause, given in _misrouted(parts, source, target, 0).items()
        },
    )
    holds(
        rows <= 3,
        f"the encoder reads {rows} rows of ids, for 3 sentences: run it once, before the decoder",
    )
    source, target = _sentences(draw, 3)
    source, target = source[:, :5], target[:, :4]
    parts.encoder.append(parts.encoder[0])
    parts.decoder.append(parts.decoder[0])
    with likely("here pad is 3, there are 3 blocks, a target has 4 ids: is a number your own?"):
        equal(
            "the logits",
            counted(answer(parts, source, target, 3), target, 3),
            counted(_wired(parts, source, target, 3), target, 3),
        )
    return seen[0, 0, :3]
