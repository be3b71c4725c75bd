"""Chapter 07."""

import copy

import numpy as np
import torch
from torch import nn


def layer_norm(x, gain, bias, eps, dim=-1, unbiased=False):
    mean = x.mean(dim, keepdim=True)
    variance = x.var(dim, unbiased=unbiased, keepdim=True)
    return gain * (x - mean) / torch.sqrt(variance + eps) + bias


def layer_norm_in_loops(x, gain, bias, eps):
    if x.dim() > 1:
        return torch.stack([layer_norm_in_loops(row, gain, bias, eps) for row in x])
    row = x.tolist()
    mean = sum(row) / len(row)
    variance = sum((number - mean) ** 2 for number in row) / len(row)
    return torch.tensor(
        [
            g * (number - mean) / (variance + eps) ** 0.5 + b
            for number, g, b in zip(row, gain.tolist(), bias.tolist(), strict=True)
        ]
    )


def layer_norm_in_numpy(x, gain, bias, eps):
    x, gain, bias = x.numpy(), gain.numpy(), bias.numpy()
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * gain + bias


def layer_norm_by_moments(x, gain, bias, eps):
    x = x.double()
    mean, squares = x.mean(-1, True), (x * x).mean(-1, True)
    return (x - mean).mul_((squares - mean**2 + eps).rsqrt()).mul_(gain).add_(bias)


def layer_norm_by_einsum(x, gain, bias, eps):
    d = x.shape[-1]
    centred = x @ (torch.eye(d) - torch.full((d, d), 1 / d))
    variance = torch.einsum("...d,...d->...", centred, centred) / d
    return torch.addcmul(bias, gain, centred / (variance + eps).sqrt().unsqueeze(-1))


def spoilt(change):
    """A layer norm with its parts at hand: x, mean, centred, variance, gain, bias, eps."""

    def answer(x, gain, bias, eps):
        mean = x.mean(-1, keepdim=True)
        centred = x - mean
        return change(x, mean, centred, centred.square().mean(-1, True), gain, bias, eps)

    return answer


def changes_x(x, gain, bias, eps):
    x -= x.mean(-1, keepdim=True)
    return gain * x / (x.square().mean(-1, keepdim=True) + eps).sqrt() + bias


def block(x, attend, feed, norms, order):
    for sublayer, norm in zip((attend, feed), norms, strict=True):
        x = norm(x + sublayer(x)) if order == "post" else x + sublayer(norm(x))
    return x


def block_in_place(x, attend, feed, norms, order):
    y = x.clone()
    if order == "pre":
        y += attend(norms[0](y))
        y += feed(norms[1](y))
        return y
    y += attend(y)
    y = norms[0](y)
    y += feed(y)
    return norms[1](y)


def block_in_double(x, attend, feed, norms, order):
    return block(x.double(), attend, feed, norms, order)


def block_in_numpy(x, attend, feed, norms, order):
    def call(layer, x):
        return layer(torch.from_numpy(x)).numpy()

    x = x.numpy()
    for layer, norm in ((attend, norms[0]), (feed, norms[1])):
        if order == "pre":
            x = x + call(layer, call(norm, x))
        else:
            x = call(norm, call(layer, x) + x)
    return x


def block_both(x, attend, feed, norms, order):
    """Both orders are computed, one is returned."""
    first, second = norms
    middle = first(attend(x) + x)
    post = second(middle + feed(middle))
    middle = x + attend(first(x))
    pre = feed(second(middle)) + middle
    return {"post": post, "pre": pre}[order]


def two(post, pre):
    """A block of one's own: what each order does with x, a sublayer and a norm."""

    def answer(x, attend, feed, norms, order):
        step = post if order == "post" else pre
        return step(step(x, attend, norms[0]), feed, norms[1])

    return answer


def post(x, sublayer, norm):
    return norm(x + sublayer(x))


def pre(x, sublayer, norm):
    return x + sublayer(norm(x))


