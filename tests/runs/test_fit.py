"""What ``gpatcher fit`` does: what is recorded, what is skipped, what survives a kill, and predictions."""

import json
import os
import signal
import subprocess
import sysconfig
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError, InputWarning
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.ensemble import QUALITIES, Quality
from gpatcher.graph.split import plan_runs, stratified_split
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.io import locked
from gpatcher.report.run import write_run_page
from gpatcher.runs.fit import (
    SINGLE_BASELINES,
    FitOptions,
    FitProgress,
    _remove_checkpoints,
    fit_splits,
    train_baselines,
)
from gpatcher.runs.predict import prediction_columns
from gpatcher.runs.records import read_records
from gpatcher.runs.results import read_evaluation
from gpatcher.runs.run import Job, run_job
from gpatcher.runs.settings import complete
from gpatcher.scale.executors import ProcessEngine

COMMAND = Path(sysconfig.get_path("scripts")) / "gpatcher"
QUICK = {"patches": {"name": "ppr", "size": 4}, "model": {"hidden": 8, "mixer_hidden": 4}, "train": {"epochs": 12}}
LONGER = {**QUICK, "train": {"epochs": 40}}


class Seen(FitProgress):
    """Keeps what it is shown; ``stop_at`` interrupts at an epoch."""

    def __init__(self, stop_at=None):
        self.epochs, self.stages, self.stop_at = [], [], stop_at

    def epoch(self, run, runs, epoch, epochs, figures):
        self.epochs.append((run, runs, epoch, epochs))
        if epoch == self.stop_at:
            raise Interrupt

    def stage(self, description):
        self.stages.append(description)


class Interrupt(Exception):  # noqa: N818
    pass


def run_splits(graph, model, settings, out, *, progress=None, before_saving=None, **options):
    return fit_splits(
        graph, model, settings, out, FitOptions(**options), progress=progress, before_saving=before_saving
    )


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.5, n=80, features=6)


@pytest.fixture(scope="module")
def several(graph):
    return graph.with_splits([stratified_split(graph.y, 0.5, 0.25, seed=s) for s in range(3)])


def figures(record):
    """Return what must not depend on when or how a run was made."""
    return {k: record[k] for k in ("split", "seed", "val_accuracy", "test_accuracy", "epochs", "best_epoch")}


# ----------------------------------------------------------------------------------------------- planning


def test_plan_of_several_splits(several):
    assert plan_runs(several, "all", 5) == [(0, 5), (1, 6), (2, 7)]
    assert plan_runs(several, "2,0", 5) == [(2, 7), (0, 5)]
    with pytest.raises(InputError, match="csbm has no split 3; its splits are 0 to 2"):
        plan_runs(several, "3", 0)


@pytest.mark.parametrize("with_split", [True, False])
def test_plan_of_one_split_takes_ten_seeds(graph, with_split):
    one = graph if with_split else graph.with_splits([])
    assert plan_runs(one, " all ", 5) == [(0, 5 + k) for k in range(10)]
    assert plan_runs(one, "0,3", 0) == [(0, 0), (0, 3)]
    with pytest.raises(InputError, match="no split 10"):
        plan_runs(one, "10", 0)


@pytest.mark.parametrize("text", ["", "x", "1;2", "-1", "0,-2"])
def test_a_wrong_plan(several, text):
    with pytest.raises(InputError, match="split"):
        plan_runs(several, text, 0)


# ------------------------------------------------------------------------------------------------ records


def test_what_is_recorded(several, tmp_path):
    seen = Seen()
    done = run_splits(several, "fast", QUICK, tmp_path / "run", splits="0,2", seed=4, progress=seen)
    assert read_records(tmp_path / "run" / "records.jsonl") == json.loads(json.dumps(done))
    assert [(r["split"], r["seed"]) for r in done] == [(0, 4), (2, 6)]
    for record in done:
        split = several.splits[record["split"]]
        assert record["split_hash"] == split.hash
        assert (record["experiment"], record["dataset"], record["model"]) == ("fit", "csbm", "fast")
        assert record["extractors"] == ["ppr"]
        settings = record["settings"]
        assert settings == complete(QUICK, "fast")
        assert (settings["patches"]["size"], settings["train"]["epochs"], settings["train"]["lr"]) == (4, 12, 0.005)
        assert not {"seed", "device", "memory"} & {name for part in settings.values() for name in part}
        assert record["seconds"] > 0
        assert record["extract_seconds"] >= 0
        assert record["peak_rss_mb"] > 10
        assert record["directed"] is False
        assert "torch" in record["versions"]
        # the very figures of the estimator by itself
        alone = GPatcherClassifier.from_settings(QUICK, seed=record["seed"]).fit(several, record["split"])
        assert record["test_accuracy"] == alone.result_.test_accuracy
        assert record["val_accuracy"] == alone.result_.val_accuracy
        assert (record["epochs"], record["best_epoch"]) == (alone.result_.epochs, alone.result_.best_epoch)
    assert seen.epochs[0] == (1, 2, 1, 12)
    assert seen.epochs[-1] == (2, 2, done[1]["epochs"], 12)
    assert seen.stages == [
        "predicting",
        "training baselines for comparison",
        "training baselines for comparison: 1 of 2 done",
        "training baselines for comparison: 2 of 2 done",
        "evaluating",
    ]


