"""Chebyshev moments T_k(Ã)[v, u] of node pairs."""

from __future__ import annotations

import math

import numpy as np

from gpatcher.kernels.compile import Array, jit
from gpatcher.kernels.overlay import Overlay, node_degree, overlay_row, row_length


@jit
def _spread(
    indices: Array,
    weights: Array | None,
    first: int,
    last: int,
    amount: float,
    slot: Array,
    visited: Array,
    count: int,
    sums: Array,
) -> int:
    """Add ``amount`` times the edge weight to the sum of each neighbour; return the number of nodes visited so far."""
    for e in range(first, last):
        u = indices[e]
        at = slot[u]
        if at == 0:
            visited[count] = u
            count += 1
            at = count
            slot[u] = at
        sums[at - 1] += amount if weights is None else amount * weights[e]
    return count


@jit
def _largest_within(value: Array, cost: Array, count: int, budget: int, bins: Array) -> float:
    """Return a threshold such that the costs of all values above it, in absolute value, fit into the budget.

    Absolute values are binned by quarters of an octave, down to 2^-128 of the largest, which needs no sort.
    """
    total = 0
    largest = 0.0
    for i in range(count):
        if value[i] != 0.0:
            total += cost[i]
            largest = max(largest, abs(value[i]))
    if total <= budget:
        return 0.0
    bins[:] = 0
    for i in range(count):
        if value[i] != 0.0:
            mantissa, exponent = math.frexp(abs(value[i]) / largest)  # mantissa in [1/2, 1)
            below = 7 - int(8.0 * mantissa) - 4 * (exponent - 1)
            bins[min(below, bins.size - 1)] += cost[i]
    at = 0
    while bins[at] <= budget:
        budget -= bins[at]
        at += 1
    # just below the smallest value of the last bin that fits
    return largest * math.ldexp((8.0 - at % 4) / 8.0, 1 - at // 4) * (1.0 - 1e-12)


@jit
def chebyshev_pairs(
    indptr: Array,
    indices: Array,
    weights: Array | None,
    degree: Array,
    sources: Array,
    candidates: Array,
    budget: int,
    out: Array,
    added: Overlay = None,
) -> None:
    """Write T_k(Ã)[v, u], k = 1, ..., K, of sources v and candidates u (-1: none) to ``out``, (b, k, K) zeros.

    The column T_k(Ã) e_v is represented by y_k = D^-1/2 T_k(Ã) e_v / sqrt(d_v), which satisfies y_{k+1} = 2 D^-1 A y_k
    - y_{k-1}. From the second step on, only the nodes with the largest abs(y_k) propagate, as many as have at most
    ``budget`` entries in their rows: y_k squared measures what a node contributes per entry.
    """
    n = indptr.size - 1
    if added is not None:
        n = max(n, added[0][-1] + 1)
    # the system allocates zeros when they are first touched, so the cost is that of the nodes visited, not of n
    slot = np.zeros(n, np.int32)  # 1 + position of a node in the arrays below, 0 for nodes not visited
    visited = np.zeros(n, np.int32)
    entries = np.zeros(n, np.int64)
    now = np.zeros(n)
    before = np.zeros(n)
    sums = np.zeros(n)
    bins = np.zeros(512, np.int64)
    for s in range(sources.size):
        v = sources[s]
        own = node_degree(indptr, weights, degree, added, v)
        if own == 0:
            for j in range(candidates.shape[1]):
                if candidates[s, j] == v:
                    for k in range(1, out.shape[2]):
                        out[s, j, k] = (k % 2) * (k % 4 - 2)  # T_2, T_4, ... at 0: -1, 1, ...
            continue
        visited[0] = v
        slot[v] = 1
        entries[0] = row_length(indptr, added, v)
        now[0] = 1.0 / own
        count = np.int64(1)
        for k in range(out.shape[2]):
            least = 0.0 if k == 0 else _largest_within(now, entries, count, budget, bins)
            previous = count
            for i in range(previous):
                if abs(now[i]) > least:
                    u = visited[i]
                    if u < indptr.size - 1:
                        first, last = indptr[u], indptr[u + 1]
                        count = _spread(indices, weights, first, last, now[i], slot, visited, count, sums)
                    if added is not None:
                        at = overlay_row(added[0], u)
                        if at >= 0:
                            first, last = added[1][at], added[1][at + 1]
                            count = _spread(added[2], added[3], first, last, now[i], slot, visited, count, sums)
            factor = 1.0 if k == 0 else 2.0
            for i in range(count):
                u = visited[i]
                if i >= previous:
                    entries[i] = row_length(indptr, added, u)
                after = factor * sums[i] / node_degree(indptr, weights, degree, added, u) - before[i]
                before[i] = now[i]
                now[i] = after
                sums[i] = 0.0
            for j in range(candidates.shape[1]):
                u = candidates[s, j]
                if u >= 0 and slot[u] > 0:
                    out[s, j, k] = now[slot[u] - 1] * math.sqrt(own * node_degree(indptr, weights, degree, added, u))
        for i in range(count):
            slot[visited[i]] = 0
            now[i] = 0.0
            before[i] = 0.0
