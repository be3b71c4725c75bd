"""Chapter 12: residuals read backward, and layer norm's three terms."""

from collections.abc import Callable, Iterable

import numpy as np

from qkv.byhand.layer_norm import layer_norm_backward, standardise_backward
from qkv.checks.answer import Answer
from qkv.checks.draw import Draw
from qkv.checks.exercise import exercise
from qkv.checks.faults import Numbers, Wrong, equal, has_shape, numbers
from qkv.checks.gradients import AUTOGRAD, axis_kept, each

Backward = Callable[[Numbers], Numbers]


def residual_backward(
    g: Numbers, order: str, norm_backward: Backward, sublayer_backward: Backward
) -> Numbers:
    """The chapter's lines."""
    if order == "post":
        g = norm_backward(g)
        return g + sublayer_backward(g)
    return g + norm_backward(sublayer_backward(g))


@exercise("residual_backward", residual_backward)
def try_residual_backward(answer: Answer, draw: Draw) -> Iterable[object]:
    """g [..., d], "post" or "pre", two backwards -> gx [..., d]."""
    g = draw.array(2, 3, 4)  # [B, n, d_model]
    N, F = (np.eye(4) + draw.array(4, 4) for _ in range(2))

    def norm(g: Numbers) -> Numbers:
        back: Numbers = np.asarray(g) @ N
        return back

    def sub(g: Numbers) -> Numbers:
        back: Numbers = np.asarray(g) @ F
        return back

    n, f = norm(g), sub(g)
    road = "the road is missing: what arrives is copied, besides the detour"
    detour = "the detour is missing: add what the sublayer's backward gives"
    right = {"post": n + sub(n), "pre": g + norm(f)}
    causes = {
        "post": {
            road: sub(n),
            detour: n,
            "this is pre-norm's: in post-norm g goes through the norm first, then both ways": (
                right["pre"]
            ),
            "the norm's backward is missing in post-norm": g + f,
            "in post-norm the road begins behind the norm: copy what comes out of it, not g": (
                g + sub(n)
            ),
            "in post-norm the detour begins behind the norm: it gets what comes out, not g": n + f,
            "in reverse order: post-norm ended with the norm, so its backward comes first": (
                n + norm(f)
            ),
            "the norm's backward is called twice in post-norm": norm(n) + sub(norm(n)),
            "the detour is subtracted: add it": n - sub(n),
            "the mean of both ways: add them": right["post"] / 2,
            "g is added once more to post-norm's two ways": g + right["post"],
        },
        "pre": {
            road: norm(f),
            detour: g,
            "this is post-norm's: in pre-norm the road copies g untouched": right["post"],
            "the norm's backward is missing in pre-norm": g + f,
            "in reverse order: pre-norm's detour had the norm first, so its backward comes last": (
                g + sub(n)
            ),
            "in pre-norm the norm stands in the detour alone: the road copies g": n + norm(f),
            "in pre-norm the sublayer's backward gets g, and the norm's what comes out": n + f,
            "the norm's backward is called twice in pre-norm": g + norm(norm(f)),
            "the detour is subtracted: add it": g - norm(f),
            "the mean of both ways: add them": right["pre"] / 2,
        },
    }
    found = []
    for order in ("post", "pre"):
        gx = answer(g, order, norm, sub)
        what = f"residual_backward(g, '{order}', ...)"
        has_shape(
            what,
            gx,
            [2, 3, 4],
            {
                "the two ways stand one upon the other: they are added": [2, 2, 3, 4],
                "the two ways stand side by side: they are added": [2, 3, 8],
            },
        )
        equal(what, gx, right[order], causes[order])
        found += [*numbers(what, gx)[0, 0, :2]]
    return found[:1] + found[2:]