def test_the_record_is_that_of_the_job_alone(several, tmp_path):
    [record] = run_splits(several, "fast", QUICK, tmp_path, splits="1", seed=2)
    job = Job("fit", "csbm", "fast", complete(QUICK, "fast"), 1, 3)
    alone = run_job(job, several).record
    assert record["job"] == job.id
    assert set(record) == set(alone)
    assert figures(record) == figures(alone)


def test_what_auto_chose_is_recorded(several, tmp_path):
    auto = {**QUICK, "patches": {"name": "auto", "size": 4}}
    done = run_splits(several, "gpatcher", auto, tmp_path, splits="0,1")
    for record in done:
        assert set(record["compared"]) == {"heterophily-aware", "ppr"}
        assert record["extractors"] == [min(record["compared"], key=record["compared"].get)]
        assert record["settings"]["patches"]["name"] == "auto"
    assert not list(tmp_path.glob("checkpoint*"))
    again = run_splits(several, "gpatcher", auto, tmp_path, splits="0,1", resume=True)
    assert again == json.loads(json.dumps(done))


def test_the_checkpoints_of_another_seed_stay(tmp_path):
    for name in ("c-0-1", "c-0-1-ppr", "c-0-1-heterophily-aware", "c-0-10", "c-0-10-ppr"):
        (tmp_path / f"{name}.safetensors").touch()
    _remove_checkpoints(tmp_path / "c-0-1.safetensors")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c-0-10-ppr.safetensors", "c-0-10.safetensors"]


def test_the_model_that_validated_best_is_kept(several, tmp_path):
    done = run_splits(several, "fast", QUICK, tmp_path, splits="all", source={"name": "here"})
    best = max(done, key=lambda r: r["val_accuracy"])
    kept = GPatcherClassifier.load(tmp_path, several)
    assert kept.seed == best["seed"]
    assert kept.split_.hash == best["split_hash"]
    assert kept.score() == best["test_accuracy"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        ".lock",
        "evaluation.json",
        "model.json",
        "model.safetensors",
        "predictions.parquet",
        "records.jsonl",
        "run.json",
    ]
    evaluation = read_evaluation(tmp_path)
    assert (evaluation.best_epoch, evaluation.accuracy) == (best["best_epoch"], best["test_accuracy"])
    assert len(evaluation.history) == best["epochs"]
    page = write_run_page(evaluation, tmp_path / "report.html").read_text()
    assert "how far to trust this model" in page
    assert f"epoch {best['best_epoch']} (dotted" in page
    assert f"Accuracy {best['test_accuracy']:.1%} on" in page
    assert json.loads((tmp_path / "model.json").read_text())["source"] == {"name": "here"}


def test_a_graph_without_splits_gets_one_per_seed(graph, tmp_path):
    bare = graph.with_splits([])
    done = run_splits(bare, "fast", QUICK, tmp_path, splits="0,1", seed=3)
    assert [(r["split"], r["seed"]) for r in done] == [(0, 3), (0, 4)]
    assert done[0]["split_hash"] != done[1]["split_hash"]


def test_unlabelled_test_nodes_leave_no_accuracy(graph, tmp_path):
    y = graph.y.copy()
    split = graph.splits[0]
    y[split.test] = -1
    with pytest.warns(UserWarning, match="cannot be scored"):
        hidden = replace(graph, y=y, splits=()).with_splits([split])
    assert run_splits(hidden, "fast", QUICK, tmp_path)[0]["test_accuracy"] is None


