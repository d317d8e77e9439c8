"""All pairs of rows whose cosine reaches a threshold, without comparing all pairs."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit
from gpatcher.kernels.topk import insert_sorted

_ROUNDING = 1e-9  # cosines this close are equal
_BELOW_ONE = np.nextafter(np.float32(1), np.float32(0))  # the score of rows that are unequal by less than its precision


@jit
def prefix_ends(indptr: Array, values: Array, threshold: float) -> Array:
    """Return where the prefix of each row ends: the entries after it have a norm below the threshold.

    Rows have norm 1. If columns are in one order, two rows whose cosine reaches the threshold have a common column in
    both prefixes (Bayardo et al., 2007): else the cosine would be at most the norm of what follows one of them.
    """
    ends = indptr[1:].copy()
    for v in range(ends.size):
        rest = 0.0
        while ends[v] > indptr[v]:
            rest += values[ends[v] - 1] ** 2
            if rest >= threshold**2 - _ROUNDING:
                break
            ends[v] -= 1
    return ends


@jit
def select_similar(
    rows: tuple[Array, Array, Array],
    ends: Array,
    columns: tuple[Array, Array],
    nodes: Array,
    threshold: float,
    index: Array,
    score: Array,
) -> None:
    """Write the patch of each node: itself, then the rows most similar to its own, by descending cosine.

    ``rows`` is a CSR matrix of rows of norm 1; ``columns`` has, for each column, the rows that have it in their prefix,
    ascending. Equal rows are found first, so that the search ends where a patch is full of them.
    """
    indptr, indices, values = rows
    starts, sharing = columns
    own = np.zeros(starts.size - 1)
    compared = np.full(indptr.size - 1, -1)
    for r in range(nodes.size):
        v = nodes[r]
        index[r, 0] = v
        score[r, 0] = 1.0 if indptr[v + 1] > indptr[v] else 0.0
        for e in range(indptr[v], indptr[v + 1]):
            own[indices[e]] = values[e]
        count, full = np.int64(0), index.shape[1] - 1
        for e in range(indptr[v], ends[v]):
            for at in range(starts[indices[e]], starts[indices[e] + 1]):
                if count == full and (full == 0 or score[r, full] == 1):
                    break
                u = sharing[at]
                if u == v or compared[u] == r:
                    continue
                compared[u] = r
                cosine = 0.0
                for other in range(indptr[u], indptr[u + 1]):
                    cosine += own[indices[other]] * values[other]
                if cosine >= threshold - _ROUNDING:
                    similarity = np.float32(1) if cosine > 1 - _ROUNDING else min(np.float32(cosine), _BELOW_ONE)
                    count = insert_sorted(similarity, u, score[r, 1:], index[r, 1:], count)
        for e in range(indptr[v], indptr[v + 1]):
            own[indices[e]] = 0.0
