"""One contract over every model of the project, and an oracle for each baseline."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
import torch_geometric.nn as layers
from torch_geometric.nn import ChebConv, FAConv, GATConv, GCNConv, SAGEConv

from gpatcher.baselines import BASELINES, SEARCH, make_baseline
from gpatcher.baselines.base import EdgeProduct
from gpatcher.baselines.h2gcn import distance_rings
from gpatcher.datasets.load import load_dataset
from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError, InputWarning
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import node_features
from gpatcher.patches.base import FixedPatches
from gpatcher.patches.ppr import push_patches
from gpatcher.patches.spectral import PairProducts, SpectralPatches
from gpatcher.spectral.filters import Adaptive
from gpatcher.spectral.spectrum import eigenpairs
from gpatcher.training.loop import TrainConfig, fit

WITHOUT_WEIGHTS = ("gat", "graphsage", "h2gcn")
MODELS = (*BASELINES, "gpatcher", "fast")


def make(name, graph, features, split=None, **parameters):
    """Build any model of the project."""
    if name in BASELINES:
        return make_baseline(name, graph, features, split or graph.splits[0], **parameters)
    if name == "fast":
        patches = FixedPatches(push_patches(graph, 6))
    else:
        filter = Adaptive(K=4)
        patches = SpectralPatches(PairProducts.build(eigenpairs(graph), filter, 24), filter, 6)
    return GPatcher(patches, features, graph.num_classes, hidden=16)


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=0.6, n=120, features=8, degree=6)


def odd_graph(*, weighted=False, directed=True):
    """Give three classes, ten isolated nodes, a self-loop, and edges in one direction."""
    rng = np.random.default_rng(0)
    pairs = rng.choice(50 * 50, 160, replace=False)
    edges = np.stack([pairs // 50, pairs % 50])
    edges = edges[:, edges[0] != edges[1]]
    if not directed:
        edges = np.unique(np.hstack([edges, edges[::-1]]), axis=1)
    edges = np.hstack([edges, [[3], [3]]])
    x = (rng.random((60, 12)) < 0.2) * rng.random((60, 12))
    y = rng.integers(0, 3, 60)
    order = rng.permutation(60)
    split = Split(order[:30], order[30:45], order[45:])
    weights = rng.uniform(0.5, 2, edges.shape[1]) if weighted else None
    with pytest.warns(InputWarning, match="1 edge joins a node to itself"):
        return Graph.from_edge_index(edges, x=x.astype(np.float32), y=y, weights=weights, splits=[split])


# ------------------------------------------------------------------------------------------ the contract


@pytest.mark.parametrize("name", MODELS)
def test_shape_and_gradient(graph, name):
    torch.manual_seed(0)
    x = node_features(graph)
    model = make(name, graph, x.shape[1])
    assert model(x, torch.tensor([0, 5, 7])).shape == (3, 2)
    everyone, target = torch.arange(graph.n), torch.from_numpy(graph.y.copy())
    loss = F.cross_entropy(model(x, everyone), target)
    if hasattr(model, "extra_loss"):
        loss = loss + model.extra_loss(x, everyone, target)
    loss.backward()
    for parameter, value in model.named_parameters():
        assert value.grad is not None, parameter
        assert value.grad.abs().sum() > 0, parameter
        assert value.grad.isfinite().all(), parameter


@pytest.mark.parametrize("name", MODELS)
def test_eval_is_deterministic_and_does_not_depend_on_the_batch(graph, name):
    x = node_features(graph)
    model = make(name, graph, x.shape[1]).eval()
    everyone = torch.arange(graph.n)
    whole = model(x, everyone)
    assert torch.equal(whole, model(x, everyone))
    nodes = torch.tensor([9, 0, 9])
    torch.testing.assert_close(model(x, nodes), whole[nodes], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_dropout_acts_in_training(graph, name):
    x = node_features(graph)
    model = make(name, graph, x.shape[1]).train()
    nodes = torch.arange(graph.n)
    assert not torch.equal(model(x, nodes), model(x, nodes))


@pytest.mark.parametrize("name", MODELS)
def test_same_seed_same_numbers(graph, name):
    def run(seed):
        torch.manual_seed(seed)
        x = node_features(graph)
        model = make(name, graph, x.shape[1])
        return fit(model, x, graph.labels(), graph.splits[0], TrainConfig(epochs=5), seed=seed).history

    assert run(3) == run(3)
    assert run(3) != run(4)


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_is_trained(graph, name):
    torch.manual_seed(0)
    x = node_features(graph)
    model = make(name, graph, x.shape[1])
    before = {key: p.detach().clone() for key, p in model.named_parameters()}
    fit(model, x, graph.labels(), graph.splits[0], TrainConfig(epochs=3, renew_every=100, stop="accuracy"))
    groups = model.parameter_groups(0.01, 5e-4, 1.0)
    assert sorted(id(p) for g in groups for p in g["params"]) == sorted(id(p) for p in model.parameters())
    for key, p in model.named_parameters():
        assert not torch.equal(before[key], p), key


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("directed", [True, False])
def test_isolated_nodes_and_a_class_missing_from_train(name, directed):
    graph = odd_graph(directed=directed)
    assert graph.isolated.size
    split = graph.splits[0]
    split = Split(split.train[graph.y[split.train] != 2], split.val, split.test)
    x = node_features(graph)
    torch.manual_seed(0)
    model = make(name, graph, x.shape[1], split)
    result = fit(model, x, graph.labels(), split, TrainConfig(epochs=5))
    assert all(np.isfinite(list(h.values())).all() for h in result.history)
    assert model(x, torch.arange(graph.n)).shape == (60, 3)
    assert model(x, torch.from_numpy(graph.isolated)).isfinite().all()


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_without_edges(name):
    with pytest.warns(InputWarning, match="no edges"):
        graph = Graph.from_edge_index(np.zeros((2, 0), int), x=np.eye(6, dtype=np.float32), y=[0, 1] * 3)
    graph = graph.with_splits([Split([0, 1], [2, 3], [4, 5])])
    x = node_features(graph)
    assert make(name, graph, 6)(x, torch.arange(6)).isfinite().all()


@pytest.mark.parametrize("name", MODELS)
def test_sparse_and_dense_features_give_the_same(graph, name):
    rng = np.random.default_rng(1)
    dense = replace(graph, x=((rng.random((graph.n, 9)) < 0.5) * rng.random((graph.n, 9))).astype(np.float32))
    sparse = replace(dense, x=sp.csr_array(dense.x))
    torch.manual_seed(0)
    model = make(name, dense, 9).eval()
    nodes = torch.arange(graph.n)
    torch.testing.assert_close(model(node_features(dense), nodes), model(node_features(sparse), nodes))


@pytest.mark.parametrize("name", MODELS)
def test_directed_input_is_seen_as_undirected(name):
    graph = odd_graph()
    assert graph.is_directed
    x = node_features(graph)
    outputs = []
    for seen in (graph, graph.undirected()):
        torch.manual_seed(0)
        outputs.append(make(name, seen, x.shape[1]).eval()(x, torch.arange(graph.n)))
    assert torch.equal(*outputs)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in (*WITHOUT_WEIGHTS, "mlp")])
def test_weighted_edges_count(name):
    graph = odd_graph(weighted=True)
    x = node_features(graph)
    outputs = []
    for seen in (graph, replace(graph, weights=None)):
        torch.manual_seed(0)
        outputs.append(make(name, seen, x.shape[1]).eval()(x, torch.arange(graph.n)))
    assert outputs[0].isfinite().all()
    assert not torch.allclose(*outputs, atol=1e-4)


@pytest.mark.parametrize("name", WITHOUT_WEIGHTS)
def test_weights_that_do_not_count_are_told_of(name):
    graph = odd_graph(weighted=True)
    x = node_features(graph)
    torch.manual_seed(0)
    with pytest.warns(InputWarning, match="does not use edge weights; every edge counts as 1"):
        model = make(name, graph, x.shape[1])
    torch.manual_seed(0)
    plain = make(name, replace(graph, weights=None), x.shape[1])
    nodes = torch.arange(graph.n)
    assert torch.equal(model.eval()(x, nodes), plain.eval()(x, nodes))


@pytest.mark.parametrize("name", BASELINES)
def test_labels_of_validation_and_test_are_never_seen(name):
    graph = odd_graph()
    split = graph.splits[0]
    other = graph.y.copy()
    other[split.val], other[split.test] = (other[split.val] + 1) % 3, (other[split.test] + 2) % 3
    x = node_features(graph)
    weights = []
    for seen in (graph, replace(graph, y=other)):
        torch.manual_seed(0)
        model = make_baseline(name, seen, x.shape[1], split)
        # stop by validation must not differ: one epoch
        fit(model, x, seen.labels(), split, TrainConfig(epochs=1))
        weights.append(model.state_dict())
        weights[-1]["logits"] = model.eval()(x, torch.arange(graph.n))
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


@pytest.mark.parametrize("name", BASELINES)
def test_every_choice_of_the_search_builds(graph, name):
    training = TrainConfig.__dataclass_fields__
    for parameter, values in SEARCH[name].items():
        for value in values:
            if parameter in training:
                TrainConfig(**{parameter: value})
                continue
            model = make_baseline(name, graph, 8, graph.splits[0], **{parameter: value})
            assert model(node_features(graph), torch.tensor([1])).shape == (1, 2)


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("layers", [1, 3])
def test_other_depths(graph, name, layers):
    model = make_baseline(name, graph, 8, graph.splits[0], layers=layers)
    assert model(node_features(graph), torch.arange(4)).shape == (4, 2)


# --------------------------------------------------------------------------------- oracles: torch_geometric


@pytest.fixture
def setting():
    """Give a small directed graph with isolated nodes and sparse features, its undirected edges and dense x."""
    graph = odd_graph()
    edges = torch.from_numpy(np.stack(graph.adjacency(self_loops=False).nonzero()).astype(np.int64))
    torch.manual_seed(1)
    return graph, edges, torch.from_numpy(np.asarray(graph.x))


def test_edge_product_and_its_gradients():
    graph = odd_graph()
    matrix = graph.adjacency()  # in one direction: the transpose differs
    torch.manual_seed(0)
    weight, h = torch.rand(matrix.nnz, requires_grad=True), torch.randn(60, 4, requires_grad=True)
    ahead = torch.randn(60, 4)
    (EdgeProduct(matrix)(weight, h) * ahead).sum().backward()
    found = weight.grad, h.grad
    weight.grad = h.grad = None
    target, source = (torch.from_numpy(part.astype(np.int64)) for part in matrix.nonzero())
    dense = torch.zeros(60, 60).index_put((target, source), weight)
    (dense @ h * ahead).sum().backward()
    torch.testing.assert_close(found, (weight.grad, h.grad), atol=1e-5, rtol=1e-5)


def logits(name, graph, **parameters):
    model = make_baseline(name, graph, graph.num_features, graph.splits[0], hidden=8, **parameters).eval()
    for p in model.parameters():  # biases too
        torch.nn.init.normal_(p, std=0.3)
    with torch.no_grad():
        return model, model(node_features(graph), torch.arange(graph.n))


def put(layer, **values):
    for name, value in values.items():
        owner = layer.get_submodule(name.rpartition(".")[0])
        getattr(owner, name.rpartition(".")[2]).data = value.detach().clone()
    return layer.eval()


@torch.no_grad()
def test_gcn_is_torch_geometrics(setting):
    graph, edges, x = setting
    model, found = logits("gcn", graph)
    first, second = model.stack.convolutions
    one = put(GCNConv(12, 8), **{"lin.weight": model.stack.product.weight.T, "bias": first.bias})
    two = put(GCNConv(8, 3), **{"lin.weight": second.lin.weight, "bias": second.bias})
    torch.testing.assert_close(found, two(one(x, edges).relu(), edges), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_gcn_against_its_dense_formula(setting):
    graph, _, x = setting
    model, found = logits("gcn", graph)
    adjacency = graph.adjacency(self_loops=False)
    a = torch.tensor(np.eye(60) + ((adjacency + adjacency.T).toarray() > 0)).float()
    scale = a.sum(1) ** -0.5
    a = scale[:, None] * a * scale
    first, second = model.stack.convolutions
    h = (a @ x @ model.stack.product.weight + first.bias).relu()
    torch.testing.assert_close(found, a @ h @ second.lin.weight.T + second.bias, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_jknet_sees_every_layer(setting):
    graph, edges, x = setting
    for mode in ("cat", "max"):
        model, found = logits("jknet", graph, mode=mode)
        first, second = model.stack.convolutions
        one = put(GCNConv(12, 8), **{"lin.weight": model.stack.product.weight.T, "bias": first.bias})
        two = put(GCNConv(8, 8), **{"lin.weight": second.lin.weight, "bias": second.bias})
        h = one(x, edges).relu()
        g = two(h, edges).relu()
        seen = torch.cat([h, g], 1) if mode == "cat" else torch.maximum(h, g)
        torch.testing.assert_close(found, model.classifier(seen), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_gat_is_torch_geometrics(setting):
    graph, edges, x = setting
    model, found = logits("gat", graph, heads=4, output_heads=2)
    first, second = model.convolutions
    names = ("att_src", "att_dst", "bias")
    one = put(GATConv(12, 2, 4), **{"lin.weight": model.product.weight.T}, **{n: getattr(first, n) for n in names})
    two = put(
        GATConv(8, 3, 2, concat=False),
        **{"lin.weight": second.lin.weight},
        **{n: getattr(second, n) for n in names},
    )
    torch.testing.assert_close(found, two(F.elu(one(x, edges)), edges), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_graphsage_is_torch_geometrics(setting):
    graph, edges, x = setting
    model, found = logits("graphsage", graph)
    around, own = model.product.weight.T.chunk(2)
    one = put(SAGEConv(12, 8), **{"lin_l.weight": around, "lin_r.weight": own, "lin_l.bias": model.bias})
    two = model.rest[0]
    torch.testing.assert_close(found, two(one(x, edges).relu(), edges), atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("K", [1, 2, 5])
def test_chebnet_is_torch_geometrics(setting, K):
    graph, edges, x = setting
    model, found = logits("chebnet", graph, K=K)
    h = x
    for weight, bias in zip([model.product.weight, *model.weights], model.biases, strict=True):
        parts = {f"lins.{k}.weight": part for k, part in enumerate(weight.T.chunk(K + 1))}
        layer = put(ChebConv(h.shape[1], len(bias), K + 1), bias=bias, **parts)
        out = layer(h, edges)
        h = out.relu()
    torch.testing.assert_close(found, out, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_appnp_is_torch_geometrics(setting):
    graph, edges, x = setting
    model, found = logits("appnp", graph, alpha=0.3, K=7)
    p = model.perceptron
    h = p.rest[0]((x @ p.first.weight + p.bias).relu())
    torch.testing.assert_close(found, layers.APPNP(7, 0.3)(h, edges), atol=1e-5, rtol=1e-5)


def test_appnp_drops_edges_anew_in_each_step():
    """Dropping from what is left would scale the surviving entries by 2^K and kill nearly all of them."""
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
        spread = model.train()(x, torch.arange(n))
    # each step leaves the mean as it is; its size stays of order 1
    assert spread.mean() == pytest.approx(1, abs=0.15)
    assert spread.max() < 20


@torch.no_grad()
def test_fagcn_is_torch_geometrics(setting):
    graph, edges, x = setting
    model, found = logits("fagcn", graph, eps=0.4)
    start = (x @ model.product.weight + model.bias).relu()
    h = start
    for layer in model.convolutions:
        parts = {f"att_{side}.weight": getattr(layer, f"att_{side}").weight for side in "lr"}
        h = put(FAConv(8, 0.4, add_self_loops=False), **parts)(h, start, edges)
    torch.testing.assert_close(found, model.classifier(h), atol=1e-5, rtol=1e-5)


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
def test_gprgnn_against_its_dense_formula(alpha):
    graph = odd_graph(weighted=True)
    x = torch.from_numpy(np.asarray(graph.x))
    model, found = logits("gprgnn", graph, K=6)
    a = normalise(adjacency(graph) + np.eye(60))
    p = model.perceptron
    h = p.rest[0]((x @ p.first.weight + p.bias).relu())
    dense = sum(model.gamma[k] * torch.linalg.matrix_power(a, k) for k in range(7))
    torch.testing.assert_close(found, dense @ h, atol=1e-5, rtol=1e-5)

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
def test_h2gcn_against_its_dense_formula(setting, relu):
    graph, _, x = setting
    model, found = logits("h2gcn", graph, relu=relu)
    near = adjacency(graph) > 0
    # distances by breadth-first search, not by powers
    steps = sp.csgraph.shortest_path(near.astype(float), unweighted=True)
    a1, a2 = normalise(1.0 * (steps == 1)), normalise(1.0 * (steps == 2))
    r0 = x @ model.product.weight
    r0 = r0.relu() if relu else r0
    r1 = torch.cat([a1 @ r0, a2 @ r0], 1)
    r2 = torch.cat([a1 @ r1, a2 @ r1], 1)
    seen = torch.cat([r0, r1, r2], 1)
    assert seen.shape[1] == 7 * 8
    # the classifier has no bias in the paper
    torch.testing.assert_close(found, seen @ model.classifier.weight.T, atol=1e-5, rtol=1e-5)


def test_rings_hold_neither_the_node_nor_what_is_closer(setting):
    near, far = (ring.toarray() > 0 for ring in distance_rings(setting[0]))
    assert not near.diagonal().any()
    assert not far.diagonal().any()
    assert not (near & far).any()
    assert far.any()


@torch.no_grad()
@pytest.mark.parametrize("loop", [0.0, 1.5])
def test_bmgcn_against_its_dense_formula(loop):
    graph = odd_graph(weighted=True)
    x = torch.from_numpy(np.asarray(graph.x))
    model, found = logits("bmgcn", graph, layers=2, loop=loop, enhance=3.0)
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
    g = score.softmax(1).nan_to_num(0.0)  # no neighbours, nothing to take in
    around, own = model.product.weight.chunk(2, 1)
    z = (g @ x @ around + x @ own + model.bias).relu()
    out = g @ model.around[0](z) + model.own[0](z)
    torch.testing.assert_close(found, out, atol=1e-5, rtol=1e-5)


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
def test_figures_published_for_it_are_met(data_root, name, dataset, parameters, train, low, high):
    """Ten runs of every baseline are in docs/baselines.md; here a few of three."""
    graph = load_dataset(dataset, data_root)
    x = node_features(graph, "l1")
    found = []
    for seed in range(3 if len(graph.splits) == 1 else 10):
        split = graph.splits[seed % len(graph.splits)]
        torch.manual_seed(seed)
        model = make_baseline(name, graph, x.shape[1], split, **parameters)
        found.append(fit(model, x, graph.labels(), split, TrainConfig(**train), seed=seed).test_accuracy)
    assert low < np.mean(found) < high


# ------------------------------------------------------------------------------------------- weight decay


@pytest.mark.parametrize(
    ("name", "decayed"),
    [
        ("gcn", {"stack.product.weight", "stack.convolutions.0.bias"}),
        ("chebnet", {"product.weight", "biases.0"}),
        ("appnp", {"perceptron.first.weight", "perceptron.bias"}),
    ],
)
def test_first_layer_alone_is_decayed_where_the_paper_has_it_so(graph, name, decayed):
    model = make_baseline(name, graph, 8, graph.splits[0])
    names = {id(p): key for key, p in model.named_parameters()}
    first, free = model.parameter_groups(0.01, 5e-4, 1.0)
    assert {names[id(p)] for p in first["params"]} == decayed
    assert (first["weight_decay"], free["weight_decay"]) == (5e-4, 0.0)


def test_gamma_is_not_decayed(graph):
    model = make_baseline("gprgnn", graph, 8, graph.splits[0])
    free = model.parameter_groups(0.01, 5e-4, 1.0)[1]
    assert free["params"] == [model.gamma]


# ------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("nonsense", {}, "no baseline 'nonsense'; there are mlp, gcn"),
        ("gcn", {"heads": 2}, "gcn has no parameter 'heads'; it has hidden, dropout, layers"),
        ("bmgcn", {"labels": None}, "bmgcn has no parameter 'labels'"),
        ("mlp", {"hidden": 0}, "hidden must be at least 1, got 0"),
        ("mlp", {"layers": 0}, "layers must be at least 1, got 0"),
        ("mlp", {"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ("gat", {"heads": 5}, "hidden must be a multiple of heads, got hidden=64 and heads=5"),
        ("gat", {"heads": 0}, "heads must be at least 1, got 0"),
        ("chebnet", {"K": 0}, "K must be at least 1, got 0"),
        ("appnp", {"alpha": 1.5}, r"alpha must lie in \[0, 1\], got 1.5"),
        ("gprgnn", {"K": 0}, "K must be at least 1, got 0"),
        ("gprgnn", {"spread_dropout": -0.1}, r"spread_dropout must lie in \[0, 1\), got -0.1"),
        ("fagcn", {"eps": -1.0}, "eps must be at least 0, got -1.0"),
        ("bmgcn", {"enhance": -1.0}, "enhance must be at least 0, got -1.0"),
        ("jknet", {"mode": "lstm"}, "mode must be one of cat, max, got 'lstm'"),
    ],
)
def test_impossible_parameters_are_refused(graph, name, parameters, words):
    with pytest.raises(InputError, match=words):
        make_baseline(name, graph, 8, graph.splits[0], **parameters)


def test_a_graph_without_labels_is_refused(graph):
    bare = Graph.from_edge_index([[0, 1], [1, 0]], x=np.eye(2, dtype=np.float32))
    with pytest.raises(InputError, match="has no labels"):
        make_baseline("gcn", bare, 2, Split([0], [1], []))
