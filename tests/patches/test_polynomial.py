"""Moments of pairs against the dense matrices T_k(Ã), and what the polynomial filter learns from them."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError, InputWarning
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.patches.extract import extract_patches
from gpatcher.patches.polynomial import moment_budget, moment_products, pair_moments
from gpatcher.patches.spectral import SpectralPatches
from gpatcher.spectral.filters import Polynomial
from gpatcher.spectral.spectrum import is_affordable

K = 10
TINY = 1000  # bytes: too few for any eigenvector


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "cache"))


def random_graph(seed, n=60, edges=150, weighted=False):
    """Any graph: directed, in parts, with self-loops and isolated nodes."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.01, 50.0, edges) if weighted else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        return Graph.from_edge_index(rng.integers(0, n - 3, (2, edges)), num_nodes=n, weights=weights)


def dense_moments(graph, self_loops=False, K=K):
    """T_1(Ã) … T_K(Ã) by the eigenvalues of a matrix written out anew; shape (n, n, K)."""
    A = np.zeros((graph.n, graph.n))
    rows = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    A[rows, graph.indices] = 1.0 if graph.weights is None else graph.weights
    A = np.maximum(A, A.T)
    np.fill_diagonal(A, 1.0 if self_loops else 0.0)
    degree = A.sum(1)
    scale = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1)), 0)
    values, U = np.linalg.eigh(scale[:, None] * A * scale)
    angle = np.arccos(np.clip(values, -1, 1))
    return np.stack([(U * np.cos(k * angle)) @ U.T for k in range(1, K + 1)], axis=2)


def everyone(graph):
    return np.tile(np.arange(graph.n, dtype=np.int32), (graph.n, 1))


@given(st.integers(0, 10_000), st.integers(5, 40), st.booleans(), st.booleans(), st.integers(1, 24))
@settings(max_examples=30, deadline=None)
def test_all_pairs_agree_with_the_dense_polynomials(seed, n, weighted, self_loops, powers):
    graph = random_graph(seed, n, 2 * n, weighted)
    found = pair_moments(graph, everyone(graph), powers, self_loops=self_loops)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, dense_moments(graph, self_loops, powers), atol=1e-5)


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_products_agree_on_the_candidates(weighted, self_loops):
    graph = random_graph(1, 300, 900, weighted)
    pairs = moment_products(graph, K, 32, self_loops=self_loops)
    around, dense = pairs.around.numpy(), dense_moments(graph, self_loops)
    assert around.shape == (300, 32)
    assert (around >= 0).mean() > 0.5
    for v in range(graph.n):
        there = around[v] >= 0
        assert around[v, 0] == v
        assert len(set(around[v][there])) == there.sum()
        np.testing.assert_allclose(pairs.products[v].numpy()[there], dense[v, around[v][there]], atol=1e-5)
        assert not pairs.products[v].numpy()[~there].any()


def test_rows_of_some_nodes_in_any_order():
    graph = random_graph(2)
    nodes = np.array([59, 3, 3, 17])
    around = np.array([[59, 1, -1], [3, 4, 5], [5, -1, 3], [0, 1, 2]], np.int32)
    found, dense = pair_moments(graph, around, K, nodes=nodes), dense_moments(graph)
    for row, v in enumerate(nodes):
        for j, u in enumerate(around[row]):
            np.testing.assert_allclose(found[row, j], dense[v, u] if u >= 0 else 0, atol=1e-5)


def test_an_isolated_node_has_the_polynomials_at_zero():
    with pytest.warns(InputWarning, match="no edges"):
        graph = Graph.from_edge_index(np.zeros((2, 0), int), num_nodes=2)
    found = pair_moments(graph, np.array([[0, 1], [1, -1]], np.int32), 6)
    np.testing.assert_array_equal(found[0], [[0, -1, 0, 1, 0, -1], [0] * 6])
    np.testing.assert_array_equal(found[1, 0], found[0, 0])


# ------------------------------------------------------------------------------------------------ budget


def errors(graph, budget):
    found = pair_moments(graph, everyone(graph), K, budget=budget)
    return np.linalg.norm(found - dense_moments(graph), axis=1)  # (n, K)


def test_the_error_falls_with_the_budget_and_then_is_gone():
    graph = random_graph(3, 200, 1200, weighted=True)
    entries = graph.undirected().stored_edges
    means = [errors(graph, budget).mean() for budget in (20, 100, 500, entries)]
    assert means[0] > means[1] > means[2] > means[3]
    assert means[-1] < 1e-6
    assert means[2] < 0.5 * means[0]


