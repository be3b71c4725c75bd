"""Chapter 05: heads split and merged, many heads, their bill, a test that finds broken ones."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from qkv.attention import attention
from qkv.checks.answer import Answer
from qkv.checks.draw import Draw
from qkv.checks.exercise import exercise
from qkv.checks.faults import Wrong, equal, has_shape, holds, kind, likely, numbers
from qkv.checks.verdicts import verdicts

Move = Callable[[Tensor], Tensor]


def split_heads(x: Tensor, h: int) -> Tensor:
    """[..., n, d] -> [..., h, n, d / h]."""
    return x.reshape(*x.shape[:-1], h, -1).transpose(-3, -2)


def merge_heads(heads: Tensor) -> Tensor:
    """[..., h, n, d / h] -> [..., n, d]."""
    return heads.transpose(-3, -2).flatten(-2)


def _split_by_view(x: Tensor, h: int) -> Tensor:
    n, d = x.shape[-2:]
    return x.reshape(*x.shape[:-2], h, n, d // h)


def _merge_by_view(heads: Tensor) -> Tensor:
    h, n, width = heads.shape[-3:]
    return heads.reshape(*heads.shape[:-3], n, h * width)


def _split_in_turn(x: Tensor, h: int) -> Tensor:
    return x.reshape(*x.shape[:-1], -1, h).movedim(-1, -3)


def _merge_in_turn(heads: Tensor) -> Tensor:
    return heads.movedim(-3, -1).flatten(-2)


@exercise("split_heads", split_heads)
def try_split_heads(answer: Answer, draw: Draw) -> Iterable[object]:
    """x [..., n, d], h -> [..., h, n, d / h]."""
    x = torch.arange(24.0).view(4, 6)
    heads = answer(x, 3)
    has_shape(
        "split_heads of x [4, 6] with h = 3",
        heads,
        [3, 4, 2],
        {
            "the heads stand behind the tokens still: exchange these two axes": [4, 3, 2],
            "the numbers of a head are its last axis, tokens the one before": [3, 2, 4],
            "there are h heads, here 3, and each is d / h wide, here 2": [2, 4, 3],
            "these are other axes: count them from the end, and exchange -3 and -2": [4, 2, 3],
        },
    )
    equal(
        "split_heads of 0 … 23 as [4, 6], h = 3: heads",
        heads,
        split_heads(x, 3),
        {
            "numbers of token 1 sit in token 0's row: cut the last axis in two first, then "
            "exchange axes": _split_by_view(x, 3),
            "head 0 has each token's numbers 0 and 3: a head's numbers lie side by side": (
                _split_in_turn(x, 3)
            ),
            "the heads stand in the wrong order": split_heads(x, 3).flip(0),
        },
    )
    for shape, h in (([2, 5, 6], 3), ([2, 3, 4, 8], 2)):
        batch = draw.tensor(*shape)
        *leading, n, d = shape
        with likely("axes in front of the tokens stay in front: count axes from the end"):
            seen = answer(batch, h)
            has_shape(f"split_heads of x {shape} with h = {h}", seen, [*leading, h, n, d // h])
        equal(
            f"split_heads of a batch {shape} with h = {h}",
            seen,
            split_heads(batch, h),
            {
                "in a batch numbers of one token sit in another's row: exchange the axes of "
                "tokens and heads": _split_by_view(batch, h),
                "in a batch a head's numbers no longer lie side by side": _split_in_turn(batch, h),
            },
        )
    turned = draw.tensor(2, 6, 5).mT  # whose numbers do not lie in order in memory
    equal("split_heads of a transposed x", answer(turned, 3), split_heads(turned, 3))
    one = draw.tensor(3, 4)
    equal("split_heads with h = 1", answer(one, 1), one[None])
    return numbers("heads", seen)[0, 0, 1, 0, :3]


@exercise("merge_heads", merge_heads)
def try_merge_heads(answer: Answer, draw: Draw) -> Iterable[object]:
    """heads [..., h, n, d_v] -> [..., n, h * d_v]."""
    x = torch.arange(12.0).view(3, 4)
    heads = split_heads(x, 2).contiguous()  # [2, 3, 2]
    merged = answer(heads)
    has_shape(
        "merge_heads of heads [2, 3, 2]",
        merged,
        [3, 4],
        {
            "the heads are added up or averaged, or one is picked: put them side by side": [3, 2],
            "these are rows of heads: first exchange the axes of heads and tokens, -3 and -2": (
                [2, 6]
            ),
            "the heads stand below each other: put them side by side": [6, 2],
            "each token has a row: tokens are the first axis": [4, 3],
            "the heads stand behind the tokens; now make one axis of the last two": [3, 2, 2],
        },
    )
    equal(
        "merge_heads of the two heads of 0 … 11",
        merged,
        x,
        {
            "token 0's row holds numbers of token 1: exchange the axes of heads and tokens before "
            "you reshape": _merge_by_view(heads),
            "a token's numbers are dealt out in turn: each head's lie side by side": (
                _merge_in_turn(heads)
            ),
            "the heads stand in the wrong order": merge_heads(heads.flip(0)),
        },
    )
    for shape in ([2, 3, 4, 5], [2, 3, 4, 5, 2]):
        batch = draw.tensor(*shape)
        *leading, h, n, width = shape
        with likely("axes in front of the heads stay in front: count axes from the end"):
            seen = answer(batch)
            has_shape(f"merge_heads of heads {shape}", seen, [*leading, n, h * width])
        equal(
            f"merge_heads of a batch {shape}",
            seen,
            merge_heads(batch),
            {
                "in a batch tokens are mixed: exchange the axes of heads and tokens, not of "
                "others": _merge_by_view(batch)
            },
        )
    one = draw.tensor(1, 2, 1, 3)
    with likely("an axis of size 1 stays"):
        equal("merge_heads of heads [1, 2, 1, 3]", answer(one), merge_heads(one))
    turned = draw.tensor(2, 4, 3, 5).transpose(1, 2)  # not contiguous
    with likely("here the numbers do not lie in order in memory: reshape, not view"):
        equal("merge_heads", answer(turned), merge_heads(turned))
    return numbers("merged", seen)[0, 0, 1, :3]


def multi_head(
    x_q: Tensor,
    x_kv: Tensor,
    W_Q: Tensor,
    W_K: Tensor,
    W_V: Tensor,
    W_O: Tensor,
    h: int,
    split: Callable[[Tensor, int], Tensor] = split_heads,
    merge: Move = merge_heads,
) -> Tensor:
    """Attention with h heads, side by side in the columns of the matrices."""
    Q, K, V = split(x_q @ W_Q, h), split(x_kv @ W_K, h), split(x_kv @ W_V, h)
    return merge(attention(Q, K, V)) @ W_O


MODULES = {
    "_blend": "MultiHeadAttention",
    "multi_head_attention_forward": "nn.MultiheadAttention",
    "_native_multi_head_attention": "nn.MultiheadAttention",
}


@exercise("multi_head", multi_head, never=tuple(MODULES))
def try_multi_head(answer: Answer, draw: Draw) -> Iterable[object]:
    """x_q [B, n_q, d_model], x_kv [B, n_kv, d_model], four matrices, h -> [B, n_q, d_model]."""
    # First all matrices are square, so that what is left out or turned round runs and is named.
    x_q, x_kv, h = draw.tensor(2, 3, 8), draw.tensor(2, 5, 8), 2
    W_Q, W_K, W_V, W_O = draw.tensor(4, 8, 8) / math.sqrt(8)
    given = x_q, x_kv, W_Q, W_K, W_V, W_O
    try:
        output = answer(*given, h)
    except Wrong as wrong:
        message = str(wrong)
        for inner, module in MODULES.items():
            message = message.replace(f"it calls {inner},", f"it calls {module},")
        raise Wrong(message) from None
    has_shape(
        "the output",
        output,
        [2, 3, 8],
        {
            "the heads are added up: put them side by side": [2, 3, 4],
            "the heads are not merged": [2, 2, 3, 4],
            "the queries come from x_kv: x_q asks": [2, 5, 8],
        },
    )
    Q, K, V = (split_heads(x, h) for x in (x_q @ W_Q, x_kv @ W_K, x_kv @ W_V))
    scores = Q @ K.mT / 2  # [B, h, n_q, n_kv]
    wrongly = partial(multi_head, *given, h)
    in_turn = wrongly(split=_split_in_turn, merge=_merge_in_turn)
    first = [W[:, :4].repeat(1, 2) for W in (W_Q, W_K, W_V)]  # each head the same columns
    own = torch.eye(2).repeat_interleave(4, 0).repeat_interleave(4, 1)  # [8, 8]: two blocks
    blocks = [W * own for W in (W_Q, W_K, W_V)]
    heads_first = attention(Q, K, V).transpose(0, 1).reshape(2, 2, 3, 4)  # axes B and h exchanged
    causes = {
        "the scores are divided by sqrt(d_model): each head divides by the root of its own d_k": (
            multi_head(x_q / math.sqrt(2), *given[1:], h)
        ),
        "the scores are not divided by sqrt(d_k)": multi_head(2 * x_q, *given[1:], h),
        "the scores are divided by d_k, not by its square root": multi_head(x_q / 2, *given[1:], h),
        "h is not used: this is one head of the full width": multi_head(*given, 1),
        "the last step is missing: multiply the merged heads by W_O": (
            multi_head(*given[:5], torch.eye(8), h)
        ),
        "W_O is turned round: it is [h * d_v, d_model], so no .T": multi_head(*given[:5], W_O.T, h),
        "W_Q, W_K, W_V are turned round: they are [d_model, width], so no .T": (
            multi_head(x_q, x_kv, W_Q.T, W_K.T, W_V.T, W_O, h)
        ),
        "all four matrices are turned round: they are [in, out] here, so no .T": (
            multi_head(x_q, x_kv, W_Q.T, W_K.T, W_V.T, W_O.T, h)
        ),
        "keys and values come from x_q: make them of x_kv": multi_head(x_q, x_q, *given[2:], h),
        "all heads take the first head's columns: head 1 has columns d_k to 2 d_k": (
            multi_head(x_q, x_kv, first[0], first[1], first[2], W_O, h)
        ),
        "x is cut into heads before the projections: each head projects the whole of x": (
            multi_head(x_q, x_kv, blocks[0], blocks[1], blocks[2], W_O, h)
        ),
        "the heads are split without a transpose: cut the last axis, then exchange axes": (
            wrongly(split=_split_by_view)
        ),
        "the heads are merged without a transpose: exchange heads and tokens, then reshape": (
            wrongly(merge=_merge_by_view)
        ),
        "the heads are split and merged without a transpose: a token's numbers must stay "
        "together": wrongly(split=_split_by_view, merge=_merge_by_view),
        "each head takes every second column: a head's columns lie side by side": in_turn,
        "a head's columns lie side by side in W_Q, W_K, W_V, and its rows in W_O": (
            wrongly(merge=_merge_in_turn)
        ),
        "a head's columns lie side by side: Q, K and V are split into every second one": (
            wrongly(split=_split_in_turn)
        ),
        "the heads are merged in the wrong order: head 0 comes first": (
            wrongly(merge=lambda heads: merge_heads(heads.flip(-3)))
        ),
        "batch and heads are exchanged: sentences get each other's heads": (
            merge_heads(heads_first) @ W_O
        ),
        "softmax ran over the queries: it runs over the keys, dim=-1": (
            merge_heads(scores.softmax(-2) @ V) @ W_O
        ),
        "softmax ran over the heads: it runs over the keys, dim=-1": (
            merge_heads(scores.softmax(1) @ V) @ W_O
        ),
        "the softmax is missing: the scores are used as weights": merge_heads(scores @ V) @ W_O,
        "the heads are averaged: put them side by side": (
            multi_head(*given, h, merge=lambda heads: heads.mean(-3).repeat(1, 1, 2))
        ),
    }
    equal("with two heads the output", output, multi_head(*given, h), causes)
    # Then each head is wider or narrower than d_model / h, and d_v differs from d_k.
    for h in (4, 1, 3):
        d_model, d_k, d_v = 6, 3, 5
        x_q, x_kv = draw.tensor(2, 3, d_model), draw.tensor(2, 7, d_model)
        W_Q, W_K, W_V = (draw.tensor(d_model, h * d) / math.sqrt(d_model) for d in (d_k, d_k, d_v))
        W_O = draw.tensor(h * d_v, d_model) / math.sqrt(h * d_v)
        case = f"with h = {h}, d_model = 6, d_k = 3 and d_v = 5 the output"
        with likely("d_v need not be d_k, nor h * d_k be d_model: take widths from the matrices"):
            output = answer(x_q, x_kv, W_Q, W_K, W_V, W_O, h)
            has_shape(case, output, [2, 3, d_model])
        roots = {"d_model": 6, "d_model / h": 6 / h, "h * d_k": 3 * h, "d_v": 5, "h": h}
        scaled = {
            f"the scores are divided by the root of {name}: it is of d_k, each head's own": (
                multi_head(x_q * math.sqrt(3 / size), x_kv, W_Q, W_K, W_V, W_O, h)
            )
            for name, size in roots.items()
            if size != 3
        }
        equal(case, output, multi_head(x_q, x_kv, W_Q, W_K, W_V, W_O, h), scaled)
    return numbers("output", output)[1, 0, :3]


SIZES = ("n_q", "n_kv", "d_model", "h", "d_k", "d_v")
PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31)  # unlike sizes, which no product mixes up
PRODUCTS = {
    "Q": "n_q d_model h d_k",
    "K": "n_kv d_model h d_k",
    "V": "n_kv d_model h d_v",
    "scores": "h n_q n_kv d_k",
    "blend": "h n_q n_kv d_v",
    "W_O": "n_q h d_v d_model",
}
OTHER_PRODUCTS = {
    ("Q", "n_kv d_model h d_k"): "x_q has n_q tokens, and each is projected",
    ("K", "n_q d_model h d_k"): "keys are made of x_kv, which has n_kv tokens",
    ("V", "n_q d_model h d_v"): "values are made of x_kv, which has n_kv tokens",
    ("V", "n_kv d_model h d_k"): "a value has the width d_v",
    ("scores", "h n_q n_kv d_model"): "a head is only d_k wide, not d_model",
    ("scores", "h n_q n_kv d_v"): "queries and keys have the width d_k",
    ("scores", "h n_q n_q d_k"): "each of n_q queries meets each of n_kv keys",
    ("scores", "h n_q n_kv"): "that is how many scores there are; each takes d_k multiplications",
    ("blend", "h n_q n_kv d_model"): "a head's value is only d_v wide, not d_model",
    ("blend", "h n_q n_kv d_k"): "values have the width d_v",
    ("blend", "h n_q n_q d_v"): "each of n_q queries blends n_kv values",
    ("W_O", "n_kv h d_v d_model"): "the output has n_q rows, one for each query",
    ("W_O", "n_q h d_k d_model"): "what is merged are blends of values, of the width d_v",
    ("W_O", "n_q d_model d_model"): "the merged heads have the width h * d_v",
    ("Q", "n_q d_model d_model"): "all heads together are h * d_k wide, which need not be d_model",
}


def _product(words: str, size: dict[str, int]) -> int:
    return math.prod(size[word] for word in words.split())


def count_multiplications(*sizes: int) -> dict[str, int]:
    """Multiplications, product by product."""
    size = dict(zip(SIZES, sizes, strict=True))
    return {name: _product(words, size) for name, words in PRODUCTS.items()}


@exercise("count_multiplications", count_multiplications)
def try_count_multiplications(answer: Answer, draw: Draw) -> Iterable[object]:
    """n_q, n_kv, d_model, h, d_k, d_v -> a dict from the product's name to multiplications."""
    for _ in range(4):
        sizes = [int(number) for number in draw.rng.permutation(PRIMES)[:6]]
        size, seen = dict(zip(SIZES, sizes, strict=True)), answer(*sizes)
        holds(
            isinstance(seen, dict),
            f"it returns {kind(seen)}, expected a dict from names to numbers",
        )
        for name, count in count_multiplications(*sizes).items():
            holds(
                name in seen, f"{name} is missing in what it returns: {', '.join(map(str, seen))}"
            )
            has_shape(name, seen[name], [])
            found = float(numbers(name, seen[name]))
            if round(found) == count:
                continue
            said = f"{name} counts {found:,.0f}, expected {count:,}"
            for (other, words), cause in OTHER_PRODUCTS.items():
                same = other == name and found == _product(words, size)
                holds(not same, f"{said}: {cause}")
            h = size["h"]
            holds(found * h != count, f"{said}: that is one head, and there are h")
            holds(found != count * h, f"{said}: h is counted twice")
            holds(found != 2 * count, f"{said}: count multiplications alone, without additions")
            raise Wrong(f"{said} = {' * '.join(PRODUCTS[name].split())}")
    return [numbers("scores", seen["scores"]), numbers("W_O", seen["W_O"])]


