"""Chapter 07: layer norm, a block in both orders, telling the orders apart, a stack."""

from collections.abc import Callable, Iterable
from itertools import combinations, product
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

from qkv.checks.answer import Answer
from qkv.checks.draw import Draw
from qkv.checks.exercise import exercise
from qkv.checks.faults import Wrong, close, equal, has_shape, holds, likely, numbers

Layer = Callable[[Tensor], Tensor]


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
    """The right answer: each token by itself, the biased variance, eps under the root."""
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return gain * centred / (variance + eps).sqrt() + bias


@exercise(
    "layer_norm",
    layer_norm,
    never=("layer_norm", "native_layer_norm", "batch_norm", "group_norm", "instance_norm"),
)
def try_layer_norm(answer: Answer, draw: Draw) -> Iterable[object]:
    """x [..., n, d_model], gain [d_model], bias [d_model], eps -> [..., n, d_model]."""
    x = draw.tensor(3, 5) + 2 * draw.tensor(3, 1)
    gain, bias = 0.5 + draw.tensor(5).abs(), draw.tensor(5)
    eps = 0.1
    try:
        normed = answer(x, gain, bias, eps)
    except Wrong as wrong:
        if "must match the size of tensor" not in str(wrong):
            raise
        line = str(wrong).partition("; the line is ")[2]
        raise Wrong(
            "it stops with RuntimeError: sizes 5 and 3 do not fit; did a mean lose its axis? "
            f"keepdim=True keeps it{'; ' + shorten(line, 60) if line else ''}"
        ) from None
    mean, centred = x.mean(-1, keepdim=True), x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    root = (variance + eps).sqrt()
    scaled = centred / root
    equal(
        "layer_norm(x, gain, bias, eps)",
        normed,
        layer_norm(x, gain, bias, eps),
        {
            "mean and variance run over the tokens: each is normed by itself, dim=-1": lambda: (
                gain * layer_norm(x.T, x.new_ones(3), x.new_zeros(3), eps).T + bias
            ),
            "mean and variance run over all numbers together: use dim=-1": (
                gain * (x - x.mean()) / ((x - x.mean()).square().mean() + eps).sqrt() + bias
            ),
            "the squares are divided by d_model - 1, as x.var does: divide by d_model": (
                gain * centred / (x.var(-1, keepdim=True) + eps).sqrt() + bias
            ),
            "eps stands outside the root: add it to the variance": (
                gain * centred / (variance.sqrt() + eps) + bias
            ),
            "x.std divides by d_model - 1, and eps belongs under the root": (
                gain * centred / (x.std(-1, keepdim=True) + eps) + bias
            ),
            "eps has no effect: add it to the variance, under the root": (
                gain * centred / variance.sqrt() + bias
            ),
            "eps has no effect, and the squares are divided by d_model - 1": (
                gain * centred / x.std(-1, keepdim=True) + bias
            ),
            "eps is squared: add it to the variance as it is": (
                gain * centred / (variance + eps**2).sqrt() + bias
            ),
            "eps is taken away from the variance: add it": (
                gain * centred / (variance - eps).sqrt() + bias
            ),
            "the differences are divided by the variance: the root is missing": (
                gain * centred / (variance + eps) + bias
            ),
            "the variance is squared, where its root is wanted: ** 0.5, not ** 2": (
                gain * centred / (variance + eps) ** 2 + bias
            ),
            "the differences are multiplied by the root: divide": gain * centred * root + bias,
            "the mean is not taken away": gain * x / root + bias,
            "the variance is the mean of the squares of x: take the mean away first": (
                gain * centred / (x.square().mean(-1, keepdim=True) + eps).sqrt() + bias
            ),
            "the mean is taken away nowhere: first x - mean, then the mean of its squares": (
                gain * x / (x.square().mean(-1, keepdim=True) + eps).sqrt() + bias
            ),
            "the spread is the mean of the absolute differences: take squares": (
                gain * centred / (centred.abs().mean(-1, keepdim=True) + eps) + bias
            ),
            "the squares are summed: take their mean": (
                gain * centred / (centred.square().sum(-1, keepdim=True) + eps).sqrt() + bias
            ),
            "gain and bias have no effect": scaled,
            "the gain has no effect": scaled + bias,
            "the bias has no effect": gain * scaled,
            "gain and bias are exchanged": bias * scaled + gain,
            "the bias is multiplied by the gain: add it last": gain * (scaled + bias),
            "the bias is taken away: add it": gain * scaled - bias,
            "the gain is divided by: multiply": scaled / gain + bias,
            "the mean is added again at the end": gain * scaled + bias + mean,
            "1 is added to the gain": (1 + gain) * scaled + bias,
            "brackets are missing: (x - mean) as a whole is divided": gain * x - mean / root + bias,
            "brackets are missing: (x - mean) is divided before the gain multiplies": (
                gain * (x - mean / root) + bias
            ),
            "gain and bias come before the norm: they come last": lambda: layer_norm(
                gain * x + bias, gain.new_ones(5), gain.new_zeros(5), eps
            ),
        },
    )
    batch = draw.tensor(2, 3, 5)
    equal(
        "layer_norm of a batch [2, 3, 5]",
        answer(batch, gain, bias, eps),
        layer_norm(batch, gain, bias, eps),
        {
            "in a batch the mean runs over the tokens: use dim=-1, not dim=1": lambda: (
                gain * layer_norm(batch.mT, x.new_ones(3), x.new_zeros(3), eps).mT + bias
            ),
            "in a batch the mean runs over tokens and features: use dim=-1 alone": lambda: (
                gain
                * (batch - batch.mean((1, 2), keepdim=True))
                / (batch.var((1, 2), unbiased=False, keepdim=True) + eps).sqrt()
                + bias
            ),
        },
    )
    flat = x.clone()
    flat[1] = 7.0  # a token whose features are all equal
    with likely("a token whose features are all equal has differences of 0, and gives the bias"):
        equal(
            "layer_norm with a token of equal features",
            answer(flat, gain, bias, eps),
            layer_norm(flat, gain, bias, eps),
        )
    with likely("is eps a number of your own, in place of the one that is given?"):
        equal(
            "layer_norm with another eps, 2.0",
            answer(x, gain, bias, 2.0),
            layer_norm(x, gain, bias, 2.0),
        )
    return numbers("normed", normed)[0, :3]