@pytest.mark.parametrize("budget", [1, 10, 60, 200])
def test_the_error_keeps_its_bound(budget):
    """The bound of the docstring, with what is held back found by following the same rule with dense vectors."""
    graph = random_graph(4, 80, 240)
    A = graph.normalised().toarray()
    degree = graph.degrees()
    entries = np.diff(graph.undirected().indptr)
    found = errors(graph, budget)
    held_back = 0
    for v in np.flatnonzero(degree > 0)[:20]:
        before, now = np.zeros(graph.n), np.eye(graph.n)[v]
        held = []
        for k in range(K):
            size = np.abs(now) / np.sqrt(np.maximum(degree, 1))
            keep = np.ones(graph.n, bool)
            if k:
                order = np.argsort(-size)
                # what a bin of sizes may hold back too lies within a quarter of an octave
                fits = np.cumsum(entries[order]) <= budget
                least = size[order[~fits][0]] * 1.25 if not fits.all() else 0.0
                keep = size > least
            held.append(np.linalg.norm(now[~keep]))
            factor = 2.0 if k else 1.0
            before, now = now, factor * A @ (now * keep) - before
        bound = [2 * sum((k - j) * held[j] for j in range(k)) for k in range(1, K + 1)]
        assert np.all(found[v] <= np.array(bound) + 1e-5)
        held_back += sum(held) > 0
    assert held_back


def test_the_source_is_walked_from_whatever_its_degree():
    star = Graph.from_edge_index(np.array([[0] * 30 + list(range(1, 31)), [*range(1, 31), *[0] * 30]]))
    found = pair_moments(star, np.array([[0, 7]], np.int32), 1, nodes=np.array([0]), budget=1)
    np.testing.assert_allclose(found[0, 1, 0], 1 / np.sqrt(30), rtol=1e-6)


def test_the_default_budget_keeps_the_whole_within_bounds():
    assert moment_budget(400, 10) == 1_000_000  # all of any graph of that size
    assert moment_budget(20_000, 10) == 20_000
    assert moment_budget(10**9, 10) == 10_000


@pytest.mark.parametrize(("options", "words"), [({"budget": 0}, "budget.*0"), ({"K": 0}, "K.*0")])
def test_impossible_arguments(options, words):
    graph = random_graph(0)
    with pytest.raises(InputError, match=words):
        pair_moments(graph, everyone(graph), **{"K": 2} | options)


def test_progress_is_told():
    seen = []
    moment_products(random_graph(0, 200, 300), 3, 8, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (600, 600)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert {total for _, total in seen} == {600}


# ----------------------------------------------------------------------------------------------- learning


def test_a_new_filter_selects_as_the_exact_one():
    graph = csbm(phi=0.5, n=300, features=5)
    pairs = moment_products(graph, K, 200, c=0.5)
    patches = SpectralPatches(pairs, Polynomial(K=K, c=0.5), 8).patches()
    expected = extract_patches(graph, "polynomial", 8, K=K, c=0.5)
    same = [len(set(a) & set(b)) for a, b in zip(patches.index, expected.index, strict=True)]
    assert np.mean(same) > 7.8
    np.testing.assert_allclose(patches.score[:, 0], expected.score[:, 0], atol=1e-5)


def test_gradients_reach_the_weights_and_negative_ones_turn_the_selection_round():
    graph = csbm(phi=0.5, n=200, features=5)
    source = SpectralPatches(moment_products(graph, 4, 64), Polynomial(K=4), 8)
    _, score = source(torch.arange(200))
    score.square().sum().backward()
    assert (source.filter.weight.grad.abs() > 0).all()
    before = source.patches().index
    with torch.no_grad():
        source.filter.weight.copy_(torch.tensor([-1.0, 0.5, -0.2, 0.1]))  # a high-pass filter
    source.renew()
    after = source.patches()
    assert np.mean([len(set(a) & set(b)) < 8 for a, b in zip(before, after.index, strict=True)]) > 0.9
    dense = dense_moments(graph, K=4) @ np.array([-1.0, 0.5, -0.2, 0.1])
    there = after.index >= 0
    expected = np.take_along_axis(dense, np.maximum(after.index, 0).astype(int), 1)
    np.testing.assert_allclose(after.score[there], expected[there], atol=1e-5)


OPTIONS = {"extractor": "polynomial", "patch_size": 8, "hidden": 16, "mixer_hidden": 8, "epochs": 30}


def test_the_classifier_takes_moments_where_eigenvectors_do_not_fit(tmp_path):
    graph = csbm(phi=-0.7, n=300, features=10)
    exact = GPatcherClassifier(**OPTIONS).fit(graph)
    model = GPatcherClassifier(**OPTIONS, memory=TINY, filter_lr=5.0).fit(graph)
    assert exact.exact_
    assert not model.exact_
    found = model.filter_response()
    assert np.abs(found.response - found.start).max() > 0.01
    model.save(tmp_path)
    # the way it was made is kept, whatever memory there is when it is loaded
    loaded = GPatcherClassifier.load(tmp_path).set_params(memory=None)
    np.testing.assert_array_equal(loaded.predict_proba(graph), model.predict_proba())
    assert not loaded.exact_


def test_moments_and_eigenvectors_train_alike():
    """With every node a candidate the two see the same numbers but for rounding."""
    graph = csbm(phi=-0.7, n=150, features=10)
    results = [
        GPatcherClassifier(**OPTIONS | {"epochs": 10, "candidates": 30}, memory=memory).fit(graph).result_.history
        for memory in (None, TINY)
    ]
    for one, two in zip(*results, strict=True):
        assert one["val_loss"] == pytest.approx(two["val_loss"], abs=2e-3)


def test_what_is_affordable():
    assert is_affordable(1000)
    assert not is_affordable(1000, memory=TINY)
    assert not is_affordable(100_000, memory=2**60)  # for want of time
