"""Is a backward right? Nudge each number both ways and see how far the output moves."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from qkv import _require_plain as plain
from qkv.byhand import _require
from qkv.byhand.layer import Array, Layer

SMALL = 1e-2  # slopes are measured against the largest of their argument, but never against less


class GradientError(AssertionError):
    """A slope that backward gives and central differences do not."""


def central_differences(f: Callable[[], float], x: Array, nudge: float = 1e-5) -> Array:
    """How fast f() moves with each number of x: (f(x + nudge) - f(x - nudge)) / (2 nudge).

    x is changed in place, one number at a time, and left as it was.

    Shapes:
        x: float64, any shape; the result has the same
    Errors:
        TypeError: x is not float64, which such small steps need
    """
    _require.array("x", x)
    if x.dtype != np.float64:
        raise TypeError(f"x must be float64, got {x.dtype}; a nudge of {nudge} drowns in rounding")
    plain.above_0("nudge", nudge)
    slopes = np.empty_like(x)
    for index in np.ndindex(x.shape):
        kept = x[index]
        try:
            x[index] = kept + nudge
            above = f()
            x[index] = kept - nudge
            below = f()
        finally:
            x[index] = kept
        slopes[index] = (above - below) / (2 * nudge)
    return slopes


def check(
    name: str,
    forward: Callable[..., Any],
    backward: Callable[[Array], Any],
    inputs: Mapping[str, Array],
    *,
    layer: Layer | None = None,
    tolerance: float = 1e-6,
    nudge: float = 1e-5,
    seed: int = 0,
) -> dict[str, float]:
    """Compare a backward with central differences, input by input, number by number.

    The output is multiplied with a random slope and summed, so that one number stands for
    it all. An error is relative to the largest slope of its argument.

        check("softmax", softmax, lambda g: softmax_backward(g, softmax(x)), {"x": x})
        check("LayerNorm", layer, layer.backward, {"x": x}, layer=layer)

    Args:
        name: what is checked, for the message
        forward: takes the inputs in their order
        backward: takes the output's slope; returns the inputs' slopes, one or a tuple in
            their order, or None where there are no inputs. It is called once, after forward
        inputs: float64 arrays by name; what has no slope (ids, a mask) is left out and
            handed to forward by a lambda
        layer: whose parameters are checked as well
        tolerance: the largest relative error that passes
    Shapes:
        returns: for each input and parameter its largest relative error
    Errors:
        GradientError: a slope is wrong; the message names function, argument and index
        ValueError: backward returns another number of slopes than there are inputs, or
            another shape; there is nothing to check
    """
    output = np.asarray(forward(*inputs.values()))
    g = np.random.default_rng(seed).normal(size=output.shape)
    returned = backward(g)
    slopes = () if returned is None else returned if isinstance(returned, tuple) else (returned,)
    if len(slopes) != len(inputs):
        raise ValueError(
            f"{name}: backward returns {len(slopes)} slopes for {len(inputs)} inputs, "
            f"{', '.join(inputs) or 'none'}; return one for each, in their order"
        )
    claimed = dict(zip(inputs, slopes, strict=True))
    places = dict(inputs)
    if layer is not None:
        claimed |= {own: slope.copy() for own, slope in layer.gradients().items()}
        places |= layer.parameters()
    if not places:
        raise ValueError(f"{name}: there is nothing to check; give inputs, or a layer that learns")
    errors = {}
    for argument, x in places.items():
        seen = central_differences(lambda: float((forward(*inputs.values()) * g).sum()), x, nudge)
        errors[argument] = _compare(name, argument, np.asarray(claimed[argument]), seen, tolerance)
    return errors


def _compare(name: str, argument: str, claimed: Array, seen: Array, tolerance: float) -> float:
    """The largest relative error; refuse one above the tolerance."""
    if claimed.shape != seen.shape:
        raise ValueError(
            f"{name}: the slope by {argument} has shape {list(claimed.shape)}, "
            f"{argument} has {list(seen.shape)}"
        )
    error = abs(claimed - seen) / max(abs(seen).max(), abs(claimed).max(), SMALL)
    worst = np.unravel_index(np.argmax(error), error.shape)
    if not error[worst] <= tolerance:  # so that NaN is refused too
        place = f"{argument}[{', '.join(str(int(i)) for i in worst)}]" if worst else argument
        raise GradientError(
            f"{name}: the slope by {place} is {claimed[worst]:.9g} by backward, "
            f"{seen[worst]:.9g} by central differences; relative error {error[worst]:.1e}, "
            f"allowed {tolerance:.0e}"
        )
    return float(error[worst])
