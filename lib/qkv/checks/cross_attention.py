"""Chapter 04: every shape, cross-attention, words that go together, a look-up made by hand."""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.attention import attention
from qkv.checks.answer import Answer
from qkv.checks.draw import Draw
from qkv.checks.exercise import exercise
from qkv.checks.faults import Wrong, equal, has_shape, holds, kind, likely, numbers

SIZES = ("n_q", "n_kv", "width_q", "width_kv", "d_k", "d_v")
SHAPES = {
    "W_Q": "width_q d_k",
    "W_K": "width_kv d_k",
    "W_V": "width_kv d_v",
    "Q": "n_q d_k",
    "K": "n_kv d_k",
    "V": "n_kv d_v",
    "scores": "n_q n_kv",
    "output": "n_q d_v",
}
OTHER_SHAPES = {
    ("W_Q", "width_kv d_k"): "W_Q meets the target, so its rows are the target's width",
    ("W_Q", "n_q width_q"): "these are the sizes of x_q; W_Q leads from its width to d_k",
    ("W_K", "width_q d_k"): "keys are made from the source, so W_K's rows are the source's width",
    ("W_V", "width_q d_v"): "values come from the source, so W_V's rows are the source's width",
    ("W_V", "width_kv d_k"): "values have a width of their own, d_v",
    ("Q", "n_kv d_k"): "one query for each token of the target",
    ("K", "n_q d_k"): "one key for each token of the source",
    ("K", "n_kv d_v"): "keys are compared with queries, so they have the same width",
    ("V", "n_q d_v"): "one value for each token of the source",
    ("V", "n_kv d_k"): "values have a width of their own, d_v",
    ("scores", "n_kv n_q"): "each query has a row, each key a column",
    ("scores", "n_q n_q"): "the target asks the source, not itself: a column for each key",
    ("scores", "n_kv n_kv"): "the source is asked and does not ask: a row for each query",
    ("output", "n_kv d_v"): "the output answers the queries: a row for each of them",
    ("output", "n_q d_k"): "a blend of values is as wide as a value",
    ("output", "n_q width_q"): "the target's width comes only after W_O, which is not here",
}


def shapes(*sizes: int) -> dict[str, list[int]]:
    """The shape of every matrix."""
    size = dict(zip(SIZES, sizes, strict=True))
    return {name: [size[word] for word in shape.split()] for name, shape in SHAPES.items()}


@exercise("shapes", shapes)
def try_shapes(answer: Answer, draw: Draw) -> Iterable[object]:
    """n_q, n_kv, width_q, width_kv, d_k, d_v -> a dict from the matrix's name to its shape."""
    for _ in range(6):
        sizes = [int(size) for size in draw.rng.permutation(range(2, 40))[:6]]
        size, seen = dict(zip(SIZES, sizes, strict=True)), answer(*sizes)
        holds(
            isinstance(seen, dict),
            f"it returns {kind(seen)}, expected a dict from names to shapes",
        )
        for name, shape in shapes(*sizes).items():
            holds(
                name in seen, f"{name} is missing in what it returns: {', '.join(map(str, seen))}"
            )
            found = [int(number) for number in numbers(f"shape of {name}", seen[name]).flatten()]
            if found == shape:
                continue
            said = f"the shape of {name} is {found}, expected {shape}"
            for (other, words), cause in OTHER_SHAPES.items():
                same = other == name and found == [size[word] for word in words.split()]
                holds(not same, f"{said}: {cause}")
            holds(found != shape[::-1], f"{said}: rows first, then columns")
            raise Wrong(said)
    return [*numbers("scores", seen["scores"]), numbers("output", seen["output"])[1]]


def cross_attention(
    x_q: Tensor, x_kv: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, keep: Tensor
) -> Tensor:
    """The target asks the source."""
    return attention(x_q @ W_Q, x_kv @ W_K, x_kv @ W_V, keep[:, None])


def _keep(*lengths: int) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]  # [B, n_kv]


