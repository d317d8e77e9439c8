"""Weights of an ensemble."""

import numpy as np
import pytest

from gpatcher.estimator.weights import ensemble_weights
from gpatcher.training.metrics import log_loss


def members(rng, y, quality):
    """Logits that tell the class with a given strength, and noise."""
    return [s * 2 * np.eye(2)[y] + rng.normal(size=(len(y), 2)) for s in quality]


@pytest.mark.parametrize("n", [30, 400, 8000])
def test_useless_members_get_no_weight_and_the_average_is_better(n):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    logits = members(rng, y, (1.0, 1.0, 0.0, -1.0))
    weights = ensemble_weights(logits, y)
    assert weights.sum() == pytest.approx(1)
    assert weights[3] == 0
    assert weights[2] < 0.15
    combined = sum(w * z for w, z in zip(weights, logits, strict=True))
    if n >= 400:
        assert log_loss(combined, y) < min(log_loss(z, y) for z in logits)


def test_one_member_has_all_the_weight_and_equals_share_it():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 100)
    [one] = members(rng, y, (1.0,))
    assert ensemble_weights([one], y).tolist() == [1.0]
    same = ensemble_weights([one, one.copy()], y)
    assert same.sum() == pytest.approx(1)


def test_the_same_seed_gives_the_same_weights():
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, 60)
    logits = members(rng, y, (1.0, 0.8, 0.5))
    np.testing.assert_array_equal(ensemble_weights(logits, y, 3), ensemble_weights(logits, y, 3))
