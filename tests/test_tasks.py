"""qkv.tasks and qkv.vocabulary: rows as promised, the same for ever, and clear refusals."""

import dataclasses
import os
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv import tasks
from qkv.tasks import Rows, Task, Vocabulary, addition, copy
from qkv.training import majority

SMALL = {"n_train": 300, "n_test": 100}
VOCABULARY = Vocabulary("0123456789+_>")


def texts(task: Task, split: str = "train") -> list[tuple[str, str]]:
    text = task.vocabulary.text
    return [(text(s), text(t)) for s, t in zip(*getattr(task, split), strict=True)]


# --- vocabulary


def test_ids_are_the_symbols_places() -> None:
    assert VOCABULARY.ids("328+7_").tolist() == [3, 2, 8, 10, 7, 11]
    assert VOCABULARY.ids(">").tolist() == [12]
    assert VOCABULARY.ids("").tolist() == []
    assert VOCABULARY.ids("").dtype == VOCABULARY.ids("1").dtype == torch.int64
    assert len(VOCABULARY) == 13


def test_text_takes_tensors_and_lists() -> None:
    assert VOCABULARY.text(torch.tensor([3, 6, 11])) == "36_"
    assert VOCABULARY.text(torch.tensor([3, 6, 11], dtype=torch.int32)) == "36_"
    assert VOCABULARY.text([12, 3]) == ">3"
    assert VOCABULARY.text([]) == ""


