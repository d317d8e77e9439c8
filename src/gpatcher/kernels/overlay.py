"""Rows added to a CSR graph without a copy of it, for nodes that arrive after training."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit

# Rows added to a graph without copying it: (rows, indptr, indices, weights, degree) of the few nodes, in rising order,
# that are new or have new neighbours. The row of an old node goes on in its added one; ``degree`` counts both.
Overlay = tuple[Array, Array, Array, Array | None, Array] | None


@jit
def overlay_row(rows: Array, node: int) -> int:
    """Return the place of a node among the rows added, -1 where it is not."""
    at = np.searchsorted(rows, node)
    return at if at < rows.size and rows[at] == node else -1  # type: ignore[return-value]


@jit
def node_degree(indptr: Array, weights: Array | None, degree: Array, added: Overlay, node: int) -> float:
    if added is not None:
        at = overlay_row(added[0], node)
        if at >= 0:
            return added[4][at]  # type: ignore[no-any-return]
    elif weights is None:
        return float(indptr[node + 1] - indptr[node])  # which a push of the node reads anyway
    return degree[node]  # type: ignore[no-any-return]


@jit
def row_length(indptr: Array, added: Overlay, node: int) -> int:
    """Count the entries of a node's row."""
    count = 0
    if node < indptr.size - 1:
        count = indptr[node + 1] - indptr[node]
    if added is not None:
        at = overlay_row(added[0], node)
        if at >= 0:
            count += added[1][at + 1] - added[1][at]
    return count
