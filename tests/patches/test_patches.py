"""Every extractor against the dense matrix R that it takes the top of, on graphs small enough to invert."""

import gc
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gpatcher.spectral.spectrum
from gpatcher.datasets.load import load_graph
from gpatcher.errors import InputError, InputWarning
from gpatcher.graph.graph import Graph
from gpatcher.kernels.ppr_push import _least_degree, degree_codes
from gpatcher.kernels.topk import top_of_candidates, top_of_rows
from gpatcher.patches.base import Patches
from gpatcher.patches.extract import EXTRACTORS, LEARNABLE, extract_patches
from gpatcher.patches.ppr import ppr_scores, push_patches, top_recall
from gpatcher.patches.spectral import PairProducts, SpectralPatches, spectral_patches
from gpatcher.spectral.filters import Adaptive, Polynomial, Shared
from gpatcher.spectral.spectrum import Spectrum, eigenpairs, graph_spectrum

K = 6
C = 0.6


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "cache"))


# ----------------------------------------------------------------------------------------------- graphs


def build(source, target, n=None, weights=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        return Graph.from_edge_index((np.asarray(source), np.asarray(target)), num_nodes=n, weights=weights)


def both_ways(pairs, n=None, weights=None):
    pairs = np.asarray(pairs)
    weights = None if weights is None else np.r_[weights, weights]
    return build(np.r_[pairs[:, 0], pairs[:, 1]], np.r_[pairs[:, 1], pairs[:, 0]], n, weights)


def random_pairs(n, rng, degree=3):
    """Edges of a connected graph: a random tree and some more."""
    pairs = {(int(rng.integers(0, v)), v) for v in range(1, n)}
    more = rng.integers(0, n, (degree * n // 2, 2)).tolist()
    return np.array(sorted(pairs | {tuple(sorted(p)) for p in more if p[0] != p[1]}))


def make_graph(kind, seed=0):
    rng = np.random.default_rng(seed)
    pairs = random_pairs(24, rng)
    if kind == "connected":
        return both_ways(pairs)
    if kind == "disconnected":
        return both_ways(np.vstack([pairs, random_pairs(7, rng) + 24]))
    if kind == "weighted":
        return both_ways(pairs, weights=rng.uniform(0.2, 5.0, len(pairs)))
    if kind == "directed":
        return build(pairs[:, 0], pairs[:, 1])
    if kind == "looped":
        return both_ways(np.vstack([pairs, [[3, 3], [9, 9]]])[:, :2])
    if kind == "isolated":
        return both_ways(pairs + 1, n=27)  # nodes 0, 25 and 26
    raise AssertionError(kind)


KINDS = ("connected", "disconnected", "weighted", "directed", "looped", "isolated")


# ----------------------------------------------------------------------------------------------- oracle


def dense_normalised(graph, self_loops=False):
    """Ã by the book, from the edges alone."""
    A = np.zeros((graph.n, graph.n))
    rows = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    A[rows, graph.indices] = 1.0 if graph.weights is None else graph.weights
    A = np.maximum(A, A.T)
    np.fill_diagonal(A, 1.0 if self_loops else 0.0)
    degree = A.sum(1)
    scale = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1)), 0)
    return scale[:, None] * A * scale


def dense_scores(method, graph, self_loops=False):
    """R = g(Ã) by matrix functions, with g written out anew."""
    A = dense_normalised(graph, self_loops)
    identity = np.eye(len(A))
    if method in ("ppr", "heterophily-aware"):
        return (1 - C) * np.linalg.inv(identity - C * A)
    values, U = np.linalg.eigh(A)
    values = np.where(np.abs(values) < 1e-9, 0, np.clip(values, -1, 1))
    if method == "polynomial":
        root = np.sqrt(1 - C * C)
        weight = np.r_[0, 2 * (1 - C) / root * ((1 - root) / C) ** np.arange(1, K + 1)]
        g = np.polynomial.chebyshev.chebval(values, weight)
    elif method == "shared":
        return sum(np.linalg.matrix_power(A, k) for k in range(1, K + 1)) / K
    elif method == "heat":
        g = sum(np.exp(-t * values) for t in range(1, K + 1)) / sum(np.exp(t) for t in range(1, K + 1))
    elif method == "bandpass":
        g = (values >= 0).astype(float)
    return (U * g) @ U.T


