"""How the cost of each stage grows with the number of nodes: seconds for four sizes, and fitted exponents.

python benchmarks/growth.py [NODES ...]    (default 250,000 to 16,000,000; ten times as many edges, 128 features)

Each size runs in its own process. Patches and predictions are measured on a sample of nodes and scaled to all.
`scale.py` makes the figure and the cost model of the documentation from the record.
"""

import json
import subprocess
import sys
import time

import numpy as np
import record
import torch

from gpatcher.datasets.synthetic import rmat
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import FeatureTable
from gpatcher.patches import PPR
from gpatcher.patches.base import FixedPatches, Patches
from gpatcher.patches.ppr import push_patches
from gpatcher.training.loop import TrainConfig, predict_logits, train

SIZES = (250_000, 1_000_000, 4_000_000, 16_000_000)
FEATURES, DEGREE, BATCH, STEPS = 128, 10, 4096, 10
SAMPLE = 1 << 22
EXTRACTOR = PPR(size=32, c=0.5, eps=1e-5)


class SampledPatches(FixedPatches):
    """Patches of some nodes of a graph, in ascending order."""

    def __init__(self, nodes: np.ndarray, patches: Patches) -> None:
        super().__init__(patches)
        self.nodes, self.rows = torch.from_numpy(nodes), None

    def forward(self, nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return index and score of the patches of these nodes."""
        return super().forward(torch.searchsorted(self.nodes, nodes))


def measure(n: int) -> None:
    """Measure one size in this process, and print the seconds of each stage for all nodes."""
    seconds: dict[str, float] = {}
    graph = rmat(n=n, m=DEGREE * n)
    source = np.repeat(np.arange(n, dtype=np.int32), np.diff(graph.indptr))
    once = source < graph.indices
    pairs = np.stack([source[once], graph.indices[once]])
    del source, once
    started = time.perf_counter()
    Graph.from_edge_index(pairs, num_nodes=n).undirected()
    seconds["build the graph"] = time.perf_counter() - started
    del pairs
    rng = np.random.default_rng(0)
    sample = min(SAMPLE, n)
    nodes = np.sort(rng.choice(n, sample, replace=False))
    push_patches(graph, EXTRACTOR, nodes[:10])
    started = time.perf_counter()
    patches = push_patches(graph, EXTRACTOR, nodes)
    seconds["patches of all nodes"] = (time.perf_counter() - started) * n / sample
    block = rng.standard_normal((1 << 16, FEATURES), dtype=np.float32)
    x = FeatureTable(np.concatenate([block] * (-(-n // len(block))))[:n])
    model = GPatcher(SampledPatches(nodes, patches), FEATURES, graph.num_classes)
    chosen = rng.permutation(nodes)
    split = Split(chosen[: STEPS * BATCH], chosen[-32:], chosen[-64:-32])
    run = train(model, x, graph.y, split, TrainConfig(epochs=2, batch_size=BATCH))
    seconds["an epoch on a tenth of the nodes"] = run.seconds / run.done / (STEPS * BATCH) * n / 10
    started = time.perf_counter()
    predict_logits(model, x, nodes, BATCH)
    seconds["prediction of all nodes"] = (time.perf_counter() - started) * n / sample
    print(json.dumps(seconds))


def main(sizes: tuple[int, ...]) -> None:
    results: dict[int, dict[str, float]] = {}
    for n in sizes:
        command = [sys.executable, __file__, "measure", str(n)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results[n] = json.loads(done.stdout.splitlines()[-1])
        if len(results) > 1:
            record.write("growth", table(results))  # each time, since the largest may not fit into a machine


def table(results: dict[int, dict[str, float]]) -> list[dict[str, object]]:
    """Return a row for each stage: its seconds by the number of nodes, and the fitted exponent."""
    rows = []
    for stage in next(iter(results.values())):
        values = [result[stage] for result in results.values()]
        row: dict[str, object] = {"stage": stage}
        row |= {f"{n:,} nodes, s": value for n, value in zip(results, values, strict=True)}
        exponent = float(np.polyfit(np.log(list(results)), np.log(values), 1)[0])
        rows.append(row | {"exponent": exponent, "bound": "at most 1.1"})
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(int(sys.argv[2]))
    else:
        main(tuple(int(size) for size in sys.argv[1:]) or SIZES)
