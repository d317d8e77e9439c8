"""Split conformal prediction: sets of classes that contain the true one with a chosen probability.

Not taken from MAPIE: its classes wrap an estimator, while these few lines need only an array of probabilities.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError


def check_level(level: float) -> None:
    """Raise an error unless the level lies in (0, 1)."""
    if not 0 < level < 1:
        raise InputError(f"the level must lie in (0, 1), got {level}")


def nonconformity_scores(probability: FloatArray, y: IntArray) -> FloatArray:
    """Return 1 - p(true class) of the calibration nodes, in ascending order."""
    return np.sort(1.0 - probability[np.arange(len(y)), y])


def threshold(scores: FloatArray, level: float) -> float:
    """Return the ⌈(n + 1) · level⌉-th smallest of n scores in ascending order; infinity where n is too small."""
    check_level(level)
    rank = math.ceil((len(scores) + 1) * level - 1e-9)  # 0.9 · 10 may exceed 9 by rounding
    return float(scores[rank - 1]) if rank <= len(scores) else math.inf


def prediction_sets(probability: FloatArray, scores: FloatArray, level: float) -> npt.NDArray[np.bool_]:
    """Return the classes with 1 - p(class) up to the `threshold`, and the predicted class.

    A set contains the true class with probability of at least ``level``, on average over nodes that are exchangeable
    with the calibration nodes, for any model. No set is empty, as the predicted class is always included; where the
    calibration nodes are too few for the level, every set contains all classes.

    Parameters
    ----------
    probability : ndarray of shape (nodes, C)
        Predicted probabilities, made as those of the scores.
    scores : ndarray of shape (n,)
        Scores of the calibration nodes, see `nonconformity_scores`.
    level : float
        Coverage, in (0, 1).

    Returns
    -------
    ndarray of bool, shape (nodes, C)
        Whether a class is in the set of a node.

    Examples
    --------
    >>> prediction_sets(np.array([[0.7, 0.2, 0.1]]), np.array([0.1, 0.2, 0.3, 0.85]), level=0.8)
    array([[ True,  True, False]])
    """
    sets = 1.0 - probability <= threshold(scores, level)
    sets[np.arange(len(sets)), probability.argmax(1)] = True
    return sets


def coverage(sets: npt.NDArray[np.bool_], y: IntArray) -> tuple[float, float]:
    """Return the fraction of the sets that contain the true class, and their mean size.

    Examples
    --------
    >>> coverage(np.array([[True, True], [True, False]]), np.array([1, 1]))
    (0.5, 1.5)
    """
    return float(sets[np.arange(len(y)), y].mean()), float(sets.sum(1).mean())
