"""Chapter 04."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from qkv.masks import additive

NAMES = ("W_Q", "W_K", "W_V", "Q", "K", "V", "scores", "output")


def shapes(n_q, n_kv, width_q, width_kv, d_k, d_v, **other):
    right = dict(
        W_Q=(width_q, d_k),
        W_K=(width_kv, d_k),
        W_V=(width_kv, d_v),
        Q=(n_q, d_k),
        K=(n_kv, d_k),
        V=(n_kv, d_v),
        scores=(n_q, n_kv),
        output=(n_q, d_v),
    )
    sizes = dict(n_q=n_q, n_kv=n_kv, width_q=width_q, width_kv=width_kv, d_k=d_k, d_v=d_v)
    return right | {name: tuple(sizes[size] for size in shape) for name, shape in other.items()}


def shapes_of_tensors(n_q, n_kv, width_q, width_kv, d_k, d_v):
    W_Q, W_K, W_V = torch.ones(width_q, d_k), torch.ones(width_kv, d_k), torch.ones(width_kv, d_v)
    Q, K, V = torch.ones(n_q, width_q) @ W_Q, torch.ones(n_kv, width_kv) @ W_K, None
    V = torch.ones(n_kv, width_kv) @ W_V
    scores = Q @ K.T
    made = (W_Q, W_K, W_V, Q, K, V, scores, scores @ V)
    return {name: tensor.shape for name, tensor in zip(NAMES, made, strict=True)}


def shapes_in_arrays(*sizes):
    return {"A": (1, 1)} | {name: np.array(shape) for name, shape in shapes(*sizes).items()}


def other_shape(**other):
    return lambda *sizes: shapes(*sizes, **{name: shape.split() for name, shape in other.items()})


def project(x_q, x_kv, W_Q, W_K, W_V):
    return x_q @ W_Q, x_kv @ W_K, x_kv @ W_V


def cross(x_q, x_kv, W_Q, W_K, W_V, keep, mask=None, divisor=None, dim=-1):
    """The mask is made of keep and the scores, and hides where it is False."""
    Q, K, V = project(x_q, x_kv, W_Q, W_K, W_V)
    scores = Q @ K.mT / (divisor or math.sqrt(K.shape[-1]))
    seen = keep[:, None] if mask is None else mask(keep, scores)
    return scores.masked_fill(~seen, -math.inf).softmax(dim) @ V


def cross_in_einsum(x_q, x_kv, W_Q, W_K, W_V, keep):
    Q = torch.einsum("bqi,ik->bqk", x_q, W_Q) * W_Q.size(1) ** -0.5
    scores = torch.einsum("bqk,bsk->bqs", Q, torch.einsum("bsi,ik->bsk", x_kv, W_K))
    powers = scores.exp() * keep[:, None, :]
    return torch.einsum("bqs,bsi,iv->bqv", powers / powers.sum(-1, keepdim=True), x_kv, W_V)


def cross_in_loops(x_q, x_kv, W_Q, W_K, W_V, keep):
    outputs = []
    for target, source, words in zip(x_q, x_kv, keep, strict=True):
        source = source[words]  # padding is thrown away before anything else
        K, V = source @ W_K, source @ W_V
        rows = [((x @ W_Q) @ K.T / math.sqrt(K.shape[1])).softmax(0) @ V for x in target]
        outputs.append(torch.stack(rows))
    return torch.stack(outputs)


def cross_fused(x_q, x_kv, W_Q, W_K, W_V, keep):
    Q, K, V = project(x_q, x_kv, W_Q, W_K, W_V)
    return F.scaled_dot_product_attention(Q, K, V, attn_mask=keep.unsqueeze(1))


def cross_finite(x_q, x_kv, W_Q, W_K, W_V, keep):
    Q, K, V = project(*(t.double() for t in (x_q, x_kv, W_Q, W_K, W_V)))
    scores = Q @ K.transpose(1, 2) / np.sqrt(K.size(-1))
    scores[~keep[:, None].expand_as(scores)] = -1e9
    return torch.softmax(scores, dim=2) @ V


def cross_added(x_q, x_kv, W_Q, W_K, W_V, keep):
    Q, K, V = project(x_q, x_kv, W_Q, W_K, W_V)
    return (Q @ K.mT / K.shape[-1] ** 0.5 + additive(keep[:, None])).softmax(-1) @ V


def cross_renormalised(x_q, x_kv, W_Q, W_K, W_V, keep):
    Q, K, V = project(x_q, x_kv, W_Q, W_K, W_V)
    A = (Q @ K.mT / K.shape[-1] ** 0.5).softmax(-1) * keep[:, None]
    return (A / A.sum(-1, keepdim=True)) @ V


def cross_in_numpy(x_q, x_kv, W_Q, W_K, W_V, keep):
    Q, K, V = project(*(t.numpy() for t in (x_q, x_kv, W_Q, W_K, W_V)))
    scores = Q @ K.swapaxes(1, 2) / math.sqrt(K.shape[-1])
    e = np.exp(np.where(keep.numpy()[:, None], scores, -np.inf))
    return e / e.sum(-1, keepdims=True) @ V


def wired(q="q", k="kv", v="kv", by_q="Q", by_k="K", by_v="V"):
    """Cross-attention in which each projection takes the input and the matrix that are named."""

    def answer(x_q, x_kv, W_Q, W_K, W_V, keep):
        x, W = {"q": x_q, "kv": x_kv}, {"Q": W_Q, "K": W_K, "V": W_V}
        scores = x[q] @ W[by_q] @ (x[k] @ W[by_k]).mT / math.sqrt(W[by_k].shape[1])
        weights = scores.masked_fill(~keep[:, None], -math.inf).softmax(-1)
        return weights @ (x[v] @ W[by_v] if by_v else x[v])

    return answer


def masked(hide):
    """Cross-attention whose weights are made of scores and keep as told."""

    def answer(x_q, x_kv, W_Q, W_K, W_V, keep):
        Q, K, V = project(x_q, x_kv, W_Q, W_K, W_V)
        return hide(Q @ K.mT / math.sqrt(K.shape[-1]), keep) @ V

    return answer


def causal(keep, scores):
    return torch.ones_like(scores, dtype=torch.bool).tril() & keep[:, None]


def scaled(size):
    return lambda *given: cross(*given, divisor=math.sqrt(size(*given)))


def align(A, source, target):
    A = A.clone()
    A[:, [word == "_" for word in source]] = -1
    best = A.argmax(dim=1).tolist()
    return [(t, source[j]) for t, j in zip(target, best, strict=True) if t != "_"]


def align_cut(A, source, target):
    """Takes padding to stand at the end."""
    n_q, n_kv = len(target) - target.count("_"), len(source) - source.count("_")
    places = np.asarray(A)[:n_q, :n_kv].argmax(-1)
    return zip(target[:n_q], np.array(source)[places], strict=True)


def align_among_words(A, source, target):
    words = [j for j, word in enumerate(source) if word != "_"]
    return [
        (word, source[row[words].argmax()])
        for word, row in zip(target, A, strict=True)
        if word != "_"
    ]


def align_first_columns(A, source, target):
    words = len(source) - source.count("_")
    return [(w, source[row[:words].argmax()]) for w, row in zip(target, A, strict=True) if w != "_"]


def align_by_index(A, source, target):
    A = A * torch.tensor([word != "_" for word in source])
    return [(w, source[A[target.index(w)].argmax()]) for w in target if w != "_"]


def align_in_loops(A, source, target):
    pairs = []
    for i in range(len(target)):
        if target[i] == "_":
            continue
        best = None
        for j in range(len(source)):
            if source[j] != "_" and (best is None or A[i, j] > A[i, best]):
                best = j
        pairs.append([target[i], source[best]])
    return pairs


def align_masked(A, source, target):
    keep = torch.tensor([word != "_" for word in source])
    A = torch.where(keep, A, 0.0)
    A /= A.sum(-1, keepdim=True)
    return tuple(
        (word, source[row.topk(1).indices.item()])
        for word, row in zip(target, A, strict=True)
        if word != "_"
    )


def align_once(A, source, target):
    """Each source word is used once."""
    A, pairs = A.clone(), []
    for i, word in enumerate(target):
        if word != "_":
            j = max((j for j, w in enumerate(source) if w != "_"), key=lambda j: float(A[i, j]))
            A[:, j] = -1
            pairs.append((word, source[j]))
    return pairs


def columns(widths, field):
    start = sum(widths[:field])
    return torch.eye(sum(widths))[:, start : start + widths[field]]


def matrices(widths, ask, give, factor=None, by=None, hands=None, turn=None):
    W_Q = (factor or 100) * torch.eye(widths[ask])
    return (
        W_Q if turn is None else W_Q.roll(turn, 0),
        columns(widths, ask if by is None else by(ask, give)),
        columns(widths, give if hands is None else hands(ask, give)),
    )


def matrices_sharp_keys(widths, ask, give):
    W_K = torch.zeros(sum(widths), widths[ask])
    W_V = torch.zeros(sum(widths), widths[give])
    for i in range(widths[ask]):
        W_K[sum(widths[:ask]) + i, i] = 8 * widths[ask] ** 0.5
    for i in range(widths[give]):
        W_V[sum(widths[:give]) + i, i] = 1
    return [torch.eye(widths[ask]), W_K, W_V]


def matrices_of_full_width(widths, ask, give):
    W_K = torch.zeros(sum(widths), sum(widths))
    W_Q = 200 * columns(widths, ask).T
    W_K += columns(widths, ask) @ columns(widths, ask).T
    return W_Q.double(), W_K.double(), columns(widths, give).double()


def matrices_turned(widths, ask, give):
    n = widths[ask]
    turn, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((n, n)))
    return 99 * turn, columns(widths, ask).numpy() @ turn, columns(widths, give).numpy()


def matrices_in_pairs(widths, ask, give):
    """Found by their angle: each value a point on a circle, d_k = 2."""
    n = widths[ask]
    angle = torch.arange(n) * 2 * math.pi / n
    circle = torch.stack([angle.cos(), angle.sin()], -1)
    return 200 * circle, columns(widths, ask) @ circle, columns(widths, give)


RIGHT = {
    "shapes": [shapes, shapes_of_tensors, shapes_in_arrays],
    "cross_attention": [
        cross,
        cross_in_einsum,
        cross_in_loops,
        cross_fused,
        cross_finite,
        cross_added,
        cross_renormalised,
        cross_in_numpy,
    ],
    "alignment": [align, align_in_loops, align_masked],
    "look_up_matrices": [
        matrices,
        matrices_sharp_keys,
        matrices_of_full_width,
        matrices_turned,
        matrices_in_pairs,
    ],
}

WRONG = {
    "shapes": {
        "W_Q of the source": (other_shape(W_Q="width_kv d_k"), "W_Q meets the target"),
        "W_Q of the tokens": (other_shape(W_Q="n_q width_q"), "W_Q leads from its width to d_k"),
        "W_K of the target": (other_shape(W_K="width_q d_k"), "W_K's rows are the source's width"),
        "W_V of the target": (other_shape(W_V="width_q d_v"), "W_V's rows are the source's width"),
        "W_V of width d_k": (other_shape(W_V="width_kv d_k"), "values have a width of their own"),
        "W_Q on its side": (other_shape(W_Q="d_k width_q"), "rows first, then columns"),
        "Q for the source": (other_shape(Q="n_kv d_k"), "one query for each token of the target"),
        "K for the target": (other_shape(K="n_q d_k"), "one key for each token of the source"),
        "K of width d_v": (other_shape(K="n_kv d_v"), "so they have the same width"),
        "K transposed": (other_shape(K="d_k n_kv"), "rows first, then columns"),
        "V for the target": (other_shape(V="n_q d_v"), "one value for each token of the source"),
        "V of width d_k": (other_shape(V="n_kv d_k"), "values have a width of their own"),
        "scores on their side": (other_shape(scores="n_kv n_q"), "each query has a row"),
        "scores of the target": (other_shape(scores="n_q n_q"), "a column for each key"),
        "scores of the source": (other_shape(scores="n_kv n_kv"), "a row for each query"),
        "output for the source": (other_shape(output="n_kv d_v"), "answers the queries"),
        "output of width d_k": (other_shape(output="n_q d_k"), "as wide as a value"),
        "output of the target's width": (other_shape(output="n_q width_q"), "only after W_O"),
        "output of another width": (other_shape(output="n_q width_kv"), "expected ["),
        "the example's numbers": (lambda *sizes: shapes(3, 5, 6, 4, 2, 7), "the shape of W_Q is"),
        "a list": (lambda *sizes: [*shapes(*sizes).values()], "expected a dict"),
        "no scores": (
            lambda *sizes: {k: v for k, v in shapes(*sizes).items() if k != "scores"},
            "scores is missing",
        ),
        "nothing": (lambda *sizes: None, "it returns a NoneType"),
    },
    "cross_attention": {
        "K and V from the target": (wired(k="q", v="q"), "keys and values come from the target"),
        "K from the target": (wired(k="q"), "the keys come from the target"),
        "V from the target": (wired(v="q"), "the values come from the target"),
        "Q from the source": (wired(q="kv"), "the queries come from the source"),
        "all turned round": (wired("kv", "q", "q"), "the source asks the target"),
        "W_K for the queries": (wired(by_q="K"), "W_K makes the queries too"),
        "W_K for the values": (wired(by_v="K"), "V takes W_V"),
        "W_K and W_V exchanged": (wired(by_k="V", by_v="K"), "W_K and W_V are exchanged"),
        "no W_V": (wired(by_v=""), "make values of them with W_V"),
        "causal": (lambda *given: cross(*given, mask=causal), "a causal mask hides"),
        "not divided": (lambda *given: cross(*given, divisor=1), "not divided by sqrt(d_k)"),
        "by d_k": (scaled(lambda *given: given[3].shape[1] ** 2), "not by its square root"),
        "by sqrt(d_v)": (scaled(lambda *given: given[4].shape[1]), "the root of d_v, 7"),
        "by the target's width": (
            scaled(lambda *given: given[0].shape[-1]),
            "the root of the target's width, 6",
        ),
        "by the source's width": (
            scaled(lambda *given: given[1].shape[-1]),
            "the root of the source's width, 4",
        ),
        "by sqrt(n_kv)": (scaled(lambda *given: given[1].shape[1]), "the root of n_kv, 5"),
        "by sqrt(n_q)": (scaled(lambda *given: given[0].shape[1]), "the root of n_q, 3"),
        "softmax over the queries": (
            lambda *given: cross(*given, dim=1),
            "softmax ran over the queries",
        ),
        "softmax over the batch": (lambda *given: cross(*given, dim=0), "ran over the batch"),
        "K turned all round": (
            lambda x_q, x_kv, W_Q, W_K, W_V, keep: (
                (x_q @ W_Q @ (x_kv @ W_K).permute(2, 1, 0) / 2).softmax(-1) @ (x_kv @ W_V)
            ),
            "transpose the last two axes alone",
        ),
        "no mask": (
            masked(lambda scores, keep: scores.softmax(-1)),
            "padding of the source is not hidden",
        ),
        "hides the words": (
            lambda *given: cross(*given, mask=lambda keep, scores: ~keep[:, None]),
            "the output is NaN: hide where keep is False",
        ),
        "hides the words, fused": (
            lambda *given: cross_fused(*given[:5], ~given[5]),
            "everything is hidden, so the output is 0",
        ),
        "hides the words, finite": (
            lambda *given: cross_finite(*given[:5], ~given[5]),
            "everything is hidden, so all weights are alike",
        ),
        "hides the words, a little": (
            masked(lambda s, keep: (s.double() - 1e9 * keep[:, None]).softmax(-1).float()),
            "the mask is the wrong way round",
        ),
        "hides rows": (
            lambda *given: cross(*given, mask=lambda keep, scores: keep[..., None]),
            "keep hides rows",
        ),
        "hides rows, finite": (
            masked(lambda s, keep: s.masked_fill(~keep[..., None], -1e9).softmax(-1)),
            "keep hides rows",
        ),
        "hides rows and columns": (
            lambda *given: cross(*given, mask=lambda keep, scores: keep[..., None] & keep[:, None]),
            "keep hides rows too",
        ),
        "sets rows of padding to 0": (
            lambda *given: cross(*given) * given[5][..., None],
            "keep hides rows too",
        ),
        "no softmax": (masked(lambda scores, keep: scores * keep[:, None]), "softmax is missing"),
        "no axis for the queries": (
            lambda *given: cross(*given, mask=lambda keep, scores: keep),
            "give it an axis for the queries",
        ),
        "0, not -inf": (
            masked(lambda s, keep: s.masked_fill(~keep[:, None], 0).softmax(-1)),
            "it must be -inf",
        ),
        "hidden too late": (
            masked(lambda s, keep: s.softmax(-1) * keep[:, None]),
            "hidden after the softmax",
        ),
        "0 times -inf": (
            masked(lambda s, keep: (s + (~keep[:, None]).float() * -math.inf).softmax(-1)),
            "0 * -inf is NaN",
        ),
        "padding's vectors set to 0": (
            lambda x_q, x_kv, *given: masked(lambda s, keep: s.softmax(-1))(
                x_q, x_kv * given[3][..., None], *given
            ),
            "still take a share",
        ),
        "keep added": (
            masked(lambda s, keep: (s + keep[:, None]).softmax(-1)),
            "keep is added to the scores",
        ),
        "-10": (
            masked(lambda s, keep: s.masked_fill(~keep[:, None], -10).softmax(-1)),
            "hide it with -inf",
        ),
        "-20 added": (
            masked(lambda s, keep: (s - 20 * ~keep[:, None]).softmax(-1)),
            "hide it with -inf",
        ),
        "weights alone": (
            lambda x_q, x_kv, W_Q, W_K, W_V, keep: (
                x_q @ W_Q @ (x_kv @ W_K).mT / math.sqrt(W_K.shape[1])
            ).softmax(-1),
            "these are the weights",
        ),
        "takes the target for as long as the source": (
            lambda x_q, x_kv, *given: cross(x_q, x_kv.reshape(*x_q.shape[:2], -1), *given),
            "here lengths and widths differ",
        ),
        "loses a batch of one": (
            lambda *given: cross(*given).squeeze(),
            "here the batch has one pair alone",
        ),
        "changes the source": (
            lambda x_q, x_kv, *given: cross(x_q, x_kv.mul_(given[3][..., None]), *given),
            "changes its argument number 2",
        ),
        "nothing": (lambda *given: None, "is there a return"),
    },
    "alignment": {
        "turned round": (
            lambda *given: [(s, t) for t, s in align(*given)],
            "the pairs are the wrong way round",
        ),
        "down the columns": (
            lambda A, source, target: [
                (target[i], word) for i, word in zip(A.argmax(0), source, strict=True)
            ],
            "each source word has chosen",
        ),
        "down the columns of words": (
            lambda A, source, target: [
                (target[i], word)
                for i, word in zip(A.argmax(0), source, strict=True)
                if word != "_"
            ],
            "each source word has chosen",
        ),
        "by place": (
            lambda A, source, target: [
                pair for pair in zip(target, source, strict=False) if "_" not in pair
            ],
            "words are paired by their place",
        ),
        "padding of the source": (
            lambda A, source, target: [
                (t, source[j]) for t, j in zip(target, A.argmax(1), strict=True) if t != "_"
            ],
            "a padding of the source is paired",
        ),
        "padding of the target": (
            lambda A, source, target: (
                align(A, source, ["_" + word for word in target])
                and [*align(A, source, target), ("_", align(A, source, [*"abcde"])[4][1])]
            ),
            "a padding of the target is paired",
        ),
        "all padding": (
            lambda A, source, target: [
                (t, source[j]) for t, j in zip(target, A.argmax(1), strict=True)
            ],
            "padding is paired, of the target and of the source",
        ),
        "padding left out afterwards": (
            lambda A, source, target: [
                pair
                for pair in zip(target, [source[j] for j in A.argmax(1)], strict=True)
                if "_" not in pair
            ],
            "is left out: choose among the words",
        ),
        "places": (
            lambda A, source, target: list(enumerate(A[:4, :4].argmax(1).tolist())),
            "return the words",
        ),
        "first places": (align_cut, "or the first places taken"),
        "first columns": (align_first_columns, "or the first places taken"),
        "place among the target's words": (
            lambda A, source, target: align(A, source, [w for w in target if w != "_"] + ["_"]),
            "looked up among all",
        ),
        "place among the words": (align_among_words, "looked up among all"),
        "place of the word": (align_by_index, "pair 3 is"),
        "a dict": (lambda *given: dict(align(*given)), "keeps a word only once"),
        "each source word once": (align_once, "pair 3 is"),
        "only what is above a half": (
            lambda A, source, target: [
                (t, source[j])
                for t, row in zip(target, A, strict=True)
                for j in [row.argmax()]
                if row[j] > 0.5
            ],
            "however small its largest weight",
        ),
        "every word above a tenth": (
            lambda A, source, target: [
                (t, s)
                for t, row in zip(target, A, strict=True)
                for s, a in zip(source, row, strict=True)
                if a > 0.1
            ],
            "it finds",
        ),
        "words alone": (lambda *given: [s for _, s in align(*given)], "list of pairs"),
        "changes A": (
            lambda A, source, target: align(
                A.mul_(torch.tensor([word != "_" for word in source])), source, target
            ),
            "changes its argument number 1",
        ),
        "nothing": (lambda *given: None, "is there a return"),
    },
    "look_up_matrices": {
        "key of the given field": (
            lambda *given: matrices(*given, by=lambda ask, give: give),
            "W_K lets field 2 through",
        ),
        "key of the first field": (
            lambda *given: matrices(*given, by=lambda ask, give: 0),
            "W_K lets field 0 through",
        ),
        "gives what was asked": (
            lambda *given: matrices(*given, hands=lambda ask, give: ask),
            "W_V hands over field 1, not field 2",
        ),
        "gives the next field": (
            lambda *given: matrices(*given, hands=lambda ask, give: ask - 1),
            "W_V hands over field 0, not field 2",
        ),
        "not sharp": (lambda *given: matrices(*given, factor=1), "make the scores larger"),
        "sharp at the chapter's width alone": (
            lambda *given: matrices(*given, factor=8),
            "look_up_matrices([3, 6, 9], 2, 1): the right record gets",
        ),
        "sharp up to nine": (lambda *given: matrices(*given, factor=16), "sqrt(d_k) divides them"),
        "questions turned": (
            lambda *given: matrices(*given, turn=1),
            "a question finds another record",
        ),
        "against": (lambda *given: matrices(*given, factor=-100), "finds another record"),
        "two fields": (
            lambda widths, ask, give: (
                100 * columns(widths, ask).T,
                columns(widths, ask) @ columns(widths, ask).T
                + 2 * columns(widths, give)[:, :2] @ columns(widths, ask)[:, :2].T,
                columns(widths, give),
            ),
            "W_K lets field",
        ),
        "as wide as the values": (
            lambda widths, ask, give: (
                100 * torch.eye(widths[ask]),
                columns(widths, give),
                columns(widths, give),
            ),
            "W_K",
        ),
        "large values": (
            lambda *given: (*matrices(*given)[:2], 10 * matrices(*given)[2]),
            "the values",
        ),
        "W_K on the field alone": (
            lambda widths, ask, give: (
                100 * torch.eye(widths[ask]),
                torch.eye(widths[ask]),
                columns(widths, give),
            ),
            "from the whole record",
        ),
        "W_V on the field alone": (
            lambda widths, ask, give: (*matrices(widths, ask, give)[:2], torch.eye(widths[give])),
            "to the field that is given",
        ),
        "two matrices": (lambda *given: matrices(*given)[:2], "expected three matrices"),
        "nothing": (lambda *given: None, "expected three matrices"),
    },
}