class Black(nn.Module):
    """A box: multi-head attention of width 8, right or broken. Whatever goes in becomes float64."""

    def __init__(self, draw: Draw, h: int, size: float = 1.0, **parts: Any) -> None:
        super().__init__()
        self.W = nn.Parameter(size * torch.tensor(draw.array(4, 8, 8)) / math.sqrt(8))
        self.h = h
        self.parts = {"split": split_heads, "merge": merge_heads, "attend": attention} | parts

    def forward(self, x_q: Tensor, x_kv: Tensor | None = None) -> Tensor:
        """[..., n_q, 8], [..., n_kv, 8] -> [..., n_q, 8]."""
        x_q = x_q.double()
        x_kv = x_q if x_kv is None else x_kv.double()
        if x_q.dim() == 2:
            return self.forward(x_q[None], x_kv[None])[0]
        split, merge, attend = (self.parts[name] for name in ("split", "merge", "attend"))
        Q, K, V = (split(x @ W, self.h) for x, W in zip((x_q, x_kv, x_kv), self.W, strict=False))
        output: Tensor = merge(attend(Q, K, V)) @ self.W[3]
        return output


def _over_queries(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return (Q @ K.mT / math.sqrt(Q.shape[-1])).softmax(-2) @ V


def _causal(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    seen = torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool).tril()
    return attention(Q, K, V, seen)


def _heads_before_batch(heads: Tensor) -> Tensor:
    B, h = heads.shape[:2]
    return merge_heads(heads.transpose(0, 1).reshape(B, h, *heads.shape[2:]))


OTHERS = "change one query, in a clone, and see whether other outputs move"
ORDER = "shuffle the tokens of x_kv, and see whether an output moves"
BATCH = "change one sentence of a batch, and see whether other sentences' outputs move"


def is_broken(mha: Black) -> bool:
    """Change one query, then shuffle the keys: nothing else may move."""
    # Inputs of size 1: large ones give one key all the weight, and then no change is seen.
    x_q, x_kv = torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(0))
    output, changed = mha(x_q, x_kv), x_q.clone()
    changed[0, 0] += 1
    moved = (mha(changed, x_kv) - output).abs().amax(-1) > 1e-6  # [B, n_q]
    moved[0, 0] = False
    return bool(moved.any()) or not torch.allclose(mha(x_q, x_kv.flip(1)), output)