def check_patches(patches, R, atol, reached=1e-6):
    """Hold patches against R: ego first, then by falling score, ties by id, and nobody better left out."""
    n, p = patches.index.shape
    assert patches.index.dtype == np.int32
    assert patches.score.dtype == np.float32
    for v in range(n):
        index, score = patches.index[v], patches.score[v]
        there = index >= 0
        members = index[there]
        assert index[0] == v
        assert np.all(there[:-1] >= there[1:]), "places are filled from the left"
        assert np.all(score[~there] == 0)
        assert len(set(members.tolist())) == len(members)
        np.testing.assert_allclose(score[there], R[v, members], atol=atol)
        gaps = np.diff(score[there][1:])
        assert np.all(gaps <= 0), "falling scores"
        assert np.all(np.diff(members[1:])[gaps == 0] > 0), "ties by rising id"
        # the best others that there are; those near the border of being reached may be in or out
        others = np.delete(R[v], v)
        sure = others[np.abs(others) > 3 * reached * np.abs(R[v]).max() + 2 * atol]
        unsure = int((np.abs(others) > 0.3 * reached * np.abs(R[v]).max() - 2 * atol).sum())
        assert min(p - 1, len(sure)) <= len(members) - 1 <= min(p - 1, unsure)
        if len(members) == p:
            left = np.delete(R[v], members)
            left = left[np.abs(left) > 3 * reached * np.abs(R[v]).max()]
            if p > 1 and left.size:
                assert left.max() <= score[-1] + 2 * atol, "a better node was left out"


@pytest.mark.parametrize("size", [1, 2, 8, 40])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", EXTRACTORS)
def test_extractors_take_the_top_of_the_dense_matrix(method, kind, size):
    graph = make_graph(kind)
    patches = extract_patches(graph, method, size, K=K, c=C, eps=1e-9)
    assert patches.size == size
    check_patches(patches, dense_scores(method, graph), atol=3e-6)


@pytest.mark.parametrize("method", EXTRACTORS)
@pytest.mark.parametrize("kind", ["looped", "isolated", "weighted"])
def test_extractors_with_self_loops(method, kind):
    graph = make_graph(kind)
    patches = extract_patches(graph, method, 8, K=K, c=C, eps=1e-9, self_loops=True)
    check_patches(patches, dense_scores(method, graph, self_loops=True), atol=3e-6)


@given(st.integers(0, 10_000), st.integers(2, 20), st.integers(1, 25), st.floats(0.05, 0.95))
@settings(max_examples=25, deadline=None)
def test_push_on_random_graphs(seed, n, size, c):
    rng = np.random.default_rng(seed)
    # any graph: parts, isolated nodes, directed edges, self-loops
    graph = build(rng.integers(0, n, n), rng.integers(0, n, n), n)
    R = (1 - c) * np.linalg.inv(np.eye(n) - c * dense_normalised(graph))
    patches = push_patches(graph, size, c=c, eps=1e-10)
    check_patches(patches, R, atol=1e-6, reached=1e-12)


# ------------------------------------------------------------------------------------------- edge cases


@pytest.mark.parametrize("method", EXTRACTORS)
def test_small_parts_are_padded(method):
    # 0 - 1 - 2 and 3 - 4 and 5 alone
    graph = both_ways([[0, 1], [1, 2], [3, 4]], n=6)
    patches = extract_patches(graph, method, 4, K=K, c=C)
    assert patches.index[5].tolist() == [5, -1, -1, -1]
    assert patches.score[5, 1:].tolist() == [0, 0, 0]
    assert patches.index[3].tolist() == [3, 4, -1, -1]
    assert set(patches.index[0].tolist()) <= {0, 1, 2, -1}
    assert np.isfinite(patches.score).all()


def test_an_isolated_node_scores_as_the_closed_form():
    graph = both_ways([[0, 1]], n=3)
    for method in ("ppr", "heterophily-aware"):
        assert extract_patches(graph, method, 2, c=C).score[2, 0] == pytest.approx(1 - C, rel=1e-5)


def test_a_patch_of_one_is_the_node_itself():
    """Also where a neighbour scores higher than the node: the leaves of a star."""
    star = both_ways([[0, leaf] for leaf in range(1, 31)])
    assert dense_scores("ppr", star)[1, 0] < dense_scores("ppr", star)[0, 0]
    for method in EXTRACTORS:
        patches = extract_patches(star, method, 1, c=0.9)
        assert patches.index[:, 0].tolist() == list(range(31)), method


def test_ties_go_to_the_smaller_id():
    star = both_ways([[4, leaf] for leaf in (0, 1, 2, 3, 5, 6, 7)])
    patches = extract_patches(star, "ppr", 5)
    assert patches.index[4].tolist() == [4, 0, 1, 2, 3]
    assert patches.index[0].tolist() == [0, 4, 1, 2, 3]
    assert patches.index[6].tolist() == [6, 4, 0, 1, 2]


def test_patches_of_some_nodes():
    patches = extract_patches(make_graph("connected"), "ppr", 4)
    part = patches[[3, 1]]
    assert isinstance(part, Patches)
    assert part.index[:, 0].tolist() == [3, 1]
    np.testing.assert_array_equal(part.score, patches.score[[3, 1]])


