"""Data-parallel training in several processes of a Ray cluster."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpatcher.errors import InputError, counted
from gpatcher.scale.executors import RayEngine, import_ray

_GROUP_SECONDS = 120  # a process that does not answer for longer counts as lost
_RESTARTS = 3
_MAX_WORKERS = 8


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
    """Call ``function(*shared, send)`` in several processes of the cluster that form a torch process group.

    If a process is lost, all are restarted, up to three times: the function must resume from a checkpoint, on a file
    system that all nodes of the cluster share. Ray Train keeps its state in ``folder``, on that file system, during the
    run. ``send`` passes a message to ``on_message``, which runs in another thread of the calling process. There are
    ``workers`` processes, by default one per CPU or GPU and at most 8. With ``gpus`` each process has a GPU as its
    current device, and the group uses NCCL, otherwise Gloo.
    """
    ray = import_ray()
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.util.queue import Queue

    own = not ray.is_initialized()
    if own:
        engine.connect(shared)
    storage = folder.absolute() / ".ray"
    errors: list[str] = []

    def receive(queue: Any) -> None:
        for topic, message in iter(queue.get, None):
            if topic == "error":
                errors.append(message)
            elif on_message is not None:
                on_message(message)

    try:
        device = "GPU" if gpus else "CPU"
        available = int(ray.cluster_resources().get(device, 0))
        workers = workers or max(1, min(available, _MAX_WORKERS))
        if workers > available:
            raise InputError(
                f"the cluster has {counted(available, device)}, too few for {counted(workers, 'worker')} with one "
                "each; ask for fewer workers (--workers) or another device (--device)"
            )
        queue = Queue(actor_options={"num_cpus": 0})
        config = {"function": function, "shared": [ray.put(part) for part in shared], "queue": queue, "gpus": gpus}
        trainer = TorchTrainer(
            _worker,
            train_loop_config=config,
            # counts stay on the CPU while the model is on a GPU, so both backends are needed
            torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if gpus else "gloo", timeout_s=_GROUP_SECONDS),
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpus, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(
                name="training", storage_path=str(storage), failure_config=FailureConfig(max_failures=_RESTARTS)
            ),
        )
        with ThreadPoolExecutor(1) as listener:
            received = listener.submit(receive, queue)
            try:
                trainer.fit()
            except Exception as error:
                if not errors:
                    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
                    raise InputError(
                        f"the training on the cluster failed {_RESTARTS + 1} times "
                        f"({lines[-1] if lines else 'no reason given'}); "
                        "fix the cause and run the same command with --resume"
                    ) from error
            finally:
                queue.put(None)
                received.result()
        if errors:
            raise InputError(errors[0])
    finally:
        shutil.rmtree(storage, ignore_errors=True)
        if own:
            ray.shutdown()


def _worker(config: dict[str, Any]) -> None:
    """Fetch the shared arguments and call the function, in each process of the group."""
    ray = import_ray()
    if config["gpus"]:
        import torch
        from ray.train.torch import get_device

        torch.cuda.set_device(get_device())
    queue = config["queue"]
    try:
        config["function"](*ray.get(config["shared"]), lambda message: queue.put(("message", message)))
    except InputError as error:
        queue.put(("error", str(error)))
        raise
