"""Moments: the learnable polynomial filter without eigenvectors, for graphs of any size.

The score of a pair under g(λ) = Σ_k w_k T_k(λ) is Σ_k w_k T_k(Ã)[v, u]. The entries T_k(Ã)[v, u], the moments of the
pair, are found by walks around v for a few candidates u; after that a step of training costs K products per pair.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.kernels.chebyshev import chebyshev_pairs
from gpatcher.kernels.overlay import Overlay
from gpatcher.patches.ppr import Walk, check_push, push_from, walk_arrays
from gpatcher.patches.spectral import PairProducts, merge_candidates
from gpatcher.scale.executors import LocalEngine

_STEPS = 4_000_000_000  # entries of Ã that all walks together may visit where no budget is given ...
_LEAST = 10_000  # ... but at least so many in a step from a node
_BLOCK = 64  # nodes walked from in one go
_WIDE_C, _WIDE_EPS = 0.9, 1e-4  # of the PageRank that finds the farther candidates
Progress = Callable[[int, int], None]


def moment_products(
    graph: Graph,
    K: int,
    candidates: int,
    *,
    c: float = 0.5,
    eps: float = 1e-5,
    self_loops: bool = False,
    budget: int | None = None,
    progress: Progress | None = None,
) -> PairProducts:
    """Choose candidates around every node by local push and make their moments: what `SpectralPatches` learns from.

    Half of the candidates are the top by personalised PageRank, as the filter starts, half by a wider one.

    Parameters
    ----------
    K : number of powers of the filter
    candidates : nodes around each node, itself included
    c, eps : of the PageRank that the filter starts as
    budget : see `pair_moments`
    progress : called with steps done and steps in all; a step is a node in one of three passes
    """

    def passed(number: int) -> Progress | None:
        return None if progress is None else lambda done, total: progress(number * total + done, 3 * total)

    walk = walk_arrays(graph, self_loops)
    check_push(candidates, c, eps)
    nodes = np.arange(graph.n)
    most = moment_budget(graph.n, K, budget)
    return walk_products(walk, nodes, K, candidates, c, eps, most, passed=passed)


def walk_products(
    walk: Walk,
    nodes: IntArray,
    K: int,
    candidates: int,
    c: float,
    eps: float,
    budget: int,
    *,
    added: Overlay = None,
    passed: Callable[[int], Progress | None] = lambda number: None,
) -> PairProducts:
    """Make the products of these nodes of an adjacency, to which rows may be added; see `moment_products`."""
    size = (candidates + 1) // 2
    near = push_from(walk, nodes, size, c, eps, added=added, progress=passed(0)).index
    wide_eps = max(eps, _WIDE_EPS)
    wide = push_from(walk, nodes, candidates, _WIDE_C, wide_eps, added=added, progress=passed(1)).index
    around = merge_candidates(near, wide, candidates)
    moments = _walk_moments(walk, nodes, around, K, budget, added, passed(2))
    return PairProducts(torch.from_numpy(around), torch.from_numpy(moments))


def pair_moments(
    graph: Graph,
    around: IntArray,
    K: int,
    *,
    nodes: IntArray | None = None,
    self_loops: bool = False,
    budget: int | None = None,
    progress: Progress | None = None,
) -> FloatArray:
    r"""Return M[v, j, k] = T_k(Ã)[v, u] for u = around[v, j] and k = 1 … K; float32, shape (rows, candidates, K).

    .. math:: T_{k+1}(\tilde A)\, e_v = 2 \tilde A\, T_k(\tilde A)\, e_v - T_{k-1}(\tilde A)\, e_v

    A step from a node visits at most ``budget`` entries of Ã, so time is O(n K budget) whatever the graph, and exact
    where the budget covers all entries. Beyond it the nodes that weigh least per entry do not pass their value on.
    With δ_j what they hold in step j, the error of M[v, ·, k] is at most 2 Σ_j (k - j) ‖δ_j‖ in the Euclidean norm.

    Parameters
    ----------
    around : candidates, shape (rows, candidates); -1 where there are no more
    nodes : the node of each row; by default row v is node v
    budget : by default what keeps the whole at about 4 · 10^9 visits, and at least 10,000
    progress : called with nodes done and nodes in all

    Examples
    --------
    >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> pair_moments(path, np.array([[0, 2]]), K=2, nodes=np.array([0]))[0].round(6)  # T_2 = 2Ã² - I
    array([[0., 0.],
           [0., 1.]], dtype=float32)
    """
    sources = np.arange(graph.n) if nodes is None else np.asarray(nodes, np.int64)
    most = moment_budget(graph.n, K, budget)
    return _walk_moments(walk_arrays(graph, self_loops), sources, around, K, most, None, progress)


def _walk_moments(
    walk: Walk,
    sources: IntArray,
    around: IntArray,
    K: int,
    budget: int,
    added: Overlay,
    progress: Progress | None,
) -> FloatArray:
    out = np.zeros((*around.shape, K), np.float32)

    def work(part: slice) -> None:
        chebyshev_pairs(*walk[:4], sources[part], around[part], budget, out[part], added)

    done = 0
    parts = (slice(start, min(start + _BLOCK, len(sources))) for start in range(0, len(sources), _BLOCK))
    for part, _ in LocalEngine().map(work, parts):
        done += part.stop - part.start
        if progress is not None:
            progress(done, len(sources))
    return out


def moment_budget(n: int, K: int, budget: int | None = None) -> int:
    """Return the entries of Ã that a step from a node may visit in a graph of n nodes, unless they are given."""
    if not K >= 1 or int(K) != K:
        raise InputError(f"K must be a whole number of at least 1, got {K}")
    if budget is not None and budget < 1:
        raise InputError(f"budget must be at least 1, got {budget}")
    return max(_LEAST, _STEPS // (n * K)) if budget is None else budget