@exercise("cross_attention", cross_attention)
def try_cross_attention(answer: Answer, draw: Draw) -> Iterable[object]:
    """x_q [B, n_q, …], x_kv [B, n_kv, …], W_Q, W_K, W_V, keep [B, n_kv] -> [B, n_q, d_v]."""
    # First all sizes are alike, so that what is taken from the wrong place runs and is named.
    x_q, x_kv = draw.tensor(4, 4, 4), draw.tensor(4, 4, 4)
    W_Q, W_K, W_V = draw.tensor(4, 4) / 2, draw.tensor(4, 4) / 2, draw.tensor(4, 4) / 2
    Q, K, V = x_q @ W_Q, x_kv @ W_K, x_kv @ W_V
    scores = Q @ K.mT / 2
    everything = attention(Q, K, V)
    wired = {
        "keys and values come from the target: make them of the source, x_kv": (
            attention(Q, x_q @ W_K, x_q @ W_V)
        ),
        "the keys come from the target: make them of the source, x_kv": attention(Q, x_q @ W_K, V),
        "the values come from the target: make them of the source, x_kv": (
            attention(Q, K, x_q @ W_V)
        ),
        "the queries come from the source: the target, x_q, asks": attention(x_kv @ W_Q, K, V),
        "the source asks the target: exchange x_q and x_kv": (
            attention(x_kv @ W_Q, x_q @ W_K, x_q @ W_V)
        ),
        "W_K makes the queries too: Q takes W_Q": attention(x_q @ W_K, K, V),
        "W_K makes the values too: V takes W_V": attention(Q, K, x_kv @ W_K),
        "W_K and W_V are exchanged": attention(Q, V, K),
        "the source's own vectors are blended: make values of them with W_V": (
            attention(Q, K, x_kv)
        ),
        "a causal mask hides the end of the source, and all of the source may be seen": (
            attention(Q, K, V, torch.ones(4, 4, dtype=torch.bool).tril())
        ),
        "the scores are not divided by sqrt(d_k)": attention(2 * Q, K, V),
        "the scores are divided by d_k, not by its square root": attention(Q / 2, K, V),
        "each column of the weights sums to 1, not each row: softmax ran over the queries": (
            scores.softmax(-2) @ V
        ),
        "the softmax ran over the batch: it runs over the keys, dim=-1": scores.softmax(0) @ V,
        "the softmax is missing: the scores are used as weights": scores @ V,
        "these are the weights: multiply them with V": scores.softmax(-1),
        "in a batch transpose the last two axes alone, K.mT": (
            (Q @ K.permute(2, 1, 0) / 2).softmax(-1) @ V
        ),
        "the output is NaN: hide where keep is False, with masked_fill (0 * -inf is NaN)": (
            torch.full((4, 4, 4), math.nan)
        ),
        "everything is hidden, so the output is 0: keep is True for a word": torch.zeros(4, 4, 4),
        "everything is hidden, so all weights are alike: keep is True for a word": (
            V.mean(1, keepdim=True).expand(4, 4, 4)
        ),
    }
    output = answer(x_q, x_kv, W_Q, W_K, W_V, _keep(4, 4, 4, 4))
    equal("without padding the output", output, everything, wired)

    keep = _keep(3, 1, 4, 2)
    padded = cross_attention(x_q, x_kv, W_Q, W_K, W_V, keep)
    output = answer(x_q, x_kv, W_Q, W_K, W_V, keep)
    seen = torch.tensor(numbers("the output", output))
    word = keep[..., None].float()  # [B, n_kv, 1]: 1 for a word, 0 for a padding
    masked = {
        "the padding of the source is not hidden: use keep": everything,
        "the mask is the wrong way round: keep is True for a word": torch.where(
            keep.all(-1)[:, None, None], seen, attention(Q, K, V, ~keep[:, None])
        ),
        "keep hides rows, those that ask: hide columns, the keys, with keep[:, None]": (
            torch.where(keep[..., None], everything, seen)
        ),
        "keep hides rows too, those that ask: hide columns alone, the keys, with keep[:, None]": (
            torch.where(keep[..., None], padded, seen)
        ),
        "keep [B, n_kv] is taken for [n_q, n_kv]: give it an axis for the queries, keep[:, None]": (
            attention(Q, K, V, keep)
        ),
        "a hidden score is 0, which still gets a share: it must be -inf": (
            (scores * word.mT).softmax(-1) @ V
        ),
        "padding is hidden after the softmax, so its share is lost: hide its scores before": (
            scores.softmax(-1) @ (V * word)
        ),
        "the padding's vectors are set to 0, and still take a share: hide its scores": (
            (scores * word.mT).softmax(-1) @ (V * word)
        ),
        "keep is added to the scores as 0 and 1: a hidden score must be -inf": (
            (scores + word.mT).softmax(-1) @ V
        ),
    }
    equal("with padding the output", output, padded, masked)
    moved = torch.where(keep[..., None], x_kv, 2 * draw.tensor(4, 4, 4))
    with likely("a padding of the source was changed, and it must not count"):
        equal("the output", answer(x_q, moved, W_Q, W_K, W_V, keep), padded)
    # For one query, 20 is taken off the score of each word and added to that of each padding.
    towards = Q[:, :1] @ W_K.T  # [B, 1, width]
    towards = towards * 40 / (towards @ W_K @ Q[:, :1].mT)  # its own score is 20
    loud = torch.where(keep[..., None], x_kv - towards, x_kv + towards)
    asks = x_q[:, :1].repeat(1, 4, 1)
    want = cross_attention(asks, loud, W_Q, W_K, W_V, keep)
    with likely(
        "words' scores are near -20 here, and a padding with 20 must not count: hide it with -inf"
    ):
        equal("the output", answer(asks, loud, W_Q, W_K, W_V, keep), want)

    # Now all sizes are unlike: B 2, n_q 3, n_kv 5, widths 6 and 4, d_k 8, d_v 7.
    x_q, x_kv, keep = draw.tensor(2, 3, 6), draw.tensor(2, 5, 4), _keep(5, 2)
    W_Q, W_K, W_V = draw.tensor(6, 8) / 6**0.5, draw.tensor(4, 8) / 2, draw.tensor(4, 7) / 2
    with likely("here lengths and widths differ: x_q [2, 3, 6], x_kv [2, 5, 4], d_k 8, d_v 7"):
        output = answer(x_q, x_kv, W_Q, W_K, W_V, keep)
        has_shape("the output", output, [2, 3, 7])
    roots = {"d_v": 7, "the target's width": 6, "the source's width": 4, "n_q": 3, "n_kv": 5}
    scaled = {
        f"the scores are divided by the root of {name}, {size}: it is of d_k, 8": (
            cross_attention(x_q * math.sqrt(8 / size), x_kv, W_Q, W_K, W_V, keep)
        )
        for name, size in roots.items()
    }
    want = cross_attention(x_q, x_kv, W_Q, W_K, W_V, keep)
    equal("with unlike lengths and widths the output", output, want, scaled)
    with likely("here the batch has one pair alone"):
        equal("the output", answer(x_q[:1], x_kv[:1], W_Q, W_K, W_V, keep[:1]), want[:1])
    return numbers("output", output)[1, 0, :3]


