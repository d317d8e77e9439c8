"""Adjacency in CSR form: build, sort, merge and scale rows.

``indptr`` has n + 1 offsets, ``indices`` the neighbours of node v at ``indptr[v]:indptr[v + 1]``, ``weights`` one
value per entry of ``indices`` or None. Nothing here checks its input; `gpatcher.graph.graph` does.
"""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit


@jit
def count_edges(source: Array, degree: Array) -> None:
    """Add to ``degree[v]`` the number of edges that start at v."""
    for e in range(source.size):
        degree[source[e]] += 1


@jit
def place_edges(
    source: Array, target: Array, weight: Array | None, cursor: Array, indices: Array, weights: Array | None
) -> None:
    """Write each edge into the row of its source; ``cursor[v]`` is where v's next entry goes."""
    for e in range(source.size):
        v = source[e]
        at = cursor[v]
        cursor[v] = at + 1
        indices[at] = target[e]
        if weight is not None and weights is not None:
            weights[at] = weight[e]


@jit
def count_reversed(indptr: Array, indices: Array, degree: Array) -> None:
    """Add to ``degree[v]`` the edges that v needs so that each of its edges runs both ways."""
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] != v:
                degree[indices[e]] += 1


@jit
def place_both_ways(
    indptr: Array,
    indices: Array,
    weights: Array | None,
    cursor: Array,
    out_indices: Array,
    out_weights: Array | None,
) -> None:
    """Write each edge into the rows of both its ends, a self-loop once."""
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            at = cursor[v]
            cursor[v] = at + 1
            out_indices[at] = u
            if weights is not None and out_weights is not None:
                out_weights[at] = weights[e]
            if u != v:
                at = cursor[u]
                cursor[u] = at + 1
                out_indices[at] = v
                if weights is not None and out_weights is not None:
                    out_weights[at] = weights[e]


@jit
def sort_rows(indptr: Array, indices: Array, weights: Array | None) -> None:
    """Sort each row by neighbour id, in place, its weights along with it."""
    for v in range(indptr.size - 1):
        lo, hi = indptr[v], indptr[v + 1]
        e = lo + 1
        while e < hi and indices[e - 1] <= indices[e]:
            e += 1
        if e >= hi:
            continue  # sorted already, as many files are
        if weights is None:
            indices[lo:hi].sort()
        else:
            # stable, so that the sum over equal edges does not depend on the sort
            order = np.argsort(indices[lo:hi], kind="mergesort")
            indices[lo:hi] = indices[lo:hi][order]
            weights[lo:hi] = weights[lo:hi][order]


@jit
def merge_rows(indptr: Array, indices: Array, weights: Array | None, add: bool) -> int:
    """Merge equal neighbours within each sorted row, in place; return how many entries went.

    Weights of merged entries are added, or the larger one stays. ``indptr`` is rewritten; what lies
    beyond its last offset is left over.
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
def merge_directions(
    indptr: Array,
    start: int,
    codes: Array,
    weights: Array | None,
    indices: Array,
    out_weights: Array | None,
    counts: Array,
) -> int:
    """Merge the entries of each sorted row that lead to the same neighbour; return how many are left.

    The rows are those of nodes start, start + 1, ... A code is 2u for an edge as it was given and 2u + 1 for one
    turned round. Weights of equal edges are added; where the two directions differ the larger one counts. ``indptr``
    is rewritten. To ``counts`` are added the edges given more than once, the self-loops, and the entries whose
    directions differ in weight.
    """
    kept = 0
    lo = indptr[0]
    for v in range(indptr.size - 1):
        hi = indptr[v + 1]
        e = lo
        while e < hi:
            u = codes[e] >> 1
            first = e
            there = back = 0.0
            while e < hi and codes[e] == 2 * u:
                there += 1.0 if weights is None else weights[e]
                e += 1
            counts[0] += max(0, e - first - 1)
            while e < hi and codes[e] == 2 * u + 1:
                back += 1.0 if weights is None else weights[e]
                e += 1
            counts[1] += u == start + v
            counts[2] += there > 0 and back > 0 and there != back
            indices[kept] = u
            if out_weights is not None:
                out_weights[kept] = max(there, back)
            kept += 1
        lo = hi
        indptr[v + 1] = kept
    return kept


@jit
def sum_rows(indptr: Array, weights: Array, out: Array) -> None:
    """Add to ``out[v]`` the weights of v's row, one after the other."""
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
def count_one_way(indptr: Array, indices: Array, weights: Array | None, cursor: Array) -> int:
    """Count the edges of sorted rows whose reverse is missing or has another weight.

    ``cursor`` starts as a copy of ``indptr[:-1]``. Sources come in rising order, and so do the entries
    of every row, so the reverse of each edge is met by moving one cursor per row forward: O(m).
    """
    count = 0
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            while cursor[u] < indptr[u + 1] and indices[cursor[u]] < v:
                cursor[u] += 1
            back = cursor[u]
            missing = back == indptr[u + 1] or indices[back] != v
            if missing or (weights is not None and weights[back] != weights[e]):
                count += 1
    return count


@jit
def count_components(indptr: Array, indices: Array, parent: Array) -> int:
    """Count the connected components by union-find; ``parent`` starts as 0 … n - 1.

    SciPy's routine copies the whole adjacency as float64 first; this one needs n integers.
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
    """Multiply each entry by scale_v · scale_u, in place: D^-1/2 A D^-1/2 where scale = d^-1/2."""
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            data[e] *= scale[v] * scale[indices[e]]
