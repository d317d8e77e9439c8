"""Patches by personalised PageRank (Fast-GPatcher): local push, no eigenvectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError, counted, some
from gpatcher.graph.graph import Graph
from gpatcher.kernels.compile import Array
from gpatcher.kernels.overlay import Overlay
from gpatcher.kernels.ppr_push import degree_codes, push_ppr
from gpatcher.patches.base import Patches, check_size, empty_patches
from gpatcher.scale.executors import LocalEngine

_EXACT = 1e-16  # what is left of a score, or a score that is none
_TIE = 1e-6  # scores that differ less, as a share, are equal in single precision
_PUSHED = 256  # nodes pushed from in one go
# indptr, indices, weights, degrees and their codes
Walk = tuple[IntArray, IntArray, FloatArray | None, FloatArray, Array]


def push_patches(
    graph: Graph,
    size: int,
    c: float = 0.5,
    eps: float = 1e-5,
    self_loops: bool = False,
    nodes: IntArray | None = None,
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> Patches:
    """Take the top of r_v = (1 - c)(I - cÃ)^-1 e_v (Eq. 8 to 10, Fast-GPatcher) by local push.

    The error of a score is at most eps · sqrt(d_v d_u). A node that the walk does not reach is in no patch.

    Parameters
    ----------
    nodes : the nodes whose patches are wanted; all by default
    progress : called with nodes done and nodes in all
    threads : by default one for each core; the result does not depend on it
    """
    size = check_push(size, c, eps)
    sources = np.arange(graph.n) if nodes is None else np.asarray(nodes)
    sources = np.flatnonzero(sources) if sources.dtype.kind == "b" else sources.astype(np.int64)
    beyond = sources[(sources < 0) | (sources >= graph.n)]
    if beyond.size:
        raise InputError(
            f"{counted(beyond.size, 'node is', 'nodes are')} not in the graph: {some(beyond)}; it "
            f"has 0 to {graph.n - 1}"
        )
    return push_from(walk_arrays(graph, self_loops), sources, size, c, eps, progress=progress, threads=threads)


def push_from(
    walk: Walk,
    sources: IntArray,
    size: int,
    c: float,
    eps: float,
    *,
    added: Overlay = None,
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> Patches:
    """Take the top by local push from these nodes of an adjacency, to which rows may be added."""
    patches = empty_patches(len(sources), size)

    def work(part: slice) -> None:
        push_ppr(*walk, sources[part], c, eps, patches.index[part], patches.score[part], added)

    done = 0
    parts = (slice(start, min(start + _PUSHED, len(sources))) for start in range(0, len(sources), _PUSHED))
    for part, _ in LocalEngine(threads).map(work, parts):
        done += part.stop - part.start
        if progress is not None:
            progress(done, len(sources))
    return patches


def check_push(size: int, c: float, eps: float) -> int:
    """Refuse what personalised PageRank cannot be asked for; return the size."""
    if not 0 < c < 1:
        raise InputError(f"c must lie in (0, 1), got {c}")
    if not 0 < eps < 1:
        raise InputError(f"eps must lie in (0, 1), got {eps}")
    return check_size(size)


def walk_arrays(graph: Graph, self_loops: bool) -> Walk:
    """Return the adjacency that Ã is made of, as CSR arrays, its degrees and their codes."""
    both = graph.undirected()
    if not graph.self_loops and not self_loops:
        indptr, indices, weights, degree = both.indptr, both.indices, both.weights, both.degrees()
    else:
        matrix = graph.adjacency(self_loops=self_loops)
        indptr, indices, weights = matrix.indptr.astype(np.int64), matrix.indices, matrix.data
        degree = np.asarray(matrix.sum(axis=1))
    return indptr, indices, weights, degree, degree_codes(degree)


def push_block(
    part: tuple[int, int],
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray | None,
    degree: FloatArray,
    codes: Array,
    size: int,
    c: float,
    eps: float,
) -> Patches:
    """Return the patches of the nodes from part[0] up to part[1]; a piece of work for an engine."""
    sources = np.arange(*part)
    patches = empty_patches(len(sources), size)
    push_ppr(indptr, indices, weights, degree, codes, sources, c, eps, patches.index, patches.score)
    return patches


def ppr_scores(graph: Graph, nodes: IntArray, c: float, self_loops: bool = False) -> FloatArray:
    """Return the rows r_v = (1 - c)(I - cÃ)^-1 e_v of these nodes to the precision of float64; shape (b, n).

    (1 - c) / (1 - cλ) has the Chebyshev coefficients w_0 = (1 - c) / s and w_k = 2 w_0 t^k, where s = sqrt(1 - c²) and
    t = (1 - s) / c, so a few products with Ã are exact: O(m) each, which is for checks and not for all nodes.
    """
    matrix = graph.normalised(self_loops)
    root = np.sqrt(1 - c * c)
    ratio = (1 - root) / c
    before = np.zeros((graph.n, len(nodes)))
    before[nodes, np.arange(len(nodes))] = 1.0
    now = matrix @ before
    weight = 2 * (1 - c) / root * ratio
    total = (1 - c) / root * before + weight * now
    while weight > _EXACT:
        weight *= ratio
        before, now = now, 2 * (matrix @ now) - before
        total += weight * now
    return np.ascontiguousarray(total.T)


def top_recall(patches: Patches, scores: FloatArray) -> FloatArray:
    """Return, for each patch, the share of its node's true top p - 1 that it holds; shape (b,).

    Where several nodes score the same as the last of the true ones, any of them is right.

    Parameters
    ----------
    patches : of some nodes
    scores : exact scores of all nodes for each of them, shape (b, n)
    """
    recall = np.ones(len(scores))
    for row, (members, exact) in enumerate(zip(patches.index, scores, strict=True)):
        others = exact.copy()
        others[members[0]] = 0.0
        wanted = min(patches.size - 1, int((others > _EXACT).sum()))
        if wanted:
            last = np.partition(others, -wanted)[-wanted]
            found = members[1:][members[1:] >= 0]
            recall[row] = (others[found] >= last * (1 - _TIE)).sum() / wanted
    return recall