def _variants(g: Numbers, x: Numbers, gain: Numbers, eps: float) -> dict[str, Numbers]:
    """gx with one fault: a term missing, an epsilon elsewhere, a mean over the wrong axis."""
    d = x.shape[-1]
    c = x - x.mean(-1, keepdims=True)
    variance = (c**2).mean(-1, keepdims=True)

    def three(
        g: Numbers,
        s: Numbers,
        x_hat: Numbers | None = None,
        mean: float = 1,
        spread: float = 1,
        by: Numbers | None = None,
    ) -> Numbers:
        x_hat = c / s if x_hat is None else x_hat
        taken = mean * g.mean(-1, keepdims=True)
        taken = taken + spread * x_hat * (g * x_hat).mean(-1, keepdims=True)
        back: Numbers = (g - taken) / (s if by is None else by)
        return back

    s, g_hat = np.sqrt(variance + eps), g * gain
    x_hat, alone = c / s, np.ones_like(s)
    unbiased = np.sqrt((c**2).sum(-1, keepdims=True) / (d - 1) + eps)
    over_n = g_hat.mean(1, keepdims=True), (g_hat * x_hat).mean(1, keepdims=True)
    whole = g_hat.mean(), (g_hat * x_hat).mean()
    shared = (g_hat * x_hat).mean(-1, keepdims=True)
    mean_g = g_hat.mean(-1, keepdims=True)
    return {
        "the term through the mean is missing: take the mean of g away": three(g_hat, s, mean=0),
        "the term through the spread is missing: take x_hat * mean(g * x_hat) away": (
            three(g_hat, s, spread=0)
        ),
        "the gain is missing in the mean of g: it multiplies g first": (
            (g_hat - g.mean(-1, keepdims=True) - x_hat * shared) / s
        ),
        "the gain is missing in the spread's mean: it multiplies g first": (
            (g_hat - mean_g - x_hat * (g * x_hat).mean(-1, keepdims=True)) / s
        ),
        "the spread's term alone is divided by s: brackets round all three": (
            g_hat - mean_g - x_hat * shared / s
        ),
        "two terms are missing, through the mean and through the spread": g_hat / s,
        "the term through the mean is added: take it away": three(g_hat, s, mean=-1),
        "the term through the spread is added: take it away": three(g_hat, s, spread=-1),
        "the division by s = sqrt(variance + eps) is missing": three(g_hat, s, by=alone),
        "it is divided by variance + eps, not by its square root s": three(g_hat, s, by=s**2),
        "it is multiplied by s: divide": three(g_hat, s, by=1 / s),
        "the gain is missing on the way to x: it multiplies g first": three(g, s),
        "the gain comes too late: it multiplies g before the three terms, not their sum": (
            gain * three(g, s)
        ),
        "it is divided by the gain: multiply": three(g / gain, s),
        "eps is forgotten in the backward": three(g_hat, np.sqrt(variance)),
        "eps stands outside the root: s = sqrt(variance + eps)": (
            three(g_hat, np.sqrt(variance) + eps)
        ),
        "the variance is divided by d - 1: here it is by d": three(g_hat, unbiased),
        "the spread's term has x in place of x_hat": three(g_hat, s, x),
        "the spread's term has the centred c in place of x_hat: divide by s": three(g_hat, s, c),
        "the spread's term lacks its factor x_hat in front": (g_hat - mean_g - shared) / s,
        "the spread's term lacks x_hat within the mean": (g_hat - mean_g - x_hat * mean_g) / s,
        "both means are sums: divide by d": three(g_hat, s, mean=d, spread=d),
        "the mean of g is a sum: divide by d": three(g_hat, s, mean=d),
        "the spread's mean is a sum: divide by d": three(g_hat, s, spread=d),
        "the means run over the tokens: over each token's own features, axis=-1": (
            (g_hat - over_n[0] - x_hat * over_n[1]) / s
        ),
        "the mean of g runs over the tokens: axis=-1": (g_hat - over_n[0] - x_hat * shared) / s,
        "the spread's mean runs over the tokens: axis=-1": (g_hat - mean_g - x_hat * over_n[1]) / s,
        "the means run over everything: over each token by itself, axis=-1": (
            (g_hat - whole[0] - x_hat * whole[1]) / s
        ),
        "the sign is turned round": -three(g_hat, s),
        "this is the forward once more": x_hat * gain,
    }


