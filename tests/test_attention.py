"""attention and MultiHeadAttention: equal to the definition and to PyTorch's, masks, refusals."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import Tensor, nn

from qkv import masks
from qkv._require_plain import head_widths
from qkv.attention import MultiHeadAttention, attention
from support import (
    Case,
    all_close,
    cases,
    close,
    drawn,
    outputs_and_gradients,
    randomise,
    refused,
    says,
)

# The worked example that runs through the book.
q = torch.tensor([[1.0, 1, 1, 1]])
K = torch.tensor([[1.0, -1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]])
V = torch.tensor([[10.0, 0], [0, 10], [10, 10]])


def by_definition(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Query by query, key by key, with no matrix product: output and weights."""
    shape = (*Q.shape[:-1], K.shape[-2])
    M = torch.zeros(shape, dtype=Q.dtype)
    if mask is not None:
        M = M + (masks.additive(mask, dtype=Q.dtype) if mask.dtype == torch.bool else mask)
    rows = []
    for place in torch.cartesian_prod(*(torch.arange(n) for n in Q.shape[:-1])).tolist():
        *lead, i = place
        scores = [
            (Q[(*lead, i)] * K[(*lead, j)]).sum() / math.sqrt(Q.shape[-1]) + M[(*lead, i, j)]
            for j in range(K.shape[-2])
        ]
        e = torch.stack([s.exp() for s in scores])
        rows.append(e / e.sum() if e.sum() > 0 else torch.zeros_like(e))
    weights = torch.stack(rows).view(shape)
    output = (weights[..., None] * V[..., None, :, :]).sum(-2)
    return output, weights


def qkv_of(case: Case) -> list[Tensor]:
    lead = (case.B, case.h)
    return case.tensors(
        (*lead, case.n_q, case.d_k), (*lead, case.n_kv, case.d_k), (*lead, case.n_kv, case.d_v)
    )


# --- attention: what it computes


def test_the_worked_example() -> None:
    output, weights = attention(q, K, V, return_weights=True)
    torch.testing.assert_close(weights, torch.tensor([[0.0900, 0.2447, 0.6652]]), atol=5e-5, rtol=0)
    torch.testing.assert_close(output, torch.tensor([[7.553, 9.100]]), atol=5e-4, rtol=0)
    close(attention(q, K, V), output)


def test_the_worked_example_without_the_third_key() -> None:
    output, weights = attention(q, K, V, torch.tensor([True, True, False]), return_weights=True)
    torch.testing.assert_close(weights, torch.tensor([[0.2689, 0.7311, 0]]), atol=5e-5, rtol=0)
    torch.testing.assert_close(output, torch.tensor([[2.689, 7.311]]), atol=5e-4, rtol=0)


@drawn(25)
@given(cases(dtypes=(torch.float64,)))
def test_both_paths_equal_the_definition(case: Case) -> None:
    inputs, mask = qkv_of(case), case.mask()
    with torch.no_grad():
        output, weights = by_definition(*inputs, mask)
        got, got_weights = attention(*inputs, mask, return_weights=True)
        close(got, output)
        close(got_weights, weights)
        close(attention(*inputs, mask), output)


@drawn(60)
@given(cases())
def test_both_paths_equal_pytorchs_with_gradients(case: Case) -> None:
    inputs, mask = qkv_of(case), case.mask()
    theirs = F.scaled_dot_product_attention(*inputs, attn_mask=mask)
    expected = outputs_and_gradients(theirs, *inputs)
    all_close(outputs_and_gradients(attention(*inputs, mask), *inputs), expected)
    output, weights = attention(*inputs, mask, return_weights=True)
    all_close(outputs_and_gradients(output, *inputs), expected)
    total = weights.sum(-1)
    assert weights.shape == (case.B, case.h, case.n_q, case.n_kv)
    assert (weights >= 0).all()
    nearly_one = (total - 1).abs() < 1e-5
    if "empty" in case.kind:
        assert (nearly_one | (total == 0)).all()
        assert (total == 0).any()
    else:
        assert nearly_one.all()


@drawn(20)
@given(cases(kinds=("additive", "additive empty rows"), dtypes=(torch.float64,)))
def test_an_additive_mask_gets_the_same_gradient_from_both_paths(case: Case) -> None:
    inputs, mask = qkv_of(case), case.mask()
    assert mask is not None
    mask.requires_grad_()
    output, _ = attention(*inputs, mask, return_weights=True)
    (with_weights,) = outputs_and_gradients(output, mask)[1:]
    assert with_weights.isfinite().all()
    theirs = F.softmax(
        (inputs[0] @ inputs[1].mT / math.sqrt(case.d_k) + mask).masked_fill(mask.isinf(), -1e300),
        dim=-1,
    )
    alive = ~mask.isinf().all(-1, keepdim=True)
    (expected,) = outputs_and_gradients((theirs * alive) @ inputs[2], mask)[1:]
    close(with_weights, expected)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 1, 3), (1, 2, 3, 2)])
