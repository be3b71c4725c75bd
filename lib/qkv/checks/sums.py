"""Chapter 13: what guessing reaches, what is learned first, two accuracies, carries."""

from collections.abc import Iterable, Mapping
from statistics import mode
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.checks.answer import Answer
from qkv.checks.draw import Draw
from qkv.checks.exercise import exercise
from qkv.checks.faults import Numbers, Wrong, equal, has_shape, holds, kind, numbers
from qkv.checks.gradients import each
from qkv.sums import PAD, SYMBOLS

Ids = NDArray[np.int64]


def commonest(rows: Ids) -> Ids:
    """The commonest id at each position: [N, n] -> [n]."""
    return np.array([np.bincount(column).argmax() for column in rows.T])


def majority_baseline(train: Ids, test: Ids) -> Numbers:
    """The share of test rows that hold, at each position, the train rows' commonest id."""
    shares: Numbers = (test == commonest(train)).mean(0)
    return shares


def _around(draw: Draw, rest: Ids, n: int, *favourites: tuple[Ids, Any]) -> Ids:
    """Rows of ids [n, 4]: at each position each favourite with its share, else one of the rest."""
    rows = rest[draw.rng.integers(0, len(rest), (n, 4))]
    at = draw.rng.permuted(np.tile(np.arange(n)[:, None] / n, 4), axis=0)  # [n, 4], 0 … 1
    low = np.zeros(4)
    for ids, share in favourites:
        rows = np.where((at >= low) & (at < low + share), ids, rows)
        low = low + share
    return rows


def _train_and_test(draw: Draw) -> tuple[Ids, Ids]:
    """Rows whose commonest ids differ from train to test, and from position to position."""
    ids = np.array(draw.order(13))
    first, second, rare = ids[:4], ids[4:8], ids[[8, 8, 8, 9]]
    # rare stands at three positions, so it is the commonest of all, and nowhere the commonest
    # second stands in train too: else train and test exchanged would give 0, as what is no id does
    train = _around(draw, ids[10:], 100, (first, 0.36), (rare, 0.3), (second, 0.12))
    shares = draw.rng.uniform(0.15, 0.35, 4)
    return train, _around(draw, ids, 60, (second, 0.4), (first, shares), (rare, 0.1))


def _guess_faults(train: Ids, test: Ids) -> dict[str, Numbers]:
    def guessed(ids: Any) -> Numbers:
        shares: Numbers = (test == ids).mean(0)
        return shares

    right, counts = majority_baseline(train, test), [np.bincount(c, minlength=13) for c in train.T]
    return {
        "it is fitted on the test rows: which id is the commonest, the train rows say": (
            majority_baseline(test, test)
        ),
        "it is scored on the train rows: the test rows say how often the guess is right": (
            majority_baseline(train, train)
        ),
        "train and test are exchanged": majority_baseline(test, train),
        "one guess stands for all positions: each position has its own commonest id": (
            guessed(mode(train.ravel().tolist()))
        ),
        "these are the ids that are guessed: give how often each is right": commonest(train).astype(
            np.float64
        ),
        "these are counts: divide by the number of test rows": right * len(test),
        "they are counted in the test rows and divided by the number of train rows": (
            right * len(test) / len(train)
        ),
        "per cent: give a share from 0 to 1": right * 100,
        "these are the shares of wrong guesses": 1 - right,
        "the mean of the ids is guessed, but an id is a name: take the commonest": (
            guessed(train.mean(0).round())
        ),
        "the middle of the ids is guessed, but an id is a name: take the commonest": (
            guessed(np.median(train, 0).round())
        ),
        "the largest id is guessed, not the commonest": guessed(train.max(0)),
        "the first train row is guessed, not the commonest ids": guessed(train[0]),
        "the rarest id is guessed, not the commonest": guessed([c.argmin() for c in counts]),
        "no guess is ever right: is an id guessed? how often it occurs is none (argmax, not max), "
        "and a mean of ids is none": 0 * right,
    }


