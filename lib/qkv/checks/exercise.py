"""An exercise: its name, how an answer is tried, what an answer may not call, one right answer."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from qkv.checks.answer import Answer, known_state
from qkv.checks.draw import Draw
from qkv.checks.faults import numbers

Trial = Callable[[Any, Draw], Iterable[object]]
EXERCISES: dict[str, "Exercise"] = {}

EDGE = 0.1  # how far, in the last digit printed, a number must lie from where rounding turns


@dataclass(frozen=True)
class Exercise:
    """How an answer is tried.

    ``trial(answer, draw)`` raises Wrong at the first fault, and returns a few numbers that the
    answer computed. ``solution`` is a right answer; ``never`` names what no answer may call.
    """

    name: str
    trial: Trial
    solution: Callable[..., Any]
    never: tuple[str, ...] = ()

    def run(self, answer: Callable[..., Any], seed: int) -> list[str]:
        """What a right answer prints: a few numbers, at three decimals.

        Errors:
            Wrong: the answer is wrong; the message says why
        """
        attempt, _ = self._expected(seed)
        return self._try(Answer(self.name, answer, self.never), seed, attempt)[1]

    def expected(self, seed: int) -> list[str]:
        """What the solution prints."""
        return self._expected(seed)[1]

    def _expected(self, seed: int) -> tuple[int, list[str]]:
        # Drawn again until the solution's numbers lie far from where rounding turns: so another
        # order of summing, or float32, never changes a digit.
        solution = Answer(self.name, self.solution, ())
        for attempt in itertools.count():
            found, printed = self._try(solution, seed, attempt)
            if all(map(_far_from_an_edge, found)):
                return attempt, printed
        raise AssertionError("unreachable")

    def _try(self, answer: Answer, seed: int, attempt: int) -> tuple[list[float], list[str]]:
        with known_state():  # of the check's own computing too, not of the answer's alone
            trial = self.trial(answer, Draw(self.name, seed, attempt))
            found = [float(numbers(self.name, number)) for number in trial]
        return found, [f"{round(number, 3) + 0.0:.3f}" for number in found]  # -0 becomes 0


def exercise(
    name: str, solution: Callable[..., Any], *, never: tuple[str, ...] = ()
) -> Callable[[Trial], Trial]:
    """Make an exercise of the trial below."""

    def register(trial: Trial) -> Trial:
        EXERCISES[name] = Exercise(name, trial, solution, never)
        return trial

    return register


def _far_from_an_edge(number: float) -> bool:
    return abs(abs(number) * 1000 % 1 - 0.5) > EDGE
