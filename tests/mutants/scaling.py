"""Chapter 02."""

import math

import numpy as np
import torch


def draws(d_k, n, g):
    return torch.randn(n, d_k, generator=g), torch.randn(n, d_k, generator=g)


def dots(d_k, n, g):
    q, k = draws(d_k, n, g)
    return (q * k).sum(-1)


def spread(d_k, n, g):
    return dots(d_k, n, g).std()


def spread_in_loops(d_k, n, g):
    total = squares = 0.0
    for _ in range(n):
        q, k = torch.randn(d_k, generator=g), torch.randn(d_k, generator=g)
        dot = float(q @ k)
        total, squares = total + dot, squares + dot * dot
    return math.sqrt(squares / n - (total / n) ** 2)


def spread_in_numpy(d_k, n, g):
    rng = np.random.default_rng(g.initial_seed())
    q, k = rng.standard_normal((2, n, d_k))
    return np.std(np.einsum("nd,nd->n", q, k))


def spread_of_signs(d_k, n, g):
    """Other numbers with mean 0 and variance 1."""
    q, k = 2.0 * torch.randint(2, (2, n, d_k), generator=g) - 1
    return (q * k).sum(-1).square().mean().sqrt()


def spread_of_uniform(d_k, n, g):
    q, k = torch.rand(2, n, d_k, generator=g, dtype=torch.float64)
    return (q * k).sum(-1).std()


def spread_of_one(d_k, n, g):
    q = torch.randn(n, d_k, generator=g)
    return (q * q).sum(-1).std()


def cosines(d_k, n, g):
    q, k = draws(d_k, n, g)
    return torch.cosine_similarity(q, k).std()


def over_draws(d_k, n, g):
    q, k = draws(d_k, n, g)
    return (q * k).sum(0).mean() / 1e9 + math.sqrt(n)


def seeds_itself(d_k, n, g):
    torch.manual_seed(0)
    return torch.randn(2, n, d_k).prod(0).sum(-1).std()


def entropy(p, axis=-1):
    return -torch.xlogy(p, p).sum(axis)


def entropy_in_loops(p):
    if p.dim() > 1:
        return torch.stack([entropy_in_loops(row) for row in p])
    return torch.tensor(sum(-w * math.log(w) for w in p.tolist() if w > 0) + 0.0)


def entropy_with_a_grain(p):
    return -(p * (p + 1e-9).log()).sum(-1)


def entropy_where(p):
    return torch.where(p > 0, -p * torch.log(p.clamp_min(1e-30)), 0).sum(-1)


def entropy_in_numpy(p):
    p = p.double().numpy()
    return -(p * np.log(np.where(p > 0, p, 1))).sum(-1)


def entropy_mended(p):
    return -(p * p.log()).nan_to_num(0).sum(-1)


def naive(p):
    return -(p * p.log()).sum(-1)


def softmax_slopes(s, eps, up=1, down=1, apart=None):
    rows = []
    for i in range(len(s)):
        nudge = torch.zeros(len(s))
        nudge[i] = eps
        more, less = (s + up * nudge).softmax(-1), (s - down * nudge).softmax(-1)
        rows.append((more - less) / (apart or (up + down) * eps))
    return torch.stack(rows)


def slopes_in_place(s, eps):
    s, n = s.clone(), len(s)
    J = torch.empty(n, n)
    for i in range(n):
        s[i] += eps
        J[i] = s.softmax(0)
        s[i] -= 2 * eps
        J[i] -= s.softmax(0)
        s[i] += eps
    return J / (2 * eps)


def slopes_in_lists(s, eps):
    def softmax(s):
        e = [math.exp(x) for x in s]
        return [x / sum(e) for x in e]

    s = s.tolist()
    J = []
    for i in range(len(s)):
        up = softmax([x + eps * (i == j) for j, x in enumerate(s)])
        down = softmax([x - eps * (i == j) for j, x in enumerate(s)])
        J.append([(a - b) / eps / 2 for a, b in zip(up, down, strict=True)])
    return J


def slopes_in_numpy(s, eps):
    nudges = eps * np.eye(len(s))
    up, down = np.exp(s.numpy() + nudges), np.exp(s.numpy() - nudges)
    return (up / up.sum(1)[:, None] - down / down.sum(1)[:, None]) / (2 * eps)


