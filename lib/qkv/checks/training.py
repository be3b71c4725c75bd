"""Chapter 09: the shift, one step of training, greedy decoding, both accuracies."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.checks.answer import Answer
from qkv.checks.draw import Draw
from qkv.checks.exercise import exercise
from qkv.checks.faults import Numbers, Wrong, close, equal, has_shape, holds, kind, likely, numbers


def shift(target: Tensor, start: int) -> Tensor:
    """The right answer."""
    return torch.cat([torch.full_like(target[:, :1], start), target[:, :-1]], dim=1)


@exercise("shift", shift, never=("shift",))
def try_shift(answer: Answer, draw: Draw) -> Iterable[object]:
    """target [B, n], start -> the decoder's input [B, n]."""
    start = draw.whole(10, 12)
    target = 1 + torch.stack([torch.tensor(draw.order(9)) for _ in range(3)])[:, :5]  # [3, 5]
    given = answer(target, start)
    has_shape(
        "shift(target, start)",
        given,
        [3, 5],
        {
            "the last token is nobody's input: cut it off": [3, 6],
            "a token is cut off and none is put in its place": [3, 4],
            "the start id is put in front of the batch: each row gets its own": [4, 5],
        },
    )
    column, row = target.new_full((3, 1), start), target.new_full((1, 5), start)
    first, last = target.clone(), target.clone()
    first[:, 0], last[:, -1] = start, start
    equal(
        "shift(target, start)",
        given,
        shift(target, start),
        {
            "the target is not shifted: at each position the decoder reads the very answer": target,
            "it is shifted the wrong way: the start id belongs in front, not at the end": torch.cat(
                [target[:, 1:], column], 1
            ),
            "the last token leaks to the front: the start id stands there": target.roll(1, 1),
            "the rows are shifted, not the tokens: the shift runs along the last axis": torch.cat(
                [row, target[:-1]]
            ),
            "it is shifted by two": torch.cat([column, column, target[:, :-2]], 1),
            "the first token is overwritten and nothing is moved": first,
            "the last token is overwritten and nothing is moved": last,
            "the first token is doubled: the start id belongs in front": torch.cat(
                [target[:, :1], target[:, :-1]], 1
            ),
            "0 stands in front: it is the start id that is given": torch.cat(
                [0 * column, target[:, :-1]], 1
            ),
            "the tokens stand in the wrong order": torch.cat([column, target.flip(1)[:, 1:]], 1),
        },
        tolerance=1e-6,
    )
    kind = given.dtype if isinstance(given, Tensor) else np.asarray(given).dtype
    holds("int" in str(kind), f"these are {kind}: ids must stay whole numbers, to look rows up")
    with likely("here a row has one token"):
        equal("shift(target, start)", answer(target[:, :1], start), column, tolerance=1e-6)
    return draw.weighed(numbers("given", given))


class Guesser(nn.Module):
    """A small model with slopes: logits [B, n, 8] from a source and a decoder's input."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self.source, self.target = nn.Parameter(draw.tensor(5, 4)), nn.Parameter(draw.tensor(8, 4))
        self.to_vocab = nn.Parameter(draw.tensor(4, 8))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x = self.source[source].mean(1, keepdim=True) + self.target[target]  # [B, n, 4]
        return torch.tanh(x) @ self.to_vocab

    def __deepcopy__(self, memo: dict[int, Any]) -> "Guesser":
        return self  # what an answer trains is looked at afterwards

    def vector(self) -> Tensor:
        """All parameters, one after another."""
        return torch.cat([p.detach().flatten() for p in self.parameters()])


class Walk:
    """Plain steps downhill, called like PyTorch's SGD (which takes seconds to import)."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), "lr": lr}]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Walk":
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the slopes."""
        for p in self._parameters():
            p.grad = None if set_to_none or p.grad is None else torch.zeros_like(p)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Walk against the slopes."""
        with torch.enable_grad():
            loss = closure() if closure else None
        for p in self._parameters():
            if p.grad is not None:
                p -= self.param_groups[0]["lr"] * p.grad
        return loss

    def _parameters(self) -> list[Any]:
        found: list[Any] = self.param_groups[0]["params"]
        return found


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """The mean over all positions."""
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def train_step(
    model: nn.Module, optimiser: Any, source: Tensor, target: Tensor, start: int
) -> float:
    """The right answer."""
    optimiser.zero_grad()
    loss = cross_entropy(model(source, shift(target, start)), target)
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return loss.item()


