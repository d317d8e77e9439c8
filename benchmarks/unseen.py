"""Prediction for unseen nodes: its cost as the graph grows.

python benchmarks/unseen.py [small [large]]    (by default 100,000 and 1,000,000 nodes)
"""

import sys
from dataclasses import replace

import numpy as np
import record

from gpatcher.datasets.load import load_graph
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.model.config import ModelConfig
from gpatcher.patches import PPR
from gpatcher.training.loop import TrainConfig

COUNT, EDGES = 100, 10


def time_prediction(n: int) -> dict[str, object]:
    """Time the prediction for 100 unseen nodes with ten edges each, by a model trained on a graph of n nodes."""
    graph = load_graph(f"rmat:n={n},m={10 * n}")
    rng = np.random.default_rng(0)
    graph = replace(graph, x=rng.normal(size=(n, 32)).astype(np.float32))
    train = TrainConfig(epochs=1, batch_size=20_000)
    model = GPatcherClassifier(patches=PPR(), model=ModelConfig(hidden=16), train=train).fit(graph)
    # connected to nodes of medium degree, so that no hub drawn by chance decides the result
    degree = graph.degrees()
    medium = np.flatnonzero((degree >= 5) & (degree <= 50))
    edges = np.stack([np.repeat(np.arange(n, n + COUNT), EDGES), rng.choice(medium, COUNT * EDGES, replace=False)])
    x = rng.normal(size=(COUNT, 32)).astype(np.float32)

    def predict() -> np.ndarray:
        return model.predict_proba(UnseenNodes.join(graph, edges, x))

    predict()  # compile, and cache the degrees of the graph
    return {"what": f"{COUNT} new nodes, a graph of {n:,}", "ms": 1000 * record.timed(predict, 7), "bound": ""}


if __name__ == "__main__":
    sizes = [int(a) for a in sys.argv[1:]]
    rows = [time_prediction(n) for n in sizes + [100_000, 1_000_000][len(sizes) :]]
    ratio = rows[1]["ms"] / rows[0]["ms"]
    rows.append({"what": "large / small", "ms": ratio, "bound": "at most 2"})
    record.write("unseen", rows)
