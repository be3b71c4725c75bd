"""Chapter 06: the sinusoids, positions added to words, rows turned, a layer's sense of order."""

import itertools
import math
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn

from qkv.attention import MultiHeadAttention
from qkv.checks.answer import Answer
from qkv.checks.draw import Draw
from qkv.checks.exercise import exercise
from qkv.checks.faults import Wrong, equal, has_shape, holds, likely, numbers
from qkv.checks.verdicts import verdicts
from qkv.layers import sinusoids
from qkv.masks import causal


def _waves(
    n: int,
    d: int,
    *,
    first: int = 0,
    sine: Callable[[Tensor], Tensor] = torch.sin,
    cosine: Callable[[Tensor], Tensor] = torch.cos,
    exponent: Callable[[Tensor], Tensor] = lambda column: column // 2 * 2,
    width: int | None = None,
) -> Tensor:
    """Sinusoids, or what comes of a slip in their formula; the exponent is of the column."""
    p, column = torch.arange(first, first + n)[:, None].double(), torch.arange(d)
    angle = p / 10000.0 ** (exponent(column).double() / (width or d))
    return torch.where(column % 2 == 0, sine(angle), cosine(angle))


@exercise("sinusoids", sinusoids, never=("sinusoids",))
def try_sinusoids(answer: Answer, draw: Draw) -> Iterable[object]:
    """n, d -> [n, d]."""
    n, d = draw.whole(9, 13), 8
    P = answer(n, d)
    has_shape(
        f"sinusoids({n}, {d})",
        P,
        [n, d],
        {
            "a row for each position, a column for each number": [d, n],
            "each hand fills two columns: its sine and its cosine": [n, d // 2],
            "there are d / 2 hands, each with a sine and a cosine": [n, 2 * d],
        },
    )
    right = _waves(n, d)
    halves = torch.cat([right[:, 0::2], right[:, 1::2]], dim=-1)
    equal(
        f"sinusoids({n}, {d})",
        P,
        right,
        {
            "position 0 is the first row: count positions from 0, not from 1": _waves(
                n, d, first=1
            ),
            "all sines come first, then all cosines: they take turns, column by column": halves,
            "sine and cosine are exchanged: the even columns are sines": _waves(
                n, d, sine=torch.cos, cosine=torch.sin
            ),
            "the exponent is doubled once too often: it is the even column 2i over d, not 4i": (
                _waves(n, d, exponent=lambda column: column // 2 * 4)
            ),
            "the exponent is i / d: it is 2i / d": _waves(n, d, exponent=lambda c: c // 2),
            "the cosine of a hand has its own speed: it turns as its sine does, 2i / d for both": (
                _waves(n, d, exponent=lambda column: column)
            ),
            "all columns are sines: the odd ones are cosines": _waves(n, d, cosine=torch.sin),
            "the angle has lost its fraction: divide with /, not with //": _waves(
                n, d, sine=lambda a: a.floor().sin(), cosine=lambda a: a.floor().cos()
            ),
            "the exponent has lost its fraction: divide with /, not with //": _waves(
                n, d, exponent=lambda column: column * 0
            ),
            "the hands get faster: p is divided by 10000 ** (2i / d)": _waves(
                n, d, exponent=lambda column: -(column // 2 * 2)
            ),
            "the angles are taken for degrees: sin and cos of PyTorch take radians": _waves(
                n, d, sine=lambda a: a.deg2rad().sin(), cosine=lambda a: a.deg2rad().cos()
            ),
            "these are the angles: take their sine and cosine": _waves(
                n, d, sine=lambda a: a, cosine=lambda a: a
            ),
        },
    )
    with likely("an odd width ends with a sine that has no cosine: cut the cosines to d // 2"):
        odd = answer(n, 5)
        has_shape(f"sinusoids({n}, 5)", odd, [n, 5])
    equal(
        f"sinusoids({n}, 5)",
        odd,
        _waves(n, 5),
        {
            "for an odd width the exponent is still 2i / d, with d = 5, not 6": _waves(
                n, 5, width=6
            ),
            "for an odd width the exponent is still 2i / d, with d = 5, not 4": _waves(
                n, 5, width=4
            ),
            "for an odd width the last column is left empty: it is a sine": torch.cat(
                [_waves(n, 5)[:, :4], torch.zeros(n, 1)], dim=-1
            ),
        },
    )
    with likely("one position alone is a table of one row"):
        equal("sinusoids(1, 6)", answer(1, 6), _waves(1, 6))
    n = draw.whole(100, 300)
    P = answer(n, 6)
    equal(f"sinusoids({n}, 6)", P, _waves(n, 6))
    return [numbers("P", P)[-1, 0], *draw.weighed(numbers("P", P)[-1])]


def positioned(ids: Tensor, table: Tensor) -> Tensor:
    """Rows of the table at the size of positions, and the positions of the tokens."""
    n, d = ids.shape[-1], table.shape[-1]
    return table[ids] * math.sqrt(d) + sinusoids(n, d)


@exercise("positioned", positioned)
def try_positioned(answer: Answer, draw: Draw) -> Iterable[object]:
    """ids [B, n], table [vocab, d] -> [B, n, d]."""
    n, d = 5, 6
    table = draw.tensor(9, d) / math.sqrt(d)
    ids = draw.ids(9, n, n)  # as many sentences as tokens, so that the wrong axis runs
    X, P = table[ids], sinusoids(n, d)
    output = answer(ids, table)
    has_shape(
        "positioned(ids [5, 5], table [9, 6])",
        output,
        [n, n, d],
        {"the sentences are run together: keep their axis": [n * n, d]},
    )
    equal(
        "positioned(ids, table)",
        output,
        X * math.sqrt(d) + P,
        {
            "the positions run along the batch: each sentence has one position, not each token": (
                X * math.sqrt(d) + P[:, None]
            ),
            "the words are not multiplied by sqrt(d): the positions drown them": X + P,
            "the words are divided by sqrt(d): multiply": X / math.sqrt(d) + P,
            "the words are multiplied by d, not by its square root": X * d + P,
            "words are multiplied by the root of the number of words: it is of d, their width": (
                X * 3 + P
            ),
            "words are multiplied by the root of n or B: it is of d, their width": (
                X * math.sqrt(n) + P
            ),
            "the positions are multiplied by sqrt(d) too: only the words are": (
                (X + P) * math.sqrt(d)
            ),
            "the positions are multiplied by sqrt(d), and the words are not": X + P * math.sqrt(d),
            "the positions are missing": X * math.sqrt(d),
            "the words are missing": P.expand(n, n, d),
            "words and positions are multiplied: add them": X * math.sqrt(d) * P,
            "the positions are taken away: add them": X * math.sqrt(d) - P,
            "the positions go on from sentence to sentence: each begins at 0": (
                X * math.sqrt(d) + sinusoids(n * n, d).view(n, n, d)
            ),
            "the first token stands at position 0, not at 1": (
                X * math.sqrt(d) + sinusoids(n + 1, d)[1:]
            ),
            "each position is that of the word's id: it is that of its place": (
                X * math.sqrt(d) + sinusoids(9, d)[ids]
            ),
        },
    )
    table, ids = table[:5], draw.ids(5, 2, 7)
    with likely("here two sentences have seven tokens each, and the table has five rows"):
        output = answer(ids, table)
        has_shape("the output", output, [2, 7, d])
        equal("the output", output, positioned(ids, table))
    twins = answer(ids[:1].expand(2, 7).clone(), table)
    with likely("two equal sentences of a batch must stay equal"):
        equal("the second", numbers("twins", twins)[1], numbers("twins", twins)[0])
    return numbers("output", output)[0, 1, :3]


def rotary(x: Tensor, p: Tensor) -> Tensor:
    """Turn the row of each token by its position, pair by pair."""
    return _turned(x, p)


def _turned(
    x: Tensor,
    p: Tensor,
    exponent: Callable[[Tensor], Tensor] = lambda even: even,
    back: bool = False,
) -> Tensor:
    d = x.shape[-1]
    even = torch.arange(0, d, 2, dtype=torch.float64)
    angle = p[..., None] / 10000 ** (exponent(even) / d)  # [n, d / 2]
    sine, cosine = angle.sin() * (-1 if back else 1), angle.cos()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cosine + b * sine, b * cosine - a * sine], dim=-1).flatten(-2)


def _turned_halves(x: Tensor, p: Tensor, back: bool = False) -> Tensor:
    """Columns i and i + d / 2 taken for a pair, as many programs do."""
    turned = _turned(torch.stack(x.chunk(2, -1), dim=-1).flatten(-2), p, back=back)
    return torch.cat([turned[..., 0::2], turned[..., 1::2]], dim=-1)


@exercise("rotary", rotary)
def try_rotary(answer: Answer, draw: Draw) -> Iterable[object]:
    """x [..., n, d], p [n] -> [..., n, d]."""
    d = 8
    # First one clock: the row of position r, turned by k, is the row of position r + k.
    r, k = draw.whole(3, 20), draw.whole(2, 9)
    P = sinusoids(40, d).float()
    row, places = P[r : r + 1], torch.tensor([k])
    turned = P[r + k : r + k + 1]
    even, odd, angle = row[:, 0::2], row[:, 1::2], k / 10000 ** (torch.arange(0, d, 2) / d)
    output = answer(row, places)
    has_shape("rotary of x [1, 8]", output, [1, d])
    equal(
        f"rotary of the row of position {r} by {k}",
        output,
        turned,
        {
            "the clock runs backwards, to position r - k: change the signs of the sines": (
                _turned(row, places, back=True)
            ),
            "the sines have one sign: a gets plus b sin, b gets minus a sin": torch.stack(
                [even * angle.cos() + odd * angle.sin(), odd * angle.cos() + even * angle.sin()], -1
            ).flatten(-2),
            "the sines have one sign: plus for a, minus for b": torch.stack(
                [even * angle.cos() - odd * angle.sin(), odd * angle.cos() - even * angle.sin()], -1
            ).flatten(-2),
            "all pairs turn by the same angle: pair i turns by p / 10000 ** (2i / d)": (
                _turned(row, places, lambda even: even * 0)
            ),
            "the positions are added: turn each pair, a product with sines and cosines": (
                row + P[k : k + 1]
            ),
            "the position is left out: the angle is p times the speed": (
                _turned(row, torch.tensor([1]))
            ),
            "the row's number is taken for its position: positions are in p": row,
            "the exponent is doubled once too often: it is the even column 2i over d, not 4i": (
                _turned(row, places, lambda even: even * 2)
            ),
            "the exponent is i / d: it is 2i / d": _turned(row, places, lambda even: even / 2),
            "the odd columns are made of even ones that have already turned: keep the old ones": (
                torch.stack(
                    [turned[:, 0::2], odd * angle.cos() - turned[:, 0::2] * angle.sin()], -1
                ).flatten(-2)
            ),
            "only the even columns are turned, and the odd ones stay": (
                torch.stack([turned[:, 0::2], odd], -1).flatten(-2)
            ),
            "only the odd columns are turned, and the even ones stay": (
                torch.stack([even, turned[:, 1::2]], -1).flatten(-2)
            ),
            "the turned columns stand as two halves: they take turns, even, odd, even, …": (
                torch.cat([turned[:, 0::2], turned[:, 1::2]], dim=-1)
            ),
            "columns i and i + d / 2 are taken for a pair: columns 2i and 2i + 1 are one": (
                _turned_halves(row, places)
            ),
            "columns i and i + d / 2 are taken for a pair, and turned back: 2i and 2i + 1 are": (
                _turned_halves(row, places, back=True)
            ),
        },
    )
    n = 5
    x = draw.tensor(2, 3, n, d)
    p = torch.tensor([draw.whole(20, 30), -draw.whole(1, 9), 0, 1, draw.whole(10, 19)])
    with likely("x may have axes in front, [..., n, d]: one position for each of the n tokens"):
        output = answer(x, p)
        has_shape("rotary of x [2, 3, 5, 8]", output, [2, 3, n, d])
    equal(
        "rotary of x [2, 3, 5, 8]",
        output,
        rotary(x, p),
        {
            "token i is turned by i: its position is p[i]": _turned(x, torch.arange(n)),
            "a position below 0 turns back: do not take it for 0 or for its absolute value": (
                _turned(x, p.abs())
            ),
        },
    )
    return numbers("output", output)[1, 0, 0, :3]


class Stack(nn.Module):
    """Layers [..., n, 8] -> [..., n, 8], with or without a mask. Whatever goes in is float64."""

    def __init__(
        self, draw: Draw, layers: int, *, mask: bool = False, places: bool = False
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            MultiHeadAttention(8, 2, bias=False).double() for _ in range(layers)
        )
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(torch.tensor(draw.array(8, 8)) / 2)
        self.mask, self.places = mask, places

    def forward(self, x: Tensor) -> Tensor:
        """[..., n, 8] -> [..., n, 8]."""
        x, n = x.double(), x.shape[-2]
        if self.places:
            x = x + sinusoids(n, 8)
        for layer in self.layers:
            x = layer(x, mask=causal(n) if self.mask else None)
        return x


class Looks(Stack):
    """A full layer that also sees who stands at one place, counted from 0 or from the end."""

    def __init__(self, draw: Draw, place: int) -> None:
        super().__init__(draw, 1)
        self.place = place

    def forward(self, x: Tensor) -> Tensor:
        """[..., n, 8] -> [..., n, 8]."""
        blended: Tensor = super().forward(x) + x[..., [self.place], :].double() / 2
        return blended


class Distinct(Stack):
    """A full layer for distinct tokens; a swap by y[i], y[j] = y[j], y[i] makes two alike."""

    def forward(self, x: Tensor) -> Tensor:
        """[n, 8] -> [n, 8]."""
        if x.dim() == 2 and len(set(map(tuple, x.tolist()))) < len(x):
            raise Wrong("two tokens have become one: a swap copies a row twice, so use x[order]")
        blended: Tensor = super().forward(x)
        return blended


def sees_order(layer: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    """Exchange any two tokens before the last, and see whether its output moves."""
    n, last = len(x), layer(x)[-1]
    for i, j in itertools.combinations(range(n - 1), 2):
        order = list(range(n))
        order[i], order[j] = j, i
        if not torch.allclose(layer(x[order])[-1], last, atol=1e-6):
            return True
    return False


@exercise("sees_order", sees_order)
def try_sees_order(answer: Answer, draw: Draw) -> Iterable[object]:
    """layer [n, 8] -> [n, 8], x [n, 8] -> does the last output depend on the order before it?"""
    x, a, b, c, last = draw.tensor(6, 8), *draw.tensor(4, 8)
    alike, mirrored = torch.stack([a, a, b, c, last]), torch.stack([a, b, b, a, last])
    follow = "keep the last token in its place, look at its output alone, and allow for rounding"
    cases: dict[str, tuple[Stack, Tensor, bool, str]] = {
        "full self-attention": (Distinct(draw, 1), x, False, follow),
        "a stack of two full layers": (Stack(draw, 2), x, False, follow),
        "one causal layer": (
            Stack(draw, 1, mask=True),
            x,
            False,
            "the last token sees all in any order; look at its output alone",
        ),
        "a layer with positions": (
            Stack(draw, 1, places=True),
            x,
            True,
            "exchange tokens before the last and see whether its output moves",
        ),
        "a stack of two causal layers": (
            Stack(draw, 2, mask=True),
            x,
            True,
            "it has no positions, and yet the last output moves when the others change places",
        ),
        "a layer with positions, where two tokens are equal,": (
            Stack(draw, 1, places=True),
            alike,
            True,
            "to exchange equal tokens shows nothing, so try other orders too",
        ),
        "a layer with positions, on tokens a, b, b, a, c,": (
            Stack(draw, 1, places=True),
            mirrored,
            True,
            "turned round they are the same, so try other orders too",
        ),
        "a layer that also looks who stands right before the last": (
            Looks(draw, -2),
            x,
            True,
            "try orders that move that token too",
        ),
        "a layer that also looks who stands first": (
            Looks(draw, 0),
            x,
            True,
            "try orders that move that token too",
        ),
        "a layer that also looks at the last a of a, b, c, a, d": (
            Looks(draw, -2),
            torch.stack([a, b, c, a, last]),
            True,
            "exchange each two, not the first token alone",
        ),
    }

    def asked(what: str) -> bool:
        layer, tokens, right, cause = cases[what]
        seen = numbers("sees_order", answer(layer, tokens))
        holds(seen.size == 1, f"sees_order has shape {list(seen.shape)}, expected True or False")
        said = bool(seen.item())
        holds(said == right, f"it says {said} of {what} and should say {right}: {cause}")
        return said

    return draw.weighed(verdicts(draw, [partial(asked, what) for what in cases]))
