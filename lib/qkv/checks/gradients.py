"""Chapter 10: the backward of a product and of the softmax, and a judge for any backward."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
import torch

from qkv.byhand.check import central_differences
from qkv.byhand.linear import matmul_backward
from qkv.byhand.softmax import softmax, softmax_backward
from qkv.checks.answer import Answer
from qkv.checks.draw import Draw
from qkv.checks.exercise import exercise
from qkv.checks.faults import Numbers, Wrong, equal, has_shape, holds, kind, numbers
from qkv.checks.verdicts import verdicts

# What finds gradients by itself: PyTorch's autograd under its names, a layer's own backward.
AUTOGRAD = ("backward", "grad", "run_backward")


def each(what: str, value: object, *names: str) -> tuple[Any, ...]:
    """The parts of an answer that gives several arrays; refuse another number of them."""
    if value is None:
        raise Wrong(f"{what} is None: is there a return at the end?")
    parts, seen = None, kind(value)
    if isinstance(value, tuple | list):
        parts, seen = value, f"{len(value)} of them"
    elif isinstance(value, np.ndarray | torch.Tensor) and len(value.shape):
        seen = f"one array, of shape {list(value.shape)}"
        if len(value.shape) != 2 and len(value) == len(names):  # a matrix is one gradient
            parts = list(value)  # gradients of one shape, stacked
    if parts is None or len(parts) != len(names):
        raise Wrong(f"{what} gives {seen}, expected {len(names)}: {', '.join(names)}")
    return tuple(parts)


@contextmanager
def in_front(cause: str = "") -> Iterator[None]:
    """For what goes wrong only with more axes in front, as a batch or heads give."""
    try:
        yield
    except Wrong as wrong:
        words = str(wrong)
        if not cause and (".T" in words or "transpose(" in words):  # in the line that is told
            cause = "swap the last two axes alone: swapaxes(-1, -2)"
        words = shorten(words, 70 if cause else 110)
        raise Wrong(f"on a batch: {words}{': ' + cause if cause else ''}") from None


@contextmanager
def axis_kept(otherwise: str = "") -> Iterator[None]:
    """For a sum or a mean along each row, which must keep its axis."""
    try:
        yield
    except Wrong as wrong:
        words, _, line = str(wrong).partition("; the line is ")
        found = words.partition("broadcast together with shapes ")[2]
        one, *more = (tuple(map(int, re.findall(r"\d+", shape))) for shape in found.split(" "))
        pairs = [(one, more[0]), (more[0], one)] if more else []
        lost = any(
            tuple(n for n in short if n > 1) == long[:i] + long[i + 1 :]
            for short, long in pairs
            for i in range(len(long))
        )
        if not (lost or otherwise and "ValueError" in words):
            raise
        why = "did a sum or mean lose its axis? keepdims=True keeps it" if lost else otherwise
        told = f"; {shorten(line, 60)}" if line else ""
        fit = f"shapes {found} do not fit" if found else shorten(words.partition(": ")[2], 60)
        raise Wrong(f"it stops with ValueError: {fit}; {why}{told}") from None


def or_named(call: Callable[[], Any], when_alike: Callable[[], None]) -> Any:
    """What call gives; where shapes do not fit, look for the cause with all sizes alike."""
    try:
        return call()
    except Wrong as wrong:
        if "it stops with" in str(wrong) and "keepdims" not in str(wrong):
            when_alike()
        raise


@exercise("matmul_backward", matmul_backward, never=("matmul_backward", *AUTOGRAD))
def try_matmul_backward(answer: Answer, draw: Draw) -> Iterable[object]:
    """g [..., n, m], A [..., n, k], B [..., k, m] -> gA [..., n, k], gB [..., k, m]."""
    what, names = "matmul_backward(g, A, B)", ("gA", "gB")

    def when_alike() -> None:
        g, A, B = draw.array(4, 4), draw.array(4, 4), draw.array(4, 4)
        gA, gB = each(what, answer(g, A, B), *names)
        transpose = "gA = g B^T: B is not transposed"
        turned, number = "gA is g B^T, not B^T g", "gA = g B^T is a matrix product: @, not *"
        equal("gA", gA, g @ B.T, {transpose: g @ B, turned: B.T @ g, number: g * B})
        transpose = "gB = A^T g: A is not transposed"
        turned, number = "gB is A^T g, not g A^T", "gB = A^T g is a matrix product: @, not *"
        equal("gB", gB, A.T @ g, {transpose: A @ g, turned: g @ A.T, number: A * g})

    A, B, g = draw.array(3, 4), draw.array(4, 5), draw.array(3, 5)
    gA, gB = each(what, or_named(lambda: answer(g, A, B), when_alike), *names)
    stands = "it stands transposed, and a gradient has the shape of what it belongs to"
    has_shape("gA", gA, [3, 4], {stands: [4, 3], "gA and gB are exchanged": [4, 5]})
    has_shape("gB", gB, [4, 5], {stands: [5, 4], "this is the shape of A": [3, 4]})
    ones = np.ones_like(g)
    equal(
        "gA",
        gA,
        g @ B.T,
        {
            "gA does not use g: multiply what comes from above, g, with B^T": ones @ B.T,
            "gA is a mean over the columns: add up": g @ B.T / 5,
            "gA has the wrong sign": -g @ B.T,
        },
    )
    equal(
        "gB",
        gB,
        A.T @ g,
        {
            "gB does not use g: multiply A^T with what comes from above, g": A.T @ ones,
            "gB is a mean over the rows: add up": A.T @ g / 3,
            "gB has the wrong sign": -A.T @ g,
        },
    )
    A, B, g = draw.array(2, 3, 4), draw.array(2, 4, 5), draw.array(2, 3, 5)
    with in_front():
        right_gA, right_gB = matmul_backward(g, A, B)
        batch_gA, batch_gB = each(what, answer(g, A, B), *names)
    own = "each matrix of the batch has a gradient of its own: do not add up over the batch"
    has_shape("on a batch gA", batch_gA, [2, 3, 4], {own: [3, 4]})
    has_shape("on a batch gB", batch_gB, [2, 4, 5], {own: [4, 5]})
    with in_front():
        equal("gA", batch_gA, right_gA)
        equal("gB", batch_gB, right_gB)
    return [numbers("gA", gA)[0, 0], *numbers("gB", gB)[0, :2]]


def _row_sum(x: Numbers) -> Numbers:
    total: Numbers = x.sum(-1, keepdims=True)
    return total


def softmax_faults(g: Numbers, p: Numbers) -> dict[str, Numbers]:
    """What a softmax's backward gives with one fault: also the middle of attention's backward."""
    shared = _row_sum(g * p)
    return {
        "the softmax's sum term is missing: p * (g - sum of g * p)": p * g,
        "only the Jacobian's diagonal is there: each score moves the other shares too": (
            p * (1 - p) * g
        ),
        "the softmax's sum term adds up g alone: add up g * p": p * (g - _row_sum(g)),
        "the softmax's sum term is a mean of g: add up g * p": (
            p * (g - g.mean(-1, keepdims=True))
        ),
        "the softmax's sum term is divided by n: add up, without a mean": (
            p * (g - shared / p.shape[-1])
        ),
        "the softmax's sum term is added: subtract it": p * (g + shared),
        "the softmax's sum term lacks its factor p: p is in front of both": p * g - shared,
        "the softmax's factor p in front is missing": g - shared,
        "the softmax's sum runs over all rows together: over each row, axis=-1": (
            p * (g - (g * p).sum())
        ),
        "the softmax's sum runs down the columns: along each row, axis=-1": (
            p * (g - (g * p).sum(-2, keepdims=True) if p.ndim > 1 else g)
        ),
    }


@exercise("softmax_backward", softmax_backward, never=("softmax_backward", *AUTOGRAD))
def try_softmax_backward(answer: Answer, draw: Draw) -> Iterable[object]:
    """g, p [..., n] -> [..., n]."""
    g, p = 3 * draw.array(3, 5), softmax(draw.array(3, 5))
    with axis_kept("p has rows in front: is there one Jacobian for each row?"):
        gx = answer(g, p)
    has_shape("softmax_backward(g, p)", gx, [3, 5], {"one number a row: keep the others": [3]})
    right = softmax_backward(g, p)
    equal(
        "softmax_backward(g, p)",
        gx,
        right,
        softmax_faults(g, p)
        | {
            "the sign is turned round": -right,
            "it is twice too large": 2 * right,
            "p goes through softmax again: p holds the weights already": (
                softmax_backward(g, softmax(p))
            ),
            "g and p are exchanged": g * (p - _row_sum(g * p)),
            "this is the backward of the logarithm of the softmax": g - p * _row_sum(g),
            "this is the forward once more": softmax(p),
        },
    )
    batch_g, batch_p = 3 * draw.array(2, 3, 5), softmax(draw.array(2, 3, 5))
    right = softmax_backward(batch_g, batch_p)
    wrong_axis = "with a batch in front the sum runs over the wrong axis: axis=-1, not axis=1"
    try:
        with axis_kept():
            batch = answer(batch_g, batch_p)
        has_shape("softmax_backward(g, p) of a batch", batch, [2, 3, 5])
    except Wrong as wrong:
        raise Wrong(f"on a batch [2, 3, 5]: {shorten(str(wrong), 140)}") from None
    equal(
        "softmax_backward(g, p) of a batch",
        batch,
        right,
        {
            wrong_axis: batch_p * (batch_g - (batch_g * batch_p).sum(1, keepdims=True)),
            "the sum runs over all rows of one matrix: over each row, axis=-1": (
                batch_p * (batch_g - (batch_g * batch_p).sum((-2, -1), keepdims=True))
            ),
        },
    )
    one_g, one_p = np.array([1.0, 0.0, 0.0]), softmax(np.array([0.0, 1.0, 2.0]))
    try:
        one = answer(one_g, one_p)
        equal("softmax_backward of one row [3]", one, softmax_backward(one_g, one_p))
    except Wrong as wrong:
        raise Wrong(f"with a single row [3]: {shorten(str(wrong), 80)}: use axis=-1") from None
    hidden = np.array([[True, False, True, True, False], [False] * 5, [True] * 5])
    masked = softmax(np.where(hidden, draw.array(3, 5), -np.inf))
    equal(
        "softmax_backward where p holds 0, as a mask makes it,",
        answer(g, masked),
        softmax_backward(g, masked),
    )
    return numbers("gx", gx)[0, :3]


class Case(NamedTuple):
    """A forward with a backward(g, x) that is right or wrong, and what a misjudgement means."""

    forward: Callable[[Numbers], Numbers]
    backward: Callable[[Numbers, Numbers], Numbers]
    x: Numbers
    right: bool
    misjudged: str


def gradient_check(
    forward: Callable[[Numbers], Numbers],
    backward: Callable[[Numbers, Numbers], Numbers],
    x: Numbers,
) -> bool:
    """The package's nudging as a judge, with the error measured against the largest slope."""
    g = np.random.default_rng(0).normal(size=forward(x).shape)
    claimed = backward(g, x)
    seen = central_differences(lambda: float((forward(x) * g).sum()), x)
    if claimed.shape != x.shape:
        return False
    return bool(abs(claimed - seen).max() <= 1e-4 * abs(seen).max())


