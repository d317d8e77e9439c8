"""Integers in text."""

from __future__ import annotations

import numpy as np

from gpatcher.kernels.compile import Array, jit

_MAX_DIGITS = 19
_TENTH = (2**63 - 1) // 10  # of the largest number


@jit
def parse_integers(start: Array, text: Array, values: Array, missing: Array) -> int:
    """Parse ``text[start[v]:start[v + 1]]`` as integers in their shortest form, with spaces around them.

    Blank text is missing. Returns the position of the first value such as 007, +1, -0 or 1.0, which an integer would
    not give back as it is written, or one beyond 64 bits; the number of values if there is none.
    """
    for v in range(start.size - 1):
        first, last = start[v], start[v + 1]
        while first < last and text[first] in (32, 9):
            first += 1
        while first < last and text[last - 1] in (32, 9):
            last -= 1
        values[v], missing[v] = 0, first == last
        if first == last:
            continue
        negative = text[first] == 45  # -
        first += negative
        digits = last - first
        if digits < 1 or digits > _MAX_DIGITS or (text[first] == 48 and (digits > 1 or negative)):
            return v
        number = np.int64(0)
        for i in range(first, last):
            digit = np.int64(text[i]) - 48
            if digit < 0 or digit > 9 or number > _TENTH or (number == _TENTH and digit > 7 + negative):
                return v
            number = 10 * number + digit  # wraps around at -2⁶³, which is its own negative
        values[v] = -number if negative else number
    return int(start.size - 1)
