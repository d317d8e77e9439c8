"""The top of each row of scores."""

from __future__ import annotations

from gpatcher.kernels.compile import Array, jit


@jit
def _comes_before(score: float, node: int, other_score: float, other_node: int) -> bool:
    return score > other_score or (score == other_score and node < other_node)


@jit
def insert_sorted(score: float, node: int, scores: Array, nodes: Array, count: int) -> int:
    """Insert a node into a list kept by falling score, then by rising id; return the new length."""
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
    """Write the patch of each row of scores: the ego node, then the others by falling score and rising id.

    ``rows`` (b, n) are the scores of nodes first, first + 1, ...; ``index`` and ``score`` (b, p) come filled
    with -1 and 0. A node whose score is at most ``least`` times the row's largest in size is left out.
    """
    for r in range(rows.shape[0]):
        ego = first + r
        largest = 0.0
        for u in range(rows.shape[1]):
            largest = max(largest, abs(rows[r, u]))
        floor = least * largest
        index[r, 0] = ego
        score[r, 0] = rows[r, ego]
        count = 0
        for u in range(rows.shape[1]):
            s = rows[r, u]
            if u != ego and abs(s) > floor:
                count = insert_sorted(s, u, score[r, 1:], index[r, 1:], count)


@jit
def top_of_candidates(around: Array, score: Array, places: Array) -> None:
    """Write where the first of each row stand, by falling score, then by rising id.

    ``around`` and ``score`` are (b, candidates), ``places`` (b, p) with p at most the candidates.
    """
    size = places.shape[1]
    for v in range(places.shape[0]):
        for j in range(around.shape[1]):
            at = min(j, size)
            while at > 0:
                other = places[v, at - 1]
                if not _comes_before(score[v, j], around[v, j], score[v, other], around[v, other]):
                    break
                if at < size:
                    places[v, at] = other
                at -= 1
            if at < size:
                places[v, at] = j
