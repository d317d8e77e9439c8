"""Results of a trained model, saved with it as evaluation.json: the content of its page.

`gpatcher.runs.evaluation` computes them; reading them needs neither the model nor torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.codec import to_json
from gpatcher.errors import InputError
from gpatcher.io import read_manifest, write_json
from gpatcher.spectral.results import Diagnosis, FilterResponse
from gpatcher.training.metrics import METRICS, REGRESSION_METRICS
from gpatcher.trust.calibration import Calibration, Intervals, Reliability
from gpatcher.trust.explanation import Explanation

_FORMAT, _VERSION = "gpatcher-evaluation", 4
EVALUATION = "evaluation.json"


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """Result of another model on the same split; scores are accuracies, or R² of numbers."""

    name: str
    predicted: npt.NDArray[Any]  # classes or numbers of the evaluated nodes
    val: float | None  # None if it was not measured
    test: float | None  # None if no test node has a label
    seconds: float | None  # of training


@dataclass(frozen=True, eq=False)
class Row:
    """A row of the leaderboard; all figures but ``val`` are on the same nodes."""

    name: str
    role: str  # model, member or baseline
    val: float | None  # score on the validation nodes
    score: float  # accuracy, or R² of numbers, NaN if all labels are equal
    low: float  # 95 % interval of the score: Wilson's, or by bootstrap over the nodes
    high: float
    rmse: float | None  # of numbers, and so is mae
    mae: float | None
    seconds: float | None  # of training
    ms_per_node: float | None  # of prediction
    weight: float | None  # of a member


@dataclass(frozen=True, eq=False)
class Comparison:
    """The model compared with another on the same nodes."""

    name: str  # of the other model
    gain: float  # score of the model minus that of the other one
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


@dataclass(frozen=True)
class Importance:
    """The accuracy or R² that is lost without some information, and its 95 % interval over the nodes."""

    name: str
    lost: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Results:
    """What the evaluations of classes and of numbers share: results on the nodes that a model was not trained on."""

    name: str  # of the graph
    about: dict[str, str]  # when, by which command and from what the model was trained
    model: str
    extractor: str
    patch_size: int
    adjacency_features: bool  # rows of the adjacency matrix are among the features
    parameters: int  # number of trainable parameters
    part: str  # the evaluated nodes: test, or validation if no test node has a label
    evaluated: int  # their number
    split_sizes: tuple[int, int, int]
    metrics: dict[str, float | None]  # see `gpatcher.training.task`; None if undefined
    val_score: float  # accuracy, or R² of numbers
    coverage: list[tuple[float, float, float]]  # of conformal sets: level, coverage, mean size or width
    leaderboard: list[Row]  # best first
    comparisons: list[Comparison]  # with the majority class or the mean, and each baseline
    response: FilterResponse | None  # before and after training; None for an ensemble
    history: list[dict[str, float]]  # losses of each epoch; empty for a loaded model
    best_epoch: int  # whose weights were kept; 0 for a loaded model
    seconds: float | None  # of training; None for a loaded model
    importance: list[Importance]  # of columns and edges, largest first; empty for a large graph
    explanations: list[Explanation]  # of some nodes, those with the largest errors first
    nodes: int  # of the graph
    diagnosis: Diagnosis | None  # None for a large graph
    notes: list[str]  # what was skipped, and why


@dataclass(frozen=True, eq=False)
class Evaluation(Results):
    """Results of a classifier."""

    classes: tuple[str, ...]
    per_class: PerClass
    confusion: IntArray  # shape (C, C); rows are true classes
    raw: Reliability
    calibrated: Reliability
    calibration: Calibration
    by_heterophily: Groups | None  # None if no evaluated node has a labelled neighbour, or the graph is large
    by_degree: Groups | None  # None for a large graph
    baselines: tuple[BaselineResult, ...]
    misclassified: int  # nodes of test and validation
    misclassified_shown: int  # how many of these are explained

    @property
    def accuracy(self) -> float:
        """Accuracy on the evaluated nodes."""
        return float(self.metrics["accuracy"] or 0.0)


@dataclass(frozen=True, eq=False)
class RegressionEvaluation(Results):
    """Results of a regressor; the arrays are of the nodes that are drawn."""

    ids: list[str]
    true: FloatArray
    predicted: FloatArray
    degree: IntArray
    # label of a node times the mean of its labelled neighbours, both standardised; NaN if none
    assortativity: FloatArray
    label_assortativity: float | None  # correlation of the labels over the edges
    intervals: Intervals
    explained_errors: int  # how many of the explanations are of the nodes with the largest errors


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
    for metric in (METRICS if content.evaluation else REGRESSION_METRICS).keys() - found.metrics.keys():
        raise InputError(f"{path} is damaged: it lacks the metric {metric!r}; train again")
    return found
