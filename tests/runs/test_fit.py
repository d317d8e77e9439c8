"""Runs over splits: what is recorded, what is skipped, what survives a kill."""

import json
import os
import signal
import subprocess
import sysconfig
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.split import plan_runs, stratified_split
from gpatcher.runs import settings
from gpatcher.runs import settings as presets
from gpatcher.runs.predict import prediction_columns
from gpatcher.runs.records import read_records
from gpatcher.runs.run import run_splits

COMMAND = Path(sysconfig.get_path("scripts")) / "gpatcher"
QUICK = {"extractor": "ppr", "patch_size": 4, "hidden": 8, "mixer_hidden": 4, "epochs": 12}


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
    """What must not depend on when or how a run was made."""
    return {k: record[k] for k in ("split", "seed", "val_accuracy", "test_accuracy", "epochs", "best_epoch")}


# ----------------------------------------------------------------------------------------------- planning


def test_plan_of_several_splits(several):
    assert plan_runs(several, "all", 5) == [(0, 5), (1, 6), (2, 7)]
    assert plan_runs(several, "2,0", 5) == [(2, 7), (0, 5)]
    with pytest.raises(InputError, match="no split 3: csbm has 0 to 2"):
        plan_runs(several, "3", 0)


@pytest.mark.parametrize("with_split", [True, False])
def test_plan_of_one_split_takes_ten_seeds(graph, with_split):
    one = graph if with_split else graph.with_splits([])
    assert plan_runs(one, " all ", 5) == [(0, 5 + k) for k in range(10)]
    assert plan_runs(one, "0,3", 0) == [(0, 0), (0, 3)]
    with pytest.raises(InputError, match="no split 10"):
        plan_runs(one, "10", 0)


@pytest.mark.parametrize("text", ["", "x", "1;2", "-1", "0,-2"])
def test_a_plan_that_is_none(several, text):
    with pytest.raises(InputError, match="split"):
        plan_runs(several, text, 0)


# ------------------------------------------------------------------------------------------------ records


def test_what_is_recorded(several, tmp_path):
    seen = []
    done = run_splits(
        several, "fast", QUICK, tmp_path / "run", splits="0,2", seed=4, progress=lambda *a: seen.append(a[:4])
    )
    assert read_records(tmp_path / "run" / "records.jsonl") == json.loads(json.dumps(done))
    assert [(r["split"], r["seed"]) for r in done] == [(0, 4), (2, 6)]
    for record in done:
        split = several.splits[record["split"]]
        assert record["split_hash"] == split.hash
        assert (record["dataset"], record["model"], record["extractor"]) == ("csbm", "fast", "ppr")
        config = record["config"]
        assert (config["patch_size"], config["epochs"], config["lr"]) == (4, 12, 0.005)
        assert not {"seed", "device", "memory"} & set(config)
        assert record["seconds"] > 0
        assert record["extract_seconds"] >= 0
        assert record["peak_rss_mb"] > 10
        assert record["directed_input"] is False
        assert "torch" in record["versions"]
        # the very figures of the estimator by itself
        alone = GPatcherClassifier(**QUICK, seed=record["seed"]).fit(several, record["split"])
        assert record["test_accuracy"] == alone.result_.test_accuracy
        assert record["val_accuracy"] == alone.result_.val_accuracy
        assert (record["epochs"], record["best_epoch"]) == (alone.result_.epochs, alone.result_.best_epoch)
    assert seen[0] == (1, 2, 1, 12)
    assert seen[-1] == (2, 2, done[1]["epochs"], 12)


def test_what_auto_chose_is_recorded(several, tmp_path):
    done = run_splits(several, "gpatcher", QUICK | {"extractor": "auto"}, tmp_path, splits="0,1")
    for record in done:
        assert set(record["compared"]) == {"heterophily-aware", "ppr"}
        assert record["extractor"] == min(record["compared"], key=record["compared"].get)
        assert record["config"]["extractor"] == "auto"
    assert not list(tmp_path.glob("checkpoint*"))
    again = run_splits(several, "gpatcher", QUICK | {"extractor": "auto"}, tmp_path, splits="0,1", resume=True)
    assert again == json.loads(json.dumps(done))


def test_the_checkpoints_of_another_seed_stay(tmp_path):
    from gpatcher.runs.run import _forget

    for name in ("c-0-1", "c-0-1-ppr", "c-0-1-heterophily-aware", "c-0-10", "c-0-10-ppr"):
        (tmp_path / f"{name}.safetensors").touch()
    _forget(tmp_path / "c-0-1.safetensors")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c-0-10-ppr.safetensors", "c-0-10.safetensors"]


def test_the_model_that_validated_best_is_kept(several, tmp_path):
    done = run_splits(several, "fast", QUICK, tmp_path, splits="all", origin={"name": "here"})
    best = max(done, key=lambda r: r["val_accuracy"])
    kept = GPatcherClassifier.load(tmp_path, several)
    assert kept.seed == best["seed"]
    assert kept.split_.hash == best["split_hash"]
    assert kept.score() == best["test_accuracy"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "model.json",
        "model.safetensors",
        "records.jsonl",
        "report.html",
    ]
    page = (tmp_path / "report.html").read_text()
    assert "how far to trust this model" in page
    assert f"epoch {best['best_epoch']} (dotted)" in page
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


