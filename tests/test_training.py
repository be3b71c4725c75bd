"""Metrics by hand, the loss against PyTorch's, both ways of asking a model, and `fit`."""

import dataclasses
import io
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import OneCycleLR

from qkv import teacher_forcing, training
from qkv.history import History, Record
from qkv.metrics import accuracy, accuracy_by_position, majority
from qkv.modes import keeping_mode
from qkv.tasks import Rows, Task, Vocabulary, addition, copy
from qkv.teacher_forcing import free_running, shift, teacher_forced
from qkv.training import device, fit, loss, measure, train_epoch
from qkv.transformer import Cache, Transformer

PAD = 9


def tiny(*, seed: int = 0, dropout: float = 0.0) -> Transformer:
    """A model as small as can learn a few rows."""
    torch.manual_seed(seed)
    return Transformer(13, 13, d_model=16, n_heads=2, d_ff=16, dropout=dropout)


def few(n_train: int = 20) -> Task:
    return addition(n_train=n_train, n_test=10)


# --- accuracy


def test_one_wrong_digit_spoils_its_row_alone() -> None:
    target = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 0], [1, 1, 1]])
    predicted = torch.tensor([[1, 2, 3], [4, 0, 6], [0, 0, 0], [1, 1, 1]])
    found = accuracy(predicted, target)
    assert found == (9 / 12, 2 / 4)
    assert (found.per_token, found.per_sequence) == found
    assert isinstance(found[0], float) and isinstance(found[1], float)


def test_padding_in_the_target_counts_only_if_not_left_out() -> None:
    target = torch.tensor([[3, 6, PAD], [1, 2, 3], [5, PAD, PAD]])
    predicted = torch.tensor([[3, 6, 5], [1, 2, PAD], [5, 0, PAD]])
    assert accuracy(predicted, target) == (6 / 9, 0.0)
    assert accuracy(predicted, target, pad=PAD) == (5 / 6, 2 / 3)  # written padding is wrong


def test_accuracy_by_position() -> None:
    target = torch.tensor([[3, 6, PAD], [1, 2, PAD], [5, PAD, PAD]])
    predicted = torch.tensor([[3, 6, PAD], [0, 0, 0], [5, PAD, 0]])
    by_position = accuracy_by_position(predicted, target)
    torch.testing.assert_close(by_position, torch.tensor([2 / 3, 2 / 3, 1 / 3]))
    by_position = accuracy_by_position(predicted, target, pad=PAD)
    expected = torch.tensor([2 / 3, 1 / 2, math.nan])
    torch.testing.assert_close(by_position, expected, equal_nan=True)


@given(st.integers(1, 7), st.integers(1, 5), st.integers(0, 2**32), st.sampled_from([None, 0, 2]))
def test_accuracy_equals_counting_by_hand(B: int, n: int, seed: int, pad: int | None) -> None:
    generator = torch.Generator().manual_seed(seed)
    predicted, target = torch.randint(0, 3, (2, B, n), generator=generator)
    target[:, 0] = 1  # so that no row is padding alone
    copies = predicted.clone(), target.clone()
    rows = [
        [p == t for p, t in zip(*row, strict=True) if t != pad]
        for row in zip(predicted.tolist(), target.tolist(), strict=True)
    ]
    right = [token for row in rows for token in row]
    found = accuracy(predicted, target, pad)
    assert found.per_token == pytest.approx(sum(right) / len(right))
    assert found.per_sequence == pytest.approx(sum(map(all, rows)) / B)
    assert torch.equal(predicted, copies[0]) and torch.equal(target, copies[1])


IDS = torch.tensor([[1, 2], [3, PAD]])


