"""Ids by their index: an open-addressed hash table of integers or text, built once and read by many threads.

Not ``pyarrow.compute.index_in``, which hashes all ids again for each batch of edges. Ascending integers that are not
far apart are bits of a bitmap instead: a row of ``marks`` has 64 bits, and the number of those set in the rows before.
"""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, count_bits, jit, load_word, prefetch
from gpatcher.kernels.splitmix import mix

_SHORT = 7  # bytes of a text that its key holds, with their number in the eighth byte
_LONG = np.uint64(1 << 63)  # the bit of the key of a longer text, which is a hash
_AHEAD = 16  # ids whose slots are loaded into the cache ahead of their turn


@jit
def _word(text: Array, at: int, size: int) -> np.uint64:
    """Return up to 8 bytes of a text, followed by zeros."""
    if at + 8 <= text.size:
        word = load_word(text, np.uint64(at))
        return word if size >= 8 else word & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1))
    word = np.uint64(0)
    for i in range(min(size, 8)):
        word |= np.uint64(text[at + i]) << np.uint64(8 * i)
    return word


@jit
def text_keys(start: Array, text: Array, keys: Array) -> None:
    """Write the key of each text ``text[start[v]:start[v + 1]]``; short texts with equal keys are equal."""
    for v in range(keys.size):
        at, size = np.int64(start[v]), np.int64(start[v + 1]) - np.int64(start[v])
        if size <= _SHORT:
            keys[v] = _word(text, at, size) | (np.uint64(size) << np.uint64(56))
        else:
            key = np.uint64(size)
            while size > 0:
                key = mix(key ^ _word(text, at, size))
                at, size = at + 8, size - 8
            keys[v] = key | _LONG


@jit
def _same(start: Array, text: Array, v: int, other_start: Array, other_text: Array, u: int) -> bool:
    """Whether two texts are equal."""
    at, other = start[v], other_start[u]
    size = start[v + 1] - at
    if other_start[u + 1] - other != size:
        return False
    for i in range(size):  # noqa: SIM110, all() is slower in Numba
        if text[at + i] != other_text[other + i]:
            return False
    return True


@jit
def _slot(table: Array, key: np.uint64) -> int:
    return np.int64(mix(key) & np.uint64(table.shape[0] - 1))  # type: ignore[return-value]


@jit
def insert_ids(table: Array, keys: Array, start: Array | None, text: Array | None) -> bool:
    """Write key and index + 1 of each id into an empty table of 2^k slots, more than there are ids.

    Returns False at the first duplicate. The keys of integers are the integers, without ``start`` and ``text``.
    """
    for v in range(keys.size):
        slot = _slot(table, keys[v])
        while table[slot, 1] != 0:
            if table[slot, 0] == keys[v]:
                if start is None or text is None or keys[v] < _LONG:
                    return False
                if _same(start, text, v, start, text, np.int64(table[slot, 1]) - 1):
                    return False
            slot = (slot + 1) & (table.shape[0] - 1)
        table[slot, 0], table[slot, 1] = keys[v], np.uint64(v + 1)
    return True


@jit
def find_ids(
    table: Array,
    id_start: Array | None,
    id_text: Array | None,
    keys: Array,
    start: Array | None,
    text: Array | None,
    offset: int,
    out: Array,
) -> bool:
    """Write index + offset of each key of a table of `insert_ids`; return False at the first that is not there."""
    for e in range(keys.size):
        if e + _AHEAD < keys.size:
            prefetch(table, np.uint64(2 * _slot(table, keys[e + _AHEAD])))
        slot = _slot(table, keys[e])
        while True:
            if table[slot, 1] == 0:
                return False
            v = np.int64(table[slot, 1]) - 1
            if table[slot, 0] == keys[e]:
                if id_start is None or id_text is None or start is None or text is None or keys[e] < _LONG:
                    break
                if _same(start, text, e, id_start, id_text, v):
                    break
            slot = (slot + 1) & (table.shape[0] - 1)
        out[e] = v + offset
    return True


@jit
def mark_ids(ids: Array, first: int, marks: Array) -> None:
    """Set the bit of each id; that of ``first`` is the lowest of the first row."""
    for e in range(ids.size):
        bit = np.uint64(ids[e] - first)
        marks[bit >> np.uint64(6), 0] |= np.uint64(1) << (bit & np.uint64(63))


@jit
def count_marks(marks: Array) -> int:
    """Write the number of bits set in the rows before each, and return the number of all."""
    count = np.uint64(0)
    for row in range(marks.shape[0]):
        marks[row, 1] = count
        count += count_bits(marks[row, 0])
    return np.int64(count)  # type: ignore[return-value]


@jit
def list_marks(marks: Array, first: int, ids: Array) -> None:
    """Write the ids whose bits are set, in ascending order."""
    at = 0
    for row in range(marks.shape[0]):
        word = marks[row, 0]
        while word:
            lowest = word & (~word + np.uint64(1))
            ids[at] = first + 64 * row + np.int64(count_bits(lowest - np.uint64(1)))
            word ^= lowest
            at += 1


@jit
def find_marks(marks: Array, first: int, last: int, values: Array, offset: int, out: Array) -> bool:
    """Write index + offset of each value in [first, last]; return False at the first whose bit is not set."""
    for e in range(values.size):
        if not first <= values[e] <= last:
            return False
        bit = np.uint64(values[e] - first)
        row, mask = bit >> np.uint64(6), np.uint64(1) << (bit & np.uint64(63))
        word = marks[row, 0]
        if not word & mask:
            return False
        out[e] = np.int64(marks[row, 1] + count_bits(word & (mask - np.uint64(1)))) + offset
    return True
