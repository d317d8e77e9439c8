"""A regression from tables to record, page, predictions, service and export."""

import json
import shutil

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
from gpatcher.estimator.counterfactual import find_counterfactual
from gpatcher.estimator.ensemble import load_model
from gpatcher.estimator.onnx import export_onnx
from gpatcher.estimator.tables import keep_tables
from gpatcher.graph.graph import Graph
from gpatcher.report.run import write_run_page
from gpatcher.runs.compare import compare_runs
from gpatcher.runs.estimate import estimate_fit
from gpatcher.runs.evaluation import RegressionEvaluation, read_evaluation
from gpatcher.runs.fit import FitOptions, fit_splits
from gpatcher.runs.predict import write_predictions
from gpatcher.runs.records import summarise
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
    assert rows["Mean"].r2 == pytest.approx(0, abs=0.05)
    assert rows["Fast-GPatcher"].low < rows["Fast-GPatcher"].r2 < rows["Fast-GPatcher"].high
    assert [row.rmse for row in evaluation.leaderboard] == sorted(row.rmse for row in evaluation.leaderboard)
    gains = {one.name: one for one in evaluation.comparisons}
    assert gains["Mean"].gain == pytest.approx(rows["Fast-GPatcher"].r2 - rows["Mean"].r2)
    assert [level for level, _, _ in evaluation.coverage] == [0.8, 0.9, 0.95]
    widths = [width for _, _, width in evaluation.coverage]
    assert widths == sorted(widths)


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
    for title in (*titles, "Boosted trees (columns)", "RMSE"):
        assert title in text


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
    assert answer["predicted"] == model.predict(nodes=[3])[0]
    assert answer["low"] < answer["predicted"] < answer["high"]
    assert served.predict_known(["h0"])[0]["label"] is None
    (unseen,) = served.predict_unseen([{"id": "new", "a": 0.1, "b": -1.0}], [{"source": "new", "target": "h4"}])
    assert np.isfinite(unseen["predicted"])
    why = served.explain("h3")
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


def test_what_is_for_classes_alone_is_refused(run, tables, tmp_path):
    with pytest.raises(InputError, match="predicts numbers"):
        find_counterfactual(load_model(run[0], tables.graph), tables.graph, 3)
    (tmp_path / "other").mkdir()
    shutil.copy(run[0] / "predictions.parquet", tmp_path / "other")
    with pytest.raises(InputError, match="predicts numbers"):
        compare_runs([run[0], tmp_path / "other"])


@pytest.mark.parametrize("model", ["fast", "auto"])
def test_a_dry_run_estimates_it(tables, model):
    settings = {"auto": {"quality": "quick"}} if model == "auto" else SETTINGS
    assert estimate_fit(tables.graph, model, settings, FitOptions()).seconds > 0
