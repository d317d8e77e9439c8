"""Rows added to a CSR graph without copying it, for unseen nodes."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit

# (rows, indptr, indices, weights, degree) of the few nodes, in ascending order, that are unseen or have unseen
# neighbours. An added row extends the row of an old node; ``degree`` counts both.
Overlay = tuple[Array, Array, Array, Array | None, Array] | None


@jit
def overlay_row(rows: Array, node: int) -> int:
    """Return the position of a node among the added rows, or -1."""
    at = np.searchsorted(rows, node)
    return at if at < rows.size and rows[at] == node else -1  # type: ignore[return-value]


@jit
def node_degree(indptr: Array, weights: Array | None, degree: Array, added: Overlay, node: int) -> float:
    """Return the degree of a node, added rows included."""
    if added is not None:
        at = overlay_row(added[0], node)
        if at >= 0:
            return added[4][at]
    elif weights is None:
        return float(indptr[node + 1] - indptr[node])  # a push reads these anyway
    return degree[node]


@jit
def row_length(indptr: Array, added: Overlay, node: int) -> int:
    """Return the number of entries of a node's row, added ones included."""
    count = 0
    if node < indptr.size - 1:
        count = indptr[node + 1] - indptr[node]
    if added is not None:
        at = overlay_row(added[0], node)
        if at >= 0:
            count += added[1][at + 1] - added[1][at]
    return count
