"""Rows built from edges and made undirected, against sums over dictionaries."""

import numpy as np
import pytest

from gpatcher.graph import csr
from gpatcher.graph.csr import count_one_way, rows_of_edges, undirected_rows


def entries(indptr, indices, weights):
    """The weight of each edge in the order of the rows, 1 without weights."""
    source = np.repeat(np.arange(indptr.size - 1), np.diff(indptr)).tolist()
    values = np.ones(indices.size) if weights is None else weights
    return list(zip(source, indices.tolist(), values.tolist(), strict=True))


@pytest.fixture(params=[False, True], ids=["one range", "many ranges"])
def _ranges(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(csr, "_SMALLEST_RANGE", 1)


@pytest.mark.usefixtures("_ranges")
@pytest.mark.parametrize("dtype", [None, np.float32, np.float64])
@pytest.mark.parametrize("ids", [np.int32, np.int64])
@pytest.mark.parametrize(("n", "m"), [(1, 0), (1, 3), (3, 0), (2, 50), (40, 3_000), (100_000, 3_000)])
def test_rows_are_those_of_a_dictionary(n, m, ids, dtype):
    rng = np.random.default_rng(m)
    # low ids are frequent, so that there are duplicates, self-loops and both directions; the last node has no edges
    pairs = (rng.random((m, 2)) ** 3 * max(1, n - 1)).astype(ids)
    weight = None if dtype is None else rng.choice([0.1, 0.25, 1.0, 3.0], m).astype(dtype)
    expected = {}
    for (v, u), w in zip(pairs.tolist(), np.ones(m) if weight is None else weight, strict=True):
        expected[v, u] = 1.0 if weight is None else expected.get((v, u), dtype(0)) + w
    rows, duplicates = rows_of_edges(pairs[:, 0], pairs[:, 1], weight, n)
    assert duplicates == m - len(expected)
    assert entries(*rows) == [(*pair, float(expected[pair])) for pair in sorted(expected)]
    assert rows[1].dtype == np.int32
    assert rows[2] is None or rows[2].dtype == dtype
    assert not any(array.flags.writeable for array in rows if array is not None)

    assert count_one_way(*rows) == sum(expected.get((u, v)) != w for (v, u), w in expected.items())
    both = dict(expected)
    for (v, u), w in expected.items():
        both[u, v] = max(w, expected.get((u, v), w))
        both[v, u] = both[u, v]
    undirected = undirected_rows(*rows)
    assert entries(*undirected) == [(*pair, float(both[pair])) for pair in sorted(both)]
    assert count_one_way(*undirected) == 0
