"""What is compared: for each name two ways to do the same, each made ready to be called."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.attention import attention
from qkv.byhand import optimisers
from qkv.byhand.softmax import CrossEntropy
from qkv.byhand.transformer import Transformer as ByHand
from qkv.decoding import greedy
from qkv.layers import Embedding
from qkv.transformer import Transformer

Run = Callable[[], object]


class Pair(NamedTuple):
    sides: tuple[Callable[[], Run], Callable[[], Run]]  # ours, the other
    aim: float | None = None  # ratio of times that ours should not exceed
    threads: tuple[int, ...] = (1, 2)


class Size(NamedTuple):
    """Of a model and of a batch."""

    d_model: int
    n_heads: int
    d_ff: int
    n_layers: int
    vocab: int
    B: int
    n_source: int
    n_target: int

    def ours(self, max_len: int = 64, bias: bool = False) -> Transformer:
        return Transformer(
            *(self.vocab, self.vocab),
            d_model=self.d_model,
            n_heads=self.n_heads,
            d_ff=self.d_ff,
            n_layers=self.n_layers,
            max_len=max_len,
            bias=bias,
        )


class PyTorchs(nn.Module):
    """nn.Transformer between the same embeddings and output layer as ours, as one writes it."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.source_embedding = Embedding(size.vocab, size.d_model, 64)
        self.target_embedding = Embedding(size.vocab, size.d_model, 64)
        self.stacks = nn.Transformer(
            *(size.d_model, size.n_heads, size.n_layers, size.n_layers, size.d_ff),
            dropout=0.0,
            batch_first=True,
        )
        self.to_vocab = nn.Linear(size.d_model, size.vocab)
        self.mask = nn.Transformer.generate_square_subsequent_mask(size.n_target)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = self.source_embedding(source), self.target_embedding(target)
        return self.to_vocab(self.stacks(x, y, tgt_mask=self.mask, tgt_is_causal=True))


def training_step(size: Size, make: Callable[[Size], nn.Module]) -> Run:
    """Forward, loss, backward, AdamW."""
    torch.manual_seed(0)
    model = make(size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    source = torch.randint(size.vocab, (size.B, size.n_source))
    target = torch.randint(size.vocab, (size.B, size.n_target + 1))

    def step() -> None:
        optimizer.zero_grad()
        logits = model(source, target[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten()).backward()
        optimizer.step()

    return step


def step_by_hand(size: Size) -> Run:
    """The same step in NumPy, every gradient by hand."""
    model = ByHand(
        *(size.vocab, size.vocab),
        d_model=size.d_model,
        n_heads=size.n_heads,
        d_ff=size.d_ff,
        n_layers=size.n_layers,
        max_len=64,
    )
    loss, optimiser = CrossEntropy(), optimisers.AdamW(model, 1e-4)
    rng = np.random.default_rng(0)
    source = rng.integers(size.vocab, size=(size.B, size.n_source))
    target = rng.integers(size.vocab, size=(size.B, size.n_target + 1))

    def step() -> None:
        loss(model(source, target[:, :-1]), target[:, 1:])
        model.backward(loss.backward())
        optimiser.step()

    return step


def one_attention(B: int, n: int, backward: bool, function: Callable[..., Tensor]) -> Run:
    """8 heads of width 64, no mask, no weights asked for."""
    g = torch.Generator().manual_seed(0)
    Q, K, V, slope = (torch.randn(B, 8, n, 64, generator=g) for _ in range(4))
    if not backward:
        return lambda: function(Q, K, V)
    for x in (Q, K, V):
        x.requires_grad_()
    return lambda: torch.autograd.grad(function(Q, K, V), (Q, K, V), slope)


def decoding(size: Size, limit: int, cache: bool) -> Run:
    torch.manual_seed(0)
    model = size.ours(max_len=limit)
    source = torch.randint(size.vocab, (size.B, size.n_source))
    return lambda: greedy(model, source, start=0, limit=limit, cache=cache)


SMALL = Size(32, 4, 32, 1, vocab=12, B=100, n_source=6, n_target=3)
PAPER = Size(512, 8, 2048, 2, vocab=1000, B=8, n_source=64, n_target=64)
WRITER = Size(128, 4, 512, 2, vocab=100, B=0, n_source=64, n_target=1)

PAIRS: dict[str, Pair] = {}
for label, size, ours, aim in [
    ("small, biases in both", SMALL, partial(Size.ours, bias=True), 0.85),
    ("small, each as it comes", SMALL, Size.ours, 0.85),
    ("paper's width, biases in both", PAPER, partial(Size.ours, bias=True), 1.0),
]:
    PAIRS[f"training step, {label}"] = Pair(
        (partial(training_step, size, ours), partial(training_step, size, PyTorchs)), aim
    )
for label, size, aim in [
    ("small", SMALL, 0.7),
    ("width 128, feed-forward 512", SMALL._replace(d_model=128, d_ff=512), 1.0),
]:
    sides = partial(step_by_hand, size), partial(training_step, size, Size.ours)
    # NumPy's threads are settled when it is loaded: one.
    PAIRS[f"step by hand : autograd, {label}"] = Pair(sides, aim, threads=(1,))
for n in (16, 64, 256, 1024, 2048):
    for B in sorted({2048 // n, 1}, reverse=True):
        for backward in (False, True):
            label = f"attention, {B} x {n} tokens, {'and backward' if backward else 'forward'}"
            PAIRS[label] = Pair(
                (
                    partial(one_attention, B, n, backward, attention),
                    partial(one_attention, B, n, backward, F.scaled_dot_product_attention),
                ),
                1.05,
            )
for B, limit, aim in [(8, 64, None), (8, 128, None), (8, 256, 0.2), (1, 256, 0.2)]:
    size = WRITER._replace(B=B)
    PAIRS[f"decoding {limit} tokens, {B} rows, cache : none"] = Pair(
        (partial(decoding, size, limit, True), partial(decoding, size, limit, False)), aim
    )
