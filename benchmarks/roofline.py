"""How far the stages of a large job are from what the machine allows: bytes, flops and random reads counted.

python benchmarks/roofline.py [NODES]    (default 1,000,000; ten times as many edges, 128 features, patches of 32)

The machine's own rates are measured in the same run: copying, a product of matrices, and random reads of the two
sizes that a push has. The bound of a step is the sum over its operations of the larger of flops / rate and
bytes / bandwidth, where every operation reads its inputs and writes its output once.
"""

import sys
from collections.abc import Callable, Iterator

import numba as nb
import numpy as np
import record
import torch

from gpatcher.datasets.synthetic import rmat
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import FeatureTable
from gpatcher.patches import PPR
from gpatcher.patches.ppr import push_from, push_patches, walk_adjacency
from gpatcher.training.loop import TrainConfig, predict_logits, train

FEATURES, DEGREE, BATCH, STEPS, SAMPLE = 128, 10, 4096, 10, 4000
EXTRACTOR = PPR(size=32, c=0.5, eps=1e-5)
READS = 4_000_000
IDS = 16  # neighbours in a line of 64 bytes


# ------------------------------------------------------------------------------------------------ the machine


@nb.njit(nogil=True)
def add_at(values: np.ndarray, positions: np.ndarray) -> None:
    for i in range(positions.size):
        values[np.uint64(positions[i])] += 1


@nb.njit(nogil=True)
def sum_at(values: np.ndarray, positions: np.ndarray) -> int:
    total = 0
    for i in range(positions.size):
        total += values[np.uint64(positions[i])]
    return total


def random_reads(call: Callable, size: int, dtype: str) -> float:
    """Return the seconds of one access at a random position, independent of the others, in one thread."""
    values = np.zeros(size, dtype)
    positions = np.random.default_rng(0).integers(0, size, READS, dtype=np.uint32)
    call(values, positions[:10])
    return record.timed(lambda: call(values, positions), 5) / READS


def machine(nodes: int) -> dict[str, float]:
    """Measure the machine; the product and the copy use all cores."""
    matrix = torch.randn(2048, 2048)
    matrix @ matrix
    block = torch.empty(1 << 26)
    other = torch.ones(1 << 26)
    block.copy_(other)
    return {
        "flops": 2 * 2048**3 / record.timed(lambda: matrix @ matrix, 7),
        "bandwidth": 2 * block.nbytes / record.timed(lambda: block.copy_(other), 7),
        "table": random_reads(add_at, 1 << 16, "u8"),  # the hash table of a push
        "row": random_reads(sum_at, 2 * DEGREE * nodes, "i4"),  # a line of a row of the graph
    }


# ------------------------------------------------------------------------------------------------ counted work


@nb.njit
def count_pushes(indptr: np.ndarray, indices: np.ndarray, sources: np.ndarray, c: float, eps: float) -> np.ndarray:
    """Return the pushes, the edges read in them and the distinct nodes that they reach."""
    residual = np.zeros(indptr.size - 1)
    counts = np.zeros(3, np.int64)
    for v in sources:
        residual[v] = 1.0
        queue = [v]
        reached = {v}
        head = 0
        while head < len(queue):
            u = queue[head]
            head += 1
            degree = indptr[u + 1] - indptr[u]
            if degree == 0:
                break
            amount = c * residual[u] / degree
            residual[u] = 0.0
            counts[0] += 1
            counts[1] += degree
            for e in range(indptr[u], indptr[u + 1]):
                w = indices[e]
                limit = eps * (indptr[w + 1] - indptr[w])
                if residual[w] <= limit < residual[w] + amount:
                    queue.append(w)
                residual[w] += amount
                reached.add(w)
        counts[2] += len(reached)
        for u in reached:
            residual[u] = 0.0
    return counts


def operations(model: GPatcher, rows: int, nodes: int, training: bool) -> Iterator[tuple[float, float]]:
    """Yield flops and bytes of each operation for patches of ``nodes`` nodes with ``rows`` distinct members."""
    config, p = model.config, model.sources[0].size
    d, h, m = FEATURES, config.hidden, config.mixer_hidden or config.hidden
    positions = nodes * p
    yield 0, 8 * rows * d  # the features of the members
    passes = 2 if training else 1  # backward, features need no gradient
    yield passes * 2 * rows * d * h, passes * 4 * rows * (d + h)
    passes = 3 if training else 1
    yield passes * 2 * rows * h * m, passes * 4 * rows * (h + m)
    yield passes * 2 * positions * h, passes * 4 * (positions + nodes) * h  # the mean
    yield 0, passes * 8 * positions * m  # the patches
    for layer in range(config.layers):
        for _ in range(2):  # two products in an MLP
            yield passes * 2 * positions * m * p, passes * 8 * positions * m
            if layer:
                yield passes * 2 * positions * m * m, passes * 8 * positions * m


