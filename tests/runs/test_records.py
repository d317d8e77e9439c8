"""Records: appended whole, read back whole, one schema whoever asks, and the summary over them."""

import contextlib
import json
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gpatcher.bench.tasks import perform
from gpatcher.datasets.load import load_graph
from gpatcher.errors import InputError, InputWarning
from gpatcher.estimator.memory import peak_rss_mb
from gpatcher.runs.fit import FitOptions, fit_splits
from gpatcher.runs.records import (
    RECORD_VERSION,
    append_record,
    parse_record,
    read_records,
    settings_hash,
    summarise,
    versions,
)
from gpatcher.runs.run import Job
from gpatcher.runs.settings import complete


def record(**fields):
    return {"version": RECORD_VERSION, **fields}


def test_every_changed_bit_of_a_record_is_noticed():
    stored = {"version": RECORD_VERSION, "test": 0.8125, "split": 3}
    line = json.dumps({**stored, "checksum": "fef5660bb0589b99"}).encode()
    assert parse_record(line) == stored
    for place in range(len(line)):
        for bit in range(8):
            damaged = bytearray(line)
            damaged[place] ^= 1 << bit
            with contextlib.suppress(ValueError):
                parsed = parse_record(bytes(damaged))
                # where the name of the checksum itself is changed, the rest is as it was
                assert {name: parsed.get(name) for name in stored} == stored, (place, bit)


def test_records_come_back_in_order(tmp_path):
    path = tmp_path / "records.jsonl"
    assert read_records(path) == []
    records = [record(split=k, name='Ä\n"b"', test_accuracy=None, readout=["ego"]) for k in range(3)]
    for one in records:
        append_record(path, one)
    assert read_records(path) == records
    assert len(path.read_text().splitlines()) == 3


def test_nan_is_not_written(tmp_path):
    path = tmp_path / "records.jsonl"
    with pytest.raises(ValueError, match="JSON"):
        append_record(path, {"loss": float("nan")})
    assert not path.exists()


@pytest.mark.parametrize("keep", [1, 10, -2])
def test_a_last_line_cut_short_is_skipped(tmp_path, keep):
    path = tmp_path / "records.jsonl"
    for k in range(3):
        append_record(path, record(split=k, seed=7))
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rindex(b"\n") + 1
    path.write_bytes(whole[: last + keep] if keep > 0 else whole[:keep])
    with pytest.warns(InputWarning, match=r"records\.jsonl: 1 line is damaged and left out: 3"):
        assert [r["split"] for r in read_records(path)] == [0, 1]


def test_appending_after_a_cut_line_loses_nothing(tmp_path):
    """A killed run leaves half a line; the next record must not become part of it."""
    path = tmp_path / "records.jsonl"
    append_record(path, record(split=0))
    append_record(path, record(split=1))
    path.write_bytes(path.read_bytes()[:-5])
    append_record(path, record(split=2))
    append_record(path, record(split=3))
    assert [r["split"] for r in read_records(path)] == [0, 2, 3]


def test_a_whole_record_without_its_line_end_is_kept(tmp_path):
    """It counts as finished, so the next record must not turn it into a cut one."""
    path = tmp_path / "records.jsonl"
    append_record(path, record(split=0))
    append_record(path, record(split=1))
    path.write_bytes(path.read_bytes()[:-1])
    assert [r["split"] for r in read_records(path)] == [0, 1]
    append_record(path, record(split=2))
    assert [r["split"] for r in read_records(path)] == [0, 1, 2]


@pytest.mark.parametrize(
    "line", [b'{"version": 2, "a": ', b'{"version": 2, "a": "\xff"}', b"7", b"[" * 100_000, b"null"]
)
def test_damaged_lines_are_left_out_counted_and_named(tmp_path, line):
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'{"version": 2, "a": 1}\n' + line + b'\n{"version": 2, "a": 3}\n')
    with pytest.warns(InputWarning, match=r"records\.jsonl: 1 line is damaged and left out: 2; the other 2 records"):
        assert [record["a"] for record in read_records(path)] == [1, 3]


@pytest.mark.parametrize(("line", "version"), [({"a": 1}, "1"), ({"version": 3}, "3"), ({"version": None}, "None")])
def test_a_record_of_another_version_is_refused_with_a_way_out(tmp_path, line, version):
    path = tmp_path / "records.jsonl"
    append_record(path, record(a=0))
    append_record(path, line)
    way_out = r"reads 2;.*convert_records\.py.*another folder"
    with pytest.raises(InputError, match=f"line 2 has version {version}.*{way_out}"):
        read_records(path)


APPEND = """
import sys, time
from pathlib import Path
from gpatcher.runs.records import RECORD_VERSION, append_record
path, who = Path(sys.argv[1]), int(sys.argv[2])
path.with_name(f"ready-{who}").touch()
while not path.with_name("go").exists():
    time.sleep(0.001)
for k in range(60):
    # of different lengths, some longer than a pipe's atomic write
    append_record(path, {"version": RECORD_VERSION, "who": who, "k": k, "text": "x" * (37 * k % 9000)})
"""


