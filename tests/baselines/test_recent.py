"""An oracle for each baseline beyond the paper's: dense formulas, and which edges count in which direction."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv

from gpatcher.baselines import make_baseline
from gpatcher.errors import InputWarning
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable, node_features

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture
def setting(irregular_graph):
    """Return a directed graph with weights, isolated nodes and a self-loop, and its features as a tensor."""
    graph = irregular_graph(weighted=True)
    return graph, torch.from_numpy(np.asarray(graph.x))


@torch.no_grad()
def logits(name, graph, **parameters):
    torch.manual_seed(1)
    model = make_baseline(name, graph, graph.num_features, graph.splits[0], hidden=8, **parameters).eval()
    for parameter in model.parameters():  # biases too
        torch.nn.init.normal_(parameter, std=0.3)
    return model, model(node_features(graph), torch.arange(graph.n))


def dense_adjacency(graph, directed):
    """A without self-loops, from the list of edges."""
    a = np.zeros((graph.n, graph.n), np.float32)
    for v in range(graph.n):
        row = slice(graph.indptr[v], graph.indptr[v + 1])
        a[v, graph.indices[row]] = 1 if graph.weights is None else graph.weights[row]
    np.fill_diagonal(a, 0)
    return torch.from_numpy(a if directed else np.maximum(a, a.T))


def inverse(sums, power):
    return torch.where(sums > 0, sums.clamp_min(1e-12) ** power, 0)


def symmetric(a):
    return inverse(a.sum(1), -0.5)[:, None] * a * inverse(a.sum(0), -0.5)


def mean(a):
    return inverse(a.sum(1), -1.0)[:, None] * a


def reversed_edges(graph):
    with pytest.warns(InputWarning, match="joins a node to itself"):
        flipped = Graph.from_scipy(graph.adjacency().T, x=graph.x, y=graph.y)
    return flipped.with_splits(graph.splits)


# -------------------------------------------------------------------------------------------------- LINKX


@torch.no_grad()
@pytest.mark.parametrize("directed", [False, True])
def test_linkx_equals_its_formula(setting, directed):
    graph, x = setting
    model, actual = logits("linkx", graph, layers=2, input_layers=2, directed=directed)

    def mlp(perceptron, rows):
        return perceptron.rest[0]((rows @ perceptron.first.weight + perceptron.bias).relu())

    edges, own = mlp(model.of_edges, dense_adjacency(graph, directed)), mlp(model.of_features, x)
    h = (torch.cat([edges, own], 1) @ model.join.weight.T + model.join.bias + edges + own).relu()
    torch.testing.assert_close(actual, model.head[1](model.head[0](h).relu()), **CLOSE)


def test_linkx_has_one_layer_for_each_input_by_default(graph):
    model = make_baseline("linkx", graph, 8, graph.splits[0])
    assert [len(p.rest) for p in (model.of_edges, model.of_features)] == [0, 0]


# -------------------------------------------------------------------------------------------------- FSGNN


@torch.no_grad()
@pytest.mark.parametrize("directed", [False, True])
def test_fsgnn_equals_its_formula(setting, directed):
    graph, x = setting
    model, actual = logits("fsgnn", graph, layers=2, directed=directed)
    a = dense_adjacency(graph, directed)
    with_loops, without = (
        m.sum(1).where(m.sum(1) > 0, 1.0)[:, None] ** -0.5 * m * m.sum(1).where(m.sum(1) > 0, 1.0) ** -0.5
        for m in (a + torch.eye(graph.n), a)
    )
    hops = [x, with_loops @ x, without @ x, with_loops @ with_loops @ x, without @ without @ x]
    scale = model.attention.exp() / model.attention.exp().sum()
    parts = [
        scale[k] * F.normalize(hop @ model.products[k].weight + model.bias[k], p=2, dim=1) for k, hop in enumerate(hops)
    ]
    torch.testing.assert_close(actual, model.classifier(torch.cat(parts, 1).relu()), **CLOSE)


def test_fsgnn_has_a_weight_decay_for_each_part(graph):
    model = make_baseline("fsgnn", graph, 8, graph.splits[0], attention_decay=0.1, classifier_decay=0.0)
    groups = model.parameter_groups(0.01, 5e-4, 1.0)
    assert [group["weight_decay"] for group in groups] == [5e-4, 0.1, 0.0]
    grouped = [parameter for group in groups for parameter in group["params"]]
    assert {id(p) for p in grouped} == {id(p) for p in model.parameters()}
    assert len(grouped) == len(list(model.parameters()))
    plain = make_baseline("fsgnn", graph, 8, graph.splits[0]).parameter_groups(0.01, 5e-4, 1.0)
    assert {group["weight_decay"] for group in plain} == {5e-4}


def test_fsgnn_computes_its_hops_once_per_table(graph):
    model = make_baseline("fsgnn", graph, 8, graph.splits[0])
    x = node_features(graph)
    first = model.hops(x)
    assert len(first) == 7
    assert model.hops(x) is first
    other = FeatureTable(2 * np.asarray(graph.x))
    torch.testing.assert_close(model.hops(other)[3].rows(torch.arange(4)), 2 * first[3].rows(torch.arange(4)))


# ------------------------------------------------------------------------------------------------ Dir-GNN


@torch.no_grad()
@pytest.mark.parametrize(("conv", "mode", "unit_rows"), [("gcn", "max", True), ("sage", "cat", False)])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_dirgnn_equals_its_formula(setting, conv, mode, unit_rows, alpha):
    graph, x = setting
    model, actual = logits("dirgnn", graph, conv=conv, mode=mode, unit_rows=unit_rows, alpha=alpha)
    a = dense_adjacency(graph, directed=True)
    scaled = symmetric if conv == "gcn" else mean
    directions = [w * scaled(m) for w, m in ((alpha, a), (1 - alpha, a.T)) if w]
    if conv == "sage":
        directions.append(torch.eye(graph.n))
    h, outputs = x, []
    for weight, bias in zip([model.product.weight, model.rest[0].weight.T], model.biases, strict=True):
        h = (sum(s @ h @ w for s, w in zip(directions, weight.split(8, 1), strict=True)) + bias).relu()
        h = F.normalize(h, p=2, dim=1) if unit_rows else h
        outputs.append(h)
    joined = torch.cat(outputs, 1) if mode == "cat" else torch.maximum(*outputs)
    torch.testing.assert_close(actual, model.classifier(joined), **CLOSE)


@pytest.mark.parametrize("conv", ["gcn", "sage"])
def test_reversing_the_edges_swaps_in_and_out(setting, conv):
    graph, _ = setting
    out = logits("dirgnn", graph, conv=conv, alpha=1.0)[1]
    into = logits("dirgnn", graph, conv=conv, alpha=0.0)[1]
    assert not torch.allclose(out, into, atol=1e-3)
    backwards = logits("dirgnn", reversed_edges(graph), conv=conv, alpha=0.0)[1]
    torch.testing.assert_close(out, backwards, **CLOSE)


def test_an_undirected_graph_has_one_direction(setting):
    graph = setting[0].undirected()
    torch.testing.assert_close(logits("dirgnn", graph, alpha=1.0)[1], logits("dirgnn", graph, alpha=0.0)[1], **CLOSE)


@pytest.mark.parametrize("name", ["linkx", "fsgnn"])
def test_direction_counts_where_asked_for(setting, name):
    graph, _ = setting
    both, out = logits(name, graph)[1], logits(name, graph, directed=True)[1]
    assert not torch.allclose(both, out, atol=1e-3)
    assert not torch.allclose(logits(name, reversed_edges(graph), directed=True)[1], out, atol=1e-3)
    undirected = graph.undirected()
    torch.testing.assert_close(logits(name, undirected, directed=True)[1], both, **CLOSE)


# -------------------------------------------------------------------------------------------- classic GNNs


def attention(layer, h, edges):
    """GATConv of torch_geometric without its linear map."""
    reference = GATConv(8, 8 // layer.heads, layer.heads, bias=False).eval()
    reference.lin = torch.nn.Identity()
    reference.att_src, reference.att_dst = layer.att_src, layer.att_dst
    return reference(h, edges)


@torch.no_grad()
@pytest.mark.parametrize("conv", ["gcn", "sage", "gat"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"residual": False, "norm": "none", "jump": True},
        {"norm": "batch", "input_layer": True, "layers": 3, "heads": 2},
    ],
)
def test_classic_equals_its_formula(setting, conv, options):
    graph, x = setting
    graph = replace(graph, weights=None) if conv == "gat" else graph
    model, actual = logits("classic", graph, conv=conv, **options)
    a = dense_adjacency(graph, directed=False)
    edges = a.nonzero().T
    weights = [model.product.weight, *(w.weight.T for w in model.weights)]
    h = x
    if options.get("input_layer"):
        h = x @ weights.pop(0) + model.bias
    outputs = []
    for k, weight in enumerate(weights):
        around, *own = (h @ part for part in weight.split(8, 1))
        assert len(own) == (options.get("residual", True) or conv == "sage")
        if conv == "gat":
            z = attention(model.convolutions[k], around, edges)
        else:
            z = (mean(a) if conv == "sage" else symmetric(a + torch.eye(graph.n))) @ around
        z = z + sum(own)
        norm = model.norms[k]
        if options.get("norm") == "batch":
            assert not len(model.biases)
            z = z / (1 + norm.eps) ** 0.5 * norm.weight + norm.bias  # mean 0 and variance 1, as no batch was seen
        else:
            z = z + model.biases[k]
        if "norm" not in options:
            z = F.layer_norm(z, (8,), norm.weight, norm.bias)
        h = z.relu()
        outputs.append(h)
    total = sum(outputs) if options.get("jump") else h
    torch.testing.assert_close(actual, model.classifier(total), **CLOSE)


def test_attention_warns_that_it_ignores_edge_weights(setting):
    with pytest.warns(InputWarning, match="Classic does not use edge weights"):
        logits("classic", setting[0], conv="gat")
