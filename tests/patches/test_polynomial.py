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
from gpatcher.model.config import ModelConfig
from gpatcher.patches import PolynomialFilter, extract_patches
from gpatcher.patches.polynomial import moment_budget, moment_products, pair_moments
from gpatcher.patches.ppr import walk_adjacency
from gpatcher.spectral.spectrum import is_affordable
from gpatcher.training.loop import TrainConfig

K = 10
TINY = 1000  # bytes: too few for any eigenvector


def random_graph(seed, n=60, edges=150, weighted=False):
    """Any graph: directed, with several components, self-loops and isolated nodes."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.01, 50.0, edges) if weighted else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        return Graph.from_edge_index(rng.integers(0, n - 3, (2, edges)), num_nodes=n, weights=weights)


def dense_moments(graph, self_loops=False, K=K):
    """T_1(Ã) … T_K(Ã) by the eigenvalues of a matrix written out again; shape (n, n, K)."""
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


def all_nodes(graph):
    """Every node as a candidate of every node."""
    return np.tile(np.arange(graph.n, dtype=np.int32), (graph.n, 1))


@given(st.integers(0, 10_000), st.integers(5, 40), st.booleans(), st.booleans(), st.integers(1, 24))
@settings(max_examples=30, deadline=None)
def test_all_pairs_agree_with_the_dense_polynomials(seed, n, weighted, self_loops, powers):
    graph = random_graph(seed, n, 2 * n, weighted)
    moments = pair_moments(graph, all_nodes(graph), powers, self_loops=self_loops)
    assert moments.dtype == np.float32
    np.testing.assert_allclose(moments, dense_moments(graph, self_loops, powers), atol=1e-5)


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_products_agree_on_the_candidates(weighted, self_loops):
    graph = random_graph(1, 300, 900, weighted)
    extractor = PolynomialFilter(size=16, K=K, self_loops=self_loops, exact=False)
    pairs = extractor.prepare(graph)
    candidates, dense = pairs.candidates.numpy(), dense_moments(graph, self_loops)
    assert candidates.shape == (300, 64)
    assert (candidates >= 0).mean() > 0.5
    for v in range(graph.n):
        mask = candidates[v] >= 0
        assert candidates[v, 0] == v
        assert len(set(candidates[v][mask])) == mask.sum()
        np.testing.assert_allclose(pairs.products[v].numpy()[mask], dense[v, candidates[v][mask]], atol=1e-5)
        assert not pairs.products[v].numpy()[~mask].any()


def test_products_of_some_nodes_are_rows_of_those_of_all():
    graph = random_graph(1, 300, 900)
    extractor = PolynomialFilter(size=16, K=K, exact=False)
    nodes = np.array([299, 4, 4])
    whole = extractor.prepare(graph)
    some = moment_products(walk_adjacency(graph, False), nodes, extractor, moment_budget(300, K))
    torch.testing.assert_close(some.candidates, whole.candidates[nodes])
    torch.testing.assert_close(some.products, whole.products[nodes])


def test_rows_of_some_nodes_in_any_order():
    graph = random_graph(2)
    nodes = np.array([59, 3, 3, 17])
    candidates = np.array([[59, 1, -1], [3, 4, 5], [5, -1, 3], [0, 1, 2]], np.int32)
    moments, dense = pair_moments(graph, candidates, K, nodes=nodes), dense_moments(graph)
    for row, v in enumerate(nodes):
        for j, u in enumerate(candidates[row]):
            np.testing.assert_allclose(moments[row, j], dense[v, u] if u >= 0 else 0, atol=1e-5)


def test_an_isolated_node_has_the_polynomials_at_zero():
    with pytest.warns(InputWarning, match="no edges"):
        graph = Graph.from_edge_index(np.zeros((2, 0), int), num_nodes=2)
    moments = pair_moments(graph, np.array([[0, 1], [1, -1]], np.int32), 6)
    np.testing.assert_array_equal(moments[0], [[0, -1, 0, 1, 0, -1], [0] * 6])
    np.testing.assert_array_equal(moments[1, 0], moments[0, 0])


# ------------------------------------------------------------------------------------------------ budget


def errors(graph, budget):
    moments = pair_moments(graph, all_nodes(graph), K, budget=budget)
    return np.linalg.norm(moments - dense_moments(graph), axis=1)  # (n, K)


def test_the_error_decreases_with_the_budget_to_zero():
    graph = random_graph(3, 200, 1200, weighted=True)
    entries = graph.undirected().stored_edges
    means = [errors(graph, budget).mean() for budget in (20, 100, 500, entries)]
    assert means[0] > means[1] > means[2] > means[3]
    assert means[-1] < 1e-6
    assert means[2] < 0.5 * means[0]


@pytest.mark.parametrize("budget", [1, 10, 60, 200])
def test_the_error_keeps_its_bound(budget):
    """The bound of the docstring, with what is held back computed by the same rule on dense vectors."""
    graph = random_graph(4, 80, 240)
    A = graph.normalised().toarray()
    degree = graph.degrees()
    entries = np.diff(graph.undirected().indptr)
    actual = errors(graph, budget)
    held_back = 0
    for v in np.flatnonzero(degree > 0)[:20]:
        previous, current = np.zeros(graph.n), np.eye(graph.n)[v]
        held = []
        for k in range(K):
            size = np.abs(current) / np.sqrt(np.maximum(degree, 1))
            keep = np.ones(graph.n, bool)
            if k:
                order = np.argsort(-size)
                # a bin of sizes spans a quarter of an octave, and is held back as a whole
                fits = np.cumsum(entries[order]) <= budget
                least = size[order[~fits][0]] * 1.25 if not fits.all() else 0.0
                keep = size > least
            held.append(np.linalg.norm(current[~keep]))
            factor = 2.0 if k else 1.0
            previous, current = current, factor * A @ (current * keep) - previous
        bound = [2 * sum((k - j) * held[j] for j in range(k)) for k in range(1, K + 1)]
        assert np.all(actual[v] <= np.array(bound) + 1e-5)
        held_back += sum(held) > 0
    assert held_back


def test_the_first_step_is_whole_whatever_the_degree():
    star = Graph.from_edge_index(np.array([[0] * 30 + list(range(1, 31)), [*range(1, 31), *[0] * 30]]))
    moments = pair_moments(star, np.array([[0, 7]], np.int32), 1, nodes=np.array([0]), budget=1)
    np.testing.assert_allclose(moments[0, 1, 0], 1 / np.sqrt(30), rtol=1e-6)


def test_the_default_budget_bounds_the_total_work():
    assert moment_budget(400, 10) == 1_000_000  # all of any graph of that size
    assert moment_budget(20_000, 10) == 20_000
    assert moment_budget(10**9, 10) == 10_000
    assert moment_budget(10**9, 10, 7) == 7


@pytest.mark.parametrize(("options", "words"), [({"budget": 0}, "budget.*0"), ({"K": 0}, "K.*0")])
def test_arguments_outside_their_range_are_refused(options, words):
    graph = random_graph(0)
    with pytest.raises(InputError, match=words):
        pair_moments(graph, all_nodes(graph), **{"K": 2} | options)


def test_progress_counts_the_nodes_of_three_passes():
    calls = []
    extractor = PolynomialFilter(size=8, K=3, exact=False)
    extractor.prepare(random_graph(0, 200, 300), progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (600, 600)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert {total for _, total in calls} == {600}


# ----------------------------------------------------------------------------------------------- learning


def test_before_training_moments_select_as_eigenvectors():
    graph = csbm(phi=0.5, n=300, features=5)
    extractor = PolynomialFilter(size=8, K=K, c=0.5, candidates=25, exact=False)
    assert extractor.candidate_count == 200
    patches = extractor.source(extractor.prepare(graph)).patches()
    expected = extract_patches(graph, PolynomialFilter(size=8, K=K, c=0.5, exact=True))
    same = [len(set(a) & set(b)) for a, b in zip(patches.index, expected.index, strict=True)]
    assert np.mean(same) > 7.8
    np.testing.assert_allclose(patches.score[:, 0], expected.score[:, 0], atol=1e-5)


def test_gradients_reach_the_weights_and_a_high_pass_filter_selects_other_nodes():
    graph = csbm(phi=0.5, n=200, features=5)
    extractor = PolynomialFilter(size=8, K=4, exact=False)
    source = extractor.source(extractor.prepare(graph))
    _, score = source(torch.arange(200))
    score.square().sum().backward()
    assert (source.filter.weight.grad.abs() > 0).all()
    before = source.patches().index
    with torch.no_grad():
        source.filter.weight.copy_(torch.tensor([-1.0, 0.5, -0.2, 0.1]))  # a high-pass filter
    source.reselect()
    after = source.patches()
    assert np.mean([len(set(a) & set(b)) < 8 for a, b in zip(before, after.index, strict=True)]) > 0.9
    dense = dense_moments(graph, K=4) @ np.array([-1.0, 0.5, -0.2, 0.1])
    mask = after.index >= 0
    expected = np.take_along_axis(dense, np.maximum(after.index, 0).astype(int), 1)
    np.testing.assert_allclose(after.score[mask], expected[mask], atol=1e-5)


MODEL = ModelConfig(hidden=16, mixer_hidden=8)


def test_the_classifier_uses_moments_where_eigenvectors_do_not_fit(tmp_path):
    graph = csbm(phi=-0.7, n=300, features=10)
    options = {"patches": PolynomialFilter(size=8), "model": MODEL}
    exact = GPatcherClassifier(**options, train=TrainConfig(epochs=30)).fit(graph)
    model = GPatcherClassifier(**options, train=TrainConfig(epochs=30, filter_lr=5.0), memory=TINY).fit(graph)
    assert exact.extractors_ == (PolynomialFilter(size=8, exact=True),)
    assert model.extractors_ == (PolynomialFilter(size=8, exact=False),)
    response = model.filter_response()
    assert np.abs(response.response - response.start).max() > 0.01
    model.save(tmp_path)
    # the choice is saved, whatever memory is free when the model is loaded
    loaded = GPatcherClassifier.load(tmp_path).set_params(memory=None)
    np.testing.assert_array_equal(loaded.predict_proba(graph), model.predict_proba())
    assert loaded.extractors_ == model.extractors_


def test_moments_and_eigenvectors_train_alike():
    """With every node a candidate the two read the same numbers but for rounding."""
    graph = csbm(phi=-0.7, n=150, features=10)
    patches = PolynomialFilter(size=8, candidates=30)
    assert patches.candidate_count >= graph.n
    results = [
        GPatcherClassifier(patches=patches, model=MODEL, train=TrainConfig(epochs=10), memory=memory)
        .fit(graph)
        .result_.history
        for memory in (None, TINY)
    ]
    for one, two in zip(*results, strict=True):
        assert one["val_loss"] == pytest.approx(two["val_loss"], abs=2e-3)


def test_exact_is_decided_by_memory_unless_given():
    graph = random_graph(0)
    for exact in (True, False):
        assert PolynomialFilter(exact=exact).resolve(graph, TINY) == (PolynomialFilter(exact=exact),)
    assert PolynomialFilter().resolve(graph) == (PolynomialFilter(exact=True),)
    assert PolynomialFilter().resolve(graph, TINY) == (PolynomialFilter(exact=False),)


def test_eigenvectors_must_fit_the_memory_and_take_ten_minutes_at_most():
    assert is_affordable(1000)
    assert not is_affordable(1000, memory=TINY)
    assert not is_affordable(100_000, memory=2**60)  # too slow