def road(x, sublayer, norm):
    x = norm(x)
    return x + sublayer(x)


def norms_given(change):
    return lambda x, attend, feed, norms, order: block(x, attend, feed, change(*norms), order)


def second_from_x(read_x, add_x):
    def answer(x, attend, feed, norms, order):
        step = post if order == "post" else pre
        middle = step(x, attend, norms[0])
        read, road = x if read_x else middle, x if add_x else middle
        if order == "post":
            return norms[1](road + feed(read))
        return road + feed(norms[1](read))

    return answer


def which_order(around):
    """Silence the sublayer, then look at what it is given."""
    torch.manual_seed(1)
    x = 3 * torch.randn(5, 16) + 2
    normed = nn.functional.layer_norm(x, (16,))
    seen = []

    def silent(read):
        seen.append(read)
        return torch.zeros_like(read)

    silenced = around(x, silent)
    loud = around(x, lambda read: 7 * torch.roll(read, 1, 0))
    if torch.allclose(silenced, x, atol=1e-3):
        return "pre" if torch.allclose(seen[0], normed, atol=1e-3) else "neither"
    if torch.allclose(silenced, normed, atol=1e-3) and torch.allclose(seen[0], x, atol=1e-3):
        return "post" if loud.mean(-1).abs().max() < 1e-3 and loud.std() < 1.5 else "neither"
    return "neither"


def which_by_formula(around):
    x = np.random.default_rng(0).standard_normal((3, 6))  # float64, and NumPy

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def sublayer(x):
        return np.cos(np.asarray(x)) * 3 - 1

    out = np.asarray(around(x, sublayer))
    known = {"post": norm(x + sublayer(x)), "pre": x + sublayer(norm(x))}
    found = [name for name, one in known.items() if np.abs(out - one).max() < 1e-3]
    return found[0] if found else "neither"


class Watch(nn.Module):
    def forward(self, x):
        self.seen = x
        return 2 * x.flip(-1)


def which_by_module(around):
    watch, norm = Watch(), nn.LayerNorm(4)
    x = torch.tensor([[1.0, 2.0, 3.0, 6.0]], dtype=torch.float32)
    out = around(x, watch)
    answer = 2 * watch.seen.flip(-1)
    if torch.allclose(watch.seen, x) and torch.allclose(out, norm(x + answer), atol=1e-4):
        return "post"
    if torch.allclose(watch.seen, norm(x), atol=1e-4) and torch.allclose(out - answer, x):
        return "pre"
    return "neither"


def silence(around):
    x = torch.arange(6.0).view(2, 3)
    return "pre" if torch.allclose(around(x, torch.zeros_like), x) else "post"


def silence_exactly(around):
    x = torch.tensor([[1.0, 2.0, 3.0, 6.0]])
    silenced = around(x, torch.zeros_like)
    if torch.allclose(silenced, x):
        return "pre"
    if torch.allclose(silenced, nn.LayerNorm(4)(x)):
        return "post"
    return "neither"


def reads(around):
    x, seen = torch.tensor([[1.0, 2.0, 3.0, 6.0]]), []

    def sublayer(read):
        seen.append(read)
        return read

    around(x, sublayer)
    return "post" if torch.allclose(seen[0], x) else "pre"


def size(around):
    x = 100 * torch.randn(4, 8)
    return "post" if around(x, torch.zeros_like).std() < 2 else "pre"


def normed_at_the_end(around):
    out = around(torch.tensor([[1.0, 2.0, 3.0, 6.0]]), lambda x: x.cos())
    return "post" if out.mean().abs() < 1e-3 else "pre"


def stack(make_block, n, norm):
    return nn.Sequential(*[make_block() for _ in range(n)], norm)


class Stack(nn.Module):
    def __init__(self, make_block, n, norm):
        super().__init__()
        self.blocks = nn.ModuleList(make_block() for _ in range(n))
        self.norm = norm

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


