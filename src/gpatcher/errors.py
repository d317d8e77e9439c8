"""Errors and warnings about the input, and how messages quote values and counts.

No heavy imports, so that ``--help`` is fast.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import Any

MAX_SHOWN = 5  # values listed in a message


class InputError(ValueError):
    """The input is invalid; the message names the value, its position and a way out."""


class InputWarning(UserWarning):
    """The input is usable but was changed or is doubtful; the message says how."""


def warn_input(message: str) -> None:
    """Issue an `InputWarning` that points at the line of the caller outside this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("gpatcher"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, InputWarning, stacklevel=level)


def some(values: Iterable[Any]) -> str:
    """List the first few values for a message.

    Examples
    --------
    >>> some([3, 7]), some(range(40))
    ('3, 7', '0, 1, 2, 3, 4, ... (40 in all)')
    """
    values = list(values)
    text = ", ".join(str(value) for value in values[:MAX_SHOWN])
    return text if len(values) <= MAX_SHOWN else f"{text}, ... ({len(values)} in all)"


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun in the singular, or in the plural, by default with an s.

    Examples
    --------
    >>> counted(1, "column"), counted(1200, "column"), counted(2, "class", "classes")
    ('1 column', '1,200 columns', '2 classes')
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
