"""CSR arrays of a graph: built from edges, made undirected, hashed."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.graph.checks import BLOCK_BYTES
from gpatcher.kernels.csr import count_edges, count_reversed, merge_rows, place_both_ways, place_edges, sort_rows

Rows: TypeAlias = tuple[IntArray, IntArray, FloatArray | None]  # indptr, indices, weights


def rows_of_edges(source: IntArray, target: IntArray, weight: FloatArray | None, n: int) -> tuple[Rows, int]:
    """Sort edges into read-only rows, with the weights of duplicates summed; also return the number of duplicates."""
    degree = np.zeros(n + 1, np.int64)
    count_edges(source, degree[1:])
    indptr: IntArray = np.cumsum(degree)
    indices, weights = _allocate(source.size, np.int32 if n <= 2**31 - 1 else np.int64, weight)
    place_edges(source, target, weight, indptr[:-1].copy(), indices, weights)
    return _sort_and_merge(indptr, indices, weights, add=True)


def undirected_rows(indptr: IntArray, indices: IntArray, weights: FloatArray | None) -> Rows:
    """Return the rows with every edge in both directions, read-only; the larger of two weights is kept."""
    degree = np.diff(indptr)
    count_reversed(indptr, indices, degree)
    offsets = np.concatenate([[0], np.cumsum(degree)])
    both, both_weights = _allocate(int(offsets[-1]), indices.dtype, weights)
    place_both_ways(indptr, indices, weights, offsets[:-1].copy(), both, both_weights)
    return _sort_and_merge(offsets, both, both_weights, add=False)[0]


def _allocate(size: int, dtype: npt.DTypeLike, weights: FloatArray | None) -> tuple[IntArray, FloatArray | None]:
    """Allocate indices and, for a weighted graph, weights."""
    return np.empty(size, dtype), None if weights is None else np.empty(size, weights.dtype)


def _sort_and_merge(indptr: IntArray, indices: IntArray, weights: FloatArray | None, *, add: bool) -> tuple[Rows, int]:
    """Sort the rows and merge duplicate entries in place; return the rows and the number of entries removed."""
    sort_rows(indptr, indices, weights)
    removed = int(merge_rows(indptr, indices, weights, add))
    for array in (indptr, indices, weights):
        if array is not None:
            if removed and array is not indptr:
                array.resize(array.size - removed, refcheck=False)  # in place: a copy would need the memory of both
            array.flags.writeable = False
    return (indptr, indices, weights), removed


def update_hash(digest: Any, array: npt.NDArray[Any] | None, dtype: npt.DTypeLike | None = None) -> None:
    """Update a hash with the bytes of an array, block by block, so that a mapped array is never copied whole."""
    if array is None:
        digest.update(b"none")
        return
    step = max(1, BLOCK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        digest.update(np.ascontiguousarray(array[start : start + step], dtype=dtype).tobytes())
