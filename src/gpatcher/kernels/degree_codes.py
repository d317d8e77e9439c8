"""Lower bounds of degrees as codes of one byte, apart or packed with the nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpatcher.kernels.compile import Array, jit, prefetch
from gpatcher.kernels.lanes import shifted
from gpatcher.kernels.overlay import Overlay

# A degree as one byte, because it is needed for every edge. Of an unweighted graph a code below 128 is the degree, code
# 128 + k a degree of at least 2^(7 + k / 5); of a weighted one code k > 0 a degree of at least 2^((k - 128) / 4), code
# 0 any degree.
CODES, EXACT = 256, 128
PACKED_NODES = 1 << 24  # a code is packed with a node below this
_PACKED = 1 << 16  # neighbours packed at a time
LINE, DISTANCE = 16, 128  # neighbours in a cache line, and ahead of which a row is prefetched


def degree_codes(degree: Array, weighted: bool) -> Array:
    """Return a one-byte lower bound of each degree, exact to a quarter of an octave, below 128 edges exact."""
    with np.errstate(divide="ignore"):
        octave = np.log2(degree)
    if weighted:
        return np.clip(np.floor(4 * octave) + 128, 0, CODES - 1).astype(np.uint8)
    codes = np.clip(np.floor(5 * (octave - 7)) + EXACT, EXACT, CODES - 1)
    return np.where(degree < EXACT, degree, codes).astype(np.uint8)


def pack_codes(indices: Array, codes: Array) -> Array:
    """Return each neighbour with the code of its degree in the upper byte; for fewer than 2^24 nodes."""
    packed = np.empty(indices.size, np.uint32)
    for start in range(0, indices.size, _PACKED):
        part = indices[start : start + _PACKED]
        np.bitwise_or(part, codes[part].astype(np.uint32) << 24, out=packed[start : start + _PACKED], casting="unsafe")
    return packed


@jit
def least_degree(code: int, weighted: bool) -> float:
    """Return the lower bound of the degrees with this code, minus a margin for rounding unless it is exact."""
    if weighted:
        return 2.0 ** ((code - 128) / 4) * (1.0 - 1e-9) if code > 0 else 0.0
    return float(code) if code < EXACT else 2.0 ** (7 + (code - EXACT) / 5) * (1.0 - 1e-9)


@jit
def packed_part(indices: Array, codes: Array | None, first: int, count: int, packed: Array) -> Array:
    """Return a part of a row as of `pack_codes`, written to ``packed`` unless it is so in the adjacency."""
    if codes is None:
        return shifted(indices, np.uint64(first))
    for line in range(0, count, LINE):
        prefetch(indices, np.uint64(first + line + DISTANCE))
        for k in range(line, min(line + LINE, count)):
            node = np.uint32(indices[np.uint64(first + k)])
            packed[np.uint64(k)] = node | np.uint32(codes[np.uint64(node)]) << np.uint32(24)
    return packed


@jit
def neighbour(entry: Any, codes: Array | None, node_codes: Array | None, added: Overlay, known: int) -> tuple[Any, Any]:
    """Return the node of an entry of the adjacency and the code of its degree, 0 for an unseen node."""
    if node_codes is None:  # packed
        return np.uint64(entry & np.uint32(0xFFFFFF)), np.uint8(entry >> np.uint32(24))
    node = np.uint64(entry)
    if added is not None and np.int64(node) >= known:
        return node, np.uint8(0)
    return node, codes[node]  # type: ignore[index]


@jit
def reached_node(at: Any, entries: Array, node_codes: Array | None) -> Any:
    """Return the node at a position; without ``node_codes``, the entries are packed."""
    return np.uint64(entries[at] & np.uint32(0xFFFFFF)) if node_codes is None else np.uint64(entries[at])


@jit
def reached_code(at: Any, entries: Array, node_codes: Array | None) -> Any:
    """Return the code of the node at a position."""
    return np.uint64(entries[at] >> np.uint32(24)) if node_codes is None else np.uint64(node_codes[at])
