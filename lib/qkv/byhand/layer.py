"""What all layers share: a call, slopes kept beside what is learned, and names for both.

Every layer goes the same way:

    y = layer(x)              # forward; keeps what backward will need
    gx = layer.backward(gy)   # from the loss's slope by y to its slope by x

``backward`` also leaves the loss's slope by each parameter in ``layer.gradients()``. It goes
with the last call of forward, and it replaces the slopes of the call before: nothing adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
L = TypeVar("L", bound="Layer")


class Layer:
    """A part of a model, with parts of its own.

    A parameter is an attribute named in ``learned``; where it is None it was left out. Parts
    are attributes that are Layers, or lists of Layers. So each parameter has one name, the
    same as in the PyTorch half's ``state_dict()``: ``encoder.0.self_attention.W_Q.weight``.
    """

    learned: tuple[str, ...] = ()
    forward: Callable[..., Any]

    def __init__(self) -> None:
        self.slopes: dict[str, Array] = {}

    if not TYPE_CHECKING:  # a type checker shall find what no layer has

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}; if you called backward, call forward first"
            )

    def __call__(self, *inputs: Any, **more: Any) -> Any:
        return self.forward(*inputs, **more)

    def parameters(self) -> dict[str, Array]:
        """Each parameter by its name: the arrays themselves, to be changed in place."""
        return {name: getattr(layer, own) for name, layer, own in self.walk()}

    def gradients(self) -> dict[str, Array]:
        """The loss's slope by each parameter, under the same names, once backward has run.

        Errors:
            RuntimeError: backward has not run
        """
        return {name: layer.slope(own) for name, layer, own in self.walk()}

    def slope(self, own: str) -> Array:
        """The loss's slope by one parameter of this very layer."""
        try:
            return self.slopes[own]
        except KeyError:
            raise RuntimeError("there are no gradients yet; call forward, then backward") from None

    def state(self) -> dict[str, Array]:
        """A copy of all parameters, which `load` takes back."""
        return {name: value.copy() for name, value in self.parameters().items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Copy numbers into the parameters; they keep their dtype.

        With the PyTorch half, both ways:
        ``byhand.load({k: v.numpy() for k, v in model.state_dict().items()})`` and
        ``model.load_state_dict({k: torch.tensor(v) for k, v in byhand.state().items()})``.

        Errors:
            ValueError: a name is missing or unknown, or a shape differs; nothing was changed
        """
        own = self.parameters()
        missing, unknown = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
        if missing or unknown:
            raise ValueError(
                f"state does not name the parameters of this {type(self).__name__}: "
                f"missing {missing}, unknown {unknown}; make both models with the same sizes"
            )
        for name, value in own.items():
            if np.shape(state[name]) != value.shape:
                raise ValueError(
                    f"state[{name!r}] has shape {list(np.shape(state[name]))}, expected "
                    f"{list(value.shape)}; make both models with the same sizes"
                )
        for name, value in own.items():
            value[...] = state[name]

    def to(self: L, dtype: DTypeLike) -> L:
        """The same layer with all parameters in another floating dtype.

        Errors:
            TypeError: dtype is not a floating one
        """
        if not np.issubdtype(dtype, np.floating):
            raise TypeError(f"dtype must be a floating one such as np.float32, got {dtype!r}")
        for _, layer, own in list(self.walk()):
            setattr(layer, own, getattr(layer, own).astype(dtype))
        return self

    def walk(self, prefix: str = "") -> Iterator[tuple[str, Layer, str]]:
        """Each parameter: its full name, the layer that has it, and its name there."""
        for own in self.learned:
            if getattr(self, own) is not None:
                yield prefix + own, self, own
        for name, part in vars(self).items():
            if isinstance(part, Layer):
                yield from part.walk(f"{prefix}{name}.")
            elif isinstance(part, list):
                for i, layer in enumerate(part):
                    yield from layer.walk(f"{prefix}{name}.{i}.")


class Identity(Layer):
    """A layer that does nothing, where a model leaves one out."""

    def forward(self, x: Array) -> Array:
        return x

    def backward(self, g: Array) -> Array:
        return g
