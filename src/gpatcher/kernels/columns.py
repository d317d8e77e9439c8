"""Numeric and categorical columns of a table, standardised and written to CSR rows."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit


@jit
def mean_and_deviation(numbers: Array) -> tuple[int, float, float]:
    """Return the number of values that are not NaN, their mean and their standard deviation; zeros if all are NaN."""
    count, total = 0, 0.0
    for x in numbers:
        if not np.isnan(x):
            count += 1
            total += x
    if count == 0:
        return 0, 0.0, 0.0
    mean, squares = total / count, 0.0
    for x in numbers:
        if not np.isnan(x):
            squares += (x - mean) ** 2
    return count, mean, np.sqrt(squares / count)


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
def append_columns(values: Array, cursor: Array, indices: Array, data: Array) -> int:
    """Write dense columns as the first columns of CSR rows.

    Parameters
    ----------
    values : array, shape (d, n)
        The columns.
    cursor : int array, shape (n,)
        Position of the next entry of each row; advanced.
    indices, data : array
        Entries of the CSR matrix, written.

    Returns
    -------
    int
        Number of values other than 0.
    """
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
    """Write categorical columns as one-hot columns of CSR rows, a stored zero where the code is -1.

    Parameters
    ----------
    codes : int array, shape (c, n)
        Category of each node in each column, -1 for none.
    offsets : int array, shape (c,)
        First one-hot column of each categorical column.
    cursor : int array, shape (n,)
        Position of the next entry of each row; advanced.
    indices, data : array
        Entries of the CSR matrix, written.

    Returns
    -------
    int
        Number of ones.
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
