"""Radix sort of keys, against NumPy's stable sort."""

import numpy as np
import pytest

from gpatcher.kernels.radix import bin_ranges, row_ranges, sort_keys


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("skip", [0, 5, 12])
@pytest.mark.parametrize(("size", "high"), [(0, 20), (1, 20), (2, 20), (1000, 12), (40_000, 30), (300_000, 63)])
def test_sorted_stably_by_the_upper_bits(size, high, skip, weighted):
    rng = np.random.default_rng(size + skip)
    # half of the keys among few, so that there are ties and uneven parts
    keys = np.where(rng.random(size) < 0.5, rng.integers(0, 2**high, size), rng.integers(0, 2**10, size))
    weights = rng.random(size) if weighted else None
    order = np.argsort(keys >> skip, kind="stable")
    expected = keys[order], None if weights is None else weights[order]
    sort_keys(keys, weights, np.empty_like(keys), None if weights is None else np.empty_like(weights), skip, high)
    np.testing.assert_array_equal(keys, expected[0])
    if weights is not None:
        np.testing.assert_array_equal(weights, expected[1])


def test_ranges_cover_all_rows_within_the_limit():
    ids = np.random.default_rng(0).integers(0, 1_000_000, 100_000) ** 2 // 1_000_000
    ranges = row_ranges(ids, 1_000_000, 7_000)
    assert [first for first, _, _ in ranges[1:]] == [last for _, last, _ in ranges[:-1]]
    assert (ranges[0][0], ranges[-1][1]) == (0, 1_000_000)
    for first, last, count in ranges:
        assert count == np.count_nonzero((ids >= first) & (ids < last)) <= 7_000
    assert len(ranges) < 20


def test_a_range_has_a_bin_however_large():
    assert bin_ranges(np.array([0, 9, 1, 1, 9, 0]), 2) == [0, 1, 2, 4, 5, 6]
