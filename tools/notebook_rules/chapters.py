"""Rules for chapters: promise kept, recall, predictions, the right-looking mistake."""

import itertools
import re

from nbformat import NotebookNode

from notebook_form import SET_UP_ID
from notebook_markdown import html, plain, text

from .page import Found, Page

PROMISE, KEPT = "By the end you can", "In this chapter you"
FEWEST_GOALS, MOST_GOALS = 3, 5
FEWEST_PREDICTIONS, MOST_PREDICTIONS = 2, 4
RECALLS = 3


def promise_sentence(page: Page) -> Found:
    blocks = page.prose.blocks
    if not blocks:
        return
    name, following = blocks[1] if len(blocks) > 1 else blocks[0]
    sentence = text(following).strip()
    if following.type != "paragraph" or name != page.cells[0][0]:
        yield page.cells[0][0], "let one sentence of promise follow the title, in the same cell"
    elif not sentence.endswith((".", "!", "?")) or re.search(r"[.!?]\s+[A-Z]", sentence):
        yield name, "the paragraph below the title must be one sentence: the promise"


def opening_says_how_long(page: Page) -> Found:
    opening = ""
    for _, cell in page.cells:
        if cell.cell_type == "code":
            break
        opening += cell.source
    if not re.search(r"\d+\s+minutes", opening):
        yield "", 'before the set-up cell, say what is needed and how long it takes: "40 minutes"'


def goals_are_kept(page: Page) -> Found:
    goals, kept = page.prose.bullets_after(PROMISE), page.prose.bullets_after(KEPT)
    if not goals or not FEWEST_GOALS <= len(goals) <= MOST_GOALS:
        yield (
            "",
            f'"{PROMISE}" has {len(goals or [])} bullets directly below it: write'
            f" {FEWEST_GOALS} to {MOST_GOALS} that can be tested",
        )
    if not kept or len(kept) != len(goals or []):
        yield (
            "",
            f'"{KEPT}" has {len(kept or [])} bullets directly below it,'
            f' "{PROMISE}" has {len(goals or [])}: close with the same bullets, done',
        )
        return
    for goal, done in zip(goals or [], kept, strict=True):
        if _but_for_verbs(goal) != _but_for_verbs(done):
            yield (
                "",
                f'the closing bullet "{done}" does not answer "{goal}": use the same words, but'
                ' for the first one and those after "and", which are verbs',
            )


def _but_for_verbs(bullet: str) -> list[str]:
    """The words that stay the same when "find … and show …" becomes "found … and showed …"."""
    words = ["and", *plain(bullet).split()]
    return [word for before, word in itertools.pairwise(words) if before != "and"]


def recall_opens(page: Page) -> Found:
    if page.number == "00":
        return
    names = [name for name, _ in page.cells]
    below = page.prose.section("Recall")
    if below is None:
        yield "", f"no heading Recall: open the chapter with {RECALLS} folded questions"
        return
    count = html(below).count("<details")
    name = below[0][0] if below else ""
    if count != RECALLS:
        yield name, f"{count} <details> below the heading Recall: fold {RECALLS} questions there"
    first_code = next((n for n, _ in page.code if n != SET_UP_ID), names[-1])
    if name and names.index(name) > names.index(first_code):
        yield name, "Recall comes after the first code: let it open the chapter"


def predictions_are_asked(page: Page) -> Found:
    answers = [i for i, (_, cell) in enumerate(page.cells) if _hides_output(cell)]
    if not FEWEST_PREDICTIONS <= len(answers) <= MOST_PREDICTIONS:
        yield (
            "",
            f"{len(answers)} cells are tagged hide-output: let {FEWEST_PREDICTIONS} to"
            f" {MOST_PREDICTIONS} answer a question that asks for a prediction",
        )
    for i in answers:
        name = page.cells[i][0]
        question, explained = (_markdown(page, j) for j in (i - 1, i + 1))
        if [letter for letter in "abcd" if f"({letter})" in question] != ["a", "b", "c"]:
            yield (
                name,
                "hides an answer: let the markdown cell directly before it ask the question and"
                " offer (a), (b) and (c)",
            )
        if "<details" not in explained or any(f"({x})" not in explained for x in "abc"):
            yield (
                name,
                "hides an answer: let a markdown cell follow directly whose <details> says why"
                " each of (a), (b) and (c) tempts",
            )


def _markdown(page: Page, index: int) -> str:
    if not 0 <= index < len(page.cells) or page.cells[index][1].cell_type != "markdown":
        return ""
    return str(page.cells[index][1].source)


def _hides_output(cell: NotebookNode) -> bool:
    return "hide-output" in cell.metadata.get("tags", [])


def mistake_is_shown(page: Page) -> Found:
    heading = next(
        (h for h in page.prose.headings if plain(h.text).startswith("right-looking, wrong")), None
    )
    if heading is None:
        yield (
            "",
            'no heading that begins "Right-looking, wrong": show the commonest mistake, its'
            " output and how one would notice",
        )
        return
    names = [name for name, _ in page.cells]
    headed = {h.cell for h in page.prose.headings if h is not heading}
    for name, cell in page.cells[names.index(heading.cell) + 1 :]:
        if name in headed:
            break
        if cell.cell_type == "code" and cell.outputs:
            return
    yield heading.cell, "no output below this heading: let a code cell show the mistake at work"


RULES = (
    promise_sentence,
    opening_says_how_long,
    goals_are_kept,
    recall_opens,
    predictions_are_asked,
    mistake_is_shown,
)
