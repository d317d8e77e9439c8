"""Patches by hop: the nodes that are reached by a walk of k steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from gpatcher.arrays import IntArray
from gpatcher.errors import check_choice, check_count
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.kernels.topk import top_of_sparse_rows
from gpatcher.patches.base import Extractor, LocalExtractor, Patches, Progress
from gpatcher.patches.direction import DIRECTIONS, directed_adjacency, step_matrix
from gpatcher.patches.ppr import run_blocks

_BLOCK = 256  # rows of the power at a time


@dataclass(frozen=True)
class Hop(LocalExtractor):
    r"""Patches by the k-th power of the normalised adjacency.

    .. math:: r_v = (S^\top)^k e_v, \qquad S = D_{out}^{-1/2} A D_{in}^{-1/2}

    along the edges (``out``), in reverse (``in``, Aᵀ in place of A), or on the undirected graph (``both``, S = Ã). With
    ``hop=1`` and a size above the largest degree, the sum over a patch is that of a GCN layer without self-loops.

    Parameters
    ----------
    hop : int
        Number of steps k.
    direction : {"both", "out", "in"}
        Which edges a step follows: all as undirected, as stored, or reversed.
    self_loops : bool
        Whether every node gets a self-loop.
    edge_type : str, optional
        Follow edges of this type only.
    """

    name: ClassVar[str] = "hop"
    hop: int = 1
    direction: str = "both"
    self_loops: bool = False
    edge_type: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("direction", self.direction, DIRECTIONS)
        check_count(hop=self.hop)

    def resolve(self, graph: Graph, memory: int | None = None) -> tuple[Extractor, ...]:
        """Return the extractor with its size reduced to the largest patch of this graph."""
        largest = graph.n
        if self.hop == 1:
            adjacency = directed_adjacency(graph.of_type(self.edge_type), False, self.direction)
            largest = 1 + int(np.diff(adjacency.indptr).max(initial=0))
        return (replace(self, size=min(self.size, largest)),)

    def prepare_unseen(self, unseen: UnseenNodes, *, memory: int | None = None) -> Patches:
        """Return the patches of the unseen nodes; builds the extended graph."""
        return self.patches_of(unseen.extended(), unseen.nodes)

    def response(self, values: Tensor) -> Tensor:
        """Return λ^k."""
        return values**self.hop

    def patches_of(self, graph: Graph, nodes: IntArray, progress: Progress | None = None) -> Patches:
        """Return the patches of these nodes."""
        step = step_matrix(graph.of_type(self.edge_type), self.self_loops, self.direction)
        patches = Patches.empty(len(nodes), self.size)

        def select(part: slice) -> None:
            rows = sp.csr_array(step[nodes[part]])
            for _ in range(self.hop - 1):
                rows = rows @ step
            top_of_sparse_rows(
                rows.indptr, rows.indices, rows.data, nodes[part], patches.index[part], patches.score[part]
            )

        run_blocks(select, len(nodes), _BLOCK, progress)
        return patches
