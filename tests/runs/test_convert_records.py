"""Conversion of records of version 1: settings, ids of jobs, what is kept."""

import json
import runpy
from pathlib import Path

import pytest

from gpatcher.bench.jobs import Ledger, pending
from gpatcher.bench.plan import plan_jobs
from gpatcher.bench.tuning import Search, _logged
from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.runs.records import RECORD_VERSION, append_record, read_records, settings_hash
from gpatcher.runs.run import Job, run_job
from gpatcher.runs.settings import PAPER, complete, resolve_settings

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools/convert_records.py"))
convert = TOOL["convert"]

# real records of version 1, one for each form of configuration
OLD = json.loads("""[
{"job": "42ed0a5d575015fd", "preset": "table1", "dataset": "texas", "row": "gcn", "model": "gcn", "split": 0, "seed":
0, "tuned": 20, "error": null, "graph": "dd8323bafd0174ab", "metric": "accuracy", "val": 0.6610169491525424, "test":
0.6756756756756757, "val_accuracy": 0.6610169491525424, "test_accuracy": 0.6756756756756757, "epochs": 500,
"best_epoch": 451, "train_seconds": 2.775, "extract_seconds": 0.0, "split_hash": "f685e222806b1daf", "split_sizes":
[87, 59, 37], "leaky": false, "node_heterophily": 0.9127, "seconds": 2.891, "peak_rss_mb": 580.8, "config_hash":
"84e784da", "config": {"hidden": 64, "dropout": 0.5, "normalise": "l1", "lr": 0.003, "weight_decay": 0.0005, "epochs":
500, "patience": 50, "stop": "loss", "layers": 2}, "versions": {"python": "3.11.7", "gpatcher": "0.1.0", "torch":
"2.13.0+cpu", "torch_geometric": "2.8.1", "numpy": "2.4.6", "scipy": "1.17.1"}},

{"job": "58e2a6ae3a999341", "preset": "dial", "dataset": "csbm:phi=0.5,n=1000,features=100,degree=8", "row": "fast",
"model": "fast", "split": 0, "seed": 0, "tuned": null, "error": null, "graph": "f2295c0fd2484a0f", "metric":
"accuracy", "val": 0.935, "test": 0.915, "val_accuracy": 0.935, "test_accuracy": 0.915, "epochs": 250, "best_epoch":
200, "train_seconds": 11.171, "extract_seconds": 0.059, "split_hash": "a1656d8b2f2e0b66", "split_sizes": [600, 200,
200], "leaky": false, "node_heterophily": 0.2403, "seconds": 11.297, "peak_rss_mb": 711.8, "config_hash": "c8147232",
"config": {"average": 0.0, "batch_size": null, "c": 0.5, "candidates": 4, "class_weights": false, "dropout": 0.5,
"ego_gate": 1.0, "epochs": 500, "eps": 1e-05, "extractor": "ppr", "filter_lr": 1.0, "filters": 10, "head_layers": 1,
"hidden": 64, "input_dropout": 0.5, "layers": 2, "lr": 0.005, "mass": false, "mean_ego": false, "mixer_gate": 1.0,
"mixer_hidden": 16, "normalise": "none", "patch_size": 16, "paths": ["ego", "mean", "mixer"], "patience": 50,
"renew_every": 10, "self_loops": false, "sigma": "none", "skip": false, "stop": "loss", "structure": false,
"weight_decay": 0.0005}, "versions": {"python": "3.11.7", "gpatcher": "0.1.0", "torch": "2.13.0+cpu",
"torch_geometric": "2.8.1", "numpy": "2.4.6", "scipy": "1.17.1"}},

{"job": "662a5ff6a0a33767", "preset": "order", "dataset": "cora", "row": "shuffled", "model": "gpatcher", "split": 0,
"seed": 0, "tuned": null, "error": null, "graph": "038ab9dd3db853ea", "metric": "accuracy", "val": 0.688, "test":
0.717, "val_accuracy": 0.688, "test_accuracy": 0.717, "epochs": 95, "best_epoch": 45, "train_seconds": 9.186,
"extract_seconds": 9.267, "split_hash": "76754223cac0aa34", "split_sizes": [140, 500, 1000], "leaky": false,
"node_heterophily": 0.1748, "response": [0.0945, 0.7216, 0.6776, 0.3665, 0.088, -0.1218, 0.0037, 0.0713, 0.0394,
0.0261, 0.1619, 0.3603, 0.4553, 0.3523, 0.4283, 0.2237, 0.1362, 0.1773, 0.0257, 0.066, 0.1896, 0.4139, 0.7326, 0.7296,
0.4115, 0.2903, 0.4467, 0.376, 0.4262, 0.466, 0.4548, 0.3672, 0.3503, 0.6089, 0.9605, 1.2503, 1.261, 1.3106, 1.5038,
1.8202, 2.1784], "seconds": 9.424, "peak_rss_mb": 824.7, "config_hash": "42029b3b", "config": {"average": 0.0,
"batch_size": null, "c": 0.5, "candidates": 4, "class_weights": false, "dropout": 0.5, "ego_gate": 1.0, "epochs": 500,
"eps": 1e-05, "extractor": "heterophily-aware", "filter_lr": 1.0, "filters": 10, "head_layers": 2, "hidden": 64,
"input_dropout": 0.0, "layers": 2, "lr": 0.005, "mass": false, "mean_ego": false, "mixer_gate": 1.0, "mixer_hidden":
null, "normalise": "standard", "patch_size": 32, "paths": ["mixer"], "patience": 50, "renew_every": 10, "self_loops":
false, "sigma": "none", "skip": false, "stop": "loss", "structure": false, "weight_decay": 0.0005, "patch_order":
"shuffled"}, "versions": {"python": "3.11.7", "gpatcher": "0.1.0", "torch": "2.13.0+cpu", "torch_geometric": "2.8.1",
"numpy": "2.4.6", "scipy": "1.17.1"}},

{"job": "874a42b4121ee96f", "preset": "induced", "dataset": "cora", "row": "gcn", "model": "gcn", "split": 0, "seed":
1, "tuned": 10, "error": null, "graph": "038ab9dd3db853ea", "metric": "accuracy", "val": 0.762, "test": 0.771,
"val_accuracy": 0.762, "test_accuracy": 0.771, "epochs": 297, "best_epoch": 247, "train_seconds": 15.795,
"extract_seconds": 0.0, "split_hash": "76754223cac0aa34", "split_sizes": [140, 500, 1000], "leaky": false,
"node_heterophily": 0.1748, "seconds": 42.499, "peak_rss_mb": 942.1, "config_hash": "052cae21", "config": {"hidden":
64, "dropout": 0.5, "normalise": "l1", "lr": 0.01, "weight_decay": 0.0005, "epochs": 500, "patience": 50, "stop":
"loss", "layers": 2, "induced": {"average": 0.0, "batch_size": null, "c": 0.9, "candidates": 4, "class_weights":
false, "dropout": 0.5, "ego_gate": 0.1, "epochs": 500, "eps": 1e-05, "extractor": "heterophily-aware", "filter_lr":
0.003, "filters": 10, "head_layers": 1, "hidden": 64, "input_dropout": 0.5, "layers": 2, "lr": 0.01, "mass": false,
"mean_ego": true, "mixer_gate": 1.0, "mixer_hidden": 16, "normalise": "l1", "patch_size": 64, "paths": ["ego",
"mean"], "patience": 50, "renew_every": 10, "self_loops": true, "sigma": "none", "skip": false, "stop": "loss",
"structure": false, "weight_decay": 0.0005}}, "versions": {"python": "3.11.7", "gpatcher": "0.1.0", "torch":
"2.13.0+cpu", "torch_geometric": "2.8.1", "numpy": "2.4.6", "scipy": "1.17.1"}},

{"job": "dd44afbdc0ba7a5a", "preset": "runtime", "dataset": "n=10", "row": "p=8", "model": "mixer", "split": 0,
"seed": 0, "tuned": null, "error": null, "nodes": 10, "mixer_seconds": 0.0005950210033915937, "seconds": 0.131,
"peak_rss_mb": 531.5, "config_hash": "e66f7706", "config": {"p": 8}, "versions": {"python": "3.11.7", "gpatcher":
"0.1.0", "torch": "2.13.0+cpu", "torch_geometric": "2.8.1", "numpy": "2.4.6", "scipy": "1.17.1"}}
]""")
TRAINED = [old for old in OLD if "val" in old]


