"""A grading job: all submissions, several at a time, each by itself; stopped, it can go on."""

import hashlib
import os
import secrets
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from qkv._files import remove_tree, write_whole
from qkv.grading import cgroups, graft, results, sandbox
from qkv.grading.course import Pristine, which
from qkv.grading.reading import NotUnderstood, read
from qkv.grading.results import GRADED, GRADERS_FAULT, NOT_UNDERSTOOD, Result
from qkv.grading.run import GradersFault, Runner
from qkv.grading.submissions import Refused, Submission, newest

SCRATCH = "qkv-grade-"  # begins the names of all files and cgroups outside the job's folder


@dataclass
class Job:
    """One job: where its results go, and the course's notebooks.

    `older` fills with files of which a newer version was graded; `earlier` counts the results of
    earlier runs whose files are not given this time.
    """

    out: Path
    course: list[Pristine]
    sandboxed: bool = True
    again: bool = False
    workers: int = 1
    older: list[Refused] = field(default_factory=list)
    earlier: int = 0

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

        What was graded in an earlier run stays, though its file is not given this time. The seed
        is spent with the job: whoever learns from its feedback what was to be printed, and hands
        in once more, meets another.
        """
        finished = list(map(self._refusal, refused))
        groups: dict[tuple[str, str, str], list[Submission]] = {}
        for submission in submissions:
            try:
                pristine = which(read(submission.content()), submission.name, self.course)
            except NotUnderstood as error:
                who = (submission.shown, submission.learner, str(error), submission.platform_id)
                finished.append(self._refusal(Refused(*who)))
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
                self.runner.stop()
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                self.runner.close()
                sweep(os.getpid())  # of runs that were cut short
        now = {self._path(result) for result in finished}
        for path in self.folder.glob("*.json"):
            before = results.read(path) if path not in now else None
            if before is not None and before.status == GRADED:
                finished.append(before)
                self.earlier += 1
            elif path not in now:
                path.unlink()
        (self.out / "seed").unlink()
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
            fingerprint = _fingerprint(content, pristine.digest)
            before = results.read(results.path_of(self.folder, *who))
            wanted = (GRADED, fingerprint, submission.shown)
            if before and (before.status, before.fingerprint, before.path) != wanted:
                before = None
            if before and not self.again:
                return before
            found = graft.answers(read(content), pristine.exercises, pristine=pristine.notebook)
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
            if status == GRADERS_FAULT and before:
                reason = f"what was graded before stands; grading it anew failed: {reason}"
                self.older.append(Refused(submission.shown, submission.learner, reason))
                return before
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

    def _refusal(self, one: Refused) -> Result:
        who = (one.learner, one.platform_id, "", one.shown)
        result = Result(*who, "", NOT_UNDERSTOOD, one.reason)
        results.write(self._path(result), result)
        return result

    def _path(self, result: Result) -> Path:
        return results.path_of(
            self.folder, result.learner, result.platform_id, result.notebook, result.path
        )


def _fingerprint(content: bytes, digest: str) -> str:
    return hashlib.sha256(content + digest.encode()).hexdigest()


def sweep(own: int | None = None) -> None:
    """Remove what jobs have left: files and cgroups whose process is gone, or is this one."""
    for place in {tempfile.gettempdir(), sandbox.SHARED}:
        for folder in Path(place).glob(f"{SCRATCH}*"):
            if not _running(folder.name, own):
                remove_tree(folder)
    for group in cgroups.stale(SCRATCH):
        if not _running(group.folders[0].name, own):
            group.remove()


def _running(name: str, own: int | None) -> bool:
    pid = name.removeprefix(SCRATCH).split("-")[0]
    return pid.isdigit() and int(pid) != own and psutil.pid_exists(int(pid))


def _seed(path: Path) -> int:
    """The job's secret seed, drawn when it begins; a job that was stopped goes on with its own."""
    with suppress(OSError, ValueError):
        return int(path.read_text())
    seed = secrets.randbelow(2**31)
    write_whole(path, f"{seed}\n")
    path.chmod(0o600)
    return seed
