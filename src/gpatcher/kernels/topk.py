"""Top-p of each row of scores; ties are broken by node id."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit


@jit
def _comes_before(score: float, node: int, other_score: float, other_node: int) -> bool:
    """Return whether a node ranks before another: by descending score, then by ascending id."""
    return score > other_score or (score == other_score and node < other_node)


@jit
def insert_sorted(score: float, node: int, scores: Array, nodes: Array, count: int) -> int:
    """Insert a node into a list sorted by descending score, then ascending id; return the new length."""
    size = nodes.size
    if size == 0:
        return 0
    if count == size:
        if not _comes_before(score, node, scores[size - 1], nodes[size - 1]):
            return count
        count -= 1
    at = count
    while at > 0 and _comes_before(score, node, scores[at - 1], nodes[at - 1]):
        scores[at] = scores[at - 1]
        nodes[at] = nodes[at - 1]
        at -= 1
    scores[at] = score
    nodes[at] = node
    return count + 1


@jit
def top_of_rows(rows: Array, first: int, least: float, index: Array, score: Array) -> None:
    """Write the patches of nodes first, first + 1, ...: the ego node, then others by descending score and ascending id.

    Row r of ``rows`` has the scores of one node; those of at most ``least`` times its largest, in absolute value, are
    left out. ``index`` and ``score``, shape (b, p), start as -1 and 0.
    """
    for r in range(rows.shape[0]):
        ego = first + r
        largest = 0.0
        for u in range(rows.shape[1]):
            largest = max(largest, abs(rows[r, u]))
        floor = least * largest
        index[r, 0] = ego
        score[r, 0] = rows[r, ego]
        count = np.int64(0)
        for u in range(rows.shape[1]):
            s = rows[r, u]
            if u != ego and abs(s) > floor:
                count = insert_sorted(s, u, score[r, 1:], index[r, 1:], count)


@jit
def top_of_candidates(candidates: Array, score: Array, positions: Array) -> None:
    """Write the columns of the top p candidates of each row, by descending score and ascending id."""
    size = positions.shape[1]
    for v in range(positions.shape[0]):
        for j in range(candidates.shape[1]):
            at = min(j, size)
            while at > 0:
                other = positions[v, at - 1]
                if not _comes_before(score[v, j], candidates[v, j], score[v, other], candidates[v, other]):
                    break
                if at < size:
                    positions[v, at] = other
                at -= 1
            if at < size:
                positions[v, at] = j


@jit
def top_of_sparse_rows(indptr: Array, indices: Array, values: Array, nodes: Array, index: Array, score: Array) -> None:
    """Write the patch of each node from its row in CSR form: the ego node, then its largest entries above 0."""
    for r in range(nodes.size):
        index[r, 0] = nodes[r]
        count = np.int64(0)
        for e in range(indptr[r], indptr[r + 1]):
            if indices[e] == nodes[r]:
                score[r, 0] = values[e]
            elif values[e] > 0:
                count = insert_sorted(np.float32(values[e]), indices[e], score[r, 1:], index[r, 1:], count)