def around(x: Tensor, sublayer: Layer, norm: Layer, order: str) -> Tensor:
    """One detour from the road, with its norm: post, pre, and what people write instead."""
    if order == "post":
        return norm(x + sublayer(x))
    if order == "pre":
        return x + sublayer(norm(x))
    if order == "road":
        return norm(x) + sublayer(norm(x))
    if order == "raw":
        return norm(x) + sublayer(x)
    if order == "detour":
        return x + norm(sublayer(x))
    if order == "twice":
        return norm(x + sublayer(norm(x)))
    if order == "bare":
        return x + sublayer(x)
    if order == "replaced":
        return norm(sublayer(x))
    return sublayer(norm(x))  # "fed"


# What is wrong with an order where post or pre is wanted.
WANTED = {"post": "norm(x + sublayer(x))", "pre": "x + sublayer(norm(x))"}
SEEN = {
    "post": "the norm stands round the sum, as in post-norm",
    "pre": "the norm stands before the sublayer, as in pre-norm",
    "road": "the normed x is added, so the norm stands on the road",
    "raw": "x is normed on the road and not in the detour",
    "detour": "the norm stands on the sublayer's answer alone",
    "twice": "x is normed twice, before the sublayer and after the sum",
    "bare": "the norm is missing",
    "replaced": "the residual is missing, norm(sublayer(x)) is all there is",
    "fed": "the residual is missing, sublayer(norm(x)) is all there is",
}


def block(x: Tensor, attend: Layer, feed: Layer, norms: tuple[Layer, Layer], order: str) -> Tensor:
    """The right answer: two detours, each with a norm of its own."""
    x = around(x, attend, norms[0], order)
    return around(x, feed, norms[1], order)


def _orders(
    wanted: str, x: Tensor, attend: Layer, feed: Layer, norms: tuple[Layer, Layer]
) -> Iterable[tuple[str, Callable[[], Tensor]]]:
    """Each pair of orders round the two sublayers: the cause, and what it gives."""

    def given(first: str, second: str) -> Callable[[], Tensor]:
        return lambda: around(around(x, attend, norms[0], first), feed, norms[1], second)

    for first, second in product(SEEN, SEEN):
        if first == second == wanted:
            continue
        seen = [
            f"round {name} {SEEN[order]}"
            for name, order in (("attend", first), ("feed", second))
            if order != wanted
        ]
        words = SEEN[first] if first == second else ", ".join(seen)
        yield f"{words}; '{wanted}' is {WANTED[wanted]}", given(first, second)


