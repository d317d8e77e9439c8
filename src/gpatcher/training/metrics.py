"""Metrics of classes, of which all but accuracy weight rare classes as much as frequent ones, and of numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # its modules load on first use

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError

# scikit-learn is imported where a metric needs it: a model predicts without it


def _macro_f1(y: IntArray, probability: FloatArray) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(y, probability.argmax(1), average="macro", zero_division=0))


def _balanced_accuracy(y: IntArray, probability: FloatArray) -> float:
    from sklearn.metrics import recall_score

    # not balanced_accuracy_score, which warns if a predicted class is absent from y
    return float(recall_score(y, probability.argmax(1), labels=np.unique(y), average="macro", zero_division=0))


def _one_vs_rest(name: str, y: IntArray, probability: FloatArray) -> float | None:
    """Return the macro average of a binary metric over the classes in ``y``; None if there is only one."""
    import sklearn.metrics

    classes = np.unique(y)
    if classes.size < 2:
        return None
    metric = getattr(sklearn.metrics, name)
    return float(np.mean([metric(y == c, probability[:, c]) for c in classes]))


METRICS: dict[str, Callable[[IntArray, FloatArray], float | None]] = {
    "accuracy": lambda y, probability: float((probability.argmax(1) == y).mean()),
    "macro_f1": _macro_f1,
    "balanced_accuracy": _balanced_accuracy,
    "roc_auc": partial(_one_vs_rest, "roc_auc_score"),
    "pr_auc": partial(_one_vs_rest, "average_precision_score"),
}


def _r2(y: FloatArray, predicted: FloatArray) -> float | None:
    spread = float(np.square(y - y.mean()).sum())
    return 1.0 - float(np.square(y - predicted).sum()) / spread if spread > 0 else None


# of numbers: true ones and predicted ones
REGRESSION_METRICS: dict[str, Callable[[FloatArray, FloatArray], float | None]] = {
    "r2": _r2,
    "rmse": lambda y, predicted: float(np.sqrt(np.square(y - predicted).mean())),
    "mae": lambda y, predicted: float(np.abs(y - predicted).mean()),
}


def measure(name: str, y: npt.ArrayLike, probability: npt.ArrayLike) -> float | None:
    """Return one metric.

    Parameters
    ----------
    name : {"accuracy", "macro_f1", "balanced_accuracy", "roc_auc", "pr_auc"}
        ``balanced_accuracy`` is the macro average of recall. ``roc_auc`` and ``pr_auc`` are the area under the ROC
        curve and the average precision, one-vs-rest and macro-averaged. Classes absent from ``y`` are
        ignored, except in ``macro_f1`` if they are predicted.
    y : int array, shape (n,)
        True classes.
    probability : float array, shape (n, C)
        Predicted probability of each class.

    Returns
    -------
    float or None
        None if the metric is undefined: one-vs-rest metrics need two classes in ``y``.

    Examples
    --------
    >>> measure("balanced_accuracy", [0, 0, 0, 1], [[1, 0], [1, 0], [1, 0], [1, 0]])
    0.5
    """
    if name not in METRICS:
        raise InputError(f"unknown metric {name!r}; choose one of {', '.join(METRICS)}")
    return METRICS[name](np.asarray(y), np.asarray(probability))


def measure_all(y: npt.ArrayLike, probability: npt.ArrayLike) -> dict[str, Any]:
    """Return every metric of `METRICS` by name, None if it is undefined."""
    return {name: measure(name, y, probability) for name in METRICS}


def log_loss(logits: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Return the mean of -log p(true class), from logits of shape (n, C)."""
    y = np.asarray(y)
    return float(-scipy.special.log_softmax(np.asarray(logits, dtype=float), axis=1)[np.arange(len(y)), y].mean())
