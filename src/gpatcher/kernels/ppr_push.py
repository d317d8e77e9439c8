"""Personalised PageRank by local push."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpatcher.kernels.compile import Array, jit
from gpatcher.kernels.overlay import Overlay, node_degree, overlay_row, row_length
from gpatcher.kernels.topk import insert_sorted

# Degrees by a byte each, as they are read at random for every edge: code k stands for a degree of 2^((k - 128) / 4) or
# more, 0 for any.
_CODES = 256
_FIRST_TABLE = 1 << 17  # places at first; with fewer, a source near a hub moves its table again and again


def degree_codes(degree: Array) -> Array:
    """Return a byte for each degree that bounds it from below to a quarter of its octave."""
    with np.errstate(divide="ignore"):
        octave = np.log2(degree)
    codes: Array = np.clip(np.floor(4 * octave) + 128, 0, _CODES - 1).astype(np.uint8)
    return codes


@jit
def _least_degree(code: int) -> float:
    return 2.0 ** ((code - 128) / 4) * (1.0 - 1e-9) if code > 0 else 0.0  # less than it by what rounding may do


@jit
def _code(codes: Array, added: Overlay, node: Any) -> int:
    if added is not None and np.int64(node) >= codes.size:
        return 0
    return codes[node]  # type: ignore[no-any-return]


@jit
def _slot(keys: Array, mask: np.uint64, node: Any) -> Any:
    """Find a node's place among the first mask + 1, a power of two, of a table of open addresses.

    Places are unsigned, for which compiled code need not ask whether they count from the end. The hash has 25 bits.
    """
    at = np.uint64(np.uint32(np.uint32(node) * np.uint32(0x9E3779B1)) >> np.uint32(7)) & mask
    while keys[at] != -1 and keys[at] != np.int32(node):
        at = (at + np.uint64(1)) & mask
    return at


@jit
def _give(
    indices: Array,
    weights: Array | None,
    first: int,
    last: int,
    share: float,
    indptr: Array,
    degree: Array,
    codes: Array,
    added: Overlay,
    sure: Array,
    eps: float,
    keys: Array,
    residual: Array,
    mask: np.uint64,
    touched: Array,
    met: Array,
    queue: Array,
    used: int,
    tail: int,
) -> tuple[int, int]:
    """Give each neighbour its share; return the places used and the end of the queue."""
    for e in range(first, last):
        w = np.uint64(indices[e])
        at = _slot(keys, mask, w)
        code = _code(codes, added, w)
        before = 0.0
        if keys[at] == -1:
            keys[at] = np.int32(w)
            touched[used] = at
            met[used] = code
            used += 1
        else:
            before = residual[at]
        now = before + (share if weights is None else share * weights[e])
        residual[at] = now
        if now > sure[code]:
            limit = eps * node_degree(indptr, weights, degree, added, np.int64(w))
            if before <= limit < now:  # it was not waiting yet
                queue[tail] = np.int32(w)
                tail += 1
    return used, tail


@jit
def _push_all(
    indptr: Array,
    indices: Array,
    weights: Array | None,
    degree: Array,
    codes: Array,
    added: Overlay,
    sure: Array,
    c: float,
    eps: float,
    keys: Array,
    residual: Array,
    mask: np.uint64,
    touched: Array,
    met: Array,
    queue: Array,
    amount: Array,
    state: Array,
) -> bool:
    """Push until no residual is left to push, or until a row might not fit into the arrays; tell which.

    A function of its own because it must not change its arrays for others: compiled code then counts no references
    in its loops.
    """
    used, head, tail = state[0], state[1], state[2]
    while head < tail:
        u = queue[head]
        row = row_length(indptr, added, u)
        if used + row > (np.int64(mask) + 1) // 2 or tail + row > queue.size:
            break
        at = _slot(keys, mask, u)
        amount[head] = residual[at]
        share = c * residual[at] / node_degree(indptr, weights, degree, added, u)
        residual[at] = 0.0
        head += 1
        if u < indptr.size - 1:
            first, last = indptr[u], indptr[u + 1]
            used, tail = _give(
                indices, weights, first, last, share, indptr, degree, codes, added, sure, eps,
                keys, residual, mask, touched, met, queue, used, tail,
            )  # fmt: skip
        if added is not None:
            own = overlay_row(added[0], u)
            if own >= 0:
                first, last = added[1][own], added[1][own + 1]
                used, tail = _give(
                    added[2], added[3], first, last, share, indptr, degree, codes, added, sure, eps,
                    keys, residual, mask, touched, met, queue, used, tail,
                )  # fmt: skip
    state[0], state[1], state[2] = used, head, tail
    return head == tail  # type: ignore[no-any-return]


@jit
def _rank(
    v: int,
    indptr: Array,
    weights: Array | None,
    degree: Array,
    added: Overlay,
    most: Array,
    c: float,
    keys: Array,
    received: Array,
    touched: Array,
    met: Array,
    used: int,
    index: Array,
    score: Array,
) -> None:
    """Write the patch of v from the nodes touched, and empty the table."""
    index[0] = v
    score[0] = (1.0 - c) * received[touched[0]]
    keys[touched[0]] = -1
    scale = (1.0 - c) * np.sqrt(node_degree(indptr, weights, degree, added, v))
    above = scale * (1.0 + 1e-6)  # with it no score is larger than its bound, rounding included
    members, values = index[1:], score[1:]
    count = 0
    floor = 0.0
    for i in range(1, used):
        at = touched[i]
        if above * received[at] * most[met[i]] >= floor:
            u = keys[at]
            count = insert_sorted(
                np.float32(scale * received[at] / np.sqrt(node_degree(indptr, weights, degree, added, u))),
                u,
                values,
                members,
                count,
            )
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
    sources: Array,
    c: float,
    eps: float,
    index: Array,
    score: Array,
    added: Overlay = None,
) -> None:
    """Write the patches of the sources by personalised PageRank on the symmetric Ã, found by local pushes.

    From a residual of 1 at the source v, each push moves (1 - c) of a node's residual to its estimate and
    shares the rest among its neighbours, until no residual exceeds eps · degree. The estimate, plus what the
    residual is sure to add, is a lower bound of the random walk's π_v; r_v[u] = π_v[u] sqrt(d_v / d_u) makes it
    that of Ã, and only then are the largest taken. Cost and memory per source do not depend on n.

    A node's estimate plus (1 - c) times its residual is (1 - c) times all that it ever received: what it pushed,
    which the queue keeps, and its residual, which the table holds.

    ``codes`` are those of `degree_codes`; most nodes touched neither push nor rank by any degree that theirs allow,
    and it is never read. ``index`` and ``score`` (sources, p) come filled with -1 and 0; the source itself goes first.
    """
    sure, most = np.empty(_CODES), np.empty(_CODES)
    for code in range(_CODES):
        least = _least_degree(code)
        sure[code] = eps * least
        most[code] = 1.0 / np.sqrt(least) if least > 0 else np.inf
    fewest = 16
    while fewest < min(4 * indptr.size, _FIRST_TABLE):
        fewest *= 2
    keys, residual = np.full(fewest, -1, np.int32), np.empty(fewest)
    touched = np.empty(fewest // 2, np.uint32)  # the places in use, the source's first, in the order of their use
    met = np.empty(fewest // 2, np.uint8)  # the codes of the nodes there
    queue, amount = np.empty(fewest, np.int32), np.empty(fewest)  # nodes to push, and what those before the head pushed
    state = np.zeros(3, np.int64)
    for s in range(sources.size):
        v = sources[s]
        if not node_degree(indptr, weights, degree, added, v) > 0:
            index[s, 0] = v
            score[s, 0] = 1.0 - c
            continue
        mask = np.uint64(fewest - 1)
        at = _slot(keys, mask, v)
        keys[at], residual[at] = v, 1.0
        touched[0], met[0], queue[0] = at, _code(codes, added, v), v
        state[0], state[1], state[2] = 1, 0, 1  # places used, head of the queue, its end
        while not _push_all(
            indptr, indices, weights, degree, codes, added, sure, c, eps,
            keys, residual, mask, touched, met, queue, amount, state,
        ):  # fmt: skip
            used, head, tail = state[0], state[1], state[2]
            row = row_length(indptr, added, queue[head])
            if tail + row > queue.size:
                old_queue, old_amount = queue, amount
                queue, amount = np.empty(2 * (tail + row), np.int32), np.empty(2 * (tail + row))
                queue[:tail] = old_queue[:tail]
                amount[:head] = old_amount[:head]
            had = np.int64(mask) + 1
            places = had
            while places // 2 < used + row:
                places *= 2
            if places > had:
                # move every entry to its place in a table with room for the next row
                nodes, values = keys[touched[:used]], residual[touched[:used]]
                keys[touched[:used]] = -1
                if places > keys.size:
                    keys, residual = np.full(places, -1, np.int32), np.empty(places)
                    old_met = met
                    touched, met = np.empty(places // 2, np.uint32), np.empty(places // 2, np.uint8)
                    met[:used] = old_met[:used]
                mask = np.uint64(places - 1)
                for i in range(used):
                    at = _slot(keys, mask, nodes[i])
                    keys[at], residual[at], touched[i] = nodes[i], values[i], at
        for i in range(state[1]):
            residual[_slot(keys, mask, queue[i])] += amount[i]
        _rank(v, indptr, weights, degree, added, most, c, keys, residual, touched, met, state[0], index[s], score[s])
