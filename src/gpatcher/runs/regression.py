"""Evaluation of a trained regressor, and the baselines that read the columns alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.estimator.base import labelled
from gpatcher.estimator.classifier import PatchModel
from gpatcher.estimator.ensemble import AutoModel
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.runs.evaluation import (
    LEVELS,
    BaselineResult,
    Comparison,
    NumberRow,
    RegressionEvaluation,
    describe_model,
    evaluated_nodes,
    is_large,
)
from gpatcher.spectral.heterophily import label_assortativity, neighbour_means
from gpatcher.training.metrics import REGRESSION_METRICS
from gpatcher.training.task import task_of
from gpatcher.trust.conformal import interval_coverage

_SAMPLES = 1000  # of the bootstrap
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
    model: Any, graph: Graph, baselines: Sequence[BaselineResult] = (), notes: Sequence[str] = ()
) -> RegressionEvaluation:
    """Evaluate a regressor on nodes that it was not trained on, and compare it with baselines on the same nodes."""
    part, nodes = evaluated_nodes(model, graph)
    y, task = graph.labels()[nodes], task_of(graph.labels(), model.split_.train)
    answers = model.decision_function(graph, nodes)
    started = time.perf_counter()
    model.decision_function(graph, nodes)  # timed, with all patches computed
    ms_per_node = 1000 * (time.perf_counter() - started) / len(nodes)
    name, extractor, patch_size, _, parameters = describe_model(model)
    drawn = np.arange(len(nodes))
    if len(drawn) > _DRAWN:
        drawn = np.sort(np.random.default_rng(0).choice(drawn, _DRAWN, replace=False))
        notes = [*notes, f"The plots show {_DRAWN:,} of {len(nodes):,} nodes, drawn at random."]
    around, assortativity = np.full(len(drawn), np.nan), None
    degree = np.diff(graph.undirected().indptr)[nodes[drawn]] if not is_large(graph) else np.zeros(len(drawn), int)
    if is_large(graph):
        notes = [
            *notes,
            "The edges of a graph of this size are not read for the page: residuals by degree are left out.",
        ]
    else:
        standard = (graph.labels() - task.mean) / task.scale  # type: ignore[union-attr]
        around = (standard * neighbour_means(graph, standard))[nodes[drawn]]
        assortativity = label_assortativity(graph)
    random = np.random.default_rng(0).integers(0, len(y), (_SAMPLES, len(y))) if len(y) > 1 else np.zeros((1, 1), int)
    others = {"Mean": np.full(len(y), task.mean)}  # type: ignore[union-attr]
    others |= {result.name: np.asarray(result.predicted) for result in baselines}
    training = getattr(model, "result_", None)
    ids = nodes[drawn] if graph.node_ids is None else graph.node_ids[nodes[drawn]]
    return RegressionEvaluation(
        name=graph.name,
        model=name,
        extractor=extractor,
        patch_size=patch_size,
        parameters=parameters,
        part=part,
        split_sizes=model.split_.sizes,
        metrics=task.measure_all(answers, y),
        val_r2=model.validation_score(graph),
        ids=[str(one) for one in ids.tolist()],
        true=y[drawn],
        predicted=answers[drawn, 0],
        degree=degree,
        assortativity=around,
        label_assortativity=assortativity,
        intervals=model.calibration_,
        coverage=[(level, *interval_coverage(model.calibration_.intervals(answers, level), y)) for level in LEVELS],
        leaderboard=_leaderboard(model, graph, nodes, answers[:, 0], baselines, others, name, ms_per_node, random),
        comparisons=[_compare(other, y, answers[:, 0], predicted, random) for other, predicted in others.items()],
        response=model.filter_response() if isinstance(model, PatchModel) else None,
        history=training.history if training is not None else [],
        best_epoch=training.best_epoch if training is not None else 0,
        seconds=training.seconds if training is not None else None,
        nodes=graph.n,
        notes=list(notes),
    )


def _r2(y: FloatArray, predicted: FloatArray) -> float:
    value = REGRESSION_METRICS["r2"](y, predicted)
    return float("nan") if value is None else value


def _sampled_r2(y: FloatArray, predicted: FloatArray, samples: IntArray) -> FloatArray:
    """Return R² on each bootstrap sample of the nodes; NaN where all its labels are equal."""
    drawn = y[samples]
    spread = np.square(drawn - drawn.mean(1, keepdims=True)).sum(1)
    error = np.square(y - predicted)[samples].sum(1)
    return np.asarray(1.0 - np.divide(error, spread, out=np.full_like(spread, np.nan), where=spread > 0))


def _interval(values: FloatArray) -> tuple[float, float]:
    values = values[~np.isnan(values)]
    low, high = np.quantile(values, (0.025, 0.975)) if values.size else (np.nan, np.nan)
    return float(low), float(high)


def _compare(name: str, y: FloatArray, own: FloatArray, other: FloatArray, samples: IntArray) -> Comparison:
    """Compare R² with that of another model, paired by node."""
    low, high = _interval(_sampled_r2(y, own, samples) - _sampled_r2(y, other, samples))
    return Comparison(name, _r2(y, own) - _r2(y, other), low, high)


def _leaderboard(
    model: Any,
    graph: Graph,
    nodes: IntArray,
    predicted: FloatArray,
    baselines: Sequence[BaselineResult],
    others: dict[str, FloatArray],
    name: str,
    ms_per_node: float,
    samples: IntArray,
) -> list[NumberRow]:
    y = graph.labels()[nodes]

    def row(
        name: str,
        role: str,
        numbers: FloatArray,
        val: float | None,
        seconds: float | None = None,
        ms: float | None = None,
        weight: float | None = None,
    ) -> NumberRow:
        r2, rmse, mae = (metric(y, numbers) for metric in REGRESSION_METRICS.values())
        r2 = np.nan if r2 is None else r2
        interval = _interval(_sampled_r2(y, numbers, samples))
        return NumberRow(name, role, val, r2, *interval, rmse or 0.0, mae or 0.0, seconds, ms, weight)

    training = getattr(model, "result_", None)
    seconds = None if training is None else training.seconds
    rows = []
    if isinstance(model, AutoModel):
        seconds = sum(member.seconds for member in model.members_)
        for member in model.members_:
            if member.models:  # a loaded ensemble has no models for members of weight 0
                started = time.perf_counter()
                numbers = model.member_logits(member, nodes)[:, 0]
                ms = 1000 * (time.perf_counter() - started) / len(nodes)
                known = (member.accuracy, member.seconds, ms, member.weight)
                rows.append(row(member.candidate.name, "member", numbers, *known))
    rows.append(row(name, "model", predicted, model.validation_score(graph), seconds, ms_per_node))
    known_of = {result.name: result for result in baselines}
    for title, numbers in others.items():
        result = known_of.get(title)
        val, spent = (None, None) if result is None else (result.val_accuracy, result.seconds)
        rows.append(row(title, "baseline", numbers, val, spent))
    return sorted(rows, key=lambda one: (one.rmse, one.role))
