"""Positions, embedding, feed-forward, residual: against the paper's formulas, and refusals."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from qkv.layers import Embedding, FeedForward, Residual, sinusoids
from support import close, drawn, randomise, refused, says

# --- sinusoids


@pytest.mark.parametrize("d_model", [1, 2, 5, 8])
@pytest.mark.parametrize("n", [1, 7])
def test_each_number_is_the_papers(n: int, d_model: int) -> None:
    table = sinusoids(n, d_model)
    assert table.dtype == torch.float64
    assert table.shape == (n, d_model)
    for p in range(n):
        for column in range(d_model):
            angle = p / 10000 ** ((column - column % 2) / d_model)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[p, column].item() == pytest.approx(expected, abs=1e-12)


def test_the_first_position_is_0_1_0_1() -> None:
    assert sinusoids(3, 5)[0].tolist() == [0, 1, 0, 1, 0]


@drawn(20)
@given(half=st.integers(1, 16), k=st.integers(-40, 40))
def test_a_shift_is_a_rotation(half: int, k: int) -> None:
    d_model = 2 * half
    table = sinusoids(100, d_model)
    turn = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(half):
        angle = k / 10000 ** (2 * i / d_model)
        sin, cos = math.sin(angle), math.cos(angle)
        pair = torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)
        turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = pair
    close(turn @ turn.T, torch.eye(d_model, dtype=torch.float64))
    p = torch.arange(40, 60)
    close(table[p] @ turn, table[p + k])


def test_products_of_positions_know_the_distance_alone() -> None:
    products = sinusoids(30, 16) @ sinusoids(30, 16).T
    for distance in range(-5, 6):
        line = products.diagonal(distance)
        close(line, line[:1].expand(len(line)))
    assert products[0, 0] > products[0, 1] > products[0, 2]


@pytest.mark.parametrize(
    ("given", "error", "fragments"),
    [
        ((0, 4), ValueError, ("n must be at least 1", "0")),
        ((4, 0), ValueError, ("d_model must be at least 1", "0")),
        ((4, 2.5), TypeError, ("d_model must be an int", "float: 2.5")),
    ],
)
def test_sinusoids_refuse(
    given: tuple[int, int], error: type[Exception], fragments: tuple[str, ...]
) -> None:
    with refused(error, *fragments):
        sinusoids(*given)


# --- Embedding


def test_an_embedding_is_scaled_table_plus_position() -> None:
    embedding = Embedding(11, 6, 20)
    ids = torch.tensor([[3, 3, 10], [0, 10, 3]])
    got = embedding(ids)
    assert got.shape == (2, 3, 6)
    table, waves = embedding.table.weight, sinusoids(20, 6).float()
    for row in range(2):
        for p in range(3):
            close(got[row, p], table[ids[row, p]] * math.sqrt(6) + waves[p])


def test_equal_rows_of_a_batch_are_embedded_alike_and_equal_tokens_of_a_row_are_not() -> None:
    got = Embedding(11, 6, 20)(torch.tensor([[3, 3, 3], [3, 3, 3]]))
    assert torch.equal(got[0], got[1])
    assert not torch.allclose(got[0, 0], got[0, 1])


def test_later_tokens_by_themselves_stand_where_they_stood() -> None:
    embedding, ids = Embedding(11, 6, 20), torch.tensor([[3, 1, 4, 1, 5]])
    assert torch.equal(embedding(ids[:, 2:], first=2), embedding(ids)[:, 2:])


def test_tokens_and_positions_start_at_the_same_size() -> None:
    torch.manual_seed(0)
    embedding = Embedding(500, 64, 100)
    assert embedding.table.weight.std().item() * 8 == pytest.approx(1, abs=0.02)
    assert embedding.positions.square().mean().item() == pytest.approx(0.5, abs=0.01)


def test_positions_are_a_buffer_that_follows_and_is_not_saved() -> None:
    embedding = Embedding(11, 6, 20)
    assert list(embedding.state_dict()) == ["table.weight"]
    assert dict(embedding.named_buffers())["positions"].dtype == torch.float32
    assert embedding.double().positions.dtype == torch.float64
    assert embedding.half()(torch.tensor([[1, 2]])).dtype == torch.float16
    assert embedding.to("meta").positions.device.type == "meta"
    with torch.no_grad():
        assert [p for p, _ in embedding.named_parameters()] == ["table.weight"]


def test_ids_are_not_modified() -> None:
    ids = torch.tensor([[3, 1, 4]])
    Embedding(11, 6, 20)(ids)
    assert ids.tolist() == [[3, 1, 4]]
    assert ids._version == 0


def test_dropout_of_the_embedding_falls_in_training_only() -> None:
    torch.manual_seed(0)
    embedding = Embedding(11, 64, 20, dropout=0.5)
    ids = torch.arange(10)[None]
    embedding.eval()
    whole = embedding(ids)
    assert torch.equal(embedding(ids), whole)
    embedding.train()
    dropped = embedding(ids)
    gone = dropped == 0
    assert 0.4 < gone.float().mean() < 0.6
    close(dropped[~gone], 2 * whole[~gone])


@pytest.mark.parametrize(
    ("sizes", "error", "fragments"),
    [
        ((0, 6, 20), ValueError, ("vocab must be at least 1", "0")),
        ((11, -6, 20), ValueError, ("d_model must be at least 1", "-6")),
        ((11, "6", 20), TypeError, ("d_model must be an int", "str: '6'")),
        ((11, 6, 0), ValueError, ("max_len must be at least 1", "0")),
        ((11, 6, None), TypeError, ("max_len must be an int", "NoneType")),
    ],
)
def test_wrong_sizes_of_an_embedding_are_refused(
    sizes: tuple[int, int, int], error: type[Exception], fragments: tuple[str, ...]
) -> None:
    with refused(error, *fragments):
        Embedding(*sizes)


EMBEDDING = Embedding(11, 6, 4)


@pytest.mark.parametrize(
    ("given", "error", "fragments"),
    [
        (([[1, 2]],), TypeError, ("ids must be a torch.Tensor", "list")),
        ((torch.tensor([[1.0]]),), TypeError, ("ids", "int64", "torch.float32", "ids.long(")),
        ((torch.tensor([[1]]).int(),), TypeError, ("ids", "int64", "torch.int32")),
        ((torch.tensor([1, 2]),), ValueError, ("ids", "[B, n]", "[2]", "ids.unsqueeze(0")),
        ((torch.ones(2, 0).long(),), ValueError, ("ids is empty", "[2, 0]")),
        ((torch.tensor([[0, 11]]),), ValueError, ("id 11", "0 … 10")),
        ((torch.tensor([[5, -1]]),), ValueError, ("id -1", "0 … 10")),
        ((torch.tensor([[1, 2]]).to("meta"),), ValueError, ("ids is on meta", "expected cpu")),
        ((torch.ones(1, 5).long(),), ValueError, ("ids needs 5 positions", "max_len = 4")),
        ((torch.ones(1, 2).long(), 3), ValueError, ("ids needs 5 positions", "max_len = 4")),
    ],
)
def test_wrong_ids_are_refused(
    given: tuple[Tensor, ...], error: type[Exception], fragments: tuple[str, ...]
) -> None:
    with refused(error, *fragments):
        EMBEDDING(*given)


@pytest.mark.parametrize(
    ("first", "error", "fragments"),
    [
        (-1, ValueError, ("first must be at least 0", "-1")),
        (1.0, TypeError, ("first must be an int", "float: 1.0")),
        (True, TypeError, ("first must be an int", "bool")),
    ],
)
def test_a_wrong_first_position_is_refused(
    first: int, error: type[Exception], fragments: tuple[str, ...]
) -> None:
    embedding, ids = Embedding(5, 4, max_len=6), torch.tensor([[1, 2]])
    with refused(error, *fragments):
        embedding(ids, first)


def test_a_row_as_long_as_the_table_is_fine() -> None:
    assert EMBEDDING(torch.tensor([[0, 10, 0, 10]])).shape == (1, 4, 6)


# --- FeedForward


def test_feed_forward_is_the_papers_formula_on_each_token() -> None:
    layer = FeedForward(3, 5).double()
    randomise(layer)
    x = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    W_1, b_1, W_2, b_2 = layer.W_1.weight.T, layer.W_1.bias, layer.W_2.weight.T, layer.W_2.bias
    expected = torch.clamp(x @ W_1 + b_1, min=0) @ W_2 + b_2
    close(layer(x), expected)
    close(layer(x[1]), expected[1])
    order = torch.tensor([2, 0, 3, 1])
    close(layer(x[:, order]), expected[:, order])


@pytest.mark.parametrize(
    ("sizes", "error", "fragments"),
    [
        ((0, 4), ValueError, ("d_model must be at least 1",)),
        ((4, 1.5), TypeError, ("d_ff must be an int", "float: 1.5")),
    ],
)
def test_wrong_sizes_of_a_feed_forward_are_refused(
    sizes: tuple[int, int], error: type[Exception], fragments: tuple[str, ...]
) -> None:
    with refused(error, *fragments):
        FeedForward(*sizes)


def test_feed_forward_refuses_another_width() -> None:
    layer, x = FeedForward(3, 5), torch.ones(2, 4, 2)
    with refused(ValueError, "x must have shape [..., n, 3]", "[2, 4, 2]"):
        layer(x)


# --- Residual


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)  # divided by n, not n - 1
    return centred / (variance + norm.eps).sqrt() * norm.weight + norm.bias


@pytest.mark.parametrize("order", ["post", "pre"])
def test_residual_in_both_orders(order: str) -> None:
    around = Residual(6, order).double()
    randomise(around)
    around.norm.eps = 0.1  # so that a misplaced epsilon shows
    x = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    seen = []

    def sublayer(y: Tensor) -> Tensor:
        seen.append(y)
        return y.square()

    got = around(x, sublayer)
    if order == "post":
        close(seen[0], x)
        close(got, layer_norm(x + x.square(), around.norm))
    else:
        normed = layer_norm(x, around.norm)
        close(seen[0], normed)
        close(got, x + normed.square())
    assert len(seen) == 1


def test_the_paper_stands_first() -> None:
    assert Residual(6).order == "post"


def test_dropout_falls_on_the_detour_not_on_the_road() -> None:
    torch.manual_seed(0)
    around = Residual(8, "pre", dropout=0.5)
    x = torch.randn(50, 8)
    detour = around(x, torch.ones_like) - x
    gone, kept = detour.abs() < 1e-5, (detour - 2).abs() < 1e-5
    assert (gone | kept).all()
    assert 0.4 < gone.float().mean() < 0.6
    around.eval()
    close(around(x, torch.ones_like), x + 1)


def test_dropout_falls_on_the_detour_in_post_norm_too() -> None:
    torch.manual_seed(0)
    around = Residual(8, "post", dropout=0.5)
    x = torch.randn(50, 8)
    close(around(x, torch.zeros_like), layer_norm(x, around.norm))  # on the road it would show
    assert not torch.allclose(around(x, torch.cos), around(x, torch.cos))


@pytest.mark.parametrize(
    ("norm", "dropout", "error", "fragments"),
    [
        ("Post", 0.0, ValueError, ("norm must be one of 'post', 'pre'", "'Post'")),
        (None, 0.0, ValueError, ("norm must be one of", "None")),
        ("pre", 1.0, ValueError, ("dropout", "[0, 1)", "1.0")),
        ("pre", -0.1, ValueError, ("dropout", "[0, 1)", "-0.1")),
        ("pre", float("nan"), ValueError, ("dropout", "[0, 1)", "nan")),
        ("pre", "0.1", TypeError, ("dropout must be a number", "str: '0.1'")),
        ("pre", True, TypeError, ("dropout must be a number", "bool")),
    ],
)
def test_residual_refuses(
    norm: str, dropout: float, error: type[Exception], fragments: tuple[str, ...]
) -> None:
    with says(error, *fragments):
        Residual(6, norm, dropout)


@pytest.mark.parametrize(
    ("d_model", "error"), [(0, ValueError), (6.0, TypeError), ([6], TypeError)]
)
def test_residual_refuses_sizes(d_model: int, error: type[Exception]) -> None:
    with says(error, "d_model must be"):
        Residual(d_model)


@pytest.mark.parametrize("order", ["post", "pre"])
def test_a_detour_that_cannot_join_the_road_is_refused(order: str) -> None:
    around, x = Residual(6, order), torch.ones(2, 3, 6)
    with says(ValueError, "sublayer must return the shape of x", "[2, 3, 6]", "[2, 1, 6]"):
        around(x, lambda y: y[:, :1])
    with says(TypeError, "sublayer must return a torch.Tensor", "tuple"):
        around(x, lambda y: (y, y))
