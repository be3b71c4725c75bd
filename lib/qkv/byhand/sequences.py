"""Rows of ids: sums to learn from, and what is done to rows before a model sees them."""

import numpy as np

from qkv import _require_plain as plain
from qkv import sums
from qkv.byhand import _require
from qkv.byhand.layer import Array


class Seq2SeqData:
    """Sums as ids: digits are 0 to 9, "+" is 10, padding on the right is 11."""

    V = sums.PAD + 1  # 12, the number of ids

    def addition_formula(self, N: int, *, max_a: int = 999, seed: int = 0) -> tuple[Array, Array]:
        """N different sums: X reads 328+7_, Y reads 335.

        They come in the reverse of the order in which they were drawn. So the first rows to
        train and the last 500 to test are those of ``qkv.tasks.addition``. No first number is
        above ``max_a``; with 99, X reads 28+7_, one id less.

        Shapes:
            returns: X int64 [N, 6] and Y int64 [N, 3]
        Errors:
            TypeError, ValueError: N is no whole number of at least 1, or more than there are;
                max_a is none of 0 … 999
        """
        rows = sums.draw(N, max_a=max_a, seed=seed, name="N")[::-1]
        X, Y = (
            np.array([[sums.SYMBOLS.index(symbol) for symbol in text] for text in side])
            for side in zip(*rows, strict=True)
        )
        return X, Y


def reverse(X: Array, pad: int | None = None) -> Array:
    """Each row turned round; with ``pad``, the padding stays on the right.

    Shapes:
        X: ids [B, n], and so the result
    """
    turned = X[:, ::-1]
    if pad is None:
        return turned
    order = np.argsort(turned == pad, axis=1, kind="stable")  # what is no padding first
    return np.take_along_axis(turned, order, axis=1)


def shift(Y: Array, start: int) -> Array:
    """The decoder's input: the target one place later, the start id in front.

    Shapes:
        Y: ids [B, n], and so the result
    """
    return np.concatenate([np.full_like(Y[:, :1], start), Y[:, :-1]], axis=1)


def vocabulary(V: int, **arrays: Array) -> int:
    """How many ids there are, from V and the arrays: V may be their number or the largest id.

    Errors:
        TypeError, ValueError: V is no whole number of at least 1, an array no filled one of
            ids [B, n], or holds an id above V
    """
    plain.positive_int("V", V)
    for name, ids in arrays.items():
        _require.id_rows(name, ids)
        if ids.min() < 0:
            raise ValueError(f"{name} holds the id {int(ids.min())}; ids begin at 0")
    name, largest = max(
        ((name, int(ids.max())) for name, ids in arrays.items()), key=lambda x: x[1]
    )
    if V < largest:
        raise ValueError(
            f"V is {V}, but {name} holds the id {largest}; V is the number of ids, "
            f"{largest + 1} or more, or the largest id, {largest}"
        )
    return max(V, largest + 1)


def fit_together(X_train: Array, Y_train: Array, X_test: Array, Y_test: Array) -> None:
    """Refuse rows of ids that are not equally many on both sides, or not equally wide."""
    for split, X, Y in (("train", X_train, Y_train), ("test", X_test, Y_test)):
        _require.same_rows(f"X_{split}", X, f"Y_{split}", Y)
    for side, train, test in (("X", X_train, X_test), ("Y", Y_train, Y_test)):
        if train.shape[1] != test.shape[1]:
            raise ValueError(
                f"{side}_train and {side}_test must be equally wide, got "
                f"{list(train.shape)} and {list(test.shape)}"
            )