def _losses(model: Guesser, source: Tensor, target: Tensor, start: int) -> dict[str, Any]:
    """What people compute instead of the loss."""

    def with_input(given: Tensor) -> Callable[[], Tensor]:
        return lambda: cross_entropy(model(source, given), target)

    def logits() -> Tensor:
        out: Tensor = model(source, shift(target, start))
        return out

    ahead = torch.cat([target[:, 1:], torch.full_like(target[:, :1], start)], 1)
    return {
        "the target is not shifted: the decoder reads the token that it is to name": with_input(
            target
        ),
        "the last token leaks to the front of the decoder's input": with_input(target.roll(1, 1)),
        "the target is shifted the wrong way: the start id belongs in front": with_input(ahead),
        "the loss is compared with the shifted target: the answers are the target itself": lambda: (
            cross_entropy(logits(), shift(target, start))
        ),
        "the answers are shifted, and not the decoder's input: it is the other way round": lambda: (
            cross_entropy(model(source, target), shift(target, start))
        ),
        "the id 0 is left out of the loss: all positions count, padding too": lambda: (
            F.cross_entropy(logits().flatten(0, 1), target.flatten(), ignore_index=0)
        ),
        "the loss is the sum over the positions: take the mean": lambda: (
            cross_entropy(logits(), target) * target.numel()
        ),
        "the loss is summed over a row's tokens: take the mean over all": lambda: (
            cross_entropy(logits(), target) * target.shape[1]
        ),
        "the loss is summed over the rows: take the mean over all": lambda: (
            cross_entropy(logits(), target) * target.shape[0]
        ),
        "the softmax runs twice: cross_entropy wants the logits": lambda: cross_entropy(
            logits().softmax(-1), target
        ),
        "logits and target do not fit position for position: flatten(0, 1), no transpose": lambda: (
            F.cross_entropy(logits().mT.reshape(-1, 8), target.flatten())
        ),
        "only the last position counts: take the mean over all": lambda: F.cross_entropy(
            logits()[:, -1], target[:, -1]
        ),
        "the first position is left out: all count": lambda: cross_entropy(
            logits()[:, 1:], target[:, 1:]
        ),
        "the last position is left out: all count": lambda: cross_entropy(
            logits()[:, :-1], target[:, :-1]
        ),
        "minus is missing before the logarithm": lambda: -cross_entropy(logits(), target),
        "this is the accuracy: the loss is wanted": lambda: (
            (logits().argmax(-1) == target).float().mean()
        ),
    }


