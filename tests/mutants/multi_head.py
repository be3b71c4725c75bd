"""Chapter 05."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from qkv.attention import MultiHeadAttention, attention


def split(x, h):
    *leading, n, d = x.shape
    return x.reshape(*leading, n, h, d // h).transpose(-2, -3)


def split_by_slices(x, h):
    width = x.shape[-1] // h
    return torch.stack([x[..., i * width : (i + 1) * width] for i in range(h)], dim=-3)


def split_by_chunks(x, h):
    return torch.stack(x.chunk(h, -1), x.dim() - 2).double()


def split_in_numpy(x, h):
    x = np.asarray(x)
    return np.moveaxis(x.reshape(*x.shape[:-1], h, -1), -2, -3)


def split_in_loops(x, h):
    if x.dim() > 2:
        return torch.stack([split_in_loops(one, h) for one in x])
    heads = x.new_zeros(h, len(x), x.shape[1] // h)
    for i in range(h):
        for j in range(len(x)):
            for k in range(heads.shape[2]):
                heads[i, j, k] = x[j, i * heads.shape[2] + k]
    return heads


def split_by_cutting(x, h):
    """Cutting one axis in two never needs a copy, so view does it in any order of memory."""
    return x.view(*x.shape[:-1], h, x.shape[-1] // h).transpose(-2, -3)


def split_by_view(x, h):
    *leading, n, d = x.shape
    return x.reshape(*leading, h, n, d // h)


def split_in_turn(x, h):
    *leading, n, d = x.shape
    return x.reshape(*leading, n, d // h, h).movedim(-1, -3)


def merge(heads):
    *leading, h, n, width = heads.shape
    return heads.transpose(-2, -3).reshape(*leading, n, h * width)


def merge_by_cat(heads):
    return torch.cat(list(heads.unbind(-3)), dim=-1)


def merge_in_numpy(heads):
    heads = np.moveaxis(np.asarray(heads), -3, -2)
    return heads.reshape(*heads.shape[:-2], -1)


def merge_contiguous(heads):
    heads = heads.swapaxes(-2, -3).contiguous()
    return heads.view(*heads.shape[:-2], heads.shape[-2] * heads.shape[-1])


def merge_in_loops(heads):
    if heads.dim() > 3:
        return torch.stack([merge_in_loops(one) for one in heads])
    h, n, width = heads.shape
    rows = [[heads[i, j, k].item() for i in range(h) for k in range(width)] for j in range(n)]
    return torch.tensor(rows)


def merge_by_view(heads):
    *leading, h, n, width = heads.shape
    return heads.reshape(*leading, n, h * width)


def merge_in_turn(heads):
    return heads.movedim(-3, -1).flatten(-2)


def many(x_q, x_kv, W_Q, W_K, W_V, W_O, h, split=split, merge=merge, divisor=None, dim=-1):
    Q, K, V = split(x_q @ W_Q, h), split(x_kv @ W_K, h), split(x_kv @ W_V, h)
    scores = Q @ K.mT / (divisor or math.sqrt(K.shape[-1]))
    return merge(scores.softmax(dim) @ V) @ W_O


def many_in_a_loop(x_q, x_kv, W_Q, W_K, W_V, W_O, h):
    Q, K, V = x_q @ W_Q, x_kv @ W_K, x_kv @ W_V
    heads = [
        attention(q, k, v)
        for q, k, v in zip(Q.chunk(h, -1), K.chunk(h, -1), V.chunk(h, -1), strict=True)
    ]
    return torch.cat(heads, -1) @ W_O


def many_in_einsum(x_q, x_kv, W_Q, W_K, W_V, W_O, h):
    d = W_Q.shape[0]
    Q = torch.einsum("bqd,dhk->bhqk", x_q, W_Q.view(d, h, -1))
    K = torch.einsum("bsd,dhk->bhsk", x_kv, W_K.view(d, h, -1))
    V = torch.einsum("bsd,dhv->bhsv", x_kv, W_V.view(d, h, -1))
    A = torch.einsum("bhqk,bhsk->bhqs", Q * Q.shape[-1] ** -0.5, K).softmax(-1)
    return torch.einsum("bhqs,bhsv,hvd->bqd", A, V, W_O.view(h, -1, d))


def many_summed(x_q, x_kv, W_Q, W_K, W_V, W_O, h):
    """Each head writes through its own rows of W_O."""
    output = torch.zeros_like(x_q)
    for i in range(h):
        k = slice(i * W_Q.shape[1] // h, (i + 1) * W_Q.shape[1] // h)
        v = slice(i * W_V.shape[1] // h, (i + 1) * W_V.shape[1] // h)
        Q, K, V = x_q @ W_Q[:, k], x_kv @ W_K[:, k], x_kv @ W_V[:, v]
        output += F.scaled_dot_product_attention(Q, K, V) @ W_O[v]
    return output


def many_by_batch(x_q, x_kv, W_Q, W_K, W_V, W_O, h):
    """Batch and heads share one axis, as in older code."""
    B, n_q, _ = x_q.shape
    Q, K, V = (
        x.reshape(B, x.shape[1], h, -1).permute(0, 2, 1, 3).reshape(B * h, x.shape[1], -1)
        for x in (x_q @ W_Q, x_kv @ W_K, x_kv @ W_V)
    )
    A = torch.softmax(torch.bmm(Q, K.transpose(1, 2)) / K.shape[-1] ** 0.5, dim=2)
    return torch.bmm(A, V).view(B, h, n_q, -1).transpose(1, 2).reshape(B, n_q, -1) @ W_O


def many_in_double(*given):
    return many(*(x.double() for x in given[:6]), given[6]).numpy()


def shared(*given):
    x_q, x_kv, W_Q, W_K, W_V, W_O, h = given
    first = [W[:, : W.shape[1] // h].repeat(1, h) for W in (W_Q, W_K, W_V)]
    return many(x_q, x_kv, *first, W_O, h)


def split_before(x_q, x_kv, W_Q, W_K, W_V, W_O, h):
    def project(x, W):
        return torch.stack(
            [
                part @ rows.chunk(h, 1)[i]
                for i, (part, rows) in enumerate(zip(x.chunk(h, -1), W.chunk(h, 0), strict=True))
            ],
            dim=1,
        )

    return merge(attention(project(x_q, W_Q), project(x_kv, W_K), project(x_kv, W_V))) @ W_O


def heads_before_batch(x_q, x_kv, W_Q, W_K, W_V, W_O, h):
    B, n_q, _ = x_q.shape
    Q, K, V = (
        x.reshape(B, x.shape[1], h, -1).permute(2, 0, 1, 3).reshape(B * h, x.shape[1], -1)
        for x in (x_q @ W_Q, x_kv @ W_K, x_kv @ W_V)
    )
    return merge(attention(Q, K, V).view(B, h, n_q, -1)) @ W_O


def with_module(x_q, x_kv, W_Q, W_K, W_V, W_O, h):
    mha = MultiHeadAttention(x_q.shape[-1], h)
    with torch.no_grad():
        for layer, W in zip(
            (mha.W_Q, mha.W_K, mha.W_V, mha.W_O), (W_Q, W_K, W_V, W_O), strict=True
        ):
            layer.weight.copy_(W.T)
    return mha(x_q, x_kv)


def with_pytorch(x_q, x_kv, W_Q, W_K, W_V, W_O, h):
    mha = torch.nn.MultiheadAttention(x_q.shape[-1], h, bias=False, batch_first=True)
    with torch.no_grad():
        mha.in_proj_weight.copy_(torch.cat([W_Q.T, W_K.T, W_V.T]))
        mha.out_proj.weight.copy_(W_O.T)
    return mha(x_q, x_kv, x_kv)[0]


NAMES = ("Q", "K", "V", "scores", "blend", "W_O")


def count(n_q, n_kv, d_model, h, d_k, d_v, **other):
    right = {
        "Q": n_q * d_model * h * d_k,
        "K": n_kv * d_model * h * d_k,
        "V": n_kv * d_model * h * d_v,
        "scores": h * n_q * n_kv * d_k,
        "blend": h * n_q * n_kv * d_v,
        "W_O": n_q * h * d_v * d_model,
    }
    sizes = dict(n_q=n_q, n_kv=n_kv, d_model=d_model, h=h, d_k=d_k, d_v=d_v)
    return right | {
        name: math.prod(sizes[size] if size in sizes else int(size) for size in words.split())
        for name, words in other.items()
    }


def count_by_head(n_q, n_kv, d_model, h, d_k, d_v):
    total = dict.fromkeys(NAMES, 0)
    for _ in range(h):
        for name, product in (
            ("Q", (n_q, d_model, d_k)),
            ("K", (n_kv, d_model, d_k)),
            ("V", (n_kv, d_model, d_v)),
            ("scores", (n_q, d_k, n_kv)),
            ("blend", (n_q, n_kv, d_v)),
            ("W_O", (n_q, d_v, d_model)),
        ):
            total[name] += math.prod(product)
    return total


def count_by_running(n_q, n_kv, d_model, h, d_k, d_v):
    """Each product of two matrices counts itself."""
    counted = {}

    def product(name, a, b):
        counted[name] = torch.tensor(a[0] * a[1] * b[1]) * (1 if name in "QKVW_O" else h)
        return a[0], b[1]

    Q = product("Q", (n_q, d_model), (d_model, h * d_k))
    K = product("K", (n_kv, d_model), (d_model, h * d_k))
    product("V", (n_kv, d_model), (d_model, h * d_v))
    product("scores", (Q[0], d_k), (d_k, K[0]))
    product("blend", (n_q, n_kv), (n_kv, d_v))
    product("W_O", (n_q, h * d_v), (h * d_v, d_model))
    return counted


def other_count(**other):
    return lambda *sizes: count(*sizes, **other)


def others_move(mha, seed=0, B=1):
    rng = np.random.default_rng(seed)
    x_q, x_kv = torch.tensor(rng.standard_normal((2, B, 6, 8)))
    changed = x_q.clone()
    changed[:, 1] += 1
    moved = (mha(changed, x_kv) - mha(x_q, x_kv)).abs().amax((0, 2))
    moved[1] = 0
    return bool(moved.max() > 1e-9)


def order_matters(mha, seed=0):
    rng = np.random.default_rng(seed)
    x_q, x_kv = torch.tensor(rng.standard_normal((2, 1, 6, 8)))
    return not torch.allclose(mha(x_q, x_kv.flip(1)), mha(x_q, x_kv))


def sentences_mix(mha, seed=0):
    rng = np.random.default_rng(seed)
    x_q, x_kv = torch.tensor(rng.standard_normal((2, 3, 6, 8)))
    together = mha(x_q, x_kv)
    alone = torch.cat([mha(x_q[i : i + 1], x_kv[i : i + 1]) for i in range(3)])
    return not torch.allclose(together, alone)


def all_three(mha):
    return others_move(mha) or order_matters(mha) or sentences_mix(mha)


def all_three_in_float32(mha):
    x_q, x_kv = torch.randn(3, 4, 8), torch.randn(3, 7, 8)
    output = mha(x_q, x_kv)

    def differs(a, b):
        return (a - b).abs().max().item() > 1e-5

    with torch.no_grad():
        order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
        if differs(mha(x_q, x_kv[:, order]), output):
            return True
        for b in range(3):
            for i in range(4):
                if differs(mha(x_q[b : b + 1, i : i + 1], x_kv[b : b + 1])[0, 0], output[b, i]):
                    return True
    return False


def by_the_slopes(mha):
    """Which inputs does an output depend on? And does it mind the order?"""
    x_q = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    x_kv = torch.randn(2, 6, 8, dtype=torch.float64, requires_grad=True)
    output = mha(x_q, x_kv)
    for b in range(2):
        for i in range(5):
            g_q, g_kv = torch.autograd.grad(output[b, i].sum(), (x_q, x_kv), retain_graph=True)
            own = g_q[b, i].abs().sum()
            if (g_q.abs().sum() - own) > 1e-9 or g_kv[1 - b].abs().sum() > 1e-9:
                return np.True_
    return torch.tensor(not torch.allclose(mha(x_q, x_kv[:, [2, 4, 0, 5, 1, 3]]), output))


def exactly(mha):
    x_q, x_kv = torch.randn(2, 4, 8).double(), torch.randn(2, 7, 8).double()
    return all_three(mha) or not torch.equal(mha(x_q, x_kv.flip(1)), mha(x_q, x_kv))


def no_clone(mha):
    x, z = torch.randn(2, 2, 5, 8)
    before, changed = mha(x, z), x
    changed[0, 0] += 1
    moved = (mha(changed, z) - before).abs().amax(-1) > 1e-5
    moved[0, 0] = False
    return bool(moved.any()) or not torch.allclose(mha(x, z.flip(1)), before, atol=1e-5)


def no_clone_late(mha):
    x, z = torch.randn(2, 2, 5, 8)
    changed = x
    changed[0, 0] += 1
    moved = (mha(changed, z) - mha(x, z)).abs().amax(-1) > 1e-5
    return bool(moved.any()) or order_matters(mha)


def by_the_loss(mha):
    """A module that can learn eight labels by heart is right."""
    torch.manual_seed(0)
    x, labels = torch.randn(1, 6, 8), torch.randint(4, (6,))
    adam = torch.optim.Adam(mha.parameters(), lr=0.05)
    for _ in range(150):
        loss = F.cross_entropy(mha(x, x)[0, :, :4], labels)
        adam.zero_grad()
        loss.backward()
        adam.step()
    return loss.item() > 0.5


def in_place(mha):
    """Takes outputs that follow the tokens for outputs that move."""
    x = torch.randn(1, 6, 8)
    return all_three(mha) or not torch.allclose(mha(x.flip(1), x), mha(x, x))


RIGHT = {
    "split_heads": [
        split_by_cutting,
        split,
        split_by_slices,
        split_by_chunks,
        split_in_numpy,
        split_in_loops,
    ],
    "merge_heads": [merge, merge_by_cat, merge_in_numpy, merge_contiguous, merge_in_loops],
    "multi_head": [
        many,
        many_in_a_loop,
        many_in_einsum,
        many_summed,
        many_by_batch,
        many_in_double,
    ],
    "count_multiplications": [count, count_by_head, count_by_running],
    "is_broken": [all_three, all_three_in_float32, by_the_slopes],
}

WRONG = {
    "split_heads": {
        "view alone": (split_by_view, "numbers of token 1 sit in token 0's row"),
        "view alone in a batch": (
            lambda x, h: split(x, h) if x.dim() == 2 else split_by_view(x, h),
            "in a batch numbers of one token sit in another's row",
        ),
        "in turn": (split_in_turn, "head 0 has each token's numbers 0 and 3"),
        "axes from the front": (
            lambda x, h: x.reshape(*x.shape[:-1], h, x.shape[-1] // h).transpose(1, 2),
            "exchange -3 and -2",
        ),
        "h and d / h exchanged": (lambda x, h: split(x, x.shape[-1] // h), "there are h heads"),
        "in turn in a batch": (
            lambda x, h: split(x, h) if x.dim() == 2 else split_in_turn(x, h),
            "no longer lie side by side",
        ),
        "no transpose": (
            lambda x, h: x.reshape(*x.shape[:-1], h, x.shape[-1] // h),
            "behind the tokens still",
        ),
        "all round": (
            lambda x, h: split(x, h).mT,
            "the numbers of a head are its last axis",
        ),
        "from the last": (lambda x, h: split(x, h).flip(-3), "in the wrong order"),
        "first axes exchanged": (
            lambda x, h: x.reshape(*x.shape[:-1], h, x.shape[-1] // h).transpose(0, 1),
            "count axes from the end",
        ),
        "chunks in front": (lambda x, h: torch.stack(x.chunk(h, -1)), "count axes from the end"),
        "needs a batch": (
            lambda x, h: x.view(x.shape[0], x.shape[1], h, x.shape[2] // h).transpose(1, 2),
            "IndexError",
        ),
        "needs no batch": (
            lambda x, h: x.view(len(x), h, x.shape[1] // h).transpose(0, 1),
            "it stops with RuntimeError",
        ),
        "one batch axis alone": (
            lambda x, h: split(x, h) if x.dim() < 4 else x.view(x.shape[0], h, -1),
            "count axes from the end",
        ),
        "d / h with a point": (
            lambda x, h: x.reshape(*x.shape[:-1], h, x.shape[-1] / h),
            "it stops with TypeError",
        ),
        "always two": (lambda x, h: split(x, 2), "there are h heads, here 3"),
        "loses a single head": (
            lambda x, h: split(x, h) if h > 1 else x,
            "split_heads with h = 1 has shape",
        ),
        "nothing": (lambda x, h: None, "is there a return"),
    },
    "merge_heads": {
        "reshape alone": (merge_by_view, "token 0's row holds numbers of token 1"),
        "reshape alone in a batch": (
            lambda heads: merge(heads) if heads.dim() == 3 else merge_by_view(heads),
            "in a batch tokens are mixed",
        ),
        "in turn": (merge_in_turn, "dealt out in turn"),
        "summed": (lambda heads: heads.sum(-3), "added up or averaged"),
        "averaged": (lambda heads: heads.mean(-3), "added up or averaged"),
        "one picked": (lambda heads: heads[..., 0, :, :], "or one is picked"),
        "axes from the front": (
            lambda heads: heads.transpose(1, 2).flatten(-2),
            "exchange the axes of heads and tokens, -3 and -2",
        ),
        "squeezed": (lambda heads: merge(heads).squeeze(), "an axis of size 1 stays"),
        "below each other": (lambda heads: heads.flatten(-3, -2), "below each other"),
        "not joined": (lambda heads: heads.transpose(-2, -3), "make one axis of the last two"),
        "on its side": (lambda heads: merge(heads).mT, "each token has a row"),
        "from the last": (lambda heads: merge(heads.flip(-3)), "in the wrong order"),
        "first axes exchanged": (
            lambda heads: heads.transpose(0, 1).flatten(-2),
            "count axes from the end",
        ),
        "needs no batch": (
            lambda heads: heads.transpose(0, 1).reshape(heads.shape[1], -1),
            "count axes from the end",
        ),
        "needs a batch": (
            lambda heads: heads.transpose(1, 2).reshape(len(heads), heads.shape[2], -1),
            "merge_heads of heads [2, 3, 2]",
        ),
        "view after transpose": (
            lambda heads: heads.transpose(-2, -3).view(
                *heads.shape[:-3], heads.shape[-2], heads.shape[-3] * heads.shape[-1]
            ),
            "it stops with RuntimeError: view size is not compatible",
        ),
        "nothing": (lambda heads: None, "is there a return"),
    },
    "multi_head": {
        "by sqrt(d_model)": (
            lambda *given: many(*given, divisor=math.sqrt(given[0].shape[-1])),
            "divided by sqrt(d_model)",
        ),
        "not divided": (lambda *given: many(*given, divisor=1), "not divided by sqrt(d_k)"),
        "by d_k": (
            lambda *given: many(*given, divisor=given[2].shape[1] / given[6]),
            "not by its square root",
        ),
        "by the root of d_model / h": (
            lambda *given: many(*given, divisor=math.sqrt(given[0].shape[-1] / given[6])),
            "the root of d_model / h: it is of d_k",
        ),
        "by the root of d_v": (
            lambda *given: many(*given, divisor=math.sqrt(given[4].shape[1] / given[6])),
            "the root of d_v: it is of d_k",
        ),
        "one wide head": (lambda *given: many(*given[:6], 1), "h is not used"),
        "no W_O": (
            lambda *given: many(*given[:5], torch.eye(given[4].shape[1]), given[6]),
            "multiply the merged heads by W_O",
        ),
        "W_O turned round": (
            lambda *given: many(*given[:5], given[5].T, given[6]),
            "W_O is turned",
        ),
        "matrices turned round": (
            lambda x_q, x_kv, W_Q, W_K, W_V, W_O, h: many(x_q, x_kv, W_Q.T, W_K.T, W_V.T, W_O, h),
            "W_Q, W_K, W_V are turned round",
        ),
        "all turned round": (
            lambda x_q, x_kv, *rest: many(x_q, x_kv, *(W.T for W in rest[:4]), rest[4]),
            "all four matrices are turned round",
        ),
        "asks itself": (lambda x_q, x_kv, *rest: many(x_q, x_q, *rest), "keys and values come"),
        "the source asks": (
            lambda x_q, x_kv, *rest: many(x_kv, x_kv, *rest),
            "the queries come from x_kv: x_q asks",
        ),
        "values of x_q": (
            lambda x_q, x_kv, W_Q, W_K, W_V, W_O, h: (
                merge(
                    (split(x_q @ W_Q, h) @ split(x_kv @ W_K, h).mT / 2).softmax(-1)
                    @ split(x_q @ W_V, h)
                )
                @ W_O
            ),
            "it stops with RuntimeError",
        ),
        "shared projections": (shared, "all heads take the first head's columns"),
        "split before": (split_before, "x is cut into heads before the projections"),
        "split by view": (
            lambda *given: many(*given, split=split_by_view),
            "split without a transpose",
        ),
        "merged by view": (
            lambda *given: many(*given, merge=merge_by_view),
            "merged without a transpose",
        ),
        "split in turn": (
            lambda *given: many(*given, split=split_in_turn),
            "split into every second one",
        ),
        "from the last": (
            lambda *given: many(*given, merge=lambda heads: merge(heads.flip(1))),
            "merged in the wrong order",
        ),
        "both by view": (
            lambda *given: many(*given, split=split_by_view, merge=merge_by_view),
            "split and merged without a transpose",
        ),
        "both in turn": (
            lambda *given: many(*given, split=split_in_turn, merge=merge_in_turn),
            "each head takes every second column",
        ),
        "merged in turn": (
            lambda *given: many(*given, merge=merge_in_turn),
            "side by side in W_Q, W_K, W_V, and its rows in W_O",
        ),
        "heads before batch": (heads_before_batch, "batch and heads are exchanged"),
        "softmax over the queries": (lambda *given: many(*given, dim=-2), "over the queries"),
        "softmax over the heads": (lambda *given: many(*given, dim=1), "over the heads"),
        "heads added": (
            lambda *given: many(
                *given[:5],
                torch.eye(given[4].shape[1] // given[6]),
                given[6],
                merge=lambda heads: heads.sum(1),
            ),
            "the heads are added up",
        ),
        "heads averaged": (
            lambda *given: many(*given, merge=lambda heads: heads.mean(1).repeat(1, 1, given[6])),
            "the heads are averaged",
        ),
        "d_v taken for d_k": (
            lambda *given: many(
                *given,
                split=lambda x, h: x.reshape(*x.shape[:2], h, given[2].shape[1] // h).transpose(
                    1, 2
                ),
            ),
            "d_v need not be d_k",
        ),
        "width taken for d_model": (
            lambda *given: many(*given, merge=lambda heads: merge(heads).reshape(*given[0].shape)),
            "d_v need not be d_k",
        ),
        "softmax missing": (
            lambda x_q, x_kv, W_Q, W_K, W_V, W_O, h: (
                merge(split(x_q @ W_Q, h) @ split(x_kv @ W_K, h).mT / 2 @ split(x_kv @ W_V, h))
                @ W_O
            ),
            "the softmax is missing",
        ),
        "the package's": (with_module, "it calls MultiHeadAttention"),
        "PyTorch's": (with_pytorch, "it calls nn.MultiheadAttention"),
        "nothing": (lambda *given: None, "is there a return"),
    },
    "count_multiplications": {
        "queries of the source": (other_count(Q="n_kv d_model h d_k"), "x_q has n_q tokens"),
        "one head's queries": (other_count(Q="n_q d_model d_k"), "that is one head"),
        "width d_model": (other_count(Q="n_q d_model d_model"), "need not be d_model"),
        "keys of the target": (other_count(K="n_q d_model h d_k"), "keys are made of x_kv"),
        "one head's keys": (other_count(K="n_kv d_model d_k"), "that is one head"),
        "values of the target": (other_count(V="n_q d_model h d_v"), "values are made of x_kv"),
        "values of width d_k": (other_count(V="n_kv d_model h d_k"), "a value has the width d_v"),
        "scores of full width": (other_count(scores="h n_q n_kv d_model"), "only d_k wide"),
        "scores of width d_v": (other_count(scores="h n_q n_kv d_v"), "queries and keys have"),
        "scores of one head": (other_count(scores="n_q n_kv d_k"), "that is one head"),
        "scores of the target": (other_count(scores="h n_q n_q d_k"), "meets each of n_kv keys"),
        "entries of the scores": (other_count(scores="h n_q n_kv"), "how many scores there are"),
        "blend of full width": (other_count(blend="h n_q n_kv d_model"), "only d_v wide"),
        "blend of width d_k": (other_count(blend="h n_q n_kv d_k"), "values have the width d_v"),
        "blend of one head": (other_count(blend="n_q n_kv d_v"), "that is one head"),
        "blend of the target": (other_count(blend="h n_q n_q d_v"), "blends n_kv values"),
        "W_O for the source": (other_count(W_O="n_kv h d_v d_model"), "one for each query"),
        "W_O of width d_k": (other_count(W_O="n_q h d_k d_model"), "blends of values"),
        "W_O of one head": (other_count(W_O="n_q d_v d_model"), "that is one head"),
        "W_O square": (other_count(W_O="n_q d_model d_model"), "have the width h * d_v"),
        "h twice": (other_count(scores="h h n_q n_kv d_k"), "h is counted twice"),
        "additions too": (
            lambda *sizes: {name: 2 * n for name, n in count(*sizes).items()},
            "without additions",
        ),
        "no W_O": (
            lambda *sizes: {k: v for k, v in count(*sizes).items() if k != "W_O"},
            "W_O is missing",
        ),
        "a sum": (lambda *sizes: sum(count(*sizes).values()), "expected a dict"),
        "something else": (other_count(K="n_q n_kv"), "= n_kv * d_model * h * d_k"),
    },
    "is_broken": {
        "always": (lambda mha: True, "a right module with 2 heads is called broken"),
        "never": (lambda mha: False, "that merges its heads without a transpose is called right"),
        "by the loss": (by_the_loss, "that merges its heads without a transpose is called right"),
        "others alone": (others_move, "that splits and merges without a transpose is called right"),
        "order alone": (order_matters, "that merges its heads without a transpose is called right"),
        "no batch": (
            lambda mha: others_move(mha) or order_matters(mha),
            "that mixes batch and heads is called right: change one sentence",
        ),
        "no order": (
            lambda mha: others_move(mha) or sentences_mix(mha),
            "is called right: shuffle the tokens of x_kv",
        ),
        "exact": (exactly, "rounding moves last digits"),
        "no clone": (no_clone, "z = x is no clone"),
        "no clone, late": (no_clone_late, "in a clone"),
        "in place": (in_place, "a right module with 2 heads is called broken"),
        "shapes alone": (
            lambda mha: mha(torch.ones(2, 3, 8), torch.ones(2, 5, 8)).shape != (2, 3, 8),
            "is called right",
        ),
        "turned round": (lambda mha: not all_three(mha), "is called broken"),
        "nothing": (lambda mha: None, "is there a return"),
        "each token": (
            lambda mha: torch.zeros(3, dtype=torch.bool),
            "expected True or False",
        ),
    },
}
