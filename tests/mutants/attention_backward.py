"""Chapter 11."""

import math

import numpy as np
import torch

from qkv import attention as torch_half
from qkv.byhand.attention import attention_backward as package
from qkv.byhand.linear import matmul_backward
from qkv.byhand.softmax import softmax, softmax_backward
from qkv.oracle import by_torch


def mT(x):
    """x.mT of NumPy 2, for NumPy 1 as well."""
    return x.swapaxes(-1, -2)


def roles_backward(gQ, gK, gV, X, W_Q, W_K, W_V, roles=(1, 1, 1), over_batch="sum"):
    ways = [g @ W.T for g, W in ((gQ, W_Q), (gK, W_K), (gV, W_V))]
    gX = sum(share * way for share, way in zip(roles, ways, strict=True))
    gW = [X.swapaxes(-1, -2) @ g for g in (gQ, gK, gV)]  # [..., d_model, d]
    if X.ndim > 2 and over_batch:
        gW = [
            {"sum": W.sum(0), "mean": W.mean(0), "first": W[0], "last": W[-1]}[over_batch]
            for W in gW
        ]
    return gX, *gW


def roles_in_einsum(gQ, gK, gV, X, W_Q, W_K, W_V):
    gX = np.einsum("...a,da->...d", gQ, W_Q)
    gX += np.einsum("...a,da->...d", gK, W_K)
    gX += np.einsum("...a,da->...d", gV, W_V)
    rows = X.reshape(-1, X.shape[-1])
    return [gX, *(np.einsum("nd,na->da", rows, g.reshape(len(rows), -1)) for g in (gQ, gK, gV))]


def roles_side_by_side(gQ, gK, gV, X, W_Q, W_K, W_V):
    """One product for all three: the widths of the roles side by side."""
    g, W = np.concatenate([gQ, gK, gV], -1), np.concatenate([W_Q, W_K, W_V], -1)
    gW = np.tensordot(X, g, axes=(tuple(range(X.ndim - 1)),) * 2)
    a, b = W_Q.shape[1], W_Q.shape[1] + W_K.shape[1]
    return g @ W.T, gW[:, :a], gW[:, a:b], gW[:, b:]


def roles_in_loops(gQ, gK, gV, X, W_Q, W_K, W_V):
    gX, found = np.zeros(X.shape), []
    for g, W in ((gQ, W_Q), (gK, W_K), (gV, W_V)):
        gW = np.zeros(W.shape)
        for place in np.ndindex(X.shape[:-1]):  # token by token
            gX[place] += W @ g[place]
            gW += np.outer(X[place], g[place])
        found.append(gW)
    return gX, *found


def roles_in_torch(*given):
    gQ, gK, gV, X, *W = (torch.tensor(x).float() for x in given)
    gX = sum(g @ w.mT for g, w in zip((gQ, gK, gV), W, strict=True))
    return gX, *(X.flatten(0, -2).mT @ g.flatten(0, -2) for g in (gQ, gK, gV))


def roles_by_product(gQ, gK, gV, X, W_Q, W_K, W_V):
    gX, gW = 0, []
    for g, W in ((gQ, W_Q), (gK, W_K), (gV, W_V)):
        way, slope = matmul_backward(g, X, W)
        gX = gX + way
        gW.append(slope.reshape(-1, *W.shape).sum(0))
    return gX, *gW


def attention_backward(
    g, Q, K, V, A, scale=None, back=softmax_backward, scale_Q=True, scale_K=True, gV=None
):
    gS = back(g @ V.swapaxes(-1, -2), A)
    scale = 1 / math.sqrt(Q.shape[-1]) if scale is None else scale
    gQ, gK = gS @ K, gS.swapaxes(-1, -2) @ Q
    gV = A.swapaxes(-1, -2) @ g if gV is None else gV
    return gQ * (scale if scale_Q else 1), gK * (scale if scale_K else 1), gV