def stack_by_names(make_block, n, norm):
    model = nn.Module()
    make_block()  # to see what it makes
    for i in range(n):
        model.add_module(f"block_{i}", make_block())
    model.register_module("last", norm)

    def forward(x):
        for part in model.children():
            x = part(x)
        return x

    model.forward = forward
    return model


class Recursive(nn.Module):
    def __init__(self, make_block, n, norm):
        super().__init__()
        self.rest = Recursive(make_block, n - 1, norm) if n > 1 else norm
        self.first = make_block()

    def forward(self, x):
        return self.rest(self.first(x))


class Spoilt(Stack):
    """A stack that runs as `run` says."""

    run = None

    def forward(self, x):
        return type(self).run(self, x)


def running(run):
    return type("Spoilt", (Spoilt,), {"run": run})


def chain(blocks, x):
    for block in blocks:
        x = block(x)
    return x


class PlainList(Stack):
    def __init__(self, make_block, n, norm):
        super().__init__(make_block, 0, norm)
        self.hidden = [make_block() for _ in range(n)]

    def forward(self, x):
        return self.norm(chain(self.hidden, x))


class FirstRegistered(PlainList):
    def __init__(self, make_block, n, norm):
        super().__init__(make_block, n, norm)
        self.first = self.hidden[0]


class HiddenNorm(Stack):
    def __init__(self, make_block, n, norm):
        super().__init__(make_block, n, None)
        self.norm = [norm]

    def forward(self, x):
        return self.norm[0](chain(self.blocks, x))


class MadeInForward(Stack):
    def __init__(self, make_block, n, norm, keep=False):
        super().__init__(make_block, n if keep else 0, norm)
        self.make, self.n, self.keep = make_block, n, keep

    def forward(self, x):
        blocks = [self.make() for _ in range(self.n)]
        if self.keep:
            self.blocks = nn.ModuleList(blocks)
        return self.norm(chain(blocks, x))


class NoForward(nn.Module):
    def __init__(self, make_block, n, norm):
        super().__init__()
        self.blocks = nn.ModuleList(make_block() for _ in range(n))


def frozen(make_block, n, norm):
    return stack(make_block, n, norm).requires_grad_(False)


def detached(self, x):
    for block in self.blocks:
        x = block(x.detach())
    return self.norm(x)


RIGHT = {
    "layer_norm": [
        layer_norm,
        layer_norm_in_loops,
        layer_norm_in_numpy,
        layer_norm_by_moments,
        layer_norm_by_einsum,
    ],
    "block": [block, block_in_place, block_in_double, block_in_numpy, block_both],
    "which_order": [which_order, which_by_formula, which_by_module],
    "stack": [stack, Stack, stack_by_names, Recursive],
}

