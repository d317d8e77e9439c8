"""Memory that the C library keeps for loops that allocate the same large tensors again and again."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt
_NEVER = 2**31 - 1
_LARGEST_DEFAULT = 1 << 25


@contextmanager
def reuse_memory() -> Iterator[None]:
    """Keep freed memory until the end, then return it to the system.

    glibc maps new pages for every tensor above 32 MiB and unmaps them afterwards, and a training step on a large graph
    faults them in again. Applies to the whole process. Does nothing where the C library is another.
    """
    libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(libc, "malloc_trim"):
        yield
        return
    for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
        libc.mallopt(parameter, _NEVER)
    try:
        yield
    finally:
        for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            libc.mallopt(parameter, _LARGEST_DEFAULT)
        libc.malloc_trim(0)
