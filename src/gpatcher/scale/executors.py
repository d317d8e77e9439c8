"""Executors: one `map` over threads, processes or a Ray cluster.

Ray is imported only here and in `gpatcher.scale.ray_training`, and only when it is used.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import active_children, get_context, parent_process
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from gpatcher.errors import InputError, check_at_least

T = TypeVar("T")
R = TypeVar("R")
ENGINES = ("local", "ray")
_AHEAD = 2  # tasks submitted per worker, so that no worker waits for its next one
_RETRIES = 10  # retries of a task whose node was lost
_STORE_BYTES = 1 << 28  # object store of a local cluster, besides the shared arguments
_CONNECT_SECONDS = 10.0


class Engine(Protocol):
    """Maps a function over items in parallel."""

    def map(self, function: Callable[..., R], items: Iterable[T], shared: Sequence[Any] = ()) -> Iterator[tuple[T, R]]:
        """Yield ``(item, function(item, *shared))`` in the order of completion.

        An exception of the function is raised here and cancels the tasks that have not started. The function is at
        module level, so that other processes can import it. Items are consumed lazily, a few ahead of the workers.
        ``shared``, such as the arrays of a graph, is sent to each node once.
        """
        ...


def _map_unordered(
    items: Iterable[T],
    submit: Callable[[T], Any],
    wait_any: Callable[[list[Any]], Iterator[tuple[Any, R]]],
    limit: Callable[[], float],
) -> Iterator[tuple[T, R]]:
    """Yield (item, result) in the order of completion, with at most ``limit()`` tasks submitted at a time."""
    pending: dict[Any, T] = {}

    def collect() -> Iterator[tuple[T, R]]:
        for task, result in wait_any(list(pending)):
            yield pending.pop(task), result

    for item in items:
        pending[submit(item)] = item
        if len(pending) >= limit():
            yield from collect()
    while pending:
        yield from collect()


def _wait_futures(futures: list[Future[R]]) -> Iterator[tuple[Future[R], R]]:
    """Wait for at least one future, and yield those that are done with their results."""
    for future in wait(futures, return_when=FIRST_COMPLETED).done:
        yield future, future.result()


class LocalEngine:
    """Threads of this process, by default one per core, for functions that release the GIL.

    Examples
    --------
    >>> sorted(LocalEngine(threads=2).map(pow, [1, 2, 3], shared=(2,)))
    [(1, 1), (2, 4), (3, 9)]
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None:
            check_at_least(1, threads=threads)
        self.threads = threads or os.cpu_count() or 1

    def map(self, function: Callable[..., R], items: Iterable[T], shared: Sequence[Any] = ()) -> Iterator[tuple[T, R]]:
        """See `Engine.map`."""
        items = iter(items)
        first = list(islice(items, 2))
        if len(first) < 2:  # to start a thread would take longer than a small task
            yield from ((item, function(item, *shared)) for item in first)
            return
        items = chain(first, items)
        pool = ThreadPoolExecutor(self.threads)
        try:
            yield from _map_unordered(
                items, lambda item: pool.submit(function, item, *shared), _wait_futures, lambda: _AHEAD * self.threads
            )
        finally:
            # after an error or Ctrl-C, running tasks finish and the others are cancelled
            pool.shutdown(wait=True, cancel_futures=True)


