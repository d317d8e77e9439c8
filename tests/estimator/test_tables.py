from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from gpatcher import GPatcherClassifier, TableClassifier
from gpatcher.errors import InputError
from gpatcher.estimator.folder import open_tables
from gpatcher.estimator.tables import keep_tables
from gpatcher.model.config import ModelConfig
from gpatcher.patches import PPR
from gpatcher.runs.records import read_records
from gpatcher.tables.load import load_tables
from gpatcher.training.loop import TrainConfig

QUICK = GPatcherClassifier(patches=PPR(size=4), model=ModelConfig(hidden=8), train=TrainConfig(epochs=30))
COLUMNS = ("size", "flag", "city", "born", "note")


def tables(n=120, features=True):
    """Two kinds of people; the columns tell which, and the edges join unlike ones."""
    rng = np.random.default_rng(0)
    kind = np.arange(n) % 2
    ids = [f"n{v}" for v in range(n)]
    nodes = {"id": ids, "label": pa.array([None if v % 10 == 9 else ("cat", "dog")[k] for v, k in enumerate(kind)])}
    if features:
        size = kind * 3 + rng.normal(size=n)
        nodes["size"] = pa.array([None if v % 7 == 3 else s for v, s in enumerate(size)])
        nodes["flag"] = rng.random(n) < 0.5
        nodes["city"] = np.array(["Rome", "Oslo", "Bonn"])[rng.integers(0, 3, n)]
        nodes["born"] = pa.array(np.datetime64("2000-01-01") + rng.integers(0, 9999, n).astype("timedelta64[D]"))
        words = np.array(["miaow purr", "bark growl"])[kind]
        nodes["note"] = [f"{word} number {v} of {v // 2}" for v, word in enumerate(words)]
    other = 2 * rng.integers(0, n // 2, (n, 3)) + 1 - kind[:, None]
    edges = {"source": np.repeat(ids, 3), "target": [ids[u] for u in other.ravel()]}
    return pa.table(nodes), pa.table(edges)


@pytest.fixture
def run(command_in, tmp_path):
    """The command without a new process."""
    return partial(command_in, tmp_path)


@pytest.fixture
def written(tmp_path):
    nodes, edges = tables()
    pa.csv.write_csv(nodes, tmp_path / "nodes.csv")
    pa.csv.write_csv(edges, tmp_path / "edges.csv")
    return tmp_path


FIT = (
    *("fit", "--nodes", "nodes.csv", "--edges", "edges.csv", "--model", "fast"),
    *("--set", "train.epochs=40", "--set", "model.hidden=8"),
)


# ------------------------------------------------------------------------------------------ the estimator


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")  # repeated edges
@pytest.mark.parametrize("form", ["arrow", "pandas", "files"])
def test_predictions_are_aligned_with_the_ids(tmp_path, form):
    nodes, edges = tables()
    given = (nodes, edges)
    if form == "pandas":
        given = tuple(table.to_pandas() for table in given)
    if form == "files":
        for name, table in (("nodes", nodes), ("edges", edges)):
            pa.parquet.write_table(table, tmp_path / f"{name}.parquet")
        given = (tmp_path / "nodes.parquet", str(tmp_path / "edges.parquet"))
    model = TableClassifier(classifier=QUICK).fit(*given)
    assert model.ids_.tolist() == nodes["id"].to_pylist()
    assert model.classes_.tolist() == ["cat", "dog"]
    assert model.encoder_.columns == dict(zip(COLUMNS, ("number", "boolean", "category", "date", "text"), strict=True))
    assert model.score() > 0.8
    everyone = model.predict_proba()
    assert everyone.shape == (120, 2)
    assert np.array_equal(model.predict_proba(["n7", "n3"]), everyone[[7, 3]])
    assert model.predict(["n7"])[0] == model.classes_[everyone[7].argmax()]
    with pytest.raises(InputError, match="1 id is not among the nodes: 'n999'"):
        model.predict(["n1", "n999"])


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_it_follows_the_conventions_of_scikit_learn():
    model = TableClassifier(tables={"features": ["size"]}, classifier=QUICK)
    assert clone(model).get_params()["tables"] == {"features": ["size"]}
    assert model.fit(*tables()) is model
    assert model.encoder_.names() == ["size", "size: missing"]
    assert not hasattr(QUICK, "model_")  # what was passed in stays as it was


@pytest.mark.parametrize(("option", "words"), [("id", "pass id="), ("task", "leave 'task' out")])
def test_an_option_that_is_a_parameter_is_refused(option, words):
    with pytest.raises(InputError, match=words):
        TableClassifier(tables={option: "x"}).fit(*tables(12))


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
def test_without_features_those_of_the_structure_are_made():
    model = TableClassifier(classifier=QUICK).fit(*tables(features=False))
    assert model.encoder_ is None
    assert model.tables_.graph.x.shape == (120, 10)
    # adjacency rows, where chosen, serve instead
    rows = clone(QUICK).set_params(features__adjacency_features=True)
    model = TableClassifier(classifier=rows).fit(*tables(features=False))
    assert model.tables_.graph.x is None
    assert model.classifier_.features_.shape[0] == 120


# ------------------------------------------------------------------------------------------ what a run keeps


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
@pytest.mark.parametrize("ids", ["text", "integers", "dates"])
@pytest.mark.parametrize("wide", [True, False])
def test_a_graph_is_kept_whole(tmp_path, ids, wide):
    nodes, edges = tables()
    if not wide:
        nodes = nodes.drop_columns(["note"])
    names = {name: v for v, name in enumerate(nodes["id"].to_pylist())}
    for name, table in (("nodes", nodes), ("edges", edges)):
        for column in set(table.column_names) & {"id", "source", "target"}:
            values = pa.array([names[value] for value in table[column].to_pylist()], pa.int64())
            if ids == "dates":
                values = values.cast(pa.int32()).cast(pa.date32())
            if ids != "text":
                table = table.set_column(table.column_names.index(column), column, values)
        nodes, edges = (table, edges) if name == "nodes" else (nodes, table)
    kept = load_tables(nodes, edges, folds=3).with_split()
    keep_tables(kept, tmp_path)
    graph, encoder = open_tables(tmp_path)
    assert graph.content_hash == kept.graph.content_hash
    assert graph.fingerprint == kept.graph.fingerprint
    assert graph.node_ids.tolist() == kept.graph.node_ids.tolist()
    assert (graph.classes, graph.name) == (kept.graph.classes, kept.graph.name)
    assert encoder == kept.encoder
    assert sp.issparse(graph.x) == wide
    table = pa.parquet.read_table(tmp_path / "split.parquet")
    assert table.column_names == ["id", "part_0", "part_1", "part_2"]
    for number, split in enumerate(graph.splits):
        parts = np.array(table[f"part_{number}"].to_pylist())
        assert np.flatnonzero(parts == "validation").tolist() == split.val.tolist()


def test_a_damaged_graph_is_refused(tmp_path):
    assert open_tables(tmp_path) is None
    (tmp_path / "graph").mkdir()
    with pytest.raises(InputError, match="graph"):
        open_tables(tmp_path)


# ------------------------------------------------------------------------------------------ the command


def test_a_moved_run_predicts_the_same_without_its_tables(written, run):
    done = run(*FIT, "--out", "run")
    assert "Read 120 nodes and 360 edges, taken as undirected; 108 have a label" in done.stdout
    assert "1 number, 1 boolean, 1 category, 1 date, 1 text" in done.stdout
    assert "run/predictions.parquet" in done.stdout
    run("predict", "run", "--out", "before.parquet")
    assert pa.parquet.read_table(written / "run" / "predictions.parquet").num_rows == 120
    (written / "elsewhere").mkdir()
    (written / "run").rename(written / "elsewhere" / "moved")
    for name in ("nodes.csv", "edges.csv"):
        (written / name).unlink()
    run("predict", "elsewhere/moved", "--out", "after.parquet")
    before, after = (pa.parquet.read_table(written / f"{name}.parquet") for name in ("before", "after"))
    assert after.equals(before)
    assert after["id"].to_pylist() == [f"n{v}" for v in range(120)]
    right = [a == b for a, b in zip(after["predicted"].to_pylist(), ["cat", "dog"] * 60, strict=True)]
    assert np.mean(right) > 0.8


def test_the_record_holds_the_metrics(written, run):
    run(*FIT, "--set", "train.monitor=macro_f1", "--set", "train.class_weights=true", "--out", "run")
    [record] = read_records(written / "run" / "records.jsonl")
    assert record["settings"]["train"]["monitor"] == "macro_f1"
    assert record["settings"]["train"]["class_weights"] is True
    for part, accuracy in (("validation", "val_accuracy"), ("test", "test_accuracy")):
        metrics = record["metrics"][part]
        assert set(metrics) == {"accuracy", "macro_f1", "balanced_accuracy", "roc_auc", "pr_auc"}
        assert metrics["accuracy"] == pytest.approx(record[accuracy])


def test_folds_are_all_run(written, run):
    run(*FIT, "--folds", 3, "--out", "run")
    assert [r["split"] for r in read_records(written / "run" / "records.jsonl")] == [0, 1, 2]


def test_options_of_tables(written, run):
    done = run(*FIT, "--features", "size,city", "--column", "size=raw,city=category", "--time", "born", "--out", "run")
    assert "1 raw, 1 category; 5 features" in done.stdout
    graph, encoder = open_tables(written / "run")
    assert encoder.columns == {"size": "raw", "city": "category"}
    born = np.array(pa.csv.read_csv(written / "nodes.csv")["born"].to_pylist())
    [split] = graph.splits
    assert born[split.train].max() < born[split.val].min() <= born[split.val].max() < born[split.test].min()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--column", "size"), ["COLUMN=KIND", "'size'"]),
        (("--column", "size=colour"), ["'colour'", "category"]),
        (("--set", "train.monitor=luck"), ["'luck'", "macro_f1"]),
        (("--label", "city2"), ["'city2'", "--label"]),
        (("--folds", "2"), ["folds", "2"]),
        (("--on-unknown-id", "maybe"), ["'maybe'", "drop"]),
        (("--delimiter", ";"), ["separated by commas", "--delimiter"]),
    ],
)
def test_a_mistake_gets_one_line(written, run, arguments, words):
    error = run(*FIT, *arguments, code=2).stderr.splitlines()[-1]
    assert error.startswith("error: ")
    for word in words:
        assert word in error


def test_ways_to_split_need_tables(run):
    error = run("fit", "csbm:n=100,features=4", "--folds", 5, code=2).stderr
    assert "--folds split the nodes of a table" in error
