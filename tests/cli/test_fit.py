"""`gpatcher fit` and `gpatcher predict` as a user runs them."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from gpatcher import cli

COMMAND = Path(sysconfig.get_path("scripts")) / "gpatcher"
SOURCE = "csbm:phi=-0.5,n=200,features=8"
TABLES = ("--nodes", "nodes.csv", "--edges", "edges.csv", "--label", "kind")


def execute(folder, *arguments, **variables):
    """Run the installed command in a folder."""
    own = {"COLUMNS": "160", "GPATCHER_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | own | variables,
        cwd=folder,
        check=False,
    )


@pytest.fixture
def run(tmp_path):
    """The command as a user runs it."""

    def call(*arguments, code=0, **variables):
        done = execute(tmp_path, *arguments, **variables)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return call


@pytest.fixture
def run_here(tmp_path, command_in):
    return partial(command_in, tmp_path)


def records(folder):
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("model", "extractor", "kind"), [("gpatcher", "heterophily-aware", "csv"), ("fast", "ppr", "parquet")]
)
def test_fit_and_predict(run_here, tmp_path, model, extractor, kind):
    done = run_here(
        "fit",
        SOURCE,
        "--model",
        model,
        "--set",
        "train.epochs=5",
        "--set",
        "patches.size=4",
        "--splits",
        "0,1",
        "--out",
        "run",
    )
    assert "Test accuracy" in done.stdout
    folder = tmp_path / "run"
    runs = records(folder)
    assert [(r["model"], r["extractors"], r["seed"]) for r in runs] == [
        (model, [extractor], 0),
        (model, [extractor], 1),
    ]
    for record in runs:
        assert f"{100 * record['test_accuracy']:.1f}" in done.stdout
        assert (record["settings"]["train"]["epochs"], record["settings"]["patches"]["size"]) == (5, 4)
    assert "how far to trust this model" in (folder / "report.html").read_text()
    # the page is rebuilt from the folder, without training, byte for byte
    page = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    run_here("report", "run")
    assert (folder / "report.html").read_bytes() == page

    name = f"p.{kind}"
    assert "200 rows" in run_here("predict", "run", "--out", name).stdout
    read = pa.csv.read_csv if kind == "csv" else pa.parquet.read_table
    table = read(tmp_path / name)
    probabilities = ["probability_0", "probability_1"]
    assert table.column_names == ["id", "predicted", *probabilities, "confidence", "label", "part"]
    assert table["id"].to_pylist() == list(range(200))
    assert table["part"].to_pylist().count("train") == 120
    both = np.stack([table[name].to_numpy() for name in probabilities])
    np.testing.assert_allclose(both.sum(0), 1, atol=1e-5)
    np.testing.assert_allclose(table["confidence"].to_numpy(), both.max(0), atol=1e-6)
    # the predictions are those of the model in the folder: its test accuracy is the best run's
    from gpatcher.datasets.load import load_graph

    graph = load_graph(SOURCE)
    right = np.array(table["predicted"].to_pylist()).astype(int) == graph.y
    best = max(runs, key=lambda r: r["val_accuracy"])
    assert right[graph.splits[0].test].mean() == pytest.approx(best["test_accuracy"])


def test_fit_and_predict_tables(run_here, tmp_path):
    rng = np.random.default_rng(0)
    names = [f"n{v}" for v in range(60)]
    kinds = ["cat" if v % 2 else "dog" for v in range(60)]
    kinds[7] = None
    nodes = {"id": names, "kind": kinds, "size": rng.normal(size=60), "age": np.arange(60) % 2 + rng.normal(size=60)}
    pa.csv.write_csv(pa.table(nodes), tmp_path / "nodes.csv")
    ends = rng.integers(0, 60, (150, 2))
    ends = np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], 1), axis=0)
    edges = {"source": [names[a] for a in ends[:, 0]], "target": [names[b] for b in ends[:, 1]]}
    pa.csv.write_csv(pa.table(edges), tmp_path / "edges.csv")
    tables = ("--nodes", "nodes.csv", "--edges", "edges.csv", "--label", "kind")
    run_here("fit", *tables, "--model", "fast", "--set", "train.epochs=5", "--out", "run")
    assert records(tmp_path / "run")[0]["extractors"] == ["ppr"]
    # from another folder: the model keeps its graph
    (tmp_path / "elsewhere").mkdir()
    run_here("predict", tmp_path / "run", "--out", tmp_path / "elsewhere" / "p.parquet")
    table = pa.parquet.read_table(tmp_path / "elsewhere" / "p.parquet")
    assert table["id"].to_pylist() == names
    assert set(table["predicted"].to_pylist()) <= {"cat", "dog"}
    assert {"probability_cat", "probability_dog"} <= set(table.column_names)


@pytest.fixture
def tables(tmp_path):
    return write_tables(tmp_path)


@pytest.fixture(scope="module")
def trained_on_tables(tmp_path_factory):
    """A folder with tables and a run on them."""
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("GPATCHER_CACHE", str(folder / "cache"))
        options = ("--model", "fast", "--set", "train.epochs=1", "--no-compare", "--out", "run")
        patch.setattr(sys, "argv", ["gpatcher", "fit", *TABLES, *options])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
    return folder


@pytest.fixture
def run_of_tables(trained_on_tables, tmp_path):
    """The same in a folder of the test's own."""
    shutil.copytree(trained_on_tables, tmp_path, dirs_exist_ok=True)


