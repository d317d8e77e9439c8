"""Statistics against SciPy, published tables and values by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from gpatcher.bench.statistics import critical_difference, paired_p, rank


def test_paired_test_without_correction_is_scipys():
    a, b = [0.8, 0.82, 0.79, 0.85], [0.78, 0.83, 0.75, 0.80]
    assert paired_p(a, b) == pytest.approx(stats.ttest_rel(a, b).pvalue)


def test_correction_by_hand():
    a, b = [0.80, 0.84, 0.78], [0.78, 0.80, 0.78]
    d = np.array([0.02, 0.04, 0.0])
    t = 0.02 / math.sqrt((1 / 3 + 0.25) * d.var(ddof=1))  # 1.309
    assert paired_p(a, b, 0.25) == pytest.approx(2 * stats.t.sf(t, 2))
    assert paired_p(a, b, 0.25) > paired_p(a, b)


def test_the_corrected_test_keeps_its_level_on_overlapping_splits():
    """Two equal models on random splits of one sample: the plain test rejects far more often than 5 %."""
    rng = np.random.default_rng(0)
    errors = {0.0: 0, 2 / 3: 0}
    trials = 300
    for _ in range(trials):
        # the nodes that two equal models classify correctly, fixed over the splits
        right = rng.random((2, 200)) < 0.7
        scores = []
        for _ in range(10):
            test = rng.permutation(200)[:80]
            scores.append(right[:, test].mean(axis=1))
        a, b = np.array(scores).T
        for ratio in errors:
            errors[ratio] += paired_p(a, b, ratio) < 0.05
    assert errors[0.0] / trials > 0.2
    assert errors[2 / 3] / trials < 0.1


def test_constant_differences():
    assert paired_p([0.5, 0.6, 0.7], [0.5, 0.6, 0.7]) == 1
    assert paired_p([0.5, 0.6, 0.7], [0.4, 0.5, 0.6]) == 0
    assert paired_p([0.5, 0.6], [0.4, 0.5]) is None


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)])
def test_critical_values_of_demsars_table(k, q):
    assert critical_difference(k, 10) == pytest.approx(q * math.sqrt(k * (k + 1) / 60), abs=2e-3)


def test_ranks_by_hand():
    ranks = rank(
        {
            "a": {"x": 0.9, "y": 0.8, "z": 0.7},
            "b": {"x": 0.8, "y": 0.8, "z": 0.9},
            "c": {"x": 0.7, "y": 0.7, "z": 0.6},
        }
    )
    np.testing.assert_array_equal(ranks.ranks, [[1, 2, 3], [1.5, 1.5, 3], [2, 1, 3]])
    assert ranks.mean == {"a": 1.5, "b": 1.5, "c": 3.0}
    # a is listed first; b is tied with it, with a standard error of std([1, 0, -1]) / √3
    assert ranks.gap("b") == (0, pytest.approx(1 / math.sqrt(3)))
    assert ranks.gap("a") == (0, 0)
    assert ranks.gap("c")[0] == 1.5
    expected = stats.friedmanchisquare([0.9, 0.8, 0.7], [0.8, 0.8, 0.9], [0.7, 0.7, 0.6])
    assert ranks.friedman_p == pytest.approx(expected.pvalue)
    assert ranks.distance == pytest.approx(critical_difference(3, 3))
    assert ranks.groups() == [("a", "b", "c")]


def test_groups_follow_the_critical_difference():
    means = {f"m{i}": {f"d{j}": 1 - i / 10 for j in range(40)} for i in range(4)}
    ranks = rank(means)
    assert ranks.distance < 1
    assert ranks.groups() == []
    assert ranks.friedman_p < 1e-10


def test_only_common_data_sets_are_ranked():
    ranks = rank({"a": {"x": 1, "y": 1, "z": 1}, "b": {"x": 2, "y": 0}, "c": {"x": 1}, "d": {}, "e": {}})
    assert ranks.models == ("a", "b")
    assert ranks.datasets == ("x", "y")
    assert ranks.left_out == (
        "c was run on 1 data set only",
        "d, e were not run",
        "z was not run by b",
    )
    assert rank({"a": {"x": 1}}) is None
    assert rank({}) is None
    assert rank({"a": {"x": 1}, "b": {"y": 1}}) is None
    # many models on few data sets rather than few on many
    wide = {m: dict.fromkeys("tuvwxyz", 1) for m in "ab"} | {m: dict.fromkeys("xyz", 1) for m in "cdef"}
    ranks = rank(wide)
    assert ranks.models == tuple("abcdef")
    assert ranks.datasets == tuple("xyz")


def test_equal_models():
    ranks = rank({m: {"x": 0.5, "y": 0.5} for m in "abc"})
    assert ranks.friedman_p == 1
    assert set(ranks.mean.values()) == {2}
