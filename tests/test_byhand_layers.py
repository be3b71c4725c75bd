"""Every layer of qkv.byhand, three times: nudged, by autograd, and beside the PyTorch half."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import qkv.attention
import qkv.layers
import qkv.masks
import qkv.transformer
from qkv.byhand.attention import attention, attention_backward, causal, padding
from qkv.byhand.blocks import DecoderBlock, EncoderBlock, Residual, roles_meet
from qkv.byhand.check import check
from qkv.byhand.embedding import Embedding, Table, sinusoids
from qkv.byhand.feed_forward import FeedForward, relu, relu_backward
from qkv.byhand.layer import Identity, Layer
from qkv.byhand.layer_norm import LayerNorm, layer_norm, layer_norm_backward
from qkv.byhand.linear import Linear, matmul_backward
from qkv.byhand.multi_head import MultiHeadAttention
from qkv.byhand.rows import column_sum, row_dot, row_sum
from qkv.byhand.softmax import (
    CrossEntropy,
    cross_entropy,
    cross_entropy_backward,
    log_softmax,
    softmax,
    softmax_backward,
)
from qkv.byhand.transformer import Transformer
from support import MASKS, Case, cases, drawn, randomise, says

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    """The PyTorch half is made in float64, its tables of positions as well."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def close(actual: Array | float, expected: Array | float, tolerance: float = 1e-10) -> None:
    expected = np.asarray(expected)
    assert np.shape(actual) == expected.shape
    size = max(1.0, float(abs(expected).max())) if expected.size else 1.0
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * size)


def numbers(*tensors: Tensor | None) -> list[Any]:
    return [None if t is None else t.detach().numpy().copy() for t in tensors]


# --- functions


@drawn(150)
@given(cases(dtypes=(torch.float64,)))
def test_attention_is_autograds_with_every_mask(case: Case) -> None:
    Q, K, V = case.tensors(
        (case.B, case.h, case.n_q, case.d_k),
        (case.B, case.h, case.n_kv, case.d_k),
        (case.B, case.h, case.n_kv, case.d_v),
    )
    output, weights = qkv.attention.attention(Q, K, V, case.mask(), return_weights=True)
    g = torch.randn(output.shape, generator=case.generator())
    expected = torch.autograd.grad(output, (Q, K, V), g)
    q, k, v, mask, slope = numbers(Q, K, V, case.mask(), g)
    kept = [x.copy() for x in (q, k, v)]
    ours, A = attention(q, k, v, mask, return_weights=True)
    close(ours, output.detach().numpy())
    close(A, weights.detach().numpy())
    close(attention(q, k, v, mask), ours, 0)
    for ours, theirs in zip(attention_backward(slope, q, k, v, A), expected, strict=True):
        close(ours, theirs.numpy())
    for x, before in zip((q, k, v), kept, strict=True):
        close(x, before, 0)  # the input is never changed


@pytest.mark.parametrize("kind", MASKS)
def test_attention_by_differences(kind: str) -> None:
    case = Case(2, 3, 4, 5, 2, 3, torch.float64, kind, seed=1)
    Q, K, V = (
        rng(i).normal(size=s) for i, s in enumerate([(2, 3, 4, 2), (2, 3, 5, 2), (2, 3, 5, 3)])
    )
    (mask,) = numbers(case.mask())
    _, A = attention(Q, K, V, mask, return_weights=True)
    check(
        f"attention, {kind}",
        lambda Q, K, V: attention(Q, K, V, mask),
        lambda g: attention_backward(g, Q, K, V, A),
        {"Q": Q, "K": K, "V": V},
    )


def test_a_query_that_may_attend_to_nothing_gets_zeros_and_sends_back_zeros() -> None:
    Q, K, V, g = (rng(i).normal(size=(3, 2)) for i in range(4))
    mask = np.array([[True, True, False], [False, False, False], [False, True, True]])
    output, A = attention(Q, K, V, mask, return_weights=True)
    gQ, gK, gV = attention_backward(g, Q, K, V, A)
    assert not output[1].any() and not A[1].any() and not gQ[1].any()
    _, gK_without, gV_without = attention_backward(g[[0, 2]], Q[[0, 2]], K, V, A[[0, 2]])
    close(gK, gK_without)
    close(gV, gV_without)


