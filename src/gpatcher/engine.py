"""Engines: one way to map work over the threads of this machine or over a Ray cluster.

Ray is imported here and nowhere else, and only when a `RayEngine` starts to work.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gpatcher.graph import InputError, counted

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


# ------------------------------------------------------------------------------------- training together

_GROUP_SECONDS = 120  # a member that keeps the others waiting longer is taken for lost
_RESTARTS = 3
_MOST_WORKERS = 8


def run_together(
    engine: RayEngine,
    function: Callable[..., None],
    shared: Sequence[Any],
    *,
    folder: Path,
    workers: int | None = None,
    gpus: bool = False,
    hear: Callable[[Any], None] | None = None,
) -> None:
    """Call ``function(*shared, tell)`` in several processes of the cluster, joined by torch's process group.

    Where a process is lost, all start again: the function must go on from what it kept in a file. That needs a file
    system which all machines of the cluster share.

    Parameters
    ----------
    function : one that can be imported by its name; ``tell(message)`` sends a message here
    shared : its arguments, sent to each machine once
    folder : a shared one, for what Ray Train keeps while it runs
    workers : number of processes, each on one CPU or GPU; by default one for each of the cluster, up to 8
    gpus : whether each gets a GPU, joined by nccl, which is then the current device; otherwise gloo joins them
    hear : called with each message, in a thread of its own
    """
    ray = import_ray()
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.util.queue import Queue

    own = not ray.is_initialized()
    if own:
        engine._join(ray, sum(getattr(part, "nbytes", 0) for part in shared))
    place = folder.absolute() / ".ray"
    refused: list[str] = []

    def receive(message: tuple[str, Any]) -> None:
        kind, content = message
        if kind == "error":
            refused.append(content)
        elif hear is not None:
            hear(content)

    try:
        kind = "GPU" if gpus else "CPU"
        there = int(ray.cluster_resources().get(kind, 0))
        workers = workers or max(1, min(there, _MOST_WORKERS))
        if workers > there:
            raise InputError(
                f"the cluster has {counted(there, kind)}, too few for {counted(workers, 'worker')} with one each; "
                "ask for fewer (--workers) or for another device (--device)"
            )
        queue = Queue(actor_options={"num_cpus": 0})
        given = {"function": function, "shared": [ray.put(part) for part in shared], "queue": queue, "gpus": gpus}
        trainer = TorchTrainer(
            _member,
            train_loop_config=given,
            # counts stay on the CPU where the model is on a GPU, so gloo is needed there too
            torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if gpus else "gloo", timeout_s=_GROUP_SECONDS),
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpus, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(
                name="training", storage_path=str(place), failure_config=FailureConfig(max_failures=_RESTARTS)
            ),
        )
        with ThreadPoolExecutor(1) as listener:
            heard = listener.submit(_listen, queue, receive)
            try:
                trainer.fit()
            except Exception as error:
                if not refused:
                    cause = next(
                        (line for line in reversed(str(error).splitlines()) if line.strip()), "no reason given"
                    )
                    raise InputError(
                        f"the training on the cluster failed {_RESTARTS + 1} times ({cause.strip()}); "
                        "mend the cause and run the same command with --resume"
                    ) from error
            finally:
                queue.put(None)
                heard.result()
        if refused:
            raise InputError(refused[0])
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if own:
            ray.shutdown()


def _member(given: dict[str, Any]) -> None:
    """Run in each process: fetch what is shared and call the function."""
    ray = import_ray()
    if given["gpus"]:
        import torch
        from ray.train.torch import get_device

        torch.cuda.set_device(get_device())
    try:
        given["function"](*ray.get(given["shared"]), lambda message: given["queue"].put(("told", message)))
    except InputError as error:
        given["queue"].put(("error", str(error)))
        raise


def _listen(queue: Any, receive: Callable[[tuple[str, Any]], None]) -> None:
    for message in iter(queue.get, None):
        receive(message)
