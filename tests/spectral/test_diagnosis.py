import json

import networkx as nx
import numpy as np
import pytest

from gpatcher.datasets.load import load_dataset
from gpatcher.datasets.synthetic import colouring, csbm, rmat
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.spectral.diagnosis import EXACT_NODES, diagnose, label_signal


def test_counts():
    with pytest.warns(UserWarning, match=r"repeat another|itself"):
        graph = Graph.from_edge_index(
            [[0, 1, 0, 2, 3, 3], [1, 0, 1, 3, 2, 3]], x=np.eye(6)[:, :4], y=[0, 1, 0, 0, 1, -1], num_nodes=6
        )
    result = diagnose(graph)
    assert (result.nodes, result.edges, result.classes, result.features) == (6, 3, 2, 4)
    assert (result.labelled, result.isolated, result.components) == (5, 2, 4)
    assert (result.duplicate_edges, result.self_loops, result.directed) == (1, 1, False)
    text = " ".join(result.problems)
    for part in ("2 nodes have no neighbours", "1 duplicate edge", "1 self-loop", "1 of 6 nodes have no label"):
        assert part in text
    assert "2 nodes have no feature other than 0" in text


@pytest.mark.parametrize("seed", range(5))
def test_components_against_networkx(seed):
    pairs = nx.gnp_random_graph(60, 0.02, seed=seed)
    graph = Graph.from_networkx(pairs)
    assert diagnose(graph).components == nx.number_connected_components(pairs)


def test_json_has_every_promised_key():
    result = json.loads(json.dumps(diagnose(csbm(phi=0.5, n=200, features=8)).to_dict()))
    promised = """nodes edges classes features isolated components duplicate_edges self_loops node_heterophily
    edge_homophily class_insensitive_homophily adjusted_homophily label_informativeness train_duplicates advice"""
    assert set(promised.split()) <= set(result)
    assert len(result["label_energy"]["share"]) == result["label_energy"]["bins"]
    assert result["lemma1"].keys() == {"constant 1/2", "PPR, c = 0.5", "sigmoid"}


def test_undefined_measures_are_none():
    result = diagnose(Graph.from_edge_index([[0, 1], [1, 0]]))
    assert result.node_heterophily is None
    assert result.train_duplicates is None
    assert result.spectral is None
    assert "no node has a label" in result.problems
    with pytest.warns(UserWarning, match="no edges"):
        bare = Graph.from_edge_index(np.empty((2, 0), int), y=[0, 1, 1])
    result = diagnose(bare)
    assert (result.components, result.isolated, result.max_degree) == (3, 3, 0)
    assert result.node_heterophily is None
    assert result.undefined_heterophily == 3
    json.dumps(result.to_dict(), allow_nan=False)


def test_one_class_only():
    result = diagnose(Graph.from_edge_index([[0, 1], [1, 0]], y=[0, 0]))
    assert result.node_heterophily == 0
    assert result.adjusted_homophily is None
    assert result.label_frequency is None
    json.dumps(result.to_dict(), allow_nan=False)


def test_advice_follows_the_homophily():
    homophilous, neither, heterophilous = (diagnose(csbm(phi, n=1000, features=8)) for phi in (0.9, 0.0, -0.9))
    assert homophilous.extractor == "ppr"
    assert "mostly have the same label" in " ".join(homophilous.advice)
    assert homophilous.label_frequency > 0.25
    assert heterophilous.extractor == "heterophily-aware"
    assert "these are informative" in " ".join(heterophilous.advice)
    assert heterophilous.label_frequency < -0.25
    assert "little information" in " ".join(neither.advice)


def test_large_graphs_need_an_extractor_without_eigenvectors():
    graph = rmat(n=30_000, m=60_000, classes=4)
    graph = Graph(
        graph.indptr, graph.indices, y=np.random.default_rng(0).integers(0, 4, graph.n), classes=graph.classes
    )
    result = diagnose(graph)
    assert result.extractor == "polynomial"
    assert not result.spectral.labels.exact
    assert "30,000 nodes, eigenvectors are too expensive" in " ".join(result.advice)


def test_moments_agree_with_eigenvectors(monkeypatch):
    graph = csbm(phi=-0.7, n=800, features=8)
    exact = diagnose(graph).spectral
    monkeypatch.setattr("gpatcher.spectral.diagnosis.EXACT_NODES", 10)
    approximate = diagnose(graph).spectral
    assert exact.labels.exact
    assert not approximate.labels.exact
    assert approximate.labels.mean == pytest.approx(exact.labels.mean)
    # the same energy in each quarter of the interval, to the resolution of the moments
    gaps = np.cumsum(approximate.labels.share)[9::10] - np.cumsum(exact.labels.share)[9::10]
    assert np.abs(gaps).max() < 0.03
    assert EXACT_NODES > 800


def test_label_signal_is_centred_on_the_labelled_nodes():
    signal = label_signal(Graph.from_edge_index([[0, 1], [1, 0]], y=[0, 1, 1, -1], num_nodes=4))
    np.testing.assert_allclose(signal, [[2 / 3, -2 / 3], [-1 / 3, 1 / 3], [-1 / 3, 1 / 3], [0, 0]])


def test_colouring_is_heterophilous_and_informative():
    result = diagnose(colouring(n=120, colours=2, degree=4))
    assert result.node_heterophily == 1
    assert result.label_informativeness == pytest.approx(1)
    assert result.label_frequency == pytest.approx(-1)


def test_duplicates_are_reported_as_a_leak():
    star = Graph.from_edge_index([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]], y=[0, 1, 1, 1])
    result = diagnose(star.with_splits([Split([0, 1], [], [2, 3])]))
    assert result.train_duplicates == 1
    assert any("100.0% of the test nodes duplicate a training node" in line for line in result.problems)
    assert any("leak" in line for line in result.advice)


def test_real_graph(data_root):
    result = diagnose(load_dataset("Texas", data_root))
    assert (result.nodes, result.edges, result.classes, result.features) == (183, 295, 5, 1703)
    assert result.directed
    assert result.self_loops == 16
    assert result.train_duplicates == pytest.approx(0.273, abs=1e-3)
    assert not any(check.holds_as_printed for check in result.spectral.lemma.values())
