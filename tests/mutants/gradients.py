"""Chapter 10."""

import numpy as np
import torch

from qkv.byhand import check as package
from qkv.byhand.linear import matmul_backward as package_matmul
from qkv.byhand.softmax import softmax
from qkv.byhand.softmax import softmax_backward as package_softmax
from qkv.oracle import by_torch


def mT(x):
    """x.mT of NumPy 2, for NumPy 1 as well."""
    return x.swapaxes(-1, -2)


def matmul_backward(g, A, B):
    return g @ B.swapaxes(-1, -2), A.swapaxes(-1, -2) @ g


def matmul_in_einsum(g, A, B):
    return np.einsum("...nm,...km->...nk", g, B), np.einsum("...nk,...nm->...km", A, g)


def matmul_in_loops(g, A, B):
    if g.ndim > 2:
        return tuple(
            np.array(part)
            for part in zip(*map(matmul_in_loops, g, A, B), strict=True)  # one matrix at a time
        )
    gA, gB = np.zeros_like(A), np.zeros_like(B)
    for i in range(A.shape[0]):
        for j in range(B.shape[1]):
            for m in range(A.shape[1]):
                gA[i, m] += g[i, j] * B[m, j]
                gB[m, j] += g[i, j] * A[i, m]
    return gA, gB


def matmul_in_torch(g, A, B):
    g, A, B = (torch.tensor(x, dtype=torch.float32) for x in (g, A, B))
    return [g @ B.mT, A.mT @ g]


def matmul_transposed(g, A, B):
    turned = g.swapaxes(-1, -2)  # a view, and so are the results
    return (B @ turned).swapaxes(-1, -2), (turned @ A).swapaxes(-1, -2)


def nudged(forward, g, x, eps=1e-5, both=True):
    slopes, x = np.zeros_like(x), x.copy()
    for index in np.ndindex(x.shape):
        kept = x[index]
        x[index] = kept + eps
        above = (forward(x) * g).sum()
        x[index] = kept - eps if both else kept
        below = (forward(x) * g).sum()
        x[index] = kept
        slopes[index] = (above - below) / (2 * eps if both else eps)
    return slopes


def matmul_by_nudging(g, A, B):
    return nudged(lambda A: A @ B, g, A), nudged(lambda B: A @ B, g, B)


def changes_its_input(g, A, B):
    gB = A.swapaxes(-1, -2) @ g
    g *= 1.0
    A += 1
    return g @ B.swapaxes(-1, -2), gB


def summed(x):
    return x.sum(0) if x.ndim > 2 else x


def softmax_backward(g, p, shared=None, axis=-1):
    if shared is None:
        shared = (g * p).sum(axis, keepdims=True)
    return p * (g - shared)


def softmax_by_jacobian(g, p):
    if p.ndim > 1:
        return np.stack([softmax_by_jacobian(*row) for row in zip(g, p, strict=True)])
    return (np.diag(p) - np.outer(p, p)) @ g


def softmax_in_loops(g, p):
    rows_g, rows_p = g.reshape(-1, g.shape[-1]), p.reshape(-1, p.shape[-1])
    gx = np.zeros_like(rows_p)
    for row in range(len(rows_p)):
        for i in range(p.shape[-1]):
            for j in range(p.shape[-1]):
                delta = 1.0 if i == j else 0.0
                gx[row, j] += rows_g[row, i] * rows_p[row, i] * (delta - rows_p[row, j])
    return gx.reshape(p.shape)


def softmax_in_place(g, p):
    gx = g * p
    gx -= p * np.einsum("...i->...", gx)[..., None]
    return gx


def softmax_in_float32(g, p):
    g, p = torch.tensor(g).float(), torch.tensor(p).float()
    return p * (g - torch.linalg.vecdot(g, p).unsqueeze(-1))


def softmax_in_other_axes(g, p):
    gT, pT = np.moveaxis(g, -1, 0), np.moveaxis(p, -1, 0)
    return np.moveaxis(pT * (gT - (gT * pT).sum(0)), 0, -1)


def gradient_check(
    forward,
    backward,
    x,
    g=None,
    eps=1e-5,
    both=True,
    tolerance=1e-4,
    error=lambda claimed, seen: abs(claimed - seen).max() / max(abs(seen).max(), 1e-8),
    shape=True,
):
    y = forward(x)
    if g is None:
        g = np.random.default_rng(0).normal(size=y.shape)
    elif g == "ones":
        g = np.ones(y.shape)
    claimed = backward(g, x)
    if shape and claimed.shape != x.shape:
        return False
    return error(claimed, nudged(forward, g, x, eps, both)) < tolerance


