"""The interface of the experiments by hand: its scripts run, V is read both ways, it learns."""

import io
import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from tqdm import tqdm

from qkv.byhand import curves
from qkv.byhand.seq2seq import Seq2SeqData, TransformerSeq2Seq
from qkv.byhand.sequences import reverse, shift, vocabulary
from qkv.tasks import addition
from support import says

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

Ids = np.ndarray[Any, Any]

# The three scripts of the experiments, as one file: copy, addition, addition with four heads.
BEGIN = """
from matplotlib import pyplot as plt

from qkv.byhand.seq2seq import Seq2SeqData, TransformerSeq2Seq

formula = Seq2SeqData()

N_train, N_test = 5000, 500
X, Y = Seq2SeqData().addition_formula(N_train + N_test)
X_train, Y_train = X[:N_train], Y[:N_train]
X_test, Y_test = X[N_train:], Y[N_train:]
V = max([X.max(), Y.max()])
"""

MODEL = """
{name} = TransformerSeq2Seq({data}, H_embed=32, H_qk=32, H_ff=32, {heads}is_input_reversed={turned})
{name}.train({settings})
"""

CURVES = """
plt.figure(figsize=(13, 8))
plt.subplots_adjust(wspace=0.2, hspace=0.4)
plt.subplot(2, 3, 1)
plt.ylabel('Baseline', fontsize=20)
model.plot_accuracy_seq_level()
plt.subplot(2, 3, 2)
model.plot_accuracy_token_level()
plt.subplot(2, 3, 3)
model.plot_loss()
plt.subplot(2, 3, 4)
plt.ylabel('Input Reversed', fontsize=20)
model_r.plot_accuracy_seq_level()
plt.subplot(2, 3, 5)
model_r.plot_accuracy_token_level()
plt.subplot(2, 3, 6)
model_r.plot_loss()
plt.show()
"""

COPY = "X_train, X_train, X_test, X_test, V"
ADDITION = "X_train, Y_train, X_test, Y_test, formula.V"
SCRIPTS = [
    (COPY, "", "epoch=100, mini_batch=100, eta=0.02, log_interval=1"),
    (ADDITION, "", "epoch=1000, mini_batch=100, eta=0.2, log_interval=20"),
    (ADDITION, "n_head=4, ", "epoch=1000, mini_batch=100, eta=0.2, log_interval=20"),
]


def test_the_three_scripts_run_as_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gcf()))
    text = BEGIN
    for data, heads, settings in SCRIPTS:
        for name, turned in (("model", False), ("model_r", True)):
            text += MODEL.format(
                name=name, data=data, heads=heads, turned=turned, settings=settings
            )
        text += CURVES
    text = re.sub(r"epoch=\d+", "epoch=1", text)  # the one cut
    file = tmp_path / "scripts.py"
    file.write_text(text, encoding="utf-8")
    exec(compile(text, file, "exec"), {"__name__": "__main__"})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and all(line.startswith("epoch    1  loss ") for line in lines)
    assert len(shown) == 3
    for figure in shown:
        titles = [axes.get_title() for axes in figure.axes]
        assert titles == ["accuracy, sequences", "accuracy, test tokens", "loss"] * 2
        tokens = len(figure.axes[1].lines)
        assert tokens == (12 if figure is shown[0] else 6)  # 6 or 3 positions, two ways each
        assert [axes.get_ylabel() for axes in figure.axes[::3]] == ["Baseline", "Input Reversed"]
    plt.close("all")


# --- data


def test_the_rows_are_those_of_the_pytorch_half() -> None:
    X, Y = Seq2SeqData().addition_formula(5500)
    task = addition()
    assert X.dtype == Y.dtype == np.int64
    assert (X[:5000][::-1] == task.train.source.numpy()).all()
    assert (Y[:5000][::-1] == task.train.target.numpy()).all()
    assert (X[5000:][::-1] == task.test.source.numpy()).all()
    assert (Y[5000:][::-1] == task.test.target.numpy()).all()
    assert Seq2SeqData().V == Seq2SeqData.V == 12 == max(X.max(), Y.max()) + 1
    other, _ = Seq2SeqData().addition_formula(5500, seed=1)
    assert (other != X).any()