# ------------------------------------------------------------------------------------------- the kernel


def test_top_of_rows():
    rows = np.array([[5.0, 1.0, 3.0, 3.0, -9.0], [2.0, 0.0, 2.0, 1e-9, 2.0]])
    index, score = np.full((2, 4), -1, np.int32), np.zeros((2, 4), np.float32)
    top_of_rows(rows, 3, 1e-6, index, score)  # the rows of nodes 3 and 4
    assert index.tolist() == [[3, 0, 2, 1], [4, 0, 2, -1]]  # 1e-9 and 0 are not reached
    assert score.tolist() == [[3.0, 5.0, 3.0, 1.0], [2.0, 2.0, 2.0, 0.0]]


@pytest.mark.parametrize("width", [1, 2])
def test_top_of_rows_of_few_places_keeps_the_ego(width):
    rows = np.array([[0.1, 7.0, 8.0]], np.float32)
    index, score = np.full((1, width), -1, np.int32), np.zeros((1, width), np.float32)
    top_of_rows(rows, 0, 1e-6, index, score)
    assert index[0].tolist() == [0, 2][:width]


@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(2, 12))
@settings(max_examples=40, deadline=None)
def test_top_of_rows_is_a_sort(seed, n, p):
    rng = np.random.default_rng(seed)
    rows = rng.integers(-3, 4, (n, n)).astype(np.float32)  # many ties, and zeros that are not reached
    index, score = np.full((n, p), -1, np.int32), np.zeros((n, p), np.float32)
    top_of_rows(rows, 0, 1e-6, index, score)
    for v in range(n):
        others = sorted((-rows[v, u], u) for u in range(n) if u != v and rows[v, u] != 0)[: p - 1]
        expected = [v, *(u for _, u in others)]
        assert index[v].tolist() == expected + [-1] * (p - len(expected))
        assert score[v].tolist() == [*rows[v, expected], *[0.0] * (p - len(expected))]


# ----------------------------------------------------------------------------------------- push: bounds


@pytest.mark.parametrize("kind", ["connected", "weighted", "directed", "disconnected"])
@pytest.mark.parametrize("eps", [1e-1, 1e-2, 1e-3, 1e-4])
def test_push_keeps_its_error_bound(kind, eps):
    graph = make_graph(kind)
    R = dense_scores("ppr", graph)
    patches = push_patches(graph, graph.n, c=C, eps=eps)
    found = np.zeros_like(R)
    for v in range(graph.n):
        there = patches.index[v] >= 0
        found[v, patches.index[v][there]] = patches.score[v][there]
    degree = graph.degrees()
    bound = eps * np.sqrt(np.outer(degree, degree))
    assert np.all(R - found <= bound + 1e-6)
    assert np.all(found <= R + 1e-6), "the estimate is a lower bound"


def test_push_comes_closer_as_eps_falls():
    graph = make_graph("weighted")
    R = dense_scores("ppr", graph)
    errors = []
    for eps in (1e-1, 1e-3, 1e-5, 1e-8):
        patches = push_patches(graph, graph.n, c=C, eps=eps)
        found = np.zeros_like(R)
        for v in range(graph.n):
            there = patches.index[v] >= 0
            found[v, patches.index[v][there]] = patches.score[v][there]
        errors.append(np.abs(found - R).max())
    assert errors[0] > errors[1] > errors[2]
    assert errors[-1] < 1e-6


def test_push_grows_its_queue():
    """More pushes than the first queue has room for."""
    rng = np.random.default_rng(0)
    n = 3000
    hub = np.c_[np.zeros(n - 1, int), np.arange(1, n)]
    graph = both_ways(np.unique(np.vstack([hub, np.sort(rng.integers(1, n, (n, 2)), 1)]), axis=0))
    patches = push_patches(graph, 3000, c=0.5, eps=1e-9, nodes=[0, 5])
    A = graph.normalised()
    expected = np.zeros((n, 2))
    start = np.zeros((n, 2))
    start[0, 0] = start[5, 1] = 1
    for _ in range(60):
        expected = 0.5 * start + 0.5 * (A @ expected)
    for row in range(2):
        assert (patches.index[row] >= 0).all()
        np.testing.assert_allclose(patches.score[row], expected[patches.index[row], row], atol=1e-6)


