"""One Ray cluster of two machines that lose a worker, then a machine."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpatcher.datasets.load import load_graph
from gpatcher.patches import PPR
from gpatcher.patches.store import write_patches

SCRIPT = Path(__file__).with_name("ray_cluster.py")


@pytest.fixture(scope="module")
def cluster(loopback_only, tmp_path_factory):
    """The folder that the script wrote to, and what it printed; to start a cluster takes longer than to use it."""
    folder = tmp_path_factory.mktemp("cluster")
    command = [*loopback_only, sys.executable, str(SCRIPT), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, json.loads(done.stdout.splitlines()[-1])


def test_a_killed_training_worker(cluster):
    folder, output = cluster[0], cluster[1]["training"]
    assert len(output["killed"]) == 1
    epochs = [epoch for epoch, _ in output["losses"]]
    again = next(i for i in range(1, len(epochs)) if epochs[i] <= epochs[i - 1])
    assert epochs[again] == 21  # from the checkpoint of epoch 20
    assert epochs[again:] == list(range(21, 41))
    # the epochs made twice gave the same loss to the last bit, and all gave that of one process
    before, after = dict(output["losses"][:again]), dict(output["losses"][again:])
    assert {e: before[e] for e in before if e in after} == {e: after[e] for e in after if e in before}
    curve = [(before | after)[epoch] for epoch in range(1, 41)]
    np.testing.assert_allclose(curve, output["alone"], atol=1e-3)
    assert output["gap"] < 1e-2
    assert output["record"]["epochs"] == 40
    assert output["record"]["batch_size"] == 64
    assert sorted(path.name for path in (folder / "run").iterdir() if not path.name.startswith(".")) == [
        "evaluation.json",
        "model.json",
        "model.safetensors",
        "predictions.parquet",
        "records.jsonl",
        "run.json",
    ]


def test_a_killed_machine_does_not_change_the_patches(cluster, tmp_path):
    folder, output = cluster
    patches = output["patches"]
    assert patches["workers"] == 2
    assert output["killed"]
    assert patches["killed_at"] < patches["total"] == 20000
    graph = load_graph("rmat:n=20000,m=200000,seed=5")
    local = write_patches(graph, tmp_path, PPR(size=8, eps=1e-5), shard=4096)
    assert list(local.files) == patches["files"]
    for name in local.files:
        assert (folder / "patches" / name).read_bytes() == (tmp_path / name).read_bytes()


def test_a_stored_graph_may_be_larger_than_the_memory_of_the_machines(cluster):
    """The object stores have 84 MB, and workers may allocate 101 MB; the graph has 108 MB."""
    large = cluster[1]["large"]
    assert large["bytes"] > 100e6
    assert max(large["rooms"]) < 101e6
    assert large["cluster"] == large["local"]  # names have the checksums of the shards
    assert len(large["cluster"]) == 31


def test_errors_come_back_from_the_cluster(cluster):
    assert cluster[1]["error"] == "7 is refused"
    assert cluster[1]["no_gpu"].startswith("the cluster has 0 GPUs, too few for 1 worker with one each")
