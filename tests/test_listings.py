"""The pipeline in plain PyTorch, line by line, and the package's names in its place."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.attention import MultiHeadAttention, attention

n, d_model, d_k, d_v = 4, 8, 8, 8
n_dec, n_enc = 3, 5


@pytest.fixture
def made() -> dict[str, Tensor]:
    """Token vectors, three matrices, and what they make of each other."""
    torch.manual_seed(0)
    X = torch.randn(n, d_model)
    W_Q, W_K, W_V = torch.randn(d_model, d_k), torch.randn(d_model, d_k), torch.randn(d_model, d_v)
    dec_x, enc_out = torch.randn(n_dec, d_model), torch.randn(n_enc, d_model)
    return {"X": X, "W_Q": W_Q, "W_K": W_K, "W_V": W_V, "dec_x": dec_x, "enc_out": enc_out}


def printed(value: object, capsys: pytest.CaptureFixture[str]) -> str:
    print(value)
    return capsys.readouterr().out.strip()


def test_scores_weights_output(made: dict[str, Tensor], capsys: pytest.CaptureFixture[str]) -> None:
    X = made["X"]
    Q, K, V = X @ made["W_Q"], X @ made["W_K"], X @ made["W_V"]
    scores = Q @ K.T / math.sqrt(d_k)
    A = scores.softmax(dim=-1)
    output = A @ V
    assert printed(A.sum(dim=-1), capsys) == "tensor([1.0000, 1.0000, 1.0000, 1.0000])"
    assert printed(output.shape, capsys) == "torch.Size([4, 8])"
    torch.testing.assert_close(attention(Q, K, V), output)
    torch.testing.assert_close(F.scaled_dot_product_attention(Q, K, V), output)
    torch.testing.assert_close(attention(Q, K, V, return_weights=True), (output, A))


def test_lower_triangular_mask(made: dict[str, Tensor]) -> None:
    X = made["X"]
    Q, K, V = X @ made["W_Q"], X @ made["W_K"], X @ made["W_V"]
    mask = torch.tril(torch.ones(n, n, dtype=torch.bool))
    scores = (Q @ K.T / math.sqrt(d_k)).masked_fill(~mask, float("-inf"))
    A = scores.softmax(dim=-1)
    assert (A.triu(1) == 0).all()
    assert A[0].tolist() == [1, 0, 0, 0]
    output, weights = attention(Q, K, V, mask, return_weights=True)
    torch.testing.assert_close((output, weights), (A @ V, A))
    torch.testing.assert_close(attention(Q, K, V, mask), A @ V)


def test_two_sequences(made: dict[str, Tensor]) -> None:
    dec_x, enc_out = made["dec_x"], made["enc_out"]
    Q, K, V = dec_x @ made["W_Q"], enc_out @ made["W_K"], enc_out @ made["W_V"]
    out = attention(Q, K, V)
    assert out.shape == (n_dec, d_v)
    assert attention(Q, K, V, return_weights=True)[1].shape == (n_dec, n_enc)
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.size(-1))
    torch.testing.assert_close(out, scores.softmax(dim=-1) @ V)


def test_many_heads(made: dict[str, Tensor], capsys: pytest.CaptureFixture[str]) -> None:
    X, dec_x, enc_out = made["X"], made["dec_x"], made["enc_out"]
    mha = MultiHeadAttention(d_model=8, n_heads=2)
    assert printed(mha(X, X).shape, capsys) == "torch.Size([4, 8])"
    assert printed(mha(dec_x, enc_out).shape, capsys) == "torch.Size([3, 8])"
    assert mha(X, X, mask=torch.ones(n, n, dtype=torch.bool).tril()).shape == (4, 8)
    torch.testing.assert_close(mha(X), mha(X, X))
    assert [W.bias for W in (mha.W_Q, mha.W_K, mha.W_V, mha.W_O)] == [None] * 4
    assert all(W.weight.shape == (8, 8) for W in (mha.W_Q, mha.W_K, mha.W_V, mha.W_O))


@pytest.mark.parametrize(("d", "spread"), [(4, 2.0), (64, 8.0), (512, 22.6)])
def test_spread_of_dot_products(d: int, spread: float) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(10_000, d), torch.randn(10_000, d)
    assert (q * k).sum(dim=-1).std().item() == pytest.approx(spread, rel=0.03)
    # What attention divides by makes the spread 1 for every d.
    _, A = attention(q[:200], k[:200], k[:200], return_weights=True)
    assert A.log().std(dim=-1).mean().item() == pytest.approx(1, rel=0.1)


def test_softmax_of_small_and_of_large_scores() -> None:
    s = torch.tensor([2.0, 1.0, 0.5])
    assert [round(p, 2) for p in s.softmax(-1).tolist()] == [0.63, 0.23, 0.14]
    assert [round(p, 4) for p in (s * 8).softmax(-1).tolist()] == [0.9997, 0.0003, 0.0000]
    for scores in (s, s * 8):  # a query of 1 and keys of these scores: attention says the same
        K = scores[:, None]
        _, A = attention(torch.ones(1, 1), K, K, return_weights=True)
        torch.testing.assert_close(A[0], scores.softmax(-1))
