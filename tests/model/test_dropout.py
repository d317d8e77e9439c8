"""Dropout."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from gpatcher.model.dropout import Dropout, dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("shape", [(1000, 301), (301_003,)])
def test_values_are_dropped_independently_with_probability_p(p, shape):
    torch.manual_seed(0)
    out = dropout(torch.full(shape, 2.0), p)
    kept = out != 0
    assert torch.unique(out[kept]).tolist() == pytest.approx([2 / (1 - p)])
    assert kept.float().mean().item() == pytest.approx(1 - p, abs=4e-3)
    # values of one draw, and of neighbouring draws, are not correlated
    centred = (kept.float() - (1 - p)).flatten()
    for shift in (1, 2, 3, 4, 5):
        correlation = (centred[shift:] * centred[:-shift]).mean() / (p * (1 - p))
        assert abs(correlation.item()) < 0.01


def test_the_gradient_passes_where_values_are_kept():
    x = torch.randn(50, 7, requires_grad=True)
    out = dropout(x, 0.25)
    out.sum().backward()
    assert torch.equal(x.grad != 0, out != 0)
    assert torch.unique(x.grad).tolist() == pytest.approx([0, 4 / 3])


def test_the_seed_decides_and_a_checkpoint_repeats_the_mask():
    x = torch.ones(100, 3)
    torch.manual_seed(1)
    one = dropout(x, 0.5)
    torch.manual_seed(1)
    assert torch.equal(dropout(x, 0.5), one)
    assert not torch.equal(dropout(x, 0.5), one)
    weight = torch.ones(100, 3, requires_grad=True)
    out = checkpoint(lambda w: dropout(w, 0.5) ** 2, weight, use_reentrant=False)
    out.sum().backward()
    assert torch.equal(weight.grad != 0, out != 0)


@pytest.mark.parametrize("shape", [(0, 4), (1,), (3, 1), (2, 2, 2)])
def test_shapes(shape):
    assert dropout(torch.ones(shape), 0.5).shape == shape


def test_nothing_is_dropped_in_evaluation_or_with_p_0():
    x = torch.randn(5, 2)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0) is x
    module = Dropout(0.9)
    assert (module(torch.ones(1000)) == 0).any()
    assert module.eval()(x) is x