def test_the_worked_example_forward_and_back() -> None:
    Q = np.ones((1, 4))
    K = np.array([[1.0, -1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]])
    V = np.array([[10.0, 0], [0, 10], [10, 10]])
    output, A = attention(Q, K, V, return_weights=True)
    np.testing.assert_allclose(A, [[0.0900, 0.2447, 0.6652]], atol=5e-5)
    np.testing.assert_allclose(output, [[7.553, 9.100]], atol=5e-4)
    back = softmax_backward(np.array([[1.0, 0, 0]]), A)
    np.testing.assert_allclose(back, [[0.0819, -0.0220, -0.0599]], atol=5e-5)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 5), (2, 1, 3, 2)])
def test_softmax(shape: tuple[int, ...]) -> None:
    x, g = rng(0).normal(size=shape) * 3, rng(1).normal(size=shape)
    x.flat[0] = -math.inf
    kept = x.copy()
    X = torch.tensor(x, requires_grad=True)
    P = X.softmax(-1)
    p = softmax(x)
    close(p, P.detach().numpy())
    close(softmax_backward(g, p), torch.autograd.grad(P, X, torch.tensor(g))[0].numpy())
    close(softmax_backward(g, p).sum(-1), np.zeros(shape[:-1]))
    close(softmax(x + 1000), p, 1e-12)
    assert (x == kept).all()
    x = rng(2).normal(size=shape)
    check("softmax", softmax, lambda g: softmax_backward(g, softmax(x)), {"x": x})


def test_softmax_of_nothing_but_minus_infinity_is_zeros() -> None:
    x = np.array([[-math.inf, -math.inf], [0, -math.inf]])
    close(softmax(x), np.array([[0.0, 0], [1, 0]]), 0)
    close(softmax_backward(np.ones((2, 2)), softmax(x)), np.zeros((2, 2)), 0)


@pytest.mark.parametrize("pad", [None, 0])
@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 2)])
def test_cross_entropy(shape: tuple[int, ...], pad: int | None) -> None:
    logits = rng(0).normal(size=(*shape, 5)) * 4
    target = rng(1).integers(0, 5, shape)
    target.flat[:2] = 0, 3
    L = torch.tensor(logits, requires_grad=True)
    loss = F.cross_entropy(
        L.flatten(0, -2), torch.tensor(target).flatten(), ignore_index=-9 if pad is None else pad
    )
    (expected,) = torch.autograd.grad(loss, L)
    close(cross_entropy(logits, target, pad), loss.item())
    close(cross_entropy_backward(logits, target, pad), expected.numpy())
    check(
        "cross_entropy",
        lambda x: cross_entropy(x, target, pad),
        lambda g: g * cross_entropy_backward(logits, target, pad),
        {"logits": logits},
    )


@pytest.mark.parametrize("order", ["as columns", "axes moved", "every second"])
def test_numbers_may_lie_in_memory_in_any_order(order: str) -> None:
    def laid(x: Array) -> Array:
        if order == "as columns":
            return np.asfortranarray(x)
        if order == "axes moved":
            return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, -1, 0)), 0, -1)
        return np.repeat(x, 2, axis=-1)[..., ::2]

    logits, target = rng(0).normal(size=(3, 4, 5)), laid(rng(1).integers(0, 5, (3, 4)))
    g, gain = rng(2).normal(size=(3, 4, 5)), rng(3).normal(size=5)
    Q, K, V = (rng(seed).normal(size=(2, 4, 3)) for seed in (4, 5, 6))
    A = attention(Q, K, V, return_weights=True)[1]
    functions: list[tuple[Callable[..., Any], tuple[Array, ...]]] = [
        (lambda x: cross_entropy(x, target), (logits,)),
        (lambda x: cross_entropy_backward(x, target), (logits,)),
        (lambda x: cross_entropy_backward(x, target, 1), (logits,)),
        (softmax_backward, (g, softmax(logits))),
        (lambda g, x: layer_norm_backward(g, x, gain), (g, logits)),
        (attention_backward, (Q, Q, K, V, A)),
        (matmul_backward, (Q @ K.swapaxes(-1, -2), Q, K.swapaxes(-1, -2))),
    ]
    for function, inputs in functions:
        results = zip(
            *(
                result if isinstance(result, tuple) else (result,)
                for result in (function(*inputs), function(*map(laid, inputs)))
            ),
            strict=True,
        )
        for expected, actual in results:
            close(actual, expected, 1e-14)


