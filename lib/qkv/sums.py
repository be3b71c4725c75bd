"""Sums to learn from, drawn as text: "328+7_" asks for "335". NumPy only.

Every row has the same width: "_" pads it on the right. `qkv.tasks` makes tasks of PyTorch
tensors from these rows, `qkv.byhand.seq2seq` NumPy arrays: the same rows for both.
"""

from typing import NamedTuple

import numpy as np

from qkv import _require_plain as plain

LARGEST_SUM = 999
SYMBOLS = "0123456789+_>"
PAD = SYMBOLS.index("_")  # 11
START = SYMBOLS.index(">")  # 12


class Sum(NamedTuple):
    """One row as text, both sides padded."""

    source: str
    target: str


def draw(n: int, *, max_a: int = 999, max_b: int = 99, seed: int = 0, name: str = "n") -> list[Sum]:
    """Draw n sums without replacement from all with a <= max_a, b <= max_b, a + b <= 999.

    The draw sorts the raw 64-bit integers of NumPy's PCG64, the one stream that NumPy
    promises never to change (the orders that its own ``permutation`` and ``torch.randperm``
    give may change with their versions): the rows depend on the arguments alone. With a larger n
    the first rows stay the same. ``name`` is what the caller's caller knows n as.

    Errors:
        TypeError, ValueError: an argument that is no whole number or out of range; more
            rows than there are sums
    """
    plain.positive_int(name, n)
    for bound, largest in (("max_a", max_a), ("max_b", max_b)):
        if not 0 <= plain.whole(bound, largest) <= LARGEST_SUM:
            raise ValueError(f"{bound} must be in 0 … {LARGEST_SUM}, got {largest}")
    plain.not_negative("seed", seed)
    pairs = [(a, b) for a in range(max_a + 1) for b in range(min(max_b, LARGEST_SUM - a) + 1)]
    if n > len(pairs):
        raise ValueError(
            f"{name} is {n}, but there are only {len(pairs)} pairs with a <= {max_a}, b <= {max_b} "
            f"and a + b <= {LARGEST_SUM}; ask for fewer rows, or raise max_a or max_b"
        )
    order = np.random.PCG64(seed).random_raw(len(pairs)).argsort(kind="stable")
    width, pad = len(str(max_a)) + 1 + len(str(max_b)), SYMBOLS[PAD]
    return [
        Sum(f"{a}+{b}".ljust(width, pad), str(a + b).ljust(len(str(LARGEST_SUM)), pad))
        for a, b in (pairs[i] for i in order[:n])
    ]
