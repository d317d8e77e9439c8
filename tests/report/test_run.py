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
from gpatcher.model.config import ModelConfig
from gpatcher.patches import AdaptiveFilter
from gpatcher.report.explanation import write_explanation
from gpatcher.report.run import in_short, merge_small, write_run_page
from gpatcher.runs.evaluation import evaluate
from gpatcher.runs.results import BaselineResult, Comparison, Groups, read_evaluation, write_evaluation
from gpatcher.tables.load import read_tables
from gpatcher.training.loop import TrainConfig
from gpatcher.trust.explanation import hops_text
from gpatcher.trust.palette import class_colour, model_colour

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


@pytest.fixture(scope="module")
def shared_page(open_shared_page, path):
    return open_shared_page(path)


def members(page):
    return [row.locator("th, td").all_inner_texts() for row in page.locator("#explorer-members tbody tr").all()]


@pytest.mark.browser
def test_a_selected_node_shows_its_patch(shared_page, graph, fitted):
    page, requests, errors = shared_page
    assert requests == []
    options = page.locator("#explorer-nodes option")
    assert options.count() == 150
    # by search
    page.fill("#explorer-search", "node 42")
    assert options.all_inner_texts() == [t for t in options.all_inner_texts() if t.startswith("node 42:")]
    assert options.count() == 1
    explanation = fitted.explain(42)
    shown = members(page)
    ranked = sorted(explanation.members, key=lambda m: -abs(m.contribution))
    assert [row[0] for row in shown] == [m.id for m in ranked]
    for row, member in zip(shown, ranked, strict=True):
        assert row[1] == hops_text(member.hops)
        assert row[2] == (member.label + (" (trained on)" if member.part == "train" else ""))
        assert float(row[3]) == pytest.approx(member.score, abs=1e-4)
        favoured = explanation.predicted if member.contribution >= 0 else explanation.runner_up
        assert row[4] == f"{abs(member.contribution):+.3f} for {favoured}"
    words = page.locator("#explorer-words").inner_text()
    assert f"Node node 42 is classed {explanation.predicted} with {explanation.probability:.0%}" in words
    # by a click in the list
    page.fill("#explorer-search", "")
    page.select_option("#explorer-nodes", index=7)
    name = options.nth(7).inner_text().split(":")[0]
    other = fitted.explain(int(name.split()[1]))
    assert {row[0] for row in members(page)} == {m.id for m in other.members}
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
    # the caption counts what the list has
    caption = page.locator(".explorer .caption").first.inner_text()
    assert f"{len(texts)} of them misclassified" in caption
    # without a hit it says so, and shows no node
    page.fill("#explorer-search", "no such node")
    assert options.count() == 0
    assert "No node in the list matches “no such node”" in page.locator("#explorer-count").inner_text()
    assert not page.locator("#explorer-words").is_visible()
    assert not page.locator("#explorer-members").is_visible()
    page.fill("#explorer-search", "")
    assert page.locator("#explorer-words").is_visible()
    page.uncheck("#explorer-wrong")
    assert options.count() == 150
    assert errors == []


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_no_serious_finding_of_axe(open_page, path, serious_findings, width, scheme):
    page, _, _ = open_page(path, width=width, scheme=scheme)
    assert serious_findings(page) == []


@pytest.mark.browser
def test_a_class_has_one_colour(shared_page, fitted):
    """The swatch of a label, the dots of the patch and the bar of class balance agree, for every node."""
    page, _, _ = shared_page
    colour = {str(name): class_colour(c) for c, name in enumerate(fitted.classes_)}
    page.select_option("#explorer-nodes", index=3)
    drawn = page.evaluate("document.getElementById('explorer-plot').data[1].marker.color")
    favoured = [row[4].split(" for ")[1] for row in members(page)]
    assert drawn == [colour[name] for name in favoured]
    swatches = page.locator("#explorer-members .swatch").evaluate_all("(all) => all.map((s) => s.style.background)")
    labels = [row[2].removesuffix(" (trained on)") for row in members(page)]
    assert [rgb(text) for text in swatches] == [rgb(colour[name]) for name in labels]
    balance = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')]"
        ".filter((p) => p.layout.yaxis?.title?.text == 'labelled nodes')"
        ".map((p) => p.data[0]).map((t) => t.x.map((name, i) => [name, t.marker.color[i]]))[0]"
    )
    assert dict(balance) == colour


def rgb(text):
    if text.startswith("#"):
        return [int(text[i : i + 2], 16) for i in (1, 3, 5)]
    return [int(part) for part in re.findall(r"\d+", text)]


def test_models_and_classes_have_fixed_colours():
    assert model_colour("GCN") == model_colour("gcn") != model_colour("MLP")
    assert len({class_colour(c) for c in range(40)}) == 40


def test_the_theory_is_not_on_the_page_of_a_run(path):
    assert "Lemma" not in path.read_text().split("</script>", 1)[1]


