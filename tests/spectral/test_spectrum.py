import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gpatcher.datasets.load import load_dataset
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.spectral.diagnosis import label_signal
from gpatcher.spectral.spectrum import chebyshev_moments, eigenpairs, measure_exact, measure_from_moments


def random_graph(n, seed, edges=3):
    rng = np.random.default_rng(seed)
    pairs = {tuple(sorted(p)) for p in rng.integers(0, n, (edges * n, 2)).tolist() if p[0] != p[1]}
    half = np.array(sorted(pairs)).T
    return Graph.from_edge_index(np.concatenate([half, half[::-1]], axis=1), num_nodes=n)


@pytest.mark.parametrize("self_loops", [False, True])
def test_eigenpairs_rebuild_the_matrix(self_loops):
    graph = random_graph(40, seed=1)
    spectrum = eigenpairs(graph, self_loops)
    rebuilt = spectrum.vectors * spectrum.values @ spectrum.vectors.T
    np.testing.assert_allclose(rebuilt, graph.normalised(self_loops).toarray(), atol=1e-12)
    np.testing.assert_allclose(spectrum.vectors.T @ spectrum.vectors, np.eye(40), atol=1e-12)
    assert np.all(np.diff(spectrum.values) >= 0)
    assert spectrum.values[-1] == pytest.approx(1.0)


def test_eigenvalues_of_a_ring():
    n = 12
    ring = np.arange(n)
    graph = Graph.from_edge_index([np.r_[ring, (ring + 1) % n], np.r_[(ring + 1) % n, ring]])
    expected = np.sort(np.cos(2 * np.pi * np.arange(n) / n))
    np.testing.assert_allclose(eigenpairs(graph).values, expected, atol=1e-12)


def test_isolated_node_gives_eigenvalue_zero_and_no_nan():
    spectrum = eigenpairs(Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3))
    np.testing.assert_allclose(spectrum.values, [-1, 0, 1], atol=1e-12)
    assert np.isfinite(spectrum.vectors).all()


@given(
    st.integers(0, 1000),
    st.integers(2, 33),
    arrays(np.float64, (20, 2), elements=st.floats(-5, 5, allow_subnormal=False)),
)
@settings(max_examples=40, deadline=None)
def test_moments_equal_the_sum_over_eigenvalues(seed, count, signal):
    graph = random_graph(20, seed)
    spectrum = eigenpairs(graph)
    k = np.arange(count)
    chebyshev = np.cos(np.outer(k, np.arccos(np.clip(spectrum.values, -1, 1))))
    expected = chebyshev @ spectrum.energy(signal)
    np.testing.assert_allclose(chebyshev_moments(graph, signal, count), expected, atol=1e-8 * max(1, abs(expected[0])))


@pytest.mark.parametrize(("bins", "within"), [(10, 0.02), (40, 0.05)])
def test_measure_from_moments_comes_close_to_the_exact_one(bins, within):
    graph = random_graph(600, seed=3, edges=4)
    signal = np.random.default_rng(0).normal(size=600)
    exact = measure_exact(eigenpairs(graph), signal, bins)
    coarse, fine = (measure_from_moments(chebyshev_moments(graph, signal, k), bins) for k in (64, 1024))
    gaps = [0.5 * np.abs(measure.share - exact.share).sum() for measure in (coarse, fine)]
    assert gaps[1] < gaps[0]
    assert gaps[1] < within
    assert fine.mean == pytest.approx(exact.mean)
    for measure in (exact, coarse, fine):
        assert measure.share.sum() == pytest.approx(1)
        assert measure.share.min() >= 0
    assert exact.exact
    assert not fine.exact


def test_measure_of_an_eigenvector_is_one_peak():
    graph = random_graph(200, seed=5)
    spectrum = eigenpairs(graph)
    position = 40
    measure = measure_from_moments(chebyshev_moments(graph, spectrum.vectors[:, position], 400), bins=20)
    peak = np.searchsorted(measure.edges, spectrum.values[position]) - 1
    assert measure.share[max(0, peak - 1) : peak + 2].sum() > 0.99


def test_zero_signal_and_too_few_moments_are_refused():
    graph = random_graph(10, seed=0)
    with pytest.raises(InputError, match="zero everywhere"):
        measure_from_moments(chebyshev_moments(graph, np.zeros(10)))
    with pytest.raises(InputError, match="at least 2, got 1"):
        chebyshev_moments(graph, np.ones(10), count=1)


def test_measure_of_real_labels(data_root):
    graph = load_dataset("Texas", data_root)
    signal = label_signal(graph)
    exact = measure_exact(eigenpairs(graph), signal, bins=10)
    measure = measure_from_moments(chebyshev_moments(graph, signal, 512), bins=10)
    assert 0.5 * np.abs(measure.share - exact.share).sum() < 0.02
    assert measure.mean == pytest.approx(exact.mean)
