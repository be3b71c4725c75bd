"""Chapter 00."""

import math

import numpy as np
import torch
import torch.nn.functional as F


def embed_by_product(ids, table):
    return F.one_hot(ids, len(table)).to(table.dtype) @ table


def embed_in_loops(ids, table):
    if ids.dim() > 1:
        return torch.stack([embed_in_loops(row, table) for row in ids])
    return torch.stack([table[i] for i in ids.tolist()])


def embed_as_list(ids, table):
    def rows(ids):
        return table[ids].tolist() if isinstance(ids, int) else [rows(i) for i in ids]

    return rows(ids.tolist())


def embed_selected(ids, table):
    return table.index_select(0, ids.flatten()).reshape(*ids.shape, -1)


def one_hot(ids, table):
    return F.one_hot(ids, len(table)).float()


def embed_in_place(ids, table):
    ids += 1
    return table[ids - 1]


def shares(logits, axis=-1):
    e = (logits - logits.amax(axis, keepdim=True)).exp()
    return e / e.sum(axis, keepdim=True)


def losses(logits, target):
    rows = torch.arange(len(target))
    largest = logits.amax(-1, keepdim=True)
    log = logits - largest - (logits - largest).exp().sum(-1, keepdim=True).log()
    return -log[rows, target]


def cross_entropy(logits, target):
    return losses(logits, target).mean()


def cross_entropy_in_loops(logits, target):
    total = 0.0
    for row, right in zip(logits.tolist(), target.tolist(), strict=True):
        largest = max(row)
        total += largest + math.log(sum(math.exp(s - largest) for s in row)) - row[right]
    return total / len(target)


def cross_entropy_one_hot(logits, target):
    hot = F.one_hot(target, logits.shape[-1])
    return -(torch.log_softmax(logits.double(), -1) * hot).sum() / len(logits)


def cross_entropy_numpy(logits, target):
    s = logits.numpy().astype(float)
    s = s - s.max(1, keepdims=True)
    return np.mean(np.log(np.exp(s).sum(1)) - s[np.arange(len(s)), target.numpy()])


def cross_entropy_gathered(logits, target):
    right = logits.gather(-1, target[:, None])
    return ((logits - right).logsumexp(-1, keepdim=True)).mean(0)  # shape [1]


def naive(logits, target):
    p = logits.exp() / logits.exp().sum(-1, keepdim=True)
    return -p[torch.arange(len(target)), target].log().mean()


def of_shares(measure):
    """An answer that is safe on large logits, up to what it does with the right word's share."""

    def answer(logits, target):
        return measure(shares(logits)[torch.arange(len(target)), target])

    return answer


def one_maximum(logits, target):
    s = logits - logits.max()
    return (s.exp().sum(-1).log() - s[torch.arange(len(target)), target]).mean()


def slopes(f, w, eps, up=1, down=1, apart=None):
    found = torch.zeros_like(w)
    for i in range(len(w)):
        nudge = torch.zeros_like(w)
        nudge[i] = eps
        found[i] = (f(w + up * nudge) - f(w - down * nudge)) / (apart or (up + down) * eps)
    return found


def descend(f, w, rate, steps, eps, slopes=slopes):
    for _ in range(steps):
        w = w - rate * slopes(f, w, eps)
    return w


def descend_in_place(f, w, rate, steps, eps):
    w = w.clone()
    for _ in range(steps):
        found = []
        for i in range(len(w)):
            w[i] += eps
            up = f(w)
            w[i] -= 2 * eps
            down = f(w)
            w[i] += eps
            found.append(float(up - down) / (2 * eps))
        w -= rate * torch.tensor(found)
    return w


def descend_in_lists(f, w, rate, steps, eps):
    w = w.tolist()
    for _ in range(steps):
        found = []
        for i in range(len(w)):
            up, down = list(w), list(w)
            up[i], down[i] = w[i] + eps, w[i] - eps
            found.append((f(torch.tensor(up)).item() - f(torch.tensor(down)).item()) / eps / 2)
        w = [a - rate * b for a, b in zip(w, found, strict=True)]
    return w


def descend_in_numpy(f, w, rate, steps, eps):
    w = w.numpy().copy()
    for _ in range(steps):
        w -= rate * np.array(
            [
                (f(torch.from_numpy(w + e)) - f(torch.from_numpy(w - e))).item() / (2 * eps)
                for e in eps * np.eye(len(w))
            ]
        )
    return w


