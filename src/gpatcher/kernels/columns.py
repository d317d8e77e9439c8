"""Numeric and categorical columns of a table."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit


@jit
def mean_and_deviation(numbers: Array) -> tuple[int, float, float]:
    """Return how many numbers are not NaN, their mean and their standard deviation; zeros where there are none."""
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
    """Write (x - mean) · factor, cut off at ± limit and 0 for NaN; return how many were cut off."""
    far = 0
    for v in range(numbers.size):
        place = (numbers[v] - mean) * factor
        if np.isnan(place):
            place = 0.0
        elif abs(place) > limit:
            far += 1
            place = limit if place > 0 else -limit
        out[v] = place
    return far


@jit
def append_columns(values: Array, cursor: Array, indices: Array, data: Array) -> int:
    """Put the columns of a dense table (d, n) into a sparse one as its first columns; ``cursor[v]`` moves on.

    Return how many of the values are not 0.
    """
    filled = 0
    for v in range(cursor.size):
        at = cursor[v]
        for j in range(values.shape[0]):
            indices[at + j] = j
            data[at + j] = values[j, v]
            filled += values[j, v] != 0
        cursor[v] = at + values.shape[0]
    return filled


@jit
def append_categories(codes: Array, offsets: Array, cursor: Array, indices: Array, data: Array) -> int:
    """Put a one at column ``offsets[c] + codes[c, v]`` of each row, for each c; a stored zero where the code is -1.

    Return the number of ones.
    """
    filled = 0
    for v in range(cursor.size):
        at = cursor[v]
        for c in range(offsets.size):
            code = codes[c, v]
            indices[at + c] = offsets[c] + max(code, 0)
            data[at + c] = 1.0 if code >= 0 else 0.0
            filled += code >= 0
        cursor[v] = at + offsets.size
    return filled
