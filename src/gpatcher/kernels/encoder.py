"""The encoder of dense features, dropout(relu(dropout(x) · W + b)), a few rows at a time.

Dropped features are written to a small buffer only, and drawn again in the backward pass.
"""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.activations import drop_factor, jit_numeric, random_words
from gpatcher.kernels.compile import Array
from gpatcher.kernels.product import add_product

ROWS = 16  # rows at a time
_ZERO = np.float32(0)


@jit_numeric
def encode_rows(
    x: Array, weight: Array, bias: Array, input_drop: int, drop: int, seeds: Array, first: int, out: Array
) -> None:
    """Write the encoding of each row.

    Parameters
    ----------
    x : float32 array, shape (n, d')
    weight : float32 array, shape (d, h)
        Filled up with zeros to multiples of 16.
    bias : float32 array, shape (h',)
    input_drop, drop : int
        Of 65,536 features, or of as many outputs, how many are dropped.
    seeds : uint64 array, shape (2,)
        Of the two masks.
    first : int
        Number of the first block of rows in the masks.
    out : float32 array, shape (n, h')
    """
    block, z = np.zeros((ROWS, len(weight)), np.float32), np.zeros((ROWS, weight.shape[1]), np.float32)
    words, z_words = np.empty(block.size // 4, np.uint64), np.empty(z.size // 4, np.uint64)
    bits, limit, factor = z_words.view(np.uint16), np.uint16(drop), drop_factor(drop)
    for start in range(0, len(x), ROWS):
        end = min(start + ROWS, len(x))
        number = first + start // ROWS
        _load(x[start:end], input_drop, seeds[0], number, words, block)
        for i in range(ROWS):
            for j in range(bias.size):
                z[i, j] = bias[j]
        add_product(block, weight, z)
        values = z.ravel()
        for i in range(values.size):  # NaN stays NaN
            values[i] = _ZERO if values[i] <= _ZERO else values[i]
        if drop:
            random_words(seeds[1], number * z_words.size, z_words)
            for i in range(values.size):
                values[i] *= factor if bits[i] >= limit else _ZERO
        for i in range(end - start):
            for j in range(bias.size):
                out[start + i, j] = z[i, j]


@jit_numeric
def encoder_gradients(
    x: Array,
    out: Array,
    grad: Array,
    input_drop: int,
    drop: int,
    seeds: Array,
    first: int,
    grad_weight: Array,
    grad_bias: Array,
) -> None:
    """Add the gradients of weight and bias, both filled up, for the output of `encode_rows` and its gradient."""
    block, z = np.zeros((ROWS, len(grad_weight)), np.float32), np.zeros((ROWS, grad_weight.shape[1]), np.float32)
    words, factor = np.empty(block.size // 4, np.uint64), drop_factor(drop)
    for start in range(0, len(x), ROWS):
        end = min(start + ROWS, len(x))
        _load(x[start:end], input_drop, seeds[0], first + start // ROWS, words, block)
        if end - start < ROWS:
            z[:] = _ZERO
        for i in range(end - start):
            for j in range(out.shape[1]):  # the output is 0 where the gradient stops
                z[i, j] = _ZERO if out[start + i, j] == _ZERO else factor * grad[start + i, j]
            for j in range(out.shape[1]):
                grad_bias[j] += z[i, j]
        add_product(block.T, z, grad_weight)


@jit_numeric
def _load(x: Array, drop: int, seed: np.uint64, number: int, words: Array, block: Array) -> None:
    """Copy rows to the buffer and drop some of their values."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            block[i, j] = x[i, j]
    if drop:
        random_words(seed, number * words.size, words)
        bits, limit, factor, values = words.view(np.uint16), np.uint16(drop), drop_factor(drop), block.ravel()
        for i in range(values.size):
            values[i] *= factor if bits[i] >= limit else _ZERO
