"""Statistics of the labels of neighbours."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit
from gpatcher.kernels.splitmix import mix


@jit
def count_labels(indptr: Array, indices: Array, y: Array, same: Array, labelled: Array, pairs: Array) -> None:
    """Count the labelled neighbours of each labelled node, those with its label, and the edges from class to class."""
    for v in range(indptr.size - 1):
        if y[v] < 0:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            label = y[indices[e]]
            if label >= 0:
                labelled[v] += 1
                same[v] += label == y[v]
                pairs[y[v], label] += 1


@jit
def neighbourhood_hashes(indptr: Array, indices: Array, y: Array, out: Array) -> None:
    """Write a 64-bit hash of the row and the label of each node to ``out``: duplicates have equal hashes."""
    for v in range(indptr.size - 1):
        key = mix(np.uint64(0x9E3779B97F4A7C15) + np.uint64(y[v]))
        for e in range(indptr[v], indptr[v + 1]):
            key = mix(key ^ mix(np.uint64(0xD1B54A32D192ED03) + np.uint64(indices[e])))
        out[v] = key