def write_tables(tmp_path):
    """Tables of sixty nodes with text ids, and of three unseen nodes; returns what the latter hold."""
    rng = np.random.default_rng(1)
    names = [f"n{v}" for v in range(60)]
    kinds = ["cat" if v % 2 else "dog" for v in range(60)]
    nodes = {"id": names, "note": names, "kind": kinds, "size": rng.normal(size=60), "age": np.arange(60) % 2}
    pa.csv.write_csv(pa.table(nodes), tmp_path / "nodes.csv")
    ends = np.unique(np.sort(rng.permuted(np.tile(np.arange(60), (2, 3)), axis=1).T, 1), axis=0)
    ends = ends[ends[:, 0] != ends[:, 1]]
    edges = {"source": [names[a] for a in ends[:, 0]], "target": [names[b] for b in ends[:, 1]]}
    pa.csv.write_csv(pa.table(edges), tmp_path / "edges.csv")
    # columns in another order, and no label
    new = {"age": [0, 1, 1], "size": [0.5, -0.5, 2.0], "id": ["x1", "x2", "x3"]}
    links = {"source": ["x1", "n4", "x2"], "target": ["n3", "x1", "x1"]}
    pa.csv.write_csv(pa.table(new), tmp_path / "new.csv")
    pa.csv.write_csv(pa.table(links), tmp_path / "links.csv")
    return new, links


