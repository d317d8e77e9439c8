"""What one source of information alone can tell."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut, cross_val_predict

from gpatcher.datasets.synthetic import colouring, csbm, monophily
from gpatcher.graph.graph import Graph
from gpatcher.spectral import probes as module
from gpatcher.spectral.diagnosis import diagnose
from gpatcher.spectral.probes import best_source, probe_sources
from gpatcher.spectral.results import Probe


@pytest.mark.parametrize("penalty", [0.1, 1.0])
def test_leave_one_out_is_that_of_refitting(penalty, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 6))
    y = (x[:, 0] + 0.5 * rng.standard_normal(40) > 0).astype(int) + (x[:, 1] > 1)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    kernel = module._kernel(x)
    np.testing.assert_allclose(kernel, unit @ unit.T)
    values = np.linalg.eigvalsh(kernel + 1.0)
    monkeypatch.setattr(module, "_PENALTIES", np.array([penalty]))
    # the intercept is a constant column; targets are centred by the mean of all
    one_hot = np.eye(3)[y]
    mean = one_hot.mean(0)
    ridge = Ridge(alpha=penalty * values.mean(), fit_intercept=False)
    columns = np.hstack([unit, np.ones((40, 1))])
    expected = cross_val_predict(ridge, columns, one_hot - mean, cv=LeaveOneOut()) + mean
    probe = module._leave_one_out(kernel, y)
    assert probe.accuracy == pytest.approx((expected.argmax(1) == y).mean())
    explained = 1 - ((one_hot - expected) ** 2).sum() / ((one_hot - mean) ** 2).sum()
    assert probe.explained == pytest.approx(explained)


@pytest.mark.parametrize(
    ("graph", "sources"),
    [
        (csbm(phi=0.0, n=1000, features=50), {"columns"}),
        (csbm(phi=0.6, n=1000, features=50, degree=10), {"neighbours", "two_hop_labels"}),
        (monophily(n=1000, degree=40, spread=0.2), {"adjacency", "two_hop_labels"}),
        (colouring(n=600, colours=2, degree=6), {"adjacency", "labels", "two_hop_labels"}),
    ],
    ids=["columns", "homophily", "monophily", "colouring"],
)
def test_the_source_that_tells_most(graph, sources):
    probes = probe_sources(graph)
    best = best_source(probes)
    assert best in sources
    assert probes[best].accuracy > 0.7
    result = diagnose(graph, spectral=False)
    assert result.source == best
    assert f"{best.replace('_', ' ')} {probes[best].accuracy:.1%}" in result.advice[0]


def test_random_labels_tell_nothing():
    graph = csbm(phi=0.5, n=1000, features=10)
    y = np.random.default_rng(0).integers(0, 2, graph.n)
    probes = probe_sources(Graph(indptr=graph.indptr, indices=graph.indices, x=graph.x, y=y, classes=("a", "b")))
    for probe in probes.values():
        assert abs(probe.accuracy - 0.5) < 0.08


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_direction_is_worth_something_where_it_tells_the_class():
    """Class 0 points to nodes with a positive column, class 1 is pointed to by them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((600, 3))
    y = np.arange(600) % 2
    some, positive = (rng.choice(nodes, 3000) for nodes in (np.arange(600), np.flatnonzero(x[:, 0] > 0.3)))
    source, target = np.where(y[some] == 0, some, positive), np.where(y[some] == 0, positive, some)
    graph = Graph.from_edge_index((source, target), y=y, x=x)
    result = diagnose(graph, spectral=False)
    assert result.direction_gain > 0.1
    assert f"gains {100 * result.direction_gain:.1f} points" in " ".join(result.advice)
    assert diagnose(graph.undirected(), spectral=False).direction_gain is None


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_edge_cases():
    ring = [[0, 1, 2, 3], [1, 2, 3, 0]]
    assert probe_sources(Graph.from_edge_index(ring)) == {}
    assert probe_sources(Graph.from_edge_index(ring, y=[0, 1, 0, 1])) == {}
    assert best_source({}) is None
    lone = Graph.from_edge_index(np.empty((2, 0), int), y=np.arange(40) % 3, x=np.zeros((40, 2)), num_nodes=40)
    assert set(probe_sources(lone)) == {"majority", *module.SOURCES}
    bare = Graph.from_edge_index([np.arange(40), np.roll(np.arange(40), 1)], y=np.arange(40) % 2)
    assert "columns" not in probe_sources(bare)
    assert best_source({"majority": Probe(0.6, 0.02, 0.0, 0.0), "columns": Probe(0.61, 0.02, 0.01, 0.02)}) is None


def test_a_rare_class_shows_in_what_is_explained():
    """Every node predicts the frequent class, and yet the column tells how likely the rare one is."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1200, 1))
    y = (rng.random(1200) < 0.4 / (1 + np.exp(-3 * x[:, 0]))).astype(int)
    ring = [np.arange(1200), np.roll(np.arange(1200), 1)]
    probes = probe_sources(Graph.from_edge_index(ring, y=y, x=np.hstack([x, np.ones_like(x)])))
    assert abs(probes["columns"].accuracy - probes["majority"].accuracy) < 2 * probes["columns"].error
    assert probes["columns"].explained > 0.05
    assert best_source(probes) == "columns"
