"""Chapter 02: the spread of scores, the entropy of weights, their slopes, a divisor to measure."""

import math
from collections.abc import Iterable

import torch
from torch import Generator, Tensor

from qkv.checks.answer import Answer
from qkv.checks.draw import Draw
from qkv.checks.exercise import exercise
from qkv.checks.faults import equal, has_shape, holds, numbers
from qkv.checks.words import scalar

DRAWS = 2000  # so many that a right answer lies within 12 %, but for one in 10^10


def spread(d_k: int, n: int, g: Generator) -> float:
    """The standard deviation of n dot products of random vectors."""
    q, k = torch.randn(2, n, d_k, generator=g)  # [n, d_k] each
    return float((q * k).sum(-1).std())


@exercise("spread", spread)
def try_spread(answer: Answer, draw: Draw) -> Iterable[object]:
    """d_k, n, a generator -> the standard deviation of n draws of q · k."""
    seed, small = draw.whole(0, 10**6), draw.whole(3, 4) ** 2

    def seen(d_k: int, seed: int = seed) -> float:
        found = answer(d_k, DRAWS, torch.Generator().manual_seed(seed))
        return scalar(
            f"spread({d_k}, {DRAWS}, g)",
            found,
            {
                "these are the dot products: take their standard deviation": [DRAWS],
                "this is a spread for each entry: first sum over the d_k entries": [d_k],
            },
        )

    first = seen(64)
    _root("spread(64", first, 64)
    wide, narrow = seen(256), seen(small)
    _root("spread(256", wide, 256)
    _root(f"spread({small}", narrow, small)
    torch.manual_seed(seed)  # now PyTorch's own generator stands elsewhere, and g as before
    holds(
        math.isclose(first, seen(64), rel_tol=1e-4),
        "the same seed gives another number: is generator=g given to both draws?",
    )
    holds(first != seen(64, seed + 1), "every seed gives the same spread: draw with generator=g")
    # Where the width is 2, one query for all keys gives another spread with each seed.
    alike = [abs(seen(2, seed + i) / math.sqrt(2) - 1) < 0.2 for i in range(5)]
    holds(
        all(alike),
        "where d_k is 2 the spread changes much from seed to seed: does one query meet all keys? "
        "Draw n queries",
    )
    few = [answer(64, 2, torch.Generator().manual_seed(seed + i)) for i in range(8)]
    holds(
        not all(_near(scalar("spread(64, 2, g)", found), 8) for found in few),
        "with n = 2 the spread is as steady as with 2000: draw n queries and n keys",
    )
    return draw.weighed([round(narrow), round(wide / 4)])


def _root(what: str, seen: float, d_k: int) -> None:
    """Refuse what is not near the root of d_k."""
    root = math.sqrt(d_k)
    if _near(seen, root):
        return
    for cause, fault in {
        "this is the variance: the spread is its root": d_k,
        "the same draw is used for q and k: draw each by itself": math.sqrt(2) * root,
        "the spread is 1 at every width: sum over the d_k entries, and do not divide": 1,
        "the sum runs over the n draws: sum over the d_k entries of each": math.sqrt(DRAWS),
        "the entries lie between 0 and 1, as of torch.rand: take torch.randn": (
            math.sqrt(7 / 144) * root
        ),
        "this is the mean distance from 0: take the root of the mean square": (
            math.sqrt(2 / math.pi) * root
        ),
        "the dot products are divided by the lengths: these are cosines": 1 / root,
    }.items():
        holds(not _near(seen, fault), cause)
    holds(
        abs(seen) > 0.1 * root,
        "this is near 0, as a mean of dot products is: take their standard deviation",
    )
    holds(False, f"{what}, {DRAWS}, g) is {seen:.2f}, expected {root:.2f}")


def _near(seen: float, value: float) -> bool:
    return abs(seen - value) <= 0.12 * value


def entropy(p: Tensor) -> Tensor:
    """-sum of p ln p over the last axis, where a p of 0 counts as 0."""
    return 0 - (p * p.log().masked_fill(p == 0, 0)).sum(-1)  # 0, not -0