def test_processes_that_append_at_once_keep_every_line(tmp_path):
    path = tmp_path / "records.jsonl"
    workers = [subprocess.Popen([sys.executable, "-c", APPEND, path, str(who)]) for who in range(3)]
    while len(list(tmp_path.glob("ready-*"))) < 3:
        assert all(worker.poll() is None for worker in workers), "one ended too early"
        time.sleep(0.01)
    (tmp_path / "go").touch()
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert sorted((r["who"], r["k"]) for r in read_records(path)) == [(who, k) for who in range(3) for k in range(60)]


def test_the_hash_of_settings():
    assert settings_hash({"a": 1, "b": (1, 2)}) == settings_hash({"b": [1, 2], "a": 1})
    assert settings_hash({"a": 1}) != settings_hash({"a": 2})
    assert settings_hash({"a": 1}) != settings_hash({"b": 1})
    assert len(settings_hash({})) == 8


def test_versions_and_memory():
    installed = versions()
    assert {"python", "gpatcher", "torch", "torch_geometric", "numpy", "scipy", "threads"} == set(installed)
    assert installed["numpy"] == np.__version__
    json.dumps(installed)
    assert 10 < peak_rss_mb() < 1e6


# ------------------------------------------------------------------------------------------------ schema


SOURCE = "csbm:phi=0.5,n=60,features=4"
SETTINGS = complete({"patches": {"size": 4}, "model": {"hidden": 4}, "train": {"epochs": 2}}, "fast")


@pytest.fixture(scope="module")
def asked_by(tmp_path_factory):
    """Records of the same run by ``fit`` and by ``bench``, and of a baseline by ``bench``."""
    torch.set_num_threads(1)  # as a bench does: the order of a sum depends on it
    out = tmp_path_factory.mktemp("run")
    fit_splits(load_graph(f"{SOURCE},seed=0"), "fast", SETTINGS, out, FitOptions(compare=False))
    [fit] = read_records(out / "records.jsonl")
    small = {"model": {"hidden": 4}, "train": {"epochs": 2}}
    jobs = [Job("csbm_sweep", SOURCE, name, settings, 0, 0) for name, settings in (("fast", SETTINGS), ("mlp", small))]
    bench, baseline = (perform(job, None) for job in jobs)
    return {"fit": fit, "bench": bench, "baseline": baseline}


def test_the_fields_are_the_same_whoever_asks(asked_by):
    assert all(one["error"] is None for one in asked_by.values())
    assert {one["version"] for one in asked_by.values()} == {RECORD_VERSION}
    fields = set(asked_by["fit"])
    assert set(asked_by["bench"]) == fields
    assert set(asked_by["baseline"]) == fields


def test_the_figures_are_the_same_whoever_asks(asked_by):
    fit, bench = asked_by["fit"], asked_by["bench"]
    of_the_asker = {"job", "experiment", "dataset"}
    of_the_moment = {"seconds", "train_seconds", "extract_seconds", "peak_rss_mb"}
    same = set(fit) - of_the_asker - of_the_moment
    assert {name: fit[name] for name in same} == json.loads(json.dumps({name: bench[name] for name in same}))
    assert fit["experiment"] == "fit"
    assert fit["job"] != bench["job"]
    assert 0 < fit["node_heterophily"] < 1


def test_fields_of_patches_are_null_for_a_baseline(asked_by):
    names = ("extractors", "compared", "calibration", "response")
    assert [asked_by["baseline"][name] for name in names] == [None] * 4
    assert asked_by["fit"]["extractors"] == ["ppr"]
    assert set(asked_by["fit"]["compared"]) == {"ppr"}
    assert asked_by["fit"]["calibration"]["temperature"] > 0
    assert asked_by["fit"]["response"] is None  # nothing was learned


def test_a_failed_job_has_the_same_header(asked_by):
    failed = perform(Job("csbm_sweep", SOURCE, "mlp", {"train": {"lr": -1.0}}, 0, 0), None)
    assert "lr must be above 0, got -1.0" in failed["error"]
    assert set(failed) < set(asked_by["fit"])
    assert {"version", "job", "settings", "settings_hash", "trials", "ablation", "seconds", "peak_rss_mb"} < set(failed)


# ------------------------------------------------------------------------------------------------ summary


@given(st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_the_summary_agrees_with_scipy(values):
    summary = summarise(values)
    assert summary.count == len(values)
    assert summary.mean == pytest.approx(np.mean(values))
    assert summary.std == pytest.approx(np.std(values, ddof=1))
    error = stats.sem(values)
    if error > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=error)
        assert summary.low == pytest.approx(max(0, low), abs=1e-9)
        assert summary.high == pytest.approx(min(1, high), abs=1e-9)
    assert 0 <= summary.low <= summary.mean + 1e-12
    assert summary.mean - 1e-12 <= summary.high <= 1


def test_the_summary_in_words():
    summary = summarise([0.8, 0.82, 0.84])
    assert (str(summary), summary.spread, summary.interval) == ("82.0 ± 2.0", "± 2.0", "95 % interval 77.0 to 87.0")


def test_the_summary_of_one_run_has_no_spread():
    summary = summarise([0.75])
    assert (summary.count, summary.mean, summary.std, summary.low, summary.high) == (1, 0.75, None, None, None)
    assert (str(summary), summary.spread, summary.interval) == ("75.0", "", "one run")


def test_no_runs_have_no_summary():
    with pytest.raises(InputError, match="no runs"):
        summarise([])
