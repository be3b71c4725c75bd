"""Chapter 03."""

import math

import numpy as np
import torch
import torch.nn.functional as F

import qkv.attention
import qkv.masks

INF = math.inf


def causal(n):
    return torch.ones(n, n, dtype=torch.bool).tril()


def causal_in_loops(n):
    return [[j <= i for j in range(n)] for i in range(n)]


def causal_row_by_row(n):
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        mask[i, : i + 1] = True
    return mask


def combine(causal, keep):
    return causal & keep[:, None, None, :]


def combine_in_loops(causal, keep):
    n = len(causal)
    mask = torch.zeros(len(keep), 1, n, n, dtype=torch.bool)
    for b in range(len(keep)):
        for i in range(n):
            for j in range(n):
                mask[b, 0, i, j] = bool(causal[i, j]) and bool(keep[b, j])
    return mask


def combine_by_filling(causal, keep):
    mask = causal.expand(len(keep), 1, -1, -1).clone()
    mask.masked_fill_(~keep.view(len(keep), 1, 1, -1), False)
    return mask


def rows(keep):
    return keep[:, None, :, None]


def columns(keep):
    return keep[:, None, None, :]


def scores_of(Q, K):
    return Q @ K.mT / math.sqrt(Q.shape[-1])


def attention(Q, K, V, mask):
    """By exponentials; a sum of 0 becomes 1."""
    scores = scores_of(Q, K).masked_fill(~mask, -INF)
    largest = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    e = (scores - largest).exp()
    total = e.sum(-1, keepdim=True)
    return (e / total.masked_fill(total == 0, 1)) @ V


def attention_lowest(Q, K, V, mask):
    scores = scores_of(Q, K)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return (scores.softmax(-1) * mask) @ V


def attention_where(Q, K, V, mask):
    scores = scores_of(Q.double(), K.double())
    seen = mask.any(-1, keepdim=True)
    scores = torch.where(mask | ~seen, scores, -INF)  # a row that sees nothing sees all, for now
    return torch.where(seen, scores.softmax(-1) @ V.double(), 0)


def attention_added(Q, K, V, mask):
    """An additive mask, before the division; the weights of empty rows go at the end."""
    M = torch.zeros(mask.shape, dtype=Q.dtype)
    M[~mask] = -INF
    M[~mask.any(-1)] = 0
    A = torch.softmax((Q @ K.transpose(-2, -1) + M) / Q.shape[-1] ** 0.5, dim=-1)
    return (A * mask.any(-1, keepdim=True)) @ V


def attention_in_loops(Q, K, V, mask):
    if Q.dim() > 2:
        mask = mask.expand(*Q.shape[:-1], K.shape[-2])
        return torch.stack([attention_in_loops(*x) for x in zip(Q, K, V, mask, strict=True)])
    output = []
    for q, allowed in zip(Q, mask.expand(len(Q), len(K)), strict=True):
        blend = torch.zeros(V.shape[-1])
        if allowed.any():
            A = (K[allowed].float() @ q.float() / math.sqrt(len(q))).softmax(-1)
            blend = A @ V[allowed].float()
        output.append(blend)
    return torch.stack(output)


def attention_in_numpy(Q, K, V, mask):
    Q, K, V, mask = (x.numpy() for x in (Q, K, V, mask))
    scores = np.einsum("...id,...jd->...ij", Q, K).astype(float) / np.sqrt(Q.shape[-1])
    scores = np.where(mask, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0) @ V


def filled(Q, K, V, mask, fill=-INF, divisor=None, axis=-1):
    scores = Q @ K.mT / (divisor or math.sqrt(Q.shape[-1]))
    return scores.masked_fill(~mask, fill).softmax(axis) @ V


def filled_by_index(Q, K, V, mask):
    scores = scores_of(Q, K)
    scores[~mask] = torch.finfo(scores.dtype).min
    return (scores.softmax(-1) * mask) @ V


def lowered(Q, K, V, mask, by):
    return (scores_of(Q, K) - by * (~mask).to(Q.dtype)).softmax(-1) @ V