@pytest.fixture
def converted(tmp_path):
    """The records after conversion, by experiment."""
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(old) + "\n" for old in OLD))
    with pytest.raises(InputError, match=r"version 1, this gpatcher reads 2; convert.*tools/convert_records\.py"):
        read_records(path)
    assert convert(path) == len(OLD)
    return {record["experiment"]: record for record in read_records(path)}


def test_the_jobs_are_those_that_are_planned_now(converted, tmp_path, monkeypatch):
    """What is on record is not run again."""
    monkeypatch.setattr("gpatcher.bench.plan.load_source", lambda *_: csbm(n=60, features=4))
    for name, record in converted.items():
        argument = record["dataset"].partition(":")[2].partition(",")[0] or record["dataset"]
        jobs, _ = plan_jobs(name, datasets=[argument], rows=[record["row"]], splits="0,1")
        job = next(job for job in jobs if (job.split, job.seed) == (record["split"], record["seed"]))
        assert record["job"] == job.id
        assert record["settings"] == job.settings
        assert record["settings_hash"] == settings_hash(job.settings)
        assert record["trials"] == job.trials
        assert Ledger(tmp_path).is_done(job.id)
        assert (job, 0) not in pending(jobs, tmp_path)


def test_settings_of_each_form(converted):
    assert converted["table1"]["settings"] == resolve_settings("gcn", "texas")[0]
    assert converted["csbm_sweep"]["settings"] == resolve_settings("fast", preset="default")[0]
    assert converted["order"]["settings"] == complete(PAPER, "gpatcher")
    assert converted["order"]["ablation"] == {"shuffle_patches": True}
    assert converted["induced"]["ablation"]["induced"]["patches"]["size"] == 64
    assert "induced" not in converted["induced"]["settings"]["model"]
    assert converted["runtime"]["settings"] == {"patches.size": 8}


