"""Recorded runs that keep their models: the weights beside the record, the models made again."""

import hashlib
import importlib.resources
from collections.abc import Callable
from pathlib import Path

import pytest

from qkv import experiments, runs
from qkv.byhand import curves
from qkv.byhand.experiment import Experiment
from qkv.experiments import BYHAND, KEPT, main, read_byhand, run, trained

FOLDER = Path(__file__).resolve().parent.parent / "data"
TINY = Experiment(
    "addition",
    width=8,
    n_train=20,
    n_test=10,
    epochs=2,
    mini_batch=8,
    log_every=2,
    seeds=(0, 1),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for records, with an experiment that keeps its weights."""
    monkeypatch.setattr(experiments, "BYHAND", {**BYHAND, "tiny": TINY})
    monkeypatch.setattr(experiments, "KEPT", (*KEPT, "tiny"))
    monkeypatch.setattr(importlib.resources, "files", lambda package: tmp_path)
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_models_come_back_as_they_were_when_their_training_ended(folder: Path) -> None:
    run("tiny", folder)
    assert files(folder).keys() == {"tiny.csv", "tiny.npz"}
    models = trained("tiny")
    assert models.keys() == {0, 1}
    for seed, model in models.items():
        there = TINY.run(seed)[1]
        assert there.keys() == model.model.parameters().keys()
        for name, value in model.model.parameters().items():
            assert value.dtype == there[name].dtype and (value == there[name]).all()
    assert (models[0].model.to_vocab.weight != models[1].model.to_vocab.weight).any()


def test_a_stopped_run_goes_on_to_the_same_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("tiny", folder)
    with monkeypatch.context() as patch:
        patch.setattr(experiments, "BYHAND", {"tiny": Experiment(**{**vars(TINY), "seeds": (0,)})})
        (stopped := tmp_path / "stopped").mkdir()
        run("tiny", stopped)
    assert files(stopped) != files(folder)
    run("tiny", stopped)
    assert files(stopped) == files(folder)


def test_a_death_between_the_two_files_costs_one_seed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(path: Path, content: str | bytes) -> None:
        if path.suffix == ".csv":
            raise KeyboardInterrupt
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    with monkeypatch.context() as patch:
        patch.setattr(experiments, "write_whole", dies)
        with pytest.raises(SystemExit):
            main(["tiny", "--out", str(folder)])
    assert files(folder).keys() == {"tiny.npz"}
    run("tiny", folder)
    assert runs.unpack(files(folder)["tiny.npz"]).keys() == {0, 1}
    assert trained("tiny").keys() == {0, 1}


def only_seed_0(packed: bytes) -> bytes:
    return runs.pack({0: runs.unpack(packed)[0]})


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (None, "tiny.npz does not hold the weights of tiny.csv ([Errno 2] No such file"),
        (lambda packed: packed[:-9], "tiny.npz does not hold the weights of tiny.csv (File is not"),
        (lambda packed: b"seed,epoch", "tiny.npz does not hold the weights of tiny.csv ("),
        (only_seed_0, "tiny.npz has the weights of seeds [0], tiny.csv the record of seeds [0, 1]"),
    ],
)
def test_a_record_without_its_weights_is_named_and_kept(
    broken: Callable[[bytes], bytes] | None,
    message: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("tiny", folder)
    kept = folder / "tiny.npz"
    if broken is None:
        kept.unlink()
    else:
        kept.write_bytes(broken(kept.read_bytes()))
    before = files(folder)
    with pytest.raises(SystemExit):
        main(["tiny", "--out", str(folder)])
    error = capsys.readouterr().err
    assert message in error and "move both away" in error
    assert files(folder) == before


def test_what_was_not_kept_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="one of 'byhand_addition_1_head', 'byhand_addition_4"):
        trained("byhand_copy")
    with pytest.raises(FileNotFoundError, match="make it with python -m qkv.experiments tiny"):
        trained("tiny")


# --- what ships


@pytest.mark.parametrize("name", KEPT)
def test_the_models_that_ship_answer_as_their_record_says(name: str) -> None:
    histories = read_byhand(name)
    for seed, model in trained(name).items():
        X, Y = model.test_rows
        answered = curves.score(model.predict(X), Y)
        recorded = histories[seed][-1].test_free
        assert answered.sequence == pytest.approx(recorded.sequence, abs=0.005)
        assert answered.positions == pytest.approx(recorded.positions, abs=0.005)


@pytest.mark.parametrize("name", KEPT)
def test_the_weights_that_ship_are_described_with_their_sha256(name: str) -> None:
    digest = hashlib.sha256((FOLDER / "runs" / f"{name}.npz").read_bytes()).hexdigest()
    assert digest in (FOLDER / "README.md").read_text(encoding="utf-8")