@exercise("majority_baseline", majority_baseline, never=("majority",))
def try_majority_baseline(answer: Answer, draw: Draw) -> Iterable[object]:
    """train [N, n], test [M, n], ids -> share right at each position [n]."""
    what = "majority_baseline(train, test)"
    while True:  # until each fault shows
        train, test = _train_and_test(draw)
        right = majority_baseline(train, test)
        if all(abs(other - right).max() > 0.02 for other in _guess_faults(train, test).values()):
            break
    found = answer(train, test)
    once = "one number is left: give the share at each position by itself"
    has_shape(
        what,
        found,
        [4],
        {once: [], "one number a row: give the share at each position": [60]},
    )
    equal(what, found, right, _guess_faults(train, test))
    unseen = np.full((5, 2), 12)
    unseen[:2, 0] = 3
    equal(
        "where the test rows hold an id that the train rows do not, it",
        answer(np.array([[3, 4], [3, 4], [5, 4]]), unseen),
        [0.4, 0.0],
    )
    return numbers(what, found)[:3]


def rises_first(rows: Ids) -> tuple[int, float]:
    """Where the largest share of a single symbol stands, counted from 1, and that share."""
    heights = majority_baseline(rows, rows)
    return int(heights.argmax()) + 1, float(heights.max())


class Rule(NamedTuple):
    """Rows made by one rule, and what the rule is called in a message."""

    named: str
    rows: Ids


def as_ids(texts: list[str]) -> Ids:
    """Texts of one width as rows of ids."""
    return np.array([[SYMBOLS.index(symbol) for symbol in text] for text in texts])


