"""The files in folders and zips. Nothing is unpacked onto the disk, and no link is followed."""

import stat
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from qkv.grading.reading import LARGEST

IGNORED = {"__MACOSX", ".ipynb_checkpoints", ".DS_Store", "Thumbs.db", "desktop.ini"}
MOST_FILES = 100_000
UTF_8 = 0x800  # the flag of a zip's member whose name is in UTF-8


@dataclass(frozen=True)
class File:
    """A file as it was found; `reason` says why it is none to be graded."""

    place: Path
    inside: str | None
    path: PurePosixPath  # below the folder, or in the zip
    changed: float
    reason: str = ""


def files(place: Path, but: Path | None) -> Iterator[File]:
    """The files of a folder or zip, or the one that the place is.

    Errors:
        ValueError: it does not exist, is `but`, or is a zip that cannot be read
    """
    if place.is_dir():
        if place == but:
            raise ValueError(f"{place} is to be graded and to hold the grades; give another --out")
        yield from _in_folder(place, but)
    elif not place.is_file():
        raise ValueError(f"{place} does not exist; give a folder, a zip or a notebook")
    elif is_notebook(place):
        yield _at(place, place.parent)
    else:
        yield from _in_zip(place)


def is_notebook(place: Path) -> bool:
    """A file is no zip where its name says notebook: learners choose what is in it."""
    if not place.is_file() or place.suffix.lower() == ".zip":
        return False
    return place.suffix.lower() == ".ipynb" or not zipfile.is_zipfile(place)


def _in_folder(folder: Path, but: Path | None) -> Iterator[File]:
    for path in sorted(folder.rglob("*")):
        if IGNORED & set(path.relative_to(folder).parts):
            continue
        if but and but.is_relative_to(folder) and path.is_relative_to(but):
            continue
        if path.is_symlink() or not path.is_dir():
            yield _at(path, folder)


def _at(path: Path, folder: Path) -> File:
    status = path.lstat()
    reason = ""
    if stat.S_ISLNK(status.st_mode):
        reason = "it is a link, which is not followed"
    elif not stat.S_ISREG(status.st_mode):
        reason = "it is no regular file"
    inner = PurePosixPath(path.relative_to(folder).as_posix())
    return File(path, None, inner, status.st_mtime, reason)


def _in_zip(place: Path) -> Iterator[File]:
    """Nothing is unpacked onto the disk: a member is read into memory, up to a limit."""
    try:
        with zipfile.ZipFile(place) as packed:
            members = packed.infolist()
    except OSError as error:
        raise ValueError(f"the zip {place} cannot be read: {error}") from None
    except Exception as error:  # zipfile raises errors of many kinds
        raise ValueError(
            f"the zip {place} is damaged or was not downloaded whole ({error}); download it again"
        ) from None
    if len(members) > MOST_FILES:
        raise ValueError(f"{place} holds {len(members):,} files, over {MOST_FILES:,}")
    for member in members:
        name = _decoded(member).replace("\\", "/")
        inner = PurePosixPath(name)
        if name.endswith("/") or IGNORED & set(inner.parts):
            continue
        reason = ""
        if stat.S_ISLNK(member.external_attr >> 16):
            reason = "it is a link, which is not followed"
        elif inner.is_absolute() or ".." in inner.parts:
            reason = "its path leads out of the zip"
        elif not inner.parts:
            reason = "it has no name"
        elif member.file_size > LARGEST:
            reason = f"the file has {member.file_size:,} bytes, over {LARGEST:,}"
        changed = time.mktime((*member.date_time, 0, 0, -1))
        yield File(place, member.filename, inner, changed, reason)


def _decoded(member: zipfile.ZipInfo) -> str:
    """A name in UTF-8, which some programs write without saying so."""
    if member.flag_bits & UTF_8:
        return member.filename
    try:
        return member.filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return member.filename
