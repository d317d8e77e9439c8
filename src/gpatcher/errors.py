"""Errors and warnings about the input, and how messages quote values and counts.

Imports nothing heavy, so that ``--help`` answers at once.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import Any

MAX_SHOWN = 5  # offending values spelt out in a message


class InputError(ValueError):
    """The input cannot be used; the message names the value, the place and the way out."""


class InputWarning(UserWarning):
    """The input can be used, but not quite as given; the message says what was done."""


def warn_input(message: str) -> None:
    """Warn about the input at the line of the caller outside this package."""
    # point at the caller's line, not at one of ours
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("gpatcher"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, InputWarning, stacklevel=level)


def some(values: Iterable[Any]) -> str:
    """Spell out the first few values for a message: ``3, 7, 9, 12, 15, ... (40 in all)``."""
    values = list(values)
    text = ", ".join(str(value) for value in values[:MAX_SHOWN])
    return text if len(values) <= MAX_SHOWN else f"{text}, ... ({len(values)} in all)"


def counted(number: int, one: str, many: str | None = None) -> str:
    """Spell out a number with its noun.

    Examples
    --------
    >>> counted(1, "column"), counted(1200, "column"), counted(2, "class", "classes")
    ('1 column', '1,200 columns', '2 classes')
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
