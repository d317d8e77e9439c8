"""Numeric and categorical columns of a table, standardised and written to CSR rows."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit, prefetch

_AHEAD = 16  # edges whose sums are loaded into the cache ahead of their turn


@jit
def moments(numbers: Array) -> tuple[int, float, float, float, float, float]:
    """Return count, mean, standard deviation, kurtosis, least and greatest of the values that are not NaN; else 0."""
    count, total, low, high = 0, 0.0, np.inf, -np.inf
    for x in numbers:
        if not np.isnan(x):
            count += 1
            total += x
            low, high = min(low, x), max(high, x)
    if count == 0:
        return 0, 0.0, 0.0, 0.0, 0.0, 0.0
    mean, squares, fourth = total / count, 0.0, 0.0
    for x in numbers:
        if not np.isnan(x):
            square = (x - mean) ** 2
            squares += square
            fourth += square**2
    kurtosis = fourth * count / squares**2 if squares**2 > 0 else 0.0
    return count, mean, np.sqrt(squares / count), kurtosis, low, high


@jit
def standardise(numbers: Array, mean: float, factor: float, limit: float, out: Array) -> int:
    """Write (x - mean) · factor, clipped to ± limit and 0 for NaN; return the number of clipped values."""
    clipped = 0
    for v in range(numbers.size):
        value = (numbers[v] - mean) * factor
        if np.isnan(value):
            value = 0.0
        elif abs(value) > limit:
            clipped += 1
            value = limit if value > 0 else -limit
        out[v] = value
    return clipped


@jit
def add_edges(index: Array, values: Array, sums: Array) -> None:
    """Add edges with values (d, m) to ``sums[index]``: their number, the total of each value, the number of its NaN."""
    for e in range(index.size):
        if e + _AHEAD < index.size:
            prefetch(sums, np.uint64(index[e + _AHEAD] * sums.shape[1]))
        v = index[e]
        sums[v, 0] += 1
        for j in range(values.shape[0]):
            if np.isnan(values[j, e]):
                sums[v, 1 + values.shape[0] + j] += 1
            else:
                sums[v, 1 + j] += values[j, e]


@jit
def append_block(rows: tuple[Array, Array, Array], first: int, last: int, out: tuple[Array, Array, Array]) -> None:
    """Write CSR rows (indptr, indices, data), moved to column ``first`` and with a 1 in column ``last``, to others."""
    indptr, indices, data = rows
    out_indptr, out_indices, out_data = out
    at = out_indptr[0]
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            out_indices[at], out_data[at] = first + indices[e], data[e]
            at += 1
        out_indices[at], out_data[at] = last, 1.0
        at += 1
        out_indptr[v + 1] = at


@jit
def append_dense_block(values: Array, first: int, last: int, out: tuple[Array, Array, Array]) -> None:
    """Write the nonzeros of dense rows (n, d) as `append_block` does."""
    out_indptr, out_indices, out_data = out
    at = out_indptr[0]
    for v in range(values.shape[0]):
        for j in range(values.shape[1]):
            if values[v, j] != 0:
                out_indices[at], out_data[at] = first + j, values[v, j]
                at += 1
        out_indices[at], out_data[at] = last, 1.0
        at += 1
        out_indptr[v + 1] = at


@jit
def append_columns(values: Array, cursor: Array, indices: Array, data: Array) -> int:
    """Write dense columns (d, n) as the first of CSR rows, at ``cursor``, which moves on; return the nonzeros."""
    nonzero = 0
    for v in range(cursor.size):
        at = cursor[v]
        for j in range(values.shape[0]):
            indices[at + j] = j
            data[at + j] = values[j, v]
            nonzero += values[j, v] != 0
        cursor[v] = at + values.shape[0]
    return nonzero


@jit
def append_categories(codes: Array, offsets: Array, cursor: Array, indices: Array, data: Array) -> int:
    """Write categories (c, n) as one-hot columns of CSR rows, at ``cursor``, which moves on; return the ones.

    The one-hot columns of category c start at ``offsets[c]``; a code of -1 becomes a stored zero.
    """
    ones = 0
    for v in range(cursor.size):
        at = cursor[v]
        for c in range(offsets.size):
            code = codes[c, v]
            indices[at + c] = offsets[c] + max(code, 0)
            data[at + c] = 1.0 if code >= 0 else 0.0
            ones += code >= 0
        cursor[v] = at + offsets.size
    return ones
