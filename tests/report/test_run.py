"""The page of a run: in a real browser, and rebuilt from evaluation.json."""

import copy
import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from gpatcher.datasets.synthetic import csbm
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.model.gpatcher import ModelConfig
from gpatcher.patches import AdaptiveFilter
from gpatcher.report.explanation import write_explanation
from gpatcher.report.run import in_short, write_run_page
from gpatcher.runs.evaluation import BaselineResult, evaluate, read_evaluation, write_evaluation
from gpatcher.tables.load import read_tables
from gpatcher.training.loop import TrainConfig

QUICK = {
    "patches": AdaptiveFilter(size=6, K=4),
    "model": ModelConfig(hidden=8, mixer_hidden=4),
    "train": TrainConfig(epochs=20),
}


@pytest.fixture(scope="module")
def graph():
    names = np.array([f"node {v}" for v in range(150)])
    return replace(csbm(phi=-0.3, n=150, features=6), node_ids=names, classes=("ant", "<b>bee</b>"))


@pytest.fixture(scope="module")
def fitted(graph):
    return GPatcherClassifier(**QUICK).fit(graph)


@pytest.fixture(scope="module")
def evaluation(graph, fitted):
    test = fitted.split_.test
    majority = np.full(len(test), np.bincount(graph.y).argmax())
    accuracy = float((majority == graph.y[test]).mean())
    return evaluate(fitted, graph, [BaselineResult(name, majority, 0.5, accuracy, 0.1) for name in ("MLP", "GCN")])


@pytest.fixture(scope="module")
def path(evaluation, tmp_path_factory):
    return write_run_page(evaluation, tmp_path_factory.mktemp("run") / "report.html")


def members(page):
    return [row.locator("td").all_inner_texts() for row in page.locator("#explorer-members tbody tr").all()]


@pytest.mark.browser
def test_a_selected_node_shows_its_patch(open_page, path, graph, fitted):
    page, requests, errors = open_page(path)
    assert requests == []
    options = page.locator("#explorer-nodes option")
    assert options.count() == 150
    # by search
    page.fill("#explorer-search", "node 42")
    assert options.all_inner_texts() == [t for t in options.all_inner_texts() if t.startswith("node 42:")]
    assert options.count() == 1
    explanation = fitted.explain(42)
    shown = members(page)
    assert [row[1] for row in shown] == [m.id for m in explanation.members]
    assert [row[0] for row in shown] == [str(m.position) for m in explanation.members]
    for row, member in zip(shown, explanation.members, strict=True):
        assert float(row[2]) == pytest.approx(member.score, abs=1e-4)
        assert float(row[5].replace("−", "-")) == pytest.approx(member.contribution, abs=1e-3)
        assert row[4] == (member.label + (" (trained on)" if member.part == "train" else ""))
    words = page.locator("#explorer-words").inner_text()
    assert f"Node node 42: predicted {explanation.predicted}" in words
    assert f"{explanation.probability:.1%}" in words
    # by a click in the list
    page.fill("#explorer-search", "")
    page.select_option("#explorer-nodes", index=7)
    name = options.nth(7).inner_text().split(":")[0]
    other = fitted.explain(int(name.split()[1]))
    assert [row[1] for row in members(page)] == [m.id for m in other.members]
    marks = page.locator("#explorer-plot .scatterlayer .points path")
    assert marks.count() == len(other.members)
    # misclassified nodes only
    page.check("#explorer-wrong")
    texts = options.all_inner_texts()
    wrong = sum(fitted.predict() != np.array(graph.classes)[graph.y])
    held_out = np.concatenate([fitted.split_.test, fitted.split_.val])
    assert 0 < len(texts) <= wrong
    assert len(texts) >= (fitted.predict(nodes=held_out) != np.array(graph.classes)[graph.y[held_out]]).sum()
    assert all(" (label " in t for t in texts)
    page.fill("#explorer-search", "no such node")
    assert options.count() == 0
    assert errors == []


@pytest.mark.browser
def test_the_page_is_complete(open_page, path):
    page, _, errors = open_page(path)
    headings = page.locator("h2").all_inner_texts()
    for title in (
        "In short",
        "Against MLP and GCN",
        "Each class",
        "Confusion matrix",
        "Reliability of the probabilities",
        "Accuracy by heterophily",
        "Accuracy by degree",
        "Conformal sets",
        "Frequency response of the filter",
        "Learning curve",
        "Explanations",
        "Degrees",
        "Class compatibility",
    ):
        assert title in headings
    for figure in page.locator("section.figure").all():
        marks = figure.locator(".bars path, .scatterlayer path, .heatmaplayer image")
        assert marks.count() > 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.locator("main b").count() == 0  # the class <b>bee</b> is text
    assert "<b>bee</b>" in page.locator("main").inner_text()
    assert errors == []


