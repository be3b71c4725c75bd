"""What an instructor should know of a learner's code, and the learner of what is not graded."""

import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass, field

from nbformat import NotebookNode

from qkv.grading.reading import CONFLICT

LONG_CODE = 20_000  # characters of a cell that is looked into for names, and of an answer
MOST_CODE = 200_000  # characters that are looked into, of all cells that are no answers
# What hides code from who reads the feedback page.
HIDING = {
    re.compile(r"^.{2001}", re.MULTILINE): "a line of over 2,000 characters",
    re.compile(r"^([^\S\n]*\n){51}", re.MULTILINE): "over 50 blank lines in a row",
    re.compile(r"\S[^\S\n]{101}"): "over 100 blanks in a row",
    re.compile(
        r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)"
    ): "control characters",
}


def odd(source: str) -> Iterator[str]:
    """What an instructor should know of an answer's code."""
    if CONFLICT.search(source):
        yield "the answer holds the marks of a merge conflict (<<<<<<<); keep one side"
    if len(source) > LONG_CODE:
        yield f"the answer has {len(source):,} characters: look at it closely"
        return
    for pattern, words in HIDING.items():
        if pattern.search(source):
            yield f"the answer holds {words}: look at it closely"


def left_out(
    others: list[tuple[int, str]],
    pristine: NotebookNode,
    names: dict[str, str],
    sources: dict[str, str],
) -> list[str]:
    """A remark on code that an answer needs, or may be meant as one, in these other cells.

    `names` gives the exercise that each answer cell of the pristine notebook belongs to, by id.
    """
    there: set[str] = set()
    needed: set[str] = set()
    for cell in pristine.cells:
        if cell.cell_type == "code":
            is_answer = cell.id in names
            code = _Code.of(sources.get(names[cell.id], "") if is_answer else cell.source)
            there |= code.defined
            needed |= code.used - there if is_answer else set()
    found = []
    looked_at = 0
    for number, source in others:
        looked_at += min(len(source), LONG_CODE)
        if looked_at > MOST_CODE:
            break
        code = _Code.of(source)
        lost = code.defined & needed | code.functions & set(names.values())
        if lost:
            found.append(f"cell {number} defines {_some(sorted(lost))}")
    if not found:
        return []
    return [
        f"code outside the answer cells is not graded: {_some(found, 'more cells')};"
        " put it into the cell of the answer that needs it"
    ]


@dataclass(frozen=True)
class _Code:
    """The names that code defines at top level, those of functions, and those it only uses."""

    defined: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, source: str) -> "_Code":
        """All are empty where the code is long, or is no Python."""
        if len(source) > LONG_CODE:
            return cls()
        try:
            tables = [symtable.symtable(source, "cell", "exec")]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return cls()
        top = tables[0].get_symbols()
        functions = {s.get_name() for s in top if s.is_namespace()}
        defined = {s.get_name() for s in top if s.is_assigned() or s.is_imported()} | functions
        used = set()
        while tables:
            table = tables.pop()
            tables += table.get_children()
            used |= {s.get_name() for s in table.get_symbols() if s.is_global()}
        return cls(defined, functions, used - defined)


def _some(words: list[str], more: str = "more") -> str:
    """The first three of these words, and how many there are more."""
    more = f" and {len(words) - 3} {more}" if len(words) > 3 else ""
    return ", ".join(word[:100] for word in words[:3]) + more
