"""Personalised PageRank by local push against the inverse matrix, and its error bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpatcher.datasets.load import load_graph
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.kernels.degree_codes import degree_codes, least_degree
from gpatcher.kernels.ppr_push import push_ppr
from gpatcher.patches.base import Patches
from gpatcher.patches.ppr import (
    PPR,
    cached_adjacency,
    ppr_scores,
    push_from,
    push_patches,
    top_recall,
    walk_adjacency,
)

C = 0.6


def score_matrix(patches, n):
    """Scores of patches as a matrix, 0 where a node is in no patch."""
    R = np.zeros((len(patches.index), n))
    for row, (index, score) in enumerate(zip(patches.index, patches.score, strict=True)):
        R[row, index[index >= 0]] = score[index >= 0]
    return R


@given(st.integers(0, 10_000), st.integers(2, 20), st.integers(1, 25), st.floats(0.05, 0.95))
@settings(max_examples=25, deadline=None)
def test_push_on_random_graphs(graphs, dense, seed, n, size, c):
    rng = np.random.default_rng(seed)
    # any graph: several components, isolated nodes, directed edges, self-loops
    graph = graphs.build(rng.integers(0, n, n), rng.integers(0, n, n), n)
    R = (1 - c) * np.linalg.inv(np.eye(n) - c * dense.normalised(graph))
    patches = push_patches(graph, PPR(size=size, c=c, eps=1e-10))
    dense.check(patches, R, atol=1e-6, reached=1e-12)


# ------------------------------------------------------------------------------------------------ error bound


@pytest.mark.parametrize("kind", ["connected", "weighted", "directed", "disconnected"])
@pytest.mark.parametrize("eps", [1e-1, 1e-2, 1e-3, 1e-4])
def test_push_keeps_its_error_bound(graphs, dense, kind, eps):
    graph = graphs.make(kind)
    R = dense.scores("ppr", graph)
    result = score_matrix(push_patches(graph, PPR(size=graph.n, c=C, eps=eps)), graph.n)
    degree = graph.degrees()
    bound = eps * np.sqrt(np.outer(degree, degree))
    assert np.all(R - result <= bound + 1e-6)
    assert np.all(result <= R + 1e-6), "the estimate is a lower bound"


def test_the_error_of_push_decreases_with_eps(graphs, dense):
    graph = graphs.make("weighted")
    R = dense.scores("ppr", graph)
    errors = [
        np.abs(score_matrix(push_patches(graph, PPR(size=graph.n, c=C, eps=eps)), graph.n) - R).max()
        for eps in (1e-1, 1e-3, 1e-5, 1e-8)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[-1] < 1e-6


def test_push_grows_its_queue(graphs):
    """More pushes than the first queue has room for."""
    rng = np.random.default_rng(0)
    n = 3000
    hub = np.c_[np.zeros(n - 1, int), np.arange(1, n)]
    graph = graphs.undirected(np.unique(np.vstack([hub, np.sort(rng.integers(1, n, (n, 2)), 1)]), axis=0))
    patches = push_patches(graph, PPR(size=3000, c=0.5, eps=1e-9), nodes=[0, 5])
    A = graph.normalised()
    expected = np.zeros((n, 2))
    start = np.zeros((n, 2))
    start[0, 0] = start[5, 1] = 1
    for _ in range(60):
        expected = 0.5 * start + 0.5 * (A @ expected)
    for row in range(2):
        assert (patches.index[row] >= 0).all()
        np.testing.assert_allclose(patches.score[row], expected[patches.index[row], row], atol=1e-6)


def test_push_grows_its_hash_table():
    """A star with more leaves than the first table has slots; each push of a leaf returns some of its residual."""
    n = 100_000
    leaves = np.arange(1, n)
    graph = Graph.from_edge_index(np.stack([np.zeros(n - 1, np.int64), leaves]), num_nodes=n)
    nodes = np.array([7, 0, 9])
    patches = push_patches(graph, PPR(size=4, c=0.5, eps=1e-9), nodes=nodes)
    exact = ppr_scores(graph, nodes, 0.5)
    assert patches.index[0, :2].tolist() == [7, 0]
    assert patches.index[1].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(patches.score, exact[np.arange(3)[:, None], patches.index], rtol=1e-4)


def test_push_from_more_sources_than_a_table_has_epochs():
    """A path and a pair of nodes: the path's sources come again when the marks of their table return."""
    n, period = 9, (1 << 16) - 1
    pairs = np.array([[0, 1, 2, 3, 4, 5, 7], [1, 2, 3, 4, 5, 6, 8]])
    adjacency = walk_adjacency(Graph.from_edge_index(pairs, num_nodes=n), False)
    path = np.arange(7)
    sources = np.concatenate([path, np.full(period - 7, 7), path[::-1], path])
    patches = Patches.empty(len(sources), 4)
    push_ppr(*adjacency, sources, C, 1e-6, patches.index, patches.score)
    np.testing.assert_array_equal(patches.index[-14:-7], patches.index[6::-1])
    np.testing.assert_array_equal(patches.index[-7:], patches.index[:7])
    np.testing.assert_array_equal(patches.score[-14:-7], patches.score[6::-1])