WRONG = {
    "layer_norm": {
        "over the tokens": (
            lambda x, gain, bias, eps: layer_norm(x, gain, bias, eps, dim=-2),
            "run over the tokens: each is",
        ),
        "over the tokens, as dim=0": (
            lambda x, gain, bias, eps: layer_norm(x, gain, bias, eps, dim=0),
            "run over the tokens: each is",
        ),
        "over the second axis": (
            lambda x, gain, bias, eps: layer_norm(x, gain, bias, eps, dim=1),
            "in a batch the mean runs over the tokens",
        ),
        "over all but the first axis": (
            lambda x, gain, bias, eps: layer_norm(x, gain, bias, eps, dim=tuple(range(1, x.dim()))),
            "in a batch the mean runs over tokens and features",
        ),
        "over everything": (
            lambda x, gain, bias, eps: layer_norm(x, gain, bias, eps, dim=tuple(range(x.dim()))),
            "over all numbers together",
        ),
        "keepdim forgotten": (
            lambda x, gain, bias, eps: (x - x.mean(-1)) / (x.var(-1) + eps).sqrt(),
            "keepdim=True keeps it",
        ),
        "unbiased": (
            lambda x, gain, bias, eps: layer_norm(x, gain, bias, eps, unbiased=True),
            "divided by d_model - 1",
        ),
        "eps outside": (
            spoilt(lambda x, m, c, v, g, b, e: g * c / (v.sqrt() + e) + b),
            "eps stands outside the root",
        ),
        "std plus eps": (
            spoilt(lambda x, m, c, v, g, b, e: g * c / (x.std(-1, keepdim=True) + e) + b),
            "x.std divides by d_model - 1, and eps",
        ),
        "no eps": (
            spoilt(lambda x, m, c, v, g, b, e: g * c / v.sqrt() + b),
            "eps has no effect: add it",
        ),
        "an eps of one's own": (
            lambda x, gain, bias, eps: layer_norm(x, gain, bias, 1e-5),
            "eps has no effect: add it",
        ),
        "the eps of the first try": (
            lambda x, gain, bias, eps: layer_norm(x, gain, bias, 0.1),
            "is eps a number of your own",
        ),
        "std, no eps": (
            spoilt(lambda x, m, c, v, g, b, e: g * c / x.std(-1, keepdim=True) + b),
            "eps has no effect, and the squares",
        ),
        "eps squared": (
            spoilt(lambda x, m, c, v, g, b, e: g * c / (v + e * e).sqrt() + b),
            "eps is squared",
        ),
        "eps taken away": (
            spoilt(lambda x, m, c, v, g, b, e: g * c / (v - e).sqrt() + b),
            "eps is taken away",
        ),
        "no root": (
            spoilt(lambda x, m, c, v, g, b, e: g * c / (v + e) + b),
            "the root is missing",
        ),
        "squared": (
            spoilt(lambda x, m, c, v, g, b, e: g * c / (v + e) ** 2 + b),
            "not ** 2",
        ),
        "multiplied": (
            spoilt(lambda x, m, c, v, g, b, e: g * c * (v + e).sqrt() + b),
            "multiplied by the root",
        ),
        "mean kept": (
            spoilt(lambda x, m, c, v, g, b, e: g * x / (v + e).sqrt() + b),
            "the mean is not taken away",
        ),
        "squares of x": (
            spoilt(lambda x, m, c, v, g, b, e: g * c / ((x * x).mean(-1, True) + e).sqrt() + b),
            "take the mean away first",
        ),
        "no mean at all": (
            spoilt(lambda x, m, c, v, g, b, e: g * x / ((x * x).mean(-1, True) + e).sqrt() + b),
            "taken away nowhere",
        ),
        "absolute differences": (
            spoilt(lambda x, m, c, v, g, b, e: g * c / (c.abs().mean(-1, True) + e) + b),
            "take squares",
        ),
        "summed": (
            spoilt(lambda x, m, c, v, g, b, e: g * c / ((c * c).sum(-1, True) + e).sqrt() + b),
            "the squares are summed",
        ),
        "no gain, no bias": (
            spoilt(lambda x, m, c, v, g, b, e: c / (v + e).sqrt()),
            "gain and bias have no effect",
        ),
        "no gain": (
            spoilt(lambda x, m, c, v, g, b, e: c / (v + e).sqrt() + b),
            "the gain has no effect",
        ),
        "no bias": (
            spoilt(lambda x, m, c, v, g, b, e: g * c / (v + e).sqrt()),
            "the bias has no effect",
        ),
        "gain and bias exchanged": (
            lambda x, gain, bias, eps: layer_norm(x, bias, gain, eps),
            "gain and bias are exchanged",
        ),
        "bias first": (
            spoilt(lambda x, m, c, v, g, b, e: g * (c / (v + e).sqrt() + b)),
            "add it last",
        ),
        "bias taken away": (
            spoilt(lambda x, m, c, v, g, b, e: g * c / (v + e).sqrt() - b),
            "the bias is taken away",
        ),
        "divided by the gain": (
            spoilt(lambda x, m, c, v, g, b, e: c / (v + e).sqrt() / g + b),
            "the gain is divided by",
        ),
        "mean added again": (
            spoilt(lambda x, m, c, v, g, b, e: g * c / (v + e).sqrt() + b + m),
            "the mean is added again",
        ),
        "brackets forgotten": (
            spoilt(lambda x, m, c, v, g, b, e: g * x - m / (v + e).sqrt() + b),
            "(x - mean) as a whole is divided",
        ),
        "brackets round the quotient": (
            spoilt(lambda x, m, c, v, g, b, e: g * (x - m / (v + e).sqrt()) + b),
            "is divided before the gain",
        ),
        "gain and bias first": (
            lambda x, gain, bias, eps: layer_norm(gain * x + bias, 1, 0, eps),
            "they come last",
        ),
        "one plus the gain": (
            spoilt(lambda x, m, c, v, g, b, e: (1 + g) * c / (v + e).sqrt() + b),
            "1 is added to the gain",
        ),
        "equal features": (
            lambda x, gain, bias, eps: torch.where(
                x.var(-1, keepdim=True) == 0, x, layer_norm(x, gain, bias, eps)
            ),
            "features are all equal has differences of 0",
        ),
        "NaN for equal features": (
            lambda x, gain, bias, eps: (
                layer_norm(x, gain, bias, eps) * (x.var(-1, keepdim=True) / x.var(-1, keepdim=True))
            ),
            "holds NaN",
        ),
        "changes x": (changes_x, "changes its argument number 1"),
        "calls the module": (
            lambda x, gain, bias, eps: gain * nn.LayerNorm(5, eps=eps)(x) + bias,
            "it calls layer_norm",
        ),
        "calls the function": (
            lambda x, gain, bias, eps: torch.nn.functional.layer_norm(x, (5,), gain, bias, eps),
            "it calls layer_norm",
        ),
        "calls torch's": (
            lambda x, gain, bias, eps: torch.layer_norm(x, (5,), gain, bias, eps),
            "it calls layer_norm",
        ),
        "returns nothing": (lambda x, gain, bias, eps: None, "is there a return"),
    },
    "block": {
        "always pre": (two(pre, pre), "before the sublayer, as in pre-norm; 'post' is norm("),
        "always post": (two(post, post), "round the sum, as in post-norm; 'pre' is x + "),
        "exchanged": (two(pre, post), "before the sublayer, as in pre-norm; 'post' is norm("),
        "the normed x is the road": (two(post, road), "the normed x is added"),
        "the normed x is the road in post": (two(road, pre), "the normed x is added"),
        "norms the detour, post": (
            two(lambda x, s, norm: x + norm(s(x)), pre),
            "on the sublayer's answer alone; 'post'",
        ),
        "norms the detour, pre": (
            two(post, lambda x, s, norm: x + norm(s(x))),
            "on the sublayer's answer alone; 'pre'",
        ),
        "norms x, then adds the raw detour": (
            two(lambda x, s, norm: norm(x) + s(x), pre),
            "x is normed on the road",
        ),
        "norms twice, post": (two(lambda x, s, norm: norm(x + s(norm(x))), pre), "normed twice"),
        "norms twice, pre": (two(post, lambda x, s, norm: norm(x + s(norm(x)))), "normed twice"),
        "no norm, post": (two(lambda x, s, norm: x + s(x), pre), "norm is missing; 'post'"),
        "no norm, pre": (two(post, lambda x, s, norm: x + s(x)), "norm is missing; 'pre'"),
        "no residual, post": (two(lambda x, s, norm: norm(s(x)), pre), "residual is missing"),
        "no residual, pre": (two(post, lambda x, s, norm: s(norm(x))), "residual is missing"),
        "no norm round feed": (
            lambda x, attend, feed, norms, order: block(
                x, attend, feed, (norms[0], lambda x: x), order
            ),
            "round feed the norm is missing",
        ),
        "no residual round feed": (
            lambda x, attend, feed, norms, order: norms[1](feed(norms[0](x + attend(x)))),
            "round feed the residual is missing",
        ),
        "pre round attend, post round feed": (
            lambda x, attend, feed, norms, order: post(pre(x, attend, norms[0]), feed, norms[1]),
            "round attend the norm stands before the sublayer",
        ),
        "the first norm twice": (norms_given(lambda a, b: (a, a)), "first norm is used twice"),
        "the second norm twice": (norms_given(lambda a, b: (b, b)), "second norm is used twice"),
        "norms exchanged": (norms_given(lambda a, b: (b, a)), "norms are exchanged"),
        "feed first": (
            lambda x, attend, feed, norms, order: block(x, feed, attend, norms, order),
            "feed comes before attend",
        ),
        "feed first, each with its norm": (
            lambda x, attend, feed, norms, order: block(x, feed, attend, norms[::-1], order),
            "feed comes before attend, each with its norm",
        ),
        "attend twice": (
            lambda x, attend, feed, norms, order: block(x, attend, attend, norms, order),
            "attend is used twice",
        ),
        "feed twice": (
            lambda x, attend, feed, norms, order: block(x, feed, feed, norms, order),
            "feed is used twice",
        ),
        "feed reads x": (second_from_x(True, False), "feed reads x"),
        "the second residual adds x": (second_from_x(False, True), "second residual adds x"),
        "both from x": (second_from_x(True, True), "what attend gave is lost"),
        "attend alone": (
            lambda x, attend, feed, norms, order: (post if order == "post" else pre)(
                x, attend, norms[0]
            ),
            "feed is missing",
        ),
        "a final norm": (
            lambda x, attend, feed, norms, order: (
                post if order == "post" else lambda *one: norms[1](pre(*one))
            )((post if order == "post" else pre)(x, attend, norms[0]), feed, norms[1]),
            "a norm more stands at the end",
        ),
        "changes x": (
            lambda x, attend, feed, norms, order: norms[1](
                (y := norms[0](x.add_(attend(x)))) + feed(y)
            ),
            "changes its argument number 1",
        ),
        "pre forgotten": (
            lambda *given: block(*given) if given[-1] == "post" else None,
            "is there a return",
        ),
        "scaled residual": (
            two(lambda x, s, norm: norm(0.5 * x + s(x)), pre),
            "block(…, 'post')[",
        ),
    },
    "which_order": {
        "silence alone": (silence, "you say 'p"),
        "silence alone, exactly": (silence_exactly, "you say 'p"),
        "what the sublayer reads": (reads, "you say 'p"),
        "the size that comes out": (size, "you say 'p"),
        "what comes out": (normed_at_the_end, "you say 'p"),
        "always post": (lambda around: "post", "for x + sublayer(norm(x)) you say 'post'"),
        "always neither": (
            lambda around: "neither",
            "for norm(x + sublayer(x)) you say 'neither', expected 'post'",
        ),
        "exchanged": (
            lambda around: {"post": "pre", "pre": "post"}.get(which_order(around), "neither"),
            "for norm(x + sublayer(x)) you say 'pre'",
        ),
        "never neither": (
            lambda around: which_order(around).replace("neither", "pre"),
            "you say 'pre', expected 'neither'",
        ),
        "another word": (lambda around: "post-norm", "the answer is 'post-norm', expected"),
        "a Boolean": (lambda around: which_order(around) == "post", "the answer is True, expected"),
        "returns nothing": (lambda around: which_order(around) and None, "is there a return"),
    },
    "stack": {
        "one block": (
            lambda make_block, n, norm: nn.Sequential(*[make_block()] * n, norm),
            "one and the same block runs",
        ),
        "copies of one": (
            lambda make_block, n, norm: nn.Sequential(
                *[copy.deepcopy(block) for block in [make_block()] * n], norm
            ),
            "all blocks begin with the same numbers",
        ),
        "a plain list": (PlainList, "a plain list hides them"),
        "made in forward": (MadeInForward, "make them once, in __init__"),
        "made anew in forward": (
            lambda make_block, n, norm: MadeInForward(make_block, n, norm, keep=True),
            "make them once, in __init__, not in forward",
        ),
        "always three": (
            lambda make_block, n, norm: stack(make_block, max(n, 3), norm),
            "with n = 2, 3 blocks run",
        ),
        "only the first registered": (FirstRegistered, "blocks"),
        "a hidden norm": (HiddenNorm, "lack the norm"),
        "no norm": (
            lambda make_block, n, norm: nn.Sequential(*[make_block() for _ in range(n)]),
            "lack the norm",
        ),
        "the norm never called": (
            running(lambda self, x: chain(self.blocks, x)),
            "the final norm has no effect",
        ),
        "the norm first": (
            lambda make_block, n, norm: nn.Sequential(norm, *[make_block() for _ in range(n)]),
            "the norm stands before the first block, not",
        ),
        "the norm first and last": (
            running(lambda self, x: self.norm(chain(self.blocks, self.norm(x)))),
            "before the first block too",
        ),
        "the norm behind each": (
            lambda make_block, n, norm: nn.Sequential(
                *[layer for _ in range(n) for layer in (make_block(), norm)]
            ),
            "behind each block",
        ),
        "the norm twice": (
            running(lambda self, x: self.norm(self.norm(chain(self.blocks, x)))),
            "at the end twice",
        ),
        "the blocks side by side": (
            running(lambda self, x: self.norm(sum(block(x) for block in self.blocks))),
            "added up",
        ),
        "only the last counts": (
            running(lambda self, x: self.norm([block(x) for block in self.blocks][-1])),
            "not chained",
        ),
        "x added again": (
            running(lambda self, x: self.norm(x + chain(self.blocks, x))),
            "they have their own residuals",
        ),
        "a norm of one's own": (
            lambda make_block, n, norm: stack(make_block, n, nn.LayerNorm(4)),
            "lack the norm that is given",
        ),
        "one too few": (
            lambda make_block, n, norm: stack(make_block, n - 1, norm),
            "blocks run",
        ),
        "one too many": (
            lambda make_block, n, norm: stack(make_block, n + 1, norm),
            "blocks run",
        ),
        "each twice": (
            running(lambda self, x: self.norm(chain(self.blocks, chain(self.blocks, x)))),
            "times in all",
        ),
        "none runs": (running(lambda self, x: self.norm(x)), "no block runs"),
        "a list": (
            lambda make_block, n, norm: [*[make_block() for _ in range(n)], norm],
            "returns a list of blocks",
        ),
        "a ModuleList": (
            lambda make_block, n, norm: nn.ModuleList([*[make_block() for _ in range(n)], norm]),
            "ModuleList holds blocks and does not run them",
        ),
        "no forward": (NoForward, "does not run them"),
        "a function": (
            lambda make_block, n, norm: stack(make_block, n, norm).forward,
            "expected an nn.Module",
        ),
        "a class": (lambda make_block, n, norm: Stack, "returns the class Stack"),
        "nothing": (lambda make_block, n, norm: None, "is there a return"),
        "no return in forward": (running(lambda self, x: None), "is None"),
        "the class, not the call": (
            lambda make_block, n, norm: nn.Sequential(*[make_block for _ in range(n)], norm),
            "stops with TypeError",
        ),
        "frozen": (frozen, "requires_grad = False"),
        "without slopes": (running(torch.no_grad()(Stack.forward)), "no slope comes back"),
        "detached": (running(detached), "get no slope"),
        "blocks that are never used": (
            type(
                "Wide",
                (Stack,),
                {
                    "__init__": lambda self, make_block, n, norm: (
                        Stack.__init__(self, make_block, n, norm)
                        or setattr(self, "spare", make_block())
                    )
                },
            ),
            "parameters, expected",
        ),
    },
}