def in_einsum(g, Q, K, V, A):
    gV = np.einsum("...qk,...qv->...kv", A, g)
    gA = np.einsum("...qv,...kv->...qk", g, V)
    gS = A * gA - A * np.einsum("...qk,...qk->...q", A, gA)[..., None]
    gS /= Q.shape[-1] ** 0.5
    return np.einsum("...qk,...kd->...qd", gS, K), np.einsum("...qk,...qd->...kd", gS, Q), gV


def row_by_row(g, Q, K, V, A):
    if Q.ndim > 2:
        together = [row_by_row(*one) for one in zip(g, Q, K, V, A, strict=True)]
        return tuple(np.stack(part) for part in zip(*together, strict=True))
    gQ, gK, gV = (np.zeros_like(x) for x in (Q, K, V))
    for i in range(len(Q)):
        gR = A[i] * (V @ g[i] - g[i] @ (A[i] @ V)) / np.sqrt(Q.shape[1])
        gQ[i] = gR @ K
        gK += np.outer(gR, Q[i])
        gV += np.outer(A[i], g[i])
    return gQ, gK, gV


def with_output(g, Q, K, V, A):
    """The mean price as g times the output; the keys' and queries' scale shared out."""
    root = Q.shape[-1] ** 0.25
    price = (g * (A @ V)).sum(-1, keepdims=True)
    gS = A * (g @ V.swapaxes(-1, -2) - price)
    return (
        gS @ (K / root) / root,
        ((Q / root).swapaxes(-1, -2) @ gS).swapaxes(-1, -2) / root,
        A.swapaxes(-1, -2) @ g,
    )


def in_float32(*given):
    g, Q, K, V, A = (torch.tensor(x).float() for x in given)
    gA = g @ V.mT
    gS = (A * (gA - (gA * A).sum(-1, keepdim=True))) / math.sqrt(Q.shape[-1])
    return [gS @ K, gS.mT @ Q, A.mT @ g]


def by_jacobian(g, Q, K, V, A):
    J = A[..., :, None] * (np.eye(A.shape[-1]) - A[..., None, :])  # [..., n_q, n_kv, n_kv]
    gS = np.einsum("...qv,...iv,...qij->...qj", g, V, J, optimize=True) / np.sqrt(Q.shape[-1])
    gK = (Q.swapaxes(-1, -2) @ gS).swapaxes(-1, -2)
    return gS @ K, gK, np.matmul(A.swapaxes(-1, -2), g)


def without_sum(gA, A):
    return gA * A


def anew(g, Q, K, V, A):
    A = softmax(Q @ K.swapaxes(-1, -2) / math.sqrt(Q.shape[-1]))
    return attention_backward(g, Q, K, V, A)


def divided_again(g, Q, K, V, A):
    """Makes rows of A sum to 1 once more, and a fully masked one to NaN."""
    return attention_backward(g, Q, K, V, A / A.sum(-1, keepdims=True))


def in_2d(g, Q, K, V, A):
    gS = softmax_backward(g @ V.T, A) / Q.shape[-1] ** 0.5
    return gS @ K, gS.T @ Q, A.T @ g


def changes_its_input(g, Q, K, V, A):
    out = attention_backward(g, Q, K, V, A)
    A *= g @ V.swapaxes(-1, -2)
    return out


def scaled(by):
    return lambda g, Q, K, V, A: attention_backward(g, Q, K, V, A, by(Q, K, V))


def through(back, **more):
    return lambda *given: attention_backward(*given, back=back, **more)


def swapped(gX, *gW):
    return gX, gW[1], gW[0], gW[2]


RIGHT = {
    "roles_backward": [
        roles_backward,
        roles_in_einsum,
        roles_side_by_side,
        roles_in_loops,
        roles_in_torch,
        roles_by_product,
    ],
    "attention_backward": [
        attention_backward,
        in_einsum,
        row_by_row,
        with_output,
        in_float32,
        by_jacobian,
    ],
}