def test_push_grows_its_table_beyond_the_first_one():
    """A star with more leaves than the first table has places; each push of a leaf brings a share back."""
    n = 100_000
    leaves = np.arange(1, n)
    graph = Graph.from_edge_index(np.stack([np.zeros(n - 1, np.int64), leaves]), num_nodes=n)
    patches = push_patches(graph, 4, 0.5, 1e-9, nodes=np.array([7, 0, 9]))
    exact = ppr_scores(graph, np.array([7, 0, 9]), 0.5)
    assert patches.index[0, :2].tolist() == [7, 0]
    assert patches.index[1].tolist() == [0, 1, 2, 3]
    rows = np.arange(3)[:, None]
    np.testing.assert_allclose(patches.score, exact[rows, patches.index], rtol=1e-4)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12))
@settings(deadline=None)
def test_top_of_candidates_is_a_sort(seed, candidates, p):
    rng = np.random.default_rng(seed)
    around = np.stack([rng.permutation(30)[:candidates] for _ in range(5)])
    score = rng.choice([0.0, 0.5, 1.0, -np.inf], (5, candidates))
    places = np.empty((5, min(p, candidates)), np.int64)
    top_of_candidates(around, score, places)
    for v in range(5):
        best = sorted(range(candidates), key=lambda j: (-score[v, j], around[v, j]))
        assert places[v].tolist() == best[: places.shape[1]]


@given(st.lists(st.one_of(st.just(0.0), st.floats(1e-15, 1e15)), min_size=1, max_size=50))
@settings(deadline=None)
def test_codes_bound_degrees_from_below(degrees):
    """To a quarter of an octave, where 64 octaves around 1 reach."""
    degree = np.array(degrees)
    codes = degree_codes(degree)
    assert codes.dtype == np.uint8
    least = np.array([_least_degree(int(code)) for code in codes])
    assert np.all(least <= degree)
    within = (degree > 2.0**-31) & (degree < 2.0**31)
    assert np.all(degree[within] < least[within] * 2**0.25 * (1 + 1e-8))


def test_push_for_some_nodes_equals_their_rows():
    graph = make_graph("disconnected")
    whole = push_patches(graph, 6, c=C)
    some = push_patches(graph, 6, c=C, nodes=np.array([25, 3, 3, 0]))
    np.testing.assert_array_equal(some.index, whole.index[[25, 3, 3, 0]])
    np.testing.assert_array_equal(some.score, whole.score[[25, 3, 3, 0]])


def test_push_takes_a_mask_of_nodes_as_such():
    graph = make_graph("connected")
    mask = np.zeros(graph.n, bool)
    mask[[2, 7]] = True
    np.testing.assert_array_equal(push_patches(graph, 4, nodes=mask).index[:, 0], [2, 7])


def test_push_refuses_nodes_that_are_not_there():
    """In a process of its own: a kernel that reads beyond its arrays may take the interpreter down."""
    code = (
        "import numpy as np\nfrom gpatcher.graph.graph import Graph, InputError\nfrom gpatcher.patches.base import push_patches\n"
        "g = Graph.from_edge_index(np.array([[0, 1], [1, 0]]), num_nodes=24)\n"
        "for bad in (-1, 24, 10**9):\n    try:\n        push_patches(g, 2, nodes=[bad])\n"
        "    except InputError:\n        print('refused', flush=True)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["refused"] * 3


def test_push_reports_progress():
    seen = []
    push_patches(both_ways(np.c_[np.arange(599), np.arange(1, 600)]), 4, progress=lambda a, b: seen.append((a, b)))
    done = [a for a, _ in seen]
    assert done == sorted(done)
    assert len(done) == 3
    assert seen[-1] == (600, 600)


# ------------------------------------------------------------------------------------------- invariance


@pytest.mark.parametrize("method", EXTRACTORS)
def test_relabelling_the_nodes_relabels_the_patches(method):
    rng = np.random.default_rng(5)
    pairs = random_pairs(30, rng, degree=4)
    weights = rng.uniform(0.5, 2.0, len(pairs))  # weights that differ: no ties, no eigenvalue twice
    new = rng.permutation(30)  # old id -> new id
    one = extract_patches(both_ways(pairs, weights=weights), method, 6, K=K, c=C, eps=1e-10)
    two = extract_patches(both_ways(new[pairs], weights=weights), method, 6, K=K, c=C, eps=1e-10)
    for v in range(30):
        np.testing.assert_allclose(two.score[new[v]], one.score[v], atol=3e-6)
        # where scores lie close together rounding may choose
        clear = np.abs(np.diff(one.score[v])) > 2e-5
        for j in range(1, 5):
            if clear[j - 1] and clear[j]:
                assert two.index[new[v], j] == new[one.index[v, j]]


def test_bandpass_does_not_depend_on_the_choice_of_eigenvectors():
    """A tree has the eigenvalue 0 many times over; rounding must not decide which of its vectors count."""
    rng = np.random.default_rng(0)
    pairs = np.array([(int(rng.integers(0, v)), v) for v in range(1, 40)])
    graph = both_ways(pairs)
    check_patches(extract_patches(graph, "bandpass", 8), dense_scores("bandpass", graph), atol=1e-4)


@pytest.mark.parametrize("method", EXTRACTORS)
def test_the_order_of_the_edges_does_not_matter(method):
    rng = np.random.default_rng(2)
    pairs = random_pairs(30, rng)
    shuffled = rng.permutation(pairs)
    flip = rng.random(len(shuffled)) < 0.5
    shuffled[flip] = shuffled[flip][:, ::-1]
    one, two = (extract_patches(both_ways(p), method, 7, K=K, c=C) for p in (pairs, shuffled))
    np.testing.assert_array_equal(one.index, two.index)
    np.testing.assert_array_equal(one.score, two.score)


def test_threads_do_not_change_the_numbers():
    graph = both_ways(random_pairs(700, np.random.default_rng(0)))
    one, two = push_patches(graph, 8, threads=1), push_patches(graph, 8, threads=3)
    np.testing.assert_array_equal(one.index, two.index)
    np.testing.assert_array_equal(one.score, two.score)


def test_extracting_leaves_the_number_of_threads_alone():
    """Numba's parallel kernels share OpenMP with torch; training after them must not run on more threads than asked."""
    code = (
        "import numpy as np, torch\nfrom gpatcher.graph.graph import Graph\nfrom gpatcher.patches.base import extract_patches\n"
        "g = Graph.from_edge_index(np.array([[0, 1], [1, 0]]))\n"
        "for method in ('ppr', 'heat'):\n    extract_patches(g, method, 2)\n    print(torch.get_num_threads())"
    )
    for threads in ("1", "2"):
        variables = os.environ | {"OMP_NUM_THREADS": threads}
        variables.pop("NUMBA_NUM_THREADS", None)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=variables)
        assert done.stdout.split() == [threads] * 2


