"""Where requests are worked on: one at a time, within their time; explanations are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import HTTPException, Request

from gpatcher.errors import counted
from gpatcher.serve.guard import Limits

_KEPT_BYTES = 1 << 26  # of explanations


class Desk:
    """One thread that computes, so that requests do not disturb each other; the others wait, or are refused.

    Parameters
    ----------
    limits : Limits
    late : str
        What to tell a request that ran out of time.
    """

    def __init__(self, limits: Limits, late: str) -> None:
        self.limits = limits
        self.late = late
        self.waiting = 0
        self.busy = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="gpatcher")

    async def run(self, request: Request, work: Callable[..., Any], *arguments: Any) -> Any:
        """Return a result before the deadline of the request; work that is late is finished nevertheless."""
        if self.waiting >= self.limits.waiting:
            raise HTTPException(503, f"{counted(self.waiting, 'request')} wait already; ask again later")
        loop = asyncio.get_running_loop()
        self.waiting += 1
        try:
            async with asyncio.timeout_at(request.scope["deadline"]):
                return await loop.run_in_executor(self._pool, self._do, work, arguments)
        except TimeoutError:
            raise HTTPException(503, f"no answer within {self.limits.seconds:g} seconds; {self.late}") from None
        finally:
            self.waiting -= 1

    def _do(self, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        self.busy = True
        try:
            return work(*arguments)
        finally:
            self.busy = False

    def close(self) -> None:
        """Take nothing more; what is late may still run."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Kept:
    """A function whose results are kept, the oldest dropped first; explanations of large patches take megabytes.

    Parameters
    ----------
    function : callable
        From a text to bytes.
    limit : int
        Bytes to keep; the latest result is kept whatever its size.

    Examples
    --------
    >>> calls = []
    >>> kept = Kept(lambda name: calls.append(name) or name.encode(), limit=2)
    >>> [kept(name) for name in "aabca"], calls
    ([b'a', b'a', b'b', b'c', b'a'], ['a', 'b', 'c', 'a'])
    """

    def __init__(self, function: Callable[[str], bytes], limit: int = _KEPT_BYTES) -> None:
        self.function = function
        self.limit = limit
        self._results: dict[str, bytes] = {}

    def __call__(self, name: str) -> bytes:
        """Return the result, kept or new."""
        if name not in self._results:
            self._results[name] = self.function(name)
            while len(self._results) > 1 and sum(map(len, self._results.values())) > self.limit:
                del self._results[next(iter(self._results))]
        return self._results[name]
