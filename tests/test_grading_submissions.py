"""Who handed in what, in folders and zips as platforms make them, and what is no submission."""

import os
import stat
import zipfile
from datetime import datetime
from pathlib import Path

import pytest

import grading_course as course
from qkv.grading.course import Pristine, load, which
from qkv.grading.graft import exercises
from qkv.grading.reading import NotUnderstood, read
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
            "Ada_Byron_123_assignsubmission_file/deep/x-1.ipynb",
            *("Ada_Byron", "123", "x.ipynb", 1),
        ),
        (
            "Ada Byron_123_assignsubmission_file_01-small.ipynb",
            *("Ada Byron", "123", "01-small.ipynb", 0),
        ),
        ("ada.ipynb", "ada", "", "ada.ipynb", 0),
        ("ada-1.ipynb", "ada-1", "", "ada-1.ipynb", 0),
        ("ada/work.ipynb", "ada/work", "", "work.ipynb", 0),
        ("Ada Byron/01-small.ipynb", "Ada Byron", "", "01-small.ipynb", 0),
        ("b/Ada Byron/01-small-1.ipynb", "b/Ada Byron", "", "01-small.ipynb", 1),
        ("ada/01-small (12).ipynb", "ada", "", "01-small.ipynb", 12),
        ("ada/01-small copy.ipynb", "ada", "", "01-small.ipynb", 0),
        ("ada/01-small-Copy1.ipynb", "ada", "", "01-small.ipynb", 1),
        ("ada/01-small - Copy (2).ipynb", "ada", "", "01-small.ipynb", 2),
        ("ada/Copy of 01-small.ipynb", "ada", "", "01-small.ipynb", 0),
        ("01-small.ipynb", "01-small", "", "01-small.ipynb", 0),
        # Names that a plain class may use, and are not Canvas's.
        ("hw_3_1_ada.ipynb", "hw_3_1_ada", "", "hw_3_1_ada.ipynb", 0),
        ("hw_3_10_ada.ipynb", "hw_3_10_ada", "", "hw_3_10_ada.ipynb", 0),
        ("hw_10_3_ada.ipynb", "hw_10_3_ada", "", "hw_10_3_ada.ipynb", 0),
        ("hw_03_01_ada.ipynb", "hw_03_01_ada", "", "hw_03_01_ada.ipynb", 0),
        # A learner chooses the end of a name, and what is in a folder: both say nothing.
        (
            "mallory_12_34_Ada Byron_123_assignsubmission_file_01-x.ipynb",
            *("mallory", "12", "Ada Byron_123_assignsubmission_file_01-x.ipynb", 0),
        ),
        (
            "mallory/ada_123_99_01-x-7.ipynb",
            *("mallory/ada_123_99_01-x-7", "", "ada_123_99_01-x-7.ipynb", 0),
        ),
        (
            "mallory/Ada Byron_123_assignsubmission_file_/x.ipynb",
            *("mallory/Ada Byron_123_assignsubmission_file_/x", "", "x.ipynb", 0),
        ),
        (
            "mallory_12_assignsubmission_file_/Ada_123_assignsubmission_file_/b_123_99_x.ipynb",
            *("mallory", "12", "b_123_99_x.ipynb", 0),
        ),
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


def test_a_platforms_zip_unpacked_into_a_folder(tmp_path: Path) -> None:
    moodle = [f"class/{who}_assignsubmission_file_/x.ipynb" for who in ("Ada_123", "Ben_124")]
    canvas = [f"in/class/{who}_99_x.ipynb" for who in ("ada_123", "ben_124")]
    for names in (moodle, canvas):
        found, _ = find([zipped(tmp_path / "all.zip", dict.fromkeys(names, MINE))])
        assert [(s.learner.lower(), s.platform_id) for s in found] == [
            ("ada", "123"),
            ("ben", "124"),
        ]


@pytest.mark.parametrize("own", ["Eve_12_assignsubmission_file_", "Eve_12_3456_work"])
def test_what_is_in_a_learners_own_folder_or_zip_is_theirs(tmp_path: Path, own: str) -> None:
    inside = {"ada_123_99_x.ipynb": MINE, "a/Ada_123_assignsubmission_file_/x.ipynb": MINE}
    folder = tmp_path / own
    folder.mkdir()
    (folder / "ada_123_99_x.ipynb").write_bytes(MINE)
    for place in (folder, folder / "ada_123_99_x.ipynb", zipped(tmp_path / f"{own}.zip", inside)):
        found, _ = find([place])
        assert {(s.learner, s.platform_id) for s in found} == {("Eve", "12")}


