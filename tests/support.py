"""What the tests of attention and the Transformer share: random cases, comparisons, refusals."""

import dataclasses
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from qkv import masks

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
MASKS = ("none", "causal", "padding", "both", "additive", "empty rows", "additive empty rows")


def drawn(n: int = 40) -> hypothesis.settings:
    """n examples, the same at every run."""
    return hypothesis.settings(
        derandomize=True, deadline=None, max_examples=n, print_blob=False, database=None
    )


def close(actual: Tensor, expected: Tensor) -> None:
    """Equal to 1e-10 in float64, to 1e-5 in float32; NaN is equal to nothing.

    Where numbers are larger than 1 the measure is the largest: a sum's rounding goes with it.
    """
    tolerance = TOLERANCE[expected.dtype] * max(1.0, expected.abs().max().item())
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def all_close(actual: list[Tensor], expected: list[Tensor]) -> None:
    for a, e in zip(actual, expected, strict=True):
        close(a, e)


@dataclasses.dataclass
class Case:
    """Sizes, all unlike where they can be, a dtype and a mask; tensors come from the seed."""

    B: int
    h: int
    n_q: int
    n_kv: int
    d_k: int
    d_v: int
    dtype: torch.dtype
    kind: str
    seed: int

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def tensors(self, *shapes: tuple[int, ...]) -> list[Tensor]:
        """Normal numbers that ask for gradients."""
        g = self.generator()
        return [
            torch.randn(shape, generator=g, dtype=self.dtype, requires_grad=True)
            for shape in shapes
        ]

    def mask(self) -> Tensor | None:
        """A mask of the case's kind, to broadcast against [B, h, n_q, n_kv]."""
        g = torch.Generator().manual_seed(self.seed + 1)
        n = max(self.n_q, self.n_kv)
        causal = masks.causal(n)[: self.n_q, : self.n_kv]
        keep = torch.randint(0, 2, (self.B, self.n_kv), generator=g)
        keep[:, 0] = 1  # each row keeps a key, which the causal mask shows to all
        padding = masks.padding(keep, 0)
        some = torch.rand(self.B, 1, self.n_q, self.n_kv, generator=g) < 0.6
        some[..., 0] = True
        empty = some.clone()
        empty[torch.rand(self.B, 1, self.n_q, generator=g) < 0.4] = False
        empty[0, :, 0] = False
        numbers = torch.randn(self.B, self.h, self.n_q, self.n_kv, generator=g, dtype=self.dtype)
        return {
            "none": None,
            "causal": causal,
            "padding": padding,
            "both": causal & padding,
            "additive": numbers + masks.additive(some, dtype=self.dtype),
            "empty rows": empty,
            "additive empty rows": numbers + masks.additive(empty, dtype=self.dtype),
        }[self.kind]


@st.composite
def cases(
    draw: st.DrawFn, kinds: tuple[str, ...] = MASKS, dtypes: tuple[torch.dtype, ...] = ()
) -> Case:
    size = st.integers(1, 6)
    return Case(
        B=draw(st.integers(1, 3)),
        h=draw(st.integers(1, 4)),
        n_q=draw(size),
        n_kv=draw(size),
        d_k=draw(st.integers(1, 8)),
        d_v=draw(st.integers(1, 8)),
        dtype=draw(st.sampled_from(dtypes or tuple(TOLERANCE))),
        kind=draw(st.sampled_from(kinds)),
        seed=draw(st.integers(0, 2**20)),
    )


def outputs_and_gradients(output: Tensor, *wanted: Tensor, seed: int = 0) -> list[Tensor]:
    """The output, and its gradients for a random slope, the same for the same shape and seed."""
    g = torch.Generator().manual_seed(seed)
    slope = torch.randn(output.shape, generator=g, dtype=torch.float64).to(output)
    return [output.detach(), *torch.autograd.grad(output, wanted, slope)]


def randomise(module: nn.Module, seed: int = 0) -> None:
    """Random numbers in every parameter: gains that are 1 and biases that are 0 hide mistakes."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=g, dtype=torch.float64)
            if parameter.dim() == 1:  # a norm's gain, or a bias
                parameter.copy_(noise / 2 + name.endswith("weight"))
            else:
                parameter.copy_(noise / math.sqrt(parameter.shape[-1]))


class _OnlyLooking(TorchDispatchMode):
    """Lets functions look at tensors (extremes, views, equality), and compute nothing."""

    LOOKS = {
        *("aminmax", "_local_scalar_dense", "expand", "_to_copy", "ne", "item"),
        *("view", "_unsafe_view", "unsqueeze", "slice", "select", "detach", "alias"),
    }

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name not in self.LOOKS:
            raise AssertionError(f"{name} was computed before the error")
        return func(*args, **(kwargs or {}))


@contextmanager
def says(error: type[Exception], *fragments: str) -> Iterator[None]:
    """The body raises that error, and its message has all the fragments, as whole words."""
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    missing = [f for f in fragments if not re.search(rf"(?<!\w){re.escape(f)}(?!\w)", message)]
    assert not missing, f"{missing} not in the message: {message}"


@contextmanager
def refused(error: type[Exception], *fragments: str) -> Iterator[None]:
    """As `says`, and nothing was computed before."""
    with says(error, *fragments), _OnlyLooking():
        yield
