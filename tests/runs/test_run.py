"""Every model behind one function."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gpatcher.runs.models import MODELS, Kept, full_config, mean_response, patch_graph, score, train_model

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.patches.base import Patches

QUICK = {"hidden": 8, "epochs": 4}


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.8, n=90, features=8, degree=6)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_trains_and_repeats(graph, name):
    split = graph.splits[0]
    first = train_model(name, graph, split, 3, QUICK)
    assert first.fit.epochs == 4
    assert first.val == first.fit.val_accuracy
    assert first.test == first.test_accuracy
    assert (first.response is not None) == (name == "gpatcher")
    again = train_model(name, graph, split, 3, QUICK, kept=Kept())
    assert again.fit.history == first.fit.history
    assert again.test == first.test


@pytest.mark.parametrize("name", ["gcn", "fast", "bmgcn"])
def test_the_test_nodes_are_not_looked_at_while_choosing(graph, name):
    split = graph.splits[0]
    y = graph.y.copy()
    y[split.test] = 1 - y[split.test]
    other = replace(graph, y=y)
    kept = [train_model(name, g, split, 0, QUICK, read_test=False) for g in (graph, other)]
    assert kept[0].test is None
    assert kept[0].fit.history == kept[1].fit.history
    read = [train_model(name, g, split, 0, QUICK) for g in (graph, other)]
    assert read[0].test == pytest.approx(1 - read[1].test)


def test_the_figures_are_those_of_the_estimator(graph):
    outcome = train_model("fast", graph, graph.splits[0], 5, QUICK | {"extractor": "ppr", "paths": ["ego", "mean"]})
    alone = GPatcherClassifier(extractor="ppr", seed=5, paths=("ego", "mean"), **QUICK).fit(graph)
    assert outcome.test == alone.result_.test_accuracy
    assert outcome.val == alone.result_.val_accuracy


def test_patches_and_features_are_made_once(graph, monkeypatch):
    made = []
    prepare = GPatcherClassifier.prepare
    monkeypatch.setattr(GPatcherClassifier, "prepare", lambda self, *given: made.append(self) or prepare(self, *given))
    kept = Kept()
    for seed in range(3):
        train_model("fast", graph, graph.splits[0], seed, {**QUICK, "extractor": "ppr"}, kept=kept)
    assert len(made) == 1
    train_model("fast", graph, graph.splits[0], 0, {**QUICK, "extractor": "ppr", "patch_size": 4}, kept=kept)
    assert len(made) == 2
    assert kept.features(graph, "l1") is kept.features(graph, "l1")
    assert kept.features(graph, "l1") is not kept.features(graph, "none")


def test_roc_auc():
    y = np.array([0, 0, 1, 1])
    logits = torch.tensor([[0.0, 1.0], [0.0, 3.0], [0.0, 2.0], [0.0, 4.0]])
    assert score(logits, y, "roc_auc") == 0.75  # one of four pairs is the wrong way round
    assert score(logits, y, "accuracy") == 0.5
    assert score(logits[:2], y[:2], "roc_auc") is None
    assert score(logits[:0], y[:0], "accuracy") is None
    with pytest.raises(InputError, match="no metric 'f1'"):
        score(logits, y, "f1")


def test_metric_of_an_unbalanced_set(graph):
    outcome = train_model("mlp", graph, graph.splits[0], 0, QUICK, metric="roc_auc")
    assert outcome.test != outcome.test_accuracy
    assert 0 <= outcome.test <= 1


def test_unknown_parameters(graph):
    with pytest.raises(InputError, match="nonsense"):
        train_model("gcn", graph, graph.splits[0], 0, {"nonsense": 1})
    with pytest.raises(InputError, match="nonsense"):
        full_config({"nonsense": 1})


# ----------------------------------------------------------------------------------------------- ablations


def test_shuffling_reaches_the_mixer_and_nothing_else(graph):
    base = {**QUICK, "extractor": "ppr", "patch_size": 6}
    split = graph.splits[0]
    for paths, same in ((["ego", "mean"], True), (["mixer"], False)):
        ranked = train_model("fast", graph, split, 0, {**base, "paths": paths})
        shuffled = train_model("fast", graph, split, 0, {**base, "paths": paths, "patch_order": "shuffled"})
        losses = [[h["train_loss"] for h in outcome.fit.history] for outcome in (ranked, shuffled)]
        assert np.allclose(*losses, atol=1e-5) == same


def test_shuffled_patches_keep_their_members_and_the_node_first(graph):
    given = {**QUICK, "extractor": "ppr", "patch_size": 6}
    shuffled = train_model("fast", graph, graph.splits[0], 1, {**given, "patch_order": "shuffled"}).model.patches
    index, scores = shuffled(torch.arange(graph.n))
    plain, plain_scores = train_model("fast", graph, graph.splits[0], 1, given).model.patches(torch.arange(graph.n))
    assert (index[:, 0] == torch.arange(graph.n)).all()
    assert (index.sort(1).values == plain.sort(1).values).all()
    assert (index != plain).any()
    # each member keeps its own score
    own, plain_own = scores.gather(1, index.argsort(dim=1)), plain_scores.gather(1, plain.argsort(dim=1))
    torch.testing.assert_close(own, plain_own)


def test_graph_of_the_patches():
    graph = Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]], x=np.eye(4), y=[0, 1, 0, 1])
    patches = Patches(np.array([[0, 2, 3], [1, -1, -1], [2, 0, -1], [3, 2, -1]]), np.ones((4, 3), np.float32))
    found = patch_graph(graph, patches)
    assert [found.neighbours(v).tolist() for v in range(4)] == [[2, 3], [], [0, 3], [0, 2]]
    assert found.y.tolist() == [0, 1, 0, 1]
    assert not found.is_directed


def test_training_on_the_induced_graph_differs(graph):
    inner = {**QUICK, "extractor": "heterophily-aware", "patch_size": 4}
    plain = train_model("gcn", graph, graph.splits[0], 0, QUICK)
    induced = train_model("gcn", graph, graph.splits[0], 0, {**QUICK, "induced": inner})
    assert induced.fit.history != plain.fit.history
    mlp = [train_model("mlp", graph, graph.splits[0], 0, {**QUICK, **more}) for more in ({}, {"induced": inner})]
    assert mlp[0].fit.history == mlp[1].fit.history  # it looks at no edges


def test_mean_response_is_that_of_the_eigenvalues():
    # g(λ) = 2 + 2λ: at -1, 0, 1 it is 0, 2, 4
    assert mean_response(np.array([-1.0, 0.0, 0.0, 1.0]), [0.0, 2.0, 4.0]) == pytest.approx(0.5)
    assert mean_response(np.array([-1.0, 1.0]), [-2.0, 0.0, 1.0]) == pytest.approx(-0.25)
