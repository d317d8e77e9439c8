"""How the compiled loops of this package are compiled."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy.typing as npt

Array = npt.NDArray[Any]
# Not parallel=True: numba's threads share OpenMP with torch and change the number of threads it trains with. The loops
# release the interpreter's lock, so that callers can run blocks of them on threads of their own.
jit = nb.njit(cache=True, nogil=True)