def test_push_on_a_weighted_graph_with_small_weights(graphs, dense):
    """Degrees below 1: a bound that holds for numbers of neighbours does not hold for them."""
    rng = np.random.default_rng(1)
    pairs = graphs.random_pairs(40, rng)
    graph = graphs.undirected(pairs, weights=rng.uniform(1e-4, 1e-2, len(pairs)))
    dense.check(push_patches(graph, PPR(size=6, c=C, eps=1e-7)), dense.scores("ppr", graph), atol=3e-6)


@given(st.lists(st.integers(0, 2**31), min_size=1, max_size=50))
@settings(deadline=None)
def test_codes_of_numbers_of_edges(degrees):
    """Exact below 128, else to a fifth of an octave."""
    degree = np.array(degrees, dtype=float)
    codes = degree_codes(degree, False)
    assert codes.dtype == np.uint8
    least = np.array([least_degree(int(code), False) for code in codes])
    few = degree < 128
    np.testing.assert_array_equal(least[few], degree[few])
    assert np.all(least <= degree)
    assert np.all(degree[~few] < least[~few] * 2**0.2 * (1 + 1e-8))


@given(st.lists(st.one_of(st.just(0.0), st.floats(1e-15, 1e15)), min_size=1, max_size=50))
@settings(deadline=None)
def test_codes_of_sums_of_weights(degrees):
    """Lower bounds to a quarter of an octave, within the 64 octaves around 1 that a code covers."""
    degree = np.array(degrees)
    codes = degree_codes(degree, True)
    assert codes.dtype == np.uint8
    least = np.array([least_degree(int(code), True) for code in codes])
    assert np.all(least <= degree)
    within = (degree > 2.0**-31) & (degree < 2.0**31)
    assert np.all(degree[within] < least[within] * 2**0.25 * (1 + 1e-8))