def _parts(draw: Draw) -> tuple[Layer, Layer, tuple[Layer, Layer]]:
    """Attention, feed-forward and two norms, as functions, with numbers unlike any identity."""
    A, W, W_1, W_2 = draw.tensor(3, 3), draw.tensor(4, 4), draw.tensor(4, 6), draw.tensor(6, 4)
    gains, biases = 0.5 + draw.tensor(2, 4).abs(), draw.tensor(2, 4)

    def like(x: Any) -> tuple[Tensor, torch.dtype]:
        x = torch.as_tensor(x)
        return x.to(torch.float64), x.dtype

    def attend(x: Any) -> Tensor:
        x, dtype = like(x)
        out: Tensor = A.double().softmax(-1) @ torch.tanh(x @ W.double())
        return out.to(dtype)

    def feed(x: Any) -> Tensor:
        x, dtype = like(x)
        out: Tensor = (x @ W_1.double()).relu() @ W_2.double() / 2
        return out.to(dtype)

    def norm(i: int) -> Layer:
        def normed(x: Any) -> Tensor:
            x, dtype = like(x)
            out: Tensor = layer_norm(x, gains[i].double(), biases[i].double(), 0.1).to(dtype)
            return out

        return normed

    return attend, feed, (norm(0), norm(1))


def _mistakes(
    order: str, x: Tensor, attend: Layer, feed: Layer, norms: tuple[Layer, Layer]
) -> dict[str, Any]:
    """What people write instead of a block."""
    first, second = norms

    def step(sublayer: Layer, norm: Layer, road: Tensor, read: Tensor) -> Tensor:
        """A detour that reads one thing, and is added to another."""
        return norm(road + sublayer(read)) if order == "post" else road + sublayer(norm(read))

    def steps(*two: tuple[Layer, Layer]) -> Tensor:
        """Detours one after the other."""
        y = x
        for sublayer, norm in two:
            y = step(sublayer, norm, y, y)
        return y

    middle, right = steps((attend, first)), steps((attend, first), (feed, second))
    return {
        f"feed comes before attend ('{order}'): first attend, then feed": (
            steps((feed, first), (attend, second))
        ),
        f"feed comes before attend, each with its norm ('{order}'): first attend": (
            steps((feed, second), (attend, first))
        ),
        f"the first norm is used twice ('{order}'): the second is for feed": (
            steps((attend, first), (feed, first))
        ),
        f"the second norm is used twice ('{order}'): the first is for attend": (
            steps((attend, second), (feed, second))
        ),
        f"the two norms are exchanged ('{order}')": steps((attend, second), (feed, first)),
        f"feed reads x, not what came out behind attend ('{order}')": (
            step(feed, second, middle, x)
        ),
        f"the second residual adds x, not what came out behind attend ('{order}')": (
            step(feed, second, x, middle)
        ),
        f"feed is missing ('{order}')": middle,
        f"what attend gave is lost ('{order}'): feed's detour begins where attend's ended": (
            steps((feed, second))
        ),
        f"attend is used twice, feed not at all ('{order}')": (
            steps((attend, first), (attend, second))
        ),
        f"feed is used twice, attend not at all ('{order}')": (
            steps((feed, first), (feed, second))
        ),
        f"a norm more stands at the end ('{order}'): a block has one for each detour": second(
            right
        ),
        f"the first norm stands at the end once more ('{order}')": first(right),
        **dict(_orders(order, x, attend, feed, norms)),
    }


@exercise("block", block)
def try_block(answer: Answer, draw: Draw) -> Iterable[object]:
    """x [..., n, d_model], attend, feed, norms (a pair), "post" or "pre" -> as x."""
    given = attend, feed, norms = _parts(draw)
    x = draw.tensor(2, 3, 4)
    found = []
    for order in ("post", "pre"):
        what = f"block(…, '{order}')"
        out, right = answer(x, *given, order), block(x, attend, feed, norms, order)
        has_shape(what, out, [2, 3, 4])
        if not close(numbers(what, out), numbers(what, right), 1e-3):
            equal(what, out, right, _mistakes(order, x, *given))
        found.append(numbers(what, out)[0, 0])
    return [*found[0][:2], found[1][0]]