def test_cross_entropy_of_the_likely_the_unlikely_and_the_even() -> None:
    close(cross_entropy(np.zeros((3, 7)), np.array([0, 3, 6])), math.log(7))
    logits = np.array([[1e4, 0.0]], dtype=np.float32)
    assert cross_entropy(logits, np.array([0])) == 0
    assert cross_entropy(logits, np.array([1])) == 1e4  # not infinite
    close(cross_entropy_backward(logits, np.array([1])), np.array([[1.0, -1.0]]))
    close(log_softmax(logits), np.array([[0.0, -1e4]]), 0)


@drawn(60)
@given(st.tuples(*[st.integers(1, 5)] * 5), st.booleans())
def test_matmul(sizes: tuple[int, ...], batched: bool) -> None:
    B, h, n, k, m = sizes
    front = (B, h) if batched else ()
    A, W, g = (rng(i).normal(size=(*front, *s)) for i, s in enumerate([(n, k), (k, m), (n, m)]))
    a, w = torch.tensor(A, requires_grad=True), torch.tensor(W, requires_grad=True)
    theirs = torch.autograd.grad(a @ w, (a, w), torch.tensor(g))
    for ours, expected in zip(matmul_backward(g, A, W), theirs, strict=True):
        close(ours, expected.numpy())
    check("matmul", np.matmul, lambda g: matmul_backward(g, A, W), {"A": A, "B": W})


@pytest.mark.parametrize("eps", [1e-5, 0.1])
@pytest.mark.parametrize("shape", [(6,), (3, 6), (2, 3, 6)])
def test_layer_norm(shape: tuple[int, ...], eps: float) -> None:
    x, g = rng(0).normal(size=shape), rng(1).normal(size=shape)
    gain, bias = rng(2).normal(size=6), rng(3).normal(size=6)
    t = [torch.tensor(a, requires_grad=True) for a in (x, gain, bias)]
    y = F.layer_norm(t[0], (6,), t[1], t[2], eps)
    close(layer_norm(x, gain, bias, eps), y.detach().numpy())
    theirs = torch.autograd.grad(y, t, torch.tensor(g))
    for ours, expected in zip(layer_norm_backward(g, x, gain, eps), theirs, strict=True):
        close(ours, expected.numpy())
    check(
        "layer_norm",
        lambda x, gain, bias: layer_norm(x, gain, bias, eps),
        lambda g: layer_norm_backward(g, x, gain, eps),
        {"x": x, "gain": gain, "bias": bias},
    )
    even = layer_norm_backward(np.full(shape, 3.0), x, np.ones(6), eps)[0]
    close(even, np.zeros(shape))  # a constant slope moves nothing


def test_layer_norm_of_the_worked_numbers() -> None:
    y = layer_norm(np.array([1.0, 2, 3, 6]), np.ones(4), np.zeros(4), eps=0.1)
    np.testing.assert_allclose(y, [-1.0541, -0.5270, 0, 1.5811], atol=5e-5)


def test_relu() -> None:
    x = rng(0).normal(size=(3, 4))
    close(relu(x), np.where(x > 0, x, 0), 0)
    check("relu", relu, lambda g: relu_backward(g, relu(x)), {"x": x})


def test_sums_of_rows_and_columns() -> None:
    x, y = rng(0).normal(size=(2, 3, 4)), rng(1).normal(size=(2, 3, 4))
    close(row_sum(x), x.sum(-1, keepdims=True))
    close(row_dot(x, y), (x * y).sum(-1, keepdims=True))
    close(column_sum(x[0]), x[0].sum(0))


@pytest.mark.parametrize(("n", "d"), [(1, 1), (5, 8), (7, 5), (600, 32)])
def test_sinusoids(n: int, d: int) -> None:
    close(sinusoids(n, d), qkv.layers.sinusoids(n, d).numpy())


def test_masks() -> None:
    ids = np.array([[5, 7, 0], [0, 1, 2]])
    close(causal(4), qkv.masks.causal(4).numpy(), 0)
    close(padding(ids, 0), qkv.masks.padding(torch.tensor(ids), 0).numpy(), 0)