@pytest.mark.parametrize("score", [accuracy, accuracy_by_position])
@pytest.mark.parametrize(
    ("predicted", "target", "error", "message"),
    [
        (IDS.tolist(), IDS, TypeError, "predicted must be a torch.Tensor, got list"),
        (IDS, IDS.numpy(), TypeError, "target must be a torch.Tensor, got ndarray"),
        (
            IDS.float(),
            IDS,
            TypeError,
            "predicted must hold ids, that is whole numbers, got torch.f",
        ),
        (IDS, IDS > 1, TypeError, "target must hold ids, that is whole numbers, got torch.bool"),
        (IDS[:1], IDS, ValueError, "predicted [1, 2] must have the shape of target [2, 2]"),
        (torch.rand(2, 2, 13), IDS, ValueError, "target [2, 2]; for logits take .argmax(-1) first"),
        (IDS[0], IDS[0], ValueError, "target must have shape [B, n] with no empty axis, got [2]"),
        (IDS[:0], IDS[:0], ValueError, "target must have shape [B, n] with no empty axis, got [0"),
        (IDS.to("meta"), IDS, ValueError, "predicted is on meta, expected cpu; move it with"),
    ],
)
def test_accuracy_refuses(
    score: Callable[..., Any], predicted: Any, target: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        score(predicted, target)


@pytest.mark.parametrize("pad", ["9", 9.0, True])
def test_a_pad_that_is_no_id_is_refused(pad: Any) -> None:
    ids = torch.ones(2, 3, dtype=torch.int64)
    message = re.escape(f"pad must be an int, got {type(pad).__name__}: {pad!r}")
    for count in (accuracy, accuracy_by_position):
        with pytest.raises(TypeError, match=message):
            count(ids, ids, pad)
    with pytest.raises(TypeError, match=message):
        loss(torch.zeros(2, 3, 13), ids, pad)
    with pytest.raises(TypeError, match=message):
        measure(tiny(), few(), pad)


def test_accuracy_refuses_a_row_of_nothing_but_padding() -> None:
    target = torch.tensor([[1, PAD], [PAD, PAD]])
    with pytest.raises(ValueError, match=r"row 1 of target holds nothing but pad = 9, so it can"):
        accuracy(target, target, pad=PAD)
    assert accuracy(target, target) == (1.0, 1.0)


# --- majority


def test_majority_is_taken_position_by_position() -> None:
    targets = torch.tensor([[1, 5, 2], [1, 6, 0], [2, 6, 2], [1, 6, 0]])
    found = majority(targets)
    assert found.ids.tolist() == [1, 6, 0]  # 0 and 2 are equally common: the smaller one
    assert found.ids.dtype == torch.int64
    assert found.shares.tolist() == [0.75, 0.75, 0.5]


def test_a_majority_of_train_is_scored_on_test() -> None:
    train, test = torch.tensor([[1, 2], [1, 3], [1, 3]]), torch.tensor([[1, 2], [0, 3]])
    guesses = majority(train).ids.expand_as(test)
    assert accuracy_by_position(guesses, test).tolist() == [0.5, 0.5]
    assert accuracy(guesses, test) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("targets", "error", "message"),
    [
        ([[1]], TypeError, "targets must be a torch.Tensor, got list"),
        (IDS.float(), TypeError, "targets must hold ids, that is whole numbers, got torch.float32"),
        (IDS[0], ValueError, "targets must have shape [B, n] with no empty axis, got [2]"),
        (IDS - 2, ValueError, "targets holds the id -1; ids begin at 0"),
    ],
)
def test_majority_refuses(targets: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        majority(targets)


# --- shift


def test_shift_puts_start_in_front_and_drops_the_last() -> None:
    target = torch.tensor([[3, 3, 5], [3, 6, 11]])
    kept = target.clone()
    shifted = shift(target, 12)
    assert shifted.tolist() == [[12, 3, 3], [12, 3, 6]]
    assert shifted.dtype == torch.int64
    shifted.fill_(0)
    assert torch.equal(target, kept)  # the target is no view of what came back


def test_shift_takes_one_row_one_token_and_more_axes() -> None:
    assert shift(torch.tensor([3, 3, 5]), 12).tolist() == [12, 3, 3]
    assert shift(torch.tensor([[5]]), 12).tolist() == [[12]]
    assert shift(torch.ones(2, 3, 4, dtype=torch.int64), 0)[..., :2].tolist() == [[[0, 1]] * 3] * 2


@pytest.mark.parametrize(
    ("target", "start", "error", "message"),
    [
        ([1, 2], 0, TypeError, "target must be a torch.Tensor, got list"),
        (IDS.float(), 0, TypeError, "target must hold ids, that is whole numbers, got torch.float"),
        (IDS, ">", TypeError, "start must be an int, an id, got str: '>'"),
        (IDS, True, TypeError, "start must be an int, an id, got bool: True"),
        (IDS[:, :0], 0, ValueError, "target must have shape [..., n], not empty, got [2, 0]"),
        (IDS[0, 0], 0, ValueError, "target must have shape [..., n], not empty, got []"),
    ],
)
def test_shift_refuses(target: Any, start: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        shift(target, start)


# --- loss


def test_loss_by_hand() -> None:
    logits = torch.log(torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]]))  # [1, 2, 3]
    target = torch.tensor([[0, 2]])
    assert loss(logits, target).item() == pytest.approx(-(math.log(0.5) + math.log(0.8)) / 2)
    assert loss(logits, target, pad=2).item() == pytest.approx(-math.log(0.5))
    assert loss(torch.zeros(2, 3, 13), torch.ones(2, 3).long()).item() == pytest.approx(
        math.log(13)
    )


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(0, 2**32),
    st.sampled_from([None, 0, 3]),
)
def test_loss_equals_pytorchs(shape: list[int], seed: int, pad: int | None) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, 5, shape, generator=generator)
    target.view(-1)[0] = 1  # something always counts
    expected = F.cross_entropy(
        logits.reshape(-1, 5), target.reshape(-1), ignore_index=-100 if pad is None else pad
    )
    found = loss(logits, target, pad)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(value, logits)[0] for value in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_loss_is_a_mean_over_positions_not_over_rows() -> None:
    logits = torch.randn(2, 3, 10, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([[1, 2, 3], [4, PAD, PAD]])
    each = F.cross_entropy(logits.transpose(1, 2), target, reduction="none")  # [2, 3]
    torch.testing.assert_close(loss(logits, target, pad=PAD), each[target != PAD].mean())


LOGITS = torch.zeros(2, 2, 10)


@pytest.mark.parametrize(
    ("logits", "target", "pad", "error", "message"),
    [
        (LOGITS.tolist(), IDS, None, TypeError, "logits must be a torch.Tensor, got list"),
        (LOGITS, IDS.tolist(), None, TypeError, "target must be a torch.Tensor, got list"),
        (LOGITS.long(), IDS, None, TypeError, "logits must be floating, got torch.int64; ids have"),
        (LOGITS, IDS.int(), None, TypeError, "target must hold int64 ids, got torch.int32"),
        (
            LOGITS[:1],
            IDS,
            None,
            ValueError,
            "logits [1, 2, 10] must have the shape of target [2, 2]",
        ),
        (LOGITS[0, 0], IDS[0, 0], None, ValueError, "logits [10] must have the shape of target []"),
        (LOGITS[..., :9], IDS, None, ValueError, "target holds the id 9, outside the vocabulary 0"),
        (LOGITS, IDS - 9, None, ValueError, "target holds the id -8, outside the vocabulary 0 … 9"),
        (LOGITS[:, :0], IDS[:, :0], None, ValueError, "target is empty"),
        (LOGITS, IDS.to("meta"), None, ValueError, "target is on meta, expected cpu"),
        (LOGITS, torch.full_like(IDS, PAD), PAD, ValueError, "target holds nothing but pad = 9; "),
    ],
)
def test_loss_refuses(
    logits: Any, target: Any, pad: int | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        loss(logits, target, pad)


# --- teacher-forced and free-running


class Counter(Transformer):
    """Says one more than the last id it was given, whatever the source: 12 (start) gives 3."""

    def __init__(self) -> None:
        super().__init__(13, 13, d_model=2, n_heads=1, d_ff=2)

    def _decode(self, target: Tensor, memory: Tensor, source: Tensor, cache: Cache) -> Tensor:
        return F.one_hot((target + 1) % 10, 13).float()


COUNTED = Rows(torch.zeros(2, 4, dtype=torch.int64), torch.tensor([[4, 5, 6], [3, 4, 6]]))


def test_a_model_can_be_right_when_forced_and_wrong_alone() -> None:
    forced = teacher_forced(Counter(), COUNTED, start=12)
    free = free_running(Counter(), COUNTED, start=12)
    assert forced.tolist() == [[3, 5, 6], [3, 4, 5]]
    assert free.tolist() == [[3, 4, 5], [3, 4, 5]]
    assert accuracy(forced, COUNTED.target) == (4 / 6, 0.0)
    assert accuracy(free, COUNTED.target) == (2 / 6, 0.0)


def test_neither_way_sees_the_token_it_is_to_name() -> None:
    model, (source, target) = tiny(), few().train
    other = target.clone()
    other[:, -1] = (other[:, -1] + 1) % 12
    for answer in (teacher_forced, free_running):
        found = [answer(model, Rows(source, t), start=12) for t in (target, other)]
        assert torch.equal(*found)
    free = free_running(model, Rows(source, torch.zeros_like(target)), start=12)
    assert torch.equal(free, free_running(model, Rows(source, target), start=12))


def test_answers_are_the_models_likeliest_tokens() -> None:
    model, rows = tiny().eval(), few().train
    logits = model(rows.source, shift(rows.target, 12))
    assert torch.equal(teacher_forced(model, rows, start=12), logits.argmax(-1))
    free = free_running(model, rows, start=12)
    logits = model(rows.source, shift(free, 12))
    assert torch.equal(free, logits.argmax(-1))


def test_rows_are_asked_in_parts_and_come_back_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = tiny(), few(20).train
    for answer in (teacher_forced, free_running):
        whole = answer(model, rows, start=12)
        with monkeypatch.context() as patch:
            patch.setattr(teacher_forcing, "ROWS_AT_ONCE", 7)
            assert torch.equal(answer(model, rows, start=12), whole)


@pytest.mark.parametrize("answer", [teacher_forced, free_running])
def test_asking_is_without_dropout_and_restores_every_mode(answer: Callable[..., Tensor]) -> None:
    model, rows = tiny(dropout=0.5).train(), few().train
    model.encoder[0].eval()
    modes = [module.training for module in model.modules()]
    assert torch.equal(answer(model, rows, start=12), answer(model, rows, start=12))
    assert [module.training for module in model.modules()] == modes
    assert any(modes) and not all(modes)


@pytest.mark.parametrize("answer", [teacher_forced, free_running])
def test_asking_refuses(answer: Callable[..., Tensor]) -> None:
    model, task = tiny(), few()
    with pytest.raises(TypeError, match=r"rows must be Rows\(source, target\), such as task.test"):
        answer(model, task, start=12)
    empty = Rows(task.train.source[:0], task.train.target[:0])
    with pytest.raises(ValueError, match=r"rows.source is empty: its shape is \[0, 6\]"):
        answer(model, empty, start=12)
    with pytest.raises(ValueError, match=r"13, outside the (target )?vocabulary 0 … 12"):
        answer(model, task.train, start=13)
    with pytest.raises(TypeError, match=r"model must be a .*, got str"):
        answer("model", task.train, start=12)
    assert model.training


SOURCE, TARGET = few().train
UNFIT_ROWS = [
    (Rows(SOURCE, TARGET[1:]), ValueError, "rows has 20 sources and 19 targets; each source needs"),
    (Rows(SOURCE[0], TARGET), ValueError, "rows.source must have shape [B, n], got [6]"),
    (Rows(SOURCE, TARGET.float()), TypeError, "rows.target must hold int64 ids, got torch.float32"),
    (Rows(SOURCE, None), TypeError, "rows.target must be a torch.Tensor, got NoneType"),
]


@pytest.mark.parametrize(("rows", "error", "message"), UNFIT_ROWS)
def test_rows_that_do_not_fit_are_refused(rows: Rows, error: type[Exception], message: str) -> None:
    model = tiny().eval()
    with pytest.raises(error, match=re.escape(message)):
        train_epoch(model, rows, SGD(model.parameters(), lr=0.1), start=12)
    for answer in (teacher_forced, free_running):
        with pytest.raises(error, match=re.escape(message)):
            answer(model, rows, start=12)
    assert not model.training


def test_modes_come_back_after_an_error() -> None:
    model = tiny().eval()
    with pytest.raises(RuntimeError, match="stop"), keeping_mode(model):
        model.train()
        raise RuntimeError("stop")
    assert not any(module.training for module in model.modules())


# --- history


def record(epoch: int) -> Record:
    return Record(epoch, 0.1 * epoch, *(1 / (3 + epoch + i) for i in range(8)))


def test_history_round_trip_keeps_every_digit(tmp_path: Path) -> None:
    history = History([record(1), record(2)])
    history.write_csv(tmp_path / "run.csv")
    again = History.read_csv(tmp_path / "run.csv")
    assert again == history and isinstance(again, History) and isinstance(again[0], Record)
    assert isinstance(again[0].epoch, int)
    again.write_csv(str(tmp_path / "again.csv"))
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "run.csv").read_bytes()


def test_history_csv_is_plain(tmp_path: Path) -> None:
    History([Record(10, 0.5, *[0.25] * 8)]).write_csv(tmp_path / "run.csv")
    assert (tmp_path / "run.csv").read_bytes() == (
        b"epoch,loss,train_teacher_token,train_teacher_sequence,train_free_token,"
        b"train_free_sequence,test_teacher_token,test_teacher_sequence,test_free_token,"
        b"test_free_sequence\n10,0.5,0.25,0.25,0.25,0.25,0.25,0.25,0.25,0.25\n"
    )


def test_an_empty_history_is_a_header(tmp_path: Path) -> None:
    History().write_csv(tmp_path / "run.csv")
    assert History.read_csv(tmp_path / "run.csv") == []


def test_history_column() -> None:
    history = History([record(1), record(4)])
    assert history.column("epoch") == [1, 4]
    assert history.column("test_free_sequence") == [1 / 11, 1 / 14]
    with pytest.raises(ValueError, match="name must be one of epoch, loss, .*, got 'test'"):
        history.column("test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected the header epoch,loss,.*, got an empty file"),
        ("epoch,loss\n1,2\n", "run.csv is no history: expected .*, got epoch,loss"),
        ("{header}\n1,0.5\n", "run.csv, line 2: expected 10 numbers, an epoch first, got '1,0.5'"),
        ("{header}\n{row}\n{row},9\n", "run.csv, line 3: expected 10 numbers"),
        ("{header}\n{row}\nx{row}\n", "run.csv, line 3: expected 10 numbers"),
    ],
)
def test_history_refuses_other_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "run.csv"
    path.write_text(content.format(header=",".join(Record._fields), row="1" + ",0.5" * 9))
    with pytest.raises(ValueError, match=message):
        History.read_csv(path)


