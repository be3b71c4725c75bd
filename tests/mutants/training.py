"""Chapter 09."""

import numpy as np
import torch
import torch.nn.functional as F

from qkv import decoding, teacher_forcing, training
from qkv.tasks import Rows
from qkv.training import accuracy, loss


def shift(target, start):
    return torch.cat([torch.full_like(target[:, :1], start), target[:, :-1]], dim=1)


def shift_in_place(target, start):
    given = target.roll(1, dims=1)
    given[:, 0] = start
    return given


def shift_in_lists(target, start):
    return [[start, *row[:-1]] for row in target.tolist()]


def shift_in_numpy(target, start):
    given = np.empty_like(target.numpy(), dtype=np.int32)
    given[:, 0], given[:, 1:] = start, target.numpy()[:, :-1]
    return given


def shift_by_padding(target, start):
    return F.pad(target, (1, 0), value=start)[:, :-1]


def overwritten(place):
    def answer(target, start):
        given = target.clone()
        given[:, place] = start
        return given

    return answer


def shift_changes_target(target, start):
    target[:, 1:] = target[:, :-1].clone()
    target[:, 0] = start
    return target


def train_step(model, optimiser, source, target, start):
    optimiser.zero_grad()
    value = loss(model(source, shift(target, start)), target)
    value.backward()
    optimiser.step()
    return value.item()


def step_by_pytorch(model, optimiser, source, target, start):
    """Logits with the vocabulary in the middle; the slopes are forgotten at the end."""
    model.train()
    logits = model(source, shift_by_padding(target, start))
    value = torch.nn.CrossEntropyLoss()(logits.transpose(1, 2), target)
    value.backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=False)
    return float(value.detach())


def step_by_hand(model, optimiser, source, target, start):
    """The loss as minus the logarithm of the right token's share."""
    logits = model(source, shift_in_place(target, start)).double()
    shares = logits.softmax(-1)
    right = shares.gather(-1, target[..., None])
    value = -right.log().mean()
    for p, slope in zip(
        model.parameters(), torch.autograd.grad(value, list(model.parameters())), strict=True
    ):
        p.grad = slope.float()
    optimiser.step()
    print(f"loss {value:.3f}")
    return value.detach()


def step_by_closure(model, optimiser, source, target, start):
    given = shift(target, start)

    def again():
        for p in model.parameters():
            p.grad = None
        total = 0
        for t in range(target.shape[1]):
            total = total + F.cross_entropy(model(source, given)[:, t], target[:, t])
        (total / target.shape[1]).backward()
        return total / target.shape[1]

    return optimiser.step(again).item()


def stepped(
    given=shift,
    judge=loss,
    forget=True,
    back=lambda value: value.backward(),
    step=1,
    result=lambda value, again: value.item(),
):
    def answer(model, optimiser, source, target, start):
        if forget:
            optimiser.zero_grad()
        value = judge(model(source, given(target, start)), target)
        back(value)
        for _ in range(step):
            optimiser.step()
        return result(value, lambda: judge(model(source, given(target, start)), target).item())

    return answer


def each_loss(logits, target):
    return F.cross_entropy(logits.mT, target, reduction="none")


def step_with_accuracy(model, optimiser, source, target, start):
    right = forced_share(model, source, target, shift(target, start))
    train_step(model, optimiser, source, target, start)
    return right


def step_first(model, optimiser, source, target, start):
    optimiser.step()
    optimiser.zero_grad()
    value = loss(model(source, shift(target, start)), target)
    value.backward()
    return value.item()


def forgets_late(model, optimiser, source, target, start):
    value = loss(model(source, shift(target, start)), target)
    value.backward()
    optimiser.zero_grad()
    optimiser.step()
    return value.item()


def ascends(value):
    (-value).backward()


def twice(value):
    value.backward(retain_graph=True)
    value.backward()


def ahead(target, start):
    return torch.cat([target[:, 1:], torch.full_like(target[:, :1], start)], 1)


