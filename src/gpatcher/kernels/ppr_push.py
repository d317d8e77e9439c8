"""Personalised PageRank by forward push."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from gpatcher.kernels.compile import Array, jit, prefetch
from gpatcher.kernels.overlay import Overlay, node_degree, overlay_row, row_length
from gpatcher.kernels.topk import insert_sorted

# A degree as one byte, because it is read at random for every edge: code k > 0 means a degree of at least
# 2^((k - 128) / 4), code 0 any degree.
_CODES = 256
_HASH = np.uint32(0x9E3779B1)
_FIRST_BITS = 15  # of the hash table, log2 of its slots: 384 KiB, which stay in the second-level cache
_MOST_BITS = 17  # of the table that a thread keeps; a larger one is made for the sources that need it
_HUGE_PAGE = 1 << 21
_PACKED = 1 << 16  # neighbours packed at a time
_AHEAD = 4  # pushes ahead of which the first lines of a row are prefetched
_LINES, _LINE = 4, 16  # cache lines prefetched, and ids in one


def degree_codes(degree: Array) -> Array:
    """Return a one-byte lower bound of each degree, exact to a quarter of an octave."""
    with np.errstate(divide="ignore"):
        octave = np.log2(degree)
    return np.clip(np.floor(4 * octave) + 128, 0, _CODES - 1).astype(np.uint8)


def pack_codes(indices: Array, codes: Array) -> Array:
    """Return each neighbour with the code of its degree in the upper byte; for fewer than 2^24 nodes."""
    packed = np.empty(indices.size, np.uint32)
    for start in range(0, indices.size, _PACKED):
        part = indices[start : start + _PACKED]
        np.bitwise_or(part, codes[part].astype(np.uint32) << 24, out=packed[start : start + _PACKED], casting="unsafe")
    return packed


@jit
def _least_degree(code: int) -> float:
    """Return the lower bound of the degrees with this code, minus a margin for rounding."""
    return 2.0 ** ((code - 128) / 4) * (1.0 - 1e-9) if code > 0 else 0.0


@jit
def _neighbour(entry: Any, codes: Array | None, added: Overlay) -> tuple[Any, Any]:
    """Return the node of an entry of the adjacency and the code of its degree, 0 for an unseen node."""
    if codes is None:  # packed
        return np.uint64(entry & np.uint32(0xFFFFFF)), np.uint8(entry >> np.uint32(24))
    node = np.uint64(entry)
    if added is not None and np.int64(node) >= codes.size:
        return node, np.uint8(0)
    return node, codes[node]


@jit
def _slot(keys: Array, bits: int, node: Any) -> Any:
    """Return the slot of a node in a hash table with open addressing and 2^bits slots.

    Slots are unsigned, so that compiled code need not handle negative indices.
    """
    at = np.uint64(np.uint32(np.uint32(node) * _HASH) >> np.uint32(32 - bits))
    while keys[at] != -1 and keys[at] != np.int32(node):
        at = (at + np.uint64(1)) & np.uint64((1 << bits) - 1)
    return at


@jit
def _push(
    indices: Array, weights: Array | None, first: int, last: int, amount: float,
    indptr: Array, degree: Array, codes: Array | None, added: Overlay, threshold: Array, eps: float,
    keys: Array, residual: Array, bits: int, touched: Array, node_codes: Array,
    queue: Array, used: int, tail: int,
) -> tuple[int, int]:  # fmt: skip
    """Add ``amount`` times the edge weight to each neighbour's residual; return slots used and end of the queue."""
    mask, shift = np.uint64((1 << bits) - 1), np.uint32(32 - bits)
    for entry in range(first, last):
        e = np.uint64(entry)
        w, code = _neighbour(indices[e], codes, added)
        at = np.uint64(np.uint32(np.uint32(w) * _HASH) >> shift)
        key = keys[at]
        while key != -1 and key != np.int32(w):
            at = (at + np.uint64(1)) & mask
            key = keys[at]
        before = residual[at]
        if key == -1:
            before = 0.0
            keys[at] = np.int32(w)
            touched[used] = at
            node_codes[used] = code
            used += 1
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
    indptr: Array, indices: Array, weights: Array | None, degree: Array, codes: Array | None, added: Overlay,
    threshold: Array, c: float, eps: float, keys: Array, residual: Array, bits: int,
    touched: Array, node_codes: Array, queue: Array, pushed: Array, state: Array,
) -> bool:  # fmt: skip
    """Push until the queue is empty (True) or until a row might not fit into the arrays (False).

    A separate function because it never rebinds its arrays: compiled code then counts no references in its loops.
    """
    used, head, tail = state[0], state[1], state[2]
    while head < tail:
        if head + _AHEAD < tail:
            later = queue[head + _AHEAD]
            if later < indptr.size - 1:
                for line in range(_LINES):
                    prefetch(indices, np.uint64(indptr[later] + line * _LINE))
        u = queue[head]
        row = row_length(indptr, added, u)
        if used + row > 1 << (bits - 1) or tail + row > queue.size:
            break
        at = _slot(keys, bits, u)
        pushed[head] = residual[at]
        amount = c * residual[at] / node_degree(indptr, weights, degree, added, u)
        residual[at] = 0.0
        head += 1
        if u < indptr.size - 1:
            first, last = indptr[u], indptr[u + 1]
            used, tail = _push(
                indices, weights, first, last, amount, indptr, degree, codes, added, threshold, eps,
                keys, residual, bits, touched, node_codes, queue, used, tail,
            )  # fmt: skip
        if added is not None:
            own = overlay_row(added[0], u)
            if own >= 0:
                first, last = added[1][own], added[1][own + 1]
                used, tail = _push(
                    added[2], added[3], first, last, amount, indptr, degree, codes, added, threshold, eps,
                    keys, residual, bits, touched, node_codes, queue, used, tail,
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
def _push_sources(
    indptr: Array, indices: Array, weights: Array | None, degree: Array, codes: Array | None, symmetric: bool,
    sources: Array, c: float, eps: float, index: Array, score: Array, added: Overlay,
    keys: Array, residual: Array, touched: Array, node_codes: Array, queue: Array, pushed: Array,
) -> None:  # fmt: skip
    threshold, inv_sqrt = np.empty(_CODES), np.empty(_CODES)  # bounds of eps · degree and of degree^-1/2, by code
    for code in range(_CODES):
        least = _least_degree(code)
        threshold[code] = eps * least
        inv_sqrt[code] = 1.0 / np.sqrt(least) if least > 0 else np.inf
    first_bits = 4
    while first_bits < _FIRST_BITS and 1 << first_bits < 4 * indptr.size:
        first_bits += 1
    state = np.zeros(3, np.int64)
    for s in range(sources.size):
        v = sources[s]
        if not node_degree(indptr, weights, degree, added, v) > 0:
            index[s, 0] = v
            score[s, 0] = 1.0 - c
            continue
        bits = first_bits
        at = _slot(keys, bits, v)
        keys[at], residual[at] = v, 1.0
        touched[0], node_codes[0], queue[0] = at, 0, v
        state[0], state[1], state[2] = 1, 0, 1  # slots used, head and end of the queue
        while not _push_all(
            indptr, indices, weights, degree, codes, added, threshold, c, eps,
            keys, residual, bits, touched, node_codes, queue, pushed, state,
        ):  # fmt: skip
            used, head, tail = state[0], state[1], state[2]
            row = row_length(indptr, added, queue[head])
            if tail + row > queue.size:
                old_queue, old_pushed = queue, pushed
                queue, pushed = np.empty(2 * (tail + row), np.int32), np.empty(2 * (tail + row))
                queue[:tail] = old_queue[:tail]
                pushed[:head] = old_pushed[:head]
            if used + row > 1 << (bits - 1):
                # rehash into a table with room for the next row
                while used + row > 1 << (bits - 1):
                    bits += 2
                nodes, values = keys[touched[:used]], residual[touched[:used]]
                keys[touched[:used]] = -1
                if 1 << bits > keys.size:
                    keys, residual = np.full(1 << bits, -1, np.int32), np.empty(1 << bits)
                    old_codes = node_codes
                    touched, node_codes = np.empty(1 << (bits - 1), np.uint32), np.empty(1 << (bits - 1), np.uint8)
                    node_codes[:used] = old_codes[:used]
                for i in range(used):
                    at = _slot(keys, bits, nodes[i])
                    keys[at], residual[at], touched[i] = nodes[i], values[i], at
        for i in range(state[1]):
            residual[_slot(keys, bits, queue[i])] += pushed[i]
        _rank(
            v, indptr, weights, degree, added, inv_sqrt, c, symmetric,
            keys, residual, touched, node_codes, state[0], index[s], score[s],
        )  # fmt: skip


def _make_workspace() -> tuple[Array, ...]:
    """Return an empty hash table, its slots in use with the codes of their nodes, and a queue with pushed amounts.

    They are parts of one array that is large enough for huge pages, because the table is read at random.
    """
    slots = 1 << _MOST_BITS
    shapes = ((slots, "f8"), (slots, "f8"), (slots, "i4"), (slots, "i4"), (slots // 2, "u4"), (slots // 2, "u1"))
    buffer = np.empty(3 * _HUGE_PAGE, np.uint8)
    at = -buffer.ctypes.data % _HUGE_PAGE
    parts = []
    for count, dtype in shapes:
        size = count * np.dtype(dtype).itemsize
        parts.append(buffer[at : at + size].view(dtype))
        at += size
    residual, pushed, keys, queue, touched, node_codes = parts
    keys[:] = -1
    return keys, residual, touched, node_codes, queue, pushed


_THREAD = threading.local()


def push_ppr(
    indptr: Array,
    indices: Array,
    weights: Array | None,
    degree: Array,
    codes: Array | None,
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
    of `degree_codes` alone rules out a push and a rank in the top p, so that their degree is never read. Without
    ``codes`` they are in ``indices``, see `pack_codes`: one random read less per edge. ``index`` and ``score``, shape
    (b, p), start as -1 and 0.
    """
    if not hasattr(_THREAD, "workspace"):
        _THREAD.workspace = _make_workspace()
    _push_sources(
        indptr, indices, weights, degree, codes, symmetric, sources, c, eps, index, score, added, *_THREAD.workspace
    )
