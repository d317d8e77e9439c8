"""An oracle for each baseline: torch_geometric's layers, dense formulas, published figures."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
import torch_geometric.nn as layers
from torch_geometric.nn import ChebConv, FAConv, GATConv, GCNConv, SAGEConv

from gpatcher.baselines import make_baseline
from gpatcher.baselines.h2gcn import distance_rings
from gpatcher.datasets.load import load_dataset
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.model.inputs import FeatureConfig, SparseProduct, node_features
from gpatcher.training.loop import TrainConfig, fit

# --------------------------------------------------------------------------------- oracles: torch_geometric


@pytest.fixture
def setting(irregular_graph):
    """Return a small directed graph with isolated nodes, its undirected edges and its features as a tensor."""
    graph = irregular_graph()
    edges = torch.from_numpy(np.stack(graph.adjacency(self_loops=False).nonzero()).astype(np.int64))
    torch.manual_seed(1)
    return graph, edges, torch.from_numpy(np.asarray(graph.x))


def test_sparse_product_and_its_gradients(irregular_graph):
    graph = irregular_graph()
    matrix = graph.adjacency()  # directed, so the transpose differs
    torch.manual_seed(0)
    weight, h = torch.rand(matrix.nnz, requires_grad=True), torch.randn(60, 4, requires_grad=True)
    grad = torch.randn(60, 4)
    (SparseProduct(matrix)(weight, h) * grad).sum().backward()
    actual = weight.grad, h.grad
    weight.grad = h.grad = None
    target, source = (torch.from_numpy(part.astype(np.int64)) for part in matrix.nonzero())
    dense = torch.zeros(60, 60).index_put((target, source), weight)
    (dense @ h * grad).sum().backward()
    torch.testing.assert_close(actual, (weight.grad, h.grad), atol=1e-5, rtol=1e-5)


def logits(name, graph, **parameters):
    model = make_baseline(name, graph, graph.num_features, graph.splits[0], hidden=8, **parameters).eval()
    for p in model.parameters():  # biases too
        torch.nn.init.normal_(p, std=0.3)
    with torch.no_grad():
        return model, model(node_features(graph), torch.arange(graph.n))


def set_parameters(layer, **values):
    for name, value in values.items():
        owner = layer.get_submodule(name.rpartition(".")[0])
        getattr(owner, name.rpartition(".")[2]).data = value.detach().clone()
    return layer.eval()


@torch.no_grad()
def test_gcn_equals_torch_geometric(setting):
    graph, edges, x = setting
    model, actual = logits("gcn", graph)
    first, second = model.stack.convolutions
    one = set_parameters(GCNConv(12, 8), **{"lin.weight": model.stack.product.weight.T, "bias": first.bias})
    two = set_parameters(GCNConv(8, 3), **{"lin.weight": second.lin.weight, "bias": second.bias})
    torch.testing.assert_close(actual, two(one(x, edges).relu(), edges), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_gcn_equals_its_dense_formula(setting):
    graph, _, x = setting
    model, actual = logits("gcn", graph)
    a = torch.tensor(
        np.eye(60) + ((graph.adjacency(self_loops=False) + graph.adjacency(self_loops=False).T).toarray() > 0)
    ).float()
    scale = a.sum(1) ** -0.5
    a = scale[:, None] * a * scale
    first, second = model.stack.convolutions
    h = (a @ x @ model.stack.product.weight + first.bias).relu()
    torch.testing.assert_close(actual, a @ h @ second.lin.weight.T + second.bias, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_jknet_reads_every_layer(setting):
    graph, edges, x = setting
    for mode in ("cat", "max"):
        model, actual = logits("jknet", graph, mode=mode)
        first, second = model.stack.convolutions
        one = set_parameters(GCNConv(12, 8), **{"lin.weight": model.stack.product.weight.T, "bias": first.bias})
        two = set_parameters(GCNConv(8, 8), **{"lin.weight": second.lin.weight, "bias": second.bias})
        h = one(x, edges).relu()
        g = two(h, edges).relu()
        aggregated = torch.cat([h, g], 1) if mode == "cat" else torch.maximum(h, g)
        torch.testing.assert_close(actual, model.classifier(aggregated), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_gat_equals_torch_geometric(setting):
    graph, edges, x = setting
    model, actual = logits("gat", graph, heads=4, output_heads=2)
    first, second = model.convolutions
    names = ("att_src", "att_dst", "bias")
    one = set_parameters(
        GATConv(12, 2, 4), **{"lin.weight": model.product.weight.T}, **{n: getattr(first, n) for n in names}
    )
    two = set_parameters(
        GATConv(8, 3, 2, concat=False),
        **{"lin.weight": second.lin.weight},
        **{n: getattr(second, n) for n in names},
    )
    torch.testing.assert_close(actual, two(F.elu(one(x, edges)), edges), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_graphsage_equals_torch_geometric(setting):
    graph, edges, x = setting
    model, actual = logits("graphsage", graph)
    around, own = model.product.weight.T.chunk(2)
    one = set_parameters(SAGEConv(12, 8), **{"lin_l.weight": around, "lin_r.weight": own, "lin_l.bias": model.bias})
    two = model.rest[0]
    torch.testing.assert_close(actual, two(one(x, edges).relu(), edges), atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("K", [1, 2, 5])
def test_chebnet_equals_torch_geometric(setting, K):
    graph, edges, x = setting
    model, actual = logits("chebnet", graph, K=K)
    h = x
    for weight, bias in zip([model.product.weight, *model.weights], model.biases, strict=True):
        parts = {f"lins.{k}.weight": part for k, part in enumerate(weight.T.chunk(K + 1))}
        layer = set_parameters(ChebConv(h.shape[1], len(bias), K + 1), bias=bias, **parts)
        out = layer(h, edges)
        h = out.relu()
    torch.testing.assert_close(actual, out, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_appnp_equals_torch_geometric(setting):
    graph, edges, x = setting
    model, actual = logits("appnp", graph, alpha=0.3, K=7)
    p = model.perceptron
    h = p.rest[0]((x @ p.first.weight + p.bias).relu())
    torch.testing.assert_close(actual, layers.APPNP(7, 0.3)(h, edges), atol=1e-5, rtol=1e-5)


def test_appnp_draws_edge_dropout_again_in_each_step():
    """Dropping from the entries that remain would scale them by up to 2^K and leave hardly any."""
    n = 400
    ring = np.stack([np.arange(n), (np.arange(n) + 1) % n])
    graph = Graph.from_edge_index(ring, x=np.ones((n, 1), np.float32), y=np.arange(n) % 2)
    graph = graph.with_splits([Split([0, 1], [2], [3])])
    model = make_baseline("appnp", graph, 1, graph.splits[0], layers=1, K=10, alpha=0.1)
    x = node_features(graph)
    torch.manual_seed(0)
    with torch.no_grad():
        model.perceptron.bias.fill_(1.0)
        model.perceptron.first.weight.fill_(0.0)
        logits = model.train()(x, torch.arange(n))
    # each step keeps the expected mean, and no entry grows
    assert logits.mean() == pytest.approx(1, abs=0.15)
    assert logits.max() < 20


@torch.no_grad()
def test_fagcn_equals_torch_geometric(setting):
    graph, edges, x = setting
    model, actual = logits("fagcn", graph, eps=0.4)
    start = (x @ model.product.weight + model.bias).relu()
    h = start
    for layer in model.convolutions:
        parts = {f"att_{side}.weight": getattr(layer, f"att_{side}").weight for side in "lr"}
        h = set_parameters(FAConv(8, 0.4, add_self_loops=False), **parts)(h, start, edges)
    torch.testing.assert_close(actual, model.classifier(h), atol=1e-5, rtol=1e-5)


# --------------------------------------------------------------------------------- oracles: dense formulas


def adjacency(graph):
    a = graph.adjacency().toarray()
    a = np.maximum(a, a.T)
    np.fill_diagonal(a, 0)
    return a


def normalise(a):
    degree = a.sum(1)
    scale = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1e-12)), 0)
    return torch.tensor(scale[:, None] * a * scale).float()


@torch.no_grad()
@pytest.mark.parametrize("alpha", [0.0, 0.2, 1.0])
def test_gprgnn_equals_its_dense_formula(irregular_graph, alpha):
    graph = irregular_graph(weighted=True)
    x = torch.from_numpy(np.asarray(graph.x))
    model, actual = logits("gprgnn", graph, K=6)
    a = normalise(adjacency(graph) + np.eye(60))
    p = model.perceptron
    h = p.rest[0]((x @ p.first.weight + p.bias).relu())
    dense = sum(model.gamma[k] * torch.linalg.matrix_power(a, k) for k in range(7))
    torch.testing.assert_close(actual, dense @ h, atol=1e-5, rtol=1e-5)

    gamma = make_baseline("gprgnn", graph, 12, graph.splits[0], K=6, alpha=alpha).gamma
    start = [alpha * (1 - alpha) ** k for k in range(6)] + [(1 - alpha) ** 6]
    np.testing.assert_allclose(gamma.numpy(), start, atol=1e-6)


def test_gprgnn_starts_as_appnp(setting):
    graph, _, _ = setting
    x = node_features(graph)
    one = make_baseline("gprgnn", graph, 12, graph.splits[0], alpha=0.2).eval()
    two = make_baseline("appnp", graph, 12, graph.splits[0], alpha=0.2).eval()
    two.perceptron.load_state_dict(one.perceptron.state_dict())
    nodes = torch.arange(graph.n)
    torch.testing.assert_close(one(x, nodes), two(x, nodes), atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("relu", [True, False])
def test_h2gcn_equals_its_dense_formula(setting, relu):
    graph, _, x = setting
    model, actual = logits("h2gcn", graph, relu=relu)
    edges = adjacency(graph) > 0
    # distances by breadth-first search, not by powers
    distance = sp.csgraph.shortest_path(edges.astype(float), unweighted=True)
    a1, a2 = normalise(1.0 * (distance == 1)), normalise(1.0 * (distance == 2))
    r0 = x @ model.product.weight
    r0 = r0.relu() if relu else r0
    r1 = torch.cat([a1 @ r0, a2 @ r0], 1)
    r2 = torch.cat([a1 @ r1, a2 @ r1], 1)
    rounds = torch.cat([r0, r1, r2], 1)
    assert rounds.shape[1] == 7 * 8
    # the classifier has no bias in the paper
    torch.testing.assert_close(actual, rounds @ model.classifier.weight.T, atol=1e-5, rtol=1e-5)


def test_distance_rings_are_disjoint_and_exclude_the_node(setting):
    one_hop, two_hop = (ring.toarray() > 0 for ring in distance_rings(setting[0]))
    assert not one_hop.diagonal().any()
    assert not two_hop.diagonal().any()
    assert not (one_hop & two_hop).any()
    assert two_hop.any()


@torch.no_grad()
@pytest.mark.parametrize("loop", [0.0, 1.5])
def test_bmgcn_equals_its_dense_formula(irregular_graph, loop):
    graph = irregular_graph(weighted=True)
    x = torch.from_numpy(np.asarray(graph.x))
    model, actual = logits("bmgcn", graph, layers=2, loop=loop, enhance=3.0)
    a = torch.tensor(adjacency(graph) + loop * np.eye(60)).float()
    p = model.perceptron
    soft = p.rest[0]((x @ p.first.weight + p.bias).relu()).softmax(1)
    labels = soft.clone()
    train = torch.from_numpy(graph.splits[0].train.copy())
    labels[train] = F.one_hot(torch.from_numpy(graph.y.copy())[train], 3).float()
    h = (labels.T @ a @ labels) / (labels.T @ a @ torch.ones(60, 3))
    q = h @ h.T * (1 + 2 * torch.eye(3))
    q = q / q.sum(1, keepdim=True)
    score = torch.where(a > 0, soft @ q @ soft.T * a, -torch.inf)
    g = score.softmax(1).nan_to_num(0.0)  # a row without neighbours is 0
    around, own = model.product.weight.chunk(2, 1)
    z = (g @ x @ around + x @ own + model.bias).relu()
    out = g @ model.around[0](z) + model.own[0](z)
    torch.testing.assert_close(actual, out, atol=1e-5, rtol=1e-5)


def test_bmgcn_adds_the_loss_of_its_mlp(graph):
    x = node_features(graph)
    losses = []
    for balance in (0.0, 1.0):
        torch.manual_seed(0)
        model = make_baseline("bmgcn", graph, 8, graph.splits[0], balance=balance, dropout=0.0)
        nodes = torch.from_numpy(graph.splits[0].train.copy())
        target = torch.from_numpy(graph.y.copy())[nodes]
        extra = model.extra_loss(x, nodes, target).item()
        losses.append(fit(model, x, graph.labels(), graph.splits[0], TrainConfig(epochs=1)).history[0]["train_loss"])
    assert extra == pytest.approx(float(F.cross_entropy(torch.zeros(1, 2), torch.tensor([0]))), abs=0.5)
    assert losses[1] - losses[0] == pytest.approx(extra, rel=1e-4)


# -------------------------------------------------------------------------------------- published figures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dataset", "parameters", "train", "low", "high"),
    [
        ("gcn", "cora", {"hidden": 16}, {"lr": 0.01, "epochs": 200, "patience": 200}, 0.80, 0.83),
        ("appnp", "cora", {}, {"lr": 0.01, "weight_decay": 5e-3, "epochs": 400, "patience": 100}, 0.82, 0.845),
        ("mlp", "wisconsin", {}, {"lr": 0.01, "patience": 100}, 0.82, 0.87),
    ],
)
def test_published_figures_are_reproduced(data_root, name, dataset, parameters, train, low, high):
    """A quick check on three models; docs/baselines.md has ten runs of every baseline."""
    graph = load_dataset(dataset, data_root)
    x = node_features(graph, FeatureConfig(normalise="l1"))
    accuracies = []
    for seed in range(3 if len(graph.splits) == 1 else 10):
        split = graph.splits[seed % len(graph.splits)]
        torch.manual_seed(seed)
        model = make_baseline(name, graph, x.shape[1], split, **parameters)
        result = fit(model, x, graph.labels(), split, TrainConfig(**train), seed=seed)
        accuracies.append(result.test_accuracy)
    assert low < np.mean(accuracies) < high


# ------------------------------------------------------------------------------------------- weight decay


@pytest.mark.parametrize(
    ("name", "decayed"),
    [
        ("gcn", {"stack.product.weight", "stack.convolutions.0.bias"}),
        ("chebnet", {"product.weight", "biases.0"}),
        ("appnp", {"perceptron.first.weight", "perceptron.bias"}),
    ],
)
def test_weight_decay_acts_on_the_first_layer_only(graph, name, decayed):
    model = make_baseline(name, graph, 8, graph.splits[0])
    names = {id(p): key for key, p in model.named_parameters()}
    first, free = model.parameter_groups(0.01, 5e-4, 1.0)
    assert {names[id(p)] for p in first["params"]} == decayed
    assert (first["weight_decay"], free["weight_decay"]) == (5e-4, 0.0)


def test_gamma_has_no_weight_decay(graph):
    model = make_baseline("gprgnn", graph, 8, graph.splits[0])
    free = model.parameter_groups(0.01, 5e-4, 1.0)[1]
    assert free["params"] == [model.gamma]
