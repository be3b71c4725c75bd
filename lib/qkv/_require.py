"""What functions ask of their arguments, with messages that say what to do."""

import torch
from torch import Tensor

from qkv import _require_plain as plain

whole, whole_or_none, one_id = plain.whole, plain.whole_or_none, plain.one_id
not_negative, positive_int, number = plain.not_negative, plain.positive_int, plain.number
one_of, instance = plain.one_of, plain.instance


def tensor(name: str, value: object) -> None:
    """Refuse what is not a torch tensor (a list, a NumPy array)."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor, got {type(value).__name__}; "
            f"convert it with torch.as_tensor({name})"
        )


def tokens(name: str, x: Tensor, width: int, weight: Tensor) -> None:
    """Refuse token vectors [..., n, width] that a layer with this weight cannot take."""
    tensor(name, x)
    if x.dim() < 2 or x.shape[-1] != width:
        raise ValueError(f"{name} must have shape [..., n, {width}], got {list(x.shape)}")
    if x.numel() == 0:
        raise ValueError(f"{name} is empty: its shape is {list(x.shape)}; give at least one token")
    same_device(name, x, weight.device)
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(
            f"{name} is {x.dtype}, the layer's weights are {weight.dtype}; "
            f"convert with {name}.to({weight.dtype})"
        )


def id_rows(name: str, value: Tensor) -> None:
    """Refuse what is not a filled int64 tensor [B, n]."""
    tensor(name, value)
    if value.dtype != torch.int64:
        raise TypeError(f"{name} must hold int64 ids, got {value.dtype}; use {name}.long()")
    if value.dim() != 2:
        raise ValueError(
            f"{name} must have shape [B, n], got {list(value.shape)}; "
            f"a single row is {name}.unsqueeze(0)"
        )
    if value.numel() == 0:
        raise ValueError(f"{name} is empty: its shape is {list(value.shape)}; give at least one id")


def ids(name: str, value: Tensor, vocab: int, device: torch.device) -> None:
    """Refuse ids [B, n] that are not int64, empty, elsewhere, or outside 0 … vocab - 1.

    Reading the extremes makes a GPU wait. It is worth it: an id outside the table on
    a GPU ends the whole process with an error that names nothing.
    """
    id_rows(name, value)
    same_device(name, value, device)
    low, high = (int(extreme) for extreme in torch.aminmax(value))
    if low < 0 or high >= vocab:
        wrong = low if low < 0 else high
        raise ValueError(
            f"{name} holds the id {wrong}, outside the vocabulary 0 … {vocab - 1}; "
            f"the vocabulary's size is the largest id plus one"
        )


def no_row_of_padding(name: str, target: Tensor, pad: int | None) -> None:
    """Refuse a target row [n] in which nothing counts."""
    if pad is None:
        return
    empty = (target == pad).all(1).nonzero()
    if len(empty):
        raise ValueError(
            f"row {int(empty[0])} of {name} holds nothing but pad = {pad}, so it can be neither "
            f"right nor wrong; leave such rows out, or count padding with pad=None"
        )


def same_rows(name: str, value: Tensor, other_name: str, other: Tensor) -> None:
    """Refuse two batches of unlike size."""
    if value.shape[0] != other.shape[0]:
        raise ValueError(
            f"{name} and {other_name} must have the same number of rows, got "
            f"{name} {list(value.shape)} and {other_name} {list(other.shape)}"
        )


def same_device(name: str, value: Tensor, device: torch.device) -> None:
    """Refuse a tensor that lies on another device than what it meets."""
    if value.device != device:
        raise ValueError(
            f"{name} is on {value.device}, expected {device}; move it with {name}.to('{device}')"
        )


def attention_inputs(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor | None:
    """Refuse what does not fit; the mask comes back in the scores' dtype."""
    for name, x in (("Q", Q), ("K", K), ("V", V)):
        tensor(name, x)
        if x.dim() < 2 or x.numel() == 0:
            raise ValueError(
                f"{name} must have shape [..., n, d] with no empty axis, got {list(x.shape)}"
            )
        if x.dtype != Q.dtype or not x.dtype.is_floating_point:
            raise TypeError(
                f"Q, K and V must share one floating dtype, got Q {Q.dtype}, {name} {x.dtype}"
            )
        same_device(name, x, Q.device)
    q, k, v = Q.shape, K.shape, V.shape
    if q[-1] != k[-1]:
        raise ValueError(f"Q and K must share their last axis d_k, got Q {list(q)} and K {list(k)}")
    if k[-2] != v[-2]:
        raise ValueError(f"K and V must have one row a token n_kv, got K {list(k)} and V {list(v)}")
    leading = q[:-2] if q[:-2] == k[:-2] == v[:-2] else _broadcast(Q=Q, K=K, V=V)
    return None if mask is None else _mask(mask, Q, (*leading, q[-2], k[-2]))


