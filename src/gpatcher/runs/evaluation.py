"""Evaluation of a trained classifier: its results on nodes that it was not trained on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError
from gpatcher.estimator.base import NodeClassifier, NodeModel, labelled
from gpatcher.estimator.classifier import PatchModel
from gpatcher.estimator.ensemble import AutoModel
from gpatcher.graph.graph import Graph
from gpatcher.runs.importance import measure_importance
from gpatcher.runs.paired import paired_difference, wilson
from gpatcher.runs.results import BaselineResult, Comparison, Evaluation, Groups, Importance, PerClass, Row
from gpatcher.spectral.diagnosis import diagnose
from gpatcher.spectral.heterophily import heterophily
from gpatcher.tables.typed_encoder import Encoder
from gpatcher.training.metrics import measure_all
from gpatcher.trust.calibration import reliability
from gpatcher.trust.conformal import coverage
from gpatcher.trust.explanation import Explanation

# on larger graphs the edges are not read, to stay within the memory limit
_MAX_NODES, _MAX_EDGES = 200_000, 20_000_000
LEVELS = (0.8, 0.9, 0.95)  # of conformal sets and intervals
_EXPLAINED = 200  # nodes to explain; at most three quarters are misclassified
_FEW = 10  # of an ensemble, or with several rounds, where an explanation covers the whole receptive field
_WORK = 10_000_000  # edges times rounds that explanations may read
_MAX_CHANGED = 20_000  # nodes up to which predictions on changed graphs are computed
Scores = tuple[float, float, float, float | None, float | None]  # score, low, high, rmse and mae of a `Row`


def is_large(graph: Graph) -> bool:
    """Return whether the evaluation of this graph skips measures that need all its edges."""
    return graph.n > _MAX_NODES or graph.stored_edges > _MAX_EDGES


def evaluated_nodes(classifier: NodeModel, graph: Graph) -> tuple[str, IntArray]:
    """Return the part to evaluate on and its labelled nodes: test, or validation if no test node has a label."""
    for part, nodes in (("test", classifier.split_.test), ("validation", classifier.split_.val)):
        known = labelled(graph, nodes)
        if known.size:
            return part, known
    raise InputError("neither test nor validation has a labelled node; there is nothing to evaluate the model on")


def evaluate(
    classifier: NodeClassifier,
    graph: Graph,
    baselines: Sequence[BaselineResult] = (),
    notes: Sequence[str] = (),
    about: dict[str, str] | None = None,
    encoder: Encoder | None = None,
) -> Evaluation:
    """Evaluate a model on nodes that it was not trained on, and compare it with baselines on the same nodes."""
    _, nodes = evaluated_nodes(classifier, graph)
    y = graph.labels()[nodes]
    classes = tuple(str(name) for name in classifier.classes_)
    logits = classifier.decision_function(graph, nodes)
    predicted = logits.argmax(1)
    probability = classifier.calibration_.probability(logits)
    by_heterophily = by_degree = None
    if not is_large(graph):
        predictions = {describe_model(classifier)[0]: predicted, **{b.name: b.predicted for b in baselines}}
        by_heterophily = _by_heterophily(heterophily(graph).node[nodes], y, predictions)
        by_degree = _by_degree(np.diff(graph.undirected().indptr)[nodes], y, predictions)

    def rate(other: IntArray) -> Scores:
        correct = int((other == y).sum())
        return correct / len(y), *wilson(correct, len(y)), None, None

    def compare(other: BaselineResult) -> Comparison:
        found = paired_difference(predicted == y, other.predicted == y)
        return Comparison(other.name, found.gain, found.low, found.high)

    majority = int(np.bincount(graph.labels()[classifier.split_.train]).argmax())
    trivial = BaselineResult("Majority class", np.full(len(y), majority), None, None, None)
    results, misclassified, shown = measure_results(classifier, graph, [trivial, *baselines], rate, encoder, notes)
    return Evaluation(
        **results,
        about=about or {},
        metrics=measure_all(y, probability),
        coverage=[(level, *coverage(classifier.calibration_.sets(logits, level), y)) for level in LEVELS],
        comparisons=[compare(other) for other in (trivial, *baselines)],
        classes=classes,
        per_class=PerClass(*precision_recall_fscore_support(y, predicted, labels=range(len(classes)), zero_division=0)),
        confusion=confusion_matrix(y, predicted, labels=range(len(classes))),
        raw=reliability(classifier.predict_proba(graph, nodes, calibrated=False), y),
        calibrated=reliability(probability, y),
        calibration=classifier.calibration_,
        by_heterophily=by_heterophily,
        by_degree=by_degree,
        baselines=tuple(baselines),
        misclassified=misclassified,
        misclassified_shown=shown,
    )


def measure_results(
    model: NodeModel,
    graph: Graph,
    others: Sequence[BaselineResult],
    rate: Callable[[Any], Scores],
    encoder: Encoder | None,
    notes: Sequence[str],
) -> tuple[dict[str, Any], int, int]:
    """Return the fields of `Results` that do not depend on the task, the number of errors, and of those explained.

    ``rate`` returns what the leaderboard has of predictions of the evaluated nodes.
    """
    part, nodes = evaluated_nodes(model, graph)
    name, extractor, patch_size, adjacency, parameters = describe_model(model)
    diagnosis, errors, shown = None, 0, 0
    explanations: list[Explanation] = []
    importance: list[Importance] = []
    if is_large(graph):
        notes = [
            *notes,
            f"The graph has {graph.n:,} nodes and {graph.stored_edges:,} stored edges, so this page does not read the "
            "edges: the diagnosis, results by degree and by the labels of neighbours, and single nodes are left out. "
            "Use gpatcher diagnose and gpatcher explain instead.",
        ]
    else:
        diagnosis = diagnose(graph)
        if graph.n <= _MAX_CHANGED:
            importance = measure_importance(model, graph, nodes, encoder)
        if model.class_names_[1:] or graph.is_regression:
            chosen, errors, shown = _sample(model, graph)
            explanations = model.explain_nodes(chosen, graph)
    training = getattr(model, "result_", None)
    results = {
        "name": graph.name,
        "model": name,
        "extractor": extractor,
        "patch_size": patch_size,
        "adjacency_features": adjacency,
        "parameters": parameters,
        "part": part,
        "evaluated": len(nodes),
        "split_sizes": model.split_.sizes,
        "val_score": model.validation_score(graph),
        "leaderboard": _leaderboard(model, graph, nodes, others, rate, name),
        "response": model.filter_response() if isinstance(model, PatchModel) else None,
        "history": training.history if training is not None else [],
        "best_epoch": training.best_epoch if training is not None else 0,
        "seconds": training.seconds if training is not None else None,
        "importance": importance,
        "explanations": explanations,
        "nodes": graph.n,
        "diagnosis": diagnosis,
        "notes": list(notes),
    }
    return results, errors, shown


def describe_model(classifier: NodeModel) -> tuple[str, str, int, bool, int]:
    """Return name, extractor, patch size, whether adjacency rows are read, and the number of parameters."""
    if isinstance(classifier, PatchModel):
        extractors = classifier.extractors_
        name = "Fast-GPatcher" if all(extractor.name == "ppr" for extractor in extractors) else "GPatcher"
        sources = " + ".join(extractor.name for extractor in extractors)
        parameters = sum(p.numel() for p in classifier.model_.parameters())
        size = sum(extractor.size for extractor in extractors)
        return name, sources, size, classifier.features.adjacency_features, parameters
    assert isinstance(classifier, AutoModel)
    members = classifier.used
    reads = any(m.candidate.settings.get("features", {}).get("adjacency_features", False) for m in members)
    parameters = sum(tensor.numel() for m in members for saved in m.models for tensor in saved.state.values())
    return "GPatcher (auto)", " + ".join(m.candidate.name for m in members), 0, reads, parameters


def _leaderboard(
    model: NodeModel,
    graph: Graph,
    nodes: IntArray,
    others: Sequence[BaselineResult],
    rate: Callable[[Any], Scores],
    name: str,
) -> list[Row]:
    def timed(answer: Callable[[], FloatArray]) -> tuple[Scores, float]:
        started = time.perf_counter()
        answers = answer()
        ms_per_node = 1000 * (time.perf_counter() - started) / len(nodes)
        return rate(answers[:, 0] if graph.is_regression else answers.argmax(1)), ms_per_node

    training = getattr(model, "result_", None)
    seconds = None if training is None else training.seconds
    rows = []
    if isinstance(model, AutoModel):
        seconds = sum(member.seconds for member in model.members_)
        for member in model.members_:
            if member.models:  # a loaded ensemble has no models for members of weight 0
                scores, each = timed(partial(model.member_logits, member, nodes))
                known = (member.seconds, each, member.weight)
                rows.append(Row(member.candidate.name, "member", member.accuracy, *scores, *known))
    scores, each = timed(lambda: model.decision_function(graph, nodes))  # all patches are computed by now
    rows.append(Row(name, "model", model.validation_score(graph), *scores, seconds, each, None))
    rows += [Row(b.name, "baseline", b.val, *rate(b.predicted), b.seconds, None, None) for b in others]
    return sorted(rows, key=lambda row: (-row.score, row.role) if row.rmse is None else (row.rmse, row.role))


def _count_explained(model: NodeModel, graph: Graph) -> int:
    """Return how many nodes to explain."""
    if isinstance(model, PatchModel) and model.model.rounds == 1:
        return _EXPLAINED
    if isinstance(model, PatchModel):
        return _FEW
    assert isinstance(model, AutoModel)
    rounds = sum(member.candidate.settings.get("model", {}).get("rounds", 1) for member in model.used)
    return int(np.clip(_WORK // max(1, rounds * graph.stored_edges), 1, _FEW))


def _sample(model: NodeModel, graph: Graph) -> tuple[IntArray, int, int]:
    """Choose nodes to explain: those with the largest errors first, test before validation, then others at random."""
    split = model.split_
    held_out = labelled(graph, np.concatenate([split.test, split.val]))
    score = model.task_.node_scores(model.decision_function(graph, held_out), graph.labels()[held_out])
    wrong = held_out[np.argsort(score, kind="stable")[: int((score < 1).sum())]]
    count = _count_explained(model, graph)
    first = wrong[: max(1, 3 * count // 4)]
    rest = np.setdiff1d(np.arange(graph.n), first)
    others = np.random.default_rng(0).choice(rest, min(rest.size, count - first.size), replace=False)
    return np.concatenate([first, np.sort(others)]), int(wrong.size), int(first.size)


def _groups(group: IntArray, names: list[str], y: IntArray, predictions: dict[str, IntArray]) -> Groups:
    """Return the accuracy within groups 0, 1, …; empty groups and nodes of group -1 are omitted."""
    count = np.bincount(group[group >= 0], minlength=len(names))
    kept = np.flatnonzero(count)
    accuracy = {
        model: np.array([float((predicted[group == k] == y[group == k]).mean()) for k in kept])
        for model, predicted in predictions.items()
    }
    return Groups([names[k] for k in kept], count[kept], accuracy)


def _by_heterophily(node: FloatArray, y: IntArray, predictions: dict[str, IntArray]) -> Groups | None:
    """Group by node heterophily in five intervals; None if it is not defined for any node."""
    if np.isnan(node).all():
        return None
    fifth = np.clip((np.nan_to_num(node) * 5).astype(int), 0, 4)
    names = [f"{k / 5:.1f} to {(k + 1) / 5:.1f}" for k in range(5)]
    return _groups(np.where(np.isnan(node), -1, fifth), names, y, predictions)


def _by_degree(degree: IntArray, y: IntArray, predictions: dict[str, IntArray]) -> Groups:
    """Group by powers of four: 0, 1 to 3, 4 to 15, … and 1,024 or more."""
    borders = 4 ** np.arange(6)
    names = ["0"] + [f"{b:,} to {4 * b - 1:,}" for b in borders[:-1]] + [f"{borders[-1]:,} or more"]
    return _groups(np.searchsorted(borders, degree, side="right"), names, y, predictions)