# --- layers


@dataclass
class Twin:
    """A layer of ours, the PyTorch half's, and how both are asked the same thing."""

    ours: Layer
    theirs: nn.Module
    inputs: dict[str, Array]
    forward: Callable[..., Any]
    backward: Callable[[Array], Any]
    their_forward: Callable[..., Tensor]


def padded_mask(B: int, n: int, seed: int) -> Array:
    """Boolean [B, 1, 1, n]: some keys are padding, the first never is."""
    keep = rng(seed).random((B, 1, 1, n)) < 0.7
    keep[..., 0] = True
    return keep


def linear(s: dict[str, int], bias: bool, norm: Any) -> Twin:
    ours = Linear(s["d_model"], s["d_ff"], rng(), bias=bias)
    theirs = nn.Linear(s["d_model"], s["d_ff"], bias=bias)
    x = rng(1).normal(size=(s["B"], s["n_q"], s["d_model"]))
    return Twin(ours, theirs, {"x": x}, ours, ours.backward, theirs)


def norms(s: dict[str, int], bias: bool, norm: Any) -> Twin:
    ours, theirs = LayerNorm(s["d_model"]), nn.LayerNorm(s["d_model"])
    x = rng(1).normal(size=(s["B"], s["n_q"], s["d_model"]))
    return Twin(ours, theirs, {"x": x}, ours, ours.backward, theirs)


def feed_forward(s: dict[str, int], bias: bool, norm: Any) -> Twin:
    ours = FeedForward(s["d_model"], s["d_ff"], rng())
    theirs = qkv.layers.FeedForward(s["d_model"], s["d_ff"])
    x = rng(1).normal(size=(s["B"], s["n_q"], s["d_model"]))
    return Twin(ours, theirs, {"x": x}, ours, ours.backward, theirs)


def embedding(s: dict[str, int], bias: bool, norm: Any) -> Twin:
    ours = Embedding(7, s["d_model"], 9, rng())
    theirs = qkv.layers.Embedding(7, s["d_model"], 9)
    ids = rng(1).integers(0, 7, (s["B"], s["n_q"]))
    return Twin(
        *(ours, theirs, {}, lambda: ours(ids), ours.backward, lambda: theirs(torch.tensor(ids)))
    )


def self_attention(s: dict[str, int], bias: bool, norm: Any) -> Twin:
    sizes = {"d_k": s["d_k"], "d_v": s["d_v"], "bias": bias}
    ours = MultiHeadAttention(s["d_model"], s["h"], rng(), **sizes)
    theirs = qkv.attention.MultiHeadAttention(s["d_model"], s["h"], **sizes)
    x = rng(1).normal(size=(s["B"], s["n_q"], s["d_model"]))
    mask = causal(s["n_q"]) & padded_mask(s["B"], s["n_q"], 2)
    return Twin(
        *(ours, theirs, {"x": x}, lambda x: ours(x, mask=mask), roles_meet(ours)),
        lambda x: theirs(x, mask=torch.tensor(mask)),
    )


def cross_attention(s: dict[str, int], bias: bool, norm: Any) -> Twin:
    sizes = {"d_context": s["d_ff"], "d_k": s["d_k"], "d_v": s["d_v"], "bias": bias}
    ours = MultiHeadAttention(s["d_model"], s["h"], rng(), **sizes)
    theirs = qkv.attention.MultiHeadAttention(s["d_model"], s["h"], **sizes)
    x_q = rng(1).normal(size=(s["B"], s["n_q"], s["d_model"]))
    x_kv = rng(2).normal(size=(s["B"], s["n_kv"], s["d_ff"]))
    mask = padded_mask(s["B"], s["n_kv"], 2)
    return Twin(
        *(ours, theirs, {"x_q": x_q, "x_kv": x_kv}),
        *(lambda q, kv: ours(q, kv, mask), ours.backward),
        lambda q, kv: theirs(q, kv, torch.tensor(mask)),
    )


def residual(s: dict[str, int], bias: bool, norm: Any) -> Twin:
    ours, theirs = Residual(s["d_model"], norm), qkv.layers.Residual(s["d_model"], norm)
    x = rng(1).normal(size=(s["B"], s["n_q"], s["d_model"]))
    W = rng(2).normal(size=(s["d_model"], s["d_model"]))
    return Twin(
        *(ours, theirs, {"x": x}, lambda x: ours(x, lambda y: y @ W)),
        lambda g: ours.backward(g, lambda g: g @ W.T),
        lambda x: theirs(x, lambda y: y @ torch.tensor(W)),
    )