# --- fit


def test_fit_overfits_a_few_rows() -> None:
    task, model = few(), tiny()
    history = fit(
        model, task, epochs=100, batch_size=20, learning_rate=2e-2, log_every=100, device="cpu"
    )
    last = history[-1]
    assert last.loss < 0.01
    assert last.train_teacher_sequence == last.train_free_sequence == 1.0
    assert last.train_teacher_token == last.train_free_token == 1.0
    assert last.test_free_sequence < 0.9  # 20 rows teach no addition
    forced = teacher_forced(model, task.test, start=task.start)
    assert accuracy(forced, task.test.target) == (
        last.test_teacher_token,
        last.test_teacher_sequence,
    )


def test_a_transformer_learns_to_copy_what_it_never_saw() -> None:
    task = copy(n_train=500, n_test=100, max_a=99, max_b=9)
    baseline = majority(task.train.target).ids.expand_as(task.test.target)
    history = fit(
        tiny(), task, epochs=10, batch_size=25, learning_rate=1e-2, log_every=10, device="cpu"
    )
    assert history[-1].test_free_token > 0.95 > accuracy(baseline, task.test.target).per_token
    assert history[-1].test_free_sequence > 0.9


def run(*, dropout: float = 0.0, state: int = 0, **options: Any) -> tuple[History, Tensor]:
    """History and weights of a short training, begun in this global random state."""
    model = tiny(dropout=dropout)
    torch.manual_seed(state)
    history = fit(
        model, few(), **({"epochs": 3, "batch_size": 8, "log_every": 1, "device": "cpu"} | options)
    )
    return history, torch.cat([p.detach().flatten() for p in model.parameters()])


