"""Calibrated probabilities: temperature scaling on validation nodes, and the expected calibration error.

Temperature scaling does not change the predicted class of any node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # its modules load on first use

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError
from gpatcher.trust.conformal import nonconformity_scores, prediction_sets, threshold

_MAX_TEMPERATURE = 20.0  # the search interval is [1/20, 20]
_FOLDS = 5
_MAX_SCORES = 10_000  # enough for a quantile with an error of half a percent


@dataclass(frozen=True, eq=False)
class Reliability:
    """Confidence against accuracy in bins of equal width."""

    edges: FloatArray  # shape (bins + 1,), all else (bins,)
    count: IntArray  # nodes in each bin
    confidence: FloatArray  # mean; NaN if a bin is empty
    accuracy: FloatArray

    @property
    def error(self) -> float:
        """Expected calibration error Σ_b n_b / n · |accuracy_b - confidence_b|."""
        filled = self.count > 0
        gaps = np.abs(self.accuracy[filled] - self.confidence[filled])
        return float((gaps * self.count[filled]).sum() / self.count.sum())


def reliability(probability: npt.ArrayLike, y: npt.ArrayLike, bins: int = 15) -> Reliability:
    """Compare the probability of the predicted class with the accuracy, in bins; ``probability`` is (nodes, C)."""
    probability, y = np.asarray(probability, dtype=float), np.asarray(y)
    if not y.size:
        raise InputError("no labelled node to measure the calibration on")
    confidence = probability.max(1)
    correct = (probability.argmax(1) == y).astype(float)
    edges = np.linspace(0.0, 1.0, bins + 1)
    member = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)  # bins are (a, b]
    count = np.bincount(member, minlength=bins)
    means = [
        np.divide(np.bincount(member, v, bins), count, out=np.full(bins, np.nan), where=count > 0)
        for v in (confidence, correct)
    ]
    return Reliability(edges, count, *means)


def fit_temperature(logits: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Return the temperature T that maximises the likelihood of the labels, softmax(z / T) (Guo et al., 2017).

    If every prediction is correct, the likelihood grows as T approaches 0 and has no maximum: the result is 1.
    """
    from scipy.optimize import minimize_scalar  # a fifth of a second, which a model that only predicts saves

    logits, y = np.asarray(logits, dtype=float), np.asarray(y)
    if (logits.argmax(1) == y).all():
        return 1.0

    def loss(log_t: float) -> float:
        return float(_log_loss(logits / math.exp(log_t), y).mean())

    bound = math.log(_MAX_TEMPERATURE)
    return math.exp(float(minimize_scalar(loss, bounds=(-bound, bound), method="bounded").x))


def choose_temperature(logits: npt.ArrayLike, y: npt.ArrayLike, seed: int = 0) -> float:
    """Return the fitted temperature if it helps on nodes that it was not fitted on, else 1.

    It must lower the log loss by two standard errors in five folds, since a temperature fitted on a few dozen nodes may
    be worse than none, and must not raise the expected calibration error: the likelihood may grow by a few nodes with
    very wrong predictions while the probabilities of all others move away from the accuracy.
    """
    # Not vector scaling, which is about as good in benchmarks/calibration.py: it would change predicted classes.
    logits, y = np.asarray(logits, dtype=float), np.asarray(y)
    if len(y) < 2 * _FOLDS:
        return 1.0
    scaled = np.empty_like(logits)
    for held in np.array_split(np.random.default_rng(seed).permutation(len(y)), _FOLDS):
        rest = np.setdiff1d(np.arange(len(y)), held)
        scaled[held] = logits[held] / fit_temperature(logits[rest], y[rest])
    gain = _log_loss(logits, y) - _log_loss(scaled, y)
    standard_error = gain.std(ddof=1) / math.sqrt(len(y))
    before, after = (reliability(scipy.special.softmax(z, axis=1), y).error for z in (logits, scaled))
    return fit_temperature(logits, y) if gain.mean() > 2 * standard_error and after <= before else 1.0


