"""Train on a Ray cluster of two nodes and kill a worker; run by test_process_group.py on loopback only.

python tests/scale/ray_training.py FOLDER    prints one JSON object
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
from gpatcher.estimator.classifier import GPatcherClassifier, table_parameters
from gpatcher.patches.store import write_patches
from gpatcher.runs.run import run_splits
from gpatcher.scale.executors import RayEngine

EPOCHS, KILL_AT = 40, 25


def train_workers():
    """Return the training processes, without the controller of Ray Train."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "RayTrainWorker" in " ".join(child.cmdline())]


def main():
    folder = Path(sys.argv[1])
    graph = csbm(phi=0.5, n=300, features=12, seed=1)
    table = write_patches(graph, folder / "patches", size=4)
    options = {"hidden": 8, "mixer_hidden": 4, "epochs": EPOCHS, "patience": EPOCHS, "batch_size": 64, "lr": 0.003}
    options["skip"] = True  # without it rounding errors grow until the curves diverge
    options |= {"dropout": 0.0, "input_dropout": 0.0, **table_parameters(table)}
    epochs, killed = [], []

    def kill_once(run, runs, epoch, most, figures):
        epochs.append((epoch, figures["train_loss"]))
        if epoch >= KILL_AT and not killed:
            victim = train_workers()[-1]
            killed.append(victim.pid)
            victim.send_signal(signal.SIGKILL)

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
        [record] = run_splits(
            graph,
            "fast",
            options,
            folder / "run",
            patches=table.folder,
            engine=RayEngine(cluster.address),
            workers=2,
            progress=kill_once,
        )
    finally:
        ray.shutdown()
        cluster.shutdown()
    alone = GPatcherClassifier(**options).fit(graph, patches=table)
    loaded = GPatcherClassifier.load(folder / "run", graph)
    gap = float(np.abs(loaded.predict_proba() - alone.predict_proba()).max())
    curve = [figures["train_loss"] for figures in alone.result_.history]
    print(json.dumps({"epochs": epochs, "killed": killed, "record": record, "alone": curve, "gap": gap}))


if __name__ == "__main__":
    main()