def encoder_block(s: dict[str, int], bias: bool, norm: Any) -> Twin:
    d_model = 2 * s["h"] * s["d_k"]
    ours = EncoderBlock(d_model, s["h"], s["d_ff"], rng(), norm=norm, bias=bias)
    theirs = qkv.transformer.EncoderBlock(d_model, s["h"], s["d_ff"], norm=norm, bias=bias)
    x = rng(1).normal(size=(s["B"], s["n_q"], d_model))
    mask = padded_mask(s["B"], s["n_q"], 2)
    return Twin(
        *(ours, theirs, {"x": x}, lambda x: ours(x, mask), ours.backward),
        lambda x: theirs(x, torch.tensor(mask)),
    )


def decoder_block(s: dict[str, int], bias: bool, norm: Any) -> Twin:
    d_model = 2 * s["h"] * s["d_k"]
    ours = DecoderBlock(d_model, s["h"], s["d_ff"], rng(), norm=norm, bias=bias)
    theirs = qkv.transformer.DecoderBlock(d_model, s["h"], s["d_ff"], norm=norm, bias=bias)
    x = rng(1).normal(size=(s["B"], s["n_q"], d_model))
    memory = rng(2).normal(size=(s["B"], s["n_kv"], d_model))
    masks = causal(s["n_q"]) & padded_mask(s["B"], s["n_q"], 2), padded_mask(s["B"], s["n_kv"], 3)
    return Twin(
        *(ours, theirs, {"x": x, "memory": memory}),
        *(lambda x, m: ours(x, m, *masks), ours.backward),
        lambda x, m: theirs(x, m, *map(torch.tensor, masks)),
    )


def whole(s: dict[str, int], bias: bool, norm: Any) -> Twin:
    sizes: dict[str, Any] = {
        "d_model": 2 * s["h"] * s["d_k"],
        "n_heads": s["h"],
        "d_ff": s["d_ff"],
        "n_layers": s["n_layers"],
        "max_len": 8,
        "norm": norm,
        "bias": bias,
        "pad": 0,
    }
    ours = Transformer(9, 7, **sizes, dtype=np.float64)
    theirs = qkv.transformer.Transformer(9, 7, **sizes)
    source = rng(1).integers(0, 9, (s["B"], s["n_kv"]))
    target = rng(2).integers(0, 7, (s["B"], s["n_q"]))
    source[0, -1], source[-1] = 0, 0  # padding at an end, and a row of nothing else
    return Twin(
        *(ours, theirs, {}, lambda: ours(source, target), ours.backward),
        lambda: theirs(torch.tensor(source), torch.tensor(target)),
    )


LAYERS = [linear, norms, feed_forward, embedding, self_attention, cross_attention, residual]
LAYERS += [encoder_block, decoder_block, whole]
SIZES = {"B": 2, "n_q": 3, "n_kv": 4, "h": 2, "d_k": 2, "d_v": 3, "d_model": 4, "d_ff": 5}
SIZES |= {"n_layers": 1}
each_layer = pytest.mark.parametrize("make", LAYERS, ids=lambda make: make.__name__)


def sizes() -> st.SearchStrategy[dict[str, int]]:
    least = {"d_model": 2}  # a norm over one number has nothing to say
    most = {"B": 3, "h": 4, "d_k": 4, "d_v": 5, "d_model": 8, "d_ff": 9, "n_layers": 2}
    return st.fixed_dictionaries(
        {name: st.integers(least.get(name, 1), most.get(name, 6)) for name in SIZES}
    )


@each_layer
@pytest.mark.parametrize(("norm", "bias"), [("post", False), ("pre", True)])
def test_differences(make: Callable[..., Twin], norm: str, bias: bool) -> None:
    twin = make(SIZES, bias, norm)
    randomise(twin.theirs)
    twin.ours.load({name: value.numpy() for name, value in twin.theirs.state_dict().items()})
    errors = check(make.__name__, twin.forward, twin.backward, twin.inputs, layer=twin.ours)
    assert set(errors) == {*twin.inputs, *twin.ours.parameters()}


