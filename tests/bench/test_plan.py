"""Presets and the jobs they ask for."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gpatcher.runs.models import MODELS, PROTOCOL, settings

import gpatcher
from gpatcher.bench.plan import (
    PAPER_DATASETS,
    TITLES,
    Job,
    chosen,
    experiment_names,
    load_experiment,
    load_source,
    paper_figures,
    plan_jobs,
    read_tuned,
)
from gpatcher.bench.tuning import search_space
from gpatcher.datasets.load import load_graph
from gpatcher.datasets.registry import NAMED
from gpatcher.errors import InputError
from gpatcher.runs.records import read_records


def test_there_is_a_preset_for_every_table_and_figure():
    names = "table1 induced extractors order statistics sensitivity response runtime honest dial defaults"
    assert experiment_names() == names.split()
    with pytest.raises(InputError, match="did you mean table1"):
        load_experiment("tabel1")


@pytest.mark.parametrize("name", experiment_names())
def test_every_preset_names_things_that_are_there(name):
    preset = load_experiment(name)
    for dataset in preset.datasets if preset.task != "runtime" else ():
        assert dataset in NAMED or load_graph(dataset).splits
    for row in preset.rows.values():
        if preset.task in ("train", "response"):
            config, trials = settings(row.model, preset.datasets[0], {}, row.base)
            assert trials is None
            json.dumps(config)
    figures = paper_figures(name)
    if name == "statistics":
        assert set(figures) == set(PAPER_DATASETS)
    else:
        assert set(figures) <= set(preset.rows)
        assert all(set(cells) <= set(preset.datasets) for cells in figures.values())


def test_every_model_has_a_title_and_a_search_space():
    assert set(MODELS) == set(TITLES)
    for model in MODELS:
        assert set(search_space("paper", model)) >= {"lr"}
        assert set(search_space("broad", model)) >= {"lr", "weight_decay", "normalise"}
    grid = search_space("paper", "gpatcher")
    assert {k: sorted(v) for k, v in grid.items()} == {
        "lr": [0.001, 0.003, 0.005, 0.008, 0.01],
        "patch_size": [8, 16, 32, 64, 96],
        "filters": [10, 50, 100, 150, 200],
    }
    with pytest.raises(InputError, match="no search space 'wide'"):
        search_space("wide", "gcn")


def test_figures_of_the_paper():
    table = paper_figures("table1")
    assert len(table) == 13
    assert table["gpatcher"]["texas"] == [85.0, 3.5]
    assert table["h2gcn"]["chameleon"] == [54.0, 1.1]
    assert paper_figures("order")["shuffled"]["citeseer"] == [60.7, 1.4]
    assert paper_figures("dial") == {}


def job(**changes):
    given = {"preset": "p", "task": "train", "dataset": "d", "row": "r", "model": "m", "config": {"a": 1, "b": 2}}
    return Job(**{**given, "split": 0, "seed": 0, **changes})


def test_the_id_depends_on_all_that_counts():
    assert job().id == job(config={"b": 2, "a": 1}).id == job(tuned=5).id
    changes = [{"preset": "q"}, {"dataset": "e"}, {"row": "s"}, {"model": "n"}, {"config": {"a": 2}}]
    ids = {job(**change).id for change in [*changes, {"split": 1}, {"seed": 1}, {"task": "x"}, {}]}
    assert len(ids) == 9


def test_jobs_of_generated_graphs():
    jobs, notes = plan_jobs("dial", datasets=["phi=-0.9", "phi=0.5"], rows=["gcn", "fast"], splits="0,2")
    assert notes == []
    assert [(j.dataset.split(",")[0], j.row, j.split, j.seed) for j in jobs] == [
        (f"csbm:phi={phi}", row, k, k) for phi in (-0.9, 0.5) for row in ("gcn", "fast") for k in (0, 2)
    ]
    assert jobs[0].config == PROTOCOL
    a, b = (load_source("csbm:phi=0.5,n=60,features=4", k, None) for k in (0, 1))
    assert a.content_hash != b.content_hash
    for splits in ("x", "-1", ""):
        if splits:
            with pytest.raises(InputError, match="splits must be"):
                plan_jobs("dial", splits=splits)


def test_what_is_not_there(tmp_path):
    with pytest.raises(InputError, match="no model 'nonsense'"):
        plan_jobs("dial", rows=["nonsense"])
    with pytest.raises(InputError, match="no data set 'cora'"):
        plan_jobs("dial", datasets=["cora"])
    assert chosen(None, ["a", "b"], "x") == ["a", "b"]
    assert chosen([" B "], ["a", "b"], "x") == ["b"]
    with pytest.raises(InputError, match="no x ''"):
        chosen([""], ["a", "csbm"], "x")


def test_a_data_set_that_cannot_be_had_is_left_out_with_the_reason(monkeypatch, tmp_path):
    def load(dataset, split, root):
        if dataset == "pubmed":
            raise InputError("8 of 8 files are missing")
        return load_graph("csbm:n=60,features=4")

    monkeypatch.setattr("gpatcher.bench.plan.load_source", load)
    jobs, notes = plan_jobs("table1", rows=["mlp"], splits="0")
    assert notes == ["pubmed is not run: 8 of 8 files are missing"]
    assert {j.dataset for j in jobs} == set(PAPER_DATASETS) - {"pubmed"}
    with pytest.raises(InputError, match="8 of 8"):
        plan_jobs("table1", datasets=["pubmed"])


def test_tuned_settings_come_first():
    tuned = {"texas": {"gcn": {"config": {"lr": 0.5}, "trials": 7}, "fast": {"config": {"hidden": 3}, "trials": 7}}}
    assert settings("gcn", "texas", tuned) == ({**PROTOCOL, "lr": 0.5}, 7)
    assert settings("gcn", "cora", tuned) == (PROTOCOL, None)
    config, trials = settings("fast", "texas", tuned)
    assert (config["hidden"], config["extractor"], config["average"], trials) == (3, "ppr", 0.0, 7)
    config, trials = settings("fast", "texas", {})
    assert (config["hidden"], config["average"], trials) == (128, 0.95, None)  # as shipped for Texas
    config, trials = settings("gpatcher", "texas", tuned, "paper")
    assert (config["paths"], trials) == (["mixer"], None)
    with pytest.raises(InputError, match="no model 'x'"):
        settings("x", "texas", {})


def test_files_of_tuned_settings(tmp_path):
    assert isinstance(read_tuned(), dict)
    with pytest.raises(InputError, match="there is no file"):
        read_tuned(tmp_path / "x.json")
    (tmp_path / "best.json").write_text('{"texas": {"gcn": {"config": {}, "trials": 3}}}')
    assert read_tuned(tmp_path)["texas"]["gcn"]["trials"] == 3
    for text in ("", "[]", '{"texas": 1}', '{"texas": {"gcn": {"trials": 3}}}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(InputError, match="no file of tuned"):
            read_tuned(tmp_path / "bad.json")


def test_one_file_adds_a_model(tmp_path):
    """The class of the how-to page, as a file of a copy of the package: the bench runs it, the report shows it."""
    package = Path(gpatcher.__file__).parent
    shutil.copytree(package, tmp_path / "gpatcher")  # what is compiled too
    page = (package.parents[1] / "docs/how-to/new-model.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "gpatcher/bench/baselines/spread.py").write_text(code)
    line = ["bench", "dial", "--datasets", "phi=0.5", "--models", "spread", "--splits", "0", "--out", "found"]
    for words in (line, ["report", "found", "--markdown", "found.md"]):
        done = subprocess.run(
            [sys.executable, "-c", "from gpatcher.cli import main; main()", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert "| spread | " in (tmp_path / "found.md").read_text()
    [spread] = [r for r in read_records(tmp_path / "found/records.jsonl") if r["row"] == "spread"]
    assert spread["error"] is None
    assert spread["test"] > 0.5
