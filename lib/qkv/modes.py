"""Train or eval: asking a model something without leaving a trace on it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode and no gradients; afterwards every submodule is in the mode that it had."""
    with keeping_mode(model), torch.no_grad():
        model.eval()
        yield


@contextmanager
def keeping_mode(model: nn.Module) -> Iterator[None]:
    """Train or eval, every submodule is afterwards in the mode that it had."""
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
