"""Weights of an ensemble: greedy selection on held-out nodes, repeated on bootstrap samples of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from gpatcher.arrays import FloatArray

_REPEATS = 20  # bootstrap samples
_STEPS = 15  # selections in each
_NODES = 5000  # sampled if there are more
_LEAST = 0.04  # smaller weights become 0
SHRINK = 0.1  # weight of the uniform distribution


def ensemble_weights(
    logits: Sequence[FloatArray], y: npt.NDArray[Any], seed: int = 0, shrink: float = SHRINK
) -> FloatArray:
    """Return the weights of the members, which sum to 1.

    Greedy selection with replacement (Caruana et al., 2004) by the log loss of averaged logits, or the squared error of
    averaged numbers: each step adds the member that lowers it most. With few nodes the best of many members is partly
    luck, so the selection is repeated on bootstrap samples of the nodes and averaged, small weights become 0, and the
    rest is shrunk towards equal weights.

    Parameters
    ----------
    logits : sequence of float array, shape (nodes, C)
        Calibrated logits of each member for the held-out nodes, or numbers, with C = 1.
    y : int or float array, shape (nodes,)
    seed : int
    shrink : float
        How far the weights are shrunk towards equal ones, 0 to 1; ``tools/portfolio.py shrink`` compares values.
    """
    random = np.random.default_rng(seed)
    if len(y) > _NODES:
        drawn = random.choice(len(y), _NODES, replace=False)
        logits, y = [z[drawn] for z in logits], y[drawn]
    stacked = np.stack(logits).astype(np.float64)
    total = np.zeros(len(stacked))
    for _ in range(_REPEATS):
        sample = random.integers(0, len(y), len(y))
        total += greedy_weights(stacked[:, sample], y[sample])
    weights = total / total.sum()
    weights[weights < _LEAST * (weights.max() / weights.sum() >= _LEAST)] = 0.0
    kept = weights > 0
    weights = (1 - shrink) * weights / weights.sum() + shrink * kept / kept.sum()
    return np.asarray(weights / weights.sum())


def greedy_weights(logits: FloatArray, y: npt.NDArray[Any]) -> FloatArray:
    """Return how often each member is selected in the best prefix of the selections, as fractions."""
    counts = np.zeros(len(logits))
    total = np.zeros_like(logits[0])
    rows = np.arange(len(y))
    best, smallest = counts, np.inf
    for step in range(1, _STEPS + 1):
        trial = (total + logits) / step
        if y.dtype.kind == "f":
            losses = np.square(trial[:, :, 0] - y).mean(axis=1)
        else:
            losses = (logsumexp(trial, axis=2) - trial[:, rows, y]).mean(axis=1)
        choice = int(losses.argmin())
        total = total + logits[choice]
        counts = counts.copy()
        counts[choice] += 1
        if losses[choice] < smallest:
            smallest, best = losses[choice], counts / step
    return best