def compared_with_input(model, optimiser, source, target, start):
    given = shift(target, start)
    optimiser.zero_grad()
    value = loss(model(source, given), given)
    value.backward()
    optimiser.step()
    return value.item()


def greedy(
    model,
    source,
    start,
    end,
    limit,
    fill=True,
    stop=lambda ended: ended.all(),
    choose=lambda logits: logits[:, -1].argmax(-1),
    read=lambda written: written,
    restore=lambda model, mode: model.train(mode),
    evaluate=True,
    result=lambda written: written[:, 1:],
):
    mode = model.training
    if evaluate:
        model.eval()
    memory = model.encode(source)
    written = torch.full((len(source), 1), start)
    ended = torch.zeros(len(source)).bool()
    for _ in range(limit):
        token = choose(model.decode(read(written), memory, source))
        if fill:
            token = token.masked_fill(ended, end)
        ended |= token == end
        written = torch.cat([written, token[:, None]], 1)
        if stop(ended):
            break
    restore(model, mode)
    return result(written)


def decoded(**other):
    return lambda *given: greedy(*given, **other)


def greedy_by_rows(model, source, start, end, limit):
    """One row after another, as lists, then filled up."""
    mode, rows = model.training, []
    model.eval()
    for one in source.split(1):
        row = []
        while len(row) < limit and end not in row:
            logits = model(one, torch.tensor([[start, *row]]))
            row.append(int(logits[0, -1].argmax()))
        rows.append(row)
    model.train(mode)
    longest = max(map(len, rows))
    return [row + [end] * (longest - len(row)) for row in rows]


