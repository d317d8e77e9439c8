"""Directions of edges: undirected, as stored, or reversed."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gpatcher.arrays import FloatArray
from gpatcher.graph.graph import Graph

DIRECTIONS = ("both", "out", "in")


def directed_adjacency(graph: Graph, self_loops: bool, direction: str) -> sp.csr_array:
    """Return the adjacency whose row v has the nodes one step from v, with self-loops at no node or at every node."""
    if direction == "both":
        return graph.adjacency(self_loops=self_loops)
    stored = graph.adjacency()
    matrix = sp.csr_array(stored if direction == "out" else stored.T, copy=True)
    if graph.self_loops or self_loops:
        matrix.setdiag(float(self_loops))
        matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix


def step_matrix(graph: Graph, self_loops: bool, direction: str) -> sp.csr_array:
    """Return D_r^-1/2 A D_c^-1/2 with the row and column sums of `directed_adjacency`; Ã for ``both``."""
    if direction == "both":
        return graph.normalised(self_loops)
    matrix = directed_adjacency(graph, self_loops, direction)
    rows, columns = (sp.diags_array(_inverse_root(matrix.sum(axis=axis))) for axis in (1, 0))
    return sp.csr_array(rows @ matrix @ columns)


def _inverse_root(degree: FloatArray) -> FloatArray:
    return np.divide(1.0, np.sqrt(degree), out=np.zeros(len(degree)), where=degree > 0)


def count_ends(graph: Graph, direction: str) -> int:
    """Return the number of nodes that a walk in this direction cannot leave."""
    matrix = directed_adjacency(graph, False, direction)
    return int((np.diff(matrix.indptr) == 0).sum())