Pairs = list[tuple[str, str]]


def alignment(A: Tensor, source: list[str], target: list[str]) -> Pairs:
    """Each target word with the source word that it looks at most."""
    words = [j for j, word in enumerate(source) if word != "_"]
    return [
        (word, source[max(words, key=row.__getitem__)])
        for word, row in zip(target, A.tolist(), strict=True)
        if word != "_"
    ]


def _pairs(answer: object) -> Pairs:
    holds(answer is not None, "alignment is None: is there a return at the end?")
    holds(
        not isinstance(answer, dict),
        "it returns a dict, which keeps a word only once: return a list of pairs",
    )
    try:
        return [(str(first), str(second)) for first, second in answer]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise Wrong(f"it returns {str(answer):.60}, expected a list of pairs of words") from None


@exercise("alignment", alignment)
def try_alignment(answer: Answer, draw: Draw) -> Iterable[object]:
    """A [n_q, n_kv], source and target words -> [(target word, source word), …]."""
    french = "le la chat chien noir dort et".split()
    english = "the a black cat dog and sleeps".split()
    target = [french[i] for i in draw.order(7)[:3]]
    target += [target[0], "_"]  # the first word comes once more
    source = [english[i] for i in draw.order(7)[:4]] + ["_", "_"]
    # One place of the source is looked at twice, one never; the word that comes twice looks at
    # two. No word gets more than half of a row; in row 1 and in the last a padding gets most.
    scores = torch.tensor(draw.rng.uniform(0.0, 0.2, (5, 6)), dtype=torch.float32)
    first, second, third, _ = draw.order(4)
    places = [first, second, third, second]
    for i, j in enumerate(places):
        scores[i, j] = 1.0 + 0.1 * i
    scores[1, 4], scores[4, 5] = 1.5, 1.2
    A = scores.softmax(-1)
    want, seen = alignment(A, source, target), _pairs(answer(A, source, target))
    largest = [source[int(row.argmax())] for row in A]  # padding too
    by_column = [(target[int(A[:, j].argmax())], source[j]) for j in range(6)]
    last = ("_", source[int(A[4, :4].argmax())])
    causes: tuple[tuple[str, list[Pairs]], ...] = (
        (
            "the pairs are the wrong way round: first the target's word, then the source's",
            [[(second, first) for first, second in want]],
        ),
        (
            "each source word has chosen a target word: the target asks, so choose in each row",
            [by_column, by_column[:4]],
        ),
        (
            "words are paired by their place: choose the largest weight of each row",
            [list(zip(target[:4], source, strict=False))],
        ),
        (
            "a padding of the source is paired with a word: choose among the words alone",
            [list(zip(target[:4], largest, strict=False))],
        ),
        ("a padding of the target is paired: leave its row out", [[*want, last]]),
        (
            "padding is paired, of the target and of the source: leave it out",
            [list(zip(target, largest, strict=True))],
        ),
        (
            "a word whose largest weight lies on a padding is left out: choose among the words",
            [[want[i] for i in (0, 2, 3)]],
        ),
        (
            "these are numbers of places: return the words",
            [[(str(i), str(j)) for i, j in enumerate(places)]],
        ),
        (
            f"it finds {len(seen)} pairs, expected {len(want)}: one for each word of the target, "
            "however small its largest weight",
            [] if len(seen) == len(want) else [seen],
        ),
    )
    if seen != want:
        for cause, faults in causes:
            holds(seen not in faults, cause)
        i = next(i for i, pair in enumerate(want) if seen[i] != pair)
        raise Wrong(f"pair {i} is {seen[i]}, expected {want[i]}; row {i} of A decides it alone")
    # The same pairs, with the padding at the front of both sentences.
    front = answer(A.roll((1, 2), (0, 1)), source[-2:] + source[:-2], target[-1:] + target[:-1])
    holds(
        _pairs(front) == want,
        'where "_" stands in front other pairs come out: are places among the words looked up '
        "among all, or the first places taken?",
    )
    words = ["_", *french, *english]
    return [float(len(seen)), *draw.weighed([words.index(word) for pair in seen for word in pair])]