def test_the_summary_states_the_results(evaluation, fitted):
    text = " ".join(in_short(evaluation))
    assert f"Accuracy {evaluation.accuracy:.1%} on {len(fitted.split_.test)} test nodes" in text
    assert f"T = {fitted.calibration_.temperature:.2f}" in text
    baseline = evaluation.baselines[0].test_accuracy
    assert f"MLP {baseline:.1%}, GCN {baseline:.1%}" in text
    gap = 100 * (evaluation.accuracy - baseline)
    assert f"{abs(gap):.1f} points {'above' if gap > 0 else 'below'} the best" in text
    worse, better = sorted((evaluation.raw, evaluation.calibrated), key=lambda curve: -curve.error)
    assert "did not lower the error" in " ".join(in_short(replace(evaluation, raw=better, calibrated=worse)))
    small = replace(evaluation.calibration, temperature=1.3, nodes=20)
    rough = replace(evaluation, raw=worse, calibrated=better, calibration=small)
    assert "fewer than 100 validation nodes" in " ".join(in_short(rough))
    fixed = replace(evaluation, calibration=replace(small, temperature=1.0))
    assert "not scaled (T = 1.00)" in " ".join(in_short(fixed))


def test_equal_baselines_and_chance(evaluation):
    def compared(accuracy, own=0.8):
        [first, second] = evaluation.baselines
        results = (replace(first, test_accuracy=accuracy), replace(second, test_accuracy=0.1))
        metrics = evaluation.metrics | {"accuracy": own}
        return " ".join(in_short(replace(evaluation, baselines=results, metrics=metrics)))

    assert "equal to the best of them." in compared(0.8)
    assert "1.0 points below the best of them; with" in compared(0.81)
    assert "60.0 points above the best of them." in compared(0.2)


def test_validation_results_are_marked(evaluation):
    lines = in_short(replace(evaluation, part="validation"))
    assert "No test node has a label" in lines[1]
    assert "MLP 50.0%" in " ".join(lines)


def test_what_was_not_done_is_stated(graph, fitted, tmp_path):
    note = "MLP and GCN were not trained (--no-compare)."
    text = write_run_page(evaluate(fitted, graph, notes=[note]), tmp_path / "r.html").read_text()
    assert note in text
    assert "Against MLP and GCN" not in text


def test_the_page_is_rebuilt_from_the_evaluation(evaluation, path, tmp_path):
    write_evaluation(evaluation, tmp_path)
    again = write_run_page(read_evaluation(tmp_path), tmp_path / "r.html")
    assert again.read_bytes() == path.read_bytes()
    assert write_run_page(evaluation, tmp_path / "r.html").read_bytes() == path.read_bytes()


def test_the_page_of_tables_is_rebuilt_from_the_evaluation(tmp_path):
    rng = np.random.default_rng(0)
    n = 120
    y = rng.integers(0, 3, n)
    names = np.array([f"p{v:03}" for v in range(n)])
    label = [["red", "<green>", "blue"][c] if v % 7 else None for v, c in enumerate(y)]
    nodes = pa.table({"id": names, "label": label, "size": rng.normal(y), "city": [f"c{c}" for c in y % 2]})
    source, target = np.triu_indices(n, 1)
    drawn = rng.choice(len(source), 300, replace=False)
    graph = read_tables(nodes, pa.table({"source": names[source[drawn]], "target": names[target[drawn]]}))
    evaluation = evaluate(GPatcherClassifier(**QUICK).fit(graph), graph)
    live = write_run_page(evaluation, tmp_path / "live.html").read_bytes()
    write_evaluation(evaluation, tmp_path)
    assert write_run_page(read_evaluation(tmp_path), tmp_path / "r.html").read_bytes() == live
    assert b"p007" in live


def test_ids_cannot_close_the_script(graph, fitted, tmp_path):
    bad = replace(graph, node_ids=np.array([f"</script><i>{v}" for v in range(graph.n)]))
    text = write_run_page(evaluate(copy.copy(fitted), bad), tmp_path / "r.html").read_text()
    assert "</script><i>" not in text
    data = re.search(r'id="explorer-data">(.*?)</script>', text, re.DOTALL).group(1)
    assert json.loads(data)[0]["id"].startswith("</script><i>")


@pytest.mark.browser
def test_the_page_of_one_node(open_page, fitted, tmp_path):
    explanation = fitted.explain(3)
    page, requests, errors = open_page(write_explanation(explanation, tmp_path / "e.html"))
    assert (requests, errors) == ([], [])
    assert page.locator("h1").inner_text() == f"Why node 3 was called {explanation.predicted}"
    assert page.locator("table tbody tr").count() == len(explanation.members)
    assert page.locator(".scatterlayer .points path").count() == len(explanation.members)
