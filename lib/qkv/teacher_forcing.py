"""What the decoder is given before each position: the right tokens, or its own.

Teacher-forced, a model only has to name the next token of a row that is right so far,
and all positions are computed at once. Free-running, it reads what it wrote itself, as
it must when nobody knows the answer. The first is usually the higher score.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from qkv import _require
from qkv.decoding import greedy
from qkv.modes import evaluating
from qkv.tasks import Rows, check_rows
from qkv.transformer import Transformer

ROWS_AT_ONCE = 1000  # bounds the memory that a large set of rows takes


def shift(target: Tensor, start: int) -> Tensor:
    """The decoder's input: the target one place later, the start id in front.

    "335" becomes ">33": at each position the decoder sees the tokens before the one it
    is to name, never that one. The last token is nobody's input.

    Shapes:
        target: ids [..., n]
        returns: a new tensor of the same shape
    Errors:
        TypeError: target is no tensor of whole numbers, start no whole number
        ValueError: target is empty
    Source:
        Vaswani et al. 2017, section 3.1: "output embeddings are offset by one position"
    """
    _require.tensor("target", target)
    if target.is_floating_point() or target.dtype == torch.bool:
        raise TypeError(f"target must hold ids, that is whole numbers, got {target.dtype}")
    if isinstance(start, bool) or not isinstance(start, int):
        raise TypeError(f"start must be an int, an id, got {type(start).__name__}: {start!r}")
    if target.dim() == 0 or target.numel() == 0:
        raise ValueError(f"target must have shape [..., n], not empty, got {list(target.shape)}")
    return torch.cat([torch.full_like(target[..., :1], start), target[..., :-1]], dim=-1)


def teacher_forced(model: nn.Module, rows: Rows, *, start: int) -> Tensor:
    """The likeliest token at each position, given the right tokens before it.

    The model is asked in eval mode, on its own device, and left in the mode in which
    it came.

    Shapes:
        rows: source [B, n_source], target [B, n_target]
        returns: ids [B, n_target], on the rows' device
    Errors:
        TypeError, ValueError: model is no module, rows are no Rows, are empty or do not
            fit together; what the model refuses
    """
    _require.instance("model", model, nn.Module, "a torch.nn.Module, such as a Transformer")
    check_rows("rows", rows)
    answers = []
    with evaluating(model):
        for source, target in _parts(model, rows):
            answers.append(model(source, shift(target, start)).argmax(-1))
    return torch.cat(answers).to(rows.target.device)


def free_running(model: Transformer, rows: Rows, *, start: int) -> Tensor:
    """The tokens that greedy decoding writes, given nothing but the source.

    The targets are not read; only their width says how many tokens to write.

    Shapes:
        rows: source [B, n_source], target [B, n_target]
        returns: ids [B, n_target], on the rows' device
    Errors:
        TypeError, ValueError: model is no Transformer, rows are no Rows, are empty or do
            not fit together; what `greedy` refuses
    """
    _require.instance("model", model, Transformer, "a Transformer")
    check_rows("rows", rows)
    answers = []
    with evaluating(model):
        for source, target in _parts(model, rows):
            answers.append(greedy(model, source, start=start, limit=target.shape[1]))
    return torch.cat(answers).to(rows.target.device)


def _parts(model: nn.Module, rows: Rows) -> Iterator[tuple[Tensor, Tensor]]:
    """The rows, some at a time, where the model is."""
    moved = rows.to(next(model.parameters()).device)
    yield from zip(*(torch.split(ids, ROWS_AT_ONCE) for ids in moved), strict=True)
