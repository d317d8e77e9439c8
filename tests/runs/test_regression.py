"""A regression from tables to record, page, predictions, service and export."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpatcher.bench.experiments.regression import EXPERIMENT
from gpatcher.bench.leaderboard import metric_of
from gpatcher.datasets.load import load_graph
from gpatcher.datasets.synthetic import neighbour_sum
from gpatcher.datasets.targets import component_target
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherRegressor
from gpatcher.estimator.counterfactual import drop_edges, find_counterfactual
from gpatcher.estimator.ensemble import load_model
from gpatcher.estimator.onnx import export_onnx
from gpatcher.estimator.tables import keep_tables
from gpatcher.graph.graph import Graph
from gpatcher.report.explanation import write_explanation
from gpatcher.report.run import write_run_page
from gpatcher.runs.estimate import estimate_fit
from gpatcher.runs.fit import FitOptions, fit_splits
from gpatcher.runs.predict import write_predictions
from gpatcher.runs.records import summarise
from gpatcher.runs.results import RegressionEvaluation, read_evaluation
from gpatcher.runs.run import Job, run_job
from gpatcher.serve.run import ServedRun
from gpatcher.spectral.diagnosis import diagnose
from gpatcher.spectral.heterophily import label_assortativity, neighbour_means
from gpatcher.tables.load import load_tables

SETTINGS = {"patches": {"name": "ppr", "size": 8}, "model": {"hidden": 16}, "train": {"epochs": 20}}


@pytest.fixture(scope="module")
def tables():
    graph = neighbour_sum(n=250)
    ids = [f"h{v}" for v in range(graph.n)]
    price = 100 + 20 * graph.y
    price[::10] = np.nan
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    nodes = {"id": ids, "price": pa.array(price, from_pandas=True), "a": graph.x[:, 0], "b": graph.x[:, 1]}
    edges = {"source": [ids[v] for v in source], "target": [ids[v] for v in graph.indices]}
    return load_tables(pa.table(nodes), pa.table(edges), label="price", task="regression").with_split()


@pytest.fixture(scope="module")
def run(tables, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    source = {"nodes": "nodes", "edges": "edges", "id": "id", "label": "price", "source": "source", "target": "target"}
    options = FitOptions(source=source, compare=True)
    records = fit_splits(tables.graph, "fast", SETTINGS, out, options, before_saving=lambda f: keep_tables(tables, f))
    return out, records[0]


def test_the_record_has_the_figures_of_numbers(run, tables):
    out, record = run
    assert record["metric"] == "r2"
    assert record["val_accuracy"] is record["test_accuracy"] is None
    model = load_model(out, tables.graph)
    assert record["test"] == pytest.approx(model.score())
    assert set(record["metrics"]["test"]) == {"r2", "rmse", "mae"}
    assert 0.5 < record["calibration"]["test_coverage_90"] <= 1
    json.dumps(record, allow_nan=False)


def test_the_evaluation_compares_with_the_mean_and_the_columns(run, tables):
    evaluation = read_evaluation(run[0])
    assert isinstance(evaluation, RegressionEvaluation)
    rows = {row.name: row for row in evaluation.leaderboard}
    assert {"Mean", "Ridge (columns)", "Boosted trees (columns)", "MLP", "GCN", "Fast-GPatcher"} == set(rows)
    assert rows["Mean"].score == pytest.approx(0, abs=0.05)
    assert rows["Fast-GPatcher"].low < rows["Fast-GPatcher"].score < rows["Fast-GPatcher"].high
    assert [row.rmse for row in evaluation.leaderboard] == sorted(row.rmse for row in evaluation.leaderboard)
    gains = {one.name: one for one in evaluation.comparisons}
    assert gains["Mean"].gain == pytest.approx(rows["Fast-GPatcher"].score - rows["Mean"].score)
    assert [level for level, _, _ in evaluation.coverage] == [0.8, 0.9, 0.95]
    widths = [width for _, _, width in evaluation.coverage]
    assert widths == sorted(widths)


def test_importance_is_the_r2_that_is_lost(run, tables):
    evaluation, graph = read_evaluation(run[0]), tables.graph
    lost = {one.name: one for one in evaluation.importance}
    assert set(lost) == {"all columns", "a", "b", "edges"}
    model = load_model(run[0], graph)
    test = model.split_.test[~np.isnan(graph.y[model.split_.test])]
    without = drop_edges(graph, lambda a, b: np.isin(a, test) | np.isin(b, test))
    gone = model.score(nodes=test) - model.on_graph(without).score(without, test)
    assert lost["edges"].lost == pytest.approx(gone, abs=1e-6)
    assert lost["edges"].low < lost["edges"].lost < lost["edges"].high
    assert lost["all columns"].lost > 0


def test_nodes_with_the_largest_errors_are_explained_first(run, tables):
    evaluation, y = read_evaluation(run[0]), tables.graph.y
    model = load_model(run[0], tables.graph)
    held_out = np.concatenate([model.split_.test, model.split_.val])
    held_out = held_out[~np.isnan(y[held_out])]
    error = np.abs(model.predict(nodes=held_out) - y[held_out])
    count = evaluation.explained_errors
    assert count == min(150, len(held_out))
    worst = held_out[np.argsort(-error, kind="stable")]
    assert [e.node for e in evaluation.explanations[:count]] == worst[:count].tolist()
    assert evaluation.explanations[0].margin == pytest.approx(model.predict(nodes=worst[:1])[0], rel=1e-5)
    assert evaluation.diagnosis.class_names[0].startswith("up to ")


def test_the_page_is_made_of_the_evaluation_alone(run, tmp_path):
    first, again = (write_run_page(read_evaluation(run[0]), tmp_path / name) for name in ("a.html", "b.html"))
    text = first.read_text()
    assert first.read_bytes() == again.read_bytes()
    titles = (
        "Predicted against true",
        "Residuals by degree",
        "Residuals by label assortativity",
        "Conformal intervals",
    )
    parts = ("What the columns and the edges contribute", "Explanations", "Class compatibility", "Learning curve")
    for title in (*titles, *parts, "Boosted trees (columns)", "RMSE"):
        assert title in text


@pytest.mark.browser
def test_the_page_in_a_browser(open_page, run, tmp_path):
    path = write_run_page(read_evaluation(run[0]), tmp_path / "a.html")
    page, requests, errors = open_page(path, width=390, scheme="dark")
    worst = read_evaluation(run[0]).explanations[0]
    [option] = page.locator("#explorer-nodes option").all_inner_texts()[:1]
    assert option == f"{worst.id}: {worst.predicted} (label {worst.label})"
    assert f"Node {worst.id} is predicted {worst.predicted}" in page.locator("#explorer-words").inner_text()
    first = page.locator("#explorer-members tbody tr").first.locator("td").all_inner_texts()
    largest = worst.members[worst.ranked()[0]]
    assert float(first[3]) == pytest.approx(largest.contribution, rel=1e-3)
    assert not page.locator("#explorer-wrong").is_visible()
    for width, scheme in ((390, "dark"), (1400, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert (requests, errors) == ([], [])


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_serious_finding(open_page, serious_findings, run, tmp_path, scheme):
    page, _, _ = open_page(write_run_page(read_evaluation(run[0]), tmp_path / "a.html"), width=390, scheme=scheme)
    assert serious_findings(page) == []


def test_predictions_have_numbers_labels_and_intervals(run, tables, tmp_path):
    out, _ = run
    graph = tables.graph
    table = pq.read_table(out / "predictions.parquet")
    assert table.column_names == ["id", "predicted", "label", "part"]
    assert table["label"].null_count == np.isnan(graph.y).sum()
    model = load_model(out, graph)
    assert np.array_equal(table["predicted"].to_numpy(), model.predict())
    write_predictions(model, graph, tmp_path / "p.parquet", conformal=0.8)
    wide = pq.read_table(tmp_path / "p.parquet")
    width = wide["high"].to_numpy() - wide["low"].to_numpy()
    assert (width > 0).all()
    assert np.allclose(width, width[0])


def test_the_service_answers_with_numbers(run, tables, tmp_path):
    served = ServedRun.open(run[0], tmp_path)
    model = load_model(run[0], tables.graph)
    (answer,) = served.predict_known(["h3"], conformal=0.8)
    assert answer["predicted"] == model.predict()[3]  # as the command, for all nodes at once
    assert answer["low"] < answer["predicted"] < answer["high"]
    assert served.predict_known(["h0"])[0]["label"] is None
    (unseen,) = served.predict_unseen([{"id": "new", "a": 0.1, "b": -1.0}], [{"source": "new", "target": "h4"}])
    assert np.isfinite(unseen["predicted"])
    why = served.explain("h3")
    write_explanation(model.explain(3), tmp_path / "why.html")
    assert "raise the number" in (tmp_path / "why.html").read_text()
    assert why["margin"] == pytest.approx(answer["predicted"], rel=1e-5)
    json.dumps([answer, unseen, why], allow_nan=False)


def test_the_export_is_in_the_unit_of_the_label(run, tables, tmp_path):
    onnx = pytest.importorskip("onnx")
    assert export_onnx(load_model(run[0], tables.graph), tmp_path / "model.onnx") < 1e-4
    outputs = onnx.load(tmp_path / "model.onnx").graph.output
    assert [output.name for output in outputs] == ["predicted"]


def test_baselines_share_the_loop():
    graph = neighbour_sum(n=200)
    settings = {"model": {"hidden": 8}, "train": {"epochs": 30, "monitor": "accuracy"}}
    run = run_job(Job("fit", "x", "graphsage", settings, 0, 0), graph)
    test = graph.splits[0].test
    assert run.predict(test).dtype.kind == "f"
    assert run.record["metrics"]["test"]["mae"] == pytest.approx(np.abs(run.predict(test) - graph.y[test]).mean())
    with pytest.raises(InputError, match="BM-GCN models which classes are linked"):
        run_job(Job("fit", "x", "bmgcn", {}, 0, 0), graph)


def test_a_component_of_removed_columns_is_a_target():
    x = np.random.default_rng(0).normal(size=(50, 8)) * np.arange(8, 0, -1)
    graph = Graph.from_edge_index([[0, 1], [1, 2]], x=x, y=[0, 1] * 25, name="g")
    made = component_target(graph)
    assert made.is_regression
    assert np.array_equal(made.x, x[:, 1::2])
    half = x[:, ::2] - x[:, ::2].mean(0)
    leading = np.linalg.svd(half, full_matrices=False)
    assert np.allclose(np.abs(made.y), np.abs(leading[0][:, 0] * leading[1][0]))
    assert len(made.splits) == 5
    assert all(metric_of(dataset) == "r2" for dataset in EXPERIMENT.datasets)
    with pytest.raises(InputError, match="needs four"):
        component_target(graph.with_features(x[:, :2]))


def test_assortativity_against_networkx():
    import networkx as nx

    graph = neighbour_sum(n=60)
    made = graph.to_networkx()
    nx.set_node_attributes(made, {v: {"value": y} for v, y in enumerate(graph.y)})
    assert label_assortativity(graph) == pytest.approx(nx.numeric_assortativity_coefficient(made, "value"))
    y = np.array(graph.y)
    y[graph.neighbours(0)[0]] = np.nan
    assert neighbour_means(graph, y)[0] == pytest.approx(np.nanmean(y[graph.neighbours(0)]))


def test_diagnosis_divides_numbers_into_quantiles():
    result = diagnose(load_graph("neighbour_sum:n=200"))
    assert result.classes == 5
    assert result.class_names[0].startswith("up to ")
    assert result.labelled == 200


def test_a_summary_of_negative_scores_is_not_clipped_at_zero():
    summary = summarise([-0.2, -0.1])
    assert summary.low < -0.2
    assert summarise([0.01, 0.2]).low == 0.0


def test_settings_name_the_class(tables):
    assert GPatcherRegressor.from_settings(SETTINGS).fit(tables.graph).kind == "patch-regressor"


def test_a_counterfactual_moves_the_number_by_an_amount(run, tables):
    graph, model = tables.graph, load_model(run[0], tables.graph)
    neighbours = graph.undirected().neighbours(3)
    now = model.predict(nodes=[3])[0]
    moved = {}
    for v in neighbours.tolist():
        changed = drop_edges(graph, lambda a, b, v=v: (a == 3) & (b == v) | (a == v) & (b == 3))
        moved[f"h{v}"] = model.on_graph(changed).predict(changed, [3])[0]
    strongest = max(moved, key=lambda name: abs(moved[name] - now))
    largest = abs(moved[strongest] - now)
    found = find_counterfactual(model, graph, 3, amount=0.99 * largest)
    assert found.removed == (strongest,)
    assert float(found.predicted) == pytest.approx(moved[strongest], rel=1e-5)
    assert f"Without its edge to {strongest} it would be predicted {found.predicted}, not 7" in found.sentence("7")
    assert len(find_counterfactual(model, graph, 3, amount=1.01 * largest).removed) != 1
    none = find_counterfactual(model, graph, 3, amount=1e9)
    assert none.predicted is None
    assert f"of its {len(neighbours)} edges moves the number by 1e+09 or more" in none.sentence("7")
    # by default half the conformal interval
    low, high = model.predict_interval(nodes=[3], level=0.9)[0]
    assert find_counterfactual(model, graph, 3).amount == pytest.approx((high - low) / 2)
    with pytest.raises(InputError, match="above 0 and finite, got -1"):
        find_counterfactual(model, graph, 3, amount=-1)
    model.calibration_ = replace(model.calibration_, nodes=3, scores=model.calibration_.scores[:3])
    with pytest.raises(InputError, match=r"3 validation nodes are too few .*--amount"):
        find_counterfactual(model, graph, 3)


@pytest.mark.parametrize("model", ["fast", "auto"])
def test_a_dry_run_estimates_it(tables, model):
    settings = {"auto": {"quality": "quick"}} if model == "auto" else SETTINGS
    assert estimate_fit(tables.graph, model, settings, FitOptions()).seconds > 0
