"""What a recorded run by hand is made of: its settings, its training, a line of its record.

`qkv.experiments` names the experiments and writes their records.
"""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from qkv import _require_plain as plain
from qkv.byhand.blocks import Norm
from qkv.byhand.curves import Record, Score
from qkv.byhand.layer import Array
from qkv.byhand.seq2seq import Seq2SeqData, TransformerSeq2Seq
from qkv.runs import Row

LOSSES, SCORES = Record._fields[1:3], Record._fields[3:]


@dataclass(frozen=True)
class Experiment:
    """All that decides how a run goes, but for its seed.

    A seed draws the first weights and the order of the rows; the rows themselves are the same
    for all. The words are those of the table of choices in `qkv.byhand.seq2seq`.

    ``heads``, in place of ``n_head``, are those of the encoder's attention, of the decoder's own
    and of its cross-attention. The first weights are the same; they are only cut otherwise.
    """

    task: Literal["addition", "copy"]
    n_head: int = 1
    heads: tuple[int, int, int] | None = None
    is_input_reversed: bool = False
    mix: bool = True
    norm: Norm = "post"
    scaled: bool = False
    width: int = 32
    n_train: int = 5000
    n_test: int = 500
    max_a: int = 999
    epochs: int = 1000
    mini_batch: int = 100
    eta: float = 0.2
    log_every: int = 10
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    def model(self, seed: int) -> TransformerSeq2Seq:
        """The model as it is before its first step, and its rows."""
        X, Y = Seq2SeqData().addition_formula(self.n_train + self.n_test, max_a=self.max_a)
        Y = X if self.task == "copy" else Y
        model = TransformerSeq2Seq(
            *(X[: self.n_train], Y[: self.n_train]),
            *(X[self.n_train :], Y[self.n_train :]),
            *(Seq2SeqData.V, self.width, self.width, self.width),
            self.n_head,
            self.is_input_reversed,
            mix=self.mix,
            norm=self.norm,
            scaled=self.scaled,
            seed=seed,
        )
        if self.heads is not None:
            (encoder,), (decoder,) = model.model.encoder, model.model.decoder
            own, cross = decoder.self_attention, decoder.cross_attention
            for attention, h in zip((encoder.self_attention, own, cross), self.heads, strict=True):
                attention.n_heads = h
        return model

    def train(self, model: TransformerSeq2Seq, *, epochs: int | None = None) -> list[Record]:
        """Train a fresh model. ``epochs`` stops early: the first epochs of the whole run.

        Errors:
            TypeError, ValueError: epochs is no whole number from 1 to those of the experiment
            FloatingPointError: the loss is not finite any more
        """
        epochs = self.epochs if epochs is None else epochs
        plain.positive_int("epochs", epochs)
        if epochs > self.epochs:
            raise ValueError(f"epochs is {epochs}, the whole run has {self.epochs}; ask for fewer")
        model.train(epochs, self.mini_batch, self.eta, self.log_every)
        return model.history

    @property
    def columns(self) -> tuple[str, ...]:
        """What the numbers of a row are, the epoch first."""
        n_source, n_target = len(f"{self.max_a}+99"), len("999")
        positions = range(1, 1 + (n_source if self.task == "copy" else n_target))
        counted = ("sequence", *(f"token_{i}" for i in positions))
        return "epoch", *LOSSES, *(f"{score}_{what}" for score in SCORES for what in counted)

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be equal, beside the seed, for a run to come out again."""
        settings = asdict(self)
        del settings["seeds"]
        if self.heads is None:
            del settings["heads"]
        return (
            f"settings: {json.dumps(settings)}",
            f"versions: Python {platform.python_version()}, NumPy {np.__version__}",
        )

    def run(self, seed: int) -> tuple[list[Row], dict[str, Array]]:
        """One whole run: a row for each measurement, and the weights at its end."""
        model = self.model(seed)
        rows = [to_row(record) for record in self.train(model)]
        return rows, model.model.state()


def to_row(record: Record) -> Row:
    """A record as numbers alone: each score is its sequences, then position by position."""
    scores = (record.train_free, record.train_teacher, record.test_free, record.test_teacher)
    shares = [share for score in scores for share in (score.sequence, *score.positions)]
    return record.epoch, record.train_loss, record.test_loss, *shares


def from_row(row: Sequence[float]) -> Record:
    """The record that `to_row` wrote down."""
    epoch, train_loss, test_loss, *shares = row
    n = len(shares) // len(SCORES)  # the sequences, and the positions
    scores = (Score(shares[i], tuple(shares[i + 1 : i + n])) for i in range(0, len(shares), n))
    return Record(int(epoch), train_loss, test_loss, *scores)
