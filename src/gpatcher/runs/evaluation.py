"""Evaluation of a trained model: all that the page of a run shows, kept beside the model as evaluation.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import FilterResponse, GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.io import read_manifest, write_json
from gpatcher.runs.codec import from_json, to_json
from gpatcher.spectral.diagnosis import Diagnosis, diagnose
from gpatcher.spectral.heterophily import heterophily
from gpatcher.training.metrics import measure_all
from gpatcher.trust.calibration import Calibration, Reliability, reliability
from gpatcher.trust.conformal import coverage
from gpatcher.trust.explain import Explanation

_FORMAT, _VERSION = "gpatcher-evaluation", 1
EVALUATION = "evaluation.json"
# on a larger graph the edges are not read, so that a memory limit holds
_MAX_NODES, _MAX_EDGES = 200_000, 20_000_000
_LEVELS = (0.8, 0.9, 0.95)  # of the conformal sets
_EXPLAINED, _EXPLAINED_WRONG = 200, 150  # nodes to explain; at most so many of them misclassified
_FEWER = 20


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """Result of another model on the same split."""

    name: str
    predicted: IntArray  # classes of the evaluated nodes
    val_accuracy: float
    test_accuracy: float | None  # None if no test node has a label
    seconds: float  # of training


@dataclass(frozen=True, eq=False)
class Groups:
    """Accuracy of each model within groups of the evaluated nodes."""

    names: list[str]
    count: IntArray  # nodes in each group
    accuracy: dict[str, FloatArray]  # of each model in each group


@dataclass(frozen=True, eq=False)
class PerClass:
    """Precision, recall, F1 and number of evaluated nodes of each class, shape (C,)."""

    precision: FloatArray
    recall: FloatArray
    f1: FloatArray
    support: IntArray


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results of a trained model on the nodes that it was not trained on."""

    name: str  # of the graph
    model: str
    extractor: str
    patch_size: int
    adjacency_features: bool  # rows of the adjacency matrix are among the features
    parameters: int  # trainable ones
    part: str  # the evaluated nodes: test, or validation if no test node has a label
    split_sizes: tuple[int, int, int]
    metrics: dict[str, float | None]  # see `gpatcher.training.metrics.measure_all`; None where not defined
    val_accuracy: float
    classes: tuple[str, ...]
    per_class: PerClass
    confusion: IntArray  # shape (C, C); rows are true classes
    raw: Reliability
    calibrated: Reliability
    calibration: Calibration
    coverage: list[tuple[float, float, float]]  # of conformal sets: level, fraction that holds the label, mean size
    by_heterophily: Groups | None  # None if no evaluated node has a labelled neighbour, or the graph is large
    by_degree: Groups | None  # None for a large graph
    baselines: tuple[BaselineResult, ...]
    response: FilterResponse  # before and after training
    history: list[dict[str, float]]  # losses of each epoch; empty for a loaded model
    best_epoch: int  # whose weights were kept; 0 for a loaded model
    seconds: float | None  # of training; None for a loaded model
    explanations: list[Explanation]  # of some nodes, misclassified ones first
    misclassified: int  # nodes of test and validation
    misclassified_shown: int  # those of them that are explained
    nodes: int  # of the graph
    diagnosis: Diagnosis | None  # None for a large graph
    notes: list[str]  # what was not done, and why

    @property
    def accuracy(self) -> float:
        """Accuracy on the evaluated nodes."""
        return float(self.metrics["accuracy"] or 0.0)


def write_evaluation(evaluation: Evaluation, folder: str | Path) -> Path:
    """Write an evaluation to evaluation.json in a folder, and return the path."""
    path = Path(folder) / EVALUATION
    write_json(path, {"format": _FORMAT, "version": _VERSION, "evaluation": to_json(evaluation)})
    return path


def read_evaluation(folder: str | Path) -> Evaluation:
    """Read what `write_evaluation` wrote; every number is equal to the last bit."""
    path = Path(folder) / EVALUATION
    if not path.is_file():
        raise InputError(f"there is no {path.name} in {folder}; 'gpatcher fit --out {folder}' writes one")
    content = read_manifest(path, _FORMAT, _VERSION, "run evaluation")
    try:
        evaluation: Evaluation = from_json(Evaluation, content.get("evaluation"), "evaluation")
    except ValueError as error:
        raise InputError(
            f"{path} is damaged or from another version of gpatcher: {error}; remove it and run 'gpatcher fit' again"
        ) from None
    return evaluation


def is_large(graph: Graph) -> bool:
    """Return whether the evaluation of this graph skips what needs all its edges."""
    return graph.n > _MAX_NODES or graph.stored_edges > _MAX_EDGES


def evaluated_nodes(classifier: GPatcherClassifier, graph: Graph) -> tuple[str, IntArray]:
    """Return the part to evaluate on and its labelled nodes: test, or validation if no test node has a label."""
    y = graph.labels()
    for part, nodes in (("test", classifier.split_.test), ("validation", classifier.split_.val)):
        labelled: IntArray = nodes[y[nodes] >= 0]
        if labelled.size:
            return part, labelled
    raise InputError("neither test nor validation has a labelled node; there is nothing to evaluate the model on")


