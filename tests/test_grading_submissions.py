"""Who handed in what, in folders and zips as platforms make them, and what is no submission."""

import os
import stat
import zipfile
from pathlib import Path

import pytest

import grading_course as course
from qkv.grading.course import Pristine, load, which
from qkv.grading.graft import NotUnderstood, exercises, read
from qkv.grading.submissions import Submission, find, newest

MINE = course.content(course.submission())


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return path


def only(place: Path) -> Submission:
    found, refused = find([place])
    assert refused == []
    (one,) = found
    return one


@pytest.mark.parametrize(
    ("inside", "learner", "platform_id", "name", "version"),
    [
        ("byronada_123_456_01-small.ipynb", "byronada", "123", "01-small.ipynb", 0),
        ("byronada_LATE_123_456_01-small-2.ipynb", "byronada", "123", "01-small.ipynb", 2),
        ("byronada_123_456_my own_work (3).ipynb", "byronada", "123", "my own_work.ipynb", 3),
        (
            "Ada Byron_123_assignsubmission_file_/01-small.ipynb",
            *("Ada Byron", "123", "01-small.ipynb", 0),
        ),
        (
            "class/Ada_Byron_123_assignsubmission_file/deep/x-1.ipynb",
            *("Ada_Byron", "123", "x.ipynb", 1),
        ),
        (
            "Ada Byron_123_assignsubmission_file_01-small.ipynb",
            *("Ada Byron", "123", "01-small.ipynb", 0),
        ),
        ("ada.ipynb", "ada", "", "ada.ipynb", 0),
        ("ada-1.ipynb", "ada-1", "", "ada-1.ipynb", 0),
        ("ada/01-small.ipynb", "ada/01-small", "", "01-small.ipynb", 0),
    ],
)
def test_who_and_what_by_the_platforms_names(
    tmp_path: Path, inside: str, learner: str, platform_id: str, name: str, version: int
) -> None:
    folder = tmp_path / "handed in"
    path = folder / inside
    path.parent.mkdir(parents=True)
    path.write_bytes(MINE)
    for place in (folder, zipped(tmp_path / "all.zip", {inside: MINE})):
        one = only(place)
        assert (one.learner, one.platform_id) == (learner, platform_id)
        assert (one.name, one.version) == (name, version)
        assert one.content() == MINE


def test_a_single_notebook(tmp_path: Path) -> None:
    path = tmp_path / "byronada_123_456_x.ipynb"
    path.write_bytes(MINE)
    assert only(path).learner == "byronada"


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        find([tmp_path / "nowhere"])


def test_the_newest_version_counts_then_the_latest() -> None:
    def made(version: int, changed: float) -> Submission:
        return Submission(Path("x"), None, "x", "ada", "1", "x.ipynb", version, changed)

    assert newest([made(1, 5), made(2, 1), made(0, 9)]) == made(2, 1)
    assert newest([made(0, 5), made(0, 9), made(0, 1)]) == made(0, 9)


def test_of_zips_too_the_latest_counts(tmp_path: Path) -> None:
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for name, year in (("a_1_2_x.ipynb", 2025), ("a_1_3_x.ipynb", 2026)):
            packed.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), MINE)
    found, _ = find([path])
    assert newest(found).shown == "a_1_3_x.ipynb"


def test_what_is_no_submission_is_listed_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / ".ipynb_checkpoints").mkdir(parents=True)
    (folder / ".ipynb_checkpoints" / "ada.ipynb").write_bytes(MINE)
    (folder / ".DS_Store").write_bytes(b"x")
    (folder / "ada.ipynb").write_bytes(MINE)
    (folder / "report.pdf").write_bytes(b"x")
    (folder / "link.ipynb").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe.ipynb")
    found, refused = find([folder])
    assert [one.shown for one in found] == ["ada.ipynb"]
    reasons = {one.shown: one.reason for one in refused}
    assert set(reasons) == {"report.pdf", "link.ipynb", "pipe.ipynb"}
    assert "no notebook" in reasons["report.pdf"]
    assert "link" in reasons["link.ipynb"]
    assert "no regular file" in reasons["pipe.ipynb"]


def test_hostile_zips(tmp_path: Path) -> None:
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("ada.ipynb", MINE)
        packed.writestr("../../out.ipynb", MINE)
        packed.writestr("/etc/abs.ipynb", MINE)
        packed.writestr("__MACOSX/._ada.ipynb", b"x")
        link = zipfile.ZipInfo("link.ipynb")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(link, "/etc/passwd")
        packed.writestr("bomb.ipynb", bytes(60 * 2**20))
    before = set(tmp_path.parent.rglob("*"))
    found, refused = find([path])
    assert [one.shown for one in found] == ["ada.ipynb"]
    assert [one.content() for one in found] == [MINE]
    assert len(refused) == 4
    assert set(tmp_path.parent.rglob("*")) == before


def test_a_bomb_that_lies_about_its_size(tmp_path: Path) -> None:
    path = zipped(tmp_path / "all.zip", {"bomb.ipynb": bytes(60 * 2**20)})
    raw = path.read_bytes()
    size = (60 * 2**20).to_bytes(4, "little")
    path.write_bytes(raw.replace(size, (1000).to_bytes(4, "little")))
    one = only(path)
    try:
        assert len(one.content()) <= 1000
    except NotUnderstood:
        pass


def test_a_broken_zip(tmp_path: Path) -> None:
    path = zipped(tmp_path / "all.zip", {"ada.ipynb": MINE * 50})
    raw = bytearray(path.read_bytes())
    raw[60:90] = b"\xff" * 30
    path.write_bytes(raw)
    with pytest.raises(NotUnderstood, match="cannot be read"):
        only(path).content()


@pytest.fixture(scope="module")
def both() -> list[Pristine]:
    made = {name: course.solution(name) for name in course.NOTEBOOKS}
    return [Pristine(name, notebook, exercises(notebook)) for name, notebook in made.items()]


def test_which_notebook_by_its_cells_else_by_its_name(both: list[Pristine]) -> None:
    other = read(course.content(course.submission("02-other")))
    assert which(other, "renamed.ipynb", both).name == "02-other"
    assert which(other, "01-small.ipynb", both).name == "02-other"
    bare = read(b'{"nbformat": 4, "cells": [{"cell_type": "code", "source": "x"}]}')
    assert which(bare, "My copy of 01-Small.ipynb", both).name == "01-small"
    with pytest.raises(NotUnderstood, match="none of the course's exercises"):
        which(bare, "x.ipynb", both)


def test_of_two_notebooks_in_one_neither_is_taken_but_by_name(both: list[Pristine]) -> None:
    made = course.submission("01-small")
    made.cells = [c for c in made.cells if not c.id.startswith(("total", "last"))]
    made.cells += course.submission("02-other").cells
    mixed = read(course.content(made))
    with pytest.raises(NotUnderstood, match="several notebooks: 01-small, 02-other"):
        which(mixed, "x.ipynb", both)
    assert which(mixed, "02-other.ipynb", both).name == "02-other"


def test_a_course_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--course"):
        load(tmp_path, "solutions")
