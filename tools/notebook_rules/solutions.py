"""Rules for what a learner reads in solutions/: how to work, and each exercise's text."""

import re

from nbformat import NotebookNode

from exercise_form import STUB, examples

from .chapters import promise_sentence
from .page import Found, Page

FEWEST_EXERCISES = 2
MEASURE = re.compile(r"^\*\d+ minutes, (easy|medium|hard)\*$", re.MULTILINE)
HINT = "<details><summary>Hint"


def opening_says_how_to_work(page: Page) -> Found:
    name, cell = page.cells[0] if page.cells else ("", NotebookNode(source=""))
    if f"](../chapters/{page.path.name})" not in cell.source:
        yield name, f"link the first cell to the chapter: [its title](../chapters/{page.path.name})"
    if f"`{STUB[0].strip('# ')}`" not in cell.source:
        yield name, f"say how to work: write where it says `{STUB[0].strip('# ')}`, run the check"


def exercises_are_enough(page: Page) -> Found:
    if len(_tasks(page)) < FEWEST_EXERCISES:
        yield "", f"{len(_tasks(page))} exercises: a chapter has at least {FEWEST_EXERCISES}"


def tasks_say_what_is_needed(page: Page) -> Found:
    for name, cell in _tasks(page):
        if not cell.source.startswith("## "):
            yield name, "begin the exercise's text with a heading of level 2, to be linked to"
        if not MEASURE.search(cell.source):
            yield name, "say how long and how hard, in a line such as  *10 minutes, easy*"
        if HINT not in cell.source:
            yield name, "fold a hint: <details><summary>Hint</summary>, an empty line, the hint"
        if not any(_prints(body) for body in examples(cell.source)):
            yield (
                name,
                "show an example with its result, as Python's prompt does: a block  ```python"
                "  with  >>> softmax(x)  and below it what is printed",
            )


def _tasks(page: Page) -> list[tuple[str, NotebookNode]]:
    return [(n, c) for n, c in page.cells if c.cell_type == "markdown" and n.endswith("-task")]


def _prints(example: str) -> bool:
    return any(not line.startswith((">>>", "...")) for line in example.split("\n") if line.strip())


RULES = (promise_sentence, opening_says_how_to_work, exercises_are_enough, tasks_say_what_is_needed)
