"""Jobs: done once, whoever asks; one record each; kills and two processes at once."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpatcher.bench.jobs import Ledger, pending, run_jobs
from gpatcher.bench.plan import experiment_names, plan_jobs
from gpatcher.bench.tasks import MEASURES, load_split, perform
from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError, InputWarning
from gpatcher.io import claimed
from gpatcher.runs.records import append_record, read_records
from gpatcher.runs.run import Job, mean_response
from gpatcher.runs.settings import PATCHERS, complete
from gpatcher.scale.executors import ProcessEngine, job_engine
from gpatcher.spectral.spectrum import graph_spectrum

SOURCE = "csbm:phi=0.8,n=80,features=6"
RESULTS = Path(__file__).parents[2] / "results/bench"


def job(model="mlp", split=0, **train):
    settings = {"model": {"hidden": 4}, "train": {"epochs": 3, **train}}
    if model in PATCHERS:
        settings = complete(settings, model)
    return Job("csbm_sweep", SOURCE, model, settings, split, split)


def run(jobs, out, retry=False, engine=None):
    return list(run_jobs(pending(jobs, out, retry), out, engine))


def test_what_is_recorded(tmp_path):
    out = tmp_path / "a" / "b"
    jobs = [job(), job("gcn", 1)]
    assert [p.state for p in run(jobs, out)] == ["ran", "ran"]
    first, second = read_records(out / "records.jsonl")
    assert [first["job"], second["job"]] == [j.id for j in jobs]
    assert first["error"] is None
    assert first["metric"] == "accuracy"
    assert first["leaky"] is False
    assert first["settings"] == jobs[0].settings
    assert first["peak_rss_mb"] > 50
    assert first["seconds"] >= first["train_seconds"] > 0
    # each split of a generator is another graph, with its own split
    graph = csbm(phi=0.8, n=80, features=6, seed=1)
    assert second["split_hash"] == graph.splits[0].hash != first["split_hash"]
    assert second["split_sizes"] == list(graph.splits[0].sizes)
    assert run(jobs, out) == []


def test_a_failed_job_is_on_record_and_run_again_only_when_asked(tmp_path):
    bad, good = job(lr=-1.0), job()
    assert [p.state for p in run([bad, good], tmp_path)] == ["failed", "ran"]
    assert "lr must be above 0" in read_records(tmp_path / "records.jsonl")[0]["error"]
    assert pending([bad, good], tmp_path) == []
    assert pending([bad, good], tmp_path, retry=True) == [(bad, 1)]
    assert [p.state for p in run([bad, good], tmp_path, retry=True)] == ["failed"]
    assert pending([bad], tmp_path, retry=True) == [(bad, 2)]


def test_a_job_done_since_it_was_planned_is_not_done_again(tmp_path):
    planned = pending([job(), job(lr=-1.0)], tmp_path)
    run([job(), job(lr=-1.0)], tmp_path)
    assert [p.state for p in run_jobs(planned, tmp_path)] == ["recorded", "recorded"]
    assert len(read_records(tmp_path / "records.jsonl")) == 2


def test_the_ledger_reads_what_was_appended(tmp_path):
    path, ledger = tmp_path / "records.jsonl", Ledger(tmp_path)
    assert not ledger.is_done("a")
    path.write_text('{"job": "a", "error": null}\n{"job": "b", "err')
    assert ledger.is_done("a")
    assert not ledger.is_done("b")
    with path.open("a") as file:
        file.write(' cut short\n{"job": "b", "error": "x"}\n{"job": "c", "error": null}')
    assert ledger.failures("b") == 1
    assert ledger.is_done("c")  # complete, though its line has no end
    with path.open("a") as file:
        file.write('\n{"job": "b", "error": null}\n')
    assert ledger.is_done("b")
    assert (ledger.failures("b"), ledger.failures("c")) == (1, 0)


def test_damage_is_reported_before_anything_runs(tmp_path):
    lines = ['{"version": 2, "job": "a"}', "nonsense", '{"version": 2, "job": "b"}']
    (tmp_path / "records.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.warns(InputWarning, match=r"records\.jsonl: 1 line is damaged and left out: 2"):
        assert len(pending([job()], tmp_path)) == 1


def test_records_of_another_version_are_refused_before_anything_runs(tmp_path):
    (tmp_path / "records.jsonl").write_text('{"job": "a", "error": null}\n')
    with pytest.raises(InputError, match=r"version 1.*convert_records\.py"):
        pending([job()], tmp_path)


def test_claims_hold_between_processes_and_end_with_them(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from gpatcher.io import claimed\n"
        "with claimed(Path(sys.argv[1]), sys.argv[2]) as mine:\n    print(mine, flush=True)\n    time.sleep(600)"
    )
    key = job().id
    claims = tmp_path / "claims"
    other = subprocess.Popen([sys.executable, "-c", code, claims, key], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "True\n"
        with claimed(claims, key) as mine:
            assert not mine
        with claimed(claims, job("gcn").id) as mine:
            assert mine
        assert [p.state for p in run([job()], tmp_path)] == ["elsewhere"]
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    assert [p.state for p in run([job()], tmp_path)] == ["ran"]


SCRIPT = """
import sys, time
from pathlib import Path
from gpatcher.bench.jobs import pending, run_jobs
from gpatcher.runs.run import Job
from gpatcher.scale.executors import ProcessEngine

