"""Evaluation of a trained regressor, and the baselines that read the columns alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.estimator.base import NodeRegressor, labelled
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.runs.evaluation import LEVELS, Scores, evaluated_nodes, is_large, measure_results
from gpatcher.runs.results import BaselineResult, Comparison, RegressionEvaluation
from gpatcher.spectral.heterophily import label_assortativity, neighbour_means
from gpatcher.tables.typed_encoder import Encoder
from gpatcher.training.metrics import REGRESSION_METRICS
from gpatcher.training.task import Regression
from gpatcher.trust.conformal import interval_coverage

_SAMPLES = (100, 1000)  # of the bootstrap: fewer where there are many nodes, and the interval is narrow
_DRAWS = 1 << 25  # of nodes in all samples together
_AT_ONCE = 1 << 20
_DRAWN = 5000  # nodes in the plots
_PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0)  # of ridge regression
_DENSE = 1 << 26  # numbers up to which sparse columns are made dense for the trees


def column_baselines(graph: Graph, split: Split, nodes: IntArray, seed: int) -> list[BaselineResult]:
    """Train ridge regression and boosted trees on the columns alone, and predict some nodes.

    The penalty is chosen on the validation nodes, the iterations on a tenth of the training nodes.
    """
    x: Any = graph.x
    if x is None:
        return []
    y, val = graph.labels(), labelled(graph, split.val)
    scaler = StandardScaler(with_mean=not sp.issparse(x))
    models: dict[str, list[Any]] = {"Ridge (columns)": [make_pipeline(scaler, Ridge(alpha)) for alpha in _PENALTIES]}
    dense = not sp.issparse(x) or x.shape[0] * x.shape[1] <= _DENSE
    if dense:
        leaf = int(np.clip(split.train.size // 20, 2, 20))
        trees = HistGradientBoostingRegressor(early_stopping=True, random_state=seed, min_samples_leaf=leaf)
        models["Boosted trees (columns)"] = [trees]
    results = []
    for title, tried in models.items():
        started = time.perf_counter()

        def rows(ids: IntArray, dense: bool = sp.issparse(x) and title.startswith("Boosted")) -> Any:
            return x[ids].toarray() if dense else x[ids]

        for model in tried:
            model.fit(rows(split.train), y[split.train])
        scores = [_r2(y[val], model.predict(rows(val))) if val.size else np.nan for model in tried]
        best = int(np.nanargmax(scores)) if np.isfinite(scores).any() else 0
        predicted = tried[best].predict(rows(nodes))
        seconds = time.perf_counter() - started
        results.append(BaselineResult(title, predicted, scores[best], _r2(y[nodes], predicted), seconds))
    return results


def evaluate_numbers(
    model: NodeRegressor,
    graph: Graph,
    baselines: Sequence[BaselineResult] = (),
    notes: Sequence[str] = (),
    about: dict[str, str] | None = None,
    encoder: Encoder | None = None,
) -> RegressionEvaluation:
    """Evaluate a regressor on nodes that it was not trained on, and compare it with baselines on the same nodes."""
    _, nodes = evaluated_nodes(model, graph)
    y, task = graph.labels()[nodes], cast(Regression, model.task_)
    answers = model.decision_function(graph, nodes)
    drawn = np.arange(len(nodes))
    if len(drawn) > _DRAWN:
        drawn = np.sort(np.random.default_rng(0).choice(drawn, _DRAWN, replace=False))
        notes = [*notes, f"The plots show {_DRAWN:,} of {len(nodes):,} nodes, drawn at random."]
    degree, around, assortativity = np.zeros(len(drawn), np.int64), np.full(len(drawn), np.nan), None
    if not is_large(graph):
        degree = np.diff(graph.undirected().indptr)[nodes[drawn]]
        standard = (graph.labels() - task.mean) / task.scale
        around = (standard * neighbour_means(graph, standard))[nodes[drawn]]
        assortativity = label_assortativity(graph)
    samples = np.random.default_rng(0).integers(0, len(y), (np.clip(_DRAWS // len(y), *_SAMPLES), len(y)), np.int32)

    def rate(predicted: FloatArray) -> Scores:
        rmse, mae = (REGRESSION_METRICS[name](y, predicted) for name in ("rmse", "mae"))
        return _r2(y, predicted), *_interval(_sampled_r2(y, predicted, samples)), rmse, mae

    def compare(other: BaselineResult) -> Comparison:
        """Compare R² with that of another model, paired by node."""
        own, others = (_sampled_r2(y, predicted, samples) for predicted in (answers[:, 0], other.predicted))
        return Comparison(other.name, _r2(y, answers[:, 0]) - _r2(y, other.predicted), *_interval(own - others))

    trivial = BaselineResult("Mean", np.full(len(y), task.mean), None, None, None)
    results, _, shown = measure_results(model, graph, [trivial, *baselines], rate, encoder, notes)
    ids = nodes[drawn] if graph.node_ids is None else graph.node_ids[nodes[drawn]]
    return RegressionEvaluation(
        **results,
        about=about or {},
        metrics=task.measure_all(answers, y),
        coverage=[(level, *interval_coverage(model.calibration_.intervals(answers, level), y)) for level in LEVELS],
        comparisons=[compare(other) for other in (trivial, *baselines)],
        ids=[str(one) for one in ids.tolist()],
        true=y[drawn],
        predicted=answers[drawn, 0],
        degree=degree,
        assortativity=around,
        label_assortativity=assortativity,
        intervals=model.calibration_,
        explained_errors=shown,
    )


def _r2(y: FloatArray, predicted: FloatArray) -> float:
    value = REGRESSION_METRICS["r2"](y, predicted)
    return float("nan") if value is None else value


def _sampled_r2(y: FloatArray, predicted: FloatArray, samples: IntArray) -> FloatArray:
    """Return R² on each bootstrap sample of the nodes; NaN where all its labels are equal."""
    error = np.square(y - predicted)
    step = max(1, _AT_ONCE // len(y))

    def some(rows: IntArray) -> FloatArray:
        spread = np.var(y[rows], axis=1)
        unexplained = np.divide(error[rows].mean(1), spread, out=np.full_like(spread, np.nan), where=spread > 0)
        return np.asarray(1.0 - unexplained)

    return np.concatenate([some(samples[first : first + step]) for first in range(0, len(samples), step)])


def _interval(values: FloatArray) -> tuple[float, float]:
    values = values[~np.isnan(values)]
    low, high = np.quantile(values, (0.025, 0.975)) if values.size else (np.nan, np.nan)
    return float(low), float(high)
