"""Chapter 11: where the three roles of a token meet, and the backward of attention."""

import math
from collections.abc import Iterable
from textwrap import shorten

import numpy as np

from qkv.byhand.attention import attention, attention_backward, causal
from qkv.byhand.softmax import softmax_backward
from qkv.checks.answer import Answer
from qkv.checks.draw import Draw
from qkv.checks.exercise import exercise
from qkv.checks.faults import Numbers, Wrong, equal, has_shape, numbers
from qkv.checks.gradients import AUTOGRAD, axis_kept, each, in_front, or_named, softmax_faults


def roles_backward(
    gQ: Numbers,
    gK: Numbers,
    gV: Numbers,
    X: Numbers,
    W_Q: Numbers,
    W_K: Numbers,
    W_V: Numbers,
) -> tuple[Numbers, ...]:
    """The chapter's lines; all tokens of all rows share the matrices."""
    rows = X.reshape(-1, X.shape[-1])  # [B * n, d_model]
    gX = gQ @ W_Q.T + gK @ W_K.T + gV @ W_V.T  # [..., n, d_model]
    return gX, *(rows.T @ g.reshape(-1, g.shape[-1]) for g in (gQ, gK, gV))


ROLES = ("gX", "gW_Q", "gW_K", "gW_V")


@exercise("roles_backward", roles_backward, never=AUTOGRAD)
def try_roles_backward(answer: Answer, draw: Draw) -> Iterable[object]:
    """gQ, gK, gV [..., n, d], X [..., n, d_model], W [d_model, d] -> gX and three gW."""
    what = "roles_backward(...)"

    def when_alike() -> None:
        gQ, gK, gV, X = (draw.array(4, 4) for _ in range(4))
        W_Q, W_K, W_V = (draw.array(4, 4) for _ in range(3))
        gX, gW_Q, *_ = each(what, answer(gQ, gK, gV, X, W_Q, W_K, W_V), *ROLES)
        equal(
            "gX",
            gX,
            gQ @ W_Q.T + gK @ W_K.T + gV @ W_V.T,
            {"gQ, gK and gV go back through W^T: transpose": gQ @ W_Q + gK @ W_K + gV @ W_V},
        )
        equal("gW_Q", gW_Q, X.T @ gQ, {"gW_Q = X^T gQ: X is not transposed": X @ gQ})

    gQ, gK, gV, X = draw.array(5, 3), draw.array(5, 3), draw.array(5, 2), draw.array(5, 4)
    W_Q, W_K, W_V = draw.array(4, 3), draw.array(4, 3), draw.array(4, 2)
    given = (gQ, gK, gV, X, W_Q, W_K, W_V)
    gX, gW_Q, gW_K, gW_V = each(what, or_named(lambda: answer(*given), when_alike), *ROLES)
    has_shape(
        "gX",
        gX,
        [5, 4],
        {
            "the three roles stand side by side: they are added": [5, 12],
            "the three roles stand one upon the other: they are added": [3, 5, 4],
            "it stands transposed": [4, 5],
        },
    )
    ways = {"queries": gQ @ W_Q.T, "keys": gK @ W_K.T, "values": gV @ W_V.T}
    right = sum(ways.values(), np.zeros_like(X))
    causes = {
        "gX is a mean of the three roles: add them": right / 3,
        "the queries and the keys have exchanged their W: gQ goes back through W_Q": (
            gQ @ W_K.T + gK @ W_Q.T + ways["values"]
        ),
        "gX has the wrong sign": -right,
    }
    for name, way in ways.items():
        causes[f"gX has the {name}' role alone: X has three, and they are added"] = way
        causes[f"gX lacks one role of three, the {name}'"] = right - way
        causes[f"gX has the {name}' role twice"] = right + way
        causes[f"gX subtracts the {name}' role: add all three"] = right - 2 * way
    equal("gX", gX, right, causes)
    matrices = {"gW_Q": (gW_Q, gQ), "gW_K": (gW_K, gK), "gW_V": (gW_V, gV)}
    for name, (seen, g) in matrices.items():
        stands = "it stands transposed, and a gradient has the shape of what it belongs to"
        has_shape(name, seen, [4, g.shape[-1]], {stands: [g.shape[-1], 4]})
        causes = {
            f"{name} is a mean over the tokens: add up": X.T @ g / 5,
            f"{name} has the wrong sign": -X.T @ g,
        }
        for other, (_, other_g) in matrices.items():
            if other != name and other_g.shape == g.shape:
                causes[f"{name} is what {other} should be"] = X.T @ other_g
        equal(name, seen, X.T @ g, causes)
    gQ2, gK2, gV2, X2 = (draw.array(2, 5, d) for d in (3, 3, 2, 4))
    batch = (gQ2, gK2, gV2, X2, W_Q, W_K, W_V)
    right_gX, *right_gW = roles_backward(*batch)
    with in_front("X may have a batch in front: flatten it, or add up over the batch"):
        batch_gX, *batch_gW = each(what, answer(*batch), *ROLES)
        equal("gX", batch_gX, right_gX)
    for name, seen, gW, g in zip(ROLES[1:], batch_gW, right_gW, batch[:3], strict=True):
        apart = "all rows of the batch share the matrix: add up over the batch too"
        has_shape(f"on a batch {name}", seen, gW.shape, {apart: [2, *gW.shape]})
        equal(
            f"on a batch {name}",
            seen,
            gW,
            {
                f"on a batch {name} is a mean over the rows: add up": gW / 2,
                f"on a batch {name} has the first row alone": X2[0].T @ g[0],
                f"on a batch {name} has the last row alone": X2[1].T @ g[1],
            },
        )
    return [numbers("gX", gX)[0, 0], numbers("gW_Q", gW_Q)[0, 0], numbers("gW_V", gW_V)[0, 0]]


