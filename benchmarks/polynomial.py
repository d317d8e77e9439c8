"""The learnable polynomial filter on a graph too large for eigenvectors: its products, an epoch, the error.

python benchmarks/polynomial.py [nodes [edges]]    (by default 200,000 nodes and 2,000,000 edges)
"""

import sys
import time
from dataclasses import replace

import numpy as np
import record

from gpatcher.datasets.load import load_graph
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import stratified_split
from gpatcher.patches import make_extractor
from gpatcher.patches.spectral import PairProducts
from gpatcher.training.loop import TrainConfig

K, EPOCHS, SAMPLED = 10, 10, 200
GIB = 2**30


def make_graph(nodes: int, edges: int) -> Graph:
    """Return an R-MAT graph with 64 features that are weakly correlated with the class."""
    graph = load_graph(f"rmat:n={nodes},m={edges}")
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(graph.num_classes, 64)).astype(np.float32)
    x = 0.5 * centres[graph.y] + rng.normal(size=(graph.n, 64)).astype(np.float32)
    return replace(graph, x=x).with_splits([stratified_split(graph.y, 0.5, 0.25, 0)])


def exact_moments(graph: Graph, nodes: np.ndarray, around: np.ndarray) -> np.ndarray:
    """Return the exact moments of the candidates of these nodes, by products with Ã."""
    matrix = graph.normalised()
    previous = np.zeros((graph.n, len(nodes)))
    previous[nodes, np.arange(len(nodes))] = 1.0
    current = matrix @ previous
    out = np.zeros((*around.shape, K))
    for k in range(K):
        if k:
            previous, current = current, 2.0 * (matrix @ current) - previous
        candidates = current[np.maximum(around, 0), np.arange(len(nodes))[:, None]]
        out[:, :, k] = np.where(around >= 0, candidates, 0.0)
    return out


def errors(graph: Graph, pairs: PairProducts) -> list[dict[str, object]]:
    """Compare the moments of sampled nodes with exact ones."""
    connected = np.flatnonzero(np.diff(graph.undirected().indptr) > 0)
    nodes = np.random.default_rng(1).choice(connected, min(SAMPLED, len(connected)), replace=False)
    around = pairs.candidates[nodes].numpy()
    exact = exact_moments(graph, nodes, around)
    gap = np.abs(pairs.products[nodes].numpy() - exact)
    relative = np.sqrt((gap**2).mean((0, 1)) / (exact**2).mean((0, 1)))
    text = ", ".join(f"{value:.3f}" for value in relative)
    return [
        {"what": f"error of the moments, fraction of their size, k = 1 … {K}", "value": text, "bound": "reported"},
        {"what": "error of a moment, mean", "value": float(gap.mean()), "bound": "reported"},
        {"what": "error of a moment, 99 in 100 below", "value": float(np.quantile(gap, 0.99)), "bound": "reported"},
    ]


def main(nodes: int, edges: int) -> None:
    """Train with the polynomial filter and with fixed patches, and compare."""
    graph = make_graph(nodes, edges)
    seconds = {}
    rows: list[dict[str, object]] = []
    for extractor in ("ppr", "polynomial"):
        # the smallest memory limit, so that no eigenvectors are computed at any size
        memory = 1 if extractor == "polynomial" else None
        model = GPatcherClassifier(
            patches=make_extractor(extractor, {"K": K}),
            train=TrainConfig(epochs=EPOCHS, patience=EPOCHS),
            memory=memory,
        )
        record.reset_peak()
        started = time.perf_counter()
        prepared = model.prepare(graph)
        if extractor == "polynomial":
            elapsed = time.perf_counter() - started
            rows.append({"what": "seconds to make the products", "value": elapsed, "bound": "at most 600"})
        model.fit(graph, prepared=prepared)
        seconds[extractor] = model.result_.seconds / EPOCHS
    peak = record.memory_bytes("VmHWM") / GIB
    rows.append({"what": "peak memory, GiB", "value": peak, "bound": "at most 8"})
    for extractor, value in seconds.items():
        rows.append({"what": f"seconds of an epoch, {extractor}", "value": value, "bound": "reported"})
    ratio = seconds["polynomial"] / seconds["ppr"]
    rows.append({"what": "learned / fixed epoch", "value": ratio, "bound": "at most 2"})
    response = model.filter_response()
    change = float(np.abs(response.response - response.start).max())
    rows.append({"what": "largest change of the response by training", "value": change, "bound": "above 0"})
    rows += errors(graph, prepared[0].data[0])
    rows.insert(0, {"what": "graph", "value": f"{nodes:,} nodes, {graph.m:,} edges", "bound": ""})
    record.write("polynomial", rows)


if __name__ == "__main__":
    sizes = [int(a) for a in sys.argv[1:]]
    main(*(sizes + [200_000, 2_000_000][len(sizes) :]))