def test_codes_packed_with_the_neighbours_change_no_bit():
    """A graph large enough to be packed, with nodes beyond 2^16, hubs and isolated nodes."""
    graph = load_graph("rmat:n=70000,m=140000,seed=2")
    adjacency = walk_adjacency(graph, False)
    packed = adjacency.packed()
    assert packed.degree_codes is None
    np.testing.assert_array_equal(packed.indices & 0xFFFFFF, adjacency.indices)
    np.testing.assert_array_equal(packed.indices >> 24, adjacency.degree_codes[adjacency.indices])
    sources = np.arange(0, 70000, 40)
    one, two = (push_from(part, sources, 12, C, 1e-5) for part in (adjacency, packed))
    np.testing.assert_array_equal(one.index, two.index)
    np.testing.assert_array_equal(one.score, two.score)
    small = walk_adjacency(load_graph("rmat:n=1000,m=3000"), False)
    assert small.packed() is small


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("step", "eps"), [(50, 1e-5), (50000, 1e-8)])
def test_neighbours_taken_16_at_a_time_change_no_bit(symmetric, step, eps):
    """Weights of 1 are pushed one by one; the smaller eps needs a table beyond the one that is kept."""
    graph = load_graph("rmat:n=200000,m=800000,seed=3")
    plain = walk_adjacency(graph, False)._replace(symmetric=symmetric)
    weighted = plain._replace(weights=np.ones(graph.indices.size), degree_codes=degree_codes(plain.degree, True))
    sources = np.arange(1, graph.n, step)
    results = [push_from(part, sources, 20, C, eps) for part in (weighted, plain, plain.packed())]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].index, other.index)
        np.testing.assert_array_equal(results[0].score, other.score)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [2, 9, 10, 40])
def test_a_patch_is_the_start_of_a_larger_one(weighted, size):
    """Hubs and many nodes reached: the first floor of the top scores excludes none of them."""
    graph = load_graph("rmat:n=3000,m=40000,seed=1")
    adjacency = walk_adjacency(graph, False)
    if weighted:
        weights = np.ones(graph.indices.size)
        codes = degree_codes(adjacency.degree, True)
        adjacency = adjacency._replace(weights=weights, degree_codes=codes)
    sources = np.arange(0, 3000, 7)
    small, large = (push_from(adjacency, sources, s, C, 1e-5) for s in (size, graph.n))
    np.testing.assert_array_equal(small.index, large.index[:, :size])
    np.testing.assert_array_equal(small.score, large.score[:, :size])


# ------------------------------------------------------------------------------------------------ nodes, threads


def test_push_for_some_nodes_equals_their_rows(graphs):
    graph = graphs.make("disconnected")
    whole = push_patches(graph, PPR(size=6, c=C))
    some = push_patches(graph, PPR(size=6, c=C), nodes=np.array([25, 3, 3, 0]))
    np.testing.assert_array_equal(some.index, whole.index[[25, 3, 3, 0]])
    np.testing.assert_array_equal(some.score, whole.score[[25, 3, 3, 0]])


def test_push_takes_a_mask_of_nodes(graphs):
    graph = graphs.make("connected")
    mask = np.zeros(graph.n, bool)
    mask[[2, 7]] = True
    np.testing.assert_array_equal(push_patches(graph, PPR(size=4), nodes=mask).index[:, 0], [2, 7])


@pytest.mark.parametrize("outside", [-1, 24, 10**9])
def test_push_refuses_nodes_outside_the_graph(outside):
    """Before the kernel, which would read beyond its arrays."""
    graph = Graph.from_edge_index(np.array([[0, 1], [1, 0]]), num_nodes=24)
    with pytest.raises(InputError, match=str(outside)):
        push_patches(graph, PPR(size=2), nodes=[outside])


def test_push_reports_progress(graphs):
    calls = []
    path = graphs.undirected(np.c_[np.arange(599), np.arange(1, 600)])
    push_patches(path, PPR(size=4), progress=lambda done, total: calls.append((done, total)))
    done = [number for number, _ in calls]
    assert done == sorted(done)
    assert len(done) == 3
    assert calls[-1] == (600, 600)


def test_the_number_of_threads_does_not_change_the_result(graphs):
    graph = graphs.undirected(graphs.random_pairs(700, np.random.default_rng(0)))
    one, two = (push_patches(graph, PPR(size=8), threads=threads) for threads in (1, 3))
    np.testing.assert_array_equal(one.index, two.index)
    np.testing.assert_array_equal(one.score, two.score)


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("kind", ["connected", "directed", "weighted", "looped", "isolated"])
def test_the_adjacency_of_the_walk_is_undirected_with_self_loops_as_asked(graphs, dense, kind, self_loops):
    graph = graphs.make(kind)
    adjacency = walk_adjacency(graph, self_loops)
    A = np.zeros((graph.n, graph.n))
    rows = np.repeat(np.arange(graph.n), np.diff(adjacency.indptr))
    A[rows, adjacency.indices] = 1.0 if adjacency.weights is None else adjacency.weights
    np.testing.assert_allclose(A.sum(1), adjacency.degree)
    scale = np.where(adjacency.degree > 0, 1 / np.sqrt(np.where(adjacency.degree > 0, adjacency.degree, 1)), 0)
    np.testing.assert_allclose(scale[:, None] * A * scale, dense.normalised(graph, self_loops), atol=1e-12)


