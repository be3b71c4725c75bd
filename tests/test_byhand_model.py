"""The model by hand: steps equal to PyTorch's, greedy decoding, no torch anywhere, refusals."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import qkv.decoding
import qkv.training
import qkv.transformer
from qkv.byhand.layer_norm import LayerNorm
from qkv.byhand.optimisers import SGD, AdamW, Optimiser
from qkv.byhand.softmax import CrossEntropy
from qkv.byhand.transformer import Transformer, greedy
from support import randomise, says

PAD, START = 0, 1
Ids = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def ids(B: int, n: int, vocab: int, seed: int) -> Ids:
    """Rows that end in padding, the first of them whole."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(2, vocab, (B, n))
    lengths = rng.integers(1, n + 1, (B, 1))
    lengths[0] = n
    rows[np.arange(n) >= lengths] = PAD
    return rows


def twins(**more: Any) -> tuple[Transformer, qkv.transformer.Transformer]:
    sizes: dict[str, Any] = {"d_model": 8, "n_heads": 2, "d_ff": 12, "max_len": 9, "pad": PAD}
    theirs = qkv.transformer.Transformer(9, 7, **sizes | more)
    randomise(theirs)
    ours = Transformer(9, 7, **sizes | more, dtype=np.float64)
    ours.load({name: value.numpy() for name, value in theirs.state_dict().items()})
    return ours, theirs


@pytest.mark.parametrize("optimiser", ["SGD", "AdamW", "Adam"])
@pytest.mark.parametrize("n_heads", [1, 4])
@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("bias", [False, True])
def test_steps_from_equal_weights_give_equal_weights(
    norm: str, n_layers: int, n_heads: int, optimiser: str, bias: bool
) -> None:
    ours, theirs = twins(norm=norm, n_layers=n_layers, n_heads=n_heads, bias=bias)
    source, target = ids(5, 6, 9, 0), ids(5, 4, 7, 1)
    given = qkv.training.shift(torch.tensor(target), START)
    our_step: Optimiser
    their_step: torch.optim.Optimizer
    if optimiser == "SGD":
        our_step, their_step = SGD(ours, 0.3), torch.optim.SGD(theirs.parameters(), lr=0.3)
    else:  # an eps that rounding in a slope of nearly 0 cannot reach
        decay, settings = 0.1 * (optimiser == "AdamW"), {"betas": (0.8, 0.95), "eps": 1e-4}
        our_step = AdamW(ours, 0.02, **settings, decay=decay)
        their_step = torch.optim.AdamW(theirs.parameters(), lr=0.02, **settings, weight_decay=decay)
    loss = CrossEntropy(PAD)
    for _ in range(3):
        before = ours.state()
        their_loss = qkv.training.loss(
            theirs(torch.tensor(source), given), torch.tensor(target), PAD
        )
        their_step.zero_grad()
        their_loss.backward()
        their_step.step()
        our_loss = loss(ours(source, given.numpy()), target)
        ours.backward(loss.backward())
        our_step.step()
        assert abs(our_loss - their_loss.item()) < 1e-9
        for name, expected in theirs.state_dict().items():
            np.testing.assert_allclose(ours.parameters()[name], expected, rtol=0, atol=1e-9)
        # A bias of all keys alike moves all scores of a query alike: softmax does not see it.
        still = [name for name, w in ours.parameters().items() if (w == before[name]).all()]
        assert all(name.endswith("W_K.bias") for name in still)


def test_parameters_are_the_arrays_and_a_state_is_a_copy() -> None:
    model, _ = twins()
    state = model.state()
    model.parameters()["to_vocab.bias"][:] = 5
    assert (model.to_vocab.bias == 5).all()
    assert not (state["to_vocab.bias"] == 5).any()
    model.load(state)
    assert not (model.to_vocab.bias == 5).any()