@given(st.text(alphabet=VOCABULARY.symbols))
def test_text_and_ids_undo_each_other(text: str) -> None:
    assert VOCABULARY.text(VOCABULARY.ids(text)) == text


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: VOCABULARY.ids("12x"), ValueError, "text holds 'x' at position 2; the vocabulary"),
        (lambda: VOCABULARY.ids("1 2"), ValueError, "text holds ' ' at position 1"),
        (lambda: VOCABULARY.ids(12), TypeError, "text must be a str, got int: 12"),
        (lambda: VOCABULARY.text([0, 13]), ValueError, "ids holds 13 at position 1, outside"),
        (lambda: VOCABULARY.text([-1]), ValueError, "ids holds -1 at position 0, outside the"),
        (lambda: VOCABULARY.text([[1, 2]]), ValueError, "must be one row [n], got [1, 2]"),
        (lambda: VOCABULARY.text(torch.tensor(3)), ValueError, "must be one row [n], got []"),
        (lambda: VOCABULARY.text([0.5]), TypeError, "ids must hold whole numbers, got torch.float"),
        (lambda: VOCABULARY.text(None), TypeError, "or a list, got NoneType: None"),
        (lambda: VOCABULARY.text({1: 2}), TypeError, "or a list, got dict: {1: 2}"),
        (lambda: VOCABULARY.text([1j]), TypeError, "ids must hold whole numbers, got torch.com"),
        (lambda: Vocabulary("a\tb"), ValueError, "symbols holds '\\t': 'a\\tb'; a tab or a line"),
        (lambda: Vocabulary("a\nb"), ValueError, "symbols holds '\\n'"),
        (lambda: VOCABULARY.text("12"), TypeError, "ids must be whole numbers, got the str '12'"),
        (lambda: Vocabulary("abcab"), ValueError, "symbols repeats 'a', 'b': 'abcab'; give each"),
        (lambda: Vocabulary(""), ValueError, "symbols is empty"),
        (lambda: Vocabulary(["a"]), TypeError, "symbols must be a str, one character a symbol"),
    ],
)
def test_vocabulary_refuses(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()


# --- rows


@pytest.mark.parametrize("reverse", [False, True])
def test_addition_adds(reverse: bool) -> None:
    task = addition(reverse=reverse)
    assert (task.name, task.start, task.pad) == ("addition", 12, 11)
    assert [list(ids.shape) for ids in (*task.train, *task.test)] == [
        [5000, 6],
        [5000, 3],
        [500, 6],
        [500, 3],
    ]
    assert all(ids.dtype == torch.int64 for ids in (*task.train, *task.test))
    for source, target in texts(task) + texts(task, "test"):
        source = source[::-1] if reverse else source
        assert re.fullmatch(r"\d{1,3}\+\d{1,2}_*", source) and re.fullmatch(r"\d{1,3}_*", target)
        a, b = map(int, source.rstrip("_").split("+"))
        assert a <= 999 and b <= 99 and a + b == int(target.rstrip("_")) <= 999


def test_short_sums_are_padded_on_the_right() -> None:
    task = addition(n_train=95_050, n_test=0)  # all pairs, so these are among them
    ids, text = task.vocabulary.ids, task.vocabulary.text

    def answers(source: str) -> list[str]:
        return [text(row) for row in task.train.target[(task.train.source == ids(source)).all(1)]]

    assert answers("328+7_") == ["335"]
    assert answers("3+33__") == ["36_"]
    assert answers("0+0___") == ["0__"]
    assert answers("999+0_") == ["999"]
    assert answers("999+1_") == []


def test_train_and_test_share_no_pair_and_repeat_none() -> None:
    task = addition()
    train, test = set(texts(task)), set(texts(task, "test"))
    assert len(train) == 5000 and len(test) == 500 and not train & test


def test_all_pairs_can_be_drawn_and_have_the_known_majorities() -> None:
    everything = copy(n_train=95_050, n_test=0)
    as_numbers = (everything.train.source * 13 ** torch.arange(6)).sum(1)
    assert len(as_numbers.unique()) == 95_050
    found = majority(everything.train.target)
    assert everything.vocabulary.text(found.ids) == "10++1_"
    expected = torch.tensor([0.117, 0.104, 0.095, 0.895, 0.111, 0.199])
    torch.testing.assert_close(found.shares, expected, atol=5e-4, rtol=0)


def test_the_draw_is_even() -> None:
    """Each b is drawn about as often as its share of the 95,050 pairs says."""
    drawn = torch.tensor([int(s.rstrip("_").split("+")[1]) for s, _ in texts(addition())])
    expected = 5000 * (1000 - torch.arange(100)) / 95_050
    chi_square = ((torch.bincount(drawn, minlength=100) - expected) ** 2 / expected).sum()
    assert 60 < chi_square < 150  # 99 degrees of freedom: mean 99, spread 14


def test_rows_never_change() -> None:
    """The published draw: a change here would change every recorded number of the course."""
    task = addition(n_train=3, n_test=2)
    assert texts(task) == [("255+56", "311"), ("576+91", "667"), ("205+54", "259")]
    assert texts(task, "test") == [("785+38", "823"), ("539+24", "563")]


def test_a_seed_decides_the_rows() -> None:
    assert texts(addition(**SMALL, seed=1)) == texts(addition(**SMALL, seed=1))
    assert texts(addition(**SMALL, seed=1)) != texts(addition(**SMALL, seed=2))


def test_test_rows_do_not_depend_on_the_number_of_train_rows() -> None:
    few, many = addition(n_train=10, n_test=100), addition(n_train=300, n_test=100)
    assert texts(few, "test") == texts(many, "test")
    assert texts(few) == texts(many)[:10]


def test_drawing_leaves_the_global_random_state_alone() -> None:
    before = torch.get_rng_state()
    addition(**SMALL)
    assert torch.equal(before, torch.get_rng_state())


def test_reverse_turns_sources_padding_and_all_and_no_targets() -> None:
    for make in (addition, copy):
        plain, reverse = make(**SMALL), make(**SMALL, reverse=True)
        for split in ("train", "test"):
            expected = [(source[::-1], target) for source, target in texts(plain, split)]
            assert texts(reverse, split) == expected
    assert any(source.startswith("_") for source, _ in texts(addition(**SMALL, reverse=True)))


def test_copy_asks_for_the_source_of_the_same_rows() -> None:
    task = copy(**SMALL)
    assert task.name == "copy"
    assert torch.equal(task.train.source, addition(**SMALL).train.source)
    assert torch.equal(task.train.source, task.train.target)
    assert torch.equal(task.test.source, task.test.target)


@pytest.mark.parametrize(
    ("max_a", "max_b", "width", "n_pairs"),
    [(99, 99, 5, 10_000), (9, 9, 3, 100), (0, 0, 3, 1), (999, 999, 7, 500_500), (5, 30, 4, 186)],
)
def test_width_and_number_of_pairs_follow_from_the_limits(
    max_a: int, max_b: int, width: int, n_pairs: int
) -> None:
    limits = {"max_a": max_a, "max_b": max_b}
    task = addition(n_train=1, n_test=0, **limits)
    assert task.train.source.shape == (1, width) and task.train.target.shape == (1, 3)
    with pytest.raises(ValueError, match=f"there are only {n_pairs} pairs with a <= {max_a}, b <="):
        addition(n_train=n_pairs, n_test=1, **limits)


def test_rows_move_together() -> None:
    rows = addition(**SMALL).train.to("meta")
    assert isinstance(rows, Rows)
    assert rows.source.device.type == rows.target.device.type == "meta"


@pytest.mark.gpu
def test_rows_move_to_a_gpu() -> None:
    from qkv.training import device

    rows = addition(**SMALL).train.to(device())
    assert rows.source.device.type == rows.target.device.type == device().type


def test_a_task_describes_itself_in_one_line() -> None:
    assert repr(addition(**SMALL)) == (
        "Task('addition': 300 rows to train, 100 to test, 6 ids to 3)"
    )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_train": 0}, ValueError, "n_train must be at least 1, got 0"),
        ({"n_train": 5e3}, TypeError, "n_train must be an int, got float: 5000.0"),
        ({"n_test": -1}, ValueError, "n_test must be at least 0, got -1"),
        ({"n_test": True}, TypeError, "n_test must be an int, got bool: True"),
        ({"max_a": -1}, ValueError, "max_a must be in 0 … 999, got -1"),
        ({"max_b": 1000}, ValueError, "max_b must be in 0 … 999, got 1000"),
        ({"max_b": "9"}, TypeError, "max_b must be an int, got str: '9'"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": None}, TypeError, "seed must be an int, got NoneType: None"),
        (
            {"n_train": 95_000},
            ValueError,
            "n_train + n_test is 95500, but there are only 95050 pairs with a <= 999, b <= 99 and "
            "a + b <= 999; ask for fewer rows, or raise max_a or max_b",
        ),
    ],
)
@pytest.mark.parametrize("make", [addition, copy])
def test_tasks_refuse(
    make: Callable[..., Task], arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        make(**arguments)


ROWS = Rows(torch.zeros(4, 2, dtype=torch.int64), torch.zeros(4, 1, dtype=torch.int64))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"start": 13}, ValueError, "start is 13, outside the vocabulary 0 … 12"),
        ({"start": 1.0}, TypeError, "start must be an int, got float: 1.0"),
        ({"pad": None}, TypeError, "pad must be an int, got NoneType: None"),
        ({"vocabulary": "0123"}, TypeError, "vocabulary must be a Vocabulary, got str"),
        ({"pad": -1}, ValueError, "pad is -1, outside the vocabulary 0 … 12"),
        ({"train": tuple(ROWS)}, TypeError, "train must be Rows(source, target), such as"),
        ({"test": Rows([0], [0])}, TypeError, "test.source must be a torch.Tensor, got list"),
        ({"train": ROWS._replace(target=ROWS.target.float())}, TypeError, "train.target must hold"),
        ({"test": ROWS._replace(source=ROWS.source[0])}, ValueError, "test.source must have shape"),
        ({"test": ROWS._replace(target=ROWS.target + 13)}, ValueError, "test.target holds the id"),
        ({"train": ROWS._replace(source=ROWS.source[:0])}, ValueError, "train.source is empty"),
        (
            {"train": ROWS._replace(target=ROWS.target[1:])},
            ValueError,
            "train has 4 sources and 3 targets; each source needs its own target",
        ),
    ],
)
def test_a_task_refuses(change: dict[str, Any], error: type[Exception], message: str) -> None:
    right = Task("own", ROWS, ROWS, VOCABULARY, start=12, pad=11)
    with pytest.raises(error, match=re.escape(message)):
        dataclasses.replace(right, **change)