def rules(draw: Draw, n: int = 300) -> Iterable[Rule]:
    """Rows whose first position to rise lies elsewhere each time, and for another reason."""

    def whole(largest: int) -> list[int]:
        return [int(i) for i in draw.rng.integers(0, largest + 1, n)]

    def pairs(max_a: int, max_b: int) -> Iterable[tuple[int, int]]:
        return zip(whole(max_a), whole(max_b), strict=True)

    some = [f"{a}+{b}".ljust(6, "_") for a, b in pairs(999, 99)]
    yield Rule(f"rows such as {some[0]}", as_ids(some))
    some = [f"{a}+{b}".ljust(5, "_") for a, b in pairs(99, 99)]
    yield Rule("first numbers up to 99", as_ids(some))
    some = [f"{b}+{a}".ljust(6, "_") for a, b in pairs(999, 99)]
    yield Rule("the smaller number first", as_ids(some))
    some = [f"{a}+{b}".rjust(5, "_") for a, b in pairs(999, 9)]
    yield Rule("second numbers up to 9, padding on the left", as_ids(some))
    some = [f"{a:03}+{b:02}" for a, b in pairs(999, 99)]
    yield Rule("rows such as 007+05", as_ids(some))
    ones = draw.rng.random((n, 5)) < 0.5
    digits = np.where(ones, 1, draw.rng.integers(0, 10, (n, 5)))  # [n, 5]
    some = [f"{a}{b}{c}+{d}{e}" for a, b, c, d, e in digits]
    some[: n // 10] = [f"{text[:2]}+{text[4:]}_" for text in some[: n // 10]]
    yield Rule("many digits 1", as_ids(some))
    some = [f"{a}+{b}".ljust(6, "_") for a, b in pairs(99, 99)]
    yield Rule("first numbers up to 99 and six places", as_ids(some))


@exercise("rises_first", rises_first)
def try_rises_first(answer: Answer, draw: Draw) -> Iterable[object]:
    """rows [N, n] -> position, counted from 1, and its height."""
    heights = []
    for named, rows in rules(draw):
        position, height = rises_first(rows)
        parts = each("rises_first(rows)", answer(rows), "position", "height")
        holds(not isinstance(parts[0], str), f"position is {parts[0]!r}, expected a whole number")
        seen = numbers("position", parts[0])
        has_shape("position", seen, [], {"give one position": [rows.shape[1]]})
        has_shape("height", parts[1], [], {"give one height, the largest": [rows.shape[1]]})
        place, high = float(seen), float(numbers("height", parts[1]))
        what = f"with {named} the position"
        shares = majority_baseline(rows, rows)
        symbol = mode(rows.ravel().tolist())  # the commonest of all
        everywhere = (rows == symbol).mean(0)
        no_pad = np.array(
            [max((rows[:, i] == j).mean() for j in range(PAD)) for i in range(len(shares))]
        )
        holds(
            abs(place - height) > 1e-3 or abs(high - position) > 1e-3,
            "position and height are exchanged: the position comes first",
        )
        causes = {
            "positions are counted from 1": (position - 1, height),
            "padding is a symbol like the others, and it stands there always": (
                (no_pad.argmax() + 1, no_pad.max())
            ),
            "the commonest symbol of whole rows need not be the commonest of a position": (
                (everywhere.argmax() + 1, everywhere.max())
            ),
            "this is the position with the lowest of the heights": (
                (shares.argmin() + 1, shares.min())
            ),
        }
        for cause, (other, other_height) in causes.items():
            holds(
                place == position or place != other or abs(high - other_height) > 1e-3,
                f"{what} is {place:g}, expected {position}: {cause}",
            )
        holds(place == position, f"{what} is {place:g}, expected {position}")
        equal(
            f"with {named} the height",
            parts[1],
            height,
            {
                "the height is a count: divide by the number of rows": height * len(rows),
                "the height is in per cent: give a share from 0 to 1": height * 100,
                "this is the share of other symbols there: give that of the commonest": 1 - height,
                "the height is divided by all symbols: divide by the number of rows": (
                    height / rows.shape[1]
                ),
                "this is the id that is the commonest there: give its share": (
                    commonest(rows)[position - 1]
                ),
                "this is the mean height of all positions": shares.mean(),
            },
        )
        heights.append(high)
    return heights[:3]


def accuracy(predicted: Ids, target: Ids, pad: int) -> tuple[float, float]:
    """Right tokens among those that count, and rows with no wrong one among them."""
    counts, right = target != pad, predicted == target  # [B, n] each
    return float(right[counts].mean()), float((right | ~counts).all(1).mean())


def _with_mistakes(draw: Draw, pad: int) -> tuple[Ids, Ids]:
    """Rows [B, 5]: all right, all wrong, wrong at one digit, at padding, padding for a digit."""
    kinds = ["long", "short", "digit", "padding", "padding", "pad for digit", "all"]
    kinds += [kinds[draw.whole(0, 6)] for _ in range(draw.whole(6, 9))]
    target = draw.rng.integers(1, 10, (len(kinds), 5))
    predicted = target.copy()
    for row, named in enumerate(kinds):
        length = 5 if named == "long" else draw.whole(2, 4)
        target[row, length:] = predicted[row, length:] = pad
        if named == "padding":
            predicted[row, length:] = 8
        elif named == "all":
            predicted[row] += 1
        elif named in ("digit", "pad for digit"):
            wrong = pad if named == "pad for digit" else predicted[row, length - 1] + 1
            predicted[row, length - 1] = wrong
    return predicted, target


def _token_faults(predicted: Ids, target: Ids, pad: int) -> dict[str, Any]:
    counts, right, shown = target != pad, predicted == target, predicted != pad
    token, sequence = accuracy(predicted, target, pad)
    only = right & counts
    return {
        "per_token counts padding: leave out the places where the target is pad": right.mean(),
        "padding is judged by what was predicted: the target says which places count": (
            right[shown].mean()
        ),
        "right places without padding are divided by all places, padding too": only.mean(),
        "per_token is a mean of the rows' means: count all rows' tokens together": (
            (only.sum(1) / counts.sum(1)).mean()
        ),
        "padding is counted as right: leave it out": (right | ~counts).mean(),
        "padding that is predicted is counted as right, and not among what one divides by": (
            right.sum() / counts.sum()
        ),
        "per_token and per_sequence are exchanged": sequence,
        "per_token is a count: divide by the places that count": only.sum(),
        "these are the shares of mistakes": 1 - token,
        "per cent: give shares from 0 to 1": 100 * token,
        "padding alone is counted: leave it out, and count the rest": right[~counts].mean(),
    }


def _sequence_faults(predicted: Ids, target: Ids, pad: int) -> dict[str, Any]:
    counts, right, shown = target != pad, predicted == target, predicted != pad
    token, sequence = accuracy(predicted, target, pad)
    only = right & counts
    return {
        "a row that is wrong at padding alone is right: padding does not count": right.all(
            1
        ).mean(),
        "per_sequence is per_token once more: a row is right if all its tokens are": token,
        "a single right token is not enough: all of a row must be right": only.any(1).mean(),
        "a row with padding is never right so: take it out before you ask for all": (
            only.all(1).mean()
        ),
        "all runs down the columns: along each row, all(1)": (right | ~counts).all(0).mean(),
        "all asks for all rows at once: row by row, all(1)": 0.0,
        "where padding was predicted for a digit, the row is wrong": (
            (right | ~shown | ~counts).all(1).mean()
        ),
        "padding is judged by what was predicted: the target says which places count": (
            (right | ~shown).all(1).mean()
        ),
        "per_sequence is a mean of the rows' means: a row is right or wrong": (
            (only.sum(1) / counts.sum(1)).mean()
        ),
        "per_sequence is a count: divide by the number of rows": sequence * len(target),
        "per_sequence is divided by the number of places: divide by the rows": sequence / 5,
        "these are the shares of mistakes": 1 - sequence,
        "per cent: give shares from 0 to 1": 100 * sequence,
    }


def _all_unlike(values: Iterable[Any]) -> bool:
    return float(np.diff(np.sort([float(value) for value in values])).min()) > 4e-3


@exercise("accuracy", accuracy, never=("accuracy",))
def try_accuracy(answer: Answer, draw: Draw) -> Iterable[object]:
    """predicted, target [B, n], pad -> per token, per sequence."""
    names = ("per_token", "per_sequence")
    found = []
    for pad in (PAD, 0):
        while True:  # until no two faults give the same
            predicted, target = _with_mistakes(draw, pad)
            token, sequence = accuracy(predicted, target, pad)
            in_tokens = _token_faults(predicted, target, pad)
            if not _all_unlike([token, *in_tokens.values()]):
                continue
            in_sequences = _sequence_faults(predicted, target, pad)
            if _all_unlike([sequence, *in_sequences.values()]):
                break
        what = "accuracy(predicted, target, pad)"
        per_token, per_sequence = each(what, answer(predicted, target, pad), *names)
        for name, seen in zip(names, (per_token, per_sequence), strict=True):
            rows = len(target)
            one = "give one number for all rows"
            has_shape(name, seen, [], {one: [rows], "give one number for all places": [rows, 5]})
        if pad != PAD:
            in_tokens = {
                "pad is an argument: it need not be 11": (predicted == target).mean()
            } | in_tokens
        equal("per_token", per_token, token, in_tokens)
        equal("per_sequence", per_sequence, sequence, in_sequences)
        found += [numbers("per_token", per_token), numbers("per_sequence", per_sequence)]
    target = draw.rng.integers(1, 10, (3, 4))
    for predicted, both, want in ((target, "all", 1.0), (target + 1, "none", 0.0)):
        for name, seen in zip(names, each(what, answer(predicted, target, 0), *names), strict=True):
            equal(f"where {both} is right, {name}", seen, want)
    return found[:3]


def carries(a: Any, b: Any) -> Any:
    """How often a 1 is carried in a + b, both below 1,000."""
    carry, number = 0 * a, 0 * a
    for _ in range(3):
        carry = (a % 10 + b % 10 + carry > 9) * 1
        number, a, b = number + carry, a // 10, b // 10
    return number


def accuracy_by_carries(a: Ids, b: Ids, right: NDArray[np.bool_]) -> dict[int, float]:
    """The share of right sums for each number of carries that occurs."""
    found = carries(a, b)
    return {int(c): float(right[found == c].mean()) for c in np.unique(found)}


def _columns(a: int, b: int, at_least: int = 10) -> list[bool]:
    """Which places carry by their own two digits alone."""
    return [a // 10**i % 10 + b // 10**i % 10 >= at_least for i in range(3)]


def _carry_faults(a: int, b: int) -> dict[str, int]:
    """How many carries a + b has, counted with one fault."""
    own = _columns(a, b)
    tens = int(a % 100 + b % 100 > 99)
    longer = len(str(a + b)) - max(len(str(a)), len(str(b)))
    strict, carry = 0, 0
    for i in range(3):
        carry = int(a // 10**i % 10 + b // 10**i % 10 + carry > 10)
        strict += carry
    within = 0
    carry = 0
    for i in range(min(len(str(a)), len(str(b)))):
        carry = int(a // 10**i % 10 + b // 10**i % 10 + carry > 9)
        within += carry
    return {
        "9 is carried too: from 10 on": sum(_columns(a, b, 9)),
        "the ones are not looked at: they carry too": sum(own[1:]),
        "the ones alone are looked at: tens and hundreds carry too": int(own[0]),
        "ones and tens are looked at: the hundreds carry too": int(own[0]) + tens,
        "only two digits are looked at, and without what was carried": int(own[0]) + int(own[1]),
        "10 is not carried: from 10 on, not from 11 on": strict,
        "the shorter number's digits alone are looked at: a carry runs on": within,
        "a carry makes the next one: what was carried is added to the next two digits": sum(own),
        "this is whether the sum got longer: count each carry": longer,
        "this is whether there is a carry: count them": int(any(own)),
    }


PAIRS = (
    *((0, 0), (12, 34), (45, 54), (8, 7), (37, 45), (5, 5), (50, 61)),
    *((305, 704), (560, 780), (85, 17), (95, 5), (999, 1), (678, 589)),
)


@exercise("accuracy_by_carries", accuracy_by_carries)
def try_accuracy_by_carries(answer: Answer, draw: Draw) -> Iterable[object]:
    """a, b [N], right [N] -> {number of carries: share right}."""
    counted = []
    for a, b in PAIRS:
        seen = _as_dict(answer(np.array([a]), np.array([b]), np.array([True])))
        holds(len(seen) > 0, f"for {a} + {b} alone the dict is empty: it has one group")
        holds(
            len(seen) == 1,
            f"for {a} + {b} alone there are {len(seen)} groups: leave out those without a sum",
        )
        ((group, share),) = seen.items()
        equal(f"the share for {a} + {b}, which is right,", share, 1.0)
        counted.append(group)
    for pair, seen_carries in zip(PAIRS, counted, strict=True):
        if seen_carries != (want := int(carries(*pair))):
            faults = [_carry_faults(*pair) for pair in PAIRS]
            why = [f": {c}" for c in faults[0] if counted == [fault[c] for fault in faults]]
            a, b = pair
            raise Wrong(f"the carries of {a} + {b} are {want}, not {seen_carries}{''.join(why)}")
    low, high = draw.rng.integers(0, 1000, 300), draw.rng.integers(0, 100, 300)
    number = carries(low, high)  # [300]
    ease = np.array([0.9, 0.7, 0.4, 0.2])[number]
    for kept, what in ((number >= 0, ""), (number != 1, "where no sum has 1 carry, ")):
        a, b, right = low[kept], high[kept], (draw.rng.random(300) < ease)[kept]
        want_all = accuracy_by_carries(a, b, right)
        seen = _as_dict(answer(a, b, right))
        extra = sorted(set(seen) - set(want_all))
        if extra:
            raise Wrong(f"{what}there is a group under {extra[0]}, and no such sum: leave it out")
        missing = sorted(set(want_all) - set(seen))
        if missing:
            raise Wrong(f"{what}the group under {missing[0]} is missing")
        sizes = {c: int((carries(a, b) == c).sum()) for c in want_all}
        for c, share in want_all.items():
            equal(
                f"{what}the share under {c}",
                seen[c],
                share,
                {
                    "the groups are divided by the number of all sums: divide each by its own": (
                        share * sizes[c] / len(a)
                    ),
                    "these are counts: divide by the number of sums in the group": share * sizes[c],
                    "these are the sizes of the groups: give the shares of right sums": sizes[c],
                    "the groups' shares of all sums are given: give the shares of right ones": (
                        sizes[c] / len(a)
                    ),
                    "these are the shares of mistakes": 1 - share,
                    "per cent: give shares from 0 to 1": 100 * share,
                    "this is the accuracy of all sums together": right.mean(),
                    "the right sums are divided by all right ones: divide by the group's size": (
                        share * sizes[c] / right.sum()
                    ),
                },
                tolerance=1e-4,
            )
        found = [seen[c] for c in (0, 2)]
    return [numbers("share", share) for share in found]


def _as_dict(value: object) -> dict[int, Any]:
    """A dict from whole numbers to shares, whatever kind of whole number the keys are."""
    if value is None:
        raise Wrong("accuracy_by_carries is None: is there a return at the end?")
    if not isinstance(value, Mapping):
        raise Wrong(f"accuracy_by_carries gives {kind(value)}, expected a dict")
    seen: dict[int, Any] = {}
    for key, share in value.items():
        holds(not isinstance(key, str), f"a key is {key!r}, expected a number of carries")
        number = numbers("a key", key)
        has_shape("a key", number, [])
        has_shape(f"the share under {key}", share, [])
        if not float(number).is_integer():
            raise Wrong(f"a key is {key}, expected a number of carries")
        seen[int(number)] = float(numbers("a share", share))
    return seen