def test_the_adjacency_for_unseen_nodes_is_made_once_per_graph(graphs):
    graph = graphs.make("looped")
    assert cached_adjacency(graph, False) is cached_adjacency(graph, False)
    assert cached_adjacency(graph, True) is not cached_adjacency(graph, False)
    assert cached_adjacency(graphs.make("looped"), False) is not cached_adjacency(graph, False)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"c": 0.0}, r"c must lie in \(0, 1\), got 0"),
        ({"c": 1.0}, "c.*got 1.0"),
        ({"c": float("nan")}, "c.*got nan"),
        ({"eps": 0.0}, "eps.*got 0"),
        ({"eps": 2.0}, "eps.*got 2.0"),
    ],
)
def test_parameters_outside_their_range_are_refused(parameters, words):
    with pytest.raises(InputError, match=words):
        PPR(**parameters)


# ------------------------------------------------------------------------------------------------ checks


@pytest.mark.parametrize("kind", ["connected", "disconnected", "weighted", "directed", "looped", "isolated"])
@pytest.mark.parametrize("self_loops", [False, True])
def test_exact_scores_are_the_inverse(graphs, dense, kind, self_loops):
    graph = graphs.make(kind)
    R = (1 - C) * np.linalg.inv(np.eye(graph.n) - C * dense.normalised(graph, self_loops))
    np.testing.assert_allclose(ppr_scores(graph, np.array([5, 0]), C, self_loops), R[[5, 0]], atol=1e-13)


@pytest.mark.parametrize(
    ("members", "expected"),
    [([0, 1, 2], 1.0), ([0, 1, 3], 0.5), ([0, 3, -1], 0.0), ([0, -1, -1], 0.0), ([0, 2, 1], 1)],
)
def test_recall_counts_the_right_members(members, expected):
    scores = np.array([[0.5, 0.3, 0.2, 0.1, 0.0]])
    patches = Patches(np.array([members], np.int32), np.zeros((1, 3), np.float32))
    assert top_recall(patches, scores) == [expected]


def test_recall_takes_any_of_tied_nodes_and_expects_no_more_than_are_reachable():
    tied = np.array([[0.5, 0.2, 0.1 + 1e-15, 0.1, 0.1]])
    for member in (2, 3, 4):
        assert top_recall(Patches(np.array([[0, 1, member]]), np.zeros((1, 3))), tied) == [1.0]
    short = np.array([[0.5, 0.2, 0.0, 0.0, 0.0]])
    assert top_recall(Patches(np.array([[0, 1, -1]]), np.zeros((1, 3))), short) == [1.0]
    assert top_recall(Patches(np.array([[0, 2, -1]]), np.zeros((1, 3))), short) == [0.0]
    assert top_recall(Patches(np.array([[2, -1]]), np.zeros((1, 2))), np.array([[0.0, 0.0, 0.5]])) == [1.0]


def test_push_recall_on_a_skewed_graph():
    graph = load_graph("rmat:n=5000,m=50000,seed=4")
    nodes = np.arange(0, 5000, 400)
    exact = ppr_scores(graph, nodes, 0.5)
    assert top_recall(push_patches(graph, PPR(size=32, eps=1e-5), nodes), exact).mean() > 0.98
    assert top_recall(push_patches(graph, PPR(size=32, eps=1e-2), nodes), exact).mean() < 0.9
