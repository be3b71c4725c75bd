"""Inputs drawn from a seed, the same on every machine, whatever an answer did to global state."""

import zlib

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor


class Draw:
    """Random numbers for one try of one exercise.

    They come from NumPy's PCG64 and depend on the exercise, the seed and the attempt alone.
    """

    def __init__(self, name: str, seed: int, attempt: int) -> None:
        self.rng = np.random.Generator(np.random.PCG64([zlib.crc32(name.encode()), seed, attempt]))

    def array(self, *shape: int) -> NDArray[np.float64]:
        """Standard normal numbers in float64."""
        return self.rng.standard_normal(shape)

    def tensor(self, *shape: int) -> Tensor:
        """Standard normal numbers in float32."""
        return torch.tensor(self.array(*shape), dtype=torch.float32, device="cpu")

    def ids(self, vocab: int, *shape: int) -> Tensor:
        """Ids 0 … vocab - 1."""
        return torch.tensor(self.rng.integers(0, vocab, shape), device="cpu")

    def whole(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def order(self, n: int) -> list[int]:
        """The numbers 0 … n - 1 in another order than their own."""
        order = list(range(n))
        while order == sorted(order) and n > 1:
            self.rng.shuffle(order)
        return order

    def weighed(self, values: ArrayLike) -> NDArray[np.float64]:
        """Two numbers that tell of all values: sums of them, each times a drawn number.

        Where right answers give whole numbers or yes and no, such sums cannot be guessed.
        """
        flat = np.asarray(values, dtype=np.float64).ravel()
        return self.array(2, flat.size) @ flat