def test_a_class_zip_with_a_date_is_no_learners(tmp_path: Path) -> None:
    assert only(zipped(tmp_path / "gradebook_2026_10_31.zip", {"ada.ipynb": MINE})).learner == "ada"


def test_a_zip_that_is_called_a_notebook_is_not_opened(tmp_path: Path) -> None:
    path = zipped(tmp_path / "mallory.ipynb", {"ada_123_99_x.ipynb": MINE})
    assert (only(path).learner, only(path).inside) == ("mallory", None)


def test_several_places_are_told_apart(tmp_path: Path) -> None:
    for name in ("a/03-masks", "b/03-masks", "c/a/03-masks", "a/own", "b/own"):
        path = tmp_path / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(MINE)

    def who(*names: str) -> list[tuple[str, str]]:
        found, _ = find(tmp_path / name for name in names)
        return [(one.learner, one.shown) for one in found]

    masks = "03-masks.ipynb"
    assert who(f"a/{masks}") == [("a", masks)]
    assert who(f"a/{masks}", "a/own.ipynb") == [("a", masks), ("own", "own.ipynb")]
    assert who(f"a/{masks}", f"b/{masks}") == [("a", f"a/{masks}"), ("b", f"b/{masks}")]
    assert who("a/own.ipynb", "b/own.ipynb") == [("a/own", "a/own.ipynb"), ("b/own", "b/own.ipynb")]
    (one, first), (two, second) = who(f"a/{masks}", f"c/a/{masks}")
    assert {one, two} == {f"{tmp_path.name}/a", "c/a"}
    assert {first, second} == {f"{tmp_path.name}/a/{masks}", f"c/a/{masks}"}
    assert who("a", "b")[0::2] == [("a", f"a/{masks}"), ("b", f"b/{masks}")]
    # A file that is given twice is one.
    assert len(who("a", "a", f"a/{masks}")) == 2


def test_of_two_zips_learners_with_a_number_are_the_same_others_not(tmp_path: Path) -> None:
    members = {"Ada.ipynb": MINE, "byronada_123_456_x.ipynb": MINE}
    zips = [zipped(tmp_path / name, members) for name in ("secA.zip", "secB.zip")]
    found, _ = find(zips)
    assert [(s.learner, s.platform_id, s.shown) for s in found] == [
        ("byronada", "123", "secA/byronada_123_456_x.ipynb"),
        ("byronada", "123", "secB/byronada_123_456_x.ipynb"),
        ("secA/Ada", "", "secA/Ada.ipynb"),
        ("secB/Ada", "", "secB/Ada.ipynb"),
    ]
    (tmp_path / "secA").mkdir()
    (tmp_path / "secA" / "Ada.ipynb").write_bytes(MINE)
    found, _ = find([zips[0], tmp_path / "secA"])
    assert {s.learner for s in found if not s.platform_id} == {"secA/Ada", "secA.zip/Ada"}


def test_the_folder_of_the_grades_is_left_out(tmp_path: Path) -> None:
    out = tmp_path / "grades"
    (out / "feedback").mkdir(parents=True)
    (out / "feedback" / "x.ipynb").write_bytes(MINE)
    (tmp_path / "ada.ipynb").write_bytes(MINE)
    found, refused = find([tmp_path], but=out)
    assert [one.shown for one in found] == ["ada.ipynb"] and refused == []
    assert len(find([tmp_path], but=tmp_path.parent)[0]) == 2
    with pytest.raises(ValueError, match="another --out"):
        find([tmp_path], but=tmp_path)


def test_the_newest_by_canvas_count_else_by_date_else_by_number() -> None:
    def made(version: int, changed: float, counted: bool = False) -> Submission:
        return Submission(Path("x"), None, "x", "ada", "1", "x.ipynb", version, changed, counted)

    assert newest([made(1, 5, True), made(2, 1, True), made(0, 9, True)]) == made(2, 1, True)
    assert newest([made(1, 5), made(2, 1), made(0, 9)]) == made(0, 9)
    assert newest([made(0, 9), made(2, 9), made(1, 9)]) == made(2, 9)