@exercise("is_broken", is_broken)
def try_is_broken(answer: Answer, draw: Draw) -> Iterable[object]:
    """mha, called as mha(x_q, x_kv) with [B, n, 8] -> True if it is broken."""
    boxes: dict[str, tuple[str, dict[str, Any]]] = {
        "that merges its heads without a transpose": (OTHERS, {"merge": _merge_by_view}),
        "whose softmax runs over the queries": (OTHERS, {"attend": _over_queries}),
        "that splits and merges without a transpose": (
            ORDER,
            {"split": _split_by_view, "merge": _merge_by_view},
        ),
        "that hides the later keys": (ORDER, {"attend": _causal}),
        "that splits its heads without a transpose": (ORDER, {"split": _split_by_view}),
        "that mixes batch and heads": (BATCH, {"merge": _heads_before_batch}),
    }

    def asked(box: Black, broken: bool, cause: str) -> bool:
        verdict = _verdict(answer(box))
        holds(verdict == broken, cause)
        return verdict

    right = [
        partial(
            asked,
            Black(draw, h, size),
            False,
            f"a right module with {h} head{'s' if h > 1 else ''} is called broken: rounding moves "
            "last digits, an output follows its own query, and z = x is no clone",
        )
        for h, size in ((2, 1.0), (4, 1.0), (1, 1.0), (8, 3.0))
    ]
    wrong = [
        partial(asked, Black(draw, 2, **parts), True, f"a module {what} is called right: {test}")
        for what, (test, parts) in boxes.items()
    ]
    return draw.weighed(verdicts(draw, right + wrong))


def _verdict(answer: object) -> bool:
    seen = numbers("is_broken", answer)
    holds(seen.size == 1, f"is_broken returns shape {list(seen.shape)}, expected True or False")
    return bool(seen.item())
