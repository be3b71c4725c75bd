"""Chapter 03: the causal mask, both masks together, masked attention, a test for leaks."""

import math
from collections.abc import Iterable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from qkv import masks
from qkv.attention import attention
from qkv.checks.answer import Answer
from qkv.checks.draw import Draw
from qkv.checks.exercise import exercise
from qkv.checks.faults import Wrong, equal, has_shape, holds, likely, numbers
from qkv.checks.suspects import HONEST, LEAKING, Model
from qkv.checks.verdicts import verdicts


@exercise("causal_mask", masks.causal, never=("causal", "generate_square_subsequent_mask"))
def try_causal_mask(answer: Answer, draw: Draw) -> Iterable[object]:
    """n -> Boolean [n, n], True = may attend."""
    size = draw.whole(4, 7)
    for n in (size, 1, size + 1):
        mask, right, full = answer(n), masks.causal(n), torch.ones(n, n)
        equal(
            f"causal_mask({n})",
            mask,
            right,
            {
                "row i sees what comes after it: the past lies below the diagonal": full.triu(),
                "row i sees what comes after it: is True where it may NOT attend?": full.triu(1),
                "the diagonal is False: a token may see itself, or the first one sees nothing": (
                    full.tril(-1)
                ),
                "row i sees one token too many: tril without a second argument": full.tril(1),
                "nothing is hidden": full,
                "nothing is to be seen: all is False": 0 * full,
                "a token sees itself alone: the past is hidden too": torch.eye(n),
                "the triangle lies at the other diagonal: it begins at the top left": (
                    full.tril().flip(0)
                ),
                "this is an additive mask, 0 and -inf: give True and False": masks.additive(right),
                "this is an additive mask, 0 and a large negative number: give True and False": (
                    np.where(right, 0.0, np.min(numbers("the mask", mask)))
                ),
                "0 * -inf is NaN: give True and False": torch.where(right, math.nan, -math.inf),
            },
        )
        holds(
            _Boolean(mask),
            "the mask holds the numbers 1 and 0: give True and False, as dtype=torch.bool does",
        )
    return [numbers("the mask", mask).sum(), *draw.weighed(numbers("the mask", mask))]


def _Boolean(mask: object) -> bool:
    if isinstance(mask, torch.Tensor):
        return mask.dtype == torch.bool
    return np.asarray(mask).dtype == np.bool_


def combine(causal: Tensor, keep: Tensor) -> Tensor:
    """Causal for each query, and no key that is padding."""
    return causal & keep[:, None, None, :]


@exercise("combine", combine)
def try_combine(answer: Answer, draw: Draw) -> Iterable[object]:
    """causal [n, n], keep [B, n], both Boolean -> Boolean [B, 1, n, n]."""
    seen = []
    for B, n in ((4, 4), (2, 5), (1, 4)):  # with B = n or B = 1 broadcasting hides a mistake
        causal, keep = masks.causal(n), _keep(draw, B, n)
        what = f"combine of causal [{n}, {n}] and keep [{B}, {n}]"
        mask = answer(causal, keep)
        has_shape(
            what,
            mask,
            [B, 1, n, n],
            {
                "the axis for the heads is missing: keep[:, None, None, :]": [B, n, n],
                "each sentence has a mask of its own: keep[:, None, None, :]": [n, n],
                "the sentences stand in front, then the heads": [1, B, n, n],
                "the causal mask is missing, and this is the padding alone": [B, 1, 1, n],
                "the causal mask is missing: this is the padding alone": [B, n],
            },
        )
        columns, rows = keep[:, None, None, :], keep[:, None, :, None]
        everywhere = torch.ones(B, 1, n, n, dtype=torch.bool)
        equal(
            what,
            mask,
            causal & columns,
            {
                "a query must be allowed by both masks, not by one of them: & in place of |": (
                    causal | columns
                ),
                "this hides the rows of the padding: hide its columns, the keys": causal & rows,
                "this hides the padding's rows too: what it asks does no harm, what it offers "
                "does": causal & rows & columns,
                "keep is True where there is a word: it needs no ~": causal & ~columns,
                "the causal mask is True where one may attend: it needs no ~": ~causal & columns,
                "both masks are turned round: True means may attend, and needs no ~": (
                    ~causal & ~columns
                ),
                "this is True where it is hidden: True means may attend": ~(causal & columns),
                "the causal mask is missing": everywhere & columns,
                "the padding is not hidden": everywhere & causal,
                "^ is True where exactly one of both is: take &": causal ^ columns,
                "the causal mask is transposed": causal.T & columns,
                "a query of padding may see nothing here: no row is opened again": (
                    causal & columns | torch.eye(n, dtype=torch.bool)
                ),
                "row b of keep belongs to sentence b, not to query b": (
                    causal & keep[:n] & everywhere if B >= n else everywhere
                ),
                "every sentence gets the padding of the first": causal & columns[:1] & everywhere,
                "every sentence gets the padding of all": causal & columns.all(0) & everywhere,
            },
        )
        holds(_Boolean(mask), "the mask holds numbers: give True and False")
        seen.append(numbers(what, mask).ravel())
    return draw.weighed(np.concatenate(seen))


