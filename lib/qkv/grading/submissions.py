"""What was handed in: by whom, which file is the newest, and what is no notebook at all."""

import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from qkv.grading.graft import LARGEST, NotUnderstood

# As Canvas names files: byronada_LATE_123_456_notebook-1.ipynb; -1 is the first new version.
CANVAS = re.compile(r"(?P<who>[^_]+)(?:_LATE)?_(?P<id>\d+)_(?:LATE_)?\d+_(?P<file>.+)")
# As Moodle names folders, or files: Ada Byron_123_assignsubmission_file_notebook.ipynb
MOODLE = re.compile(r"(?P<who>.+?)_(?P<id>\d+)_assignsubmission_file_?(?P<file>.*)")
VERSION = re.compile(r"(?P<stem>.+?)(?:-(?P<a>\d{1,3})|\s*\((?P<b>\d{1,3})\))$")
IGNORED = {"__MACOSX", ".ipynb_checkpoints", ".DS_Store", "Thumbs.db", "desktop.ini"}
MOST_FILES = 100_000


@dataclass(frozen=True)
class Submission:
    """One file that was handed in. `name` is the file's own name, without what a platform adds."""

    place: Path  # the file, or the zip
    inside: str | None  # its path in the zip
    shown: str  # its path, for the report
    learner: str
    platform_id: str
    name: str
    version: int
    changed: float

    def content(self) -> bytes:
        """The file's bytes.

        Errors:
            NotUnderstood: it is too large, or cannot be read
        """
        try:
            if self.inside is None:
                with open(self.place, "rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    content = file.read(min(size, LARGEST) + 1)
            else:
                with zipfile.ZipFile(self.place) as packed, packed.open(self.inside) as member:
                    content = member.read(LARGEST + 1)
        except (OSError, RuntimeError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise NotUnderstood(f"the file cannot be read: {error}") from None
        except NotImplementedError as error:
            raise NotUnderstood(f"the zip is packed in a way not known here: {error}") from None
        if len(content) > LARGEST:
            raise NotUnderstood(f"the file has over {LARGEST:,} bytes")
        return content


@dataclass(frozen=True)
class Refused:
    """A file that is no submission, and why."""

    shown: str
    learner: str
    reason: str


def find(places: Iterable[Path]) -> tuple[list[Submission], list[Refused]]:
    """All that was handed in, in these folders, zips and notebooks, sorted.

    Errors:
        ValueError: a place does not exist, or is a zip that cannot be read
    """
    found: list[Submission] = []
    refused: list[Refused] = []
    for place in places:
        if place.is_dir():
            entries = _in_folder(place)
        elif zipfile.is_zipfile(place):
            entries = _in_zip(place)
        elif place.is_file():
            entries = iter([(_named(place, None, PurePosixPath(place.name)), None)])
        else:
            raise ValueError(f"{place} does not exist; give a folder, a zip or a notebook")
        for submission, reason in entries:
            if reason is None and not submission.name.lower().endswith(".ipynb"):
                reason = "it is no notebook: its name does not end in .ipynb"
            if reason is None:
                found.append(submission)
            else:
                refused.append(Refused(submission.shown, submission.learner, reason))
    found.sort(key=lambda s: (s.learner, s.platform_id, s.shown))
    return found, refused


def newest(candidates: list[Submission]) -> Submission:
    """Of several files for the same exercise: the highest version, then the latest."""
    return max(candidates, key=lambda s: (s.version, s.changed, s.shown))


def _in_folder(folder: Path) -> Iterator[tuple[Submission, str | None]]:
    for path in sorted(folder.rglob("*")):
        inner = PurePosixPath(path.relative_to(folder).as_posix())
        if IGNORED & set(inner.parts):
            continue
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            continue
        reason = None
        if stat.S_ISLNK(mode):
            reason = "it is a link, which is not followed"
        elif not stat.S_ISREG(mode):
            reason = "it is no regular file"
        yield replace(_named(path, None, inner), shown=str(inner)), reason


def _in_zip(place: Path) -> Iterator[tuple[Submission, str | None]]:
    """Nothing is unpacked onto the disk: a member is read into memory, up to a limit."""
    try:
        with zipfile.ZipFile(place) as packed:
            members = packed.infolist()
    except (OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{place} cannot be read: {error}") from None
    if len(members) > MOST_FILES:
        raise ValueError(f"{place} holds {len(members):,} files, over {MOST_FILES:,}")
    for member in members:
        inner = PurePosixPath(member.filename.replace("\\", "/"))
        if member.is_dir() or IGNORED & set(inner.parts):
            continue
        reason = None
        if stat.S_ISLNK(member.external_attr >> 16):
            reason = "it is a link, which is not followed"
        elif inner.is_absolute() or ".." in inner.parts:
            reason = "its path leads out of the zip"
        elif member.file_size > LARGEST:
            reason = f"the file has {member.file_size:,} bytes, over {LARGEST:,}"
        submission = _named(place, member.filename, inner)
        changed = float("".join(f"{part:02d}" for part in member.date_time))
        yield replace(submission, changed=changed), reason


def _named(place: Path, inside: str | None, inner: PurePosixPath) -> Submission:
    """Who handed a file in, and its own name: by the platform's pattern, else by its path."""
    learner, platform_id, name = inner.with_suffix("").as_posix(), "", inner.name
    version = 0
    for part in inner.parts:
        found = MOODLE.fullmatch(part) or (part == inner.name and CANVAS.fullmatch(part)) or None
        if found:
            learner, platform_id = found["who"], found["id"]
            name = (found["file"] if part == inner.name else "") or inner.name
            stem, dot, suffix = name.rpartition(".")
            numbered = VERSION.fullmatch(stem)
            if numbered:
                version = int(numbered["a"] or numbered["b"])
                name = numbered["stem"] + dot + suffix
            break
    changed = 0.0 if inside else place.lstat().st_mtime
    return Submission(place, inside, str(inner), learner, platform_id, name, version, changed)