@each_layer
@drawn(12)
@given(case=sizes(), bias=st.booleans(), norm=st.sampled_from(["post", "pre"]))
def test_equal_to_the_pytorch_half(
    make: Callable[..., Twin], case: dict[str, int], bias: bool, norm: str
) -> None:
    twin = make(case, bias, norm)
    randomise(twin.theirs)
    twin.ours.load({name: value.numpy() for name, value in twin.theirs.state_dict().items()})
    tensors = [torch.tensor(x, requires_grad=True) for x in twin.inputs.values()]
    y = twin.their_forward(*tensors)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    theirs = torch.autograd.grad(y, [*tensors, *twin.theirs.parameters()], g)
    kept = {name: x.copy() for name, x in twin.inputs.items()}
    close(twin.forward(*twin.inputs.values()), y.detach().numpy())
    slope = g.numpy().copy()
    slopes = twin.backward(slope)
    close(slope, g.numpy(), 0)  # neither the slope nor the inputs are changed
    for name, x in twin.inputs.items():
        close(x, kept[name], 0)
    slopes = () if slopes is None else slopes if isinstance(slopes, tuple) else (slopes,)
    for ours, expected in zip(slopes, theirs[: len(tensors)], strict=True):
        close(ours, expected.numpy())
    names = [name for name, _ in twin.theirs.named_parameters()]
    gradients = twin.ours.gradients()
    assert sorted(gradients) == sorted(names)
    for name, expected in zip(names, theirs[len(tensors) :], strict=True):
        close(gradients[name], expected.numpy())


@each_layer
def test_weights_go_both_ways(make: Callable[..., Twin]) -> None:
    twin = make(SIZES, True, "pre")
    twin.theirs.load_state_dict({k: torch.tensor(v) for k, v in twin.ours.state().items()})
    tensors = [torch.tensor(x) for x in twin.inputs.values()]
    close(twin.forward(*twin.inputs.values()), twin.their_forward(*tensors).detach().numpy())


@each_layer
def test_float32_stays_float32(make: Callable[..., Twin]) -> None:
    twin = make(SIZES, True, "post")
    exact = twin.forward(*twin.inputs.values())
    twin.ours.to(np.float32)
    if make is residual:  # its sublayer is the test's own
        return
    y = twin.forward(*(x.astype(np.float32) for x in twin.inputs.values()))
    assert y.dtype == np.float32
    close(y, exact, 1e-4)
    slopes = twin.backward(np.ones_like(y))
    slopes = () if slopes is None else slopes if isinstance(slopes, tuple) else (slopes,)
    for slope in (*slopes, *twin.ours.gradients().values(), *twin.ours.parameters().values()):
        assert slope.dtype == np.float32


def test_without_W_O_the_heads_stand_side_by_side() -> None:
    x, g = rng(1).normal(size=(2, 3, 6)), rng(2).normal(size=(2, 3, 6))
    bare = MultiHeadAttention(6, 2, rng(), d_k=2, mix=False)
    full = MultiHeadAttention(6, 2, rng(), d_k=2)
    assert set(full.parameters()) - set(bare.parameters()) == {"W_O.weight"}
    full.load(bare.state() | {"W_O.weight": np.eye(6)})
    close(bare(x), full(x))
    for ours, expected in zip(bare.backward(g), full.backward(g), strict=True):
        close(ours, expected)


def test_without_the_factor_the_table_holds_the_product_and_its_slope_is_the_outputs() -> None:
    ids, g = rng(1).integers(0, 7, (2, 3)), rng(2).normal(size=(2, 3, 16))
    bare, full = Embedding(7, 16, 5, rng(), scaled=False), Embedding(7, 16, 5, rng())
    close(bare.table.weight, 4 * full.table.weight)
    close(bare(ids), full(ids))
    check("Embedding", lambda: bare(ids), bare.backward, {}, layer=bare)
    for layer in (bare, full):
        layer(ids)
        layer.backward(g)
    close(full.gradients()["table.weight"], 4 * bare.gradients()["table.weight"])


