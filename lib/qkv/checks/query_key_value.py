"""Chapter 01: softmax, attention, one blend in loops, a query made to measure."""

import math
from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import normalize

from qkv.attention import attention
from qkv.checks.answer import Answer
from qkv.checks.draw import Draw
from qkv.checks.exercise import exercise
from qkv.checks.faults import equal, has_shape, holds, likely, numbers

softmax = partial(torch.softmax, dim=-1)
BUILT = ("softmax", "log_softmax", "scaled_dot_product_attention", "attention")


@exercise("softmax", softmax, never=BUILT)
def try_softmax(answer: Answer, draw: Draw) -> Iterable[object]:
    """x [..., n] -> weights [..., n]."""
    x = draw.tensor(3, 5)
    p = answer(x)
    equal(
        "softmax(x)",
        p,
        softmax(x),
        {
            "each column sums to 1, not each row: sum along dim=-1": lambda: softmax(x.T).T,
            "all numbers together sum to 1, not each row: sum along dim=-1": lambda: softmax(
                x.flatten()
            ).view_as(x),
            "these are the exponentials, not yet divided by their sum": x.exp(),
            "the largest of each row is 1: divide the exponentials by their sum": lambda: (
                x - x.amax(-1, keepdim=True)
            ).exp(),
            "these are logarithms of the weights": lambda: softmax(x).log(),
            "the numbers themselves are divided by their sum: exp is missing": lambda: (
                x / x.sum(-1, keepdim=True)
            ),
        },
    )
    batch = draw.tensor(2, 3, 5)
    equal(
        "softmax(x) of a batch [2, 3, 5]",
        answer(batch),
        softmax(batch),
        {
            "in a batch the sum runs over the wrong axis: use dim=-1, not dim=1": lambda: (
                softmax(batch.mT).mT
            )
        },
    )
    with likely("an axis of size 1 stays"):
        equal("softmax(x) of x [1, 1, 5]", answer(batch[:1, :1]), softmax(batch[:1, :1]))
    large = answer(x + 1000)
    holds(
        bool(torch.isfinite(torch.as_tensor(numbers("softmax(x + 1000)", large))).all()),
        "softmax(x + 1000) overflows: subtract each row's largest number before exp",
    )
    equal(
        "softmax(x + 1000)",
        large,
        softmax(x),
        {
            "softmax(x + 1000) gives equal shares, as a clamp does: subtract each row's largest "
            "number instead": torch.full((3, 5), 0.2)
        },
        tolerance=5e-3,
    )
    hidden = x.clone()
    hidden[:, 1] = -math.inf
    equal(
        "softmax(x) where x holds -inf",
        answer(hidden),
        softmax(hidden),
        {
            "where x holds -inf all is NaN: is a row's mean or smallest number subtracted? Take "
            "its largest": torch.full((3, 5), math.nan)
        },
    )
    low = x.clone()
    low[0] -= 500  # one row far below the others
    equal(
        "softmax(x) with one row far below the others",
        answer(low),
        softmax(x),
        {
            "a row far below the others gives NaN: subtract the largest number of each row, "
            "not of all": torch.where(torch.arange(3)[:, None] == 0, math.nan, softmax(x))
        },
        tolerance=5e-3,
    )
    return numbers("p", p)[0, :3]


def _weights(Q: Tensor, K: Tensor, divisor: float) -> Tensor:
    return softmax(Q @ K.mT / divisor)


@exercise("attention", attention, never=("scaled_dot_product_attention", "attention"))
def try_attention(answer: Answer, draw: Draw) -> Iterable[object]:
    """Q [n_q, d_k], K [n_kv, d_k], V [n_kv, d_v] -> [n_q, d_v]."""
    Q, K, V = draw.tensor(3, 4), draw.tensor(5, 4), draw.tensor(5, 6)
    output = answer(Q, K, V)
    has_shape(
        "attention(Q, K, V)",
        output,
        [3, 6],
        {
            "these are the weights: multiply them with V": [3, 5],
            "this is the output for the keys: are Q and K exchanged?": [5, 6],
        },
    )

    def with_weights(A: Tensor) -> Tensor:
        return A @ V

    equal(
        "attention(Q, K, V)",
        output,
        attention(Q, K, V),
        {
            "the scores are not divided by sqrt(d_k)": with_weights(_weights(Q, K, 1)),
            "the scores are divided by d_k, not by its square root": with_weights(
                _weights(Q, K, 4)
            ),
            "the scores are divided by sqrt(n_kv), not by sqrt(d_k)": with_weights(
                _weights(Q, K, math.sqrt(5))
            ),
            "the scores are divided by sqrt(n_q), not by sqrt(d_k)": with_weights(
                _weights(Q, K, math.sqrt(3))
            ),
            "the scores are divided by sqrt(d_v), not by sqrt(d_k)": with_weights(
                _weights(Q, K, math.sqrt(6))
            ),
            "the scores are multiplied by sqrt(d_k): divide": with_weights(_weights(Q, K, 0.5)),
            "/ d_k**1/2 divides by d_k, then by 2: write / d_k**0.5": with_weights(
                _weights(Q, K, 8)
            ),
            "the weights are divided by sqrt(d_k), not the scores": with_weights(
                _weights(Q, K, 1) / 2
            ),
            "each column of the weights sums to 1, not each row: softmax ran over the queries": (
                with_weights(softmax((K @ Q.T) / 2).T)
            ),
            "the scores are used as weights: the softmax is missing": with_weights(Q @ K.T / 2),
        },
    )
    batch = Qs, Ks, Vs = draw.tensor(2, 3, 9), draw.tensor(2, 5, 9), draw.tensor(2, 5, 6)
    with likely("in a batch transpose the last two axes alone: is there K.T, not K.mT?"):
        found = answer(*batch)
    equal(
        "attention of a batch, Q [2, 3, 9]",
        found,
        attention(*batch),
        {
            "here d_k is 9, and the scores are divided by 2: divide by sqrt(d_k)": (
                _weights(Qs, Ks, 2) @ Vs
            ),
            "d_k**1/2 is d_k / 2: write d_k**0.5": _weights(Qs, Ks, 4.5) @ Vs,
            "in a batch softmax ran over the queries: its axis is the last, dim=-1, not dim=1": (
                (Qs @ Ks.mT / 3).softmax(1) @ Vs
            ),
        },
    )
    order = draw.order(5)
    equal(
        "attention with keys and values in another order",
        answer(Q, K[order], V[order]),
        output,
    )
    return numbers("output", output)[0, :3]