def test_fit_is_deterministic_for_a_seed_with_dropout_too() -> None:
    first, first_weights = run(dropout=0.2, seed=3, state=1)
    second, second_weights = run(dropout=0.2, seed=3, state=2)
    assert first == second and torch.equal(first_weights, second_weights)
    assert run(dropout=0.2, seed=4)[0] != first
    assert run(seed=3)[0] != run(seed=4)[0]  # the order of the rows follows the seed by itself


def orders(dropout: float) -> list[list[int]]:
    """The first digits of the rows that a model is trained on, batch by batch."""
    seen: list[list[int]] = []
    model = tiny(dropout=dropout)
    model.register_forward_pre_hook(
        lambda module, args: seen.append(args[0][:, 0].tolist()) if module.training else None
    )
    fit(model, few(20), epochs=2, batch_size=20, log_every=2, device="cpu")
    return seen


def test_batches_come_in_another_order_each_epoch() -> None:
    first, second = orders(dropout=0.0)
    assert first != second
    assert sorted(first) == sorted(second) == sorted(few(20).train.source[:, 0].tolist())


def test_models_with_and_without_dropout_see_the_same_batches() -> None:
    assert orders(dropout=0.0) == orders(dropout=0.2)


def test_fit_leaves_the_global_random_state_alone() -> None:
    model = tiny(dropout=0.2)
    before = torch.get_rng_state()
    fit(model, few(), epochs=1, device="cpu")
    assert torch.equal(before, torch.get_rng_state())