def descend_again(f, w, rate, steps, eps):
    """Calls itself; in float32."""
    if steps == 0:
        return w
    return descend_again(f, w.float() - rate * slopes(f, w.float(), eps), rate, steps - 1, eps)


def together(f, w, eps):
    return torch.full_like(w, (f(w + eps) - f(w - eps)) / (2 * eps))


def growing(f, w, eps):
    up, down, found = w.clone(), w.clone(), torch.zeros_like(w)
    for i in range(len(w)):
        up[i] += eps
        down[i] -= eps
        found[i] = (f(up) - f(down)) / (2 * eps)
    return found


def aliased(f, w, rate, steps, eps):
    w = w.clone()
    for _ in range(steps):
        found = torch.zeros_like(w)
        for i in range(len(w)):
            up = down = w
            up[i] += eps
            down[i] -= eps
            found[i] = (f(up) - f(down)) / (2 * eps)
        w = w - rate * found
    return w


def up_and_back(f, w, rate, steps, eps):
    for _ in range(steps):
        found = torch.zeros_like(w)
        w = w.clone()
        for i in range(len(w)):
            up = w
            up[i] += eps
            above = f(up)
            down = w
            down[i] -= eps
            found[i] = (above - f(down)) / (2 * eps)
        w = w - rate * found
    return w


def piled(f, w, rate, steps, eps, keep=False):
    for _ in range(steps):
        moved, found = w.clone(), torch.zeros_like(w)
        for i in range(len(w)):
            moved[i] += eps
            up = f(moved)
            moved[i] -= 2 * eps
            found[i] = (up - f(moved)) / (2 * eps)
        w = (moved if keep else w) - rate * found
    return w


def in_turn(f, w, rate, steps, eps):
    w = w.clone()
    for _ in range(steps):
        for i in range(len(w)):
            w[i] -= rate * slopes(f, w, eps)[i]
    return w


def forward_in_the_callers_array(f, w, rate, steps, eps):
    for _ in range(steps):
        found = torch.zeros_like(w)
        for i in range(len(w)):
            before = f(w)
            w[i] += eps
            found[i] = (f(w) - before) / eps
        w = w - rate * found
    return w


def path(f, w, rate, steps, eps, first=True):
    ws = [w] if first else []
    for _ in range(steps):
        w = descend(f, w, rate, 1, eps)
        ws.append(w)
    return torch.stack(ws)


def by_autograd(f, w, rate, steps, eps):
    for _ in range(steps):
        w = w.detach().requires_grad_()
        w = w - rate * torch.autograd.grad(f(w), w)[0]
    return w


RIGHT = {
    "embed": [
        lambda ids, table: table[ids],
        embed_by_product,
        embed_in_loops,
        embed_as_list,
        embed_selected,
        F.embedding,
        lambda ids, table: table.numpy()[ids.numpy()],
        lambda ids, table: torch.einsum("...v,vd->...d", one_hot(ids, table), table),
    ],
    "cross_entropy": [
        cross_entropy,
        cross_entropy_in_loops,
        cross_entropy_one_hot,
        cross_entropy_numpy,
        cross_entropy_gathered,
        lambda logits, target: (
            logits.logsumexp(-1).mean() - logits[range(len(target)), target].mean()
        ),
        lambda logits, target: torch.diag(-logits.log_softmax(-1)[:, target]).mean(),
    ],
    "descend": [
        descend,
        descend_in_place,
        descend_in_lists,
        descend_in_numpy,
        descend_again,
    ],
}