def _log_loss(logits: FloatArray, y: IntArray) -> FloatArray:
    loss: FloatArray = -scipy.special.log_softmax(logits, axis=1)[np.arange(len(y)), y]
    return loss


@dataclass(frozen=True, eq=False)
class Calibration:
    """Temperature and conformal scores of a model, from its validation nodes.

    The temperature of the probabilities is fitted on all validation nodes. Conformal sets need scores of nodes that
    their temperature was not fitted on: it is fitted on one half of the validation nodes, and the scores are of the
    other half.
    """

    temperature: float  # of the probabilities, see `choose_temperature`
    nodes: int  # validation nodes
    error_before: float  # expected calibration error on these nodes with T = 1
    error_after: float  # the same with the temperature
    set_temperature: float  # of the conformal sets
    scores: FloatArray  # 1 - p(true class) of the second half in ascending order, at most 10,000

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and self.set_temperature > 0):
            raise InputError(f"temperatures must be above 0, got {self.temperature} and {self.set_temperature}")

    def probability(self, logits: npt.ArrayLike) -> FloatArray:
        """Return the calibrated probabilities, shape (nodes, C)."""
        return np.asarray(scipy.special.softmax(np.asarray(logits) / np.float32(self.temperature), axis=1))

    def sets(self, logits: npt.ArrayLike, level: float) -> npt.NDArray[np.bool_]:
        """Return the conformal set of each node, shape (nodes, C); see `prediction_sets` for the guarantee."""
        probability = np.asarray(scipy.special.softmax(np.asarray(logits, dtype=float) / self.set_temperature, axis=1))
        return prediction_sets(probability, self.scores, level)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields but the scores, for JSON."""
        return {name: value for name, value in vars(self).items() if name != "scores"}


@dataclass(frozen=True, eq=False)
class Intervals:
    """Conformal intervals of predicted numbers, from the errors on validation nodes."""

    nodes: int  # validation nodes
    scores: FloatArray  # absolute errors on these nodes in ascending order, at most 10,000

    def intervals(self, answers: npt.ArrayLike, level: float) -> FloatArray:
        """Return the low and high end for each node, shape (nodes, 2), see `threshold`.

        An interval contains the true number with probability of at least ``level``, on average over nodes that are
        exchangeable with the validation nodes. It is infinite if these are too few for the level.
        """
        half = threshold(self.scores, level)
        return np.asarray(np.asarray(answers, dtype=float).reshape(-1, 1) + np.array([-half, half]))

    def to_dict(self) -> dict[str, Any]:
        """Return all fields but the scores, for JSON."""
        return {"nodes": self.nodes}


def calibrate(answers: npt.ArrayLike, y: npt.ArrayLike, seed: int = 0) -> Calibration | Intervals:
    """Fit temperature and conformal scores on validation nodes; the seed draws the halves and the folds.

    For numbers, floats in ``y``, the scores are all there is.
    """
    logits, y = np.asarray(answers, dtype=float), np.asarray(y)
    if y.dtype.kind == "f":
        errors = np.random.default_rng(seed).permutation(np.abs(logits[:, 0] - y))[:_MAX_SCORES]
        return Intervals(len(y), np.sort(errors))
    temperature = choose_temperature(logits, y, seed)
    before, after = (reliability(scipy.special.softmax(logits / t, axis=1), y).error for t in (1.0, temperature))
    order = np.random.default_rng(seed).permutation(len(y))
    first, second = order[: len(y) // 2], order[len(y) // 2 :][:_MAX_SCORES]
    set_temperature = fit_temperature(logits[first], y[first])
    scores = nonconformity_scores(scipy.special.softmax(logits[second] / set_temperature, axis=1), y[second])
    return Calibration(temperature, len(y), before, after, set_temperature, scores)
