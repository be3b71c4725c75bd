"""Runs a grafted notebook under nbval, and says of each check what came of it."""

import json
import re
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from qkv._files import remove_tree
from qkv.grading.graft import Exercise, exercises, graft
from qkv.grading.nbval_server import Servers
from qkv.grading.sandbox import Limits

LOSSES = 8  # kernels that one submission may lose before the rest of it is given up


class GradersFault(Exception):
    """What went wrong is no fault of the learner's; the message says what it was."""


@dataclass(frozen=True)
class Outcome:
    """What came of one check, and the line that tells the learner."""

    name: str
    status: str  # passed, wrong, stopped, missing
    points: float
    maximum: float
    line: str


@dataclass(frozen=True)
class Runner:
    """How notebooks are run: under which limits, and whether in a sandbox.

    `name` begins the names of all files and cgroups outside, so that they can be found and removed.
    After the last notebook call `close`.
    """

    name: str
    sandboxed: bool = True
    limits: Limits = Limits()
    _servers: Servers = field(default_factory=Servers, init=False, compare=False, repr=False)

    def close(self) -> None:
        """End the processes that wait for more notebooks."""
        self._servers.close()

    def stop(self) -> None:
        """End what runs, at once; nothing runs afterwards."""
        self._servers.stop()

    def expected(self, pristine: NotebookNode, seed: int) -> dict[str, str]:
        """The line that each check prints for the solution, with this seed.

        Errors:
            GradersFault: the solution does not pass its own checks here
        """
        wanted = exercises(pristine)
        sources = {e.name: _cell(pristine, e.answer_id).source for e in wanted}
        cells = self._cells(graft(pristine, sources, seed))
        lines = {}
        for exercise in wanted:
            line = cells.get(exercise.check_id, {}).get("line") or "no line"
            if not line.startswith(f"{exercise.name}: ok"):
                trouble = _reason(cells.values()) or line
                raise GradersFault(f"the solution of {exercise.name} does not pass: {trouble}")
            lines[exercise.name] = line
        return lines

    def grade(
        self,
        pristine: NotebookNode,
        sources: dict[str, str],
        seed: int,
        lines: dict[str, str] | None,
    ) -> list[Outcome]:
        """What came of each check. Without `lines` a check passes when it says "ok".

        A cell in which the kernel is lost is left out, and the rest is graded in a fresh kernel,
        with the other answers again.

        Errors:
            GradersFault: the notebook cannot be run
        """
        wanted = exercises(pristine)
        outcomes = {
            e.name: Outcome(e.name, "missing", 0, e.points, "no cell with this answer was found")
            for e in wanted
            if e.name not in sources
        }
        without: set[str] = set()
        for _ in range(LOSSES):
            grafted = graft(pristine, sources, seed, lines=lines, without=without)
            cells = self._cells(grafted)
            lost = [record for record in cells.values() if record["lost"]]
            for exercise in wanted:
                if exercise.name not in outcomes:
                    outcome = _outcome(exercise, sources[exercise.name], cells, lost, lines)
                    if outcome is not None:
                        outcomes[exercise.name] = outcome
                        without.add(exercise.check_id)
            if len(outcomes) == len(wanted):
                break
            if not lost:
                raise GradersFault("the run ended before its end")
            if not _after_an_answer(grafted, lost[0]["cell"], wanted):
                raise GradersFault(f"before any answer had run: {lost[0]['lost']}; run it again")
            without.add(lost[0]["cell"])
        for exercise in wanted:
            given_up = f"not run: this notebook's kernel was lost {LOSSES} times"
            outcomes.setdefault(
                exercise.name, Outcome(exercise.name, "stopped", 0, exercise.points, given_up)
            )
        return [outcomes[e.name] for e in wanted]

    def _cells(self, grafted: NotebookNode) -> dict[str, dict[str, Any]]:
        """What each cell gave that ran, by id; with one more try where no kernel came up."""
        for last in (False, True):
            folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
            try:
                cells, log = self._nbval(grafted, folder)
            finally:
                remove_tree(folder)
            trouble = [c["trouble"] for c in cells.values() if c["trouble"]]
            if cells and not trouble:
                return cells
            if last:
                raise GradersFault(trouble[0] if trouble else f"nbval did not run: {log[-500:]}")
        raise AssertionError

    def _nbval(self, grafted: NotebookNode, folder: Path) -> tuple[dict[str, dict[str, Any]], str]:
        """Run nbval in a process of its own; give what each cell gave, and pytest's words."""
        path = folder / "notebook.ipynb"
        path.write_text(json.dumps(grafted), encoding="utf-8")
        settings = {
            "name": self.name,
            "sandboxed": self.sandboxed,
            "limits": asdict(self.limits),
        }
        (folder / "settings.json").write_text(json.dumps(settings))
        seconds = (self.limits.patience + 10) * len(grafted.cells) + 120
        said = self._servers.run(folder, seconds)  # cut short, what ran until then counts
        records = folder / "cells.jsonl"
        found = records.read_text(encoding="utf-8").splitlines() if records.exists() else []
        log = folder / "log"
        words = log.read_text(encoding="utf-8", errors="replace") if log.exists() else said
        return {record["cell"]: record for record in map(json.loads, found)}, words


def _outcome(
    exercise: Exercise,
    source: str,
    cells: dict[str, dict[str, Any]],
    lost: list[dict[str, Any]],
    lines: dict[str, str] | None,
) -> Outcome | None:
    """What came of one check; None where the run ended before it."""
    name, most = exercise.name, exercise.points
    for record in lost:
        if record["cell"] in (exercise.answer_id, exercise.check_id):
            return Outcome(name, "stopped", 0, most, record["lost"])
    if exercise.check_id not in cells:
        return None
    record = cells[exercise.check_id]
    line = record["line"]
    ok = line is not None and line.startswith(f"{name}: ok")
    if record["passed"] and ok:
        return Outcome(name, "passed", most, most, line)
    if line is not None:
        forged = f"{name}: it says ok, but not with the numbers of a right answer"
        return Outcome(name, "wrong", 0, most, forged if ok else line)
    answer = cells.get(exercise.answer_id, {})
    error = answer.get("error") or record["error"] or "its check printed nothing"
    if error == f"NameError: name '{name}' is not defined":
        defined = re.findall(r"^(?:def|class)\s+(\w+)", source, re.MULTILINE)
        error = f"{error}; this cell defines {', '.join(defined) or 'no function'}"
    return Outcome(name, "wrong", 0, most, f"{name}: {error}")


def _after_an_answer(grafted: NotebookNode, cell_id: str, wanted: list[Exercise]) -> bool:
    """Whether a cell is a learner's, or comes after one."""
    answers = {e.answer_id for e in wanted}
    for cell in grafted.cells:
        if cell.id in answers and cell.source:
            return True
        if cell.id == cell_id:
            return False
    return False


def _cell(notebook: NotebookNode, cell_id: str) -> NotebookNode:
    found: NotebookNode = next(cell for cell in notebook.cells if cell.id == cell_id)
    return found


def _reason(cells: Iterable[dict[str, Any]]) -> str | None:
    """The first cell's error or loss."""
    for record in cells:
        if record["lost"] or record["error"]:
            return str(record["lost"] or record["error"])
    return None
