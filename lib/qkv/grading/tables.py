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
from qkv.grading.results import GRADED, GRADERS_FAULT, Result, file_name
from qkv.grading.submissions import Refused

NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Controls, halves of pairs, and what turns the direction of text: they change what is seen.
NOT_PLAIN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
FORMULA = re.compile(r"[\s\u200b-\u200f\u2060\ufeff]*[=+\-@＝＋－＠]")


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
        who = [result.learner, result.platform_id, result.notebook or result.path]
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
    for group, names in identical(results):
        learners = "; ".join(result.learner for result in group)
        paths = "; ".join(result.path for result in group)
        why = f"{', '.join(names)}: the same answer{'s' * (len(names) > 1)}, letter by letter"
        rows.append([learners, paths, "identical", why])
    _write_csv(path, rows)


def identical(results: list[Result]) -> list[tuple[list[Result], list[str]]]:
    """Groups of learners, and to which exercises of one notebook their answers are the same."""
    same: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for result in results:
        for name, source in result.answers.items():
            if source.strip() and not UNTOUCHED.search(source):
                same[result.notebook, name, source.strip()].append(result)
    groups: dict[tuple[str, ...], tuple[list[Result], list[str]]] = {}
    for (notebook, name, _), group in same.items():
        if len({(result.learner, result.platform_id) for result in group}) > 1:
            key = (notebook, *(result.path for result in group))
            groups.setdefault(key, (group, []))[1].append(name)
    return list(groups.values())


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
    """For each learner a results.json in Gradescope's form, in a folder of the learner's own.

    Where nothing of a learner's is graded, and that is the grader's fault, there is none. Folders
    of learners who are not there are removed.
    """
    learners: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        learners[result.learner, result.platform_id].append(result)
    kept = set()
    for who, group in learners.items():
        ended = {result.status for result in group}
        if GRADERS_FAULT in ended and GRADED not in ended:
            continue
        own = folder / file_name(*who)
        own.mkdir(parents=True, exist_ok=True)
        write_whole(own / "results.json", json.dumps(_gradescope(group), indent=1) + "\n")
        kept.add(own.name)
    for old in folder.glob("*"):
        if old.name not in kept and old.is_dir() and not old.is_symlink():
            _remove(old)


def _gradescope(group: list[Result]) -> dict[str, object]:
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
    said = [f"{r.path}: {_why(r)}" for r in group if r.status != GRADED]
    return {"score": sum(r.points for r in group), "output": "\n".join(said), "tests": tests}


def _why(result: Result) -> str:
    """For the learner, who needs to know nothing of what went wrong inside the grader."""
    if result.status == GRADERS_FAULT:
        return "not graded yet, which is not your doing. The points of this notebook are missing."
    return f"{result.status}. {result.reason}"


def _remove(old: Path) -> None:
    """Remove a folder that holds nothing but what is written here."""
    files = list(old.iterdir())
    if all(re.fullmatch(r"results\.json|\.results\.json\.\d+\.tmp", file.name) for file in files):
        for file in files:
            file.unlink()
        old.rmdir()


def plain(text: str) -> str:
    """Text on one line, without what a terminal or a spreadsheet would obey."""
    return NOT_PLAIN.sub(lambda found: " " if found[0].isspace() else "?", text)


def _write_csv(path: Path, rows: list[list[str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([_cell(c) for c in row] for row in rows)
    # With a byte order mark, or Excel reads names as Latin-1.
    write_whole(path, b"\xef\xbb\xbf" + text.getvalue().encode())


def _cell(text: str) -> str:
    """A spreadsheet takes what begins so for a formula, and learners choose file names."""
    text = plain(text)
    return f"'{text}" if FORMULA.match(text) else text


def _xml(text: str) -> str:
    return NOT_XML.sub("?", text)
