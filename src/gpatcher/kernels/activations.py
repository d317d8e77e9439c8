"""GELU, its slope, and random masks, as scalar functions that loops over contiguous arrays vectorise."""

from __future__ import annotations

import math

import numba as nb
import numpy as np

from gpatcher.kernels.compile import Array
from gpatcher.kernels.splitmix import mix

# products and sums may be contracted to one instruction; nothing is assumed of NaN and infinity
jit_numeric = nb.njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
# sums of an array may be added in any order, so that they are vectorised
jit_sum = nb.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"}, error_model="numpy")

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # increment of splitmix64
_HALF, _ONE, _FOUR = np.float32(0.5), np.float32(1), np.float32(4)
# erf(x) = x P(x²) / Q(x²) for |x| < 4, to single precision (the minimax approximation of Eigen)
_P0, _P1, _P2, _P3 = (np.float32(c) for c in (-1.60960333e-02, -2.95459981e-03, -7.34990630e-04, -5.69250639e-05))
_P4, _P5, _P6 = (np.float32(c) for c in (-2.10102402e-06, 2.77068142e-08, -2.72614226e-10))
_Q0, _Q1, _Q2 = (np.float32(c) for c in (-1.42647391e-02, -7.37332917e-03, -1.68282697e-03))
_Q3, _Q4 = (np.float32(c) for c in (-2.13374055e-04, -1.45660718e-05))
_E1, _E2, _E3, _E4, _E5, _E6 = (np.float32(math.log(2) ** k / math.factorial(k)) for k in range(1, 7))
_SQRT_HALF, _LOG2_E = np.float32(math.sqrt(0.5)), np.float32(math.log2(math.e))
_DENSITY, _LARGEST = np.float32(1 / math.sqrt(2 * math.pi)), np.float32(87)  # e⁻⁸⁷ is still a normal number
_BIAS, _MANTISSA = np.int32(127), np.int32(23)


@jit_numeric
def normal_cdf(x: np.float32) -> np.float32:
    """Return Φ(x), so that GELU(x) = x Φ(x); exactly 0 or 1 beyond ± 4 √2."""
    y = x * _SQRT_HALF
    s = min(y * y, _FOUR * _FOUR)
    p = (((((_P6 * s + _P5) * s + _P4) * s + _P3) * s + _P2) * s + _P1) * s + _P0
    q = (((_Q4 * s + _Q3) * s + _Q2) * s + _Q1) * s + _Q0
    erf = y * p / q if abs(y) < _FOUR else (_ONE if y > 0 else -_ONE)
    return _HALF + _HALF * erf


@jit_numeric
def normal_density(x: np.float32) -> np.float32:
    """Return φ(x), so that the slope of GELU is Φ(x) + x φ(x)."""
    exponent = -min(_HALF * x * x, _LARGEST) * _LOG2_E
    whole = np.int32(exponent - _HALF)
    r = exponent - np.float32(whole)
    power = (((((_E6 * r + _E5) * r + _E4) * r + _E3) * r + _E2) * r + _E1) * r + _ONE
    return power * np.int32((whole + _BIAS) << _MANTISSA).view(np.float32) * _DENSITY


@jit_numeric
def random_words(seed: np.uint64, first: int, words: Array) -> None:
    """Fill an array with the words of splitmix64 from position ``first`` of a seed's sequence on."""
    start = np.uint64(seed) + np.uint64(first) * _GOLDEN
    for i in range(words.size):
        words[i] = mix(start + np.uint64(i + 1) * _GOLDEN)


@jit_numeric
def drop_factor(drop: int) -> np.float32:
    """Return the factor of the values that are kept when ``drop`` of 65,536 are dropped."""
    return np.float32(65536 / (65536 - drop))
