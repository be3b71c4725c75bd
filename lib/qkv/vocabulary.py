"""Text to ids and back."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Vocabulary:
    """The symbols that a task is written in; a symbol's id is its place among them.

    Its length is the size to give a model: ``len(vocabulary)`` ids, 0 … len - 1.

    Errors:
        TypeError, ValueError: symbols is not a string, is empty, repeats a character, or
            holds a tab or a line break, which part the columns and lines of a file
    """

    symbols: str

    def __post_init__(self) -> None:
        if not isinstance(self.symbols, str):
            raise TypeError(
                f"symbols must be a str, one character a symbol, "
                f"got {type(self.symbols).__name__}: {self.symbols!r}"
            )
        repeated = sorted({s for s in self.symbols if self.symbols.count(s) > 1})
        if repeated or not self.symbols:
            what = f"repeats {', '.join(map(repr, repeated))}" if repeated else "is empty"
            raise ValueError(f"symbols {what}: {self.symbols!r}; give each symbol once")

        breaks = [s for s in self.symbols if s in "\t\n\r"]
        if breaks:
            raise ValueError(
                f"symbols holds {', '.join(map(repr, breaks))}: {self.symbols!r}; a tab or a line "
                f"break would tear a row of a file apart, so give another character"
            )

    def __len__(self) -> int:
        return len(self.symbols)

    def ids(self, text: str) -> Tensor:
        """Text to ids.

        Shapes:
            returns: int64 [n], one id a character
        Errors:
            TypeError: text is not a string
            ValueError: text holds a symbol that the vocabulary does not know
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, got {type(text).__name__}: {text!r}")
        place = {symbol: i for i, symbol in enumerate(self.symbols)}
        try:
            return torch.tensor([place[symbol] for symbol in text], dtype=torch.int64)
        except KeyError as error:
            unknown: str = error.args[0]
            raise ValueError(
                f"text holds {unknown!r} at position {text.index(unknown)}; "
                f"the vocabulary knows only the symbols {self.symbols}"
            ) from None

    def text(self, ids: Tensor | Sequence[int]) -> str:
        """Ids back to text, padding and start included.

        Shapes:
            ids: whole numbers [n], a tensor or a list; for many rows call it on each
        Errors:
            TypeError: ids are not whole numbers
            ValueError: ids are no single row, or one lies outside 0 … len - 1
        """
        if isinstance(ids, str):
            raise TypeError(f"ids must be whole numbers, got the str {ids!r}; text has ids(text)")
        try:
            row = torch.as_tensor(ids)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(
                f"ids must be whole numbers, a tensor or a list, got {type(ids).__name__}: {ids!r}"
            ) from None
        if row.dim() != 1:
            raise ValueError(
                f"ids must be one row [n], got {list(row.shape)}; for many rows call text on each"
            )
        whole = not (row.is_floating_point() or row.is_complex() or row.dtype == torch.bool)
        if row.numel() and not whole:
            raise TypeError(f"ids must hold whole numbers, got {row.dtype}")
        places: list[int] = row.tolist()
        for i, place in enumerate(places):
            if not 0 <= place < len(self):
                raise ValueError(
                    f"ids holds {place} at position {i}, outside the vocabulary 0 … {len(self) - 1}"
                )
        return "".join(self.symbols[place] for place in places)
