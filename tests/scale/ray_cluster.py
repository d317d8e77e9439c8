"""A Ray cluster of two machines: train while a worker is killed, write patches of a graph beyond their memory, then
write patches while a machine is killed.

python tests/scale/ray_cluster.py FOLDER    prints one JSON object; run by test_ray.py in a network of its own
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
import psutil
import ray
from ray.cluster_utils import Cluster

from gpatcher.datasets.load import load_graph
from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.storage import open_graph, save_graph
from gpatcher.patches import PPR
from gpatcher.patches.store import write_patches
from gpatcher.runs.fit import FitOptions, FitProgress, fit_splits
from gpatcher.scale.executors import RayEngine
from gpatcher.scale.ray_training import run_together

EPOCHS, KILL = 40, 25
SOURCE, SHARD = "rmat:n=20000,m=200000,seed=5", 4096
EXTRACTOR = PPR(size=8, eps=1e-5)
STORE = 80 << 20  # bytes of a machine's object store
DATA = 96 << 20  # bytes that a worker may allocate beside its program; Ray's threads take up to half of them
NODES, NEIGHBOURS = 500_000, 52  # a graph of 108 MB


def train_workers():
    """Return the processes that train, not the one that leads them."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "RayTrainWorker" in " ".join(child.cmdline())]


def train(engine, folder):
    """Train from a patch table with two workers, of which one is killed, and alone."""
    graph = csbm(phi=0.5, n=300, features=12, seed=1)
    table = write_patches(graph, folder / "small", PPR(size=4))
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

    options = FitOptions(patch_table=table.folder, engine=engine, workers=2)
    [record] = fit_splits(graph, "fast", settings, folder / "run", options, progress=KillOnce())
    alone = GPatcherClassifier.from_settings(settings).fit(graph, patch_table=table)
    loaded = GPatcherClassifier.load(folder / "run", graph)
    gap = float(np.abs(loaded.predict_proba() - alone.predict_proba()).max())
    curve = [figures["train_loss"] for figures in alone.result_.history]
    return {"losses": losses, "killed": killed, "record": record, "alone": curve, "gap": gap}


def limit_memory():
    """Let a worker allocate less than the graph takes, beyond its program; called when it starts."""
    import gpatcher.patches.store  # noqa: F401

    status = Path("/proc/self/status").read_text()
    data = int(status.partition("VmData:")[2].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (data + DATA, data + DATA))


def room(item):
    """Return the bytes that this worker may still allocate when a task starts."""
    status = Path("/proc/self/status").read_text()
    return resource.getrlimit(resource.RLIMIT_DATA)[0] - (int(status.partition("VmData:")[2].split()[0]) << 10)


def extract_large(engine, folder):
    """Write patches of a stored graph that neither the object stores nor the workers have room for."""
    near = np.concatenate([np.arange(-NEIGHBOURS // 2, 0), np.arange(1, NEIGHBOURS // 2 + 1)])
    indices = np.sort((np.arange(NODES)[:, None] + near) % NODES, axis=1).astype(np.int32)
    save_graph(Graph(np.arange(NODES + 1) * NEIGHBOURS, indices.ravel()), folder / "graph")
    del indices
    graph = open_graph(folder / "graph")
    rooms = [size for _, size in engine.map(room, range(4))]
    tables = {
        name: write_patches(graph, folder / name, PPR(size=8, eps=1e-2), shard=1 << 14, engine=chosen).files
        for name, chosen in {"cluster": engine, "local": None}.items()
    }
    return {"bytes": graph.nbytes, "rooms": rooms, **tables}


def node_id(item):
    time.sleep(0.3)
    return ray.get_runtime_context().get_node_id()


def refuse(item):
    raise InputError(f"{item} is refused")


def extract(engine, folder, kill):
    """Write patches with two machines, of which one is killed after the first shard."""
    result = {"workers": 0, "killed_at": None}
    while result["workers"] < 2:  # until both machines work
        result["workers"] = len({node for _, node in engine.map(node_id, range(8))})

    def kill_one(done, total):
        if result["killed_at"] is None:
            result["killed_at"] = done
            kill()

    table = write_patches(load_graph(SOURCE), folder, EXTRACTOR, shard=SHARD, engine=engine, progress=kill_one)
    return {**result, "files": table.files, "total": table.n}


def error_of(call):
    """Return the message of an InputError."""
    try:
        call()
    except InputError as error:
        return str(error)


def main(folder):
    store = {"object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **store})
    engine = RayEngine(cluster.address)
    try:
        machines = [cluster.add_node(num_cpus=1, **store) for _ in range(2)]
        result = {"training": train(engine, folder)}
        hook = {"worker_process_setup_hook": limit_memory}
        ray.init(cluster.address, log_to_driver=False, logging_level="error", runtime_env=hook)
        result["large"] = extract_large(engine, folder)
        kill = lambda: cluster.remove_node(machines[0], allow_graceful=False)  # noqa: E731
        result["patches"] = extract(engine, folder / "patches", kill)
        result["killed"] = not machines[0].any_processes_alive()
        result["error"] = error_of(lambda: list(engine.map(refuse, [7])))
        result["no_gpu"] = error_of(lambda: run_together(engine, refuse, (7,), folder=folder, workers=1, gpus=True))
    finally:
        ray.shutdown()
        cluster.shutdown()
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
