"""Measures of heterophily and homophily, from one pass over the edges of the undirected graph.

Only edges between two labelled nodes count. A self-loop makes a node its own neighbour, as in
Definition 1 of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.graph.graph import Graph
from gpatcher.kernels.labels import count_labels, neighbourhood_hashes


@dataclass(frozen=True, eq=False)
class Heterophily:
    """Heterophily of each node, and measures of the whole graph; a measure that is undefined is NaN."""

    node: FloatArray  # H_i of Definition 1, shape (n,); NaN without label or without labelled neighbour
    pairs: IntArray  # stored edges from class a to class b, shape (C, C), symmetric
    class_sizes: IntArray  # labelled nodes in each class

    @property
    def undefined(self) -> int:
        """Number of nodes whose H_i is undefined (0 / 0); the mean excludes them."""
        return int(np.isnan(self.node).sum())

    @property
    def node_heterophily(self) -> float:
        """Mean of H_i over the nodes where it is defined."""
        return float(np.nanmean(self.node)) if self.undefined < self.node.size else float("nan")

    @property
    def edge_homophily(self) -> float:
        """Fraction of the edges that join two nodes of the same class."""
        return _ratio(float(np.trace(self.pairs)), float(self.pairs.sum()))

    @property
    def class_insensitive_homophily(self) -> float:
        r"""Homophily above chance, averaged over the classes (Lim et al., 2021).

        .. math:: \frac{1}{C-1} \sum_k \max\left(0,\; h_k - \frac{|C_k|}{n}\right)

        with h_k the fraction of the edges of class k that lead to class k.
        """
        if self.class_sizes.size < 2:
            return float("nan")
        within = np.nan_to_num(np.diag(self.compatibility))
        above = np.maximum(within - self.class_sizes / self.class_sizes.sum(), 0.0)
        return float(above.sum() / (self.class_sizes.size - 1))

    @property
    def adjusted_homophily(self) -> float:
        r"""Edge homophily corrected for the degrees of the classes (Platonov et al., 2023).

        .. math:: \frac{h_{edge} - \sum_k \bar p_k^2}{1 - \sum_k \bar p_k^2}

        with p̄_k the fraction of edge endpoints in class k; 1 is full agreement, 0 is chance, negative values are below
        chance.
        """
        chance = float((self._endpoint_fractions() ** 2).sum())
        return _ratio(self.edge_homophily - chance, 1.0 - chance)

    @property
    def label_informativeness(self) -> float:
        r"""Mutual information of the labels of two neighbours, relative to their entropy (Platonov et al., 2023).

        .. math:: 2 - \frac{\sum_{ab} p_{ab} \log p_{ab}}{\sum_a \bar p_a \log \bar p_a}

        0: the label of a neighbour carries no information; 1: it determines the label, whether the two agree or not.
        """
        total = float(self.pairs.sum())
        joint = _entropy(self.pairs.ravel() / total) if total else float("nan")
        return 2.0 - _ratio(joint, _entropy(self._endpoint_fractions()))

    @property
    def compatibility(self) -> FloatArray:
        """Fraction of the edges of class a that lead to class b, shape (C, C); NaN where a has no edges."""
        totals = self.pairs.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(self.pairs, totals, out=np.full(self.pairs.shape, np.nan), where=totals > 0))

    def _endpoint_fractions(self) -> FloatArray:
        total = int(self.pairs.sum())
        return np.asarray(self.pairs.sum(axis=1) / total if total else np.full(len(self.pairs), np.nan))


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


@dataclass(frozen=True)
class EdgeTypeMeasures:
    """Agreement of labels along one edge type; a measure that is undefined is None."""

    edges: int
    directed: bool
    shared: bool  # whether it is of labelled nodes that share a neighbour, because no edge joins two of them
    edge_homophily: float | None
    adjusted_homophily: float | None


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


def _ratio(a: float, b: float) -> float:
    return a / b if b else float("nan")


def _entropy(p: FloatArray) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


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