NAMES = ("gQ", "gK", "gV")


def _match_back(gS: Numbers, Q: Numbers, K: Numbers, divisor: float) -> tuple[Numbers, Numbers]:
    return gS @ K / divisor, gS.swapaxes(-1, -2) @ Q / divisor


@exercise("attention_backward", attention_backward, never=("attention_backward", *AUTOGRAD))
def try_attention_backward(answer: Answer, draw: Draw) -> Iterable[object]:
    """g [..., n_q, d_v], Q, K, V as ever, A [..., n_q, n_kv] -> gQ, gK, gV."""
    what = "attention_backward(g, Q, K, V, A)"

    def when_alike() -> None:
        g, Q, K, V = (draw.array(4, 4) for _ in range(4))
        _, A = attention(Q, K, V, return_weights=True)
        gQ, gK, gV = each(what, answer(g, Q, K, V, A), *NAMES)
        equal("gV", gV, A.T @ g, {"gV = A^T g: A is not transposed": A @ g})
        gS, gS_wrong = softmax_backward(g @ V.T, A) / 2, softmax_backward(g @ V, A) / 2
        transpose = "gQ = gS K / sqrt(d_k): gS stands transposed there"
        value = "gA = g V^T: V is not transposed"
        equal("gQ", gQ, gS @ K, {transpose: gS.T @ K, value: gS_wrong @ K})
        transpose = "gK = gS^T Q / sqrt(d_k): gS is not transposed"
        also = "this is the gradient of K^T: transpose it"
        equal("gK", gK, gS.T @ Q, {transpose: gS @ Q, also: Q.T @ gS, value: gS_wrong.T @ Q})

    # n_q 3, n_kv 5, d_k 4, d_v 6: all unlike
    Q, K, V, g = 1.5 * draw.array(3, 4), draw.array(5, 4), draw.array(5, 6), draw.array(3, 6)
    _, A = attention(Q, K, V, return_weights=True)

    def kept() -> object:
        with axis_kept():
            return answer(g, Q, K, V, A)

    gQ, gK, gV = each(what, or_named(kept, when_alike), *NAMES)
    has_shape("gQ", gQ, [3, 4], {"gQ and gK are exchanged": [5, 4], "is it gV?": [5, 6]})
    has_shape(
        "gK",
        gK,
        [5, 4],
        {"this is the gradient of K^T: transpose it": [4, 5], "this is the shape of Q": [3, 4]},
    )
    has_shape("gV", gV, [5, 6], {"it stands transposed": [6, 5]})
    gA = g @ V.T  # [3, 5]
    equal(
        "gV",
        gV,
        A.T @ g,
        {
            "gV is divided by sqrt(d_k): only gQ and gK carry the scale": A.T @ g / 2,
            "gV is a mean over the queries: add up": A.T @ g / 3,
            "gV has the wrong sign": -A.T @ g,
            "gV is made with gS: the values were blended by the weights A": (
                softmax_backward(gA, A).T @ g
            ),
        },
    )
    right_gS = softmax_backward(gA, A)
    for i, (name, seen) in enumerate((("gQ", gQ), ("gK", gK))):
        scales = {
            "the scale is forgotten on the way back: gQ and gK are divided by sqrt(d_k) too": 1.0,
            f"{name} is divided by d_k, not by its square root": 4.0,
            f"{name} is multiplied by sqrt(d_k): divide": 0.5,
            f"{name} is divided by sqrt(d_v), not by sqrt(d_k)": math.sqrt(6),
            f"{name} is divided by sqrt(n_kv), not by sqrt(d_k)": math.sqrt(5),
            f"{name} is divided by sqrt(n_q), not by sqrt(d_k)": math.sqrt(3),
            f"{name} has the wrong sign": -2.0,
        }
        causes = {cause: _match_back(right_gS, Q, K, by)[i] for cause, by in scales.items()}
        passed = {
            "gA goes on to the scores as it is: send it back through the softmax": gA,
            "gA and A are exchanged in the softmax's backward": softmax_backward(A, gA),
            **softmax_faults(gA, A),
        }
        for by, also in ((2.0, ""), (1.0, "; and the scale is forgotten")):
            for cause, gS in passed.items():
                causes[cause + also] = _match_back(gS, Q, K, by)[i]
        equal(name, seen, _match_back(right_gS, Q, K, 2)[i], causes)

    heads = draw.array(2, 2, 3, 7), draw.array(2, 2, 5, 7), draw.array(2, 2, 5, 6)
    g = draw.array(2, 2, 3, 6)
    _, A = attention(*heads, return_weights=True)
    with in_front():
        parts = each(what, answer(g, *heads, A), *NAMES)
        for name, seen, want in zip(NAMES, parts, attention_backward(g, *heads, A), strict=True):
            own = f"here d_k is 7, and {name} is divided by 2: is it a number of your own?"
            equal(name, seen, want, {own: want * math.sqrt(7) / 2})

    for masked, with_mask in (
        (np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 1, 1, 0]], bool), "with a mask"),
        (causal(5)[[0, 1, 4]], "with a causal mask"),
        (np.array([[1, 1, 1, 0, 0], [0] * 5, [1, 1, 1, 1, 0]], bool), "with a fully masked row"),
    ):
        _, A = attention(Q, K, V, masked, return_weights=True)
        _, anew = attention(Q, K, V, return_weights=True)
        g = draw.array(3, 6)
        try:
            parts = each(what, answer(g, Q, K, V, A), *NAMES)
        except Wrong as wrong:
            raise Wrong(f"{with_mask}: {shorten(str(wrong), 120)}") from None
        rights = attention_backward(g, Q, K, V, A)
        lost = attention_backward(g, Q, K, V, anew)
        for name, seen, want, other in zip(NAMES, parts, rights, lost, strict=True):
            cause = "the weights are made anew from Q and K, and the mask is lost: use A"
            equal(f"{with_mask} {name}", seen, want, {cause: other})
    return [numbers("gQ", gQ)[0, 0], numbers("gK", gK)[0, 0], numbers("gV", gV)[0, 0]]
