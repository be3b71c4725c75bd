"""The blocks and the whole model: equal to PyTorch's, causal, blind to padding, refusals."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from qkv import masks
from qkv.attention import MultiHeadAttention
from qkv.cache import Cache
from qkv.layers import Norm, Residual
from qkv.transformer import DecoderBlock, EncoderBlock, Transformer
from support import all_close, close, drawn, outputs_and_gradients, randomise, refused, says

PAD = 0
Pair = tuple[list[nn.Parameter], nn.Parameter]  # ours, stacked, are theirs


def attention_pairs(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> Iterator[Pair]:
    three = [ours.W_Q, ours.W_K, ours.W_V]
    yield [W.weight for W in three], theirs.in_proj_weight
    yield [ours.W_O.weight], theirs.out_proj.weight
    if ours.W_O.bias is not None:
        yield [W.bias for W in three], theirs.in_proj_bias
        yield [ours.W_O.bias], theirs.out_proj.bias


def module_pairs(ours: nn.Module, theirs: nn.Module) -> Iterator[Pair]:
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        yield [mine], other


def encoder_pairs(ours: EncoderBlock, theirs: nn.TransformerEncoderLayer) -> Iterator[Pair]:
    yield from attention_pairs(ours.self_attention, theirs.self_attn)
    yield from module_pairs(ours.around_self_attention.norm, theirs.norm1)
    yield from module_pairs(ours.feed_forward.W_1, theirs.linear1)
    yield from module_pairs(ours.feed_forward.W_2, theirs.linear2)
    yield from module_pairs(ours.around_feed_forward.norm, theirs.norm2)


def decoder_pairs(ours: DecoderBlock, theirs: nn.TransformerDecoderLayer) -> Iterator[Pair]:
    yield from attention_pairs(ours.self_attention, theirs.self_attn)
    yield from module_pairs(ours.around_self_attention.norm, theirs.norm1)
    yield from attention_pairs(ours.cross_attention, theirs.multihead_attn)
    yield from module_pairs(ours.around_cross_attention.norm, theirs.norm2)
    yield from module_pairs(ours.feed_forward.W_1, theirs.linear1)
    yield from module_pairs(ours.feed_forward.W_2, theirs.linear2)
    yield from module_pairs(ours.around_feed_forward.norm, theirs.norm3)


def copy_weights(pairs: list[Pair], theirs: nn.Module) -> None:
    """Into PyTorch's module. Where ours has no bias in its attention, theirs gets zeros."""
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if name.endswith(("in_proj_bias", "out_proj.bias")):
                parameter.zero_()
        for ours, parameter in pairs:
            parameter.copy_(torch.cat(list(ours)))


def same_with_gradients(
    ours: Tensor, theirs: Tensor, inputs: list[Tensor], pairs: list[Pair]
) -> None:
    mine = [p for group, _ in pairs for p in group]
    output, *gradients = outputs_and_gradients(ours, *inputs, *mine)
    expected, *their_gradients = outputs_and_gradients(theirs, *inputs, *(p for _, p in pairs))
    close(output, expected)
    all_close(gradients[: len(inputs)], their_gradients[: len(inputs)])
    rest = iter(gradients[len(inputs) :])
    for (group, _), expected in zip(pairs, their_gradients[len(inputs) :], strict=True):
        close(torch.cat([next(rest) for _ in group]), expected)


def sizes() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "B": st.integers(1, 3),
            "n_source": st.integers(1, 6),
            "n_target": st.integers(1, 6),
            "h": st.integers(1, 3),
            "d_k": st.integers(1, 4),
            "d_ff": st.integers(1, 9),
            "norm": st.sampled_from(["post", "pre"]),
            "bias": st.booleans(),
            "padded": st.booleans(),
            "dtype": st.sampled_from([torch.float64, torch.float32]),
            "seed": st.integers(0, 2**20),
        }
    )


def draw_ids(B: int, n: int, vocab: int, padded: bool, seed: int) -> Tensor:
    """Ids 1 … vocab - 1; where padded, each row keeps at least one and may end in padding."""
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, vocab, (B, n), generator=g)
    if padded:
        lengths = torch.randint(1, n + 1, (B, 1), generator=g)
        ids = ids.masked_fill(torch.arange(n) >= lengths, PAD)
    return ids


