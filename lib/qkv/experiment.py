"""What a recorded run is made of: its settings, its training, what is written down of it.

`qkv.experiments` names the experiments and writes their records.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import OneCycleLR

from qkv import _require
from qkv.byhand.layer import Array
from qkv.history import History, Record
from qkv.layers import Norm
from qkv.runs import Row
from qkv.tasks import Task
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
    optimiser: Callable[..., Optimizer] = AdamW
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

    def run(self, seed: int) -> tuple[list[Row], dict[str, Array]]:
        """One whole run on the CPU: a row for each measurement, and the weights at its end."""
        model = self.model(seed)
        rows: list[Row] = [*self.train(model, seed, device="cpu")]
        return rows, {name: value.numpy() for name, value in model.state_dict().items()}