# ------------------------------------------------------------------------------------------ learnable


def learnable(graph, kind, size, candidates=64):
    pairs = PairProducts.build(graph_spectrum(graph), kind, candidates)
    return SpectralPatches(pairs, kind, size)


def randomise(kind, seed=0):
    torch.manual_seed(seed)
    with torch.no_grad():
        kind.weight.copy_(torch.randn_like(kind.weight))


def dense_response(kind, graph):
    """R of a learnable filter with any weights."""
    values, U = np.linalg.eigh(dense_normalised(graph))
    with torch.no_grad():
        g = kind(torch.tensor(np.clip(values, -1, 1), dtype=torch.float32)).numpy().astype(float)
    return (U * g) @ U.T


@pytest.mark.parametrize("name", LEARNABLE)
@pytest.mark.parametrize("size", [1, 5, 40])
def test_learnable_patches_start_as_the_fixed_ones(name, size):
    graph = make_graph("disconnected")
    source = learnable(graph, LEARNABLE[name](K, C, "none"), size)
    check_patches(source.patches(), dense_scores(name, graph), atol=3e-6)
    expected = extract_patches(graph, name, size, K=K, c=C)
    np.testing.assert_allclose(source.patches().score, expected.score, atol=3e-6)


@pytest.mark.parametrize("kind", [Adaptive(K=4), Polynomial(K=4), Shared(K=4)], ids=["adaptive", "poly", "shared"])
def test_scores_are_entries_of_r_for_any_weights(kind):
    graph = make_graph("weighted")
    source = learnable(graph, kind, 6)
    randomise(kind)
    source.renew()
    R = dense_response(kind, graph)
    check_patches(source.patches(), R, atol=3e-5 * np.abs(R).max())
    whole = spectral_patches(
        graph_spectrum(graph), kind(torch.from_numpy(graph_spectrum(graph).values)).detach().numpy(), 6
    )
    np.testing.assert_allclose(source.patches().score, whole.score, atol=3e-5 * np.abs(R).max())


def test_scores_follow_the_weights_between_two_selections():
    graph = make_graph("connected")
    kind = Adaptive(K=4)
    source = learnable(graph, kind, 6)
    before = source.patches().index
    randomise(kind)
    nodes = torch.tensor([4, 0, 11])
    index, score = source(nodes)
    np.testing.assert_array_equal(index, before[nodes])
    R = dense_response(kind, graph)
    np.testing.assert_allclose(score.detach(), R[nodes[:, None], index], atol=3e-5 * np.abs(R).max())


