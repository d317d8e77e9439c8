"""Engines: one way to map work over the threads of this machine or over a Ray cluster.

Ray is imported here and nowhere else, and only when a `RayEngine` starts to work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar

from gpatcher.graph import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 2  # items handed out per worker, so that none waits for the next


class Engine(Protocol):
    """What maps a function over items."""

    def map(
        self, function: Callable[..., Result], items: Iterable[Item], shared: Sequence[Any] = ()
    ) -> Iterator[tuple[Item, Result]]:
        """Yield (item, function(item, *shared)) as they finish, in any order; an error of the function is raised.

        Parameters
        ----------
        function : one that can be imported by its name, so that other machines find it
        items : taken a few at a time, as workers become free
        shared : what every call needs, such as the arrays of a graph; sent to each machine once
        """
        ...


class LocalEngine:
    """Threads of this process, for functions that release the interpreter's lock.

    Parameters
    ----------
    threads : by default one for each core

    Examples
    --------
    >>> sorted(LocalEngine(threads=2).map(pow, [1, 2, 3], shared=(2,)))
    [(1, 1), (2, 4), (3, 9)]
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise InputError(f"threads must be at least 1, got {threads}")
        self.threads = threads or os.cpu_count() or 1

    def map(
        self, function: Callable[..., Result], items: Iterable[Item], shared: Sequence[Any] = ()
    ) -> Iterator[tuple[Item, Result]]:
        """See `Engine.map`."""
        waiting: dict[Future[Result], Item] = {}
        pool = ThreadPoolExecutor(self.threads)
        try:
            for item in items:
                waiting[pool.submit(function, item, *shared)] = item
                if len(waiting) >= _AHEAD * self.threads:
                    yield from _finished(waiting)
            while waiting:
                yield from _finished(waiting)
        finally:
            # after an error or Ctrl-C: what has begun ends, the rest is not begun
            pool.shutdown(wait=True, cancel_futures=True)


def _finished(waiting: dict[Future[Result], Item]) -> Iterator[tuple[Item, Result]]:
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        yield waiting.pop(future), future.result()