if __name__ == "__main__":
    out, name, workers, epochs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    settings = {"model": {"hidden": 4}, "train": {"epochs": epochs, "patience": epochs}}
    jobs = [Job("csbm_sweep", "SOURCE", "mlp", settings, k, k) for k in range(6)]
    left = pending(jobs, out)
    (out / f"ready-{name}").touch()
    while not (out / "go").exists():
        time.sleep(0.005)
    for progress in run_jobs(left, out, ProcessEngine(workers)):
        print(progress.state, flush=True)
""".replace("SOURCE", SOURCE)


def start(tmp_path, name, workers=1, epochs=60):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, script, tmp_path, name, str(workers), str(epochs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_for(condition, process, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the process ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_processes_share_the_work_of_one_folder(tmp_path):
    process = start(tmp_path, "other")
    left = pending([job(split=k, epochs=60, patience=60) for k in range(6)], tmp_path)
    wait_for((tmp_path / "ready-other").exists, process)
    (tmp_path / "go").touch()
    states = [[progress.state for progress in run_jobs(left, tmp_path)], process.communicate()[0].split()]
    assert process.returncode == 0
    records = read_records(tmp_path / "records.jsonl")
    assert sorted(r["split"] for r in records) == list(range(6))
    assert [own.count("ran") > 0 for own in states] == [True, True]
    assert sum(own.count("ran") for own in states) == 6


def test_a_killed_run_continues_with_the_same_figures_and_leaves_no_workers(tmp_path):
    process = start(tmp_path, "a", workers=2, epochs=300)
    (tmp_path / "go").touch()
    records = tmp_path / "records.jsonl"
    wait_for(lambda: len(read_records(records)) >= 2, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()  # returns when its workers, which share the pipe, have ended too
    by_workers = read_records(records)
    assert 2 <= len(by_workers) < 6
    same = [job(split=k, epochs=300, patience=300) for k in range(6)]
    assert [p.state for p in run(same, tmp_path)] == ["ran"] * (6 - len(by_workers))
    assert Counter(r["job"] for r in read_records(records)) == Counter(j.id for j in same)
    # the jobs of the workers give the same figures here
    done = {r["job"] for r in by_workers}
    run([j for j in same if j.id in done], tmp_path / "here")
    here = {r["job"]: (r["test"], r["val"], r["epochs"]) for r in read_records(tmp_path / "here" / "records.jsonl")}
    assert here == {r["job"]: (r["test"], r["val"], r["epochs"]) for r in by_workers}


def test_engines():
    with pytest.raises(InputError, match="at least 1, got 0"):
        job_engine("local", 0)
    with pytest.raises(InputError, match="'dask'"):
        job_engine("dask", 1)
    assert sorted(ProcessEngine(1).map(pow, [2, 3], (2,))) == [(2, 4), (3, 9)]


# ------------------------------------------------------------------------------------------------ tasks


def test_the_split_of_a_run():
    """Each split of a generator is another graph with one split; a data set is one graph with several."""
    (first, own), (again, _), (second, other) = (load_split(SOURCE, split, None) for split in (0, 0, 1))
    assert first is again  # the last graph is cached
    assert first.content_hash == csbm(phi=0.8, n=80, features=6, seed=0).content_hash != second.content_hash
    assert own is first.splits[0]
    assert other is second.splits[0]


def test_statistics():
    record = perform(Job("statistics", SOURCE, "measures", {}, 0, 0, task="statistics"), None)
    assert record["error"] is None
    assert set(record["measures"]) == set(MEASURES)
    assert record["measures"]["nodes"] == 80
    json.dumps(record, allow_nan=False)


@pytest.mark.parametrize("split", [0, 1])
def test_response(split):
    settings = complete({"patches": {"size": 4}, "train": {"epochs": 3}}, "gpatcher")
    record = perform(Job("response", SOURCE, "gpatcher", settings, split, split, task="response"), None)
    assert record["error"] is None
    assert -1 <= record["mean_response"] <= 1
    assert len(record["response"]) == 41
    assert 0 < record["node_heterophily"] < 1
    # over the eigenvalues of the very graph that it was trained on
    values = graph_spectrum(load_split(SOURCE, split, None)[0]).values
    assert record["mean_response"] == pytest.approx(mean_response(np.asarray(values), record["response"]))
    json.dumps(record, allow_nan=False)


def test_runtime():
    record = perform(Job("runtime", "n=20", "mixer", {"patches.size": 8}, 0, 0, "p=8", task="runtime"), None)
    assert (record["error"], record["nodes"]) == (None, 20)
    assert record["mixer_seconds"] > 0
    json.dumps(record, allow_nan=False)


@pytest.mark.parametrize("task", ["train", "response", "statistics", "runtime"])
def test_an_error_of_a_job_is_part_of_its_record(task):
    record = perform(Job("x", "nonsense", "mlp", {}, 0, 0, task=task), None)
    assert "nonsense" in record["error"]
    assert record["peak_rss_mb"] > 50
    json.dumps(record, allow_nan=False)


def test_peak_memory_is_that_of_the_job():
    """A process does many jobs; a job does not inherit the peak of an earlier one."""
    block = np.ones(50_000_000)  # 400 MB
    before = perform(job(), None)["peak_rss_mb"]
    del block
    assert perform(job(), None)["peak_rss_mb"] < before - 200
    runtime = Job("runtime", "n=20", "mixer", {"patches.size": 8}, 0, 0, task="runtime")
    assert perform(runtime, None)["peak_rss_mb"] < before - 200


# ------------------------------------------------------------------------------------------------ real data


def test_real_data(tmp_path, data_root):
    jobs, _ = plan_jobs("table1", datasets=["chameleon"], rows=["mlp"], splits="0", root=data_root)
    quick = [replace(j, settings={**j.settings, "train": {**j.settings["train"], "epochs": 2}}) for j in jobs]
    [progress] = run_jobs(pending(quick, tmp_path), tmp_path, root=data_root)
    assert progress.record["leaky"] is True
    assert progress.record["split_sizes"] == [1092, 729, 456]


def test_what_is_on_record_for_texas_is_not_run_again(tmp_path, data_root):
    """All 13 models on its ten splits, with the settings that ship now."""
    jobs, notes = plan_jobs("table1", datasets=["texas"], root=data_root)
    assert notes == []
    assert len(jobs) == 130
    ledger = Ledger(RESULTS / "table1")
    assert [(j.row, j.split) for j in jobs if not ledger.is_done(j.id)] == []
    records = {r["job"]: r for r in read_records(RESULTS / "table1/records.jsonl")}
    for planned in jobs:
        assert records[planned.id]["settings"] == planned.settings
        assert records[planned.id]["trials"] == planned.trials
        append_record(tmp_path / "records.jsonl", records[planned.id])
    assert pending(jobs, tmp_path, retry=True) == []


@pytest.mark.parametrize("name", [name for name in experiment_names() if (RESULTS / name / "records.jsonl").exists()])
def test_the_id_of_every_record_is_that_of_its_job(name):
    """So that a job that is planned with the settings of a record is found done."""
    records = read_records(RESULTS / name / "records.jsonl")
    tasks = {"response": "response", "statistics": "statistics", "runtime": "runtime"}
    for record in records:
        fields = ("experiment", "dataset", "model", "settings", "split", "seed", "row", "trials", "ablation")
        made = Job(*(record[field] for field in fields), task=tasks.get(name, "train"))
        assert record["job"] == made.id
        assert record["settings_hash"] == made.header()["settings_hash"]
        assert record["experiment"] == name
