"""The judge of gradients made by hand is itself right, and is not easily content."""

import numpy as np
import pytest
import torch

from qkv.oracle import by_torch, same

A, B = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
g = np.arange(8.0).reshape(2, 4) - 3


def test_autograd_of_a_product_is_what_algebra_says():
    assert same(by_torch(torch.matmul, g, A, B), [g @ B.T, A.T @ g])


def test_an_argument_that_is_not_used_has_a_gradient_of_zeros():
    gA, gB = by_torch(lambda A, B: 2 * A, np.ones((2, 3)), A, B)
    assert same([gA, gB], [np.full((2, 3), 2.0), np.zeros((3, 4))])


@pytest.mark.parametrize("other", [A + 1e-9, A.T, A[:1], A * np.nan])
def test_what_differs_a_little_or_in_shape_is_not_the_same(other: np.ndarray):
    assert same([A], [A + 1e-12])
    assert not same([A], [other])


def test_one_gradient_too_few_is_refused():
    with pytest.raises(ValueError):
        same([A, B], [A])
