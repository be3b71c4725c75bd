"""Chapter 00: rows of a table, the cross-entropy, steps downhill."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from qkv.checks.answer import Answer
from qkv.checks.draw import Draw
from qkv.checks.exercise import exercise
from qkv.checks.faults import Wrong, equal, has_shape, holds, likely, numbers

Function = Callable[[Tensor], Tensor]


def embed(ids: Tensor, table: Tensor) -> Tensor:
    """The rows of the table that the ids name."""
    return table[ids]


@exercise("embed", embed)
def try_embed(answer: Answer, draw: Draw) -> Iterable[object]:
    """ids [n] or [B, n], table [vocab, d_model] -> [n, d_model] or [B, n, d_model]."""
    table = draw.tensor(5, 7)
    first, second, third = draw.order(5)[:3]
    ids = torch.tensor([first, second, third, first])
    X = answer(ids, table)
    has_shape(
        "embed(ids, table) of 4 ids",
        X,
        [4, 7],
        {
            "these are columns: table[ids] picks rows": [5, 4],
            "these are one-hot vectors: multiply them with the table": [4, 5],
            "the rows are added up or averaged, or one is picked: each token has its own": [7],
            "an id that comes twice has one row only: each token has its own": [3, 7],
            "each token is a column: a token is a row": [7, 4],
            "this is as many rows as the table has: one for each id": [5, 7],
        },
    )
    equal(
        "embed(ids, table)",
        X,
        table[ids],
        {
            "ids count from 0: these are the rows of the words before": table[ids - 1],
            "ids count from 0: these are the rows of the words after": table[(ids + 1) % 5],
            "these are the first rows of the table, whatever the ids are": table[:4],
            "the rows are multiplied with their ids: an id is a name, not a quantity": (
                table[ids] * ids[:, None]
            ),
            "the rows are multiplied by sqrt(d_model): here they stay as they are": (
                table[ids] * math.sqrt(7)
            ),
            "the rows are sorted: they stand in the order of the ids": table[ids.sort().values],
            "this is the one row of the first id, repeated": table[ids[:1].expand(4)],
        },
    )
    batch = draw.ids(5, 2, 3)
    with likely("ids may have any shape, and each id becomes a row: see table[ids]"):
        equal("embed of a batch, ids [2, 3]", answer(batch, table), table[batch])
    with likely("an axis of size 1 stays"):
        equal("embed of ids [1, 1]", answer(batch[:1, :1], table), table[batch[:1, :1]])
    return numbers("X", X)[0, :3]


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """The mean over the rows of: log of the sum of exponentials, minus the target's logit."""
    right = logits[torch.arange(len(target)), target]
    return (logits.logsumexp(-1) - right).mean()


