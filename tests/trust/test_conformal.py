"""Conformal sets by hand, and their properties; tests/trust/test_calibration.py measures the coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpatcher.errors import InputError
from gpatcher.trust.calibration import Calibration
from gpatcher.trust.conformal import coverage, nonconformity_scores, prediction_sets, threshold

SCORES = np.array([0.1, 0.2, 0.3, 0.4])


def test_threshold_is_a_corrected_quantile():
    assert threshold(SCORES, 0.6) == 0.3  # ceil(5 · 0.6) = 3
    assert threshold(SCORES, 0.8) == 0.4
    assert threshold(SCORES, 0.81) == math.inf
    assert threshold(np.arange(1.0, 10.0), 0.9) == 9.0  # 10 · 0.9 = 9 without rounding up
    assert threshold(np.empty(0), 0.1) == math.inf


def test_scores_are_sorted_complements_of_the_true_probability():
    probability = np.array([[0.7, 0.2, 0.1], [0.4, 0.35, 0.25], [0.05, 0.05, 0.9]])
    np.testing.assert_allclose(nonconformity_scores(probability, np.array([0, 1, 2])), [0.1, 0.3, 0.65])


def test_sets_by_hand():
    probability = np.array([[0.7, 0.2, 0.1], [0.4, 0.35, 0.25]])
    sets = prediction_sets(probability, SCORES, 0.6)
    assert sets.tolist() == [[True, False, False], [True, False, False]]
    assert coverage(sets, np.array([0, 1])) == (0.5, 1.0)
    assert prediction_sets(probability, SCORES, 0.9).all()
    calibration = Calibration(1.0, 8, 0.0, 0.0, 1.0, SCORES)
    assert np.array_equal(calibration.sets(np.log(probability), 0.6), sets)


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.integers(0, 5))
def test_a_higher_level_never_drops_a_class(a, b, seed):
    rng = np.random.default_rng(seed)
    probability = rng.dirichlet(np.ones(4), size=40)
    scores = nonconformity_scores(probability, rng.integers(0, 4, 40))
    small, large = (prediction_sets(probability, scores, level) for level in sorted((a, b)))
    assert (large | ~small).all()
    assert small.any(1).all()


@pytest.mark.parametrize("level", [0, 1, 1.5, float("nan")])
def test_the_level_must_lie_between_zero_and_one(level):
    for refused in (
        lambda value: threshold(SCORES, value),
        lambda value: Calibration(1.0, 8, 0.0, 0.0, 1.0, SCORES).sets([[1.0, 0.0]], value),
    ):
        with pytest.raises(InputError, match=rf"level must lie in \(0, 1\), got {level}"):
            refused(level)
