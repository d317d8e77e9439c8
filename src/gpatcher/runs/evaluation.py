"""Evaluation of a trained model: the content of the page of a run, saved with the model as evaluation.json."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.codec import to_json
from gpatcher.errors import InputError
from gpatcher.estimator.base import NodeClassifier, NodeModel, labelled
from gpatcher.estimator.classifier import FilterResponse, GPatcherClassifier, PatchModel
from gpatcher.estimator.ensemble import AutoClassifier, AutoModel
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.io import read_manifest, write_json
from gpatcher.runs.importance import Importance, measure_importance
from gpatcher.runs.paired import paired_difference, wilson
from gpatcher.spectral.diagnosis import Diagnosis, diagnose
from gpatcher.spectral.heterophily import heterophily
from gpatcher.tables.typed_encoder import Encoder
from gpatcher.training.metrics import measure_all
from gpatcher.trust.calibration import Calibration, Intervals, Reliability, reliability
from gpatcher.trust.conformal import coverage
from gpatcher.trust.explain import Explanation

_FORMAT, _VERSION = "gpatcher-evaluation", 3
EVALUATION = "evaluation.json"
# on larger graphs the edges are not read, to stay within the memory limit
_MAX_NODES, _MAX_EDGES = 200_000, 20_000_000
LEVELS = (0.8, 0.9, 0.95)  # of conformal sets and intervals
_EXPLAINED, _EXPLAINED_WRONG = 200, 150  # nodes to explain, and the maximum of misclassified ones among them
_FEWER = 20  # with several rounds, where an explanation covers the whole receptive field
_MAX_CHANGED = 20_000  # nodes up to which predictions on changed graphs are computed


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """Result of another model on the same split."""

    name: str
    predicted: npt.NDArray[Any]  # classes or numbers of the evaluated nodes
    val_accuracy: float  # R² of numbers
    test_accuracy: float | None  # None if no test node has a label
    seconds: float  # of training


@dataclass(frozen=True, eq=False)
class Row:
    """A row of the leaderboard; all accuracies are on the same nodes."""

    name: str
    role: str  # model, member or baseline
    val_accuracy: float | None
    accuracy: float  # on the evaluated nodes
    low: float  # 95 % interval of the accuracy (Wilson)
    high: float
    seconds: float | None  # of training
    ms_per_node: float | None  # of prediction
    weight: float | None  # of a member


@dataclass(frozen=True, eq=False)
class Comparison:
    """The model compared with another on the same nodes."""

    name: str  # of the other model
    gain: float  # accuracy of the model minus that of the other one
    low: float  # 95 % interval of the gain, paired by node
    high: float


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
    about: dict[str, str]  # when, by which command and from what the model was trained
    model: str
    extractor: str
    patch_size: int
    adjacency_features: bool  # rows of the adjacency matrix are among the features
    parameters: int  # number of trainable parameters
    part: str  # the evaluated nodes: test, or validation if no test node has a label
    split_sizes: tuple[int, int, int]
    metrics: dict[str, float | None]  # see `gpatcher.training.metrics.measure_all`; None if undefined
    val_accuracy: float
    classes: tuple[str, ...]
    per_class: PerClass
    confusion: IntArray  # shape (C, C); rows are true classes
    raw: Reliability
    calibrated: Reliability
    calibration: Calibration
    coverage: list[tuple[float, float, float]]  # of conformal sets: level, coverage, mean size
    by_heterophily: Groups | None  # None if no evaluated node has a labelled neighbour, or the graph is large
    by_degree: Groups | None  # None for a large graph
    baselines: tuple[BaselineResult, ...]
    leaderboard: list[Row]  # best first
    comparisons: list[Comparison]  # with the majority class and each baseline
    response: FilterResponse | None  # before and after training; None for an ensemble
    history: list[dict[str, float]]  # losses of each epoch; empty for a loaded model
    best_epoch: int  # whose weights were kept; 0 for a loaded model
    seconds: float | None  # of training; None for a loaded model
    importance: list[Importance]  # of columns and edges, largest first; empty for a large graph
    explanations: list[Explanation]  # of some nodes, misclassified ones first
    misclassified: int  # nodes of test and validation
    misclassified_shown: int  # how many of these are explained
    nodes: int  # of the graph
    diagnosis: Diagnosis | None  # None for a large graph
    notes: list[str]  # what was skipped, and why

    @property
    def accuracy(self) -> float:
        """Accuracy on the evaluated nodes."""
        return float(self.metrics["accuracy"] or 0.0)


@dataclass(frozen=True, eq=False)
class NumberRow:
    """A row of the leaderboard of a regression; all figures but the validation are on the same nodes."""

    name: str
    role: str  # model, member or baseline
    val_r2: float | None
    r2: float  # NaN if all labels are equal
    low: float  # 95 % interval of R², by bootstrap over the nodes
    high: float
    rmse: float
    mae: float
    seconds: float | None  # of training
    ms_per_node: float | None  # of prediction
    weight: float | None  # of a member


@dataclass(frozen=True, eq=False)
class RegressionEvaluation:
    """Results of a trained regressor on the nodes that it was not trained on; see `Evaluation`."""

    name: str
    model: str
    extractor: str
    patch_size: int
    parameters: int
    part: str
    split_sizes: tuple[int, int, int]
    metrics: dict[str, float | None]  # R², RMSE and MAE
    val_r2: float
    ids: list[str]  # of the nodes that are drawn
    true: FloatArray  # of these nodes
    predicted: FloatArray
    degree: IntArray
    assortativity: (
        FloatArray  # label of a node times the mean of its labelled neighbours, both standardised; NaN if none
    )
    label_assortativity: float | None  # correlation of the labels over the edges
    intervals: Intervals
    coverage: list[tuple[float, float, float]]  # of conformal intervals: level, coverage, mean width
    leaderboard: list[NumberRow]
    comparisons: list[Comparison]  # gain in R², with the mean and each baseline
    response: FilterResponse | None
    history: list[dict[str, float]]
    best_epoch: int
    seconds: float | None
    nodes: int
    notes: list[str]


@dataclass(frozen=True, eq=False)
class _Content:
    evaluation: Evaluation | None  # of classes
    regression: RegressionEvaluation | None


def write_evaluation(evaluation: Evaluation | RegressionEvaluation, folder: str | Path) -> Path:
    """Write an evaluation to evaluation.json in a folder, and return the path."""
    path = Path(folder) / EVALUATION
    content = _Content(evaluation, None) if isinstance(evaluation, Evaluation) else _Content(None, evaluation)
    write_json(path, {"format": _FORMAT, "version": _VERSION, **to_json(content)})
    return path


def read_evaluation(folder: str | Path) -> Evaluation | RegressionEvaluation:
    """Read an evaluation that `write_evaluation` wrote; numbers are preserved exactly."""
    path = Path(folder) / EVALUATION
    if not path.is_file():
        raise InputError(f"there is no {path.name} in {folder}; 'gpatcher fit --out {folder}' writes one")
    content: _Content = read_manifest(path, _FORMAT, _VERSION, "run evaluation", _Content)
    found = content.evaluation or content.regression
    if found is None:
        raise InputError(f"{path} holds no evaluation; 'gpatcher fit --out {folder}' writes one")
    return found


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
    part, nodes = evaluated_nodes(classifier, graph)
    y = graph.labels()[nodes]
    classes = tuple(str(name) for name in classifier.classes_)
    logits = classifier.decision_function(graph, nodes)
    predicted = logits.argmax(1)
    probability = classifier.calibration_.probability(logits)
    started = time.perf_counter()
    classifier.decision_function(graph, nodes)  # timed, with all patches computed
    ms_per_node = 1000 * (time.perf_counter() - started) / len(nodes)
    model, extractor, patch_size, adjacency, parameters = describe_model(classifier)
    predictions = {model: predicted, **{result.name: result.predicted for result in baselines}}
    by_heterophily = by_degree = diagnosis = None
    explanations: list[Explanation] = []
    importance: list[Importance] = []
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
        if graph.n <= _MAX_CHANGED:
            importance = measure_importance(classifier, graph, nodes, encoder)
        if not isinstance(classifier, GPatcherClassifier):  # seconds for each node
            notes = [*notes, "Single nodes of an ensemble are explained by 'gpatcher explain RUN ID'."]
        elif len(classes) > 1:
            chosen, misclassified, misclassified_shown = _sample(classifier, graph)
            explanations = classifier.explain_nodes(chosen, graph)
    training = getattr(classifier, "result_", None)
    return Evaluation(
        name=graph.name,
        about=about or {},
        model=model,
        extractor=extractor,
        patch_size=patch_size,
        adjacency_features=adjacency,
        parameters=parameters,
        part=part,
        split_sizes=classifier.split_.sizes,
        metrics=measure_all(y, probability),
        val_accuracy=classifier.validation_score(graph),
        classes=classes,
        per_class=PerClass(*precision_recall_fscore_support(y, predicted, labels=range(len(classes)), zero_division=0)),
        confusion=confusion_matrix(y, predicted, labels=range(len(classes))),
        raw=reliability(classifier.predict_proba(graph, nodes, calibrated=False), y),
        calibrated=reliability(probability, y),
        calibration=classifier.calibration_,
        coverage=[(level, *coverage(classifier.calibration_.sets(logits, level), y)) for level in LEVELS],
        by_heterophily=by_heterophily,
        by_degree=by_degree,
        baselines=tuple(baselines),
        leaderboard=_leaderboard(classifier, graph, nodes, predicted, baselines, model, ms_per_node),
        comparisons=_compare(graph, classifier.split_, nodes, predicted, baselines),
        response=classifier.filter_response() if isinstance(classifier, GPatcherClassifier) else None,
        history=training.history if training is not None else [],
        best_epoch=training.best_epoch if training is not None else 0,
        seconds=training.seconds if training is not None else None,
        importance=importance,
        explanations=explanations,
        misclassified=misclassified,
        misclassified_shown=misclassified_shown,
        nodes=graph.n,
        diagnosis=diagnosis,
        notes=list(notes),
    )


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
    return "GPatcher (auto)", ", ".join(m.candidate.name for m in members), 0, reads, parameters


def _row(
    name: str,
    role: str,
    predicted: IntArray,
    y: IntArray,
    val: float | None,
    *,
    seconds: float | None = None,
    ms_per_node: float | None = None,
    weight: float | None = None,
) -> Row:
    correct = int((predicted == y).sum())
    return Row(name, role, val, correct / len(y), *wilson(correct, len(y)), seconds, ms_per_node, weight)


def _majority(graph: Graph, split: Split) -> int:
    return int(np.bincount(graph.labels()[split.train]).argmax())


def _leaderboard(
    classifier: NodeClassifier,
    graph: Graph,
    nodes: IntArray,
    predicted: IntArray,
    baselines: Sequence[BaselineResult],
    model: str,
    ms_per_node: float,
) -> list[Row]:
    y = graph.labels()[nodes]
    training = getattr(classifier, "result_", None)
    seconds = None if training is None else training.seconds
    if isinstance(classifier, AutoClassifier):
        seconds = sum(member.seconds for member in classifier.members_)
    val = classifier.validation_score(graph)
    rows = [_row(model, "model", predicted, y, val, seconds=seconds, ms_per_node=ms_per_node)]
    if isinstance(classifier, AutoClassifier):
        for member in classifier.members_:
            if member.models:  # a loaded ensemble has no models for members of weight 0
                started = time.perf_counter()
                own = classifier.member_logits(member, nodes).argmax(1)
                each = 1000 * (time.perf_counter() - started) / len(nodes)
                rows.append(
                    _row(
                        member.candidate.name,
                        "member",
                        own,
                        y,
                        member.accuracy,
                        seconds=member.seconds,
                        ms_per_node=each,
                        weight=member.weight,
                    )
                )
    rows += [_row(b.name, "baseline", b.predicted, y, b.val_accuracy, seconds=b.seconds) for b in baselines]
    rows.append(_row("Majority class", "baseline", np.full(len(y), _majority(graph, classifier.split_)), y, None))
    return sorted(rows, key=lambda row: (-row.accuracy, row.role))


def _compare(
    graph: Graph, split: Split, nodes: IntArray, predicted: IntArray, baselines: Sequence[BaselineResult]
) -> list[Comparison]:
    """Compare with the majority class and each baseline, node by node."""
    y = graph.labels()[nodes]
    others = {"Majority class": np.full(len(y), _majority(graph, split)), **{b.name: b.predicted for b in baselines}}
    comparisons = []
    for name, other in others.items():
        found = paired_difference(predicted == y, other == y)
        comparisons.append(Comparison(name, found.gain, found.low, found.high))
    return comparisons


def _sample(classifier: GPatcherClassifier, graph: Graph) -> tuple[IntArray, int, int]:
    """Choose nodes to explain: misclassified ones first, test before validation, then others at random."""
    split, y = classifier.split_, graph.labels()
    held_out = np.concatenate([split.test, split.val])
    held_out = held_out[y[held_out] >= 0]
    wrong = held_out[classifier.decision_function(graph, held_out).argmax(1) != y[held_out]]
    share = 1 if classifier.model.rounds == 1 else _FEWER
    first = wrong[: _EXPLAINED_WRONG // share]
    rest = np.setdiff1d(np.arange(graph.n), first)
    others = np.random.default_rng(0).choice(rest, min(rest.size, _EXPLAINED // share - first.size), replace=False)
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
