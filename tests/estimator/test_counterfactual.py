"""Counterfactuals: the change that is named does change the class, and no single edge was missed."""

from dataclasses import replace

import numpy as np
import pytest

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.counterfactual import Counterfactual, drop_edges, find_counterfactual
from gpatcher.estimator.trees import TreesClassifier, TreesConfig
from gpatcher.graph.graph import Graph
from gpatcher.model.config import ModelConfig
from gpatcher.patches import PPR, AdaptiveFilter
from gpatcher.training.loop import TrainConfig

SMALL = {"model": ModelConfig(hidden=8, mixer_hidden=4), "train": TrainConfig(epochs=30)}


@pytest.fixture(scope="module")
def graph():
    return replace(csbm(phi=-0.8, n=120, features=4), node_ids=np.array([f"n{v}" for v in range(120)]))


@pytest.fixture(scope="module")
def fitted(graph):
    return GPatcherClassifier(patches=PPR(size=8), **SMALL).fit(graph)


def without(graph, node, others):
    """The graph built anew from its edges, but those between the node and the others."""
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    kept = [
        (a, b)
        for a, b in zip(source, graph.indices, strict=True)
        if {a, b} - {node} not in [{o} for o in others] or node not in (a, b)
    ]
    return Graph.from_edge_index(np.array(kept).T, x=graph.x, y=graph.y, classes=graph.classes, num_nodes=graph.n)


def test_edges_are_dropped(graph):
    other = graph.neighbours(3)[0]
    typed = replace(graph, relations={"deals": graph})
    made = drop_edges(typed, lambda a, b: (a == 3) & (b == other) | (b == 3) & (a == other))
    expected = without(graph, 3, [other])
    np.testing.assert_array_equal(made.relations["deals"].indices, expected.indices)
    np.testing.assert_array_equal(made.indptr, expected.indptr)
    np.testing.assert_array_equal(made.indices, expected.indices)
    assert made.m == graph.m - 1


@pytest.mark.parametrize("patches", [PPR(size=8), AdaptiveFilter(size=6, K=3)], ids=["ppr", "learned filter"])
def test_a_model_on_the_same_graph_predicts_the_same(graph, patches):
    model = GPatcherClassifier(patches=patches, **SMALL).fit(graph)
    np.testing.assert_allclose(model.on_graph(graph).decision_function(graph), model.decision_function(), atol=1e-5)


def test_trees_on_another_graph(graph):
    model = TreesClassifier(model=TreesConfig(iterations=5)).fit(graph)
    changed = without(graph, 0, graph.neighbours(0))
    before, after = model.decision_function(graph), model.on_graph(changed).decision_function(changed)
    assert not np.allclose(before[0], after[0])


def test_the_change_changes_the_class_and_is_the_smallest(graph, fitted):
    logits = fitted.decision_function(graph)
    near = np.argsort(np.abs(logits[:, 0] - logits[:, 1]))[:6]
    found = {node: find_counterfactual(fitted, graph, int(node)) for node in near}
    assert any(result.predicted for result in found.values())
    for node, result in found.items():
        now = graph.classes[logits[node].argmax()]
        assert result.degree == len(graph.neighbours(node))

        def classed(others, node=node):
            changed = without(graph, node, others)
            return graph.classes[fitted.on_graph(changed).decision_function(changed, [node])[0].argmax()]

        if result.predicted is not None:
            assert classed([int(name[1:]) for name in result.removed]) == result.predicted != now
        if len(result.removed) != 1:
            assert all(classed([v]) == now for v in graph.neighbours(node)[:16])
        assert result.tried <= 16 + 14


def test_in_words():
    one = Counterfactual(("p1",), "b", None, 3, 2, 3).sentence("a")
    assert one.startswith("Without its edge to p1 it would be classed b, not a")
    assert "2 of its possible changes were tried" in one
    some = Counterfactual(("p1", "p2"), "b", None, 16, 17, 40).sentence("a")
    assert "edges to p1 and p2" in some
    assert "greedy" in some
    assert "of the 16 tried" in some
    assert "classed a without all of its 3 edges" in Counterfactual((), None, None, 3, 5, 3).sentence("a")
    assert "no edges" in Counterfactual((), None, None, 0, 0, 0).sentence("a")


def test_eigenvectors_of_a_large_graph_are_refused():
    graph = csbm(phi=0.5, n=1100, features=4)
    model = GPatcherClassifier(
        patches=AdaptiveFilter(size=4, K=2), model=ModelConfig(hidden=4), train=TrainConfig(epochs=1)
    ).fit(graph)
    with pytest.raises(InputError, match="up to 1,000 nodes; csbm has 1,100"):
        find_counterfactual(model, graph, 0)
