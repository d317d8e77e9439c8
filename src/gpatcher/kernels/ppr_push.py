"""Personalised PageRank by forward push."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from gpatcher.kernels.compile import Array, jit, prefetch
from gpatcher.kernels.overlay import Overlay, node_degree, overlay_row, row_length

# A degree as one byte, because it is needed for every edge. Of an unweighted graph a code below 128 is the degree, code
# 128 + k a degree of at least 2^(7 + k / 5); of a weighted one code k > 0 a degree of at least 2^((k - 128) / 4), code
# 0 any degree.
_CODES, _EXACT = 256, 128
_HASH = np.uint32(0x9E3779B1)
# Of the hash table, log2 of its slots: 256 KiB, or 512 KiB where a source may read many edges, so that fewer nodes find
# their slot taken, which is a mispredicted branch. Both stay in the second-level cache.
_FIRST_BITS, _MANY_BITS, _MANY_EDGES = 15, 16, 1e5
_MOST_BITS = 17  # of the table that a thread keeps; a larger one is made for the sources that need it
# Bits of the position in a word of a table that is kept, or made for one source. Not plain integers: what they are
# passed to would be compiled for the constant first, then again for all integers.
_KEPT, _MADE = np.int64(16), np.int64(31)
_LOW = np.int64(0xFFFFFFFF)
_TOP = np.int64(0x7FFFFFFFFFFFFFFF)
_HUGE_PAGE = 1 << 21
_PACKED = 1 << 16  # neighbours packed at a time
_AHEAD = 4  # pushes ahead of which the first lines of a row are prefetched, and candidates ahead of which a degree is
_LINES, _LINE = 2, 16  # cache lines prefetched, and ids in one
_SAMPLE, _HALVINGS = 512, 16  # nodes by which a first floor of the top scores is found, and steps of its bisection
_CHUNK = 512  # nodes of which the candidates of the top are listed at a time
_LANES = 8  # the lists of top keys are of whole vectors


def degree_codes(degree: Array, weighted: bool) -> Array:
    """Return a one-byte lower bound of each degree, exact to a quarter of an octave, below 128 edges exact."""
    with np.errstate(divide="ignore"):
        octave = np.log2(degree)
    if weighted:
        return np.clip(np.floor(4 * octave) + 128, 0, _CODES - 1).astype(np.uint8)
    codes = np.clip(np.floor(5 * (octave - 7)) + _EXACT, _EXACT, _CODES - 1)
    return np.where(degree < _EXACT, degree, codes).astype(np.uint8)


def pack_codes(indices: Array, codes: Array) -> Array:
    """Return each neighbour with the code of its degree in the upper byte; for fewer than 2^24 nodes."""
    packed = np.empty(indices.size, np.uint32)
    for start in range(0, indices.size, _PACKED):
        part = indices[start : start + _PACKED]
        np.bitwise_or(part, codes[part].astype(np.uint32) << 24, out=packed[start : start + _PACKED], casting="unsafe")
    return packed


@jit
def _least_degree(code: int, weighted: bool) -> float:
    """Return the lower bound of the degrees with this code, minus a margin for rounding unless it is exact."""
    if weighted:
        return 2.0 ** ((code - 128) / 4) * (1.0 - 1e-9) if code > 0 else 0.0
    return float(code) if code < _EXACT else 2.0 ** (7 + (code - _EXACT) / 5) * (1.0 - 1e-9)


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
def _reached_node(at: Any, entries: Array, codes: Array | None) -> Any:
    """Return the node at a position; the nodes reached are entries as in the adjacency, packed with codes or not."""
    return np.uint64(entries[at] & np.uint32(0xFFFFFF)) if codes is None else np.uint64(entries[at])


@jit
def _reached_code(at: Any, entries: Array, node_codes: Array, codes: Array | None) -> Any:
    """Return the code of the node at a position."""
    return np.uint64(entries[at] >> np.uint32(24)) if codes is None else np.uint64(node_codes[at])


@jit
def _push(
    indices: Array, weights: Array | None, first: int, last: int, amount: float,
    indptr: Array, degree: Array, codes: Array | None, added: Overlay, threshold: Array, eps: float,
    table: Array, bits: int, shift: int, epoch: int, entries: Array, node_codes: Array, residual: Array,
    queue: Array, used: Any, tail: int,
) -> tuple[Any, int]:  # fmt: skip
    """Add ``amount`` times the edge weight to each neighbour's residual; return nodes reached and end of the queue."""
    mask, hash_shift = np.uint64((1 << bits) - 1), np.uint32(32 - bits)
    low, high = np.uint64(shift), np.uint64(shift + 32)
    other, empty, tag = np.uint64(1) << low, np.uint64(1) << high, np.uint64(epoch) << high
    for entry in range(first, last):
        e = np.uint64(entry)
        w, code = _neighbour(indices[e], codes, added)
        word = tag | (w << low)
        at = np.uint64(np.uint32(np.uint32(w) * _HASH) >> hash_shift)
        position = table[at] ^ word
        while other <= position < empty:  # taken by another node
            at = (at + np.uint64(1)) & mask
            position = table[at] ^ word
        # a new node is entered without a branch, which would be mispredicted for every node that is not new
        new = np.uint64(position >= empty)
        position ^= (position ^ used) & (np.uint64(0) - new)
        used += new
        table[at] = word | position
        entries[position] = np.uint32(indices[e])
        if codes is not None:
            node_codes[position] = code
        before = residual[position]
        now = before + (amount if weights is None else amount * weights[e])
        residual[position] = now
        if now > threshold[code]:
            limit = threshold[code]
            if not (weights is None and added is None and code < _EXACT):
                limit = eps * node_degree(indptr, weights, degree, added, np.int64(w))
            if before <= limit < now and limit > 0:  # not in the queue yet, and with neighbours to push to
                queue[np.uint64(tail)] = np.uint32(position)
                tail += 1
                prefetch(indptr, w)
    return used, tail


