"""Edges sorted on disk, against a sort of all of them in memory."""

import numpy as np
import pytest

from gpatcher.scale import external_sort
from gpatcher.scale.external_sort import sort_edges


def reference(source, target, weight, n, directed):
    """Indptr, neighbours, weights and counts, from a dictionary of both directions of each edge."""
    forward, backward = {}, {}
    duplicates = 0
    for v, u, w in zip(source.tolist(), target.tolist(), weight.tolist(), strict=True):
        duplicates += (v, u) in forward
        forward[v, u] = forward.get((v, u), 0.0) + w
    if not directed:
        backward = {(u, v): w for (v, u), w in forward.items() if u != v}
    pairs = sorted(forward.keys() | backward.keys())
    rows = np.array([v for v, _ in pairs], int)
    values = [max(forward.get(pair, 0.0), backward.get(pair, 0.0)) for pair in pairs]
    loops = sum(v == u for v, u in pairs)
    unequal = sum(pair in backward and backward[pair] != w for pair, w in forward.items())
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    return indptr, [u for _, u in pairs], values, [duplicates, loops, unequal, source.size]


def stored(tmp_path, source, target, weight, n, directed, weighted, memory, piece):
    def pieces():
        for start in range(0, source.size, piece):
            part = slice(start, start + piece)
            yield source[part], target[part], weight[part] if weighted else None

    indptr, counts = sort_edges(
        pieces(), n, weighted=weighted, directed=directed, memory=memory, draft=tmp_path
    )  # fmt: skip
    arrays = {path.stem: np.load(path) for path in tmp_path.iterdir()}  # and no file is left
    assert arrays.keys() == ({"indices", "weights"} if weighted else {"indices"})
    return indptr, arrays["indices"], arrays.get("weights"), counts.tolist()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("memory", [1, 5_000, 1 << 30])
@pytest.mark.parametrize(("n", "m"), [(1, 0), (1, 3), (2, 50), (40, 3_000), (9_000, 3_000)])
def test_rows_are_those_of_a_sort_in_memory(tmp_path, monkeypatch, n, m, memory, weighted, directed):
    monkeypatch.setattr(external_sort, "_BLOCK", 100)
    rng = np.random.default_rng(m)
    # low ids are frequent, so that there are duplicates, self-loops and both directions; the last node has no edges
    source, target = (rng.random((2, m)) ** 3 * max(1, n - 1)).astype(np.int32)
    weight = rng.choice([0.1, 0.25, 1.0, 3.0], m) if weighted else np.ones(m)
    indptr, indices, weights, counts = stored(tmp_path, source, target, weight, n, directed, weighted, memory, 700)
    expected = reference(source, target, weight, n, directed)
    np.testing.assert_array_equal(indptr, expected[0])
    np.testing.assert_array_equal(indices, expected[1])
    assert indices.dtype == np.int32
    if weighted:
        np.testing.assert_array_equal(weights, expected[2])
        assert counts == expected[3]
    else:
        assert counts[:2] == expected[3][:2]
        assert counts[3] == m


def test_files_larger_than_memory_are_sorted_in_parts(tmp_path, monkeypatch):
    sizes = []
    sort_keys = external_sort.sort_keys
    monkeypatch.setattr(
        external_sort, "sort_keys", lambda keys, *rest: (sizes.append(keys.size), sort_keys(keys, *rest))
    )
    source, target = np.random.default_rng(0).integers(0, 20_000, (2, 50_000)).astype(np.int32)
    memory = 300_000
    stored(tmp_path, source, target, None, 20_000, False, False, memory, 10_000)
    assert len(sizes) > 10
    assert 2 * 24 * max(sizes) <= memory
    assert sum(sizes) == 100_000 - np.count_nonzero(source == target)
