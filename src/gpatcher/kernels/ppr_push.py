"""Personalised PageRank by forward push."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from gpatcher.kernels.compile import Array, jit, pointer, prefetch
from gpatcher.kernels.degree_codes import CODES, DISTANCE, EXACT, LINE, PACKED_NODES, least_degree, reached_node
from gpatcher.kernels.lanes import HAS_LANES, LANES
from gpatcher.kernels.overlay import Overlay, node_degree, overlay_row, row_length
from gpatcher.kernels.ppr_rank import CHUNK, rank_reached
from gpatcher.kernels.ppr_row import HASH, PART, push_row

# Of the hash table, log2 of its slots: 256 KiB, or 512 KiB where a source may read many edges, so that fewer nodes find
# their slot taken, which is a mispredicted branch. Both stay in the second-level cache.
_FIRST_BITS, _MANY_BITS, _MANY_EDGES = 15, 16, 1e5
_MOST_BITS = 17  # of the table that a thread keeps; a larger one is made for the sources that need it
# Bits of the position in a word of a table that is kept, or made for one source. Not plain integers: what they are
# passed to would be compiled for the constant first, then again for all integers.
_KEPT, _MADE = np.int64(16), np.int64(31)
_TOP = np.int64(0x7FFFFFFFFFFFFFFF)
_HUGE_PAGE = 1 << 21
_AHEAD = 8  # pushes ahead of which the first neighbours in a row are prefetched; the others are while it is read
_WIDTH = 8  # the lists of top keys are of whole vectors


@jit
def _push_queue(
    indptr: Array, indices: Array, weights: Array | None, degree: Array, codes: Array | None,
    added: Overlay, known: int, threshold: Array, c: float, eps: float, table: Array, bits: int, shift: int, epoch: int,
    entries: Array, node_codes: Array | None, residual: Array, queue: Array, room: int, pushed: Array, state: Array,
    waiting: Array | None, found: Array | None, rest: Array | None,
) -> bool:  # fmt: skip
    """Push until the queue is empty (True) or until a row might not fit into the arrays (False).

    The arrays are pointers, see `pointer`.
    """
    used, head, tail = np.uint64(state[0]), state[1], state[2]
    ready = head + 1
    while head < tail:
        while ready < min(head + _AHEAD, tail):
            later = reached_node(queue[np.uint64(ready)], entries, node_codes)
            ready += 1
            if np.int64(later) < known:
                start, end = indptr[later], indptr[later + np.uint64(1)]
                for line in range(start, min(end, start + DISTANCE), LINE):
                    prefetch(indices, np.uint64(line))
        at = queue[np.uint64(head)]
        u = np.int64(reached_node(at, entries, node_codes))
        first, last = np.int64(0), np.int64(0)
        if u < known:
            first, last = indptr[u], indptr[u + 1]
        row = last - first
        own = np.int64(-1)
        if added is not None:
            own = overlay_row(added[0], u)
            if own >= 0:
                row += added[1][own + 1] - added[1][own]
        if np.int64(used) + row > 1 << (bits - 1) or tail + row > room:
            break
        pushed[np.uint64(head)] = residual[at]
        amount = c * residual[at] / node_degree(indptr, weights, degree, added, u)
        residual[at] = 0.0
        head += 1
        used, tail = push_row(
            indices, weights, first, last, amount, indptr, degree, codes, added, known, threshold, eps,
            table, bits, shift, epoch, entries, node_codes, residual, queue, used, tail, waiting, found, rest,
        )  # fmt: skip
        if added is not None and own >= 0:
            first, last = added[1][own], added[1][own + 1]
            used, tail = push_row(
                added[2], added[3], first, last, amount, indptr, degree, codes, added, known, threshold, eps,
                table, bits, shift, epoch, entries, node_codes, residual, queue, used, tail, waiting, found, rest,
            )  # fmt: skip
    state[0], state[1], state[2] = np.int64(used), head, tail
    return head == tail


@jit
def _push_all(
    indptr: Array, indices: Array, weights: Array | None, degree: Array, codes: Array | None, added: Overlay,
    threshold: Array, c: float, eps: float, table: Array, bits: int, shift: int, epoch: int,
    entries: Array, node_codes: Array | None, residual: Array, queue: Array, pushed: Array, state: Array,
    waiting: Array | None, found: Array | None, rest: Array | None,
) -> bool:  # fmt: skip
    """Call `_push_queue` with pointers."""
    return _push_queue(
        pointer(indptr), pointer(indices), pointer(weights), pointer(degree), pointer(codes), added, indptr.size - 1,
        pointer(threshold), c, eps, pointer(table), bits, shift, epoch, pointer(entries), pointer(node_codes),
        pointer(residual), pointer(queue), queue.size, pointer(pushed), pointer(state),
        pointer(waiting), pointer(found), pointer(rest),
    )  # fmt: skip


@jit
def _grow(array: Array | None, count: int, size: int) -> Array | None:
    """Return a larger array with the same first entries."""
    larger = array
    if array is not None:
        larger = np.empty(size, array.dtype)
        for i in range(count):  # a slice on both sides takes Numba four seconds, for the message of its error
            larger[i] = array[i]
    return larger


@jit
def _source_entry(v: int, indptr: Array, weights: Array | None, node_codes: Array | None) -> Any:
    """Return a source as in the adjacency; its code, where it is packed, is 128 for all larger degrees."""
    if weights is None and node_codes is None:
        return np.uint32(v) | np.uint32(min(indptr[v + 1] - indptr[v], EXACT)) << np.uint32(24)
    return np.uint32(v)


@jit
def _push_sources(
    indptr: Array, indices: Array, weights: Array | None, degree: Array, codes: Array | None, symmetric: bool,
    sources: Array, c: float, eps: float, index: Array, score: Array, added: Overlay,
    kept: Array, epochs: Array, entries: Array, residual: Array, queue: Array, pushed: Array, node_codes: Array | None,
    waiting: Array | None, found: Array | None, rest: Array | None,
) -> None:  # fmt: skip
    # bounds of eps · degree; upper bounds of degree^-1/2, degree^1/2 where it is exact, lower bounds of degree^-1/2
    threshold, roots = np.empty(CODES), np.zeros((3, CODES))
    for code in range(CODES):
        least = least_degree(code, weights is not None)
        threshold[code] = eps * least
        roots[0, code] = 1.0 / np.sqrt(least) if least > 0 else np.inf
        roots[1, code] = np.sqrt(least)
        exact = weights is None and code < EXACT
        most = least if exact else least_degree(code + 1, weights is not None) * (1.0 + 1e-8)
        if most > 0 and code + 1 < CODES:  # no upper bound has the last code
            roots[2, code] = 1.0 / np.sqrt(most)
    # the pushes of a source read at most 1 / ((1 - c) eps) edges, mostly a few percent of that
    most_bits = _MANY_BITS if (1.0 - c) * eps * _MANY_EDGES < 1.0 else _FIRST_BITS
    first_bits = 4
    while first_bits < most_bits and 1 << first_bits < 4 * indptr.size:
        first_bits += 1
    state = np.zeros(3, np.int64)
    width = -(-(index.shape[1] - 1) // _WIDTH) * _WIDTH
    tops, last = np.empty((2, 1 + width), np.int64), np.empty(1, np.float32)
    tops[:, 0] = _TOP
    sample, chosen = np.empty(CHUNK, np.float32), np.zeros(CHUNK + LANES, np.uint32)
    for s in range(sources.size):
        v = sources[s]
        if not node_degree(indptr, weights, degree, added, v) > 0:
            index[s, 0] = v
            score[s, 0] = 1.0 - c
            continue
        table, bits, shift, epoch = kept, first_bits, _KEPT, _next_epoch(kept, epochs)
        entries[0], residual[0], queue[0] = _source_entry(v, indptr, weights, node_codes), 1.0, 0
        _enter(table, bits, shift, epoch, entries, node_codes, np.int64(1))
        state[0], state[1], state[2] = 1, 0, 1  # nodes reached, head and end of the queue
        while not _push_all(
            indptr, indices, weights, degree, codes, added, threshold, c, eps,
            table, bits, shift, epoch, entries, node_codes, residual, queue, pushed, state, waiting, found, rest,
        ):  # fmt: skip
            used, head, tail = state[0], state[1], state[2]
            row = row_length(indptr, added, np.int64(reached_node(queue[head], entries, node_codes)))
            if tail + row > queue.size:
                queue, pushed = _grow(queue, tail, 2 * (tail + row)), _grow(pushed, head, 2 * (tail + row))
            if used + row > 1 << (bits - 1):
                # a table with room for the next row
                while used + row > 1 << (bits - 1):
                    bits += 1
                if bits <= _MOST_BITS:
                    epoch = _next_epoch(kept, epochs)
                else:
                    table, shift, epoch = np.zeros(1 << bits, np.uint64), _MADE, 1
                    room = (1 << (bits - 1)) + LANES
                    if room > entries.size:
                        entries, node_codes = _grow(entries, used, room), _grow(node_codes, used, room)
                        residual = _grow(residual, used, room)
                _enter(table, bits, shift, epoch, entries, node_codes, used)
        for i in range(state[1]):
            residual[queue[i]] += pushed[i]
        rank_reached(
            v, indptr, weights, degree, added, roots, c, symmetric,
            entries, node_codes, residual, state[0], tops, sample, chosen, last, index[s], score[s], waiting,
        )  # fmt: skip


@jit
def _next_epoch(table: Array, epochs: Array) -> int:
    """Empty a table that is kept: its words are of another epoch than the one returned."""
    epochs[0] += 1
    if epochs[0] == 1 << (32 - _KEPT):
        table[:] = 0
        epochs[0] = 1
    return epochs[0]


@jit
def _enter(
    table: Array, bits: int, shift: int, epoch: int, entries: Array, node_codes: Array | None, used: int
) -> None:
    """Enter the positions of nodes into an empty table with open addressing and 2^bits slots.

    A word has the epoch, then the node in 32 bits, and the position in the lowest ``shift`` bits: the exclusive or with
    the word sought is the position of the same node, or larger if the slot has another node, largest if it is empty.
    Slots and positions are unsigned, so that compiled code need not handle negative indices.
    """
    mask, low, high = np.uint64((1 << bits) - 1), np.uint64(shift), np.uint64(shift + 32)
    empty, tag = np.uint64(1) << high, np.uint64(epoch) << high
    for i in range(used):
        node = reached_node(np.uint64(i), entries, node_codes)
        at = np.uint64(np.uint32(np.uint32(node) * HASH) >> np.uint32(32 - bits))
        word = tag | (node << low)
        while table[at] ^ word < empty:
            at = (at + np.uint64(1)) & mask
        table[at] = word | np.uint64(i)


def _make_workspace() -> tuple[Any, ...]:
    """Return an empty hash table and its epoch, the entries reached with codes and residuals, a queue, pushed amounts.

    They are parts of one array that is large enough for huge pages, because the table is read at random.
    """
    slots = 1 << _MOST_BITS
    room = slots // 2 + LANES
    shapes = ((slots, "u8"), (room, "f8"), (slots, "f8"), (slots, "u4"), (room, "u4"), (room, "u1"))
    buffer = np.empty(3 * _HUGE_PAGE, np.uint8)
    at = -buffer.ctypes.data % _HUGE_PAGE
    parts = []
    for count, dtype in shapes:
        size = count * np.dtype(dtype).itemsize
        parts.append(buffer[at : at + size].view(dtype))
        at += size
    table, residual, pushed, queue, entries, node_codes = parts
    table[:] = 0
    lists = tuple(np.empty(PART + LANES, np.uint32) for _ in range(3))
    return table, np.zeros(1, np.int64), entries, residual, queue, pushed, node_codes, lists


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
    pushed, which is stored with the queue, and its residual. Nodes that a source reaches are numbered in their order,
    so that what belongs to them lies together; a hash table has their positions. The code of `degree_codes` is the
    degree, or rules out a push and a rank in the top p for most nodes, so that few degrees are read. Without ``codes``
    they are in ``indices``, see `pack_codes`: one random read less per edge. Where the graph is unweighted and the
    machine has AVX-512, neighbours are taken 16 at a time; their codes are packed while a row is read then. Rows are
    sorted and free of duplicates. ``index`` and ``score``, shape (b, p), start as -1 and 0.
    """
    if not hasattr(_THREAD, "workspace"):
        _THREAD.workspace = _make_workspace()
    *workspace, node_codes, lists = _THREAD.workspace
    wide = HAS_LANES and weights is None and added is None and indptr.size <= PACKED_NODES
    _push_sources(
        indptr, indices, weights, degree, codes, symmetric, sources, c, eps, index, score, added, *workspace,
        None if wide or codes is None else node_codes, *(lists if wide else (None, None, None)),
    )  # fmt: skip
