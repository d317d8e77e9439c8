"""Checks of the input of a graph; each error names the value, its position and a remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gpatcher.arrays import BoolArray, Features, FloatArray, IntArray, as_integers, as_numpy
from gpatcher.errors import MAX_SHOWN, InputError, check_choice, counted, some, warn_input
from gpatcher.graph.split import PARTS, Split, is_labelled

MIN_WEIGHT, MAX_WEIGHT = 1e-15, 1e15  # of an edge
_MAX_NODES = 1 << 31  # ids are int32
TASKS = ("classification", "regression")
BLOCK_BYTES = 1 << 24  # features are scanned in blocks of this size, so that a check needs no copy of them


def edge_rows(edge_index: Any) -> tuple[IntArray, IntArray]:
    """Return sources and targets of an edge index: an array of shape (2, m) or a pair of arrays."""
    if isinstance(edge_index, tuple) and len(edge_index) == 2:
        source, target = (as_integers(row, f"edge_index[{i}]") for i, row in enumerate(edge_index))
        if source.shape != target.shape or source.ndim != 1:
            raise InputError(
                f"edge_index must have as many targets as sources, got shapes {source.shape} and {target.shape}"
            )
        return source, target
    array = as_integers(edge_index, "edge_index")
    if array.ndim != 2 or array.shape[0] != 2:
        hint = "; it looks transposed, pass edge_index.T" if array.ndim == 2 and array.shape[1] == 2 else ""
        raise InputError(f"edge_index must have shape (2, m), got {array.shape}{hint}")
    return array[0], array[1]


def node_count(num_nodes: int | None, x: Any, y: Any, source: IntArray, target: IntArray) -> int:
    """Return the number of nodes: ``num_nodes``, else the rows of ``x`` or ``y``, else the largest id + 1."""
    for values in (x, y):
        if num_nodes is None:
            num_nodes = _row_count(values)
    if num_nodes is None:
        num_nodes = max(int(row.max()) + 1 if row.size else 0 for row in (source, target))
    if num_nodes != int(num_nodes):
        raise InputError(f"num_nodes must be an integer, got {num_nodes}")
    if num_nodes < 1:
        raise InputError(f"the graph is empty: num_nodes must be at least 1, got {num_nodes}")
    if num_nodes > _MAX_NODES:
        raise InputError(f"num_nodes must be at most {_MAX_NODES:,}, got {num_nodes:,}; number the nodes from 0")
    return int(num_nodes)


def _row_count(values: Any) -> int | None:
    shape = getattr(values, "shape", None)
    if shape is None:
        return len(values) if hasattr(values, "__len__") else None
    return int(shape[0]) if len(shape) else None


def check_edge_ids(ids: IntArray, endpoint: str, n: int) -> None:
    """Raise an error if sources or targets lie outside [0, n)."""
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= n):
        invalid = np.flatnonzero((ids < 0) | (ids >= n))
        raise InputError(
            f"{counted(invalid.size, 'edge has', 'edges have')} a {endpoint} outside 0 to {n - 1}: "
            f"{some(ids[invalid[:MAX_SHOWN]])}, the first at edge {invalid[0]}; ids count from 0, and num_nodes={n}"
        )


def is_weight(values: FloatArray) -> BoolArray:
    """Return a mask of valid edge weights: their sums and quotients must be finite in single precision."""
    return (values >= MIN_WEIGHT) & (values <= MAX_WEIGHT)


def check_weights(weights: Any, edges: int) -> FloatArray | None:
    """Return weights as a float array of shape (edges,), each between MIN_WEIGHT and MAX_WEIGHT."""
    if weights is None:
        return None
    array = as_numpy(weights, "weights")
    if array.dtype.kind not in "iuf":
        raise InputError(f"weights must be numbers, got dtype {array.dtype}")
    if array.shape != (edges,):
        raise InputError(f"weights must have shape ({edges},), one per edge, got {array.shape}")
    # float32 is kept, all other types become float64
    array = array.astype(np.float32 if array.dtype == np.float32 else np.float64, copy=False)
    for invalid, problem, hint in (
        (~np.isfinite(array), "not finite", "replace the weights or remove the edges"),
        (array < 0, "negative", "the normalised adjacency needs positive weights: shift them or remove the edges"),
        (array == 0, "zero", "weights must be positive: remove the edges"),
        (~is_weight(array), "extreme", f"weights must lie between {MIN_WEIGHT:g} and {MAX_WEIGHT:g}: scale them"),
    ):
        edge = np.flatnonzero(invalid)
        if edge.size:
            raise InputError(
                f"{counted(edge.size, 'weight is', 'weights are')} {problem}: {array[edge[0]]} at edge {edge[0]}; "
                f"{hint}"
            )
    return array


def warn_duplicates(name: str, duplicates: int, edges: int, *, weighted: bool) -> None:
    """Warn if some of the edges were merged into an equal edge."""
    if duplicates:
        action = "merged, their weights added" if weighted else "merged into one"
        warn_input(f"{name}: {duplicates} of {edges} edges repeat another one; they were {action}")


def warn_self_loops(name: str, count: int) -> None:
    """Warn if the graph has self-loops."""
    if count:
        warn_input(
            f"{name}: {counted(count, 'edge joins', 'edges join')} a node to itself: kept and counted "
            "as a neighbour, but the normalised adjacency leaves it out"
        )


def check_features(x: Any, n: int) -> Features | None:
    """Return features as a two-dimensional array or scipy CSR array, not copied if possible; they must be finite."""
    if x is None:
        return None
    x = sp.csr_array(x) if sp.issparse(x) else as_numpy(x, "x")
    if x.ndim != 2:
        hint = "; pass x.reshape(-1, 1) for a single feature" if x.ndim == 1 else ""
        raise InputError(f"x must have shape (n, d), got {x.shape}{hint}")
    if x.shape[0] != n:
        raise InputError(f"x has {x.shape[0]} rows, but the graph has {n} nodes; pass one row per node")
    if x.dtype.kind not in "fiub":
        raise InputError(f"x must be numeric, got dtype {x.dtype}; encode text and categories first")
    if x.dtype.kind == "f":
        _check_finite(x)
    return x


def _check_finite(x: Any) -> None:
    values, width = (x.data, 1) if sp.issparse(x) else (x, max(1, x.shape[1]))
    step = max(1, BLOCK_BYTES // (width * x.dtype.itemsize))
    count, first = 0, None
    for start in range(0, values.shape[0], step):
        finite = np.isfinite(values[start : start + step])
        if finite.all():
            continue
        if first is None:
            first = np.argwhere(~finite)[0]
            first[0] += start
        count += int(np.count_nonzero(~finite))
    if first is None:
        return
    value = values[tuple(first)]
    if sp.issparse(x):
        row, column = int(np.searchsorted(x.indptr, first[0], side="right")) - 1, int(x.indices[first[0]])
    else:
        row, column = first.tolist()
    raise InputError(
        f"x contains {counted(count, 'value that is', 'values that are')} not finite, the first "
        f"{value} at row {row}, column {column}; "
        "impute them (the column mean, or 0 with an indicator column) or remove those nodes"
    )


def encode_labels(values: Sequence[Any]) -> tuple[IntArray, tuple[str, ...]]:
    """Return the class of each value, -1 for None and NaN, and the sorted class names."""
    distinct = {v for v in values if v is not None and v == v}  # NaN is the only value unequal to itself
    try:
        names = sorted(distinct)
    except TypeError:
        names = sorted(distinct, key=str)
    code = {name: c for c, name in enumerate(names)}
    return np.array([code.get(v, -1) for v in values], dtype=np.int64), tuple(str(name) for name in names)


def check_labels(
    y: Any, n: int, classes: Sequence[str] | None, name: str, task: str | None = None
) -> tuple[npt.NDArray[Any] | None, tuple[str, ...]]:
    """Return labels as a read-only copy and the class names: int64 with -1, or float64 with NaN, if unlabelled."""
    if y is None:
        return None, ()
    array = as_numpy(y, "y")
    if task is not None:
        check_choice("task", task, TASKS)
    # whole floats stay classes, unless the task says otherwise
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" and classes is None else np.empty(0)
    fractions = bool((finite % 1 > 0).any())
    if task == "regression" or (task is None and fractions):
        return _check_numbers(array, n, name), ()
    if array.dtype.kind == "b":
        array = array.astype(np.int64)
    array = as_integers(array, "y (labels)").astype(np.int64)
    array.flags.writeable = False
    if array.shape != (n,):
        raise InputError(f"y must have shape ({n},), one label per node, got {array.shape}")
    if int(array.min()) < -1:
        low = np.flatnonzero(array < -1)
        raise InputError(
            f"{counted(low.size, 'label is', 'labels are')} below -1: {array[low[0]]} at node "
            f"{low[0]}; classes count from 0, -1 marks unlabelled nodes"
        )
    top = int(array.max())
    if classes is not None and top >= len(classes):
        raise InputError(f"label {top} has no name: only {len(classes)} classes are named")
    if classes is None and top >= n:
        raise InputError(f"label {top} in a graph of {n} nodes; number the classes 0, 1, 2, ...")
    names = tuple(str(c) for c in (range(top + 1) if classes is None else classes))
    if top < 0:
        warn_input(f"{name}: no node has a label, so no classifier can be trained")
        return array, names
    empty = np.flatnonzero(np.bincount(array[array >= 0], minlength=len(names)) == 0)
    if empty.size:
        warn_input(f"{name}: {empty.size} of {len(names)} classes have no node: {some(names[c] for c in empty)}")
    return array, names


def _check_numbers(array: npt.NDArray[Any], n: int, name: str) -> FloatArray:
    if array.dtype.kind not in "iuf":
        raise InputError(f"y must hold numbers for a regression, got dtype {array.dtype}")
    if array.shape != (n,):
        raise InputError(f"y must have shape ({n},), one number per node, got {array.shape}")
    numbers: FloatArray = array.astype(np.float64)
    infinite = np.flatnonzero(np.isinf(numbers))
    if infinite.size:
        raise InputError(
            f"{counted(infinite.size, 'label is', 'labels are')} infinite, the first at node {infinite[0]}; correct "
            "them, or set them to NaN to predict them"
        )
    if np.isnan(numbers).all():
        warn_input(f"{name}: no node has a label, so no model can be trained")
    numbers.flags.writeable = False
    return numbers


def check_split(split: Split, where: str, y: npt.NDArray[Any], classes: Sequence[str]) -> None:
    """Raise an error or warn if a split does not fit the labels of a graph; messages start with ``where``."""
    none = "NaN" if y.dtype.kind == "f" else -1
    for part in PARTS:
        ids = getattr(split, part)
        if ids.size and ids[-1] >= y.size:
            beyond = ids[ids >= y.size]
            raise InputError(
                f"{where}: {part} has {counted(beyond.size, 'node id')} outside the graph: {some(beyond)}; "
                f"valid ids are 0 to {y.size - 1}"
            )
        unlabelled = ids[~is_labelled(y[ids])]
        if unlabelled.size and part == "train":
            raise InputError(
                f"{where}: {counted(unlabelled.size, 'training node has', 'training nodes have')} no label ({none}): "
                f"{some(unlabelled)}; remove them from train"
            )
        if unlabelled.size:
            warn_input(
                f"{where}: {counted(unlabelled.size, 'node')} of {part} without a label cannot be scored: "
                f"{some(unlabelled)}"
            )
    if y.dtype.kind == "f":
        return
    trained = np.bincount(y[split.train], minlength=len(classes)) > 0
    evaluated = y[np.concatenate([split.val, split.test])]
    needed = np.bincount(evaluated[evaluated >= 0], minlength=len(classes)) > 0
    missing = [classes[c] for c in np.flatnonzero(needed & ~trained).tolist()]
    if missing:
        warn_input(
            f"{where}: {len(missing)} of {len(classes)} classes have no training node and will never be "
            f"predicted: {some(missing)}; a stratified split avoids this"
        )