def draw_tokens(case: dict[str, Any], shape: tuple[int, ...], d_model: int) -> Tensor:
    g = torch.Generator().manual_seed(case["seed"])
    return torch.randn(*shape, d_model, generator=g, dtype=case["dtype"], requires_grad=True)


# --- equal to PyTorch's


@drawn(25)
@given(sizes())
def test_encoder_block_equals_pytorchs_layer(case: dict[str, Any]) -> None:
    d_model = 2 * case["h"] * case["d_k"]  # a layer norm over one number has nothing to say
    ours = EncoderBlock(d_model, case["h"], case["d_ff"], norm=case["norm"], bias=case["bias"])
    theirs = nn.TransformerEncoderLayer(
        *(d_model, case["h"], case["d_ff"]),
        dropout=0.0,
        batch_first=True,
        norm_first=case["norm"] == "pre",
    )
    randomise(ours, case["seed"])
    ours, theirs = ours.to(case["dtype"]), theirs.to(case["dtype"])
    pairs = list(encoder_pairs(ours, theirs))
    copy_weights(pairs, theirs)
    ids = draw_ids(case["B"], case["n_source"], 9, case["padded"], case["seed"])
    x = draw_tokens(case, ids.shape, d_model)
    mask = masks.padding(ids, PAD) if case["padded"] else None
    hidden = ids == PAD if case["padded"] else None
    same_with_gradients(ours(x, mask), theirs(x, src_key_padding_mask=hidden), [x], pairs)


@drawn(25)
@given(sizes())
def test_decoder_block_equals_pytorchs_layer(case: dict[str, Any]) -> None:
    d_model = 2 * case["h"] * case["d_k"]
    ours = DecoderBlock(d_model, case["h"], case["d_ff"], norm=case["norm"], bias=case["bias"])
    theirs = nn.TransformerDecoderLayer(
        *(d_model, case["h"], case["d_ff"]),
        dropout=0.0,
        batch_first=True,
        norm_first=case["norm"] == "pre",
    )
    randomise(ours, case["seed"])
    ours, theirs = ours.to(case["dtype"]), theirs.to(case["dtype"])
    pairs = list(decoder_pairs(ours, theirs))
    copy_weights(pairs, theirs)
    source = draw_ids(case["B"], case["n_source"], 9, case["padded"], case["seed"])
    target = draw_ids(case["B"], case["n_target"], 9, case["padded"], case["seed"] + 1)
    x, memory = draw_tokens(case, target.shape, d_model), draw_tokens(case, source.shape, d_model)
    causal = masks.causal(case["n_target"])
    if case["padded"]:
        got = ours(x, memory, causal & masks.padding(target, PAD), masks.padding(source, PAD))
        more = {
            "tgt_key_padding_mask": target == PAD,
            "memory_key_padding_mask": source == PAD,
        }
    else:
        got, more = ours(x, memory, causal), {}
    expected = theirs(x, memory, tgt_mask=~causal, **more)
    same_with_gradients(got, expected, [x, memory], pairs)


class PyTorchs(nn.Module):
    """nn.Transformer between our embeddings and output layer.

    nn.Transformer ends both stacks in a norm of their own, also in post-norm. The paper
    has none there, and neither has ours; so the stacks are handed over without one. In
    pre-norm both need it and both have it.
    """

    def __init__(self, ours: Transformer, h: int, d_ff: int) -> None:
        super().__init__()
        d_model = ours.to_vocab.in_features
        pre = isinstance(ours.encoder_norm, nn.LayerNorm)
        sizes = {"dropout": 0.0, "batch_first": True, "norm_first": pre}
        encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d_model, h, d_ff, **sizes),
            len(ours.encoder),
            norm=nn.LayerNorm(d_model) if pre else None,
            enable_nested_tensor=False,
        )
        decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(d_model, h, d_ff, **sizes),
            len(ours.decoder),
            norm=nn.LayerNorm(d_model) if pre else None,
        )
        self.stacks = nn.Transformer(
            d_model, h, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
        ).to(ours.to_vocab.weight.dtype)
        self.ours = [ours]  # in a list, so that its parameters are not this module's
        self.pairs = [
            pair
            for kind, mine, others in [
                (encoder_pairs, ours.encoder, encoder.layers),
                (decoder_pairs, ours.decoder, decoder.layers),
            ]
            for block, layer in zip(mine, others, strict=True)
            for pair in kind(block, layer)
        ]
        if pre:
            self.pairs += module_pairs(ours.encoder_norm, encoder.norm)
            self.pairs += module_pairs(ours.decoder_norm, decoder.norm)
        copy_weights(self.pairs, self.stacks)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        (ours,) = self.ours
        padded = ours.pad is not None
        x = self.stacks(
            ours.source_embedding(source),
            ours.target_embedding(target),
            tgt_mask=~masks.causal(target.shape[1]),
            src_key_padding_mask=source == PAD if padded else None,
            tgt_key_padding_mask=target == PAD if padded else None,
            memory_key_padding_mask=source == PAD if padded else None,
        )
        return ours.to_vocab(x)


