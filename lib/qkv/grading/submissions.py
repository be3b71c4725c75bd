"""What was handed in: by whom, which file is the newest, and what is no notebook at all."""

import os
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from qkv.grading.names import Name, names
from qkv.grading.places import File, files, is_notebook
from qkv.grading.reading import LARGEST, NotUnderstood


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
    changed: float  # seconds since 1970
    counted: bool = False  # by the platform, so that the highest version is the newest

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
        except NotImplementedError as error:
            raise NotUnderstood(f"the zip is packed in a way not known here: {error}") from None
        except Exception as error:  # zipfile and what unpacks for it raise errors of many kinds
            raise NotUnderstood(f"the file cannot be read: {error}") from None
        if len(content) > LARGEST:
            raise NotUnderstood(f"the file has over {LARGEST:,} bytes")
        return content


@dataclass(frozen=True)
class Refused:
    """A file that is no submission, and why."""

    shown: str
    learner: str
    reason: str
    platform_id: str = ""


def find(places: Iterable[Path], but: Path | None = None) -> tuple[list[Submission], list[Refused]]:
    """All that was handed in, in these folders, zips and notebooks, sorted.

    `but` is a folder to leave out, as a resolved path.

    Errors:
        ValueError: a place does not exist, is left out, or is a zip that cannot be read
    """
    found: list[Submission] = []
    refused: list[Refused] = []
    seen: set[tuple[Path, str | None]] = set()
    places = list(dict.fromkeys(map(_resolved, places)))
    labels = _labels({_base(place) for place in places})
    for place in places:
        label = labels[_base(place)]
        for file, name in _named(place, label, but):
            if (file.place, file.inside) in seen:
                continue
            seen.add((file.place, file.inside))
            shown = f"{label}/{file.path}" if label else str(file.path)
            reason = file.reason or _no_notebook(name.file)
            if reason:
                refused.append(Refused(shown, name.learner, reason, name.platform_id))
            else:
                found.append(
                    Submission(
                        file.place,
                        file.inside,
                        shown,
                        name.learner,
                        name.platform_id,
                        name.file,
                        name.version,
                        file.changed,
                        name.counted,
                    )
                )
    found.sort(key=lambda s: (s.learner, s.platform_id, s.shown))
    return found, refused


def newest(candidates: list[Submission]) -> Submission:
    """Of several files for the same exercise: by the platform's count, the date, the number."""
    return max(candidates, key=lambda s: (s.counted * s.version, s.changed, s.version, s.shown))


def _named(place: Path, label: str, but: Path | None) -> Iterator[tuple[File, Name]]:
    inside = list(files(place, but))
    paths = [PurePosixPath(*_plain(file.path)) for file in inside]
    home = place.parent.name if is_notebook(place) else ""
    yield from zip(inside, names(paths, home or place.name, label, home), strict=True)


def _resolved(place: Path) -> Path:
    """A notebook that is a link stays one, and is refused."""
    return place.resolve() if place.is_dir() else place.parent.resolve() / place.name


def _plain(path: PurePosixPath) -> list[str]:
    """The path's parts, without what leads out of its place; never none."""
    return [part for part in path.parts if part not in ("/", "//", "..")] or ["no name"]


def _no_notebook(name: str) -> str:
    """Why a file of this name is none to be graded, or nothing."""
    if name.lower().endswith(".zip"):
        return "a zip inside: unpack it, or name it on the command line"
    if not name.lower().endswith(".ipynb"):
        return "it is no notebook: its name does not end in .ipynb"
    return ""


def _base(place: Path) -> Path:
    """What a place's paths are below: a folder, or a zip, without .zip where no folder is so."""
    if is_notebook(place):
        return place.parent
    folder = place.with_suffix("")
    return place if place.suffix.lower() != ".zip" or folder.exists() else folder


def _labels(bases: set[Path]) -> dict[Path, str]:
    """What tells the places apart: of one, nothing; of several, the last parts of their paths."""
    if len(bases) == 1:
        return dict.fromkeys(bases, "")
    length = 1
    while len({base.parts[-length:] for base in bases}) < len(bases):
        length += 1
    return {base: "/".join(base.parts[-length:]) for base in bases}