def test_equal_random_seeds_give_equal_models() -> None:
    first, same, other = (
        Transformer(9, 7, d_model=8, n_heads=2, d_ff=12, seed=seed).state() for seed in (3, 3, 4)
    )
    assert all((first[name] == same[name]).all() for name in first)
    assert any((first[name] != other[name]).any() for name in first)
    assert {value.dtype for value in first.values()} == {np.dtype(np.float32)}


def test_first_weights_have_the_size_that_was_promised() -> None:
    model = Transformer(50, 40, d_model=64, n_heads=4, d_ff=96, dtype=np.float64)
    for name, w in model.parameters().items():
        if w.ndim == 2:
            variance = 1 / 64 if "embedding" in name else 2 / sum(w.shape)
            assert abs(w.var() / variance - 1) < 0.1, name
        else:
            assert (w == name.endswith("norm.weight")).all()


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("end", [None, 3])
@pytest.mark.parametrize("pad", [None, PAD])
def test_greedy_writes_what_the_pytorch_half_writes(
    norm: str, end: int | None, pad: int | None
) -> None:
    ours, theirs = twins(norm=norm, n_layers=2, pad=pad)
    source = ids(40, 6, 9, 2)
    got = greedy(ours, source, start=START, limit=7, end=end)
    for cache in (True, False):
        expected = qkv.decoding.greedy(
            theirs, torch.tensor(source), start=START, limit=7, end=end, cache=cache
        )
        assert (got == expected.numpy()).all()
    assert len(np.unique(got, axis=0)) > 1  # not the same for every source


def test_greedy_stops_when_every_row_has_ended() -> None:
    model, _ = twins()
    source = ids(3, 6, 9, 2)
    model.parameters()["to_vocab.bias"][4] = 1e3
    assert greedy(model, source, start=START, limit=7, end=4).tolist() == [[4]] * 3
    assert greedy(model, source, start=START, limit=7).shape == (3, 7)


def test_a_row_depends_on_what_came_before_it_alone() -> None:
    model, _ = twins(n_layers=2, pad=None)
    source, target = ids(2, 6, 9, 0), ids(2, 5, 7, 1)
    before = model(source, target)
    target[:, 3:] = 6 - target[:, 3:]
    after = model(source, target)
    np.testing.assert_allclose(after[:, :3], before[:, :3], rtol=0, atol=1e-12)
    assert abs(after[:, 3:] - before[:, 3:]).max() > 1e-3


NO_TORCH = """
import sys
sys.modules["torch"] = None  # importing it is an ImportError from here on
import importlib, pkgutil
import numpy as np
import qkv.byhand
for module in pkgutil.iter_modules(qkv.byhand.__path__):
    importlib.import_module(f"qkv.byhand.{module.name}")
import matplotlib
matplotlib.use("Agg")
from qkv.byhand.seq2seq import Seq2SeqData, TransformerSeq2Seq
data = Seq2SeqData()
X, Y = data.addition_formula(30)
model = TransformerSeq2Seq(X[:20], Y[:20], X[20:], Y[20:], data.V, n_head=2)
model.train(epoch=1, mini_batch=10, eta=0.1, log_interval=1)
model.plot_accuracy_seq_level()
print(model.predict(X[20:]).shape, [name for name in sys.modules if name.startswith("torch.")])
"""