def check_by_allclose(forward, backward, x):
    g = np.random.normal(size=np.shape(forward(x)))  # noqa: NPY002, as a learner would
    claimed, seen = backward(g, x), nudged(forward, g, x)
    return bool(
        claimed.shape == seen.shape
        and np.allclose(claimed, seen, rtol=1e-4, atol=1e-3 * abs(seen).max())
    )


def check_along_lines(forward, backward, x):
    """Along random directions, no entry by itself."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        g, way = rng.normal(size=forward(x).shape), rng.normal(size=x.shape)
        claimed = backward(g, x)
        if claimed.shape != x.shape:
            return 0
        above, below = forward(x + 1e-5 * way), forward(x - 1e-5 * way)
        seen = ((above - below) * g).sum() / 2e-5
        size = np.linalg.norm(claimed) * np.linalg.norm(way)
        if abs((claimed * way).sum() - seen) > 1e-4 * size:
            return 0
    return 1


def check_output_by_output(forward, backward, x):
    """The whole Jacobian: g is one-hot, once for each output."""
    y = forward(x)
    jacobian = np.empty((y.size, x.size))
    for j in range(x.size):
        step = np.zeros(x.size)
        step[j] = 1e-5
        step = step.reshape(x.shape)
        jacobian[:, j] = ((forward(x + step) - forward(x - step)) / 2e-5).ravel()
    size = abs(jacobian).max() or 1.0
    for i in range(y.size):
        g = np.zeros(y.size)
        g[i] = 1
        claimed = backward(g.reshape(y.shape), x)
        if np.shape(claimed) != x.shape or abs(claimed.ravel() - jacobian[i]).max() > 1e-4 * size:
            return np.False_
    return np.True_


def check_entry_by_entry(forward, backward, x):
    """Each entry's error relative to its own size."""
    g = np.random.default_rng(3).uniform(1, 2, np.shape(forward(x)))
    claimed, seen = backward(g, x), nudged(forward, g, x)
    if claimed.shape != seen.shape:
        return False
    return (abs(claimed - seen) / np.maximum(1e-8, abs(claimed) + abs(seen))).max() < 1e-3


def check_in_place(forward, backward, x):
    """The chapter's: x itself is nudged and put back; anything that differs is told by an error."""
    g = np.random.normal(size=forward(x).shape)  # noqa: NPY002
    claimed, slopes = backward(g, x), np.empty_like(x)
    for index in np.ndindex(x.shape):
        kept = x[index]
        x[index] = kept + 1e-4
        above = (forward(x) * g).sum()
        x[index] = kept - 1e-4
        slopes[index] = (above - (forward(x) * g).sum()) / 2e-4
        x[index] = kept
    try:
        assert claimed.shape == x.shape
        size = abs(slopes).max()
        np.testing.assert_allclose(claimed, slopes, rtol=0, atol=1e-3 * size if size else 1e-6)
    except AssertionError:
        return False
    return True


def nearly_put_back(forward, backward, x):
    right = gradient_check(forward, backward, x)
    for index in np.ndindex(x.shape):
        x[index] += 0.3
        x[index] -= 0.3
    return right


def not_put_back(forward, backward, x):
    g = np.random.default_rng(0).normal(size=forward(x).shape)
    claimed, slopes, x = backward(g, x), np.zeros_like(x), x.copy()
    for index in np.ndindex(x.shape):
        x[index] += 1e-3
        above = (forward(x) * g).sum()
        x[index] -= 2e-3
        slopes[index] = (above - (forward(x) * g).sum()) / 2e-3
    return bool(abs(claimed - slopes).max() / max(abs(slopes).max(), 1e-8) < 1e-6)


def check_with(**more):
    return lambda *inputs: gradient_check(*inputs, **more)


RIGHT = {
    "matmul_backward": [
        matmul_backward,
        matmul_in_einsum,
        matmul_in_loops,
        matmul_in_torch,
        matmul_transposed,
        matmul_by_nudging,
    ],
    "softmax_backward": [
        softmax_backward,
        softmax_by_jacobian,
        softmax_in_loops,
        softmax_in_place,
        softmax_in_float32,
        softmax_in_other_axes,
    ],
    "gradient_check": [
        gradient_check,
        check_by_allclose,
        check_along_lines,
        check_output_by_output,
        check_entry_by_entry,
        check_in_place,
        check_with(tolerance=1e-3, eps=1e-4),
    ],
}