@jit
def _push_all(
    indptr: Array, indices: Array, weights: Array | None, degree: Array, codes: Array | None, added: Overlay,
    threshold: Array, c: float, eps: float, table: Array, bits: int, shift: int, epoch: int,
    entries: Array, node_codes: Array, residual: Array, queue: Array, pushed: Array, state: Array,
) -> bool:  # fmt: skip
    """Push until the queue is empty (True) or until a row might not fit into the arrays (False).

    A separate function because it never rebinds its arrays: compiled code then counts no references in its loops. It
    does not call `row_length` for the same reason.
    """
    used, head, tail = np.uint64(state[0]), state[1], state[2]
    while head < tail:
        if head + _AHEAD < tail:
            later = _reached_node(queue[np.uint64(head + _AHEAD)], entries, codes)
            if np.int64(later) < indptr.size - 1:
                for line in range(_LINES):
                    prefetch(indices, np.uint64(indptr[later] + line * _LINE))
        at = queue[np.uint64(head)]
        u = np.int64(_reached_node(at, entries, codes))
        first, last = np.int64(0), np.int64(0)
        if u < indptr.size - 1:
            first, last = indptr[u], indptr[u + 1]
        row = last - first
        own = np.int64(-1)
        if added is not None:
            own = overlay_row(added[0], u)
            if own >= 0:
                row += added[1][own + 1] - added[1][own]
        if np.int64(used) + row > 1 << (bits - 1) or tail + row > queue.size:
            break
        pushed[np.uint64(head)] = residual[at]
        amount = c * residual[at] / node_degree(indptr, weights, degree, added, u)
        residual[at] = 0.0
        head += 1
        used, tail = _push(
            indices, weights, first, last, amount, indptr, degree, codes, added, threshold, eps,
            table, bits, shift, epoch, entries, node_codes, residual, queue, used, tail,
        )  # fmt: skip
        if added is not None and own >= 0:
            first, last = added[1][own], added[1][own + 1]
            used, tail = _push(
                added[2], added[3], first, last, amount, indptr, degree, codes, added, threshold, eps,
                table, bits, shift, epoch, entries, node_codes, residual, queue, used, tail,
            )  # fmt: skip
    state[0], state[1], state[2] = np.int64(used), head, tail
    return head == tail


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
def _first_floor(
    size: int, scale: float, roots: Array, codes: Array | None, entries: Array, node_codes: Array,
    received: Array, used: int, sample: Array,
) -> float:  # fmt: skip
    """Return a score that at least ``size`` of the first nodes reached have, by bisection; 0 without so many.

    Most of the others are below it, so that few keys are inserted that do not stay. ``roots`` are lower bounds of
    degree^-1/2. The loops have no branches, so that they are compiled to vector instructions.
    """
    count = min(used - 1, sample.size)
    if count <= size:
        return 0.0
    low, high = np.float32(0.0), np.float32(0.0)
    for i in range(count):
        at, j = np.uint64(i), np.uint64(i + 1)  # the source is not ranked
        sample[at] = np.float32(scale * received[j] * roots[_reached_code(j, entries, node_codes, codes)])
        high = max(high, sample[at])
    for _ in range(_HALVINGS):
        middle = np.float32(0.5) * (low + high) if low > 0 else np.float32(0.25) * high
        above = 0
        for i in range(count):
            above += sample[np.uint64(i)] >= middle
        if above < size:
            high = middle
        else:
            low = middle
            if above <= size + size // 2:
                break
    return float(low)