@drawn(25)
@given(sizes(), st.integers(1, 3))
def test_the_whole_model_equals_nn_transformer(case: dict[str, Any], n_layers: int) -> None:
    ours = Transformer(
        *(9, 7),
        d_model=2 * case["h"] * case["d_k"],
        n_heads=case["h"],
        d_ff=case["d_ff"],
        n_layers=n_layers,
        norm=case["norm"],
        bias=case["bias"],
        pad=PAD if case["padded"] else None,
        max_len=8,
    )
    randomise(ours, case["seed"])
    ours = ours.to(case["dtype"])
    theirs = PyTorchs(ours, case["h"], case["d_ff"])
    source = draw_ids(case["B"], case["n_source"], 9, case["padded"], case["seed"])
    target = draw_ids(case["B"], case["n_target"], 7, case["padded"], case["seed"] + 1)
    shared = [
        ours.source_embedding.table.weight,
        ours.target_embedding.table.weight,
        *ours.to_vocab.parameters(),
    ]
    same_with_gradients(ours(source, target), theirs(source, target), shared, theirs.pairs)
    covered = {id(p) for group, _ in theirs.pairs for p in group} | {id(p) for p in shared}
    assert covered == {id(p) for p in ours.parameters()}


def test_nn_transformer_by_default_has_two_norms_more_than_the_paper() -> None:
    ours = model(norm="post", n_layers=1)
    default = nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True).double()
    with torch.no_grad():
        for ours_, other in [
            *encoder_pairs(ours.encoder[0], default.encoder.layers[0]),
            *decoder_pairs(ours.decoder[0], default.decoder.layers[0]),
        ]:
            other.copy_(torch.cat(list(ours_)))
    source, target = draw_ids(2, 5, 9, False, 0), draw_ids(2, 4, 7, False, 1)
    x, y = ours.source_embedding(source), ours.target_embedding(target)
    with_norms = default(x, y, tgt_mask=~masks.causal(4))
    memory = F.layer_norm(ours.encode(source), [8])
    close(
        ours.to_vocab(F.layer_norm(decoder_stack(ours, y, memory), [8])), ours.to_vocab(with_norms)
    )
    assert not torch.allclose(ours(source, target), ours.to_vocab(with_norms))


def decoder_stack(ours: Transformer, x: Tensor, memory: Tensor) -> Tensor:
    for block in ours.decoder:
        x = block(x, memory, masks.causal(x.shape[1]))
    return x


# --- the whole model: what may move what


def model(**more: Any) -> Transformer:
    """A small model in float64 with random numbers in every parameter."""
    given = {"d_model": 8, "n_heads": 2, "d_ff": 16, "n_layers": 2, "max_len": 12, "bias": True}
    small = Transformer(9, 7, **(given | more))
    randomise(small, seed=len(more))
    return small.double()


NORMS: list[Norm] = ["post", "pre"]