def test_an_unknown_parameter(graph, tmp_path):
    with pytest.raises(InputError, match="nonsense"):
        run_splits(graph, "fast", {"nonsense": 1}, tmp_path)


# ------------------------------------------------------------------------------------------------- resume


class Interrupt(Exception):  # noqa: N818
    pass


def test_finished_runs_are_skipped(several, tmp_path):
    first = run_splits(several, "fast", QUICK, tmp_path, splits="0,1")
    seen = []
    again = run_splits(
        several, "fast", QUICK, tmp_path, splits="all", resume=True, progress=lambda *a: seen.append(a[0])
    )
    assert set(seen) == {3}
    assert again[:2] == json.loads(json.dumps(first))
    assert len(read_records(tmp_path / "records.jsonl")) == 3
    fresh = run_splits(several, "fast", QUICK, tmp_path / "fresh", splits="2")
    assert figures(again[2]) == figures(fresh[0])


def test_without_resume_all_is_run_again(several, tmp_path):
    run_splits(several, "fast", QUICK, tmp_path)
    seen = []
    run_splits(several, "fast", QUICK, tmp_path, progress=lambda *a: seen.append(a[0]))
    assert set(seen) == {1}


def test_another_configuration_is_not_skipped(several, tmp_path):
    run_splits(several, "fast", QUICK, tmp_path)
    seen = []
    run_splits(several, "fast", {**QUICK, "lr": 0.1}, tmp_path, resume=True, progress=lambda *a: seen.append(a[0]))
    assert seen


@pytest.mark.parametrize("name", ["other", "csbm"])
def test_another_graph_is_not_skipped(several, tmp_path, name):
    """The records of one graph say nothing about another, even if generators or files give both one name."""
    run_splits(several, "fast", QUICK, tmp_path)
    other = replace(csbm(phi=0.5, n=80, features=6, seed=1), name=name)
    seen = []
    done = run_splits(other, "fast", QUICK, tmp_path, resume=True, progress=lambda *a: seen.append(a[2]))
    assert seen
    assert done[0]["dataset"] == name
    assert done[0]["split_hash"] == other.splits[0].hash


@pytest.mark.parametrize("changed", ["splits", "labels", "features"])
def test_the_same_edges_with_other_data_are_not_skipped(several, tmp_path, changed):
    """A table whose labels were put right, or a set with new splits, is to be run again."""
    run_splits(several, "fast", QUICK, tmp_path)
    if changed == "splits":
        other = several.with_splits([stratified_split(several.y, 0.5, 0.25, seed=s) for s in (7, 8, 9)])
    elif changed == "labels":
        other = replace(several, y=1 - several.y)
    else:
        other = replace(several, x=several.x[:, ::-1].copy())
    seen = []
    run_splits(other, "fast", QUICK, tmp_path, resume=True, progress=lambda *a: seen.append(a[2]))
    assert seen


def interrupted(graph, folder, at=25, parameters=None):
    def stop(number, count, epoch, most, figures):
        if epoch == at:
            raise Interrupt

    with pytest.raises(Interrupt):
        run_splits(graph, "fast", parameters or {**QUICK, "epochs": 40}, folder, progress=stop)


@pytest.mark.parametrize("extractor", ["ppr", "heterophily-aware"])
def test_an_interrupted_run_goes_on_where_it_was(graph, tmp_path, extractor):
    parameters = {**QUICK, "extractor": extractor, "epochs": 40, "renew_every": 3, "filter_lr": 10.0}
    whole = run_splits(graph, "fast", parameters, tmp_path / "whole")
    interrupted(graph, tmp_path / "cut", parameters=parameters)
    assert len(list((tmp_path / "cut").glob("checkpoint-*"))) == 1
    seen = []
    rest = run_splits(graph, "fast", parameters, tmp_path / "cut", resume=True, progress=lambda *a: seen.append(a[2]))
    assert seen[0] == 21
    assert figures(rest[0]) == figures(whole[0])
    one, two = (GPatcherClassifier.load(tmp_path / name, graph) for name in ("whole", "cut"))
    np.testing.assert_array_equal(one.predict_proba(), two.predict_proba())
    assert not list((tmp_path / "cut").glob("*checkpoint*"))


def test_without_resume_a_checkpoint_is_not_used(graph, tmp_path):
    interrupted(graph, tmp_path)
    seen = []
    run_splits(graph, "fast", {**QUICK, "epochs": 40}, tmp_path, progress=lambda *a: seen.append(a[2]))
    assert seen[0] == 1


def test_the_checkpoint_of_another_graph_is_not_used(graph, tmp_path):
    interrupted(graph, tmp_path)
    other = csbm(phi=0.5, n=80, features=6, seed=1)
    seen = []
    done = run_splits(
        other, "fast", {**QUICK, "epochs": 40}, tmp_path, resume=True, progress=lambda *a: seen.append(a[2])
    )
    fresh = run_splits(other, "fast", {**QUICK, "epochs": 40}, tmp_path / "fresh")
    assert seen[0] == 1
    assert figures(done[0]) == figures(fresh[0])


