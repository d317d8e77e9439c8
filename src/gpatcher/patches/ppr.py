"""Patches by personalised PageRank (Fast-GPatcher, Eq. 8 to 10): local push, no eigenvectors."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from gpatcher.arrays import FloatArray, IntArray, as_node_index
from gpatcher.errors import InputError, check_choice
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.kernels.compile import Array
from gpatcher.kernels.csr import sum_rows
from gpatcher.kernels.degree_codes import degree_codes, pack_codes
from gpatcher.kernels.overlay import Overlay
from gpatcher.kernels.ppr_push import push_ppr
from gpatcher.patches.base import LocalExtractor, Patches, Progress
from gpatcher.patches.direction import DIRECTIONS, directed_adjacency
from gpatcher.scale.executors import LocalEngine
from gpatcher.spectral.filters import ppr_response

_BLOCK = 256  # source nodes at a time
_PACKED_NODES = range(1 << 16, 1 << 24)  # the codes of the degrees of fewer nodes fit into the cache as they are
_PACKED_BYTES = 1 << 30
_PACKED_SHARE = 16  # fewer sources than this part of the nodes do not pay for the copy
_NEGLIGIBLE = 1e-16  # a score or a remainder below this is a rounding error
_TIE = 1e-6  # scores that differ by a smaller fraction are equal in single precision


@dataclass(frozen=True)
class PPR(LocalExtractor):
    r"""Personalised PageRank, on the symmetric normalised adjacency or along directed edges.

    .. math:: r_v = (1 - c)(I - c\tilde A)^{-1} e_v, \qquad r_v = (1 - c)(I - cP^\top)^{-1} e_v

    with P = D⁻¹A the random walk along the edges (``out``) or in reverse (``in``); it ends at a node without such
    edges. Computed by local push: the error of a score is at most eps · sqrt(d_v d_u), for a directed walk eps times
    the sum of the degrees. A node that the walk does not reach is in no patch.

    Parameters
    ----------
    c : float
        Damping factor, in (0, 1): how far the walk goes.
    eps : float
        Residual per degree below which a node is not pushed; smaller values are more accurate.
    self_loops : bool
        Whether every node gets a self-loop.
    direction : {"both", "out", "in"}
        Which edges a walk follows: all as undirected, as stored, or reversed.
    edge_type : str, optional
        Follow edges of this type only.
    """

    name: ClassVar[str] = "ppr"
    c: float = 0.5
    eps: float = 1e-5
    self_loops: bool = False
    direction: str = "both"
    edge_type: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_walk(self.c, self.eps)
        check_choice("direction", self.direction, DIRECTIONS)

    def patches_of(self, graph: Graph, nodes: IntArray, progress: Progress | None = None) -> Patches:
        """Return the patches of these nodes; the cost does not depend on the number of the others."""
        return push_patches(graph, self, nodes, progress=progress)

    def prepare_unseen(self, unseen: UnseenNodes, *, memory: int | None = None) -> Patches:
        """Return the patches of the unseen nodes; the cost does not depend on the size of the graph."""
        unseen = unseen.of_type(self.edge_type)
        adjacency = cached_adjacency(unseen.graph, self.self_loops, self.direction)
        overlay = overlay_rows(unseen, adjacency, self.self_loops, self.direction)
        return push_from(adjacency, unseen.nodes, self.size, self.c, self.eps, overlay=overlay)

    def response(self, values: Tensor) -> Tensor:
        """Return (1 - c) / (1 - cλ)."""
        return ppr_response(values, self.c)


def check_walk(c: float, eps: float) -> None:
    """Raise where personalised PageRank is not defined for these parameters."""
    for name, value in (("c", c), ("eps", eps)):
        if not 0 < value < 1:
            raise InputError(f"{name} must lie in (0, 1), got {value}")


# ------------------------------------------------------------------------------------------------ adjacency


class WalkAdjacency(NamedTuple):
    """The adjacency of the walks, as arrays for the kernels; symmetric if edges are undirected."""

    indptr: IntArray
    indices: IntArray
    weights: FloatArray | None
    degree: FloatArray
    degree_codes: Array | None  # None if they are in the indices
    symmetric: bool

    def packed(self) -> WalkAdjacency:
        """Return the adjacency with the codes in a copy of the indices, if that is faster and not too large."""
        if self.degree_codes is None or self.degree_codes.size not in _PACKED_NODES:
            return self
        if 4 * self.indices.size > _PACKED_BYTES:
            return self
        return self._replace(indices=_read_only(pack_codes(self.indices, self.degree_codes)), degree_codes=None)


def walk_adjacency(graph: Graph, self_loops: bool, direction: str = "both") -> WalkAdjacency:
    """Return the arrays of an adjacency with self-loops at no node or at every node."""
    if not graph.self_loops and not self_loops and direction == "both":
        undirected = graph.undirected()
        indptr, indices, weights = undirected.indptr, undirected.indices, undirected.weights
        degree = undirected.degrees()
    else:
        matrix = directed_adjacency(graph, self_loops, direction)
        indptr, indices, weights = matrix.indptr.astype(np.int64), matrix.indices, matrix.data
        degree = np.asarray(matrix.sum(axis=1))
    codes = degree_codes(degree, weights is not None)
    weights = None if weights is None else _read_only(weights)
    indptr, indices, degree, codes = map(_read_only, (indptr, indices, degree, codes))
    return WalkAdjacency(indptr, indices, weights, degree, codes, direction == "both")


def _read_only(array: Array) -> Array:
    """Return a view like the arrays of a graph, or of a Ray task, so that kernels are compiled once for all of them."""
    view = array.view()
    view.flags.writeable = False
    return view


_ADJACENCIES: MutableMapping[Graph, dict[tuple[bool, str], WalkAdjacency]] = WeakKeyDictionary()


def cached_adjacency(graph: Graph, self_loops: bool, direction: str = "both") -> WalkAdjacency:
    """Return `walk_adjacency`, cached per graph for repeated predictions of a few nodes."""
    cached = _ADJACENCIES.setdefault(graph, {})
    if (self_loops, direction) not in cached:
        cached[self_loops, direction] = walk_adjacency(graph, self_loops, direction)
    return cached[self_loops, direction]


def overlay_rows(unseen: UnseenNodes, adjacency: WalkAdjacency, self_loops: bool, direction: str = "both") -> Overlay:
    """Return the rows of an adjacency that unseen nodes add or change: those of new nodes and their neighbours."""
    new = unseen.rows >= unseen.graph.n
    matrix = directed_adjacency(unseen.edges, False, direction)
    if self_loops:
        matrix = sp.csr_array(matrix + sp.diags_array(new.astype(np.float64)))  # known nodes already have a self-loop
    matrix.sort_indices()
    indices = unseen.rows[matrix.indices].astype(adjacency.indices.dtype)
    weights = None if adjacency.weights is None else matrix.data.astype(adjacency.weights.dtype)
    # added to the degrees of known nodes in row order: bitwise equal to the sums of the extended graph
    degree = np.zeros(len(unseen.rows))
    degree[~new] = adjacency.degree[unseen.rows[~new]]
    sum_rows(matrix.indptr, matrix.data, degree)
    return unseen.rows, matrix.indptr.astype(np.int64), indices, weights, degree


# ------------------------------------------------------------------------------------------------ push


def push_patches(
    graph: Graph,
    extractor: PPR,
    nodes: IntArray | None = None,
    *,
    progress: Progress | None = None,
    threads: int | None = None,
) -> Patches:
    """Return the patches of some nodes, by default all; the result does not depend on the number of threads."""
    sources = np.arange(graph.n) if nodes is None else as_node_index(nodes, graph.n)
    walked = graph.of_type(extractor.edge_type), extractor.self_loops, extractor.direction
    many = _PACKED_SHARE * len(sources) >= graph.n
    adjacency = walk_adjacency(*walked).packed() if many else cached_adjacency(*walked)
    return push_from(adjacency, sources, extractor.size, extractor.c, extractor.eps, progress=progress, threads=threads)


def push_from(
    adjacency: WalkAdjacency,
    sources: IntArray,
    size: int,
    c: float,
    eps: float,
    *,
    overlay: Overlay = None,
    progress: Progress | None = None,
    threads: int | None = None,
) -> Patches:
    """Return the patches of these sources on an adjacency, with rows replaced or added by ``overlay``."""
    patches = Patches.empty(len(sources), size)

    def push(part: slice) -> None:
        push_ppr(*adjacency, sources[part], c, eps, patches.index[part], patches.score[part], overlay)

    run_blocks(push, len(sources), _BLOCK, progress, threads)
    return patches


def run_blocks(
    work: Callable[[slice], None], total: int, block: int, progress: Progress | None, threads: int | None = None
) -> None:
    """Call ``work`` on consecutive slices of ``total`` rows, on threads; the kernels release the GIL."""
    done = 0
    parts = (slice(start, min(start + block, total)) for start in range(0, total, block))
    for part, _ in LocalEngine(threads).map(work, parts):
        done += part.stop - part.start
        if progress is not None:
            progress(done, total)


# ------------------------------------------------------------------------------------------------ checks


def ppr_scores(graph: Graph, nodes: IntArray, c: float, self_loops: bool = False) -> FloatArray:
    """Return the rows r_v = (1 - c)(I - cÃ)^-1 e_v to the precision of float64, shape (b, n).

    (1 - c) / (1 - cλ) has the Chebyshev coefficients w_0 = (1 - c) / s and w_k = 2 w_0 t^k, where s = sqrt(1 - c²) and
    t = (1 - s) / c, so a few products with Ã, O(m) each, are exact. Meant for checks on some nodes.
    """
    matrix = graph.normalised(self_loops)
    root = np.sqrt(1 - c * c)
    ratio = (1 - root) / c
    previous = np.zeros((graph.n, len(nodes)))
    previous[nodes, np.arange(len(nodes))] = 1.0
    current = matrix @ previous
    weight = 2 * (1 - c) / root * ratio
    total = (1 - c) / root * previous + weight * current
    while weight > _NEGLIGIBLE:
        weight *= ratio
        previous, current = current, 2 * (matrix @ current) - previous
        total += weight * current
    return np.ascontiguousarray(total.T)


def top_recall(patches: Patches, scores: FloatArray) -> FloatArray:
    """Return the fraction of the true top p - 1, by exact scores (b, n), that each of b patches contains, shape (b,).

    Where several nodes tie with the last of the true top, any of them counts.
    """
    recall = np.ones(len(scores))
    for row, (members, exact) in enumerate(zip(patches.index, scores, strict=True)):
        others = exact.copy()
        others[members[0]] = 0.0
        count = min(patches.size - 1, int((others > _NEGLIGIBLE).sum()))
        if count:
            last = np.partition(others, -count)[-count]
            selected = members[1:][members[1:] >= 0]
            recall[row] = (others[selected] >= last * (1 - _TIE)).sum() / count
    return recall
