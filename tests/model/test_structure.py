"""Columns made of the edges, against networkx and dense matrices."""

import networkx as nx
import numpy as np
import pytest
import torch

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.model import inputs
from gpatcher.model.inputs import FeatureConfig, node_features, unseen_features
from gpatcher.model.structure import STRUCTURE, structure_columns


@pytest.fixture(scope="module")
def directed():
    rng = np.random.default_rng(2)
    pairs = np.unique(rng.integers(0, 40, (160, 2)), axis=0)
    return Graph.from_edge_index(pairs[pairs[:, 0] != pairs[:, 1]].T, x=rng.random((40, 3)), num_nodes=40)


def test_degrees_count_both_directions(directed):
    A = directed.adjacency().toarray()
    np.testing.assert_allclose(
        structure_columns(directed, ["degree"]), np.log1p(np.stack([A.sum(1), A.sum(0)], 1)), rtol=1e-6
    )
    undirected = directed.undirected()
    degree = np.log1p(undirected.adjacency().toarray().sum(1))
    np.testing.assert_allclose(structure_columns(undirected, ["degree"])[:, 0], degree, rtol=1e-6)


def test_clustering_is_that_of_networkx(directed):
    graph = nx.Graph(directed.undirected().to_networkx())
    expected = [nx.clustering(graph)[v] for v in range(40)]
    assert max(expected) > 0
    np.testing.assert_allclose(structure_columns(directed, ["clustering"])[:, 0], expected, rtol=1e-6)


def test_pagerank_is_that_of_networkx(directed):
    ranks = nx.pagerank(nx.DiGraph(directed.to_networkx()), alpha=0.85, tol=1e-12)
    expected = np.log(40 * np.array([ranks[v] for v in range(40)]))
    np.testing.assert_allclose(structure_columns(directed, ["pagerank"])[:, 0], expected, atol=1e-3)


def test_spectral_columns_are_singular_vectors(directed):
    columns = structure_columns(directed, ["spectral"]) / np.sqrt(40)
    assert columns.shape == (40, 8)
    np.testing.assert_allclose(columns.T @ columns, np.eye(8), atol=1e-4)
    values = np.sort(np.abs(np.linalg.eigvalsh(directed.normalised().toarray())))[::-1]
    np.testing.assert_allclose(np.linalg.norm(directed.normalised() @ columns, axis=0), values[:8], atol=0.05)


def test_columns_stand_beside_the_features(directed):
    config = FeatureConfig(structure=("clustering", "degree"))
    table = node_features(directed, config)
    assert table.shape == (40, 6)
    np.testing.assert_allclose(
        table.rows(torch.arange(40))[:, 3:], structure_columns(directed, ["clustering", "degree"]), rtol=1e-6
    )
    alone = Graph.from_edge_index([[0, 1], [1, 2]])
    assert node_features(alone, FeatureConfig(structure=tuple(STRUCTURE))).shape[0] == 3


def test_unseen_nodes_have_those_of_the_extended_graph_or_are_refused(directed):
    unseen = UnseenNodes.join(directed, [[40, 3, 41, 41], [1, 40, 40, 7]], x=np.ones((2, 3)))
    nodes = np.array([1, 3, 7, 40, 41])
    config = FeatureConfig(structure=("degree", "clustering"))
    table = unseen_features(unseen, nodes, config)
    expected = node_features(unseen.extended(), config)
    np.testing.assert_allclose(table.rows(torch.arange(5)), expected.rows(torch.from_numpy(nodes)), rtol=1e-6)
    for name in ("pagerank", "spectral"):
        with pytest.raises(InputError, match=f"structure columns {name} are not defined for unseen nodes"):
            unseen_features(unseen, nodes, FeatureConfig(structure=(name,)))


def test_an_unknown_column_is_named():
    with pytest.raises(InputError, match="some of degree, pagerank, clustering, spectral, got motifs"):
        FeatureConfig(structure=("motifs",))


def test_large_memory_mapped_features_are_not_copied(tmp_path, monkeypatch):
    graph = csbm(phi=0.5, n=60, features=4)
    path = tmp_path / "x.npy"
    np.save(path, np.array(graph.x))
    mapped = graph.with_features(np.load(path, mmap_mode="r"))
    config = FeatureConfig(structure=("degree",))
    everything = torch.arange(graph.n)
    assert torch.equal(node_features(mapped, config).rows(everything), node_features(graph, config).rows(everything))
    monkeypatch.setattr(inputs, "_SMALL_BYTES", mapped.x.nbytes - 1)
    graph = mapped
    with pytest.raises(InputError, match="structure would copy memory-mapped features"):
        node_features(graph, FeatureConfig(structure=("degree",)))
