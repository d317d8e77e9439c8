"""Experiments and the jobs they ask for."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpatcher
from gpatcher.bench.plan import (
    PAPER_DATASETS,
    TITLES,
    Experiment,
    Row,
    dataset_title,
    experiment_names,
    load_experiment,
    load_source,
    paper_figures,
    plan_jobs,
    row_title,
    select,
)
from gpatcher.bench.tasks import TASKS
from gpatcher.bench.tuning import search_space
from gpatcher.datasets.load import load_graph
from gpatcher.datasets.registry import NAMED
from gpatcher.errors import InputError
from gpatcher.graph.split import stratified_split
from gpatcher.runs.records import read_records
from gpatcher.runs.settings import MODELS, PROTOCOL, resolve_settings
from gpatcher.spectral.heterophily import heterophily


def test_there_is_an_experiment_for_every_table_and_figure():
    paper = ["table1", "induced", "extractors", "order", "statistics", "sensitivity", "response", "runtime"]
    assert experiment_names() == [*paper, "leak_free", "csbm_sweep", "defaults", "directed", "parts", "regression"]
    with pytest.raises(InputError, match="did you mean table1"):
        load_experiment("tabel1")


@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_names_things_that_exist(name):
    experiment = load_experiment(name)
    assert experiment.task in TASKS
    assert experiment.view in ("table", "grid", "sweep", "response", "statistics", "runtime")
    assert experiment.title
    assert experiment.description.endswith(".")
    for dataset in experiment.datasets if experiment.task != "runtime" else ():
        assert dataset.removeprefix("component:") in NAMED or load_graph(dataset).splits
    for row in experiment.rows.values():
        if experiment.task in ("train", "response"):
            settings, trials = resolve_settings(
                row.model, experiment.datasets[0], row.preset, shipped={}, changes=row.changes
            )
            assert trials is None
            json.dumps(settings)
            assert set(row.ablation) <= {"shuffle_patches", "induced"}
    figures = paper_figures(name)
    if name == "statistics":
        assert set(figures) == set(PAPER_DATASETS)
    else:
        assert set(figures) <= set(experiment.rows)
        assert all(set(cells) <= set(experiment.datasets) for cells in figures.values())


def test_every_model_has_a_title_and_a_search_space():
    assert {*MODELS, "auto"} == set(TITLES)
    for model in MODELS:
        assert set(search_space("paper", model)) >= {"train.lr"}
        assert set(search_space("broad", model)) >= {"train.lr", "train.weight_decay", "features.normalise"}
    grid = search_space("paper", "gpatcher")
    assert {k: sorted(v) for k, v in grid.items()} == {
        "train.lr": [0.001, 0.003, 0.005, 0.008, 0.01],
        "patches.size": [8, 16, 32, 64, 96],
        "patches.K": [10, 50, 100, 150, 200],
    }
    with pytest.raises(InputError, match="search space 'wide'; choose paper or broad"):
        search_space("wide", "gcn")
    with pytest.raises(InputError, match="model 'x'"):
        search_space("broad", "x")


def test_figures_of_the_paper():
    table = paper_figures("table1")
    assert len(table) == 13
    assert table["gpatcher"]["texas"] == [85.0, 3.5]
    assert table["h2gcn"]["chameleon"] == [54.0, 1.1]
    assert paper_figures("order")["shuffled"]["citeseer"] == [60.7, 1.4]
    assert paper_figures("csbm_sweep") == {}


# ------------------------------------------------------------------------------------------------ jobs


@pytest.fixture
def small_graphs(monkeypatch):
    """Every data set is a small graph of five splits; PubMed is missing."""
    small = load_graph("csbm:n=60,features=4")
    small = small.with_splits([stratified_split(small.y, 0.5, 0.25, seed=seed) for seed in range(5)])

    def load(dataset, split, root):
        if dataset == "pubmed":
            raise InputError("8 of 8 files are missing")
        return small

    monkeypatch.setattr("gpatcher.bench.plan.load_source", load)


def test_jobs_of_generated_graphs():
    jobs, notes = plan_jobs("csbm_sweep", datasets=["phi=-0.9", "phi=0.5"], rows=["gcn", "fast"], splits="0,2")
    assert notes == []
    assert [(j.dataset.split(",")[0], j.row, j.split, j.seed) for j in jobs] == [
        (f"csbm:phi={phi}", row, k, k) for phi in (-0.9, 0.5) for row in ("gcn", "fast") for k in (0, 2)
    ]
    assert {j.task for j in jobs} == {"train"}
    assert jobs[0].settings == PROTOCOL
    assert jobs[2].settings == resolve_settings("fast", preset="default")[0]
    assert len(plan_jobs("csbm_sweep", datasets=["phi=0.5"], rows=["gcn"], splits="all")[0]) == 5
    a, b = (load_source("csbm:phi=0.5,n=60,features=4", k, None) for k in (0, 1))
    assert a.content_hash != b.content_hash


def test_signs_of_phi_are_those_of_the_graphs():
    """Heterophily falls as φ rises."""
    levels = [heterophily(load_graph(d)).node_heterophily for d in load_experiment("csbm_sweep").datasets]
    assert levels == sorted(levels, reverse=True)


@pytest.mark.parametrize("splits", ["x", "-1", "", "0,-2"])
@pytest.mark.parametrize("name", ["csbm_sweep", "table1"])
def test_wrong_splits_are_an_error(small_graphs, name, splits):
    """Not a note for each data set, after which nothing is run."""
    with pytest.raises(InputError, match=f"splits must be.*{splits!r}"):
        plan_jobs(name, splits=splits)


def test_splits_that_a_data_set_lacks_are_an_error(small_graphs):
    with pytest.raises(InputError, match="no split 7; its splits are 0 to 4"):
        plan_jobs("table1", rows=["mlp"], splits="0,7")


def test_jobs_of_a_data_set(small_graphs):
    jobs, _ = plan_jobs("table1", datasets=["texas"], rows=["mlp", "gcn"], seed=3)
    assert [(j.row, j.split, j.seed) for j in jobs] == [(row, k, 3 + k) for row in ("mlp", "gcn") for k in range(5)]
    assert len({j.id for j in jobs}) == 10
    [job] = plan_jobs("statistics", datasets=["texas"])[0]
    assert (job.task, job.split, job.settings) == ("statistics", 0, {})
    [job] = plan_jobs("runtime", datasets=["n=10"], rows=["p=8"])[0]
    assert (job.task, job.settings, job.dataset) == ("runtime", {"patches.size": 8}, "n=10")


def test_ablations_of_rows(small_graphs):
    jobs, _ = plan_jobs("order", datasets=["cora"], splits="0")
    ranked, shuffled = jobs
    assert ranked.settings == shuffled.settings == resolve_settings("gpatcher", preset="paper")[0]
    assert (ranked.ablation, shuffled.ablation) == ({}, {"shuffle_patches": True})
    gcn, _, own = plan_jobs("induced", datasets=["cora"], splits="0")[0]
    # the graph depends on GPatcher's settings for the data set, and so does the job
    assert gcn.ablation == {"induced": own.settings}
    assert own.ablation == {}
    other = {"cora": {"gpatcher": {"settings": {"train": {"lr": 0.5}}, "trials": 3}}}
    again = plan_jobs("induced", datasets=["cora"], splits="0", shipped=other)[0][0]
    assert again.ablation["induced"]["train"]["lr"] == 0.5
    assert again.id != gcn.id


def test_rows_change_the_settings_of_the_data_set(small_graphs):
    base, _ = resolve_settings("gpatcher", "texas")
    for job in plan_jobs("sensitivity", datasets=["texas"], splits="0")[0]:
        size, filters = (int(part.partition("=")[2]) for part in job.row.split())
        assert job.settings == {**base, "patches": {**base["patches"], "size": size, "K": filters}}
    names = [job.settings["patches"]["name"] for job in plan_jobs("extractors", datasets=["cora"], splits="0")[0]]
    assert names == ["heterophily-aware", "polynomial", "shared", "heat", "bandpass", "ppr"]


def test_unknown_rows_and_data_sets():
    with pytest.raises(InputError, match="model 'nonsense'; choose from mlp"):
        plan_jobs("csbm_sweep", rows=["nonsense"])
    with pytest.raises(InputError, match="data set 'cora'; choose from csbm"):
        plan_jobs("csbm_sweep", datasets=["cora"])
    assert select(None, ["a", "b"], "x") == ["a", "b"]
    assert select([" B "], ["a", "b"], "x") == ["b"]
    assert select(["b", "a"], ["a", "b", "c"], "x") == ["a", "b"]
    with pytest.raises(InputError, match="x ''"):
        select([""], ["a", "csbm"], "x")


def test_a_data_set_that_cannot_be_loaded_is_left_out_with_the_reason(small_graphs):
    jobs, notes = plan_jobs("table1", rows=["mlp"], splits="0")
    assert notes == ["pubmed is not run: 8 of 8 files are missing"]
    assert {j.dataset for j in jobs} == set(PAPER_DATASETS) - {"pubmed"}
    with pytest.raises(InputError, match="8 of 8"):
        plan_jobs("table1", datasets=["pubmed"])


def test_tuned_settings_come_first(small_graphs):
    shipped = {
        "texas": {
            "gcn": {"settings": {"train": {"lr": 0.5}}, "trials": 7},
            "fast": {"settings": {"model": {"hidden": 3}}, "trials": 7},
        }
    }

    def planned(row, dataset="texas", **more):
        [job] = plan_jobs("table1", datasets=[dataset], rows=[row], splits="0", **more)[0]
        return job.settings, job.trials

    gcn, trials = planned("gcn", shipped=shipped)
    assert (gcn, trials) == ({**PROTOCOL, "train": {**PROTOCOL["train"], "lr": 0.5}}, 7)
    assert planned("gcn", "cora", shipped=shipped) == (PROTOCOL, None)
    fast, trials = planned("fast", shipped=shipped)
    assert (fast["model"]["hidden"], fast["patches"]["name"], fast["train"]["ema_decay"], trials) == (3, "ppr", 0.0, 7)
    # by default what ships with the package
    assert planned("fast") == resolve_settings("fast", "texas")
    assert planned("fast")[1] == 20


def test_a_row_may_have_a_preset_of_its_own(small_graphs, monkeypatch):
    rows = {"plain": Row("gpatcher", preset="paper"), "own": Row("gpatcher", {"train.lr": 0.25})}
    experiment = Experiment("Title", "Description.", ("texas",), rows)
    monkeypatch.setattr("gpatcher.bench.plan.load_experiment", lambda _: experiment)
    plain, own = plan_jobs("x", splits="0")[0]
    assert (plain.settings["model"]["readout"], plain.trials) == (["mixer"], None)
    assert own.settings["train"]["lr"] == 0.25
    assert own.trials == resolve_settings("gpatcher", "texas")[1]


def test_one_file_adds_a_model(tmp_path):
    """The class of the how-to page, as a file of a copy of the package: the bench runs it, the report shows it."""
    package = Path(gpatcher.__file__).parent
    shutil.copytree(package, tmp_path / "gpatcher")  # what is compiled too
    page = (package.parents[1] / "docs/how-to/new-model.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "gpatcher/baselines/spread.py").write_text(code)
    bench = ["bench", "csbm_sweep", "--datasets", "phi=0.5", "--models", "spread", "--splits", "0", "--out", "run"]
    both = f"""
import sys
from gpatcher.cli import main
for arguments in ({bench}, ["report", "run", "--markdown", "run.md"]):
    sys.argv = ["gpatcher", *arguments]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, ended.code
"""
    done = subprocess.run(
        [sys.executable, "-c", both],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "| spread | " in (tmp_path / "run.md").read_text()
    [spread] = [r for r in read_records(tmp_path / "run/records.jsonl") if r["row"] == "spread"]
    assert spread["error"] is None
    assert spread["test"] > 0.5


def test_titles_of_data_sets_and_rows():
    titles = {"chameleon-filtered": "Chameleon-filtered", "csbm:phi=-0.9,n=1000": "φ = -0.9", "n=100": "n = 100"}
    titles |= {"component:texas": "Texas", "neighbour_sum:n=1000": "neighbour sum"}
    assert {name: dataset_title(name) for name in titles} == titles
    rows = {"jknet": "GCN-JKNet", "p=8 k=10": "p = 8, K = 10", "shuffled": "shuffled"}
    assert {name: row_title(name) for name in rows} == rows