def _keep(draw: Draw, B: int, n: int) -> Tensor:
    """Unlike padding in the sentences; in the first it stands in front."""
    keep = torch.ones(B, n, dtype=torch.bool)
    keep[0, : draw.whole(1, 2)] = False
    for b in range(1, B):
        keep[b, n - 1 - (b + draw.whole(0, 1)) % 3 :] = False
    return keep


@exercise("masked_attention", attention, never=("scaled_dot_product_attention", "attention"))
def try_masked_attention(answer: Answer, draw: Draw) -> Iterable[object]:
    """Q [..., n_q, d_k], K [..., n_kv, d_k], V [..., n_kv, d_v], mask -> [..., n_q, d_v]."""
    Q, K, V = draw.tensor(3, 7), draw.tensor(5, 7), draw.tensor(5, 6)
    mask = torch.ones(3, 5, dtype=torch.bool)
    swap = draw.whole(0, 1)
    for row in range(3):  # each query misses two keys of five, and each key has who sees it
        mask[row, [row, 3 + (row + swap) % 2]] = False
    output = answer(Q, K, V, mask)
    has_shape("masked_attention(Q, K, V, mask)", output, [3, 6], {"these are the weights": [3, 5]})
    scores, hidden = Q @ K.T / math.sqrt(7), ~mask
    A, right = scores.softmax(-1), attention(Q, K, V, mask)
    minus = scores.masked_fill(hidden, -math.inf)
    equal(
        "masked_attention(Q, K, V, mask)",
        output,
        right,
        {
            "nothing is hidden": A @ V,
            "the wrong ones are hidden: fill where the mask is False, ~mask": (
                attention(Q, K, V, hidden)
            ),
            "the mask comes after the softmax: rows no longer sum to 1": (A * mask) @ V,
            "the hidden scores are 0, and a score of 0 gets a share: fill with the lowest number": (
                scores.masked_fill(hidden, 0).softmax(-1) @ V
            ),
            "the hidden scores are 0, and their share is lost: fill with the lowest number": (
                (scores * mask).softmax(-1) * mask @ V
            ),
            "nothing is left: fill where the mask is False, ~mask": torch.zeros(3, 6),
            "the hidden scores are only 1 lower: add 0 where one may attend, -inf elsewhere": (
                (scores + mask.float()).softmax(-1) @ V
            ),
            "0 * -inf is NaN: fill, do not multiply": torch.full((3, 6), math.nan),
            "the weights of all hidden keys are 1: fill before the softmax": (
                A.masked_fill(hidden, 1) @ V
            ),
            "the scores are not divided by sqrt(d_k)": attention(Q * 7**0.5, K, V, mask),
            "the scores are divided by d_k, not by its square root": (
                attention(Q / 7**0.5, K, V, mask)
            ),
            "the scores are divided by 2: divide by sqrt(d_k), and here d_k is 7": (
                attention(Q * 7**0.5 / 2, K, V, mask)
            ),
            "each column of the weights sums to 1, not each row: softmax over the keys, dim=-1": (
                minus.softmax(0) @ V
            ),
        },
    )
    _loud(answer, Q, K, V)
    _axes(answer, draw)
    _empty(answer, Q, K, V, mask)
    half = [x.half() for x in (Q, K, V)]
    with likely(
        "what you make must have the scores' dtype, and float16 ends at -65504: fill with "
        "torch.finfo(scores.dtype).min"
    ):
        equal("masked_attention in float16", answer(*half, mask), right, tolerance=2e-2)
    return numbers("output", output)[0, :3]


def _loud(answer: Answer, Q: Tensor, K: Tensor, V: Tensor) -> None:
    """For query 0, a hidden key with a score of 200; then all scores lower by 200."""
    only = torch.tensor([[True, False, True, True, True]])
    right, far = attention(Q[:1], K, V, only), 200 * 7**0.5 * Q[0] / Q[0].square().sum()
    loud = K.clone()
    loud[1] = far
    with likely("a hidden key with a score of 200 must not matter: hide it before the softmax"):
        equal("the output of query 0", answer(Q[:1], loud, V, only), right)
    with likely(
        "all scores are near -200 here, and the hidden key must not win: fill with "
        "torch.finfo(scores.dtype).min"
    ):
        equal("the output of query 0", answer(Q[:1], K - far, V, only), right, tolerance=5e-3)


