"""Uncertainty of a comparison: intervals over runs, paired tests, ranks over data sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # its modules load on first use

from gpatcher.arrays import FloatArray
from gpatcher.bench.plan import dataset_title, row_title
from gpatcher.errors import counted


def paired_p(a: Sequence[float], b: Sequence[float], ratio: float = 0.0) -> float | None:
    """Return the two-sided p-value of the corrected resampled t-test on runs of two models over the same splits.

        t = mean(d) / √((1/J + ratio) · var(d)),    J - 1 degrees of freedom     (Nadeau and Bengio, 2003)

    The training sets of random splits overlap, so the results are not independent: the plain t-test and Wilcoxon's
    signed-rank test report differences where there are none, and ``ratio``, test nodes / training nodes, corrects for
    that. With ten runs Wilcoxon's test also has few attainable p-values. With ``ratio = 0``, for several seeds on one
    split, this is the paired t-test, and its result holds for that split only. None for fewer than three runs.
    """
    difference = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    if difference.size < 3:  # two differences are too few to estimate their variance
        return None
    variance = difference.var(ddof=1) * (1 / difference.size + ratio)
    if variance < 1e-20:
        return 1.0 if abs(difference.mean()) < 1e-10 else 0.0
    t = difference.mean() / math.sqrt(variance)
    return float(2 * scipy.stats.t.sf(abs(t), difference.size - 1))


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks of k models over N data sets, 1 for the best."""

    models: tuple[str, ...]
    datasets: tuple[str, ...]
    ranks: FloatArray  # shape (N, k); ties get the mean of their ranks
    friedman_p: float | None  # of the test that all models are equal; None for fewer than 3 models or 2 data sets
    distance: float | None  # critical difference of two mean ranks (Nemenyi, 5 %); None if friedman_p is
    left_out: tuple[str, ...]  # models and data sets that are not ranked, with the reason

    @property
    def mean(self) -> dict[str, float]:
        """Mean rank of each model, best first."""
        means = self.ranks.mean(axis=0)
        return {self.models[i]: float(means[i]) for i in np.argsort(means, kind="stable")}

    @property
    def first(self) -> str:
        """The model with the best mean rank."""
        return next(iter(self.mean))

    def gap(self, model: str) -> tuple[float, float]:
        """Return the mean rank of a model minus that of the first, and its standard error over the data sets."""
        behind = self.ranks[:, self.models.index(model)] - self.ranks[:, self.models.index(self.first)]
        error = float(behind.std(ddof=1) / math.sqrt(behind.size)) if behind.size > 1 else 0.0
        return float(behind.mean()), error

    def groups(self) -> list[tuple[str, ...]]:
        """Return the maximal sets of models, best first, whose mean ranks lie within the critical difference."""
        if self.distance is None:
            return []
        names, values = list(self.mean), list(self.mean.values())
        groups: list[tuple[int, int]] = []
        for start in range(len(names)):
            end = max(i for i in range(start, len(names)) if values[i] - values[start] <= self.distance)
            if end > start and (not groups or end > groups[-1][1]):
                groups.append((start, end))
        return [tuple(names[a : b + 1]) for a, b in groups]


def critical_difference(models: int, datasets: int, alpha: float = 0.05) -> float:
    """Return Nemenyi's critical difference of mean ranks, q √(k (k + 1) / (6 N)), as in Demšar (2006)."""
    q = scipy.stats.studentized_range.ppf(1 - alpha, models, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(models * (models + 1) / (6 * datasets)))


def rank(means: Mapping[str, Mapping[str, float]]) -> Ranks | None:
    """Rank models over the data sets on which all of them were run; None if no two models have one in common.

    ``means`` is model → data set → mean result; larger is better. If the models were run on different data sets, the
    comparison with the most cells is taken: 13 models on 3 data sets rather than 2 on 8.
    """
    run = {model: frozenset(results) for model, results in means.items() if results}
    choices = {*run.values(), frozenset.intersection(*run.values())} if run else set()
    compared = {kept: [m for m in run if kept <= run[m]] for kept in choices if kept}
    compared = {kept: models for kept, models in compared.items() if len(models) > 1}
    if not compared:
        return None
    best = max(compared, key=lambda kept: (len(kept) * len(compared[kept]), len(compared[kept]), sorted(kept)))
    models = compared[best]
    few: dict[int, list[str]] = {}
    for model in (m for m in means if m not in models):
        few.setdefault(len(means[model]), []).append(row_title(model))
    left_out = [
        f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} "
        + (f"run on {counted(count, 'data set')} only" if count else "not run")
        for count, names in few.items()
    ]
    every = list(dict.fromkeys(d for m in models for d in means[m]))
    datasets = [d for d in every if d in best]
    missing: dict[tuple[str, ...], list[str]] = {}
    for dataset in (d for d in every if d not in best):
        missing.setdefault(tuple(m for m in models if dataset not in means[m]), []).append(dataset)
    for without, names in missing.items():
        verb = "was" if len(names) == 1 else "were"
        left_out.append(
            f"{', '.join(map(dataset_title, names))} {verb} not run by {', '.join(map(row_title, without))}"
        )
    table = np.array([[means[m][d] for m in models] for d in datasets])
    ranks = scipy.stats.rankdata(-np.round(table, 10), axis=1)
    p = distance = None
    if len(models) >= 3 and len(datasets) >= 2:
        p = float(scipy.stats.friedmanchisquare(*ranks.T).pvalue) if np.ptp(ranks) > 0 else 1.0
        distance = critical_difference(len(models), len(datasets))
    return Ranks(tuple(models), tuple(datasets), ranks, p, distance, tuple(left_out))
