"""Paired differences against known distributions."""

import numpy as np
import pytest
from scipy.stats import binom

from gpatcher.runs.paired import paired_difference, paired_errors, wilson


@pytest.mark.parametrize(("n", "both", "better", "worse"), [(40, 0.6, 0.2, 0.1), (200, 0.8, 0.02, 0.02)])
def test_the_interval_has_its_coverage(n, both, better, worse):
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        kind = rng.choice(4, n, p=[both, better, worse, 1 - both - better - worse])
        found = paired_difference(kind <= 1, (kind == 0) | (kind == 2))
        covered += found.low <= better - worse <= found.high
    assert 0.94 <= covered / 2000 <= 0.99


def test_by_hand():
    first, second = np.array([1, 1, 1, 1, 0, 0]), np.array([1, 0, 0, 0, 1, 0])
    found = paired_difference(first, second)
    assert (found.better, found.worse) == (3, 1)
    assert found.gain == pytest.approx(2 / 6)
    assert found.p_value == pytest.approx(2 * binom.cdf(1, 4, 0.5))
    mirrored = paired_difference(second, first)
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low))


def test_equal_classifiers_have_an_interval():
    found = paired_difference(np.ones(50), np.ones(50))
    assert (found.gain, found.p_value) == (0, 1)
    assert -0.1 < found.low < 0 < found.high < 0.1


def test_the_interval_of_errors_has_its_coverage():
    rng = np.random.default_rng(0)
    covered = rejected = 0
    for _ in range(2000):
        shared = rng.exponential(size=60)
        found = paired_errors(shared + rng.normal(size=60), shared + 0.2 + rng.normal(size=60))
        covered += found.low <= 0.2 <= found.high
        rejected += (found.p_value < 0.05) == (found.low > 0 or found.high < 0)
    assert 0.93 <= covered / 2000 <= 0.97
    assert rejected == 2000  # test and interval agree


def test_errors_without_spread():
    same = paired_errors([1.0, 2.0], [1.0, 2.0])
    assert (same.gain, same.low, same.high, same.better, same.worse, same.p_value) == (0, 0, 0, 0, 0, 1)
    lower = paired_errors([1.0, 2.0], [2.0, 3.0])
    assert (lower.gain, lower.low, lower.high, lower.better, lower.p_value) == (1, 1, 1, 2, 0)


def test_wilson_stays_within_the_unit_interval():
    low, high = wilson(10, 10)
    assert 0.6 < low < 0.8
    assert high == 1