def test_fit_measures_every_so_often_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    history, _ = run(epochs=11, log_every=4)
    assert history.column("epoch") == [4, 8, 11]
    out, err = capsys.readouterr()
    assert err == ""  # in a notebook anything here would be a red box
    lines = out.splitlines()
    assert len(lines) == 3
    assert lines[0] == (
        f"epoch  4  loss {history[0].loss:.4f}  test, free-running: "
        f"tokens {history[0].test_free_token:.3f}, sequences {history[0].test_free_sequence:.3f}"
    )
    assert lines[2].startswith("epoch 11  loss ")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_on_stderr_and_lines_on_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    run(epochs=2)
    assert "0/2 [" in terminal.getvalue()
    assert capsys.readouterr().out.count("epoch ") == 2


def test_every_row_is_used_once_an_epoch_and_the_loss_is_their_mean() -> None:
    """With a rate too small to change anything, an epoch's loss is the loss of all rows."""
    task, model = few(20), tiny()
    optimizer = SGD(model.parameters(), lr=1e-30)
    mean = train_epoch(model, task.train, optimizer, start=task.start, batch_size=7)  # 7, 7, 6
    expected = loss(model(task.train.source, shift(task.train.target, 12)), task.train.target)
    assert mean == pytest.approx(expected.item(), rel=1e-5)