@pytest.mark.parametrize(
    ("names", "count", "merged"),
    [
        (["0", "1 to 3", "4 to 15"], [1, 20, 3], {"0 to 15": 24}),
        (["0", "1 to 3", "4 to 15"], [6, 20, 30], {"0": 6, "1 to 3": 20, "4 to 15": 30}),
        (["4 to 15", "16 to 63", "1,024 or more"], [40, 30, 2], {"4 to 15": 40, "16 or more": 32}),
        (["0.0 to 0.2", "0.4 to 0.6", "0.8 to 1.0"], [2, 2, 9], {"0.0 to 1.0": 13}),
        (["1 to 3"], [2], {"1 to 3": 2}),
    ],
)
def test_small_groups_are_merged(names, count, merged):
    rng = np.random.default_rng(0)
    correct = [rng.integers(0, 2, n) for n in count]
    accuracy = np.array([part.mean() for part in correct])
    result = merge_small(Groups(names, np.array(count), {"GCN": accuracy}))
    assert dict(zip(result.names, result.count.tolist(), strict=True)) == merged
    total = np.concatenate(correct).mean()
    assert np.average(result.accuracy["GCN"], weights=result.count) == pytest.approx(total)


def test_a_shortfall_of_conformal_sets_is_named(evaluation):
    short = replace(evaluation, coverage=[(0.9, 0.5, 1.0)])
    assert "Conformal sets at 90% hold the label of 50.0%" in " ".join(in_short(short))
    assert "Conformal sets" not in " ".join(in_short(replace(evaluation, coverage=[(0.9, 0.89, 1.0)])))


@pytest.mark.browser
def test_the_page_is_complete(shared_page):
    page, _, errors = shared_page
    headings = page.locator("h2, h3").all_inner_texts()
    for title in (
        "In short",
        "Leaderboard",
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
    baseline = evaluation.baselines[0].test
    assert f"MLP {baseline:.1%}, GCN {baseline:.1%}" in text
    gap = 100 * (evaluation.accuracy - baseline)
    assert f"{abs(gap):.1f} points {'above' if gap > 0 else 'below'} the best" in text
    worse, better = sorted((evaluation.raw, evaluation.calibrated), key=lambda curve: -curve.error)
    small = replace(evaluation.calibration, temperature=1.3, nodes=20)
    harmed = replace(evaluation, raw=better, calibrated=worse, calibration=small)
    assert ("did not lower the error" in " ".join(in_short(harmed))) == (worse.error > better.error)
    rough = replace(evaluation, raw=worse, calibrated=better, calibration=small)
    assert "fewer than 100 validation nodes" in " ".join(in_short(rough))
    fixed = replace(harmed, calibration=replace(small, temperature=1.0))
    assert "did not lower" not in " ".join(in_short(fixed))
    assert "not scaled (T = 1.00)" in " ".join(in_short(fixed))


def test_equal_baselines_and_chance(evaluation):
    def compared(accuracy, own=0.8):
        [first, second] = evaluation.baselines
        results = (replace(first, test=accuracy), replace(second, test=0.1))
        metrics = evaluation.metrics | {"accuracy": own}
        return " ".join(in_short(replace(evaluation, baselines=results, metrics=metrics)))

    assert "equal to the best of them." in compared(0.8)
    assert "1.0 points below the best of them; with" in compared(0.81)
    assert "60.0 points above the best of them." in compared(0.2)


@pytest.mark.parametrize(
    ("majority", "columns", "words"),
    [
        ((0.3, 0.2, 0.4), (0.2, 0.1, 0.3), ": worth using."),
        ((0.3, 0.2, 0.4), (0.05, -0.1, 0.2), "not surely better than the columns alone"),
        (
            (0.3, -0.1, 0.7),
            (0.2, 0.1, 0.3),
            "which is not surely better than always predicting the most frequent class",
        ),
        ((0.3, -0.1, 0.7), (0.2, 0.1, 0.3), "do not rely on it yet. More labels"),
        ((0.0, -0.1, 0.1), (0.2, 0.1, 0.3), "which is not better than always predicting the most frequent class"),
        ((-0.1, -0.2, -0.05), (0.2, 0.1, 0.3), "do not use it. More labels"),
    ],
)
def test_the_verdict_says_whether_the_model_is_worth_using(evaluation, majority, columns, words):
    compared = [Comparison("Majority class", *majority), Comparison("MLP", *columns)]
    assert words in in_short(replace(evaluation, comparisons=compared))[0]


def test_validation_results_are_marked(evaluation):
    lines = in_short(replace(evaluation, part="validation"))
    assert "No test node has a label" in lines[2]
    assert "MLP 50.0%" in " ".join(lines)


def test_what_was_not_done_is_stated(graph, fitted, tmp_path):
    note = "MLP and GCN were not trained (--no-compare)."
    text = write_run_page(evaluate(fitted, graph, notes=[note]), tmp_path / "r.html").read_text()
    assert note in text
    assert "GraphSAGE" not in text


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
    assert json.loads(data)["nodes"][0]["id"].startswith("</script><i>")


@pytest.mark.browser
def test_the_page_of_one_node(open_page, fitted, tmp_path):
    explanation = fitted.explain(3)
    page, requests, errors = open_page(write_explanation(explanation, tmp_path / "e.html"))
    assert (requests, errors) == ([], [])
    assert page.locator("h1").inner_text() == f"Why node 3 was called {explanation.predicted}"
    rows = [table.locator("tbody tr").count() for table in page.locator("table").all()]
    assert sorted(rows) == sorted([len(explanation.columns), len(explanation.members)])
    assert page.locator(".scatterlayer .points path").count() == len(explanation.members)


@pytest.mark.browser
def test_no_serious_finding_of_axe_on_the_page_of_one_node(open_page, fitted, serious_findings, tmp_path):
    page, _, _ = open_page(write_explanation(fitted.explain(3), tmp_path / "e.html", ["Without its edge ..."]))
    assert "Without its edge" in page.locator("main").inner_text()
    assert serious_findings(page) == []
