"""Two classifiers on the same nodes: the difference of their accuracies, with an interval and an exact test."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

_Z = 1.96  # of a 95 % interval


@dataclass(frozen=True)
class PairedDifference:
    """The accuracy of a classifier minus that of another one, from the nodes on which only one of them is right."""

    gain: float
    low: float  # 95 % interval of the gain
    high: float
    better: int  # nodes on which only the first is right
    worse: int  # nodes on which only the second is right
    p_value: float  # exact, of McNemar's test: both are right equally often


def paired_difference(first: npt.ArrayLike, second: npt.ArrayLike) -> PairedDifference:
    """Compare two classifiers node by node, from masks of the nodes on which each is right.

    The interval is that of Bonett and Price (2012): a Wald interval with one node added to either side. With few nodes
    it keeps its coverage, and it has a width also where the two agree on every node.
    """
    a, b = np.asarray(first, bool), np.asarray(second, bool)
    n, better, worse = len(a), int((a & ~b).sum()), int((b & ~a).sum())
    p, q = (better + 1) / (n + 2), (worse + 1) / (n + 2)
    half = _Z * math.sqrt((p + q - (p - q) ** 2) / (n + 2))
    p_value = float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
    return PairedDifference(
        (better - worse) / n, max(p - q - half, -1.0), min(p - q + half, 1.0), better, worse, p_value
    )


def wilson(correct: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of an accuracy by Wilson's formula."""
    interval = binomtest(correct, count).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)
