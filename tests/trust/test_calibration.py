"""Temperature, calibration error and conformal sets against values known beforehand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from gpatcher.errors import InputError
from gpatcher.trust.calibration import Calibration, calibrate, choose_temperature, fit_temperature, reliability


def drawn(n, classes=4, temperature=1.0, seed=0, spread=2.0):
    """Logits whose softmax at this temperature is the very distribution that the labels are drawn from."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=spread, size=(n, classes))
    share = softmax(logits / temperature, axis=1)
    y = (share.cumsum(1) > rng.random((n, 1))).argmax(1)
    return logits, y


# -------------------------------------------------------------------------------------- calibration error


def test_error_by_hand():
    # confidences .95 .95 .95 .65 .65: the first bin is right in 2 of 3, the second in 1 of 2
    probability = [[0.95, 0.05]] * 3 + [[0.35, 0.65]] * 2
    found = reliability(probability, [0, 0, 1, 1, 0], bins=10)
    assert found.error == pytest.approx(3 / 5 * abs(2 / 3 - 0.95) + 2 / 5 * abs(1 / 2 - 0.65))
    assert found.count.tolist() == [0, 0, 0, 0, 0, 0, 2, 0, 0, 3]
    assert np.isnan(found.accuracy[:6]).all()


def test_a_confidence_on_a_border_belongs_to_the_bin_below():
    assert reliability([[0.5, 0.5], [1.0, 0.0]], [0, 0], bins=2).count.tolist() == [1, 1]


def test_error_is_zero_where_confidence_comes_true():
    probability = np.tile([0.75, 0.25], (4, 1))
    assert reliability(probability, [0, 0, 0, 1]).error == 0
    with pytest.raises(InputError, match="no labelled node"):
        reliability(np.empty((0, 2)), [])


# -------------------------------------------------------------------------------------------- temperature


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_is_found_again(temperature):
    logits, y = drawn(20_000, temperature=temperature)
    assert fit_temperature(logits, y) == pytest.approx(temperature, rel=0.05)


def test_the_temperature_is_where_the_slope_vanishes():
    logits, y = drawn(300, temperature=2.0)
    found = fit_temperature(logits, y)

    def loss(t):
        return -log_softmax(logits / t, axis=1)[np.arange(len(y)), y].mean()

    assert loss(found) <= min(loss(found * 1.01), loss(found / 1.01))


def test_where_all_is_right_nothing_is_sharpened():
    assert fit_temperature([[2.0, 0.0], [0.0, 1.0]], [0, 1]) == 1.0


def test_few_nodes_do_no_harm():
    """Where the raw probabilities are right, few nodes mislead a fit; the choice does so less, and helps where due."""
    fresh, _ = drawn(4000, seed=999)

    def loss(t, temperature):
        true = softmax(fresh / temperature, axis=1)
        return -(true * log_softmax(fresh / t, axis=1)).sum(1).mean()

    for temperature in (1.0, 3.0):
        draws = [drawn(40, temperature=temperature, seed=seed) for seed in range(40)]
        raw = loss(1.0, temperature)
        fitted = np.mean([loss(fit_temperature(*draw), temperature) for draw in draws]) - raw
        chosen = np.mean([loss(choose_temperature(*draw), temperature) for draw in draws]) - raw
        assert chosen < 0.8 * fitted if temperature == 1 else chosen < 0.9 * fitted < 0
    assert choose_temperature(*drawn(20_000, temperature=3.0)) == fit_temperature(*drawn(20_000, temperature=3.0))
    assert choose_temperature(np.empty((0, 3)), np.empty(0, int)) == 1.0


def test_scaling_lowers_the_error_and_keeps_the_classes():
    logits, y = drawn(4000, temperature=4.0)
    found = calibrate(logits, y)
    assert found.error_after < 0.03 < 0.2 < found.error_before
    fresh, labels = drawn(4000, temperature=4.0, seed=1)
    probability = found.probability(fresh)
    assert reliability(probability, labels).error < 0.03
    np.testing.assert_array_equal(probability.argmax(1), fresh.argmax(1))
    np.testing.assert_allclose(probability.sum(1), 1)


# ----------------------------------------------------------------------------------------- conformal sets


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_coverage_on_exchangeable_nodes(level):
    """The mean over many draws is at least the level, and not far above it; sets of a wrong model cover too."""
    shares, sizes = [], []
    for seed in range(200):
        logits, y = drawn(400, classes=6, temperature=2.5, seed=seed)
        found = calibrate(logits[:200], y[:200], seed)
        inside = found.sets(logits[200:], level)
        shares.append(inside[np.arange(200), y[200:]].mean())
        sizes.append(inside.sum(1).mean())
    standard_error = np.std(shares) / math.sqrt(len(shares))
    # the largest excess of split conformal prediction is 1 / (n + 1); the predicted class always in adds at low levels
    assert np.mean(shares) >= level - 2 * standard_error
    assert np.mean(shares) <= level + 1 / 101 + 2 * standard_error + (0.15 if level == 0.5 else 0)
    assert np.mean(sizes) < 6


def test_the_halves_do_not_overlap():
    """A label of the half that gives the quantile does not move the temperature of the sets, and the other way."""
    logits, y = drawn(60, seed=3)
    base = calibrate(logits, y, seed=5)
    one = np.random.default_rng(5).permutation(60)[:30]
    for half in (one, np.setdiff1d(np.arange(60), one)):
        moved = y.copy()
        moved[half] = (y[half] + 1) % 4
        found = calibrate(logits, moved, seed=5)
        if half is one:
            assert found.set_temperature != base.set_temperature
        else:
            assert found.set_temperature == base.set_temperature
            assert not np.array_equal(found.scores, base.scores)
    assert len(base.scores) == 30


def test_sets_by_hand():
    scores = np.array([0.1, 0.2, 0.3, 0.4])
    found = Calibration(1.0, 8, 0.0, 0.0, 1.0, scores)
    assert found.quantile(0.6) == 0.3  # ceil(5 · 0.6) = 3
    assert found.quantile(0.8) == 0.4
    assert found.quantile(0.81) == math.inf
    logits = np.log([[0.7, 0.2, 0.1], [0.4, 0.35, 0.25]])
    assert found.sets(logits, 0.6).tolist() == [[True, False, False], [True, False, False]]
    assert found.sets(logits, 0.9).all()


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.integers(0, 5))
def test_a_higher_level_never_loses_a_class(a, b, seed):
    logits, y = drawn(40, seed=seed)
    found = calibrate(logits, y)
    small, large = found.sets(logits, min(a, b)), found.sets(logits, max(a, b))
    assert (large | ~small).all()
    assert small.any(1).all()


@pytest.mark.parametrize("level", [0, 1, 1.5, float("nan")])
def test_a_level_that_is_none(level):
    with pytest.raises(InputError, match=r"\(0, 1\)"):
        calibrate(*drawn(20)).sets(drawn(5)[0], level)


def test_one_validation_node():
    found = calibrate([[1.0, 0.0]], [1])
    assert found.set_temperature == 1.0
    assert found.sets([[5.0, 0.0]], 0.9).all()
