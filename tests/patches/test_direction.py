"""Patches along directed edges and by hop, against dense matrices written out from the edges."""

from functools import partial

import numpy as np
import pytest

from gpatcher.errors import InputError
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.patches import PPR, Hop, Overlap, extract_patches
from gpatcher.patches.direction import count_ends
from gpatcher.patches.ppr import push_patches

DIRECTIONS = ("out", "in")


@pytest.fixture
def graph(graphs):
    """A directed graph with self-loops, one-way edges, and nodes that no edge leaves or enters."""
    rng = np.random.default_rng(3)
    source, target = rng.integers(0, 36, (2, 110))
    return graphs.build(source, target, n=40)


@pytest.fixture
def weighted(graphs):
    rng = np.random.default_rng(4)
    pairs = np.unique(rng.integers(0, 30, (90, 2)), axis=0)
    return graphs.build(pairs[:, 0], pairs[:, 1], n=30, weights=rng.uniform(0.5, 2.0, len(pairs)))


def dense_step(dense, graph, direction, self_loops=False):
    """One step as a dense matrix, D_out^-1/2 A D_in^-1/2 along the edges or in reverse, or Ã."""
    if direction == "both":
        return dense.normalised(graph, self_loops)
    A = dense.directed(graph, direction, self_loops)
    degree = np.sqrt(np.outer(A.sum(1), A.sum(0)))
    return np.divide(A, degree, out=np.zeros_like(A), where=A > 0)


@pytest.mark.parametrize("size", [1, 6, 40])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("kind", ["graph", "weighted"])
def test_directed_pagerank_is_the_inverse(request, dense, kind, direction, self_loops, size):
    graph = request.getfixturevalue(kind)
    A = dense.directed(graph, direction, self_loops)
    P = A / np.maximum(A.sum(1, keepdims=True), 1e-300)  # zero rows where a walk ends
    R = 0.3 * np.linalg.inv(np.eye(graph.n) - 0.7 * P)
    extractor = PPR(size=size, c=0.7, eps=1e-10, direction=direction, self_loops=self_loops)
    dense.check(extract_patches(graph, extractor), R, atol=3e-6)


@pytest.mark.parametrize("hop", [1, 2, 3])
@pytest.mark.parametrize("direction", ["both", *DIRECTIONS])
@pytest.mark.parametrize("kind", ["graph", "weighted"])
def test_a_hop_is_a_power_of_one_step(request, dense, kind, direction, hop):
    graph = request.getfixturevalue(kind)
    R = np.linalg.matrix_power(dense_step(dense, graph, direction), hop)
    for size in (4, graph.n):
        dense.check(extract_patches(graph, Hop(size=size, hop=hop, direction=direction)), R, atol=3e-6)


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("threshold", [1e-9, 0.2, 0.6, 1.0])
@pytest.mark.parametrize("direction", ["both", *DIRECTIONS])
@pytest.mark.parametrize("kind", ["graph", "weighted"])
def test_overlap_is_the_cosine_of_neighbourhoods(request, dense, kind, direction, threshold, self_loops):
    graph = request.getfixturevalue(kind)
    step = dense_step(dense, graph, direction, self_loops)
    norms = np.linalg.norm(step, axis=1, keepdims=True)
    rows = np.divide(step, norms, out=np.zeros_like(step), where=norms > 0)
    R = rows @ rows.T
    R[threshold - 1e-9 > R] = 0
    for size in (1, 4, graph.n):
        extractor = Overlap(size=size, threshold=threshold, direction=direction, self_loops=self_loops)
        dense.check(extract_patches(graph, extractor), R, atol=3e-6)


def test_nodes_with_the_same_neighbours_fill_a_patch_by_ascending_id(graphs):
    """Also where there are far more of them than positions: the leaves of a star."""
    star = graphs.undirected([[4, leaf] for leaf in range(5000) if leaf != 4])
    patches = extract_patches(star, Overlap(size=4, threshold=1.0))
    assert patches.index[4].tolist() == [4, -1, -1, -1]
    assert patches.index[0].tolist() == [0, 1, 2, 3]
    assert patches.index[4999].tolist() == [4999, 0, 1, 2]
    assert patches.score[4999].tolist() == [1, 1, 1, 1]


def test_coverage_is_the_fraction_of_nodes_with_a_member_beside_themselves(graphs):
    source = [0, 1, 2, 2, 3, 3]  # 0 and 1 point to the same node; 5 is pointed to by the nodes that point to 6
    graph = graphs.build(source, [4, 4, 5, 6, 5, 6], n=8)
    assert Overlap(direction="out").coverage(graph) == 4 / 8
    assert Overlap(direction="in").coverage(graph) == 2 / 8
    assert Hop().coverage(graph) == 1
    star = graphs.undirected([[0, leaf] for leaf in range(1, 9000)])
    assert Overlap().coverage(star) > 0.999  # from a sample