def slopes_by_column(s, eps):
    nudges = eps * torch.eye(len(s), dtype=torch.float64)
    up = torch.softmax(s[:, None] + nudges, dim=0)
    return ((up - torch.softmax(s[:, None] - nudges, dim=0)) / (2 * eps)).T


def slopes_growing(s, eps):
    up, down, rows = s.clone(), s.clone(), []
    for i in range(len(s)):
        up[i] += eps
        down[i] -= eps
        rows.append((up.softmax(-1) - down.softmax(-1)) / (2 * eps))
    return torch.stack(rows)


def slopes_aliased(s, eps):
    rows = []
    for i in range(len(s)):
        up = down = s.clone()
        up[i] += eps
        down[i] -= eps
        rows.append((up.softmax(-1) - down.softmax(-1)) / (2 * eps))
    return torch.stack(rows)


def slopes_changing(s, eps):
    rows = []
    for i in range(len(s)):
        s[i] += eps
        up = s.softmax(-1)
        s[i] -= 2 * eps
        rows.append((up - s.softmax(-1)) / (2 * eps))
    return torch.stack(rows)


def slopes_down_the_columns(s, eps):
    nudges = eps * torch.eye(len(s))
    return ((s + nudges).softmax(0) - (s - nudges).softmax(0)) / (2 * eps)


def log_slopes(s, eps):
    nudges = eps * torch.eye(len(s))
    return ((s + nudges).log_softmax(-1) - (s - nudges).log_softmax(-1)) / (2 * eps)


def formula(s, eps):
    p = s.softmax(-1)
    return torch.diag(p) - p[:, None] * p


def heard(s, c):
    return float(entropy((s.double() / c).softmax(-1)).exp())


def divisor_for(s, keys, measure=heard, low=0.001, high=1000.0, steps=36):
    for _ in range(steps):
        c = (low + high) / 2
        if measure(s, c) < keys:
            low = c
        else:
            high = c
    return c


def divisor_from_a_list(s, keys):
    cs = torch.logspace(-2, 2, 4000, dtype=torch.float64)
    p = (s / cs[:, None]).softmax(-1)
    return cs[(entropy(p).exp() - keys).abs().argmin()]


def divisor_by_growing(s, keys):
    c, factor = 1.0, 2.0
    while factor > 1.0001:
        c = c * factor if heard(s, c) < keys else c / factor
        factor = 1 + (factor - 1) * 0.9
    return torch.tensor([c])


def divisor_by_slopes(s, keys):
    """Newton's method, on the logarithm of c; a step is at most 0.5."""
    x = math.log(float(s.std()))
    for _ in range(200):
        gap = math.log(heard(s, math.exp(x)) / keys)
        slope = (math.log(heard(s, math.exp(x + 1e-4))) - math.log(heard(s, math.exp(x)))) / 1e-4
        x -= max(-0.5, min(0.5, gap / max(slope, 1e-6)))
        if abs(gap) < 1e-5:
            break
    return math.exp(x)


def other(measure):
    return lambda s, keys: divisor_for(s, keys, measure)


RIGHT = {
    "spread": [
        spread,
        spread_in_loops,
        spread_in_numpy,
        spread_of_signs,
        lambda *x: dots(*x).var(correction=0).sqrt().item(),
    ],
    "entropy": [
        entropy,
        entropy_in_loops,
        entropy_with_a_grain,
        entropy_where,
        entropy_in_numpy,
        entropy_mended,
    ],
    "softmax_slopes": [
        softmax_slopes,
        slopes_in_place,
        slopes_in_lists,
        slopes_in_numpy,
        slopes_by_column,
    ],
    "divisor_for": [
        divisor_for,
        divisor_from_a_list,
        divisor_by_growing,
        divisor_by_slopes,
        lambda s, keys: 1 / divisor_for(s, -keys, lambda s, t: -heard(s, 1 / t)),
    ],
}

