"""LayerNorm over the rows of a matrix, one column for each of many positions, and the sums it is made of."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.activations import jit_numeric, jit_sum
from gpatcher.kernels.compile import Array

_EPS, _ZERO, _ONE = np.float32(1e-5), np.float32(0), np.float32(1)


@jit_numeric
def normalise(z: Array, norm: Array, normal: Array, rate: Array, out: Array, width: int) -> None:
    """LayerNorm over the features of each position."""
    mean, share = out[0], _ONE / np.float32(width)
    fill(mean, _ZERO)
    fill(rate, _ZERO)
    for i in range(width):
        add(z[i], mean)
    for j in range(rate.size):
        mean[j] *= share
    for i in range(width):
        for j in range(rate.size):
            normal[i, j] = z[i, j] - mean[j]
            rate[j] += normal[i, j] * normal[i, j]
    for j in range(rate.size):
        rate[j] = _ONE / np.sqrt(rate[j] * share + _EPS)
    for i in range(width):
        for j in range(rate.size):
            normal[i, j] *= rate[j]
            out[i, j] = normal[i, j] * norm[0, i] + norm[1, i]


@jit_numeric
def normalise_back(e: Array, normal: Array, rate: Array, norm: Array, grad: Array, width: int) -> None:
    """Replace the gradient of the output of `normalise` by that of its input, and add that of scale and shift."""
    mean, product = np.zeros(rate.size, np.float32), np.zeros(rate.size, np.float32)
    for i in range(width):
        grad[0, i] += dot(e[i], normal[i])
        grad[1, i] += total(e[i])
        for j in range(rate.size):
            e[i, j] *= norm[0, i]
            mean[j] += e[i, j]
            product[j] += e[i, j] * normal[i, j]
    share = _ONE / np.float32(width)
    for i in range(width):
        for j in range(rate.size):
            e[i, j] = rate[j] * (e[i, j] - share * (mean[j] + normal[i, j] * product[j]))


@jit_sum
def dot(a: Array, b: Array) -> np.float32:
    """Return the sum of the products of two arrays, the first of which may be longer."""
    result = _ZERO
    for j in range(b.size):
        result += a[j] * b[j]
    return result


@jit_sum
def total(a: Array) -> np.float32:
    """Return the sum of an array."""
    result = _ZERO
    for j in range(a.size):
        result += a[j]
    return result


@jit_numeric
def fill(out: Array, value: np.float32) -> None:
    """Write the same number everywhere."""
    for i in range(out.size):
        out[i] = value


@jit_numeric
def add(values: Array, out: Array) -> None:
    """Add one array to another."""
    for i in range(values.size):
        out[i] += values[i]


@jit_numeric
def copy(values: Array, out: Array) -> None:
    """Copy one array to the beginning of another."""
    for i in range(values.size):
        out[i] = values[i]