def evaluate(
    classifier: GPatcherClassifier, graph: Graph, baselines: Sequence[BaselineResult] = (), notes: Sequence[str] = ()
) -> Evaluation:
    """Evaluate a model on nodes that it was not trained on, beside the results of others on the same nodes."""
    part, nodes = evaluated_nodes(classifier, graph)
    y = graph.labels()[nodes]
    classes = tuple(str(name) for name in classifier.classes_)
    logits = classifier.decision_function(graph, nodes)
    predicted = logits.argmax(1)
    probability = classifier.calibration_.probability(logits)
    extractors = classifier.extractors_
    model = "Fast-GPatcher" if all(extractor.name == "ppr" for extractor in extractors) else "GPatcher"
    predictions = {model: predicted, **{result.name: result.predicted for result in baselines}}
    by_heterophily = by_degree = diagnosis = None
    explanations: list[Explanation] = []
    misclassified = misclassified_shown = 0
    if is_large(graph):
        notes = [
            *notes,
            f"The graph has {graph.n:,} nodes and {graph.stored_edges:,} stored edges, so this page does not read the "
            "edges: the diagnosis, accuracy by heterophily and degree, and single nodes are left out. Use gpatcher "
            "diagnose and gpatcher explain instead.",
        ]
    else:
        diagnosis = diagnose(graph)
        by_heterophily = _by_heterophily(heterophily(graph).node[nodes], y, predictions)
        by_degree = _by_degree(np.diff(graph.undirected().indptr)[nodes], y, predictions)
        if len(classes) > 1:
            chosen, misclassified, misclassified_shown = _sample(classifier, graph)
            explanations = classifier.explain_nodes(chosen, graph)
    training = getattr(classifier, "result_", None)
    return Evaluation(
        name=graph.name,
        model=model,
        extractor=" + ".join(extractor.name for extractor in extractors),
        patch_size=sum(extractor.size for extractor in extractors),
        adjacency_features=classifier.features.adjacency_features,
        parameters=sum(p.numel() for p in classifier.model_.parameters()),
        part=part,
        split_sizes=classifier.split_.sizes,
        metrics=measure_all(y, probability),
        val_accuracy=classifier.score(graph, classifier.split_.val),
        classes=classes,
        per_class=PerClass(*precision_recall_fscore_support(y, predicted, labels=range(len(classes)), zero_division=0)),
        confusion=confusion_matrix(y, predicted, labels=range(len(classes))),
        raw=reliability(classifier.predict_proba(graph, nodes, calibrated=False), y),
        calibrated=reliability(probability, y),
        calibration=classifier.calibration_,
        coverage=[(level, *coverage(classifier.calibration_.sets(logits, level), y)) for level in _LEVELS],
        by_heterophily=by_heterophily,
        by_degree=by_degree,
        baselines=tuple(baselines),
        response=classifier.filter_response(),
        history=training.history if training is not None else [],
        best_epoch=training.best_epoch if training is not None else 0,
        seconds=training.seconds if training is not None else None,
        explanations=explanations,
        misclassified=misclassified,
        misclassified_shown=misclassified_shown,
        nodes=graph.n,
        diagnosis=diagnosis,
        notes=list(notes),
    )


def _sample(classifier: GPatcherClassifier, graph: Graph) -> tuple[IntArray, int, int]:
    """Choose nodes to explain: misclassified ones first, test before validation, then others at random."""
    split, y = classifier.split_, graph.labels()
    held_out = np.concatenate([split.test, split.val])
    held_out = held_out[y[held_out] >= 0]
    wrong = held_out[classifier.decision_function(graph, held_out).argmax(1) != y[held_out]]
    # with several rounds an explanation runs over a node's whole field, so there are fewer
    share = 1 if classifier.model.rounds == 1 else _FEWER
    first = wrong[: _EXPLAINED_WRONG // share]
    rest = np.setdiff1d(np.arange(graph.n), first)
    others = np.random.default_rng(0).choice(rest, min(rest.size, _EXPLAINED // share - first.size), replace=False)
    return np.concatenate([first, np.sort(others)]), int(wrong.size), int(first.size)


def _groups(group: IntArray, names: list[str], y: IntArray, predictions: dict[str, IntArray]) -> Groups:
    """Return the accuracy within groups 0, 1, …; empty groups and nodes of group -1 are left out."""
    count = np.bincount(group[group >= 0], minlength=len(names))
    kept = np.flatnonzero(count)
    accuracy = {
        model: np.array([float((predicted[group == k] == y[group == k]).mean()) for k in kept])
        for model, predicted in predictions.items()
    }
    return Groups([names[k] for k in kept], count[kept], accuracy)


def _by_heterophily(node: FloatArray, y: IntArray, predictions: dict[str, IntArray]) -> Groups | None:
    """Group by fifths of the node heterophily; None where it is not defined for any node."""
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