def test_smaller_first_numbers_make_narrower_rows() -> None:
    X, Y = Seq2SeqData().addition_formula(5500, max_a=99)
    rows = {tuple(row) for row in X.tolist()}
    assert X.shape == (5500, 5) and Y.shape == (5500, 3) and len(rows) == 5500
    texts = ["".join("0123456789+_"[i] for i in row).rstrip("_") for row in X]
    sums = ["".join("0123456789+_"[i] for i in row).rstrip("_") for row in Y]
    assert all(
        sum(map(int, text.split("+"))) == int(y) for text, y in zip(texts, sums, strict=True)
    )
    assert max(int(text.split("+")[0]) for text in texts) == 99
    usual = Seq2SeqData().addition_formula(3, max_a=999)[0]
    assert (usual == Seq2SeqData().addition_formula(3)[0]).all()


def test_too_many_rows_are_refused() -> None:
    with says(ValueError, "max_a must be in 0 … 999", "1000"):
        Seq2SeqData().addition_formula(1, max_a=1000)
    with says(ValueError, "N is 10001", "10000 pairs", "a <= 99"):
        Seq2SeqData().addition_formula(10001, max_a=99)
    with says(ValueError, "N is 95051", "95050 pairs"):
        Seq2SeqData().addition_formula(95051)
    with says(ValueError, "N must be at least 1", "0"):
        Seq2SeqData().addition_formula(0)


def test_reversing_before_and_after_padding() -> None:
    X = np.array([[3, 2, 8, 10, 7, 11], [3, 10, 3, 3, 11, 11]])
    assert reverse(X).tolist() == [[11, 7, 10, 8, 2, 3], [11, 11, 3, 3, 10, 3]]
    assert reverse(X, pad=11).tolist() == [[7, 10, 8, 2, 3, 11], [3, 3, 10, 3, 11, 11]]
    assert X[0].tolist() == [3, 2, 8, 10, 7, 11]


def test_the_decoder_is_given_the_target_one_place_later() -> None:
    Y = np.array([[3, 3, 5], [3, 6, 11]])
    assert shift(Y, 12).tolist() == [[12, 3, 3], [12, 3, 6]]
    assert Y.tolist() == [[3, 3, 5], [3, 6, 11]]


# --- the model


def toy(n: int = 60, seed: int = 0) -> tuple[Ids, Ids]:
    """Two of four symbols, to be written the other way round."""
    X = np.random.default_rng(seed).integers(0, 4, (n, 2))
    return X, X[:, ::-1].copy()


def small(V: int = 4, **more: Any) -> TransformerSeq2Seq:
    X, Y = toy()
    sizes = {"H_embed": 16, "H_qk": 16, "H_ff": 16, "n_head": 2}
    return TransformerSeq2Seq(X[:40], Y[:40], X[40:], Y[40:], V, **sizes | more)