def test_one_plain_step_is_the_step_by_hand() -> None:
    task, model, twin = few(20), tiny(), tiny()
    fit(model, task, epochs=1, optimizer=SGD(model.parameters(), lr=0.1), device="cpu")
    loss(twin(task.train.source, shift(task.train.target, 12)), task.train.target).backward()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q - 0.1 * q.grad)


def test_gradients_left_over_from_before_do_not_count() -> None:
    _, clean = run(epochs=1)
    model = tiny()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    fit(model, few(), epochs=1, batch_size=8, device="cpu")
    assert torch.equal(clean, torch.cat([p.detach().flatten() for p in model.parameters()]))


def test_an_optimizer_may_hold_a_part_of_the_model() -> None:
    model, twin = tiny(), tiny()
    optimizer = SGD(model.to_vocab.parameters(), lr=0.1)
    fit(model, few(), epochs=1, optimizer=optimizer, device="cpu")
    changed = {
        name.split(".")[0]
        for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True)
        if not torch.equal(p, q)
    }
    assert changed == {"to_vocab"}


def test_a_scheduler_takes_a_step_after_each_batch() -> None:
    model = tiny()
    optimizer = AdamW(model.parameters(), lr=1.0)
    scheduler = OneCycleLR(optimizer, max_lr=5e-3, total_steps=4 * 3)  # 20 rows by 6: 4 batches
    before = optimizer.param_groups[0]["lr"]
    fit(
        model,
        few(20),
        epochs=3,
        batch_size=6,
        optimizer=optimizer,
        scheduler=scheduler,
        device="cpu",
    )
    assert scheduler.last_epoch == 12
    assert optimizer.param_groups[0]["lr"] < before


def test_padding_counts_in_fit_unless_told_otherwise() -> None:
    """All targets but one token are padding: counted, guessing it is nearly always right."""
    ids = torch.zeros(8, 4, dtype=torch.int64)
    targets = torch.full((8, 4), 11)
    targets[:, 0] = torch.arange(8)  # nothing in the source tells which
    task = Task("own", Rows(ids, targets), Rows(ids, targets), Vocabulary("0123456789+_>"), 12, 11)
    options = {"epochs": 60, "learning_rate": 1e-2, "log_every": 60, "device": "cpu"}
    counted = fit(tiny(), task, **options)[-1]
    assert counted.test_free_token == pytest.approx((3 + 1 / 8) / 4)
    assert counted.loss == pytest.approx(math.log(8) / 4, abs=0.05)
    left_out = fit(tiny(), task, pad=task.pad, **options)[-1]
    assert left_out.test_free_token == left_out.test_free_sequence == 1 / 8
    assert left_out.loss == pytest.approx(math.log(8), abs=0.1)


@pytest.mark.parametrize("training_before", [True, False])
def test_fit_leaves_the_model_in_the_mode_it_had(training_before: bool) -> None:
    model = tiny().train(training_before)
    fit(model, few(), epochs=1, device="cpu")
    assert {module.training for module in model.modules()} == {training_before}


