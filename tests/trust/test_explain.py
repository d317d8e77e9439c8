"""Explanations: the contributions add up, by themselves and against an oracle; distances and edges are the graph's."""

import json

import networkx as nx
import numpy as np
import pytest
import torch

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.trust.explain import TOLERANCE, find_node, hops

QUICK = {"patch_size": 6, "hidden": 8, "mixer_hidden": 4, "epochs": 8, "filters": 4}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.5, n=80, features=6)


def fitted(graph, extractor="ppr", **options):
    return GPatcherClassifier(extractor=extractor, **{**QUICK, **options}).fit(graph)


def own_logits(model, h, index, score):
    """The model on members of our choosing, by its own layers."""
    places = torch.arange(h.shape[0])[None]
    return model.classify(h, places, score[None], (index[None] >= 0).float())[0]


PATHS = [("ego",), ("mean",), ("mixer",), ("ego", "mean"), ("ego", "mean", "mixer")]


@pytest.mark.parametrize("extractor", ["ppr", "heterophily-aware", "polynomial", "heat"])
@pytest.mark.parametrize("paths", PATHS, ids="+".join)
@pytest.mark.parametrize("head_layers", [1, 2])
def test_contributions_add_up_to_the_difference_of_the_logits(graph, extractor, paths, head_layers):
    model = fitted(graph, extractor, paths=paths, head_layers=head_layers)
    logits = model.decision_function()
    for found in model.explain_nodes(range(0, 80, 8)):
        two = np.sort(logits[found.node])[::-1][:2]
        assert found.margin == pytest.approx(two[0] - two[1], abs=1e-5)
        total = sum(m.contribution for m in found.members)
        assert found.start + total + found.remainder == pytest.approx(found.margin, abs=1e-5)
        assert abs(found.remainder) <= TOLERANCE * max(1.0, abs(found.margin - found.start)) + 1e-5


@pytest.mark.parametrize(
    "options", [{"skip": False}, {"mixer_hidden": None}, {"layers": 3, "mean_ego": True}, {"paths": ("mixer",)}]
)
def test_the_remainder_is_small_after_real_training(graph, options):
    model = fitted(graph, epochs=120, dropout=0.0, input_dropout=0.0, lr=0.05, **options)
    found = model.explain_nodes(range(80))
    assert max(abs(f.margin - f.start) for f in found) > 1
    for one in found:
        assert abs(one.remainder) <= TOLERANCE * max(1.0, abs(one.margin - one.start)) + 1e-4


def test_a_linear_model_by_hand(graph):
    """With ego and mean into a linear classifier, a member adds weight · (h - average) · (w_a - w_b), exactly."""
    classifier = fitted(graph, paths=("ego", "mean"), epochs=40)
    model, x = classifier.model_, classifier._prepared.x
    with torch.no_grad():
        h = model.eval().encode(x)
    average = h[torch.as_tensor(classifier.split_.train.copy())].mean(0)
    patches = classifier.patches_
    w = model.classifier.weight.detach()
    for node in (0, 17, 42):
        found = classifier.explain(node)
        a, b = (classifier.classes_.tolist().index(c) for c in (found.predicted, found.runner_up))
        ego, mean = (w[a] - w[b]).split(8)
        score = torch.from_numpy(patches.score[node]).clone()
        score[0] = 0
        share = score / score.abs().sum()
        for member in found.members:
            delta = h[member.node] - average
            want = share[member.place] * (delta @ mean) + (delta @ ego if member.place == 0 else 0)
            assert member.contribution == pytest.approx(float(want), abs=1e-5)


@pytest.mark.parametrize("extractor", ["ppr", "heterophily-aware"])
def test_the_start_is_a_patch_of_average_nodes(graph, extractor):
    classifier = fitted(graph, extractor, epochs=30)
    model, x = classifier.model_, classifier._prepared.x
    with torch.no_grad():
        average = model.eval().encode(x.take(torch.as_tensor(classifier.split_.train.copy()))).mean(0)
        for node in (3, 50):
            found = classifier.explain(node)
            index, score = model.patches(torch.tensor([node]))
            logits = own_logits(model, average.expand(index.shape[1], -1), index[0], score[0])
            a, b = (classifier.classes_.tolist().index(c) for c in (found.predicted, found.runner_up))
            assert found.start == pytest.approx(float(logits[a] - logits[b]), abs=1e-5)