def attention_mended(Q, K, V, mask):
    """The NaN of the weights made 0: masked_fill sends no slope back to what it has filled."""
    return scores_of(Q, K).masked_fill(~mask, -INF).softmax(-1).nan_to_num(0) @ V


def added_and_mended(Q, K, V, mask):
    M = torch.zeros_like(mask, dtype=Q.dtype).masked_fill(~mask, -INF)
    return (scores_of(Q, K) + M).softmax(-1).nan_to_num(0) @ V


def divided_again(Q, K, V, mask):
    A = scores_of(Q, K).softmax(-1) * mask
    return A / A.sum(-1, keepdim=True) @ V


def in_float32(Q, K, V, mask):
    M = torch.zeros(mask.shape).masked_fill(~mask, -INF)
    M = torch.where(mask.any(-1, keepdim=True), M, 0)
    return ((scores_of(Q, K) + M).softmax(-1) * mask) @ V


def fills_its_mask(Q, K, V, mask):
    mask |= ~mask.any(-1, keepdim=True)
    return filled(Q, K, V, mask)


def seeded(model, x):
    torch.default_generator.manual_seed(1)  # as torch.manual_seed, and quick
    return model(x)


def leaks(model, x, cuts=None, change=None, compare=None, limit=1e-5, run=seeded):
    for cut in cuts or range(1, len(x)):
        changed = x.clone()
        changed[cut:] = change(x[cut:]) if change else torch.randn(x[cut:].shape)
        moved = (run(model, changed) - run(model, x)).abs()
        if moved[compare or slice(0, cut)].max() > limit:
            return True
    return False


def leaks_from_one_token(model, x):
    """Changes one token at a time; who moves?"""
    before = seeded(model, x)
    reads = torch.zeros(len(x), len(x), dtype=torch.bool)
    for j in range(len(x)):
        changed = x.clone()
        changed[j] = 0
        reads[:, j] = (seeded(model, changed) - before).abs().amax(-1) > 1e-6
    return bool(reads.triu(1).any())


def leaks_by_beginnings(model, x):
    whole = seeded(model, x)
    return not all(
        torch.allclose(seeded(model, x[:i]), whole[:i], atol=1e-5) for i in range(1, len(x))
    )


def leaks_by_slopes(model, x):
    x = x.clone().requires_grad_()
    outputs = (model(x) * torch.randn(x.shape)).sum(-1)  # [n]: each output, on some direction
    for i, output in enumerate(outputs[:-1]):
        (slopes,) = torch.autograd.grad(output, x, retain_graph=True)
        if slopes[i + 1 :].abs().max() > 1e-5:
            return torch.tensor(True)
    return torch.tensor(False)


def leaks_in_one_batch(model, x):
    n = len(x)
    batch = torch.cat([x[None], x.repeat(n - 1, 1, 1)])
    for cut in range(1, n):
        batch[cut, cut:] *= -2
    out = model(batch).detach().numpy()
    return np.any([abs(out[cut, :cut] - out[0, :cut]).max() > 1e-4 for cut in range(1, n)])


def leaks_in_a_sum(model, x):
    for cut in range(1, len(x)):
        changed = torch.cat([x[:cut], torch.randn(x[cut:].shape)])
        if (seeded(model, changed) - seeded(model, x))[:cut].sum() > 1e-5:
            return True
    return False


def other_past_too(model, x):
    return bool((seeded(model, torch.randn(x.shape)) - seeded(model, x)).abs()[0].max() > 1e-5)


def next_position_only(model, x):
    for i in range(len(x) - 1):
        changed = x.clone()
        changed[i + 1] = torch.randn(x.shape[1])
        if (seeded(model, changed) - seeded(model, x))[i].abs().max() > 1e-5:
            return True
    return False


def reads_more_or_less(model, x):
    """Holds hiding too much for a leak."""
    before = seeded(model, x)
    for j in range(len(x)):
        changed = x.clone()
        changed[j] = torch.randn(x.shape[1])
        moved = (seeded(model, changed) - before).abs().amax(-1) > 1e-5
        if not torch.equal(moved, torch.arange(len(x)) >= j):
            return True
    return False


