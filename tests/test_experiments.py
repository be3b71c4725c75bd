"""qkv.experiments: a run can be made again, goes on where it stopped, and its record is whole."""

import dataclasses
import hashlib
import importlib.resources
import itertools
import platform
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import SGD

from qkv import experiments, runs
from qkv.byhand import curves
from qkv.byhand.experiment import Experiment as ByHand
from qkv.byhand.experiment import from_row, to_row
from qkv.experiments import BYHAND, EXPERIMENTS, Experiment, main, read, read_byhand, run
from qkv.history import History, Record
from qkv.tasks import addition

TINY = Experiment(
    partial(addition, n_train=20, n_test=10),
    d_model=8,
    n_heads=2,
    d_ff=8,
    epochs=3,
    batch_size=8,
    log_every=2,
    seeds=(0, 1, 2),
)
TINY_BYHAND = ByHand(
    "addition",
    n_head=2,
    width=8,
    n_train=20,
    n_test=10,
    epochs=3,
    mini_batch=8,
    log_every=2,
    seeds=(0, 1, 2),
)
BOTH = {"tiny": TINY, "byhand_tiny": TINY_BYHAND}
both = pytest.mark.parametrize("name", BOTH)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)  # as `main` does: two threads round otherwise
    monkeypatch.setattr(experiments, "EXPERIMENTS", {**EXPERIMENTS, "tiny": TINY})
    monkeypatch.setattr(experiments, "BYHAND", {**BYHAND, "byhand_tiny": TINY_BYHAND})


def made(folder: Path, name: str = "tiny") -> bytes:
    return (folder / f"{name}.csv").read_bytes()


def parsed(folder: Path, name: str) -> dict[int, list[runs.Row]]:
    return runs.parse(made(folder, name).decode(), BOTH[name].columns, f"{name}.csv")


def trained(experiment: Experiment, seed: int, **how: Any) -> History:
    return experiment.train(experiment.model(seed), seed, **how)


# --- training


def test_a_seed_decides_the_run_and_leaves_pytorchs_random_state_alone() -> None:
    state = torch.get_rng_state()
    first, again, other = trained(TINY, 0), trained(TINY, 0), trained(TINY, 1)
    assert first == again != other
    assert torch.equal(torch.get_rng_state(), state)


def test_fewer_epochs_are_the_beginning_of_the_whole_run() -> None:
    assert trained(TINY, 0, epochs=2) == trained(TINY, 0)[:1]


@pytest.mark.parametrize(
    "changed",
    [{"n_heads": 4}, {"norm": "post"}, {"optimiser": SGD}, {"rate": 1e-3}, {"one_cycle": False}],
    ids=str,
)
def test_each_setting_makes_another_run(changed: dict[str, Any]) -> None:
    if "optimiser" in changed:
        changed["one_cycle"] = False
    assert trained(dataclasses.replace(TINY, **changed), 0) != trained(TINY, 0)


def test_the_model_has_the_settings_sizes() -> None:
    model = dataclasses.replace(TINY, n_layers=2, d_ff=16, norm="post").model(0)
    assert len(model.encoder) == len(model.decoder) == 2
    assert model.encoder[0].feed_forward.W_1.out_features == 16
    assert model.encoder[0].around_self_attention.order == "post"
    assert model.encoder[0].self_attention.n_heads == 2
    assert model.source_embedding.vocab == model.target_embedding.vocab == 13


def by_hand(**changed: Any) -> list[curves.Record]:
    settings = dataclasses.replace(TINY_BYHAND, **changed)
    return settings.train(settings.model(0))


def test_by_hand_too_a_seed_decides_the_run_and_fewer_epochs_are_its_beginning() -> None:
    whole, again, other = (TINY_BYHAND.run(seed)[0] for seed in (0, 0, 1))
    assert whole == again != other
    assert [epoch for epoch, *_ in whole] == [2, 3]
    short = TINY_BYHAND.train(TINY_BYHAND.model(0), epochs=2)
    assert [to_row(record) for record in short] == whole[:1]