WRONG = {
    "embed": {
        "columns": (lambda ids, table: table[:, ids], "these are columns"),
        "times the ids": (lambda ids, table: table * ids, "stops with RuntimeError"),
        "rows times the ids": (
            lambda ids, table: table[ids] * ids[..., None],
            "an id is a name, not a quantity",
        ),
        "one-hot only": (one_hot, "one-hot vectors"),
        "one-hot of whole numbers": (
            lambda ids, table: F.one_hot(ids, len(table)) @ table,
            "stops with RuntimeError",
        ),
        "from 1": (lambda ids, table: table[ids - 1], "ids count from 0"),
        "one further": (lambda ids, table: table.roll(-1, 0)[ids], "ids count from 0"),
        "added up": (lambda ids, table: table[ids].sum(-2), "the rows are added up"),
        "mean": (lambda ids, table: table[ids].mean(-2), "the rows are added up or averaged"),
        "one row": (lambda ids, table: table[ids[0]], "or one is picked"),
        "squeezed": (lambda ids, table: table[ids].squeeze(), "an axis of size 1 stays"),
        "each id once": (
            lambda ids, table: table[list(dict.fromkeys(ids.tolist()))],
            "an id that comes twice",
        ),
        "sorted": (lambda ids, table: table[ids.sort().values], "the rows are sorted"),
        "first rows": (lambda ids, table: table[: len(ids)], "the first rows of the table"),
        "whole table": (lambda ids, table: table, "one for each id"),
        "transposed": (lambda ids, table: table[ids].mT, "a token is a row"),
        "scaled": (
            lambda ids, table: table[ids] * table.shape[-1] ** 0.5,
            "multiplied by sqrt(d_model)",
        ),
        "one row again and again": (
            lambda ids, table: table[ids[:1]].expand(len(ids), -1),
            "repeated",
        ),
        "no batch": (
            lambda ids, table: torch.stack([table[int(i)] for i in ids]),
            "ids may have any shape",
        ),
        "batch laid flat": (
            lambda ids, table: table[ids.flatten()],
            "has shape [6, 7], expected [2, 3, 7]",
        ),
        "changes the ids": (embed_in_place, "changes its argument number 1"),
    },
    "cross_entropy": {
        "sum": (lambda *x: losses(*x).sum(), "are added up"),
        "one for each row": (losses, "one loss for each row"),
        "mean of the whole table": (
            lambda logits, target: (
                -(logits.log_softmax(-1) * F.one_hot(target, logits.shape[-1])).mean()
            ),
            "all n * vocab numbers",
        ),
        "no minus": (lambda *x: -cross_entropy(*x), "the minus is missing"),
        "base 2": (lambda *x: cross_entropy(*x) / math.log(2), "base 2"),
        "base 10": (lambda *x: cross_entropy(*x) / math.log(10), "base 10"),
        "softmax twice": (
            lambda logits, target: cross_entropy(shares(logits), target),
            "a softmax already",
        ),
        "no logarithm": (of_shares(lambda p: p.mean()), "its logarithm is missing"),
        "1 minus the share": (of_shares(lambda p: 1 - p.mean()), "1 minus the share"),
        "logarithm of the mean": (of_shares(lambda p: -p.mean().log()), "first the logarithms"),
        "over the columns": (
            lambda logits, target: -shares(logits, 0)[range(len(target)), target].log().mean(),
            "each column's shares",
        ),
        "no softmax": (
            lambda logits, target: -logits[range(len(target)), target].mean(),
            "the logits are used as they are",
        ),
        "no softmax, a logarithm": (
            lambda logits, target: -logits[range(len(target)), target].abs().log().mean(),
            "cross_entropy(logits, target) is",
        ),
        "all targets in all rows": (
            lambda logits, target: -logits.log_softmax(-1)[:, target].mean(),
            "log[:, target]",
        ),
        "all targets in all rows, no mean": (
            lambda logits, target: -logits.log_softmax(-1)[:, target],
            "logits[:, target]",
        ),
        "every word's": (
            lambda logits, target: -logits.log_softmax(-1),
            "a number for each word",
        ),
        "entropy": (
            lambda logits, target: -(shares(logits) * shares(logits).log()).sum(-1).mean(),
            "entropy of the model's",
        ),
        "likeliest word": (
            lambda logits, target: -shares(logits).amax(-1).log().mean(),
            "the likeliest word",
        ),
        "ids from 1": (
            lambda logits, target: cross_entropy(logits, target - 1),
            "the word before the target",
        ),
        "first row": (lambda *x: losses(*x)[0], "the first row only"),
        "last row": (lambda *x: losses(*x)[-1], "the last row only"),
        "maximum taken off the sum alone": (
            lambda logits, target: (
                (logits - logits.amax(-1, keepdim=True)).exp().sum(-1).log()
                - logits[range(len(target)), target]
            ).mean(),
            "the target's logit needs it too",
        ),
        "a string": (lambda *x: str(cross_entropy(*x).item()), "is a string"),
        "overflows": (naive, "subtract each row's largest logit"),
        "one maximum for all": (one_maximum, "of each row, not of all"),
        "logarithm of 0": (of_shares(lambda p: -p.log().mean()), "the share rounds to 0"),
        "clamped": (of_shares(lambda p: -p.clamp(min=1e-9).log().mean()), "clamped"),
        "small number added": (of_shares(lambda p: -(p + 1e-12).log().mean()), "number added"),
        "calls PyTorch's": (F.cross_entropy, "it calls cross_entropy"),
        "calls PyTorch's class": (
            lambda *x: torch.nn.CrossEntropyLoss()(*x),
            "it calls cross_entropy",
        ),
        "calls its second half": (
            lambda logits, target: F.nll_loss(logits.log_softmax(-1), target),
            "it calls nll_loss",
        ),
        "returns nothing": (lambda *x: None, "is there a return"),
    },
    "descend": {
        "uphill": (lambda f, w, rate, *x: descend(f, w, -rate, *x), "goes uphill"),
        "forward": (
            lambda *x: descend(*x, slopes=lambda *y: slopes(*y, down=0)),
            "one way, f(w + eps) - f(w)",
        ),
        "backward": (
            lambda *x: descend(*x, slopes=lambda *y: slopes(*y, up=0)),
            "one way, f(w) - f(w - eps)",
        ),
        "divided by eps": (
            lambda *x: descend(*x, slopes=lambda f, w, eps: slopes(f, w, eps, apart=eps)),
            "2 * eps apart",
        ),
        "not divided": (
            lambda *x: descend(*x, slopes=lambda *y: slopes(*y, apart=1)),
            "not divided by 2 * eps",
        ),
        "brackets missing": (
            lambda *x: descend(*x, slopes=lambda f, w, eps: slopes(f, w, eps, apart=2 / eps)),
            "write / (2 * eps)",
        ),
        "all together": (lambda *x: descend(*x, slopes=together), "nudge one at a time"),
        "nudges grow": (lambda *x: descend(*x, slopes=growing), "clone w anew"),
        "nudges pile up": (piled, "take each one back"),
        "w stays nudged": (lambda *x: piled(*x, keep=True), "w itself stays nudged"),
        "one array for both": (aliased, "w has not moved"),
        "one array, up and back": (up_and_back, "only half of the slope"),
        "too few steps": (
            lambda f, w, rate, steps, eps: descend(f, w, rate, steps - 1, eps),
            "one step too few",
        ),
        "the caller's array": (forward_in_the_callers_array, "changes its argument number 2"),
        "entry by entry": (in_turn, "find all slopes first"),
        "no rate": (lambda f, w, rate, *x: descend(f, w, 1, *x), "the rate is missing"),
        "slopes": (lambda f, w, rate, steps, eps: slopes(f, w, eps), "these are the slopes"),
        "step": (
            lambda f, w, rate, steps, eps: -rate * slopes(f, w, eps),
            "this is the step",
        ),
        "first entry": (
            lambda *x: descend(
                *x, slopes=lambda f, w, eps: slopes(f, w, eps) * torch.tensor([1, 0, 0])
            ),
            "only the first entry",
        ),
        "last entry": (
            lambda *x: descend(
                *x, slopes=lambda f, w, eps: slopes(f, w, eps) * torch.tensor([0, 0, 1])
            ),
            "only the last entry",
        ),
        "one step": (
            lambda f, w, rate, steps, eps: descend(f, w, rate, 1, eps),
            "only one step",
        ),
        "one step too few": (
            lambda f, w, rate, steps, eps: descend(f, w, rate, max(1, steps - 1), eps),
            "one step too few",
        ),
        "no step at all": (lambda f, w, rate, steps, eps: w, "w has not moved"),
        "one step too many": (
            lambda f, w, rate, steps, eps: descend(f, w, rate, steps + (steps > 1), eps),
            "one step too many",
        ),
        "slopes of the start": (
            lambda f, w, rate, steps, eps: w - steps * rate * slopes(f, w, eps),
            "find them anew",
        ),
        "a nudge of its own": (
            lambda f, w, rate, steps, eps: descend(f, w, rate, steps, 1e-4),
            "another than eps",
        ),
        "a small nudge one way": (
            lambda f, w, rate, steps, eps: descend(
                f, w, rate, steps, 1e-5, slopes=lambda *y: slopes(*y, down=0)
            ),
            "another than eps",
        ),
        "calculus": (by_autograd, "another than eps"),
        "whole path": (path, "the whole path"),
        "list of steps": (lambda *x: path(*x, first=False), "a list of steps"),
        "value of f": (lambda f, *x: f(descend(f, *x)), "perhaps f(w)"),
        "f of one entry": (
            lambda f, w, rate, steps, eps: torch.stack(
                [a - rate * (f(a + eps) - f(a - eps)) / (2 * eps) for a in w]
            ),
            "hand over all of w",
        ),
    },
}