def test_the_weights_of_the_last_call_can_be_seen() -> None:
    x_q, x_kv = rng(1).normal(size=(2, 3, 4)), rng(2).normal(size=(2, 5, 4))
    mha = MultiHeadAttention(4, 2, rng())
    mha(x_q, x_kv)
    close(mha.weights.sum(-1), np.ones((2, 2, 3)))
    assert mha.weights.shape == (2, 2, 3, 5)


def test_a_layer_that_does_nothing() -> None:
    x = rng().normal(size=(2, 3))
    nothing = Identity()
    assert nothing(x) is x and nothing.backward(x) is x and nothing.parameters() == {}


def test_slopes_of_the_call_before_are_replaced() -> None:
    layer, x, g = Linear(3, 2, rng()), rng(1).normal(size=(4, 3)), rng(2).normal(size=(4, 2))
    layer(x)
    layer.backward(g)
    once = layer.gradients()["weight"].copy()
    layer(x)
    layer.backward(g)
    close(layer.gradients()["weight"], once, 0)


# --- refusals


def test_backward_before_forward_says_what_to_do() -> None:
    layers: list[tuple[Layer, Callable[[], object]]] = [
        (linear := Linear(3, 2, rng()), lambda: linear.backward(np.ones((4, 2)))),
        (loss := CrossEntropy(), lambda: loss.backward()),
        (norm := LayerNorm(3), lambda: norm.backward(np.ones((4, 3)))),
    ]
    for layer, backward in layers:
        with says(AttributeError, type(layer).__name__, "call forward first"):
            backward()


def test_load_refuses_other_weights_and_changes_nothing() -> None:
    layer = Linear(3, 2, rng())
    kept, state = layer.state(), layer.state()
    with says(ValueError, "missing ['bias']", "unknown ['gain']", "Linear"):
        layer.load({"weight": kept["weight"], "gain": kept["bias"]})
    state["weight"] += 1
    state["bias"] = np.zeros(3)
    with says(ValueError, "state['bias'] has shape [3]", "expected [2]"):
        layer.load(state)
    close(layer.weight, kept["weight"], 0)


def test_layers_refuse() -> None:
    layer, x = Linear(3, 2, rng()), np.ones((4, 3))
    with says(RuntimeError, "no gradients yet", "backward"):
        layer.gradients()
    with says(TypeError, "dtype must be a floating one", "int"):
        layer.to(int)
    with says(TypeError, "x must be a numpy.ndarray", "list"):
        layer(x.tolist())
    with says(ValueError, "x must have shape [..., 3]", "[4, 2]"):
        layer(x[:, :2])
    with says(TypeError, "x is float32", "float64", "x.astype(np.float64"):
        layer(x.astype(np.float32))
    with says(ValueError, "x must have shape [..., 3]", "[4, 2]"):
        LayerNorm(3)(x[:, :2])
    with says(ValueError, "x is empty", "[0, 3]"):
        layer(x[:0])
    with says(ValueError, "norm must be one of 'post', 'pre'", "'after'"):
        Residual(4, "after")  # type: ignore[arg-type]
    for make, name in (
        (lambda: Linear(0, 2, rng()), "d_in must be at least 1"),
        (lambda: LayerNorm(0), "d_model must be at least 1"),
        (lambda: Table(0, 2, rng(), 1.0), "vocab must be at least 1"),
        (lambda: Embedding(2, 2, 0, rng()), "max_len must be at least 1"),
        (lambda: sinusoids(0, 2), "n must be at least 1"),
        (lambda: MultiHeadAttention(4, 3, rng()), "not divisible by n_heads = 3"),
        (lambda: MultiHeadAttention(4, 2, rng(), d_k=0), "d_k must be at least 1"),
        (lambda: MultiHeadAttention(4, 2, rng(), d_v=3, mix=False), "d_model = 4"),
    ):
        with says(ValueError, name):
            make()


Q3, K5, V5 = np.ones((2, 3, 4)), np.ones((2, 5, 4)), np.ones((2, 5, 6))