@pytest.mark.parametrize("make", [PPR, Hop, Overlap])
def test_reversing_the_edges_swaps_the_directions(graphs, graph, make):
    rows = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    reverse = graphs.build(graph.indices, rows, n=graph.n)
    one = extract_patches(graph, make(size=8, direction="out"))
    two = extract_patches(reverse, make(size=8, direction="in"))
    np.testing.assert_array_equal(one.index, two.index)
    np.testing.assert_array_equal(one.score, two.score)


@pytest.mark.parametrize("hop", [1, 2])
def test_on_an_undirected_graph_all_directions_of_a_hop_are_one(weighted, hop):
    undirected = weighted.undirected()
    both, *others = (extract_patches(undirected, Hop(size=30, hop=hop, direction=d)) for d in ("both", *DIRECTIONS))
    for other in others:
        for v in range(undirected.n):
            assert set(both.index[v]) == set(other.index[v])
        np.testing.assert_allclose(other.score, both.score, atol=1e-6)


@pytest.mark.parametrize("direction", ["both", *DIRECTIONS])
def test_a_graph_without_edges_has_patches_of_single_nodes(graphs, direction):
    graph = graphs.build(np.array([], int), np.array([], int), n=3)
    assert Hop(size=8, direction=direction).resolve(graph)[0].size == 1
    for make in (Hop, PPR, Overlap):
        extractor = make(size=4, direction=direction)
        assert extract_patches(graph, extractor).index.tolist() == [[v, -1, -1, -1] for v in range(3)]


def test_a_walk_ends_where_no_edge_leaves(graphs):
    # 0 -> 1 -> 2, and 3 alone
    graph = graphs.build([0, 1], [1, 2], n=4)
    assert [count_ends(graph, direction) for direction in ("out", "in", "both")] == [2, 2, 1]
    patches = extract_patches(graph, PPR(size=3, c=0.5, direction="out", eps=1e-12))
    assert patches.index.tolist() == [[0, 1, 2], [1, 2, -1], [2, -1, -1], [3, -1, -1]]
    np.testing.assert_allclose(patches.score[0], [0.5, 0.25, 0.125])
    np.testing.assert_allclose(patches.score[2], [0.5, 0, 0])


@pytest.mark.parametrize("direction", ["both", *DIRECTIONS])
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("make", [PPR, Hop, partial(Overlap, threshold=0.3)])
def test_unseen_nodes_have_the_patches_of_the_extended_graph(graph, make, direction, self_loops):
    rng = np.random.default_rng(6)
    new = np.array([rng.integers(0, 44, 25), rng.integers(40, 44, 25)])
    new[:, ::2] = new[::-1, ::2]  # edges in both directions
    unseen = UnseenNodes.join(graph, np.unique(new[:, new[0] != new[1]], axis=1), count=4)
    extractor = make(size=9, direction=direction, self_loops=self_loops)
    expected = extract_patches(unseen.extended(), extractor)[unseen.nodes]
    patches = extractor.prepare_unseen(unseen)
    np.testing.assert_array_equal(patches.index, expected.index)
    np.testing.assert_allclose(patches.score, expected.score, rtol=1e-6)


def test_directed_patches_do_not_depend_on_threads(graph):
    extractor = PPR(size=8, direction="in")
    one, two = (push_patches(graph, extractor, threads=threads) for threads in (1, 3))
    np.testing.assert_array_equal(one.index, two.index)
    np.testing.assert_array_equal(one.score, two.score)


def test_a_hop_has_no_positions_that_stay_empty(graph):
    for direction in ("both", *DIRECTIONS):
        [resolved] = Hop(size=512, direction=direction).resolve(graph)
        patches = extract_patches(graph, Hop(size=512, direction=direction))
        assert resolved.size == (patches.index >= 0).sum(1).max()
        assert Hop(size=2, direction=direction).resolve(graph) == (Hop(size=2, direction=direction),)
    assert Hop(size=512, hop=2).resolve(graph)[0].size == graph.n


def test_bad_parameters_are_named():
    with pytest.raises(InputError, match="direction must be one of both, out, in, got 'up'"):
        PPR(direction="up")
    with pytest.raises(InputError, match="direction must be one of"):
        Hop(direction="")
    for threshold in (0, -0.5, 1.5, np.nan):
        with pytest.raises(InputError, match=rf"threshold must lie in \(0, 1\], got {threshold}"):
            Overlap(threshold=threshold)
    for hop in (0, -1, 1.5):
        with pytest.raises(InputError, match=f"hop must be an integer of at least 1, got {hop}"):
            Hop(hop=hop)
