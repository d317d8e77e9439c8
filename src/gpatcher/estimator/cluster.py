"""Training in several processes of a Ray cluster, from a patch table that all of them read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError
from gpatcher.estimator.memory import peak_rss_mb
from gpatcher.estimator.prepare import Prepared, training_labels
from gpatcher.graph.split import Split
from gpatcher.model.config import ModelConfig
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import FeatureTable
from gpatcher.patches.store import PatchTable
from gpatcher.scale.executors import RayEngine
from gpatcher.scale.process_group import ProcessGroup
from gpatcher.scale.ray_training import run_together
from gpatcher.training.loop import Progress, TrainConfig, train


def train_on_cluster(
    engine: RayEngine,
    prepared: Prepared,
    split: Split,
    model: ModelConfig,
    config: TrainConfig,
    *,
    seed: int,
    checkpoint: Path | None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> float:
    """Train in several processes and return the peak resident memory of a process, in MB.

    The trained weights are in the finished checkpoint.
    """
    table = prepared.table
    if table is None or checkpoint is None:
        raise InputError(
            "a cluster trains from a patch table and with a checkpoint that all its machines can read; make the table "
            "with 'gpatcher patches' and pass it (patch_table=, --patches)"
        )
    device = str(prepared.x.device)
    if device not in ("cpu", "cuda"):
        raise InputError(f"a cluster trains on cpu or cuda and gives each process one, got device={device!r}")
    peak = 0.0

    def on_message(message: tuple[str, Any, Any]) -> None:
        nonlocal peak
        kind, value, figures = message
        if kind == "peak":
            peak = max(peak, value)
        elif progress is not None:
            progress(value, figures)

    graph = prepared.graph
    job = {"table": table.absolute(), "checkpoint": checkpoint.absolute(), "classes": graph.num_outputs}
    job |= {"model": model, "train": config, "seed": seed, "device": device}
    parts = tuple(np.array(part) for part in (split.train, split.val, split.test))
    run_together(
        engine,
        train_worker,
        (job, prepared.x, np.asarray(graph.labels()), parts),
        folder=checkpoint.parent,
        workers=workers,
        gpus=device == "cuda",
        on_message=on_message,
    )
    return peak


def train_worker(
    job: dict[str, Any], x: FeatureTable, y: IntArray, parts: tuple[IntArray, ...], send: Callable[[Any], None]
) -> None:
    """Train as one process of a group; the first sends the metrics of each epoch and writes the checkpoint."""
    checkpoint: Path = job["checkpoint"]
    if not checkpoint.parent.is_dir():
        raise InputError(
            f"{checkpoint.parent} does not exist on every machine; put it on a file system that all machines share"
        )
    group = ProcessGroup(together=True)
    torch.manual_seed(job["seed"])
    source = PatchTable.open(job["table"]).source()
    labels = training_labels(y, parts[0]) if "labels" in job["model"].readout else None
    model = GPatcher(source, x.shape[1], job["classes"], job["model"], labels).to(job["device"])
    train(
        model,
        x,
        y,
        Split(*parts),
        job["train"],
        seed=job["seed"],
        progress=(lambda epoch, figures: send(("epoch", epoch, figures))) if group.rank == 0 else None,
        checkpoint=checkpoint,
        group=group,
    )
    send(("peak", peak_rss_mb(), None))