@pytest.mark.parametrize("masked", [False, True])
def test_any_leading_axes(lead: tuple[int, ...], masked: bool) -> None:
    g = torch.Generator().manual_seed(0)
    Q, K, V = (
        torch.randn(*lead, *s, generator=g, dtype=torch.float64) for s in [(4, 6), (5, 6), (5, 3)]
    )
    mask = torch.rand(4, 5, generator=g) < 0.7 if masked else None
    output, weights = attention(Q, K, V, mask, return_weights=True)
    assert output.shape == (*lead, 4, 3)
    assert weights.shape == (*lead, 4, 5)
    close(attention(Q, K, V, mask), output)
    one = attention(*(x.reshape(-1, *x.shape[-2:])[-1] for x in (Q, K, V)), mask)
    close(output.reshape(-1, 4, 3)[-1], one)


def test_leading_axes_of_1_broadcast() -> None:
    g = torch.Generator().manual_seed(0)
    Q, K, V = (torch.randn(s, generator=g) for s in [(2, 1, 4, 6), (1, 3, 5, 6), (1, 3, 5, 2)])
    whole = [x.expand(2, 3, -1, -1) for x in (Q, K, V)]
    mask = torch.rand(2, 3, 4, 5, generator=g) < 0.7
    close(attention(Q, K, V, mask), attention(*whole, mask))
    close(attention(Q, K, V, mask, return_weights=True)[0], attention(*whole, mask))


@pytest.mark.parametrize("shape", [(), (1,), (5,), (4, 1), (1, 5), (3, 1, 5), (2, 1, 1, 5)])
@pytest.mark.parametrize("kind", ["Boolean", "additive"])
@pytest.mark.parametrize("d_v", [3, 6])
def test_masks_of_every_broadcast_shape(shape: tuple[int, ...], kind: str, d_v: int) -> None:
    g = torch.Generator().manual_seed(1)
    Q, K, V = (torch.randn(2, 3, *s, generator=g) for s in [(4, 6), (5, 6), (5, d_v)])
    mask = torch.rand(shape, generator=g) < 0.6
    whole = mask.expand(2, 3, 4, 5)
    if kind == "additive":
        mask = masks.additive(mask)
    expected = F.scaled_dot_product_attention(Q, K, V, attn_mask=whole)
    close(attention(Q, K, V, mask), expected)
    close(attention(Q, K, V, mask, return_weights=True)[0], expected)


@pytest.mark.parametrize("d_k", [1, 4, 64, 512])
def test_scores_of_unit_normal_numbers_spread_by_about_1(d_k: int) -> None:
    g = torch.Generator().manual_seed(0)
    Q, K = torch.randn(300, d_k, generator=g), torch.randn(300, d_k, generator=g)
    _, weights = attention(Q, K, K, return_weights=True)
    scores = weights.log()  # up to a number a row
    assert (scores - scores.mean(-1, keepdim=True)).std().item() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("size", [1e3, 1e10])
def test_large_scores_overflow_nothing(size: float) -> None:
    Q, K = torch.tensor([[size, 0.0]]), torch.tensor([[size, 0.0], [0.0, 1.0]])
    for output in (attention(Q, K, K), attention(Q, K, K, return_weights=True)[0]):
        assert torch.equal(output, K[:1])


# --- attention: what must not matter, and what must


@drawn(20)
@given(cases(kinds=("none",), dtypes=(torch.float64,)))
def test_the_order_of_keys_and_values_together_does_not_matter(case: Case) -> None:
    Q, K, V = qkv_of(case)
    order = torch.randperm(case.n_kv, generator=case.generator())
    close(attention(Q, K[..., order, :], V[..., order, :]), attention(Q, K, V))
    output, weights = attention(Q, K[..., order, :], V[..., order, :], return_weights=True)
    close(output, attention(Q, K, V))
    close(weights, attention(Q, K, V, return_weights=True)[1][..., order])


@pytest.mark.parametrize("return_weights", [False, True])
def test_the_order_of_the_keys_alone_matters(return_weights: bool) -> None:
    g = torch.Generator().manual_seed(0)
    Q, K, V = (torch.randn(5, 4, generator=g) for _ in range(3))
    there = attention(Q, K, V, return_weights=return_weights)
    back = attention(Q, K.flip(0), V, return_weights=return_weights)
    difference = there[0] - back[0] if return_weights else there - back
    assert (difference.abs().amax(-1) > 1e-3).all()


