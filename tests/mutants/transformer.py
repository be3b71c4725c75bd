"""Chapter 08."""

import torch

from qkv.masks import additive, causal, padding
from qkv.transformer import Transformer


def by_formula(s, t, d, h, f, N):
    attention, norm, feed = 4 * d * d, 2 * d, d * f + f + f * d + d
    return s * d + t * d + N * (3 * attention + 2 * feed + 5 * norm) + (d + 1) * t


def by_heads(s, t, d, h, f, N):
    """Head by head, as the matrices are on paper."""
    head = 3 * d * (d // h)  # W_Q, W_K, W_V of one head
    total = 0.0
    for _ in range(N):
        for attentions in (1, 2):
            total += attentions * (h * head + d * d)
            total += (attentions + 1) * (d + d)
            total += d * f + f + f * d + d
    return total + (s + t + t) * d + t


def by_building(s, t, d, h, f, N):
    """What the package makes; its sizes are counted behind the back of parameters()."""
    model = Transformer(s, t, d_model=d, n_heads=h, d_ff=f, n_layers=N, max_len=2)
    return torch.tensor(
        sum(
            p.nelement()
            for part in model.modules()
            for p in part._parameters.values()
            if p is not None
        )
    )


def miscount(change):
    """A count that goes wrong: change(s, t, d, h, f, N) is added to the right one."""
    return lambda *sizes: by_formula(*sizes) + change(*sizes)


def forward(
    model,
    source,
    target,
    pad,
    source_mask=padding,
    target_mask=lambda ids, pad: causal(ids.shape[1]) & padding(ids, pad),
    memory_mask=padding,
    embed=("source_embedding", "target_embedding"),
    norms=("encoder_norm", "decoder_norm"),
    end=lambda logits: logits,
):
    def norm(name, x):
        return getattr(model, name)(x) if name else x

    x = getattr(model, embed[0])(source)
    for block in model.encoder:
        x = block(x, source_mask(source, pad))
    memory = norm(norms[0], x)
    y = getattr(model, embed[1])(target)
    for block in model.decoder:
        y = block(y, memory, target_mask(target, pad), memory_mask(source, pad))
    return end(model.to_vocab(norm(norms[1], y)))


def with_(**other):
    return lambda *given: forward(*given, **other)


def none(ids, pad):
    return None


def inverted(mask):
    return lambda ids, pad: ~mask(ids, pad)


def forward_additive(model, source, target, pad):
    """Masks as numbers to add, 4-D, made by hand."""
    B, n = target.shape
    see = torch.zeros(B, 1, n, n)
    for b in range(B):
        for i in range(n):
            for j in range(n):
                if j > i or target[b, j] == pad:
                    see[b, 0, i, j] = -1e9
    hide = additive((source != pad)[:, None, None])
    memory = model.source_embedding(source)
    for block in model.encoder:
        memory = block(memory, mask=hide)
    memory = model.encoder_norm(memory)
    y = model.target_embedding(target)
    for block in model.decoder:
        y = block(x=y, memory=memory, mask=see, memory_mask=hide)
    return model.to_vocab(model.decoder_norm(y)).numpy()


def forward_by_rows(model, source, target, pad):
    """One sentence after another, as lists of tensors."""
    return torch.cat(
        [forward(model, s[None], t[None], pad) for s, t in zip(source, target, strict=True)]
    )


def forward_without_target_rows(model, source, target, pad):
    """What is computed at padding is made 0: nobody reads it."""
    return forward(model, source, target, pad) * (target != pad)[..., None]


def forward_in_parts(model, source, target, pad):
    def encode():
        x = model.source_embedding(source)
        for i in range(len(model.encoder)):
            x = model.encoder[i](x, (source != pad).view(len(source), 1, 1, -1))
        return model.encoder_norm(x)

    def decode(memory):
        n = target.shape[1]
        triangle = torch.tril(torch.ones(n, n)).bool()
        see = torch.logical_and(triangle, (target != pad)[:, None, None, :])
        y = model.target_embedding(target)
        for block in model.decoder:
            y = block(y, memory, see, memory_mask=(source != pad)[:, None, None, :])
        return model.decoder_norm(y)

    return model.to_vocab(decode(encode()))


def other(encode=None, decode=None, memories=None):
    """The right forward, but for one loop."""

    def answer(model, source, target, pad):
        see = causal(target.shape[1]) & padding(target, pad)
        hide = padding(source, pad)
        x = model.source_embedding(source)
        if memories:
            found = memories(model, x, hide)
        else:
            if encode:
                x = encode(model, x, hide)
            else:
                for block in model.encoder:
                    x = block(x, hide)
            found = [model.encoder_norm(x)] * len(model.decoder)
        y = model.target_embedding(target)
        steps = [
            lambda y, block=block, memory=memory: block(y, memory, see, hide)
            for block, memory in zip(model.decoder, found, strict=True)
        ]
        if decode:
            y = decode(model, y, steps)
        else:
            for step in steps:
                y = step(y)
        return model.to_vocab(model.decoder_norm(y))

    return answer


def per_layer(model, x, mask, norm=lambda x: x):
    found = []
    for block in model.encoder:
        x = block(x, mask)
        found.append(norm(x))
    return found


def normed_each(model, x, mask):
    for block in model.encoder:
        x = model.encoder_norm(block(x, mask))
    return x  # and once more at the end


def encodes_each_time(model, source, target, pad):
    y = model.target_embedding(target)
    for block in model.decoder:
        x = model.source_embedding(source)
        for encoder_block in model.encoder:
            x = encoder_block(x, padding(source, pad))
        see = causal(target.shape[1]) & padding(target, pad)
        y = block(y, model.encoder_norm(x), see, padding(source, pad))
    return model.to_vocab(model.decoder_norm(y))


def without_to_vocab(model, source, target, pad):
    model.to_vocab = lambda x: x
    return forward(model, source, target, pad)


def memory_alone(model, source, target, pad):
    return other(decode=lambda model, y, steps: None)(model, source, target, pad)


def swapped(model, source, target, pad):
    x = model.source_embedding(source)
    for block in model.encoder:
        x = block(x, padding(source, pad))
    y = model.target_embedding(target)
    memory = model.encoder_norm(x)
    for block in model.decoder:
        memory = block(memory, y)
    return model.to_vocab(model.decoder_norm(memory))


RIGHT = {
    "count_parameters": [by_formula, by_heads, by_building],
    "forward": [
        forward,
        forward_additive,
        forward_by_rows,
        forward_without_target_rows,
        forward_in_parts,
    ],
}

WRONG = {
    "count_parameters": {
        "h attentions": (miscount(lambda s, t, d, h, f, N: 3 * N * 4 * d * d * (h - 1)), "h times"),
        "h times three matrices": (
            miscount(lambda s, t, d, h, f, N: 3 * N * 3 * d * d * (h - 1)),
            "W_Q, W_K and W_V are counted h times",
        ),
        "one head": (
            miscount(lambda s, t, d, h, f, N: 3 * N * (4 * d * d // h - 4 * d * d)),
            "attention is counted for one head alone",
        ),
        "one head's three matrices": (
            miscount(lambda s, t, d, h, f, N: 3 * N * 3 * (d * d // h - d * d)),
            "W_Q, W_K and W_V are counted for one head alone",
        ),
        "no cross-attention": (
            miscount(lambda s, t, d, h, f, N: -N * 4 * d * d),
            "cross-attention is missing",
        ),
        "no third norm": (
            miscount(lambda s, t, d, h, f, N: -N * 2 * d),
            "third norm, or both b_2",
        ),
        "decoder as encoder": (
            miscount(lambda s, t, d, h, f, N: -N * (4 * d * d + 2 * d)),
            "counted like the encoder's",
        ),
        "encoder as decoder": (
            miscount(lambda s, t, d, h, f, N: N * (4 * d * d + 2 * d)),
            "counted like the decoder's",
        ),
        "two attentions in the encoder": (
            miscount(lambda s, t, d, h, f, N: N * 4 * d * d),
            "the encoder block has one attention",
        ),
        "gains alone": (miscount(lambda s, t, d, h, f, N: -5 * N * d), "a gain and a bias"),
        "no norms": (miscount(lambda s, t, d, h, f, N: -10 * N * d), "the norms are missing"),
        "one norm a block": (
            miscount(lambda s, t, d, h, f, N: -6 * N * d),
            "one for each sublayer",
        ),
        "no biases": (
            miscount(lambda s, t, d, h, f, N: -2 * N * (f + d)),
            "two biases are missing",
        ),
        "no b_1": (miscount(lambda s, t, d, h, f, N: -2 * N * f), "bias b_1"),
        "no b_2": (
            miscount(lambda s, t, d, h, f, N: -2 * N * d),
            "third norm, or both b_2",
        ),
        "one matrix": (
            miscount(lambda s, t, d, h, f, N: -2 * N * d * f),
            "the feed-forward has two matrices",
        ),
        "one matrix, no biases": (
            miscount(lambda s, t, d, h, f, N: -2 * N * (d * f + f + d)),
            "two matrices, and its biases",
        ),
        "biases d each": (miscount(lambda s, t, d, h, f, N: 2 * N * (d - f)), "d_ff and d_model"),
        "biases f each": (miscount(lambda s, t, d, h, f, N: 2 * N * (f - d)), "not d_ff each"),
        "one feed-forward": (
            miscount(lambda s, t, d, h, f, N: -N * (2 * d * f + f + d)),
            "the decoder's feed-forward is missing",
        ),
        "no feed-forward": (
            miscount(lambda s, t, d, h, f, N: -2 * N * (2 * d * f + f + d)),
            "the feed-forwards are missing",
        ),
        "no W_O": (miscount(lambda s, t, d, h, f, N: -3 * N * d * d), "W_O is missing"),
        "attention biases": (
            miscount(lambda s, t, d, h, f, N: 12 * N * d),
            "the attentions have no biases here",
        ),
        "W_O's bias": (miscount(lambda s, t, d, h, f, N: 3 * N * d), "nor has W_O"),
        "blocks twice": (
            lambda s, t, d, h, f, N: by_formula(s, t, d, h, f, 2 * N),
            "the blocks are counted twice",
        ),
        "one layer": (
            lambda s, t, d, h, f, N: by_formula(s, t, d, h, f, 1),
            "the blocks are counted once",
        ),
        "one decoder block": (
            miscount(lambda s, t, d, h, f, N: (1 - N) * (8 * d * d + 2 * d * f + f + 7 * d)),
            "the decoder's blocks are counted once",
        ),
        "one encoder block": (
            miscount(lambda s, t, d, h, f, N: (1 - N) * (4 * d * d + 2 * d * f + f + 5 * d)),
            "the encoder's blocks are counted once",
        ),
        "no decoder": (
            miscount(lambda s, t, d, h, f, N: -N * (8 * d * d + 2 * d * f + f + 7 * d)),
            "the decoder's blocks are missing",
        ),
        "no encoder": (
            miscount(lambda s, t, d, h, f, N: -N * (4 * d * d + 2 * d * f + f + 5 * d)),
            "the encoder's blocks are missing",
        ),
        "no blocks": (
            lambda s, t, d, h, f, N: by_formula(s, t, d, h, f, 0),
            "the blocks are missing",
        ),
        "all times n_layers": (
            lambda s, t, d, h, f, N: N * by_formula(s, t, d, h, f, N),
            "everything is multiplied",
        ),
        "embeddings times n_layers": (
            miscount(lambda s, t, d, h, f, N: (N - 1) * (s + t) * d),
            "multiplies the embeddings",
        ),
        "output layer times n_layers": (
            miscount(lambda s, t, d, h, f, N: (N - 1) * (d + 1) * t),
            "multiplies the output layer",
        ),
        "no output layer": (
            miscount(lambda s, t, d, h, f, N: -(d + 1) * t),
            "the output layer is missing",
        ),
        "no output bias": (miscount(lambda s, t, d, h, f, N: -t), "output layer's bias"),
        "tied": (
            miscount(lambda s, t, d, h, f, N: -d * t),
            "the target's table, or the output layer's matrix",
        ),
        "output over the source": (
            miscount(lambda s, t, d, h, f, N: (d + 1) * (s - t)),
            "for each id of the target's vocabulary",
        ),
        "no embeddings": (
            miscount(lambda s, t, d, h, f, N: -(s + t) * d),
            "the embeddings are missing",
        ),
        "no source embedding": (
            miscount(lambda s, t, d, h, f, N: -s * d),
            "the source's embedding is missing",
        ),
        "source embedding twice": (
            miscount(lambda s, t, d, h, f, N: (s - t) * d),
            "the source's is counted twice",
        ),
        "target embedding twice": (
            miscount(lambda s, t, d, h, f, N: (t - s) * d),
            "the target's is counted twice",
        ),
        "final norms": (miscount(lambda s, t, d, h, f, N: 4 * d), "both final norms"),
        "one final norm": (miscount(lambda s, t, d, h, f, N: 2 * d), "a final norm is counted"),
        "positions": (miscount(lambda s, t, d, h, f, N: 1024 * d), "positions are counted"),
        "positions once": (miscount(lambda s, t, d, h, f, N: 512 * d), "positions are counted"),
        "three layers always": (
            lambda s, t, d, h, f, N: by_formula(s, t, d, h, f, max(N, 2)),
            "is one of the arguments not used",
        ),
        "the parts": (
            lambda *sizes: {"all": by_formula(*sizes)},
            "is a dict, expected numbers",
        ),
        "counts the module's": (
            lambda s, t, d, h, f, N: sum(
                p.numel()
                for p in Transformer(s, t, d_model=d, n_heads=h, d_ff=f, n_layers=N).parameters()
            ),
            "it calls parameters",
        ),
        "returns nothing": (lambda *sizes: None, "is there a return"),
    },
    "forward": {
        "not causal": (with_(target_mask=padding), "not causal"),
        "no target padding": (
            with_(target_mask=lambda ids, pad: causal(ids.shape[1])),
            "the target's padding is not masked",
        ),
        "no target mask": (with_(target_mask=none), "the decoder's self-attention has no mask"),
        "or": (
            with_(target_mask=lambda ids, pad: causal(ids.shape[1]) | padding(ids, pad)),
            "so &",
        ),
        "no source mask": (with_(source_mask=none), "the encoder has no mask"),
        "no memory mask": (with_(memory_mask=none), "cross-attention has no mask"),
        "source padding nowhere": (
            with_(source_mask=none, memory_mask=none),
            "the source's padding is masked nowhere",
        ),
        "no masks": (
            with_(source_mask=none, target_mask=none, memory_mask=none),
            "no mask at all",
        ),
        "a causal encoder": (
            with_(source_mask=lambda ids, pad: causal(ids.shape[1]) & padding(ids, pad)),
            "the encoder's mask is causal",
        ),
        "inverted": (
            with_(
                source_mask=inverted(padding),
                target_mask=lambda ids, pad: ~(causal(ids.shape[1]) & padding(ids, pad)),
                memory_mask=inverted(padding),
            ),
            "wrong way round",
        ),
        "the encoder's mask inverted": (
            with_(source_mask=inverted(padding)),
            "the encoder's mask is the wrong way round",
        ),
        "the target's mask inverted": (
            with_(target_mask=lambda ids, pad: ~(causal(ids.shape[1]) & padding(ids, pad))),
            "the target's mask is the wrong way round",
        ),
        "the memory's mask inverted": (
            with_(memory_mask=inverted(padding)),
            "cross-attention's mask is the wrong way round",
        ),
        "another padding": (
            lambda model, source, target, pad: forward(model, source, target, 0),
            "here pad is 3",
        ),
        "five tokens always": (
            with_(target_mask=lambda ids, pad: causal(5) & padding(ids, pad)),
            "a target has 4 ids",
        ),
        "two blocks always": (
            other(
                encode=lambda model, x, mask: model.encoder[1](model.encoder[0](x, mask), mask),
                decode=lambda model, y, steps: steps[1](steps[0](y)),
            ),
            "there are 3 blocks",
        ),
        "a norm behind every block": (
            other(
                encode=lambda model, x, mask: model.encoder[1](
                    model.encoder_norm(model.encoder[0](x, mask)), mask
                ),
                decode=lambda model, y, steps: steps[1](model.decoder_norm(steps[0](y))),
            ),
            "a norm stands behind each block",
        ),
        "no encoder norm": (with_(norms=(None, "decoder_norm")), "encoder_norm is missing"),
        "no decoder norm": (with_(norms=("encoder_norm", None)), "decoder_norm is missing"),
        "no norms": (with_(norms=(None, None)), "encoder_norm and decoder_norm are missing"),
        "norms exchanged": (
            with_(norms=("decoder_norm", "encoder_norm")),
            "encoder_norm and decoder_norm are exchanged",
        ),
        "one norm for both": (
            with_(norms=("encoder_norm", "encoder_norm")),
            "encoder_norm is used for both",
        ),
        "the other norm for both": (
            with_(norms=("decoder_norm", "decoder_norm")),
            "decoder_norm is used for both",
        ),
        "norm behind each encoder block": (
            other(
                encode=lambda model, x, mask: model.encoder[1](
                    model.encoder_norm(model.encoder[0](x, mask)), mask
                )
            ),
            "behind each encoder block",
        ),
        "norm behind each decoder block": (
            other(decode=lambda model, y, steps: steps[1](model.decoder_norm(steps[0](y)))),
            "behind each decoder block",
        ),
        "embedded source as memory": (
            other(encode=lambda model, x, mask: x),
            "the memory is the embedded source",
        ),
        "embedded source as memory, raw": (
            other(memories=lambda model, x, mask: [x, x]),
            "the memory is the embedded source, without a norm",
        ),
        "a memory per layer": (other(memories=per_layer), "the memory of its own layer: all"),
        "a memory per layer, normed": (
            other(memories=lambda model, x, mask: per_layer(model, x, mask, model.encoder_norm)),
            "the memory of its own layer, normed",
        ),
        "the first encoder block alone": (
            other(encode=lambda model, x, mask: model.encoder[0](x, mask)),
            "only the first encoder block",
        ),
        "encoder not chained": (
            other(encode=lambda model, x, mask: [block(x, mask) for block in model.encoder][-1]),
            "only the last encoder block",
        ),
        "encoder backwards": (
            other(encode=lambda model, x, mask: model.encoder[0](model.encoder[1](x, mask), mask)),
            "the encoder's blocks run in the wrong order",
        ),
        "the first decoder block alone": (
            other(decode=lambda model, y, steps: steps[0](y)),
            "only the first decoder block",
        ),
        "decoder not chained": (
            other(decode=lambda model, y, steps: [step(y) for step in steps][-1]),
            "only the last decoder block",
        ),
        "decoder backwards": (
            other(decode=lambda model, y, steps: steps[0](steps[1](y))),
            "the decoder's blocks run in the wrong order",
        ),
        "no decoder": (
            other(decode=lambda model, y, steps: y),
            "the decoder's blocks have no effect",
        ),
        "embeddings exchanged": (
            with_(embed=("target_embedding", "source_embedding")),
            "are exchanged",
        ),
        "one embedding": (
            with_(embed=("source_embedding", "source_embedding")),
            "the target goes through source_embedding",
        ),
        "the other embedding": (
            with_(embed=("target_embedding", "target_embedding")),
            "the source goes through target_embedding",
        ),
        "softmax": (with_(end=lambda logits: logits.softmax(-1)), "these are shares"),
        "log softmax": (with_(end=lambda logits: logits.log_softmax(-1)), "these are logarithms"),
        "ids": (with_(end=lambda logits: logits.argmax(-1)), "these are ids"),
        "the last position": (with_(end=lambda logits: logits[:, -1]), "the last position alone"),
        "no output layer": (without_to_vocab, "to_vocab is missing"),
        "target cut off": (
            lambda model, source, target, pad: forward(model, source, target[:, :-1], pad),
            "it is the decoder's input already",
        ),
        "memory and target exchanged": (swapped, "are target and memory exchanged"),
        "encodes for each block": (encodes_each_time, "run it once"),
        "the memory mask of the target": (
            lambda model, source, target, pad: forward(
                model, source, target, pad, memory_mask=lambda ids, pad: padding(target, pad)
            ),
            "does not broadcast to the scores",
        ),
        "calls the model": (
            lambda model, source, target, pad: model(source, target),
            "it calls the model",
        ),
        "calls encode": (
            lambda model, source, target, pad: model.decode(target, model.encode(source), source),
            "it calls encode",
        ),
        "calls decode": (
            lambda model, source, target, pad: model.decode(
                target, model.source_embedding(source), source
            ),
            "it calls decode",
        ),
        "changes the source": (
            lambda model, source, target, pad: forward(
                model, source.masked_fill_(source == pad, 1), target, pad
            ),
            "changes its argument number 2",
        ),
        "returns nothing": (with_(end=lambda logits: None), "is there a return"),
    },
}
