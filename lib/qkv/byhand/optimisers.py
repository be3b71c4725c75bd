"""One step downhill: SGD, and AdamW, equal to PyTorch's."""

import math
from abc import ABC, abstractmethod

import numpy as np

from qkv import _require_plain as plain
from qkv.byhand.layer import Array, Layer


class Optimiser(ABC):
    """Goes through a model's parameters, each with its slope; what to do there differs."""

    def __init__(self, model: Layer) -> None:
        self._places = list(model.walk())  # looked up once, not at each step

    def step(self) -> None:
        """Change the model's parameters in place, by the slopes of the last backward.

        Errors:
            RuntimeError: backward has not run
        """
        for name, layer, own in self._places:
            self.update(name, getattr(layer, own), layer.slope(own))

    @abstractmethod
    def update(self, name: str, w: Array, g: Array) -> None:
        """Change one parameter w in place, by its slope g."""


class SGD(Optimiser):
    """Each parameter a little against its slope: w - rate * g.

    Errors:
        TypeError, ValueError: rate is no number above 0
    """

    def __init__(self, model: Layer, rate: float) -> None:
        super().__init__(model)
        self.rate = plain.above_0("rate", rate)

    def update(self, name: str, w: Array, g: Array) -> None:
        w -= self.rate * g


class AdamW(Optimiser):
    """Each parameter by its slope's running mean over the root of its square's running mean.

    Both means start at 0, so early on they are too small by known factors, which are
    divided out. Weight decay pulls every parameter towards 0, beside the slope; with
    ``decay=0`` this is Adam.

    Errors:
        TypeError, ValueError: rate is no number above 0, decay none of at least 0, a beta
            not in [0, 1)
    Source:
        Kingma and Ba 2015; Loshchilov and Hutter 2019. Defaults as in ``torch.optim.AdamW``
    """

    def __init__(
        self,
        model: Layer,
        rate: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        decay: float = 1e-2,
    ) -> None:
        super().__init__(model)
        self.rate = plain.above_0("rate", rate)
        for beta in betas:
            plain.number("betas", beta)
            if not 0 <= beta < 1:
                raise ValueError(f"betas must lie in [0, 1), got {betas}")
        plain.number("decay", decay)
        if not 0 <= decay < math.inf:
            raise ValueError(f"decay must be at least 0 and finite, got {decay}")
        self.betas, self.eps, self.decay = betas, plain.above_0("eps", eps), decay
        self.steps = 0
        self.means = {name: np.zeros_like(w) for name, w in model.parameters().items()}
        self.squares = {name: np.zeros_like(w) for name, w in model.parameters().items()}

    def step(self) -> None:
        self.steps += 1
        super().step()

    def update(self, name: str, w: Array, g: Array) -> None:
        beta_1, beta_2 = self.betas
        mean, square = self.means[name], self.squares[name]
        mean += (1 - beta_1) * (g - mean)
        square += (1 - beta_2) * (g * g - square)
        early_1, early_2 = 1 - beta_1**self.steps, 1 - beta_2**self.steps
        w *= 1 - self.rate * self.decay
        w -= (self.rate / early_1) * mean / (np.sqrt(square) / math.sqrt(early_2) + self.eps)