# --- as a file


def test_write_tsv_keeps_padding_and_puts_train_first(tmp_path: Path) -> None:
    task = addition(n_train=2, n_test=1)
    tasks.write_tsv(task, tmp_path / "sums.tsv")
    rows = [("train", *row) for row in texts(task)] + [
        ("test", *row) for row in texts(task, "test")
    ]
    expected = ["split\tsource\ttarget", *map("\t".join, rows)]
    assert (tmp_path / "sums.tsv").read_bytes() == ("\n".join(expected) + "\n").encode()


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sums.tsv"
    path.write_text("old")

    def full_disk(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises(OSError, match="no space left"):
        tasks.write_tsv(addition(n_train=1, n_test=1), path)
    assert [file.name for file in tmp_path.iterdir()] == ["sums.tsv"]
    assert path.read_text() == "old"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        tasks.write_tsv(addition(n_train=1, n_test=1), tmp_path / "nowhere" / "sums.tsv")


SUMS = addition(n_train=1, n_test=1)


def test_a_link_stays_a_link_and_a_file_keeps_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real.tsv", tmp_path / "link.tsv"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to("real.tsv")
    tasks.write_tsv(SUMS, link)
    assert link.is_symlink()
    assert real.read_text().startswith("split\t")
    assert real.stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link.tsv", "real.tsv"]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for path, what in ((pipe, "a device or a pipe"), (folder, "a folder")):
        with pytest.raises(OSError, match=f"{what} cannot be replaced by a file.*'{path}'"):
            tasks.write_tsv(SUMS, path)
    assert pipe.is_fifo()
    assert folder.is_dir()


def test_errors_name_the_path_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sums.tsv"
    for wrong in (tmp_path / "nowhere" / "sums.tsv", path / "below.tsv"):
        path.write_text("old")
        with pytest.raises(OSError, match=f"'{wrong}'$"):
            tasks.write_tsv(SUMS, wrong)
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    with pytest.raises(PermissionError, match=f"Permission denied: '{path}'$"):
        tasks.write_tsv(SUMS, path)
    assert path.read_text() == "old"


def test_only_tasks_are_written(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match=re.escape("task must be a Task, such as addition(), got R")
    ):
        tasks.write_tsv(ROWS, tmp_path / "rows.tsv")


def test_the_command_writes_the_default_task_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `python -m qkv.tasks PATH` does, without the seconds of a new process."""
    path = tmp_path / "addition.tsv"
    monkeypatch.setattr("sys.argv", ["tasks.py", str(path)])
    runpy.run_path(str(tasks.__file__), run_name="__main__")
    assert capsys.readouterr().out == (
        f"{path}: Task('addition': 5000 rows to train, 500 to test, 6 ids to 3)\n"
    )
    lines = path.read_text().splitlines()
    assert len(lines) == 5501 and lines[1] == "train\t" + "\t".join(texts(addition())[0])
