"""CSR arrays of a graph: built from edges, made undirected, hashed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.graph.checks import BLOCK_BYTES
from gpatcher.kernels.radix import (
    count_unmatched,
    gather_edges,
    gather_reversed,
    merge_keys,
    merge_reversed,
    row_ranges,
    sort_keys,
)

Rows: TypeAlias = tuple[IntArray, IntArray, FloatArray | None]  # indptr, indices, weights
# first row, the one after the last, and the keys and weights of their entries, sorted
Range: TypeAlias = tuple[int, int, IntArray, FloatArray | None]
_RANGES = 4  # of rows, whose entries are sorted at a time: in 4 bytes for each of all edges, and 4 for a weight
_SMALLEST_RANGE = 1 << 18  # entries


def rows_of_edges(source: IntArray, target: IntArray, weight: FloatArray | None, n: int) -> tuple[Rows, int]:
    """Sort edges into read-only rows, with the weights of duplicates summed; also return the number of duplicates."""
    indptr: IntArray = np.zeros(n + 1, np.int64)
    indices, weights = _allocate(source.size, weight)
    low = (n - 1).bit_length()

    def gather(first: int, last: int, keys: IntArray, key_weights: FloatArray | None) -> None:
        gather_edges(source, target, weight, first, last, low, keys, key_weights)

    for first, last, keys, key_weights in _sorted_ranges(gather, source, weight, n, 0):
        merge_keys(keys, key_weights, first, last, low, indptr, indices, weights)
    return _finished(indptr, indices, weights), source.size - int(indptr[-1])


def undirected_rows(indptr: IntArray, indices: IntArray, weights: FloatArray | None) -> Rows:
    """Return the rows with every edge in both directions, read-only; the larger of two weights is kept."""
    low = (indptr.size - 2).bit_length()
    offsets = np.zeros_like(indptr)
    both, both_weights = _allocate(2 * indices.size, weights)
    for first, last, keys, key_weights in _reversed_ranges(indptr, indices, weights):
        merge_reversed(
            indptr, indices, weights, keys, key_weights, first, last, low, offsets, both, both_weights
        )  # fmt: skip
    return _finished(offsets, both, both_weights)


def count_one_way(indptr: IntArray, indices: IntArray, weights: FloatArray | None) -> int:
    """Count the edges whose reverse is missing or has another weight."""
    low = (indptr.size - 2).bit_length()
    return sum(
        int(count_unmatched(indptr, indices, weights, keys, key_weights, first, last, low))
        for first, last, keys, key_weights in _reversed_ranges(indptr, indices, weights)
    )


def _reversed_ranges(indptr: IntArray, indices: IntArray, weights: FloatArray | None) -> Iterator[Range]:
    """Yield the rows of the reversed edges, sorted."""
    n = indptr.size - 1
    low = (n - 1).bit_length()

    def gather(first: int, last: int, keys: IntArray, key_weights: FloatArray | None) -> None:
        gather_reversed(indptr, indices, weights, first, last, low, keys, key_weights)

    return _sorted_ranges(gather, indices, weights, n, low)  # their sources ascend already


def _sorted_ranges(
    gather: Callable[..., None], rows: IntArray, weights: FloatArray | None, n: int, skip: int
) -> Iterator[Range]:
    """Yield ranges of rows with their sorted entries; see `sort_keys`. The arrays of a range are those of the next."""
    ranges = row_ranges(rows, n, max(_SMALLEST_RANGE, rows.size // _RANGES))
    most = max(count for *_, count in ranges) + 1  # see `gather_edges`
    keys, spare = np.empty((2, most), np.int64)
    key_weights, spare_weights = (None, None) if weights is None else np.empty((2, most), weights.dtype)
    for first, last, count in ranges:
        gather(first, last, keys, key_weights)
        part = keys[:count], None if key_weights is None else key_weights[:count]
        high = (n - 1).bit_length() + (last - first - 1).bit_length()
        sort_keys(*part, spare[:count], None if spare_weights is None else spare_weights[:count], skip, high)
        yield first, last, *part


def _allocate(size: int, weights: FloatArray | None) -> tuple[IntArray, FloatArray | None]:
    """Allocate indices and, for a weighted graph, weights."""
    return np.empty(size, np.int32), None if weights is None else np.empty(size, weights.dtype)


def _finished(indptr: IntArray, indices: IntArray, weights: FloatArray | None) -> Rows:
    """Return the rows, read-only and without the entries beyond the last row."""
    for array in (indptr, indices, weights):
        if array is not None:
            if array is not indptr:
                array.resize(int(indptr[-1]), refcheck=False)  # in place: a copy would need the memory of both
            array.flags.writeable = False
    return indptr, indices, weights


def update_hash(digest: Any, array: npt.NDArray[Any] | None, dtype: npt.DTypeLike | None = None) -> None:
    """Update a hash with the bytes of an array, block by block, so that a mapped array is never copied whole."""
    if array is None:
        digest.update(b"none")
        return
    step = max(1, BLOCK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        digest.update(np.ascontiguousarray(array[start : start + step], dtype=dtype).tobytes())