def nearly_right(off: float) -> Callable[[Numbers, Numbers], Numbers]:
    """The backward of x + sin(x) / 10, with the last entry off by a share of the largest."""

    def backward(g: Numbers, x: Numbers) -> Numbers:
        gx: Numbers = g * (1 + 0.1 * np.cos(x))
        gx[-1, -1] += off * abs(gx).max()  # whatever g is, this shows
        return gx

    return backward


def cases(draw: Draw) -> Iterator[Case]:
    """From what each judge must see to what trips up a careless one."""
    x, W = draw.array(2, 3), draw.array(3, 3) + 2 * np.eye(3)
    scores = softmax(draw.array(2, 4))
    y = np.log(scores)  # [2, 4]

    def product(x: Numbers) -> Numbers:
        return x @ W

    yield Case(product, lambda g, x: g @ W.T, x, True, "it refuses the right backward of x W")
    yield Case(
        product,
        lambda g, x: -g @ W.T,
        x,
        False,
        "it takes slopes with the wrong sign for right: compare the slopes, not their size",
    )
    yield Case(
        product,
        lambda g, x: g @ W,
        x,
        False,
        "it takes g W, with W not transposed, for right: compare each entry",
    )
    yield Case(
        lambda x: x.sum(-1),
        lambda g, x: np.repeat(g[:, None], 3, -1),
        draw.array(5, 3),
        True,
        "it refuses a right backward whose output has another shape than x: g is as the output",
    )
    yield Case(
        lambda x: x.sum(-1),
        lambda g, x: np.repeat(g[::-1, None], 3, -1),
        draw.array(5, 3),
        False,
        "a backward that mixes up the entries of g passes: make g random, with ones this is unseen",
    )
    yield Case(
        softmax,
        lambda g, x: softmax_backward(g, softmax(x)),
        y,
        True,
        "it refuses the right backward of softmax",
    )
    yield Case(
        softmax,
        lambda g, x: g * softmax(x),
        y,
        False,
        "it takes softmax's backward without the sum term for right",
    )
    for off in (0.02, -0.02):
        yield Case(
            lambda x: x + 0.1 * np.sin(x),
            nearly_right(off),
            x,
            False,
            "one entry that is off by two per cent passes: look at each entry, and more closely",
        )
    yield Case(
        lambda x: 1e7 * np.tanh(x),
        lambda g, x: 1e7 * g * (1 - np.tanh(x) ** 2),
        x,
        True,
        "it refuses right slopes of ten million: measure errors against the largest slope",
    )
    yield Case(
        lambda x: 3 + 1e-7 * np.sin(x),  # so small that np.allclose's atol of 1e-8 hides the error
        lambda g, x: 1.02e-7 * g * np.cos(x),
        x,
        False,
        "slopes of a ten-millionth, off by two per cent, pass: measure errors against the largest",
    )
    yield Case(
        lambda x: np.sin(30 * x),
        lambda g, x: 30 * g * np.cos(30 * x),
        x,
        True,
        "it refuses a right backward where the forward bends: nudge less, and both ways",
    )
    yield Case(
        lambda x: np.maximum(x, 0),
        lambda g, x: g * (x > 0),
        -1 - abs(x),
        True,
        "it refuses a right backward whose slopes are all 0: do not divide by 0, and use <=",
    )
    first = np.array([True, False, False])
    yield Case(
        lambda x: np.where(first, 1e-6 * x**3, x),  # nudging sees 1e-16 where the slope is 0
        lambda g, x: g * np.where(first, 3e-6 * x**2, 1),
        np.zeros((2, 3)),
        True,
        "it refuses right slopes of 0 beside large ones: measure errors against the largest",
    )
    yield Case(
        lambda b: x + b,
        lambda g, b: g.sum(0, keepdims=True),
        draw.array(3),
        False,
        "slopes [1, 3] of an input [3] pass: a gradient has the shape of what it belongs to",
    )


@exercise("gradient_check", gradient_check, never=("central_differences",))
def try_gradient_check(answer: Answer, draw: Draw) -> Iterable[object]:
    """forward(x) -> y, backward(g, x) -> gx, x -> whether backward is right."""

    def asked(case: Case) -> bool:
        said = answer(case.forward, case.backward, case.x)
        shown = f"an array {list(np.shape(said))}" if np.ndim(said) else shorten(repr(said), 40)
        holds(
            not isinstance(said, str)
            and np.size(numbers("gradient_check", said)) == 1
            and float(np.asarray(said)) in (0, 1),
            f"gradient_check gives {shown}, expected True or False",
        )
        holds(bool(said) == case.right, case.misjudged)
        return bool(said)

    return draw.weighed(verdicts(draw, [partial(asked, case) for case in cases(draw)]))