@pytest.mark.parametrize(
    ("arguments", "error", "fragments"),
    [
        ((Q3.tolist(), K5, V5), TypeError, ("Q must be a numpy.ndarray", "list")),
        ((Q3, K5, V5[0, 0]), ValueError, ("V must have shape [..., n, d]", "[6]")),
        ((Q3, K5[:, :0], V5), ValueError, ("K must have shape", "no empty axis", "[2, 0, 4]")),
        ((Q3, K5.astype(np.float32), V5), TypeError, ("one floating dtype", "K float32")),
        ((Q3.astype(int), K5, V5), TypeError, ("one floating dtype", "int64")),
        ((Q3[..., :2], K5, V5), ValueError, ("d_k", "Q [2, 3, 2]", "K [2, 5, 4]")),
        ((Q3, K5, V5[:, :4]), ValueError, ("n_kv", "K [2, 5, 4]", "V [2, 4, 6]")),
        ((Q3[0], K5, V5), ValueError, ("axes before the last two", "Q [3, 4]")),
        ((Q3, K5, V5, [[True]]), TypeError, ("mask must be a numpy.ndarray", "list")),
        ((Q3, K5, V5, np.ones((3, 5), int)), TypeError, ("mask must be Boolean", "int64")),
        ((Q3, K5, V5, np.ones((5, 3), bool)), ValueError, ("mask [5, 3]", "[2, 3, 5]")),
    ],
)
def test_attention_refuses(
    arguments: tuple[Any, ...], error: type[Exception], fragments: tuple[str, ...]
) -> None:
    with says(error, *fragments):
        attention(*arguments)


def test_multi_head_attention_refuses() -> None:
    mha, x = MultiHeadAttention(4, 2, rng()), np.ones((2, 3, 4))
    with says(TypeError, "x_q must be a numpy.ndarray", "list"):
        mha([[1.0]])
    with says(ValueError, "x_kv must have shape [..., n, width]", "[4]"):
        mha(x, x[0, 0])
    with says(ValueError, "axes before the last two", "x_kv [3, 4]"):
        mha(x, x[0])
    with says(ValueError, "mask [4, 3]", "scores [2, 2, 3, 4]"):
        mha(x, np.ones((2, 4, 4)), np.ones((4, 3), bool))
    with says(ValueError, "mask [2, 3, 3]", "which axis is the heads", "mask[:, None]"):
        mha(x, mask=np.ones((2, 3, 3), bool))
    with says(TypeError, "mask must be a numpy.ndarray", "list"):
        mha(x, mask=[[True]])


@pytest.mark.parametrize(
    ("ids", "error", "fragments"),
    [
        ([[1]], TypeError, ("ids must be a numpy.ndarray", "list")),
        (np.ones((2, 3)), TypeError, ("ids must hold ids", "whole numbers", "float64")),
        (np.ones(3, int), ValueError, ("ids must have shape [B, n]", "[3]", "ids[None]")),
        (np.ones((0, 3), int), ValueError, ("ids must have shape [B, n], not empty", "[0, 3]")),
        (np.full((1, 2), 5), ValueError, ("ids holds the id 5", "0 … 4")),
        (np.full((1, 2), -1), ValueError, ("ids holds the id -1", "0 … 4")),
        (np.ones((1, 4), int), ValueError, ("ids needs 4 positions", "max_len = 3")),
    ],
)
def test_embedding_refuses(ids: Any, error: type[Exception], fragments: tuple[str, ...]) -> None:
    with says(error, *fragments):
        Embedding(5, 2, 3, rng())(ids)


@pytest.mark.parametrize(
    ("logits", "target", "pad", "error", "fragments"),
    [
        (np.ones((2, 3)).tolist(), np.ones(2, int), None, TypeError, ("logits must be", "list")),
        (np.ones((2, 3)), [1, 1], None, TypeError, ("target must be a numpy.ndarray", "list")),
        (np.ones((2, 3)), np.ones(2), None, TypeError, ("target must hold ids", "float64")),
        (np.ones((2, 3)), np.ones(3, int), None, ValueError, ("logits [2, 3]", "target [3]")),
        (np.ones((2, 3)), np.full(2, 3), None, ValueError, ("target holds the id 3", "0 … 2")),
        (np.ones((2, 3)), np.ones(2, int), 1.0, TypeError, ("pad must be an int", "1.0")),
        (np.ones((2, 3)), np.ones(2, int), 1, ValueError, ("nothing but pad = 1",)),
    ],
)
def test_cross_entropy_refuses(
    logits: Any, target: Any, pad: Any, error: type[Exception], fragments: tuple[str, ...]
) -> None:
    with says(error, *fragments):
        CrossEntropy(pad)(logits, target)
