"""Measures of heterophily and homophily, from one pass over the edges of the undirected graph.

Only edges between two labelled nodes count. A self-loop makes a node its own neighbour, as in
Definition 1 of the paper.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.graph.graph import Graph
from gpatcher.kernels.labels import count_labels, neighbourhood_hashes
from gpatcher.spectral.results import EdgeTypeMeasures, Heterophily


def heterophily(graph: Graph) -> Heterophily:
    r"""Measure how often neighbours have different labels, in O(n + m).

    .. math:: H_i = \frac{|\{v_j \in N(v_i) : y_j \neq y_i\}|}{|N(v_i)|}

    Examples
    --------
    >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], y=[0, 0, 1])
    >>> heterophily(path).node
    array([0. , 0.5, 1. ])
    """
    y, undirected = graph.labels(), graph.undirected()
    same, labelled = np.zeros(graph.n, np.int64), np.zeros(graph.n, np.int64)
    pairs = np.zeros((graph.num_classes, graph.num_classes), np.int64)
    count_labels(undirected.indptr, undirected.indices, y, same, labelled, pairs)
    node = np.divide(labelled - same, labelled, out=np.full(graph.n, np.nan), where=labelled > 0)
    return Heterophily(node, pairs, np.bincount(y[y >= 0], minlength=graph.num_classes))


def edge_type_measures(graph: Graph) -> dict[str, EdgeTypeMeasures]:
    """Measure each edge type of a graph, in O(n + m).

    Where no edge of a type joins two labelled nodes, the pairs of labelled nodes with a common neighbour are measured;
    a pair counts once for each.
    """
    result = {}
    for name, part in graph.relations.items():
        measures, shared = None, False
        if graph.y is not None and graph.num_classes:
            measures = heterophily(replace(part, y=graph.y, classes=graph.classes))
            if not measures.pairs.any():
                measures, shared = replace(measures, pairs=_shared_pairs(part, graph.labels(), graph.num_classes)), True
        values = (getattr(measures, m, float("nan")) for m in ("edge_homophily", "adjusted_homophily"))
        homophily, adjusted = (float(value) if np.isfinite(value) else None for value in values)
        result[name] = EdgeTypeMeasures(part.m, part.is_directed, shared, homophily, adjusted)
    return result


def _shared_pairs(graph: Graph, y: IntArray, classes: int) -> IntArray:
    """Return the ordered pairs of classes among the labelled neighbours of each node, summed; shape (C, C)."""
    matrix = graph.undirected().adjacency(self_loops=False)
    matrix.data[:] = 1
    counts = matrix @ np.eye(classes + 1)[y][:, :classes]  # -1 is the last row, which is left out
    pairs: IntArray = np.rint(counts.T @ counts - np.diag(counts.sum(axis=0))).astype(np.int64)
    return pairs


def train_duplicates(graph: Graph) -> float | None:
    """Return the fraction of test nodes that duplicate a training node, averaged over the splits with test nodes.

    A duplicate has the same neighbours and the same label, so the label of such a test node can be memorised. A node
    without neighbours has no duplicates. Neighbourhoods are compared by 64-bit hashes, in O(m + n log n) per split.
    """
    splits = [split for split in graph.splits if split.test.size]
    if not splits:
        return None
    undirected = graph.undirected()
    hashes = np.empty(graph.n, np.uint64)
    neighbourhood_hashes(undirected.indptr, undirected.indices, graph.labels(), hashes)
    connected = np.diff(undirected.indptr) > 0
    fractions = [np.mean(np.isin(hashes[s.test], hashes[s.train]) & connected[s.test]) for s in splits]
    return float(np.mean(fractions))


def neighbour_means(graph: Graph, y: FloatArray) -> FloatArray:
    """Return the mean label of the labelled neighbours of each node, NaN if it has none; labels are numbers."""
    adjacency = graph.adjacency(self_loops=False)
    adjacency.data[:] = 1.0
    known = ~np.isnan(y)
    count = np.asarray(adjacency @ known.astype(float))
    total = np.asarray(adjacency @ np.nan_to_num(y))
    return np.asarray(np.divide(total, count, out=np.full(graph.n, np.nan), where=count > 0))


def label_assortativity(graph: Graph) -> float | None:
    """Return the correlation of the labels of the two ends over the edges (Newman, 2003); None if it is undefined.

    It is 1 if neighbours have equal numbers, 0 if they are unrelated, and below 0 if large ones link to small ones.
    """
    adjacency = graph.adjacency(self_loops=False).tocoo()
    y = graph.labels()
    both = ~np.isnan(y[adjacency.row]) & ~np.isnan(y[adjacency.col])
    a, b = y[adjacency.row][both], y[adjacency.col][both]
    return float(np.corrcoef(a, b)[0, 1]) if a.size > 1 and a.std() > 0 else None
