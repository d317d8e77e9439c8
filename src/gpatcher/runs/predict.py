"""Predictions as tables: a row per node with its class and calibrated probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.estimator.base import NodeModel, NodeRegressor, labelled
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.tables.database import TargetTable
from gpatcher.tables.write import write_pieces
from gpatcher.trust.conformal import coverage, interval_coverage

LOGITS = 1 << 28  # numbers predicted at a time: a model of several rounds reads all nodes for each piece
ROWS = 1 << 18  # rows written at a time
PARTS = ("none", "train", "validation", "test")

Columns = dict[str, Any]  # arrays of NumPy or pyarrow


def write_predictions(
    classifier: NodeModel,
    graph: Graph | UnseenNodes,
    out: Path | TargetTable,
    progress: Callable[[int, int], None] | None = None,
    conformal: float | None = None,
    label_type: str | None = None,
    escape_formulas: bool = False,
) -> None:
    """Write a row for every node, or for unseen nodes, in chunks; see `prediction_columns`.

    Parameters
    ----------
    classifier : NodeModel
    graph : Graph or UnseenNodes
    out : Path or TargetTable
        A .csv or .parquet file, or a database table.
    progress : callable, optional
        Called with the nodes done and the total.
    conformal : float, optional
        Level of conformal sets, in (0, 1).
    label_type : str, optional
        Dtype of the classes in a database table, such as int64; by default they are text, as in files.
    escape_formulas : bool
        Whether text in a .csv file that a spreadsheet would run gets an apostrophe.
    """
    as_text = isinstance(out, TargetTable) or out.suffix.lower() == ".csv"

    def pieces() -> Iterator[Columns]:
        if isinstance(graph, UnseenNodes):
            yield prediction_columns(classifier, graph, None, conformal, as_text)
            return
        for nodes in piecewise(graph, classifier.num_outputs):
            logits = classifier.decision_function(graph, nodes)
            for rows in (slice(start, start + ROWS) for start in range(0, len(nodes), ROWS)):
                yield _columns_of(classifier, graph, nodes[rows], logits[rows], conformal, as_text)
                if progress is not None:
                    progress(int(nodes[rows][-1]) + 1, graph.n)

    if isinstance(out, TargetTable):
        out.write(_with_types(piece, label_type) for piece in pieces())
    else:
        write_pieces(pieces(), out, escape_formulas=escape_formulas)


def _with_types(columns: Columns, label_type: str | None) -> Columns:
    """Return the columns with classes in the dtype that they were read in."""
    if label_type is None:
        return columns
    return columns | {name: pa.array(columns[name]).cast(label_type) for name in ("predicted", "label")}


def predicted_nodes(graph: Graph) -> IntArray:
    """Return the nodes that are predicted: all, or those of the type that has labels."""
    return np.arange(graph.n) if graph.node_types is None else graph.node_types.nodes()


def piecewise(graph: Graph, outputs: int) -> Iterator[IntArray]:
    """Yield the predicted nodes in chunks; predictions are bitwise equal if computed in the same chunks.

    ``outputs`` is the number of logits of a node.
    """
    nodes, size = predicted_nodes(graph), max(1, LOGITS // outputs)
    for start in range(0, len(nodes), size):
        yield nodes[start : start + size]


def id_columns(graph: Graph, nodes: IntArray) -> Columns:
    """Return the ids of some nodes as in their table; with several node types also the type."""
    if graph.node_ids is None:
        return {"id": nodes}
    return typed_ids(graph, graph.node_ids[nodes])


def typed_ids(graph: Graph, ids: npt.NDArray[Any]) -> Columns:
    """Return the columns id and, with several node types, type from ids of the graph or of unseen nodes."""
    if graph.node_types is None:
        return {"id": ids}
    return {"id": graph.node_types.ids(ids), "type": np.full(len(ids), graph.node_types.labelled, object)}


def prediction_columns(
    classifier: NodeModel,
    graph: Graph | UnseenNodes,
    nodes: IntArray | None = None,
    conformal: float | None = None,
    as_text: bool = False,
) -> Columns:
    """Return id, predicted class, a probability per class, confidence, known label and part of the split.

    With several node types there is also a column ``type``.

    The part is train, validation, test or none; the label is null if unknown. With ``conformal``, the level of sets,
    there is also a column ``set`` of lists of class names, or with ``as_text`` of text such as ``F|M``. In a regression
    there are the predicted number and, with ``conformal``, the ends ``low`` and ``high`` of an interval. By default the
    rows are the `predicted_nodes`. Rows of `UnseenNodes` are always all that are predicted, without label and part.
    """
    if not isinstance(graph, UnseenNodes):
        positions = predicted_nodes(graph) if nodes is None else nodes
        return _columns_of(
            classifier, graph, positions, classifier.decision_function(graph, positions), conformal, as_text
        )
    chosen = graph.predicted()
    logits = classifier.decision_function(graph)[chosen]
    ids = {"id": graph.nodes} if graph.node_ids is None else typed_ids(graph.graph, graph.node_ids[chosen])
    y, parts = _unknown(classifier, len(logits)), np.zeros(len(logits), np.int8)
    return logit_columns(classifier, logits, ids, y, parts, conformal, as_text)


def _columns_of(
    classifier: NodeModel, graph: Graph, nodes: IntArray, logits: FloatArray, conformal: float | None, as_text: bool
) -> Columns:
    """Return the columns of `prediction_columns` for nodes of a graph from their logits."""
    y = _unknown(classifier, len(nodes)) if graph.y is None else graph.y[nodes]
    parts = node_parts(classifier.split_, nodes)
    return logit_columns(classifier, logits, id_columns(graph, nodes), y, parts, conformal, as_text)


def _unknown(classifier: NodeModel, count: int) -> npt.NDArray[Any]:
    return np.full(count, np.nan if isinstance(classifier, NodeRegressor) else -1)


def node_parts(split: Split, nodes: IntArray) -> IntArray:
    """Return the part of the split that each node is in, as its position in `PARTS`."""
    parts = np.zeros(len(nodes), np.int8)
    for part, members in enumerate((split.train, split.val, split.test), 1):
        parts[np.isin(nodes, members)] = part
    return parts


def logit_columns(
    classifier: Any,
    logits: FloatArray,
    ids: Columns,
    y: npt.NDArray[Any],
    parts: IntArray,
    conformal: float | None = None,
    as_text: bool = False,
) -> Columns:
    """Return the columns of `prediction_columns` from logits, `id_columns`, labels (-1 or NaN: none) and parts."""
    if isinstance(classifier, NodeRegressor):
        numbers: Columns = {**ids, "predicted": logits[:, 0], "label": pa.array(y, mask=np.isnan(y))}
        numbers["part"] = np.array(PARTS)[parts]
        if conformal is not None:
            numbers["low"], numbers["high"] = classifier.calibration_.intervals(logits, conformal).T
        return numbers
    names = classifier.classes_
    probability = classifier.calibration_.probability(logits)
    columns: Columns = {**ids, "predicted": names[probability.argmax(1)]}
    columns |= {f"probability_{name}": probability[:, c] for c, name in enumerate(names)}
    columns["confidence"] = probability.max(1)
    columns["label"] = pa.array(names.astype(str)[y], mask=y < 0)
    columns["part"] = np.array(PARTS)[parts]
    if conformal is not None:
        mask = classifier.calibration_.sets(logits, conformal)
        # few sets are distinct: each is converted to text once
        distinct, inverse = np.unique(mask, axis=0, return_inverse=True)
        sets = [[str(name) for name in names[row]] for row in distinct]
        columns["set"] = pa.array(["|".join(one) for one in sets] if as_text else sets).take(pa.array(inverse))
    return columns


def conformal_coverage(classifier: Any, graph: Graph, level: float) -> tuple[float, float, int] | None:
    """Return the fraction of test nodes whose set contains the label, the mean set size, and the number of nodes.

    Of numbers: whose interval contains the label, and its mean width.
    """
    test = labelled(graph, classifier.split_.test)
    if not test.size:
        return None
    y = graph.labels()[test]
    if isinstance(classifier, NodeRegressor):
        return *interval_coverage(classifier.predict_interval(graph, test, level=level), y), test.size
    return *coverage(classifier.predict_sets(graph, test, level=level), y), test.size