def test_unknown_settings_leave_nothing_behind(graph, tmp_path):
    for settings in ({"nonsense": {}}, {"train": {"nonsense": 1}}, {"patches": {"name": "nonsense"}}):
        with pytest.raises(InputError, match="nonsense"):
            run_splits(graph, "fast", settings, tmp_path / "run")
    with pytest.raises(InputError, match="one of gpatcher, fast, deep, auto, got 'gcn'"):
        run_splits(graph, "gcn", {}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_belongs_into_the_folder_is_written_before_the_first_model(several, tmp_path):
    """Until then an earlier run in it stays as it was."""
    states = []
    run_splits(
        several,
        "fast",
        QUICK,
        tmp_path,
        splits="all",
        before_saving=lambda folder: states.append((tmp_path / "model.json").exists()),
    )
    assert states == [False]
    run_splits(
        several, "fast", QUICK, tmp_path, splits="all", resume=True, before_saving=lambda folder: states.append(True)
    )
    assert states == [False]  # all runs were finished: no model is saved


def test_predictions_are_written_where_nodes_have_ids(graph, tmp_path):
    named = replace(graph, node_ids=np.array([f"n{v}" for v in range(80)]))
    seen = Seen()
    run_splits(named, "fast", QUICK, tmp_path, compare=False, progress=seen)
    table = pq.read_table(tmp_path / "predictions.parquet")
    assert table["id"].to_pylist() == named.node_ids.tolist()
    assert seen.stages == ["predicting", "evaluating"]


# ------------------------------------------------------------------------------------------------- resume


def test_finished_runs_are_skipped(several, tmp_path):
    first = run_splits(several, "fast", QUICK, tmp_path, splits="0,1")
    seen = Seen()
    again = run_splits(several, "fast", QUICK, tmp_path, splits="all", resume=True, progress=seen)
    assert {run for run, *_ in seen.epochs} == {3}
    assert again[:2] == json.loads(json.dumps(first))
    assert len(read_records(tmp_path / "records.jsonl")) == 3
    fresh = run_splits(several, "fast", QUICK, tmp_path / "fresh", splits="2")
    assert figures(again[2]) == figures(fresh[0])


def test_a_folder_is_one_run(several, tmp_path):
    """A second run into the same folder is refused, or replaces the first as a whole."""
    run_splits(several, "fast", QUICK, tmp_path / "run", splits="0,1")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(InputError, match=r"run already contains a run.*--out.*--resume.*--overwrite"):
        run_splits(several, "fast", QUICK, tmp_path / "run")
    with pytest.raises(InputError, match="pass one of them"):
        run_splits(several, "fast", QUICK, tmp_path / "run", resume=True, overwrite=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    seen = Seen()
    run_splits(several, "fast", QUICK, tmp_path / "run", overwrite=True, progress=seen)
    assert {run for run, *_ in seen.epochs} == {1}
    assert len(read_records(tmp_path / "run" / "records.jsonl")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_interrupted_overwrite_leaves_the_first_run(several, tmp_path):
    run_splits(several, "fast", QUICK, tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(Interrupt):
        run_splits(several, "fast", LONGER, tmp_path / "run", overwrite=True, progress=Seen(25))
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("change", "named"),
    [({"settings": {"train": {"epochs": 12, "lr": 0.1}}}, "settings"), ({"memory": 2 << 30}, "memory")],
)
def test_another_run_is_not_continued(several, tmp_path, change, named):
    """The memory decides on the size of a batch."""
    run_splits(several, "fast", QUICK, tmp_path)
    settings = {**QUICK, **change.get("settings", {})}
    with pytest.raises(InputError, match=f"its {named} was"):
        run_splits(several, "fast", settings, tmp_path, resume=True, memory=change.get("memory"))


def test_a_folder_with_something_else_is_refused(several, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for resume in (False, True):
        with pytest.raises(InputError, match=r"not empty and contains no run.*--overwrite"):
            run_splits(several, "fast", QUICK, tmp_path, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]  # and no lock


def test_two_processes_do_not_write_one_run(several, tmp_path):
    with locked(tmp_path), pytest.raises(InputError, match="another process writes into"):
        run_splits(several, "fast", QUICK, tmp_path)


@pytest.mark.parametrize("changed", ["graph", "splits", "labels", "features"])
def test_the_run_of_other_data_is_not_continued(several, tmp_path, changed):
    run_splits(several, "fast", QUICK, tmp_path)
    other = {
        "graph": lambda: csbm(phi=0.5, n=80, features=6, seed=1),
        "splits": lambda: several.with_splits([stratified_split(several.y, 0.5, 0.25, seed=s) for s in (7, 8, 9)]),
        "labels": lambda: replace(several, y=1 - several.y),
        "features": lambda: replace(several, x=several.x[:, ::-1].copy()),
    }[changed]()
    with pytest.raises(InputError, match="its graph was"):
        run_splits(other, "fast", QUICK, tmp_path, resume=True)


def interrupted(graph, folder, at=25, settings=LONGER):
    with pytest.raises(Interrupt):
        run_splits(graph, "fast", settings, folder, progress=Seen(at))


@pytest.mark.parametrize("extractor", ["ppr", "heterophily-aware"])
def test_an_interrupted_run_continues_where_it_was(graph, tmp_path, extractor):
    train = {"epochs": 40, "reselect_every": 3, "filter_lr": 10.0}
    settings = {**QUICK, "patches": {"name": extractor, "size": 4}, "train": train}
    whole = run_splits(graph, "fast", settings, tmp_path / "whole")
    interrupted(graph, tmp_path / "cut", settings=settings)
    assert len(list((tmp_path / "cut").glob("checkpoint-*"))) == 1
    seen = Seen()
    rest = run_splits(graph, "fast", settings, tmp_path / "cut", resume=True, progress=seen)
    assert seen.epochs[0] == (1, 1, 21, 40)
    assert figures(rest[0]) == figures(whole[0])
    one, two = (GPatcherClassifier.load(tmp_path / name, graph) for name in ("whole", "cut"))
    np.testing.assert_array_equal(one.predict_proba(), two.predict_proba())
    assert not list((tmp_path / "cut").glob("*checkpoint*"))


def test_a_kill_between_record_and_model_leaves_no_folder_without_a_model(graph, tmp_path, monkeypatch):
    """A run that is on record is never made again, so its model must be there by then."""

    def stop(self, folder, source=None):
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(GPatcherClassifier, "save", stop)
        with pytest.raises(Interrupt):
            run_splits(graph, "fast", QUICK, tmp_path)
    run_splits(graph, "fast", QUICK, tmp_path, resume=True)
    assert (tmp_path / "model.json").exists()
    assert GPatcherClassifier.load(tmp_path, graph).predict().shape == (80,)


def test_a_kill_before_the_evaluation_leaves_no_folder_without_one(graph, tmp_path):
    run_splits(graph, "fast", QUICK, tmp_path)
    (tmp_path / "evaluation.json").unlink()
    run_splits(graph, "fast", QUICK, tmp_path, resume=True)
    evaluation = read_evaluation(tmp_path)
    assert (evaluation.history, evaluation.best_epoch, evaluation.seconds) == ([], 0, None)  # of a loaded model
    page = write_run_page(evaluation, tmp_path / "report.html").read_text()
    assert "Learning curve" not in page


def test_baselines_are_trained_on_the_split_and_with_the_training_of_the_model(graph, tmp_path):
    run_splits(graph, "fast", QUICK, tmp_path)
    kept = GPatcherClassifier.load(tmp_path, graph)
    for result, saved in zip(train_baselines(kept, graph), read_evaluation(tmp_path).baselines, strict=True):
        training = {"features": {"normalise": "none"}, "model": {"hidden": 8}, "train": {"epochs": 12}}
        alone = run_job(Job("fit", "csbm", result.name.lower(), training, 0, 0), graph).record
        assert result.name == saved.name
        assert result.val == saved.val == alone["val_accuracy"]
        assert result.test == saved.test == alone["test_accuracy"]
        np.testing.assert_array_equal(result.predicted, saved.predicted)


def test_members_and_baselines_are_trained_by_the_same_processes(graph, tmp_path, monkeypatch):
    maps = []

    class Recorded(ProcessEngine):
        def map(self, function, items, shared=()):
            maps.append((self, function.__name__))
            yield from ProcessEngine().map(function, items, shared)

    monkeypatch.setattr("gpatcher.runs.fit.ProcessEngine", Recorded)
    monkeypatch.setattr("gpatcher.runs.fit.AUTO_BASELINES", SINGLE_BASELINES)
    monkeypatch.setitem(QUALITIES, "good", Quality(2, 1))
    run_splits(graph, "auto", {}, tmp_path, jobs=2, refit=True)
    assert [name for _, name in maps] == ["_train", "_train", "_train_one"]
    [engine] = {engine for engine, _ in maps}
    assert engine.processes == 2


def test_the_baselines_may_be_left_out(graph, tmp_path):
    run_splits(graph, "fast", QUICK, tmp_path, compare=False)
    evaluation = read_evaluation(tmp_path)
    assert evaluation.baselines == ()
    assert "Baselines were not trained (--no-compare)." in evaluation.notes
    assert "Against MLP and GCN" not in write_run_page(evaluation, tmp_path / "report.html").read_text()


def test_a_cut_record_is_made_again_and_kept(several, tmp_path):
    run_splits(several, "fast", QUICK, tmp_path, splits="0,1")
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(InputWarning, match=r"records\.jsonl: 1 line is damaged and left out: 2"):
        done = run_splits(several, "fast", QUICK, tmp_path, splits="all", resume=True)
    assert [r["split"] for r in done] == [0, 1, 2]
    assert sorted(r["split"] for r in read_records(path)) == [0, 1, 2]


def test_a_killed_command_continues_to_the_same_figures(tmp_path, command_in):
    """SIGKILL during training, then the same command again."""
    arguments = ["fit", "csbm:phi=-0.5,n=300,features=10", "--resume", "--set", "train.lr=0.0002"]
    arguments += ["--set", "patches.size=4", "--set", "train.epochs=150", "--no-compare"]
    variables = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads()), "COLUMNS": "160"}
    command = [COMMAND, *arguments, "--out", str(tmp_path / "cut")]
    running = subprocess.Popen(
        command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 120
        while not list((tmp_path / "cut").glob("checkpoint-*")):
            assert running.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.2)
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    assert running.returncode == -signal.SIGKILL
    assert read_records(tmp_path / "cut" / "records.jsonl") == []
    for folder in ("cut", "whole"):
        command_in(tmp_path, *arguments, "--out", folder)
    [cut], [whole] = (read_records(tmp_path / name / "records.jsonl") for name in ("cut", "whole"))
    assert figures(cut) == figures(whole)
    assert whole["epochs"] > 20


# ------------------------------------------------------------------------------------------------ tables


def test_columns_of_the_predictions(graph):
    named = replace(graph, classes=("ant", "bee"), node_ids=np.array([f"n{v}" for v in range(80)]))
    model = GPatcherClassifier.from_settings(QUICK).fit(named)
    columns = prediction_columns(model, named)
    probabilities = ["probability_ant", "probability_bee"]
    assert list(columns) == ["id", "predicted", *probabilities, "confidence", "label", "part"]
    assert columns["id"].tolist() == named.node_ids.tolist()
    np.testing.assert_array_equal(columns["predicted"], model.predict())
    both = np.stack([columns["probability_ant"], columns["probability_bee"]])
    np.testing.assert_allclose(both.sum(0), 1, atol=1e-5)
    np.testing.assert_array_equal(columns["confidence"], both.max(0))
    split = model.split_
    for part, members in (("train", split.train), ("validation", split.val), ("test", split.test)):
        np.testing.assert_array_equal(np.flatnonzero(columns["part"] == part), members)
    assert columns["label"].to_pylist() == [named.classes[c] for c in named.y]
    some = replace(named, y=np.where(np.arange(80) % 2, named.y, -1))
    assert prediction_columns(model, some)["label"].to_pylist()[::2] == [None] * 40
    assert prediction_columns(model, graph)["id"].tolist() == list(range(80))


def test_columns_of_unseen_nodes(graph):
    model = GPatcherClassifier.from_settings(QUICK).fit(graph)
    unseen = UnseenNodes.join(graph, [[80, 80, 81], [0, 3, 80]], count=2, x=np.asarray(graph.x[:2]))
    columns = prediction_columns(model, unseen, conformal=0.9)
    assert columns["id"].tolist() == [80, 81]
    np.testing.assert_array_equal(columns["predicted"], model.predict(unseen))
    assert columns["part"].tolist() == ["none"] * 2
    assert columns["label"].to_pylist() == [None] * 2
    inside = [model.classes_[row].tolist() for row in model.predict_sets(unseen, level=0.9)]
    assert columns["set"].to_pylist() == inside
    text = prediction_columns(model, unseen, conformal=0.9, as_text=True)["set"].to_pylist()
    assert text == ["|".join(names) for names in inside]
