"""Chapter 06."""

import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F

from qkv import layers
from qkv.layers import Embedding


def sinusoids(n, d, first=0, power=2, base=10000.0, sine=torch.sin, cosine=torch.cos, width=None):
    p = torch.arange(first, first + n)[:, None]
    angle = p / base ** (power * torch.arange((d + 1) // 2) / (width or d))
    P = torch.zeros(n, d)
    P[:, 0::2], P[:, 1::2] = sine(angle), cosine(angle)[:, : d // 2]
    return P


def sinusoids_in_loops(n, d):
    rows = []
    for p in range(n):
        row = []
        for column in range(d):
            angle = p / 10000 ** (2 * (column // 2) / d)
            row.append(math.cos(angle) if column % 2 else math.sin(angle))
        rows.append(row)
    return torch.tensor(rows)


def sinusoids_by_exp(n, d):
    speeds = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
    angle = torch.outer(torch.arange(n).float(), speeds)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :d]


def sinusoids_in_numpy(n, d):
    column = np.arange(d)
    angle = np.arange(n)[:, None] / 10000 ** (column // 2 * 2 / d)
    return np.where(column % 2, np.cos(angle), np.sin(angle))


def sinusoids_shifted(n, d):
    """A cosine is a sine a quarter turn on."""
    column = torch.arange(d, dtype=torch.float64)
    angle = torch.arange(n)[:, None] * 10000 ** (-(column - column % 2) / d)
    return (angle + column % 2 * math.pi / 2).sin()


def halves(n, d):
    P = sinusoids(n, d)
    return torch.cat([P[:, 0::2], P[:, 1::2]], -1)


def own_cosine(n, d):
    column = torch.arange(d)
    angle = torch.arange(n)[:, None] / 10000 ** (column / d)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos())


def even_alone(n, d):
    """The chapter's five lines."""
    p, even = torch.arange(n)[:, None], torch.arange(0, d, 2)
    angle = p / 10000 ** (even / d)
    P = torch.zeros(n, d)
    P[:, 0::2], P[:, 1::2] = angle.sin(), angle.cos()
    return P


def odd_left_empty(n, d):
    return (
        F.pad(even_alone(n, d - d % 2), (0, d % 2))
        if d % 2 == 0
        else (torch.cat([sinusoids(n, d)[:, :-1], torch.zeros(n, 1)], -1))
    )


def positioned(ids, table, factor=None, P=None):
    n, d = ids.shape[-1], table.shape[-1]
    P = layers.sinusoids(n, d) if P is None else P(ids, d)
    return table[ids] * (math.sqrt(d) if factor is None else factor(ids, d)) + P


def positioned_in_loops(ids, table):
    n, d = ids.shape[1], table.shape[1]
    P = sinusoids_in_loops(n, d)
    X = torch.zeros(*ids.shape, d)
    for b, row in enumerate(ids.tolist()):
        for p, word in enumerate(row):
            X[b, p] = d**0.5 * table[word] + P[p]
    return X


def positioned_by_one_hot(ids, table):
    vocab, d = table.shape
    X = F.one_hot(ids, vocab).double() @ table.double() * np.sqrt(d)
    X += torch.tensor(sinusoids_in_numpy(ids.shape[1], d))
    return X.numpy()


def positioned_by_module(ids, table):
    embedding = Embedding(*table.shape, max_len=64)
    with torch.no_grad():
        embedding.table.weight.copy_(table)
    return embedding(ids)


def positioned_by_take(ids, table):
    B, n = ids.shape
    scaled = table * table.size(1) ** 0.5
    return scaled.index_select(0, ids.flatten()).view(B, n, -1) + sinusoids_by_exp(n, table.size(1))


def parts(x, p, power=2):
    d = x.shape[-1]
    angle = p[:, None] / 10000 ** (power * torch.arange(d // 2) / d)
    return x[..., 0::2], x[..., 1::2], angle.sin(), angle.cos()


def rotary(x, p, power=2):
    a, b, s, c = parts(x, p, power)
    turned = torch.empty_like(x)
    turned[..., 0::2] = a * c + b * s
    turned[..., 1::2] = b * c - a * s
    return turned


def turn(k, d):
    b = k / 10000 ** (torch.arange(0, d, 2) / d)
    pairs = [[[c, -s], [s, c]] for s, c in zip(b.sin(), b.cos(), strict=True)]
    return torch.block_diag(*torch.tensor(pairs))


def rotary_by_matrix(x, p):
    rows = [x[..., i, :] @ turn(float(k), x.shape[-1]) for i, k in enumerate(p)]
    return torch.stack(rows, dim=-2)


def rotary_complex(x, p):
    """sin + i cos turns clockwise."""
    z = torch.view_as_complex(torch.stack([x[..., 1::2], x[..., 0::2]], -1).double())
    d = x.shape[-1]
    angle = p[:, None].double() / 10000 ** (torch.arange(0, d, 2) / d)
    z = z * torch.polar(torch.ones_like(angle), angle)
    return torch.stack([z.imag, z.real], -1).flatten(-2)


def rotary_in_numpy(x, p):
    x, p = x.numpy(), p.numpy()
    out = np.zeros(x.shape)
    for i in range(x.shape[-1] // 2):
        angle = p / 10000.0 ** (2 * i / x.shape[-1])
        a, b = x[..., 2 * i], x[..., 2 * i + 1]
        out[..., 2 * i] = a * np.cos(angle) + b * np.sin(angle)
        out[..., 2 * i + 1] = -a * np.sin(angle) + b * np.cos(angle)
    return out


def rotary_with_swap(x, p):
    """x cos + (its pairs exchanged, with a sign) sin."""
    _, _, s, c = parts(x, p)
    swapped = torch.stack([x[..., 1::2], -x[..., 0::2]], -1).flatten(-2)
    return x * c.repeat_interleave(2, -1) + swapped * s.repeat_interleave(2, -1)


def rotary_halves(x, p, back=False):
    _, _, s, c = parts(x, p)
    s = -s if back else s
    a, b = x.chunk(2, -1)
    return torch.cat([a * c + b * s, b * c - a * s], -1)


def rotary_overwriting(x, p):
    _, _, s, c = parts(x, p)
    x = x.clone()
    x[..., 0::2] = x[..., 0::2] * c + x[..., 1::2] * s
    x[..., 1::2] = x[..., 1::2] * c - x[..., 0::2] * s
    return x


def rotary_of_one_sign(x, p):
    a, b, s, c = parts(x, p)
    return torch.stack([a * c + b * s, b * c + a * s], -1).flatten(-2)


def rotary_even_alone(x, p):
    a, b, s, c = parts(x, p)
    return torch.stack([a * c + b * s, b], -1).flatten(-2)


def side_by_side(x, p):
    turned = rotary(x, p)
    return torch.cat([turned[..., 0::2], turned[..., 1::2]], -1)


def orders(n, tries, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(tries):
        yield [*rng.permutation(n - 1), n - 1]


def sees_by_chance(layer, x):
    last = layer(x)[-1]
    return any(
        not torch.allclose(layer(x[order])[-1], last, atol=1e-5) for order in orders(len(x), 20)
    )


def sees_all_orders(layer, x):
    last = layer(x)[-1]
    seen = torch.tensor(False)
    with torch.no_grad():
        for order in itertools.permutations(range(len(x) - 1)):
            moved = layer(x[[*order, len(x) - 1]])[-1] - last
            seen |= moved.abs().max() > 1e-6
            if seen:
                break
    return seen


def sees_by_rolling(layer, x):
    rolled = torch.cat([x[:-1].roll(1, 0), x[-1:]])
    return np.abs((layer(rolled) - layer(x)).detach().numpy()[-1]).max() > 1e-9


def sees_with_own_tokens(layer, x):
    """The tokens do not matter, only the layer: take some that are surely unlike."""
    x = torch.randn(x.shape, dtype=torch.float64)
    return sees_by_chance(layer, x)


def in_place(layer, x):
    return any(not torch.allclose(layer(x[o]), layer(x), atol=1e-6) for o in orders(len(x), 9))


def last_moves(layer, x):
    order = torch.arange(len(x)).roll(1)
    return not torch.allclose(layer(x[order])[-1], layer(x)[-1], atol=1e-6)


def not_equivariant(layer, x):
    order = torch.arange(len(x)).flip(0)
    return not torch.allclose(layer(x[order]), layer(x)[order], atol=1e-6)


def after(*order):
    """Try one order of the tokens before the last."""

    def answer(layer, x):
        places = list(range(len(x)))
        for i, j in order:
            places[i % (len(x) - 1)], places[j % (len(x) - 1)] = j % (len(x) - 1), i % (len(x) - 1)
        return not torch.allclose(layer(x[places])[-1], layer(x)[-1], atol=1e-6)

    return answer


def turned_round(layer, x):
    flipped = torch.cat([x[:-1].flip(0), x[-1:]])
    return not torch.allclose(layer(flipped)[-1], layer(x)[-1], atol=1e-6)


def first_with_each(layer, x):
    return any(after((0, j))(layer, x) for j in range(1, len(x) - 1))


def copying_swap(layer, x):
    for i, j in itertools.combinations(range(len(x) - 1), 2):
        y = x.clone()
        y[i], y[j] = y[j], y[i]
        if not torch.allclose(layer(y)[-1], layer(x)[-1], atol=1e-6):
            return True
    return False


def mean_moves(layer, x):
    return any(
        not torch.allclose(layer(x[o]).mean(0), layer(x).mean(0), atol=1e-6)
        for o in orders(len(x), 9)
    )


def exactly(layer, x):
    return any(not torch.equal(layer(x[o])[-1], layer(x)[-1]) for o in orders(len(x), 30))


RIGHT = {
    "sinusoids": [
        sinusoids,
        sinusoids_in_loops,
        sinusoids_by_exp,
        sinusoids_in_numpy,
        sinusoids_shifted,
    ],
    "positioned": [
        positioned,
        positioned_in_loops,
        positioned_by_one_hot,
        positioned_by_module,
        positioned_by_take,
    ],
    "rotary": [rotary, rotary_by_matrix, rotary_complex, rotary_in_numpy, rotary_with_swap],
    "sees_order": [sees_by_chance, sees_all_orders, sees_by_rolling, sees_with_own_tokens],
}

WRONG = {
    "sinusoids": {
        "from 1": (lambda n, d: sinusoids(n, d, first=1), "count positions from 0"),
        "halves": (halves, "all sines come first"),
        "exchanged": (
            lambda n, d: sinusoids(n, d, sine=torch.cos, cosine=torch.sin),
            "sine and cosine are exchanged",
        ),
        "doubled again": (lambda n, d: sinusoids(n, d, power=4), "doubled once too often"),
        "not doubled": (lambda n, d: sinusoids(n, d, power=1), "the exponent is i / d"),
        "cosine's own speed": (own_cosine, "the cosine of a hand has its own speed"),
        "sines alone": (
            lambda n, d: sinusoids(n, d, cosine=torch.sin),
            "all columns are sines",
        ),
        "whole angles": (
            lambda n, d: sinusoids(
                n, d, sine=lambda a: a.floor().sin(), cosine=lambda a: a.floor().cos()
            ),
            "the angle has lost its fraction",
        ),
        "whole exponents": (
            lambda n, d: sinusoids(n, d, power=0),
            "the exponent has lost its fraction",
        ),
        "multiplied": (lambda n, d: sinusoids(n, d, power=-2), "the hands get faster"),
        "degrees": (
            lambda n, d: sinusoids(
                n, d, sine=lambda a: a.deg2rad().sin(), cosine=lambda a: a.deg2rad().cos()
            ),
            "taken for degrees",
        ),
        "angles": (
            lambda n, d: sinusoids(n, d, sine=lambda a: a, cosine=lambda a: a),
            "take their sine and cosine",
        ),
        "another base": (lambda n, d: sinusoids(n, d, base=1000.0), "expected"),
        "on its side": (lambda n, d: sinusoids(n, d).T, "a row for each position"),
        "sines of d / 2 hands": (
            lambda n, d: sinusoids(n, d)[:, 0::2],
            "each hand fills two columns",
        ),
        "a hand for each column": (
            lambda n, d: torch.cat([sinusoids(n, d)] * 2, -1),
            "there are d / 2 hands",
        ),
        "fails at odd widths": (even_alone, "cut the cosines to d // 2"),
        "cut from an even width": (
            lambda n, d: sinusoids(n, d, width=d + d % 2),
            "with d = 5, not 6",
        ),
        "short of an odd width": (
            lambda n, d: sinusoids(n, d, width=d - d % 2),
            "with d = 5, not 4",
        ),
        "odd width left empty": (odd_left_empty, "the last column is left empty"),
        "odd width dropped": (lambda n, d: sinusoids(n, d - d % 2), "cut the cosines to d // 2"),
        "one row lost": (lambda n, d: sinusoids(n, d).squeeze(), "a table of one row"),
        "at most 100": (lambda n, d: sinusoids(min(n, 99), d), ", 6) has shape"),
        "the package's": (layers.sinusoids, "it calls sinusoids"),
        "the package's embedding": (
            lambda n, d: Embedding(2, d, max_len=n).positions,
            "it calls sinusoids",
        ),
        "nothing": (lambda n, d: None, "is there a return"),
    },
    "positioned": {
        "along the batch": (
            lambda ids, table: positioned(
                ids, table, P=lambda ids, d: layers.sinusoids(len(ids), d)[:, None]
            ),
            "the positions run along the batch",
        ),
        "not multiplied": (
            lambda ids, table: positioned(ids, table, lambda ids, d: 1),
            "not multiplied by sqrt(d)",
        ),
        "divided": (
            lambda ids, table: positioned(ids, table, lambda ids, d: d**-0.5),
            "divided by sqrt(d): multiply",
        ),
        "by d": (lambda ids, table: positioned(ids, table, lambda ids, d: d), "multiplied by d,"),
        "by the root of n": (
            lambda ids, table: positioned(ids, table, lambda ids, d: ids.shape[1] ** 0.5),
            "it is of d, their width",
        ),
        "by the root of the words": (
            lambda ids, table: positioned(ids, table, lambda ids, d: len(table) ** 0.5),
            "root of the number of words",
        ),
        "as many rows as words": (
            lambda ids, table: positioned(
                ids, table, P=lambda ids, d: layers.sinusoids(len(table), d)[: ids.shape[1]]
            ),
            "the table has five rows",
        ),
        "all multiplied": (
            lambda ids, table: positioned(ids, table, lambda ids, d: 1) * table.shape[1] ** 0.5,
            "the positions are multiplied by sqrt(d) too",
        ),
        "positions multiplied": (
            lambda ids, table: positioned(
                ids,
                table,
                lambda ids, d: 1,
                lambda ids, d: d**0.5 * layers.sinusoids(ids.shape[1], d),
            ),
            "and the words are not",
        ),
        "no positions": (
            lambda ids, table: positioned(ids, table, P=lambda ids, d: 0),
            "the positions are missing",
        ),
        "no words": (
            lambda ids, table: positioned(ids, table * 0),
            "the words are missing",
        ),
        "a product": (
            lambda ids, table: (
                table[ids] * table.shape[1] ** 0.5 * layers.sinusoids(ids.shape[1], table.shape[1])
            ),
            "add them",
        ),
        "a difference": (
            lambda ids, table: positioned(
                ids, table, P=lambda ids, d: -layers.sinusoids(ids.shape[1], d)
            ),
            "are taken away",
        ),
        "from 1": (
            lambda ids, table: positioned(
                ids, table, P=lambda ids, d: layers.sinusoids(ids.shape[1] + 1, d)[1:]
            ),
            "stands at position 0",
        ),
        "by id": (
            lambda ids, table: positioned(
                ids, table, P=lambda ids, d: layers.sinusoids(int(ids.max()) + 1, d)[ids]
            ),
            "that of the word's id",
        ),
        "through the whole batch": (
            lambda ids, table: positioned(
                ids,
                table,
                P=lambda ids, d: layers.sinusoids(ids.numel(), d).view(*ids.shape, d),
            ),
            "the positions go on from sentence to sentence",
        ),
        "as many rows as sentences": (
            lambda ids, table: positioned(
                ids, table, P=lambda ids, d: layers.sinusoids(len(ids), d)
            ),
            "here two sentences have seven tokens each",
        ),
        "run together": (
            lambda ids, table: positioned(ids, table).flatten(0, 1),
            "the sentences are run together",
        ),
        "columns of the table": (
            lambda ids, table: table[:, ids.clamp(max=5)].mean(0),
            "has shape [5, 5], expected",
        ),
        "changes the table": (
            lambda ids, table: positioned(ids, table.mul_(6**0.5), lambda ids, d: 1),
            "changes its argument number 2",
        ),
        "nothing": (lambda ids, table: None, "is there a return"),
    },
    "rotary": {
        "backwards": (lambda x, p: rotary(x, -p), "the clock runs backwards"),
        "one angle": (lambda x, p: rotary(x, p, power=0), "turn by the same angle"),
        "added": (
            lambda x, p: x + layers.sinusoids(64, x.shape[-1])[p],
            "the positions are added",
        ),
        "no position": (lambda x, p: rotary(x, torch.ones_like(p)), "the position is left out"),
        "the row's number": (
            lambda x, p: rotary(x, torch.arange(len(p))),
            "positions are in p",
        ),
        "the row's number in a batch": (
            lambda x, p: rotary(x, torch.arange(len(p)) if len(p) > 1 else p),
            "token i is turned by i",
        ),
        "doubled again": (lambda x, p: rotary(x, p, power=4), "doubled once too often"),
        "not doubled": (lambda x, p: rotary(x, p, power=1), "the exponent is i / d"),
        "halves": (rotary_halves, "taken for a pair: columns 2i and 2i + 1 are one"),
        "halves, backwards": (lambda x, p: rotary_halves(x, p, True), "and turned back"),
        "overwriting": (rotary_overwriting, "even ones that have already turned"),
        "halves put together": (side_by_side, "the turned columns stand as two halves"),
        "one sign": (rotary_of_one_sign, "a gets plus b sin"),
        "one sign, minus": (lambda x, p: rotary_of_one_sign(x, -p), "plus for a, minus for b"),
        "even columns alone": (rotary_even_alone, "only the even columns are turned"),
        "odd columns alone": (
            lambda x, p: torch.stack([x[..., 0::2], rotary(x, p)[..., 1::2]], -1).flatten(-2),
            "only the odd columns are turned",
        ),
        "no position below 0": (lambda x, p: rotary(x, p.abs()), "a position below 0 turns back"),
        "along another axis": (
            lambda x, p: rotary(x.transpose(0, -2), p).transpose(0, -2),
            "x may have axes in front",
        ),
        "needs two axes": (
            lambda x, p: torch.stack(
                [row @ turn(float(k), x.shape[1]) for row, k in zip(x, p, strict=True)]
            ),
            "x may have axes in front",
        ),
        "the matrix alone": (
            lambda x, p: torch.stack([turn(float(k), x.shape[-1]) for k in p]),
            "rotary of x [1, 8] has shape",
        ),
        "changes x": (
            lambda x, p: x.copy_(rotary(x, p)),
            "changes its argument number 1",
        ),
        "nothing": (lambda x, p: None, "is there a return"),
    },
    "sees_order": {
        "always": (lambda layer, x: True, "it says True of full self-attention"),
        "never": (lambda layer, x: False, "it says False of a layer with positions and"),
        "in place": (in_place, "keep the last token in its place"),
        "another last token": (last_moves, "keep the last token in its place"),
        "exactly": (exactly, "allow for rounding"),
        "not equivariant": (not_equivariant, "it says True of one causal layer"),
        "the mean": (mean_moves, "it says True of one causal layer"),
        "only with positions": (
            lambda layer, x: bool(layer.places) and sees_by_chance(layer, x),
            "it says False of a stack of two causal layers",
        ),
        "first two": (after((0, 1)), "to exchange equal tokens shows nothing"),
        "ends": (after((0, -1)), "try other orders too"),
        "turned round": (turned_round, "turned round they are the same"),
        "last two before the last": (after((-2, -1)), "who stands first"),
        "second and third": (after((1, 2)), "on tokens a, b, b, a, c,"),
        "first with each": (first_with_each, "exchange each two"),
        "copying swap": (copying_swap, "a swap copies a row twice"),
        "first and third": (after((0, 2)), "who stands right before the last"),
        "turned the wrong way": (
            lambda layer, x: not sees_by_chance(layer, x),
            "it says True of full self-attention",
        ),
        "each token": (
            lambda layer, x: (layer(x) - layer(x.flip(0))).abs().amax(-1) > 1e-6,
            "expected True or False",
        ),
        "nothing": (lambda layer, x: None, "is there a return"),
    },
}
