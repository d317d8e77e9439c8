"""`gpatcher explain`, `gpatcher export` and conformal sets as a user gets them."""

import json
import shutil
import subprocess
import sys
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from gpatcher.datasets.load import load_graph
from gpatcher.io import write_json

SOURCE = "csbm:phi=-0.5,n=200,features=8"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with tables of string ids, and a model trained on them."""
    folder = tmp_path_factory.mktemp("own")
    graph = load_graph(SOURCE)
    names = np.array([f"n{v}" for v in range(graph.n)])
    kinds = [["cat", "dog"][c] if v % 11 else None for v, c in enumerate(graph.y)]
    nodes = {"id": names, "label": kinds} | {f"f{j}": graph.x[:, j] for j in range(8)}
    pa.csv.write_csv(pa.table(nodes), folder / "nodes.csv")
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    once = source < graph.indices
    edges = {"source": names[source[once]], "target": names[graph.indices[once]]}
    pa.csv.write_csv(pa.table(edges), folder / "edges.csv")
    return folder


@pytest.fixture
def run_here(folder, command_in):
    return partial(command_in, folder)


@pytest.fixture
def trained(run_here, folder):
    if not (folder / "run").exists():
        tables = ("--nodes", "nodes.csv", "--edges", "edges.csv")
        run_here(
            "fit",
            *tables,
            "--model",
            "fast",
            "--set",
            "train.epochs=25",
            "--set",
            "patches.size=6",
            "--no-compare",
            "--out",
            "run",
        )
    return folder / "run"


def test_a_node_is_explained(run_here, trained, folder):
    found = json.loads(run_here("explain", "run", "n7", "--json").stdout)
    assert found["id"] == "n7"
    assert {found["predicted"], found["runner_up"]} == {"cat", "dog"}
    total = sum(m["contribution"] for m in found["members"])
    assert found["start"] + total + found["remainder"] == pytest.approx(found["margin"], abs=1e-5)
    shown = run_here("explain", "run", "n7", "--out", "n7.html").stdout
    assert shown.startswith(f"Node n7 is classed {found['predicted']} with {found['probability']:.0%}")
    own = sum(m["contribution"] for m in found["members"] if m["id"] == "n7")
    assert sum(c["contribution"] for c in found["columns"]) == pytest.approx(own, abs=1e-4)
    values = {c["name"]: c["value"] for c in found["columns"]}
    table = pa.csv.read_csv(folder / "nodes.csv").to_pylist()[7]
    assert {name: float(value) for name, value in values.items()} == pytest.approx(
        {name: table[name] for name in values}, rel=1e-4, abs=1e-5
    )
    for column in found["columns"]:
        assert f"│ {column['name']} " in shown
    for member in found["members"]:
        [row] = [line for line in shown.splitlines() if f"│ {member['id']} " in line]
        assert f"+{abs(member['contribution']):.3f} for " in row
        assert ("(trained on)" in row) == (member["part"] == "train")
        assert ("unknown" in row) == (member["label"] is None)
    assert "Why n7 was called" in (folder / "n7.html").read_text()


def test_an_unknown_node_is_refused_before_torch_is_loaded(trained):
    code = "import sys; from gpatcher.cli import main; sys.argv = ['gpatcher', 'explain', 'run', 'n777']\n"
    code += "try:\n    main()\nfinally:\n    assert not {'torch', 'torch_geometric', 'sklearn'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=trained.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "did you mean n77" in done.stderr


def test_explain_loads_nothing_that_only_training_needs(trained):
    code = "import sys; from gpatcher.cli import main; sys.argv = ['gpatcher', 'explain', 'run', 'n77']\n"
    code += "try:\n    main()\nexcept SystemExit:\n    pass\n"
    code += "print('loaded:', *({'sklearn', 'scipy.optimize', 'torch_geometric', 'plotly', 'ray'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=trained.parent, capture_output=True, text=True, check=False)
    assert "Node n77 is classed" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_an_unknown_node(run_here, trained):
    assert "no node with the id 'n777'; did you mean n77" in run_here("explain", "run", "n777", code=2).stderr
    assert "no saved model" in run_here("explain", "nowhere", "n7", code=2).stderr
    error = run_here("explain", "run", "n7", "--out", "no/such.html", code=2).stderr
    assert "not a folder" in error


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_sets_beside_the_predictions(run_here, trained, folder, kind):
    shown = run_here("predict", "run", "--conformal", 0.9, "--out", f"p.{kind}").stdout
    read = pa.csv.read_csv if kind == "csv" else pa.parquet.read_table
    table = read(folder / f"p.{kind}")
    assert table.column_names[-4:] == ["confidence", "label", "part", "set"]
    sets = [value.split("|") if kind == "csv" else value for value in table["set"].to_pylist()]
    assert all(p in s and set(s) <= {"cat", "dog"} for p, s in zip(table["predicted"].to_pylist(), sets, strict=True))
    # the coverage it prints is that of the column
    from gpatcher.estimator.classifier import GPatcherClassifier

    labels = pa.csv.read_csv(folder / "nodes.csv")["label"].to_pylist()
    test = GPatcherClassifier.load(trained).split_.test
    share = np.mean([labels[v] in sets[v] for v in test])
    assert f"contain the label of {share:.1%} of {len(test)} test nodes" in shown


def test_the_level_must_lie_in_the_unit_interval(run_here, trained):
    assert "must lie in (0, 1)" in run_here("predict", "run", "--conformal", 1.5, code=2).stderr


def test_probabilities_on_disk_are_the_calibrated_ones(run_here, trained, folder):
    from gpatcher.estimator.classifier import GPatcherClassifier
    from gpatcher.tables.load import read_tables

    graph = read_tables(folder / "nodes.csv", folder / "edges.csv")
    record = json.loads((trained / "records.jsonl").read_text())
    fitted = GPatcherClassifier.load(trained, graph).calibration_.temperature
    assert record["calibration"]["temperature"] == pytest.approx(fitted)
    assert 0 <= record["calibration"]["test_error_after"] <= 1
    # few validation nodes may leave the temperature at 1: take another
    shutil.copytree(trained, folder / "hot")
    about = json.loads((trained / "model.json").read_text())
    about["calibration"]["temperature"] = 2.0
    write_json(folder / "hot" / "model.json", {key: about[key] for key in about if key != "checksum"})
    run_here("predict", "hot", "--out", "p.parquet")
    table = pa.parquet.read_table(folder / "p.parquet")
    model = GPatcherClassifier.load(folder / "hot", graph)
    assert model.calibration_.temperature == 2.0
    np.testing.assert_allclose(table["confidence"].to_numpy(), model.predict_proba().max(1), rtol=1e-5)
    assert np.abs(table["confidence"].to_numpy() - model.predict_proba(calibrated=False).max(1)).max() > 1e-3


def test_export(run_here, trained, folder):
    shown = run_here("export", "run", "--out", "m.onnx")
    assert "largest difference" in shown.stdout
    assert shown.stderr == ""  # the exporter's own messages are silenced
    assert (folder / "m.onnx").stat().st_size > 0
