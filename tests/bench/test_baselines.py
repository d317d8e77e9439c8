import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gpatcher.bench.baselines import GCN, MLP
from gpatcher.data.synthetic import csbm
from gpatcher.features import node_features
from gpatcher.graph import Graph
from gpatcher.training import TrainConfig, fit


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=0.6, n=120, features=8, degree=6)


@pytest.mark.parametrize("build", [GCN, MLP])
def test_contract(graph, build):
    torch.manual_seed(0)
    x = node_features(graph)
    model = build(graph, x.shape[1])
    nodes = torch.tensor([0, 5, 7])
    logits = model(x, nodes)
    assert logits.shape == (3, 2)
    F.cross_entropy(model(x, torch.arange(graph.n)), torch.from_numpy(graph.y.copy())).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    model.eval()
    torch.testing.assert_close(model(x, nodes), model(x, torch.arange(graph.n))[nodes])


@pytest.mark.parametrize("build", [GCN, MLP])
def test_same_seed_same_numbers(graph, build):
    def run():
        torch.manual_seed(3)
        x = node_features(graph)
        return fit(build(graph, x.shape[1]), x, graph.labels(), graph.splits[0], TrainConfig(epochs=8), seed=3)

    assert run().history == run().history


def test_gcn_against_its_dense_formula():
    # node 3 is isolated; input is directed and seen as undirected
    graph = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], x=np.eye(4, dtype=np.float32), y=[0, 1, 0, 1], num_nodes=4)
    x = node_features(graph)
    model = GCN(graph, 4, hidden=5).eval()
    a = graph.normalised(self_loops=True).toarray()
    with torch.no_grad():
        weight = model.weight.numpy()
        first = np.maximum(a @ np.eye(4) @ weight + model.first.bias.numpy(), 0)
        second = a @ first @ model.second.lin.weight.numpy().T + model.second.bias.numpy()
        np.testing.assert_allclose(model(x, torch.arange(4)).numpy(), second, atol=1e-5)