@pytest.mark.parametrize(
    "more", [{}, {"mix": False}, {"norm": "pre"}, {"scaled": True}, {"is_input_reversed": True}]
)
def test_it_learns(more: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    model = small(**more)
    model.train(epoch=100, mini_batch=10, eta=0.2, log_interval=40)
    assert [record.epoch for record in model.history] == [40, 80, 100]
    last = model.history[-1]
    assert last.train_loss < model.history[0].train_loss and last.train_loss < 0.1
    assert last.test_free.sequence == last.test_teacher.sequence == 1
    X, Y = toy()
    assert (model.predict(X) == Y).all()
    out = capsys.readouterr().out.splitlines()
    assert out == [record.line() for record in model.history]
    assert out[-1].startswith("epoch  100  loss 0.0") and "sequences 1.000" in out[-1]


def test_V_may_be_the_number_of_ids_or_the_largest_id(capsys: pytest.CaptureFixture[str]) -> None:
    X, Y = toy()
    histories = []
    for V in (4, 3, np.int64(3)):  # X.max() is a NumPy number
        model = small(V)
        assert model.start == 4
        model.train(epoch=2, mini_batch=7, eta=0.1, log_interval=1)
        histories.append(model.history)
    assert histories[0] == histories[1] == histories[2]
    assert vocabulary(9, X=X) == 9  # ids that these rows happen not to hold
    with says(ValueError, "V is 2", "X_train holds the id 3", "4 or more", "largest id, 3"):
        small(2)


def test_numpys_own_numbers_will_do(capsys: pytest.CaptureFixture[str]) -> None:
    (X, Y), (X_test, Y_test) = toy(40), toy(20)
    one, two = np.int64(1), np.int32(2)
    model = TransformerSeq2Seq(X, Y, X_test, Y_test, X.max(), n_head=two, mix=np.True_)
    model.train(epoch=two, mini_batch=np.int8(10), eta=np.float32(0.1), log_interval=one)
    assert [record.epoch for record in model.history] == [1, 2]


def test_small_whole_numbers_will_do_and_the_rows_are_copies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    X, Y = toy()
    rows = [a.astype(np.int8) for a in (X[:40], Y[:40], X[40:], Y[40:])]
    sizes = {"H_embed": 16, "H_qk": 16, "H_ff": 16, "n_head": 2}
    model, other = TransformerSeq2Seq(*rows, 127, **sizes), small(127)
    for array in rows:
        array[:] = 0
    for one in (model, other):
        one.train(epoch=1, mini_batch=10, eta=0.1, log_interval=1)
    assert model.start == 127 and model.history == other.history


def test_what_is_recorded_is_what_the_model_answers(capsys: pytest.CaptureFixture[str]) -> None:
    model = small(is_input_reversed=True)
    model.train(epoch=4, mini_batch=10, eta=0.2, log_interval=4)
    X, Y = toy()
    record = model.history[0]
    right = model.predict(X) == Y
    for split, rows in (("train", right[:40]), ("test", right[40:])):
        free = getattr(record, f"{split}_free")
        assert free.sequence == rows.all(1).mean()
        assert free.positions == tuple(rows.mean(0))
        assert free.token == pytest.approx(rows.mean())
    logits = model.model(X[40:, ::-1], shift(Y[40:], model.start))
    teacher = logits.argmax(-1) == Y[40:]
    assert record.test_teacher.positions == tuple(teacher.mean(0))
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = -np.log(np.take_along_axis(shares, Y[40:, :, None], -1)).mean()
    assert record.test_loss == pytest.approx(expected, rel=1e-4)
    assert 0 < right.mean() < 1  # half learned, so that the shares say something


def test_switches_reach_the_model() -> None:
    usual, other = small().model, small(mix=False, norm="pre", scaled=True, H_qk=8).model
    assert "encoder.0.self_attention.W_O.weight" in usual.parameters()
    assert not any("W_O" in name for name in other.parameters())
    assert "encoder_norm.weight" in other.parameters() and other.pad is None
    assert (usual.source_embedding.scale, other.target_embedding.scale) == (1, 4)
    assert usual.parameters()["decoder.0.cross_attention.W_Q.weight"].shape == (16, 16)
    assert other.parameters()["decoder.0.cross_attention.W_K.weight"].shape == (8, 16)
    assert other.parameters()["decoder.0.cross_attention.W_V.weight"].shape == (16, 16)


def test_equal_seeds_give_equal_histories(capsys: pytest.CaptureFixture[str]) -> None:
    histories = []
    for seed in (0, 0, 1):
        model = small(seed=seed)
        model.train(epoch=2, mini_batch=10, eta=0.1, log_interval=1)
        histories.append(model.history)
    assert histories[0] == histories[1] != histories[2]


def test_training_in_two_parts_is_training_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    parts, whole = small(), small()
    parts.train(epoch=2, mini_batch=10, eta=0.1, log_interval=2)
    parts.train(epoch=2, mini_batch=10, eta=0.1, log_interval=2)
    whole.train(epoch=4, mini_batch=10, eta=0.1, log_interval=2)
    assert parts.history == whole.history


def test_rows_are_measured_in_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    histories = []
    for rows in (1000, 7):
        monkeypatch.setattr("qkv.byhand.seq2seq.ROWS_AT_ONCE", rows)
        model = small()
        model.train(epoch=3, mini_batch=10, eta=0.1, log_interval=3)
        histories.append(model.history[0])
    whole, parts = histories
    assert parts.test_free == whole.test_free and parts.train_teacher == whole.train_teacher
    assert parts.test_loss == pytest.approx(whole.test_loss, rel=1e-5)


def test_an_interrupted_run_keeps_its_history_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = small()
    epoch, calls = model._epoch, []

    def stopped(*arguments: Any) -> float:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return epoch(*arguments)

    monkeypatch.setattr(model, "_epoch", stopped)
    model.train(epoch=5, mini_batch=10, eta=0.1, log_interval=1)
    assert [record.epoch for record in model.history] == [1, 2]
    assert capsys.readouterr().out.splitlines()[-1] == "stopped after epoch 2 of 5"
    model.train(epoch=3, mini_batch=10, eta=0.1, log_interval=2)
    assert [record.epoch for record in model.history] == [1, 2, 4, 5]


@pytest.mark.parametrize("mini_batch", [10, 40])
@pytest.mark.filterwarnings("error")
def test_a_loss_that_is_no_number_is_named(
    mini_batch: int, capsys: pytest.CaptureFixture[str]
) -> None:
    model = small()
    model.train(epoch=1, mini_batch=10, eta=0.1, log_interval=1)
    with says(FloatingPointError, "the loss is nan", "smaller eta", "make the model again"):
        model.train(epoch=2, mini_batch=mini_batch, eta=1e30, log_interval=1)
    assert len(model.history) == 1


def test_a_progress_bar_counts_the_epochs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = io.StringIO()

    def bar(**settings: Any) -> tqdm:
        return tqdm(**settings | {"disable": False, "file": terminal, "mininterval": 0})

    bar.write = tqdm.write  # type: ignore[attr-defined]
    monkeypatch.setattr("qkv.byhand.seq2seq.tqdm", bar)
    small().train(epoch=3, mini_batch=10, eta=0.1, log_interval=2)
    shown = terminal.getvalue()
    assert all(count in shown for count in ("0/3", "1/3", "2/3", "3/3")) and "epoch/s" in shown
    assert [line[:10] for line in capsys.readouterr().out.splitlines()] == [
        "epoch    2",
        "epoch    3",
    ]


# --- curves


def test_curves_show_what_was_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    model = small()
    model.train(epoch=3, mini_batch=10, eta=0.2, log_interval=1)
    history, axes = model.history, plt.figure().gca()
    model.plot_accuracy_seq_level()
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert drawn == {
        "train": [record.train_free.sequence for record in history],
        "test": [record.test_free.sequence for record in history],
    }
    assert all(r.test_free.sequence == r.test_teacher.sequence for r in history)
    assert list(axes.lines[0].get_xdata()) == [1, 2, 3]
    axes = plt.figure().gca()
    model.plot_accuracy_token_level()
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert drawn["token 2"] == [record.test_free.positions[1] for record in history]
    assert list(axes.lines[3].get_ydata()) == [r.test_teacher.positions[1] for r in history]
    axes = plt.figure().gca()
    model.plot_loss()
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert drawn == {
        "train": [record.train_loss for record in history],
        "test": [record.test_loss for record in history],
    }
    plt.close("all")


def test_curves_before_training_are_refused() -> None:
    for plot in (curves.plot_sequences, curves.plot_tokens, curves.plot_losses):
        with says(ValueError, "nothing to plot yet", "call train first"):
            plot([])


# --- refusals


@pytest.mark.parametrize(
    ("change", "error", "fragments"),
    [
        ({"X_train": [[1, 2]]}, TypeError, ("X_train must be a numpy.ndarray", "list")),
        ({"Y_train": np.ones((40, 2))}, TypeError, ("Y_train must hold ids", "float64")),
        ({"X_test": np.ones(20, int)}, ValueError, ("X_test must have shape [B, n]", "[20]")),
        ({"Y_test": np.ones((0, 2), int)}, ValueError, ("Y_test must have", "[0, 2]")),
        ({"Y_train": toy(39)[1]}, ValueError, ("X_train", "Y_train", "number of rows", "[39, 2]")),
        ({"X_test": toy(21)[0]}, ValueError, ("X_test", "Y_test", "number of rows", "[21, 2]")),
        ({"X_train": np.ones((40, 3), int)}, ValueError, ("X_train and X_test", "[40, 3]")),
        (
            {"Y_test": np.full((20, 2), -1)},
            ValueError,
            ("Y_test holds the id -1", "ids begin at 0"),
        ),
        ({"Y_test": np.full((20, 2), 7)}, ValueError, ("V is 4", "Y_test holds the id 7")),
        ({"V": "4"}, TypeError, ("V must be an int", "str: '4'")),
        ({"V": 0}, ValueError, ("V must be at least 1", "0")),
        ({"H_embed": 0}, ValueError, ("H_embed must be at least 1", "0")),
        ({"H_qk": 1.5}, TypeError, ("H_qk must be an int", "float: 1.5")),
        ({"H_ff": -1}, ValueError, ("H_ff must be at least 1", "-1")),
        ({"n_head": 0}, ValueError, ("n_head must be at least 1", "0")),
        ({"n_head": 3}, ValueError, ("H_embed = 32", "n_head = 3", "divisible")),
        ({"n_head": 4, "H_qk": 6}, ValueError, ("H_qk = 6", "n_head = 4", "divisible")),
        ({"norm": "none"}, ValueError, ("norm must be one of 'post', 'pre'", "'none'")),
        (
            {"is_input_reversed": "no"},
            TypeError,
            ("is_input_reversed must be True or False", "str"),
        ),
        ({"mix": "no"}, TypeError, ("mix must be True or False", "str: 'no'")),
        ({"scaled": 1}, TypeError, ("scaled must be True or False", "int: 1")),
    ],
)
def test_wrong_models_are_refused(
    change: dict[str, Any], error: type[Exception], fragments: tuple[str, ...]
) -> None:
    (X, Y), (X_test, Y_test) = toy(40), toy(20)
    right = {"X_train": X, "Y_train": Y, "X_test": X_test, "Y_test": Y_test, "V": 4}
    with says(error, *fragments):
        TransformerSeq2Seq(**right | change)


@pytest.mark.parametrize(
    ("change", "error", "fragments"),
    [
        ({"epoch": 0}, ValueError, ("epoch must be at least 1", "0")),
        ({"epoch": 1.0}, TypeError, ("epoch must be an int", "float: 1.0")),
        ({"mini_batch": 0}, ValueError, ("mini_batch must be at least 1", "0")),
        ({"log_interval": -1}, ValueError, ("log_interval must be at least 1", "-1")),
        ({"eta": 0}, ValueError, ("eta must be above 0 and finite", "0")),
        ({"eta": float("nan")}, ValueError, ("eta must be above 0 and finite", "nan")),
        ({"eta": None}, TypeError, ("eta must be a number", "NoneType")),
    ],
)
def test_wrong_training_is_refused(
    change: dict[str, Any], error: type[Exception], fragments: tuple[str, ...]
) -> None:
    model = small()
    before = model.model.state()
    with says(error, *fragments):
        model.train(**{"epoch": 1, "mini_batch": 10, "eta": 0.1, "log_interval": 1} | change)
    assert model.history == []
    assert all((before[name] == w).all() for name, w in model.model.parameters().items())


def test_predict_refuses() -> None:
    with says(ValueError, "X holds the id 4", "0 … 3"):
        small().predict(np.full((1, 2), 4))
    for width in (1, 3):
        with says(ValueError, "X must be as wide as X_train, 2 ids", f"[5, {width}]"):
            small().predict(np.ones((5, width), int))
