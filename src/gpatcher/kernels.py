"""Compiled loops over a graph in CSR form: plain arrays in, preallocated arrays out.

``indptr`` has n + 1 offsets, ``indices`` the neighbours of node v at ``indptr[v]:indptr[v + 1]``,
``weights`` one value per entry of ``indices`` or None. Nothing here judges its input; ``gpatcher.graph`` does.
"""

from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_jit = nb.njit(cache=True, nogil=True)
_jit_parallel = nb.njit(cache=True, nogil=True, parallel=True)


@_jit
def count_edges(source: Array, degree: Array) -> None:
    """Add to ``degree[v]`` the number of edges that start at v."""
    for e in range(source.size):
        degree[source[e]] += 1


@_jit
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


@_jit
def count_reversed(indptr: Array, indices: Array, degree: Array) -> None:
    """Add to ``degree[v]`` the edges that v needs so that each of its edges runs both ways."""
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] != v:
                degree[indices[e]] += 1


@_jit
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


@_jit_parallel
def sort_rows(indptr: Array, indices: Array, weights: Array | None) -> None:
    """Sort each row by neighbour id, in place, its weights along with it."""
    for v in nb.prange(indptr.size - 1):
        lo, hi = indptr[v], indptr[v + 1]
        if weights is None:
            indices[lo:hi].sort()
        else:
            # stable, so that the sum over equal edges does not depend on the sort
            order = np.argsort(indices[lo:hi], kind="mergesort")
            indices[lo:hi] = indices[lo:hi][order]
            weights[lo:hi] = weights[lo:hi][order]


@_jit
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


@_jit
def count_self_loops(indptr: Array, indices: Array) -> int:
    """Count the entries on the diagonal."""
    count = 0
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] == v:
                count += 1
    return count


@_jit
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


@_jit
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


@_jit_parallel
def clear_diagonal(indptr: Array, indices: Array, data: Array) -> None:
    """Set the entries on the diagonal to 0."""
    for v in nb.prange(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] == v:
                data[e] = 0.0


@_jit_parallel
def scale_both_sides(indptr: Array, indices: Array, data: Array, scale: Array) -> None:
    """Multiply each entry by scale_v · scale_u, in place: D^-1/2 A D^-1/2 where scale = d^-1/2."""
    for v in nb.prange(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            data[e] *= scale[v] * scale[indices[e]]


@_jit_parallel
def label_agreement(indptr: Array, indices: Array, y: Array, same: Array, known: Array) -> None:
    """Count, for each labelled node, its labelled neighbours and those among them with its own label."""
    for v in nb.prange(indptr.size - 1):
        if y[v] < 0:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            label = y[indices[e]]
            if label >= 0:
                known[v] += 1
                if label == y[v]:
                    same[v] += 1


@_jit
def class_pairs(indptr: Array, indices: Array, y: Array, counts: Array) -> None:
    """Count the stored edges between each pair of classes, both ends labelled."""
    for v in range(indptr.size - 1):
        if y[v] < 0:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            label = y[indices[e]]
            if label >= 0:
                counts[y[v], label] += 1


@_jit
def _mix(value: np.uint64) -> np.uint64:
    # the finaliser of splitmix64: every bit of the output depends on every bit of the input
    value ^= value >> np.uint64(30)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(27)
    value *= np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    return value


@_jit_parallel
def neighbourhood_hashes(indptr: Array, indices: Array, y: Array, out: Array) -> None:
    """Fill ``out`` (n,) with a 64-bit hash of each node's row and label: twins have equal hashes."""
    for v in nb.prange(indptr.size - 1):
        key = _mix(np.uint64(0x9E3779B97F4A7C15) + np.uint64(y[v]))
        for e in range(indptr[v], indptr[v + 1]):
            key = _mix(key ^ _mix(np.uint64(0xD1B54A32D192ED03) + np.uint64(indices[e])))
        out[v] = key


@_jit_parallel
def draw_rmat(keys: Array, seed: np.uint64, start: int, n: int, levels: int, a: float, ab: float, abc: float) -> None:
    """Fill ``keys`` with R-MAT draws ``start``, ``start + 1``, ...: an edge u < v as u · 2^32 + v.

    A self-loop or an id from n on becomes the largest int64. Each of the ``levels`` bits of the ids is
    drawn with the quarters (0, 0) up to a, (0, 1) up to ab, (1, 0) up to abc and (1, 1) above. The random
    numbers are splitmix64 at a place set by the number of the draw, so threads do not change the result.
    """
    words = (levels + 1) // 2  # one word has 32 random bits for each of two levels
    low = np.uint64(0xFFFFFFFF)
    for e in nb.prange(keys.size):
        u = 0
        v = 0
        word = np.uint64(0)
        for level in range(levels):
            if level % 2 == 0:
                place = np.uint64((start + e) * words + level // 2 + 1)
                word = _mix(seed + place * np.uint64(0x9E3779B97F4A7C15))
            else:
                word >>= np.uint64(32)
            r = float(word & low) / 4294967296.0
            u = 2 * u + (1 if r >= ab else 0)
            v = 2 * v + (1 if (a <= r < ab or r >= abc) else 0)
        first, last = min(u, v), max(u, v)
        keys[e] = (first << 32) | last if first < last < n else 9223372036854775807