@pytest.mark.parametrize("kind", [Adaptive(K=4), Polynomial(K=4), Shared(K=4)], ids=["adaptive", "poly", "shared"])
def test_gradient_of_the_scores_reaches_the_weights(kind):
    source = learnable(make_graph("connected"), kind, 6)
    _, score = source(torch.arange(24))
    (score * torch.linspace(0.3, 2, score.numel()).view_as(score)).sum().backward()
    grad = kind.weight.grad
    assert torch.isfinite(grad).all()
    assert grad.abs().max() > 1e-2
    # against a finite difference along the gradient
    step = 1e-3 * grad / grad.norm()
    scale = torch.linspace(0.3, 2, score.numel()).view_as(score)
    with torch.no_grad():
        kind.weight += step
        up = (source(torch.arange(24))[1] * scale).sum()
        kind.weight -= 2 * step
        down = (source(torch.arange(24))[1] * scale).sum()
    assert (up - down).item() == pytest.approx(2e-3 * grad.norm().item(), rel=0.05)


def test_renewing_moves_the_selection_to_where_the_filter_points():
    """On a ring, a low-pass filter prefers neighbours, its mirror those at even distance: they must change places."""
    n = 20
    ring = np.arange(n)
    graph = both_ways(np.c_[ring, (ring + 1) % n])
    kind = Polynomial(K=8, c=0.5)
    source = learnable(graph, kind, 3)
    assert all({(v - 1) % n, (v + 1) % n} == set(source.patches().index[v, 1:].tolist()) for v in range(n))
    with torch.no_grad():
        kind.weight[::2] *= -1  # g(λ) -> g(-λ): odd powers change sign
    old = source.patches().index.copy()
    np.testing.assert_array_equal(old[:, 0], np.arange(n))
    assert {(1) % n, n - 1} == set(old[0, 1:].tolist()), "not before it is renewed"
    source.renew()
    new = source.patches()
    assert all({(v - 2) % n, (v + 2) % n} == set(new.index[v, 1:].tolist()) for v in range(n))
    check_patches(new, dense_response(kind, graph), atol=1e-5)


def test_the_selection_is_kept_in_the_state():
    graph = make_graph("connected")
    kind = Adaptive(K=4)
    source = learnable(graph, kind, 6)
    start = source.patches().index.copy()
    randomise(kind)
    source.renew()
    moved = source.patches()
    assert (moved.index != start).any()
    state = {name: value.clone() for name, value in source.state_dict().items()}
    fresh = learnable(graph, Adaptive(K=4), 6)
    fresh.load_state_dict(state)
    np.testing.assert_array_equal(fresh.patches().index, moved.index)
    np.testing.assert_array_equal(fresh.patches().score, moved.score)


def test_a_kept_selection_names_nodes_whatever_the_order_of_the_candidates():
    """Rounding (threads, another machine) orders candidates of equal score anew; a kept selection must not care."""
    graph = make_graph("connected")
    kind = Adaptive(K=4)
    pairs = PairProducts.build(graph_spectrum(graph), kind, 64)
    source = SpectralPatches(pairs, kind, 6)
    randomise(kind)
    source.renew()
    order = torch.cat([torch.tensor([0]), 1 + torch.randperm(pairs.around.shape[1] - 1)])
    other = SpectralPatches(PairProducts(pairs.around[:, order], pairs.products[:, order]), Adaptive(K=4), 6)
    other.load_state_dict(source.state_dict())
    np.testing.assert_array_equal(other.patches().index, source.patches().index)


def test_a_kept_member_that_is_no_candidate_any_more_leaves_its_place_empty():
    """Beyond 512 nodes rounding may change who is a candidate; the node itself must not stand in for a lost one."""
    graph = make_graph("connected")
    kind = Adaptive(K=4)
    pairs = PairProducts.build(graph_spectrum(graph), kind, 64)
    source = SpectralPatches(pairs, kind, 6)
    gone = int(source.patches().index[0, 2])
    left = torch.stack([row[:-1] if v == gone else row[row != gone] for v, row in enumerate(pairs.around)])
    kept = [(pairs.around[v] == u).nonzero()[0, 0] for v in range(24) for u in left[v]]
    products = pairs.products[torch.arange(24).repeat_interleave(left.shape[1]), torch.stack(kept)]
    other = SpectralPatches(PairProducts(left, products.view(24, left.shape[1], -1)), Adaptive(K=4), 6)
    other.load_state_dict(source.state_dict())
    for row in other.patches().index.tolist():
        members = [u for u in row if u >= 0]
        assert gone not in members[1:]
        assert len(set(members)) == len(members), "a node twice in one patch"


def test_with_more_than_512_nodes_candidates_are_few_and_exact():
    graph = both_ways(random_pairs(600, np.random.default_rng(3), degree=4))
    kind = Adaptive(K=4, c=0.5)
    spectrum = graph_spectrum(graph)
    pairs = PairProducts.build(spectrum, kind, 40)
    assert pairs.around.shape == (600, 40)
    assert pairs.around[:, 0].tolist() == list(range(600))
    for row in pairs.around.tolist():
        known = [u for u in row if u >= 0]
        assert len(set(known)) == len(known)
    found = SpectralPatches(pairs, kind, 10).patches()
    R = 0.5 * np.linalg.inv(np.eye(600) - 0.5 * dense_normalised(graph))
    check_patches(found, R, atol=3e-6)


