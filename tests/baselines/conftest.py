import numpy as np
import pytest

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputWarning
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split


@pytest.fixture(scope="session")
def graph():
    return csbm(phi=0.6, n=120, features=8, degree=6)


@pytest.fixture(scope="session")
def irregular_graph():
    """A function that draws three classes, ten isolated nodes, a self-loop, and edges in one direction."""
    return _irregular_graph


def _irregular_graph(*, weighted=False, directed=True):
    rng = np.random.default_rng(0)
    pairs = rng.choice(50 * 50, 160, replace=False)
    edges = np.stack([pairs // 50, pairs % 50])
    edges = edges[:, edges[0] != edges[1]]
    if not directed:
        edges = np.unique(np.hstack([edges, edges[::-1]]), axis=1)
    edges = np.hstack([edges, [[3], [3]]])
    x = (rng.random((60, 12)) < 0.2) * rng.random((60, 12))
    y = rng.integers(0, 3, 60)
    order = rng.permutation(60)
    split = Split(order[:30], order[30:45], order[45:])
    weights = rng.uniform(0.5, 2, edges.shape[1]) if weighted else None
    with pytest.warns(InputWarning, match="1 edge joins a node to itself"):
        return Graph.from_edge_index(edges, x=x.astype(np.float32), y=y, weights=weights, splits=[split])