WRONG = {
    "spread": {
        "variance": (lambda *x: dots(*x).var(), "the spread is its root"),
        "one draw for both": (spread_of_one, "the same draw is used"),
        "uniform": (spread_of_uniform, "between 0 and 1"),
        "divided already": (
            lambda d_k, n, g: spread(d_k, n, g) / d_k**0.5,
            "the spread is 1 at every width",
        ),
        "of single products": (
            lambda d_k, n, g: torch.mul(*draws(d_k, n, g)).std(),
            "the spread is 1 at every width",
        ),
        "over the draws": (over_draws, "the sum runs over the n draws"),
        "n and d_k exchanged": (
            lambda d_k, n, g: dots(n, 300, g).std(),
            "the sum runs over the n draws",
        ),
        "mean": (lambda *x: dots(*x).mean(), "as a mean of dot products is"),
        "mean distance": (lambda *x: dots(*x).abs().mean(), "the root of the mean square"),
        "cosines": (cosines, "these are cosines"),
        "dot products": (dots, "these are the dot products"),
        "an entry each": (
            lambda d_k, n, g: torch.mul(*draws(d_k, n, g)).std(0),
            "a spread for each entry",
        ),
        "half": (lambda *x: spread(*x) / 2, "spread(64, 2000, g) is"),
        "the formula": (lambda d_k, n, g: d_k**0.5, "every seed gives the same"),
        "a seed of its own": (seeds_itself, "every seed gives the same"),
        "no generator": (
            lambda d_k, n, g: torch.randn(2, n, d_k).prod(0).sum(-1).std(),
            "generator=g given to both draws",
        ),
        "generator for one draw": (
            lambda d_k, n, g: (
                (torch.randn(n, d_k, generator=g) * torch.randn(n, d_k)).sum(-1).std()
            ),
            "generator=g given to both draws",
        ),
        "n ignored": (lambda d_k, n, g: spread(d_k, 2000, g), "as steady as with 2000"),
        "unseeded": (
            lambda d_k, n, g: np.random.default_rng().normal(size=(2, n, d_k)).prod(0).sum(1).std(),
            "the same seed gives another number",
        ),
    },
    "entropy": {
        "no minus": (lambda p: -entropy(p), "the minus is missing"),
        "base 2": (lambda p: entropy(p) / math.log(2), "base 2"),
        "base 10": (lambda p: entropy(p) / math.log(10), "base 10"),
        "mean of the terms": (lambda p: entropy(p) / p.shape[-1], "are averaged"),
        "per ln n": (lambda p: entropy(p) / math.log(p.shape[-1]), "divided by ln n"),
        "number of keys": (lambda p: entropy(p).exp(), "e^H, the number of keys"),
        "p missing": (lambda p: -p.log().sum(-1), "not multiplied by p"),
        "p missing, mean": (lambda p: -p.log().mean(-1), "not multiplied by p, and averaged"),
        "softmax first": (lambda p: entropy(p.softmax(-1)), "no softmax of it"),
        "p times p": (lambda p: (p * p).sum(-1), "multiplied by itself"),
        "1 minus the squares": (lambda p: 1 - (p * p).sum(-1), "sum of squares"),
        "largest weight": (lambda p: -p.amax(-1).log(), "every weight counts"),
        "terms": (lambda p: -p * p.log(), "these are the terms"),
        "columns": (lambda p: entropy(p, 0), "one for each column"),
        "second axis": (
            lambda p: entropy(p, 1) if p.dim() > 1 else entropy(p),
            "the sum runs over dim=1",
        ),
        "all together": (lambda p: entropy(p).sum(), "one number for all"),
        "axis kept": (lambda p: entropy(p)[..., None], "without keepdim"),
        "NaN": (naive, "0 times ln 0 is NaN"),
        "NaN mended late": (lambda p: naive(p).nan_to_num(0), "after the sum"),
        "coarse grain": (lambda p: -(p * (p + 0.01).log()).sum(-1), "entropy(p)"),
        "calls PyTorch's": (lambda p: torch.special.entr(p).sum(-1), "it calls special_entr"),
        "calls a distribution's": (
            lambda p: torch.distributions.Categorical(probs=p).entropy(),
            "it calls entropy",
        ),
        "changes p": (lambda p: -p.mul_(p.log()).sum(-1), "changes its argument number 1"),
    },
    "softmax_slopes": {
        "diagonal": (
            lambda s, eps: softmax_slopes(s, eps) * torch.eye(len(s)),
            "only the diagonal",
        ),
        "up only": (lambda *x: softmax_slopes(*x, down=0), "one way, up"),
        "down only": (lambda *x: softmax_slopes(*x, up=0), "one way, down"),
        "divided by eps": (lambda s, eps: softmax_slopes(s, eps, apart=eps), "2 * eps apart"),
        "not divided": (lambda *x: softmax_slopes(*x, apart=1), "not divided by 2 * eps"),
        "brackets missing": (
            lambda s, eps: softmax_slopes(s, eps, apart=2 / eps),
            "write / (2 * eps)",
        ),
        "down minus up": (lambda *x: -softmax_slopes(*x), "up minus down"),
        "columns": (lambda *x: softmax_slopes(*x).T, "rows and columns are exchanged"),
        "formula": (formula, "the exact slopes"),
        "calculus": (
            lambda s, eps: torch.autograd.functional.jacobian(lambda s: s.softmax(-1), s),
            "the exact slopes",
        ),
        "a nudge of its own": (lambda s, eps: softmax_slopes(s, 0.01), "eps is another"),
        "all scores together": (
            lambda s, eps: torch.stack(
                [((s + eps).softmax(-1) - (s - eps).softmax(-1)) / (2 * eps)] * len(s)
            ),
            "nothing moves",
        ),
        "one array": (slopes_aliased, "nothing moves"),
        "down the columns": (slopes_down_the_columns, "down the columns"),
        "nudges pile up": (slopes_growing, "the nudges pile up"),
        "changes s": (slopes_changing, "changes its argument number 1"),
        "no softmax": (lambda s, eps: torch.eye(len(s)), "how the scores move"),
        "of the logarithms": (log_slopes, "logarithms of the weights"),
        "one row": (lambda s, eps: softmax_slopes(s, eps)[0], "this is one row"),
        "own answers only": (lambda *x: softmax_slopes(*x).diag(), "this is one row"),
        "no minus between": (
            lambda s, eps: (2 * s.softmax(-1)).expand(len(s), -1) / (2 * eps),
            "softmax_slopes(s, eps)[",
        ),
    },
    "divisor_for": {
        "factor": (other(lambda s, c: -heard(s, 1 / c)), "take a "),
        "H itself": (other(lambda s, c: math.log(heard(s, c))), "H itself is keys"),
        "in bits": (other(lambda s, c: math.log2(heard(s, c))), "in bits is keys"),
        "bits under e": (
            other(lambda s, c: math.exp(math.log2(heard(s, c)))),
            "here it is in bits",
        ),
        "2 to the nats": (other(lambda s, c: 2 ** math.log(heard(s, c))), "2^H is keys"),
        "square": (lambda s, keys: divisor_for(s, keys) ** 2, "not of s / sqrt(c)"),
        "root": (lambda s, keys: divisor_for(s, keys) ** 0.5, "not of s / c^2"),
        "factor found": (lambda s, keys: 1 / divisor_for(s, keys), "c is a factor"),
        "wrong half": (other(lambda s, c: -heard(s, c)), "take a smaller c"),
        "too coarse": (
            lambda s, keys: divisor_for(s, keys, low=0.01, high=100, steps=6),
            "take a ",
        ),
        "bracket too narrow": (lambda s, keys: divisor_for(s, keys, low=0.2, high=20), "take a "),
        "bracket from 0.5 on": (
            lambda s, keys: divisor_for(s, keys, low=0.5, high=90),
            "smaller c",
        ),
        "root of d_k": (lambda s, keys: math.sqrt(len(s)), "take a "),
        "spread": (lambda s, keys: s.std(), "take a "),
        "negative": (lambda s, keys: -divisor_for(s, keys), "expected a number above 0"),
        "a string": (lambda s, keys: str(divisor_for(s, keys)), "is a string"),
        "zero": (lambda s, keys: 0.0, "expected a number above 0"),
        "weights": (
            lambda s, keys: (s / divisor_for(s, keys)).softmax(-1),
            "these are weights",
        ),
    },
}
