"""How far a trained model can be trusted: everything that the page of a run shows, measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import FilterResponse, GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.spectral.diagnosis import Diagnosis, diagnose
from gpatcher.spectral.heterophily import heterophily
from gpatcher.training.metrics import measure_all
from gpatcher.trust.calibration import Calibration, Reliability, reliability
from gpatcher.trust.explain import Explanation

# beyond so many nodes or stored edges, what costs too much is left out, and edges are not read at all
LARGE, MANY = 200_000, 20_000_000
LEVELS = (0.8, 0.9, 0.95)  # of the conformal sets
_MOST_WRONG, _MOST_NODES = 150, 200  # nodes in the explorer


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """Another model, trained on the same split.

    Parameters
    ----------
    name : what to call it
    predicted : class numbers of the judged nodes
    val_accuracy, test_accuracy, seconds : of its training
    """

    name: str
    predicted: IntArray
    val_accuracy: float
    test_accuracy: float | None
    seconds: float


@dataclass(frozen=True, eq=False)
class Groups:
    """Accuracy of each model within groups of the judged nodes."""

    names: list[str]
    count: IntArray
    accuracy: dict[str, FloatArray]


@dataclass(frozen=True, eq=False)
class PerClass:
    """Precision, recall, F1 and number of judged nodes of each class, shape (C,)."""

    precision: FloatArray
    recall: FloatArray
    f1: FloatArray
    support: IntArray


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What was found about a trained model.

    Parameters
    ----------
    name, model, extractor, patch_size, structure, parameters : of graph and model
    part : the judged nodes: test, or validation where no test node has a label
    split_sizes : nodes in train, validation and test
    metrics : of the judged nodes, as `gpatcher.training.metrics.measure_all` names them; None where one is not defined
    val_accuracy : of validation
    classes, per_class, confusion : by class; rows of the confusion are true classes
    before, after : reliability of the raw and of the calibrated probabilities on the judged nodes
    calibration : what the validation nodes taught
    coverage : level, share of sets that hold the label, mean size
    by_heterophily, by_degree : accuracy within groups; the first is None where no judged node has a labelled
        neighbour, both are for a large graph
    rivals : other models on the same split
    response : of the filter, before and after training
    history, best_epoch, seconds : of the training; empty for a model that was loaded
    explanations, wrong, wrong_shown : nodes for the explorer; wrongly predicted nodes in all, and of those explained
    nodes : of the graph
    diagnosis : of the graph, None for a large one
    left_out : what was not done, and why
    """

    name: str
    model: str
    extractor: str
    patch_size: int
    structure: bool
    parameters: int
    part: str
    split_sizes: tuple[int, int, int]
    metrics: dict[str, float | None]
    val_accuracy: float
    classes: tuple[str, ...]
    per_class: PerClass
    confusion: IntArray
    before: Reliability
    after: Reliability
    calibration: Calibration
    coverage: list[tuple[float, float, float]]
    by_heterophily: Groups | None
    by_degree: Groups | None
    rivals: Sequence[BaselineResult]
    response: FilterResponse
    history: list[dict[str, float]]
    best_epoch: int
    seconds: float | None
    explanations: list[Explanation]
    wrong: int
    wrong_shown: int
    nodes: int
    diagnosis: Diagnosis | None
    left_out: list[str]

    @property
    def accuracy(self) -> float:
        """Share of the judged nodes that were predicted right."""
        return float(self.metrics["accuracy"] or 0.0)


def is_large(graph: Graph) -> bool:
    """Whether a page on this graph leaves out what needs all its edges, so that a bound on memory is kept."""
    return graph.n > LARGE or graph.stored_edges > MANY


def evaluated_nodes(classifier: GPatcherClassifier, graph: Graph) -> tuple[str, IntArray]:
    """Return which labelled nodes to judge a model by, and their ids: the test nodes, else those of validation."""
    y = graph.labels()
    for part, ids in (("test", classifier.split_.test), ("validation", classifier.split_.val)):
        known: IntArray = ids[y[ids] >= 0]
        if known.size:
            return part, known
    raise InputError("neither test nor validation has a labelled node; there is nothing to judge the model by")


