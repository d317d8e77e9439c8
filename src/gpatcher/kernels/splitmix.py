"""The finaliser of splitmix64, for hashes and random numbers."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import jit


@jit
def mix(value: np.uint64) -> np.uint64:
    """Mix 64 bits: every bit of the output depends on every bit of the input."""
    value ^= value >> np.uint64(30)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(27)
    value *= np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    return value
