"""Adjacency in CSR form: merge, count and scale rows; `gpatcher.kernels.radix` sorts them.

``indptr`` has n + 1 offsets, ``indices[indptr[v]:indptr[v + 1]]`` are the neighbours of node v, and ``weights`` has one
value per entry of ``indices`` or is None. The input is not checked here but in `gpatcher.graph.checks`.
"""

from __future__ import annotations

from gpatcher.kernels.compile import Array, jit


@jit
def merge_rows(indptr: Array, indices: Array, weights: Array | None, add: bool) -> int:
    """Merge duplicates within each sorted row, in place; return the number of entries removed.

    Their weights are added, or the largest is kept. Entries beyond the last offset of ``indptr`` are unused.
    """
    kept = 0
    lo = indptr[0]
    for v in range(indptr.size - 1):
        hi = indptr[v + 1]
        first = kept
        for e in range(lo, hi):
            if kept > first and indices[kept - 1] == indices[e]:
                if weights is not None:
                    if add:
                        weights[kept - 1] += weights[e]
                    else:
                        weights[kept - 1] = max(weights[kept - 1], weights[e])
            else:
                indices[kept] = indices[e]
                if weights is not None:
                    weights[kept] = weights[e]
                kept += 1
        lo = hi
        indptr[v + 1] = kept
    return int(indices.size - kept)


@jit
def sum_rows(indptr: Array, weights: Array, out: Array) -> None:
    """Add the weights of row v to ``out[v]``, in the order of the row."""
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            out[v] += weights[e]


@jit
def count_self_loops(indptr: Array, indices: Array) -> int:
    """Count the entries on the diagonal."""
    count = 0
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] == v:
                count += 1
    return count


@jit
def count_components(indptr: Array, indices: Array, parent: Array) -> int:
    """Count the connected components by union-find; ``parent`` starts as 0, ..., n - 1.

    SciPy's routine first copies the whole adjacency as float64; this one needs n integers.
    """
    count = parent.size
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            a, b = v, indices[e]
            while parent[a] != a:
                parent[a] = parent[parent[a]]
                a = parent[a]
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            if a != b:
                # the smaller id becomes the root
                if a < b:
                    parent[b] = a
                else:
                    parent[a] = b
                count -= 1
    return count


@jit
def clear_diagonal(indptr: Array, indices: Array, data: Array) -> None:
    """Set the entries on the diagonal to 0."""
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] == v:
                data[e] = 0.0


@jit
def scale_both_sides(indptr: Array, indices: Array, data: Array, scale: Array) -> None:
    """Multiply each entry (v, u) by scale_v · scale_u, in place: D^-1/2 A D^-1/2 for scale = d^-1/2."""
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            data[e] *= scale[v] * scale[indices[e]]


@jit
def count_triangles(indptr: Array, indices: Array, out: Array) -> None:
    """Count the triangles at each node of an undirected graph without self-loops; rows are sorted."""
    for u in range(out.size):
        for e in range(indptr[u], indptr[u + 1]):
            v = indices[e]
            if v < u:
                continue
            i, j = indptr[u], indptr[v]
            while i < indptr[u + 1] and j < indptr[v + 1]:
                if indices[i] == indices[j]:
                    if indices[i] > v:
                        out[u] += 1
                        out[v] += 1
                        out[indices[i]] += 1
                    i += 1
                    j += 1
                elif indices[i] < indices[j]:
                    i += 1
                else:
                    j += 1
