"""Rules for how cells are stored, and for the code in them and what it puts out."""

import ast
import re

from exercise_form import is_answer
from notebook_form import (
    COMMAND,
    OWN_METADATA,
    SET_UP_ID,
    SET_UP_TAG,
    canonical_text,
    run_hash,
    set_up_source,
    table,
)

from .page import SPEAKING_ID, Found, Page

KNOWN_TAGS = {"hide-cell", "hide-input", "hide-output", "nbval-ignore-output"}
MOST_LINES, WIDEST_LINE = 20, 79
MOST_ANSWER_LINES = 40  # with what is given and the marks; it cannot be split
RANDOM_ID = re.compile(r"(?=.*\d)[0-9a-f]+(-[0-9a-f]+)*")


def stored_as_run_left_it(page: Page) -> Found:
    mend = f"run {COMMAND} run {page.path}"
    for number, (name, cell) in enumerate(page.code, 1):
        if cell.execution_count != number:
            count = cell.execution_count
            yield name, f"execution count is {count}, expected {number} (in order): {mend}"
            break
    stored = table(page.notebook, "metadata", OWN_METADATA).get("run_hash")
    if stored != run_hash(page.notebook):
        what = "code or outputs changed since `run` stored them" if stored else "never executed"
        yield "", f"{what}: {mend}"
    if page.path.read_bytes() != canonical_text(page.notebook).encode():
        yield "", f"not stored canonically (metadata, key order, line ends): {mend}"


def ids_speak(page: Page) -> Found:
    for name, _ in page.cells:
        if not SPEAKING_ID.fullmatch(name) or RANDOM_ID.fullmatch(name):
            yield (
                name,
                "this id says nothing: name what the cell shows in small letters, digits and"
                ' hyphens, such as "scores-of-it"',
            )


def cells_are_plain(page: Page) -> Found:
    for name, cell in page.cells:
        if cell.cell_type not in ("code", "markdown"):
            yield name, f"a {cell.cell_type} cell: use markdown or code"
        if not cell.source.strip():
            yield name, "an empty cell: delete it"
        for tag in cell.metadata.get("tags", []):
            if tag not in KNOWN_TAGS:
                yield name, f"unknown tag {tag!r}: use one of {', '.join(sorted(KNOWN_TAGS))}"


def set_up_first(page: Page) -> Found:
    if not page.code or page.code[0][0] != SET_UP_ID:
        name = page.code[0][0] if page.code else ""
        yield name, "the first code cell must be the set-up cell: run make set-up"
        return
    name, cell = page.code[0]
    if cell.source != set_up_source() or cell.metadata.get("tags") != [SET_UP_TAG]:
        yield name, "not the template's text and tag: run make set-up"
    if cell.outputs:
        yield name, "has outputs: install qkv where the notebooks are run, then run this one"


def code_is_short(page: Page) -> Found:
    for name, cell in page.code:
        if name == SET_UP_ID:
            continue
        lines = cell.source.splitlines()
        most = MOST_ANSWER_LINES if is_answer(cell) else MOST_LINES
        if len(lines) > most:
            yield name, f"{len(lines)} lines of code, at most {most}: split the cell"
        for number, line in enumerate(lines, 1):
            if len(line) > WIDEST_LINE:
                yield (
                    name,
                    f"line {number} has {len(line)} characters, at most {WIDEST_LINE}"
                    " (phones): break it",
                )


def code_is_python(page: Page) -> Found:
    for name, cell in page.code:
        try:
            ast.parse(cell.source)
        except (SyntaxError, ValueError) as error:  # ValueError: a null character
            yield (
                name,
                f"line {getattr(error, 'lineno', 1)} is not plain Python: if it is a % or ! or ?"
                " command, write it in Python, else mend it",
            )


def outputs_are_clean(page: Page) -> Found:
    for name, cell in page.code:
        for output in cell.outputs:
            if output.output_type == "error":
                yield name, f"stores an error ({output.get('ename')}): catch it and print it"
            if output.output_type == "stream" and output.name == "stderr":
                first = output.text.strip().split("\n")[0][:80]
                yield name, f"writes to stderr ({first}): print to stdout or mend the warning"


def ignored_outputs_are_asserted(page: Page) -> Found:
    for (name, cell), (_, following) in zip(page.code, [*page.code[1:], ("", None)], strict=False):
        if "nbval-ignore-output" in cell.metadata.get("tags", []):
            if following is None or not _asserts(following.source):
                yield (
                    name,
                    "its output is not compared (nbval-ignore-output): let the next code cell"
                    " assert what must hold anyway",
                )


def _asserts(source: str) -> bool:
    try:
        return any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return False


RULES = (
    ids_speak,
    stored_as_run_left_it,
    cells_are_plain,
    set_up_first,
    code_is_short,
    code_is_python,
    outputs_are_clean,
    ignored_outputs_are_asserted,
)
