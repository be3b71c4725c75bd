"""greedy, sample, beam: with the cache as without, row by row, against brute force, refusals."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from qkv.decoding import beam, greedy, sample
from qkv.layers import Norm
from qkv.transformer import Transformer
from support import drawn, randomise, refused, says

START = 1
NORMS: list[Norm] = ["post", "pre"]


def model(seed: int = 0, vocab: int = 6, sharpness: float = 3, **more: Any) -> Transformer:
    """A small model in float64 whose choices differ from row to row and from step to step."""
    sizes = {"d_model": 8, "n_heads": 2, "d_ff": 16, "n_layers": 2, "max_len": 16}
    small = Transformer(9, vocab, **(sizes | more))
    randomise(small, seed)
    with torch.no_grad():
        small.to_vocab.weight *= sharpness
    return small.double()


def draw_source(seed: int, B: int = 4, n: int = 5) -> Tensor:
    return torch.randint(1, 9, (B, n), generator=torch.Generator().manual_seed(seed))


def step_by_step(
    small: Transformer, source: Tensor, limit: int, end: int | None
) -> list[list[int]]:
    """Greedy as the definition has it: each row alone, the whole model at each step, no cache."""
    rows = []
    for row in source:
        written = [START]
        while len(written) <= limit and end not in written[1:]:
            logits = small(row[None], torch.tensor([written]))
            written.append(int(logits[0, -1].argmax()))
        rows.append(written[1:])
    return rows


def without_what_follows(ids: Tensor, end: int | None) -> list[list[int]]:
    """Each row up to its first end; what follows must be nothing but end."""
    rows = []
    for row in ids.tolist():
        cut = row.index(end) + 1 if end in row else len(row)
        assert set(row[cut:]) <= {end}
        rows.append(row[:cut])
    return rows


# --- greedy


@drawn(15)
@given(
    seed=st.integers(0, 1000),
    norm=st.sampled_from(NORMS),
    limit=st.integers(1, 8),
    end=st.sampled_from([None, 0, 2]),
    pad=st.sampled_from([None, 3]),
)
def test_greedy_equals_each_row_alone_step_by_step(
    seed: int, norm: Norm, limit: int, end: int | None, pad: int | None
) -> None:
    small, source = model(seed, norm=norm, pad=pad), draw_source(seed)
    expected = step_by_step(small, source, limit, end)
    for cache in (True, False):
        ids = greedy(small, source, start=START, limit=limit, end=end, cache=cache)
        assert ids.dtype == torch.int64
        assert without_what_follows(ids, end) == expected
        assert ids.shape == (4, max(map(len, expected)))


def early_and_late(limit: int) -> tuple[Transformer, Tensor, int]:
    """A model, a source, and an end that one row writes early and another never."""
    for seed in range(20):
        small, source = model(seed), draw_source(seed, B=6)
        free = greedy(small, source, start=START, limit=limit, cache=False)
        for end in range(6):
            first = [row.index(end) if end in row else limit for row in free.tolist()]
            if min(first) <= 2 and max(first) == limit:
                return small, source, end
    raise AssertionError("no such id: try more seeds")


@pytest.mark.parametrize("cache", [True, False])
def test_a_row_that_ends_early_leaves_the_others_alone(cache: bool) -> None:
    small, source, end = early_and_late(10)
    ids = greedy(small, source, start=START, limit=10, end=end, cache=cache)
    expected = step_by_step(small, source, 10, end)
    assert without_what_follows(ids, end) == expected
    lengths = set(map(len, expected))
    assert min(lengths) <= 3
    assert max(lengths) == 10


@pytest.mark.parametrize("cache", [True, False])
def test_decoding_stops_when_every_row_has_ended(cache: bool) -> None:
    small, source = model(), draw_source(0)
    with torch.no_grad():
        small.to_vocab.bias[2] += 1e3
    calls = []
    small.to_vocab.register_forward_hook(lambda *_: calls.append(1))
    ids = greedy(small, source, start=START, limit=9, end=2, cache=cache)
    assert ids.tolist() == [[2]] * 4
    assert len(calls) == 1


@pytest.mark.parametrize("norm", NORMS)
def test_the_cache_gives_the_same_where_the_model_writes_padding(norm: Norm) -> None:
    inside = 0
    for seed in range(15):
        small, source = model(seed, norm=norm, pad=3), draw_source(seed)
        source[1, 3:] = 3
        cached = greedy(small, source, start=START, limit=12)
        assert torch.equal(cached, greedy(small, source, start=START, limit=12, cache=False))
        inside += int(((cached == 3)[:, :-1] & (cached != 3)[:, 1:]).sum())
    assert inside > 0, "no padding inside any row: the test shows nothing"


def test_with_the_cache_each_step_computes_one_token() -> None:
    small, source = model(), draw_source(0)
    lengths: dict[bool, list[int]] = {True: [], False: []}
    for cache in (True, False):
        hook = small.to_vocab.register_forward_hook(
            lambda _, given, __, cache=cache: lengths[cache].append(given[0].shape[1])
        )
        greedy(small, source, start=START, limit=5, cache=cache)
        hook.remove()
    assert lengths == {True: [1] * 5, False: [1, 2, 3, 4, 5]}


def test_a_row_may_be_as_long_as_the_position_table() -> None:
    small = model(max_len=5)
    for cache in (True, False):
        assert greedy(small, draw_source(0), start=START, limit=5, cache=cache).shape == (4, 5)


# --- sample


@drawn(15)
@given(
    seed=st.integers(0, 1000),
    limit=st.integers(1, 8),
    end=st.sampled_from([None, 0]),
    pad=st.sampled_from([None, 3]),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_the_same_generator_draws_the_same_with_and_without_the_cache(
    seed: int, limit: int, end: int | None, pad: int | None, temperature: float
) -> None:
    small, source = model(seed, pad=pad), draw_source(seed)
    with_, without = (
        sample(
            *(small, source),
            start=START,
            limit=limit,
            end=end,
            temperature=temperature,
            generator=torch.Generator().manual_seed(seed),
            cache=cache,
        )
        for cache in (True, False)
    )
    assert torch.equal(with_, without)
    without_what_follows(with_, end)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_samples_are_as_frequent_as_the_softmax_says(temperature: float) -> None:
    small = model(sharpness=1)
    source = draw_source(0, B=1)
    logits = small(source, torch.tensor([[START]]))[0, 0]
    n = 20_000
    ids = sample(
        *(small, source.expand(n, -1)),
        start=START,
        limit=1,
        temperature=temperature,
        generator=torch.Generator().manual_seed(0),
    )
    shares = torch.bincount(ids[:, 0], minlength=6) / n
    expected = (logits / temperature).softmax(-1).float()
    torch.testing.assert_close(shares, expected, atol=0.012, rtol=0)
    assert expected.max() - expected.min() > 0.05


def test_a_low_temperature_comes_near_to_greedy() -> None:
    small, source = model(2), draw_source(2)
    expected = greedy(small, source, start=START, limit=8)
    g = torch.Generator().manual_seed(0)
    ids = sample(small, source, start=START, limit=8, temperature=1e-4, generator=g)
    assert torch.equal(ids, expected)


def test_samples_differ_from_draw_to_draw_and_repeat_with_the_seed() -> None:
    small, source = model(sharpness=1), draw_source(0)
    g = torch.Generator().manual_seed(0)
    first = sample(small, source, start=START, limit=8, generator=g)
    second = sample(small, source, start=START, limit=8, generator=g)
    assert not torch.equal(first, second)
    again = sample(small, source, start=START, limit=8, generator=g.manual_seed(0))
    assert torch.equal(first, again)


# --- beam


def likeliest(small: Transformer, row: Tensor, limit: int, end: int | None) -> list[int]:
    """The best of all rows, by trying all."""
    best, best_score = [], float("-inf")
    vocab = small.to_vocab.out_features
    for ids in itertools.product(range(vocab), repeat=limit):
        written = list(ids[: ids.index(end) + 1]) if end in ids else list(ids)
        decoder_input = torch.tensor([[START, *written[:-1]]])
        shares = small(row[None], decoder_input)[0].log_softmax(-1)
        score = shares[range(len(written)), written].sum().item()
        if score > best_score:
            best, best_score = written, score
    return best


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("end", [None, 2])
@pytest.mark.parametrize("cache", [True, False])
def test_a_beam_as_wide_as_all_rows_finds_the_likeliest(
    seed: int, end: int | None, cache: bool
) -> None:
    small, source = model(seed, vocab=3, n_layers=1, sharpness=1), draw_source(seed, B=2)
    with torch.no_grad():
        small.to_vocab.bias[2] += 0.7  # so that some of the likeliest end early, some late
    ids = beam(small, source, start=START, limit=4, width=3**4, end=end, cache=cache)
    with torch.no_grad():
        expected = [likeliest(small, row, 4, end) for row in source]
    assert without_what_follows(ids, end) == expected


@drawn(12)
@given(
    seed=st.integers(0, 1000),
    end=st.sampled_from([None, 0, 2]),
    pad=st.sampled_from([None, 3]),
    limit=st.integers(1, 7),
)
def test_a_beam_of_one_is_greedy(seed: int, end: int | None, pad: int | None, limit: int) -> None:
    small, source = model(seed, pad=pad), draw_source(seed)
    expected = greedy(small, source, start=START, limit=limit, end=end)
    for cache in (True, False):
        ids = beam(small, source, start=START, limit=limit, width=1, end=end, cache=cache)
        assert torch.equal(ids, expected)


@drawn(12)
@given(
    seed=st.integers(0, 1000),
    end=st.sampled_from([None, 2]),
    pad=st.sampled_from([None, 3]),
    width=st.integers(2, 5),
)
def test_beams_are_the_same_with_the_cache_and_row_by_row(
    seed: int, end: int | None, pad: int | None, width: int
) -> None:
    small, source = model(seed, pad=pad), draw_source(seed)
    ids = beam(small, source, start=START, limit=6, width=width, end=end)
    assert torch.equal(
        ids, beam(small, source, start=START, limit=6, width=width, end=end, cache=False)
    )
    alone = [beam(small, row[None], start=START, limit=6, width=width, end=end) for row in source]
    assert without_what_follows(ids, end) == [without_what_follows(x, end)[0] for x in alone]


def test_a_wide_beam_finds_what_greedy_misses() -> None:
    found = 0
    for seed in range(10):
        small, source = model(seed, vocab=3, n_layers=1, sharpness=1), draw_source(seed, B=2)
        wide = beam(small, source, start=START, limit=4, width=81)
        found += int((wide != greedy(small, source, start=START, limit=4)).any())
    assert found > 0


# --- what all three leave as it was


def write_greedy(small: Transformer, source: Tensor, **more: Any) -> Tensor:
    return greedy(small, source, **({"start": START, "limit": 4} | more))


def write_sample(small: Transformer, source: Tensor, **more: Any) -> Tensor:
    return sample(small, source, **({"start": START, "limit": 4} | more))


def write_beam(small: Transformer, source: Tensor, **more: Any) -> Tensor:
    return beam(small, source, **({"start": START, "limit": 4, "width": 2} | more))


WAYS = [write_greedy, write_sample, write_beam]


@pytest.mark.parametrize("write", WAYS)
def test_the_model_comes_back_in_the_modes_in_which_it_came(write: Callable[..., Tensor]) -> None:
    small, source = model(dropout=0.5), draw_source(0)
    small.train()
    small.encoder.eval()  # frozen, say
    before = [module.training for module in small.modules()]
    write(small, source)
    assert [module.training for module in small.modules()] == before
    with torch.no_grad():
        small.to_vocab.weight.fill_(float("nan"))
    with pytest.raises(FloatingPointError):  # midway
        write(small, source)
    assert [module.training for module in small.modules()] == before


@pytest.mark.parametrize("write", [write_greedy, write_beam])
def test_dropout_does_not_fall_while_writing(write: Callable[..., Tensor]) -> None:
    small, source = model(dropout=0.5), draw_source(0)
    expected = write(small.eval(), source, limit=10)
    for _ in range(3):
        assert torch.equal(write(small.train(), source, limit=10), expected)


@pytest.mark.parametrize("write", WAYS)
def test_nothing_is_modified_and_no_gradients_are_kept(write: Callable[..., Tensor]) -> None:
    small, source = model(), draw_source(0)
    before, weights = source.clone(), [p.clone() for p in small.parameters()]
    tracked = []
    for part in (small.encoder[0], small.to_vocab):
        part.register_forward_hook(lambda _, __, output: tracked.append(output.requires_grad))
    write(small, source)
    assert set(tracked) == {False}
    assert torch.equal(source, before)
    assert source._version == 0
    assert all(torch.equal(p, w) for p, w in zip(small.parameters(), weights, strict=True))
    assert all(p.grad is None for p in small.parameters())
    assert torch.is_grad_enabled()


# --- refusals

SMALL, SOURCE, LINEAR = model(), draw_source(0), nn.Linear(2, 2)


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize(
    ("more", "error", "fragments"),
    [
        ({"start": 6}, ValueError, ("start is 6", "0 … 5")),
        ({"start": -1}, ValueError, ("start is -1", "0 … 5")),
        ({"start": 1.5}, TypeError, ("start must be an int", "float: 1.5")),
        ({"start": None}, TypeError, ("start must be an int", "NoneType")),
        ({"end": 6}, ValueError, ("end is 6", "0 … 5")),
        ({"end": "."}, TypeError, ("end must be an int", "str: '.'")),
        ({"limit": 0}, ValueError, ("limit must be at least 1", "0")),
        ({"limit": 2.0}, TypeError, ("limit must be an int", "float: 2.0")),
        ({"limit": 17}, ValueError, ("limit is 17", "max_len = 16")),
        ({"source": SOURCE + 8}, ValueError, ("source", "the id", "0 … 8")),
        ({"source": SOURCE[0]}, ValueError, ("source", "[B, n]", "[5]", "source.unsqueeze(0")),
        ({"source": SOURCE[:, :0]}, ValueError, ("source is empty", "[4, 0]")),
        ({"source": SOURCE.float()}, TypeError, ("source", "int64", "torch.float32")),
        ({"source": SOURCE.tolist()}, TypeError, ("source must be a torch.Tensor", "list")),
        (
            {"source": SOURCE.repeat(1, 4)},
            ValueError,
            ("source needs 20 positions", "max_len = 16"),
        ),
        ({"source": SOURCE.to("meta")}, ValueError, ("source is on meta", "expected cpu")),
    ],
)
def test_all_ways_refuse(
    write: Callable[..., Tensor],
    more: dict[str, Any],
    error: type[Exception],
    fragments: tuple[str, ...],
) -> None:
    source = more.get("source", SOURCE)
    with refused(error, *fragments):
        write(SMALL, source, **{name: value for name, value in more.items() if name != "source"})
    assert SMALL.training


@pytest.mark.parametrize(
    ("temperature", "error", "fragments"),
    [
        (0, ValueError, ("temperature must be above 0", "0", "greedy")),
        (-1.0, ValueError, ("temperature must be above 0", "-1.0")),
        (float("nan"), ValueError, ("temperature must be above 0", "nan")),
        ("1", TypeError, ("temperature must be a number", "str: '1'")),
    ],
)
def test_wrong_temperatures_are_refused(
    temperature: float, error: type[Exception], fragments: tuple[str, ...]
) -> None:
    with refused(error, *fragments):
        write_sample(SMALL, SOURCE, temperature=temperature)


def test_the_smallest_temperature_is_greedy() -> None:
    for small in (SMALL, model().float()):
        expected = write_greedy(small, SOURCE)
        for temperature in (1e-30, 5e-324):
            assert torch.equal(write_sample(small, SOURCE, temperature=temperature), expected)


@pytest.mark.parametrize("write", WAYS)
def test_what_is_no_transformer_is_refused(write: Callable[..., Tensor]) -> None:
    with refused(TypeError, "model must be a Transformer", "Linear"):
        write(LINEAR, SOURCE)


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_refused(
    write: Callable[..., Tensor], number: float
) -> None:
    broken = model()
    broken.to_vocab.bias.data[2] = number
    with says(FloatingPointError, "the model's logits are not finite", "weights"):
        write(broken, SOURCE)
    assert broken.training


@pytest.mark.parametrize("write", WAYS)
def test_a_token_may_be_ruled_out(write: Callable[..., Tensor]) -> None:
    small = model()
    small.to_vocab.bias.data[2] = float("-inf")
    assert not (write(small, SOURCE) == 2).any()


@pytest.mark.parametrize(("width", "error"), [(0, ValueError), (2.0, TypeError), (None, TypeError)])
def test_wrong_widths_are_refused(width: int, error: type[Exception]) -> None:
    with refused(error, "width must be"):
        write_beam(SMALL, SOURCE, width=width)


# --- on a GPU


@pytest.mark.gpu
def test_a_gpu_writes_what_the_cpu_writes() -> None:
    from qkv.devices import device

    gpu = device()
    small, source = model(pad=3).float(), draw_source(0)
    expected = [write_greedy(small, source, limit=12), write_beam(small, source, limit=12)]
    small.to(gpu)
    for cache in (True, False):
        ids = write_greedy(small, source.to(gpu), limit=12, cache=cache)
        assert torch.equal(ids.cpu(), expected[0])
        ids = write_beam(small, source.to(gpu), limit=12, cache=cache)
        assert torch.equal(ids.cpu(), expected[1])
        assert write_sample(small, source.to(gpu), cache=cache).device == source.to(gpu).device
    with says(ValueError, "source is on cpu", "expected"):
        write_greedy(small, source)
