"""How far neighbours disagree: every measure from one pass over the edges of the undirected graph.

Only edges between two labelled nodes count. A self-loop of the input makes a node its own neighbour,
as Definition 1 of the paper has it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.graph.graph import Graph
from gpatcher.kernels.labels import class_pairs, label_agreement, neighbourhood_hashes


@dataclass(frozen=True, eq=False)
class Heterophily:
    """What the labels say about the edges.

    Parameters
    ----------
    node : H_i of Definition 1, shape (n,); NaN for a node without label or without labelled neighbour
    pairs : number of stored edges from class a to class b, shape (C, C), symmetric
    class_sizes : labelled nodes of each class, shape (C,)
    """

    node: FloatArray
    pairs: IntArray
    class_sizes: IntArray

    @property
    def undefined(self) -> int:
        """Number of nodes whose H_i would be 0 / 0; they are left out of the mean."""
        return int(np.isnan(self.node).sum())

    @property
    def node_heterophily(self) -> float:
        """Mean of H_i over the nodes where it is defined."""
        return float(np.nanmean(self.node)) if self.undefined < self.node.size else float("nan")

    @property
    def edge_homophily(self) -> float:
        """Share of the edges that join two nodes of one class."""
        return _ratio(float(np.trace(self.pairs)), float(self.pairs.sum()))

    @property
    def class_insensitive_homophily(self) -> float:
        r"""Homophily above chance, averaged over the classes (Lim et al., 2021).

        .. math:: \frac{1}{C-1} \sum_k \max\left(0,\; h_k - \frac{|C_k|}{n}\right)

        with h_k the share of the edges at class k that stay in it.
        """
        if self.class_sizes.size < 2:
            return float("nan")
        ends = self.pairs.sum(axis=1)
        inside = np.divide(np.diag(self.pairs), ends, out=np.zeros(ends.size), where=ends > 0)
        above = np.maximum(inside - self.class_sizes / self.class_sizes.sum(), 0.0)
        return float(above.sum() / (self.class_sizes.size - 1))

    @property
    def adjusted_homophily(self) -> float:
        r"""Edge homophily corrected for the degrees of the classes (Platonov et al., 2023).

        .. math:: \frac{h_{edge} - \sum_k \bar p_k^2}{1 - \sum_k \bar p_k^2}

        with p_k the share of edge ends at class k; 1 is full agreement, 0 is chance, negative is below it.
        """
        chance = float((self._ends() ** 2).sum())
        return _ratio(self.edge_homophily - chance, 1.0 - chance)

    @property
    def label_informativeness(self) -> float:
        r"""Share of a label's entropy that the label of a neighbour takes away (Platonov et al., 2023).

        .. math:: 2 - \frac{\sum_{ab} p_{ab} \log p_{ab}}{\sum_a \bar p_a \log \bar p_a}

        0: neighbours tell nothing; 1: they tell all, be it by agreeing or by disagreeing in a fixed way.
        """
        total = float(self.pairs.sum())
        joint = _entropy(self.pairs.ravel() / total) if total else float("nan")
        return 2.0 - _ratio(joint, _entropy(self._ends()))

    @property
    def compatibility(self) -> FloatArray:
        """Share of class a's edges that lead to class b, shape (C, C); a row of NaN where a has none."""
        ends = self.pairs.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(self.pairs, ends, out=np.full(self.pairs.shape, np.nan), where=ends > 0))

    def _ends(self) -> FloatArray:
        total = int(self.pairs.sum())
        return np.asarray(self.pairs.sum(axis=1) / total if total else np.full(len(self.pairs), np.nan))


def heterophily(graph: Graph) -> Heterophily:
    r"""Measure how far neighbours disagree, in O(n + m).

    .. math:: H_i = \frac{|\{v_j \in N(v_i) : y_j \neq y_i\}|}{|N(v_i)|}

    Examples
    --------
    >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], y=[0, 0, 1])
    >>> heterophily(path).node
    array([0. , 0.5, 1. ])
    """
    y, both = graph.labels(), graph.undirected()
    same, known = np.zeros(graph.n, np.int64), np.zeros(graph.n, np.int64)
    label_agreement(both.indptr, both.indices, y, same, known)
    node = np.divide(known - same, known, out=np.full(graph.n, np.nan), where=known > 0)
    pairs = np.zeros((graph.num_classes, graph.num_classes), np.int64)
    class_pairs(both.indptr, both.indices, y, pairs)
    return Heterophily(node, pairs, np.bincount(y[y >= 0], minlength=graph.num_classes))


def train_duplicates(graph: Graph) -> float | None:
    """Share of the test nodes that have a twin in train: the same neighbours and the same label.

    The mean over the splits; None where the graph has no split with a test part. A node without
    neighbours has no twin. Rows are compared by a 64-bit hash, so the cost is O(n log n + m).
    """
    splits = [split for split in graph.splits if split.test.size]
    if not splits:
        return None
    both = graph.undirected()
    hashes = np.empty(graph.n, np.uint64)
    neighbourhood_hashes(both.indptr, both.indices, graph.labels(), hashes)
    kinds, kind = np.unique(hashes, return_inverse=True)
    connected = np.diff(both.indptr) > 0
    shares = []
    for split in splits:
        seen = np.zeros(kinds.size, dtype=bool)
        seen[kind[split.train]] = True
        shares.append(float(np.mean(seen[kind[split.test]] & connected[split.test])))
    return float(np.mean(shares))


def _ratio(a: float, b: float) -> float:
    return a / b if b else float("nan")


def _entropy(p: FloatArray) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())