@pytest.mark.parametrize("return_weights", [False, True])
def test_what_the_mask_hides_does_not_enter(return_weights: bool) -> None:
    g = torch.Generator().manual_seed(0)
    Q, K, V = (torch.randn(3, 2, n, 4, generator=g) for n in (5, 7, 7))
    keep = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6])
    mask = masks.padding(keep, 0)
    hidden = (keep == 0)[:, None, :, None]
    other_K, other_V = K.masked_fill(hidden, 1e4), V.masked_fill(hidden, -1e4)
    before = attention(Q, K, V, mask, return_weights=True)
    after = attention(Q, other_K, other_V, mask, return_weights=True)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])
    assert torch.equal(attention(Q, K, V, mask), attention(Q, other_K, other_V, mask))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["Boolean", "additive"])
@pytest.mark.parametrize("return_weights", [False, True])
@pytest.mark.parametrize("d_v", [4, 3])
def test_a_row_that_may_attend_to_nothing_gives_zeros_and_finite_gradients(
    dtype: torch.dtype, kind: str, return_weights: bool, d_v: int
) -> None:
    g = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(2, 3, *shape, generator=g).to(dtype).requires_grad_()
        for shape in [(4, 4), (5, 4), (5, d_v)]
    ]
    mask = torch.ones(2, 1, 4, 5, dtype=torch.bool)
    mask[0, :, 1] = False
    mask[1] = False
    given = mask if kind == "Boolean" else masks.additive(mask, dtype=dtype)
    if return_weights:
        output, weights = attention(*inputs, given, return_weights=True)
        assert (weights[0, :, 1] == 0).all()
        assert (weights[1] == 0).all()
    else:
        output = attention(*inputs, given)
    assert output.dtype == dtype
    assert (output[0, :, 1] == 0).all()
    assert (output[1] == 0).all()
    assert (output[0, :, 0] != 0).any()
    gradients = torch.autograd.grad(output.float().square().sum(), inputs)
    for gradient in gradients:
        assert gradient.isfinite().all()
        assert (gradient[1] == 0).all()
        assert (gradient[0] != 0).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_agrees_with_float32(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(0)
    Q, K, V = (torch.randn(2, 3, n, 4, generator=g).to(dtype) for n in (4, 5, 5))
    expected = attention(Q.float(), K.float(), V.float(), masks.causal(5)[:4])
    for mask in (masks.causal(5)[:4], masks.additive(masks.causal(5)[:4])):  # float32 M too
        for got in (attention(Q, K, V, mask), attention(Q, K, V, mask, return_weights=True)[0]):
            assert got.dtype == dtype
            torch.testing.assert_close(got.float(), expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_large_scores_of_half_types_overflow_nothing(dtype: torch.dtype, autocast: bool) -> None:
    Q, V = torch.full((3, 64), 100.0, dtype=dtype), torch.arange(12.0).view(3, 4).to(dtype)
    expected = V.float().mean(0).expand(3, 4)
    with torch.autocast("cpu", dtype, enabled=autocast):
        output, weights = attention(Q, Q, V, return_weights=True)
    assert output.dtype == weights.dtype == dtype
    torch.testing.assert_close(output.float(), expected, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(attention(Q, Q, V).float(), expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("number", [-1e9, 1e9, float("inf")])
@pytest.mark.parametrize("return_weights", [False, True])
def test_a_mask_that_turns_infinite_in_qs_dtype_is_refused(
    number: float, return_weights: bool
) -> None:
    Q, mask = torch.ones(2, 4, dtype=torch.float16), torch.zeros(2, 2)
    mask[0, 1] = number
    with says(
        ValueError,
        f"mask holds {number:g}",
        "torch.float16",
        "say -inf",
        "masks.additive(..., dtype=torch.float16",
    ):
        attention(Q, Q, Q, mask, return_weights=return_weights)
    mask[0, 1] = float("-inf")
    assert attention(Q, Q, Q, mask, return_weights=return_weights)[0].isfinite().all()


@drawn(20)
@given(cases())
def test_inputs_are_not_modified(case: Case) -> None:
    inputs, mask = [x.detach() for x in qkv_of(case)], case.mask()
    given = [*inputs, *([] if mask is None else [mask])]
    before = [x.clone() for x in given]
    versions = [x._version for x in given]
    attention(*inputs, mask)
    attention(*inputs, mask, return_weights=True)
    assert all(torch.equal(x, y) for x, y in zip(given, before, strict=True))
    assert [x._version for x in given] == versions


# --- attention: what it refuses


def randn(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    g = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=g, dtype=dtype).to(device)


Q3, K5, V5 = randn(2, 3, 4), randn(2, 5, 4), randn(2, 5, 6)


@pytest.mark.parametrize(
    ("given", "fragments"),
    [
        (([[1.0]], K5, V5), ("Q must be a torch.Tensor", "list", "torch.as_tensor(Q")),
        ((Q3, K5.numpy(), V5), ("K must be a torch.Tensor", "ndarray")),
        ((Q3, K5, None), ("V must be a torch.Tensor", "NoneType")),
        ((Q3, K5.double(), V5), ("Q torch.float32", "K torch.float64")),
        ((Q3, K5, V5.half()), ("Q torch.float32", "V torch.float16")),
        ((Q3.long(), K5.long(), V5.long()), ("floating dtype", "Q torch.int64")),
        ((Q3, K5, V5, [[True]]), ("mask must be a torch.Tensor", "list")),
        ((Q3, K5, V5, torch.ones(3, 5)[0].int()), ("mask", "torch.int32", "mask.bool(")),
    ],
)
@pytest.mark.parametrize("return_weights", [False, True])
def test_wrong_types_are_refused(
    given: tuple[Tensor, ...], fragments: tuple[str, ...], return_weights: bool
) -> None:
    with refused(TypeError, *fragments):
        attention(*given, return_weights=return_weights)


@pytest.mark.parametrize(
    ("given", "fragments"),
    [
        ((Q3[0, 0], K5, V5), ("Q must have shape [..., n, d]", "[4]")),
        ((Q3[:, :0], K5, V5), ("Q", "no empty axis", "[2, 0, 4]")),
        ((Q3, K5[:, :0], V5[:, :0]), ("K", "no empty axis", "[2, 0, 4]")),
        ((Q3, K5, V5[..., :0]), ("V", "no empty axis", "[2, 5, 0]")),
        ((Q3[..., :3], K5, V5), ("d_k", "Q [2, 3, 3]", "K [2, 5, 4]")),
        ((Q3, K5, V5[:, :4]), ("n_kv", "K [2, 5, 4]", "V [2, 4, 6]")),
        ((randn(3, 3, 4), K5, V5), ("broadcast", "Q [3, 3, 4]", "K [2, 5, 4]", "V [2, 5, 6]")),
        ((Q3, K5, randn(3, 5, 6)), ("broadcast", "V [3, 5, 6]")),
        ((Q3.to("meta"), K5, V5), ("K is on cpu", "expected meta", "K.to('meta'")),
        ((Q3, K5, V5.to("meta")), ("V is on meta", "expected cpu")),
        ((Q3, K5, V5, torch.ones(3, 5, device="meta")), ("mask is on meta", "expected cpu")),
        ((Q3, K5, V5, torch.ones(3, 4)), ("mask [3, 4]", "scores [2, 3, 5]", "[..., n_q, n_kv]")),
        ((Q3, K5, V5, torch.ones(2)), ("mask [2]", "scores [2, 3, 5]")),
        ((Q3, K5, V5, torch.ones(1, 2, 3, 5)), ("mask [1, 2, 3, 5]", "scores [2, 3, 5]")),
        ((Q3, K5, V5, torch.ones(3, 0)), ("mask [3, 0]", "scores [2, 3, 5]")),
    ],
)
@pytest.mark.parametrize("return_weights", [False, True])
def test_wrong_values_are_refused(
    given: tuple[Tensor, ...], fragments: tuple[str, ...], return_weights: bool
) -> None:
    with refused(ValueError, *fragments):
        attention(*given, return_weights=return_weights)


# --- MultiHeadAttention: equal to one head after another, and to PyTorch's


def module(
    *sizes: int, seed: int = 0, dtype: torch.dtype = torch.float64, **more: int | bool
) -> MultiHeadAttention:
    mha = MultiHeadAttention(*sizes, **more)
    randomise(mha, seed)
    return mha.to(dtype)


def head_by_head(
    mha: MultiHeadAttention, x_q: Tensor, x_kv: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The paper's formula, each head with its own slice of the matrices, W_O's slices added up."""
    output, weights = 0, []
    for i in range(mha.n_heads):
        k, v = (slice(i * d, (i + 1) * d) for d in (mha.d_k, mha.d_v))
        bias = mha.W_Q.bias is not None
        Q, K, V = (
            F.linear(x, W.weight[s], W.bias[s] if bias else None)
            for x, W, s in [(x_q, mha.W_Q, k), (x_kv, mha.W_K, k), (x_kv, mha.W_V, v)]
        )
        M = None
        if mask is not None:
            M = mask.expand(*x_q.shape[:-2], mha.n_heads, x_q.shape[-2], x_kv.shape[-2])
            M = M[..., i, :, :]
        head, A = attention(Q, K, V, M, return_weights=True)
        output = output + head @ mha.W_O.weight[:, v].T
        weights.append(A)
    if bias:
        output = output + mha.W_O.bias
    return output, torch.stack(weights, dim=-3)


@drawn(40)
@given(cases())
def test_all_heads_at_once_equal_head_by_head(case: Case) -> None:
    d_model, d_context = 2 * case.d_k + 1, case.d_v + 2
    mha = module(
        *(d_model, case.h),
        d_context=d_context,
        d_k=case.d_k,
        d_v=case.d_v,
        bias=case.seed % 2 == 0,
        dtype=case.dtype,
        seed=case.seed,
    )
    x_q, x_kv = case.tensors((case.B, case.n_q, d_model), (case.B, case.n_kv, d_context))
    wanted = [x_q, x_kv, *mha.parameters()]
    mask = case.mask()
    output, weights = head_by_head(mha, x_q, x_kv, mask)
    expected = outputs_and_gradients(output, *wanted)
    all_close(outputs_and_gradients(mha(x_q, x_kv, mask), *wanted), expected)
    output, got_weights = mha(x_q, x_kv, mask, return_weights=True)
    all_close(outputs_and_gradients(output, *wanted), expected)
    close(got_weights, weights)


def pytorchs(mha: MultiHeadAttention) -> nn.MultiheadAttention:
    """nn.MultiheadAttention with mha's weights; it knows d_v = d_k = d_model / h only."""
    bias = mha.W_Q.bias is not None
    theirs = nn.MultiheadAttention(
        mha.d_model,
        mha.n_heads,
        bias=bias,
        batch_first=True,
        kdim=mha.d_context,
        vdim=mha.d_context,
    ).to(mha.W_Q.weight.dtype)
    with torch.no_grad():
        three = (mha.W_Q, mha.W_K, mha.W_V)
        if mha.d_context == mha.d_model:
            theirs.in_proj_weight.copy_(torch.cat([W.weight for W in three]))
        else:
            for name, W in zip("qkv", three, strict=True):
                getattr(theirs, f"{name}_proj_weight").copy_(W.weight)
        if bias:
            theirs.in_proj_bias.copy_(torch.cat([W.bias for W in three]))
        theirs.out_proj.load_state_dict(mha.W_O.state_dict())
    return theirs


def gradients_in_our_layout(
    theirs: nn.MultiheadAttention, output: Tensor, *inputs: Tensor
) -> list[Tensor]:
    """Output, gradients of the inputs, of W_Q, W_K, W_V, W_O, and of the biases where there are."""
    packed = theirs.in_proj_weight is not None
    bias = theirs.in_proj_bias is not None
    into = (
        [theirs.in_proj_weight]
        if packed
        else [theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight]
    )
    wanted = [*inputs, *into, theirs.out_proj.weight]
    wanted += [theirs.in_proj_bias, theirs.out_proj.bias] if bias else []
    out = outputs_and_gradients(output, *wanted)
    cut = 1 + len(inputs)
    head, rest = out[:cut], out[cut:]
    weights = [*rest[0].chunk(3), rest[1]] if packed else rest[:4]
    biases = [*rest[-2].chunk(3), rest[-1]] if bias else []
    return [*head, *weights, *biases]


def our_gradients(mha: MultiHeadAttention, output: Tensor, *inputs: Tensor) -> list[Tensor]:
    four = (mha.W_Q, mha.W_K, mha.W_V, mha.W_O)
    biases = [W.bias for W in four if W.bias is not None]
    return outputs_and_gradients(output, *inputs, *(W.weight for W in four), *biases)


def their_mask(mask: Tensor | None, case: Case) -> Tensor | None:
    """nn.MultiheadAttention's convention: True hides, and batch and heads share the first axis."""
    if mask is None:
        return None
    whole = mask.expand(case.B, case.h, case.n_q, case.n_kv).flatten(0, 1)
    return ~whole if mask.dtype == torch.bool else whole


@drawn(60)
@given(cases())
def test_equal_to_pytorchs_module_with_gradients(case: Case) -> None:
    # nn.MultiheadAttention without weights gives an empty row zeros before W_O, as ours does.
    # With weights it gives NaN there, so that those rows have a test of their own below.
    d_model = case.h * case.d_k
    d_context = d_model if case.seed % 3 else d_model + 1
    mha = module(
        *(d_model, case.h),
        d_context=d_context,
        bias=case.seed % 2 == 0,
        dtype=case.dtype,
        seed=case.seed,
    )
    theirs = pytorchs(mha)
    x_q, x_kv = case.tensors((case.B, case.n_q, d_model), (case.B, case.n_kv, d_context))
    mask = case.mask()
    hidden = their_mask(mask, case)
    output, _ = theirs(x_q, x_kv, x_kv, attn_mask=hidden, need_weights=False)
    expected = gradients_in_our_layout(theirs, output, x_q, x_kv)
    all_close(our_gradients(mha, mha(x_q, x_kv, mask), x_q, x_kv), expected)
    output, weights = mha(x_q, x_kv, mask, return_weights=True)
    ours = our_gradients(mha, output, x_q, x_kv)
    all_close(ours, expected)
    if "empty" not in case.kind:
        output, their_weights = theirs(
            x_q, x_kv, x_kv, attn_mask=hidden, need_weights=True, average_attn_weights=False
        )
        all_close(ours, gradients_in_our_layout(theirs, output, x_q, x_kv))
        close(weights, their_weights)


def test_pytorchs_module_gives_nan_where_ours_gives_zeros_before_w_o() -> None:
    mha = module(8, 2, bias=True)
    theirs = pytorchs(mha)
    x = randn(3, 4, 8, dtype=torch.float64)
    mask = masks.causal(4).clone()
    mask[2] = False
    output, weights = mha(x, mask=mask, return_weights=True)
    their_output, their_weights = theirs(
        x, x, x, attn_mask=~mask, need_weights=True, average_attn_weights=False
    )
    alive = [0, 1, 3]
    close(output[:, alive], their_output[:, alive])
    close(weights[:, :, alive], their_weights[:, :, alive])
    assert their_output[:, 2].isnan().all()
    assert (weights[:, :, 2] == 0).all()
    close(output[:, 2], mha.W_O.bias.expand(3, 8))


def test_pytorchs_padding_mask_is_ours_inverted() -> None:
    mha = module(8, 2)
    x, ids = (
        randn(3, 5, 8, dtype=torch.float64),
        torch.tensor([[1] * 5, [1] * 3 + [0] * 2, [1] + [0] * 4]),
    )
    output, _ = pytorchs(mha)(
        x, x, x, key_padding_mask=ids == 0, attn_mask=~masks.causal(5), need_weights=False
    )
    close(mha(x, mask=masks.causal(5) & masks.padding(ids, 0)), output)


# --- MultiHeadAttention: properties


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("return_weights", [False, True])
def test_batched_or_not(lead: tuple[int, ...], return_weights: bool) -> None:
    mha = module(8, 2, d_context=5, d_v=3)
    x_q, x_kv = randn(*lead, 4, 8, dtype=torch.float64), randn(*lead, 6, 5, dtype=torch.float64)
    mask = randn(4, 6) > -0.5
    result = mha(x_q, x_kv, mask, return_weights=return_weights)
    output = result[0] if return_weights else result
    assert output.shape == (*lead, 4, 8)
    if return_weights:
        assert result[1].shape == (*lead, 2, 4, 6)
    last = mha(x_q.reshape(-1, 4, 8)[-1], x_kv.reshape(-1, 6, 5)[-1], mask)
    close(output.reshape(-1, 4, 8)[-1], last)


def test_x_kv_is_x_q_unless_given() -> None:
    mha, x = module(8, 2), randn(2, 4, 8, dtype=torch.float64)
    assert torch.equal(mha(x), mha(x, x))
    assert not torch.allclose(mha(x), mha(x, x.flip(1) + 1))


def test_one_query_row_asks_a_batch() -> None:
    mha, x_q, x_kv = module(8, 2), *(randn(*s, dtype=torch.float64) for s in [(1, 3, 8), (4, 5, 8)])
    mask = masks.padding(
        torch.tensor([[1] * 5, [1] * 4 + [0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 1]]), 0
    )
    close(mha(x_q, x_kv, mask), mha(x_q.expand(4, -1, -1), x_kv, mask))


def test_a_mask_for_each_head() -> None:
    mha, x = module(8, 2), randn(3, 4, 8, dtype=torch.float64)
    per_head = torch.stack([masks.causal(4), masks.causal(4).T])  # [h, n, n]
    _, weights = mha(x, mask=per_head.unsqueeze(0), return_weights=True)
    assert ((weights > 0) == per_head).all()
    _, weights = mha(x[0], mask=per_head, return_weights=True)  # without a batch nothing is open
    assert ((weights > 0) == per_head).all()


def test_permuted_tokens_give_permuted_answers() -> None:
    mha, x = module(8, 4), randn(2, 5, 8, dtype=torch.float64)
    order = torch.tensor([3, 0, 4, 1, 2])
    close(mha(x[:, order]), mha(x)[:, order])


def test_rows_of_a_batch_do_not_meet() -> None:
    mha, x = module(8, 4), randn(3, 5, 8, dtype=torch.float64)
    close(mha(x), torch.stack([mha(row) for row in x]))


def test_inputs_of_the_module_are_not_modified_and_may_have_any_strides() -> None:
    mha = module(8, 2)
    x = randn(5, 2, 8, dtype=torch.float64).transpose(0, 1)  # not contiguous
    before, version = x.clone(), x._version
    close(mha(x), mha(x.contiguous()))
    assert torch.equal(x, before)
    assert x._version == version


def test_keys_and_values_made_before_give_the_same() -> None:
    mha, x_q, x_kv = module(8, 2), *(randn(2, n, 8, dtype=torch.float64) for n in (3, 5))
    K, V = mha.keys_values(x_kv)
    assert K.shape == V.shape == (2, 2, 5, 4)
    close(mha.attend(x_q, K, V), mha(x_q, x_kv))
    output, weights = mha.attend(x_q, K, V, masks.causal(5)[:3], return_weights=True)
    expected = mha(x_q, x_kv, masks.causal(5)[:3], return_weights=True)
    all_close([output, weights], list(expected))


@pytest.mark.parametrize("bias", [False, True])
def test_the_parameters_are_four_linears(bias: bool) -> None:
    mha = MultiHeadAttention(12, 3, d_context=5, d_k=2, d_v=7, bias=bias)
    shapes = {name: list(p.shape) for name, p in mha.named_parameters()}
    weights = {"W_Q": [6, 12], "W_K": [6, 5], "W_V": [21, 5], "W_O": [12, 21]}
    expected = {f"{name}.weight": shape for name, shape in weights.items()}
    if bias:
        expected |= {f"{name}.bias": shape[:1] for name, shape in weights.items()}
    assert shapes == expected


def test_autocast_takes_float32_and_computes_in_bfloat16() -> None:
    mha, x = MultiHeadAttention(8, 2), randn(2, 4, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = mha(x)
        again = mha(output)  # a bfloat16 input meets float32 weights
    assert output.dtype == again.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), mha(x), atol=2e-2, rtol=2e-2)


# --- MultiHeadAttention: what it refuses


@pytest.mark.parametrize(
    ("sizes", "more", "error", "fragments"),
    [
        (("8", 2), {}, TypeError, ("d_model", "int", "str")),
        ((8, 2.0), {}, TypeError, ("n_heads", "int", "float: 2.0")),
        ((True, 1), {}, TypeError, ("d_model", "bool")),
        ((0, 1), {}, ValueError, ("d_model", "at least 1", "0")),
        ((8, -2), {}, ValueError, ("n_heads", "at least 1", "-2")),
        ((8, 3), {}, ValueError, ("d_model = 8", "n_heads = 3", "divisible", "d_k")),
        ((8, 3), {"d_k": 2}, ValueError, ("d_model = 8", "n_heads = 3", "divisible")),
        ((8, 2), {"d_context": 0}, ValueError, ("d_context", "at least 1")),
        ((8, 2), {"d_k": 0}, ValueError, ("d_k", "at least 1")),
        ((8, 2), {"d_v": 1.5}, TypeError, ("d_v", "int", "float")),
    ],
)
def test_wrong_sizes_are_refused(
    sizes: tuple[int, int], more: dict[str, int], error: type[Exception], fragments: tuple[str, ...]
) -> None:
    with refused(error, *fragments):
        MultiHeadAttention(*sizes, **more)


def test_heads_that_do_not_divide_d_model_are_fine_with_widths_given() -> None:
    assert MultiHeadAttention(8, 3, d_k=2, d_v=5)(randn(2, 4, 8)).shape == (2, 4, 8)


MHA = MultiHeadAttention(8, 2, d_context=6)
X_Q, X_KV = randn(2, 3, 8), randn(2, 5, 6)


@pytest.mark.parametrize(
    ("given", "error", "fragments"),
    [
        (([1.0], X_KV), TypeError, ("x_q must be a torch.Tensor", "list")),
        ((X_Q, X_KV.tolist()), TypeError, ("x_kv must be a torch.Tensor", "list")),
        ((X_Q.double(), X_KV), TypeError, ("x_q is torch.float64", "x_q.to(torch.float32")),
        ((X_Q.long(), X_KV), TypeError, ("x_q is torch.int64", "torch.float32")),
        ((X_Q, X_KV.half()), TypeError, ("x_kv is torch.float16", "torch.float32")),
        ((X_Q, X_KV, [[True]]), TypeError, ("mask must be a torch.Tensor", "list")),
        ((X_Q, X_KV, torch.ones(3, 5).int()), TypeError, ("mask", "torch.int32", "Boolean")),
        ((X_Q[0, 0], X_KV), ValueError, ("x_q must have shape [..., n, 8]", "[8]")),
        ((X_KV, X_KV), ValueError, ("x_q must have shape [..., n, 8]", "[2, 5, 6]")),
        ((X_Q, X_Q), ValueError, ("x_kv must have shape [..., n, 6]", "[2, 3, 8]")),
        ((X_Q,), ValueError, ("x_kv is missing", "d_context = 6", "d_model = 8")),
        ((X_Q[:, :0], X_KV), ValueError, ("x_q is empty", "[2, 0, 8]")),
        ((X_Q[:0], X_KV), ValueError, ("x_q is empty", "[0, 3, 8]")),
        ((X_Q, X_KV[:, :0]), ValueError, ("x_kv is empty", "[2, 0, 6]")),
        ((X_Q.to("meta"), X_KV), ValueError, ("x_q is on meta", "expected cpu", "x_q.to('cpu'")),
        ((X_Q, X_KV.to("meta")), ValueError, ("x_kv is on meta", "expected cpu")),
        ((X_Q.double().to("meta"), X_KV), ValueError, ("x_q is on meta", "expected cpu")),
        (
            (X_Q, randn(3, 5, 6)),
            ValueError,
            ("equal or 1", "x_q [2, 3, 8]", "x_kv [3, 5, 6]"),
        ),
        (
            (X_Q, X_KV, torch.ones(2, 3, 5) > 0),
            ValueError,
            (
                "mask [2, 3, 5]",
                "heads",
                "[..., h, n_q, n_kv]",
                "mask.unsqueeze(-3",
                "mask.unsqueeze(0",
            ),
        ),
        ((X_Q, X_KV, torch.ones(1, 3, 5)), ValueError, ("mask [1, 3, 5]", "heads")),
        ((X_Q, X_KV, torch.ones(5, 3)), ValueError, ("mask [5, 3]", "scores [2, 2, 3, 5]")),
        ((X_Q, X_KV, torch.ones(2, 3, 3, 5)), ValueError, ("mask [2, 3, 3, 5]", "[2, 2, 3, 5]")),
        ((X_Q, X_KV, torch.ones(3, 5, device="meta")), ValueError, ("mask is on meta", "cpu")),
    ],
)
@pytest.mark.parametrize("return_weights", [False, True])
def test_the_module_refuses(
    given: tuple[Tensor, ...],
    error: type[Exception],
    fragments: tuple[str, ...],
    return_weights: bool,
) -> None:
    with refused(error, *fragments):
        MHA(*given, return_weights=return_weights)


def test_attend_refuses_what_forward_refuses() -> None:
    K, V = MHA.keys_values(X_KV)
    mask = torch.ones(2, 3, 5)
    with refused(ValueError, "x_q must have shape [..., n, 8]", "[2, 5, 6]"):
        MHA.attend(X_KV, K, V)
    with refused(ValueError, "mask [2, 3, 5]", "heads"):
        MHA.attend(X_Q, K, V, mask)
    with refused(ValueError, "K must have shape [..., h, n_kv, d_k]", "h = 2", "[2, 1, 5, 4]"):
        MHA.attend(X_Q, K[:, :1], V)
    with refused(ValueError, "V must have shape", "d_v = 4", "[2, 2, 5, 3]", "keys_values(x_kv"):
        MHA.attend(X_Q, K, V[..., :3])
    with refused(ValueError, "K must have shape", "[5, 4]"):
        MHA.attend(X_Q, K[0, 0], V)
    with refused(TypeError, "V must be a torch.Tensor", "NoneType"):
        MHA.attend(X_Q, K, None)
    with refused(ValueError, "x_kv must have shape [..., n, 6]", "[2, 3, 8]"):
        MHA.keys_values(X_Q)


# --- on a GPU


@pytest.mark.gpu
def test_a_gpu_gives_what_the_cpu_gives() -> None:
    from qkv.devices import device

    gpu = device()
    mha, x = MultiHeadAttention(8, 2), randn(2, 4, 8)
    mask = masks.causal(4).clone()
    mask[1] = False
    expected = mha(x, mask=mask, return_weights=True)
    mha.to(gpu)
    there = mha(x.to(gpu), mask=mask.to(gpu), return_weights=True)
    for a, b in zip(there, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b, atol=1e-4, rtol=1e-4)
    fused = mha(x.to(gpu), mask=mask.to(gpu))
    torch.testing.assert_close(fused.cpu(), expected[0], atol=1e-4, rtol=1e-4)
    with refused(ValueError, "mask is on cpu", "expected"):
        mha(x.to(gpu), mask=mask)


def test_widths_that_are_left_out_do_not_follow_those_that_are_given():
    assert head_widths(8, 2, None, 3, None) == (8, 3, 4)
    assert head_widths(8, 2, 5, None, 7) == (5, 4, 7)
    mha = MultiHeadAttention(8, 2, d_k=3)
    assert (mha.d_context, mha.d_k, mha.d_v) == (8, 3, 4)
    assert mha.W_V.weight.shape == (2 * 4, 8)