def which_order(around: Callable[[Tensor, Layer], Tensor]) -> str:
    """The right answer: compare what comes out with both formulas."""
    norm, sublayer = nn.LayerNorm(8), torch.cos
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    out = around(x, sublayer)
    if torch.allclose(out, norm(x + sublayer(x)), atol=1e-3):
        return "post"
    if torch.allclose(out, x + sublayer(norm(x)), atol=1e-3):
        return "pre"
    return "neither"


BOXES = {
    "post": "norm(x + sublayer(x))",
    "pre": "x + sublayer(norm(x))",
    "road": "norm(x) + sublayer(norm(x))",
    "raw": "norm(x) + sublayer(x)",
    "detour": "x + norm(sublayer(x))",
    "twice": "norm(x + sublayer(norm(x)))",
    "bare": "x + sublayer(x)",
    "replaced": "norm(sublayer(x))",
    "fed": "sublayer(norm(x))",
}


def _box(order: str) -> Callable[[Any, Layer], Tensor]:
    def norm(x: Tensor) -> Tensor:
        out: Tensor = nn.functional.layer_norm(x, x.shape[-1:])
        return out

    def box(x: Any, sublayer: Layer) -> Tensor:
        return around(torch.as_tensor(x), lambda read: torch.as_tensor(sublayer(read)), norm, order)

    return box


@exercise("which_order", which_order)
def try_which_order(answer: Answer, draw: Draw) -> Iterable[object]:
    """around(x, sublayer) -> "post", "pre" or "neither"."""
    others = [*list(BOXES)[2:], *["post"] * draw.whole(0, 2), *["pre"] * draw.whole(0, 2)]
    said = []
    for order in ["post", "pre", *(others[i] for i in draw.order(len(others)))]:
        verdict = answer(_box(order))
        expected = order if order in WANTED else "neither"
        if verdict is None:
            raise Wrong("which_order is None: is there a return at the end?")
        holds(
            isinstance(verdict, str) and verdict in ("post", "pre", "neither"),
            f"the answer is {verdict!r}, expected 'post', 'pre' or 'neither'",
        )
        holds(
            verdict == expected,
            f"for {BOXES[order]} you say '{verdict}', expected '{expected}'",
        )
        said.append(verdict)
    return draw.weighed([("post", "pre", "neither").index(verdict) + 1 for verdict in said])


class _Block(nn.Module):
    """A block that notes when it runs."""

    def __init__(self, W: Tensor, ran: list["_Block"]) -> None:
        super().__init__()
        self.W = nn.Parameter(W)
        self.ran = ran

    def forward(self, x: Tensor) -> Tensor:
        self.ran.append(self)
        return x + torch.tanh(x @ self.W.to(x.dtype))

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Block":
        return _Block(self.W.detach().clone(), self.ran)


def stack(make_block: Callable[[], nn.Module], n: int, norm: nn.Module) -> nn.Module:
    """The right answer: n blocks made anew, and the norm at the end."""
    return nn.Sequential(*[make_block() for _ in range(n)], norm)