@drawn(25)
@given(
    norm=st.sampled_from(NORMS),
    pad=st.sampled_from([None, PAD]),
    n=st.integers(2, 8),
    data=st.data(),
)
def test_changing_the_future_never_moves_the_past(
    norm: Norm, pad: int | None, n: int, data: st.DataObject
) -> None:
    small = model(norm=norm, pad=pad)
    cut = data.draw(st.integers(1, n - 1))
    seed = data.draw(st.integers(0, 1000))
    source, target = draw_ids(2, 5, 9, pad is not None, seed), draw_ids(2, n, 7, False, seed)
    other = target.clone()
    other[:, cut:] = (target[:, cut:] + 1) % 7  # an id that may be padding, too
    before, after = small(source, target), small(source, other)
    close(after[:, :cut], before[:, :cut])
    assert ((after - before)[:, cut].abs() > 1e-6).any()
    # The past, in turn, does move the future, and the source moves everything.
    other = target.clone()
    other[:, 0] = target[:, 0] % 6 + 1
    assert ((small(source, other) - before)[:, -1].abs() > 1e-9).any()
    other_source = source.clone()
    other_source[:, 0] = source[:, 0] % 8 + 1
    assert ((small(other_source, target) - before).abs().amax(-1) > 1e-9).all()


@pytest.mark.parametrize("norm", NORMS)
def test_every_source_token_moves_every_token_of_the_memory(norm: Norm) -> None:
    small, source = model(norm=norm), draw_ids(1, 5, 9, False, 0)
    before = small.encode(source)
    for place in range(5):
        other = source.clone()
        other[:, place] = source[:, place] % 8 + 1
        assert ((small.encode(other) - before).abs().amax(-1) > 1e-9).all()