def evaluate(
    classifier: GPatcherClassifier, graph: Graph, rivals: Sequence[BaselineResult] = (), left_out: Sequence[str] = ()
) -> Evaluation:
    """Measure a trained model on the nodes that it was not trained on.

    Parameters
    ----------
    rivals : other models' predictions of `evaluated_nodes`
    left_out : sentences on what was not done
    """
    part, ids = evaluated_nodes(classifier, graph)
    y = graph.labels()[ids]
    names = tuple(str(c) for c in classifier.classes_)
    logits = classifier.decision_function(graph, ids)
    predicted = logits.argmax(1)
    found = precision_recall_fscore_support(y, predicted, labels=range(len(names)), zero_division=0)
    model = "Fast-GPatcher" if classifier.extractor == "ppr" else "GPatcher"
    everyone = {model: predicted, **{rival.name: rival.predicted for rival in rivals}}
    notes = list(left_out)
    probability = classifier.calibration_.probability(logits)
    large = is_large(graph)
    by_heterophily = by_degree = None
    explanations: list[Explanation] = []
    wrong = wrong_shown = 0
    if large:
        notes.append(
            f"With {graph.n:,} nodes and {graph.stored_edges:,} stored edges the page does not read the edges: the "
            "diagnosis, accuracy by heterophily and by degree, and single nodes are left out. For these: gpatcher "
            "diagnose, gpatcher explain."
        )
    else:
        by_heterophily = _by_heterophily(heterophily(graph).node[ids], y, everyone)
        by_degree = _by_degree(np.diff(graph.undirected().indptr)[ids], y, everyone)
        if len(names) > 1:
            shown, wrong, wrong_shown = _sample(classifier, graph, _MOST_NODES)
            explanations = classifier.explain_nodes(shown, graph)
    coverage = []
    for level in LEVELS:
        inside = classifier.calibration_.sets(logits, level)
        coverage.append((level, float(inside[np.arange(len(y)), y].mean()), float(inside.sum(1).mean())))
    result = getattr(classifier, "result_", None)
    return Evaluation(
        name=graph.name,
        model=model,
        extractor=classifier.extractor,
        patch_size=classifier.patch_size,
        structure=classifier.structure,
        parameters=sum(p.numel() for p in classifier.model_.parameters()),
        part=part,
        split_sizes=classifier.split_.sizes,
        metrics=measure_all(y, probability),
        val_accuracy=classifier.score(graph, classifier.split_.val),
        classes=names,
        per_class=PerClass(*found),
        confusion=confusion_matrix(y, predicted, labels=range(len(names))),
        before=reliability(classifier.predict_proba(graph, ids, calibrated=False), y),
        after=reliability(probability, y),
        calibration=classifier.calibration_,
        coverage=coverage,
        by_heterophily=by_heterophily,
        by_degree=by_degree,
        rivals=rivals,
        response=classifier.filter_response(),
        history=result.history if result is not None else [],
        best_epoch=result.best_epoch if result is not None else 0,
        seconds=result.seconds if result is not None else None,
        explanations=explanations,
        wrong=wrong,
        wrong_shown=wrong_shown,
        nodes=graph.n,
        diagnosis=None if large else diagnose(graph),
        left_out=notes,
    )


def _sample(classifier: GPatcherClassifier, graph: Graph, most: int) -> tuple[IntArray, int, int]:
    """Choose nodes to explain: wrongly predicted ones first, test before validation, then others by chance."""
    split, y = classifier.split_, graph.labels()
    rng = np.random.default_rng(0)
    held = np.concatenate([split.test, split.val])
    held = held[y[held] >= 0]
    guess = classifier.decision_function(graph, held).argmax(1)
    wrong = held[guess != y[held]]
    first = wrong[: min(_MOST_WRONG, most * 3 // 4)]
    rest = np.setdiff1d(np.arange(graph.n), first)
    others = rng.choice(rest, min(rest.size, most - first.size), replace=False)
    return np.concatenate([first, np.sort(others)]), int(wrong.size), int(first.size)


def _groups(which: IntArray, names: list[str], y: IntArray, everyone: dict[str, IntArray]) -> Groups:
    """Return the accuracy within groups 0, 1, …; empty ones are left out, and nodes of group -1."""
    count = np.bincount(which[which >= 0], minlength=len(names))
    kept = np.flatnonzero(count)
    accuracy = {
        model: np.array([float((predicted[which == k] == y[which == k]).mean()) for k in kept])
        for model, predicted in everyone.items()
    }
    return Groups([names[k] for k in kept], count[kept], accuracy)


def _by_heterophily(node: FloatArray, y: IntArray, everyone: dict[str, IntArray]) -> Groups | None:
    if np.isnan(node).all():
        return None
    fifth = np.clip((np.nan_to_num(node) * 5).astype(int), 0, 4)
    names = [f"{k / 5:.1f} to {(k + 1) / 5:.1f}" for k in range(5)]
    return _groups(np.where(np.isnan(node), -1, fifth), names, y, everyone)


def _by_degree(degree: IntArray, y: IntArray, everyone: dict[str, IntArray]) -> Groups:
    """Group by powers of four: 0, 1 to 3, 4 to 15, … and 1,024 or more."""
    borders = 4 ** np.arange(6)
    names = ["0"] + [f"{b:,} to {4 * b - 1:,}" for b in borders[:-1]] + [f"{borders[-1]:,} or more"]
    return _groups(np.searchsorted(borders, degree, side="right"), names, y, everyone)
