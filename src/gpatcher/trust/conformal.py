"""Split conformal prediction: sets of classes, or intervals, that contain the truth with a chosen probability.

MAPIE is not used, because its classes wrap an estimator; here an array of probabilities is enough.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError


def nonconformity_scores(probability: FloatArray, y: IntArray) -> FloatArray:
    """Return 1 - p(true class) of the calibration nodes, in ascending order."""
    return np.sort(1.0 - probability[np.arange(len(y)), y])


def threshold(scores: FloatArray, level: float) -> float:
    """Return the ⌈(n + 1) · level⌉-th smallest of n scores in ascending order; infinity if n is too small."""
    if not 0 < level < 1:
        raise InputError(f"the level must lie in (0, 1), got {level}")
    rank = math.ceil((len(scores) + 1) * level - 1e-9)  # 0.9 · 10 may exceed 9 by rounding
    return float(scores[rank - 1]) if rank <= len(scores) else math.inf


def prediction_sets(probability: FloatArray, scores: FloatArray, level: float) -> npt.NDArray[np.bool_]:
    """Return the classes with 1 - p(class) up to the `threshold`, and the predicted class, shape (nodes, C).

    A set contains the true class with probability of at least ``level``, on average over nodes that are exchangeable
    with the calibration nodes, for any model. No set is empty, as the predicted class is always included; if the
    calibration nodes are too few for the level, every set contains all classes.
    """
    sets = 1.0 - probability <= threshold(scores, level)
    sets[np.arange(len(sets)), probability.argmax(1)] = True
    return sets


def interval_coverage(intervals: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Return the fraction of the intervals that contain the true number, and their mean width."""
    low, high = intervals.T
    return float(((low <= y) & (y <= high)).mean()), float((high - low).mean())


def coverage(sets: npt.NDArray[np.bool_], y: IntArray) -> tuple[float, float]:
    """Return the fraction of the sets that contain the true class, and their mean size."""
    return float(sets[np.arange(len(y)), y].mean()), float(sets.sum(1).mean())