def test_figures_are_kept(converted):
    renamed = {"job", "preset", "tuned", "config", "config_hash"}
    for old, record in zip(OLD, converted.values(), strict=True):
        assert {name: record[name] for name in old if name not in renamed} == {
            name: value for name, value in old.items() if name not in renamed
        }
        assert record["version"] == RECORD_VERSION
        assert not renamed - {"job"} & set(record)


def test_fields_are_those_of_a_new_record(converted):
    graph = csbm(phi=0.5, n=60, features=4)
    new = run_job(Job("fit", "csbm", "mlp", {"model": {"hidden": 4}, "train": {"epochs": 2}}, 0, 0), graph).record
    for old in TRAINED:
        record = converted[TOOL["EXPERIMENTS"].get(old["preset"], old["preset"])]
        assert set(record) == set(new)
        assert record["memory"] is None
    assert "memory" not in converted["runtime"]


def test_conversion_is_idempotent_and_keeps_cut_lines(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(OLD[0]) + "\n" + '{"job": "a", "er cut short\n' + json.dumps(OLD[1]) + "\n")
    assert convert(path) == 2
    once = path.read_text()
    assert len(read_records(path)) == 2
    assert convert(path) == 0
    assert path.read_text() == once


def test_a_record_of_version_2_gets_the_fields_that_it_lacks(converted, tmp_path):
    path = tmp_path / "records.jsonl"
    record = {name: value for name, value in converted["table1"].items() if name != "memory"}
    path.write_text(json.dumps(record) + "\n")
    assert convert(path) == 1
    assert read_records(path) == [converted["table1"]]


def test_a_record_with_a_checksum_gets_a_new_one(converted, tmp_path):
    current = converted["csbm_sweep"]
    older = {name: value for name, value in current["settings"]["train"].items() if name != "consistency"}
    path = tmp_path / "sealed" / "records.jsonl"
    path.parent.mkdir()
    append_record(path, {**current, "settings": {**current["settings"], "train": older}})
    assert convert(path) == 1
    assert read_records(path) == [current]  # a damaged line would be left out


def test_records_of_fit_are_refused_with_a_way_out(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps({"dataset": "texas", "model": "fast", "config": {}, "split": 0, "seed": 0}) + "\n")
    with pytest.raises(InputError, match=r"gpatcher fit.*another --out"):
        convert(path)


def test_trials_continue_the_search_that_they_belong_to(tmp_path):
    """Only the latest search of a model has the space of today; an earlier one keeps its key."""
    about = {"model": "gpatcher", "dataset": "texas", "space": "broad", "splits": "0,1,2", "seed": 0, "trials": 20}
    drawn = {"lr": 0.005, "normalise": "none", "patch_size": 16, "paths": "ego,mean", "average": 0.0, "filters": 10}
    rest = {"error": None, "config": drawn | {"paths": ["ego", "mean"]}, "val": [0.8], "mean": 0.8}
    old = [{"search": key, **about, "number": 0, "drawn": drawn, **rest} for key in ("14f28fbd", "94f48bd6")]
    path = tmp_path / "trials.jsonl"
    path.write_text("".join(json.dumps(trial) + "\n" for trial in old))
    assert convert(path) == 2
    search = Search(**about)
    first, second = read_records(path)
    assert (first["search"], second["search"]) == ("14f28fbd", search.key)
    assert second["drawn"] == {
        "train.lr": 0.005,
        "features.normalise": "none",
        "patches.size": 16,
        "model.readout": "ego,mean",
        "train.ema_decay": 0.0,
        "patches.K": 10,
    }
    assert "config" not in second
    assert _logged(tmp_path, search) == [second]
    assert convert(path) == 0
