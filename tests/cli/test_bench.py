"""The commands bench, tune and report, as a user runs them."""

import json
from importlib import import_module

import pytest
from typer.testing import CliRunner

from gpatcher.bench.plan import Experiment, Row, load_experiment
from gpatcher.cli import app
from gpatcher.errors import InputError
from gpatcher.runs.records import read_records

runner = CliRunner()


@pytest.fixture
def tiny(monkeypatch):
    """An experiment of two small graphs and three quick models."""
    quick = {"train.epochs": 3, "model.hidden": 4}
    experiment = Experiment(
        "Tiny",
        "For tests.",
        ("csbm:phi=-0.5,n=60,features=5", "csbm:phi=0.5,n=60,features=5"),
        {"mlp": Row("mlp", quick), "gcn": Row("gcn", quick), "gpatcher": Row("gpatcher", quick)},
        splits="0,1",
        view="sweep",
    )
    # all are imported before the first is changed: one imported later would keep the change
    modules = [import_module(f"gpatcher.bench.{name}") for name in ("plan", "leaderboard", "tuning")]
    load = load_experiment
    for module in modules:
        monkeypatch.setattr(module, "load_experiment", lambda name: experiment if name == "csbm_sweep" else load(name))


def invoke(*arguments):
    return runner.invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def test_list():
    done = invoke("bench", "--list")
    assert done.exit_code == 0
    for name in ("table1", "induced", "leak_free", "csbm_sweep"):
        assert name in done.output


@pytest.mark.parametrize(
    ("command", "work"), [("bench", "gpatcher.bench.jobs.run_jobs"), ("tune", "gpatcher.bench.tuning.run_searches")]
)
def test_ctrl_c_says_how_to_continue(tiny, tmp_path, monkeypatch, command, work):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(work, stop)
    done = invoke(command, "csbm_sweep", "--out", tmp_path / "run", "--models", "mlp")
    assert done.exit_code == 130
    assert "stopped: finished" in done.output
    assert "the same command" in done.output


def test_bench_then_report(tiny, tmp_path):
    out = tmp_path / "run"
    done = invoke("bench", "csbm_sweep", "--out", out, "--models", "mlp,gpatcher")
    assert done.exit_code == 0, done.output
    assert "8 jobs ran, 0 were on record before" in done.output
    assert "4 of 4" in done.output
    assert len(read_records(out / "records.jsonl")) == 8
    again = invoke("bench", "csbm_sweep", "--out", out)
    assert "4 jobs ran, 8 were on record before" in again.output

    page = tmp_path / "page.html"
    forms = {form: tmp_path / f"tables.{form}" for form in ("markdown", "csv", "latex")}
    done = invoke("report", out, "--out", page, *(a for form, path in forms.items() for a in (f"--{form}", path)))
    assert done.exit_code == 0, done.output
    assert "GPatcher is" in done.output
    assert page.stat().st_size > 1_000_000
    for path in forms.values():
        assert "GPatcher" in path.read_text() or "gpatcher" in path.read_text()
    before = (out / "records.jsonl").read_bytes()
    invoke("report", out, "--out", page)
    assert (out / "records.jsonl").read_bytes() == before


def test_failures_are_reported_and_retried(tiny, tmp_path, monkeypatch):
    from gpatcher.bench import tasks

    def fail(job, root):
        raise MemoryError("too large")

    train = tasks.TASKS["train"]
    monkeypatch.setitem(tasks.TASKS, "train", fail)
    done = invoke("bench", "csbm_sweep", "--out", tmp_path, "--models", "mlp", "--splits", "0")
    assert "2 failed (run them again with --retry)" in done.output
    monkeypatch.setitem(tasks.TASKS, "train", train)
    assert "0 jobs ran, 0 were on record before, 2 failed" in invoke(
        "bench", "csbm_sweep", "--out", tmp_path, "--models", "mlp", "--splits", "0"
    ).output.replace("\n", " ")
    done = invoke("bench", "csbm_sweep", "--out", tmp_path, "--models", "mlp", "--splits", "0", "--retry")
    assert "2 jobs ran" in done.output


def test_tune_then_bench(tiny, tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    done = invoke("tune", "csbm_sweep", "--trials", "2", "--models", "mlp", "--splits", "0", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    best = json.loads((tmp_path / "best.json").read_text())
    assert len(best) == 2
    out = tmp_path / "run"
    invoke("bench", "csbm_sweep", "--out", out, "--models", "mlp", "--splits", "0", "--tuned", tmp_path)
    records = read_records(out / "records.jsonl")
    assert [r["trials"] for r in records] == [2, 2]
    chosen = best[records[0]["dataset"]]["mlp"]["settings"]
    assert records[0]["settings"]["train"]["lr"] == chosen["train"]["lr"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench"], "name an experiment"),
        (["bench", "tabel1"], "did you mean table1"),
        (["bench", "csbm_sweep", "--models", "x"], "unknown model 'x'"),
        (["bench", "csbm_sweep", "--jobs", "0"], "at least 1"),
        (["bench", "csbm_sweep", "--engine", "x"], "'x'"),
        (["bench", "csbm_sweep", "--tuned", "nowhere.json"], "does not exist"),
        (["report", "nowhere"], "no records"),
        (["tune", "nonsense"], "neither MODEL/DATASET"),
        (["tune", "csbm_sweep", "--space", "x"], "unknown search space 'x'"),
    ],
)
def test_mistakes_get_one_sentence(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        invoke(*arguments)
