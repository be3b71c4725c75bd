"""Chapter 13."""

from collections import Counter, defaultdict
from statistics import multimode

import numpy as np
import torch

from qkv.metrics import accuracy as package_accuracy
from qkv.metrics import majority as package_majority

PAD, PLUS = 11, 10


def guess(rows):
    return np.array([np.bincount(column).argmax() for column in rows.T])


def majority_baseline(train, test):
    return (test == guess(train)).mean(0)


def majority_in_counters(train, test):
    shares = []
    for position in range(train.shape[1]):
        (commonest, _), *_ = Counter(train[:, position].tolist()).most_common(1)
        shares.append(test[:, position].tolist().count(commonest) / len(test))
    return shares


def majority_by_one_hot(train, test):
    counts = np.eye(13)[train].sum(0)  # [n, vocab]
    return np.eye(13)[test].mean(0)[np.arange(train.shape[1]), counts.argmax(-1)]


def majority_in_torch(train, test):
    commonest = torch.tensor(train).mode(0).values
    return (torch.tensor(test) == commonest).float().mean(0)


def majority_by_sorting(train, test):
    ids = []
    for column in train.T:
        names, counts = np.unique(column, return_counts=True)
        ids.append(names[np.argsort(counts)[-1]])
    return np.stack([np.count_nonzero(c == i) / c.size for c, i in zip(test.T, ids, strict=True)])


def by_package(train, test):
    ids = package_majority(torch.tensor(train)).ids
    return (torch.tensor(test) == ids).float().mean(0)


def guessed(how):
    return lambda train, test: (test == how(train)).mean(0)


def rises_first(rows, base=1):
    heights = majority_baseline(rows, rows)
    return int(heights.argmax()) + base, float(heights.max())


def rises_in_loops(rows):
    best = 0, 0
    for position, column in enumerate(zip(*rows.tolist(), strict=True), start=1):
        most = max(column.count(symbol) for symbol in set(column))
        best = max(best, (most, position))
    return [best[1], best[0] / len(rows)]


def rises_by_multimode(rows):
    heights = [(column == multimode(column.tolist())[0]).mean() for column in rows.T]
    position = max(range(len(heights)), key=heights.__getitem__)
    return np.int64(position + 1), np.float32(heights[position])


def rises_in_torch(rows):
    one_hot = torch.nn.functional.one_hot(torch.tensor(rows), 13).float().mean(0)
    height, position = one_hot.amax(-1).max(0)
    return position + 1, height


def commonest_of_all(rows):
    shares = (rows == np.bincount(rows.ravel()).argmax()).mean(0)
    return shares.argmax() + 1, shares.max()


def without_padding(rows):
    shares = np.array([max((c == i).mean() for i in range(PAD)) for c in rows.T])
    return shares.argmax() + 1, shares.max()


def plus_alone(rows):
    shares = (rows == PLUS).mean(0)
    return shares.argmax() + 1, shares.max()


def other_height(how):
    return lambda rows: (rises_first(rows)[0], how(rows, rises_first(rows)[1]))


def accuracy(predicted, target, pad):
    counts, right = target != pad, predicted == target
    return right[counts].mean(), (right | ~counts).all(1).mean()


def accuracy_in_loops(predicted, target, pad):
    right = total = whole = 0
    for said, wanted in zip(predicted.tolist(), target.tolist(), strict=True):
        kept = [(s, w) for s, w in zip(said, wanted, strict=True) if w != pad]
        right += sum(s == w for s, w in kept)
        total += len(kept)
        whole += all(s == w for s, w in kept)
    return right / total, whole / len(target)


def accuracy_by_filling(predicted, target, pad):
    said = np.where(target == pad, pad, predicted)
    wrong = said != target
    return [1 - wrong.sum() / (target != pad).sum(), 1 - wrong.any(axis=1).mean()]


def accuracy_in_torch(predicted, target, pad):
    predicted, target = torch.tensor(predicted), torch.tensor(target)
    counts = (target != pad).float()
    right = (predicted == target).float() * counts
    return right.sum() / counts.sum(), (right.sum(1) == counts.sum(1)).float().mean()


