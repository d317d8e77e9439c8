"""The encoder of dense features, dropout(relu(dropout(x) · W + b)), a few rows at a time.

Rows are read from the whole table. Dropped features are written to a small buffer only, and drawn again in the backward
pass.
"""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.activations import drop_factor, jit_numeric, random_words
from gpatcher.kernels.compile import Array
from gpatcher.kernels.norm import add, fill
from gpatcher.kernels.product import add_product, write_product

ROWS = 64  # rows at a time
_ZERO = np.float32(0)


@jit_numeric
def encode_rows(
    x: Array, nodes: Array, weight: Array, bias: Array, input_drop: int, drop: int, seeds: Array, first: int, out: Array
) -> None:
    """Write the encoding of some nodes.

    Parameters
    ----------
    x : float32 array, shape (n, d')
    nodes : int64 array, shape (r,)
        Rows of x.
    weight : float32 array, shape (d, h)
        Filled up with zeros to multiples of 16.
    bias : float32 array, shape (h,)
    input_drop, drop : int
        Of 65,536 features, or of as many outputs, how many are dropped.
    seeds : uint64 array, shape (2,)
        Of the two masks.
    first : int
        Number of the first block of rows in the masks.
    out : float32 array, shape (r, h)
    """
    block, z = np.zeros((ROWS, len(weight)), np.float32), np.zeros((ROWS, weight.shape[1]), np.float32)
    words, z_words = np.empty(block.size // 4, np.uint64), np.empty(z.size // 4, np.uint64)
    bits, limit, factor = z_words.view(np.uint16), np.uint16(drop), drop_factor(drop)
    biases, values = np.zeros(z.shape, np.float32), z.ravel()
    biases[:] = bias
    for start in range(0, nodes.size, ROWS):
        number = first + start // ROWS
        _load(x, nodes, start, input_drop, seeds[0], number, words, block)
        write_product(block, weight, biases, z)
        target = out[start : start + ROWS].ravel()
        for i in range(target.size):  # NaN stays NaN
            target[i] = _ZERO if values[i] <= _ZERO else values[i]
        if drop:
            random_words(seeds[1], number * z_words.size, z_words)
            for i in range(target.size):
                target[i] *= factor if bits[i] >= limit else _ZERO


@jit_numeric
def encoder_gradients(
    x: Array,
    nodes: Array,
    out: Array,
    grad: Array,
    input_drop: int,
    drop: int,
    seeds: Array,
    first: int,
    grad_weight: Array,
    grad_bias: Array,
) -> None:
    """Add the gradients of weight and bias for the output of `encode_rows` and its gradient."""
    block, z = np.zeros((ROWS, len(grad_weight)), np.float32), np.zeros((ROWS, grad_weight.shape[1]), np.float32)
    words, factor = np.empty(block.size // 4, np.uint64), drop_factor(drop)
    values, sums = z.ravel(), np.zeros(z.shape, np.float32)
    for start in range(0, nodes.size, ROWS):
        _load(x, nodes, start, input_drop, seeds[0], first + start // ROWS, words, block)
        result, slope = out[start : start + ROWS].ravel(), grad[start : start + ROWS].ravel()
        fill(values[result.size :], _ZERO)
        for i in range(result.size):  # the output is 0 where the gradient stops
            values[i] = _ZERO if result[i] == _ZERO else factor * slope[i]
        add(values, sums.ravel())
        add_product(block.T, z, grad_weight)
    for i in range(ROWS):
        add(sums[i], grad_bias)


@jit_numeric
def _load(
    x: Array, nodes: Array, start: int, drop: int, seed: np.uint64, number: int, words: Array, block: Array
) -> None:
    """Copy some rows to the buffer and drop some of their values."""
    for i in range(min(ROWS, nodes.size - start)):
        row = x[nodes[start + i]]
        for j in range(row.size):
            block[i, j] = row[j]
    if drop:
        random_words(seed, number * words.size, words)
        bits, limit, factor, values = words.view(np.uint16), np.uint16(drop), drop_factor(drop), block.ravel()
        for i in range(values.size):
            values[i] *= factor if bits[i] >= limit else _ZERO
