"""A sequence in, a sequence out: data, model, training and curves, in NumPy alone.

The interface is that of the experiments of chapter 13; what it leaves open is settled here:

=====================  ======================================================================
open                   settled
=====================  ======================================================================
V                      the number of ids, or the largest id: 12 and 11 mean the same where
                       the id 11 occurs. One id is added behind them, the start id
start id               the decoder's first input; the source and the targets never hold it
padding                an id like any other: no mask hides it, and the loss counts it, since
                       it is how "36_" says that it has ended
is_input_reversed      the source is turned round as it stands, padding and all: "328+7_"
                       becomes "_7+823". sequences.reverse(X, pad=11) makes "7+823_"
H_qk                   width of all heads' queries together, so d_k is H_qk / n_head;
                       the values' is H_embed
W_O                    there, as in the paper; ``mix=False`` leaves it out
norm                   after the residual, as in the paper; ``norm="pre"`` before it, with a
                       final norm after each stack
embedding              the table's row, and the position added. The paper multiplies the row by
                       sqrt(width) first, which ``scaled=True`` does: under plain SGD the
                       embeddings then move width times as fast
first weights          Glorot's uniform ones, biases 0, embeddings normal with variance 1,
                       drawn from ``seed``, and so is the order of the rows
loss                   the mean over all tokens of the batch. The sum over a row's n tokens,
                       and the mean over rows, is the same with an n times smaller eta
descent                plain SGD, eta constant, rows in a new order each epoch
accuracy               both recorded: free-running (the decoder reads what it wrote) and
                       teacher-forced (it reads the right tokens)
=====================  ======================================================================
"""

import math
import sys

import numpy as np
from tqdm import tqdm  # type: ignore[import-untyped]

from qkv import _require_plain as plain
from qkv.byhand import _require, curves
from qkv.byhand.blocks import Norm
from qkv.byhand.curves import Record, Score, score
from qkv.byhand.layer import Array
from qkv.byhand.optimisers import SGD
from qkv.byhand.sequences import Seq2SeqData, fit_together, reverse, shift, vocabulary
from qkv.byhand.softmax import CrossEntropy
from qkv.byhand.transformer import Transformer, greedy

__all__ = ["Seq2SeqData", "TransformerSeq2Seq"]

ROWS_AT_ONCE = 1000  # bounds the memory that measuring takes