def test_unseen_nodes_are_predicted_as_in_the_extended_graph(run_here, tmp_path, tables):
    run_here("fit", *TABLES, "--model", "fast", "--set", "train.epochs=5", "--no-compare", "--out", "run")
    done = run_here("predict", "run", "--nodes", "new.csv", "--edges", "links.csv", "--out", "p.csv")
    assert "3 rows in p.csv" in done.stdout
    table = pa.csv.read_csv(tmp_path / "p.csv")
    assert table["id"].to_pylist() == ["x1", "x2", "x3"]
    assert table["part"].to_pylist() == ["none"] * 3

    from gpatcher import GPatcherClassifier, UnseenNodes
    from gpatcher.tables.load import load_tables

    with pytest.warns(match="'note'"):
        read = load_tables(tmp_path / "nodes.csv", tmp_path / "edges.csv", label="kind")
    columns = {name: pa.chunked_array([tables[0][name]]) for name in ("size", "age")}
    x = read.encoder.transform(columns, lambda *_: None)
    unseen = UnseenNodes.join(read.graph, [[60, 4, 61], [3, 60, 60]], x)
    expected = GPatcherClassifier.load(tmp_path / "run").predict_proba(unseen)
    np.testing.assert_allclose(table["probability_cat"].to_numpy(), expected[:, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("nodes", "links", "words"),
    [
        ("", "n3,zz", ["links.csv", "line 5", "'zz'", "nor in the graph"]),
        ("0,1.0,x1", "", ["new.csv", "'x1'", "line 2", "more than once"]),
        ("0,1.0,n5", "", ["new.csv", "'n5'", "line 5", "in the graph already"]),
        ("0,1.0,", "", ["new.csv", "missing", "line 5"]),
        ("0,much,x9", "", ["new.csv", "'size'", "line 5", "'much'"]),
        ("", "n3,n4", ["two nodes of the graph", "n3", "n4"]),
    ],
)
@pytest.mark.usefixtures("run_of_tables")
def test_invalid_tables_of_unseen_nodes(run_here, tmp_path, nodes, links, words):
    for name, line in (("new.csv", nodes), ("links.csv", links)):
        with (tmp_path / name).open("a") as file:
            file.write(f"{line}\n" if line else "")
    error = run_here("predict", "run", "--nodes", "new.csv", "--edges", "links.csv", code=2).stderr.splitlines()[-1]
    assert error.startswith("error: ")
    for word in words:
        assert word in error


@pytest.mark.usefixtures("run_of_tables")
def test_unseen_nodes_need_both_tables_and_all_columns(run_here, tmp_path):
    assert "need both tables" in run_here("predict", "run", "--nodes", "new.csv", code=2).stderr
    pa.csv.write_csv(pa.table({"id": ["x1", "x2"], "age": [1, 0]}), tmp_path / "new.csv")
    error = run_here("predict", "run", "--nodes", "new.csv", "--edges", "links.csv", code=2).stderr
    assert "no column 'size', which the model was trained with" in error
    assert "'size'" in error


@pytest.mark.usefixtures("run_of_tables")
def test_a_failed_run_leaves_the_previous_one_unchanged(run_here, tmp_path):
    run_here("predict", "run", "--out", "before.csv")
    lines = (tmp_path / "edges.csv").read_text().splitlines()
    (tmp_path / "edges.csv").write_text("\n".join(lines[:-1]) + "\n")
    run_here(
        "fit",
        *TABLES,
        "--model",
        "fast",
        "--set",
        "train.epochs=1",
        "--set",
        "model.hidden=-3",
        "--out",
        "run",
        code=2,
    )
    run_here("predict", "run", "--out", "after.csv")
    assert (tmp_path / "after.csv").read_bytes() == (tmp_path / "before.csv").read_bytes()


def test_an_occupied_folder_is_refused_before_the_data_are_read(run_here, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    monkeypatch.setattr("gpatcher.cli.fit.load_source", None)
    assert "run already contains a run" in run_here("fit", SOURCE, "--out", "run", code=2).stderr


def test_ctrl_c_says_how_to_continue(run_here, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("gpatcher.runs.fit.fit_splits", stop)
    assert run_here("fit", SOURCE, code=130).stderr == "stopped: the same command with --resume continues\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "auto"),
        (("--quality", "quick"), "auto"),
        (("--set", "auto.budget=60"), "auto"),
        (("--set", "train.lr=0.01"), "gpatcher"),
        (("--preset", "paper"), "gpatcher"),
        (("--extractor", "ppr"), "gpatcher"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
@pytest.mark.parametrize("source", [(SOURCE,), TABLES], ids=["generator", "tables"])
@pytest.mark.usefixtures("run_of_tables")
def test_without_settings_of_one_model_it_is_the_portfolio(run_here, monkeypatch, source, options, expected):
    asked = []

    def stop(graph, model, *_, **__):
        asked.append(model)
        raise KeyboardInterrupt

    monkeypatch.setattr("gpatcher.runs.fit.fit_splits", stop)
    run_here("fit", *source, *options, "--out", "other", code=130)
    assert asked == [expected]


@pytest.mark.parametrize(
    "options", [("--extractor", "auto", "--set", "train.epochs=2"), ("--quality", "quick")], ids=["one model", "auto"]
)
def test_no_warnings_about_a_published_split(run_here, data_root, monkeypatch, options):
    monkeypatch.setenv("GPATCHER_DATA", str(data_root))
    # split 0 of Texas has a class without training nodes
    done = run_here("fit", "texas", *options, "--no-compare", "--out", "run")
    assert done.stderr == ""


def test_auto_from_the_command_line(run_here, tmp_path):
    run_here("fit", SOURCE, "--extractor", "auto", "--set", "train.epochs=3", "--set", "patches.size=4", "--out", "run")
    [record] = records(tmp_path / "run")
    assert record["extractors"] == [min(record["compared"], key=record["compared"].get)]
    assert "200 rows" in run_here("predict", "run", "--out", "p.csv").stdout


def test_polynomial_needs_no_eigenvectors_where_they_do_not_fit(run_here, tmp_path):
    options = ("--extractor", "polynomial", "--memory", "0.00001", "--set", "train.epochs=3", "--set", "patches.size=4")
    run_here("fit", SOURCE, *options, "--no-compare", "--out", "run")
    [record] = records(tmp_path / "run")
    assert record["extractors"] == ["polynomial"]
    [extractor] = json.loads((tmp_path / "run" / "model.json").read_text())["details"]["extractors"]
    assert extractor["exact"] is False


def test_the_papers_preset_runs(run_here, tmp_path):
    small = ("csbm:phi=-0.5,n=60,features=8", "--set", "model.hidden=8")  # explanations take most of the time
    run_here("fit", *small, "--preset", "paper", "--set", "train.epochs=3", "--out", "run")
    settings = records(tmp_path / "run")[0]["settings"]
    assert settings["model"]["readout"] == ["mixer"]
    assert (settings["patches"]["size"], settings["model"]["skip"], settings["model"]["head_layers"]) == (32, False, 2)
    assert settings["train"]["epochs"] == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fit", SOURCE, "--extractor", "nonsense"), ["'nonsense'", "heterophily-aware", "ppr"]),
        (("fit", SOURCE, "--model", "nonsense"), ["'nonsense'", "gpatcher", "fast"]),
        (("fit", SOURCE, "--preset", "nonsense"), ["'nonsense'", "paper"]),
        (("fit",), ["give a source"]),
        (("fit", SOURCE, "--splits", "12"), ["12"]),
        (("fit", SOURCE, "--splits", "x"), ["'x'"]),
        (("fit", SOURCE, "--set", "patches.size=0"), ["0"]),
        (("fit", SOURCE, "--set", "train.lr=0"), ["lr", "0"]),
        (("fit", SOURCE, "--set", "train.lr=1e30"), ["not finite", "lr"]),
        (("fit", SOURCE, "--set", "train.weight_decay=-1"), ["weight_decay", "-1"]),
        (("fit", SOURCE, "--set", "train.epochs=0"), ["epochs", "0"]),
        (("fit", SOURCE, "--device", "nonsense"), ["nonsense"]),
        (("fit", SOURCE, "--set", "model.dropout=1.5"), ["dropout", "1.5"]),
        (("fit", SOURCE, "--model", "gpatcher", "--memory", "0.00001"), ["--memory", "--extractor ppr"]),
        (("fit", SOURCE, "--set", "train.lr=fast"), ["train.lr", "number", "'fast'"]),
        (("fit", SOURCE, "--set", "train.epoch=5"), ["train.epoch", "did you mean train.epochs"]),
        (("fit", SOURCE, "--set", "patches.sigma2=1"), ["patches.sigma2", "sigma"]),
        (("fit", SOURCE, "--set", "epochs=5"), ["'epochs'", "section.name"]),
        (("fit", SOURCE, "--set", "train.lr"), ["NAME=VALUE", "'train.lr'"]),
        (("fit", SOURCE, "--on-rare-class", "keep"), ["--on-rare-class", "own splits"]),
        (("fit", SOURCE, "--weight", "w"), ["--weight", "leave them out"]),
        (("fit", SOURCE, "--out", "/dev/null/run"), ["/dev/null", "choose another folder"]),
        (("predict", "nowhere"), ["nowhere", "no saved model"]),
        (("predict", "nowhere", "--nodes", "n", "--edges", "e", "--patches", "p"), ["--patches", "unseen nodes"]),
    ],
    ids=lambda v: "-".join(v[-2:]) if isinstance(v, tuple) else "",
)
def test_a_mistake_gets_one_line(run_here, arguments, words):
    error = run_here(*arguments, code=2).stderr
    assert error.count("\n") == 1
    assert error.startswith("error: ")
    for word in words:
        assert word in error


def test_a_mistake_of_the_installed_command(run):
    error = run("fit", code=2).stderr
    assert error.startswith("error: give a source")
    assert error.count("\n") == 1


def test_fast_is_the_extractor_ppr(run_here, tmp_path):
    for name, arguments in (("a", ("--model", "fast")), ("b", ("--extractor", "ppr"))):
        options = ("--preset", "default", "--set", "train.epochs=4", "--no-compare", "--out", name)
        run_here("fit", SOURCE, *arguments, *options)
    one, two = records(tmp_path / "a")[0], records(tmp_path / "b")[0]
    assert one["settings"] == two["settings"]
    assert one["test_accuracy"] == two["test_accuracy"]


def test_finished_runs_are_not_repeated(run_here, tmp_path):
    options = ("--model", "fast", "--set", "train.epochs=3", "--no-compare", "--resume", "--out", "run")
    for splits in ("0", "0,1"):
        run_here("fit", SOURCE, *options, "--splits", splits)
    assert [r["seed"] for r in records(tmp_path / "run")] == [0, 1]


def test_real_data(run_here, tmp_path, data_root):
    run_here("fit", "texas", "--set", "train.epochs=5", "--splits", "3", "--out", "run", "--root", data_root)
    [record] = records(tmp_path / "run")
    assert (record["dataset"], record["split"], record["directed"]) == ("Texas", 3, True)
    assert 0 < record["test_accuracy"] <= 1
    run_here("predict", "run", "--out", "p.csv", "--root", data_root)
    assert pa.csv.read_csv(tmp_path / "p.csv").num_rows == 183
