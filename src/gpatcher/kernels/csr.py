"""Adjacency in CSR form: build, sort, merge and scale rows.

``indptr`` has n + 1 offsets, ``indices[indptr[v]:indptr[v + 1]]`` are the neighbours of node v, and ``weights`` has one
value per entry of ``indices`` or is None. The input is not checked here but in `gpatcher.graph.checks`.
"""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit

_RUN = 16  # entries that are sorted by insertion, before runs of them are merged


@jit
def count_edges(source: Array, degree: Array) -> None:
    """Add the number of edges with source v to ``degree[v]``."""
    for e in range(source.size):
        degree[source[e]] += 1


@jit
def place_edges(
    source: Array, target: Array, weight: Array | None, cursor: Array, indices: Array, weights: Array | None
) -> None:
    """Write each edge into the row of its source; ``cursor[v]`` is the position of the next entry of row v."""
    for e in range(source.size):
        v = source[e]
        at = cursor[v]
        cursor[v] = at + 1
        indices[at] = target[e]
        if weight is not None and weights is not None:
            weights[at] = weight[e]


@jit
def count_reversed(indptr: Array, indices: Array, degree: Array) -> None:
    """Add the number of edges with target v, except self-loops, to ``degree[v]``."""
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] != v:
                degree[indices[e]] += 1


@jit
def place_both_ways(
    indptr: Array, indices: Array, weights: Array | None, cursor: Array, out_indices: Array, out_weights: Array | None
) -> None:
    """Write each edge into the rows of both endpoints, a self-loop once."""
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
def _sort_with_weights(ids: Array, weights: Array, spare_ids: Array, spare_weights: Array) -> None:
    """Sort ids, and the weights with them, stably: runs by insertion, then merged in pairs.

    Not by np.argsort: Numba takes longer to compile it than all else in this file.
    """
    n = ids.size
    for first in range(0, n, _RUN):
        for i in range(first + 1, min(first + _RUN, n)):
            node, weight, at = ids[i], weights[i], i
            while at > first and ids[at - 1] > node:
                ids[at], weights[at] = ids[at - 1], weights[at - 1]
                at -= 1
            ids[at], weights[at] = node, weight
    width = _RUN
    while width < n:
        for first in range(0, n - width, 2 * width):
            right, last = first + width, min(first + 2 * width, n)
            for i in range(width):
                spare_ids[i], spare_weights[i] = ids[first + i], weights[first + i]
            left = 0
            at = first
            while left < width:  # then what remains of the right run is in its place
                if right < last and ids[right] < spare_ids[left]:
                    ids[at], weights[at] = ids[right], weights[right]
                    right += 1
                else:
                    ids[at], weights[at] = spare_ids[left], spare_weights[left]
                    left += 1
                at += 1
        width *= 2


@jit
def sort_rows(indptr: Array, indices: Array, weights: Array | None) -> None:
    """Sort each row by neighbour id, together with its weights, in place."""
    if weights is not None:
        longest = 0
        for v in range(indptr.size - 1):
            longest = max(longest, indptr[v + 1] - indptr[v])
        spare_ids, spare_weights = np.empty(longest, indices.dtype), np.empty(longest, weights.dtype)
    for v in range(indptr.size - 1):
        lo, hi = indptr[v], indptr[v + 1]
        e = lo + 1
        while e < hi and indices[e - 1] <= indices[e]:
            e += 1
        if e >= hi:
            continue  # already sorted, as in many files
        if weights is None:
            indices[lo:hi].sort()
        else:
            # stable, so that the sum over duplicates does not depend on the sort
            _sort_with_weights(indices[lo:hi], weights[lo:hi], spare_ids, spare_weights)


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
def merge_directions(
    indptr: Array,
    start: int,
    codes: Array,
    weights: Array | None,
    indices: Array,
    out_weights: Array | None,
    counts: Array,
) -> int:
    """Merge the directions and duplicates of each edge in the sorted rows of nodes start, start + 1, ...

    An entry is 2u for an edge to u and 2u + 1 for the reverse of an edge from u. Weights of duplicates are added; of
    two directions the larger weight is kept. The numbers of duplicate edges, of self-loops, and of entries whose
    directions differ in weight are added to ``counts``. Returns the number of merged entries.
    """
    kept = 0
    lo = indptr[0]
    for v in range(indptr.size - 1):
        hi = indptr[v + 1]
        e = lo
        while e < hi:
            u = codes[e] >> 1
            first = e
            forward = backward = 0.0
            while e < hi and codes[e] == 2 * u:
                forward += 1.0 if weights is None else weights[e]
                e += 1
            counts[0] += max(0, e - first - 1)
            while e < hi and codes[e] == 2 * u + 1:
                backward += 1.0 if weights is None else weights[e]
                e += 1
            counts[1] += u == start + v
            counts[2] += forward > 0 and backward > 0 and forward != backward
            indices[kept] = u
            if out_weights is not None:
                out_weights[kept] = max(forward, backward)
            kept += 1
        lo = hi
        indptr[v + 1] = kept
    return kept


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
def count_one_way(indptr: Array, indices: Array, weights: Array | None, cursor: Array) -> int:
    """Count the edges of sorted rows whose reverse is missing or has another weight, in O(m).

    ``cursor`` is a copy of ``indptr[:-1]``: sources and the entries of each row ascend, so it only moves forward.
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
