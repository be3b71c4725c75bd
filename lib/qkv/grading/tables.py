"""What an instructor's tools read: grades.csv, problems.csv, JUnit XML, Gradescope's JSON."""

import csv
import io
import json
import re
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from qkv._files import write_whole
from qkv.grading.course import Pristine
from qkv.grading.graft import UNTOUCHED
from qkv.grading.results import GRADED, Result, file_name
from qkv.grading.submissions import Refused

NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def grades(path: Path, results: list[Result], course: list[Pristine]) -> None:
    """A row for each learner and notebook, a column for each check."""
    checks = list(dict.fromkeys(e.name for pristine in course for e in pristine.exercises))
    handed_in = {result.notebook for result in results}
    used = {e.name for p in course if p.name in handed_in for e in p.exercises}
    checks = [name for name in checks if name in used]
    rows = [["learner", "id", "notebook", *checks, "total", "maximum", "status"]]
    for result in results:
        points = {o.name: f"{o.points:g}" for o in result.outcomes}
        graded = result.status == GRADED
        sums = [f"{result.points:g}", f"{result.maximum:g}"] if graded else ["", ""]
        who = [result.learner, result.platform_id, result.notebook]
        rows.append([*who, *(points.get(name, "") for name in checks), *sums, result.status])
    _write_csv(path, rows)


def problems(path: Path, results: list[Result], older: list[Refused]) -> None:
    """All that an instructor should look at, and why."""
    rows = [["learner", "file", "what", "why"]]
    for result in results:
        if result.status != GRADED:
            rows.append([result.learner, result.path, result.status, result.reason])
        rows += [[result.learner, result.path, "odd", remark] for remark in result.remarks]
    for one in sorted(older, key=lambda one: (one.learner, one.shown)):
        rows.append([one.learner, one.shown, "not graded", one.reason])
    for result, name, others in identical(results):
        why = f"{name}: the same answer, letter by letter, as {', '.join(others)}"
        rows.append([result.learner, result.path, "identical", why])
    _write_csv(path, rows)


def identical(results: list[Result]) -> list[tuple[Result, str, list[str]]]:
    """Answers that several learners gave letter by letter: whose, to what, and who else."""
    same: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for result in results:
        for name, source in result.answers.items():
            if source.strip() and not UNTOUCHED.search(source):
                same[result.notebook, name, source.strip()].append(result)
    found = []
    for (_, name, _), group in same.items():
        for result in group:
            others = [r.learner for r in group if r is not result]
            if others:
                found.append((result, name, others))
    return found


def junit(path: Path, results: list[Result]) -> None:
    """A suite for each submission, a case for each check."""
    root = ElementTree.Element("testsuites", name="qkv grade")
    for result in results:
        failed = sum(o.status != "passed" for o in result.outcomes)
        broken = result.status != GRADED
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_xml(f"{result.learner} {result.notebook}".strip()),
            tests=str(len(result.outcomes) + broken),
            failures=str(failed),
            errors=str(int(broken)),
        )
        group = _xml(result.notebook or result.path)
        if broken:
            case = ElementTree.SubElement(suite, "testcase", classname=group, name="notebook")
            ElementTree.SubElement(case, "error", message=_xml(f"{result.status}: {result.reason}"))
        for outcome in result.outcomes:
            case = ElementTree.SubElement(suite, "testcase", classname=group, name=outcome.name)
            if outcome.status != "passed":
                ElementTree.SubElement(
                    case, "failure", type=outcome.status, message=_xml(outcome.line)
                )
    write_whole(path, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def gradescope(folder: Path, results: list[Result]) -> None:
    """For each learner a results.json in Gradescope's form, in a folder of the learner's own."""
    learners: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        learners[result.learner, result.platform_id].append(result)
    for who, group in learners.items():
        tests = [
            {
                "name": f"{result.notebook}: {o.name}",
                "score": o.points,
                "max_score": o.maximum,
                "status": "passed" if o.status == "passed" else "failed",
                "output": o.line,
            }
            for result in group
            for o in result.outcomes
        ]
        said = [f"{r.path}: {r.status}. {r.reason}" for r in group if r.status != GRADED]
        content = {
            "score": sum(r.points for r in group),
            "output": "\n".join(said),
            "tests": tests,
        }
        own = folder / file_name(*who)
        own.mkdir(parents=True, exist_ok=True)
        write_whole(own / "results.json", json.dumps(content, indent=1) + "\n")


def _write_csv(path: Path, rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_cell(c) for c in row] for row in rows)
    # With a byte order mark, or Excel reads names as Latin-1.
    write_whole(path, b"\xef\xbb\xbf" + text.getvalue().encode("utf-8", "replace"))


def _cell(text: str) -> str:
    """A spreadsheet takes what begins so for a formula, and learners choose file names."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _xml(text: str) -> str:
    return NOT_XML.sub("?", text)