@exercise("train_step", train_step, never=("train_epoch", "fit"))
def try_train_step(answer: Answer, draw: Draw) -> Iterable[object]:
    """model, optimiser, source [B, n_source], target [B, n], start -> the loss, a number."""
    start, rate = 7, 0.5
    source = draw.ids(5, 3, 4)
    target = draw.ids(7, 3, 4)
    target.view(-1)[draw.order(12)[:7]] = torch.arange(7)  # each id, so that leaving one out shows
    with torch.enable_grad():
        model = Guesser(draw)
        optimiser = Walk(model.parameters(), lr=rate)
        slopes, found = [], []
        for step in (1, 2):
            where = f"in step {step} "
            before = model.vector()
            with torch.no_grad():
                causes = {
                    cause: number(loss)
                    for cause, loss in _losses(model, source, target, start).items()
                }
            loss = cross_entropy(model(source, shift(target, start)), target)
            slope = torch.cat(
                [g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]
            )
            slopes.append(slope)
            after = before - rate * slope
            value = answer(model, optimiser, source, target, start)
            result = numbers("train_step", value)
            result = result.reshape(()) if result.size == 1 else result
            with torch.no_grad():
                now = model.vector()
                late = number(lambda: cross_entropy(model(source, shift(target, start)), target))
                if not close(late.numpy(), number(loss).numpy(), 1e-3):
                    causes["this is the loss after the step: keep the one before it"] = late
            equal(where + "the loss", result, loss, causes, tolerance=1e-4)
            holds(
                not isinstance(value, str | list | tuple),
                f"the loss is {kind(value)}, expected a number",
            )
            graph = isinstance(value, Tensor) and value.requires_grad
            holds(
                not graph,
                "the loss is right, but still a tensor with its graph: loss.item() is the number",
            )
            graded = any(p.grad is not None for p in model.parameters())
            equal(
                where + "the parameters",
                now,
                after,
                {
                    "no parameter has moved: step() is missing, or comes before backward()"
                    if graded
                    else "no parameter has a slope: backward() is missing, or zero_grad() comes "
                    "behind it": before,
                    "the slopes of the step before are still there: call optimiser.zero_grad()": (
                        before - rate * sum(slopes)
                    ),
                    "the step goes uphill: it is the loss that is to fall": before + rate * slope,
                    "the step is twice as long: backward() or step() runs twice": (
                        before - 2 * rate * slope
                    ),
                    "the parameters walk down the sum of the losses: take the mean": (
                        before - rate * target.numel() * slope
                    ),
                },
                tolerance=1e-4,
            )
            found.append(loss.item())
    return [*found, now[0]]


def number(loss: Any) -> Tensor:
    """A loss as a number without a graph."""
    value: Tensor = loss() if callable(loss) else loss
    return value.detach()


