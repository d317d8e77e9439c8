"""Chebyshev moments T_k(Ã)[v, u] of pairs of nodes."""

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
    place: Array,
    met: Array,
    count: int,
    sums: Array,
) -> int:
    """Add ``amount`` times its weight to each neighbour; one met for the first time gets a place. Return the count."""
    for e in range(first, last):
        u = indices[e]
        at = place[u]
        if at == 0:
            met[count] = u
            count += 1
            at = count
            place[u] = at
        sums[at - 1] += amount if weights is None else amount * weights[e]
    return count


@jit
def _largest_within(value: Array, cost: Array, count: int, budget: int, bins: Array) -> float:
    """Return the size above which values may be kept so that their costs add up to the budget at most.

    Sizes are told apart by a quarter of their octave, down to 2^-128 of the largest, so no sort is needed.
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
            mantissa, exponent = math.frexp(abs(value[i]) / largest)  # mantissa from 1/2 on
            below = 7 - int(8.0 * mantissa) - 4 * (exponent - 1)
            bins[min(below, bins.size - 1)] += cost[i]
    at = 0
    while bins[at] <= budget:
        budget -= bins[at]
        at += 1
    # just below the smallest size of the last bin that is kept
    return largest * math.ldexp((8.0 - at % 4) / 8.0, 1 - at // 4) * (1.0 - 1e-12)


@jit
def chebyshev_pairs(
    indptr: Array,
    indices: Array,
    weights: Array | None,
    degree: Array,
    sources: Array,
    around: Array,
    budget: int,
    out: Array,
    added: Overlay = None,
) -> None:
    """Write T_k(Ã)[v, u] for k = 1 … K, v each source and u those around it, by walks from the source.

    The column T_k(Ã)e_v is kept as y_k = D^-1/2 T_k(Ã) e_v / sqrt(d_v), which the recurrence takes to
    y_{k+1} = 2 D^-1 A y_k - y_{k-1}. From the second step on only so many nodes pass their value on that their rows
    have at most ``budget`` entries: those of the largest |y|, which is what they add, squared, per entry walked.

    ``around`` (sources, candidates) has -1 where there are no more, ``out`` is (sources, candidates, K).
    """
    n = indptr.size - 1
    if added is not None:
        n = max(n, added[0][-1] + 1)
    # zeros that the system hands out when they are first touched, so their cost is that of the nodes met
    place = np.zeros(n, np.int32)  # 1 + a node's place in the arrays below
    met = np.zeros(n, np.int32)
    entries = np.zeros(n, np.int64)
    now = np.zeros(n)
    before = np.zeros(n)
    sums = np.zeros(n)
    bins = np.zeros(512, np.int64)
    for s in range(sources.size):
        v = sources[s]
        own = node_degree(indptr, weights, degree, added, v)
        if own == 0:
            for j in range(around.shape[1]):
                if around[s, j] == v:
                    for k in range(1, out.shape[2]):
                        out[s, j, k] = (k % 2) * (k % 4 - 2)  # T_2, T_4, ... at 0: -1, 1, ...
            continue
        met[0] = v
        place[v] = 1
        entries[0] = row_length(indptr, added, v)
        now[0] = 1.0 / own
        count = 1
        for k in range(out.shape[2]):
            least = 0.0 if k == 0 else _largest_within(now, entries, count, budget, bins)
            known = count
            for i in range(known):
                if abs(now[i]) > least:
                    u = met[i]
                    if u < indptr.size - 1:
                        count = _spread(indices, weights, indptr[u], indptr[u + 1], now[i], place, met, count, sums)
                    if added is not None:
                        at = overlay_row(added[0], u)
                        if at >= 0:
                            first, last = added[1][at], added[1][at + 1]
                            count = _spread(added[2], added[3], first, last, now[i], place, met, count, sums)
            factor = 1.0 if k == 0 else 2.0
            for i in range(count):
                u = met[i]
                if i >= known:
                    entries[i] = row_length(indptr, added, u)
                after = factor * sums[i] / node_degree(indptr, weights, degree, added, u) - before[i]
                before[i] = now[i]
                now[i] = after
                sums[i] = 0.0
            for j in range(around.shape[1]):
                u = around[s, j]
                if u >= 0 and place[u] > 0:
                    out[s, j, k] = now[place[u] - 1] * math.sqrt(own * node_degree(indptr, weights, degree, added, u))
        for i in range(count):
            place[met[i]] = 0
            now[i] = 0.0
            before[i] = 0.0