@exercise("entropy", entropy, never=("entr", "special_entr", "entropy"))
def try_entropy(answer: Answer, draw: Draw) -> Iterable[object]:
    """p [..., n] -> the entropy of each row, in nats [...]."""
    p = (1.5 * draw.tensor(3, 5)).softmax(-1)
    H = answer(p)
    has_shape(
        "entropy(p) of p [3, 5]",
        H,
        [3],
        {
            "this is one for each column: sum over the last axis, dim=-1": [5],
            "this is one number for all: sum over the last axis only, dim=-1": [],
            "these are the terms: sum them over the last axis": [3, 5],
            "the last axis is gone in a sum: without keepdim": [3, 1],
        },
    )
    bits, n = entropy(p) / math.log(2), p.shape[-1]
    equal(
        "entropy(p)",
        H,
        entropy(p),
        {
            "the minus is missing: an entropy is not negative": -entropy(p),
            "the logarithm has the base 2: take log, the natural one": bits,
            "the logarithm has the base 10: take log, the natural one": (entropy(p) / math.log(10)),
            "the terms are averaged: add them up": entropy(p) / n,
            "this is divided by ln n: the entropy itself is asked for": entropy(p) / math.log(n),
            "this is e^H, the number of keys: the entropy H is asked for": entropy(p).exp(),
            "the logarithms are not multiplied by p": -p.log().sum(-1),
            "the logarithms are not multiplied by p, and averaged": -p.log().mean(-1),
            "p holds weights already: take no softmax of it": entropy(p.softmax(-1)),
            "p is multiplied by itself, not by its logarithm": (p * p).sum(-1),
            "this is 1 minus the sum of squares: the logarithm is missing": 1 - (p * p).sum(-1),
            "this is -ln of the largest weight: every weight counts": -p.amax(-1).log(),
        },
    )
    batch = draw.tensor(2, 3, 4).softmax(-1)
    found = answer(batch)
    has_shape(
        "entropy(p) of p [2, 3, 4]",
        found,
        [2, 3],
        {"the sum runs over dim=1: the last axis is dim=-1": [2, 4]},
    )
    equal("entropy(p) of a batch", found, entropy(batch))
    hidden = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    equal(
        "entropy of the weights (0, 1, 0) and (0.5, 0.5, 0)",
        answer(hidden),
        entropy(hidden),
        {
            "0 times ln 0 is NaN in a computer: such a term counts as 0": [math.nan] * 2,
            "NaN is made 0 after the sum, and the other terms are lost: mend each term": [0, 0],
        },
        tolerance=2e-3,
    )
    return numbers("H", H)


def softmax_slopes(s: Tensor, eps: float) -> Tensor:
    """Row i: how the weights answer when score i is nudged both ways."""
    nudges = eps * torch.eye(len(s))
    return ((s + nudges).softmax(-1) - (s - nudges).softmax(-1)) / (2 * eps)


@exercise("softmax_slopes", softmax_slopes)
def try_softmax_slopes(answer: Answer, draw: Draw) -> Iterable[object]:
    """s [n], eps -> slopes [n, n], row i for score i."""
    s, eps = draw.tensor(4), 0.8
    J, nudges, p = softmax_slopes(s, eps), eps * torch.eye(4), s.softmax(-1)
    growing = nudges.cumsum(0)
    found = answer(s, eps)
    has_shape(
        "softmax_slopes(s, eps) with s [4]",
        found,
        [4, 4],
        {
            "this is one row: nudge each score in turn, and give a row for each": [4],
            "this is one number: all weights answer, to each of the scores": [],
        },
    )
    equal(
        "softmax_slopes(s, eps)",
        found,
        J,
        {
            "only the diagonal is there: when one weight grows, the others give way": (
                J * torch.eye(4)
            ),
            "this nudges one way, up: nudge both ways": ((s + nudges).softmax(-1) - p) / eps,
            "this nudges one way, down: nudge both ways": (p - (s - nudges).softmax(-1)) / eps,
            "the two nudges lie 2 * eps apart: divide by that, not by eps": 2 * J,
            "the difference is not divided by 2 * eps": 2 * eps * J,
            "/ 2 * eps divides by 2, then multiplies by eps: write / (2 * eps)": eps**2 * J,
            "the signs are turned round: up minus down": -J,
            "rows and columns are exchanged: row i is the answer to a nudge of score i": J.T,
            "these are the exact slopes, or eps is another: nudge by the eps that is given": (
                torch.diag(p) - torch.outer(p, p)
            ),
            "nothing moves: all scores are nudged together, or one array is nudged up and down": (
                torch.zeros(4, 4)
            ),
            "this is how the scores move: take their softmax": torch.eye(4),
            "these are slopes of the logarithms of the weights": (
                (s + nudges).log_softmax(-1) - (s - nudges).log_softmax(-1)
            )
            / (2 * eps),
            "the softmax runs down the columns: each row is a list of weights, dim=-1": (
                (s + nudges).softmax(0) - (s - nudges).softmax(0)
            )
            / (2 * eps),
            "the nudges pile up: nudge a fresh copy of s for each score": (
                (s + growing).softmax(-1) - (s - growing).softmax(-1)
            )
            / (2 * eps),
            "the weights are nudged, not the scores": torch.eye(4) - torch.full((4, 4), 0.25),
        },
    )
    large = 4 * draw.tensor(3)
    equal("softmax_slopes(s, 0.5) with s [3]", answer(large, 0.5), softmax_slopes(large, 0.5))
    return numbers("J", found)[0, :3]


