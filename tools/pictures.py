"""Draw the pictures that no notebook shows: those of the front page, and a shared link's card.

    .venv/bin/python tools/pictures.py     # writes them into _static/

A test of the built book says when one is out of date.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from qkv.experiments import trained
from qkv.figures import course, front, query_key_value
from qkv.figures.picture import Picture
from qkv.sums import SYMBOLS

STATIC = Path(__file__).resolve().parent.parent / "_static"
RUN, SEED, HEAD = "byhand_addition_4_heads", 0, 0  # whose weights; heads count from 0 here
SUM, ANSWER = "618+39", "657"


def looked() -> dict[str, object]:
    """The weights of one head of a recorded model while it wrote a sum that it never trained on."""
    seq2seq = trained(RUN)[SEED]
    source = np.array([[SYMBOLS.index(symbol) for symbol in SUM]])  # [1, n_source]
    assert (seq2seq.test_rows[0] == source).all(1).any(), f"{SUM} is no test sum"
    written = seq2seq.predict(source)  # [1, n_target]
    assert "".join(SYMBOLS[i] for i in written[0]) == ANSWER
    given = np.concatenate([[[seq2seq.start]], written[:, :-1]], axis=1)
    seq2seq.model(source, given)
    weights = seq2seq.model.decoder[0].cross_attention.weights[0, HEAD]  # [n_target, n_source]
    # Rounded, so that the last bits of another machine change no shade.
    return {"table": weights.round(2), "source": SUM, "written": ANSWER}


PICTURES: dict[str, Callable[[], Picture]] = {
    "chapters.png": course.chapters,
    "pipeline.png": query_key_value.pipeline,
    "sum.png": lambda: front.looking_back(**looked()),
    "card.png": lambda: front.card(**looked()),
}


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (STATIC / name).write_bytes(draw().png())
        print(f"_static/{name}")