WRONG = {
    "roles_backward": {
        "queries alone": (
            lambda *given: roles_backward(*given, roles=(1, 0, 0)),
            "the queries' role alone",
        ),
        "keys alone": (
            lambda *given: roles_backward(*given, roles=(0, 1, 0)),
            "the keys' role alone",
        ),
        "values alone": (
            lambda *given: roles_backward(*given, roles=(0, 0, 1)),
            "the values' role alone",
        ),
        "no queries": (
            lambda *given: roles_backward(*given, roles=(0, 1, 1)),
            "lacks one role of three, the queries'",
        ),
        "no keys": (
            lambda *given: roles_backward(*given, roles=(1, 0, 1)),
            "lacks one role of three, the keys'",
        ),
        "no values": (
            lambda *given: roles_backward(*given, roles=(1, 1, 0)),
            "lacks one role of three, the values'",
        ),
        "keys twice": (
            lambda *given: roles_backward(*given, roles=(1, 2, 1)),
            "the keys' role twice",
        ),
        "keys subtracted": (
            lambda *given: roles_backward(*given, roles=(1, -1, 1)),
            "subtracts the keys' role",
        ),
        "a mean": (
            lambda *given: roles_backward(*given, roles=(1 / 3, 1 / 3, 1 / 3)),
            "a mean of the three roles",
        ),
        "downhill": (
            lambda *given: roles_backward(*given, roles=(-1, -1, -1)),
            "gX has the wrong sign",
        ),
        "W_Q and W_K exchanged": (
            lambda gQ, gK, gV, X, W_Q, W_K, W_V: roles_backward(gQ, gK, gV, X, W_K, W_Q, W_V),
            "have exchanged their W",
        ),
        "side by side": (
            lambda gQ, gK, gV, X, W_Q, W_K, W_V: (
                np.concatenate([gQ @ W_Q.T, gK @ W_K.T, gV @ W_V.T], -1),
                *roles_backward(gQ, gK, gV, X, W_Q, W_K, W_V)[1:],
            ),
            "side by side: they are added",
        ),
        "one upon the other": (
            lambda gQ, gK, gV, X, W_Q, W_K, W_V: (
                np.array([gQ @ W_Q.T, gK @ W_K.T, gV @ W_V.T]),
                *roles_backward(gQ, gK, gV, X, W_Q, W_K, W_V)[1:],
            ),
            "one upon the other: they are added",
        ),
        "W not transposed": (
            lambda gQ, gK, gV, X, W_Q, W_K, W_V: (
                gQ @ W_Q + gK @ W_K + gV @ W_V,
                mT(X) @ gQ,
                mT(X) @ gK,
                mT(X) @ gV,
            ),
            "go back through W^T",
        ),
        "X not transposed": (
            lambda gQ, gK, gV, X, W_Q, W_K, W_V: (
                gQ @ W_Q.T + gK @ W_K.T + gV @ W_V.T,
                X @ gQ,
                X @ gK,
                X @ gV,
            ),
            "X is not transposed",
        ),
        "gW transposed": (
            lambda *given: (
                roles_backward(*given)[0],
                *(gW.T for gW in roles_backward(*given)[1:]),
            ),
            "it stands transposed",
        ),
        "gW_Q and gW_K exchanged": (
            lambda *given: swapped(*roles_backward(*given)),
            "gW_Q is what gW_K should be",
        ),
        "gW a mean over tokens": (
            lambda *given: (
                roles_backward(*given)[0],
                *(gW / given[3].shape[-2] for gW in roles_backward(*given)[1:]),
            ),
            "a mean over the tokens",
        ),
        "gW downhill": (
            lambda *given: (
                roles_backward(*given)[0],
                *(-gW for gW in roles_backward(*given)[1:]),
            ),
            "gW_Q has the wrong sign",
        ),
        "gW row by row": (
            lambda *given: roles_backward(*given, over_batch=None),
            "add up over the batch too",
        ),
        "gW a mean over rows": (
            lambda *given: roles_backward(*given, over_batch="mean"),
            "is a mean over the rows",
        ),
        "gW of the first row": (
            lambda *given: roles_backward(*given, over_batch="first"),
            "has the first row alone",
        ),
        "gW of the last row": (
            lambda *given: roles_backward(*given, over_batch="last"),
            "has the last row alone",
        ),
        "T on a batch": (
            lambda gQ, gK, gV, X, W_Q, W_K, W_V: (
                gQ @ W_Q.T + gK @ W_K.T + gV @ W_V.T,
                X.T @ gQ,
                X.T @ gK,
                X.T @ gV,
            ),
            "flatten it, or add up over the batch",
        ),
        "no batch in einsum": (
            lambda gQ, gK, gV, X, W_Q, W_K, W_V: (
                gQ @ W_Q.T + gK @ W_K.T + gV @ W_V.T,
                *(np.einsum("nd,nk->dk", X, g) for g in (gQ, gK, gV)),
            ),
            "flatten it, or add up over the batch",
        ),
        "gX alone": (
            lambda *given: roles_backward(*given)[0],
            "expected 4: gX, gW_Q, gW_K, gW_V",
        ),
        "nothing": (lambda *given: None, "is there a return"),
        "lets PyTorch do it": (
            lambda gQ, gK, gV, X, *W: by_torch(
                lambda X, *W: torch.cat([X @ w for w in W], -1),
                np.concatenate([gQ, gK, gV], -1),
                X,
                *W,
            ),
            "it calls backward",
        ),
    },
    "attention_backward": {
        "scale forgotten": (scaled(lambda Q, K, V: 1), "scale is forgotten on the way back"),
        "scale forgotten for the keys": (
            lambda *given: attention_backward(*given, scale_K=False),
            "scale is forgotten on the way back",
        ),
        "scale forgotten for the queries": (
            lambda *given: attention_backward(*given, scale_Q=False),
            "scale is forgotten on the way back",
        ),
        "by d_k": (scaled(lambda Q, K, V: 1 / Q.shape[-1]), "gQ is divided by d_k"),
        "multiplied": (scaled(lambda Q, K, V: Q.shape[-1] ** 0.5), "multiplied by sqrt(d_k)"),
        "by sqrt(d_v)": (scaled(lambda Q, K, V: V.shape[-1] ** -0.5), "by sqrt(d_v)"),
        "by sqrt(n_kv)": (scaled(lambda Q, K, V: K.shape[-2] ** -0.5), "by sqrt(n_kv)"),
        "by sqrt(n_q)": (scaled(lambda Q, K, V: Q.shape[-2] ** -0.5), "by sqrt(n_q)"),
        "by 2": (scaled(lambda Q, K, V: 1 / 2), "here d_k is 7, and gQ is divided by 2"),
        "axis not kept": (
            through(lambda gA, A: A * (gA - (gA * A).sum(-1))),
            "keepdims=True keeps it",
        ),
        "gQ alone": (lambda *given: attention_backward(*given)[0], "gives one array, of shape"),
        "downhill": (
            scaled(lambda Q, K, V: -(Q.shape[-1] ** -0.5)),
            "gQ has the wrong sign",
        ),
        "gV scaled": (
            lambda g, Q, K, V, A: attention_backward(
                g, Q, K, V, A, gV=mT(A) @ g / Q.shape[-1] ** 0.5
            ),
            "gV is divided by sqrt(d_k)",
        ),
        "gV a mean": (
            lambda g, Q, K, V, A: attention_backward(g, Q, K, V, A, gV=mT(A) @ g / len(Q)),
            "gV is a mean",
        ),
        "gV downhill": (
            lambda g, Q, K, V, A: attention_backward(g, Q, K, V, A, gV=-mT(A) @ g),
            "gV has the wrong sign",
        ),
        "gV with gS": (
            lambda g, Q, K, V, A: attention_backward(
                g, Q, K, V, A, gV=mT(softmax_backward(g @ mT(V), A)) @ g
            ),
            "gV is made with gS",
        ),
        "gV transposed": (
            lambda g, Q, K, V, A: attention_backward(g, Q, K, V, A, gV=mT(g) @ A),
            "it stands transposed",
        ),
        "A not transposed": (
            lambda g, Q, K, V, A: attention_backward(g, Q, K, V, A, gV=A @ g),
            "A is not transposed",
        ),
        "V not transposed": (
            lambda g, Q, K, V, A: (
                (gS := softmax_backward(g @ V, A) / 2) @ K,
                mT(gS) @ Q,
                mT(A) @ g,
            ),
            "V is not transposed",
        ),
        "no softmax": (through(lambda gA, A: gA), "send it back through the softmax"),
        "no softmax, no scale": (
            through(lambda gA, A: gA, scale=1),
            "send it back through the softmax; and the scale is forgotten",
        ),
        "no sum term": (through(without_sum), "sum term is missing"),
        "no sum term, no scale": (
            through(without_sum, scale=1),
            "sum of g * p); and the scale is forgotten",
        ),
        "the diagonal": (through(lambda gA, A: A * (1 - A) * gA), "only the Jacobian's diagonal"),
        "sum of gA": (
            through(lambda gA, A: A * (gA - gA.sum(-1, keepdims=True))),
            "adds up g alone",
        ),
        "mean of gA": (
            through(lambda gA, A: A * (gA - gA.mean(-1, keepdims=True))),
            "is a mean of g",
        ),
        "mean of gA A": (
            through(lambda gA, A: A * (gA - (gA * A).mean(-1, keepdims=True))),
            "divided by n",
        ),
        "sum term added": (
            through(lambda gA, A: A * (gA + (gA * A).sum(-1, keepdims=True))),
            "is added: subtract it",
        ),
        "no A in front of the sum": (
            through(lambda gA, A: A * gA - (gA * A).sum(-1, keepdims=True)),
            "lacks its factor p",
        ),
        "no A in front": (
            through(lambda gA, A: gA - (gA * A).sum(-1, keepdims=True)),
            "factor p in front is missing",
        ),
        "sum over everything": (
            through(lambda gA, A: A * (gA - (gA * A).sum())),
            "over all rows together",
        ),
        "sum over the queries": (
            through(lambda gA, A: A * (gA - (gA * A).sum(-2, keepdims=True))),
            "runs down the columns",
        ),
        "A and gA exchanged": (through(lambda gA, A: softmax_backward(A, gA)), "are exchanged"),
        "gS not transposed": (
            lambda g, Q, K, V, A: (
                (gS := softmax_backward(g @ mT(V), A) / 2) @ K,
                gS @ Q,
                mT(A) @ g,
            ),
            "gS is not transposed",
        ),
        "gS transposed for gQ": (
            lambda g, Q, K, V, A: (
                mT(gS := softmax_backward(g @ mT(V), A) / 2) @ K,
                mT(gS) @ Q,
                mT(A) @ g,
            ),
            "gS stands transposed there",
        ),
        "gradient of K^T": (
            lambda g, Q, K, V, A: (
                (gS := softmax_backward(g @ mT(V), A) / 2) @ K,
                mT(Q) @ gS,
                mT(A) @ g,
            ),
            "this is the gradient of K^T",
        ),
        "gQ and gK exchanged": (
            lambda *given: (
                (three := attention_backward(*given))[1],
                three[0],
                three[2],
            ),
            "gQ and gK are exchanged",
        ),
        "order V, Q, K": (
            lambda *given: (
                (three := attention_backward(*given))[2],
                three[0],
                three[1],
            ),
            "is it gV?",
        ),
        "T on heads": (in_2d, "swap the last two axes alone"),
        "weights made anew": (anew, "the mask is lost: use A"),
        "NaN in a fully masked row": (divided_again, "with a fully masked row"),
        "changes A": (changes_its_input, "changes its argument number 5"),
        "two of three": (lambda *given: attention_backward(*given)[:2], "expected 3: gQ, gK, gV"),
        "nothing": (lambda *given: None, "is there a return"),
        "calls the package's": (package, "it calls attention_backward"),
        "lets PyTorch do it": (
            lambda g, Q, K, V, A: by_torch(torch_half.attention, g, Q, K, V),
            "it calls backward",
        ),
    },
}