@exercise("cross_entropy", cross_entropy, never=("cross_entropy", "cross_entropy_loss", "nll_loss"))
def try_cross_entropy(answer: Answer, draw: Draw) -> Iterable[object]:
    """logits [n, vocab], target [n] -> the mean loss, a scalar."""
    logits, rows = 2 * draw.tensor(4, 7), torch.arange(4)
    target = torch.tensor(draw.order(6)[:4])
    p = logits.softmax(-1)
    log, right = p.log(), p[rows, target]
    loss = scalar(
        "cross_entropy(logits, target)",
        answer(logits, target),
        {
            "this is one loss for each row: take their mean": [4],
            "logits[:, target] takes all targets' columns in every row: take one number of "
            "each row": [4, 4],
            "this is a number for each word: pick the target's": [4, 7],
        },
    )
    equal(
        "cross_entropy(logits, target)",
        loss,
        cross_entropy(logits, target),
        {
            "the losses of the rows are added up: take their mean": -right.log().sum(),
            "the mean runs over all n * vocab numbers: take one loss of each row, then the "
            "mean of n": -right.log().sum() / 28,
            "the minus is missing: a loss is not negative": right.log().mean(),
            "the logarithm has the base 2: take log, the natural one": -right.log2().mean(),
            "the logarithm has the base 10: take log, the natural one": -right.log10().mean(),
            "a softmax is taken of what is a softmax already: once is enough": (
                cross_entropy(p, target)
            ),
            "this is the mean share of the right words: its logarithm is missing": right.mean(),
            "this is 1 minus the share: take minus its logarithm": 1 - right.mean(),
            "this is the logarithm of the mean share: first the logarithms, then the mean": (
                -right.mean().log()
            ),
            "each column's shares sum to 1, not each row's: the softmax is over the words, "
            "dim=-1": -(logits.softmax(0)[rows, target]).log().mean(),
            "the logits are used as they are: the softmax is missing": (
                -logits[rows, target].mean()
            ),
            "log[:, target] takes all targets' columns in every row: take one number of each "
            "row": -log[:, target].mean(),
            "the largest logit is subtracted in the sum alone: the target's logit needs it too": (
                (logits.exp().sum(-1).log() - logits.amax(-1) - logits[rows, target]).mean()
            ),
            "this is the entropy of the model's shares: look at the share of the target only": (
                -(p * log).sum(-1).mean()
            ),
            "this looks at the likeliest word: take the share of the target": (
                -log.amax(-1).mean()
            ),
            "ids count from 0: this looks at the word before the target": (
                cross_entropy(logits, (target - 1) % 7)
            ),
            "this is the loss of the first row only: take the mean over all": -right.log()[0],
            "this is the loss of the last row only: take the mean over all": -right.log()[-1],
        },
        tolerance=3e-5,  # so narrow that two faults seldom give the same number
    )
    large = scalar("cross_entropy(logits + 1000, target)", answer(logits + 1000, target))
    holds(
        math.isfinite(large),
        "cross_entropy(logits + 1000, target) overflows: subtract each row's largest logit "
        "before exp",
    )
    equal("cross_entropy(logits + 1000, target)", large, loss, tolerance=5e-3)
    low = logits.clone()
    low[1] -= 1000
    with likely("subtract the largest logit of each row, not of all"):
        seen = scalar("cross_entropy with one row of logits 1000 lower", answer(low, target))
        equal("cross_entropy with one row of logits 1000 lower", seen, loss, tolerance=5e-3)
    wrong = logits.clone()
    wrong[0, target[0]] = -1000  # the right word's share rounds to 0
    cost = cross_entropy(wrong, target).item()
    seen = scalar("cross_entropy where a right word's logit is -1000", answer(wrong, target))
    holds(
        math.isfinite(seen),
        f"where a right word's logit is -1000 the loss is {seen}, expected {cost:.1f}: the share "
        "rounds to 0, so find its logarithm without it",
    )
    holds(
        seen > 0.99 * cost,
        f"where a right word's logit is -1000 the loss is {seen:.1f}, expected {cost:.1f}: a share "
        "that is clamped, or has a small number added, hides how wrong the guess is",
    )
    equal("the loss where a right word's logit is -1000", seen, cost)
    return [loss]


def scalar(what: str, value: object, causes: dict[str, list[int]] | None = None) -> float:
    """A single number, whether in no axis or in axes of size 1."""
    holds(not isinstance(value, str), f"{what} is a string, expected a number")
    found = numbers(what, value)
    if found.size != 1:
        has_shape(what, value, [], causes)
    return float(found.reshape(()))


def nudged(f: Function, w: Tensor, eps: float) -> Tensor:
    """The slope along each entry, by a central difference."""
    steps = eps * torch.eye(len(w), dtype=w.dtype)
    return torch.stack([(f(w + step) - f(w - step)) / (2 * eps) for step in steps])


def descend(f: Function, w: Tensor, rate: float, steps: int, eps: float) -> Tensor:
    """Steps against the slope, all entries at once."""
    for _ in range(steps):
        w = w - rate * nudged(f, w, eps)
    return w


