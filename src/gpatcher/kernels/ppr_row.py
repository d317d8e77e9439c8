"""The push of one node: what its neighbours receive, and which of them are pushed later."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpatcher.kernels.compile import Array, count_bits, jit, prefetch
from gpatcher.kernels.degree_codes import CODES, DISTANCE, EXACT, neighbour, packed_part, reached_code, reached_node
from gpatcher.kernels.lanes import LANES, enter_lanes, fill_lanes, keep_lanes
from gpatcher.kernels.overlay import Overlay, node_degree

HASH = np.uint32(0x9E3779B1)
PART = 1024  # neighbours that are pushed to at a time, so that the lists of them stay in the first cache


@jit
def _push_each(
    indices: Array, weights: Array | None, first: int, last: int, amount: float,
    indptr: Array, degree: Array, codes: Array | None, added: Overlay, known: int, threshold: Array, eps: float,
    table: Array, bits: int, shift: int, epoch: int, entries: Array, node_codes: Array | None, residual: Array,
    queue: Array, used: Any, tail: int,
) -> tuple[Any, int]:  # fmt: skip
    """Add ``amount`` times the edge weight to each neighbour's residual; return nodes reached and end of the queue."""
    mask, hash_shift = np.uint64((1 << bits) - 1), np.uint32(32 - bits)
    low, high = np.uint64(shift), np.uint64(shift + 32)
    other, empty, tag = np.uint64(1) << low, np.uint64(1) << high, np.uint64(epoch) << high
    for entry in range(first, last):
        e = np.uint64(entry)
        w, code = neighbour(indices[e], codes, node_codes, added, known)
        word = tag | (w << low)
        at = np.uint64(np.uint32(np.uint32(w) * HASH) >> hash_shift)
        position = table[at] ^ word
        while other <= position < empty:  # taken by another node
            at = (at + np.uint64(1)) & mask
            position = table[at] ^ word
        # a new node is entered without a branch, which would be mispredicted for every node that is not new
        new = np.uint64(position >= empty)
        position ^= (position ^ used) & (np.uint64(0) - new)
        residual[used] = 0.0
        used += new
        table[at] = word | position
        entries[position] = np.uint32(indices[e])
        if node_codes is not None:
            node_codes[position] = code
        before = residual[position]
        now = before + (amount if weights is None else amount * weights[e])
        residual[position] = now
        if now > threshold[code]:
            limit = threshold[code]
            if not (weights is None and added is None and code < EXACT):
                limit = eps * node_degree(indptr, weights, degree, added, np.int64(w))
            if before <= limit < now and limit > 0:  # not in the queue yet, and with neighbours to push to
                queue[np.uint64(tail)] = np.uint32(position)
                tail += 1
                prefetch(indptr, w)
    return used, tail


@jit
def _codes_below(amount: float, threshold: Array) -> int:
    """Return how many codes, from 0 on, have a threshold below the amount, by bisection."""
    count, step = 0, CODES // 2
    while step:
        if threshold[np.uint64(count + step - 1)] < amount:
            count += step
        step //= 2
    return count


@jit
def _enqueue(
    position: Any, before: float, now: float, indptr: Array, threshold: Array, eps: float, entries: Array,
    queue: Array, tail: int,
) -> int:  # fmt: skip
    """Append a node of an unweighted graph to the queue if its residual has passed its limit; return the end."""
    code = reached_code(position, entries, None)
    node = reached_node(position, entries, None)
    limit = threshold[code]
    if code >= EXACT:
        limit = eps * float(indptr[node + np.uint64(1)] - indptr[node])
    if before <= limit < now and limit > 0:
        queue[np.uint64(tail)] = np.uint32(position)
        tail += 1
        prefetch(indptr, node)
    return tail


@jit
def _sort_by_node(queue: Array, first: int, last: int, entries: Array) -> None:
    """Sort a part of the queue, which is almost in order, as if the neighbours had been visited in theirs."""
    for i in range(first + 1, last):
        position = queue[np.uint64(i)]
        node = reached_node(position, entries, None)
        j = i
        while j > first and reached_node(queue[np.uint64(j - 1)], entries, None) > node:
            queue[np.uint64(j)] = queue[np.uint64(j - 1)]
            j -= 1
        queue[np.uint64(j)] = position


