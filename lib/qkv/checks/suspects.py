"""Models for the test for leaks: some let the future through, some only look like it."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from qkv import masks
from qkv.attention import attention

Model = Callable[[Tensor], Tensor]  # [..., n, d_model] -> the same shape, for any n


def _with(mask: Callable[[int], Tensor]) -> Model:
    """Self-attention under a mask that is made for n tokens."""
    return lambda x: attention(x, x, x, mask(x.shape[-2]))


def _also(row: int, column: int) -> Model:
    """Causal, but for one query that sees one key of its future; counted from 0 or from the end."""

    def mask(n: int) -> Tensor:
        hole = masks.causal(n)
        if n > 2:
            hole[row, column] = True
        return hole

    return _with(mask)


_causal = _with(masks.causal)


def _full(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool)


def _after_softmax(x: Tensor) -> Tensor:
    return (x @ x.mT / math.sqrt(x.shape[-1])).softmax(-1) * masks.causal(x.shape[-2]) @ x


def _divided_again(x: Tensor) -> Tensor:
    A = (x @ x.mT / math.sqrt(x.shape[-1])).softmax(-1) * masks.causal(x.shape[-2])
    return A / A.sum(-1, keepdim=True) @ x + 3


def _one_column(x: Tensor) -> Tensor:
    last = x.mean(-2, keepdim=True)[..., -1:].expand(*x.shape[:-1], 1)
    return torch.cat([_causal(x)[..., :-1], last], dim=-1)


def _cancelling(x: Tensor) -> Tensor:
    """What one column gains the other loses."""
    mean = x.mean((-2, -1), keepdim=True)[..., 0]  # [..., 1]: of the future too
    return _causal(x) + torch.stack([mean, -mean], -1) @ torch.eye(2, x.shape[-1])


HONEST: Mapping[str, Model] = {
    "it is causal; leave the past as it is, and compare only what stands before the change": (
        _causal
    ),
    "it is causal up to rounding; take a movement below 1e-5 for none": _divided_again,
    "it is causal, times a random number at each call; call torch.manual_seed before each": (
        lambda x: _causal(x) * (1 + 0.2 * torch.rand(()))
    ),
    "it hides even more than the future, which is no leak": _with(
        lambda n: torch.eye(n, dtype=torch.bool)
    ),
}
LEAKING: Mapping[str, Model] = {
    "every token sees all; put other numbers in the future, and see with abs what moves before "
    "it": _with(_full),
    "movements of two columns cancel in a sum; take abs first": _cancelling,
    "its mask is inverted": _with(lambda n: ~masks.causal(n)),
    "every token sees the next one": _with(lambda n: _full(n).tril(1)),
    "token 0 sees token 1, and no other looks ahead; try every cut": _also(0, 1),
    "the last but one sees the last; try every cut, the last too, and compare all that stands "
    "before it": _also(-2, -1),
    "token 0 sees the last token; compare all that stands before the change": _also(0, -1),
    "the mean of all tokens is taken off each; give the future other numbers, not the same in "
    "another order": lambda x: _causal(x - x.mean(-2, keepdim=True)),
    "it is masked after the softmax, and the future is in its sum": _after_softmax,
    "the future is in the last column of the output; compare all columns": _one_column,
}
