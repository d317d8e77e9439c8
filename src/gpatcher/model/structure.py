"""Structural features, computed from the edges: degree, PageRank, clustering, singular vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.kernels.csr import count_triangles

_COORDINATES = 8  # singular vectors


def _degree(graph: Graph) -> FloatArray:
    """Return log(1 + degree), out and in if the graph is directed; shape (n, 1 or 2)."""
    adjacency = graph.adjacency()
    sums = [adjacency.sum(axis=axis) for axis in ((1, 0) if graph.is_directed else (1,))]
    return np.asarray(np.log1p(np.stack(sums, axis=1)))


def _pagerank(graph: Graph) -> FloatArray:
    return np.log(graph.n * pagerank(graph))[:, None]


def _clustering(graph: Graph) -> FloatArray:
    """Return the local clustering coefficient, 0 for fewer than two neighbours; shape (n, 1)."""
    matrix = graph.adjacency(self_loops=False)
    triangles = np.zeros(graph.n, np.int64)
    count_triangles(matrix.indptr, matrix.indices, triangles)
    degree = np.diff(matrix.indptr).astype(np.float64)
    pairs = degree * (degree - 1) / 2
    return np.asarray(np.divide(triangles, pairs, out=np.zeros(graph.n), where=pairs > 0)[:, None])


def _spectral(graph: Graph, count: int = _COORDINATES) -> FloatArray:
    """Return the leading singular vectors of Ã, times √n; shape (n, count).

    These are eigenvectors with λ near 1 (clusters) and near -1 (the sides of a nearly bipartite graph).
    """
    from sklearn.utils.extmath import randomized_svd

    matrix = sp.csr_matrix(graph.normalised())
    vectors = randomized_svd(matrix, min(count, graph.n), n_iter=8, random_state=0)[0]
    return np.asarray(vectors * np.sqrt(graph.n))


STRUCTURE: dict[str, Callable[[Graph], FloatArray]] = {
    "degree": _degree,
    "pagerank": _pagerank,
    "clustering": _clustering,
    "spectral": _spectral,
}
_GLOBAL = ("pagerank", "spectral")  # an additional node changes them everywhere


def structure_columns(graph: Graph, names: Sequence[str]) -> FloatArray:
    """Return the columns of these names side by side, in single precision; shape (n, k)."""
    return np.hstack([STRUCTURE[name](graph) for name in names]).astype(np.float32)


def unseen_structure(unseen: UnseenNodes, nodes: IntArray, names: Sequence[str]) -> FloatArray:
    """Return the columns of these nodes in the extended graph; columns that are not defined there are an error."""
    refused = [name for name in names if name in _GLOBAL]
    if refused:
        raise InputError(
            f"the structure columns {' and '.join(refused)} are not defined for unseen nodes: they belong to the graph "
            "as a whole; train without them (features.structure), or train again with the unseen nodes in the graph"
        )
    return structure_columns(unseen.extended(), names)[nodes]


def with_structure_features(graph: Graph, coordinates: int = _COORDINATES) -> Graph:
    """Return the graph with structural features, for graphs without features.

    Per node: the logarithms of degree and PageRank, standardised, and ``coordinates`` singular vectors.

    Examples
    --------
    >>> with_structure_features(Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]), coordinates=1).x.shape
    (3, 3)
    """
    logs = np.hstack([np.log1p(graph.degrees())[:, None], _pagerank(graph)])
    deviation = logs.std(axis=0)
    logs = (logs - logs.mean(axis=0)) / np.where(deviation > 1e-9, deviation, 1.0)
    return replace(graph, x=np.hstack([logs, _spectral(graph, coordinates)]).astype(np.float32))


def pagerank(graph: Graph, damping: float = 0.85, steps: int = 64) -> FloatArray:
    """Return the PageRank of each node of the graph as stored, r = (1 - d) / n + d Pᵀ r; shape (n,), sum 1."""
    adjacency = graph.adjacency()
    degree = np.asarray(adjacency.sum(axis=1))
    inverse = np.divide(1.0, degree, out=np.zeros(graph.n), where=degree > 0)
    transposed = sp.csr_array(adjacency.T)
    rank = np.full(graph.n, 1 / graph.n)
    for _ in range(steps):
        # nodes without outgoing edges spread their rank over all nodes
        dangling = rank[degree == 0].sum()
        rank = (1 - damping + damping * dangling) / graph.n + damping * (transposed @ (rank * inverse))
    return rank