def test_members_are_the_patch_in_order(graph):
    model = fitted(graph, "heterophily-aware")
    found = model.explain(11)
    patch = model.patches_[11]
    there = patch.index >= 0
    assert [m.node for m in found.members] == patch.index[there].tolist()
    np.testing.assert_allclose([m.score for m in found.members], patch.score[there], rtol=1e-5)
    assert (found.members[0].node, found.members[0].hops, found.members[0].place) == (11, 0, 0)
    assert found.predicted == model.predict(nodes=[11])[0]
    assert found.probability == pytest.approx(model.predict_proba(nodes=[11]).max(), abs=1e-6)
    split = model.split_
    for member in found.members:
        assert (member.part == "train") == (member.node in split.train)
        assert (member.part == "validation") == (member.node in split.val)
        assert member.label == model.classes_[graph.y[member.node]]
        shown = nx.shortest_path_length(graph.to_networkx(), 11, member.node)
        assert member.hops == shown


def test_edges_are_those_among_the_members(graph):
    found = fitted(graph).explain(5)
    pairs = graph.to_networkx()
    ids = [m.node for m in found.members]
    want = {(i, j) for i in range(len(ids)) for j in range(i + 1, len(ids)) if pairs.has_edge(ids[i], ids[j])}
    assert set(found.edges) == want
    assert want


@pytest.mark.parametrize("seed", range(4))
def test_hops_against_networkx(seed):
    pairs = nx.gnp_random_graph(60, 0.03, seed=seed)
    graph = Graph.from_networkx(pairs)
    far = nx.single_source_shortest_path_length(pairs, 0)
    assert hops(graph, 0, np.arange(60)).tolist() == [far.get(v, -1) for v in range(60)]


def test_an_isolated_node_with_an_unknown_label():
    edges = np.array([[0, 1, 2, 3, 1, 2], [1, 0, 3, 2, 2, 1]])
    graph = Graph.from_edge_index(edges, x=np.eye(6), y=[0, 1, 0, 1, 1, -1], num_nodes=6)
    graph = graph.with_splits([Split([0, 1], [2, 3], [4])])
    found = fitted(graph).explain(5)
    assert [(m.node, m.hops, m.label, m.part) for m in found.members] == [(5, 0, None, "")]
    assert found.label is None
    assert found.edges == ()
    assert found.start + found.members[0].contribution + found.remainder == pytest.approx(found.margin, abs=1e-5)


def test_what_it_can_be_turned_into(graph):
    found = fitted(graph).explain(5)
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert [m["node"] for m in plain["members"]] == [m.node for m in found.members]
    frame = found.frame()
    assert frame.num_rows == len(found.members)
    assert {"place", "id", "score", "hops", "label", "part", "contribution"} <= set(frame.column_names)
    figure = found.plot()
    assert len(figure.data[1].x) == len(found.members)
    assert len(figure.data[0].x) == 3 * len(found.edges)
    assert (figure.data[1].x[0], figure.data[1].y[0]) == (0, 0)
    # no two members on one spot
    assert len(np.unique(found.places().round(6), axis=0)) == len(found.members)


def test_a_loaded_model_explains_the_same(graph, tmp_path):
    model = fitted(graph, "heterophily-aware")
    model.save(tmp_path)
    again = GPatcherClassifier.load(tmp_path).explain(7, graph)
    assert again.to_dict() == model.explain(7).to_dict()


def test_nodes_by_their_ids(graph):
    assert find_node(graph, "12") == 12
    for bad in ("80", "-1", "x"):
        with pytest.raises(InputError, match=f"no node '{bad}': csbm has the nodes 0 to 79"):
            find_node(graph, bad)
    from dataclasses import replace

    named = replace(graph, node_ids=np.array([f"n{v}" for v in range(80)]))
    assert find_node(named, "n12") == 12
    with pytest.raises(InputError, match="no node with the id 'n99'; did you mean n9"):
        find_node(named, "n99")
    with pytest.raises(InputError, match=r"1 node is not in the graph: 80"):
        fitted(graph).explain(80)