def greedy_of_the_unfinished(model, source, start, end, limit):
    """Rows that have ended are not computed any more."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    with torch.inference_mode():
        memory = model.encode(source)
        written = source.new_full((len(source), limit + 1), end)
        written[:, 0] = start
        for t in range(limit):
            going = (written[:, 1 : t + 1] != end).all(1)
            if not going.any():
                t -= 1
                break
            logits = model.decode(written[going, : t + 1], memory[going], source[going])
            written[going, t + 1] = logits[:, -1].max(-1).indices
    for module, mode in modes.items():
        module.training = mode
    return written[:, 1 : t + 2].clone()


def greedy_as_a_list(*given):
    """Rows that are tensors, in a list."""
    return list(greedy(*given))


def greedy_cut_at_the_end(model, source, start, end, limit):
    """Writes on to the limit, then mends what stands behind the ends."""
    mode = model.training
    model.train(False)
    memory, written = model.encode(source), torch.full((len(source), 1), start)
    for _ in range(limit):
        logits = model.decode(written, memory, source)
        written = torch.cat([written, logits.argmax(-1)[:, -1:]], dim=1)
    model.train(mode)
    behind = (written == end).cumsum(1) > 0
    width = limit if not behind.any(1).all() else int((~behind).sum(1).max())
    return written.masked_fill(behind, end)[:, 1 : width + 1]


def filled_with(number):
    def result(written):
        rows = []
        for row in written[:, 1:].tolist():
            at = row.index(6) + 1 if 6 in row else len(row)
            rows.append(row[:at] + [number] * (len(row) - at))
        return torch.tensor(rows)

    return result


def without_end(model, source, start, end, limit):
    return greedy(model, source, start, end, limit, stop=lambda ended: False)


def endless(model, source, start, end, limit):
    return greedy(model, source, start, end, 40)


def first_only(model, source, start, end, limit):
    """Watches whether all rows write end at the same step."""
    return greedy(model, source, start, end, limit, fill=False, stop=lambda ended: False)


def no_start(model, source, start, end, limit):
    return greedy(model, source, 0, end, limit)


def forced_share(model, source, target, given):
    return (model(source, given).argmax(-1) == target).float().mean().item()


def free_text(model, source, target, start, at=-1, width=99):
    written = torch.full((len(target), 1), start)
    for _ in range(target.shape[1]):
        logits = model(source, written[:, -width:])
        written = torch.cat([written, logits[:, at, None].argmax(-1)], 1)
    return written[:, 1:]


def both(model, source, target, start):
    free = free_text(model, source, target, start)
    return (
        forced_share(model, source, target, shift(target, start)),
        (free == target).float().mean().item(),
    )


def both_by_encode(model, source, target, start):
    memory = model.encode(source)
    forced = model.decode(shift(target, start), memory, source).argmax(-1)
    written = torch.full_like(target[:, :1], start)
    while written.shape[1] <= target.shape[1]:
        logits = model.decode(written, memory, source)
        written = torch.hstack([written, logits[:, -1].argmax(-1, keepdim=True)])
    return [accuracy(ids, target).per_token for ids in (forced, written[:, 1:])]


def both_in_loops(model, source, target, start):
    right = np.zeros(2)
    for i in range(len(target)):
        row, free = target[i].tolist(), []
        for t, token in enumerate(row):
            one = source[i : i + 1]
            said = model(one, torch.tensor([[start, *row[:t]]]))[0, -1].argmax().item()
            free.append(model(one, torch.tensor([[start, *free]]))[0, -1].argmax().item())
            right += [said == token, free[-1] == token]
    return torch.tensor(right / target.numel())


def judged(change):
    """What becomes of the two texts, teacher-forced and free-running."""

    def answer(model, source, target, start):
        forced = model(source, shift(target, start)).argmax(-1)
        return change(forced, free_text(model, source, target, start), target)

    return answer


def share(a, b):
    return (a == b).float().mean().item()


def rows(a, b):
    return (a == b).all(1).float().mean().item()


def forced_with(given):
    return lambda model, source, target, start: (
        forced_share(model, source, target, given(target, start)),
        both(model, source, target, start)[1],
    )


def free_in_one_pass(model, source, target, start):
    forced = model(source, shift(target, start)).argmax(-1)
    return (
        share(forced, target),
        forced_share(model, source, target, shift(forced, start)),
    )


def start_counts(model, source, target, start):
    free = free_text(model, source, target, start)
    behind = torch.cat([torch.full_like(target[:, :1], start), free[:, :-1]], 1)
    return both(model, source, target, start)[0], share(behind, target)


RIGHT = {
    "shift": [shift, shift_in_place, shift_in_lists, shift_in_numpy, shift_by_padding],
    "train_step": [train_step, step_by_pytorch, step_by_hand, step_by_closure],
    "greedy": [
        greedy,
        greedy_as_a_list,
        greedy_by_rows,
        greedy_of_the_unfinished,
        greedy_cut_at_the_end,
    ],
    "both_accuracies": [both, both_by_encode, both_in_loops],
}

WRONG = {
    "shift": {
        "not shifted": (lambda target, start: target.clone(), "the target is not shifted"),
        "at the end": (ahead, "shifted the wrong way"),
        "rolled": (lambda target, start: target.roll(1, 1), "leaks to the front"),
        "rolled all together": (lambda target, start: target.roll(1), "shift(target, start)["),
        "one too long": (
            lambda target, start: F.pad(target, (1, 0), value=start),
            "nobody's input",
        ),
        "one too short": (lambda target, start: target[:, :-1], "none is put in its place"),
        "rows shifted": (
            lambda target, start: torch.cat([torch.full_like(target[:1], start), target[:-1]]),
            "the rows are shifted",
        ),
        "a row in front": (
            lambda target, start: torch.cat([torch.full_like(target[:1], start), target]),
            "in front of the batch",
        ),
        "by two": (lambda target, start: shift(shift(target, start), start), "shifted by two"),
        "first overwritten": (overwritten(0), "the first token is overwritten"),
        "last overwritten": (overwritten(-1), "the last token is overwritten"),
        "first doubled": (
            lambda target, start: torch.cat([target[:, :1], target[:, :-1]], 1),
            "the first token is doubled",
        ),
        "0 in front": (lambda target, start: shift(target, 0), "0 stands in front"),
        "backwards": (
            lambda target, start: shift(target.flip(1), start),
            "shift(target, start)[",
        ),
        "backwards, without the last": (
            lambda target, start: F.pad(target.flip(1)[:, 1:], (1, 0), value=start),
            "in the wrong order",
        ),
        "floats": (lambda target, start: shift(target, start).float(), "must stay whole numbers"),
        "floats by zeros": (
            lambda target, start: torch.zeros(target.shape).copy_(shift(target, start)),
            "must stay whole numbers",
        ),
        "one token": (
            lambda target, start: shift(target, start) if target.shape[1] > 1 else target,
            "here a row has one token",
        ),
        "changes the target": (shift_changes_target, "changes its argument number 1"),
        "calls the package's": (teacher_forcing.shift, "it calls shift"),
        "returns nothing": (lambda target, start: None, "is there a return"),
    },
    "train_step": {
        "not shifted": (stepped(given=lambda target, start: target), "the target is not shifted"),
        "rolled": (
            stepped(given=lambda target, start: target.roll(1, 1)),
            "the last token leaks to the front",
        ),
        "shifted the wrong way": (stepped(given=ahead), "shifted the wrong way"),
        "judged by the input": (compared_with_input, "compared with the shifted target"),
        "summed": (
            stepped(judge=lambda logits, t: F.cross_entropy(logits.mT, t, reduction="sum")),
            "the sum over the positions",
        ),
        "summed over a row": (
            stepped(judge=lambda logits, t: each_loss(logits, t).sum(1).mean()),
            "summed over a row's tokens",
        ),
        "summed over the rows": (
            stepped(judge=lambda logits, t: each_loss(logits, t).mean(1).sum()),
            "summed over the rows",
        ),
        "softmax twice": (
            stepped(judge=lambda logits, t: loss(logits.softmax(-1), t)),
            "the softmax runs twice",
        ),
        "transposed": (
            stepped(judge=lambda logits, t: F.cross_entropy(logits.mT.reshape(-1, 8), t.flatten())),
            "do not fit position for position",
        ),
        "not flattened": (stepped(judge=F.cross_entropy), "stops with"),
        "the last position": (
            stepped(judge=lambda logits, t: F.cross_entropy(logits[:, -1], t[:, -1])),
            "only the last position counts",
        ),
        "without the first": (
            stepped(judge=lambda logits, t: loss(logits[:, 1:], t[:, 1:])),
            "the first position is left out",
        ),
        "without the last": (
            stepped(judge=lambda logits, t: loss(logits[:, :-1], t[:, :-1])),
            "the last position is left out",
        ),
        "minus forgotten": (
            stepped(judge=lambda logits, t: -loss(logits, t)),
            "minus is missing",
        ),
        "accuracy": (step_with_accuracy, "this is the accuracy"),
        "a number of one's own": (
            stepped(result=lambda value, again: 5.0),
            "the loss is 5.000, expected",
        ),
        "the loss afterwards": (
            stepped(result=lambda value, again: again()),
            "the loss after the step",
        ),
        "zero_grad forgotten": (stepped(forget=False), "call optimiser.zero_grad()"),
        "no backward": (stepped(back=lambda value: None), "backward() is missing"),
        "no step": (stepped(step=0), "step() is missing, or comes before"),
        "step first": (step_first, "step() is missing, or comes before"),
        "zero_grad late": (forgets_late, "zero_grad() comes behind it"),
        "two steps": (stepped(step=2), "the step is twice as long"),
        "backward twice": (stepped(back=twice), "the step is twice as long"),
        "answers shifted, not the input": (
            stepped(
                given=lambda target, start: target,
                judge=lambda logits, t: loss(logits, shift(t, 7)),
            ),
            "the answers are shifted, and not",
        ),
        "id 0 ignored": (
            stepped(
                judge=lambda logits, t: F.cross_entropy(
                    logits.flatten(0, 1), t.flatten(), ignore_index=0
                )
            ),
            "the id 0 is left out",
        ),
        "with its graph": (stepped(result=lambda value, again: value), "loss.item() is the number"),
        "a list": (stepped(result=lambda value, again: [value.item()]), "is a list, expected a nu"),
        "as text": (stepped(result=lambda value, again: str(value.item())), "is a str, expected a"),
        "uphill": (stepped(back=ascends), "the step goes uphill"),
        "down the sum": (
            stepped(back=lambda value: (12 * value).backward()),
            "walk down the sum",
        ),
        "detached": (
            stepped(judge=lambda logits, t: loss(logits.detach(), t)),
            "stops with RuntimeError",
        ),
        "no return": (stepped(result=lambda value, again: None), "is there a return"),
        "a loss for each": (
            stepped(
                judge=each_loss,
                back=lambda value: value.mean().backward(),
                result=lambda value, again: value.detach(),
            ),
            "has shape [3, 4]",
        ),
        "calls the package's": (
            lambda model, optimiser, source, target, start: training.train_epoch(
                model, Rows(source, target), optimiser, start=start
            ),
            "it calls train_epoch",
        ),
    },
    "greedy": {
        "stops at the first end": (
            decoded(stop=lambda ended: ended.any()),
            "when the first row has ended",
        ),
        "watches row 0": (decoded(stop=lambda ended: ended[0]), "ended: the others go on"),
        "never stops": (without_end, "goes on though every row has ended"),
        "writes on": (decoded(fill=False), "after its end a row writes on: fill it"),
        "writes on to the limit": (first_only, "writes on: fill it with end, and stop"),
        "filled with start": (decoded(result=filled_with(7)), "filled with the start id"),
        "filled with 0": (decoded(result=filled_with(0)), "filled with 0: fill"),
        "filled with 0 to the limit": (
            decoded(stop=lambda ended: False, result=filled_with(0)),
            "filled with 0, and it goes on",
        ),
        "filled with -1": (decoded(result=filled_with(-1)), "filled with -1"),
        "start in front": (decoded(result=lambda written: written), "still in front"),
        "the last token alone": (
            decoded(read=lambda written: written[:, -1:]),
            "given the last token alone",
        ),
        "without start from the second step on": (
            decoded(read=lambda written: written[:, 1:] if written.shape[1] > 1 else written),
            "the start id does not stand in front",
        ),
        "stops before the last end": (
            lambda *given: (
                written[:, :-1]
                if (written := greedy(*given))[:, -1].eq(given[3]).all()
                else written
            ),
            "the last end itself belongs",
        ),
        "floats": (decoded(result=lambda written: written[:, 1:].float()), "stay whole numbers"),
        "rows as long as they are": (
            decoded(
                result=lambda written: [
                    row[1 : row.index(6) + 1 if 6 in row else None] for row in written.tolist()
                ]
            ),
            "unlike lengths",
        ),
        "without start": (no_start, "the start id does not stand in front"),
        "the first position": (
            decoded(choose=lambda logits: logits[:, 0].argmax(-1)),
            "the first position's logits",
        ),
        "the least likely": (
            decoded(choose=lambda logits: logits[:, -1].argmin(-1)),
            "the least likely token",
        ),
        "over the positions": (
            decoded(choose=lambda logits: logits.argmax(1)[:, 0]),
            "greedy(…)",
        ),
        "over the batch": (
            decoded(choose=lambda logits: logits[:, -1].argmax(0)),
            "stops with RuntimeError",
        ),
        "one short": (
            lambda model, source, start, end, limit: greedy(model, source, start, end, limit)[
                :, :-1
            ],
            "a token is missing at the end",
        ),
        "limit - 1": (
            lambda model, source, start, end, limit: greedy(model, source, start, end, limit - 1),
            "with a limit of 4: a token is missing",
        ),
        "limit + 1": (
            lambda model, source, start, end, limit: greedy(model, source, start, end, limit + 1),
            "with a limit of 4: there is a token more",
        ),
        "no limit": (endless, "writes on beyond limit"),
        "in train mode": (
            decoded(evaluate=False),
            "asked in train mode",
        ),
        "put into train mode": (
            lambda model, *given: greedy(model.train(), *given, evaluate=False),
            "asked in train mode",
        ),
        "comes back in eval mode": (
            decoded(restore=lambda model, mode: None),
            "was in train mode before",
        ),
        "comes back in train mode": (
            decoded(restore=lambda model, mode: model.train()),
            "was in eval mode before",
        ),
        "memory and source exchanged": (
            lambda model, source, start, end, limit: model.decode(
                torch.full((len(source), 1), start), source, model.encode(source)
            ),
            "as encode gives it",
        ),
        "one row alone": (
            lambda model, source, start, end, limit: greedy(model, source[:1], start, end, limit),
            "has shape [1, ",
        ),
        "the same text for all": (
            lambda model, source, start, end, limit: greedy(
                model, source[:1].expand_as(source), start, end, limit
            ),
            "greedy(…)",
        ),
        "draws": (
            decoded(choose=lambda logits: torch.multinomial(logits[:, -1].softmax(-1), 1)[:, 0]),
            "greedy(…)",
        ),
        "calls the package's": (
            lambda model, source, start, end, limit: decoding.greedy(
                model, source, start=start, end=end, limit=limit
            ),
            "it calls greedy",
        ),
        "returns nothing": (decoded(result=lambda written: None), "is there a return"),
    },
    "both_accuracies": {
        "exchanged": (lambda *given: both(*given)[::-1], "the two are exchanged"),
        "forced twice": (
            judged(lambda forced, free, target: (share(forced, target),) * 2),
            "both are teacher-forced",
        ),
        "free twice": (
            judged(lambda forced, free, target: (share(free, target),) * 2),
            "both are free-running",
        ),
        "unshifted": (forced_with(lambda target, start: target), "reads the target unshifted"),
        "rolled": (
            forced_with(lambda target, start: target.roll(1, 1)),
            "the last token leaks to the front",
        ),
        "free in one pass": (free_in_one_pass, "it reads what it said teacher-forced"),
        "free, at position 0": (
            lambda *given: (both(*given)[0], share(free_text(*given, at=0), given[2])),
            "the first position's logits",
        ),
        "free, the last token alone": (
            lambda *given: (both(*given)[0], share(free_text(*given, width=1), given[2])),
            "reads the last token alone",
        ),
        "the start counts": (start_counts, "the start id counts"),
        "per sequence": (
            judged(lambda forced, free, target: (rows(forced, target), rows(free, target))),
            "these are shares of rows",
        ),
        "the second per sequence": (
            judged(lambda forced, free, target: (share(forced, target), rows(free, target))),
            "the second is a share of rows",
        ),
        "the first per sequence": (
            judged(lambda forced, free, target: (rows(forced, target), share(free, target))),
            "the first is a share of rows",
        ),
        "counted": (
            judged(
                lambda forced, free, target: (
                    int((forced == target).sum()),
                    int((free == target).sum()),
                )
            ),
            "numbers of tokens",
        ),
        "percent": (lambda *given: [100 * one for one in both(*given)], "these are percent"),
        "wrong tokens": (lambda *given: [1 - one for one in both(*given)], "shares of wrong"),
        "compared with each other": (
            judged(lambda forced, free, target: (share(forced, target), share(forced, free))),
            "compares the two readings",
        ),
        "one number": (lambda *given: both(*given)[0], "two are wanted"),
        "by position": (
            judged(
                lambda forced, free, target: [
                    (ids == target).float().mean(0).tolist() for ids in (forced, free)
                ]
            ),
            "shares by position",
        ),
        "by token": (
            judged(
                lambda forced, free, target: torch.stack([ids == target for ids in (forced, free)])
            ),
            "these are Booleans",
        ),
        "calls the package's": (
            lambda model, source, target, start: (
                share(
                    teacher_forcing.teacher_forced(model, Rows(source, target), start=start),
                    target,
                ),
                0.5,
            ),
            "it calls teacher_forced",
        ),
        "returns nothing": (lambda *given: None, "is there a return"),
    },
}
