"""Feature hashing of the words of text columns."""

from __future__ import annotations

import math

import numpy as np

from gpatcher.kernels.compile import Array, jit

# The byte of a word in lower case, or 0 for bytes that separate words; bytes beyond ASCII are kept.
_LETTER = np.array([c if c > 127 else ord(chr(c).lower()) if chr(c).isalnum() or c == 95 else 0 for c in range(256)])


@jit
def _murmur_block(block: int) -> int:
    """Mix a block of four bytes as MurmurHash3 does before it enters the state."""
    block = (block * 0xCC9E2D51) & 0xFFFFFFFF
    block = (block << 15 | block >> 17) & 0xFFFFFFFF
    return (block * 0x1B873593) & 0xFFFFFFFF


@jit
def hash_words(start: Array, text: Array, width: int, entries: Array, column: Array, value: Array) -> None:
    """Hash the words of each row by MurmurHash3 to signed columns, and normalise the row to Euclidean norm 1.

    Row v is ``text[start[v]:start[v + 1]]``; a word is a sequence of two or more bytes for which `_LETTER` is not 0.
    The rows are written to ``column`` and ``value``, with room for an entry per three bytes, at offsets ``entries``.
    """
    total = np.zeros(width)
    columns = np.empty(width, np.int32)  # of the current row, in the order of their first word
    seen = np.zeros(width, np.bool_)
    at = 0
    entries[0] = 0
    for v in range(start.size - 1):
        count = 0
        state = block = length = 0
        for i in range(start[v], start[v + 1] + 1):
            code = _LETTER[text[i]] if i < start[v + 1] else 0
            if code:
                block |= code << (8 * (length & 3))
                length += 1
                if length & 3 == 0:
                    state ^= _murmur_block(block)
                    state = (state << 13 | state >> 19) & 0xFFFFFFFF
                    state = (state * 5 + 0xE6546B64) & 0xFFFFFFFF
                    block = 0
            elif length:
                if length > 1:
                    state ^= _murmur_block(block) ^ length
                    state = ((state ^ state >> 16) * 0x85EBCA6B) & 0xFFFFFFFF
                    state = ((state ^ state >> 13) * 0xC2B2AE35) & 0xFFFFFFFF
                    state ^= state >> 16
                    negative = state >> 31  # sign bit; a branch on it could not be predicted
                    j = np.uint32((state ^ -negative) + negative) % np.uint32(width)
                    if not seen[j]:
                        seen[j] = True
                        columns[count] = j
                        count += 1
                    total[j] += 1 - 2 * negative
                state = block = length = 0
        square = 0.0
        for e in range(count):
            square += total[columns[e]] ** 2
        norm = math.sqrt(square)
        for e in range(count):
            j = columns[e]
            if total[j] != 0:
                column[at] = j
                value[at] = total[j] / norm
                at += 1
            total[j] = 0.0
            seen[j] = False
        entries[v + 1] = at


@jit
def append_words(
    entries: Array, column: Array, value: Array, offset: int, cursor: Array, indices: Array, data: Array
) -> None:
    """Write the entries of `hash_words` to CSR rows, from column ``offset`` on; ``cursor`` is advanced."""
    for v in range(cursor.size):
        at = cursor[v] - entries[v]
        for e in range(entries[v], entries[v + 1]):
            indices[at + e] = offset + column[e]
            data[at + e] = value[e]
        cursor[v] = at + entries[v + 1]