@pytest.mark.parametrize(
    "changed",
    [
        *({"task": "copy"}, {"n_head": 1}, {"is_input_reversed": True}, {"mix": False}),
        *({"norm": "pre"}, {"scaled": True}, {"width": 16}, {"n_train": 21}, {"n_test": 11}),
        *({"max_a": 99}, {"epochs": 2}, {"mini_batch": 9}, {"eta": 0.1}, {"log_every": 1}),
    ],
    ids=str,
)
def test_by_hand_too_each_setting_makes_another_run_and_is_noted(changed: dict[str, Any]) -> None:
    assert by_hand(**changed) != by_hand()
    settings, versions = dataclasses.replace(TINY_BYHAND, **changed).notes
    assert settings != TINY_BYHAND.notes[0]
    assert versions == f"versions: Python {platform.python_version()}, NumPy {np.__version__}"


def test_a_copy_by_hand_is_its_source_and_small_numbers_move_the_plus() -> None:
    sides = {
        task: dataclasses.replace(TINY_BYHAND, task=task, max_a=max_a).model(0).test_rows
        for task, max_a in (("addition", 999), ("copy", 99))
    }
    X, Y = sides["copy"]
    assert (X == Y).all() and X.shape == (10, 5)
    assert (X[:, 2] == 10).mean() > 0.5
    X, Y = sides["addition"]
    assert X.shape == (10, 6) and Y.shape == (10, 3)
    assert (X[:, 3] == 10).mean() > 0.5


