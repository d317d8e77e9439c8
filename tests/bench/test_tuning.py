"""Tuning: one budget, validation alone, a log that is the state."""

import json
from dataclasses import replace

import numpy as np
import pytest
from gpatcher.runs.models import Kept, settings

import gpatcher.bench.jobs as jobs
from gpatcher.bench.plan import read_tuned
from gpatcher.bench.tuning import (
    Search,
    best_of,
    plan_searches,
    run_search,
    run_searches,
    search_space,
    starting_points,
    validate,
)
from gpatcher.errors import InputError
from gpatcher.runs.records import read_records
from gpatcher.scale.executors import ProcessEngine

pytest.importorskip("optuna")
SOURCE = "csbm:phi=0.7,n=70,features=6"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A few epochs for every model."""
    monkeypatch.setattr("gpatcher.runs.models.train_model", quick_training)


def quick_training(name, graph, split, seed, config, **more):
    return jobs.train_model(name, graph, split, seed, {**config, "epochs": 2}, **more)


def search(model="mlp", trials=7, **changes):
    return replace(Search(model, SOURCE, "broad", "0,1", 0, trials), **changes)


def drawn(out):
    return [r["drawn"] for r in read_records(out / "trials.jsonl")]


def test_a_search_cut_short_goes_on_as_if_it_were_not(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
    assert "of 7" in run_search(search(), whole, None)
    for trials in (2, 5, 7):
        run_search(search(trials=trials), cut, None)
    assert drawn(whole) == drawn(cut)
    assert best_of(whole) == best_of(cut)
    run_search(search(), cut, None)
    assert len(drawn(cut)) == 7  # nothing is run twice


def test_what_is_logged_and_what_is_chosen(tmp_path):
    run_search(search(trials=6), tmp_path, None)
    log = read_records(tmp_path / "trials.jsonl")
    assert [r["number"] for r in log] == list(range(6))
    assert all(len(r["val"]) == 2 and r["mean"] == pytest.approx(np.mean(r["val"])) for r in log)
    space = search_space("broad", "mlp")
    assert all(r["drawn"][name] in values for r in log for name, values in space.items())
    # the first trial is the model as it is without tuning
    plain, _ = settings("mlp", SOURCE, {})
    assert all(log[0]["drawn"][name] == plain[name] for name in space if name in plain)
    best = best_of(tmp_path)[SOURCE]["mlp"]
    assert best["val"] == max(r["mean"] for r in log)
    assert best["trials"] == 6


def test_test_labels_do_not_count(monkeypatch):
    graph = jobs.load_kept(SOURCE, 0, None)
    plain = validate(search(splits="0"), {}, None, Kept())
    y = graph.y.copy()
    y[graph.splits[0].test] = 0
    monkeypatch.setattr("gpatcher.bench.jobs.load_kept", lambda *_: replace(graph, y=y))
    assert validate(search(splits="0"), {}, None, Kept()) == plain


def test_starting_points_are_those_of_the_model():
    ours, fast = (starting_points("broad", model) for model in ("gpatcher", "fast"))
    assert len(ours) == len(fast)  # none falls out of the space
    assert [{k: v for k, v in start.items() if k != "filter_lr"} for start in ours] == fast
    assert any(start.get("filter_lr") == 0.003 for start in ours)
    assert starting_points("paper", "gpatcher") == [{}]


def test_another_space_is_another_search(tmp_path, monkeypatch):
    run_search(search(trials=1), tmp_path, None)
    monkeypatch.setattr("gpatcher.bench.tuning._STARTS", [{"lr": 0.01}])
    assert "of 2" in run_search(search(trials=2), tmp_path, None)
    log = read_records(tmp_path / "trials.jsonl")
    assert [r["number"] for r in log] == [0, 0, 1]
    assert log[1]["drawn"]["lr"] == 0.01
    assert best_of(tmp_path)[SOURCE]["mlp"]["trials"] == 2  # the latest search alone counts


def test_a_failed_trial_counts_and_is_told(tmp_path, monkeypatch):
    def fail(*args, **more):
        raise InputError("the loss is not finite")

    monkeypatch.setattr("gpatcher.runs.models.train_model", fail)
    assert "all 6 trials failed: InputError: the loss is not finite" in run_search(search(trials=6), tmp_path, None)
    assert best_of(tmp_path) == {}


def test_the_same_budget_for_every_model(tmp_path):
    searches, notes = plan_searches("dial", trials=2, datasets=["phi=0.5"], models=["gcn", "fast", "gpatcher"])
    assert notes == []
    small = [replace(s, dataset=SOURCE, splits="0") for s in searches]
    outcomes = dict(run_searches(small, tmp_path, ProcessEngine(1)))
    assert set(outcomes) == set(small)
    tuned = read_tuned(tmp_path)[SOURCE]
    assert {model: entry["trials"] for model, entry in tuned.items()} == {"gcn": 2, "fast": 2, "gpatcher": 2}
    config, trials = settings("gpatcher", SOURCE, {SOURCE: tuned})
    assert trials == 2
    assert config["extractor"] == "heterophily-aware"
    assert isinstance(config["paths"], list)
    json.dumps(config)


def test_a_repeated_configuration_is_not_trained_again(tmp_path, monkeypatch):
    monkeypatch.setattr("gpatcher.bench.tuning.search_space", lambda *_: {"lr": [0.005, 0.01]})
    count = []
    monkeypatch.setattr("gpatcher.runs.models.train_model", lambda *a, **k: count.append(a) or quick_training(*a, **k))
    run_search(search(splits="0", trials=6), tmp_path, None)
    assert len(count) <= 2
    log = read_records(tmp_path / "trials.jsonl")
    assert len(log) == 6
    assert log[-1]["repeats"] < 2


def test_targets():
    [found], _ = plan_searches("gcn/" + SOURCE, trials=3)
    assert (found.model, found.dataset, found.trials) == ("gcn", SOURCE, 3)
    for target, message in (("nonsense", "neither MODEL/DATASET"), ("x/texas", "no model 'x'"), ("gcn/x", "neither")):
        with pytest.raises(InputError, match=message):
            plan_searches(target, trials=3)
    with pytest.raises(InputError, match="trials must be at least 1"):
        plan_searches("gcn/" + SOURCE, trials=0)
    with pytest.raises(InputError, match="no split 70"):
        plan_searches("gcn/" + SOURCE, trials=1, splits="70")
