"""What came of each submission, one file each, whole or not there at all."""

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from qkv._files import write_whole
from qkv.grading.run import Outcome

GRADED, NOT_UNDERSTOOD, GRADERS_FAULT = "graded", "not understood", "grader's fault"


@dataclass(frozen=True)
class Result:
    """One submission: whose, of what, and how it ended.

    `fingerprint` changes when the file or the course's notebook does; `notebook` is empty where it
    is not known.
    """

    learner: str
    platform_id: str
    notebook: str
    path: str
    fingerprint: str
    status: str
    reason: str = ""
    remarks: list[str] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)

    @property
    def points(self) -> float:
        """What was reached."""
        return sum(outcome.points for outcome in self.outcomes)

    @property
    def maximum(self) -> float:
        """What can be reached."""
        return sum(outcome.maximum for outcome in self.outcomes)


def file_name(*words: str) -> str:
    """A name for a file that no two learners share and that every system takes.

    It begins with a letter or digit: a shell takes "-" for an option, and "." hides a file.
    """
    plain = "-".join(re.sub(r"[^A-Za-z0-9.-]+", "_", word).strip("._")[:60] for word in words)
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{plain.lstrip('-._') or 'learner'}-{digest[:8]}"


def path_of(folder: Path, learner: str, platform_id: str, notebook: str, shown: str) -> Path:
    """Where a result lies: by learner and notebook; by its path where the notebook is not known."""
    return folder / f"{file_name(learner, platform_id, notebook or shown)}.json"


def write(path: Path, result: Result) -> None:
    """Write a result, whole or not at all."""
    text = json.dumps(dataclasses.asdict(result), indent=1)
    write_whole(path, text.encode("utf-8", "surrogatepass") + b"\n")


def read(path: Path) -> Result | None:
    """A result that was written before; None where there is none, or none that can be read."""
    try:
        raw = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
        outcomes = [Outcome(**outcome) for outcome in raw.pop("outcomes")]
        return Result(**raw, outcomes=outcomes)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
