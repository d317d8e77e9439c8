"""Words of text columns: a vocabulary with document frequencies, and the words of each row as features."""

from __future__ import annotations

import math

import numpy as np

from gpatcher.kernels.compile import Array, jit
from gpatcher.kernels.splitmix import mix

# The byte of a word in lower case, or 0 for bytes that separate words; bytes beyond ASCII are kept.
_LETTER = np.array(
    [c if c > 127 else ord(chr(c).lower()) if chr(c).isalnum() or c == 95 else 0 for c in range(256)], np.uint64
)


@jit
def _next_word(text: Array, at: int, stop: int) -> tuple[np.uint64, int, int]:
    """Return the 64-bit hash (FNV-1a, mixed), the start and the end of the next word; both are ``stop`` after the last.

    The hash stands for the word: two of a million words collide with a chance below 1e-7.
    """
    while at < stop and _LETTER[text[at]] == 0:
        at += 1
    key, start = np.uint64(0xCBF29CE484222325), at
    while at < stop and _LETTER[text[at]] != 0:
        key = (key ^ _LETTER[text[at]]) * np.uint64(0x100000001B3)
        at += 1
    return mix(key), start, at


@jit
def _find(table: Array, keys: Array, key: np.uint64) -> int:
    """Return the slot of a word in a table of word numbers, open-addressed: its own, or the empty one (-1) it gets."""
    slot: int = np.int64(key & np.uint64(table.size - 1))  # type: ignore[assignment]
    while table[slot] >= 0 and keys[table[slot]] != key:
        slot = (slot + 1) & (table.size - 1)
    return slot


@jit
def word_table(keys: Array, size: int) -> Array:
    """Return an open-addressed table of ``size`` slots, a power of two above the number of words."""
    table = np.full(size, -1, np.int32)
    for word in range(keys.size):
        table[_find(table, keys, keys[word])] = word
    return table


@jit
def count_words(start: Array, text: Array) -> tuple[Array, Array, Array]:
    """Return hash, place in the text (first byte, end) and number of rows of each word, in the order of appearance.

    Row v is ``text[start[v]:start[v + 1]]``; a word is a sequence of bytes for which `_LETTER` is not 0.
    """
    room, count = 1 << 12, 0
    keys, places = np.empty(room, np.uint64), np.empty((room, 2), np.int64)
    rows, last = np.zeros(room, np.int64), np.full(room, -1, np.int64)
    table = word_table(keys[:0], 2 * room)
    for v in range(start.size - 1):
        key, begin, end = _next_word(text, start[v], start[v + 1])
        while begin < end:
            slot = _find(table, keys, key)
            if table[slot] < 0:
                if count == room:
                    keys, places = np.append(keys, np.empty_like(keys)), np.concatenate((places, places))
                    rows, last = np.append(rows, np.zeros_like(rows)), np.append(last, np.full_like(last, -1))
                    room *= 2
                    table = word_table(keys[:count], 2 * room)
                    slot = _find(table, keys, key)
                table[slot] = count
                keys[count] = key
                places[count, 0], places[count, 1] = begin, end
                count += 1
            word = table[slot]
            if last[word] != v:
                last[word] = v
                rows[word] += 1
            key, begin, end = _next_word(text, end, start[v + 1])
    return keys[:count], places[:count], rows[:count]


@jit
def count_row_words(start: Array, text: Array, out: Array) -> None:
    """Write the number of words of each row, see `count_words`."""
    for v in range(out.size):
        out[v] = 0
        _, begin, end = _next_word(text, start[v], start[v + 1])
        while begin < end:
            out[v] += 1
            _, begin, end = _next_word(text, end, start[v + 1])


@jit
def weigh_words(
    start: Array, text: Array, keys: Array, norm: float, entries: Array, column: Array, value: Array
) -> None:
    """Write the words of each row that are in a vocabulary: 1 + log count, scaled so that the row has this L2 norm.

    ``keys`` are the hashes of the vocabulary. The rows are written to ``column`` and ``value``, with room for an entry
    per two bytes, at offsets ``entries``.
    """
    size = 2
    while size < 2 * keys.size:
        size *= 2
    table = word_table(keys, size)
    total = np.zeros(keys.size)
    at = entries[0] = 0
    for v in range(start.size - 1):
        first = at
        key, begin, end = _next_word(text, start[v], start[v + 1])
        while begin < end:
            word = table[_find(table, keys, key)]
            if word >= 0:
                if total[word] == 0:
                    column[at] = word
                    at += 1
                total[word] += 1
            key, begin, end = _next_word(text, end, start[v + 1])
        square = 0.0
        for e in range(first, at):
            word = column[e]
            total[word] = 1 + math.log(total[word])
            square += total[word] ** 2
        for e in range(first, at):
            value[e] = norm * total[column[e]] / math.sqrt(square)
            total[column[e]] = 0.0
        entries[v + 1] = at


@jit
def append_words(
    entries: Array, column: Array, value: Array, offset: int, cursor: Array, indices: Array, data: Array
) -> None:
    """Write the entries of `weigh_words` to CSR rows, from column ``offset`` on; ``cursor`` is advanced."""
    for v in range(cursor.size):
        at = cursor[v] - entries[v]
        for e in range(entries[v], entries[v + 1]):
            indices[at + e] = offset + column[e]
            data[at + e] = value[e]
        cursor[v] = at + entries[v + 1]