def changes_x(model, x):
    before = seeded(model, x)
    x[-1] = torch.randn(x.shape[1])
    return bool((seeded(model, x) - before)[:-1].abs().max() > 1e-5)


RIGHT = {
    "causal_mask": [
        causal,
        causal_in_loops,
        causal_row_by_row,
        lambda n: torch.arange(n)[:, None] >= torch.arange(n),
        lambda n: ~torch.full((n, n), True).triu(1),
        lambda n: np.tri(n, dtype=bool),
        lambda n: torch.ones(n, n).cumsum(1) <= torch.ones(n, n).cumsum(0),
    ],
    "combine": [
        combine,
        combine_in_loops,
        combine_by_filling,
        lambda causal, keep: torch.logical_and(causal[None, None], columns(keep)),
        lambda causal, keep: causal * columns(keep),
        lambda causal, keep: ~(~causal | ~columns(keep)),
        lambda causal, keep: causal.numpy() & keep.numpy()[:, None, None],
        lambda causal, keep: torch.stack([causal & row for row in keep]).unsqueeze(1),
    ],
    "masked_attention": [
        attention,
        attention_lowest,
        attention_mended,
        attention_where,
        attention_added,
        attention_in_loops,
        attention_in_numpy,
    ],
    "leaks": [
        leaks,
        leaks_from_one_token,
        leaks_by_beginnings,
        leaks_by_slopes,
        leaks_in_one_batch,
        lambda model, x: int(leaks(model, x, change=lambda future: future + 1, limit=1e-3)),
    ],
}