def test_everything_works_where_torch_is_not_installed() -> None:
    done = subprocess.run([sys.executable, "-c", NO_TORCH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "(10, 3) []"


# --- refusals

SMALL: dict[str, Any] = {"d_model": 8, "n_heads": 2, "d_ff": 12, "max_len": 6}
SOURCE, TARGET = ids(2, 5, 9, 0), ids(2, 4, 7, 1)


@pytest.mark.parametrize(
    ("more", "error", "fragments"),
    [
        ({"n_layers": 0}, ValueError, ("n_layers must be at least 1", "0")),
        ({"n_heads": 3}, ValueError, ("d_model = 8", "n_heads = 3", "divisible")),
        ({"d_ff": "16"}, TypeError, ("d_out must be an int", "str: '16'")),
        ({"norm": "pre-norm"}, ValueError, ("norm must be one of 'post', 'pre'", "'pre-norm'")),
        ({"pad": 9}, ValueError, ("pad is 9", "0 … 8")),
        ({"pad": "_"}, TypeError, ("pad must be an int", "str: '_'")),
        ({"seed": -1}, ValueError, ("seed must be at least 0", "-1")),
        ({"dtype": int}, TypeError, ("dtype must be a floating one", "int")),
    ],
)
def test_wrong_sizes_are_refused(
    more: dict[str, Any], error: type[Exception], fragments: tuple[str, ...]
) -> None:
    with says(error, *fragments):
        Transformer(9, 7, **SMALL | more)


@pytest.mark.parametrize(
    ("source", "target", "error", "fragments"),
    [
        (SOURCE.tolist(), TARGET, TypeError, ("source must be a numpy.ndarray", "list")),
        (SOURCE, TARGET.astype(float), TypeError, ("target must hold ids", "float64")),
        (SOURCE[0], TARGET, ValueError, ("source must have shape [B, n]", "[5]")),
        (SOURCE + 8, TARGET, ValueError, ("source holds the id", "0 … 8")),
        (SOURCE, TARGET - 7, ValueError, ("target holds the id", "0 … 6")),
        (SOURCE, np.tile(TARGET, 2), ValueError, ("target needs 8 positions", "max_len = 6")),
        (SOURCE, TARGET[:1], ValueError, ("target [1, 4]", "source [2, 5]", "number of rows")),
    ],
)
def test_wrong_ids_are_refused(
    source: Any, target: Any, error: type[Exception], fragments: tuple[str, ...]
) -> None:
    with says(error, *fragments):
        Transformer(9, 7, **SMALL)(source, target)


def test_greedy_refuses() -> None:
    model = Transformer(9, 7, **SMALL)
    with says(ValueError, "limit must be at least 1", "0"):
        greedy(model, SOURCE, start=START, limit=0)
    with says(ValueError, "limit is 7", "max_len = 6"):
        greedy(model, SOURCE, start=START, limit=7)
    with says(ValueError, "start is 7", "0 … 6"):
        greedy(model, SOURCE, start=7, limit=2)
    with says(ValueError, "end is -1", "0 … 6"):
        greedy(model, SOURCE, start=START, limit=2, end=-1)
    with says(ValueError, "source holds the id", "0 … 8"):
        greedy(model, SOURCE + 8, start=START, limit=2)
    model.parameters()["to_vocab.bias"][2] = np.nan
    with says(FloatingPointError, "logits are not finite", "weights"):
        greedy(model, SOURCE, start=START, limit=2)


@pytest.mark.parametrize(
    ("more", "error", "fragments"),
    [
        ({"rate": 0}, ValueError, ("rate must be above 0 and finite", "0")),
        ({"rate": float("nan")}, ValueError, ("rate must be above 0 and finite", "nan")),
        ({"rate": "1"}, TypeError, ("rate must be a number", "str: '1'")),
        ({"betas": (0.9, 1)}, ValueError, ("betas must lie in [0, 1", "(0.9, 1")),
        ({"betas": (None, 1)}, TypeError, ("betas must be a number", "NoneType")),
        ({"eps": 0}, ValueError, ("eps must be above 0", "0")),
        ({"decay": -1}, ValueError, ("decay must be at least 0", "-1")),
    ],
)
def test_optimisers_refuse(
    more: dict[str, Any], error: type[Exception], fragments: tuple[str, ...]
) -> None:
    with says(error, *fragments):
        AdamW(LayerNorm(3), **more)
    if "rate" in more:
        with says(error, *fragments):
            SGD(LayerNorm(3), **more)


def test_a_step_before_backward_is_refused() -> None:
    for optimiser in (SGD(LayerNorm(3), 0.1), AdamW(LayerNorm(3))):
        with says(RuntimeError, "no gradients yet"):
            optimiser.step()
