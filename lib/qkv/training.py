"""Training: the loss, one epoch, and `fit`, which repeats epochs and measures.

The pieces that this rests on can be had from here as well: `shift`, `teacher_forced`
and `free_running` from qkv.teacher_forcing, `accuracy`, `accuracy_by_position` and
`majority` from qkv.metrics, `measure` and `History` from qkv.history, `device` from
qkv.devices.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm import tqdm  # type: ignore[import-untyped]

from qkv import _require, devices
from qkv.devices import device
from qkv.history import History, Record, measure
from qkv.metrics import accuracy, accuracy_by_position, majority
from qkv.modes import keeping_mode
from qkv.tasks import Rows, Task, check_rows
from qkv.teacher_forcing import free_running, shift, teacher_forced
from qkv.transformer import Transformer

__all__ = [
    "History",
    "accuracy",
    "accuracy_by_position",
    "device",
    "fit",
    "free_running",
    "loss",
    "majority",
    "measure",
    "shift",
    "teacher_forced",
    "train_epoch",
]


def loss(logits: Tensor, target: Tensor, pad: int | None = None) -> Tensor:
    """Mean cross-entropy, in nats, over the positions whose target is not ``pad``.

    Without ``pad`` every position counts.

    Shapes:
        logits: [..., n, vocab], straight from the model, no softmax
        target: int64 ids [..., n]
        returns: a scalar
    Errors:
        TypeError: logits are not floating, target is not int64, pad no whole number
        ValueError: shapes or devices differ, there is nothing to count, or an id lies
            outside the vocabulary
    """
    _require.tensor("logits", logits)
    _require.tensor("target", target)
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating, got {logits.dtype}; ids have no loss")
    if logits.dim() < 2 or logits.shape[:-1] != target.shape:
        raise ValueError(
            f"logits {list(logits.shape)} must have the shape of target {list(target.shape)} "
            f"and one more axis, the vocabulary, at the end"
        )
    _require.whole_or_none("pad", pad)
    ids = target.reshape(1, -1)
    _require.ids("target", ids, logits.shape[-1], logits.device)
    if pad is not None and bool((ids == pad).all()):
        raise ValueError(f"target holds nothing but pad = {pad}; there is no position to count")
    nothing = -100  # PyTorch's own "ignore no id": no target is negative
    return F.cross_entropy(
        logits.flatten(0, -2), ids[0], ignore_index=nothing if pad is None else pad
    )


def train_epoch(
    model: nn.Module,
    rows: Rows,
    optimizer: Optimizer,
    *,
    start: int,
    batch_size: int = 100,
    pad: int | None = None,
    scheduler: LRScheduler | None = None,
    generator: torch.Generator | None = None,
) -> float:
    """Go through all rows once, in an order drawn from ``generator``, teacher-forced.

    The model and the rows must be on one device; the generator is one of the CPU, so
    that the order is the same on every device. The scheduler, if any, takes a step after
    each batch. The model is left in train mode; after an error, in the mode in which it came.

    Shapes:
        rows: source [B, n_source], target [B, n_target]
        returns: the loss as a float, the mean over the rows; with pad, the mean of the
            batches' losses, each over the positions that count in it, weighted by its rows
    Errors:
        TypeError, ValueError: an argument of the wrong type, batch_size below 1, rows that
            are empty or do not fit together; what the model or `loss` refuses
    """
    _require.instance("model", model, nn.Module, "a torch.nn.Module, such as a Transformer")
    check_rows("rows", rows)
    _trainers(optimizer, scheduler)
    _require.whole("start", start)
    _require.positive_int("batch_size", batch_size)
    _require.whole_or_none("pad", pad)
    order = torch.randperm(len(rows.source), generator=generator).to(rows.source.device)
    total = torch.zeros((), device=rows.source.device)  # stays there: a GPU need not wait
    with keeping_mode(model):
        model.train()
        for batch in torch.split(order, min(batch_size, len(order))):
            target = rows.target[batch]
            batch_loss = loss(model(rows.source[batch], shift(target, start)), target, pad)
            optimizer.zero_grad()
            batch_loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            total += batch_loss.detach() * len(batch)
    model.train()
    return total.item() / len(order)


def fit(
    model: Transformer,
    task: Task,
    *,
    epochs: int,
    batch_size: int = 100,
    learning_rate: float | None = None,
    optimizer: Optimizer | None = None,
    scheduler: LRScheduler | None = None,
    log_every: int = 10,
    pad: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> History:
    """Train the model on a task, measure every ``log_every`` epochs and after the last.

    Each measurement becomes a `Record` and a line of plain text; a terminal also gets a
    progress bar. An interruption (Ctrl-C, the stop button) ends the training, not the
    program: the history so far comes back.

    Args:
        learning_rate: of AdamW, the optimiser unless another is handed in; 1e-3 by default
        optimizer: one that holds the model's parameters; then leave learning_rate out
        scheduler: one on that optimizer; it takes a step after each batch
        pad: an id whose positions neither the loss nor the accuracies count. None counts
            all, which is right for the tasks of qkv.tasks: a target's padding is how the
            model says that a number has ended, and unless it counts, "365" passes for
            "36_". Where targets end in an id of their own, leave their padding out.
        seed: of the rows' order and of dropout; the random state of the CPU, and of the CUDA
            device that trains, is afterwards what it was before.
            Equal seeds and models give equal histories on one machine.
        device: where to train; by default the fastest there is. The model moves there
            and stays there.
    Errors:
        TypeError, ValueError: an argument out of range or of the wrong type, a device that
            cannot be used, an optimizer that holds other parameters, a task without test
            rows or with rows that the model cannot take; nothing has been trained then
        FloatingPointError: the loss is not finite any more; the message says when
    Source:
        Vaswani et al. 2017, section 5 (there: Adam with a warm-up)
    """
    _require.instance("model", model, Transformer, "a Transformer")
    _require.instance("task", task, Task, "a Task, such as addition()")
    if len(task.test.source) == 0:
        raise ValueError("task has no test rows to measure on; make it with n_test of at least 1")
    for name, value in (("epochs", epochs), ("batch_size", batch_size), ("log_every", log_every)):
        _require.positive_int(name, value)
    _require.whole("seed", seed)
    _require.whole_or_none("pad", pad)
    _fitting(model, task, pad)
    optimizer = _optimizer(model, learning_rate, optimizer, scheduler)
    where = devices.device(device)
    model.to(where)
    rows = task.train.to(where)
    generator = torch.Generator().manual_seed(seed)
    history = History()
    done = 0
    with (
        keeping_mode(model),
        torch.random.fork_rng([where] if where.type == "cuda" else []),
        tqdm(total=epochs, unit="epoch", disable=None, leave=False) as bar,
    ):
        torch.manual_seed(seed)
        try:
            for epoch in range(1, epochs + 1):
                mean = train_epoch(
                    model,
                    rows,
                    optimizer,
                    start=task.start,
                    batch_size=batch_size,
                    pad=pad,
                    scheduler=scheduler,
                    generator=generator,
                )
                if not math.isfinite(mean):
                    raise FloatingPointError(
                        f"the loss is {mean} in epoch {epoch} of {epochs}; try a smaller learning "
                        f"rate, or one that warms up; the weights are lost, so make the model again"
                    )
                done = epoch
                if epoch % log_every == 0 or epoch == epochs:
                    history.append(Record(epoch, mean, **measure(model, task, pad)))
                    _say(_line(history[-1], epochs))
                bar.update()
        except KeyboardInterrupt:
            _say(f"stopped after epoch {done} of {epochs}; the history so far is returned")
    return history


def _fitting(model: Transformer, task: Task, pad: int | None) -> None:
    """Refuse rows that the model cannot take or that have nothing to count."""
    _require.one_id("task.start", task.start, model.target_embedding.vocab)
    for split, rows in (("train", task.train), ("test", task.test)):
        for side, embedding in (
            ("source", model.source_embedding),
            ("target", model.target_embedding),
        ):
            ids = getattr(rows, side).to(embedding.table.weight.device)
            embedding.check(f"task.{split}.{side}", ids)
        _require.no_row_of_padding(f"task.{split}.target", rows.target, pad)


def _trainers(optimizer: Optimizer, scheduler: LRScheduler | None) -> None:
    """Refuse what cannot take a step."""
    _require.instance("optimizer", optimizer, Optimizer, "a torch.optim.Optimizer")
    if scheduler is not None:
        what = "a scheduler from torch.optim.lr_scheduler"
        _require.instance("scheduler", scheduler, LRScheduler, what)


def _optimizer(
    model: nn.Module,
    learning_rate: float | None,
    optimizer: Optimizer | None,
    scheduler: LRScheduler | None,
) -> Optimizer:
    """The optimiser handed in, if it belongs to this model and scheduler, else AdamW."""
    if optimizer is not None:
        _trainers(optimizer, scheduler)
    belongs = optimizer is not None and getattr(scheduler, "optimizer", optimizer) is optimizer
    if scheduler is not None and not belongs:
        raise ValueError(
            "scheduler sets the rate of another optimizer than the one that trains; "
            "hand in both: optimizer=optimizer, scheduler=scheduler made on it"
        )
    if optimizer is None:
        rate = 1e-3 if learning_rate is None else learning_rate
        _require.number("learning_rate", rate)
        if not 0 < rate < math.inf:
            raise ValueError(f"learning_rate must be above 0 and finite, got {rate}")
        return AdamW(model.parameters(), lr=rate)
    if learning_rate is not None:
        raise ValueError(
            f"learning_rate = {learning_rate} would change nothing: the optimizer handed in has a "
            f"rate of its own; leave one of the two out"
        )
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not any(id(p) in held for p in model.parameters()):
        raise ValueError(
            "optimizer holds none of the model's parameters, so the model would never change; "
            "make the optimizer again after the model"
        )
    return optimizer


def _line(record: Record, epochs: int) -> str:
    return (
        f"epoch {record.epoch:{len(str(epochs))}d}  loss {record.loss:.4f}  test, free-running: "
        f"tokens {record.test_free_token:.3f}, sequences {record.test_free_sequence:.3f}"
    )


def _say(line: str) -> None:
    """A line on stdout that does not cut through a progress bar."""
    tqdm.write(line, file=sys.stdout)