@jit
def _rank(
    v: int, indptr: Array, weights: Array | None, degree: Array, codes: Array | None, added: Overlay, roots: Array,
    c: float, symmetric: bool, entries: Array, node_codes: Array, received: Array, used: int,
    tops: Array, sample: Array, chosen: Array, last: Array, index: Array, score: Array,
) -> None:  # fmt: skip
    """Write the patch of v from the nodes that it reached, and clear what they received.

    The top are kept as keys, the bits of a score above those of the node's complement: keys in descending order are
    scores in descending and, where they tie, nodes in ascending order.
    """
    index[0] = v
    score[0] = (1.0 - c) * received[0]
    scale = 1.0 - c
    if symmetric:
        scale *= np.sqrt(node_degree(indptr, weights, degree, added, v))
    above = scale * (1.0 + 1e-6)  # a margin, so that rounding takes no score beyond its upper limit
    score_bits = last.view(np.int32)
    size = index.size - 1
    tops[:, 1:] = -1
    which = np.int64(0)
    floor = 0.0
    if symmetric and added is None and size:  # added edges change degrees, so that codes are no upper bounds
        floor = _first_floor(size, scale * (1.0 - 1e-6), roots[2], codes, entries, node_codes, received, used, sample)
    for start in range(1, used if size else 0, _CHUNK):
        # candidates are listed without a branch, which would be mispredicted for most of them
        count = np.uint64(0)
        for i in range(start, min(start + _CHUNK, used)):
            at = np.uint64(i)
            code = _reached_code(at, entries, node_codes, codes)
            chosen[count] = np.uint32(i)
            count += np.uint64(above * received[at] * (roots[0, code] if symmetric else 1.0) >= floor)
        for i in range(np.int64(count)):
            # its degree may have to be read; behind the last candidate there are old positions, which do no harm
            prefetch(indptr, _reached_node(chosen[np.uint64(i + _AHEAD)], entries, codes))
            at = chosen[np.uint64(i)]
            code = _reached_code(at, entries, node_codes, codes)
            if above * received[at] * (roots[0, code] if symmetric else 1.0) < floor:  # the floor has risen
                continue
            u = np.int64(_reached_node(at, entries, codes))
            value = scale * received[at]
            if symmetric:
                if weights is None and added is None and code < _EXACT:
                    value /= roots[1, code]
                else:
                    value /= np.sqrt(node_degree(indptr, weights, degree, added, u))
            last[0] = value
            key = (np.int64(score_bits[0]) << 32) | (_LOW - u)
            if key > tops[which, size]:
                _insert(key, tops, which)
                which = 1 - which
                if tops[which, size] >= 0:
                    score_bits[0] = tops[which, size] >> 32
                    floor = last[0]
    received[:used] = 0.0
    for j in range(size):
        key = tops[which, j + 1]
        if key >= 0:
            index[1 + j] = _LOW - (key & _LOW)
            score_bits[0] = key >> 32
            score[1 + j] = last[0]


@jit
def _copy(source: Array, target: Array, count: int) -> None:
    """Copy the first entries; a slice on both sides takes Numba four seconds, for the message of its error."""
    for i in range(count):
        target[i] = source[i]


