"""Edges sorted into rows as 64-bit keys, in parts that stay in the cache.

The key of an entry is ``(row - first) << low | column``, where ``first`` is the first row of the range that is sorted
and ``low`` the number of bits of a column. A counting sort that writes each edge to its row misses the cache once per
edge as soon as the rows outgrow it; here a range of rows is first divided into parts, and each part is sorted.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gpatcher.arrays import IntArray
from gpatcher.kernels.compile import Array, jit

_PART = 1 << 14  # keys in a part: with their copy and weights, half of a second-level cache
_PART_BITS = 11  # at most, of the number of parts: as many streams are written at a time
_DIGIT = 11  # bits sorted in one pass over a part, at most
_BIN_BITS = 15  # of the number of bins: their counts stay in the cache


def bin_shift(n: int) -> int:
    """Return by how many bits the id of one of n nodes is shifted to give its bin."""
    return max(0, (n - 1).bit_length() - _BIN_BITS)


@jit
def count_bins(ids: Array, shift: int, counts: Array) -> None:
    """Add the number of ids in bin b to ``counts[b]``."""
    for e in range(ids.size):
        counts[ids[e] >> shift] += 1


def bin_ranges(counts: IntArray, most: int) -> list[int]:
    """Return the borders of ranges of bins with at most ``most`` entries; a range has at least one bin."""
    total = np.cumsum(counts)
    borders = [0]
    while borders[-1] < counts.size:
        before = total[borders[-1] - 1] if borders[-1] else 0
        borders.append(max(borders[-1] + 1, int(np.searchsorted(total, before + most, side="right"))))
    return borders


def row_ranges(ids: IntArray, n: int, most: int) -> list[tuple[int, int, int]]:
    """Return ranges of rows with about ``most`` of the ids: their first row, the row after, and their ids."""
    shift = bin_shift(n)
    counts = np.zeros(((n - 1) >> shift) + 1, np.int64)
    count_bins(ids, shift, counts)
    bins = list(pairwise(bin_ranges(counts, most)))
    return [(a << shift, min(b << shift, n), int(counts[a:b].sum())) for a, b in bins]


# ------------------------------------------------------------------------------------------------ sorting


@jit
def _pass(
    keys: Array, weights: Array | None, out: Array, out_weights: Array | None,
    first: int, last: int, shift: int, mask: int, cursor: Array,
) -> None:  # fmt: skip
    """Sort ``keys[first:last]`` by one digit, stably, into the same positions of ``out``.

    Afterwards ``cursor[d]`` is where the keys with digit d end.
    """
    cursor[: mask + 1] = 0
    for e in range(first, last):
        cursor[(keys[e] >> shift) & mask] += 1
    at = first
    for digit in range(mask + 1):
        count = cursor[digit]
        cursor[digit] = at
        at += count
    for e in range(first, last):
        digit = (keys[e] >> shift) & mask
        at = cursor[digit]
        cursor[digit] = at + 1
        out[at] = keys[e]
        if weights is not None and out_weights is not None:
            out_weights[at] = weights[e]


@jit
def sort_keys(
    keys: Array, weights: Array | None, spare: Array, spare_weights: Array | None, skip: int, high: int
) -> None:
    """Sort keys below 2^high by all bits but the lowest ``skip``, stably and with their weights.

    The ``spare`` arrays have the same size. By the highest bits the keys are divided into parts; each part is sorted
    digit by digit from the lowest.
    """
    size = keys.size
    e = 1
    while e < size and keys[e - 1] >> skip <= keys[e] >> skip:
        e += 1
    if e >= size:
        return  # already sorted, as in many files
    bits = 0
    while bits < min(_PART_BITS, high - skip) and size >> bits > _PART:
        bits += 1
    rest = high - bits - skip
    passes = -(-rest // _DIGIT)
    width = -(-rest // max(passes, 1))
    ends = np.empty(1 << bits, np.int64)
    cursor = np.empty(1 << width, np.int64)
    _pass(keys, weights, spare, spare_weights, 0, size, high - bits, (1 << bits) - 1, ends)
    first = np.int64(0)
    for last in ends:
        for k in range(passes if last > first else 0):
            shift, mask = skip + k * width, (1 << width) - 1
            if k % 2 == 0:
                _pass(spare, spare_weights, keys, weights, first, last, shift, mask, cursor)
            else:
                _pass(keys, weights, spare, spare_weights, first, last, shift, mask, cursor)
        if passes % 2 == 0:
            keys[first:last] = spare[first:last]
            if weights is not None and spare_weights is not None:
                weights[first:last] = spare_weights[first:last]
        first = last


# ------------------------------------------------------------------------------------------------ in memory


@jit
def gather_edges(
    source: Array, target: Array, weight: Array | None, first: int, last: int, low: int,
    keys: Array, weights: Array | None,
) -> None:  # fmt: skip
    """Write the key and weight of each edge whose source lies in [first, last), in input order.

    ``keys`` has one position more than there are such edges: each edge is written, and kept if it belongs there, so
    that no branch has to be guessed.
    """
    at = 0
    for e in range(source.size):
        keys[at] = (np.int64(source[e]) - first) << low | np.int64(target[e])
        if weight is not None and weights is not None:
            weights[at] = weight[e]
        at += int(first <= source[e] < last)


@jit
def gather_reversed(
    indptr: Array, indices: Array, weight: Array | None, first: int, last: int, low: int,
    keys: Array, weights: Array | None,
) -> None:  # fmt: skip
    """Write the key and weight of the reverse of each edge whose target lies in [first, last); see `gather_edges`."""
    at = 0
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            u = np.int64(indices[e])
            keys[at] = (u - first) << low | v
            if weight is not None and weights is not None:
                weights[at] = weight[e]
            at += int(first <= u < last)


@jit
def merge_keys(
    keys: Array, weights: Array | None, first: int, last: int, low: int, indptr: Array, indices: Array,
    out_weights: Array | None,
) -> None:  # fmt: skip
    """Write sorted keys as rows first to last - 1, behind the rows before; weights of duplicates are added."""
    mask = (1 << low) - 1
    kept = indptr[first]
    e = 0
    for v in range(first, last):
        start = kept
        while e < keys.size and keys[e] >> low == v - first:
            u = keys[e] & mask
            if kept > start and indices[kept - 1] == u:
                if weights is not None and out_weights is not None:
                    out_weights[kept - 1] += weights[e]
            else:
                indices[kept] = u
                if weights is not None and out_weights is not None:
                    out_weights[kept] = weights[e]
                kept += 1
            e += 1
        indptr[v + 1] = kept


@jit
def count_unmatched(
    indptr: Array, indices: Array, weight: Array | None, keys: Array, weights: Array | None, first: int, last: int,
    low: int,
) -> int:  # fmt: skip
    """Count the edges of rows first to last - 1 without an equal one among the sorted keys of reversed edges."""
    count = 0
    at = 0
    for v in range(first, last):
        for e in range(indptr[v], indptr[v + 1]):
            key = (v - first) << low | np.int64(indices[e])
            while at < keys.size and keys[at] < key:
                at += 1
            found = at < keys.size and keys[at] == key
            if found and weight is not None and weights is not None:
                found = weight[e] == weights[at]
            count += not found
    return count


@jit
def merge_reversed(
    indptr: Array, indices: Array, weight: Array | None, keys: Array, weights: Array | None, first: int, last: int,
    low: int, out_indptr: Array, out: Array, out_weights: Array | None,
) -> None:  # fmt: skip
    """Write the union of each row and of the sorted keys of its reversed edges; the larger of two weights is kept."""
    mask = (1 << low) - 1
    kept = out_indptr[first]
    at = 0
    for v in range(first, last):
        e = indptr[v]
        while True:
            forward = e < indptr[v + 1]
            backward = at < keys.size and keys[at] >> low == v - first
            if not (forward or backward):
                break
            if forward and backward:
                forward, backward = indices[e] <= keys[at] & mask, indices[e] >= keys[at] & mask
            out[kept] = indices[e] if forward else keys[at] & mask
            if weight is not None and weights is not None and out_weights is not None:
                if forward and backward:
                    out_weights[kept] = max(weight[e], weights[at])
                else:
                    out_weights[kept] = weight[e] if forward else weights[at]
            kept += 1
            e += forward
            at += backward
        out_indptr[v + 1] = kept


# ------------------------------------------------------------------------------------------------ on disk


@jit
def divide_edges(
    source: Array, target: Array, weight: Array | None, directed: bool, width: int, low: int, ends: Array, keys: Array,
    weights: Array | None,
) -> None:  # fmt: skip
    """Write the entries of edges as keys, grouped by ranges of 2^width rows; ``ends[k]`` is where those of k end.

    A column is 2u for an edge to u and 2u + 1 for the reverse of an edge from u, which directed edges and self-loops do
    not have.
    """
    ends[:] = 0
    for e in range(source.size):
        ends[source[e] >> width] += 1
        if not directed and source[e] != target[e]:
            ends[target[e] >> width] += 1
    at = np.int64(0)
    for k in range(ends.size):
        count = ends[k]
        ends[k] = at
        at += count
    mask = (1 << width) - 1
    for e in range(source.size):
        v, u = np.int64(source[e]), np.int64(target[e])
        for reverse in range(1 if directed or u == v else 2):
            position = ends[v >> width]
            ends[v >> width] = position + 1
            keys[position] = (v & mask) << low | (2 * u + reverse)
            if weight is not None and weights is not None:
                weights[position] = weight[e]
            u, v = v, u


@jit
def select_keys(
    keys: Array, weights: Array | None, first: int, last: int, out: Array, out_weights: Array | None, at: int
) -> int:
    """Append the keys in [first, last), minus ``first``, at a position; return the next one. See `gather_edges`."""
    for e in range(keys.size):
        out[at] = keys[e] - first
        if weights is not None and out_weights is not None:
            out_weights[at] = weights[e]
        at += int(first <= keys[e] < last)
    return at


@jit
def merge_directions(
    keys: Array, weights: Array | None, first: int, low: int, lengths: Array, indices: Array,
    out_weights: Array | None, counts: Array,
) -> int:  # fmt: skip
    """Merge the directions and duplicates of each edge among the sorted keys of `divide_edges`.

    Weights of duplicates are added; of two directions the larger weight is kept. The lengths of the rows first, first +
    1, ... are added to ``lengths``; the numbers of duplicate edges, of self-loops, and of entries whose directions
    differ in weight are written to ``counts``. Returns the number of merged entries.
    """
    mask = (1 << low) - 1
    duplicates = loops = unequal = kept = 0
    e = 0
    while e < keys.size:
        key = keys[e] & ~1
        start = e
        forward = backward = 0.0
        if e + 1 < keys.size and keys[e + 1] & ~1 == key:
            while e < keys.size and keys[e] == key:
                forward += 1.0 if weights is None else weights[e]
                e += 1
            duplicates += max(0, e - start - 1)
            while e < keys.size and keys[e] == key + 1:
                backward += 1.0 if weights is None else weights[e]
                e += 1
            unequal += forward > 0 and backward > 0 and forward != backward
        else:  # most have no other, and which direction they have cannot be guessed
            forward = 1.0 if weights is None else weights[e]
            e += 1
        row, u = key >> low, (key & mask) >> 1
        loops += u == first + row
        indices[kept] = u
        if out_weights is not None:
            out_weights[kept] = max(forward, backward)
        kept += 1
        lengths[row] += 1
    counts[0], counts[1], counts[2] = duplicates, loops, unequal
    return kept
