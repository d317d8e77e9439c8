"""The page of a run, opened in a real browser: pick a node, see its patch."""

import copy
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from gpatcher.datasets.synthetic import csbm
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.report.explanation import write_explanation
from gpatcher.report.run import in_short, write_run
from gpatcher.runs.evaluation import evaluate
from gpatcher.runs.run import write_report

QUICK = {"extractor": "heterophily-aware", "patch_size": 6, "hidden": 8, "mixer_hidden": 4, "epochs": 20, "filters": 4}


@pytest.fixture(scope="module")
def graph():
    names = np.array([f"node {v}" for v in range(150)])
    return replace(csbm(phi=-0.3, n=150, features=6), node_ids=names, classes=("ant", "<b>bee</b>"))


@pytest.fixture(scope="module")
def fitted(graph):
    return GPatcherClassifier(**QUICK).fit(graph)


@pytest.fixture(scope="module")
def path(graph, fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "report.html"
    write_report(fitted, graph, path)
    return path


def members(page):
    return [row.locator("td").all_inner_texts() for row in page.locator("#explorer-members tbody tr").all()]


@pytest.mark.browser
def test_pick_a_node_and_see_its_patch(open_page, path, graph, fitted):
    page, requests, errors = open_page(path)
    assert requests == []
    options = page.locator("#explorer-nodes option")
    assert options.count() == 150
    # by the search
    page.fill("#explorer-search", "node 42")
    assert options.all_inner_texts() == [t for t in options.all_inner_texts() if t.startswith("node 42:")]
    assert options.count() == 1
    found = fitted.explain(42)
    shown = members(page)
    assert [row[1] for row in shown] == [m.id for m in found.members]
    assert [row[0] for row in shown] == [str(m.place) for m in found.members]
    for row, member in zip(shown, found.members, strict=True):
        assert float(row[2]) == pytest.approx(member.score, abs=1e-4)
        assert float(row[5].replace("−", "-")) == pytest.approx(member.contribution, abs=1e-3)
        assert row[4] == (member.label + (" (trained on)" if member.part == "train" else ""))
    words = page.locator("#explorer-words").inner_text()
    assert f"Node node 42: predicted {found.predicted}" in words
    assert f"{100 * found.probability:.1f} %" in words
    # by a click on another one of the list
    page.fill("#explorer-search", "")
    page.select_option("#explorer-nodes", index=7)
    name = options.nth(7).inner_text().split(":")[0]
    other = fitted.explain(int(name.split()[1]))
    assert [row[1] for row in members(page)] == [m.id for m in other.members]
    marks = page.locator("#explorer-plot .scatterlayer .points path")
    assert marks.count() == len(other.members)
    # only the wrong ones
    page.check("#explorer-wrong")
    texts = options.all_inner_texts()
    wrong = sum(fitted.predict() != np.array(graph.classes)[graph.y])
    held = np.concatenate([fitted.split_.test, fitted.split_.val])
    assert 0 < len(texts) <= wrong
    assert len(texts) >= (fitted.predict(nodes=held) != np.array(graph.classes)[graph.y[held]]).sum()
    assert all(", is " in t for t in texts)
    page.fill("#explorer-search", "no such node")
    assert options.count() == 0
    assert errors == []


@pytest.mark.browser
def test_the_page_is_whole(open_page, path):
    page, _, errors = open_page(path)
    headings = page.locator("h2").all_inner_texts()
    for title in (
        "In short",
        "Against MLP and GCN",
        "Each class",
        "Confusion",
        "Can the probabilities be believed?",
        "Accuracy by heterophily",
        "Accuracy by degree",
        "Conformal sets",
        "Response of the filter",
        "Learning curve",
        "Why was it called that?",
        "Degrees",
        "Compatibility of the classes",
    ):
        assert title in headings
    for figure in page.locator("section.figure").all():
        marks = figure.locator(".bars path, .scatterlayer path, .heatmaplayer image")
        assert marks.count() > 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.locator("main b").count() == 0  # the class <b>bee</b> is text
    assert "<b>bee</b>" in page.locator("main").inner_text()
    assert errors == []


def test_the_words_are_the_figures(graph, fitted):
    found = evaluate(fitted, graph)
    text = " ".join(in_short(found))
    assert f"Accuracy {found.accuracy:.1%} on {len(fitted.split_.test)} test nodes" in text
    assert f"T = {fitted.calibration_.temperature:.2f}" in text
    assert "MLP" not in text
    rough = replace(found, before=found.after, after=found.before)
    worse = found if found.after.error > found.before.error else rough
    assert "did not lower the error" in " ".join(in_short(worse))


def test_what_is_left_out_is_said(graph, fitted, tmp_path):
    write_report(fitted, graph, tmp_path / "r.html", compare=False)
    text = (tmp_path / "r.html").read_text()
    assert "MLP and GCN were not trained (--no-compare)" in text
    assert "Against MLP and GCN" not in text


def test_names_cannot_leave_the_data(graph, fitted, tmp_path):
    bad = replace(graph, node_ids=np.array([f"</script><i>{v}" for v in range(graph.n)]))
    text = write_run(evaluate(copy.copy(fitted), bad), tmp_path / "r.html").read_text()
    assert "</script><i>" not in text
    data = re.search(r'id="explorer-data">(.*?)</script>', text, re.DOTALL).group(1)
    assert json.loads(data)[0]["id"].startswith("</script><i>")


@pytest.mark.browser
def test_the_page_of_one_node(open_page, fitted, tmp_path):
    found = fitted.explain(3)
    page, requests, errors = open_page(write_explanation(found, tmp_path / "e.html"))
    assert (requests, errors) == ([], [])
    assert page.locator("h1").inner_text() == f"Why node 3 was called {found.predicted}"
    assert page.locator("table tbody tr").count() == len(found.members)
    assert page.locator(".scatterlayer .points path").count() == len(found.members)