@drawn(25)
@given(
    norm=st.sampled_from(NORMS),
    n_source=st.integers(1, 5),
    n_target=st.integers(1, 5),
    more=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_changing_padding_never_moves_the_rest(
    norm: Norm, n_source: int, n_target: int, more: int, seed: int
) -> None:
    small = model(norm=norm, pad=PAD)
    source, target = draw_ids(3, n_source, 9, True, seed), draw_ids(3, n_target, 7, True, seed + 1)
    wider_source = F.pad(source, (0, more), value=PAD)
    wider_target = F.pad(target, (0, more), value=PAD)
    logits, wider = small(source, target), small(wider_source, wider_target)
    real = target != PAD
    close(wider[:, :n_target][real], logits[real])
    close(small.encode(wider_source)[:, :n_source], small.encode(source))
    for row in range(3):  # and a row alone, without any padding, gives the same
        alone = small(source[row][source[row] != PAD][None], target[row][real[row]][None])
        close(logits[row][real[row]], alone[0])


def test_padding_is_seen_where_the_model_is_not_told() -> None:
    source, target = draw_ids(2, 4, 9, False, 0), draw_ids(2, 3, 7, False, 1)
    wider = F.pad(source, (0, 2), value=PAD)
    blind, told = model(pad=PAD, norm="pre"), model(pad=None, norm="pre")
    close(blind(wider, target), blind(source, target))
    assert not torch.allclose(told(wider, target), told(source, target))


def test_what_the_encoder_makes_of_padding_does_not_reach_the_decoder() -> None:
    small = model(pad=PAD)
    source, target = torch.tensor([[3, 4, 5, PAD, PAD]]), draw_ids(1, 4, 7, False, 1)
    memory = small.encode(source)
    other = memory.clone()
    other[:, 3:] = 1e3
    close(small.decode(target, other, source), small.decode(target, memory, source))


@pytest.mark.parametrize("norm", NORMS)
def test_padding_everywhere_gives_numbers_and_finite_gradients(norm: Norm) -> None:
    small = model(norm=norm, pad=PAD)
    source = torch.tensor([[PAD] * 4, [1, 2, 3, PAD]])
    target = torch.tensor([[PAD, 1, PAD], [1, 2, 3]])
    logits = small(source, target)
    assert logits.isfinite().all()
    logits.square().sum().backward()
    for name, parameter in small.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    close(logits[1:], small(source[1:], target[1:]))


def test_rows_of_a_batch_do_not_meet_and_equal_rows_give_equal_logits() -> None:
    small = model()
    source, target = draw_ids(3, 5, 9, False, 0), draw_ids(3, 4, 7, False, 1)
    source[2], target[2] = source[0], target[0]
    logits = small(source, target)
    assert logits.shape == (3, 4, 7)
    for row in range(3):
        close(logits[row], small(source[row : row + 1], target[row : row + 1])[0])
    close(logits[2], logits[0])


def test_ids_are_not_modified() -> None:
    source, target = draw_ids(2, 5, 9, True, 0), draw_ids(2, 4, 7, True, 1)
    before = source.clone(), target.clone()
    model(pad=PAD)(source, target)
    assert torch.equal(source, before[0])
    assert torch.equal(target, before[1])
    assert source._version + target._version == 0


def test_block_inputs_are_not_modified() -> None:
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    mask = masks.causal(3)
    EncoderBlock(8, 2, 16, norm="pre")(x, mask)
    DecoderBlock(8, 2, 16, norm="pre")(x, memory, mask)
    assert x._version + memory._version + mask._version == 0


# --- eval, training, dropout


@pytest.mark.parametrize("norm", NORMS)
def test_eval_is_deterministic_and_training_with_dropout_is_not(norm: Norm) -> None:
    torch.manual_seed(0)
    small = model(norm=norm, dropout=0.3)
    source, target = draw_ids(2, 5, 9, False, 0), draw_ids(2, 4, 7, False, 1)
    small.eval()
    assert torch.equal(small(source, target), small(source, target))
    small.train()
    assert not torch.allclose(small(source, target), small(source, target))
    places = [m for m in small.modules() if isinstance(m, nn.Dropout)]
    assert len(places) == 2 + 2 * 2 + 2 * 3  # embeddings; two encoder and two decoder blocks


def test_without_dropout_training_is_as_eval() -> None:
    small = model()
    source, target = draw_ids(2, 5, 9, False, 0), draw_ids(2, 4, 7, False, 1)
    assert torch.equal(small.train()(source, target), small.eval()(source, target))
    assert not any(isinstance(m, nn.Dropout) for m in small.modules())


# --- parameters


@pytest.mark.parametrize("vocab", [20, 200])
@pytest.mark.parametrize("norm", NORMS)
def test_the_first_loss_is_about_the_logarithm_of_the_vocabulary(vocab: int, norm: Norm) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        fresh = Transformer(20, vocab, d_model=64, n_heads=4, d_ff=128, n_layers=2, norm=norm)
        source, target = torch.randint(20, (16, 10)), torch.randint(vocab, (16, 10))
        other = torch.randint(vocab, (16, 10))
        loss = F.cross_entropy(fresh(source, target).flatten(0, 1), other.flatten())
        assert loss.item() == pytest.approx(math.log(vocab), abs=0.35)


@pytest.mark.parametrize("norm", NORMS)
def test_blocks_have_the_parameters_counted_by_hand(norm: Norm) -> None:
    def count(module: nn.Module) -> int:
        return sum(p.numel() for p in module.parameters())

    assert count(EncoderBlock(32, 4, 32, norm=norm, bias=True)) == 6_464
    assert count(DecoderBlock(32, 4, 32, norm=norm, bias=True)) == 10_752
    assert count(EncoderBlock(32, 4, 32, norm=norm)) == 6_464 - 4 * 32
    assert count(DecoderBlock(32, 4, 32, norm=norm)) == 10_752 - 8 * 32
    whole = Transformer(11, 13, d_model=32, n_heads=4, d_ff=32, n_layers=3, norm=norm, bias=True)
    final_norms = 2 * 64 if norm == "pre" else 0
    output = 32 * 13 + 13
    assert count(whole) == (11 + 13) * 32 + 3 * (6_464 + 10_752) + final_norms + output


def test_layers_share_no_weights_and_all_of_them_learn() -> None:
    small = model(n_layers=3, norm="pre", pad=PAD)
    places = [p.data_ptr() for p in small.parameters()]
    assert len(set(places)) == len(places)
    before = [p.detach().clone() for p in small.parameters()]
    optimizer = torch.optim.AdamW(small.parameters(), lr=1e-2)
    source, target = draw_ids(4, 5, 9, True, 0), draw_ids(4, 4, 7, True, 1)
    F.cross_entropy(small(source, target).flatten(0, 1), target.flatten()).backward()
    optimizer.step()
    for (name, parameter), old in zip(small.named_parameters(), before, strict=True):
        assert not torch.equal(parameter, old), f"{name} did not move"


def test_one_batch_can_be_learnt_by_heart() -> None:
    torch.manual_seed(0)
    small = Transformer(9, 7, d_model=16, n_heads=2, d_ff=32, max_len=8)
    source, target = draw_ids(4, 5, 9, False, 0), draw_ids(4, 4, 7, False, 1)
    start = torch.cat([torch.zeros(4, 1, dtype=torch.int64), target[:, :-1]], dim=1)
    optimizer = torch.optim.AdamW(small.parameters(), lr=1e-2)
    for _ in range(120):
        optimizer.zero_grad()
        loss = F.cross_entropy(small(source, start).flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.01  # softmax applied twice could not come below 1.2


def test_positions_are_not_saved_and_follow_the_model() -> None:
    small = Transformer(9, 7, d_model=8, n_heads=2, d_ff=16, max_len=12)
    assert not [name for name in small.state_dict() if "positions" in name]
    buffers = dict(small.named_buffers())
    assert set(buffers) == {"source_embedding.positions", "target_embedding.positions"}
    longer = Transformer(9, 7, d_model=8, n_heads=2, d_ff=16, max_len=20)
    longer.load_state_dict(small.state_dict())
    source, target = draw_ids(2, 5, 9, False, 0), draw_ids(2, 4, 7, False, 1)
    close(longer(source, target), small(source, target))
    for dtype in (torch.float64, torch.bfloat16):
        assert small.to(dtype)(source, target).dtype == dtype
    assert {b.device.type for b in small.to("meta").buffers()} == {"meta"}


@pytest.mark.parametrize("norm", NORMS)
def test_only_pre_norm_has_a_final_norm_on_each_stack(norm: Norm) -> None:
    fresh = Transformer(9, 7, d_model=8, n_heads=2, d_ff=16, norm=norm)
    for final in (fresh.encoder_norm, fresh.decoder_norm):
        assert isinstance(final, nn.LayerNorm) == (norm == "pre")
    orders = {m.order for m in fresh.modules() if isinstance(m, Residual)}
    assert orders == {norm}
    assert (
        Transformer(9, 7, d_model=8, n_heads=2, d_ff=16).encoder[0].around_feed_forward.order
        == "post"
    )


# --- decoding in parts, with a cache


@drawn(25)
@given(
    norm=st.sampled_from(NORMS),
    padded=st.booleans(),
    n_layers=st.integers(1, 3),
    parts=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
)
def test_decoding_in_parts_equals_decoding_at_once(
    norm: Norm, padded: bool, n_layers: int, parts: list[int], seed: int
) -> None:
    small = model(norm=norm, n_layers=n_layers, pad=PAD if padded else None, max_len=20)
    g = torch.Generator().manual_seed(seed)
    source = draw_ids(3, 5, 9, padded, seed)
    target = torch.randint(0, 7, (3, sum(parts)), generator=g)  # padding anywhere in the row
    memory = small.encode(source)
    whole = small.decode(target, memory, source)
    close(whole, small(source, target))
    cache, seen, logits = Cache(n_layers), 0, []
    for n in parts:
        logits.append(small.decode(target[:, : seen + n], memory, source, cache))
        seen += n
        assert cache.seen == seen
        assert logits[-1].shape == (3, n, 7)
    close(torch.cat(logits, dim=1), whole)


def test_with_a_cache_the_memory_is_projected_once_and_past_tokens_never_again() -> None:
    small = model(n_layers=1)
    source, target = draw_ids(2, 5, 9, False, 0), draw_ids(2, 4, 7, False, 1)
    projected: dict[str, list[int]] = {"self": [], "cross": []}
    block = small.decoder[0]
    for name, part in [("self", block.self_attention), ("cross", block.cross_attention)]:
        part.W_K.register_forward_hook(
            lambda _, given, __, name=name: projected[name].append(given[0].shape[-2])
        )
    cache, memory = Cache(1), small.encode(source)
    for n in (1, 2, 4):
        small.decode(target[:, :n], memory, source, cache)
    assert projected == {"self": [1, 1, 2], "cross": [5]}


def test_rows_of_a_cache_can_be_chosen_and_repeated() -> None:
    small = model(pad=PAD)
    source, target = draw_ids(3, 5, 9, True, 0), draw_ids(3, 4, 7, False, 1)
    memory, cache = small.encode(source), Cache(2)
    small.decode(target[:, :3], memory, source, cache)
    rows = torch.tensor([2, 0, 2, 1])
    cache.select(rows)
    got = small.decode(target[rows], memory[rows], source[rows], cache)
    close(got, small.decode(target, memory, source)[rows][:, 3:])


# --- refusals


@pytest.mark.parametrize(
    ("more", "error", "fragments"),
    [
        ({"source_vocab": 0}, ValueError, ("source_vocab must be at least 1", "0")),
        ({"target_vocab": 7.0}, TypeError, ("target_vocab must be an int", "float: 7.0")),
        ({"n_layers": 0}, ValueError, ("n_layers must be at least 1", "0")),
        ({"n_heads": 3}, ValueError, ("d_model = 8", "n_heads = 3", "divisible")),
        ({"d_model": -8}, ValueError, ("d_model must be at least 1", "-8")),
        ({"d_ff": "16"}, TypeError, ("d_ff must be an int", "str: '16'")),
        ({"max_len": 0}, ValueError, ("max_len must be at least 1", "0")),
        ({"norm": "pre-norm"}, ValueError, ("norm must be one of 'post', 'pre'", "'pre-norm'")),
        ({"dropout": 1}, ValueError, ("dropout", "[0, 1)", "1")),
        ({"pad": 9}, ValueError, ("pad is 9", "0 … 8")),
        ({"pad": -1}, ValueError, ("pad is -1", "0 … 8")),
        ({"pad": "_"}, TypeError, ("pad must be an int", "str: '_'")),
    ],
)
def test_wrong_sizes_are_refused(
    more: dict[str, object], error: type[Exception], fragments: tuple[str, ...]
) -> None:
    given = {"source_vocab": 9, "target_vocab": 7, "d_model": 8, "n_heads": 2, "d_ff": 16} | more
    with says(error, *fragments):
        Transformer(**given)


SMALL = Transformer(9, 7, d_model=8, n_heads=2, d_ff=16, max_len=6, pad=PAD, norm="pre")
SOURCE, TARGET = draw_ids(2, 5, 9, False, 0), draw_ids(2, 4, 7, False, 1)


@pytest.mark.parametrize(
    ("source", "target", "error", "fragments"),
    [
        (SOURCE.tolist(), TARGET, TypeError, ("source must be a torch.Tensor", "list")),
        (SOURCE, TARGET.numpy(), TypeError, ("target must be a torch.Tensor", "ndarray")),
        (SOURCE.float(), TARGET, TypeError, ("source", "int64", "torch.float32", "source.long(")),
        (SOURCE, TARGET.int(), TypeError, ("target", "int64", "torch.int32", "target.long(")),
        (SOURCE[0], TARGET, ValueError, ("source", "[B, n]", "[5]", "source.unsqueeze(0")),
        (SOURCE, TARGET[..., None], ValueError, ("target", "[B, n]", "[2, 4, 1]")),
        (SOURCE[:, :0], TARGET, ValueError, ("source is empty", "[2, 0]")),
        (SOURCE, TARGET[:, :0], ValueError, ("target is empty", "[2, 0]")),
        (SOURCE + 8, TARGET, ValueError, ("source", "the id", "0 … 8")),
        (SOURCE, TARGET - 7, ValueError, ("target", "the id", "0 … 6")),
        (SOURCE.repeat(1, 2), TARGET, ValueError, ("source needs 10 positions", "max_len = 6")),
        (SOURCE, TARGET.repeat(1, 2), ValueError, ("target needs 8 positions", "max_len = 6")),
        (SOURCE.to("meta"), TARGET, ValueError, ("source is on meta", "expected cpu")),
        (SOURCE, TARGET.to("meta"), ValueError, ("target is on meta", "expected cpu")),
        (SOURCE, TARGET[:1], ValueError, ("target [1, 4]", "source [2, 5]", "number of rows")),
        (SOURCE[:1], TARGET, ValueError, ("target [2, 4]", "source [1, 5]", "number of rows")),
    ],
)
def test_wrong_ids_are_refused(
    source: Tensor, target: Tensor, error: type[Exception], fragments: tuple[str, ...]
) -> None:
    with refused(error, *fragments):
        SMALL(source, target)


def test_encode_and_decode_refuse_by_themselves() -> None:
    memory = SMALL.encode(SOURCE)
    outside = SOURCE + 8
    with refused(ValueError, "source", "the id", "0 … 8"):
        SMALL.encode(outside)
    with refused(TypeError, "target must be a torch.Tensor", "list"):
        SMALL.decode([[1]], memory, SOURCE)
    with refused(TypeError, "memory must be a torch.Tensor", "list"):
        SMALL.decode(TARGET, memory.tolist(), SOURCE)
    with refused(ValueError, "target [1, 4]", "memory [2, 5, 8]", "number of rows"):
        SMALL.decode(TARGET[:1], memory, SOURCE)


def test_decode_refuses_what_does_not_belong_together() -> None:
    memory = SMALL.encode(SOURCE)
    first, narrow, twice, floats = memory[0], memory[..., :6], SOURCE.repeat(1, 2), SOURCE.float()
    with refused(ValueError, "memory must have shape [B, n_source, d_model]", "[5, 8]"):
        SMALL.decode(TARGET, first, SOURCE)
    with refused(ValueError, "memory must have shape [..., n, 8]", "[2, 5, 6]"):
        SMALL.decode(TARGET, narrow, SOURCE)
    with refused(ValueError, "source must have the shape", "memory, [2, 5]", "got [2, 10]"):
        SMALL.decode(TARGET, memory, twice)
    with refused(TypeError, "source must hold int64 ids", "torch.float32"):
        SMALL.decode(TARGET, memory, floats)
    with refused(TypeError, "cache must be a Cache", "dict"):
        SMALL.decode(TARGET, memory, SOURCE, {})
    cache = Cache(2)
    with refused(ValueError, "cache is for 2 layers", "the model has 1", "Cache(1"):
        SMALL.decode(TARGET, memory, SOURCE, cache)
    assert cache.seen == 0


def test_a_cache_that_has_seen_it_all_is_refused() -> None:
    memory, cache = SMALL.encode(SOURCE), Cache(1)
    SMALL.decode(TARGET, memory, SOURCE, cache)
    for n in (3, 4):
        with refused(ValueError, f"target has {n} ids", "the cache has seen 4"):
            SMALL.decode(TARGET[:, :n], memory, SOURCE, cache)
    assert cache.seen == 4


@pytest.mark.parametrize("norm", NORMS)
def test_blocks_refuse(norm: Norm) -> None:
    encoder, decoder = EncoderBlock(8, 2, 16, norm=norm), DecoderBlock(8, 2, 16, norm=norm)
    x, narrow, memory = torch.ones(2, 3, 8), torch.ones(2, 3, 6), torch.ones(2, 5, 8)
    with refused(ValueError, "x must have shape [..., n, 8]", "[2, 3, 6]"):
        encoder(narrow)
    with refused(ValueError, "x must have shape [..., n, 8]", "[2, 3, 6]"):
        decoder(narrow, memory)
    with refused(ValueError, "memory must have shape [..., n, 8]", "[2, 3, 6]"):
        decoder(x, narrow)
    with refused(TypeError, "memory must be a torch.Tensor", "NoneType"):
        decoder(x, None)
    with says(ValueError, "mask [4, 4]", "[..., n_q, n_kv]"):
        encoder(x, masks.causal(4))
    with says(ValueError, "mask [3, 3]", "scores [2, 2, 3, 5]"):
        decoder(x, memory, masks.causal(3), masks.causal(3))


# --- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("norm", NORMS)
def test_a_gpu_gives_what_the_cpu_gives(norm: Norm) -> None:
    from qkv.devices import device

    gpu = device()
    small = model(norm=norm, pad=PAD).float()
    source, target = draw_ids(3, 5, 9, True, 0), draw_ids(3, 4, 7, True, 1)
    expected = small(source, target)
    small.to(gpu)
    got = small(source.to(gpu), target.to(gpu))
    torch.testing.assert_close(got.cpu(), expected, atol=1e-4, rtol=1e-4)
    with refused(ValueError, "source is on cpu", "expected"):
        small(source, target.to(gpu))
