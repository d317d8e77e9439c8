import json

import networkx as nx
import numpy as np
import pytest

from gpatcher.datasets.load import load_dataset
from gpatcher.datasets.synthetic import colouring, csbm, rmat
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.spectral.diagnosis import EXACT_NODES, diagnose, label_signal


def test_counts_what_is_there():
    with pytest.warns(UserWarning, match=r"repeat another|itself"):
        graph = Graph.from_edge_index(
            [[0, 1, 0, 2, 3, 3], [1, 0, 1, 3, 2, 3]], x=np.eye(6)[:, :4], y=[0, 1, 0, 0, 1, -1], num_nodes=6
        )
    found = diagnose(graph)
    assert (found.nodes, found.edges, found.classes, found.features) == (6, 3, 2, 4)
    assert (found.labelled, found.isolated, found.components) == (5, 2, 4)
    assert (found.duplicate_edges, found.self_loops, found.directed) == (1, 1, False)
    text = " ".join(found.problems)
    for part in ("2 nodes have no neighbour", "1 edge repeated", "1 edge joins", "1 of 6 nodes have no label"):
        assert part in text
    assert "2 nodes have no feature other than 0" in text


@pytest.mark.parametrize("seed", range(5))
def test_components_against_networkx(seed):
    pairs = nx.gnp_random_graph(60, 0.02, seed=seed)
    graph = Graph.from_networkx(pairs)
    assert diagnose(graph).components == nx.number_connected_components(pairs)


def test_json_has_every_promised_key_and_is_plain():
    found = json.loads(json.dumps(diagnose(csbm(phi=0.5, n=200, features=8)).to_dict()))
    promised = """nodes edges classes features isolated components duplicate_edges self_loops node_heterophily
    edge_homophily class_insensitive_homophily adjusted_homophily label_informativeness train_duplicates advice"""
    assert set(promised.split()) <= set(found)
    assert len(found["label_energy"]["share"]) == found["label_energy"]["bins"]
    assert found["lemma1"].keys() == {"constant 1/2", "PPR, c = 0.5", "sigmoid"}


def test_without_labels_or_edges_what_cannot_be_said_is_none():
    found = diagnose(Graph.from_edge_index([[0, 1], [1, 0]]))
    assert found.node_heterophily is None
    assert found.train_duplicates is None
    assert found.spectral is None
    assert "no node has a label" in found.problems
    with pytest.warns(UserWarning, match="no edges"):
        bare = Graph.from_edge_index(np.empty((2, 0), int), y=[0, 1, 1])
    found = diagnose(bare)
    assert (found.components, found.isolated, found.max_degree) == (3, 3, 0)
    assert found.node_heterophily is None
    assert found.undefined_heterophily == 3
    json.dumps(found.to_dict(), allow_nan=False)


def test_one_class_only():
    found = diagnose(Graph.from_edge_index([[0, 1], [1, 0]], y=[0, 0]))
    assert found.node_heterophily == 0
    assert found.adjusted_homophily is None
    assert found.label_frequency is None
    json.dumps(found.to_dict(), allow_nan=False)


def test_advice_follows_the_dial():
    alike, unlike = diagnose(csbm(phi=0.9, n=1000, features=8)), diagnose(csbm(phi=-0.9, n=1000, features=8))
    assert alike.extractor == "ppr"
    assert "mostly agree" in alike.advice[0]
    assert alike.label_frequency > 0.25
    assert unlike.extractor == "heterophily-aware"
    assert "in a way that tells" in unlike.advice[0]
    assert unlike.label_frequency < -0.25
    neither = diagnose(csbm(phi=0.0, n=1000, features=8))
    assert "says little" in neither.advice[0]


def test_large_graphs_are_sent_to_the_extractor_without_eigenvectors():
    graph = rmat(n=30_000, m=60_000, classes=4)
    graph = Graph(
        graph.indptr, graph.indices, y=np.random.default_rng(0).integers(0, 4, graph.n), classes=graph.classes
    )
    found = diagnose(graph)
    assert found.extractor == "polynomial"
    assert not found.spectral.labels.exact
    assert "eigenvectors are out of reach" in found.advice[0]


def test_moments_and_eigenvectors_tell_the_same(monkeypatch):
    graph = csbm(phi=-0.7, n=800, features=8)
    exact = diagnose(graph).spectral
    monkeypatch.setattr("gpatcher.spectral.diagnosis.EXACT_NODES", 10)
    smooth = diagnose(graph).spectral
    assert exact.labels.exact
    assert not smooth.labels.exact
    assert smooth.labels.mean == pytest.approx(exact.labels.mean)
    # the same mass on either side of 0 and within each quarter, to the resolution of the moments
    gaps = np.cumsum(smooth.labels.share)[9::10] - np.cumsum(exact.labels.share)[9::10]
    assert np.abs(gaps).max() < 0.03
    assert EXACT_NODES > 800


def test_label_signal_is_centred_on_the_labelled_nodes():
    signal = label_signal(Graph.from_edge_index([[0, 1], [1, 0]], y=[0, 1, 1, -1], num_nodes=4))
    np.testing.assert_allclose(signal, [[2 / 3, -2 / 3], [-1 / 3, 1 / 3], [-1 / 3, 1 / 3], [0, 0]])


def test_colouring_is_heterophilous_and_informative():
    found = diagnose(colouring(n=120, colours=2, degree=4))
    assert found.node_heterophily == 1
    assert found.label_informativeness == pytest.approx(1)
    assert found.label_frequency == pytest.approx(-1)


def test_twins_are_called_a_leak():
    star = Graph.from_edge_index([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]], y=[0, 1, 1, 1])
    found = diagnose(star.with_splits([Split([0, 1], [], [2, 3])]))
    assert found.train_duplicates == 1
    assert any("twin in train" in line for line in found.problems)
    assert any("leak" in line for line in found.advice)


def test_real_graph(data_root):
    found = diagnose(load_dataset("Texas", data_root))
    assert (found.nodes, found.edges, found.classes, found.features) == (183, 295, 5, 1703)
    assert found.directed
    assert found.self_loops == 16
    assert found.train_duplicates == pytest.approx(0.273, abs=1e-3)
    assert not any(check.holds_as_printed for check in found.spectral.lemma.values())
