"""Models of several rounds and of several sources from the command line, end to end."""

import json
from functools import partial

import onnxruntime
import pyarrow.parquet
import pytest

SOURCE = "csbm:phi=-0.5,n=120,features=6"
SHAPE = ("--set", "model.rounds=2", "--set", "model.hidden=8", "--set", "train.epochs=4", "--no-compare")


@pytest.fixture
def run_here(tmp_path, command_in):
    return partial(command_in, tmp_path)


@pytest.mark.parametrize(
    ("changes", "sources"),  # sizes above the largest degree are cut to it
    [
        ((), [("hop", "both", 10)]),
        (
            (
                *("--set", "patches=hop:direction=out,size=8 + hop:direction=in"),
                *("--set", "model.readout=ego,mean,labels", "--set", "features.structure=degree,clustering"),
            ),
            [("hop", "out", 8), ("hop", "in", 10)],
        ),
    ],
    ids=["default", "two directions, labels and structure"],
)
def test_from_fit_to_export(run_here, tmp_path, changes, sources):
    assert "Test accuracy" in run_here("fit", SOURCE, "--model", "deep", *SHAPE, *changes, "--out", "run").stdout
    saved = json.loads((tmp_path / "run" / "model.json").read_text())
    assert [(e["name"], e["direction"], e["size"]) for e in saved["details"]["extractors"]] == sources
    settings = saved["parameters"]["settings"]
    assert (settings["model"]["rounds"], settings["model"]["aggregate"]) == (2, "sum")
    page = (tmp_path / "run" / "report.html").read_bytes()
    run_here("report", "run")
    assert (tmp_path / "run" / "report.html").read_bytes() == page

    assert "120 rows" in run_here("predict", "run", "--out", "p.parquet").stdout
    predicted = pyarrow.parquet.read_table(tmp_path / "p.parquet")
    found = json.loads(run_here("explain", "run", "7", "--json").stdout)
    assert found["predicted"] == predicted["predicted"][7].as_py()
    assert found["probability"] == pytest.approx(predicted["confidence"][7].as_py(), abs=1e-5)
    total = sum(member["contribution"] for member in found["members"])
    assert found["start"] + total + found["remainder"] == pytest.approx(found["margin"], abs=1e-4)
    run_here("explain", "run", "7", "--out", "7.html")
    assert "Why 7 was called" in (tmp_path / "7.html").read_text()

    if changes:  # an export takes seconds
        assert "largest difference" in run_here("export", "run", "--out", "m.onnx").stdout
        inputs = [given.name for given in onnxruntime.InferenceSession(tmp_path / "m.onnx").get_inputs()]
        assert inputs == ["x", "index", "score", "mask", "labels"]


def test_from_a_table_of_directed_walks(run_here, tmp_path):
    run_here("patches", SOURCE, "--size", "4", "--direction", "in", "--out", "patches")
    options = ("--model", "deep", "--extractor", "ppr", "--patches", "patches")
    run_here("fit", SOURCE, *options, *SHAPE, "--out", "run")
    saved = json.loads((tmp_path / "run" / "model.json").read_text())
    assert [(e["name"], e["direction"], e["size"]) for e in saved["details"]["extractors"]] == [("ppr", "in", 4)]
    (tmp_path / "patches").rename(tmp_path / "moved")
    assert "--direction in" in run_here("predict", "run", code=2).stderr
    assert "120 rows" in run_here("predict", "run", "--patches", "moved", "--out", "p.parquet").stdout


def test_one_parameter_of_several_sources_is_ambiguous(run_here):
    arguments = ("--set", "patches=hop + ppr", "--set", "patches.size=4")
    error = run_here("fit", SOURCE, "--model", "deep", *arguments, code=2).stderr
    assert "patches.size is ambiguous: the model has 2 patch sources" in error