@jit
def _push_lanes(
    row: Array, count: int, amount: float, indptr: Array, threshold: Array, eps: float,
    table: Array, bits: int, shift: int, epoch: int, entries: Array, residual: Array, queue: Array,
    waiting: Array, found: Array, rest: Array, used: Any, tail: int,
) -> tuple[Any, int, int]:  # fmt: skip
    """Push to ``count`` neighbours in ``row``, 16 at a time; write those that remain to ``rest``.

    Neighbours whose slot is taken by another node wait for a second time, when the next slot is tried, and so on: one
    mispredicted branch for all of them.
    """
    hash_shift, low = np.uint32(32 - bits), np.uint64(shift)
    tag = np.uint64(epoch) << np.uint64(shift + 32)
    limit = np.uint32(_codes_below(amount, threshold) << 24)
    seen = np.uint64(0)
    step, left = 0, 0
    while count >= LANES:
        whole = count - count % LANES
        waits = np.uint64(0)
        for start in range(0, whole, LANES):
            first = np.uint64(start)
            prefetch(row, first + np.uint64(DISTANCE))
            new, again, likely = enter_lanes(
                row, first, table, HASH, hash_shift, np.uint32(step), low, tag, used, found, seen, limit
            )
            keep_lanes(row, first, new, entries, used)
            keep_lanes(row, first, ~(new | again), waiting, waits)
            fill_lanes(residual, used, amount)
            above = new & likely
            while above:
                lane_below = (above & (np.uint64(0) - above)) - np.uint64(1)
                tail = _enqueue(
                    used + count_bits(new & lane_below), 0.0, amount, indptr, threshold, eps, entries, queue, tail
                )
                above &= above - np.uint64(1)
            used += count_bits(new)
            seen += count_bits(again)
            waits += np.uint64(LANES) - count_bits(new | again)
        for i in range(whole, count):
            rest[np.uint64(left)] = row[np.uint64(i)]
            left += 1
        row, count = waiting, int(waits)
        step += 1
    for i in range(count):
        rest[np.uint64(left)] = row[np.uint64(i)]
        left += 1
    for i in range(np.int64(seen)):
        position = np.uint64(found[np.uint64(i)])
        before = residual[position]
        now = before + amount
        residual[position] = now
        if now > threshold[reached_code(position, entries, None)]:
            tail = _enqueue(position, before, now, indptr, threshold, eps, entries, queue, tail)
    return used, tail, left


@jit
def push_row(
    indices: Array, weights: Array | None, first: int, last: int, amount: float,
    indptr: Array, degree: Array, codes: Array | None, added: Overlay, known: int, threshold: Array, eps: float,
    table: Array, bits: int, shift: int, epoch: int, entries: Array, node_codes: Array | None, residual: Array,
    queue: Array, used: Any, tail: int, waiting: Array | None, found: Array | None, rest: Array | None,
) -> tuple[Any, int]:  # fmt: skip
    """Push to the neighbours in a row, 16 at a time unless there are no lists for it.

    The graph must be unweighted then, and the entries packed. The result is the same to the bit: the neighbours are
    distinct, and the queue is in their order.
    """
    if waiting is None:
        return _push_each(
            indices, weights, first, last, amount, indptr, degree, codes, added, known, threshold, eps,
            table, bits, shift, epoch, entries, node_codes, residual, queue, used, tail,
        )  # fmt: skip
    for start in range(first, last, PART):
        count, before = min(last - start, PART), tail
        row = packed_part(indices, codes, start, count, waiting)
        left = count
        if count >= LANES:
            used, tail, left = _push_lanes(
                row, count, amount, indptr, threshold, eps, table, bits, shift, epoch, entries, residual, queue,
                waiting, found, rest, used, tail,
            )  # fmt: skip
            row = rest
        used, tail = _push_each(
            row, None, 0, left, amount, indptr, degree, None, None, known, threshold, eps,
            table, bits, shift, epoch, entries, None, residual, queue, used, tail,
        )  # fmt: skip
        if count >= LANES:
            _sort_by_node(queue, before, tail, entries)
    return used, tail
