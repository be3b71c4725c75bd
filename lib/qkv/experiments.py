"""The recorded runs: experiments too long for a notebook, each over several seeds.

``python -m qkv.experiments addition`` trains every seed of that experiment and writes
``data/runs/addition.csv``, whole after each seed. Stopped and started again, it goes on with the
seeds that are missing. ``read("addition")`` gives the record that ships with the package.

The names that begin with ``byhand_`` are of the model by hand, ``read_byhand`` gives their
records. Set ``OPENBLAS_NUM_THREADS=1`` for them: quicker for products this small.
"""

import argparse
import importlib.resources
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path

import torch
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import OneCycleLR

from qkv import _require, runs
from qkv._files import write_whole
from qkv.byhand import curves, experiment
from qkv.byhand.experiment import Experiment as ByHand
from qkv.history import History, Record
from qkv.layers import Norm
from qkv.tasks import Task, addition, copy
from qkv.training import fit
from qkv.transformer import Transformer


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

    columns = Record._fields
    notes = ()

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

    def rows(self, seed: int) -> list[runs.Row]:
        """One whole run on the CPU, a row for each epoch that was measured."""
        return list(self.train(self.model(seed), seed, device="cpu"))


EXPERIMENTS: Mapping[str, Experiment] = {
    "copy": Experiment(partial(copy, n_train=2000), n_heads=4, epochs=8, rate=1e-2, log_every=1),
    "addition": Experiment(addition),
}
_COPY = ByHand("copy", epochs=100, eta=0.02, log_every=1)
_1_HEAD, _4_HEADS = ByHand("addition"), ByHand("addition", n_head=4)
BYHAND: Mapping[str, ByHand] = {
    "byhand_copy": _COPY,
    "byhand_copy_reversed": replace(_COPY, is_input_reversed=True),
    "byhand_copy_two_digits": replace(_COPY, max_a=99),
    "byhand_addition_1_head": _1_HEAD,
    "byhand_addition_1_head_reversed": replace(_1_HEAD, is_input_reversed=True),
    "byhand_addition_1_head_no_W_O": replace(_1_HEAD, mix=False),
    "byhand_addition_4_heads": _4_HEADS,
    "byhand_addition_4_heads_reversed": replace(_4_HEADS, is_input_reversed=True),
    "byhand_addition_4_heads_no_W_O": replace(_4_HEADS, mix=False),
}


def read(name: str) -> dict[int, History]:
    """The recorded run that ships with the package: each seed's history.

    Errors:
        ValueError: no experiment has that name, or its record is broken; the message says where
        FileNotFoundError: it has not been recorded yet
    """
    _require.one_of("name", name, EXPERIMENTS)
    recorded = _shipped(name, EXPERIMENTS[name])
    return {
        seed: History(Record(int(epoch), *values) for epoch, *values in rows)
        for seed, rows in recorded.items()
    }


def read_byhand(name: str) -> dict[int, list[curves.Record]]:
    """The recorded run by hand that ships with the package: what `history` was, for each seed.

    Errors:
        as `read`
    """
    _require.one_of("name", name, BYHAND)
    recorded = _shipped(name, BYHAND[name])
    return {seed: [experiment.from_row(row) for row in rows] for seed, rows in recorded.items()}


def run(name: str, out: Path) -> None:
    """Train the seeds that ``out / NAME.csv`` lacks; the file is written whole after each.

    Errors:
        ValueError: no experiment has that name; what is in the file is broken or was made with
            other settings or versions
        FileNotFoundError: there is no such folder
        FloatingPointError: a run's loss is not finite any more
        KeyboardInterrupt: a training was stopped; the seeds before it are in the file
    """
    _require.one_of("name", name, (*EXPERIMENTS, *BYHAND))
    settings = EXPERIMENTS[name] if name in EXPERIMENTS else BYHAND[name]
    path = out / f"{name}.csv"
    if not out.is_dir():
        raise FileNotFoundError(
            f"no folder {out}: run this at the top of the repository, or give --out FOLDER"
        )
    done = _same(path, settings) if path.exists() else {}
    for seed in settings.seeds:
        if seed in done:
            print(f"{name}, seed {seed}: there already", flush=True)
            continue
        print(f"{name}, seed {seed}", flush=True)
        rows = settings.rows(seed)
        if not rows or rows[-1][0] != settings.epochs:  # training returns after Ctrl-C
            raise KeyboardInterrupt
        done[seed] = rows
        write_whole(path, runs.text(done, settings.columns, settings.notes))


def _shipped(name: str, settings: Experiment | ByHand) -> dict[int, list[runs.Row]]:
    """The record in the package."""
    record = importlib.resources.files("qkv.data") / "runs" / f"{name}.csv"
    if not record.is_file():
        raise FileNotFoundError(
            f"no record of {name!r}: make it with python -m qkv.experiments {name}"
        )
    return runs.parse(record.read_text(encoding="utf-8"), settings.columns, record.name)


def _same(path: Path, settings: Experiment | ByHand) -> dict[int, list[runs.Row]]:
    """The record at the path, refused if it was not made as it would be here and now."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text in UTF-8, so no record; move it away") from None
    done = runs.parse(text, settings.columns, str(path))
    for number, (was, now) in enumerate(zip_longest(runs.notes(text), settings.notes), start=1):
        if was != now:
            raise ValueError(
                f"{path}, line {number}: it was made with other settings or versions, so move it "
                f"away; it says {was!r}, here it would be {now!r}"
            )
    last, every = settings.epochs, settings.log_every
    expected = [epoch for epoch in range(1, last + 1) if epoch % every == 0 or epoch == last]
    for seed, rows in done.items():
        if seed not in settings.seeds:
            raise ValueError(
                f"{path}: seed {seed} is none of {path.stem}'s, which are "
                f"{', '.join(map(str, settings.seeds))}; move the file away"
            )
        if [row[0] for row in rows] != expected and rows[-1][0] == last:
            raise ValueError(
                f"{path}: seed {seed} lacks epochs that {path.stem} measures, every {every} up to "
                f"{last}; move the file away"
            )
        if rows[-1][0] != last:
            raise ValueError(
                f"{path}: seed {seed} ends at epoch {rows[-1][0]}, {path.stem} has "
                f"{last}; it was made with other settings, so move it away"
            )
    return done


def main(arguments: Sequence[str] | None = None) -> None:
    """Run an experiment over its seeds and write NAME.csv, seed by seed."""
    parser = argparse.ArgumentParser(prog="python -m qkv.experiments", description=main.__doc__)
    parser.add_argument("name", help=f"one of: {', '.join((*EXPERIMENTS, *BYHAND))}")
    parser.add_argument("--out", type=Path, default=Path("data/runs"), metavar="FOLDER")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)  # quicker for models this small, and the same on any number of cores
    try:
        run(given.name, given.out)
    except (OSError, ValueError, FloatingPointError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        parser.exit(130, "stopped; the seeds that are done are written, start again to go on\n")


if __name__ == "__main__":
    main()
