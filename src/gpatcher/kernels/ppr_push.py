"""Personalised PageRank by forward push."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpatcher.kernels.compile import Array, jit
from gpatcher.kernels.overlay import Overlay, node_degree, overlay_row, row_length
from gpatcher.kernels.topk import insert_sorted

# A degree as one byte, because it is read at random for every edge: code k > 0 means a degree of at least
# 2^((k - 128) / 4), code 0 any degree.
_CODES = 256
_FIRST_CAPACITY = 1 << 17  # of the hash table; with less, a source near a hub grows it again and again


def degree_codes(degree: Array) -> Array:
    """Return a one-byte lower bound of each degree, exact to a quarter of an octave."""
    with np.errstate(divide="ignore"):
        octave = np.log2(degree)
    return np.clip(np.floor(4 * octave) + 128, 0, _CODES - 1).astype(np.uint8)


@jit
def _least_degree(code: int) -> float:
    """Return the lower bound of the degrees with this code, minus a margin for rounding."""
    return 2.0 ** ((code - 128) / 4) * (1.0 - 1e-9) if code > 0 else 0.0


@jit
def _code(codes: Array, added: Overlay, node: Any) -> int:
    """Return the code of a node's degree, 0 for an unseen node."""
    if added is not None and np.int64(node) >= codes.size:
        return 0
    return codes[node]


@jit
def _slot(keys: Array, mask: np.uint64, node: Any) -> Any:
    """Return the slot of a node in a hash table with open addressing and a capacity of mask + 1, a power of two.

    Slots are unsigned, so that compiled code need not handle negative indices. The hash has 25 bits.
    """
    at = np.uint64(np.uint32(np.uint32(node) * np.uint32(0x9E3779B1)) >> np.uint32(7)) & mask
    while keys[at] != -1 and keys[at] != np.int32(node):
        at = (at + np.uint64(1)) & mask
    return at


@jit
def _push(
    indices: Array, weights: Array | None, first: int, last: int, amount: float,
    indptr: Array, degree: Array, codes: Array, added: Overlay, threshold: Array, eps: float,
    keys: Array, residual: Array, mask: np.uint64, touched: Array, node_codes: Array,
    queue: Array, used: int, tail: int,
) -> tuple[int, int]:  # fmt: skip
    """Add ``amount`` times the edge weight to each neighbour's residual; return slots used and end of the queue."""
    for e in range(first, last):
        w = np.uint64(indices[e])
        at = _slot(keys, mask, w)
        code = _code(codes, added, w)
        before = 0.0
        if keys[at] == -1:
            keys[at] = np.int32(w)
            touched[used] = at
            node_codes[used] = code
            used += 1
        else:
            before = residual[at]
        now = before + (amount if weights is None else amount * weights[e])
        residual[at] = now
        if now > threshold[code]:
            limit = eps * node_degree(indptr, weights, degree, added, np.int64(w))
            if before <= limit < now and limit > 0:  # not in the queue yet, and with neighbours to push to
                queue[tail] = np.int32(w)
                tail += 1
    return used, tail


@jit
def _push_all(
    indptr: Array, indices: Array, weights: Array | None, degree: Array, codes: Array, added: Overlay,
    threshold: Array, c: float, eps: float, keys: Array, residual: Array, mask: np.uint64,
    touched: Array, node_codes: Array, queue: Array, pushed: Array, state: Array,
) -> bool:  # fmt: skip
    """Push until the queue is empty (True) or until a row might not fit into the arrays (False).

    A separate function because it never rebinds its arrays: compiled code then counts no references in its loops.
    """
    used, head, tail = state[0], state[1], state[2]
    while head < tail:
        u = queue[head]
        row = row_length(indptr, added, u)
        if used + row > (np.int64(mask) + 1) // 2 or tail + row > queue.size:
            break
        at = _slot(keys, mask, u)
        pushed[head] = residual[at]
        amount = c * residual[at] / node_degree(indptr, weights, degree, added, u)
        residual[at] = 0.0
        head += 1
        if u < indptr.size - 1:
            first, last = indptr[u], indptr[u + 1]
            used, tail = _push(
                indices, weights, first, last, amount, indptr, degree, codes, added, threshold, eps,
                keys, residual, mask, touched, node_codes, queue, used, tail,
            )  # fmt: skip
        if added is not None:
            own = overlay_row(added[0], u)
            if own >= 0:
                first, last = added[1][own], added[1][own + 1]
                used, tail = _push(
                    added[2], added[3], first, last, amount, indptr, degree, codes, added, threshold, eps,
                    keys, residual, mask, touched, node_codes, queue, used, tail,
                )  # fmt: skip
    state[0], state[1], state[2] = used, head, tail
    return head == tail


