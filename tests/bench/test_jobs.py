"""Jobs: done once, whoever asks; one record each; kills and two processes at once."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from gpatcher.bench.jobs import Ledger, claim, pending, perform, run_jobs
from gpatcher.bench.plan import Job, plan_jobs
from gpatcher.bench.runtime import mixer_seconds
from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.runs.records import read_records
from gpatcher.scale.executors import ProcessEngine, job_engine

SOURCE = "csbm:phi=0.8,n=80,features=6"


def job(model="mlp", split=0, **config):
    config = {"hidden": 4, "epochs": 3, **config}
    return Job("dial", "train", SOURCE, model, model, config, split, split)


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
    assert first["config"] == jobs[0].config
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
    assert [p.state for p in run_jobs(planned, tmp_path)] == ["known", "known"]
    assert len(read_records(tmp_path / "records.jsonl")) == 2


def test_the_ledger_reads_what_is_appended(tmp_path):
    path, ledger = tmp_path / "records.jsonl", Ledger(tmp_path)
    assert not ledger.is_done("a")
    path.write_text('{"job": "a", "error": null}\n{"job": "b", "err')
    assert ledger.is_done("a")
    assert not ledger.is_done("b")
    with path.open("a") as file:
        file.write(' cut short\n{"job": "b", "error": "x"}\n{"job": "c", "error": null}')
    assert ledger.failures("b") == 1
    assert ledger.is_done("c")  # whole, though its line has no end
    with path.open("a") as file:
        file.write('\n{"job": "b", "error": null}\n')
    assert ledger.is_done("b")
    assert (ledger.failures("b"), ledger.failures("c")) == (1, 0)


def test_damage_is_told_before_anything_runs(tmp_path):
    (tmp_path / "records.jsonl").write_text('{"job": "a"}\nnonsense\n{"job": "b"}\n')
    with pytest.raises(InputError, match="line 2 is no record"):
        pending([job()], tmp_path)


def test_claims_hold_between_processes_and_end_with_them(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from gpatcher.bench.jobs import claim\n"
        "with claim(Path(sys.argv[1]), sys.argv[2]) as mine:\n    print(mine, flush=True)\n    time.sleep(600)"
    )
    key = job().id
    other = subprocess.Popen([sys.executable, "-c", code, tmp_path, key], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "True\n"
        with claim(tmp_path, key) as mine:
            assert not mine
        with claim(tmp_path, job("gcn").id) as mine:
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
from gpatcher.bench.jobs import ProcessEngine, pending, run_jobs
from gpatcher.bench.plan import Job

if __name__ == "__main__":
    out, name, workers, epochs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    config = {"hidden": 4, "epochs": epochs, "patience": epochs}
    jobs = [Job("dial", "train", "SOURCE", "mlp", "mlp", config, k, k) for k in range(8)]
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
        assert process.poll() is None, "it ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_processes_share_the_work_of_one_folder(tmp_path):
    both = [start(tmp_path, name) for name in "ab"]
    for name, process in zip("ab", both, strict=True):
        wait_for((tmp_path / f"ready-{name}").exists, process)
    (tmp_path / "go").touch()
    states = [process.communicate()[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    records = read_records(tmp_path / "records.jsonl")
    assert sorted(r["split"] for r in records) == list(range(8))
    assert [found.count("ran") > 0 for found in states] == [True, True]
    assert sum(found.count("ran") for found in states) == 8


def test_a_killed_run_goes_on_and_leaves_no_workers(tmp_path):
    process = start(tmp_path, "a", workers=2, epochs=400)
    (tmp_path / "go").touch()
    records = tmp_path / "records.jsonl"
    wait_for(lambda: len(read_records(records)) >= 2, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()  # returns when its workers, who share the pipe, have ended too
    before = len(read_records(records))
    assert before < 8
    same = [job(split=k, epochs=400, patience=400) for k in range(8)]
    assert [p.state for p in run(same, tmp_path)] == ["ran"] * (8 - before)
    counts = Counter(r["job"] for r in read_records(records))
    assert len(counts) == 8
    assert set(counts.values()) == {1}


def test_processes_give_the_same_figures(tmp_path):
    jobs = [job(split=k) for k in range(3)]
    run(jobs, tmp_path / "one")
    run(jobs, tmp_path / "two", engine=ProcessEngine(2))
    one, two = (
        {r["job"]: (r["test"], r["val"], r["epochs"]) for r in read_records(tmp_path / name / "records.jsonl")}
        for name in ("one", "two")
    )
    assert one == two


def test_engines():
    with pytest.raises(InputError, match="at least 1, got 0"):
        job_engine("local", 0)
    with pytest.raises(InputError, match="no engine 'dask'"):
        job_engine("dask", 1)
    assert sorted(ProcessEngine(1).map(pow, [2, 3], (2,))) == [(2, 4), (3, 9)]


# ------------------------------------------------------------------------------------------- other tasks


def test_statistics_response_and_runtime(tmp_path):
    common = {"config": {}, "split": 0, "seed": 0, "row": "r", "model": "m"}
    found = perform(Job(preset="statistics", task="statistics", dataset=SOURCE, **common), None)
    assert found["error"] is None
    assert found["measures"]["nodes"] == 80
    config = {"epochs": 3, "self_loops": False, "patch_size": 4}
    found = perform(Job("response", "response", SOURCE, "gpatcher", "gpatcher", config, 0, 0), None)
    assert found["error"] is None
    assert -1 <= found["mean_response"] <= 1
    assert len(found["response"]) == 41
    assert 0 < found["node_heterophily"] < 1
    found = perform(Job("runtime", "runtime", "n=20", "p=8", "mixer", {"p": 8}, 0, 0), None)
    assert (found["error"], found["nodes"]) == (None, 20)
    assert found["mixer_seconds"] > 0
    json.dumps(found, allow_nan=False)


def test_more_patches_take_longer():
    assert mixer_seconds(2000, 8, hidden=16) > mixer_seconds(20, 8, hidden=16)


def test_real_data(tmp_path, data_root):
    jobs, _ = plan_jobs("table1", datasets=["chameleon"], rows=["mlp"], splits="0", root=data_root)
    quick = [Job(**{**vars(j), "config": {**j.config, "epochs": 2}}) for j in jobs]
    [progress] = run_jobs(pending(quick, tmp_path), tmp_path, root=data_root)
    assert progress.record["leaky"] is True
    assert progress.record["split_sizes"] == [1092, 729, 456]
