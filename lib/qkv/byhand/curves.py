"""What a run of TransformerSeq2Seq looked like, and its curves on the current axes."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from qkv.byhand.layer import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Score(NamedTuple):
    """Shares of right answers, 0 to 1. A sequence is right if all its tokens are."""

    sequence: float
    positions: tuple[float, ...]

    @property
    def token(self) -> float:
        """The share of right tokens, all positions together."""
        return float(np.mean(self.positions))


def score(predicted: Array, target: Array) -> Score:
    """Count right answers; every position counts, padding as well.

    Shapes:
        predicted, target: ids [B, n]
    """
    right = predicted == target  # [B, n]
    return Score(float(right.all(1).mean()), tuple(right.mean(0).tolist()))


class Record(NamedTuple):
    """One epoch: its mean training loss, and what was measured at its end.

    ``teacher`` is teacher-forced: the decoder is given the right tokens before each
    position. ``free`` is free-running: it is given its own.
    """

    epoch: int
    train_loss: float
    test_loss: float
    train_free: Score
    train_teacher: Score
    test_free: Score
    test_teacher: Score

    def line(self) -> str:
        """The record in words."""
        return (
            f"epoch {self.epoch:4d}  loss {self.train_loss:.4f}  test, free-running: "
            f"tokens {self.test_free.token:.3f}, sequences {self.test_free.sequence:.3f}"
        )


def plot_sequences(history: list[Record]) -> None:
    """Right sequences, train and test, free-running.

    Teacher-forced they would be the same: who gets every token right is given, either way,
    the right tokens.
    """
    axes, epochs, colours = _axes(history, "accuracy, sequences")
    axes.plot(epochs, [r.train_free.sequence for r in history], color=colours[-1], label="train")
    axes.plot(epochs, [r.test_free.sequence for r in history], color=colours[0], label="test")
    _finish(axes)


def plot_tokens(history: list[Record]) -> None:
    """Right tokens of the test rows by position; free-running solid, teacher-forced dotted."""
    axes, epochs, colours = _axes(history, "accuracy, test tokens")
    for i in range(len(history[0].test_free.positions)):
        colour = colours[i % len(colours)]
        for way, line in (("free", "-"), ("teacher", ":")):
            values = [getattr(record, f"test_{way}").positions[i] for record in history]
            label = f"token {i + 1}" if way == "free" else None
            axes.plot(epochs, values, line, color=colour, label=label)
    _finish(axes)


def plot_losses(history: list[Record]) -> None:
    """The mean cross-entropy of a token, train and test, teacher-forced."""
    axes, epochs, colours = _axes(history, "loss")
    axes.plot(epochs, [r.train_loss for r in history], color=colours[-1], label="train")
    axes.plot(epochs, [r.test_loss for r in history], color=colours[0], label="test")
    axes.set_ylim(bottom=0)
    axes.legend()


def _axes(history: list[Record], title: str) -> "tuple[Axes, list[int], list[str]]":
    """The current axes, the epochs to draw over, and the book's colours, grey last."""
    if not history:
        raise ValueError("there is nothing to plot yet; call train first")
    import matplotlib.pyplot as plt  # only now: a model can be trained without it

    from qkv.figures.grid import OUTPUT, WEIGHTS, K, Q, V, X

    axes = plt.gca()
    axes.set_title(title)
    axes.set_xlabel("epoch")
    return axes, [r.epoch for r in history], [r.colour for r in (Q, K, V, WEIGHTS, OUTPUT, X)]


def _finish(axes: "Axes") -> None:
    axes.set_ylim(0, 1.02)
    axes.legend()
