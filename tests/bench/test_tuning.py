"""Tuning: one budget, validation alone, a log that is the state."""

import json
from dataclasses import replace

import numpy as np
import pytest

import gpatcher.bench.tuning as tuning
from gpatcher.bench.plan import plan_jobs
from gpatcher.bench.tasks import load_split
from gpatcher.bench.tuning import (
    Search,
    best_settings,
    plan_searches,
    run_search,
    run_searches,
    search_space,
    starting_points,
    trial_settings,
    validate,
)
from gpatcher.errors import InputError
from gpatcher.runs.records import RECORD_VERSION, read_records
from gpatcher.runs.run import Cache, run_job
from gpatcher.runs.settings import MODELS, PATCHERS, parse_sources, read_settings, resolve_settings
from gpatcher.scale.executors import ProcessEngine

pytest.importorskip("optuna")
SOURCE = "csbm:phi=0.7,n=70,features=6"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A few epochs for every model."""
    monkeypatch.setattr(tuning, "run_job", quick_job)


def quick_job(job, *args, **more):
    train = {**job.settings["train"], "epochs": 2}
    return run_job(replace(job, settings={**job.settings, "train": train}), *args, **more)


def search(model="mlp", trials=7, **changes):
    return replace(Search(model, SOURCE, "broad", "0,1", 0, trials), **changes)


def flat(settings):
    return {f"{section}.{name}": value for section, values in settings.items() for name, value in values.items()}


def drawn(out):
    return [r["drawn"] for r in read_records(out / "trials.jsonl")]


def test_an_interrupted_search_continues_as_if_it_were_not(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
    assert "of 7" in run_search(search(), whole, None)
    for trials in (2, 5, 7):
        run_search(search(trials=trials), cut, None)
    assert drawn(whole) == drawn(cut)
    assert best_settings(whole) == best_settings(cut)
    run_search(search(), cut, None)
    assert len(drawn(cut)) == 7  # nothing is run twice


def test_what_is_logged_and_what_is_chosen(tmp_path):
    run_search(search(trials=6), tmp_path, None)
    log = read_records(tmp_path / "trials.jsonl")
    assert {r["version"] for r in log} == {RECORD_VERSION}
    assert [r["number"] for r in log] == list(range(6))
    assert all(len(r["val"]) == 2 and r["mean"] == pytest.approx(np.mean(r["val"])) for r in log)
    space = search_space("broad", "mlp")
    assert all(r["drawn"][name] in values for r in log for name, values in space.items())
    # the first trial is the model as it is without tuning
    plain = flat(resolve_settings("mlp", preset="default")[0])
    assert all(log[0]["drawn"][name] == plain[name] for name in space if name in plain)
    best = best_settings(tmp_path)[SOURCE]["mlp"]
    top = max(log, key=lambda r: r["mean"])
    assert best["val"] == top["mean"]
    assert best["trials"] == 6
    assert best["settings"] == trial_settings("mlp", top["drawn"])
    assert (best["space"], best["splits"], best["seed"]) == ("broad", "0,1", 0)


@pytest.mark.parametrize("model", ["mlp", "fast"])
def test_test_labels_do_not_count(monkeypatch, model):
    graph, split = load_split(SOURCE, 0, None)
    plain = validate(search(model, splits="0"), {}, None, Cache())
    y = graph.y.copy()
    y[split.test] = 1 - y[split.test]
    monkeypatch.setattr(tuning, "load_split", lambda *_: (replace(graph, y=y), split))
    assert validate(search(model, splits="0"), {}, None, Cache()) == plain


def test_a_trial_is_validated_without_its_test_nodes(monkeypatch):
    seen = []

    def watched(job, graph, split, **more):
        seen.append((job, more["read_test"]))
        return quick_job(job, graph, split, **more)

    monkeypatch.setattr(tuning, "run_job", watched)
    assert len(validate(search(splits="0,2"), {"train.lr": 0.01}, None, Cache())) == 2
    assert [(job.experiment, job.split, job.seed, read) for job, read in seen] == [
        ("tune", 0, 0, False),
        ("tune", 2, 2, False),
    ]
    assert {job.settings["train"]["lr"] for job, _ in seen} == {0.01}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("space", ["paper", "broad"])
def test_every_value_of_a_space_is_a_setting(model, space):
    for name, values in search_space(space, model).items():
        for value in values:
            settings = trial_settings(model, {name: value})
            section, _, key = name.partition(".")
            if name == "patches":
                assert settings["patches"] == parse_sources(value)
            elif name in ("model.readout", "features.structure"):
                assert ",".join(settings[section][key]) == value
            else:
                assert settings[section][key] == value
    for start in starting_points(space, model):
        trial_settings(model, start)


def test_a_trial_differs_from_the_defaults_by_what_is_drawn():
    drawn = {"train.lr": 0.01, "patches.size": 8, "model.readout": "ego,mean", "features.log_l1_norm": True}
    default = resolve_settings("gpatcher", preset="default")[0]
    settings = trial_settings("gpatcher", drawn)
    changed = {name for name, value in flat(settings).items() if flat(default)[name] != value}
    assert changed == set(drawn)


def test_starting_points_are_those_of_the_model():
    ours, fast = (starting_points("broad", model) for model in ("gpatcher", "fast"))
    assert len(ours) == len(fast) == len(tuning._PATCHER_STARTS)  # none falls out of the space
    assert [{k: v for k, v in start.items() if k != "train.filter_lr"} for start in ours] == fast
    assert any(start.get("train.filter_lr") == 0.003 for start in ours)
    assert starting_points("paper", "gpatcher") == [{}]


def test_another_space_is_another_search(tmp_path, monkeypatch):
    run_search(search(trials=1), tmp_path, None)
    monkeypatch.setattr(tuning, "_STARTS", [{"train.lr": 0.01}])
    assert "of 2" in run_search(search(trials=2), tmp_path, None)
    log = read_records(tmp_path / "trials.jsonl")
    assert [r["number"] for r in log] == [0, 0, 1]
    assert log[1]["drawn"]["train.lr"] == 0.01
    assert best_settings(tmp_path)[SOURCE]["mlp"]["trials"] == 2  # the latest search alone counts


def test_a_failed_trial_counts_and_is_reported(tmp_path, monkeypatch):
    def fail(*args, **more):
        raise InputError("the loss is not finite")

    monkeypatch.setattr(tuning, "run_job", fail)
    assert "all 6 trials failed: InputError: the loss is not finite" in run_search(search(trials=6), tmp_path, None)
    assert best_settings(tmp_path) == {}


def test_the_same_budget_for_every_model(tmp_path):
    searches, notes = plan_searches("csbm_sweep", trials=2, datasets=["phi=0.5"], models=["gcn", "fast", "gpatcher"])
    assert notes == []
    small = [replace(s, dataset=SOURCE, splits="0") for s in searches]
    outcomes = dict(run_searches(small, tmp_path, ProcessEngine(1)))
    assert set(outcomes) == set(small)
    tuned = read_settings(tmp_path)
    assert {model: entry["trials"] for model, entry in tuned[SOURCE].items()} == {"gcn": 2, "fast": 2, "gpatcher": 2}
    settings, trials = resolve_settings("gpatcher", SOURCE, shipped=tuned)
    assert trials == 2
    assert settings["patches"]["name"] == "heterophily-aware"
    assert isinstance(settings["model"]["readout"], list)
    json.dumps(settings)


def test_the_best_settings_are_what_a_bench_runs(tmp_path):
    """The file of ``gpatcher tune`` has the form of the shipped one."""
    dataset = plan_searches("csbm_sweep", trials=1, datasets=["phi=0.5"], models=["fast"])[0][0].dataset
    run_search(search("fast", trials=2, dataset=dataset, splits="0"), tmp_path, None)
    best = best_settings(tmp_path)
    [job] = plan_jobs("csbm_sweep", datasets=["phi=0.5"], rows=["fast"], splits="0", shipped=best)[0]
    assert job.settings == best[dataset]["fast"]["settings"]
    assert job.trials == 2
    assert set(job.settings) == {"patches", "features", "model", "train"}
    assert job.model in PATCHERS


def test_repeated_settings_are_not_trained_again(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "search_space", lambda *_: {"train.lr": [0.005, 0.01]})
    count = []
    monkeypatch.setattr(tuning, "run_job", lambda *args, **more: count.append(args) or quick_job(*args, **more))
    run_search(search(splits="0", trials=6), tmp_path, None)
    assert len(count) <= 2
    log = read_records(tmp_path / "trials.jsonl")
    assert len(log) == 6
    assert log[-1]["repeats"] < 2


def test_targets():
    [found], _ = plan_searches("gcn/" + SOURCE, trials=3)
    assert (found.model, found.dataset, found.trials) == ("gcn", SOURCE, 3)
    for target, message in (("nonsense", "neither MODEL/DATASET"), ("x/texas", "model 'x'"), ("gcn/x", "'x'")):
        with pytest.raises(InputError, match=message):
            plan_searches(target, trials=3)
    with pytest.raises(InputError, match="trials must be at least 1, got 0"):
        plan_searches("gcn/" + SOURCE, trials=0)


@pytest.mark.parametrize("splits", ["x", "-1", ""])
def test_wrong_splits(splits):
    for target in ("gcn/" + SOURCE, "csbm_sweep"):
        with pytest.raises(InputError, match=f"splits must be.*{splits!r}"):
            plan_searches(target, trials=1, splits=splits)


def test_splits_that_a_data_set_lacks():
    """Of a generator every split is another graph, so it has them all; a graph that is drawn has ten seeds."""
    assert len(plan_searches("gcn/" + SOURCE, trials=1, splits="70")[0]) == 1
    with pytest.raises(InputError, match="no split 70"):
        plan_searches(f"gcn/{SOURCE},seed=1", trials=1, splits="70")


def test_a_data_set_that_cannot_be_loaded_is_left_out_with_the_reason(monkeypatch):
    graph, _ = load_split(SOURCE, 0, None)

    def load(dataset, split, root):
        if dataset == "tolokers":
            raise InputError("the files are missing")
        return graph

    monkeypatch.setattr(tuning, "load_source", load)
    searches, notes = plan_searches("leak_free", trials=1, models=["mlp"])
    assert notes == ["tolokers is not tuned: the files are missing"]
    assert [one.dataset for one in searches] == ["chameleon-filtered", "squirrel-filtered", "minesweeper"]
    with pytest.raises(InputError, match="files are missing"):
        plan_searches("leak_free", trials=1, datasets=["tolokers"])
    with pytest.raises(InputError, match="no split 12"):
        plan_searches("leak_free", trials=1, splits="12")
