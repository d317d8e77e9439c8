"""Predictions as tables: a row per node with its class and calibrated probabilities."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import IntArray
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.tables.write import write_pieces
from gpatcher.trust.conformal import coverage

_ROWS = 1 << 16  # predicted and written at a time

Columns = dict[str, npt.NDArray[Any]]


def write_predictions(
    classifier: GPatcherClassifier,
    graph: Graph,
    path: Path,
    progress: Callable[[int, int], None] | None = None,
    conformal: float | None = None,
) -> None:
    """Write a row for every node, .csv or .parquet, a piece at a time; see `prediction_columns`."""

    def pieces() -> Iterator[Columns]:
        for start in range(0, graph.n, _ROWS):
            stop = min(start + _ROWS, graph.n)
            yield prediction_columns(classifier, graph, np.arange(start, stop), conformal)
            if progress is not None:
                progress(stop, graph.n)

    write_pieces(pieces(), path)


def prediction_columns(
    classifier: GPatcherClassifier,
    graph: Graph | UnseenNodes,
    nodes: IntArray | None = None,
    conformal: float | None = None,
) -> Columns:
    """Return id, predicted class, a probability per class, confidence and whether a node was trained on.

    With the level of ``conformal`` sets there is also a column ``set``, a JSON list of class names. The nodes are all
    by default; of `UnseenNodes` they always are.
    """
    if isinstance(graph, UnseenNodes):
        logits, positions = classifier.decision_function(graph), graph.nodes
        ids = positions if graph.node_ids is None else graph.node_ids
    else:
        positions = np.arange(graph.n) if nodes is None else nodes
        logits = classifier.decision_function(graph, positions)
        ids = positions if graph.node_ids is None else graph.node_ids[positions]
    names = classifier.classes_
    probability = classifier.calibration_.probability(logits)
    columns: Columns = {"id": ids, "predicted": names[probability.argmax(1)]}
    columns |= {f"probability_{name}": probability[:, c] for c, name in enumerate(names)}
    columns |= {"confidence": probability.max(1), "in_training": np.isin(positions, classifier.split_.train)}
    if conformal is not None:
        mask = classifier.calibration_.sets(logits, conformal)
        # few sets are distinct: each is spelt out once
        distinct, inverse = np.unique(mask, axis=0, return_inverse=True)
        texts = [json.dumps([str(name) for name in names[row]], ensure_ascii=False) for row in distinct]
        columns["set"] = np.array(texts)[inverse]
    return columns


def conformal_coverage(classifier: GPatcherClassifier, graph: Graph, level: float) -> tuple[float, float, int] | None:
    """Return the fraction of test nodes whose set holds the label, the mean size of sets, and the number of nodes."""
    labelled = classifier.split_.test[graph.labels()[classifier.split_.test] >= 0]
    if not labelled.size:
        return None
    sets = classifier.predict_sets(graph, labelled, level=level)
    return *coverage(sets, graph.labels()[labelled]), labelled.size