def _axes(answer: Answer, draw: Draw) -> None:
    """A batch, in which one mask serves all, or each sentence or head has its own."""
    Q, K, V = draw.tensor(2, 3, 2, 4), draw.tensor(2, 3, 5, 4), draw.tensor(2, 3, 5, 6)
    keep = torch.tensor([[True, True, True, False, False], [False, True, True, True, True]])
    window = torch.ones(2, 5, dtype=torch.bool).tril(2)
    try:
        found = answer(Q[0], K[0], V[0], window)
    except Wrong as wrong:
        filled = "[~mask] does not broadcast, masked_fill does"
        turned = "axes in front stay as they are: is there K.T, not K.mT?"
        raise Wrong(f"{wrong}: {filled if 'IndexError' in str(wrong) else turned}") from None
    equal(
        "masked_attention of a batch, Q [3, 2, 4], mask [2, 5]",
        found,
        attention(Q[0], K[0], V[0], window),
        {
            "in a batch softmax ran over the queries: its axis is the last, dim=-1, not dim=1": (
                (Q[0] @ K[0].mT / 2).masked_fill(~window, -math.inf).softmax(1) @ V[0]
            )
        },
    )
    with likely("the mask broadcasts against the scores [2, 3, 2, 5], as it is"):
        columns = keep[:, None, None, :]
        equal(
            "masked_attention of a batch, Q [2, 3, 2, 4], mask [2, 1, 1, 5]",
            answer(Q, K, V, columns),
            attention(Q, K, V, columns),
        )


def _empty(answer: Answer, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> None:
    """A row that may see nothing: zeros, and slopes that are numbers."""
    blind = mask.clone()
    blind[1] = False
    right = attention(Q, K, V, mask) * torch.tensor([[1.0], [0.0], [1.0]])

    def with_row(row: Tensor | float) -> Tensor:
        other = right.clone()
        other[1] = row
        return other

    equal(
        "with a row that may see nothing, the output",
        answer(Q, K, V, blind),
        right,
        {
            "a row that may see nothing gives NaN: give zeros": with_row(math.nan),
            "a row that may see nothing gives all keys equal shares, as a large negative number "
            "does: give zeros": with_row(V.mean(0)),
            "a row that may see nothing listens to all keys: give zeros": (
                with_row(attention(Q, K, V)[1])
            ),
        },
    )
    inputs = [x.clone().requires_grad_() for x in (Q, K, V)]
    try:
        output = answer(*inputs, blind)
    except Wrong as wrong:  # NumPy refuses them, and has no slopes to spoil
        holds("requires grad" in str(wrong), str(wrong))
        return
    if isinstance(output, Tensor):
        leaves = _leaves(output)
        for name, x in zip("QKV", inputs, strict=True):
            holds(
                any(leaf.shape == x.shape for leaf in leaves),  # no two shapes are alike
                f"no slope reaches {name}: is there a detach, item or tolist?",
            )
        slopes = torch.autograd.grad(output.sum(), leaves)
        holds(
            all(bool(slope.isfinite().all()) for slope in slopes),
            "with a row that may see nothing the slopes are NaN: a NaN mended at the end still "
            "spoils them, so mend the scores or the weights",
        )


def _leaves(output: Tensor) -> list[Tensor]:
    """The tensors that the output was made of: an answer works on copies."""
    found, seen, nodes = [], set(), [output.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        nodes += [after for after, _ in node.next_functions]
    return found


def leaks(model: Model, x: Tensor) -> bool:
    """All cuts in one batch, in which a random model draws the same for all."""
    batch = torch.stack([x] * len(x))  # [n, n, d_model]: row 0 stays as it is
    for cut in range(1, len(x)):
        batch[cut, cut:] = torch.randn(x[cut:].shape)
    outputs = model(batch)
    moved = (outputs - outputs[:1]).abs().amax(-1)  # [n, n]: cut, position
    return bool((moved.tril(-1) > 1e-5).any())


@exercise("leaks", leaks)
def try_leaks(answer: Answer, draw: Draw) -> Iterable[object]:
    """model: [n, d_model] -> [n, d_model], x [n, d_model] -> whether the future leaks."""
    x = draw.tensor(6, 8) / 2
    wrong: list[bool] = []

    def asked(model: Model, leaking: bool, cause: str) -> bool:
        verdict = answer(model, x)
        found = numbers("leaks(model, x)", verdict)
        holds(
            found.size == 1 and float(found.reshape(())) in (0, 1),
            f"leaks(model, x) is {verdict}, expected True or False",
        )
        said = bool(found.reshape(()))
        wrong.append(said != leaking)
        holds(said == leaking, f"leaks(model, x) is {said}, expected {leaking}: {cause}")
        return said

    cases = [
        partial(asked, model, leaking, cause)
        for models, leaking in ((HONEST, False), (LEAKING, True))
        for cause, model in models.items()
    ]
    try:
        return draw.weighed(verdicts(draw, cases))
    except Wrong:
        holds(
            sum(wrong) < len(cases),
            "each verdict is the wrong way round: True means that the future leaks",
        )
        raise
