"""The decorator of all compiled functions."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy.typing as npt

Array = npt.NDArray[Any]
# Not parallel=True: Numba's threads share OpenMP with torch and change the number of threads that torch trains with.
# The loops release the GIL instead, so that callers can run blocks of them on their own threads.
jit = nb.njit(cache=True, nogil=True)
