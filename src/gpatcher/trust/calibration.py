"""Probabilities that mean what they say: temperature scaling, calibration error, conformal sets.

All of it is learned from validation nodes. Temperature scaling leaves every predicted class as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError

_HOTTEST = 20.0  # temperatures are looked for between 1/20 and 20
_FOLDS = 5
_SURE = 1000  # from so many nodes on a temperature is known well enough to be taken unseen
_MOST_SCORES = 10_000  # a quantile of so many scores is known to half a percent


@dataclass(frozen=True, eq=False)
class Reliability:
    """How often a confidence comes true, in equally wide bins of confidence.

    Parameters
    ----------
    edges : borders of the bins, shape (bins + 1,)
    count : nodes in each bin, shape (bins,)
    confidence, accuracy : their means in each bin, NaN where it is empty
    """

    edges: FloatArray
    count: IntArray
    confidence: FloatArray
    accuracy: FloatArray

    @property
    def error(self) -> float:
        r"""The expected calibration error.

        .. math:: \sum_b \frac{n_b}{n} \left| \text{accuracy}_b - \text{confidence}_b \right|
        """
        some = self.count > 0
        gaps = np.abs(self.accuracy[some] - self.confidence[some])
        return float((gaps * self.count[some]).sum() / self.count.sum())


def reliability(probability: npt.ArrayLike, y: npt.ArrayLike, bins: int = 15) -> Reliability:
    """Compare the probability of the predicted class with how often it is the right one.

    Parameters
    ----------
    probability : shape (nodes, C)
    y : the true classes, shape (nodes,)

    Examples
    --------
    >>> round(reliability([[0.9, 0.1], [0.6, 0.4]], [0, 1], bins=10).error, 3)
    0.35
    """
    probability, y = np.asarray(probability, dtype=float), np.asarray(y)
    if not y.size:
        raise InputError("there is no labelled node to measure the calibration on")
    confidence = probability.max(1)
    right = (probability.argmax(1) == y).astype(float)
    edges = np.linspace(0.0, 1.0, bins + 1)
    which = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)  # bins are (a, b]
    count = np.bincount(which, minlength=bins)
    means = [
        np.divide(np.bincount(which, v, bins), count, out=np.full(bins, np.nan), where=count > 0)
        for v in (confidence, right)
    ]
    return Reliability(edges, count, *means)


def fit_temperature(logits: npt.ArrayLike, y: npt.ArrayLike) -> float:
    r"""Return the T that makes the labels most likely under softmax(logits / T) (Guo et al., 2017).

    .. math:: \min_T \; -\frac{1}{n} \sum_i \log \mathrm{softmax}(z_i / T)_{y_i}

    Where every node is predicted right, the likelihood only grows as T falls and nothing is learned about doubt: T
    stays 1.

    Parameters
    ----------
    logits : shape (nodes, C)
    y : the true classes, shape (nodes,)
    """
    logits, y = np.asarray(logits, dtype=float), np.asarray(y)
    if (logits.argmax(1) == y).all():
        return 1.0

    def loss(log_t: float) -> float:
        return float(_log_loss(logits / math.exp(log_t), y).mean())

    widest = math.log(_HOTTEST)
    return math.exp(float(minimize_scalar(loss, bounds=(-widest, widest), method="bounded").x))


def choose_temperature(logits: npt.ArrayLike, y: npt.ArrayLike, seed: int = 0) -> float:
    """Return the fitted T where fitting has shown to help, else 1.

    A temperature of a few dozen nodes may be worse than none. So it is fitted on four fifths of them and judged by the
    log loss of the rest, five times over, and counts where the mean falls; a thousand nodes need no such proof.

    Parameters
    ----------
    logits : shape (nodes, C)
    y : the true classes, shape (nodes,)
    seed : of the fifths
    """
    logits, y = np.asarray(logits, dtype=float), np.asarray(y)
    if len(y) < _SURE:
        gain = 0.0
        for held in np.array_split(np.random.default_rng(seed).permutation(len(y)), _FOLDS):
            rest = np.setdiff1d(np.arange(len(y)), held)
            t = fit_temperature(logits[rest], y[rest])
            gain += float((_log_loss(logits[held], y[held]) - _log_loss(logits[held] / t, y[held])).sum())
        if gain <= 0:
            return 1.0
    return fit_temperature(logits, y)


def _log_loss(logits: FloatArray, y: IntArray) -> FloatArray:
    loss: FloatArray = -log_softmax(logits, axis=1)[np.arange(len(y)), y]
    return loss


@dataclass(frozen=True, eq=False)
class Calibration:
    """What the validation nodes teach about a model's doubt.

    The temperature is that of all of them, or 1 where it would not help. Conformal sets need nodes of their own: one
    half of the validation nodes gives them a second temperature, the other half the quantile, so that no node is used
    for both.

    Parameters
    ----------
    temperature : of the probabilities, see `choose_temperature`
    nodes : validation nodes it comes from
    error_before, error_after : expected calibration error on those nodes with T = 1 and with the temperature
    set_temperature : of the conformal sets
    scores : 1 - p(true class) of the second half, rising; at most 10,000 of them
    """

    temperature: float
    nodes: int
    error_before: float
    error_after: float
    set_temperature: float
    scores: FloatArray

    def probability(self, logits: npt.ArrayLike) -> FloatArray:
        """Return the calibrated probabilities, shape (nodes, C)."""
        return np.asarray(softmax(np.asarray(logits) / np.float32(self.temperature), axis=1))

    def sets(self, logits: npt.ArrayLike, level: float) -> npt.NDArray[np.bool_]:
        r"""Return for each node the classes that hold the true one with probability ``level``; shape (nodes, C).

        Split conformal prediction: a class is in where 1 - p(class) is at most the
        :math:`\lceil (n + 1)\, level \rceil`-th smallest score of n validation nodes. It holds on average over nodes
        that are exchangeable with those, whatever the model. The predicted class is always in, so no set is empty;
        with too few validation nodes for the level every class is in.
        """
        check_level(level)
        probability = np.asarray(softmax(np.asarray(logits, dtype=float) / self.set_temperature, axis=1))
        inside = 1.0 - probability <= self.quantile(level)
        inside[np.arange(len(inside)), probability.argmax(1)] = True
        return inside

    def quantile(self, level: float) -> float:
        """Return the largest score a class may have to be in a set of this level; infinite where nodes are too few."""
        place = math.ceil((len(self.scores) + 1) * level - 1e-9)  # 0.9 · 10 may exceed 9 by rounding
        return float(self.scores[place - 1]) if place <= len(self.scores) else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Return all but the scores, ready for JSON."""
        names = ("temperature", "nodes", "error_before", "error_after", "set_temperature")
        return {name: getattr(self, name) for name in names}


def check_level(level: float) -> None:
    """Refuse a level that is none."""
    if not 0 < level < 1:
        raise InputError(f"the conformal level must lie in (0, 1), e.g. 0.9, got {level}")


def calibrate(logits: npt.ArrayLike, y: npt.ArrayLike, seed: int = 0) -> Calibration:
    """Learn temperature and conformal scores from the validation nodes.

    Parameters
    ----------
    logits : of the validation nodes, shape (nodes, C)
    y : their classes, shape (nodes,)
    seed : of the halves and of the fifths
    """
    logits, y = np.asarray(logits, dtype=float), np.asarray(y)
    temperature = choose_temperature(logits, y, seed)
    before, after = (reliability(softmax(logits / t, axis=1), y).error for t in (1.0, temperature))
    order = np.random.default_rng(seed).permutation(len(y))
    one, two = order[: len(y) // 2], order[len(y) // 2 :][:_MOST_SCORES]
    set_temperature = fit_temperature(logits[one], y[one])
    probability = softmax(logits[two] / set_temperature, axis=1)
    scores = np.sort(1.0 - probability[np.arange(len(two)), y[two]])
    return Calibration(temperature, len(y), before, after, set_temperature, scores)
