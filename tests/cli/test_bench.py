"""The commands bench, tune and report, as a user runs them."""

import json

import pytest
from typer.testing import CliRunner

from gpatcher.bench.plan import Experiment, Row
from gpatcher.cli import app
from gpatcher.errors import InputError
from gpatcher.runs.records import read_records

runner = CliRunner()


@pytest.fixture
def tiny(monkeypatch):
    """A preset of two small graphs and two quick models."""
    quick = {"epochs": 3, "hidden": 4}
    preset = Experiment(
        "Tiny",
        "For tests.",
        ("csbm:phi=-0.5,n=60,features=5", "csbm:phi=0.5,n=60,features=5"),
        {"mlp": Row("mlp", quick), "gcn": Row("gcn", quick), "gpatcher": Row("gpatcher", quick)},
        splits="0,1",
        view="dial",
    )
    load = __import__("gpatcher.bench.plan", fromlist=["load_preset"]).load_preset
    for place in ("gpatcher.bench.plan", "gpatcher.bench.leaderboard", "gpatcher.bench.tuning"):
        monkeypatch.setattr(f"{place}.load_preset", lambda name: preset if name == "dial" else load(name))


def invoke(*arguments):
    return runner.invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def test_list():
    done = invoke("bench", "--list")
    assert done.exit_code == 0
    for name in ("table1", "induced", "honest", "dial"):
        assert name in done.output


@pytest.mark.parametrize(
    ("command", "work"), [("bench", "gpatcher.bench.jobs.run_jobs"), ("tune", "gpatcher.bench.tuning.run_searches")]
)
def test_ctrl_c_says_how_to_go_on(tiny, tmp_path, monkeypatch, command, work):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(work, stop)
    done = invoke(command, "dial", "--out", tmp_path / "run", "--models", "mlp")
    assert done.exit_code == 130
    assert "stopped: finished" in done.output
    assert "the same command" in done.output


def test_bench_then_report(tiny, tmp_path):
    out = tmp_path / "run"
    done = invoke("bench", "dial", "--out", out, "--models", "mlp,gpatcher")
    assert done.exit_code == 0, done.output
    assert "8 jobs ran, 0 were on record before" in done.output
    assert "4 of 4" in done.output
    assert len(read_records(out / "records.jsonl")) == 8
    again = invoke("bench", "dial", "--out", out)
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


def test_failures_are_told_and_retried(tiny, tmp_path, monkeypatch):
    import gpatcher.bench.jobs as jobs

    def fail(job, root):
        raise MemoryError("too large")

    train = jobs.TASKS["train"]
    monkeypatch.setitem(jobs.TASKS, "train", fail)
    done = invoke("bench", "dial", "--out", tmp_path, "--models", "mlp", "--splits", "0")
    assert "2 failed (run them again with --retry)" in done.output
    monkeypatch.setitem(jobs.TASKS, "train", train)
    assert "0 jobs ran, 0 were on record before, 2 failed" in invoke(
        "bench", "dial", "--out", tmp_path, "--models", "mlp", "--splits", "0"
    ).output.replace("\n", " ")
    done = invoke("bench", "dial", "--out", tmp_path, "--models", "mlp", "--splits", "0", "--retry")
    assert "2 jobs ran" in done.output


def test_tune_then_bench(tiny, tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    import gpatcher.runs.models as models

    monkeypatch.setattr(
        "gpatcher.runs.models.train_model",
        lambda name, graph, split, seed, config, **more: models.train_model(
            name, graph, split, seed, {**config, "epochs": 2}, **more
        ),
    )
    done = invoke("tune", "dial", "--trials", "2", "--models", "mlp", "--splits", "0", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    best = json.loads((tmp_path / "best.json").read_text())
    assert len(best) == 2
    out = tmp_path / "run"
    invoke("bench", "dial", "--out", out, "--models", "mlp", "--splits", "0", "--tuned", tmp_path)
    records = read_records(out / "records.jsonl")
    assert [r["tuned"] for r in records] == [2, 2]
    chosen = best[records[0]["dataset"]]["mlp"]["config"]
    assert records[0]["config"]["lr"] == chosen["lr"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench"], "name a preset"),
        (["bench", "tabel1"], "did you mean table1"),
        (["bench", "dial", "--models", "x"], "no model 'x'"),
        (["bench", "dial", "--jobs", "0"], "at least 1"),
        (["bench", "dial", "--engine", "x"], "no engine 'x'"),
        (["bench", "dial", "--tuned", "nowhere.json"], "there is no file"),
        (["report", "nowhere"], "no records"),
        (["tune", "nonsense"], "neither MODEL/DATASET"),
        (["tune", "dial", "--space", "x"], "no search space 'x'"),
    ],
)
def test_mistakes_are_told_in_a_sentence(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        invoke(*arguments)
