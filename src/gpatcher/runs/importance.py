"""What a model reads: how much accuracy, or R² of numbers, it loses without a column, all of them, or the edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.estimator.base import NodeModel
from gpatcher.estimator.counterfactual import drop_edges
from gpatcher.graph.graph import Graph
from gpatcher.runs.results import Importance
from gpatcher.tables.typed_encoder import Encoder
from gpatcher.trust.columns import column_groups

ALL_COLUMNS, EDGES = "all columns", "edges"
_REPEATS = 3  # permutations of each column
_COLUMNS = 20  # if there are more, only all of them together are permuted


def measure_importance(
    model: NodeModel, graph: Graph, nodes: IntArray, encoder: Encoder | None = None, seed: int = 0
) -> list[Importance]:
    """Measure what the columns and the edges each contribute to the score on some labelled nodes.

    The values of a column are permuted over all nodes, so that a node and its neighbours have those of others. Edges
    are those of the given nodes, which are removed. The model is not trained again: a column that says the same as
    another one loses little.
    """
    y = graph.labels()[nodes]
    scores = model.task_.node_scores(model.decision_function(graph, nodes), y)
    rng = np.random.default_rng(seed)
    results = []

    def add(name: str, lost: list[FloatArray]) -> None:
        mean = np.mean(lost, axis=0)
        half = 1.96 * float(mean.std(ddof=1)) / np.sqrt(len(mean)) if len(mean) > 1 else 1.0
        results.append(Importance(name, float(mean.mean()), float(mean.mean() - half), float(mean.mean() + half)))

    def loss(changed: Graph, shared: Any = None) -> FloatArray:
        answers = model.on_graph(changed, shared).decision_function(changed, nodes)
        return np.asarray(scores - model.task_.node_scores(answers, y))

    if graph.x is not None:
        shared = list(model.prepared())
        groups = column_groups(encoder, graph.num_features, graph.num_features)
        borders = np.cumsum([0, *(group.width for group in groups)])
        blocks = {ALL_COLUMNS: (0, graph.num_features)}
        if len(groups) <= _COLUMNS:
            blocks |= {g.name: (int(a), int(b)) for g, a, b in zip(groups, borders[:-1], borders[1:], strict=True)}
        for name, (a, b) in blocks.items():
            permuted = (replace(graph, x=_permute(graph.x, a, b, rng)) for _ in range(_REPEATS))
            # the patches are those of the graph, and not computed again
            add(name, [loss(changed, list(shared)) for changed in permuted])
    add(EDGES, [loss(drop_edges(graph, lambda a, b: np.isin(a, nodes) | np.isin(b, nodes)))])
    return sorted(results, key=lambda one: -one.lost)


def _permute(x: Any, first: int, last: int, rng: np.random.Generator) -> Any:
    """Return the features with columns first to last permuted over the nodes, together."""
    order = rng.permutation(x.shape[0])
    parts = [x[:, :first], x[order][:, first:last], x[:, last:]]
    return sp.csr_array(sp.hstack(parts, format="csr")) if sp.issparse(x) else np.hstack(parts)