@exercise("descend", descend)
def try_descend(answer: Answer, draw: Draw) -> Iterable[object]:
    """f: [n] -> a number, w [n], rate, steps, eps -> w [n] after the steps."""
    A, bottom = torch.tensor(draw.array(3, 3)), torch.tensor(draw.array(3))
    bend = A @ A.T / 3 + torch.diag(torch.tensor([1.0, 2.0, 3.0]))  # the entries are coupled
    w = bottom + 2 + torch.tensor(draw.array(3)).abs()
    rate, eps = 0.1, 0.3

    def valley(w: Tensor) -> Tensor:
        away = _point(w) - bottom
        return away @ bend @ away / 2

    _one_step(answer, valley, w, rate, eps)
    end = descend(valley, w, rate, 4, eps)
    equal(
        "descend after 4 steps",
        found := answer(valley, w, rate, 4, eps),
        end,
        {
            "steps is 4, and only one step is taken": descend(valley, w, rate, 1, eps),
            "one step too few is taken": descend(valley, w, rate, 3, eps),
            "one step too many is taken": descend(valley, w, rate, 5, eps),
            "the slopes at the start are used in every step: find them anew where w is now": (
                w - 4 * rate * nudged(valley, w, eps)
            ),
        },
    )

    def steep(w: Tensor) -> Tensor:
        return (_point(w) ** 3).sum()

    equal(
        "descend where the slope itself bends",
        answer(steep, w, rate, 1, eps),
        descend(steep, w, rate, 1, eps),
        {"the nudge is another than eps: f(w + eps) and f(w - eps)": w - rate * 3 * w**2},
    )
    return numbers("w", found)


def _one_step(answer: Answer, f: Function, w: Tensor, rate: float, eps: float) -> None:
    slopes, nudges = nudged(f, w, eps), eps * torch.eye(3, dtype=w.dtype)
    forward = torch.stack([f(w + nudge) - f(w) for nudge in nudges]) / eps
    backward = torch.stack([f(w) - f(w - nudge) for nudge in nudges]) / eps
    piled = torch.stack([nudged(f, w - nudges[:i].sum(0), eps)[i] for i in range(3)])
    growing = torch.stack([f(w + n) - f(w - n) for n in nudges.cumsum(0)]) / (2 * eps)
    in_turn = w
    for i in range(3):
        in_turn = in_turn - rate * nudged(f, in_turn, eps) * nudges[i] / eps
    together = (f(w + eps) - f(w - eps)) / (2 * eps)
    found = answer(f, w, rate, 1, eps)
    has_shape(
        "descend(f, w, rate, 1, eps) with w [3]",
        found,
        [3],
        {
            "this is the whole path: give w after the last step": [2, 3],
            "this is a list of steps: give w after the last one": [1, 3],
            "this is one number, perhaps f(w): give w": [],
        },
    )
    only = nudges / eps  # a row for each entry: a 1 at its own place

    def moves_later() -> Tensor:
        later = torch.as_tensor(numbers("w", answer(f, w, rate, 2, eps)))
        return w * math.nan if torch.equal(later, w) else w

    equal(
        "descend after 1 step",
        found,
        w - rate * slopes,
        {
            "this goes uphill: subtract rate times slope": w + rate * slopes,
            "one step too few is taken: with steps = 1 w has not moved": moves_later,
            "w has not moved: are w + eps and w - eps one array? Nudge a copy, w.clone()": w,
            "this nudges one way, f(w + eps) - f(w): nudge both ways": w - rate * forward,
            "this nudges one way, f(w) - f(w - eps): nudge both ways": w - rate * backward,
            "only half of the slope is there: are up and down one array? Nudge w.clone() twice": (
                w - rate * forward / 2
            ),
            "the two nudges lie 2 * eps apart: divide by that, not by eps": w - 2 * rate * slopes,
            "the difference is not divided by 2 * eps": w - 2 * eps * rate * slopes,
            "/ 2 * eps divides by 2, then multiplies by eps: write / (2 * eps)": (
                w - eps**2 * rate * slopes
            ),
            "all entries of w are nudged together: nudge one at a time": w - rate * together,
            "the nudges pile up: take each one back before the next": w - rate * piled,
            "the nudges pile up: clone w anew for each entry": w - rate * growing,
            "w itself stays nudged: take each nudge back": w - eps - rate * piled,
            "w moves entry by entry: find all slopes first, then take the step": in_turn,
            "the rate is missing: a step is rate times slope": w - slopes,
            "these are the slopes: give w after the step": slopes,
            "this is the step: give w after it": -rate * slopes,
            "only the first entry of w moves: each has its own slope": w - rate * slopes * only[0],
            "only the last entry of w moves: each has its own slope": w - rate * slopes * only[2],
        },
        tolerance=1e-4,
    )


def _point(w: object) -> Tensor:
    """What f is asked about: all of w."""
    point = torch.as_tensor(w, dtype=torch.float64)
    if point.shape != (3,):
        raise Wrong(
            f"f is called with shape {list(point.shape)}, expected [3]: nudge one entry, and hand "
            "over all of w"
        )
    return point