WRONG = {
    "causal_mask": {
        "future and itself": (lambda n: causal(n).T, "the past lies below"),
        "future": (lambda n: ~causal(n), "may NOT attend"),
        "strict": (lambda n: causal(n).tril(-1), "the diagonal is False"),
        "one too far": (lambda n: torch.ones(n, n).tril(1).bool(), "one token too many"),
        "all": (lambda n: torch.ones(n, n).bool(), "nothing is hidden"),
        "none": (lambda n: torch.zeros(n, n).bool(), "all is False"),
        "itself alone": (lambda n: torch.eye(n).bool(), "the past is hidden too"),
        "other diagonal": (lambda n: causal(n).flip(0), "the other diagonal"),
        "numbers": (lambda n: torch.ones(n, n).tril(), "give True and False"),
        "whole numbers": (lambda n: causal(n).int(), "give True and False"),
        "lists of numbers": (
            lambda n: [[int(j <= i) for j in range(n)] for i in range(n)],
            "give True and False",
        ),
        "additive": (lambda n: torch.full((n, n), -INF).triu(1), "an additive mask, 0 and -inf"),
        "additive, finite": (lambda n: torch.full((n, n), -1e9).triu(1), "large negative number"),
        "multiplied": (lambda n: (~causal(n)) * -INF, "0 * -inf is NaN"),
        "one row": (lambda n: torch.ones(n).bool(), "has shape"),
        "fixed size": (lambda n: causal(4 if n > 1 else 1)[:n, :n], "causal_mask("),
        "one axis more": (lambda n: causal(n)[None], "has shape"),
        "calls the package's": (qkv.masks.causal, "it calls causal"),
        "calls PyTorch's": (
            lambda n: torch.nn.Transformer.generate_square_subsequent_mask(n) == 0,
            "it calls generate_square_subsequent_mask",
        ),
    },
    "combine": {
        "or": (lambda c, k: c | columns(k), "& in place of |"),
        "sum": (lambda c, k: (c + columns(k)) > 0, "& in place of |"),
        "exactly one": (lambda c, k: c ^ columns(k), "exactly one of both"),
        "rows": (lambda c, k: c & rows(k), "hide its columns"),
        "rows and columns": (lambda c, k: c & rows(k) & columns(k), "what it offers does"),
        "padding turned round": (lambda c, k: c & ~columns(k), "keep is True where"),
        "triangle turned round": (lambda c, k: ~c & columns(k), "the causal mask is True where"),
        "both turned round": (lambda c, k: ~c & ~columns(k), "both masks are turned round"),
        "result turned round": (lambda c, k: ~(c & columns(k)), "True where it is hidden"),
        "transposed": (lambda c, k: c.T & columns(k), "is transposed"),
        "padding alone": (lambda c, k: columns(k), "the causal mask is missing"),
        "padding alone, full size": (
            lambda c, k: (c | True) & columns(k),
            "the causal mask is missing",
        ),
        "keep itself": (lambda c, k: k, "has shape"),
        "triangle alone": (
            lambda c, k: c.expand(len(k), 1, -1, -1),
            "the padding is not hidden",
        ),
        "rows opened again": (
            lambda c, k: c & columns(k) | torch.eye(len(c)).bool(),
            "no row is opened again",
        ),
        "trap": (lambda c, k: c & k, "a mask of its own"),
        "trap, made to fit": (
            lambda c, k: (c & k).expand(len(k), 1, -1, -1),
            "row b of keep belongs to sentence b",
        ),
        "no axis for the heads": (lambda c, k: c & k[:, None, :], "the axis for the heads"),
        "rows, no axis for the heads": (lambda c, k: c & k[:, :, None], "the axis for the heads"),
        "sentences as heads": (lambda c, k: c & k[None, :, None, :], "in front, then the heads"),
        "of the first": (
            lambda c, k: (c & columns(k)[:1]).expand(len(k), -1, -1, -1),
            "the padding of the first",
        ),
        "of all": (
            lambda c, k: (c & columns(k).all(0)).expand(len(k), 1, -1, -1),
            "the padding of all",
        ),
        "numbers": (lambda c, k: c.float() * columns(k), "give True and False"),
        "changes the triangle": (lambda c, k: c.__iand__(k[0]) & columns(k), "argument number 1"),
    },
    "masked_attention": {
        "no mask": (lambda Q, K, V, m: scores_of(Q, K).softmax(-1) @ V, "nothing is hidden"),
        "turned round": (lambda Q, K, V, m: filled(Q, K, V, ~m), "the wrong ones are hidden"),
        "after the softmax": (
            lambda Q, K, V, m: (scores_of(Q, K).softmax(-1) * m) @ V,
            "rows no longer sum to 1",
        ),
        "0": (lambda *x: filled(*x, fill=0), "a score of 0 gets a share"),
        "scores times mask": (
            lambda Q, K, V, m: (scores_of(Q, K) * m).softmax(-1) @ V,
            "a score of 0 gets a share",
        ),
        "times mask twice": (
            lambda Q, K, V, m: ((scores_of(Q, K) * m).softmax(-1) * m) @ V,
            "their share is lost",
        ),
        "turned round, then times mask": (
            lambda Q, K, V, m: (scores_of(Q, K).masked_fill(m, -1e9).softmax(-1) * m) @ V,
            "nothing is left",
        ),
        "mask added": (
            lambda Q, K, V, m: (scores_of(Q, K) + m.float()).softmax(-1) @ V,
            "only 1 lower",
        ),
        "1 taken off": (lambda *x: lowered(*x, by=1), "only 1 lower"),
        "0 times infinity": (
            lambda Q, K, V, m: (scores_of(Q, K) + ~m * -INF).softmax(-1) @ V,
            "0 * -inf is NaN",
        ),
        "scores times infinity": (
            lambda Q, K, V, m: (scores_of(Q, K) + (1 - m.float()) * -INF).softmax(-1) @ V,
            "0 * -inf is NaN",
        ),
        "not scaled": (lambda *x: filled(*x, divisor=1), "not divided by sqrt(d_k)"),
        "by d_k": (
            lambda Q, K, V, m: filled(Q, K, V, m, divisor=Q.shape[-1]),
            "not by its square root",
        ),
        "by 2": (lambda *x: filled(*x, divisor=2), "divided by 2"),
        "over the queries": (lambda *x: filled(*x, axis=-2), "each column of the weights"),
        "dim=1": (lambda *x: filled(*x, axis=1), "the last, dim=-1, not dim=1"),
        "[~mask]": (filled_by_index, "masked_fill does"),
        "no slopes": (lambda *x: torch.tensor(attention(*x).tolist()), "no slope reaches Q"),
        "no slopes of K": (lambda Q, K, *x: attention(Q, K.detach(), *x), "no slope reaches K"),
        "weights": (
            lambda Q, K, V, m: scores_of(Q, K).masked_fill(~m, -INF).softmax(-1),
            "these are the weights",
        ),
        "divided again": (divided_again, "hide it before the softmax"),
        "-10": (lambda *x: filled(*x, fill=-10), "the hidden key must not win"),
        "-100": (lambda *x: lowered(*x, by=100), "a hidden key with a score of 200"),
        "K.T": (
            lambda Q, K, V, m: filled(Q, K.permute(*range(K.dim())[::-1]).mT, V, m),
            "axes in front stay",
        ),
        "an axis more for the mask": (
            lambda Q, K, V, m: filled(Q, K, V, m if Q.dim() < 4 else m[:, None]),
            "the mask broadcasts against the scores",
        ),
        "NaN": (filled, "a row that may see nothing gives NaN"),
        "-1e9": (lambda *x: filled(*x, fill=-1e9), "equal shares"),
        "-1e9 added": (lambda *x: lowered(*x, by=3e4), "a row that may see nothing"),
        "opened": (
            lambda Q, K, V, m: filled(Q, K, V, m | ~m.any(-1, keepdim=True)),
            "listens to all keys",
        ),
        "added, weights mended": (added_and_mended, "slopes are NaN"),
        "output mended": (lambda *x: filled(*x).nan_to_num(0), "slopes are NaN"),
        "-1e9, rows cleared": (
            lambda Q, K, V, m: filled(Q, K, V, m, fill=-1e9) * m.any(-1, keepdim=True),
            "float16 ends at -65504: fill with torch.finfo(scores.dtype).min",
        ),
        "a mask in float32": (in_float32, "must have the scores' dtype"),
        "changes the mask": (fills_its_mask, "changes its argument number 4"),
        "calls the package's": (qkv.attention.attention, "it calls attention"),
        "calls PyTorch's": (F.scaled_dot_product_attention, "it calls scaled_dot_product"),
    },
    "leaks": {
        "always": (lambda model, x: True, "leave the past as it is"),
        "never": (lambda model, x: False, "every token sees all"),
        "turned round": (lambda model, x: not leaks(model, x), "the wrong way round"),
        "no abs": (leaks_in_a_sum, "abs"),
        "not the last cut": (
            lambda *x: leaks(*x, cuts=range(1, 5)),
            "try every cut, the last too",
        ),
        "another past too": (other_past_too, "leave the past as it is"),
        "compares all": (
            lambda *x: leaks(*x, compare=slice(None)),
            "compare only what stands before",
        ),
        "compares one too many": (
            lambda model, x: any(leaks(model, x, [c], compare=slice(c + 1)) for c in range(1, 6)),
            "compare only what stands before",
        ),
        "exactly": (lambda *x: leaks(*x, limit=0), "up to rounding"),
        "not seeded": (
            lambda *x: leaks(*x, run=lambda model, x: model(x)),
            "call torch.manual_seed",
        ),
        "hiding more is a leak": (reads_more_or_less, "hides even more"),
        "only the last token": (lambda *x: leaks(*x, cuts=[5]), "token 0 sees token 1"),
        "only one cut": (lambda *x: leaks(*x, cuts=[3]), "try every cut"),
        "only position 0": (
            lambda *x: leaks(*x, cuts=[1]),
            "try every cut, the last too",
        ),
        "only the next token": (next_position_only, "token 0 sees the last token"),
        "another order": (
            lambda *x: leaks(*x, change=lambda future: future.flip(0)),
            "put other numbers in the future",
        ),
        "only the first column": (
            lambda *x: leaks(*x, run=lambda model, x: seeded(model, x)[:, :1]),
            "compare all columns",
        ),
        "the movement": (
            lambda model, x: (seeded(model, x * 2) - seeded(model, x)).abs().max(),
            "expected True or False",
        ),
        "of each position": (
            lambda model, x: (seeded(model, x * 2) - seeded(model, x)).abs().amax(-1) > 1e-5,
            "expected True or False",
        ),
        "changes x": (changes_x, "changes its argument number 2"),
    },
}