def heads_inputs(x_q: Tensor, x_kv: Tensor, n_heads: int, mask: Tensor | None) -> None:
    """Refuse tokens and a mask that will not meet, before anything is projected."""
    q, kv = x_q.shape, x_kv.shape
    leading = q[:-2] if q[:-2] == kv[:-2] else _broadcast(x_q=x_q, x_kv=x_kv)
    if mask is not None:
        heads_mask(x_q, mask)
        _mask(mask, x_q, (*leading, n_heads, q[-2], kv[-2]))


def heads_mask(x_q: Tensor, mask: Tensor) -> None:
    """Refuse a mask with as many axes as the tokens: its first may mean batch or heads."""
    tensor("mask", mask)
    if 2 < mask.dim() <= x_q.dim():
        raise ValueError(
            f"mask {list(mask.shape)} leaves open which axis is the heads'; it broadcasts to "
            f"[..., h, n_q, n_kv]: for one mask a batch row use mask.unsqueeze(-3), "
            f"for one a head mask.unsqueeze(0)"
        )


def heads(name: str, x: Tensor, n_heads: int, width_name: str, width: int) -> None:
    """Refuse keys or values [..., h, n_kv, width] that were not made for this many heads."""
    tensor(name, x)
    if x.dim() < 3 or x.shape[-3] != n_heads or x.shape[-1] != width:
        raise ValueError(
            f"{name} must have shape [..., h, n_kv, {width_name}] with h = {n_heads} and "
            f"{width_name} = {width}, got {list(x.shape)}; keys_values(x_kv) makes it"
        )


def _broadcast(**named: Tensor) -> tuple[int, ...]:
    """The axes before the last two, broadcast against each other."""
    shapes = [x.shape[:-2] for x in named.values()]
    try:
        shape: tuple[int, ...] = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
        return shape
    except RuntimeError:
        given = ", ".join(f"{name} {list(x.shape)}" for name, x in named.items())
        raise ValueError(
            f"the axes before the last two must be equal or 1, so that they broadcast, got {given}"
        ) from None


def _mask(mask: Tensor, Q: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Refuse a mask that does not broadcast to the scores' shape."""
    tensor("mask", mask)
    same_device("mask", mask, Q.device)
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            f"mask must be Boolean (True = may attend) or floating (added to the scores), "
            f"got {mask.dtype}; use mask.bool()"
        )
    try:
        mask.expand(shape)  # a view, thrown away: the kernel wants the small mask
    except RuntimeError:
        raise ValueError(
            f"mask {list(mask.shape)} does not broadcast to the scores {list(shape)}, "
            f"[..., n_q, n_kv]"
        ) from None
    mask = mask if mask.dim() > 1 else mask.reshape(1, -1)  # the kernel refuses [n_kv]
    return mask if mask.dtype in (torch.bool, Q.dtype) else _cast(mask, Q.dtype)


def _cast(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers M in the scores' dtype; refuse those that it turns into infinities, and +inf."""
    cast = mask.to(dtype)
    wrong = cast.isinf() & (mask != float("-inf"))
    if bool(wrong.any()):
        raise ValueError(
            f"mask holds {mask[wrong][0].item():g}, which is infinite in Q's {dtype}; where "
            f"nothing may be attended to say -inf, as masks.additive(..., dtype={dtype}) does"
        )
    return cast
