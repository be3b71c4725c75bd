"""Answers that prove what the checks are worth: right ones in other words, wrong ones by fault.

A module for each chapter, with two tables by exercise:

    RIGHT = {"softmax": [...]}         at least three; each must pass, whatever is drawn
    WRONG = {"softmax": {fault: (answer, cause)}}    the cause that the one line must name

``cd tests && python -m mutants`` writes the table of README.md, which counts them.
"""

import importlib

from qkv import checks

checks.exercises()
_MODULES = [importlib.import_module(f"mutants.{chapter}") for chapter in checks.CHAPTERS]
RIGHT = {name: answers for module in _MODULES for name, answers in module.RIGHT.items()}
WRONG = {name: faults for module in _MODULES for name, faults in module.WRONG.items()}


def table() -> str:
    """README.md: how many answers there are to each exercise."""
    names = list(checks.exercises())
    lines = [
        "# What the checks are worth",
        "",
        "Wrong answers, each refused with its own cause named, and right ones in other words,",
        "which must pass. `make test` draws 10 inputs for each right answer, `make mutants` 1,000.",
        "",
        "| exercise | wrong | right |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {len(WRONG[name])} | {len(RIGHT[name])} |" for name in names),
        f"| **{len(names)} exercises** | **{sum(map(len, WRONG.values()))}** "
        f"| **{sum(map(len, RIGHT.values()))}** |",
    ]
    return "\n".join(lines) + "\n"