class Scribe(nn.Module):
    """A model that is a table: what it has read decides what it says next.

    While it has read what is right so far, row i says ``says[i]``. Else it is lost, and says
    something that depends on all it has read. In train mode it talks nonsense, as with dropout.
    """

    def __init__(self, right: Tensor, says: Tensor, vocab: int, start: int) -> None:
        super().__init__()
        self.right, self.says = right.tolist(), says.tolist()
        self.vocab, self.start, self.most = vocab, start, 99
        self.calls: list[tuple[int, bool, bool]] = []  # width, start in front, train mode

    def __deepcopy__(self, memo: dict[int, Any]) -> "Scribe":
        return self  # its mode and its notes are looked at afterwards

    def encode(self, source: Tensor) -> Tensor:
        """[B, n_source] -> memory [B, n_source, 1]."""
        return source[..., None].float()

    def decode(self, written: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """[B, n] and the memory -> logits [B, n, vocab]."""
        if memory.dim() != 3 or written.dim() != 2 or len(memory) != len(written):
            raise ValueError(
                f"decode wants written [B, n] and memory [B, n_source, 1], as encode gives it; "
                f"got {list(written.shape)} and {list(memory.shape)}"
            )
        front = bool((written[:, 0] == self.start).all())
        self.calls.append((written.shape[1], front, self.training))
        if written.shape[1] > self.most:
            raise Wrong("it writes on beyond limit tokens")
        said = torch.tensor(
            [
                [self._next(row, read[: t + 1]) for t in range(len(read))]
                for row, read in zip(memory[:, 0, 0].long().tolist(), written.tolist(), strict=True)
            ]
        )  # [B, n]
        logits = torch.sin(said[..., None] + torch.arange(self.vocab)) / 2
        logits = logits.scatter(-1, said[..., None], 3.0)
        return -logits if self.training else logits

    def forward(self, source: Tensor, written: Tensor) -> Tensor:
        """Both at once."""
        return self.decode(written, self.encode(source), source)

    def _next(self, row: int, read: list[int]) -> int:
        t = len(read) - 1
        if read[0] == self.start and t < len(self.right[row]) and read[1:] == self.right[row][:t]:
            return int(self.says[row][t])
        return 1 + (3 * row + sum((i + 2) * (id_ + 1) for i, id_ in enumerate(read))) % 5


def greedy(model: Any, source: Tensor, start: int, end: int, limit: int) -> Tensor:
    """The right answer."""
    return _written(model, source, start, end, limit)


def _written(
    model: Any,
    source: Tensor,
    start: int,
    end: int,
    limit: int,
    *,
    fill: int | None = None,
    writes_on: bool = False,
    stop: Callable[[Tensor], bool] = lambda ended: bool(ended.all()),
    choose: Callable[[Tensor], Tensor] = lambda logits: logits[:, -1].argmax(-1),
) -> Tensor:
    """Greedy decoding, with what people do otherwise."""
    mode = model.training
    model.eval()
    with torch.no_grad():
        memory = model.encode(source)
        written = torch.full_like(source[:, :1], start)
        ended = torch.zeros(len(source), dtype=torch.bool)
        for _ in range(limit):
            token = choose(model.decode(written, memory, source))
            if not writes_on:
                token = torch.where(ended, end, token)
            ended = ended | (token == end)
            written = torch.cat([written, token[:, None]], dim=1)
            if stop(ended):
                break
    model.train(mode)
    written = written[:, 1:]
    if fill is not None:
        behind = (written == end).cumsum(1) - (written == end).long() > 0
        written = written.masked_fill(behind, fill)
    return written


def _miswritten(
    right: Tensor, model: Any, source: Tensor, start: int, end: int, limit: int
) -> dict[str, Callable[[], Tensor]]:
    given = (model, source, start, end, limit)

    def never(ended: Tensor) -> bool:
        return False

    all_ended = right.shape[1] < limit
    on = "after its end a row writes on: fill it with end"
    return {
        "the start id is still in front: cut it off": lambda: F.pad(right, (1, 0), value=start),
        "it stops when the first row has ended: the others go on": lambda: _written(
            *given, stop=lambda ended: bool(ended.any())
        ),
        "it stops when row 0 has ended: the others go on": lambda: _written(
            *given, stop=lambda ended: bool(ended[0])
        ),
        "it goes on though every row has ended": lambda: _written(*given, stop=never),
        on: lambda: _written(*given, writes_on=True),
        f"{on}, and stop when every row has ended": lambda: _written(
            *given, writes_on=True, stop=never
        ),
        "after its end a row is filled with the start id: fill it with end": lambda: _written(
            *given, fill=start
        ),
        "after its end a row is filled with 0: fill it with end": lambda: _written(*given, fill=0),
        "after its end a row is filled with 0, and it goes on though every row has ended": lambda: (
            _written(*given, fill=0, stop=never)
        ),
        "after its end a row is filled with -1: fill it with end": lambda: _written(
            *given, fill=-1
        ),
        "the first position's logits are looked at: the next token is at the last": lambda: (
            _written(*given, choose=lambda logits: logits[:, 0].argmax(-1), stop=never)
        ),
        "the least likely token is taken": lambda: _written(
            *given, choose=lambda logits: logits[:, -1].argmin(-1), stop=never
        ),
        "a token is missing at the end: "
        + (
            "the last end itself belongs to what is written"
            if all_ended
            else "write as many as limit says"
        ): lambda: right[:, :-1],
        "there is a token more than limit says": lambda: _written(*given[:-1], limit + 1),
        "it writes on beyond limit tokens": lambda: _written(*given[:-1], 99),
    }


def _same_text(
    what: str, written: object, expected: Tensor, causes: dict[str, Callable[[], Tensor]]
) -> Numbers:
    """Refuse other ids, or more or fewer of them, with the cause that gives the same."""
    seen, want = numbers(what, written), numbers(what, expected)
    if seen.shape == want.shape and (seen == want).all():
        return seen
    for cause, fault in causes.items():
        other = numbers(cause, fault())
        if other.shape == seen.shape and (other == seen).all():
            raise Wrong(f"{what}: {cause}")
    has_shape(what, seen, want.shape)
    row = int((seen != want).any(1).argmax())
    raise Wrong(
        f"{what}, row {row} is {seen[row].astype(int).tolist()}, expected "
        f"{want[row].astype(int).tolist()}"
    )


def _scribe(draw: Draw, lengths: list[int], vocab: int, start: int, end: int) -> Scribe:
    """Row i writes lengths[i] tokens, then end."""
    texts = 1 + draw.ids(5, len(lengths), 12)  # ids 1 … 5
    for row, length in enumerate(lengths):
        texts[row, length] = end
    return Scribe(texts, texts, vocab, start)


@exercise("greedy", greedy, never=("greedy", "beam"))
def try_greedy(answer: Answer, draw: Draw) -> Iterable[object]:
    """model, source [B, n_source], start, end, limit -> ids [B, n], n at most limit."""
    start, end, limit = 7, 6, 9
    lengths = [2, 0, 5, 4] if draw.whole(0, 1) else [1, 4, 0, 5]
    model = _scribe(draw, lengths, 8, start, end).eval()
    source = torch.cat([torch.arange(4)[:, None], draw.ids(6, 4, 2)], 1)  # the first id: which row

    def asked(source: Tensor, limit: int, what: str, mode: bool = False) -> Numbers:
        given = model, source, start, end, limit
        model.calls, model.most = [], limit + 3
        model.train(mode)
        written = answer(*given)
        after = model.training
        model.most = 99
        model.eval()
        alone = len(model.calls) > 1 and all(width == 1 for width, _, _ in model.calls)
        for _, front, training in model.calls:
            holds(
                front,
                "the decoder is given the last token alone: it reads all that is written so far"
                if alone
                else "the start id does not stand in front of what the decoder reads",
            )
            holds(
                not training,
                "the model is asked in train mode, where dropout is at work: call model.eval()",
            )
        if isinstance(written, list | tuple):
            wide = {np.asarray(row).size for row in written}  # np.size wants no tensor
            holds(len(wide) == 1, f"{what} gives rows of unlike lengths: fill them up with end")
        right = _written(*given)
        seen = _same_text(what, written, right, _miswritten(right, *given))
        kind = written.dtype if isinstance(written, Tensor) else np.asarray(written).dtype
        holds("int" in str(kind), f"{what} gives {kind}: ids must stay whole numbers")
        holds(
            after == mode,
            f"the model was in {'train' if mode else 'eval'} mode before: leave it as it came",
        )
        return seen

    what = "greedy(…)"
    seen = asked(source, limit, what)
    asked(source[[lengths.index(5), lengths.index(4)]], 4, f"{what} with a limit of 4")
    asked(source[:1], limit, f"{what} of a single row")
    asked(source, limit, f"{what} of a model in train mode", mode=True)
    return draw.weighed(seen)


def both_accuracies(model: Any, source: Tensor, target: Tensor, start: int) -> tuple[float, float]:
    """The right answer: per token, teacher-forced and free-running."""
    forced, free = _both(model, source, target, start)
    return _share(forced == target), _share(free == target)


def _share(right: Tensor) -> float:
    return right.float().mean().item()


def _both(model: Any, source: Tensor, target: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """What the model says with the right tokens before it, and with its own."""
    with torch.no_grad():
        forced = model(source, shift(target, start)).argmax(-1)
        written = torch.full_like(target[:, :1], start)
        for _ in range(target.shape[1]):
            token = model(source, written)[:, -1:].argmax(-1)
            written = torch.cat([written, token], dim=1)
    return forced, written[:, 1:]


def _alone(model: Any, source: Tensor, target: Tensor, start: int, at: int) -> Tensor:
    """Free-running, but for one thing: it reads the last token alone, or says what stands at 0."""
    written = torch.full_like(target[:, :1], start)
    for _ in range(target.shape[1]):
        logits = model(source, written[:, -1:] if at else written)
        written = torch.cat([written, logits[:, :1].argmax(-1)], dim=1)
    return written[:, 1:]


def _misjudged(
    model: Scribe, source: Tensor, target: Tensor, start: int, forced: Tensor, free: Tensor
) -> dict[str, tuple[float, float]]:
    a, b = _share(forced == target), _share(free == target)

    def read(given: Tensor) -> float:
        return _share(model(source, given).argmax(-1) == target)

    rows = _share((forced == target).all(1)), _share((free == target).all(1))
    behind = torch.cat([torch.full_like(free[:, :1], start), free[:, :-1]], 1)
    size = target.numel()
    return {
        "the two are exchanged: teacher-forced comes first": (b, a),
        "both are teacher-forced: free-running, the model reads what it wrote itself": (a, a),
        "both are free-running: teacher-forced, the model reads the right tokens": (b, b),
        "teacher-forced, the model reads the target unshifted: the very answer": (read(target), b),
        "teacher-forced, the last token leaks to the front": (read(target.roll(1, 1)), b),
        "free-running, it reads what it said teacher-forced: it must read its own, step by step": (
            a,
            read(shift(forced, start)),
        ),
        "free-running, the first position's logits are looked at: the next token is at the last": (
            a,
            _share(_alone(model, source, target, start, 0) == target),
        ),
        "free-running, it reads the last token alone: it must read all that it has written": (
            a,
            _share(_alone(model, source, target, start, -1) == target),
        ),
        "free-running, the start id counts as its first token": (a, _share(behind == target)),
        "these are shares of rows: count the tokens": rows,
        "the second is a share of rows: count the tokens": (a, rows[1]),
        "the first is a share of rows: count the tokens": (rows[0], b),
        "these are numbers of tokens: divide by how many there are": (a * size, b * size),
        "these are percent: a share lies between 0 and 1": (100 * a, 100 * b),
        "these are shares of wrong tokens": (1 - a, 1 - b),
        "the second compares the two readings: both are compared with the target": (
            a,
            _share(forced == free),
        ),
    }


@exercise(
    "both_accuracies",
    both_accuracies,
    never=("teacher_forced", "free_running", "greedy", "measure"),
)
def try_both_accuracies(answer: Answer, draw: Draw) -> Iterable[object]:
    """model, source [B, n_source], target [B, n], start -> two shares of right tokens."""
    start = 7
    while True:
        target = 1 + draw.ids(5, 4, 5)
        wrong = (torch.from_numpy(draw.rng.random((4, 5))) < 0.3) & (torch.arange(4) > 0)[:, None]
        says = torch.where(wrong, target % 5 + 1, target)
        model = Scribe(target, says, 8, start).eval()
        source = torch.cat([torch.arange(4)[:, None], draw.ids(6, 4, 2)], 1)
        forced, free = _both(model, source, target, start)
        right = _share(forced == target), _share(free == target)
        if right[0] - right[1] <= 0.2:
            continue
        other = _misjudged(model, source, target, start, forced, free)
        if len({right, *other.values()}) == 1 + len(other):
            break
    found = answer(model, source, target, start)
    has_shape(
        "both_accuracies(model, source, target, start)",
        found,
        [2],
        {
            "two are wanted, teacher-forced and free-running": [],
            "these are shares by position: one number over all is wanted": [2, 5],
            "these are Booleans: one number over all is wanted": [2, 4, 5],
        },
    )
    equal("both_accuracies(model, source, target, start)", found, right, other, tolerance=1e-4)
    return [*numbers("found", found), *draw.weighed(numbers("found", found))]