def test_dropout_is_on_in_training_and_off_in_measuring() -> None:
    model, modes = tiny(dropout=0.3).eval(), []
    model.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    fit(model, few(), epochs=1, batch_size=20, device="cpu")
    assert modes == [True, False, False]  # one batch, then train and test teacher-forced


def test_measure_names_all_accuracies_of_a_record() -> None:
    measured = measure(
        Counter(), Task("own", COUNTED, COUNTED, Vocabulary("0123456789+_>"), 12, 11)
    )
    assert tuple(measured) == Record._fields[2:]
    assert measured["train_teacher_token"] == measured["test_teacher_token"] == 4 / 6
    assert measured["train_free_token"] == measured["test_free_token"] == 2 / 6


def test_an_interruption_returns_the_history_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    model, steps = tiny().eval(), 0

    class Interrupted(SGD):
        def step(self, closure: Any = None) -> Any:
            nonlocal steps
            steps += 1
            if steps == 6:
                raise KeyboardInterrupt
            return super().step(closure)

    optimizer = Interrupted(model.parameters(), lr=0.1)
    history = fit(
        model, few(20), epochs=9, batch_size=20, optimizer=optimizer, log_every=2, device="cpu"
    )
    assert history.column("epoch") == [2, 4]
    out, err = capsys.readouterr()
    assert out.endswith("stopped after epoch 5 of 9; the history so far is returned\n")
    assert err == ""
    assert not model.training


def test_a_loss_that_is_not_finite_says_when_and_what_to_try() -> None:
    model = tiny().eval()

    class Exploding(SGD):
        steps = 0

        def step(self, closure: Any = None) -> Any:
            self.steps += 1
            if self.steps == 3:
                with torch.no_grad():
                    model.to_vocab.bias.fill_(math.nan)
            return super().step(closure)

    optimizer = Exploding(model.parameters(), lr=0.1)
    message = r"the loss is nan in epoch 4 of 9; try a smaller learning rate, or one that warms up"
    with pytest.raises(FloatingPointError, match=message):
        fit(model, few(20), epochs=9, batch_size=20, optimizer=optimizer, device="cpu")
    assert not model.training


