"""One contract for all models."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from gpatcher.baselines import (
    BASELINES,
    PAPER_BASELINES,
    baseline_space,
    baseline_start,
    baseline_titles,
    make_baseline,
)
from gpatcher.errors import InputError, InputWarning
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.model.config import ModelConfig
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import node_features
from gpatcher.patches import PPR, AdaptiveFilter
from gpatcher.training.loop import TrainConfig, fit

WITHOUT_WEIGHTS = ("gat", "graphsage", "h2gcn")
DIRECTED = ("dirgnn",)  # edges as filed
MODELS = (*BASELINES, "gpatcher", "fast")


def make(name, graph, features, split=None, **parameters):
    """Build a baseline, GPatcher or Fast-GPatcher."""
    if name in BASELINES:
        return make_baseline(name, graph, features, split or graph.splits[0], **parameters)
    extractor = PPR(size=6) if name == "fast" else AdaptiveFilter(size=6, K=4)
    source = extractor.source(extractor.prepare(graph))
    return GPatcher(source, features, graph.num_classes, ModelConfig(hidden=16))


# ------------------------------------------------------------------------------------------ the registry


def test_every_baseline_has_a_title():
    titles = baseline_titles()
    assert list(titles)[: len(PAPER_BASELINES)] == list(PAPER_BASELINES)
    assert len(PAPER_BASELINES) == 11
    assert set(titles) == set(BASELINES)
    assert not set(titles) & set(titles.values())


def test_listing_the_baselines_imports_no_torch():
    code = "import sys, gpatcher.baselines as b; print(*b.baseline_titles()); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(BASELINES)


# ------------------------------------------------------------------------------------------ the contract


@pytest.mark.parametrize("name", MODELS)
def test_shape_and_gradient(graph, name):
    torch.manual_seed(0)
    x = node_features(graph)
    model = make(name, graph, x.shape[1])
    assert model(x, torch.tensor([0, 5, 7])).shape == (3, 2)
    nodes, target = torch.arange(graph.n), torch.from_numpy(graph.y.copy())
    loss = F.cross_entropy(model(x, nodes), target)
    if hasattr(model, "extra_loss"):
        loss = loss + model.extra_loss(x, nodes, target)
    loss.backward()
    for parameter, value in model.named_parameters():
        assert value.grad is not None, parameter
        assert value.grad.abs().sum() > 0, parameter
        assert value.grad.isfinite().all(), parameter


@pytest.mark.parametrize("name", MODELS)
def test_eval_is_deterministic_and_does_not_depend_on_the_batch(graph, name):
    x = node_features(graph)
    model = make(name, graph, x.shape[1]).eval()
    nodes = torch.arange(graph.n)
    logits = model(x, nodes)
    assert torch.equal(logits, model(x, nodes))
    batch = torch.tensor([9, 0, 9])
    torch.testing.assert_close(model(x, batch), logits[batch], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_dropout_acts_in_training(graph, name):
    x = node_features(graph)
    model = make(name, graph, x.shape[1]).train()
    nodes = torch.arange(graph.n)
    assert not torch.equal(model(x, nodes), model(x, nodes))


@pytest.mark.parametrize("name", MODELS)
def test_same_seed_gives_the_same_history(graph, name):
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
    fit(model, x, graph.labels(), graph.splits[0], TrainConfig(epochs=3, reselect_every=100, monitor="accuracy"))
    groups = model.parameter_groups(0.01, 5e-4, 1.0)
    assert sorted(id(p) for g in groups for p in g["params"]) == sorted(id(p) for p in model.parameters())
    for key, p in model.named_parameters():
        assert not torch.equal(before[key], p), key


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("directed", [True, False])
def test_isolated_nodes_and_a_class_missing_from_train(irregular_graph, name, directed):
    graph = irregular_graph(directed=directed)
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
def test_sparse_and_dense_features_agree(graph, name):
    rng = np.random.default_rng(1)
    dense = replace(graph, x=((rng.random((graph.n, 9)) < 0.5) * rng.random((graph.n, 9))).astype(np.float32))
    sparse = replace(dense, x=sp.csr_array(dense.x))
    torch.manual_seed(0)
    model = make(name, dense, 9).eval()
    nodes = torch.arange(graph.n)
    torch.testing.assert_close(model(node_features(dense), nodes), model(node_features(sparse), nodes))


@pytest.mark.parametrize("name", [name for name in MODELS if name not in DIRECTED])
def test_directed_edges_count_in_both_directions(irregular_graph, name):
    graph = irregular_graph()
    assert graph.is_directed
    x = node_features(graph)
    outputs = []
    for variant in (graph, graph.undirected()):
        torch.manual_seed(0)
        outputs.append(make(name, variant, x.shape[1]).eval()(x, torch.arange(graph.n)))
    assert torch.equal(*outputs)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in (*WITHOUT_WEIGHTS, "mlp")])
def test_edge_weights_change_the_output(irregular_graph, name):
    graph = irregular_graph(weighted=True)
    x = node_features(graph)
    outputs = []
    for variant in (graph, replace(graph, weights=None)):
        torch.manual_seed(0)
        outputs.append(make(name, variant, x.shape[1]).eval()(x, torch.arange(graph.n)))
    assert outputs[0].isfinite().all()
    assert not torch.allclose(*outputs, atol=1e-4)


@pytest.mark.parametrize("name", WITHOUT_WEIGHTS)
def test_ignored_edge_weights_raise_a_warning(irregular_graph, name):
    graph = irregular_graph(weighted=True)
    x = node_features(graph)
    torch.manual_seed(0)
    with pytest.warns(InputWarning, match="does not use edge weights; every edge counts as 1"):
        model = make(name, graph, x.shape[1])
    torch.manual_seed(0)
    plain = make(name, replace(graph, weights=None), x.shape[1])
    nodes = torch.arange(graph.n)
    assert torch.equal(model.eval()(x, nodes), plain.eval()(x, nodes))


@pytest.mark.parametrize("name", BASELINES)
def test_labels_of_validation_and_test_are_never_read(irregular_graph, name):
    graph = irregular_graph()
    split = graph.splits[0]
    changed = graph.y.copy()
    changed[split.val], changed[split.test] = (changed[split.val] + 1) % 3, (changed[split.test] + 2) % 3
    x = node_features(graph)
    weights = []
    for variant in (graph, replace(graph, y=changed)):
        torch.manual_seed(0)
        model = make_baseline(name, variant, x.shape[1], split)
        # one epoch, since early stopping reads validation labels
        fit(model, x, variant.labels(), split, TrainConfig(epochs=1))
        weights.append(model.state_dict())
        weights[-1]["logits"] = model.eval()(x, torch.arange(graph.n))
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


@pytest.mark.parametrize("name", BASELINES)
def test_every_value_of_the_baseline_space_builds(graph, name):
    space = baseline_space(name)
    assert all(value in space[parameter] for parameter, value in baseline_start(name).items() if parameter in space)
    for dotted, values in space.items():
        section, parameter = dotted.split(".")
        for value in values:
            if section == "train":
                TrainConfig(**{parameter: value})
                continue
            model = make_baseline(name, graph, 8, graph.splits[0], **{parameter: value})
            assert model(node_features(graph), torch.tensor([1])).shape == (1, 2)


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("layers", [1, 3])
def test_other_depths(graph, name, layers):
    model = make_baseline(name, graph, 8, graph.splits[0], layers=layers)
    assert model(node_features(graph), torch.arange(4)).shape == (4, 2)


# ------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("nonsense", {}, "baseline 'nonsense'; choose one of mlp, gcn"),
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
        ("linkx", {"input_layers": 0}, "input_layers must be at least 1, got 0"),
        ("dirgnn", {"alpha": -0.5}, r"alpha must lie in \[0, 1\], got -0.5"),
        ("dirgnn", {"conv": "gat"}, "conv must be one of gcn, sage, got 'gat'"),
        ("dirgnn", {"mode": "sum"}, "mode must be one of cat, max, last, got 'sum'"),
        ("classic", {"conv": "gin"}, "conv must be one of gcn, sage, gat, got 'gin'"),
        ("classic", {"norm": "group"}, "norm must be one of none, layer, batch, got 'group'"),
        ("classic", {"heads": 3}, "hidden must be a multiple of heads, got hidden=64 and heads=3"),
    ],
)
def test_invalid_parameters_raise(graph, name, parameters, message):
    with pytest.raises(InputError, match=message):
        make_baseline(name, graph, 8, graph.splits[0], **parameters)


def test_a_graph_without_labels_raises(graph):
    unlabelled = Graph.from_edge_index([[0, 1], [1, 0]], x=np.eye(2, dtype=np.float32))
    with pytest.raises(InputError, match="has no labels"):
        make_baseline("gcn", unlabelled, 2, Split([0], [1], []))
