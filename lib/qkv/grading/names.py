"""Who handed a file in, and which version it is, by the names of files and folders.

Learners choose the names of their own files, and of folders in what they hand in. So only the
outermost name, which the platform gave, says who someone is.
"""

import os
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

# As Canvas names files: byronada_LATE_123_456_notebook-1.ipynb; -1 is the first new version.
CANVAS = re.compile(
    r"(?P<who>[^_]+)(?:_LATE)?_(?P<id>[1-9]\d+)_(?:LATE_)?(?P<upload>[1-9]\d+)_(?P<file>.+)",
    re.DOTALL,
)
# As Moodle names folders, or files: Ada Byron_123_assignsubmission_file_notebook.ipynb
MOODLE = re.compile(
    r"(?P<who>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)_?(?P<file>.*)", re.DOTALL
)
VERSION = re.compile(r"(?P<stem>.+?)(?:-(?P<a>\d{1,3})|\s*\((?P<b>\d{1,3})\))", re.DOTALL)
# An exercise notebook's own name: 03-masks, 03-masks-1, 03-masks (1), Copy of 03-masks.
EXERCISE = re.compile(
    r"(?:Copy of )?(?P<stem>\d\d-[a-z-]*[a-z])(?:[ _-]+[Cc]opy)?[ _-]*\(?(?P<version>\d{0,3})\)?"
)


@dataclass(frozen=True)
class Name:
    """Whose a file is, and its own name, without what a platform or a copy adds."""

    learner: str
    platform_id: str
    file: str
    version: int
    counted: bool = False  # by the platform, so that the highest version is the newest


def names(
    paths: list[PurePosixPath], outer: str = "", label: str = "", home: str = ""
) -> list[Name]:
    """The names of all files of a place, by their paths below it.

    `outer` is the name of the folder or zip. `label` tells the place from others. `home` is the
    folder of a notebook that is itself the place.
    """
    owner = _owner(outer)
    if owner:
        return [_platforms(owner, path.name) for path in paths]
    found = [_by_platform(path.parts) for path in paths]
    if not any(found):
        found = _unpacked(paths)
    return [
        name or _by_path(PurePosixPath(label, path), home)
        for name, path in zip(found, paths, strict=True)
    ]


def _owner(outer: str) -> re.Match[str] | None:
    """The learner whose own folder or zip, as the platform named it, is the place."""
    found = CANVAS.fullmatch(outer)
    if found and len(found["upload"]) > 2:  # or it may be a date: class_2026_10_31.zip
        return found
    return MOODLE.fullmatch(outer)


def _unpacked(paths: list[PurePosixPath]) -> list[Name | None]:
    """A platform's zip, unpacked into a folder that all share.

    Two learners at least must be seen: a learner's own folder may hold a name made to look so.
    """
    shared = len(os.path.commonprefix([path.parts[:-1] for path in paths]))
    found = [_by_platform(path.parts[shared:]) for path in paths]
    learners = {(name.learner, name.platform_id) for name in found if name}
    return found if len(learners) > 1 else [None] * len(paths)


def _by_platform(parts: tuple[str, ...]) -> Name | None:
    """By the outermost name: a file's by Canvas, a folder's or file's by Moodle."""
    top, *below = parts
    canvas = None if below else CANVAS.fullmatch(top)
    found = canvas or MOODLE.fullmatch(top)
    if not found:
        return None
    file = below[-1] if below else found["file"] or top
    return _platforms(found, file, counted=bool(canvas))


def _platforms(found: re.Match[str], file: str, counted: bool = False) -> Name:
    stem, dot, suffix = file.rpartition(".")
    numbered = VERSION.fullmatch(stem)
    version = 0
    if numbered:
        version = int(numbered["a"] or numbered["b"])
        file = numbered["stem"] + dot + suffix
    return Name(found["who"], found["id"], file, version, counted)


def _by_path(path: PurePosixPath, home: str) -> Name:
    """An exercise's name says nothing of who it was, so the folder does; else the path does."""
    folder = str(path.parent) if len(path.parts) > 1 else home
    exercise = EXERCISE.fullmatch(path.stem)
    if exercise and folder:
        file = exercise["stem"] + path.suffix
        return Name(folder, "", file, int(exercise["version"] or 0))
    return Name(str(path).removesuffix(path.suffix), "", path.name, 0)