def accuracy_by_masked_arrays(predicted, target, pad):
    right = np.ma.masked_array(predicted == target, target == pad)
    return float(right.mean()), float(right.all(axis=1).mean())


def by_package_accuracy(predicted, target, pad):
    return tuple(package_accuracy(torch.tensor(predicted), torch.tensor(target), pad))


def with_accuracy(token=None, sequence=None):
    """One of the two by another formula, of right and counts, both [B, n]."""

    def answer(predicted, target, pad):
        counts, right = target != pad, predicted == target
        both = accuracy(predicted, target, pad)
        return (
            token(right, counts, predicted != pad) if token else both[0],
            sequence(right, counts, predicted != pad) if sequence else both[1],
        )

    return answer


def carries(a, b, places=3, first=0, keep=True, at_least=10):
    a, b = a // 10**first, b // 10**first
    carry = number = 0 * a
    for _ in range(places):
        carry = ((a % 10 + b % 10 + (carry if keep else 0)) >= at_least).astype(int)
        number, a, b = number + carry, a // 10, b // 10
    return number


def by_carries(a, b, right, count=carries):
    found = count(a, b)
    return {int(c): float(right[found == c].mean()) for c in set(found.tolist())}


def digit_sum(x):
    return sum(int(digit) for digit in str(x))