@jit
def _push_sources(
    indptr: Array, indices: Array, weights: Array | None, degree: Array, codes: Array | None, symmetric: bool,
    sources: Array, c: float, eps: float, index: Array, score: Array, added: Overlay,
    kept: Array, epochs: Array, entries: Array, node_codes: Array, residual: Array, queue: Array, pushed: Array,
) -> None:  # fmt: skip
    # bounds of eps · degree; upper bounds of degree^-1/2, degree^1/2 where it is exact, lower bounds of degree^-1/2
    threshold, roots = np.empty(_CODES), np.zeros((3, _CODES))
    for code in range(_CODES):
        least = _least_degree(code, weights is not None)
        threshold[code] = eps * least
        roots[0, code] = 1.0 / np.sqrt(least) if least > 0 else np.inf
        roots[1, code] = np.sqrt(least)
        exact = weights is None and code < _EXACT
        most = least if exact else _least_degree(code + 1, weights is not None) * (1.0 + 1e-8)
        if most > 0 and code + 1 < _CODES:  # no upper bound has the last code
            roots[2, code] = 1.0 / np.sqrt(most)
    # the pushes of a source read at most 1 / ((1 - c) eps) edges, mostly a few percent of that
    most_bits = _MANY_BITS if (1.0 - c) * eps * _MANY_EDGES < 1.0 else _FIRST_BITS
    first_bits = 4
    while first_bits < most_bits and 1 << first_bits < 4 * indptr.size:
        first_bits += 1
    state = np.zeros(3, np.int64)
    width = -(-(index.shape[1] - 1) // _LANES) * _LANES
    tops, last = np.empty((2, 1 + width), np.int64), np.empty(1, np.float32)
    tops[:, 0] = _TOP
    sample, chosen = np.empty(_SAMPLE, np.float32), np.zeros(_CHUNK + _AHEAD, np.uint32)
    for s in range(sources.size):
        v = sources[s]
        if not node_degree(indptr, weights, degree, added, v) > 0:
            index[s, 0] = v
            score[s, 0] = 1.0 - c
            continue
        table, bits, shift, epoch = kept, first_bits, _KEPT, _next_epoch(kept, epochs)
        entries[0], node_codes[0], residual[0], queue[0] = v, 0, 1.0, 0
        _enter(table, bits, shift, epoch, entries, codes, np.int64(1))
        state[0], state[1], state[2] = 1, 0, 1  # nodes reached, head and end of the queue
        while not _push_all(
            indptr, indices, weights, degree, codes, added, threshold, c, eps,
            table, bits, shift, epoch, entries, node_codes, residual, queue, pushed, state,
        ):  # fmt: skip
            used, head, tail = state[0], state[1], state[2]
            row = row_length(indptr, added, np.int64(_reached_node(queue[head], entries, codes)))
            if tail + row > queue.size:
                old_queue, old_pushed = queue, pushed
                queue, pushed = np.empty(2 * (tail + row), np.uint32), np.empty(2 * (tail + row))
                _copy(old_queue, queue, tail)
                _copy(old_pushed, pushed, head)
            if used + row > 1 << (bits - 1):
                # a table with room for the next row
                while used + row > 1 << (bits - 1):
                    bits += 1
                if bits <= _MOST_BITS:
                    epoch = _next_epoch(kept, epochs)
                else:
                    table, shift, epoch = np.zeros(1 << bits, np.uint64), _MADE, 1
                    if 1 << (bits - 1) > entries.size:
                        old_entries, old_codes, old_residual = entries, node_codes, residual
                        room = 1 << (bits - 1)
                        entries, node_codes = np.empty(room, np.uint32), np.empty(room, np.uint8)
                        residual = np.zeros(room)
                        _copy(old_entries, entries, used)
                        _copy(old_codes, node_codes, used)
                        _copy(old_residual, residual, used)
                        old_residual[:used] = 0.0
                _enter(table, bits, shift, epoch, entries, codes, used)
        for i in range(state[1]):
            residual[queue[i]] += pushed[i]
        _rank(
            v, indptr, weights, degree, codes, added, roots, c, symmetric,
            entries, node_codes, residual, state[0], tops, sample, chosen, last, index[s], score[s],
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
def _enter(table: Array, bits: int, shift: int, epoch: int, entries: Array, codes: Array | None, used: int) -> None:
    """Enter the positions of nodes into an empty table with open addressing and 2^bits slots.

    A word has the epoch, then the node in 32 bits, and the position in the lowest ``shift`` bits: the exclusive or with
    the word sought is the position of the same node, or larger if the slot has another node, largest if it is empty.
    Slots and positions are unsigned, so that compiled code need not handle negative indices.
    """
    mask, low, high = np.uint64((1 << bits) - 1), np.uint64(shift), np.uint64(shift + 32)
    empty, tag = np.uint64(1) << high, np.uint64(epoch) << high
    for i in range(used):
        node = _reached_node(np.uint64(i), entries, codes)
        at = np.uint64(np.uint32(np.uint32(node) * _HASH) >> np.uint32(32 - bits))
        word = tag | (node << low)
        while table[at] ^ word < empty:
            at = (at + np.uint64(1)) & mask
        table[at] = word | np.uint64(i)


def _make_workspace() -> tuple[Array, ...]:
    """Return an empty hash table and its epoch, the entries reached with codes and residuals, a queue, pushed amounts.

    They are parts of one array that is large enough for huge pages, because the table is read at random.
    """
    slots = 1 << _MOST_BITS
    room = slots // 2
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
    residual[:] = 0.0
    return table, np.zeros(1, np.int64), entries, node_codes, residual, queue, pushed


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
    they are in ``indices``, see `pack_codes`: one random read less per edge. ``index`` and ``score``, shape (b, p),
    start as -1 and 0.
    """
    workspace = _THREAD.__dict__.pop("workspace", None) or _make_workspace()
    _push_sources(indptr, indices, weights, degree, codes, symmetric, sources, c, eps, index, score, added, *workspace)
    _THREAD.workspace = workspace  # not after an error, which would leave residuals of a source in it
