"""The commands `qkv check` and `qkv grade`."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from nbformat import NotebookNode
from tqdm import tqdm  # type: ignore[import-untyped]

from qkv.grading import feedback, graft, sandbox, tables
from qkv.grading.course import Pristine, from_checks, load, which
from qkv.grading.job import Job
from qkv.grading.reading import NotUnderstood, read
from qkv.grading.results import GRADED, GRADERS_FAULT, Result
from qkv.grading.run import GradersFault, Runner
from qkv.grading.submissions import Refused, Submission, find

COURSE = click.option(
    "--course",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of the course's repository. [default: the one qkv is installed from, or here]",
)


@click.group()
def main() -> None:
    """Check and grade the course's exercises."""


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@COURSE
def check(file: Path, course: Path | None) -> None:
    """Say which answers in FILE, a notebook of exercises, are right.

    Your answers are run in a fresh copy of the notebook, from top to bottom. The code runs as you.
    """
    try:
        notebook = read(file.read_bytes())
        pristine = _pristine(notebook, file.name, course)
        found = graft.answers(notebook, pristine.exercises, pristine=pristine.notebook)
        runner = Runner("qkv-check", sandboxed=False)
        most = f"{runner.limits.seconds:g} s"
        click.echo(f"Your answers run; a cell that computes for over {most} is stopped.", err=True)
        outcomes = runner.grade(pristine.notebook, found.sources, 0, None)
        runner.close()
    except (NotUnderstood, GradersFault, OSError) as error:
        raise click.ClickException(f"{file}: {error}") from None
    for outcome in outcomes:
        line = outcome.line.removeprefix(f"{outcome.name}: ")
        colour = "green" if outcome.status == "passed" else "red"
        click.echo(f"{click.style(outcome.name, fg=colour)}: {line}")
    for remark in found.remarks:
        click.echo(f"Note: {remark}.")
    passed = sum(outcome.status == "passed" for outcome in outcomes)
    click.echo(f"{passed} of {len(outcomes)} right.")
    raise SystemExit(passed < len(outcomes))


@main.command()
@click.argument(
    "submissions", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for grades and feedback.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many submissions run at a time: at most one for each processor core.",
)
@click.option("--again", is_flag=True, help="Grade all anew, not only what changed.")
@click.option(
    "--no-sandbox", is_flag=True, help="Run learners' code as you, with your files and network."
)
@COURSE
def grade(
    submissions: tuple[Path, ...],
    out: Path,
    workers: int,
    again: bool,
    no_sandbox: bool,
    course: Path | None,
) -> None:
    """Grade SUBMISSIONS: folders, zips of Canvas or Moodle, or single notebooks.

    The exit code is 1 where nothing could be graded, or something not by the grader's fault.
    """
    try:
        if not no_sandbox:
            sandbox.probe()
        notebooks = load(course, "solutions")
        found, refused = find(submissions, but=out.resolve())
        _some(submissions, found, refused)
        with _about(out):
            job = Job(out, notebooks, sandboxed=not no_sandbox, again=again, workers=workers)
        with tqdm(total=len(found) + len(refused), unit="notebook") as bar:
            results = job.grade(found, refused, lambda result: bar.update())
            bar.update(bar.total - bar.n)  # older versions are not graded
    except (sandbox.NoSandbox, ValueError, OSError) as error:
        raise click.ClickException(tables.plain(str(error))) from None
    except KeyboardInterrupt:
        click.echo("Stopped. What was graded is kept: give the same command to go on.", err=True)
        raise SystemExit(130) from None
    with _about(out):
        tables.grades(out / "grades.csv", results, notebooks)
        tables.problems(out / "problems.csv", results, job.older)
        tables.junit(out / "junit.xml", results)
        tables.gradescope(out / "gradescope", results)
        feedback.write(out / "feedback", results)
    _show(results, out)
    if job.earlier:
        click.echo(f"{job.earlier} of an earlier run: their files were not given this time.")
    graded = sum(result.status == GRADED for result in results)
    fault = any(result.status == GRADERS_FAULT for result in results)
    raise SystemExit(fault or graded == job.earlier)


@contextmanager
def _about(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"--out {out}: cannot write there: {error}") from None


def _some(places: Iterable[Path], found: list[Submission], refused: list[Refused]) -> None:
    """Refuse to go on where there is nothing to grade.

    Errors:
        ValueError: there is no notebook
    """
    if not found:
        message = f"no notebook in {', '.join(map(str, places))}"
        if refused:
            one = refused[0]
            message += f"; {len(refused)} of other kinds, such as {one.shown}: {one.reason}"
        raise ValueError(message)


def _pristine(notebook: NotebookNode, name: str, course: Path | None) -> Pristine:
    try:
        return which(notebook, name, load(course, "exercises"))
    except ValueError:
        return from_checks(notebook)


def _show(results: list[Result], out: Path) -> None:
    """The table at the end."""
    rows: list[tuple[str, ...]] = [("learner", "notebook", "points", "status")]
    for result in results:
        points = f"{result.points:g} of {result.maximum:g}" if result.status == GRADED else ""
        words = (result.learner, result.notebook or result.path, points, result.status)
        rows.append(tuple(map(tables.plain, words)))
    widths = [min(40, max(map(len, column))) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (text[:width].ljust(width) for text, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
    graded = sum(result.status == GRADED for result in results)
    problems = tables.plain(str(out / "problems.csv"))
    click.echo(f"{graded} graded, {len(results) - graded} not: see {problems}.")
