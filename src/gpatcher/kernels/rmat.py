"""Edges of R-MAT graphs."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit
from gpatcher.kernels.splitmix import mix


@jit
def draw_rmat(keys: Array, seed: np.uint64, start: int, n: int, levels: int, a: float, ab: float, abc: float) -> None:
    """Draw edges u < v of an R-MAT graph as keys u · 2^32 + v; a self-loop or an id of n or more is the largest int64.

    Each bit of the pair (u, v) is (0, 0) for a uniform number below a, (0, 1) below ab, (1, 0) below abc and (1, 1)
    otherwise. The numbers are those of splitmix64 at a position given by the number of the draw, ``start`` for the
    first, so blocks can be drawn in any order. ``levels`` is the number of bits of an id.
    """
    words = (levels + 1) // 2  # one word has 32 random bits for each of two levels
    low = np.uint64(0xFFFFFFFF)
    for e in range(keys.size):
        u = 0
        v = 0
        word = np.uint64(0)
        for level in range(levels):
            if level % 2 == 0:
                position = np.uint64((start + e) * words + level // 2 + 1)
                word = mix(seed + position * np.uint64(0x9E3779B97F4A7C15))
            else:
                word >>= np.uint64(32)
            r = float(word & low) / 4294967296.0
            u = 2 * u + (1 if r >= ab else 0)
            v = 2 * v + (1 if (a <= r < ab or r >= abc) else 0)
        first, last = min(u, v), max(u, v)
        keys[e] = (first << 32) | last if first < last < n else 9223372036854775807
