"""Process groups: the same steps as a single process, and a run that survives a killed worker."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier, table_parameters
from gpatcher.graph.split import Split
from gpatcher.model.inputs import FeatureTable
from gpatcher.patches.store import write_patches
from gpatcher.scale.executors import RayEngine
from gpatcher.scale.process_group import ProcessGroup
from gpatcher.training.loop import TrainConfig, fit, train

N, D, C = 53, 4, 3  # batches and validation nodes do not divide evenly


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(D, C))
        self.spare = nn.Parameter(torch.ones(2))  # never receives a gradient

    def forward(self, x, nodes):
        return x.linear(self.weight, rows=nodes)


def data():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(N, D)).astype(np.float32), rng.integers(0, C, N)
    return FeatureTable(x), y, Split(np.arange(33), np.arange(33, 44), np.arange(44, N))


def worker(rank, folder, config, size):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=size)
    x, y, split = data()
    train(Linear(), x, y, split, config, checkpoint=Path(folder) / "checkpoint", team=ProcessGroup(together=True))
    dist.destroy_process_group()


# 33 training nodes in batches of 16, 16 and 1, of which the last is too small to divide, or in a single batch
@pytest.mark.parametrize(("batch_size", "class_weights"), [(16, False), (16, True), (None, False)])
def test_two_processes_take_the_steps_of_one(tmp_path, batch_size, class_weights):
    config = TrainConfig(epochs=15, batch_size=batch_size, class_weights=class_weights, lr=0.05)
    mp.spawn(worker, (str(tmp_path), config, 2), nprocs=2)
    x, y, split = data()
    alone, together = Linear(), Linear()
    expected = fit(alone, x, y, split, config)
    result = fit(together, x, y, split, config, checkpoint=tmp_path / "checkpoint")  # finished, so loaded only
    for name in ("train_loss", "val_loss", "val_accuracy"):
        curves = [[figures[name] for figures in run.history] for run in (result, expected)]
        np.testing.assert_allclose(*curves, atol=1e-5)
    np.testing.assert_allclose(together.weight.detach(), alone.weight.detach(), atol=1e-5)
    assert result.test_accuracy == expected.test_accuracy


def test_parts_are_ranges_that_cover_the_batch():
    group = ProcessGroup()
    nodes = torch.tensor([9, 2, 7, 4, 0])
    assert group.share(nodes) is nodes
    group.size = 2
    parts = []
    for group.rank in range(2):
        parts.append(group.share(nodes).tolist())
    assert parts == [[0, 2, 4], [7, 9]]
    assert group.share(nodes[:1]).tolist() == [9]  # fewer nodes than processes: each takes all


def test_different_checkpoints_raise_an_error():
    class Torn(ProcessGroup):
        def agree(self, number):
            return False

    x, y, split = data()
    with pytest.raises(InputError, match="file system that all nodes share"):
        train(Linear(), x, y, split, TrainConfig(epochs=1), team=Torn())


def test_killed_training_worker(loopback_only, tmp_path):
    command = [*loopback_only, sys.executable, str(Path(__file__).with_name("ray_training.py")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert len(result["killed"]) == 1
    epochs = [epoch for epoch, _ in result["epochs"]]
    again = next(i for i in range(1, len(epochs)) if epochs[i] <= epochs[i - 1])
    assert epochs[again] == 21  # from the checkpoint of epoch 20
    assert epochs[again:] == list(range(21, 41))
    # repeated epochs have bitwise equal losses, and all losses are close to those of a single process
    before, after = dict(result["epochs"][:again]), dict(result["epochs"][again:])
    assert {e: before[e] for e in before if e in after} == {e: after[e] for e in after if e in before}
    curve = [(before | after)[epoch] for epoch in range(1, 41)]
    np.testing.assert_allclose(curve, result["alone"], atol=1e-3)
    assert result["gap"] < 1e-2
    assert result["record"]["epochs"] == 40
    assert result["record"]["batch_size"] == 64
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "model.json",
        "model.safetensors",
        "records.jsonl",
        "report.html",
    ]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_gpus_of_a_cluster_train_with_nccl(tmp_path):
    graph = csbm(phi=0.5, n=300, features=12, seed=1)
    table = write_patches(graph, tmp_path / "patches", size=4)
    options = {"epochs": 20, "dropout": 0.0, "input_dropout": 0.0, "skip": True, **table_parameters(table)}
    alone = GPatcherClassifier(**options).fit(graph, patches=table)
    model = GPatcherClassifier(**options, device="cuda")
    model.fit(graph, patches=table, checkpoint=tmp_path / "checkpoint.safetensors", engine=RayEngine())
    np.testing.assert_allclose(model.predict_proba(), alone.predict_proba(), atol=1e-2)
