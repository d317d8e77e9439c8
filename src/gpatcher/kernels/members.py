"""The distinct nodes in the patches of a batch, and where each of them occurs: a sort in linear time by a bitmap."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, count_bits, jit

_ONE, _LOW = np.uint64(1), np.uint64(63)


@jit
def find_members(index: Array, mask: Array, sizes: Array, n: int, rows: Array) -> tuple[Array, ...]:
    """Return the distinct nodes in the patches of a batch, ascending, and where each of them occurs.

    Parameters
    ----------
    index : int64 array, shape (m,)
        Node at each position: of all patches of the first source, then of the second, and so on.
    mask : float32 array, shape (m,)
        0 where a position is empty.
    sizes : int64 array
        Size of the patches of each source.
    n : int
        Number of nodes of the graph.
    rows : int64 array, shape (m,)
        The number of each position's node among the distinct ones is written here, 0 where the position is empty.

    Returns
    -------
    nodes : int64 array, shape (r,)
    starts : int64 array, shape (r + 1,)
    positions, patches, own : int64 array
        Node i occurs at ``positions[starts[i] : starts[i + 1]]``, ascending; and each time in which patch, and in which
        of the first source as its first member, else -1.
    """
    words = np.zeros((n >> 6) + 1, np.uint64)
    for e in range(index.size):
        if mask[e]:
            words[index[e] >> 6] |= _ONE << (np.uint64(index[e]) & _LOW)
    before = np.zeros(words.size + 1, np.int64)
    for w in range(words.size):
        before[w + 1] = before[w] + np.int64(count_bits(words[w]))
    nodes = np.empty(before[-1], np.int64)
    for w in range(words.size):
        rest, k = words[w], before[w]
        while rest:
            lowest = rest & (~rest + _ONE)
            nodes[k] = (w << 6) + np.int64(count_bits(lowest - _ONE))
            rest ^= lowest
            k += 1
    starts = np.zeros(nodes.size + 1, np.int64)
    for e in range(index.size):
        rows[e] = 0
        if mask[e]:
            lower = (_ONE << (np.uint64(index[e]) & _LOW)) - _ONE
            rows[e] = before[index[e] >> 6] + np.int64(count_bits(words[index[e] >> 6] & lower))
            starts[rows[e] + 1] += 1
    for i in range(nodes.size):
        starts[i + 1] += starts[i]
    positions, ends = np.empty(starts[-1], np.int64), starts[:-1].copy()
    patches, own = np.empty(starts[-1], np.int64), np.empty(starts[-1], np.int64)
    e = patch = 0
    count = index.size // sizes.sum()  # patches of a source
    for size in sizes:
        for _ in range(count):
            for _ in range(size):
                if mask[e]:
                    k = ends[rows[e]]
                    ends[rows[e]] += 1
                    positions[k], patches[k] = e, patch
                    own[k] = patch if patch < count and e == patch * sizes[0] else -1
                e += 1
            patch += 1
    return nodes, starts, positions, patches, own