MODEL = tiny()
SGD_ON_MODEL = SGD(MODEL.parameters(), lr=0.1)
LONG_TEST = dataclasses.replace(few(), test=Rows(TARGET[:1], TARGET[:1].repeat(1, 200)))
PADDED_TEST = dataclasses.replace(few(), test=Rows(TARGET[:2], torch.tensor([[1], [11]])))
SGD_ELSEWHERE = SGD(tiny().parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"task": few().train}, TypeError, "task must be a Task, such as addition(), got Rows"),
        (
            {"task": addition(n_train=5, n_test=0)},
            ValueError,
            "task has no test rows to measure on",
        ),
        ({"epochs": 0}, ValueError, "epochs must be at least 1, got 0"),
        ({"epochs": 2.0}, TypeError, "epochs must be an int, got float: 2.0"),
        ({"batch_size": -1}, ValueError, "batch_size must be at least 1, got -1"),
        ({"log_every": 0}, ValueError, "log_every must be at least 1, got 0"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate must be above 0 and finite, got 0.0"),
        (
            {"learning_rate": math.nan},
            ValueError,
            "learning_rate must be above 0 and finite, got n",
        ),
        (
            {"learning_rate": 0.1, "optimizer": SGD_ON_MODEL},
            ValueError,
            "learning_rate = 0.1 would change nothing: the optimizer handed in has a rate of its",
        ),
        (
            {"optimizer": SGD_ELSEWHERE},
            ValueError,
            "optimizer holds none of the model's parameters, so the model would never change; make",
        ),
        (
            {"scheduler": OneCycleLR(SGD_ON_MODEL, 0.1, total_steps=9)},
            ValueError,
            "scheduler sets the rate of another optimizer than the one that trains; hand in both",
        ),
        (
            {
                "optimizer": SGD_ON_MODEL,
                "scheduler": OneCycleLR(SGD_ELSEWHERE, 0.1, total_steps=9),
            },
            ValueError,
            "scheduler sets the rate of another optimizer",
        ),
        ({"model": nn.Linear(2, 2)}, TypeError, "model must be a Transformer, got Linear"),
        ({"seed": 1.5}, TypeError, "seed must be an int, got float: 1.5"),
        ({"pad": "_"}, TypeError, "pad must be an int, got str: '_'"),
        ({"learning_rate": "0.1"}, TypeError, "learning_rate must be a number, got str: '0.1'"),
        ({"learning_rate": True}, TypeError, "learning_rate must be a number, got bool: True"),
        ({"optimizer": SGD}, TypeError, "optimizer must be a torch.optim.Optimizer, got type"),
        (
            {"optimizer": SGD_ON_MODEL, "scheduler": "cosine"},
            TypeError,
            "scheduler must be a scheduler from torch.optim.lr_scheduler, got str",
        ),
        (
            {"model": Transformer(13, 13, d_model=4, n_heads=1, d_ff=4, max_len=5)},
            ValueError,
            "task.train.source needs 6 positions, the table holds max_len = 5",
        ),
        ({"task": LONG_TEST}, ValueError, "task.test.target needs 600 positions, the table holds"),
        (
            {"task": PADDED_TEST, "pad": 11},
            ValueError,
            "row 1 of task.test.target holds nothing but pad = 11, so it can be neither right",
        ),
        (
            {"model": Transformer(13, 12, d_model=4, n_heads=1, d_ff=4)},
            ValueError,
            "task.start is 12, outside the vocabulary 0 … 11",
        ),
        ({"device": "meta"}, ValueError, "device 'meta' cannot be used here (its tensors have a"),
        ({"device": "gpu"}, ValueError, "device 'gpu' cannot be used here (Expected one of cpu, "),
        ({"device": 3.5}, ValueError, "device 3.5 cannot be used here ("),
    ],
)
def test_fit_refuses_before_anything_is_computed(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    before = [p.detach().clone() for p in MODEL.parameters()]
    with pytest.raises(error, match=re.escape(message)):
        fit(**{"model": MODEL, "task": few(), "epochs": 1, "device": "cpu"} | arguments)
    assert all(torch.equal(p, q) for p, q in zip(MODEL.parameters(), before, strict=True))


def test_train_epoch_refuses_a_batch_of_nothing() -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        train_epoch(MODEL, few().train, SGD_ON_MODEL, start=12, batch_size=0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model": "model"}, TypeError, "model must be a torch.nn.Module, such as a Transformer"),
        ({"optimizer": None}, TypeError, "optimizer must be a torch.optim.Optimizer, got NoneType"),
        ({"scheduler": 1}, TypeError, "scheduler must be a scheduler from torch.optim.lr_sch"),
        ({"pad": 1.5}, TypeError, "pad must be an int, got float: 1.5"),
        ({"start": None}, TypeError, "start must be an int, got NoneType: None"),
        ({"start": 13}, ValueError, "target holds the id 13, outside the vocabulary"),
    ],
)
def test_train_epoch_refuses_and_leaves_the_mode(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    model = tiny().eval()
    right = {"model": model, "rows": few().train, "optimizer": SGD(model.parameters(), lr=0.1)}
    with pytest.raises(error, match=re.escape(message)):
        train_epoch(**{**right, "start": 12, **arguments})
    assert not any(module.training for module in model.modules())


def test_a_batch_may_be_larger_than_all_rows() -> None:
    model = tiny().eval()
    optimizer = SGD(model.parameters(), lr=0.1)
    train_epoch(model, few().train, optimizer, start=12, batch_size=10**30)
    assert all(module.training for module in model.modules())


def test_measure_refuses() -> None:
    with pytest.raises(TypeError, match=re.escape("model must be a Transformer, got Linear")):
        measure(nn.Linear(2, 2), few())
    with pytest.raises(
        TypeError, match=re.escape("task must be a Task, such as addition(), got R")
    ):
        measure(tiny(), few().train)


# --- device


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_the_default_device_is_the_fastest(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, expected: str
) -> None:
    asked: list[str] = []

    def empty(_: int, *, device: str) -> Tensor:
        asked.append(device)
        return torch.zeros(0)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setattr(torch, "empty", empty)
    device()
    assert asked == [expected]


def test_a_named_device_is_taken() -> None:
    assert device("cpu") == device(torch.device("cpu")) == torch.device("cpu")
    assert training.device is device


@pytest.mark.gpu
def test_fit_and_answers_on_a_gpu() -> None:
    model: nn.Module = tiny(dropout=0.1)
    task = few()
    history = fit(model, task, epochs=2, batch_size=7)
    assert next(model.parameters()).device == device()
    assert math.isfinite(history[-1].loss)
    for answer in (teacher_forced, free_running):
        predicted = answer(model, task.test, start=task.start)
        assert predicted.device == task.test.target.device
        accuracy(predicted, task.test.target)
