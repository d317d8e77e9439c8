"""Extraction of patches by personalised PageRank: compared with a peer, recall, threads, and a larger graph.

python benchmarks/extraction.py [NODES]    (default 1,000,000, ten times as many edges; the larger graph has 4 × NODES)
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import record
import torch
from torch_geometric.utils import get_ppr

from gpatcher.datasets.synthetic import rmat
from gpatcher.graph.graph import Graph
from gpatcher.patches.ppr import PPR, ppr_scores, push_patches, top_recall

EXTRACTOR = PPR(size=32, c=0.5, eps=1e-5)
PUSHED, PEER, EXACT = 100_000, 4_000, 64  # sampled nodes: for ours, for the peer, for the exact ranking
ROUNDS = 3
ROUGH = 1e-4  # eps of a smaller graph, where what a source costs beside its pushes counts
SEED = 0


def sample(graph: Graph, count: int) -> np.ndarray:
    return np.sort(np.random.default_rng(SEED).choice(graph.n, min(count, graph.n), replace=False))


def rate(graph: Graph, extractor: PPR, threads: int) -> float:
    """Return nodes per second; the kernels must be compiled."""
    nodes = sample(graph, max(PUSHED, graph.n // 16))  # so many that the adjacency is packed, as for all nodes
    return len(nodes) / record.timed(lambda: push_patches(graph, extractor, nodes, threads=threads), 1)


def make_peer(graph: Graph, extractor: PPR) -> Callable[[], float]:
    """Return a function that measures torch_geometric's nodes per second on all cores: same c and eps, no top-k."""
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    edges = torch.from_numpy(np.stack([source, graph.indices.astype(np.int64)]))
    # more nodes where a source costs less: the setup, which varies by hundredths of a second, is subtracted below
    nodes = torch.from_numpy(sample(graph, round(PEER * extractor.eps / EXTRACTOR.eps)))
    options = {"alpha": 1 - extractor.c, "eps": extractor.eps, "num_nodes": graph.n}
    get_ppr(edges, target=nodes[:10], **options)

    def peer() -> float:
        # it first sorts all edges, a cost that a sample of nodes would exaggerate: measure and subtract it
        setup = record.timed(lambda: get_ppr(edges, target=nodes[:1], **options), 1)
        return len(nodes) / (record.timed(lambda: get_ppr(edges, target=nodes, **options), 1) - setup)

    return peer


def measure(nodes: int, whole: bool, eps: float) -> None:
    """Measure one graph in this process, alternating between the variants, and print the medians."""
    graph = rmat(n=nodes, m=10 * nodes)
    extractor = replace(EXTRACTOR, eps=eps)
    push_patches(graph, extractor, sample(graph, 10))
    rate(graph, extractor, 2)  # compiles
    record.reset_peak()
    before = record.memory_bytes("VmRSS")
    variants: dict[str, Callable[[], float]] = {"two": lambda: rate(graph, extractor, 2)}
    variants["two"]()
    peak = record.memory_bytes("VmHWM") - before
    if whole:
        variants |= {"one": lambda: rate(graph, extractor, 1), "peer": make_peer(graph, extractor)}
    rounds = [{name: variant() for name, variant in variants.items()} for _ in range(ROUNDS)]
    result = {name: float(np.median([r[name] for r in rounds])) for name in variants} | {"peak": peak}
    if whole:
        nodes_checked = sample(graph, EXACT)
        recall = [
            top_recall(push_patches(graph, extractor, part), ppr_scores(graph, part, extractor.c))
            for part in np.split(nodes_checked, len(nodes_checked) // 8)
        ]
        result |= {"recall": float(np.mean(recall)), "least": float(np.min(recall))}
    print(json.dumps(result))


def in_new_process(nodes: int, whole: bool, eps: float = EXTRACTOR.eps) -> dict[str, float]:
    command = [sys.executable, __file__, str(nodes), "whole" if whole else "rate", str(eps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(nodes: int) -> None:
    small, large = in_new_process(nodes, True), in_new_process(4 * nodes, False)
    repeat = in_new_process(nodes, False)
    rough = in_new_process(nodes // 5, True, ROUGH)
    small_rate = (small["two"] + repeat["two"]) / 2  # before and after, since the speed of the machine drifts
    rows = [
        ("nodes/s / torch_geometric get_ppr", small["two"], small["peer"], small["two"] / small["peer"], "at least 15"),
        (
            f"nodes/s / torch_geometric get_ppr, {nodes // 5:,} nodes, eps={ROUGH}",
            rough["two"],
            rough["peer"],
            rough["two"] / rough["peer"],
            "at least 12",
        ),
        (
            f"recall of the top {EXTRACTOR.size}, mean (smallest)",
            small["recall"],
            small["least"],
            small["recall"],
            "at least 0.99",
        ),
        ("nodes/s, 2 threads / 1 thread", small["two"], small["one"], small["two"] / small["one"], "at least 1.7"),
        (
            "nodes/s, 4 × the nodes / 1 ×",
            large["two"],
            small_rate,
            large["two"] / small_rate,
            "at least 0.85",
        ),
        (
            "MiB beyond the graph, 4 × / 1 ×",
            large["peak"] / 2**20,
            small["peak"] / 2**20,
            large["peak"] / small["peak"],
            "",
        ),
    ]
    graph = f"n={nodes}, m={10 * nodes}, p={EXTRACTOR.size}, c={EXTRACTOR.c}, eps={EXTRACTOR.eps}"
    names = ("what", "ours", "beside", "ratio", "bound")
    record.write("extraction", [{"graph": graph, **dict(zip(names, row, strict=True))} for row in rows])


if __name__ == "__main__":
    if len(sys.argv) == 4:
        measure(int(sys.argv[1]), sys.argv[2] == "whole", float(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) == 2 else 1_000_000)
