"""Patches by overlap: the nodes whose neighbourhoods are nearly the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError, check_choice
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.kernels.overlap import prefix_ends, select_similar
from gpatcher.patches.base import LocalExtractor, Patches, Progress
from gpatcher.patches.direction import DIRECTIONS, step_matrix
from gpatcher.patches.ppr import run_blocks

_BLOCK = 8192  # nodes at a time
_SAMPLE = 2000  # nodes from which the coverage is estimated


@dataclass(frozen=True)
class Overlap(LocalExtractor):
    r"""Patches of the nodes whose neighbourhood is that of the node, or nearly so; they need not be connected.

    .. math:: r_v(u) = \cos(s_v, s_u), \qquad S = D_{out}^{-1/2} A D_{in}^{-1/2}

    with the rows s of S along the edges (``out``: nodes that point to the same nodes, as in bibliographic coupling), in
    reverse (``in``: nodes that the same nodes point to, as in co-citation), or on the undirected graph (``both``). A
    common neighbour counts less the more neighbours it has. Whether or not neighbours agree, such nodes often do, so
    their labels are informative: read them with ``labels`` in ``readout``.

    Parameters
    ----------
    threshold : float
        Smallest cosine of a member, in (0, 1]; at 1 members have the same neighbours.
    direction : {"both", "out", "in"}
        Which edges make a neighbourhood: all as undirected, as stored, or reversed.
    self_loops : bool
        Whether a node is in its own neighbourhood; connected nodes can then have the same.
    edge_type : str, optional
        Use edges of this type only.
    """

    name: ClassVar[str] = "overlap"
    threshold: float = 0.95
    direction: str = "both"
    self_loops: bool = False
    edge_type: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("direction", self.direction, DIRECTIONS)
        if not 0 < self.threshold <= 1:
            raise InputError(f"threshold must lie in (0, 1], got {self.threshold}")

    def prepare_unseen(self, unseen: UnseenNodes, *, memory: int | None = None) -> Patches:
        """Return the patches of the unseen nodes; builds the extended graph."""
        return self.patches_of(unseen.extended(), unseen.nodes)

    def coverage(self, graph: Graph) -> float:
        """Return the fraction of nodes with a member beside themselves, from a sample."""
        nodes = np.sort(np.random.default_rng(0).permutation(graph.n)[:_SAMPLE])
        members = (self.patches_of(graph, nodes).index >= 0).sum(axis=1)
        return float((members > 1).mean())

    def response(self, values: Tensor) -> Tensor:
        """Return λ², the response of Ã², from which the cosines are computed."""
        return values**2

    def patches_of(self, graph: Graph, nodes: IntArray, progress: Progress | None = None) -> Patches:
        """Return the patches of these nodes."""
        rows = _unit_rows(step_matrix(graph.of_type(self.edge_type), self.self_loops, self.direction))
        ends = prefix_ends(rows.indptr, rows.data, self.threshold)
        columns = _prefix_columns(rows, ends)
        patches = Patches.empty(len(nodes), self.size)

        def select(part: slice) -> None:
            csr = (rows.indptr, rows.indices, rows.data)
            found = patches.index[part], patches.score[part]
            select_similar(csr, ends, (columns.indptr, columns.indices), nodes[part], self.threshold, *found)

        run_blocks(select, len(nodes), _BLOCK, progress)
        return patches


def _unit_rows(matrix: sp.csr_array) -> sp.csr_array:
    """Return the rows divided by their norms, with columns from the rarest to the most frequent."""
    count = np.bincount(matrix.indices, minlength=matrix.shape[1])
    rank = np.empty(len(count), matrix.indices.dtype)
    rank[np.argsort(count, kind="stable")] = np.arange(len(count))
    norms = np.sqrt(matrix.multiply(matrix).sum(axis=1))
    values = matrix.data / np.repeat(norms, np.diff(matrix.indptr))
    rows = sp.csr_array((values, rank[matrix.indices], matrix.indptr), shape=matrix.shape)
    rows.sort_indices()
    return rows


def _prefix_columns(rows: sp.csr_array, ends: IntArray) -> sp.csc_array:
    """Return the prefixes of the rows by column."""
    kept = np.arange(rows.nnz) < np.repeat(ends, np.diff(rows.indptr))
    indices = rows.indices[kept]
    indptr = np.concatenate([[0], np.cumsum(ends - rows.indptr[:-1])])
    return sp.csc_array(sp.csr_array((np.ones(len(indices), np.int8), indices, indptr), shape=rows.shape))