def _fields(widths: Sequence[int]) -> list[slice]:
    ends = list(accumulate(widths))
    return [slice(end - width, end) for end, width in zip(ends, widths, strict=True)]


def look_up_matrices(widths: Sequence[int], ask: int, give: int) -> tuple[Tensor, Tensor, Tensor]:
    """W_Q, W_K and W_V of a store that is asked by one field and gives another."""
    fields, keep, d_k = _fields(widths), torch.eye(sum(widths)), widths[ask]
    return 10 * math.sqrt(d_k) * torch.eye(d_k), keep[:, fields[ask]], keep[:, fields[give]]


@exercise("look_up_matrices", look_up_matrices)
def try_look_up_matrices(answer: Answer, draw: Draw) -> Iterable[object]:
    """The fields' widths, ask, give -> W_Q [width, d_k], W_K [sum, d_k], W_V [sum, width]."""
    stores = (4, 4, 4), (5, 4, 3), (3, 6, 9), (2, 16)
    return draw.weighed(
        torch.cat(
            [
                _given(answer, draw, widths, ask, give)
                for widths, ask, give in zip(stores, (1, 1, 2, 1), (2, 0, 1, 0), strict=True)
            ]
        )
    )


def _given(answer: Answer, draw: Draw, widths: tuple[int, ...], ask: int, give: int) -> Tensor:
    """Try one store; what it gives to each of its questions."""
    case = f"look_up_matrices({list(widths)}, {ask}, {give})"
    n, width, total = widths[ask], widths[give], sum(widths)
    given = answer(list(widths), ask, give)
    holds(
        isinstance(given, tuple | list) and len(given) == 3,
        f"{case} returns {kind(given)}, expected three matrices: W_Q, W_K, W_V",
    )
    W_Q, W_K, W_V = (torch.as_tensor(numbers("a matrix", matrix)) for matrix in given)
    d_k = W_Q.shape[-1] if W_Q.dim() else 0
    has_shape(f"W_Q of {case}", W_Q, [n, d_k])
    has_shape(
        f"W_K of {case}",
        W_K,
        [total, d_k],
        {
            "question and key need the same width, whatever the values have": [total, width],
            "W_K leads from the whole record, all fields side by side, to d_k": [n, d_k],
        },
    )
    has_shape(
        f"W_V of {case}",
        W_V,
        [total, width],
        {
            "W_V leads from the whole record to the field that is given": [width, width],
            "what is given is as wide as its own field": [total, n],
        },
    )
    # Records: each value of the asked field once, the other fields as they come.
    values = [draw.ids(size, n) for size in widths]
    values[ask] = torch.tensor(draw.order(n))
    hot = [F.one_hot(value, size).double() for value, size in zip(values, widths, strict=True)]
    records = torch.cat(hot, dim=-1)  # [n, total]
    A = (W_Q @ (records @ W_K).T / math.sqrt(d_k)).softmax(-1)  # [questions, records]
    right = A[values[ask], torch.arange(n)]  # each record's weight from the question for it
    if not right.min() >= 0.9:
        for i, field in enumerate(_fields(widths)):
            holds(
                i == ask or not W_K[field].any(),
                f"{case}: W_K lets field {i} through; a record is found by field {ask} alone",
            )
        holds(
            bool((A.argmax(0) == values[ask]).all()),
            f"{case}: a question finds another record than the one that it asks for",
        )
        raise Wrong(
            f"{case}: the right record gets {float(right.min()):.2f}, expected 0.90 or more: "
            "make the scores larger, and mind that sqrt(d_k) divides them"
        )
    others = {
        f"{case}: W_V hands over field {i}, not field {give}": field
        for i, field in enumerate(hot)
        if i != give
    }
    equal(f"{case}: the values", records @ W_V, hot[give], others)
    return (A @ records @ W_V).argmax(-1)