def test_every_node_of_a_small_graph_is_a_candidate():
    graph = make_graph("connected")
    around = PairProducts.build(graph_spectrum(graph), Adaptive(), 4).around
    assert sorted(around[5].tolist()) == list(range(24))


@pytest.mark.parametrize("kind", [Adaptive(K=3), Polynomial(K=3)], ids=["adaptive", "poly"])
def test_products_do_not_depend_on_the_eigenvectors(kind):
    # a ring has its inner eigenvalues twice: their vectors may turn within the plane
    n = 12
    ring = np.arange(n)
    graph = both_ways(np.c_[ring, (ring + 1) % n])
    spectrum = eigenpairs(graph, dtype=np.float32)
    turned = spectrum.vectors * np.where(np.arange(n) % 3, -1, 1).astype(np.float32)
    pair = np.flatnonzero(np.abs(np.diff(spectrum.values)) < 1e-5)[0]
    a = 0.7
    rotation = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]], np.float32)
    turned[:, pair : pair + 2] = turned[:, pair : pair + 2] @ rotation
    one = PairProducts.build(spectrum, kind, 64)
    two = PairProducts.build(Spectrum(spectrum.values, turned), kind, 64)
    for v in range(n):
        a, b = (p.products[v][p.around[v].argsort()] for p in (one, two))
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_products_of_missing_candidates_are_zero():
    graph = make_graph("isolated")
    pairs = PairProducts.build(graph_spectrum(graph), Adaptive(), 64)
    missing = pairs.around < 0
    assert missing.any()
    assert (pairs.products[missing] == 0).all()


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "nonsense"}, "'nonsense'.*heterophily-aware.*ppr"),
        ({"size": 0}, "got 0"),
        ({"size": -3}, "got -3"),
        ({"size": 2.5}, "got 2.5"),
        ({"size": float("nan")}, "got nan"),
        ({"c": 0.0}, r"c must lie in \(0, 1\), got 0"),
        ({"c": 1.0}, "got 1.0"),
        ({"c": 1.5, "method": "heterophily-aware"}, "1.5"),
        ({"c": 1.5, "method": "polynomial"}, "1.5"),
        ({"method": "polynomial", "memory": 1}, "take method='ppr', or train the filter without eigenvectors"),
        ({"eps": 0.0}, "eps.*got 0"),
        ({"eps": 2.0}, "eps.*got 2.0"),
        ({"K": 0, "method": "heat"}, "got 0"),
        ({"method": "heat", "size": 0}, "got 0"),
    ],
)
def test_wrong_arguments_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        extract_patches(make_graph("connected"), **options)


def test_too_little_memory_names_the_ways_out():
    graph = make_graph("connected")
    with pytest.raises(InputError, match=r"--memory.*--extractor ppr"):
        extract_patches(graph, "heat", 4, memory=100)
    assert extract_patches(graph, "ppr", 4, memory=100).size == 4


# ------------------------------------------------------------------------------------------------- cache


@pytest.fixture
def counted(monkeypatch):
    """Count decompositions."""
    calls = []
    real = gpatcher.spectrum.scipy.linalg.eigh
    monkeypatch.setattr(gpatcher.spectrum.scipy.linalg, "eigh", lambda *a, **k: calls.append(1) or real(*a, **k))
    return calls


def test_the_second_call_reads_the_cache(tmp_path, counted):
    graph = make_graph("weighted")
    one = eigenpairs(graph, cache=tmp_path)
    two = eigenpairs(graph, cache=tmp_path)
    assert len(counted) == 1
    assert len(list(tmp_path.glob("*.npy"))) == 1
    np.testing.assert_array_equal(one.values, two.values)
    np.testing.assert_array_equal(one.vectors, two.vectors)
    # nothing of the budget is needed for what is kept
    eigenpairs(graph, cache=tmp_path, memory=1)


def test_what_is_kept_is_told_apart(tmp_path, counted):
    eigenpairs(make_graph("weighted"), cache=tmp_path)
    for other in ("connected", "isolated"):
        eigenpairs(make_graph(other), cache=tmp_path)
    eigenpairs(make_graph("weighted", seed=1), cache=tmp_path)
    eigenpairs(make_graph("weighted"), self_loops=True, cache=tmp_path)
    eigenpairs(make_graph("weighted"), dtype=np.float32, cache=tmp_path)
    assert len(counted) == 6
    assert len(list(tmp_path.glob("*.npy"))) == 6


