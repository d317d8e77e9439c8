"""The top of the nodes that a push reaches."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, count_bits, jit, pointer, prefetch
from gpatcher.kernels.degree_codes import EXACT, reached_code, reached_node
from gpatcher.kernels.lanes import LANES, compare_lanes, list_lanes
from gpatcher.kernels.overlay import Overlay, node_degree

_LOW = np.int64(0xFFFFFFFF)
_TINY = 1e-30  # below all scores
_AHEAD = 4  # candidates ahead of which a degree is prefetched
_HALVINGS = 16  # steps of the bisection for a first floor of the top scores
CHUNK = 2048  # nodes of which the candidates of the top are listed at a time
_SAMPLE = 256  # nodes by which a first floor of the top scores is found


@jit
def _insert(key: int, tops: Array, which: int) -> None:
    """Insert a key into one of two lists sorted in descending order, less its last; the result is in the other list.

    Without a branch, so that it is compiled to vector instructions. Both lists start with a key above all others.
    """
    old, new = np.uint64(which), np.uint64(1 - which)
    for i in range(1, tops.shape[1]):
        j = np.uint64(i)
        tops[new, j] = max(tops[old, j], min(tops[old, j - np.uint64(1)], key))


@jit
def _list_part(
    floor: float, above: float, symmetric: bool, entries: Array, received: Array, first: int, last: int,
    chosen: Array, lanes: Array | None,
) -> int:  # fmt: skip
    """List the positions from ``first`` to ``last``; with ``lanes``, without most nodes that are below the floor.

    The graph must be unweighted then, and the entries packed. A score is at most above · received / sqrt(degree), and
    the code of a degree is not larger than the degree. Return the length of the list.
    """
    if lanes is None:
        for i in range(last - first):
            chosen[np.uint64(i)] = np.uint32(first + i)
        return last - first
    factor = above / max(floor, _TINY) * (1.0 + 1e-6)  # a margin for single precision
    most = np.uint32(EXACT if symmetric else 1)
    count = np.uint64(0)
    for start in range(first, last, LANES):
        mask = compare_lanes(received, entries, np.uint64(start), factor, most)
        if last - start < LANES:
            mask &= (np.uint64(1) << np.uint64(last - start)) - np.uint64(1)
        list_lanes(np.uint64(start), mask, chosen, count)
        count += count_bits(mask)
    return int(count)


@jit
def _keep_from(
    floor: float, above: float, symmetric: bool, roots: Array, entries: Array, node_codes: Array | None,
    received: Array, chosen: Array, count: int,
) -> int:  # fmt: skip
    """Keep the positions in the list whose score may be at least ``floor``; return their number.

    ``roots`` are upper bounds of degree^-1/2. Without a branch, which would be mispredicted for many nodes.
    """
    kept = np.uint64(0)
    for i in range(count):
        at = chosen[np.uint64(i)]
        root = roots[reached_code(at, entries, node_codes)] if symmetric else 1.0
        chosen[kept] = at
        kept += np.uint64(above * received[at] * root >= floor)
    return int(kept)


@jit
def _find_floor(
    size: int, below: float, roots: Array, entries: Array, node_codes: Array | None, received: Array,
    chosen: Array, count: int, sample: Array,
) -> float:  # fmt: skip
    """Return a score that at least ``size`` of the nodes listed have, by bisection; 0 without so many.

    Few of the others are above it, so that few keys are inserted that do not stay. ``roots`` are lower bounds of
    degree^-1/2. The loops have no branches, so that they are compiled to vector instructions.
    """
    if count <= size:
        return 0.0
    low, high = np.float32(0.0), np.float32(0.0)
    for i in range(count):
        j = np.uint64(i)
        at = chosen[j]
        sample[j] = np.float32(below * received[at] * roots[reached_code(at, entries, node_codes)])
        high = max(high, sample[j])
    for _ in range(_HALVINGS):
        middle = np.float32(0.5) * (low + high) if low > 0 else np.float32(0.25) * high
        reach = 0
        for i in range(count):
            reach += sample[np.uint64(i)] >= middle
        if reach < size:
            high = middle
        else:
            low = middle
            if reach <= size + size // 2:
                break
    return float(low)


@jit
def _rank(
    v: int, indptr: Array, weights: Array | None, degree: Array, added: Overlay,
    most_roots: Array, exact_roots: Array, least_roots: Array, c: float, symmetric: bool,
    entries: Array, node_codes: Array | None, received: Array, used: int,
    tops: Array, sample: Array, chosen: Array, last: Array, last_bits: Array, index: Array, score: Array,
    lanes: Array | None,
) -> None:  # fmt: skip
    """Do what `rank_reached` does, with pointers."""
    index[0] = v
    score[0] = (1.0 - c) * received[0]
    scale = 1.0 - c
    if symmetric:
        scale *= np.sqrt(node_degree(indptr, weights, degree, added, v))
    above, below = scale * (1.0 + 1e-6), scale * (1.0 - 1e-6)  # margins, so that rounding takes no score beyond limits
    size = index.size - 1
    tops[:, 1:] = -1
    which = np.int64(0)
    floor = 0.0
    bounded = symmetric and added is None  # added edges change degrees, so that codes are no upper bounds
    if bounded and size:
        count = _list_part(0.0, above, symmetric, entries, received, 1, min(1 + _SAMPLE, used), chosen, None)
        floor = _find_floor(size, below, least_roots, entries, node_codes, received, chosen, count, sample)
    for start in range(1, used if size else 0, CHUNK):
        end = min(start + CHUNK, used)
        count = _list_part(floor, above, symmetric, entries, received, start, end, chosen, lanes)
        count = _keep_from(floor, above, symmetric, most_roots, entries, node_codes, received, chosen, count)
        if bounded and count > 2 * size:
            higher = _find_floor(size, below, least_roots, entries, node_codes, received, chosen, count, sample)
            floor = max(floor, higher)
            count = _keep_from(floor, above, symmetric, most_roots, entries, node_codes, received, chosen, count)
        for i in range(count):
            # its degree may have to be read; behind the last candidate there are old positions, which do no harm
            prefetch(indptr, reached_node(chosen[np.uint64(i + _AHEAD)], entries, node_codes))
            at = chosen[np.uint64(i)]
            u = np.int64(reached_node(at, entries, node_codes))
            value = scale * received[at]
            if symmetric:
                code = reached_code(at, entries, node_codes)
                if weights is None and added is None and code < EXACT:
                    value /= exact_roots[code]
                else:
                    value /= np.sqrt(node_degree(indptr, weights, degree, added, u))
            last[0] = value
            key = (np.int64(last_bits[0]) << 32) | (_LOW - u)
            if key > tops[which, size]:
                _insert(key, tops, which)
                which = 1 - which
                if tops[which, size] >= 0:
                    last_bits[0] = tops[which, size] >> 32
                    floor = max(floor, last[0])
    for j in range(size):
        key = tops[which, j + 1]
        if key >= 0:
            index[1 + j] = _LOW - (key & _LOW)
            last_bits[0] = key >> 32
            score[1 + j] = last[0]


@jit
def rank_reached(
    v: int, indptr: Array, weights: Array | None, degree: Array, added: Overlay, roots: Array, c: float,
    symmetric: bool, entries: Array, node_codes: Array | None, received: Array, used: int,
    tops: Array, sample: Array, chosen: Array, last: Array, index: Array, score: Array,
    lanes: Array | None,
) -> None:  # fmt: skip
    """Write the patch of v from the nodes that it reached.

    The top are kept as keys, the bits of a score above those of the node's complement: keys in descending order are
    scores in descending and, where they tie, nodes in ascending order. Nodes that cannot be in the top are left out
    before by a floor of the top scores: first one of some nodes, by which the others are chosen, then one of these.
    """
    _rank(
        v, pointer(indptr), pointer(weights), pointer(degree), added,
        pointer(roots[0]), pointer(roots[1]), pointer(roots[2]), c, symmetric,
        pointer(entries), pointer(node_codes), pointer(received), used,
        tops, pointer(sample), pointer(chosen), pointer(last), pointer(last.view(np.int32)), index, score, lanes,
    )  # fmt: skip
