"""Errors and warnings about the input, checks of parameters, and how messages quote values and counts.

No heavy imports, so that ``--help`` is fast.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterable
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


def check_at_least(minimum: float, **values: float) -> None:
    """Raise if one of the values is smaller, or not a number."""
    for name, value in values.items():
        if not value >= minimum:
            raise InputError(f"{name} must be at least {minimum}, got {value}")


def check_fraction(name: str, value: float, *, one: bool = False) -> None:
    """Raise if the value lies outside [0, 1), or outside [0, 1] with ``one``."""
    if not (0 <= value < 1 or (one and value == 1)):
        raise InputError(f"{name} must lie in [0, 1{']' if one else ')'}, got {value}")


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise if the value is not one of the choices."""
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_count(**values: float) -> None:
    """Raise if one of the values is not an integer of at least 1."""
    for name, value in values.items():
        if not value >= 1 or value != int(value):
            raise InputError(f"{name} must be an integer of at least 1, got {value}")


def free_memory() -> int:
    """Return the bytes that this process can still allocate: free memory, and what a limit (ulimit -v) leaves."""
    import psutil

    free = int(psutil.virtual_memory().available)
    if sys.platform == "linux":
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            free = min(free, max(0, limit - int(psutil.Process().memory_info().vms)))
    return free


def check_memory(needed: float, what: str, advice: str) -> None:
    """Raise before an allocation that cannot fit, with what it needs and what is free."""
    if needed > 2**28 and needed > (free := free_memory()):
        amounts = f"about {needed / 2**30:,.1f} GiB of memory, and {free / 2**30:,.1f} GiB are free"
        raise InputError(f"{what} would take {amounts}; {advice}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out: of Python, NumPy, pyarrow, torch or the dynamic linker."""
    texts = (
        "can't allocate memory",
        "not enough memory",
        "start new thread",
        "allocate memory",
        "failed to map segment",
    )
    return isinstance(error, MemoryError) or any(text in str(error) for text in texts)