def by_digit_sums(a, b, right):
    """Each carry takes 10 away and adds 1: the sum of the digits falls by 9."""
    groups = defaultdict(list)
    for x, y, good in zip(a, b, right, strict=True):
        groups[(digit_sum(x) + digit_sum(y) - digit_sum(x + y)) // 9].append(good)
    return {number: sum(group) / len(group) for number, group in groups.items()}


def by_remainders(a, b, right):
    number = sum((a % 10**i + b % 10**i >= 10**i).astype(int) for i in (1, 2, 3))
    groups = defaultdict(float)
    for c in np.unique(number)[::-1]:
        groups[c] = right[number == c].mean()
    return groups


def by_columns(a, b, right):
    found = Counter()
    total = Counter()
    for x, y, good in zip(a.tolist(), b.tolist(), right.tolist(), strict=True):
        carry = count = 0
        while x or y:
            carry = x % 10 + y % 10 + carry > 9
            count += carry
            x, y = x // 10, y // 10
        total[count] += 1
        found[count] += good
    return {c: np.float32(found[c] / total[c]) for c in sorted(total)}


def by_bincount(a, b, right):
    number = carries(a, b)
    total, good = np.bincount(number), np.bincount(number, weights=right)
    return {c: torch.tensor(good[c] / total[c]) for c in range(len(total)) if total[c]}


def by_counting(count):
    """Another count of carries, sum by sum."""
    return lambda a, b, right: by_carries(
        a,
        b,
        right,
        lambda a, b: np.array([count(int(x), int(y)) for x, y in zip(a, b, strict=True)]),
    )


def longer(a, b):
    return len(str(a + b)) - max(len(str(a)), len(str(b)))


def shorter_alone(a, b):
    carry = number = 0
    for x, y in zip(str(a)[::-1], str(b)[::-1], strict=False):
        carry = int(int(x) + int(y) + carry > 9)
        number += carry
    return number


def all_groups(a, b, right, empty=np.nan):
    found = carries(a, b)
    return {c: right[found == c].mean() if (found == c).any() else empty for c in range(4)}


def changed(how):
    return lambda a, b, right: {
        c: how(share, (carries(a, b) == c).sum(), len(a), right)
        for c, share in by_carries(a, b, right).items()
    }


def eats_its_input(a, b, right):
    number = carry = 0 * a
    for _ in range(3):
        carry = (a % 10 + b % 10 + carry > 9) * 1
        number = number + carry
        a //= 10
        b //= 10
    return {c: right[number == c].mean() for c in np.unique(number)}


RIGHT = {
    "majority_baseline": [
        majority_baseline,
        majority_in_counters,
        majority_by_one_hot,
        majority_in_torch,
        majority_by_sorting,
    ],
    "rises_first": [rises_first, rises_in_loops, rises_by_multimode, rises_in_torch],
    "accuracy": [
        accuracy,
        accuracy_in_loops,
        accuracy_by_filling,
        accuracy_in_torch,
        accuracy_by_masked_arrays,
    ],
    "accuracy_by_carries": [by_carries, by_digit_sums, by_remainders, by_columns, by_bincount],
}

WRONG = {
    "majority_baseline": {
        "fitted on test": (lambda train, test: majority_baseline(test, test), "fitted on the test"),
        "scored on train": (
            lambda train, test: majority_baseline(train, train),
            "scored on the train rows",
        ),
        "exchanged": (
            lambda train, test: majority_baseline(test, train),
            "train and test are exchanged",
        ),
        "one guess for all": (
            guessed(lambda train: np.bincount(train.ravel()).argmax()),
            "each position has its own",
        ),
        "ids": (lambda train, test: guess(train), "these are the ids"),
        "counts": (lambda train, test: (test == guess(train)).sum(0), "these are counts"),
        "divided by train": (
            lambda train, test: (test == guess(train)).sum(0) / len(train),
            "divided by the number of train rows",
        ),
        "per cent": (lambda *rows: 100 * majority_baseline(*rows), "per cent"),
        "mistakes": (lambda *rows: 1 - majority_baseline(*rows), "shares of wrong guesses"),
        "mean id": (guessed(lambda train: train.mean(0).round()), "an id is a name"),
        "middle id": (guessed(lambda train: np.median(train, 0).round()), "an id is a name"),
        "largest id": (guessed(lambda train: train.max(0)), "the largest id"),
        "first row": (guessed(lambda train: train[0]), "the first train row"),
        "rarest id": (
            guessed(
                lambda train: np.array([np.bincount(c, minlength=13).argmin() for c in train.T])
            ),
            "the rarest id",
        ),
        "how often": (
            guessed(lambda train: [np.bincount(c).max() for c in train.T]),
            "argmax, not max",
        ),
        "mean id, not rounded": (guessed(lambda train: train.mean(0)), "a mean of ids is none"),
        "zeros": (lambda train, test: np.zeros(train.shape[1]), "no guess is ever right"),
        "mean over positions": (
            lambda *rows: majority_baseline(*rows).mean(),
            "at each position by itself",
        ),
        "whole rows": (
            lambda train, test: (test == guess(train)).all(1).mean(),
            "at each position by itself",
        ),
        "row by row": (
            lambda train, test: (test == guess(train)).mean(1),
            "one number a row",
        ),
        "unseen ids": (
            lambda train, test: np.array(
                [
                    np.bincount(t)[np.bincount(c).argmax()] / len(t)
                    if t.max() < 12 or c.max() > 5
                    else np.nan
                    for c, t in zip(train.T, test.T, strict=True)
                ]
            ),
            "an id that the train rows do not",
        ),
        "nothing": (lambda *rows: None, "is there a return"),
        "calls the package's": (by_package, "it calls majority"),
    },
    "rises_first": {
        "from 0": (lambda rows: rises_first(rows, 0), "counted from 1"),
        "exchanged": (lambda rows: rises_first(rows)[::-1], "the position comes first"),
        "commonest of all": (commonest_of_all, "of whole rows need not be"),
        "without padding": (without_padding, "padding is a symbol like the others"),
        "the plus alone": (plus_alone, "padding is a symbol like the others"),
        "always 4": (
            lambda rows: (4, majority_baseline(rows, rows)[3]),
            "first numbers up to 99 the position is 4, expected 3",
        ),
        "the lowest": (
            lambda rows: (
                (heights := majority_baseline(rows, rows)).argmin() + 1,
                heights.min(),
            ),
            "the lowest of the heights",
        ),
        "a count": (other_height(lambda rows, height: height * len(rows)), "the height is a count"),
        "per cent": (other_height(lambda rows, height: 100 * height), "in per cent"),
        "the others": (other_height(lambda rows, height: 1 - height), "the share of other symbols"),
        "of all symbols": (
            other_height(lambda rows, height: height / rows.shape[1]),
            "divided by all symbols",
        ),
        "the id": (
            other_height(lambda rows, height: guess(rows)[rises_first(rows)[0] - 1]),
            "this is the id",
        ),
        "the mean": (
            other_height(lambda rows, height: majority_baseline(rows, rows).mean()),
            "the mean height",
        ),
        "all heights": (
            other_height(lambda rows, height: majority_baseline(rows, rows)),
            "give one height",
        ),
        "position as text": (
            lambda rows: (str(rises_first(rows)[0]), rises_first(rows)[1]),
            "expected a whole number",
        ),
        "position alone": (lambda rows: rises_first(rows)[0], "expected 2: position, height"),
        "nothing": (lambda rows: None, "is there a return"),
    },
    "accuracy": {
        "padding counted": (
            with_accuracy(token=lambda right, counts, shown: right.mean()),
            "per_token counts padding",
        ),
        "padding counted as right": (
            with_accuracy(token=lambda right, counts, shown: (right | ~counts).mean()),
            "padding is counted as right",
        ),
        "predicted padding counted, and not divided by": (
            with_accuracy(token=lambda right, counts, shown: right.sum() / counts.sum()),
            "padding that is predicted is counted",
        ),
        "padding as predicted": (
            with_accuracy(token=lambda right, counts, shown: right[shown].mean()),
            "judged by what was predicted",
        ),
        "divided by all places": (
            with_accuracy(token=lambda right, counts, shown: (right & counts).mean()),
            "divided by all places",
        ),
        "mean of means": (
            with_accuracy(
                token=lambda right, counts, shown: ((right & counts).sum(1) / counts.sum(1)).mean()
            ),
            "per_token is a mean of the rows' means",
        ),
        "padding alone": (
            with_accuracy(token=lambda right, counts, shown: right[~counts].mean()),
            "padding alone is counted",
        ),
        "a count": (
            with_accuracy(token=lambda right, counts, shown: (right & counts).sum()),
            "per_token is a count",
        ),
        "exchanged": (lambda *given: accuracy(*given)[::-1], "are exchanged"),
        "mistakes": (lambda *given: [1 - x for x in accuracy(*given)], "shares of mistakes"),
        "per cent": (lambda *given: [100 * x for x in accuracy(*given)], "per cent"),
        "sequence with padding": (
            with_accuracy(sequence=lambda right, counts, shown: right.all(1).mean()),
            "wrong at padding alone is right",
        ),
        "sequence as token": (
            with_accuracy(sequence=lambda right, counts, shown: right[counts].mean()),
            "per_token once more",
        ),
        "any": (
            with_accuracy(sequence=lambda right, counts, shown: (right & counts).any(1).mean()),
            "a single right token is not enough",
        ),
        "padded rows never right": (
            with_accuracy(sequence=lambda right, counts, shown: (right & counts).all(1).mean()),
            "a row with padding is never right so",
        ),
        "all down the columns": (
            with_accuracy(sequence=lambda right, counts, shown: (right | ~counts).all(0).mean()),
            "down the columns: along each row",
        ),
        "all at once": (
            with_accuracy(sequence=lambda right, counts, shown: (right | ~counts).all()),
            "row by row, all(1)",
        ),
        "predicted padding forgiven": (
            with_accuracy(
                sequence=lambda right, counts, shown: (right | ~shown | ~counts).all(1).mean()
            ),
            "padding was predicted for a digit",
        ),
        "sequence, padding as predicted": (
            with_accuracy(sequence=lambda right, counts, shown: (right | ~shown).all(1).mean()),
            "judged by what was predicted",
        ),
        "sequence a mean of means": (
            with_accuracy(
                sequence=lambda right, counts, shown: (
                    (right & counts).sum(1) / counts.sum(1)
                ).mean()
            ),
            "per_sequence is a mean",
        ),
        "sequence a count": (
            with_accuracy(sequence=lambda right, counts, shown: (right | ~counts).all(1).sum()),
            "per_sequence is a count",
        ),
        "sequence by places": (
            with_accuracy(
                sequence=lambda right, counts, shown: (right | ~counts).all(1).sum() / right.size
            ),
            "divided by the number of places",
        ),
        "sequence mistakes": (
            with_accuracy(
                sequence=lambda right, counts, shown: 1 - (right | ~counts).all(1).mean()
            ),
            "shares of mistakes",
        ),
        "row by row": (
            with_accuracy(sequence=lambda right, counts, shown: (right | ~counts).all(1)),
            "give one number for all rows",
        ),
        "padding is always 11": (
            lambda predicted, target, pad: accuracy(predicted, target, PAD),
            "pad is an argument",
        ),
        "one alone": (lambda *given: accuracy(*given)[0], "expected 2: per_token"),
        "nothing": (lambda *given: None, "is there a return"),
        "calls the package's": (by_package_accuracy, "it calls accuracy"),
    },
    "accuracy_by_carries": {
        "ones alone": (
            lambda *given: by_carries(*given, lambda a, b: carries(a, b, places=1)),
            "the ones alone are looked at",
        ),
        "ones and tens": (
            lambda *given: by_carries(*given, lambda a, b: carries(a, b, places=2)),
            "the hundreds carry too",
        ),
        "tens alone": (
            lambda *given: by_carries(*given, lambda a, b: carries(a, b, places=2, first=1)),
            "the ones are not looked at",
        ),
        "not carried on": (
            lambda *given: by_carries(*given, lambda a, b: carries(a, b, keep=False)),
            "a carry makes the next one",
        ),
        "not from 10 on": (
            lambda *given: by_carries(*given, lambda a, b: carries(a, b, at_least=11)),
            "10 is not carried",
        ),
        "from 9 on": (
            lambda *given: by_carries(*given, lambda a, b: carries(a, b, at_least=9)),
            "9 is carried too",
        ),
        "longer": (by_counting(longer), "whether the sum got longer"),
        "the shorter number's digits": (by_counting(shorter_alone), "a carry runs on"),
        "yes or no": (
            lambda *given: by_carries(*given, lambda a, b: (carries(a, b) > 0).astype(int)),
            "count them",
        ),
        "NaN for empty groups": (all_groups, "leave out those without a sum"),
        "0 for empty groups": (
            lambda *given: all_groups(*given, empty=0.0),
            "leave out those without a sum",
        ),
        "up to the largest": (
            lambda a, b, right: {
                c: share
                for c, share in all_groups(a, b, right, 0.0).items()
                if c in by_carries(a, b, right) or len(a) > 1 and c < max(carries(a, b))
            },
            "no such sum: leave it out",
        ),
        "small groups dropped": (
            lambda a, b, right: {
                c: share
                for c, share in by_carries(a, b, right).items()
                if len(a) == 1 or (carries(a, b) == c).sum() > 80
            },
            "is missing",
        ),
        "divided by all": (
            changed(lambda share, size, n, right: share * size / n),
            "divide each by its own",
        ),
        "counts": (changed(lambda share, size, n, right: share * size), "these are counts"),
        "sizes": (changed(lambda share, size, n, right: size), "these are"),
        "shares of all": (changed(lambda share, size, n, right: size / n), "shares of all sums"),
        "mistakes": (changed(lambda share, size, n, right: 1 - share), "expected 1"),
        "per cent": (changed(lambda share, size, n, right: 100 * share), "expected 1"),
        "all together": (
            changed(lambda share, size, n, right: right.mean()),
            "accuracy of all sums together",
        ),
        "divided by the right ones": (
            changed(lambda share, size, n, right: share * size / right.sum()),
            "divide by the group's size",
        ),
        "an array": (
            lambda *given: np.array(list(by_carries(*given).values())),
            "expected a dict",
        ),
        "empty": (lambda *given: {}, "the dict is empty"),
        "keys that are no numbers": (
            lambda *given: {f"{c} carries": s for c, s in by_carries(*given).items()},
            "expected a number of carries",
        ),
        "keys as text": (
            lambda *given: {str(c): s for c, s in by_carries(*given).items()},
            "a key is '0', expected a number",
        ),
        "eats its input": (eats_its_input, "changes its argument number 1"),
        "nothing": (lambda *given: None, "is there a return"),
    },
}
