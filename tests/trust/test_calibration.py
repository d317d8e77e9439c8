"""Temperature and calibration error against closed forms and known distributions."""

import math

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from gpatcher.errors import InputError
from gpatcher.trust.calibration import calibrate, choose_temperature, fit_temperature, reliability
from gpatcher.trust.conformal import coverage


def draw(n, classes=4, temperature=1.0, seed=0, spread=2.0):
    """Logits, and labels drawn from their softmax at this temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=spread, size=(n, classes))
    probability = softmax(logits / temperature, axis=1)
    y = (probability.cumsum(1) > rng.random((n, 1))).argmax(1)
    return logits, y


# -------------------------------------------------------------------------------------- calibration error


def test_error_by_hand():
    # confidences .95 .95 .95 .65 .65: accuracy 2/3 in the first bin, 1/2 in the second
    probability = [[0.95, 0.05]] * 3 + [[0.35, 0.65]] * 2
    result = reliability(probability, [0, 0, 1, 1, 0], bins=10)
    assert result.error == pytest.approx(3 / 5 * abs(2 / 3 - 0.95) + 2 / 5 * abs(1 / 2 - 0.65))
    assert result.count.tolist() == [0, 0, 0, 0, 0, 0, 2, 0, 0, 3]
    assert np.isnan(result.accuracy[:6]).all()


def test_a_confidence_on_an_edge_belongs_to_the_bin_below():
    assert reliability([[0.5, 0.5], [1.0, 0.0]], [0, 0], bins=2).count.tolist() == [1, 1]


def test_error_is_zero_where_confidence_equals_accuracy():
    probability = np.tile([0.75, 0.25], (4, 1))
    assert reliability(probability, [0, 0, 0, 1]).error == 0
    with pytest.raises(InputError, match="no labelled node"):
        reliability(np.empty((0, 2)), [])


# -------------------------------------------------------------------------------------------- temperature


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_is_recovered(temperature):
    logits, y = draw(20_000, temperature=temperature)
    assert fit_temperature(logits, y) == pytest.approx(temperature, rel=0.05)


def test_the_temperature_minimises_the_loss():
    logits, y = draw(300, temperature=2.0)
    best = fit_temperature(logits, y)

    def loss(t):
        return -log_softmax(logits / t, axis=1)[np.arange(len(y)), y].mean()

    assert loss(best) <= min(loss(best * 1.01), loss(best / 1.01))


def test_the_temperature_is_one_where_all_predictions_are_correct():
    assert fit_temperature([[2.0, 0.0], [0.0, 1.0]], [0, 1]) == 1.0


@pytest.mark.parametrize(("nodes", "kept"), [(40, 0.4), (80, 0.9)])
def test_choice_of_the_temperature_on_few_nodes(nodes, kept):
    """Cross-validation limits the harm where the raw probabilities are calibrated, and keeps the gain elsewhere."""
    fresh, _ = draw(4000, seed=999)

    def loss(t, temperature):
        true = softmax(fresh / temperature, axis=1)
        return -(true * log_softmax(fresh / t, axis=1)).sum(1).mean()

    for temperature in (1.0, 3.0):
        samples = [draw(nodes, temperature=temperature, seed=seed) for seed in range(40)]
        raw = loss(1.0, temperature)
        fitted = np.mean([loss(fit_temperature(*sample), temperature) for sample in samples]) - raw
        chosen = np.mean([loss(choose_temperature(*sample), temperature) for sample in samples]) - raw
        assert chosen < 0.2 * fitted if temperature == 1 else chosen < kept * fitted < 0
    assert choose_temperature(*draw(20_000, temperature=3.0)) == fit_temperature(*draw(20_000, temperature=3.0))
    assert choose_temperature(np.empty((0, 3)), np.empty(0, int)) == 1.0


@pytest.mark.parametrize("nodes", [30, 200])
def test_calibrated_probabilities_are_rarely_scaled(nodes):
    """The gain of a temperature that is not needed seldom exceeds its standard error."""
    chosen = [choose_temperature(*draw(nodes, seed=seed)) for seed in range(40)]
    assert np.mean([t == 1.0 for t in chosen]) > 0.75
    needed = [choose_temperature(*draw(200, temperature=4.0, seed=seed)) for seed in range(10)]
    assert min(needed) > 2


def test_too_few_nodes_to_cross_validate():
    logits, y = draw(9, temperature=5.0)
    assert fit_temperature(logits, y) != 1.0
    assert choose_temperature(logits, y) == 1.0


def test_a_few_very_wrong_predictions_do_not_move_all_probabilities():
    """The likelihood asks for a higher temperature; the others are right nine times in ten, as they say."""
    logits = np.zeros((1000, 2))
    logits[:, 0] = np.log(9)
    logits[:10, 0] = 12.0
    y = np.zeros(1000, int)
    y[:10] = 1
    y[10::10] = 1
    assert fit_temperature(logits, y) > 1.2
    assert choose_temperature(logits, y) == 1.0


def test_scaling_lowers_the_error_and_keeps_the_classes():
    logits, y = draw(4000, temperature=4.0)
    calibration = calibrate(logits, y)
    assert calibration.error_after < 0.03 < 0.2 < calibration.error_before
    fresh, labels = draw(4000, temperature=4.0, seed=1)
    probability = calibration.probability(fresh)
    assert reliability(probability, labels).error < 0.03
    np.testing.assert_array_equal(probability.argmax(1), fresh.argmax(1))
    np.testing.assert_allclose(probability.sum(1), 1)


def test_one_validation_node():
    calibration = calibrate([[1.0, 0.0]], [1])
    assert calibration.set_temperature == 1.0
    assert calibration.sets([[5.0, 0.0]], 0.9).all()


def test_the_halves_do_not_overlap():
    """The set temperature depends on the labels of the first half only, the scores on both."""
    logits, y = draw(60, seed=3)
    base = calibrate(logits, y, seed=5)
    first = np.random.default_rng(5).permutation(60)[:30]
    for half in (first, np.setdiff1d(np.arange(60), first)):
        changed = y.copy()
        changed[half] = (y[half] + 1) % 4
        calibration = calibrate(logits, changed, seed=5)
        if half is first:
            assert calibration.set_temperature != base.set_temperature
        else:
            assert calibration.set_temperature == base.set_temperature
            assert not np.array_equal(calibration.scores, base.scores)
    assert len(base.scores) == 30


@pytest.fixture(scope="module")
def calibrated():
    """Many draws with a calibration on their first half, for all levels."""
    drawn = [draw(400, classes=6, temperature=2.5, seed=seed) for seed in range(200)]
    return [(logits, y, calibrate(logits[:200], y[:200], seed)) for seed, (logits, y) in enumerate(drawn)]


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_coverage_on_exchangeable_nodes(calibrated, level):
    """The mean coverage over many draws is at least the level, and not far above it, for a miscalibrated model too."""
    covered, sizes = [], []
    for logits, y, calibration in calibrated:
        fraction, size = coverage(calibration.sets(logits[200:], level), y[200:])
        covered.append(fraction)
        sizes.append(size)
    standard_error = np.std(covered) / math.sqrt(len(covered))
    # split conformal prediction exceeds the level by up to 1 / (n + 1); the predicted class adds to it at low levels
    assert np.mean(covered) >= level - 2 * standard_error
    assert np.mean(covered) <= level + 1 / 101 + 2 * standard_error + (0.15 if level == 0.5 else 0)
    assert np.mean(sizes) < 6
