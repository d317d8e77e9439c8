"""Ids are looked up as pyarrow does it, by hash tables that are built once."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from gpatcher.tables.ids import DistinctIds, IdIndex, MarkedIds, id_index

TEXTS = [
    "",
    "a",
    "a\0",
    "\0a",
    "p499999",
    "p4999990",
    "user-00000001",
    "user-00000002",
    "user-0000000",
    "é" * 9,
    "x" * 300,
]


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string()])
def test_text_of_any_length(dtype):
    index = IdIndex(pa.array(TEXTS, pa.large_string()))
    assert index.unique
    order = np.random.default_rng(0).integers(0, len(TEXTS), 1000)
    values = pa.chunked_array([[TEXTS[i] for i in part] for part in np.split(order, [3, 3, 500])], dtype)
    assert index.find(values).tolist() == order.tolist()
    assert index.find(values.slice(7, 600), 5).tolist() == (order[7:607] + 5).tolist()


@pytest.mark.parametrize(
    "unknown", ["b", "aa", "p49999", "p499998", "user-00000003", "user-000000010", "x" * 299, None]
)
def test_unknown_and_missing_text(unknown):
    assert IdIndex(pa.array(TEXTS, pa.large_string())).find(pa.chunked_array([["a", unknown, "p499999"]])) is None


def test_many_ids_are_found_as_by_pyarrow():
    rng = np.random.default_rng(0)
    numbers = np.unique(rng.integers(-(2**63), 2**63 - 1, 20_000))
    rng.shuffle(numbers)
    for ids in (pa.array(numbers), pa.array([f"{v}" for v in numbers], pa.large_string())):
        index = id_index(ids)
        values = pa.chunked_array([ids.take(pa.array(rng.integers(0, len(ids), 50_000)))])
        assert np.array_equal(index.find(values), pc.index_in(values, value_set=ids).to_numpy())
        assert index.unique
        assert not id_index(pa.concat_arrays([ids, ids[-1:]])).unique


def test_other_dtypes_are_not_found():
    assert IdIndex(pa.array([1, 2])).find(pa.chunked_array([["1"]])) is None
    assert IdIndex(pa.array(["1"], pa.large_string())).find(pa.chunked_array([[1]])) is None
    assert id_index(pa.array([True])) is None


@pytest.mark.parametrize("first", [-(2**63), -70, 0, 5, 2**63 - 4000])
def test_ascending_integers_close_together_are_found_in_a_bitmap(first):
    rng = np.random.default_rng(0)
    steps = np.sort(rng.choice(3_000, 900, replace=False))
    ids = pa.array([first + step for step in steps.tolist()], pa.int64())
    index = id_index(ids)
    assert isinstance(index, MarkedIds)
    order = rng.integers(0, 900, 5_000)
    values = pa.chunked_array([ids.take(pa.array(order))])
    assert index.find(values, 3).tolist() == (order + 3).tolist()
    between = first + next(step for step in range(steps[0], 3_000) if step not in steps)
    for unknown in (between, -(2**63), 2**63 - 1):
        if unknown - first not in steps:
            assert index.find(pa.chunked_array([[ids[0].as_py(), unknown]], pa.int64())) is None
    assert index.find(pa.chunked_array([[None]], pa.int64())) is None


def test_distinct_integers_in_a_bitmap_that_grows_both_ways():
    rng = np.random.default_rng(0)
    distinct = DistinctIds()
    parts = [rng.integers(low, low + 500, 300) for low in (0, 700, -900, -(10**6), 10**6)]
    assert all(distinct.add(part) for part in (*parts, np.empty(0, int)))
    np.testing.assert_array_equal(distinct.ascending(), np.unique(np.concatenate(parts)))
    assert not distinct.add(np.array([2**62]))
    np.testing.assert_array_equal(distinct.ascending(), np.unique(np.concatenate(parts)))