@pytest.mark.parametrize("task", ["addition", "copy"])
@pytest.mark.parametrize("max_a", [99, 999])
def test_a_row_has_a_number_for_each_column_and_turns_back(task: Any, max_a: int) -> None:
    settings = dataclasses.replace(TINY_BYHAND, task=task, max_a=max_a)
    history = settings.train(settings.model(0))
    assert all(from_row(to_row(measured)) == measured for measured in history)
    values = dict(zip(settings.columns, to_row(history[-1]), strict=True))
    last = history[-1]
    assert values["epoch"] == 3 and values["test_loss"] == last.test_loss
    for score in ("train_free", "train_teacher", "test_free", "test_teacher"):
        shares = getattr(last, score)
        assert values[f"{score}_sequence"] == shares.sequence
        assert values[f"{score}_token_3"] == shares.positions[2]
        assert f"{score}_token_{len(shares.positions) + 1}" not in values


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: trained(TINY, 0, epochs=4), ValueError, "epochs is 4, the whole run has 3"),
        (lambda: trained(TINY, 0, epochs=0), ValueError, "epochs must be at least 1, got 0"),
        (lambda: TINY.model(-1), ValueError, "seed must be at least 0, got -1"),
        (lambda: read("additoin"), ValueError, "'tiny', got 'additoin'"),
        (lambda: read("tiny"), FileNotFoundError, "no record of 'tiny': make it with python -m"),
        (lambda: read("byhand_copy"), ValueError, "'tiny', got 'byh"),
        (lambda: read_byhand("copy"), ValueError, "one of 'byhand_copy', 'byhand_copy_reversed',"),
        (lambda: read_byhand("byhand_tiny"), FileNotFoundError, "no record of 'byhand_tiny': make"),
        (lambda: run("no", Path()), ValueError, "'tiny', 'byhand_copy'"),
        (lambda: by_hand(seeds=(), epochs=0), ValueError, "epochs must be at least 1, got 0"),
        (
            lambda: TINY_BYHAND.train(TINY_BYHAND.model(0), epochs=4),
            ValueError,
            "epochs is 4, the whole run has 3",
        ),
        (lambda: run("tiny", Path("/nowhere")), FileNotFoundError, "no folder /nowhere: run this"),
    ],
)
def test_refusals(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()


# --- the record of a run


@both
def test_run_twice_equal_bytes(name: str, tmp_path: Path) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        run(name, folder)
    assert made(tmp_path / "one", name) == made(tmp_path / "two", name)
    lines = made(tmp_path / "one", name).decode().splitlines()
    notes = len(BOTH[name].notes)
    assert lines[:notes] == [f"# {note}" for note in BOTH[name].notes]
    assert lines[notes] == ",".join(("seed", *BOTH[name].columns))
    assert [line.split(",")[:2] for line in lines[notes + 1 :]] == [
        [seed, epoch] for seed in "012" for epoch in "23"
    ]


@both
@pytest.mark.parametrize("stop", ["between two seeds", "within a seed"])
def test_stopped_and_started_again_equals_not_stopped(
    name: str,
    stop: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    run(name, whole)
    kind = type(BOTH[name])
    whole_run = kind.run

    def stopping(self: Any, seed: int) -> tuple[list[runs.Row], dict[str, Any]]:
        rows, weights = whole_run(self, seed)
        if seed < 1:
            return rows, weights
        if stop == "between two seeds":
            raise KeyboardInterrupt
        return rows[:1], weights  # training returns after Ctrl-C

    with monkeypatch.context() as patch:
        patch.setattr(kind, "run", stopping)
        with pytest.raises(SystemExit) as exited:
            main([name, "--out", str(parts)])
    assert exited.value.code == 130
    assert set(parsed(parts, name)) == {0}
    assert "start again to go on" in capsys.readouterr().err
    main([name, "--out", str(parts)])
    assert f"{name}, seed 0: there already\n{name}, seed 1\n" in capsys.readouterr().out
    assert made(parts, name) == made(whole, name)
    assert [path.name for path in parts.iterdir()] == [f"{name}.csv"]


def test_ctrl_c_within_a_seed_by_hand_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(self: Any, loss: float) -> curves.Record:
        raise KeyboardInterrupt

    monkeypatch.setattr("qkv.byhand.seq2seq.TransformerSeq2Seq._measure", stopped)
    with pytest.raises(SystemExit) as exited:
        main(["byhand_tiny", "--out", str(tmp_path)])
    assert exited.value.code == 130
    assert list(tmp_path.iterdir()) == []


def test_a_lost_run_by_hand_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        lost = dataclasses.replace(TINY_BYHAND, eta=1e30)
        patch.setattr(experiments, "BYHAND", {"byhand_tiny": lost})
        with pytest.raises(SystemExit):
            main(["byhand_tiny", "--out", str(tmp_path)])
    assert "the loss is nan" in capsys.readouterr().err


def test_a_record_reads_back_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.resources, "files", lambda package: tmp_path)
    (tmp_path / "runs").mkdir()
    run("tiny", tmp_path / "runs")
    recorded = read("tiny")
    assert recorded == {seed: trained(TINY, seed) for seed in TINY.seeds}
    assert all(type(history) is History for history in recorded.values())
    run("byhand_tiny", tmp_path / "runs")
    assert read_byhand("byhand_tiny") == {
        seed: TINY_BYHAND.train(TINY_BYHAND.model(seed)) for seed in TINY_BYHAND.seeds
    }


HEADER = ",".join(("seed", *Record._fields))
GOOD = ",".join(["0", "2", *["0.5"] * 9])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "tiny.csv, line 1: expected the header seed,epoch,loss"),
        (["seed,epoch"], "tiny.csv, line 1: expected the header"),
        ([HEADER, GOOD, GOOD[:-4]], "tiny.csv, line 3: expected 11 finite numbers"),
        ([HEADER, f"{GOOD},1"], "tiny.csv, line 2: expected 11 finite numbers"),
        ([HEADER, "0"], "tiny.csv, line 2: expected 11 finite numbers"),
        ([HEADER, GOOD.replace("0.5", "x")], "tiny.csv, line 2: expected 11 finite numbers"),
        ([HEADER, GOOD, GOOD], "tiny.csv, line 3: expected 11 finite numbers, a seed and a lat"),
        ([HEADER, GOOD], "seed 0 ends at epoch 2, tiny has 3; it was made with other"),
        ([HEADER, GOOD.replace("0,2", "7,3")], "seed 7 is none of tiny's, which are 0, 1"),
        ([HEADER, GOOD.replace("0,2", "0,3")], "seed 0 lacks epochs that tiny measures"),
        ([HEADER, GOOD.replace("0.5", "nan")], "tiny.csv, line 2: expected 11 finite numbers"),
        ([HEADER, GOOD.replace("0.5", "-1")], "tiny.csv, line 2: expected 11 finite numbers"),
        ([HEADER, '"' + "9" * 200_000], "tiny.csv is no record: field larger than field limit"),
        (["# a note", HEADER], "tiny.csv, line 1: it was made with other settings or versions"),
        (["# a note", HEADER, GOOD, ""], "tiny.csv, line 4: expected 11 finite numbers"),
        (["# a note", HEADER, "# late"], "tiny.csv, line 3: expected 11 finite numbers"),
    ],
)
def test_a_broken_file_is_named_with_its_line_and_kept(
    lines: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.csv").write_text("\n".join(lines) + "\n" * bool(lines))
    before = made(tmp_path)
    with pytest.raises(SystemExit):
        main(["tiny", "--out", str(tmp_path)])
    assert message in capsys.readouterr().err
    assert made(tmp_path) == before


def test_a_file_that_is_no_text_is_named_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.csv").write_bytes(b"seed\xff")
    with pytest.raises(SystemExit):
        main(["tiny", "--out", str(tmp_path)])
    assert "tiny.csv is no text in UTF-8" in capsys.readouterr().err
    assert (tmp_path / "tiny.csv").read_bytes() == b"seed\xff"


@pytest.mark.parametrize(
    ("was", "now", "line"), [("0.2", "0.3", 1), ("NumPy ", "NumPy 0", 2), ("# settings", "# ", 1)]
)
def test_a_record_of_other_settings_or_versions_is_not_gone_on_with(
    was: str, now: str, line: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("byhand_tiny", tmp_path)
    path = tmp_path / "byhand_tiny.csv"
    path.write_text(path.read_text().replace(was, now, 1))
    before = made(tmp_path, "byhand_tiny")
    with pytest.raises(SystemExit):
        main(["byhand_tiny", "--out", str(tmp_path)])
    assert f"line {line}: it was made with other settings or versions" in capsys.readouterr().err
    assert made(tmp_path, "byhand_tiny") == before


def test_more_seeds_are_added_to_those_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("byhand_tiny", tmp_path)
    before = made(tmp_path, "byhand_tiny")
    more = dataclasses.replace(TINY_BYHAND, seeds=(0, 1, 2, 3))
    monkeypatch.setattr(experiments, "BYHAND", {"byhand_tiny": more})
    run("byhand_tiny", tmp_path)
    assert made(tmp_path, "byhand_tiny").startswith(before)
    assert set(parsed(tmp_path, "byhand_tiny")) == {0, 1, 2, 3}


def test_heads_cut_the_same_first_weights_otherwise() -> None:
    plain = dataclasses.replace(TINY_BYHAND, n_head=1)
    cut = dataclasses.replace(plain, heads=(2, 1, 4))
    whole, parts = (settings.model(0).model for settings in (plain, cut))
    (encoder,), (decoder,) = parts.encoder, parts.decoder
    assert encoder.self_attention.n_heads == 2
    assert decoder.self_attention.n_heads == 1
    assert decoder.cross_attention.n_heads == 4
    assert cut.notes[0] != plain.notes[0]
    for name, weights in whole.state().items():
        np.testing.assert_array_equal(weights, parts.state()[name])


# --- what ships

FOLDER = importlib.resources.files("qkv.data")
NAMES = [*EXPERIMENTS, *BYHAND]


def test_each_record_that_ships_is_of_an_experiment() -> None:
    shipped = {file.name for file in (FOLDER / "runs").iterdir() if file.name.endswith(".csv")}
    assert shipped == {f"{name}.csv" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_each_experiment_ships_with_all_its_seeds_and_epochs(name: str) -> None:
    settings = {**EXPERIMENTS, **BYHAND}[name]
    assert isinstance(settings, Experiment | ByHand)
    epochs = list(range(settings.log_every, settings.epochs + 1, settings.log_every))
    recorded = read(name) if name in EXPERIMENTS else read_byhand(name)
    assert {seed: [record.epoch for record in history] for seed, history in recorded.items()} == {
        seed: epochs for seed in settings.seeds
    }


@pytest.mark.parametrize("name", NAMES)
def test_each_record_is_described_with_its_sha256(name: str) -> None:
    digest = hashlib.sha256((FOLDER / "runs" / f"{name}.csv").read_bytes()).hexdigest()
    sections = re.split(r"^## ", (FOLDER / "README.md").read_text(encoding="utf-8"), flags=re.M)
    section = next((text for text in sections if text.startswith(f"runs/{name}.csv")), "")
    assert digest in section, f"data/README.md: the sha256 of runs/{name}.csv is {digest}"
    assert f"python -m qkv.experiments {name}" in section and "CC BY 4.0" in section


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_record_begins_as_the_experiment_does_here(name: str) -> None:
    settings = EXPERIMENTS[name]
    recorded = read(name)[0][0]
    assert recorded.epoch <= 10
    live = trained(settings, 0, epochs=recorded.epoch)[-1]
    assert live.epoch == recorded.epoch
    # Other machines round otherwise, and after ten epochs that does as much as another seed.
    near = 0.1 if recorded.epoch <= 4 else 0.6
    assert live.loss == pytest.approx(recorded.loss, abs=near)
    assert live.test_free_token == pytest.approx(recorded.test_free_token, abs=near / 2)


@pytest.mark.parametrize("name", BYHAND)
def test_the_record_by_hand_begins_as_the_experiment_does_here(name: str) -> None:
    settings = BYHAND[name]
    recorded = read_byhand(name)[0][0]
    live = settings.train(settings.model(0), epochs=recorded.epoch)[-1]
    assert live.epoch == recorded.epoch <= 10
    assert live.train_loss == pytest.approx(recorded.train_loss, abs=0.01)
    for score in ("train_free", "train_teacher", "test_free", "test_teacher"):
        here, there = getattr(live, score), getattr(recorded, score)
        assert here.sequence == pytest.approx(there.sequence, abs=0.02)
        assert here.positions == pytest.approx(there.positions, abs=0.05)


@pytest.mark.parametrize("name", BYHAND)
def test_the_notes_of_a_record_by_hand_are_its_settings(name: str) -> None:
    text = (FOLDER / "runs" / f"{name}.csv").read_text(encoding="utf-8")
    settings, versions = runs.notes(text)
    assert settings == BYHAND[name].notes[0]
    assert re.fullmatch(r"versions: Python 3\.[\d.]+, NumPy [\d.]+", versions)


@pytest.mark.parametrize("name", BYHAND)
def test_a_sequence_by_hand_is_right_in_both_ways_of_asking_or_in_neither(name: str) -> None:
    for record in itertools.chain(*read_byhand(name).values()):
        for free, teacher in (
            (record.train_free, record.train_teacher),
            (record.test_free, record.test_teacher),
        ):
            assert free.sequence == pytest.approx(teacher.sequence, abs=0.005)
            assert 0 <= free.sequence <= min(free.positions) <= 1
            assert free.positions[0] == pytest.approx(teacher.positions[0], abs=0.005)


@pytest.mark.parametrize(("name", "least"), [("copy", 0.99), ("addition", 0.97)])
def test_the_records_hold_what_chapter_09_says_of_them(name: str, least: float) -> None:
    histories = read(name).values()
    assert len(histories) == 5
    assert all(least <= history[-1].test_free_sequence <= 1 for history in histories)
    for record in itertools.chain(
        *histories
    ):  # a row is right in both ways of asking, or in neither
        assert record.test_teacher_sequence == pytest.approx(record.test_free_sequence, abs=0.005)
        assert record.test_free_sequence <= record.test_free_token
