"""Records: appended whole, read back whole, summed up right."""

import json
import multiprocessing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gpatcher.errors import InputError
from gpatcher.runs.records import append_record, config_hash, peak_rss_mb, read_records, summarise, versions


def test_records_come_back_in_order(tmp_path):
    path = tmp_path / "records.jsonl"
    assert read_records(path) == []
    records = [{"split": k, "name": 'Ä\n"b"', "test_accuracy": None, "paths": ["ego"]} for k in range(3)]
    for record in records:
        append_record(path, record)
    assert read_records(path) == records
    assert len(path.read_text().splitlines()) == 3


def test_what_is_no_number_is_not_written(tmp_path):
    path = tmp_path / "records.jsonl"
    with pytest.raises(ValueError, match="JSON"):
        append_record(path, {"loss": float("nan")})
    assert not path.exists()


@pytest.mark.parametrize("keep", [1, 10, -2])
def test_a_last_line_cut_short_is_passed_over(tmp_path, keep):
    path = tmp_path / "records.jsonl"
    for k in range(3):
        append_record(path, {"split": k, "seed": 7})
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rindex(b"\n") + 1
    path.write_bytes(whole[: last + keep] if keep > 0 else whole[:keep])
    assert [r["split"] for r in read_records(path)] == [0, 1]


def test_appending_after_a_cut_line_loses_nothing(tmp_path):
    """A killed run leaves half a line; the record of the next run must not be glued to it."""
    path = tmp_path / "records.jsonl"
    append_record(path, {"split": 0})
    append_record(path, {"split": 1})
    path.write_bytes(path.read_bytes()[:-5])
    append_record(path, {"split": 2})
    append_record(path, {"split": 3})
    assert [r["split"] for r in read_records(path)] == [0, 2, 3]


def test_a_whole_record_without_its_line_end_is_kept(tmp_path):
    """It was read as finished, so the next record must not turn it into a cut one."""
    path = tmp_path / "records.jsonl"
    append_record(path, {"split": 0})
    append_record(path, {"split": 1})
    path.write_bytes(path.read_bytes()[:-1])
    assert [r["split"] for r in read_records(path)] == [0, 1]
    append_record(path, {"split": 2})
    assert [r["split"] for r in read_records(path)] == [0, 1, 2]


def test_damage_within_is_an_error_that_names_the_line(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"a": 1}\n{"a": \n{"a": 3}\n')
    with pytest.raises(InputError, match=r"records\.jsonl, line 2"):
        read_records(path)


def _append_many(path, who, count):
    for k in range(count):
        # of different lengths, some longer than a pipe's atomic write
        append_record(path, {"who": who, "k": k, "text": "x" * (37 * k % 9000)})


def test_processes_that_append_at_once_keep_every_line(tmp_path):
    path = tmp_path / "records.jsonl"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append_many, args=(path, who, 60)) for who in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    found = sorted((r["who"], r["k"]) for r in read_records(path))
    assert found == [(who, k) for who in range(3) for k in range(60)]


def test_the_hash_of_a_configuration():
    assert config_hash({"a": 1, "b": (1, 2)}) == config_hash({"b": [1, 2], "a": 1})
    assert config_hash({"a": 1}) != config_hash({"a": 2})
    assert config_hash({"a": 1}) != config_hash({"b": 1})
    assert len(config_hash({})) == 8


def test_versions_and_memory():
    found = versions()
    assert {"python", "gpatcher", "torch", "torch_geometric", "numpy", "scipy"} == set(found)
    assert found["numpy"] == np.__version__
    json.dumps(found)
    assert 10 < peak_rss_mb() < 1e6


@given(st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_summary_is_scipys(values):
    found = summarise(values)
    assert found.count == len(values)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.std == pytest.approx(np.std(values, ddof=1))
    spread = stats.sem(values)
    if spread > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=spread)
        assert found.low == pytest.approx(max(0, low), abs=1e-9)
        assert found.high == pytest.approx(min(1, high), abs=1e-9)
    assert 0 <= found.low <= found.mean + 1e-12
    assert found.mean - 1e-12 <= found.high <= 1


def test_summary_of_one_run():
    found = summarise([0.75])
    assert (found.count, found.mean, found.std, found.low, found.high) == (1, 0.75, 0.0, 0.75, 0.75)
    assert str(found) == "75.0, one run"
