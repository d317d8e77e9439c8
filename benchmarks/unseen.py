"""Predicting nodes that came after training: what a question costs as the graph grows.

python benchmarks/newcomers.py [small [large]]    (by default 100,000 and 1,000,000 nodes)
"""

import sys
from dataclasses import replace

import numpy as np
import record

from gpatcher.datasets.load import load_graph
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.unseen import UnseenNodes

COUNT, EDGES = 100, 10


def question(n: int) -> dict[str, object]:
    """Ask about a hundred new nodes with ten edges each, of a model trained on a graph of n nodes."""
    graph = load_graph(f"rmat:n={n},m={10 * n}")
    rng = np.random.default_rng(0)
    graph = replace(graph, x=rng.normal(size=(n, 32)).astype(np.float32))
    model = GPatcherClassifier(extractor="ppr", epochs=1, batch_size=20_000, hidden=16).fit(graph)
    # joined to nodes of middling degree, so that a hub drawn by chance decides nothing
    degree = graph.degrees()
    middling = np.flatnonzero((degree >= 5) & (degree <= 50))
    ends = np.stack([np.repeat(np.arange(n, n + COUNT), EDGES), rng.choice(middling, COUNT * EDGES, replace=False)])
    x = rng.normal(size=(COUNT, 32)).astype(np.float32)

    def ask() -> np.ndarray:
        return model.predict_proba_new(UnseenNodes.join(graph, ends, x))

    ask()  # compile, and learn the degrees of the graph
    return {"what": f"{COUNT} new nodes, a graph of {n:,}", "ms": 1000 * record.timed(ask, 7), "bound": ""}


if __name__ == "__main__":
    sizes = [int(a) for a in sys.argv[1:]]
    rows = [question(n) for n in sizes + [100_000, 1_000_000][len(sizes) :]]
    ratio = rows[1]["ms"] / rows[0]["ms"]
    rows.append({"what": "large / small", "ms": ratio, "bound": "at most 2"})
    record.write("newcomers", rows)