def test_a_kill_between_record_and_model_leaves_no_folder_without_a_model(graph, tmp_path, monkeypatch):
    """A run that is recorded is never made again, so its model must be there by then."""

    def stop(self, folder, source=None):
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(GPatcherClassifier, "save", stop)
        with pytest.raises(Interrupt):
            run_splits(graph, "fast", QUICK, tmp_path)
    run_splits(graph, "fast", QUICK, tmp_path, resume=True)
    assert (tmp_path / "model.json").exists()
    assert GPatcherClassifier.load(tmp_path, graph).predict().shape == (80,)


def test_a_kill_before_the_page_leaves_no_folder_without_one(graph, tmp_path):
    run_splits(graph, "fast", QUICK, tmp_path)
    (tmp_path / "report.html").unlink()
    run_splits(graph, "fast", QUICK, tmp_path, resume=True)
    page = (tmp_path / "report.html").read_text()
    assert "from a saved model" in page
    assert "Learning curve" not in page


def test_the_page_may_leave_out_the_rivals(graph, tmp_path):
    run_splits(graph, "fast", QUICK, tmp_path, compare=False)
    assert "Against MLP and GCN" not in (tmp_path / "report.html").read_text()


def test_a_cut_record_is_made_again_and_kept(several, tmp_path):
    run_splits(several, "fast", QUICK, tmp_path, splits="0,1")
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    done = run_splits(several, "fast", QUICK, tmp_path, splits="all", resume=True)
    assert [r["split"] for r in done] == [0, 1, 2]
    assert sorted(r["split"] for r in read_records(path)) == [0, 1, 2]


def test_a_killed_command_goes_on_to_the_same_figures(tmp_path):
    """The real thing: SIGKILL in the midst of training, then the same command again."""
    arguments = ["fit", "csbm:phi=-0.5,n=300,features=10", "--resume", "--lr", "0.0002", "--patch-size", "4"]
    arguments += ["--epochs", "150"]
    variables = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "COLUMNS": "160"}

    def command(folder):
        return [COMMAND, *arguments, "--out", str(tmp_path / folder)]

    running = subprocess.Popen(
        command("cut"), env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
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
        done = subprocess.run(command(folder), env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    [cut], [whole] = (read_records(tmp_path / name / "records.jsonl") for name in ("cut", "whole"))
    assert figures(cut) == figures(whole)
    assert whole["epochs"] > 20


# ------------------------------------------------------------------------------------------------ tables


def test_columns_of_the_predictions(graph):
    named = replace(graph, classes=("ant", "bee"), node_ids=np.array([f"n{v}" for v in range(80)]))
    model = GPatcherClassifier(**QUICK).fit(named)
    columns = prediction_columns(model, named)
    assert list(columns) == ["id", "predicted", "probability_ant", "probability_bee", "confidence", "in_training"]
    assert columns["id"].tolist() == named.node_ids.tolist()
    np.testing.assert_array_equal(columns["predicted"], model.predict())
    both = np.stack([columns["probability_ant"], columns["probability_bee"]])
    np.testing.assert_allclose(both.sum(0), 1, atol=1e-5)
    np.testing.assert_array_equal(columns["confidence"], both.max(0))
    np.testing.assert_array_equal(np.flatnonzero(columns["in_training"]), model.split_.train)
    assert prediction_columns(model, graph)["id"].tolist() == list(range(80))


# ----------------------------------------------------------------------------------------------- presets


@pytest.mark.parametrize("model", settings.MODELS)
@pytest.mark.parametrize("preset", ["paper", "default", *settings.shipped()])
def test_every_preset_builds_and_trains(graph, model, preset):
    chosen = settings.parameters(model, "whatever", preset)
    assert chosen["extractor"] in ("heterophily-aware", "ppr") or preset not in ("paper", "default")
    estimator = GPatcherClassifier(**{**chosen, "epochs": 2, "hidden": 8, "patch_size": 4})
    assert np.isfinite(estimator.fit(graph).predict_proba()).all()


def test_presets_by_name_of_the_data_set(monkeypatch):
    monkeypatch.setattr(presets, "shipped", lambda: {"texas": {"fast": {"lr": 0.5, "paths": ["ego", "mean"]}}})
    expected = {"extractor": "ppr", "lr": 0.5, "paths": ("ego", "mean")}
    assert settings.parameters("fast", "Texas") == expected
    assert settings.parameters("fast", "mine", "texas") == expected
    assert settings.parameters("fast", "mine") == {"extractor": "ppr"}
    assert settings.parameters("fast", "texas", "default") == {"extractor": "ppr"}
    assert settings.parameters("gpatcher", "texas") == {"extractor": "heterophily-aware"}
    assert settings.parameters("fast", "texas", "paper")["paths"] == ("mixer",)
    with pytest.raises(InputError, match=r"'nonsense'.*paper, default, texas"):
        settings.parameters("fast", "texas", "nonsense")
    with pytest.raises(InputError, match=r"'nonsense'.*gpatcher, fast"):
        settings.parameters("nonsense", "texas")
