"""Rounds: the cost of an epoch by rounds and sources, against torch_geometric's GCN, and the memory of a large graph.

python benchmarks/rounds.py [root [nodes]]    (folder of the data sets; nodes of the large graph, by default a million)
"""

import itertools
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import record
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from gpatcher.datasets.load import load_graph
from gpatcher.estimator.prepare import prepare
from gpatcher.graph.graph import Graph
from gpatcher.model.config import ModelConfig
from gpatcher.model.inputs import FeatureConfig
from gpatcher.patches import PPR, Hop
from gpatcher.patches.base import Extractor

HIDDEN = 64


def step(model: nn.Module, forward: Callable[[], Tensor], target: Tensor) -> Callable[[], None]:
    """Return a function that does one step of training on all training nodes."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)

    def run() -> None:
        optimiser.zero_grad()
        F.cross_entropy(forward(), target).backward()
        optimiser.step()

    return run


def our_epoch(graph: Graph, extractors: tuple[Extractor, ...], rounds: int, train: Tensor, target: Tensor) -> float:
    """Return the seconds of an epoch of GPatcher with the readouts ego and mean."""
    extractors = tuple(one for extractor in extractors for one in extractor.resolve(graph))
    prepared = prepare(graph, extractors, FeatureConfig())
    config = ModelConfig(hidden=HIDDEN, rounds=rounds, norm="batch", readout=("ego", "mean"), aggregate="sum")
    model = prepared.build(graph.num_classes, config)
    run = step(model, lambda: model(prepared.x, train), target)
    run()
    return record.timed(run, 7)


class GCN(nn.Module):
    """GCN of torch_geometric with batch normalisation; x may be sparse."""

    def __init__(self, features: int, classes: int, layers: int) -> None:
        super().__init__()
        widths = [features] + [HIDDEN] * (layers - 1) + [classes]
        self.layers = nn.ModuleList(GCNConv(a, b, cached=True) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in widths[1:-1])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the logits of all nodes."""
        for layer, norm in zip(self.layers[:-1], self.norms, strict=True):
            x = F.dropout(F.relu(norm(layer(x, edge_index))), 0.5, self.training)
        logits: Tensor = self.layers[-1](x, edge_index)
        return logits


def gcn_epoch(graph: Graph, layers: int, train: Tensor, target: Tensor) -> float:
    """Return the seconds of an epoch of torch_geometric's GCN, of the same depth and width."""
    data = graph.undirected().to_pyg()
    x = data.x.to_dense() if data.x.is_sparse else data.x
    model = GCN(x.shape[1], graph.num_classes, layers)
    run = step(model, lambda: model(x.float(), data.edge_index)[train], target)
    run()
    return record.timed(run, 5)


def compare(name: str, root: str) -> list[dict[str, object]]:
    """Compare epochs on a data set: rounds R and sources S with one of each, and R rounds with a GCN of R layers."""
    graph = load_graph(name, root)
    train = torch.as_tensor(graph.splits[0].train.copy())
    target = torch.as_tensor(np.array(graph.labels()))[train]
    base = our_epoch(graph, (Hop(size=512),), 1, train, target)
    rows = [{"what": f"{name}: one round, one source, ms", "value": 1000 * base, "bound": ""}]
    for rounds, sources in ((4, 1), (12, 1), (1, 2), (4, 2)):
        extractors = (Hop(size=512), PPR(size=32))[:sources]
        seconds = our_epoch(graph, extractors, rounds, train, target)
        what = f"{name}: {rounds} rounds, {sources} sources / (R S one)"
        rows.append({"what": what, "value": seconds / (rounds * sources * base), "bound": "at most 1.3"})
        if sources == 1:
            gcn = gcn_epoch(graph, rounds, train, target)
            what = f"{name}: {rounds} rounds / GCN of {rounds} layers"
            rows.append({"what": what, "value": seconds / gcn, "bound": "at most 1.5"})
    return rows


def large(nodes: int) -> dict[str, object]:
    """Return the peak memory of two epochs with two rounds on a large graph."""
    graph = load_graph(f"rmat:n={nodes},m={10 * nodes}")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(nodes, 32)).astype(np.float32), rng.integers(0, 5, nodes)
    graph = replace(graph, x=x, y=y, classes=tuple("01234"))
    train = torch.arange(nodes // 2)
    seconds = our_epoch(graph, (PPR(size=16),), 2, train, torch.as_tensor(y)[train])
    peak = record.memory_bytes("VmHWM") / 2**30
    what = f"{nodes:,} nodes, width {HIDDEN}, 2 rounds: peak GiB ({seconds:.1f} s an epoch)"
    return {"what": what, "value": peak, "bound": "below 8"}


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    rows = [row for name in ("squirrel", "minesweeper") for row in compare(name, folder)]
    rows.append(large(int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000))
    record.write("rounds", rows)