WRONG = {
    "matmul_backward": {
        "swapped": (
            lambda g, A, B: matmul_backward(g, A, B)[::-1],
            "gA and gB are exchanged",
        ),
        "gA transposed": (
            lambda g, A, B: (B @ mT(g), mT(A) @ g),
            "gA has shape [4, 3], expected [3, 4]: it stands transposed",
        ),
        "gB transposed": (
            lambda g, A, B: (g @ mT(B), mT(g) @ A),
            "gB has shape [5, 4], expected [4, 5]: it stands transposed",
        ),
        "gB in A's shape": (
            lambda g, A, B: (g @ mT(B), g @ mT(B)),
            "this is the shape of A",
        ),
        "B not transposed": (lambda g, A, B: (g @ B, mT(A) @ g), "B is not transposed"),
        "A not transposed": (lambda g, A, B: (g @ mT(B), A @ g), "A is not transposed"),
        "B^T g": (lambda g, A, B: (mT(B) @ g, mT(A) @ g), "gA is g B^T, not B^T g"),
        "g A^T": (lambda g, A, B: (g @ mT(B), g @ mT(A)), "gB is A^T g, not g A^T"),
        "number by number": (lambda g, A, B: (g * B, A * g), "a matrix product: @, not *"),
        "gB number by number": (lambda g, A, B: (g @ mT(B), A * g), "gB = A^T g is a matrix"),
        "gA without g": (
            lambda g, A, B: matmul_backward(np.ones_like(g), A, B),
            "gA does not use g",
        ),
        "gB without g": (
            lambda g, A, B: (g @ mT(B), mT(A) @ np.ones_like(g)),
            "gB does not use g",
        ),
        "gA a mean": (
            lambda g, A, B: (g @ mT(B) / g.shape[-1], mT(A) @ g),
            "gA is a mean over the columns",
        ),
        "gB a mean": (
            lambda g, A, B: (g @ mT(B), mT(A) @ g / len(A)),
            "gB is a mean over the rows",
        ),
        "gA downhill": (lambda g, A, B: (-g @ mT(B), mT(A) @ g), "gA has the wrong sign"),
        "gB downhill": (lambda g, A, B: (g @ mT(B), -mT(A) @ g), "gB has the wrong sign"),
        "a little off": (
            lambda g, A, B: (g @ mT(B) + 0.01, mT(A) @ g),
            "gA[",
        ),
        "T on a batch": (
            lambda g, A, B: (g @ B.T, A.T @ g),
            "swap the last two axes alone",
        ),
        "T of the result on a batch": (
            lambda g, A, B: ((B @ mT(g)).T if g.ndim < 3 else (B @ mT(g)), mT(A) @ g),
            "on a batch gA has shape",
        ),
        "gA summed over the batch": (
            lambda g, A, B: (summed(g @ mT(B)), mT(A) @ g),
            "do not add up over the batch",
        ),
        "gB summed over the batch": (
            lambda g, A, B: (g @ mT(B), summed(mT(A) @ g)),
            "do not add up over the batch",
        ),
        "an axis too many in a batch's einsum": (
            lambda g, A, B: (np.einsum("nm,km->nk", g, B), np.einsum("nk,nm->km", A, g)),
            "subscripts",
        ),
        "one gradient only": (lambda g, A, B: g @ mT(B), "gives one array, of shape [3, 4], expe"),
        "three": (lambda g, A, B: (g, g @ mT(B), mT(A) @ g), "gives 3 of them, expected 2"),
        "nothing": (lambda g, A, B: None, "is there a return"),
        "changes A": (changes_its_input, "changes its argument number 2"),
        "calls the package's": (package_matmul, "it calls matmul_backward"),
        "lets PyTorch do it": (
            lambda g, A, B: by_torch(torch.matmul, g, A, B),
            "it calls backward",
        ),
        "lets PyTorch do it by function": (
            lambda g, A, B: torch.autograd.grad(
                torch.matmul(
                    *(pair := [torch.tensor(x, requires_grad=True) for x in (A, B)]),
                ),
                pair,
                torch.tensor(g),
            ),
            "it calls grad",
        ),
    },
    "softmax_backward": {
        "no sum": (lambda g, p: p * g, "sum term is missing"),
        "the diagonal": (lambda g, p: p * (1 - p) * g, "only the Jacobian's diagonal"),
        "sum of g": (
            lambda g, p: softmax_backward(g, p, g.sum(-1, keepdims=True)),
            "adds up g alone",
        ),
        "mean of g": (
            lambda g, p: softmax_backward(g, p, g.mean(-1, keepdims=True)),
            "is a mean of g",
        ),
        "mean of g p": (
            lambda g, p: softmax_backward(g, p, (g * p).mean(-1, keepdims=True)),
            "divided by n",
        ),
        "added": (
            lambda g, p: softmax_backward(g, p, -(g * p).sum(-1, keepdims=True)),
            "is added: subtract it",
        ),
        "p not in front of the sum": (
            lambda g, p: p * g - (g * p).sum(-1, keepdims=True),
            "lacks its factor p",
        ),
        "no p in front": (
            lambda g, p: g - (g * p).sum(-1, keepdims=True),
            "factor p in front is missing",
        ),
        "one sum for all": (
            lambda g, p: softmax_backward(g, p, (g * p).sum()),
            "over all rows together",
        ),
        "down the columns": (
            lambda g, p: softmax_backward(g, p, axis=0),
            "runs down the columns",
        ),
        "axis 1": (
            lambda g, p: softmax_backward(g, p, axis=1),
            "axis=-1, not axis=1",
        ),
        "each matrix of a batch": (
            lambda g, p: softmax_backward(
                g, p, (g * p).sum((-2, -1) if p.ndim > 2 else -1, keepdims=True)
            ),
            "over all rows of one matrix",
        ),
        "axis not kept": (
            lambda g, p: p * (g - (g * p).sum(-1)),
            "keepdims=True keeps it",
        ),
        "one row's Jacobian": (
            lambda g, p: (np.diag(p) - np.outer(p, p)) @ g,
            "shapes (3,) (15,15) do not fit; p has rows in front",
        ),
        "one row's Jacobian by eye": (
            lambda g, p: (p[:, None] * (np.eye(len(p)) - p)) @ g,
            "one Jacobian for each row",
        ),
        "a product for the sum": (lambda g, p: p * (g - g @ p.T), "shapes (3,5) (3,3) do not fit"),
        "axis kept in 2-D alone": (
            lambda g, p: p * (g - (g * p).sum(-1)[:, None]),
            "did a sum or mean lose its axis",
        ),
        "one row only": (
            lambda g, p: softmax_backward(g, p, axis=1) if p.ndim < 3 else softmax_backward(g, p),
            "with a single row",
        ),
        "turned round": (lambda g, p: -softmax_backward(g, p), "sign is turned round"),
        "twice": (lambda g, p: 2 * softmax_backward(g, p), "twice too large"),
        "softmax again": (
            lambda g, p: softmax_backward(g, softmax(p)),
            "through softmax again",
        ),
        "exchanged": (lambda g, p: softmax_backward(p, g), "g and p are exchanged"),
        "of the logarithm": (
            lambda g, p: g - p * g.sum(-1, keepdims=True),
            "backward of the logarithm",
        ),
        "forward": (lambda g, p: softmax(p), "forward once more"),
        "the sum alone": (lambda g, p: (g * p).sum(-1), "keep the others"),
        "NaN where p is 0": (
            lambda g, p: softmax_backward(g, p) * p / p,
            "where p holds 0",
        ),
        "changes g": (
            lambda g, p: np.subtract(g, (g * p).sum(-1, keepdims=True), out=g) * p,
            "changes its argument number 1",
        ),
        "calls the package's": (package_softmax, "it calls softmax_backward"),
        "lets PyTorch do it": (
            lambda g, p: by_torch(lambda x: x.softmax(-1), g, np.log(p))[0],
            "it calls backward",
        ),
        "nothing": (lambda g, p: None, "is there a return"),
    },
    "gradient_check": {
        "always True": (lambda *inputs: True, "with the wrong sign for right"),
        "always False": (lambda *inputs: False, "it refuses the right backward of x W"),
        "g is all ones": (check_with(g="ones"), "make g random"),
        "sums alone": (
            check_with(error=lambda claimed, seen: abs(claimed.sum() - seen.sum())),
            "passes",
        ),
        "lengths alone": (
            check_with(
                error=lambda claimed, seen: abs(np.linalg.norm(claimed) - np.linalg.norm(seen))
            ),
            "with the wrong sign for right",
        ),
        "sizes alone": (
            check_with(error=lambda claimed, seen: abs(abs(claimed) - abs(seen)).max()),
            "with the wrong sign for right",
        ),
        "a sign forgotten": (
            check_with(
                error=lambda claimed, seen: (claimed - seen).max() / max(abs(seen).max(), 1e-8)
            ),
            "pass",
        ),
        "the first entry alone": (
            check_with(
                error=lambda claimed, seen: (
                    abs(claimed.flat[0] - seen.flat[0]) / max(abs(seen).max(), 1e-8)
                )
            ),
            "one entry that is off by two per cent passes",
        ),
        "the mean error": (
            check_with(
                tolerance=5e-3,
                error=lambda claimed, seen: abs(claimed - seen).mean() / max(abs(seen).max(), 1e-8),
            ),
            "one entry that is off by two per cent passes",
        ),
        "ten per cent pass": (
            check_with(tolerance=0.1),
            "one entry that is off by two per cent passes",
        ),
        "absolute and strict": (
            check_with(tolerance=1e-8, error=lambda claimed, seen: abs(claimed - seen).max()),
            "it refuses",
        ),
        "absolute": (
            check_with(tolerance=1e-6, error=lambda claimed, seen: abs(claimed - seen).max()),
            "it refuses right slopes of ten million",
        ),
        "absolute and wide": (
            lambda forward, backward, x: gradient_check(
                forward,
                backward,
                x,
                tolerance=1e-3,
                error=lambda claimed, seen: abs(claimed - seen).max() / max(abs(seen).max(), 1.0),
            ),
            "slopes of a ten-millionth",
        ),
        "np.allclose's own atol": (
            lambda forward, backward, x: (
                (g := np.random.default_rng(0).normal(size=forward(x).shape)) is not None
                and backward(g, x).shape == x.shape
                and np.allclose(backward(g, x), nudged(forward, g, x), rtol=1e-3)
            ),
            "slopes of a ten-millionth",
        ),
        "each entry by its own size": (
            check_with(tolerance=0.5, error=lambda c, s: (abs(c - s) > 1e-3 * abs(s)).any()),
            "right slopes of 0 beside large ones",
        ),
        "less than, not divided": (
            check_with(tolerance=0.5, error=lambda c, s: abs(c - s).max() >= 1e-3 * abs(s).max()),
            "do not divide by 0, and use <=",
        ),
        "against the loss": (
            lambda forward, backward, x: gradient_check(
                forward,
                backward,
                x,
                error=lambda claimed, seen: (
                    abs(claimed - seen).max() / max(abs(forward(x)).max(), 1e-8)
                ),
            ),
            "slopes of a ten-millionth",
        ),
        "g's shape for x's": (
            lambda forward, backward, x: (
                forward(x).shape == x.shape and gradient_check(forward, backward, x)
            ),
            "g is as the output",
        ),
        "a nudge too small": (check_with(eps=1e-13), "it refuses"),
        "a nudge too large": (check_with(eps=0.01), "it refuses"),
        "a nudge too large for bends": (
            check_with(eps=1e-3, tolerance=1e-5),
            "nudge less, and both ways",
        ),
        "one way": (check_with(both=False, tolerance=1e-5), "both ways"),
        "0 / 0": (
            check_with(error=lambda claimed, seen: abs(claimed - seen).max() / abs(seen).max()),
            "do not divide by 0",
        ),
        "the shape not looked at": (
            check_with(shape=False),
            "a gradient has the shape of what it belongs to",
        ),
        "not put back": (not_put_back, "it refuses"),
        "put back with rounding": (nearly_put_back, "it changes its argument number 3"),
        "gives an array": (
            lambda forward, backward, x: np.isclose(x, x),
            "gives an array [",
        ),
        "gives a word": (lambda forward, backward, x: "right", "gives 'right', expected True"),
        "gives the error": (
            lambda forward, backward, x: 1e-9,
            "expected True or False",
        ),
        "raises": (
            lambda forward, backward, x: np.testing.assert_allclose(
                backward(forward(x), x), nudged(forward, forward(x), x)
            ),
            "gradient_check is None",
        ),
        "calls the package's": (
            lambda forward, backward, x: bool(
                package.check("it", forward, lambda g: backward(g, x), {"x": x})
            ),
            "it calls central_differences",
        ),
    },
}
