"""Extract patches on a Ray cluster of two nodes, of which one is killed; run by test_executors.py on loopback only.

python tests/scale/ray_cluster.py FOLDER SOURCE SIZE SHARD EPS    prints one JSON object
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray
from ray.cluster_utils import Cluster

from gpatcher.datasets.load import load_graph
from gpatcher.errors import InputError
from gpatcher.patches import PPR
from gpatcher.patches.store import write_patches
from gpatcher.scale.executors import RayEngine
from gpatcher.scale.ray_training import run_together


def refuse(item: int) -> None:
    raise InputError(f"{item} is refused")


def node_id(item: int) -> str:
    time.sleep(0.3)
    return ray.get_runtime_context().get_node_id()


def main(folder: str, source: str, size: str, shard: str, eps: str) -> None:
    store = {"object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **store})
    workers = [cluster.add_node(num_cpus=1, **store) for _ in range(2)]
    ray.init(cluster.address, log_to_driver=False, logging_level="error")
    engine = RayEngine(cluster.address)
    result = {"workers": 0, "killed_at": None}
    while result["workers"] < 2:  # until both nodes work
        result["workers"] = len({node for _, node in engine.map(node_id, range(8))})

    def kill_one(done: int, total: int) -> None:
        if result["killed_at"] is None:
            result["killed_at"] = done
            cluster.remove_node(workers[0], allow_graceful=False)

    extractor = PPR(size=int(size), eps=float(eps))
    table = write_patches(load_graph(source), folder, extractor, shard=int(shard), engine=engine, progress=kill_one)
    result |= {"killed": not workers[0].any_processes_alive(), "files": table.files, "total": table.n}
    try:
        list(engine.map(refuse, [7]))
    except InputError as error:
        result["error"] = str(error)
    try:
        run_together(engine, refuse, (7,), folder=Path(folder), workers=1, gpus=True)
    except InputError as error:
        result["no_gpu"] = str(error)
    ray.shutdown()
    cluster.shutdown()
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
