"""Training in several processes of a Ray cluster."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpatcher.errors import InputError, counted
from gpatcher.scale.executors import RayEngine, import_ray

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
    on_message: Callable[[Any], None] | None = None,
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
        elif on_message is not None:
            on_message(content)

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
