"""The learned polynomial filter without eigenvectors, for graphs of any size.

The score of a pair under g(λ) = Σ_k w_k T_k(λ) is Σ_k w_k T_k(Ã)[v, u]. The entries T_k(Ã)[v, u], the moments of the
pair, are computed by walks around v for a few candidates u; a training step then costs K products per pair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import check_at_least, check_count
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.kernels.chebyshev import chebyshev_pairs
from gpatcher.kernels.overlay import Overlay
from gpatcher.patches.base import Extractor, Progress
from gpatcher.patches.ppr import (
    WalkAdjacency,
    cached_adjacency,
    check_walk,
    overlay_rows,
    push_from,
    run_blocks,
    walk_adjacency,
)
from gpatcher.patches.spectral import WIDE_C, LearnedFilter, PairProducts, merge_candidates
from gpatcher.spectral.filters import Polynomial
from gpatcher.spectral.spectrum import is_affordable

_TOTAL_BUDGET = 4_000_000_000  # entries of Ã that all walks together visit by default ...
_LEAST_BUDGET = 10_000  # ... but at least this many in a step from a node
_BLOCK = 64  # source nodes at a time
_WIDE_EPS = 1e-4  # of the PageRank that finds the farther candidates


@dataclass(frozen=True)
class PolynomialFilter(LearnedFilter):
    """Patches by the filter `Polynomial`: one weight per power; see `LearnedFilter` for the other parameters.

    Parameters
    ----------
    eps : float
        Residual per degree of the push that finds candidates, if no eigenvectors are used.
    exact : bool, optional
        Whether to use eigenvectors; by default if they exceed neither the memory nor ten minutes.
    """

    name: ClassVar[str] = "polynomial"
    needs_eigenvectors: ClassVar[bool] = False
    eps: float = 1e-5
    exact: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_walk(self.c, self.eps)

    def filter(self) -> Polynomial:
        """Return the filter before training."""
        return Polynomial(K=self.K, c=self.c)

    def resolve(self, graph: Graph, memory: int | None = None) -> tuple[Extractor, ...]:
        """Return the filter with ``exact`` decided."""
        return (replace(self, exact=self._is_exact(graph.n, memory)),)

    def _is_exact(self, n: int, memory: int | None) -> bool:
        """Return whether eigenvectors are used in a graph of n nodes."""
        return is_affordable(n, memory) if self.exact is None else self.exact

    def prepare(self, graph: Graph, *, memory: int | None = None, progress: Progress | None = None) -> PairProducts:
        """Choose candidates around every node and compute their products, with or without eigenvectors."""
        if self._is_exact(graph.n, memory):
            return super().prepare(graph, memory=memory, progress=progress)
        adjacency = walk_adjacency(graph, self.self_loops)
        return moment_products(adjacency, np.arange(graph.n), self, moment_budget(graph.n, self.K), progress=progress)

    def prepare_unseen(self, unseen: UnseenNodes, *, memory: int | None = None) -> PairProducts:
        """Return the products of the unseen nodes; without eigenvectors, only by walks from these nodes."""
        n = unseen.graph.n + unseen.count
        if self._is_exact(n, memory):
            return super().prepare_unseen(unseen, memory=memory)
        adjacency = cached_adjacency(unseen.graph, self.self_loops)
        budget = moment_budget(n, self.K)
        overlay = overlay_rows(unseen, adjacency, self.self_loops)
        return moment_products(adjacency, unseen.nodes, self, budget, overlay=overlay)


def moment_products(
    adjacency: WalkAdjacency,
    nodes: IntArray,
    extractor: PolynomialFilter,
    budget: int,
    *,
    overlay: Overlay = None,
    progress: Progress | None = None,
) -> PairProducts:
    """Choose candidates around nodes by local push and compute their moments, for `SpectralPatches`.

    Half of the candidates are the top by personalised PageRank, the initial filter, half by one with a wider reach.
    """

    def in_pass(number: int) -> Callable[[int, int], None] | None:
        return None if progress is None else lambda done, total: progress(number * total + done, 3 * total)

    count, eps = extractor.candidate_count, extractor.eps
    near = push_from(adjacency, nodes, (count + 1) // 2, extractor.c, eps, overlay=overlay, progress=in_pass(0)).index
    wide = push_from(adjacency, nodes, count, WIDE_C, max(eps, _WIDE_EPS), overlay=overlay, progress=in_pass(1)).index
    candidates = merge_candidates(near, wide, count)
    moments = _walk_moments(adjacency, nodes, candidates, extractor.K, budget, overlay, in_pass(2))
    return PairProducts(torch.from_numpy(candidates), torch.from_numpy(moments))


def pair_moments(
    graph: Graph,
    candidates: IntArray,
    K: int,
    *,
    nodes: IntArray | None = None,
    self_loops: bool = False,
    budget: int | None = None,
    progress: Progress | None = None,
) -> FloatArray:
    r"""Return M[v, j, k] = T_k(Ã)[v, u] for u = candidates[v, j] and k = 1 … K; float32, shape (rows, candidates, K).

    .. math:: T_{k+1}(\tilde A)\, e_v = 2 \tilde A\, T_k(\tilde A)\, e_v - T_{k-1}(\tilde A)\, e_v

    A step from a node visits at most ``budget`` entries of Ã, so the time is O(n K budget) on any graph; the result is
    exact if the budget covers all entries. Otherwise the nodes with the smallest values per entry are not propagated.
    With δ_j their values in step j, the error of M[v, ·, k] is at most 2 Σ_j (k - j) ‖δ_j‖ in the Euclidean norm.

    Row v of ``candidates``, padded with -1, belongs to ``nodes[v]``, by default to node v. The default budget limits
    all walks together to about 4 · 10^9 visits, and is at least 10,000.

    Examples
    --------
    >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> pair_moments(path, np.array([[0, 2]]), K=2, nodes=np.array([0]))[0].round(6)  # T_2 = 2Ã² - I
    array([[0., 0.],
           [0., 1.]], dtype=float32)
    """
    sources = np.arange(graph.n) if nodes is None else np.asarray(nodes, np.int64)
    budget = moment_budget(graph.n, K, budget)
    return _walk_moments(walk_adjacency(graph, self_loops), sources, candidates, K, budget, None, progress)


def _walk_moments(
    adjacency: WalkAdjacency,
    sources: IntArray,
    candidates: IntArray,
    K: int,
    budget: int,
    overlay: Overlay,
    progress: Progress | None,
) -> FloatArray:
    out = np.zeros((*candidates.shape, K), np.float32)

    def walk(part: slice) -> None:
        chebyshev_pairs(*adjacency[:4], sources[part], candidates[part], budget, out[part], overlay)

    run_blocks(walk, len(sources), _BLOCK, progress)
    return out


def moment_budget(n: int, K: int, budget: int | None = None) -> int:
    """Return the budget if given, else the default number of entries of Ã that a step from a node may visit."""
    check_count(K=K)
    budget = max(_LEAST_BUDGET, _TOTAL_BUDGET // (n * K)) if budget is None else budget
    check_at_least(1, budget=budget)
    return budget