def test_canvas_alone_counts_versions(tmp_path: Path) -> None:
    moodle = "Ada_123_assignsubmission_file_"
    for name in ("ada_123_456_x-1.ipynb", f"{moodle}x-1.ipynb", f"{moodle}/x-1.ipynb"):
        one = only(zipped(tmp_path / "all.zip", {name: MINE}))
        assert (one.version, one.counted) == (1, name.startswith("ada_"))


def test_of_zips_too_the_latest_counts(tmp_path: Path) -> None:
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for name, year in (("a_10_20_x.ipynb", 2025), ("a_10_30_x.ipynb", 2026)):
            packed.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), MINE)
    found, _ = find([path])
    assert newest(found).shown == "a_10_30_x.ipynb"
    # The dates of zips and of folders are of one kind.
    alone = tmp_path / "a_10_40_x.ipynb"
    alone.write_bytes(MINE)
    os.utime(alone, (0, datetime(2025, 6, 1).timestamp()))
    found, _ = find([path, alone])
    years = [datetime.fromtimestamp(one.changed).year for one in found]
    assert sorted(years) == [2025, 2025, 2026]


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


def test_a_refused_file_is_still_the_learners(tmp_path: Path) -> None:
    inside = "Ada Byron_123_assignsubmission_onlinetext_/onlinetext.html"
    names = ["byronada_123_456_report.pdf", "Ada Byron_123_assignsubmission_file_/x.pdf", inside]
    for name in names:
        found, (one,) = find([zipped(tmp_path / "all.zip", {name: b"x"})])
        assert found == [] and one.platform_id == "123"
        assert one.learner in ("byronada", "Ada Byron")


def test_a_zip_inside(tmp_path: Path) -> None:
    place = zipped(tmp_path / "all.zip", {"ada_12_34_x-1.ZIP": b"x"})
    for given in (place, tmp_path):
        found, (one,) = find([given])
        assert found == [] and "a zip inside: unpack it" in one.reason


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"x" * 1000])
def test_a_damaged_zip(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "all.zip"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="the zip .*all.zip is damaged .* download it again"):
        find([path])


def test_a_zip_of_a_version_that_is_not_known(tmp_path: Path) -> None:
    path = zipped(tmp_path / "all.zip", {"ada.ipynb": MINE})
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 6] = 99  # the version needed, in the zip's list of members
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="version"):
        find([path])


def test_names_in_utf_8_without_the_flag(tmp_path: Path) -> None:
    name = "Müler 日本.ipynb".encode()
    path = zipped(tmp_path / "all.zip", {"x" * len(name): MINE})
    path.write_bytes(path.read_bytes().replace(b"x" * len(name), name))
    assert (only(path).learner, only(path).content()) == ("Müler 日本", MINE)
    path = zipped(tmp_path / "old.zip", {"Mxler.ipynb": MINE})
    path.write_bytes(path.read_bytes().replace(b"Mxler", b"M\x81ler"))
    assert (only(path).learner, only(path).content()) == ("Müler", MINE)


def test_one_odd_member_of_a_zip_is_refused_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for name in (".", "ada.ipynb", "..ipynb"):
            packed.writestr(zipfile.ZipInfo(name, (1980, 0, 0, 0, 0, 0)), MINE)
        packed.writestr("lzma.ipynb", MINE * 50, zipfile.ZIP_LZMA)
    raw = bytearray(path.read_bytes())
    start = raw.index(b"lzma.ipynb") + len("lzma.ipynb")
    raw[start : start + 30] = b"\xff" * 30
    path.write_bytes(raw)
    found, refused = find([path])
    assert [one.reason for one in refused] == ["it has no name"]
    assert len(found) == 3
    broken = next(one for one in found if one.shown == "lzma.ipynb")
    with pytest.raises(NotUnderstood, match="cannot be read"):
        broken.content()
    assert next(one for one in found if one.shown == "ada.ipynb").content() == MINE


def test_a_notebook_that_is_a_link_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mallory.ipynb"
    path.symlink_to("/etc/passwd")
    found, (one,) = find([path])
    assert found == [] and "link" in one.reason and one.learner == "mallory"


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
