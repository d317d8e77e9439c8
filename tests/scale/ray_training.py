"""Run by test_process_group.py in a network of its own: train on a real cluster of two machines, one worker killed.

Prints one JSON object. Argument: the folder to work in.
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import psutil
import ray
from ray.cluster_utils import Cluster

from gpatcher.datasets.synthetic import csbm
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.patches import PPR
from gpatcher.patches.store import write_patches
from gpatcher.runs.fit import FitOptions, FitProgress, fit_splits
from gpatcher.scale.executors import RayEngine

EPOCHS, KILL = 40, 25


def train_workers():
    """Return the processes that train, not the one that leads them."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "RayTrainWorker" in " ".join(child.cmdline())]


def main():
    folder = Path(sys.argv[1])
    graph = csbm(phi=0.5, n=300, features=12, seed=1)
    table = write_patches(graph, folder / "patches", PPR(size=4))
    # without skip, rounding grows from epoch to epoch until the curves part
    model = {"hidden": 8, "mixer_hidden": 4, "dropout": 0.0, "input_dropout": 0.0, "skip": True}
    train = {"epochs": EPOCHS, "patience": EPOCHS, "batch_size": 64, "lr": 0.003}
    settings = GPatcherClassifier.from_settings({"model": model, "train": train}, patches=table.extractor).settings()
    losses, killed = [], []

    class KillOnce(FitProgress):
        def epoch(self, run, runs, epoch, epochs, figures):
            losses.append((epoch, figures["train_loss"]))
            if epoch >= KILL and not killed:
                worker = train_workers()[-1]
                killed.append(worker.pid)
                worker.send_signal(signal.SIGKILL)

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
        options = FitOptions(patch_table=table.folder, engine=RayEngine(cluster.address), workers=2)
        [record] = fit_splits(graph, "fast", settings, folder / "run", options, progress=KillOnce())
    finally:
        ray.shutdown()
        cluster.shutdown()
    alone = GPatcherClassifier.from_settings(settings).fit(graph, patch_table=table)
    loaded = GPatcherClassifier.load(folder / "run", graph)
    gap = float(np.abs(loaded.predict_proba() - alone.predict_proba()).max())
    curve = [figures["train_loss"] for figures in alone.result_.history]
    print(json.dumps({"losses": losses, "killed": killed, "record": record, "alone": curve, "gap": gap}))


if __name__ == "__main__":
    main()