class ProcessEngine:
    """Processes of this machine; a single one is this process itself.

    In a ``with`` statement the processes serve all calls of `map`: each needs seconds to import torch and scikit-learn.
    Otherwise they end with the call.

    Examples
    --------
    >>> with ProcessEngine(1) as engine:
    ...     sorted(engine.map(pow, [1, 2, 3], shared=(2,)))
    [(1, 1), (2, 4), (3, 9)]
    """

    def __init__(self, processes: int = 1) -> None:
        check_at_least(1, jobs=processes)
        self.processes = processes
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self.processes > 1:
            self._pool = self._new_pool()
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None

    def _new_pool(self) -> ProcessPoolExecutor:
        """Return a pool, whose processes start with its first tasks."""
        threads = max(1, (os.cpu_count() or 1) // self.processes)
        return ProcessPoolExecutor(
            self.processes, mp_context=get_context("spawn"), initializer=_start_worker, initargs=(threads,)
        )

    def map(self, function: Callable[..., R], items: Iterable[T], shared: Sequence[Any] = ()) -> Iterator[tuple[T, R]]:
        """See `Engine.map`."""
        if self.processes == 1:
            for item in items:
                yield item, function(item, *shared)
            return
        pool = self._pool or self._new_pool()
        try:
            # one task ahead: a job that is submitted is claimed, and no other machine can run it
            yield from _map_unordered(
                items, lambda item: _submit(pool, function, item, *shared), _wait_futures, lambda: self.processes + 1
            )
        except KeyboardInterrupt:
            for worker in active_children():
                worker.terminate()
            raise
        except BrokenProcessPool:
            raise InputError(
                "a worker process was killed, perhaps because memory ran out; finished jobs are on record: "
                "run the same command again with a smaller --jobs"
            ) from None
        finally:
            if pool is not self._pool:
                pool.shutdown(wait=False, cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, function: Callable[..., R], *arguments: Any) -> Future[R]:
    """Submit a task; workers that start here inherit that Ctrl-C is blocked: this process alone acts on it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        if getattr(function, "__module__", None) == "__main__":
            return pool.submit(function, *arguments)
        with _script_hidden():
            return pool.submit(function, *arguments)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _script_hidden() -> Iterator[None]:
    """Start processes that do not import the script of this one; without a guard, it would run again in each of them.

    `multiprocessing` takes the script from these two attributes of the main module, and has no option for it.
    """
    main: dict[str, Any] = vars(sys.modules["__main__"])
    kept: dict[str, Any] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.pop("__file__", None)
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(kept)


def _start_worker(threads: int) -> None:
    """Share the cores with the other workers, and start a thread that ends this process if its parent is killed."""
    os.environ["OMP_NUM_THREADS"] = str(threads)  # read by torch when it is imported
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    parent = parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


class RayEngine:
    """A Ray cluster, for work that exceeds one machine; needs the extra ``gpatcher[ray]`` on every node.

    The address is host:port of a running cluster, "auto" for the one that this machine belongs to, or "local" to start
    one on this machine for the work. A task whose node is lost runs again on another node.

    Shared arguments go through the object store of each node, except memory-mapped arrays: workers map the same file,
    which must be on a file system that all nodes share, so that a graph may be larger than the memory of a node.
    """

    def __init__(self, address: str = "local") -> None:
        self.address = address

    def map(self, function: Callable[..., R], items: Iterable[T], shared: Sequence[Any] = ()) -> Iterator[tuple[T, R]]:
        """See `Engine.map`; the shared arguments are put into the object store once."""
        ray = import_ray()

        def wait_any(tasks: list[Any]) -> Iterator[tuple[Any, R]]:
            [done], _ = ray.wait(tasks, num_returns=1)
            try:
                result = ray.get(done)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None  # the exception of the function itself, without Ray's traceback
            yield done, result

        own = not ray.is_initialized()
        if own:
            self.connect(shared)
        try:
            references = [_MappedArray.of(argument) or ray.put(argument) for argument in shared]
            task = ray.remote(max_retries=_RETRIES)(_call)
            yield from _map_unordered(
                items,
                lambda item: task.remote(function, item, *references),
                wait_any,
                lambda: _AHEAD * ray.cluster_resources().get("CPU", 1),  # evaluated repeatedly: a cluster may grow
            )
        finally:
            if own:
                ray.shutdown()

    def connect(self, shared: Sequence[Any] = ()) -> None:
        """Connect to the cluster, or start a local one with room for the shared arguments."""
        ray = import_ray()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        quiet = {"log_to_driver": False, "logging_level": "error", "configure_logging": True}
        if self.address == "local":
            # twice the shared bytes: results pass through the store too
            sent = [getattr(argument, "nbytes", 0) for argument in shared if _MappedArray.of(argument) is None]
            store = 2 * sum(sent) + _STORE_BYTES
            ray.init("local", include_dashboard=False, object_store_memory=store, **quiet)
            return
        host, _, port = self.address.rpartition(":")
        try:
            if "/" not in host and port.isdecimal():
                # Ray itself would retry for minutes
                socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
            ray.init(self.address, **quiet)
        except (OSError, OverflowError, RuntimeError, ValueError) as error:
            raise InputError(
                f"no Ray cluster answers at {self.address!r} ({next(iter(str(error).splitlines()), '')}); "
                "start one with 'ray start --head', or omit the address to use a local one"
            ) from None


class _MappedArray(NamedTuple):
    """An array in a file, as it is sent to other processes."""

    path: str
    dtype: str
    offset: int
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: Any) -> _MappedArray | None:
        """Return where an array is mapped from, or None if it is in memory or only a part of a file."""
        whole = array if isinstance(array, np.memmap) else getattr(array, "base", None)
        if not isinstance(whole, np.memmap) or whole.mode != "r" or whole.filename is None:
            return None
        same = whole.ctypes.data == array.ctypes.data and (whole.shape, whole.dtype) == (array.shape, array.dtype)
        return cls(str(whole.filename), array.dtype.str, whole.offset, array.shape) if same else None

    def open(self) -> npt.NDArray[Any]:
        """Map the array in this process."""
        try:
            return np.memmap(self.path, self.dtype, "r", self.offset, self.shape).view(np.ndarray)
        except (OSError, ValueError) as error:
            raise InputError(
                f"{socket.gethostname()} cannot read {self.path} ({error}); put the graph on a file system that all "
                "machines of the cluster share"
            ) from None


def _call(function: Callable[..., R], item: Any, *shared: Any) -> R:
    """Call a function in a worker, with the arrays that are sent as files."""
    return function(item, *(part.open() if isinstance(part, _MappedArray) else part for part in shared))


def import_ray() -> Any:
    """Return the module ``ray``; if it is not installed, the error says how to install it."""
    try:
        import ray
    except ImportError:
        raise InputError("Ray is not installed; install it with: pip install 'gpatcher[ray]'") from None
    return ray


def make_engine(name: str, threads: int | None = None, address: str | None = None) -> Engine:
    """Return an engine for blocks of work: "local", on threads, or "ray", on the cluster at an address."""
    if name not in ENGINES:
        raise InputError(f"there is no engine {name!r}; choose one of {', '.join(ENGINES)}")
    if name == "local":
        if address is not None:
            raise InputError(f"the address {address!r} needs the Ray engine; pass engine='ray' (--engine ray) too")
        return LocalEngine(threads)
    if threads is not None:
        raise InputError(f"threads={threads} is for the local engine; Ray uses every core of the cluster")
    import_ray()
    return RayEngine(address or "local")


def job_engine(name: str, processes: int, address: str | None = None) -> Engine:
    """Return the engine for whole jobs: processes of this machine, or a Ray cluster."""
    return ProcessEngine(processes) if name == "local" and address is None else make_engine(name, None, address)
