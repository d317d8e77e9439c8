"""Edges of R-MAT graphs."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit
from gpatcher.kernels.labels import _mix


@jit
def draw_rmat(keys: Array, seed: np.uint64, start: int, n: int, levels: int, a: float, ab: float, abc: float) -> None:
    """Fill ``keys`` with R-MAT draws ``start``, ``start + 1``, ...: an edge u < v as u · 2^32 + v.

    A self-loop or an id from n on becomes the largest int64. Each of the ``levels`` bits of the ids is
    drawn with the quarters (0, 0) up to a, (0, 1) up to ab, (1, 0) up to abc and (1, 1) above. The random
    numbers are splitmix64 at a place set by the number of the draw, so blocks may be drawn in any order.
    """
    words = (levels + 1) // 2  # one word has 32 random bits for each of two levels
    low = np.uint64(0xFFFFFFFF)
    for e in range(keys.size):
        u = 0
        v = 0
        word = np.uint64(0)
        for level in range(levels):
            if level % 2 == 0:
                place = np.uint64((start + e) * words + level // 2 + 1)
                word = _mix(seed + place * np.uint64(0x9E3779B97F4A7C15))
            else:
                word >>= np.uint64(32)
            r = float(word & low) / 4294967296.0
            u = 2 * u + (1 if r >= ab else 0)
            v = 2 * v + (1 if (a <= r < ab or r >= abc) else 0)
        first, last = min(u, v), max(u, v)
        keys[e] = (first << 32) | last if first < last < n else 9223372036854775807
