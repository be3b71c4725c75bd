"""Yes or no, asked about one case after another, in an order that no answer can know."""

from collections.abc import Callable, Sequence

from qkv.checks.draw import Draw
from qkv.checks.faults import Wrong


def verdicts(draw: Draw, asked: Sequence[Callable[[], bool]]) -> list[bool]:
    """What an answer says of each case; of several faults the first in the list is told.

    Errors:
        Wrong: a verdict is wrong, or none
    """
    found: dict[int, bool | Wrong] = {}
    for i in draw.order(len(asked)):
        try:
            found[i] = asked[i]()
        except Wrong as wrong:
            found[i] = wrong
    said = []
    for _, verdict in sorted(found.items(), key=lambda item: item[0]):
        if isinstance(verdict, Wrong):
            raise verdict
        said.append(verdict)
    return said
