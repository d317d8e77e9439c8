"""Labels of neighbours."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit


@jit
def label_agreement(indptr: Array, indices: Array, y: Array, same: Array, known: Array) -> None:
    """Count, for each labelled node, its labelled neighbours and those among them with its own label."""
    for v in range(indptr.size - 1):
        if y[v] < 0:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            label = y[indices[e]]
            if label >= 0:
                known[v] += 1
                if label == y[v]:
                    same[v] += 1


@jit
def class_pairs(indptr: Array, indices: Array, y: Array, counts: Array) -> None:
    """Count the stored edges between each pair of classes, both ends labelled."""
    for v in range(indptr.size - 1):
        if y[v] < 0:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            label = y[indices[e]]
            if label >= 0:
                counts[y[v], label] += 1


@jit
def _mix(value: np.uint64) -> np.uint64:
    # the finaliser of splitmix64: every bit of the output depends on every bit of the input
    value ^= value >> np.uint64(30)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(27)
    value *= np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    return value


@jit
def neighbourhood_hashes(indptr: Array, indices: Array, y: Array, out: Array) -> None:
    """Fill ``out`` (n,) with a 64-bit hash of each node's row and label: twins have equal hashes."""
    for v in range(indptr.size - 1):
        key = _mix(np.uint64(0x9E3779B97F4A7C15) + np.uint64(y[v]))
        for e in range(indptr[v], indptr[v + 1]):
            key = _mix(key ^ _mix(np.uint64(0xD1B54A32D192ED03) + np.uint64(indices[e])))
        out[v] = key