def bound(model: GPatcher, rows: int, nodes: int, training: bool, rates: dict[str, float]) -> float:
    """Return the seconds that the operations take at the machine's rates."""
    return sum(
        max(flops / rates["flops"], size / rates["bandwidth"])
        for flops, size in operations(model, rows, nodes, training)
    )


# ------------------------------------------------------------------------------------------------ stages


def push(graph: Graph, rates: dict[str, float]) -> dict[str, object]:
    """Compare a source's push, in one thread, with the cost of its random reads.

    The codes of the degrees are packed with the neighbours, as for all nodes; the nodes that are ranked are read in
    order. So the reads are an offset and the lines of a row for each push, and a slot of the table for each edge.
    """
    sources = np.sort(np.random.default_rng(0).choice(graph.n, SAMPLE, replace=False))
    adjacency = walk_adjacency(graph, EXTRACTOR.self_loops).packed()

    def extract() -> None:
        push_from(adjacency, sources, EXTRACTOR.size, EXTRACTOR.c, EXTRACTOR.eps, threads=1)

    extract()  # compiles
    seconds = record.timed(extract, 5) / SAMPLE
    counts = count_pushes(graph.indptr, graph.indices, sources, EXTRACTOR.c, EXTRACTOR.eps) / SAMPLE
    pushes, edges, reached = (float(count) for count in counts)
    lines = pushes + edges / IDS  # a row starts within a line
    reads = (pushes + lines) * rates["row"] + edges * rates["table"]
    work = f"{pushes:.0f} pushes, {edges:,.0f} edges, {reached:,.0f} nodes"
    return stage("push of a source", work, seconds, reads, "at most 3")


def learn(graph: Graph, rates: dict[str, float]) -> Iterator[dict[str, object]]:
    """Compare a training step, and the prediction of all nodes, with their flops and bytes."""
    patches = push_patches(graph, EXTRACTOR)
    x = FeatureTable(np.random.default_rng(0).standard_normal((graph.n, FEATURES), dtype=np.float32))
    torch.manual_seed(0)
    model = GPatcher(patches.source(), FEATURES, graph.num_classes)
    nodes = np.random.default_rng(0).permutation(graph.n)
    split = Split(nodes[: STEPS * BATCH], nodes[-32:], nodes[-64:-32])
    run = train(model, x, graph.y, split, TrainConfig(epochs=4, batch_size=BATCH))
    seconds = run.seconds / run.done / STEPS
    rows = int(np.mean([len(np.unique(patches.index[part])) for part in np.split(split.train, STEPS)]))
    flops = sum(f for f, _ in operations(model, rows, BATCH, True))
    size = sum(s for _, s in operations(model, rows, BATCH, True))
    work = f"{rows:,} rows, {flops / 1e9:.1f} GFLOP, {size / 1e6:,.0f} MB"
    yield stage(f"training step of {BATCH:,} nodes", work, seconds, bound(model, rows, BATCH, True, rates), "at most 2")
    everything = np.arange(graph.n)
    seconds = record.timed(lambda: predict_logits(model, x, everything, BATCH), 1)
    flops = sum(f for f, _ in operations(model, graph.n, graph.n, False))
    size = sum(s for _, s in operations(model, graph.n, graph.n, False))
    work = f"{graph.n:,} rows, {flops / 1e9:.0f} GFLOP, {size / 1e9:.1f} GB"
    yield stage("prediction of all nodes", work, seconds, bound(model, graph.n, graph.n, False, rates), "at most 2")


def stage(name: str, work: str, seconds: float, least: float, limit: str) -> dict[str, object]:
    times = {"ms": 1e3 * seconds, "bound_ms": 1e3 * least, "ratio": seconds / least}
    return {"what": name, "counted": work, **times, "bound": limit}


def main(nodes: int) -> None:
    graph = rmat(n=nodes, m=DEGREE * nodes)
    rates = machine(nodes)
    units = {"flops": ("GFLOP/s", 1e9), "bandwidth": ("GB/s", 1e9)}
    rows = [push(graph, rates), *learn(graph, rates)]
    for name, value in rates.items():
        unit, scale = units.get(name, ("ns per random read", 1e-9))
        empty = dict.fromkeys(("ms", "bound_ms", "ratio", "bound"), "")
        rows.append({"what": f"machine, {name}", "counted": f"{value / scale:.3g} {unit}", **empty})
    record.write("roofline", rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) == 2 else 1_000_000)
