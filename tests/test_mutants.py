"""What the checks are worth: they name the fault of each wrong answer, and pass each right one."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mutants
from mutants import RIGHT, WRONG
from qkv import checks
from qkv.checks import Exercise, Wrong
from qkv.checks.answer import Answer

EXERCISES = checks.exercises()
SEEDS = int(os.environ.get("SEEDS", "10"))  # make mutants: 1000


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", EXERCISES)
def test_each_exercise_has_its_wrong_answers_and_three_right_ones(name: str) -> None:
    assert len(RIGHT.get(name, ())) >= 3, f"{name}: give three right answers in other words"
    assert len(WRONG.get(name, ())) >= 3, f"{name}: give its wrong answers"


def test_no_answer_is_to_an_exercise_that_is_not() -> None:
    assert RIGHT.keys() | WRONG.keys() == EXERCISES.keys()


def test_the_table_counts_them() -> None:
    written = Path(mutants.__path__[0], "README.md").read_text(encoding="utf-8")
    assert written == mutants.table(), "write it anew: cd tests && python -m mutants"


@pytest.mark.parametrize(
    ("name", "fault"), [(name, fault) for name, faults in WRONG.items() for fault in faults]
)
def test_a_wrong_answer_is_refused_with_its_cause(name: str, fault: str) -> None:
    answer, cause = WRONG[name][fault]
    for seed in range(1 + SEEDS // 100):
        with pytest.raises(Wrong) as wrong:
            EXERCISES[name].run(answer, seed)
        assert cause in str(wrong.value)


@cache
def expected(name: str, seed: int) -> list[str]:
    """The solution's digits, computed once for all right answers."""
    return EXERCISES[name].expected(seed)


@pytest.mark.parametrize(
    ("name", "which"), [(name, i) for name, answers in RIGHT.items() for i in range(len(answers))]
)
def test_a_right_answer_passes_with_the_solutions_digits(name: str, which: int) -> None:
    exercise: Exercise = EXERCISES[name]
    answer: Callable[..., Any] = RIGHT[name][which]
    for seed in range(SEEDS):
        assert exercise.run(answer, seed) == expected(name, seed)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_line_of_a_right_answer_cannot_be_guessed(name: str) -> None:
    lines = {tuple(EXERCISES[name].expected(seed)) for seed in range(20)}
    assert len(lines) >= 18


@pytest.mark.parametrize("name", ["leaks", "is_broken", "sees_order", "which_order"])
def test_verdicts_known_by_heart_are_refused(name: str) -> None:
    exercise, said = EXERCISES[name], list[Any]()

    def noted(*given: Any) -> Any:
        said.append(RIGHT[name][0](*given))
        return said[-1]

    exercise.run(noted, 0)
    for seed in range(1, 4):
        again = iter(said)
        with pytest.raises(Wrong):
            exercise.run(lambda *given, again=again: next(again), seed)


@pytest.mark.parametrize("name", EXERCISES)
def test_what_an_answer_left_behind_in_pytorch_and_numpy_changes_no_verdict(name: str) -> None:
    expected = EXERCISES[name].expected(0)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        with np.errstate(all="raise"), torch.no_grad():
            assert EXERCISES[name].run(RIGHT[name][0], 0) == expected
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_default_device() == torch.device("meta")
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


def unwritten(x: Any) -> Any:
    raise NotImplementedError


def test_an_unwritten_function_is_named_where_it_is_another_than_the_answer() -> None:
    def merging(*given: Any) -> Any:
        return unwritten(given[0])

    def stub(*given: Any) -> Any:
        raise NotImplementedError

    def Boolean(*given: Any) -> Any:
        raise NotImplementedError("no product of Boolean matrices")

    for answer, line in (
        (merging, "not written yet: it calls unwritten, which is not written"),
        (stub, "not written yet: there still is a line raise NotImplementedError"),
        (Boolean, "it stops with NotImplementedError: no product of Boolean matrices; the line is"),
    ):
        with pytest.raises(Wrong) as wrong:
            EXERCISES["multi_head"].run(answer, 0)
        assert str(wrong.value) == line or "the line is" in line and line in str(wrong.value)


def test_of_a_long_error_the_beginning_is_told() -> None:
    def wordy(*given: Any) -> Any:
        raise RuntimeError("expected one thing. Then " + "more " * 99)

    def endless(*given: Any) -> Any:
        raise RuntimeError("one thing " * 99 + "\nat: somewhere")

    for answer, line in ((wordy, "expected one thing; the"), (endless, "one thing one …; the")):
        with pytest.raises(Wrong) as wrong:
            EXERCISES["softmax"].run(answer, 0)
        assert line in str(wrong.value) and len(str(wrong.value)) < 200


@pytest.mark.parametrize("kind", [list, tuple, lambda x: {"x": list(x)}])
def test_tensors_within_an_argument_are_held_unchanged(kind: Callable[..., Any]) -> None:
    def change(given: Any) -> None:
        (given["x"] if isinstance(given, dict) else given)[0].add_(1)

    given = kind([torch.zeros(2), torch.full((2, 2), torch.nan)])
    Answer("any", lambda given: None, ())(given)
    with pytest.raises(Wrong, match="changes its argument number 1, given: work"):
        Answer("any", change, ())(given)
