"""How good predictions are, where accuracy alone would flatter: rare classes count as much as frequent ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, recall_score, roc_auc_score

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError


def _per_class(measure: Callable[..., float], y: IntArray, probability: FloatArray) -> float | None:
    """Return the mean of a one-against-the-rest measure over the classes that are there, and not alone."""
    classes = np.unique(y)
    if classes.size < 2:
        return None
    return float(np.mean([measure(y == c, probability[:, c]) for c in classes]))


def _balanced(y: IntArray, probability: FloatArray) -> float:
    return float(recall_score(y, probability.argmax(1), labels=np.unique(y), average="macro", zero_division=0))


METRICS: dict[str, Callable[[IntArray, FloatArray], float | None]] = {
    "accuracy": lambda y, probability: float(accuracy_score(y, probability.argmax(1))),
    "macro_f1": lambda y, probability: float(f1_score(y, probability.argmax(1), average="macro", zero_division=0)),
    "balanced_accuracy": _balanced,
    "roc_auc": lambda y, probability: _per_class(roc_auc_score, y, probability),
    "pr_auc": lambda y, probability: _per_class(average_precision_score, y, probability),
}


def measure(name: str, y: npt.ArrayLike, probability: npt.ArrayLike) -> float | None:
    """Return one metric; None where it is not defined.

    Parameters
    ----------
    name : accuracy; macro_f1; balanced_accuracy (mean recall of the classes); roc_auc and pr_auc (area under the curve
        of each class against the rest, averaged over the classes that are there)
    y : classes, shape (n,)
    probability : of each class, shape (n, C)

    Examples
    --------
    >>> measure("balanced_accuracy", [0, 0, 0, 1], [[1, 0], [1, 0], [1, 0], [1, 0]])
    0.5
    """
    if name not in METRICS:
        raise InputError(f"there is no metric {name!r}; there are {', '.join(METRICS)}")
    return METRICS[name](np.asarray(y), np.asarray(probability))


def measure_all(y: npt.ArrayLike, probability: npt.ArrayLike) -> dict[str, Any]:
    """Return every metric by its name."""
    return {name: measure(name, y, probability) for name in METRICS}
