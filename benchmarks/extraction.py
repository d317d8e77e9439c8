"""Extraction of all patches by personalised PageRank: beside a peer, its recall, its threads, and a larger graph.

python benchmarks/extraction.py [NODES]    (default 1,000,000, ten times as many edges; the larger graph has 4 × NODES)
"""

import json
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import record
import torch
from torch_geometric.utils import get_ppr

from gpatcher.datasets.synthetic import rmat
from gpatcher.graph.graph import Graph
from gpatcher.patches.ppr import ppr_scores, push_patches, top_recall

SIZE, C, EPS = 32, 0.5, 1e-5
PUSHED, PEER, EXACT = 40_000, 4_000, 64  # nodes sampled for ours, for the peer, for the exact ranking
ROUNDS = 5
SEED = 0


def sample(graph: Graph, count: int) -> np.ndarray:
    return np.sort(np.random.default_rng(SEED).choice(graph.n, min(count, graph.n), replace=False))


def rate(graph: Graph, threads: int) -> float:
    """Return nodes per second, the kernels being compiled."""
    nodes = sample(graph, PUSHED)
    return len(nodes) / record.timed(lambda: push_patches(graph, SIZE, C, EPS, nodes=nodes, threads=threads), 1)


def make_peer(graph: Graph) -> Callable[[], float]:
    """Return a call for the nodes per second of torch_geometric on all cores: same c and eps, scores without a top."""
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    edges = torch.from_numpy(np.stack([source, graph.indices.astype(np.int64)]))
    nodes = torch.from_numpy(sample(graph, PEER))
    options = {"alpha": 1 - C, "eps": EPS, "num_nodes": graph.n}
    get_ppr(edges, target=nodes[:10], **options)

    def peer() -> float:
        # it sorts the edges of the whole graph first, which a sample would weigh too much: time that apart
        setup = record.timed(lambda: get_ppr(edges, target=nodes[:1], **options), 1)
        return len(nodes) / (record.timed(lambda: get_ppr(edges, target=nodes, **options), 1) - setup)

    return peer


def measure(nodes: int, whole: bool) -> None:
    """Measure one graph in this process, the ways in turns, and print the medians."""
    graph = rmat(n=nodes, m=10 * nodes)
    push_patches(graph, SIZE, C, EPS, nodes=sample(graph, 10))
    record.forget_peak()
    before = record.memory_bytes("VmRSS")
    ways: dict[str, Callable[[], float]] = {"two": lambda: rate(graph, 2)}
    ways["two"]()
    peak = record.memory_bytes("VmHWM") - before
    if whole:
        ways |= {"one": lambda: rate(graph, 1), "peer": make_peer(graph)}
    turns = [{name: way() for name, way in ways.items()} for _ in range(ROUNDS)]
    found = {name: float(np.median([turn[name] for turn in turns])) for name in ways} | {"peak": peak}
    if whole:
        checked = sample(graph, EXACT)
        recall = [
            top_recall(push_patches(graph, SIZE, C, EPS, nodes=part), ppr_scores(graph, part, C))
            for part in np.split(checked, len(checked) // 8)
        ]
        found |= {"recall": float(np.mean(recall)), "least": float(np.min(recall))}
    print(json.dumps(found))


def apart(nodes: int, whole: bool) -> dict[str, float]:
    command = [sys.executable, __file__, str(nodes), "whole" if whole else "rate"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(nodes: int) -> None:
    small, large, again = apart(nodes, True), apart(4 * nodes, False), apart(nodes, False)
    usual = (small["two"] + again["two"]) / 2  # the machine may have become faster or slower meanwhile
    rows = [
        ("nodes/s / torch_geometric get_ppr", small["two"], small["peer"], small["two"] / small["peer"], "at least 7"),
        (
            f"recall of the top {SIZE}, mean (smallest)",
            small["recall"],
            small["least"],
            small["recall"],
            "at least 0.98",
        ),
        ("nodes/s, 2 threads / 1 thread", small["two"], small["one"], small["two"] / small["one"], "at least 1.7"),
        (
            "nodes/s, 4 × the nodes / 1 ×",
            large["two"],
            usual,
            large["two"] / usual,
            "at least 0.7",
        ),
        (
            "MiB beyond the graph, 4 × / 1 ×",
            large["peak"] / 2**20,
            small["peak"] / 2**20,
            large["peak"] / small["peak"],
            "",
        ),
    ]
    what = f"n={nodes}, m={10 * nodes}, p={SIZE}, c={C}, eps={EPS}"
    names = ("what", "ours", "beside", "ratio", "bound")
    record.write("extraction", [{"graph": what, **dict(zip(names, row, strict=True))} for row in rows])


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(int(sys.argv[1]), sys.argv[2] == "whole")
    else:
        main(int(sys.argv[1]) if len(sys.argv) == 2 else 1_000_000)
