"""How many submissions a minute `qkv grade` grades, beside `nbgrader autograde`, in one run.

    python benchmarks/grading.py [NUMBER] [--nbgrader PATH] [--chapter NAME] [--rounds N]

Both grade the same NUMBER copies of one chapter's solved exercises with the same Python, and take
turns. nbgrader wants other versions than the course, so it needs an environment of its own; it is
looked for on the path and in build/nbgrader, where this makes one:

    python -m venv build/nbgrader && build/nbgrader/bin/pip install nbgrader==0.9.6
"""

import argparse
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORKERS = 2
AIM = 2.5
QKV = [sys.executable, "-c", "from qkv.grading.cli import main; main()"]


def class_of(number: int, solution: Path, folder: Path, inside: str) -> None:
    """Hand in the same notebook `number` times; `inside` is the path within a learner's folder."""
    for i in range(number):
        path = folder / f"learner{i:03d}" / inside
        path.parent.mkdir(parents=True)
        shutil.copy(solution, path)


def ours(submissions: Path, out: Path, number: int) -> float:
    """Seconds that `qkv grade` takes, from nothing."""
    words = ["grade", submissions, "--out", out, "--workers", WORKERS]
    seconds = timed([*QKV, *map(str, words)])
    with open(out / "grades.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    full = [row for row in rows if row["status"] == "graded" and row["total"] == row["maximum"]]
    assert len(full) == number, rows
    return seconds


def theirs(nbgrader: str, course: Path, number: int, environment: dict[str, str]) -> float:
    """Seconds that `nbgrader autograde` takes, from nothing."""
    shutil.rmtree(course / "autograded", ignore_errors=True)
    words = ["autograde", "class", "--force", f"--course-dir={course}"]
    words += ["--Execute.timeout=120", "--Execute.iopub_timeout=120"]  # on a busy machine
    # Their kernels get one thread as well, and run here, as ours do; no output is wanted.
    seconds = timed([nbgrader, *words], environment)
    graded = list((course / "autograded").glob("*/class/*.ipynb"))
    assert len(graded) == number, graded
    cells = json.loads(graded[0].read_text())["cells"]
    checks = [c for c in cells if c["metadata"].get("nbgrader", {}).get("grade")]
    assert checks and all(": ok" in "".join(c["outputs"][0]["text"]) for c in checks)
    return seconds


def timed(command: list[str], environment: dict[str, str] | None = None) -> float:
    begin = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.monotonic() - begin


def prepare(nbgrader: str, solution: Path, number: int, folder: Path) -> dict[str, str]:
    """A course of nbgrader's in `folder`, with its submissions; gives the environment to run in."""
    kernel = folder / "jupyter" / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": argv, "display_name": "here", "language": "python"}))
    environment = {**os.environ, "JUPYTER_PATH": str(folder / "jupyter"), "OMP_NUM_THREADS": "1"}
    # nbgrader calls alembic, which lies beside it.
    environment["PATH"] = os.pathsep.join([str(Path(nbgrader).parent), os.environ["PATH"]])
    source = folder / "source" / "class" / solution.name
    source.parent.mkdir(parents=True)
    shutil.copy(solution, source)
    timed([nbgrader, "generate_assignment", "class", f"--course-dir={folder}"], environment)
    class_of(number, solution, folder / "submitted", f"class/{solution.name}")
    return environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("number", nargs="?", type=int, default=20, help="submissions")
    places = os.pathsep.join([os.environ["PATH"], str(ROOT / "build" / "nbgrader" / "bin")])
    parser.add_argument(
        "--nbgrader", default=shutil.which("nbgrader", path=places), help="its command"
    )
    parser.add_argument("--chapter", default="01-query-key-value", help="whose exercises")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.nbgrader is None:
        parser.error("nbgrader is missing: the top of this file says how to install it")
    solution = ROOT / "solutions" / f"{given.chapter}.ipynb"
    ratios = []
    print("| submissions | qkv grade, a minute | nbgrader autograde, a minute | ratio |")
    print("| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        class_of(given.number, solution, folder / "in", solution.name)
        environment = prepare(given.nbgrader, solution, given.number, folder / "course")
        for turn in range(given.rounds):
            sides = {
                "ours": lambda turn=turn: ours(folder / "in", folder / f"{turn}", given.number),
                "theirs": lambda: theirs(
                    given.nbgrader, folder / "course", given.number, environment
                ),
            }
            order = sorted(sides, reverse=turn % 2 == 1)  # who goes first alternates
            spent = {name: sides[name]() for name in order}
            ratios.append(spent["theirs"] / spent["ours"])
            a_minute = {name: 60 * given.number / seconds for name, seconds in spent.items()}
            print(
                f"| {given.number} | {a_minute['ours']:.1f} | {a_minute['theirs']:.1f} "
                f"| {ratios[-1]:.2f} |",
                flush=True,
            )
    ratio = statistics.median(ratios)
    print(f"\nMedian {ratio:.2f}, aim {AIM}: {'met' if ratio >= AIM else 'MISSED'}")


if __name__ == "__main__":
    main()
