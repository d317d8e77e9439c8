"""Two models on the same nodes: the difference of their accuracies or errors, with an interval and a test."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy  # its modules load on first use

_Z = 1.96  # of a 95 % interval


@dataclass(frozen=True)
class PairedDifference:
    """How much better a model is than another one: in accuracy, or by how much its mean absolute error is lower."""

    gain: float
    low: float  # 95 % interval of the gain
    high: float
    better: int  # nodes on which only the first is right, or closer
    worse: int  # nodes on which only the second is right, or closer
    p_value: float  # that both are equally good: McNemar's exact test, or a paired t-test of the absolute errors


def paired_difference(first: npt.ArrayLike, second: npt.ArrayLike) -> PairedDifference:
    """Compare two classifiers node by node, from masks of the nodes on which each is right.

    The interval is that of Bonett and Price (2012): a Wald interval with one node added to either side. With few nodes
    it keeps its coverage, and it has a width also where the two agree on every node.
    """
    a, b = np.asarray(first, bool), np.asarray(second, bool)
    n, better, worse = len(a), int((a & ~b).sum()), int((b & ~a).sum())
    p, q = (better + 1) / (n + 2), (worse + 1) / (n + 2)
    half = _Z * math.sqrt((p + q - (p - q) ** 2) / (n + 2))
    p_value = float(scipy.stats.binomtest(better, better + worse).pvalue) if better + worse else 1.0
    return PairedDifference(
        (better - worse) / n, max(p - q - half, -1.0), min(p - q + half, 1.0), better, worse, p_value
    )


def paired_errors(first: npt.ArrayLike, second: npt.ArrayLike) -> PairedDifference:
    """Compare two regressors node by node, from their absolute errors on at least two nodes.

    The interval is that of the mean of the differences, by Student's t.
    """
    gains = np.asarray(second, float) - np.asarray(first, float)
    low, high = mean_interval(gains)
    constant = np.ptp(gains) == 0  # no spread: the test is not defined
    p_value = float(not gains.any()) if constant else float(scipy.stats.ttest_1samp(gains, 0.0).pvalue)
    return PairedDifference(float(gains.mean()), low, high, int((gains > 0).sum()), int((gains < 0).sum()), p_value)


def mean_interval(values: npt.ArrayLike) -> tuple[float, float]:
    """Return the 95 % interval of the mean of at least two values, by Student's t."""
    values = np.asarray(values, float)
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    interval = scipy.stats.ttest_1samp(values, 0.0).confidence_interval()
    return float(interval.low), float(interval.high)


def wilson(correct: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of an accuracy by Wilson's formula."""
    interval = scipy.stats.binomtest(correct, count).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)
