"""Executors: one way to map work over threads, processes or a Ray cluster.

Ray is imported here and in `gpatcher.scale.ray_training` alone, and only when it starts to work.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Any, Protocol, TypeVar

from gpatcher.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")
_AHEAD = 2  # items handed out per worker, so that none waits for the next
_RETRIES = 10  # times that a piece of work is begun anew where its machine was lost
_STORE_BYTES = 1 << 28
_PATIENCE = 10.0  # seconds for a cluster to answer


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


class RayEngine:
    """A Ray cluster, for work that one machine is too small for; needs the extra ``gpatcher[ray]``.

    A piece of work whose machine is lost is done again on another. Every machine needs gpatcher installed.

    Parameters
    ----------
    address : of a running cluster, as host:port, or "auto" for the one that this machine belongs to; "local" starts
        one on this machine alone and stops it when the work is done
    """

    def __init__(self, address: str = "local") -> None:
        self.address = address

    def map(
        self, function: Callable[..., Result], items: Iterable[Item], shared: Sequence[Any] = ()
    ) -> Iterator[tuple[Item, Result]]:
        """See `Engine.map`; each of ``shared`` goes into the object store once."""
        ray = import_ray()
        own = not ray.is_initialized()
        if own:
            self._join(ray, sum(getattr(part, "nbytes", 0) for part in shared))
        try:
            references = [ray.put(part) for part in shared]
            task = ray.remote(max_retries=_RETRIES)(function)
            waiting: dict[Any, Item] = {}
            for item in items:
                waiting[task.remote(item, *references)] = item
                if len(waiting) >= _AHEAD * ray.cluster_resources().get("CPU", 1):
                    yield from _fetched(ray, waiting)
            while waiting:
                yield from _fetched(ray, waiting)
        finally:
            if own:
                ray.shutdown()

    def _join(self, ray: Any, nbytes: int) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        quiet = {"log_to_driver": False, "logging_level": "error", "configure_logging": True}
        if self.address == "local":
            # twice what is shared: results pass through the store too
            ray.init("local", include_dashboard=False, object_store_memory=2 * nbytes + _STORE_BYTES, **quiet)
            return
        host, _, port = self.address.rpartition(":")
        try:
            if "/" not in host and port.isdecimal():
                # ask before Ray does, which would try for minutes
                socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
            ray.init(self.address, **quiet)
        except (OSError, OverflowError, RuntimeError, ValueError) as error:
            raise InputError(
                f"no Ray cluster answers at {self.address!r} ({next(iter(str(error).splitlines()), '')}); "
                "start one with 'ray start --head', or leave the address out for one of this machine's own"
            ) from None


def _fetched(ray: Any, waiting: dict[Any, Item]) -> Iterator[tuple[Item, Any]]:
    [done], _ = ray.wait(list(waiting), num_returns=1)
    try:
        result = ray.get(done)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # the function's own error, without the cluster around it
    yield waiting.pop(done), result


def import_ray() -> Any:
    """Return the module of Ray; an error that says how to install it where it is missing."""
    try:
        import ray
    except ImportError:
        raise InputError("Ray is not installed; install it with: pip install 'gpatcher[ray]'") from None
    return ray


ENGINES = ("local", "ray")


def make_engine(name: str, threads: int | None = None, address: str | None = None) -> Engine:
    """Return the engine of this name."""
    if name not in ENGINES:
        raise InputError(f"there is no engine {name!r}; there are {', '.join(ENGINES)}")
    if name == "local":
        if address is not None:
            raise InputError(f"the address {address!r} is that of a Ray cluster; pass engine='ray' (--engine ray) too")
        return LocalEngine(threads)
    if threads is not None:
        raise InputError(f"threads={threads} is for the local engine; on Ray every core of the cluster works")
    import_ray()
    return RayEngine(address or "local")


class ProcessEngine:
    """Processes of this machine, with the interface of `gpatcher.scale.executors.Engine`; one works in this very process."""

    def __init__(self, processes: int = 1) -> None:
        if processes < 1:
            raise InputError(f"jobs must be at least 1, got {processes}")
        self.processes = processes

    def map(
        self, function: Callable[..., Result], items: Iterable[Item], shared: Sequence[Any] = ()
    ) -> Iterator[tuple[Item, Result]]:
        """Yield (item, function(item, *shared)) as they end; items are taken as processes become free."""
        if self.processes == 1:
            for item in items:
                yield item, function(item, *shared)
            return
        pool = ProcessPoolExecutor(self.processes, mp_context=get_context("spawn"), initializer=_watch_parent)
        waiting: dict[Future[Result], Item] = {}
        try:
            for item in items:
                waiting[pool.submit(function, item, *shared)] = item
                if len(waiting) > self.processes:  # one ahead, so that none waits for the next
                    yield from _ended(waiting)
            while waiting:
                yield from _ended(waiting)
        except BrokenProcessPool:
            raise InputError(
                "a process of the run was killed, perhaps for want of memory; what had ended is on record: "
                "run the same command again, with a smaller --jobs"
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _ended(waiting: dict[Future[Result], Item]) -> Iterator[tuple[Item, Result]]:
    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
        yield waiting.pop(future), future.result()


def _watch_parent() -> None:
    """End this process when the run that started it is killed."""
    parent = parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


def job_engine(name: str, processes: int, address: str | None = None) -> Engine:
    """Return the engine by its name: processes of this machine, or a Ray cluster at an address."""
    return ProcessEngine(processes) if name == "local" and address is None else make_engine(name, None, address)
