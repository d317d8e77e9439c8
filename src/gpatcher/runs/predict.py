"""Predictions as tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.tables.write import write_pieces

_ROWS = 1 << 16  # predictions made and written at a time


def write_predictions(
    classifier: GPatcherClassifier,
    graph: Graph,
    path: Path,
    progress: Callable[[int, int], None] | None = None,
    conformal: float | None = None,
) -> None:
    """Write a row for every node, .csv or .parquet, some at a time; ``conformal`` as of `prediction_columns`."""

    def pieces() -> Iterator[dict[str, npt.NDArray[Any]]]:
        for start in range(0, graph.n, _ROWS):
            stop = min(start + _ROWS, graph.n)
            yield prediction_columns(classifier, graph, np.arange(start, stop), conformal)
            if progress is not None:
                progress(stop, graph.n)

    write_pieces(pieces(), path)


def prediction_columns(
    classifier: GPatcherClassifier, graph: Graph, nodes: IntArray | None = None, conformal: float | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Return id, predicted class, a probability per class, confidence and whether a node was trained on.

    With a ``conformal`` level also ``set``: the classes that hold the true one so often, as a JSON list of names.
    """
    nodes = np.arange(graph.n) if nodes is None else nodes
    logits = classifier.decision_function(graph, nodes)
    trained = np.isin(nodes, classifier.split_.train)
    ids = nodes if graph.node_ids is None else graph.node_ids[nodes]
    return _columns(classifier, ids, logits, trained, conformal)


def new_prediction_columns(
    classifier: GPatcherClassifier, newcomers: UnseenNodes, conformal: float | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of `prediction_columns` for nodes that came after training."""
    logits = classifier.decision_function_new(newcomers)
    ids = newcomers.nodes if newcomers.node_ids is None else newcomers.node_ids
    return _columns(classifier, ids, logits, np.zeros(newcomers.count, dtype=bool), conformal)


def _columns(
    classifier: GPatcherClassifier,
    ids: npt.NDArray[Any],
    logits: FloatArray,
    trained: npt.NDArray[np.bool_],
    conformal: float | None,
) -> dict[str, npt.NDArray[Any]]:
    names = classifier.classes_
    probability = classifier.calibration_.probability(logits)
    columns = {"id": ids, "predicted": names[probability.argmax(1)]}
    columns |= {f"probability_{name}": probability[:, c] for c, name in enumerate(names)}
    columns |= {"confidence": probability.max(1), "in_training": trained}
    if conformal is not None:
        inside = classifier.calibration_.sets(logits, conformal)
        # few sets differ: each is written out once
        kinds, kind = np.unique(inside, axis=0, return_inverse=True)
        written = [json.dumps([str(name) for name in names[one]], ensure_ascii=False) for one in kinds]
        columns["set"] = np.array(written)[kind]
    return columns


def conformal_coverage(classifier: GPatcherClassifier, graph: Graph, level: float) -> tuple[float, float, int] | None:
    """Return how often the conformal sets of test nodes hold the label, their mean size, and the number of nodes."""
    known = classifier.split_.test[graph.labels()[classifier.split_.test] >= 0]
    if not known.size:
        return None
    inside = classifier.predict_sets(graph, known, level=level)
    return float(inside[np.arange(known.size), graph.labels()[known]].mean()), float(inside.sum(1).mean()), known.size
