"""What layers ask of their arguments, with messages that say what to do."""

import numpy as np

from qkv import _require_plain as plain
from qkv.byhand.layer import Array


def array(name: str, value: object) -> None:
    """Refuse what is not a NumPy array."""
    if not isinstance(value, np.ndarray):
        raise TypeError(
            f"{name} must be a numpy.ndarray, got {type(value).__name__}; "
            f"convert it with np.asarray({name})"
        )


def tokens(name: str, x: Array, width: int, weight: Array) -> None:
    """Refuse token vectors [..., width] that a layer with this weight cannot take."""
    array(name, x)
    if x.ndim < 1 or x.shape[-1] != width:
        raise ValueError(f"{name} must have shape [..., {width}], got {list(x.shape)}")
    if x.dtype != weight.dtype:
        raise TypeError(
            f"{name} is {x.dtype}, the layer's weights are {weight.dtype}; "
            f"convert with {name}.astype(np.{weight.dtype}), or the layer with .to(np.{x.dtype})"
        )
    if x.size == 0:
        raise ValueError(f"{name} is empty: its shape is {list(x.shape)}; give at least one token")


def ids(name: str, value: Array, vocab: int) -> None:
    """Refuse what is not a filled array of whole numbers [B, n] in 0 … vocab - 1."""
    id_rows(name, value)
    inside(name, value, vocab)


def id_rows(name: str, value: Array) -> None:
    """Refuse what is not a filled array of whole numbers [B, n]."""
    array(name, value)
    if not np.issubdtype(value.dtype, np.integer):
        raise TypeError(f"{name} must hold ids, that is whole numbers, got {value.dtype}")
    if value.ndim != 2 or value.size == 0:
        raise ValueError(
            f"{name} must have shape [B, n], not empty, got {list(value.shape)}; "
            f"a single row is {name}[None]"
        )


def inside(name: str, value: Array, vocab: int) -> None:
    """Refuse ids outside 0 … vocab - 1."""
    low, high = int(value.min()), int(value.max())
    if low < 0 or high >= vocab:
        wrong = low if low < 0 else high
        raise ValueError(
            f"{name} holds the id {wrong}, outside the vocabulary 0 … {vocab - 1}; "
            f"the vocabulary's size is the largest id plus one"
        )


def same_rows(name: str, value: Array, other_name: str, other: Array) -> None:
    """Refuse two batches of unlike size."""
    if len(value) != len(other):
        raise ValueError(
            f"{name} and {other_name} must have the same number of rows, got "
            f"{name} {list(value.shape)} and {other_name} {list(other.shape)}"
        )


def targets(logits: Array, target: Array, pad: int | None) -> Array:
    """Refuse a target that does not fit the logits; Boolean [N]: which of its positions count."""
    array("logits", logits)
    array("target", target)
    if not np.issubdtype(target.dtype, np.integer):
        raise TypeError(f"target must hold ids, that is whole numbers, got {target.dtype}")
    if logits.shape[:-1] != target.shape or logits.size == 0:
        raise ValueError(
            f"logits {list(logits.shape)} must have the shape of target {list(target.shape)} "
            f"and one more axis, the vocabulary, at the end; neither may be empty"
        )
    plain.whole_or_none("pad", pad)
    inside("target", target, logits.shape[-1])
    counted: Array = np.ones(target.size, bool) if pad is None else target.reshape(-1) != pad
    if not counted.any():
        raise ValueError(f"target holds nothing but pad = {pad}; there is no position to count")
    return counted


def attention_inputs(Q: Array, K: Array, V: Array, mask: Array | None) -> None:
    """Refuse what does not fit."""
    for name, x in (("Q", Q), ("K", K), ("V", V)):
        array(name, x)
        if x.ndim < 2 or x.size == 0:
            raise ValueError(
                f"{name} must have shape [..., n, d] with no empty axis, got {list(x.shape)}"
            )
        if x.dtype != Q.dtype or not np.issubdtype(x.dtype, np.floating):
            raise TypeError(
                f"Q, K and V must share one floating dtype, got Q {Q.dtype}, {name} {x.dtype}"
            )
    q, k, v = Q.shape, K.shape, V.shape
    if q[-1] != k[-1]:
        raise ValueError(f"Q and K must share their last axis d_k, got Q {list(q)} and K {list(k)}")
    if k[-2] != v[-2]:
        raise ValueError(f"K and V must have one row a token n_kv, got K {list(k)} and V {list(v)}")
    if not q[:-2] == k[:-2] == v[:-2]:
        raise ValueError(
            f"the axes before the last two must be equal, got Q {list(q)}, K {list(k)} "
            f"and V {list(v)}"
        )
    if mask is not None:
        fits("mask", mask, (*q[:-1], k[-2]))


def heads_inputs(x_q: Array, x_kv: Array, n_heads: int, mask: Array | None) -> None:
    """Refuse tokens and a mask that will not meet, before anything is projected."""
    for name, x in (("x_q", x_q), ("x_kv", x_kv)):
        array(name, x)
        if x.ndim < 2 or x.size == 0:
            raise ValueError(
                f"{name} must have shape [..., n, width], not empty, got {list(x.shape)}"
            )
    if x_q.shape[:-2] != x_kv.shape[:-2]:
        raise ValueError(
            f"the axes before the last two must be equal, got x_q {list(x_q.shape)} "
            f"and x_kv {list(x_kv.shape)}"
        )
    if mask is not None:
        array("mask", mask)
        if 2 < mask.ndim <= x_q.ndim:
            raise ValueError(
                f"mask {list(mask.shape)} leaves open which axis is the heads'; it broadcasts to "
                f"[..., h, n_q, n_kv]: for one mask a batch row use mask[:, None], "
                f"for one a head mask[None]"
            )
        fits("mask", mask, (*x_q.shape[:-2], n_heads, x_q.shape[-2], x_kv.shape[-2]))


def fits(name: str, mask: Array, shape: tuple[int, ...]) -> None:
    """Refuse a mask that does not broadcast to the scores' shape."""
    array(name, mask)
    if mask.dtype != bool and not np.issubdtype(mask.dtype, np.floating):
        raise TypeError(
            f"{name} must be Boolean (True = may attend) or floating (added to the scores), "
            f"got {mask.dtype}; use {name}.astype(bool)"
        )
    try:
        np.broadcast_to(mask, shape)
    except ValueError:
        raise ValueError(
            f"{name} {list(mask.shape)} does not broadcast to the scores {list(shape)}, "
            f"[..., n_q, n_kv]"
        ) from None
