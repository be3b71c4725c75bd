"""The recorded runs: experiments too long for a notebook, each over several seeds.

``python -m qkv.experiments addition`` trains every seed of that experiment and writes
``data/runs/addition.csv``, whole after each seed. Stopped and started again, it goes on with the
seeds that are missing. ``read("addition")`` gives the record that ships with the package.

The names that begin with ``byhand_`` are of the model by hand, ``read_byhand`` gives their
records, and ``trained`` the models that those in `KEPT` ended with: their weights stand in
``NAME.npz`` beside the record. Set ``OPENBLAS_NUM_THREADS=1`` for them: quicker for products
this small.
"""

import argparse
import importlib.resources
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path

import torch
from torch.optim import SGD, AdamW

from qkv import _require, runs
from qkv._files import write_whole
from qkv.byhand import curves, experiment
from qkv.byhand.experiment import Experiment as ByHand
from qkv.byhand.layer import Array
from qkv.byhand.seq2seq import TransformerSeq2Seq
from qkv.experiment import Experiment
from qkv.history import History, Record
from qkv.tasks import addition, copy

_SGD = Experiment(addition, n_heads=4, norm="post", optimiser=SGD, rate=0.2, one_cycle=False)
_ADAMW = replace(_SGD, optimiser=AdamW, rate=2e-3)
_ONE_CYCLE = replace(_ADAMW, rate=5e-3, one_cycle=True)
_HIGH_RATE = Experiment(addition, rate=2e-2)
_BEST = replace(_HIGH_RATE, optimiser=partial(AdamW, weight_decay=0.1))
EXPERIMENTS: Mapping[str, Experiment] = {
    "copy": Experiment(partial(copy, n_train=2000), n_heads=4, epochs=8, rate=1e-2, log_every=1),
    "addition": Experiment(addition),
    # One change at a time, from the settings of the runs by hand to the best found, and to one
    # that takes half the time.
    "addition_sgd": _SGD,
    "addition_adamw": _ADAMW,
    "addition_one_cycle": _ONE_CYCLE,
    "addition_pre_norm": replace(_ONE_CYCLE, norm="pre"),
    "addition_high_rate": _HIGH_RATE,
    "addition_best": _BEST,
    "addition_short": replace(_BEST, epochs=50, log_every=10),
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
    "byhand_addition_4_heads_encoder": replace(_1_HEAD, heads=(4, 1, 1), epochs=300),
    "byhand_addition_4_heads_cross": replace(_1_HEAD, heads=(1, 1, 4), epochs=300),
}
KEPT = ("byhand_addition_1_head", "byhand_addition_4_heads")


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


def trained(name: str) -> dict[int, TransformerSeq2Seq]:
    """The models that a recorded run by hand ended with, for each seed.

    Errors:
        ValueError: no experiment of that name keeps its weights
        FileNotFoundError: it has not been recorded yet
    """
    _require.one_of("name", name, KEPT)
    kept = importlib.resources.files("qkv.data") / "runs" / f"{name}.npz"
    if not kept.is_file():
        raise _missing(name)
    weights = runs.unpack(kept.read_bytes())
    models = {seed: BYHAND[name].model(seed) for seed in BYHAND[name].seeds}
    for seed, model in models.items():
        model.model.load(weights[seed])
    return models


def run(name: str, out: Path) -> None:
    """Train the seeds that ``out / NAME.csv`` lacks; the file is written whole after each.

    Errors:
        ValueError: no experiment has that name; what is in the files is broken or was made with
            other settings or versions
        FileNotFoundError: there is no such folder
        FloatingPointError: a run's loss is not finite any more
        KeyboardInterrupt: a training was stopped; the seeds before it are in the file
    """
    _require.one_of("name", name, (*EXPERIMENTS, *BYHAND))
    settings = EXPERIMENTS[name] if name in EXPERIMENTS else BYHAND[name]
    path, kept = out / f"{name}.csv", out / f"{name}.npz"
    if not out.is_dir():
        raise FileNotFoundError(
            f"no folder {out}: run this at the top of the repository, or give --out FOLDER"
        )
    done = _same(path, settings) if path.exists() else {}
    weights = _same_seeds(kept, set(done)) if name in KEPT and done else {}
    for seed in settings.seeds:
        if seed in done:
            print(f"{name}, seed {seed}: there already", flush=True)
            continue
        print(f"{name}, seed {seed}", flush=True)
        rows, weights[seed] = settings.run(seed)
        if not rows or rows[-1][0] != settings.epochs:  # training returns after Ctrl-C
            raise KeyboardInterrupt
        done[seed] = rows
        if name in KEPT:  # first, so that no seed of the record lacks its weights
            write_whole(kept, runs.pack(weights))
        write_whole(path, runs.text(done, settings.columns, settings.notes))


def _shipped(name: str, settings: Experiment | ByHand) -> dict[int, list[runs.Row]]:
    """The record in the package."""
    record = importlib.resources.files("qkv.data") / "runs" / f"{name}.csv"
    if not record.is_file():
        raise _missing(name)
    return runs.parse(record.read_text(encoding="utf-8"), settings.columns, record.name)


def _missing(name: str) -> FileNotFoundError:
    return FileNotFoundError(
        f"no record of {name!r}: make it with python -m qkv.experiments {name}"
    )


def _same_seeds(kept: Path, seeds: set[int]) -> dict[int, dict[str, Array]]:
    """The weights of the seeds that are done, refused if some have none."""
    try:
        weights = runs.unpack(kept.read_bytes())
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{kept} does not hold the weights of {kept.stem}.csv ({error}); move both away"
        ) from None
    if not seeds <= weights.keys():
        raise ValueError(
            f"{kept} has the weights of seeds {sorted(weights)}, {kept.stem}.csv "
            f"the record of seeds {sorted(seeds)}; move both away"
        )
    return {seed: weights[seed] for seed in seeds}


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
