"""Checks of what a graph is built from; each error names the value, the place and the way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from gpatcher.arrays import Features, FloatArray, IntArray, as_integers, as_numpy
from gpatcher.errors import MAX_SHOWN, InputError, counted, some, warn_input
from gpatcher.graph.split import PARTS, Split

BLOCK_BYTES = 1 << 24  # features are scanned in blocks of this size, so a check needs no copy of them


def edge_rows(edge_index: Any) -> tuple[IntArray, IntArray]:
    if isinstance(edge_index, tuple) and len(edge_index) == 2:
        rows = tuple(as_integers(row, f"edge_index[{i}]") for i, row in enumerate(edge_index))
        if rows[0].shape != rows[1].shape or rows[0].ndim != 1:
            raise InputError(
                f"edge_index must hold as many targets as sources, got shapes {rows[0].shape} and {rows[1].shape}"
            )
        return rows[0], rows[1]
    array = as_integers(edge_index, "edge_index")
    if array.ndim != 2 or array.shape[0] != 2:
        turned = "; it looks transposed, pass edge_index.T" if array.ndim == 2 and array.shape[1] == 2 else ""
        raise InputError(f"edge_index must have shape (2, m), got {array.shape}{turned}")
    return array[0], array[1]


def _rows_of(values: Any) -> int | None:
    if values is None:
        return None
    shape = getattr(values, "shape", None)
    if shape is None:
        return len(values) if hasattr(values, "__len__") else None
    return int(shape[0]) if len(shape) else None


def node_count(num_nodes: int | None, x: Any, y: Any, source: IntArray, target: IntArray) -> int:
    if num_nodes is None:
        num_nodes = _rows_of(x)
    if num_nodes is None:
        num_nodes = _rows_of(y)
    if num_nodes is None:
        num_nodes = max(int(row.max()) + 1 if row.size else 0 for row in (source, target))
    if num_nodes != int(num_nodes):
        raise InputError(f"num_nodes must be a whole number, got {num_nodes}")
    if num_nodes < 1:
        raise InputError(f"the graph is empty: num_nodes must be at least 1, got {num_nodes}")
    return int(num_nodes)


def check_edge_ids(ids: IntArray, what: str, n: int) -> None:
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= n):
        wrong = np.flatnonzero((ids < 0) | (ids >= n))
        raise InputError(
            f"{counted(wrong.size, 'edge has', 'edges have')} a {what} outside 0 to {n - 1}: "
            f"{some(ids[wrong[:MAX_SHOWN]])}, "
            f"the first at edge {wrong[0]}; ids count from 0, and num_nodes={n}"
        )


def check_weights(weights: Any, edges: int) -> FloatArray | None:
    if weights is None:
        return None
    array = as_numpy(weights, "weights")
    if array.dtype.kind not in "iuf":
        raise InputError(f"weights must be numbers, got dtype {array.dtype}")
    if array.shape != (edges,):
        raise InputError(f"weights must have shape ({edges},), one per edge, got {array.shape}")
    # single precision stays as it is, everything else is worked with in double
    array = array.astype(np.float32 if array.dtype == np.float32 else np.float64, copy=False)
    for wrong, kind, way in (
        (~np.isfinite(array), "not finite", "replace or remove them"),
        (
            array < 0,
            "negative",
            "the normalised adjacency needs positive weights; shift them or drop these edges",
        ),
        (array == 0, "zero", "an edge of weight 0 is no edge; remove them"),
    ):
        at = np.flatnonzero(wrong)
        if at.size:
            raise InputError(
                f"{counted(at.size, 'weight is', 'weights are')} {kind}: {array[at[0]]} at edge {at[0]}; {way}"
            )
    return array


def check_features(x: Any, n: int) -> Features | None:
    """Return features as a 2-D array or scipy CSR, shared where possible; refuse what cannot be learned from."""
    if x is None:
        return None
    x = sp.csr_array(x) if sp.issparse(x) else as_numpy(x, "x")
    if x.ndim != 2:
        hint = "; pass x.reshape(-1, 1) for a single feature" if x.ndim == 1 else ""
        raise InputError(f"x must have shape (n, d), got {x.shape}{hint}")
    if x.shape[0] != n:
        raise InputError(f"x has {x.shape[0]} rows, but the graph has {n} nodes; pass one row per node")
    if x.dtype.kind not in "fiub":
        raise InputError(f"x must hold numbers, got dtype {x.dtype}; encode text and categories first")
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
    if sp.issparse(x):
        row, column = int(np.searchsorted(x.indptr, first[0], side="right")) - 1, int(x.indices[first[0]])
        value = values[first[0]]
    else:
        row, column = int(first[0]), int(first[1])
        value = values[row, column]
    raise InputError(
        f"x holds {counted(count, 'value that is', 'values that are')} not finite, the first "
        f"{value} at row {row}, column {column}; "
        "fill them in (a mean, a 0 and a column that says so) or remove those nodes"
    )


def encode_labels(values: Sequence[Any]) -> tuple[IntArray, tuple[str, ...]]:
    """Return the number of each value among the sorted classes, -1 for None and NaN, and the names of the classes.

    Examples
    --------
    >>> encode_labels(["cat", None, "ant"])
    (array([ 1, -1,  0]), ('ant', 'cat'))
    """
    known = [v is not None and v == v for v in values]  # NaN is the one value unlike itself
    kinds = {v for v, there in zip(values, known, strict=True) if there}
    try:
        names = sorted(kinds)
    except TypeError:
        names = sorted(kinds, key=str)
    number = {name: i for i, name in enumerate(names)}
    y = np.array([number[v] if there else -1 for v, there in zip(values, known, strict=True)], dtype=np.int64)
    return y, tuple(str(name) for name in names)


def check_labels(y: Any, n: int, classes: Sequence[str] | None, name: str) -> tuple[IntArray | None, tuple[str, ...]]:
    """Return labels as int64 with -1 for unknown, and the names of the classes."""
    if y is None:
        return None, ()
    array = as_numpy(y, "y")
    if array.dtype.kind == "b":
        array = array.astype(np.int64)
    array = as_integers(array, "y (labels)").astype(np.int64)  # a copy: the graph's own, not to be written
    if array.shape != (n,):
        raise InputError(f"y must have shape ({n},), one label per node, got {array.shape}")
    if int(array.min()) < -1:
        low = np.flatnonzero(array < -1)
        raise InputError(
            f"{counted(low.size, 'label is', 'labels are')} below -1: {array[low[0]]} at node "
            f"{low[0]}; classes count from 0, -1 means unknown"
        )
    top = int(array.max())
    if classes is not None and top >= len(classes):
        raise InputError(f"label {top} has no name: only {len(classes)} classes are named")
    if classes is None and top >= n:
        raise InputError(f"label {top} in a graph of {n} nodes; number the classes 0, 1, 2, ...")
    names = tuple(str(c) for c in classes) if classes is not None else tuple(str(c) for c in range(top + 1))
    if top < 0:
        warn_input(f"{name}: no node has a label, so nothing about classes can be said or learned")
        return array, names
    empty = np.flatnonzero(np.bincount(array[array >= 0], minlength=len(names)) == 0)
    if empty.size:
        warn_input(f"{name}: {empty.size} of {len(names)} classes have no node: {some(names[c] for c in empty)}")
    return array, names


def check_split(split: Split, where: str, y: IntArray, classes: Sequence[str]) -> None:
    """Raise or warn where a split does not fit the labels of a graph.

    Parameters
    ----------
    split : Split
    where : str
        Name of the graph and of the split, for messages.
    y : int64 array, shape (n,)
        Labels, -1 for unlabelled nodes.
    classes : sequence of str
        Names of the classes.
    """
    for part in PARTS:
        ids = getattr(split, part)
        if ids.size and ids[-1] >= y.size:
            beyond = ids[ids >= y.size]
            raise InputError(
                f"{where}: {part} has {counted(beyond.size, 'node id')} outside the graph: {some(beyond)}; "
                f"valid ids are 0 to {y.size - 1}"
            )
        unlabelled = ids[y[ids] < 0]
        if unlabelled.size and part == "train":
            raise InputError(
                f"{where}: {counted(unlabelled.size, 'training node has', 'training nodes have')} no label (-1): "
                f"{some(unlabelled)}; remove them from train"
            )
        if unlabelled.size:
            warn_input(
                f"{where}: {counted(unlabelled.size, 'node')} of {part} without a label cannot be scored: "
                f"{some(unlabelled)}"
            )
    trained = np.bincount(y[split.train], minlength=len(classes)) > 0
    evaluated = y[np.concatenate([split.val, split.test])]
    needed = np.bincount(evaluated[evaluated >= 0], minlength=len(classes)) > 0
    missing = [classes[c] for c in np.flatnonzero(needed & ~trained).tolist()]
    if missing:
        warn_input(
            f"{where}: {len(missing)} of {len(classes)} classes have no training node and will never be "
            f"predicted: {some(missing)}; a stratified split avoids this"
        )
