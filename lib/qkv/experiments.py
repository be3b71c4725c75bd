"""The recorded runs: experiments too long for a notebook, each over several seeds.

``python -m qkv.experiments addition`` trains every seed of that experiment and writes
``data/runs/addition.csv``, whole after each seed. Stopped and started again, it goes on with the
seeds that are missing. ``read("addition")`` gives the record that ships with the package.
"""

import argparse
import csv
import importlib.resources
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import OneCycleLR

from qkv import _require
from qkv._files import write_whole
from qkv.history import History, Record
from qkv.layers import Norm
from qkv.tasks import Task, addition, copy
from qkv.training import fit
from qkv.transformer import Transformer

HEADER = ("seed", *Record._fields)


@dataclass(frozen=True)
class Experiment:
    """All that decides how a run goes, but for its seed.

    A seed draws the first weights and the order of the rows; the rows themselves are the same
    for all. With ``one_cycle`` the rate rises to ``rate`` and falls to nearly 0 over all epochs;
    without, it stays.
    """

    task: Callable[[], Task]
    d_model: int = 32
    n_heads: int = 8
    d_ff: int = 32
    n_layers: int = 1
    norm: Norm = "pre"
    epochs: int = 100
    batch_size: int = 100
    optimiser: type[AdamW] | type[SGD] = AdamW
    rate: float = 5e-3
    one_cycle: bool = True
    log_every: int = 4
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    def model(self, seed: int) -> Transformer:
        """The model as it is before its first step; PyTorch's random state stays as it was."""
        _require.not_negative("seed", seed)
        vocab = len(self.task().vocabulary)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return Transformer(
                vocab,
                vocab,
                d_model=self.d_model,
                n_heads=self.n_heads,
                d_ff=self.d_ff,
                n_layers=self.n_layers,
                norm=self.norm,
            )

    def train(
        self, model: Transformer, seed: int, *, epochs: int | None = None, device: str | None = None
    ) -> History:
        """Train a fresh model. ``epochs`` stops early: the first epochs of the whole run.

        Errors:
            TypeError, ValueError: epochs is no whole number from 1 to those of the experiment;
                what `fit` refuses
        """
        epochs = self.epochs if epochs is None else epochs
        _require.positive_int("epochs", epochs)
        if epochs > self.epochs:
            raise ValueError(f"epochs is {epochs}, the whole run has {self.epochs}; ask for fewer")
        task = self.task()
        optimiser = self.optimiser(model.parameters(), lr=self.rate)
        steps = self.epochs * math.ceil(len(task.train.source) / self.batch_size)
        schedule = OneCycleLR(optimiser, self.rate, total_steps=steps) if self.one_cycle else None
        return fit(
            model,
            task,
            epochs=epochs,
            batch_size=self.batch_size,
            optimizer=optimiser,
            scheduler=schedule,
            log_every=self.log_every,
            seed=seed,
            device=device,
        )


EXPERIMENTS: Mapping[str, Experiment] = {
    "copy": Experiment(partial(copy, n_train=2000), n_heads=4, epochs=8, rate=1e-2, log_every=1),
    "addition": Experiment(addition),
}


def read(name: str) -> dict[int, History]:
    """The recorded run that ships with the package: each seed's history.

    Errors:
        ValueError: no experiment has that name, or its record is broken; the message says where
        FileNotFoundError: it has not been recorded yet
    """
    _named(name)
    record = importlib.resources.files("qkv.data") / "runs" / f"{name}.csv"
    if not record.is_file():
        raise FileNotFoundError(
            f"no record of {name!r}: make it with python -m qkv.experiments {name}"
        )
    return _parse(record.read_text(encoding="utf-8"), f"{name}.csv")


def run(name: str, out: Path) -> None:
    """Train the seeds that ``out / NAME.csv`` lacks; the file is written whole after each.

    Errors:
        ValueError: no experiment has that name; what is in the file is broken or was made with
            another number of epochs
        FileNotFoundError: there is no such folder
        KeyboardInterrupt: a training was stopped; the seeds before it are in the file
    """
    experiment, path = _named(name), out / f"{name}.csv"
    if not out.is_dir():
        raise FileNotFoundError(
            f"no folder {out}: run this at the top of the repository, or give --out FOLDER"
        )
    done = _parse(path.read_text(encoding="utf-8"), str(path)) if path.exists() else {}
    for seed, history in done.items():
        if history[-1].epoch != experiment.epochs:
            raise ValueError(
                f"{path}: seed {seed} ends at epoch {history[-1].epoch}, {name} has "
                f"{experiment.epochs}; it was made with other settings, so move it away"
            )
    for seed in experiment.seeds:
        if seed in done:
            print(f"{name}, seed {seed}: there already", flush=True)
            continue
        print(f"{name}, seed {seed}", flush=True)
        history = experiment.train(experiment.model(seed), seed)
        if not history or history[-1].epoch != experiment.epochs:  # fit returns after Ctrl-C
            raise KeyboardInterrupt
        done[seed] = history
        write_whole(path, _text(done))


def _named(name: str) -> Experiment:
    _require.one_of("name", name, EXPERIMENTS)
    return EXPERIMENTS[name]


def _text(runs: Mapping[int, History]) -> str:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows((seed, *record) for seed in sorted(runs) for record in runs[seed])
    return lines.getvalue()


def _parse(text: str, where: str) -> dict[int, History]:
    header, *lines = list(csv.reader(text.splitlines())) or [[]]
    if header != list(HEADER):
        raise ValueError(
            f"{where}, line 1: expected the header {','.join(HEADER)}, got {','.join(header)!r}"
        )
    runs: dict[int, History] = {}
    for number, line in enumerate(lines, start=2):
        try:
            seed, epoch, *values = line
            record = Record(int(epoch), *map(float, values))
            history = runs.setdefault(int(seed), History())
            if history and history[-1].epoch >= record.epoch:
                raise ValueError("epochs must rise")
        except (TypeError, ValueError):
            raise ValueError(
                f"{where}, line {number}: expected {len(HEADER)} numbers, a seed and a later epoch "
                f"than its last first, got {','.join(line)!r}"
            ) from None
        history.append(record)
    return runs


def main(arguments: Sequence[str] | None = None) -> None:
    """Run an experiment over its seeds and write NAME.csv, seed by seed."""
    parser = argparse.ArgumentParser(prog="python -m qkv.experiments", description=main.__doc__)
    parser.add_argument("name", help=f"one of: {', '.join(EXPERIMENTS)}")
    parser.add_argument("--out", type=Path, default=Path("data/runs"), metavar="FOLDER")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)  # quicker for models this small, and the same on any number of cores
    try:
        run(given.name, given.out)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        parser.exit(130, "stopped; the seeds that are done are written, start again to go on\n")


if __name__ == "__main__":
    main()
