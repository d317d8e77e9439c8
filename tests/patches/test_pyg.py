"""The torch_geometric transform gives the patches of `extract_patches`."""

import numpy as np
import pytest
import torch
from torch_geometric import transforms as T
from torch_geometric.data import Data

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.patches.extract import extract_patches
from gpatcher.patches.pyg import AddPatches


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.5, n=60, features=6)


@pytest.mark.parametrize("method", ["ppr", "heat", "heterophily-aware"])
def test_patches_are_added(graph, method):
    data = AddPatches(method, size=7, c=0.7, self_loops=True)(graph.to_pyg())
    want = extract_patches(graph, method, 7, c=0.7, self_loops=True)
    np.testing.assert_array_equal(data.patch_index, want.index)
    np.testing.assert_allclose(data.patch_score, want.score)
    assert data.patch_index.dtype == torch.int64
    np.testing.assert_array_equal(data.x, graph.x)


def test_in_a_chain_of_transforms(graph):
    chain = T.Compose([T.NormalizeFeatures(), AddPatches(size=4), T.ToUndirected()])
    data = chain(graph.to_pyg())
    assert data.patch_index.shape == (60, 4)
    assert repr(chain.transforms[1]) == "AddPatches(method='ppr', size=4)"
    # the data that came in are left as they were
    given = graph.to_pyg()
    AddPatches(size=4)(given)
    assert "patch_index" not in given


def test_directed_edges_count_both_ways():
    one_way = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=5)
    both = Data(edge_index=torch.tensor([[0, 1, 2, 1, 2, 3], [1, 2, 3, 0, 1, 2]]), num_nodes=5)
    one, two = (AddPatches(size=4)(d) for d in (one_way, both))
    np.testing.assert_array_equal(one.patch_index, two.patch_index)
    assert one.patch_index[4].tolist() == [4, -1, -1, -1]


def test_weights_count():
    edges = torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]])
    weights = torch.tensor([1.0, 1.0, 5.0, 5.0])
    data = AddPatches(size=3)(Data(edge_index=edges, edge_weight=weights, num_nodes=3))
    assert data.patch_index[0].tolist() == [0, 2, 1]
    want = extract_patches(Graph.from_edge_index(edges, weights=weights, num_nodes=3), size=3)
    np.testing.assert_allclose(data.patch_score, want.score)


def test_what_cannot_be_done():
    with pytest.raises(InputError, match="no extractor 'nonsense'"):
        AddPatches("nonsense")
    with pytest.raises(InputError, match="no edge_index"):
        AddPatches()(Data(num_nodes=3))
