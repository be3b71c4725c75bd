"""qkv.experiments: a run can be made again, goes on where it stopped, and its record is whole."""

import dataclasses
import hashlib
import importlib.resources
import itertools
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import SGD

from qkv import experiments
from qkv.experiments import EXPERIMENTS, HEADER, Experiment, main, read, run
from qkv.history import History
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


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "EXPERIMENTS", {**EXPERIMENTS, "tiny": TINY})


def made(folder: Path) -> bytes:
    return (folder / "tiny.csv").read_bytes()


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


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: trained(TINY, 0, epochs=4), ValueError, "epochs is 4, the whole run has 3"),
        (lambda: trained(TINY, 0, epochs=0), ValueError, "epochs must be at least 1, got 0"),
        (lambda: TINY.model(-1), ValueError, "seed must be at least 0, got -1"),
        (lambda: read("additoin"), ValueError, "one of 'copy', 'addition', 'tiny', got 'additoin'"),
        (lambda: read("tiny"), FileNotFoundError, "no record of 'tiny': make it with python -m"),
        (lambda: run("no", Path()), ValueError, "one of 'copy', 'addition', 'tiny', got 'no'"),
        (lambda: run("tiny", Path("/nowhere")), FileNotFoundError, "no folder /nowhere: run this"),
    ],
)
def test_refusals(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()


# --- the record of a run


def test_run_twice_equal_bytes(tmp_path: Path) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        run("tiny", folder)
    assert made(tmp_path / "one") == made(tmp_path / "two")
    lines = made(tmp_path / "one").decode().splitlines()
    assert lines[0] == ",".join(HEADER)
    assert [line.split(",")[:2] for line in lines[1:]] == [
        [seed, epoch] for seed in "012" for epoch in "23"
    ]


@pytest.mark.parametrize("stop", ["between two seeds", "within a seed"])
def test_stopped_and_started_again_equals_not_stopped(
    stop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    run("tiny", whole)

    def stopping(self: Experiment, model: Any, seed: int) -> History:
        if seed < 1:
            return train(self, model, seed)
        if stop == "between two seeds":
            raise KeyboardInterrupt
        return train(self, model, seed, epochs=2)  # what fit gives back after Ctrl-C

    train = Experiment.train
    with monkeypatch.context() as patch:
        patch.setattr(Experiment, "train", stopping)
        with pytest.raises(SystemExit) as exited:
            main(["tiny", "--out", str(parts)])
    assert exited.value.code == 130
    assert set(experiments._parse(made(parts).decode(), "tiny.csv")) == {0}
    assert "start again to go on" in capsys.readouterr().err
    main(["tiny", "--out", str(parts)])
    assert "tiny, seed 0: there already\ntiny, seed 1\n" in capsys.readouterr().out
    assert made(parts) == made(whole)
    assert [path.name for path in parts.iterdir()] == ["tiny.csv"]


def test_a_record_reads_back_as_it_was(tmp_path: Path) -> None:
    run("tiny", tmp_path)
    runs = experiments._parse(made(tmp_path).decode(), "tiny.csv")
    assert runs == {seed: trained(TINY, seed) for seed in TINY.seeds}
    assert all(type(history) is History for history in runs.values())


GOOD = ",".join(["0", "2", *["0.5"] * 9])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "tiny.csv, line 1: expected the header seed,epoch,loss"),
        (["seed,epoch"], "tiny.csv, line 1: expected the header"),
        ([",".join(HEADER), GOOD, GOOD[:-4]], "tiny.csv, line 3: expected 11 numbers"),
        ([",".join(HEADER), GOOD.replace("0.5", "x")], "tiny.csv, line 2: expected 11 numbers"),
        ([",".join(HEADER), GOOD, GOOD], "tiny.csv, line 3: expected 11 numbers, a seed and a lat"),
        ([",".join(HEADER), GOOD], "seed 0 ends at epoch 2, tiny has 3; it was made with other"),
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


# --- what ships


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_experiment_ships_with_all_its_seeds_and_epochs(name: str) -> None:
    experiment = EXPERIMENTS[name]
    epochs = range(experiment.log_every, experiment.epochs + 1, experiment.log_every)
    assert {seed: history.column("epoch") for seed, history in read(name).items()} == {
        seed: list(epochs) for seed in experiment.seeds
    }


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_record_is_described_with_its_sha256(name: str) -> None:
    folder = importlib.resources.files("qkv.data")
    digest = hashlib.sha256((folder / "runs" / f"{name}.csv").read_bytes()).hexdigest()
    sections = re.split(r"^## ", (folder / "README.md").read_text(encoding="utf-8"), flags=re.M)
    section = next((text for text in sections if text.startswith(f"runs/{name}.csv")), "")
    assert digest in section, f"data/README.md: the sha256 of runs/{name}.csv is {digest}"
    assert f"python -m qkv.experiments {name}" in section and "CC BY 4.0" in section


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_record_begins_as_the_experiment_does_here(name: str) -> None:
    settings = EXPERIMENTS[name]
    recorded = read(name)[0][0]
    assert recorded.epoch <= 4
    live = trained(settings, 0, epochs=recorded.epoch)[-1]
    assert live.epoch == recorded.epoch
    assert live.loss == pytest.approx(recorded.loss, abs=0.1)  # other machines round otherwise
    assert live.test_free_token == pytest.approx(recorded.test_free_token, abs=0.1)


@pytest.mark.parametrize(("name", "least"), [("copy", 0.99), ("addition", 0.97)])
def test_the_records_hold_what_chapter_09_says_of_them(name: str, least: float) -> None:
    runs = read(name).values()
    assert len(runs) == 5
    assert all(least <= history[-1].test_free_sequence <= 1 for history in runs)
    for record in itertools.chain(*runs):  # a row is right in both ways of asking, or in neither
        assert record.test_teacher_sequence == pytest.approx(record.test_free_sequence, abs=0.005)
        assert record.test_free_sequence <= record.test_free_token
