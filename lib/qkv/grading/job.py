"""A grading job: all submissions, several at a time, each by itself; stopped, it can go on."""

import hashlib
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from qkv._files import write_whole
from qkv.grading import cgroups, graft, results
from qkv.grading.course import Pristine, which
from qkv.grading.graft import NotUnderstood
from qkv.grading.results import GRADED, GRADERS_FAULT, NOT_UNDERSTOOD, Result
from qkv.grading.run import GradersFault, Runner
from qkv.grading.submissions import Refused, Submission, newest

SCRATCH = "qkv-grade-"  # begins the names of all files and cgroups outside the job's folder


@dataclass
class Job:
    """One job: where its results go, and the course's notebooks.

    `older` fills with files of which a newer version was graded.
    """

    out: Path
    course: list[Pristine]
    sandboxed: bool = True
    again: bool = False
    workers: int = 1
    older: list[Refused] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = self.out / "results"
        self.folder.mkdir(parents=True, exist_ok=True)
        for part in self.folder.glob(".*.tmp"):  # of a run that was killed
            part.unlink(missing_ok=True)
        sweep()
        self.seed = _seed(self.out / "seed")
        self.runner = Runner(f"{SCRATCH}{os.getpid()}", sandboxed=self.sandboxed)
        self._lines: dict[str, dict[str, str] | GradersFault] = {}
        self._one_at_a_time = {pristine.name: threading.Lock() for pristine in self.course}

    def grade(
        self,
        submissions: list[Submission],
        refused: list[Refused],
        done: Callable[[Result], None] = lambda result: None,
    ) -> list[Result]:
        """Grade what is new or changed, and give the results of all, in order.

        Results of files that are no longer there are removed.
        """
        finished = [self._refusal(one) for one in refused]
        groups: dict[tuple[str, str, str], list[Submission]] = {}
        for submission in submissions:
            try:
                pristine = which(graft.read(submission.content()), submission.name, self.course)
            except NotUnderstood as error:
                one = Refused(submission.shown, submission.learner, str(error))
                finished.append(self._refusal(one, submission.platform_id))
                continue
            key = (submission.learner, submission.platform_id, pristine.name)
            groups.setdefault(key, []).append(submission)
        for result in finished:
            done(result)
        with ThreadPoolExecutor(self.workers) as pool:
            waiting = [
                pool.submit(self._grade_newest, key[2], group, done)
                for key, group in groups.items()
            ]
            try:
                finished += [future.result() for future in waiting]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                self.runner.close()
        kept = {self._path(result) for result in finished}
        for path in self.folder.glob("*.json"):
            if path not in kept:
                path.unlink()
        return sorted(finished, key=lambda r: (r.learner, r.platform_id, r.notebook, r.path))

    def _grade_newest(
        self, notebook: str, group: list[Submission], done: Callable[[Result], None]
    ) -> Result:
        submission = newest(group)
        for other in group:
            if other is not submission:
                reason = f"an older version; {submission.shown} was graded"
                self.older.append(Refused(other.shown, other.learner, reason))
        pristine = next(p for p in self.course if p.name == notebook)
        result = self._result(submission, pristine)
        done(result)
        return result

    def _result(self, submission: Submission, pristine: Pristine) -> Result:
        who = (submission.learner, submission.platform_id, pristine.name, submission.shown)
        try:
            content = submission.content()
            fingerprint = self._fingerprint(content, pristine.digest)
            before = results.read(results.path_of(self.folder, *who))
            if before and not self.again and before.status == GRADED:
                if (before.fingerprint, before.path) == (fingerprint, submission.shown):
                    return before
            found = graft.answers(graft.read(content), pristine.exercises)
        except NotUnderstood as error:  # it changed since it was looked at
            result = Result(*who, "", NOT_UNDERSTOOD, str(error))
        else:
            try:
                outcomes = self.runner.grade(
                    pristine.notebook, found.sources, self.seed, self._expected(pristine)
                )
                status, reason = GRADED, ""
            except GradersFault as error:
                outcomes, status, reason = [], GRADERS_FAULT, str(error)
            except Exception as error:  # one submission's trouble touches no other
                outcomes, status = [], GRADERS_FAULT
                reason = f"{type(error).__name__}: {error}"
            result = Result(
                *who, fingerprint, status, reason, found.remarks, outcomes, found.sources
            )
        results.write(self._path(result), result)
        return result

    def _expected(self, pristine: Pristine) -> dict[str, str]:
        """The solution's lines, made once."""
        with self._one_at_a_time[pristine.name]:
            if pristine.name not in self._lines:
                try:
                    made = self.runner.expected(pristine.notebook, self.seed)
                    self._lines[pristine.name] = made
                except GradersFault as error:
                    self._lines[pristine.name] = error
        lines = self._lines[pristine.name]
        if isinstance(lines, GradersFault):
            raise lines
        return lines

    def _refusal(self, one: Refused, platform_id: str = "") -> Result:
        result = Result(one.learner, platform_id, "", one.shown, "", NOT_UNDERSTOOD, one.reason)
        results.write(self._path(result), result)
        return result

    def _path(self, result: Result) -> Path:
        return results.path_of(
            self.folder, result.learner, result.platform_id, result.notebook, result.path
        )

    def _fingerprint(self, content: bytes, digest: str) -> str:
        parts = content + digest.encode() + str(self.seed).encode()
        return hashlib.sha256(parts).hexdigest()


def sweep() -> None:
    """Remove what jobs that were killed have left: files and cgroups whose process is gone."""
    left = Path(tempfile.gettempdir()).glob(f"{SCRATCH}*")
    for folder in [path for path in left if not _running(path.name)]:
        shutil.rmtree(folder, ignore_errors=True)
    for group in cgroups.stale(SCRATCH):
        if not _running(group.folders[0].name):
            group.remove()


def _running(name: str) -> bool:
    pid = name.removeprefix(SCRATCH).split("-")[0]
    return pid.isdigit() and psutil.pid_exists(int(pid))


def _seed(path: Path) -> int:
    """The job's secret seed, drawn once."""
    with suppress(OSError, ValueError):
        return int(path.read_text())
    seed = secrets.randbelow(2**31)
    write_whole(path, f"{seed}\n")
    path.chmod(0o600)
    return seed
