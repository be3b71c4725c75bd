"""PyTorch as the judge of gradients made by hand: what autograd finds, and if it is the same."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


def by_torch(forward: Callable[..., Tensor], g: Array | float, *arrays: Array) -> list[Array]:
    """The gradients that autograd finds when g arrives at the output of ``forward(*arrays)``.

    Shapes:
        g: as the output of forward; each gradient as its array
    """
    tensors = [torch.tensor(x, requires_grad=True) for x in arrays]
    forward(*tensors).backward(torch.tensor(g))  # type: ignore[no-untyped-call]
    return [torch.zeros_like(x).numpy() if x.grad is None else x.grad.numpy() for x in tensors]


def same(ours: Sequence[Array], theirs: Sequence[Array]) -> bool:
    """Whether as many gradients, pair by pair of one shape, agree to 1e-10.

    Errors:
        ValueError: there are not as many of each
    """
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=0, atol=1e-10)
        for a, b in zip(ours, theirs, strict=True)
    )
