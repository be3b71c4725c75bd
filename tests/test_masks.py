"""causal, padding, additive: each mask place by place, how two combine, refusals."""

import doctest

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from qkv import masks
from qkv.attention import attention
from support import drawn, refused


@pytest.mark.parametrize("n", [1, 2, 5])
def test_causal_shows_a_token_itself_and_what_came_before(n: int) -> None:
    mask = masks.causal(n)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[key <= query for key in range(n)] for query in range(n)]


def test_causal_of_four_tokens_has_zeros_above_the_diagonal() -> None:
    g = torch.Generator().manual_seed(0)
    Q, K, V = (torch.randn(4, 8, generator=g) for _ in range(3))
    _, weights = attention(Q, K, V, masks.causal(4), return_weights=True)
    assert (weights.triu(1) == 0).all()
    assert (weights.tril() > 0).sum() == 10
    torch.testing.assert_close(weights.sum(-1), torch.ones(4))
    assert weights[0, 0] == 1


def test_causal_goes_where_it_is_told() -> None:
    assert masks.causal(3, device="meta").device.type == "meta"


def test_padding_hides_keys_not_queries() -> None:
    ids = torch.tensor([[5, 7, 0], [0, 3, 3]])
    mask = masks.padding(ids, 0)
    assert mask.dtype == torch.bool
    assert mask.shape == (2, 1, 1, 3)
    assert mask[:, 0, 0].tolist() == [[True, True, False], [False, True, True]]
    g = torch.Generator().manual_seed(0)
    Q, K, V = (torch.randn(2, 4, 3, 8, generator=g) for _ in range(3))
    _, weights = attention(Q, K, V, mask, return_weights=True)
    for row in range(2):
        for head in range(4):
            for query in range(3):
                hidden = (weights[row, head, query] == 0).tolist()
                assert hidden == (ids[row] == 0).tolist()


@drawn(30)
@given(B=st.integers(1, 4), n=st.integers(1, 5), seed=st.integers(0, 1000))
def test_causal_and_padding_combine_place_by_place(B: int, n: int, seed: int) -> None:
    ids = torch.randint(0, 3, (B, n), generator=torch.Generator().manual_seed(seed))
    both = masks.causal(n) & masks.padding(ids, 0)
    assert both.shape == (B, 1, n, n)
    assert both[:, 0].tolist() == [
        [[key <= query and ids[row, key].item() != 0 for key in range(n)] for query in range(n)]
        for row in range(B)
    ]


def test_ids_stay_as_they_were() -> None:
    ids = torch.tensor([[5, 7, 0]])
    masks.padding(ids, 0)
    assert ids.tolist() == [[5, 7, 0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_additive_is_0_or_minus_infinity(dtype: torch.dtype) -> None:
    mask = masks.causal(3)
    M = masks.additive(mask, dtype=dtype)
    assert M.dtype == dtype
    assert M.tolist() == [[0.0 if may else float("-inf") for may in row] for row in mask.tolist()]
    assert masks.additive(mask).dtype == torch.float32
    assert mask.tolist() == masks.causal(3).tolist()  # not modified


def test_both_notations_say_the_same() -> None:
    g = torch.Generator().manual_seed(0)
    Q, K, V = (torch.randn(2, 3, 5, 4, generator=g) for _ in range(3))
    mask = masks.causal(5) & masks.padding(torch.tensor([[0, 1, 1, 1, 0], [1, 1, 1, 0, 0]]), 0)
    for return_weights in (False, True):
        yes = attention(Q, K, V, mask, return_weights=return_weights)
        numbers = attention(Q, K, V, masks.additive(mask), return_weights=return_weights)
        torch.testing.assert_close(yes, numbers)


def test_the_example_in_the_docstring() -> None:
    failed, tried = doctest.testmod(masks)
    assert tried > 0
    assert failed == 0


@pytest.mark.parametrize(
    ("n", "error", "fragments"),
    [
        (0, ValueError, ("n must be at least 1", "0")),
        (2.0, TypeError, ("n must be an int", "float: 2.0")),
        (True, TypeError, ("n must be an int", "bool")),
    ],
)
def test_causal_refuses(n: int, error: type[Exception], fragments: tuple[str, ...]) -> None:
    with refused(error, *fragments):
        masks.causal(n)


@pytest.mark.parametrize(
    ("ids", "pad", "error", "fragments"),
    [
        ([[1, 0]], 0, TypeError, ("ids must be a torch.Tensor", "list")),
        (torch.tensor([[1.0]]), 0, TypeError, ("ids", "whole numbers", "torch.float32")),
        (torch.tensor([[True]]), 0, TypeError, ("ids", "whole numbers", "torch.bool")),
        (torch.tensor([1, 0]), 0, ValueError, ("ids", "[B, n_kv]", "[2]")),
        (torch.ones(2, 0).long(), 0, ValueError, ("ids", "not empty", "[2, 0]")),
        (torch.tensor([[1, 0]]), None, TypeError, ("pad must be an int", "NoneType")),
        (torch.tensor([[1, 0]]), "_", TypeError, ("pad must be an int", "str: '_'")),
    ],
)
def test_padding_refuses(
    ids: Tensor, pad: int, error: type[Exception], fragments: tuple[str, ...]
) -> None:
    with refused(error, *fragments):
        masks.padding(ids, pad)


@pytest.mark.parametrize(
    ("mask", "dtype", "fragments"),
    [
        ([[True]], torch.float32, ("mask must be a torch.Tensor", "list")),
        (torch.ones(2, 2), torch.float32, ("mask must be Boolean", "torch.float32")),
        (torch.ones(2, 2) > 0, torch.int64, ("dtype", "torch.float32", "torch.int64")),
        (torch.ones(2, 2) > 0, "float32", ("dtype", "torch.float32", "float32")),
    ],
)
def test_additive_refuses(mask: Tensor, dtype: torch.dtype, fragments: tuple[str, ...]) -> None:
    with refused(TypeError, *fragments):
        masks.additive(mask, dtype=dtype)