@exercise(
    "blend_one",
    lambda i, Q, K, V: attention(Q, K, V)[i],
    never=BUILT,
)
def try_blend_one(answer: Answer, draw: Draw) -> Iterable[object]:
    """i, Q [n_q, d_k], K [n_kv, d_k], V [n_kv, d_v] -> [d_v]."""
    Q, K, V = draw.tensor(3, 7), draw.tensor(5, 7), draw.tensor(5, 2)
    every = attention(Q, K, V)  # [3, 2]
    scores = Q @ K.T / math.sqrt(7)  # [3, 5]
    powers = scores.exp()
    shares = softmax(scores)
    for i in range(3):
        blend = answer(i, Q, K, V)
        has_shape(
            f"blend_one({i}, Q, K, V)",
            blend,
            [2],
            {"these are all queries' blends: give the one of query i": [3, 2]},
        )
        equal(
            f"blend_one({i}, Q, K, V)",
            blend,
            every[i],
            {
                "this is the blend of query 0: take Q[i]": every[0],
                "this is the mean of all queries' blends, not query i's": every.mean(0),
                "the sum in the denominator runs over the queries: for one query it runs over "
                "the keys": (powers / powers.sum(0))[i] @ V,
                "the weights are not divided by their sum": powers[i] @ V,
                "the weights, the largest being 1, are not divided by their sum": (
                    (scores[i] - scores[i].max()).exp() @ V
                ),
                "this is the last key's part alone: add up all of them": shares[i, 4] * V[4],
                "the scores are not divided by sqrt(d_k)": _weights(Q, K, 1)[i] @ V,
                "the scores are divided by 2: divide by sqrt(d_k), and here d_k is 7": (
                    _weights(Q, K, 2)[i] @ V
                ),
                "each weight is multiplied with V[i]: take the value of its key, V[j]": V[i],
            },
        )
    return numbers("blend", answer(0, Q, K, V))[:2]


def query_for(row: int, K: Tensor) -> Tensor:
    """A query that finds K[row]: pushed from key to key until none comes near."""
    away = K[row] - torch.cat([K[:row], K[row + 1 :]])  # [n_kv - 1, d_k]: from each other key
    q = torch.zeros(K.shape[1])
    for _ in range(10_000):  # push towards the key that is nearest to winning, until none is near
        gap = away @ q / math.sqrt(K.shape[1])
        if gap.min() > 5:
            break
        q = q + away[gap.argmin()]
    return q


def _sphere(draw: Draw) -> Tensor:
    """Five keys [5, 3], more than they are wide, for which no formula does.

    All are of length 1 and none is near another, so that each can win.
    """
    while True:
        K = normalize(draw.tensor(5, 3))
        others = 2 * torch.eye(5) - 1  # in row i: for key i, against each other one
        formulas = others @ K, others @ torch.linalg.pinv(K).T  # [5, 3]: a query in each row
        wins = [bool(((q @ K.T).argmax(-1) == torch.arange(5)).all()) for q in formulas]
        if not any(wins) and (K @ K.T - torch.eye(5)).max() < 0.6:
            return K


@exercise("query_for", query_for)
def try_query_for(answer: Answer, draw: Draw) -> Iterable[object]:
    """row, K [n_kv, d_k] -> a query [d_k] that gives K[row] a weight of at least 0.9."""
    long = torch.tensor([[3.0, 0.0], [1.0, 1.0]])
    drawn = draw.tensor(4, 4)
    while torch.linalg.svdvals(drawn)[-1] < 0.3:  # such a query takes long to find
        drawn = draw.tensor(4, 4)
    found, many = [], _sphere(draw)
    cases = (1, long), (0, long), *((row, drawn) for row in range(4))
    for row, K in (*cases, *((row, many) for row in range(5))):
        q = answer(row, K)
        has_shape(f"query_for({row}, K) with K {list(K.shape)}", q, [K.shape[1]])
        query = torch.as_tensor(numbers("q", q), dtype=torch.float64)
        weights = _weights(query[None], K.double(), math.sqrt(K.shape[1]))[0]
        weight = float(weights[row])
        own = float(_weights(K[row][None], K, math.sqrt(K.shape[1]))[0, row])
        copied = bool(torch.allclose(query, K[row].double()))
        holds(
            weight >= 0.9,
            f"K[{row}] as its own query gets a weight of only {own:.2f}: another key is longer or "
            "near, and a dot product is no cosine"
            if copied
            else f"the query for row {row} of K = {K.tolist() if len(K) == 2 else 'a drawn K'} "
            f"gives it a weight of {weight:.2f}, expected at least 0.90",
        )
        found.append(K[weights.argmax()])
    return draw.weighed(torch.cat(found))  # of the keys that the queries have found
