"""What the page of a run is made of, against plain counts."""

from dataclasses import replace

import numpy as np
import pytest

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.report.run import write_run
from gpatcher.runs import evaluation as module
from gpatcher.runs.evaluation import evaluate, evaluated_nodes
from gpatcher.runs.run import train_rivals
from gpatcher.spectral.heterophily import heterophily
from gpatcher.training.metrics import measure_all
from gpatcher.trust.calibration import reliability

QUICK = {"extractor": "ppr", "patch_size": 4, "hidden": 8, "mixer_hidden": 4, "epochs": 12}


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.3, n=200, features=6)


@pytest.fixture(scope="module")
def fitted(graph):
    return GPatcherClassifier(**QUICK).fit(graph)


@pytest.fixture(scope="module")
def found(graph, fitted):
    return evaluate(fitted, graph, train_rivals(fitted, graph))


def test_figures_are_those_of_the_test_nodes(graph, fitted, found):
    test = fitted.split_.test
    y, predicted = graph.y[test], fitted.predict_proba(nodes=test).argmax(1)
    assert found.part == "test"
    assert found.accuracy == fitted.score() == (y == predicted).mean()
    recalls = [(predicted[y == c] == c).mean() for c in (0, 1)]
    assert found.metrics == measure_all(y, fitted.predict_proba(nodes=test))
    assert found.metrics["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    np.testing.assert_allclose(found.per_class.recall, recalls)
    for a in (0, 1):
        for b in (0, 1):
            assert found.confusion[a, b] == ((y == a) & (predicted == b)).sum()
    raw = fitted.predict_proba(nodes=test, calibrated=False)
    assert found.before.error == pytest.approx(reliability(raw, y).error)
    assert found.after.error == pytest.approx(reliability(fitted.predict_proba(nodes=test), y).error)
    for level, share, size in found.coverage:
        inside = fitted.predict_sets(nodes=test, level=level)
        assert (share, size) == (inside[np.arange(len(y)), y].mean(), inside.sum(1).mean())


def test_groups_hold_every_node_once(graph, fitted, found):
    test = fitted.split_.test
    right = fitted.predict_proba(nodes=test).argmax(1) == graph.y[test]
    degree = np.diff(graph.indptr)[test]
    assert found.by_degree.count.sum() == len(test)
    place = found.by_degree.names.index("4 to 15")
    inside = (degree >= 4) & (degree <= 15)
    assert found.by_degree.count[place] == inside.sum()
    assert found.by_degree.accuracy["Fast-GPatcher"][place] == pytest.approx(right[inside].mean())
    node = heterophily(graph).node[test]
    assert found.by_heterophily.count.sum() == (~np.isnan(node)).sum()
    place = found.by_heterophily.names.index("0.4 to 0.6")
    inside = (node >= 0.4) & (node < 0.6)
    assert found.by_heterophily.accuracy["Fast-GPatcher"][place] == pytest.approx(right[inside].mean())
    assert set(found.by_degree.accuracy) == {"Fast-GPatcher", "MLP", "GCN"}


def test_rivals_are_judged_on_the_same_nodes(graph, fitted, found):
    assert [r.name for r in found.rivals] == ["MLP", "GCN"]
    for rival in found.rivals:
        assert rival.test_accuracy == pytest.approx((rival.predicted == graph.y[fitted.split_.test]).mean())
        assert rival.seconds > 0
    # the same seed gives the same rivals
    again = train_rivals(fitted, graph)
    np.testing.assert_array_equal(again[0].predicted, found.rivals[0].predicted)


def test_the_explorer_has_the_wrong_ones_first(graph, fitted, found, monkeypatch):
    held = np.concatenate([fitted.split_.test, fitted.split_.val])
    wrong = held[fitted.predict_proba(nodes=held).argmax(1) != graph.y[held]]
    assert (found.wrong, found.wrong_shown) == (len(wrong), len(wrong))
    nodes = [e.node for e in found.explanations]
    assert nodes[: len(wrong)] == wrong.tolist()
    assert len(set(nodes)) == len(nodes) == 200
    monkeypatch.setattr(module, "_MOST_WRONG", 3)
    monkeypatch.setattr(module, "_MOST_NODES", 10)
    few = evaluate(fitted, graph)
    assert (few.wrong, few.wrong_shown, len(few.explanations)) == (len(wrong), 3, 10)


def test_without_labelled_test_nodes_validation_is_judged(graph):
    y = graph.y.copy()
    split = graph.splits[0]
    y[split.test] = -1
    with pytest.warns(UserWarning, match="cannot be scored"):
        hidden = replace(graph, y=y, splits=()).with_splits([split])
    model = GPatcherClassifier(**QUICK).fit(hidden)
    found = evaluate(model, hidden, train_rivals(model, hidden))
    assert found.part == "validation"
    assert found.accuracy == found.val_accuracy == pytest.approx(model.result_.val_accuracy)
    y = y.copy()
    y[split.val] = -1
    with pytest.raises(InputError, match="nothing to judge"):
        evaluated_nodes(model, replace(hidden, y=y))


@pytest.mark.parametrize("bound", ["LARGE", "MANY"])
def test_the_page_of_a_large_graph_reads_no_edges(graph, fitted, monkeypatch, tmp_path, bound):
    monkeypatch.setattr(module, bound, 100)
    fitted.save(tmp_path)
    model = GPatcherClassifier.load(tmp_path, graph)
    # whatever looks at an edge now fails
    monkeypatch.setattr(Graph, "undirected", lambda self: pytest.fail("the edges are read"))
    monkeypatch.setattr(module, "heterophily", lambda graph: pytest.fail("the edges are read"))
    found = evaluate(model, graph)
    assert (found.diagnosis, found.by_heterophily, found.by_degree, found.explanations) == (None, None, None, [])
    assert any("200 nodes" in line and "gpatcher diagnose" in line for line in found.left_out)
    text = write_run(found, tmp_path / "r.html").read_text()
    assert "does not read the edges" in text
    for heading in ("What the graph looks like", "Accuracy by degree", "Single nodes"):
        assert heading not in text


def test_a_class_without_test_nodes_and_a_graph_without_edges():
    with pytest.warns(UserWarning, match="no edges"):
        bare = Graph.from_edge_index(np.empty((2, 0), int), x=np.eye(9), y=[0, 1, 2, 0, 1, 0, 1, 0, 1])
    bare = bare.with_splits([Split([0, 1, 2], [3, 4], [5, 6, 7, 8])])
    model = GPatcherClassifier(**QUICK).fit(bare)
    found = evaluate(model, bare, train_rivals(model, bare))
    assert found.by_heterophily is None
    assert found.by_degree.names == ["0"]
    assert found.per_class.support.tolist() == [2, 2, 0]


def test_a_loaded_model_has_no_learning_curve(graph, fitted, found, tmp_path):
    fitted.save(tmp_path)
    again = evaluate(GPatcherClassifier.load(tmp_path, graph), graph)
    assert (again.history, again.seconds) == ([], None)
    assert again.accuracy == found.accuracy