@jit
def _rank(
    v: int, indptr: Array, weights: Array | None, degree: Array, added: Overlay, inv_sqrt: Array, c: float,
    symmetric: bool, keys: Array, received: Array, touched: Array, node_codes: Array, used: int,
    index: Array, score: Array,
) -> None:  # fmt: skip
    """Write the patch of v from the nodes in the table, and clear the table."""
    index[0] = v
    score[0] = (1.0 - c) * received[touched[0]]
    keys[touched[0]] = -1
    scale = 1.0 - c
    if symmetric:
        scale *= np.sqrt(node_degree(indptr, weights, degree, added, v))
    above = scale * (1.0 + 1e-6)  # a margin, so that rounding takes no score beyond its upper limit
    members, values = index[1:], score[1:]
    count = 0
    floor = 0.0
    for i in range(1, used):
        at = touched[i]
        bound = inv_sqrt[node_codes[i]] if symmetric else 1.0
        if above * received[at] * bound >= floor:
            u = keys[at]
            value = scale * received[at]
            if symmetric:
                value /= np.sqrt(node_degree(indptr, weights, degree, added, u))
            count = insert_sorted(np.float32(value), u, values, members, count)
            if 0 < count == values.size:
                floor = values[count - 1]
        keys[at] = -1


@jit
def push_ppr(
    indptr: Array,
    indices: Array,
    weights: Array | None,
    degree: Array,
    codes: Array,
    symmetric: bool,
    sources: Array,
    c: float,
    eps: float,
    index: Array,
    score: Array,
    added: Overlay = None,
) -> None:
    """Write the patches of the sources by personalised PageRank, the source first.

    Starting from a residual of 1 at the source v, each push moves (1 - c) of a node's residual to its estimate and
    distributes the rest over its neighbours, until no residual exceeds eps · degree. The estimate plus (1 - c) times
    the residual is a lower bound of the random walk's π_v. On an undirected graph (``symmetric``) the score on Ã is
    r_v[u] = π_v[u] sqrt(d_v / d_u), and the top p are taken after this rescaling; else π_v is the score, and a walk
    ends at a node without out-edges. Time and memory per source do not depend on n.

    A node's estimate plus (1 - c) times its residual equals (1 - c) times all that the node ever received: what it
    pushed, which is stored with the queue, and its residual, which is stored in a hash table. For most nodes the code
    of `degree_codes` alone rules out a push and a rank in the top p, so that their degree is never read. ``index`` and
    ``score``, shape (b, p), start as -1 and 0.
    """
    threshold, inv_sqrt = np.empty(_CODES), np.empty(_CODES)  # bounds of eps · degree and of degree^-1/2, by code
    for code in range(_CODES):
        least = _least_degree(code)
        threshold[code] = eps * least
        inv_sqrt[code] = 1.0 / np.sqrt(least) if least > 0 else np.inf
    first_capacity = 16
    while first_capacity < min(4 * indptr.size, _FIRST_CAPACITY):
        first_capacity *= 2
    keys, residual = np.full(first_capacity, -1, np.int32), np.empty(first_capacity)
    touched = np.empty(first_capacity // 2, np.uint32)  # slots in use, in the order of their first use
    node_codes = np.empty(first_capacity // 2, np.uint8)  # codes of the nodes in these slots
    queue = np.empty(first_capacity, np.int32)  # nodes to push
    pushed = np.empty(first_capacity)  # amounts pushed by the nodes before the head of the queue
    state = np.zeros(3, np.int64)
    for s in range(sources.size):
        v = sources[s]
        if not node_degree(indptr, weights, degree, added, v) > 0:
            index[s, 0] = v
            score[s, 0] = 1.0 - c
            continue
        mask = np.uint64(first_capacity - 1)
        at = _slot(keys, mask, v)
        keys[at], residual[at] = v, 1.0
        touched[0], node_codes[0], queue[0] = at, _code(codes, added, v), v
        state[0], state[1], state[2] = 1, 0, 1  # slots used, head and end of the queue
        while not _push_all(
            indptr, indices, weights, degree, codes, added, threshold, c, eps,
            keys, residual, mask, touched, node_codes, queue, pushed, state,
        ):  # fmt: skip
            used, head, tail = state[0], state[1], state[2]
            row = row_length(indptr, added, queue[head])
            if tail + row > queue.size:
                old_queue, old_pushed = queue, pushed
                queue, pushed = np.empty(2 * (tail + row), np.int32), np.empty(2 * (tail + row))
                queue[:tail] = old_queue[:tail]
                pushed[:head] = old_pushed[:head]
            old_capacity = np.int64(mask) + 1
            capacity = old_capacity
            while capacity // 2 < used + row:
                capacity *= 2
            if capacity > old_capacity:
                # rehash into a table with room for the next row
                nodes, values = keys[touched[:used]], residual[touched[:used]]
                keys[touched[:used]] = -1
                if capacity > keys.size:
                    keys, residual = np.full(capacity, -1, np.int32), np.empty(capacity)
                    old_codes = node_codes
                    touched, node_codes = np.empty(capacity // 2, np.uint32), np.empty(capacity // 2, np.uint8)
                    node_codes[:used] = old_codes[:used]
                mask = np.uint64(capacity - 1)
                for i in range(used):
                    at = _slot(keys, mask, nodes[i])
                    keys[at], residual[at], touched[i] = nodes[i], values[i], at
        for i in range(state[1]):
            residual[_slot(keys, mask, queue[i])] += pushed[i]
        _rank(
            v, indptr, weights, degree, added, inv_sqrt, c, symmetric,
            keys, residual, touched, node_codes, state[0], index[s], score[s],
        )  # fmt: skip