def keys_heard(s: Tensor, c: float) -> float:
    """e^H of the weights of s / c."""
    return float(entropy((s.double() / c).softmax(-1)).exp())


def divisor_for(s: Tensor, keys: float) -> float:
    """The c at which e^H is keys: the bracket is halved until it is narrow."""
    low, high = 0.01, 100.0
    for _ in range(50):
        middle = math.sqrt(low * high)
        if keys_heard(s, middle) < keys:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


@exercise("divisor_for", divisor_for)
def try_divisor_for(answer: Answer, draw: Draw) -> Iterable[object]:
    """s [n], keys between 1 and n -> c > 0 such that softmax(s / c) has e^H = keys."""
    printed = []
    for low, high in ((1.3, 1.9), (3.0, 5.0)):  # below ln 8, where H itself could be keys; above
        s, c = _scores(draw, low, high)
        found = _divisor(answer, s, keys_heard(s, c))
        printed.append(round(2 * found) / 2)
    for size in (0.05, 20.0):
        s, c = _scores(draw, 2.0, 5.0)
        _divisor(answer, size * s, keys_heard(s, c))
    return [*printed, *draw.weighed(printed)]


def _scores(draw: Draw, low: float, high: float) -> tuple[Tensor, float]:
    """Scores [8] and a divisor, a multiple of 0.5; one percent of e^H pins it down."""
    while True:
        s, c = 3 * draw.tensor(8), draw.whole(2, 6) / 2
        keys = keys_heard(s, c)
        if low < keys < high and keys_heard(s, c - 0.2) < 0.97 * keys < keys * 1.03 < (
            keys_heard(s, c + 0.2)
        ):
            return s, c


def _divisor(answer: Answer, s: Tensor, keys: float) -> float:
    what = f"divisor_for(s, {keys:.2f})"
    c = scalar(what, answer(s, keys), {"these are weights or scores: give c": [8]})
    holds(math.isfinite(c) and c > 0, f"{what} is {c:.2f}, expected a number above 0")
    seen = keys_heard(s, c)
    if abs(seen - keys) <= 0.01 * keys:
        return c
    H = math.log(seen)
    for cause, heard in {
        "c is a factor here: the scores are to be divided by it": keys_heard(s, 1 / c),
        "at this c the entropy H itself is keys: e^H should be": H,
        "at this c the entropy in bits is keys: e^H, with H in nats, should be": H / math.log(2),
        "e^H needs H in nats: here it is in bits": math.exp(H / math.log(2)),
        "at this c 2^H is keys: with H in nats, e^H should be": 2**H,
        "the entropy of s / c is meant, not of s / sqrt(c)": keys_heard(s, math.sqrt(c)),
        "the entropy of s / c is meant, not of s / c^2": keys_heard(s, c**2),
    }.items():
        holds(abs(heard - keys) > 0.002 * keys, cause)
    side = "larger c for more keys" if seen < keys else "smaller c for fewer keys"
    holds(False, f"{what} is {c:.3f}, which gives e^H = {seen:.2f}: take a {side}")
    return c
