"""A process group makes the steps that one process makes."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: defaults of its functions would keep it, and its threads, alive
import torch.multiprocessing as mp
from torch import nn

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.model.config import ModelConfig
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import FeatureTable
from gpatcher.patches import PPR, Hop
from gpatcher.patches.store import write_patches
from gpatcher.scale.executors import RayEngine
from gpatcher.scale.process_group import ProcessGroup
from gpatcher.training.loop import TrainConfig, fit, train

N, D, C = 53, 4, 3  # batches, shares and validation nodes all come out uneven


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(D, C))
        self.spare = nn.Parameter(torch.ones(2))  # never has a gradient

    def forward(self, x, nodes):
        return x.linear(self.weight, rows=nodes)


def two_rounds():
    """Nodes on a ring, read in two rounds; no dropout, which would differ from process to process."""
    ring = np.stack([np.arange(N), (np.arange(N) + 1) % N])
    extractor = Hop(size=3)
    source = extractor.source(extractor.prepare(Graph.from_edge_index(np.hstack([ring, ring[::-1]]))))
    torch.manual_seed(0)
    config = ModelConfig(hidden=4, readout=("ego", "mean"), rounds=2, dropout=0.0, input_dropout=0.0)
    return GPatcher(source, D, C, config)


def data():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(N, D)).astype(np.float32), rng.integers(0, C, N)
    return FeatureTable(x), y, Split(np.arange(33), np.arange(33, 44), np.arange(44, N))


# 33 training nodes: 16 + 16 + 1, of which the last cannot be shared; 32 + 1; all at once
CASES = {
    "batches": (Linear, TrainConfig(epochs=15, batch_size=16, lr=0.05)),
    "class weights": (Linear, TrainConfig(epochs=15, batch_size=16, lr=0.05, class_weights=True)),
    "whole": (Linear, TrainConfig(epochs=15, lr=0.05)),
    "consistency": (Linear, TrainConfig(epochs=15, batch_size=16, lr=0.05, consistency=0.5)),
    # larger steps let rounding grow from epoch to epoch
    "rounds": (two_rounds, TrainConfig(epochs=15, batch_size=16, lr=0.005)),
}


def worker(rank, folder, size):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    x, y, split = data()
    for name, (make, config) in CASES.items():
        train(make(), x, y, split, config, checkpoint=folder / name, group=ProcessGroup(together=True))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of the checkpoints of all cases, trained by one group of two processes."""
    folder = tmp_path_factory.mktemp("group")
    mp.spawn(worker, (folder, 2), nprocs=2)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_a_group_makes_the_steps_of_one_process(trained, name):
    make, config = CASES[name]
    x, y, split = data()
    alone, together = make(), make()
    expected = fit(alone, x, y, split, config)
    assert (trained / name).is_file()
    result = fit(together, x, y, split, config, checkpoint=trained / name)  # finished: nothing is trained again
    for name in ("train_loss", "val_loss", "val_accuracy"):
        curves = [[figures[name] for figures in one.history] for one in (result, expected)]
        np.testing.assert_allclose(*curves, atol=1e-5)
    for name, weight in alone.named_parameters():
        if weight.grad is not None:
            np.testing.assert_allclose(together.state_dict()[name], weight.detach(), atol=1e-5)
    assert result.test_accuracy == expected.test_accuracy


def test_shares_are_ranges_that_cover_the_batch():
    group = ProcessGroup()
    nodes = torch.tensor([9, 2, 7, 4, 0])
    assert group.share(nodes) is nodes
    group.size = 2
    shares = []
    for group.rank in range(2):
        shares.append(group.share(nodes).tolist())
    assert shares == [[0, 2, 4], [7, 9]]
    assert group.share(nodes[:1]).tolist() == [9]  # too few to share: every process takes all


def test_processes_that_read_different_checkpoints_are_stopped():
    class Divided(ProcessGroup):
        def agree(self, number):
            return False

    x, y, split = data()
    with pytest.raises(InputError, match="file system that all machines share"):
        train(Linear(), x, y, split, TrainConfig(epochs=1), group=Divided())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_the_gpus_of_a_cluster_train_by_nccl(tmp_path):
    graph = csbm(phi=0.5, n=300, features=12, seed=1)
    table = write_patches(graph, tmp_path / "patches", PPR(size=4))
    parts = {"model": ModelConfig(dropout=0.0, input_dropout=0.0, skip=True), "train": TrainConfig(epochs=20)}
    alone = GPatcherClassifier(patches=table.extractor, **parts).fit(graph, patch_table=table)
    model = GPatcherClassifier(patches=table.extractor, **parts, device="cuda")
    model.fit(graph, patch_table=table, checkpoint=tmp_path / "checkpoint.safetensors", engine=RayEngine())
    np.testing.assert_allclose(model.predict_proba(), alone.predict_proba(), atol=1e-2)
