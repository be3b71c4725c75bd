"""Counting right answers: per token, per sequence, by position, and what guessing would reach."""

from typing import NamedTuple

import torch
from torch import Tensor

from qkv import _require


class Accuracy(NamedTuple):
    """Two shares of right answers, 0 to 1. A sequence is right if all its tokens are."""

    per_token: float
    per_sequence: float


class Majority(NamedTuple):
    """What a guesser says that never looks at the source.

    Shapes:
        ids: int64 [n], the commonest id at each position
        shares: float [n], how common it is there, 0 to 1
    """

    ids: Tensor
    shares: Tensor


def accuracy(predicted: Tensor, target: Tensor, pad: int | None = None) -> Accuracy:
    """The share of right tokens, and of sequences without a wrong one.

    Positions where the *target* is ``pad`` are left out of both. Without ``pad`` all
    positions count, padding as well.

    Shapes:
        predicted, target: ids [B, n]
        returns: (per_token, per_sequence), two floats
    Errors:
        TypeError: an argument is no tensor of whole numbers, pad no whole number
        ValueError: shapes or devices differ, there is nothing to count, or a row holds
            padding alone
    """
    right, counted = _right(predicted, target, pad)
    _require.no_row_of_padding("target", target, pad)
    tokens = int((right & counted).sum()) / int(counted.sum())
    sequences = int((right | ~counted).all(1).sum()) / len(target)
    return Accuracy(tokens, sequences)


def accuracy_by_position(predicted: Tensor, target: Tensor, pad: int | None = None) -> Tensor:
    """The share of right tokens at each position by itself.

    Shapes:
        predicted, target: ids [B, n]
        returns: float [n]; NaN at a position where every target is ``pad``
    Errors:
        as `accuracy`, except that a row may hold padding alone
    """
    right, counted = _right(predicted, target, pad)
    return (right & counted).sum(0) / counted.sum(0)


def majority(targets: Tensor) -> Majority:
    """The commonest id at each position, and its share: the height that guessing reaches.

    Of ids that are equally common the smallest is taken. To score guesses made on the
    train rows on the test rows:
    ``accuracy(majority(train.target).ids.expand_as(test.target), test.target)``.

    Shapes:
        targets: ids [B, n]
        returns: ids [n] and shares [n]
    Errors:
        TypeError, ValueError: targets is no tensor of whole numbers [B, n], or is empty
    """
    _ids("targets", targets)
    if int(targets.min()) < 0:
        raise ValueError(f"targets holds the id {int(targets.min())}; ids begin at 0")
    counts = [torch.bincount(column) for column in targets.unbind(1)]
    ids = torch.stack([count.argmax() for count in counts])
    most = torch.stack([count.max() for count in counts])
    return Majority(ids, most / len(targets))


def _right(predicted: Tensor, target: Tensor, pad: int | None) -> tuple[Tensor, Tensor]:
    """Which tokens are right, and which count: two Boolean [B, n]."""
    _require.whole_or_none("pad", pad)
    _ids("target", target)
    _require.tensor("predicted", predicted)
    if predicted.shape != target.shape:
        hint = "; for logits take .argmax(-1) first" if predicted.is_floating_point() else ""
        raise ValueError(
            f"predicted {list(predicted.shape)} must have the shape of target "
            f"{list(target.shape)}{hint}"
        )
    _ids("predicted", predicted)
    _require.same_device("predicted", predicted, target.device)
    counted = torch.ones_like(target, dtype=torch.bool) if pad is None else target != pad
    return predicted == target, counted


def _ids(name: str, value: Tensor) -> None:
    """Refuse what is not a filled tensor of ids [B, n]."""
    _require.tensor(name, value)
    if value.is_floating_point() or value.dtype == torch.bool:
        raise TypeError(f"{name} must hold ids, that is whole numbers, got {value.dtype}")
    if value.dim() != 2 or value.numel() == 0:
        raise ValueError(
            f"{name} must have shape [B, n] with no empty axis, got {list(value.shape)}"
        )