class TransformerSeq2Seq:
    """One encoder and one decoder block between ids, trained by plain SGD.

    The table above says what the arguments mean. ``history`` has a `Record` for each epoch
    that was measured; ``model`` is the Transformer itself.

    Shapes:
        X_train [n, n_source], Y_train [n, n_target], X_test, Y_test: whole numbers
    Errors:
        TypeError, ValueError: arrays of the wrong rank or type, X and Y of unlike length,
            ids that V does not cover, widths that the heads do not divide
    """

    def __init__(
        self,
        X_train: Array,
        Y_train: Array,
        X_test: Array,
        Y_test: Array,
        V: int,
        H_embed: int = 32,
        H_qk: int = 32,
        H_ff: int = 32,
        n_head: int = 1,
        is_input_reversed: bool = False,
        *,
        mix: bool = True,
        norm: Norm = "post",
        scaled: bool = False,
        seed: int = 0,
    ) -> None:
        self.start = vocabulary(V, X_train=X_train, Y_train=Y_train, X_test=X_test, Y_test=Y_test)
        fit_together(X_train, Y_train, X_test, Y_test)
        for name, size in (("H_embed", H_embed), ("H_qk", H_qk), ("H_ff", H_ff)):
            plain.positive_int(name, size)
        plain.positive_int("n_head", n_head)
        for name, size in (("H_embed", H_embed), ("H_qk", H_qk)):
            if size % n_head:
                raise ValueError(f"{name} = {size} is not divisible by n_head = {n_head}")
        plain.switch("is_input_reversed", is_input_reversed)
        self.is_input_reversed = is_input_reversed
        self.train_rows = self._read(X_train), Y_train.astype(np.int64)
        self.test_rows = self._read(X_test), Y_test.astype(np.int64)
        self.model = Transformer(
            self.start + 1,
            self.start + 1,
            d_model=H_embed,
            n_heads=n_head,
            d_ff=H_ff,
            d_k=H_qk // n_head,
            max_len=max(X_train.shape[1], Y_train.shape[1]),
            norm=norm,
            mix=mix,
            scaled=scaled,
            seed=seed,
        )
        self.loss = CrossEntropy()
        self.history: list[Record] = []
        self._rng = np.random.default_rng(seed)
        self._epochs = 0

    def train(self, epoch: int, mini_batch: int, eta: float, log_interval: int) -> None:
        """Go through the train rows ``epoch`` times; called again, it goes on.

        Every ``log_interval`` epochs, and after the last, a `Record` is added to ``history``
        and a line printed; a terminal gets a progress bar. An interruption (Ctrl-C) ends the
        training, not the program, and the history stays. The steps of the broken-off epoch stay
        as well, though it does not count.

        Errors:
            TypeError, ValueError: epoch, mini_batch or log_interval is no whole number of at
                least 1, eta no number above 0
            FloatingPointError: the loss is not finite any more; the message says when
        """
        sizes = {"epoch": epoch, "mini_batch": mini_batch, "log_interval": log_interval}
        for name, size in sizes.items():
            plain.positive_int(name, size)
        plain.above_0("eta", eta)
        descent = SGD(self.model, eta)
        last = self._epochs + epoch
        with (
            np.errstate(all="ignore"),  # what overflows shows in the loss, and is refused there
            tqdm(total=epoch, unit="epoch", disable=None, leave=False) as bar,
        ):
            try:
                while self._epochs < last:
                    loss = self._epoch(mini_batch, descent)
                    self._epochs += 1
                    if self._epochs % log_interval == 0 or self._epochs == last:
                        self.history.append(self._measure(loss))
                        tqdm.write(self.history[-1].line(), file=sys.stdout)
                    bar.update()
            except KeyboardInterrupt:
                tqdm.write(f"stopped after epoch {self._epochs} of {last}", file=sys.stdout)

    def predict(self, X: Array) -> Array:
        """What the model answers to X, decoding greedily.

        Shapes:
            X: ids [B, n_source]; returns ids [B, n_target]
        Errors:
            TypeError, ValueError: X holds no ids that V covers, or is not as wide as X_train
        """
        _require.ids("X", X, self.start)
        width = self.train_rows[0].shape[1]
        if X.shape[1] != width:
            raise ValueError(f"X must be as wide as X_train, {width} ids, got {list(X.shape)}")
        return self._answer(self._read(X))

    def plot_accuracy_seq_level(self) -> None:
        """Draw the share of right sequences onto the current axes."""
        curves.plot_sequences(self.history)

    def plot_accuracy_token_level(self) -> None:
        """Draw the share of right test tokens, position by position, onto the current axes."""
        curves.plot_tokens(self.history)

    def plot_loss(self) -> None:
        """Draw the loss onto the current axes."""
        curves.plot_losses(self.history)

    def _read(self, X: Array) -> Array:
        return (reverse(X) if self.is_input_reversed else X).astype(np.int64)

    def _epoch(self, mini_batch: int, descent: SGD) -> float:
        """All train rows once, teacher-forced; the mean loss of a token."""
        X, Y = self.train_rows
        order = self._rng.permutation(len(X))
        total = 0.0
        for first in range(0, len(X), mini_batch):
            batch = order[first : first + mini_batch]
            loss = self.loss(self.model(X[batch], shift(Y[batch], self.start)), Y[batch])
            self._refuse_if_lost(loss)
            self.model.backward(self.loss.backward())
            descent.step()
            total += loss * len(batch)
        return total / len(X)

    def _measure(self, train_loss: float) -> Record:
        """The loss of the test rows, and all scores."""
        test_loss, test_teacher = self._teacher_forced(*self.test_rows)
        _, train_teacher = self._teacher_forced(*self.train_rows)
        train_free, test_free = (
            score(self._answer(X), Y) for X, Y in (self.train_rows, self.test_rows)
        )
        return Record(
            *(self._epochs, train_loss, test_loss),
            *(train_free, train_teacher, test_free, test_teacher),
        )

    def _teacher_forced(self, X: Array, Y: Array) -> tuple[float, Score]:
        given = shift(Y, self.start)  # [n, n_target]
        logits = np.concatenate([self.model(X[i], given[i]) for i in _parts(X)])
        loss: float = self.loss(logits, Y)  # [n, n_target, vocab] and [n, n_target]
        self._refuse_if_lost(loss)
        return loss, score(logits.argmax(-1), Y)

    def _answer(self, X: Array) -> Array:
        limit = self.train_rows[1].shape[1]
        parts = [greedy(self.model, X[i], start=self.start, limit=limit) for i in _parts(X)]
        return np.concatenate(parts)

    def _refuse_if_lost(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} after {self._epochs} whole epochs; try a smaller eta; the "
                f"weights are lost, so make the model again"
            )


def _parts(X: Array) -> list[slice]:
    return [slice(first, first + ROWS_AT_ONCE) for first in range(0, len(X), ROWS_AT_ONCE)]