@exercise("layer_norm_backward", layer_norm_backward, never=("layer_norm_backward", *AUTOGRAD))
def try_layer_norm_backward(answer: Answer, draw: Draw) -> Iterable[object]:
    """g, x [B, n, d], gain [d], eps -> gx [B, n, d], g_gain [d], g_bias [d]."""
    what, eps = "layer_norm_backward(g, x, gain, eps)", 0.3
    x = 0.7 * draw.array(2, 3, 5) + 2  # [B, n, d]; so small that eps shows
    g, gain = 2 * draw.array(2, 3, 5), draw.rng.uniform(0.5, 2, 5)
    with axis_kept():
        parts = each(what, answer(g, x, gain, eps), "gx", "g_gain", "g_bias")
    gx, g_gain, g_bias = parts
    has_shape("gx", gx, [2, 3, 5], {"g_gain or g_bias stands first: gx does": [5]})
    collect = "all tokens share it: add up over all of them, of all rows"
    for name, seen in (("g_gain", g_gain), ("g_bias", g_bias)):
        has_shape(
            name,
            seen,
            [5],
            {
                collect: [2, 3, 5],
                "add up over the tokens of a row too": [3, 5],
                "add up over the rows of the batch too": [2, 5],
                "one number for each token is left: it is one for each feature": [2, 3],
                "keep no axis of 1: it has the shape of the gain": [1, 1, 5],
                "one number is left: it has one for each feature": [],
            },
        )
    right_gx, right_gain, right_bias = layer_norm_backward(g, x, gain, eps)
    c = x - x.mean(-1, keepdims=True)
    std = np.sqrt((c**2).mean(-1, keepdims=True) + eps)
    x_hat = c / std

    def over_tokens(each_token: Numbers) -> Numbers:
        total: Numbers = each_token.sum((0, 1))
        return total

    equal(
        "g_bias",
        g_bias,
        right_bias,
        {
            "g_bias is a mean: add up over all tokens": right_bias / 6,
            "g_bias has the gain in it: the bias is added behind it": right_bias * gain,
            "g_bias is what g_gain should be": right_gain,
            "g_bias is the sum of gx: the bias is added, so it collects g": over_tokens(right_gx),
            "g_bias has the first row alone": g[0].sum(0),
            "g_bias has the wrong sign": -right_bias,
        },
    )
    equal(
        "g_gain",
        g_gain,
        right_gain,
        {
            "g_gain is a mean: add up over all tokens": right_gain / 6,
            "g_gain has the gain in it: it is the sum of g * x_hat": right_gain * gain,
            "g_gain has x in place of x_hat: the gain multiplies what is normed": (
                over_tokens(g * x)
            ),
            "g_gain has the centred c in place of x_hat: divide by s": over_tokens(g * c),
            "g_gain is what g_bias should be": right_bias,
            "g_gain has the layer's output in place of x_hat": over_tokens(g * x_hat * gain),
            "g_gain uses gx: it is the sum of g * x_hat": over_tokens(right_gx * x_hat),
            "eps is forgotten in the backward": over_tokens(
                g * c / np.sqrt((c**2).mean(-1, keepdims=True))
            ),
            "eps stands outside the root: s = sqrt(variance + eps)": over_tokens(
                g * c / (np.sqrt((c**2).mean(-1, keepdims=True)) + eps)
            ),
            "the variance is divided by d - 1: here it is by d": over_tokens(
                g * c / np.sqrt((c**2).sum(-1, keepdims=True) / 4 + eps)
            ),
            "g_gain has the first row alone": (g * x_hat)[0].sum(0),
            "g_gain has the wrong sign": -right_gain,
        },
    )
    equal("gx", gx, right_gx, _variants(g, x, gain, eps))
    _edges(answer, draw, eps)
    return [*numbers("gx", gx)[0, 0, :2], numbers("g_gain", g_gain)[0]]


def _edges(answer: Answer, draw: Draw, eps: float) -> None:
    """Other sizes, a g that no token can follow, a token without any spread."""
    what, names = "layer_norm_backward(g, x, gain, eps)", ("gx", "g_gain", "g_bias")
    g, x, gain = draw.array(4, 2, 3), draw.array(4, 2, 3), draw.rng.uniform(0.5, 2, 3)
    for name, seen, want in zip(
        names,
        each(what, answer(g, x, gain, eps), *names),
        layer_norm_backward(g, x, gain, eps),
        strict=True,
    ):
        equal(f"with other sizes {name}", seen, want)
    ones, no_gain = np.ones((2, 2, 4)), np.ones(4)
    gx, *_ = each(what, answer(ones, draw.array(2, 2, 4), no_gain, eps), *names)
    equal("gx where g is 1 everywhere and the gain is 1", gx, 0 * ones)
    g = draw.array(2, 2, 4)
    gx, *_ = each(what, answer(g, 3 * ones, no_gain, eps), *names)
    want = standardise_backward(g, 0 * ones, np.full((2, 2, 1), eps**0.5))
    try:
        equal("gx", gx, want)
    except Wrong as wrong:
        raise Wrong(f"where all features of a token are equal: {wrong}") from None
