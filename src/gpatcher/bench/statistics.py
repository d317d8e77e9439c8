"""How sure a comparison is: intervals over splits, paired tests, ranks over data sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from gpatcher.arrays import FloatArray
from gpatcher.bench.plan import dataset_title, row_title
from gpatcher.errors import InputError, counted

_DRAWS = 2000


@dataclass(frozen=True)
class Cell:
    """Runs of one model on one data set, summed up.

    ``low`` and ``high`` are the 95 % interval of the mean by bootstrap over the runs. A single run has neither a
    standard deviation nor an interval.
    """

    count: int
    mean: float
    std: float | None
    low: float | None
    high: float | None

    @property
    def spread(self) -> str:
        """The standard deviation in %, such as ``± 2.0``; empty for a single run."""
        return "" if self.std is None else f"± {100 * self.std:.1f}"

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f} {self.spread}".rstrip()


def sum_up(values: Sequence[float], seed: int = 0) -> Cell:
    """Return mean, standard deviation and the 95 % percentile interval of the mean by bootstrap.

    Examples
    --------
    >>> cell = sum_up([0.8, 0.82, 0.84])
    >>> str(cell), str(sum_up([0.8])), 0.8 <= cell.low < cell.high <= 0.84
    ('82.0 ± 2.0', '80.0', True)
    """
    array = np.asarray(values, dtype=float)
    if not array.size:
        raise InputError("there are no runs to sum up")
    if array.size == 1:
        return Cell(1, float(array[0]), None, None, None)
    found = stats.bootstrap(
        (array,), np.mean, n_resamples=_DRAWS, method="percentile", rng=np.random.default_rng(seed)
    ).confidence_interval
    return Cell(array.size, float(array.mean()), float(array.std(ddof=1)), float(found.low), float(found.high))


def paired_p(a: Sequence[float], b: Sequence[float], ratio: float = 0.0) -> float | None:
    r"""Return the two-sided p-value of the corrected resampled t-test on runs of two models over the same splits.

        t = mean(d) / √((1/J + ratio) · var(d)),    J - 1 degrees of freedom     (Nadeau and Bengio, 2003)

    Training sets of random splits overlap, so their results are not independent, and the plain t-test and Wilcoxon's
    find differences that are not there; the term ``ratio`` makes up for it. With ten runs Wilcoxon's test also has
    few values to offer. With ``ratio = 0``, for several seeds on one split, this is the paired t-test: what it says
    holds for that split alone.

    Parameters
    ----------
    a, b : results by split, in the same order, shape (J,); None is returned for fewer than three
    ratio : test nodes / training nodes; 0 for seeds on one split
    """
    difference = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    if difference.size < 3:  # two differences tell nothing of their spread
        return None
    spread = difference.var(ddof=1) * (1 / difference.size + ratio)
    if spread < 1e-20:
        return 1.0 if abs(difference.mean()) < 1e-10 else 0.0
    t = difference.mean() / math.sqrt(spread)
    return float(2 * stats.t.sf(abs(t), difference.size - 1))


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks of k models over N data sets, 1 for the best.

    Parameters
    ----------
    models, datasets : what was ranked
    ranks : shape (N, k); equal means share their ranks
    friedman_p : that all models are alike; None for fewer than 3 models or 2 data sets
    distance : critical difference of two mean ranks (Nemenyi, 5 %); None where friedman_p is
    left_out : models or data sets that could not be compared, with the reason
    """

    models: tuple[str, ...]
    datasets: tuple[str, ...]
    ranks: FloatArray
    friedman_p: float | None
    distance: float | None
    left_out: tuple[str, ...]

    @property
    def mean(self) -> dict[str, float]:
        """The mean rank of each model, best first."""
        means = self.ranks.mean(axis=0)
        return {self.models[i]: float(means[i]) for i in np.argsort(means, kind="stable")}

    def gap(self, model: str) -> tuple[float, float]:
        """Return how far a model's mean rank is behind the first, and the standard error of that difference.

        The standard error is that of the mean over the data sets of (its rank - the first's rank); 0 for the first.
        """
        first = self.ranks[:, self.models.index(next(iter(self.mean)))]
        behind = self.ranks[:, self.models.index(model)] - first
        error = float(behind.std(ddof=1) / math.sqrt(behind.size)) if behind.size > 1 else 0.0
        return float(behind.mean()), error

    def groups(self) -> list[tuple[str, ...]]:
        """Return the largest sets of models, best first, whose mean ranks lie within the critical difference."""
        if self.distance is None:
            return []
        names, values = list(self.mean), list(self.mean.values())
        found: list[tuple[int, int]] = []
        for start in range(len(names)):
            end = max(i for i in range(start, len(names)) if values[i] - values[start] <= self.distance)
            if end > start and (not found or end > found[-1][1]):
                found.append((start, end))
        return [tuple(names[a : b + 1]) for a, b in found]


def critical_difference(models: int, datasets: int, alpha: float = 0.05) -> float:
    """Return Nemenyi's critical difference of mean ranks, q √(k (k + 1) / (6 N)), as in Demšar (2006).

    Examples
    --------
    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    q = stats.studentized_range.ppf(1 - alpha, models, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(models * (models + 1) / (6 * datasets)))


def rank(means: Mapping[str, Mapping[str, float]]) -> Ranks | None:
    """Rank models over the data sets on which all of them were run; None where there is nothing to compare.

    Where models were run on different data sets, the comparison with the most cells counts: 13 models on 3 data sets
    rather than 2 on 8.

    Parameters
    ----------
    means : model → data set → mean result, larger is better
    """
    run = {m: frozenset(found) for m, found in means.items() if found}
    choices = {*run.values(), frozenset.intersection(*run.values())} if run else set()
    compared = {kept: [m for m in run if kept <= run[m]] for kept in choices if kept}
    compared = {kept: models for kept, models in compared.items() if len(models) > 1}
    if not compared:
        return None
    best = max(compared, key=lambda kept: (len(kept) * len(compared[kept]), len(compared[kept]), sorted(kept)))
    models = compared[best]
    left_out = [
        f"{row_title(m)} was run on {counted(len(means[m]), 'data set')} only" for m in means if m not in models
    ]
    every = list(dict.fromkeys(d for m in models for d in means[m]))
    datasets = [d for d in every if d in best]
    lacking: dict[tuple[str, ...], list[str]] = {}
    for dataset in (d for d in every if d not in best):
        lacking.setdefault(tuple(m for m in models if dataset not in means[m]), []).append(dataset)
    for without, there in lacking.items():
        were = "was" if len(there) == 1 else "were"
        left_out.append(
            f"{', '.join(map(dataset_title, there))} {were} not run by {', '.join(map(row_title, without))}"
        )
    table = np.array([[means[m][d] for m in models] for d in datasets])
    ranks = stats.rankdata(-np.round(table, 10), axis=1)
    p = distance = None
    if len(models) >= 3 and len(datasets) >= 2:
        found = stats.friedmanchisquare(*ranks.T) if np.ptp(ranks) > 0 else None
        p = 1.0 if found is None else float(found.pvalue)
        distance = critical_difference(len(models), len(datasets))
    return Ranks(tuple(models), tuple(datasets), ranks, p, distance, tuple(left_out))