def test_the_same_graph_from_other_edges_is_found(tmp_path, counted):
    graph = make_graph("connected")
    eigenpairs(graph, cache=tmp_path)
    eigenpairs(make_graph("directed"), cache=tmp_path)  # the same edges, one way
    assert len(counted) == 1


@pytest.mark.parametrize(
    "junk",
    [b"", b"garbage", b"\x93NUMPY", b"PK\x03\x04garbage", b"\x80\x04pickle", None],
    ids=["empty", "text", "header", "zip", "pickle", "truncated"],
)
def test_a_damaged_cache_file_is_made_anew(tmp_path, counted, junk):
    graph = make_graph("connected")
    one = eigenpairs(graph, cache=tmp_path)
    [kept] = tmp_path.glob("*.npy")
    whole = kept.read_bytes()
    kept.write_bytes(whole[: len(whole) // 2] if junk is None else junk)
    two = eigenpairs(graph, cache=tmp_path)
    gc.collect()  # a file left open is told of here, not in some later test
    np.testing.assert_array_equal(one.vectors, two.vectors)
    assert len(counted) == 2
    assert kept.read_bytes() == whole


def test_an_array_of_another_shape_is_not_taken(tmp_path, counted):
    graph = make_graph("connected")
    eigenpairs(graph, cache=tmp_path)
    [kept] = tmp_path.glob("*.npy")
    np.save(kept, np.zeros((3, 3)))
    assert eigenpairs(graph, cache=tmp_path).vectors.shape == (24, 24)
    assert len(counted) == 2


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_write_leaves_nothing_behind(tmp_path, monkeypatch, error):
    graph = make_graph("connected")

    def write_half(file, array):
        file.write(b"\x93NUMPY half")
        raise error

    monkeypatch.setattr(gpatcher.spectrum.np, "save", write_half)
    if isinstance(error, OSError):
        assert eigenpairs(graph, cache=tmp_path).values.size == 24  # a full disk is no error
    else:
        with pytest.raises(KeyboardInterrupt):
            eigenpairs(graph, cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert eigenpairs(make_graph("connected"), cache=tmp_path / "file" / "spectra").values.size == 24


def test_only_larger_graphs_are_kept_and_where_the_user_says(tmp_path, monkeypatch, counted):
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "mine"))
    graph_spectrum(make_graph("connected"))
    assert not (tmp_path / "mine").exists()
    # without a large decomposition: pretend that the vectors of a larger graph are already there
    n = 1000
    graph = both_ways(np.c_[np.arange(n - 1), np.arange(1, n)])
    folder = tmp_path / "mine" / "spectra"
    folder.mkdir(parents=True)
    kept = np.vstack([np.linspace(-1, 1, n), np.eye(n)]).astype(np.float32)
    np.save(folder / f"{graph.fingerprint}-float32.npy", kept)
    found = graph_spectrum(graph)
    np.testing.assert_array_equal(found.values, kept[0])
    assert len(counted) == 1


# ------------------------------------------------------------------------------------------- the check of push


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("self_loops", [False, True])
def test_exact_scores_are_the_inverse(kind, self_loops):
    graph = make_graph(kind)
    R = (1 - C) * np.linalg.inv(np.eye(graph.n) - C * dense_normalised(graph, self_loops))
    np.testing.assert_allclose(ppr_scores(graph, np.array([5, 0]), C, self_loops), R[[5, 0]], atol=1e-13)


def test_recall_counts_the_right_members():
    scores = np.array([[0.5, 0.3, 0.2, 0.1, 0.0]])
    for members, expected in (
        ([0, 1, 2], 1.0),
        ([0, 1, 3], 0.5),
        ([0, 3, -1], 0.0),
        ([0, -1, -1], 0.0),
        ([0, 2, 1], 1),
    ):
        patches = Patches(np.array([members], np.int32), np.zeros((1, 3), np.float32))
        assert top_recall(patches, scores) == [expected]


def test_recall_takes_any_of_equal_nodes_and_asks_for_no_more_than_there_are():
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
    assert top_recall(push_patches(graph, 32, eps=1e-5, nodes=nodes), exact).mean() > 0.98
    assert top_recall(push_patches(graph, 32, eps=1e-2, nodes=nodes), exact).mean() < 0.9


def test_push_on_a_weighted_graph_with_small_weights():
    """Degrees below 1: no bound that holds for counts of neighbours may be taken for them."""
    rng = np.random.default_rng(1)
    pairs = random_pairs(40, rng)
    graph = both_ways(pairs, weights=rng.uniform(1e-4, 1e-2, len(pairs)))
    check_patches(push_patches(graph, 6, c=C, eps=1e-7), dense_scores("ppr", graph), atol=3e-6)
