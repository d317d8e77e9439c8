"""The torch_geometric transform gives the patches of `extract_patches`."""

import numpy as np
import pytest
import torch
from torch_geometric import transforms as T
from torch_geometric.data import Data

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.patches import PPR, extract_patches, make_extractor
from gpatcher.patches.pyg import AddPatches


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.5, n=60, features=6)


@pytest.mark.parametrize("name", ["ppr", "heat", "heterophily-aware"])
def test_patches_are_added(graph, name):
    extractor = make_extractor(name, {"size": 7, "c": 0.7, "self_loops": True})
    data = AddPatches(extractor)(graph.to_pyg())
    expected = extract_patches(graph, extractor)
    np.testing.assert_array_equal(data.patch_index, expected.index)
    np.testing.assert_allclose(data.patch_score, expected.score)
    assert data.patch_index.dtype == torch.int64
    np.testing.assert_array_equal(data.x, graph.x)


def test_an_extractor_by_name_has_its_defaults(graph):
    assert AddPatches("heat")(graph.to_pyg()).patch_index.shape == (60, 16)
    assert AddPatches()(graph.to_pyg()).patch_index.shape == (60, 32)
    assert AddPatches().extractor == PPR(size=32)


def test_in_a_chain_of_transforms(graph):
    chain = T.Compose([T.NormalizeFeatures(), AddPatches(PPR(size=4)), T.ToUndirected()])
    data = chain(graph.to_pyg())
    assert data.patch_index.shape == (60, 4)
    assert (
        repr(chain.transforms[1])
        == "AddPatches(PPR(size=4, c=0.5, eps=1e-05, self_loops=False, direction='both', edge_type=None))"
    )
    # the argument is not changed
    given = graph.to_pyg()
    AddPatches(PPR(size=4))(given)
    assert "patch_index" not in given


def test_directed_edges_count_in_both_directions():
    one_way = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=5)
    both = Data(edge_index=torch.tensor([[0, 1, 2, 1, 2, 3], [1, 2, 3, 0, 1, 2]]), num_nodes=5)
    one, two = (AddPatches(PPR(size=4))(d) for d in (one_way, both))
    np.testing.assert_array_equal(one.patch_index, two.patch_index)
    assert one.patch_index[4].tolist() == [4, -1, -1, -1]


def test_weights_count():
    edges = torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]])
    weights = torch.tensor([1.0, 1.0, 5.0, 5.0])
    data = AddPatches(PPR(size=3))(Data(edge_index=edges, edge_weight=weights, num_nodes=3))
    assert data.patch_index[0].tolist() == [0, 2, 1]
    expected = extract_patches(Graph.from_edge_index(edges, weights=weights, num_nodes=3), PPR(size=3))
    np.testing.assert_allclose(data.patch_score, expected.score)


def test_errors(graph):
    with pytest.raises(InputError, match="unknown extractor 'nonsense'"):
        AddPatches("nonsense")
    with pytest.raises(InputError, match="--memory"):
        AddPatches("heat", memory=100)(graph.to_pyg())
    with pytest.raises(InputError, match="no edge_index"):
        AddPatches()(Data(num_nodes=3))