@exercise("stack", stack)
def try_stack(answer: Answer, draw: Draw) -> Iterable[object]:
    """make_block, n, norm -> a module that takes [..., d_model] and gives the same."""
    n, x = draw.whole(3, 4), draw.tensor(2, 3, 4)
    ran: list[_Block] = []

    def make_block() -> nn.Module:
        return _Block(draw.tensor(4, 4), ran)

    known = draw.tensor(n, 4, 4)
    norm = nn.LayerNorm(4, eps=0.1, device="cpu", dtype=torch.float32)
    with torch.no_grad():
        norm.weight.copy_(0.5 + draw.tensor(4).abs())
        norm.bias.copy_(draw.tensor(4))
    model = answer(make_block, n, norm)
    _is_module(model)
    run = Answer("what stack returns", model, ())
    ran.clear()
    out = run(x)
    has_shape("the output of the stack", out, [2, 3, 4])
    blocks = list(ran)
    holds(bool(blocks), "no block runs when the stack is called")
    holds(
        len({id(block) for block in blocks}) > 1 or len(blocks) == 1,
        f"one and the same block runs {len(blocks)} times: call make_block for each layer",
    )
    holds(
        len(blocks) == len({id(block) for block in blocks}) == n,
        f"{len({id(block) for block in blocks})} blocks run, {len(blocks)} times in all, "
        f"expected {n} blocks, each once",
    )
    holds(
        not any(torch.equal(a.W, b.W) for a, b in combinations(blocks, 2)),
        "all blocks begin with the same numbers: make each anew, not as a copy of one",
    )
    _is_registered(model, blocks, norm)
    with torch.no_grad():  # known numbers, however often make_block was called
        for block, W in zip(blocks, known, strict=True):
            block.W.copy_(W)
    out = run(x)
    holds(
        ran[-n:] == blocks,
        "at each call other blocks run: make them once, in __init__, not in forward",
    )

    def passed(between: Layer, x: Tensor = x) -> Tensor:
        for block in blocks:
            x = between(block(x))
        return x

    with torch.no_grad():
        plain, ends = passed(lambda x: x), norm(passed(lambda x: x))
        equal(
            "the output of the stack",
            out,
            ends,
            {
                "the final norm has no effect: it stands behind the last block": plain,
                "the norm stands before the first block, not behind the last": passed(
                    lambda x: x, norm(x)
                ),
                "the norm stands before the first block too": norm(passed(lambda x: x, norm(x))),
                "the norm stands behind each block: only one is wanted, at the end": passed(norm),
                "the norm stands at the end twice": norm(ends),
                "the blocks are not chained: each takes what the one before it gives": (
                    lambda: norm(blocks[-1](x))
                ),
                "the blocks' outputs are added up: each takes what the one before it gives": (
                    lambda: norm(torch.stack([block(x) for block in blocks]).sum(0))
                ),
                "x is added to what the blocks give: they have their own residuals": norm(
                    x + plain
                ),
            },
        )
    _learns(model, x)
    ran.clear()
    Answer("what stack returns", answer(make_block, 2, norm), ())(x)
    holds(len(ran) == 2, f"with n = 2, {len(ran)} blocks run")
    return numbers("out", out)[0, 0, :3]


def _is_module(model: object) -> None:
    """Refuse what cannot be called and trained."""
    if model is None:
        raise Wrong("stack returns None: is there a return at the end?")
    if isinstance(model, list | tuple):
        raise Wrong(
            f"stack returns a {type(model).__name__} of blocks: return one module that runs them"
        )
    if isinstance(model, type):
        raise Wrong(f"stack returns the class {model.__name__}: return a module made from it")
    if not isinstance(model, nn.Module):
        kind = "function" if callable(model) else type(model).__name__
        raise Wrong(
            f"stack returns a {kind}, expected an nn.Module: else no optimiser finds the parameters"
        )
    if getattr(model.forward, "__name__", "") == "_forward_unimplemented":
        raise Wrong(
            f"a {type(model).__name__} holds blocks and does not run them: it has no forward"
        )


def _is_registered(model: nn.Module, blocks: list[_Block], norm: nn.LayerNorm) -> None:
    """Refuse a stack whose parameters no optimiser would find."""
    found = {id(p) for p in model.parameters()}
    missing = sum(id(block.W) not in found for block in blocks)
    holds(
        missing < len(blocks),
        "the stack's parameters() hold no block: make them once, in __init__, "
        "and note that a plain list hides them; nn.ModuleList does not",
    )
    holds(missing == 0, f"the stack's parameters() lack {missing} of {len(blocks)} blocks")
    gains = [p for p in model.parameters() if p.shape == norm.bias.shape]
    holds(
        any(torch.equal(p, norm.weight) for p in gains),
        "the stack's parameters() lack the norm that is given: make it an attribute of the module",
    )
    many = sum(p.numel() for p in model.parameters())
    wanted = sum(block.W.numel() for block in blocks) + 8
    holds(many == wanted, f"the stack has {many} parameters, expected {wanted}")


def _learns(model: nn.Module, x: Tensor) -> None:
    """Refuse a stack in which a parameter gets no slope."""
    before = [p.requires_grad for p in model.parameters()]
    holds(all(before), "a parameter has requires_grad = False, so it would never learn")
    model.zero_grad()
    with torch.enable_grad():
        out = model(x)
        if not (isinstance(out, Tensor) and out.requires_grad):
            raise Wrong("no slope comes back from the output: no detach, no torch.no_grad")
        (out * torch.arange(out.numel()).view_as(out).sin()).sum().backward()  # type: ignore[no-untyped-call]
    lost = sum(p.grad is None or not bool(p.grad.abs().max() > 0) for p in model.parameters())
    holds(lost == 0, f"{lost} of the parameters get no slope: does a detach stand between blocks?")
