"""The evaluation of a run: against plain counts, and written to a file and back."""

import json
from dataclasses import replace

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from gpatcher.codec import to_json
from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.ensemble import AutoClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.model.config import ModelConfig
from gpatcher.patches import PPR
from gpatcher.report.run import write_run_page
from gpatcher.runs import evaluation as module
from gpatcher.runs.evaluation import evaluate, evaluated_nodes
from gpatcher.runs.fit import train_baselines
from gpatcher.runs.results import read_evaluation, write_evaluation
from gpatcher.spectral.heterophily import heterophily
from gpatcher.training.loop import TrainConfig
from gpatcher.training.metrics import measure_all
from gpatcher.trust.calibration import reliability

QUICK = {
    "patches": PPR(size=4),
    "model": ModelConfig(hidden=8, mixer_hidden=4),
    "train": TrainConfig(epochs=12),
}


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.3, n=200, features=6)


@pytest.fixture(scope="module")
def fitted(graph):
    return GPatcherClassifier(**QUICK).fit(graph)


@pytest.fixture(scope="module")
def evaluation(graph, fitted):
    return evaluate(fitted, graph, train_baselines(fitted, graph))


def test_results_are_those_of_the_test_nodes(graph, fitted, evaluation):
    test = fitted.split_.test
    y, predicted = graph.y[test], fitted.predict_proba(nodes=test).argmax(1)
    assert evaluation.part == "test"
    assert evaluation.accuracy == fitted.score() == (y == predicted).mean()
    recalls = [(predicted[y == c] == c).mean() for c in (0, 1)]
    assert evaluation.metrics == measure_all(y, fitted.predict_proba(nodes=test))
    assert evaluation.metrics["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    np.testing.assert_allclose(evaluation.per_class.recall, recalls)
    for a in (0, 1):
        for b in (0, 1):
            assert evaluation.confusion[a, b] == ((y == a) & (predicted == b)).sum()
    raw = fitted.predict_proba(nodes=test, calibrated=False)
    assert evaluation.raw.error == pytest.approx(reliability(raw, y).error)
    assert evaluation.calibrated.error == pytest.approx(reliability(fitted.predict_proba(nodes=test), y).error)
    for level, fraction, size in evaluation.coverage:
        inside = fitted.predict_sets(nodes=test, level=level)
        assert (fraction, size) == (inside[np.arange(len(y)), y].mean(), inside.sum(1).mean())


def test_groups_contain_every_node_once(graph, fitted, evaluation):
    test = fitted.split_.test
    right = fitted.predict_proba(nodes=test).argmax(1) == graph.y[test]
    degree = np.diff(graph.indptr)[test]
    assert evaluation.by_degree.count.sum() == len(test)
    group = evaluation.by_degree.names.index("4 to 15")
    inside = (degree >= 4) & (degree <= 15)
    assert evaluation.by_degree.count[group] == inside.sum()
    assert evaluation.by_degree.accuracy["Fast-GPatcher"][group] == pytest.approx(right[inside].mean())
    node = heterophily(graph).node[test]
    assert evaluation.by_heterophily.count.sum() == (~np.isnan(node)).sum()
    group = evaluation.by_heterophily.names.index("0.4 to 0.6")
    inside = (node >= 0.4) & (node < 0.6)
    assert evaluation.by_heterophily.accuracy["Fast-GPatcher"][group] == pytest.approx(right[inside].mean())
    assert set(evaluation.by_degree.accuracy) == {"Fast-GPatcher", "MLP", "GCN"}


def test_baselines_are_evaluated_on_the_same_nodes(graph, fitted, evaluation):
    assert [r.name for r in evaluation.baselines] == ["MLP", "GCN"]
    for result in evaluation.baselines:
        assert result.test == pytest.approx((result.predicted == graph.y[fitted.split_.test]).mean())
        assert result.seconds > 0
    # the same seed gives the same baselines
    again = train_baselines(fitted, graph)
    np.testing.assert_array_equal(again[0].predicted, evaluation.baselines[0].predicted)


def test_misclassified_nodes_are_explained_first(graph, fitted, evaluation, monkeypatch):
    held_out = np.concatenate([fitted.split_.test, fitted.split_.val])
    wrong = held_out[fitted.predict_proba(nodes=held_out).argmax(1) != graph.y[held_out]]
    assert (evaluation.misclassified, evaluation.misclassified_shown) == (len(wrong), len(wrong))
    nodes = [e.node for e in evaluation.explanations]
    assert nodes[: len(wrong)] == wrong.tolist()
    assert len(set(nodes)) == len(nodes) == 200
    monkeypatch.setattr(module, "_EXPLAINED", 4)
    few = evaluate(fitted, graph)
    assert (few.misclassified, few.misclassified_shown, len(few.explanations)) == (len(wrong), 3, 4)


def test_some_nodes_of_an_ensemble_are_explained(graph, monkeypatch, tmp_path):
    model = AutoClassifier(quality="quick").fit(graph)
    evaluation = evaluate(model, graph)
    assert len(evaluation.explanations) == 10
    for explanation in evaluation.explanations:
        [logits] = model.decision_function(graph, [explanation.node])
        assert explanation.margin == pytest.approx(abs(logits[0] - logits[1]), abs=1e-4)
    page = write_run_page(evaluation, tmp_path / "report.html").read_text()
    assert "The list has 10 of 200 nodes" in page
    monkeypatch.setattr(module, "_WORK", 1)
    assert len(evaluate(model, graph).explanations) == 1


def test_without_labelled_test_nodes_validation_is_evaluated(graph):
    y = graph.y.copy()
    split = graph.splits[0]
    y[split.test] = -1
    with pytest.warns(UserWarning, match="cannot be scored"):
        hidden = replace(graph, y=y, splits=()).with_splits([split])
    model = GPatcherClassifier(**QUICK).fit(hidden)
    evaluation = evaluate(model, hidden, train_baselines(model, hidden))
    assert evaluation.part == "validation"
    assert evaluation.accuracy == evaluation.val_score == pytest.approx(model.result_.val_accuracy)
    y = y.copy()
    y[split.val] = -1
    with pytest.raises(InputError, match="neither test nor validation"):
        evaluated_nodes(model, replace(hidden, y=y))


@pytest.mark.parametrize("bound", ["_MAX_NODES", "_MAX_EDGES"])
def test_the_evaluation_of_a_large_graph_does_not_read_edges(graph, fitted, monkeypatch, tmp_path, bound):
    monkeypatch.setattr(module, bound, 100)
    fitted.save(tmp_path)
    model = GPatcherClassifier.load(tmp_path, graph)
    # any access to an edge fails
    monkeypatch.setattr(Graph, "undirected", lambda self: pytest.fail("the edges are read"))
    monkeypatch.setattr(module, "heterophily", lambda graph: pytest.fail("the edges are read"))
    evaluation = evaluate(model, graph)
    assert (evaluation.diagnosis, evaluation.by_heterophily, evaluation.by_degree, evaluation.explanations) == (
        None,
        None,
        None,
        [],
    )
    assert any("200 nodes" in line and "gpatcher diagnose" in line for line in evaluation.notes)
    text = write_run_page(evaluation, tmp_path / "r.html").read_text()
    assert "does not read the edges" in text
    for heading in ("The graph<", "Accuracy by degree", "Single nodes"):
        assert heading not in text


def test_a_class_without_test_nodes_and_a_graph_without_edges():
    with pytest.warns(UserWarning, match="no edges"):
        bare = Graph.from_edge_index(np.empty((2, 0), int), x=np.eye(9), y=[0, 1, 2, 0, 1, 0, 1, 0, 1])
    bare = bare.with_splits([Split([0, 1, 2], [3, 4], [5, 6, 7, 8])])
    model = GPatcherClassifier(**QUICK).fit(bare)
    evaluation = evaluate(model, bare, train_baselines(model, bare))
    assert evaluation.by_heterophily is None
    assert evaluation.by_degree.names == ["0"]
    assert evaluation.per_class.support.tolist() == [2, 2, 0]


def test_a_loaded_model_has_no_learning_curve(graph, fitted, evaluation, tmp_path):
    fitted.save(tmp_path)
    again = evaluate(GPatcherClassifier.load(tmp_path, graph), graph)
    assert (again.history, again.seconds) == ([], None)
    assert again.accuracy == evaluation.accuracy


def test_an_evaluation_is_read_back_equal(evaluation, tmp_path):
    path = write_evaluation(evaluation, tmp_path)
    again = read_evaluation(tmp_path)
    assert path == tmp_path / "evaluation.json"
    assert to_json(again) == to_json(evaluation)
    for name in ("confusion", "per_class", "baselines", "history", "explanations", "diagnosis", "metrics", "classes"):
        assert type(getattr(again, name)) is type(getattr(evaluation, name))
    np.testing.assert_array_equal(again.response.response, evaluation.response.response)
    assert again.response.response.dtype == evaluation.response.response.dtype
    assert again.explanations == evaluation.explanations
    assert again.accuracy == evaluation.accuracy


def test_a_large_graph_and_a_loaded_model_are_read_back_equal(graph, fitted, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_MAX_NODES", 100)
    fitted.save(tmp_path)
    evaluation = evaluate(GPatcherClassifier.load(tmp_path, graph), graph)
    write_evaluation(evaluation, tmp_path)
    assert to_json(read_evaluation(tmp_path)) == to_json(evaluation)


def damage(content, change):
    content = json.loads(content)
    change(content)
    return json.dumps(content)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda c: c.update(format="gpatcher-model"), "does not describe a run evaluation"),
        (lambda c: c.update(version=99), "version 99"),
        (lambda c: c.pop("evaluation"), "lacks the field 'evaluation'"),
        (lambda c: c["evaluation"].pop("history"), "evaluation lacks the field 'history'"),
        (lambda c: c["evaluation"]["calibration"].update(surplus=1), "calibration has the unknown field 'surplus'"),
        (lambda c: c["evaluation"].update(nodes="many"), "nodes must be an integer, got"),
        (lambda c: c["evaluation"].update(nodes=7), "its own checksum"),
        (lambda c: c["evaluation"]["split_sizes"].pop(), "split_sizes must have 3 entries, got 2"),
        (
            lambda c: c["evaluation"]["history"][2].update(val_loss=None),
            r"history\[2\].val_loss must be a number, got null",
        ),
        (lambda c: c["evaluation"]["confusion"].update(zlib="AAAA"), "confusion must be an array"),
        (lambda c: c["evaluation"]["confusion"].update(shape=[7]), "confusion must be an array"),
    ],
)
def test_a_damaged_evaluation_is_named(evaluation, tmp_path, change, named):
    path = write_evaluation(evaluation, tmp_path)
    path.write_text(damage(path.read_text(), change))
    with pytest.raises(InputError, match=named) as error:
        read_evaluation(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "again" in str(error.value) or "choose another" in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe", b'{"a": 1}'])
def test_a_foreign_file_is_named(tmp_path, content):
    (tmp_path / "evaluation.json").write_bytes(content)
    with pytest.raises(InputError, match=r"evaluation\.json does not describe"):
        read_evaluation(tmp_path)


def test_a_folder_without_evaluation_is_named(tmp_path):
    with pytest.raises(InputError, match=f"no evaluation.json in {tmp_path}.*gpatcher fit"):
        read_evaluation(tmp_path)


def test_the_file_has_about_the_size_of_the_data_in_the_page(evaluation, tmp_path):
    path, page = write_evaluation(evaluation, tmp_path), write_run_page(evaluation, tmp_path / "r.html")
    data = page.stat().st_size - len(get_plotlyjs().encode())
    assert path.stat().st_size < 2 * data
