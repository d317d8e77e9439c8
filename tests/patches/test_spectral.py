"""Patches by spectral filters: selection kernels, products of pairs, and filters that are learned."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpatcher.errors import InputError
from gpatcher.kernels.topk import top_of_candidates, top_of_rows
from gpatcher.patches import AdaptiveFilter, BandpassFilter, PolynomialFilter, SharedFilter, extract_patches
from gpatcher.patches.spectral import (
    PairProducts,
    SpectralPatches,
    merge_candidates,
    spectral_patches,
    spectral_products,
)
from gpatcher.spectral.filters import Adaptive, Polynomial, Shared
from gpatcher.spectral.spectrum import Spectrum, eigenpairs, graph_spectrum

LEARNED = {extractor.name: extractor for extractor in (AdaptiveFilter, PolynomialFilter, SharedFilter)}
FILTERS = {"adaptive": Adaptive, "polynomial": Polynomial, "shared": Shared}


@pytest.fixture(params=FILTERS.values(), ids=FILTERS)
def filter(request):
    return request.param(K=4)


# ------------------------------------------------------------------------------------------------ kernels


def test_top_of_rows():
    rows = np.array([[5.0, 1.0, 3.0, 3.0, -9.0], [2.0, 0.0, 2.0, 1e-9, 2.0]])
    index, score = np.full((2, 4), -1, np.int32), np.zeros((2, 4), np.float32)
    top_of_rows(rows, 3, 1e-6, index, score)  # the rows of nodes 3 and 4
    assert index.tolist() == [[3, 0, 2, 1], [4, 0, 2, -1]]  # 1e-9 and 0 are not reached
    assert score.tolist() == [[3.0, 5.0, 3.0, 1.0], [2.0, 2.0, 2.0, 0.0]]


@pytest.mark.parametrize("width", [1, 2])
def test_top_of_rows_keeps_the_node_itself_in_small_patches(width):
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


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12))
@settings(deadline=None)
def test_top_of_candidates_is_a_sort(seed, count, p):
    rng = np.random.default_rng(seed)
    candidates = np.stack([rng.permutation(30)[:count] for _ in range(5)])
    score = rng.choice([0.0, 0.5, 1.0, -np.inf], (5, count))
    columns = np.empty((5, min(p, count)), np.int64)
    top_of_candidates(candidates, score, columns)
    for v in range(5):
        best = sorted(range(count), key=lambda j: (-score[v, j], candidates[v, j]))
        assert columns[v].tolist() == best[: columns.shape[1]]


# ------------------------------------------------------------------------------------------------ fixed filters


def test_bandpass_does_not_depend_on_the_choice_of_eigenvectors(graphs, dense):
    """A tree has the eigenvalue 0 many times over; rounding must not decide which of its vectors count."""
    rng = np.random.default_rng(0)
    tree = graphs.undirected([(int(rng.integers(0, v)), v) for v in range(1, 40)])
    dense.check(extract_patches(tree, BandpassFilter(size=8)), dense.scores("bandpass", tree), atol=1e-4)


# ------------------------------------------------------------------------------------------------ candidates


def test_with_more_than_512_nodes_candidates_are_few_and_exact(graphs, dense):
    graph = graphs.undirected(graphs.random_pairs(600, np.random.default_rng(3), degree=4))
    filter = Adaptive(K=4, c=0.5)
    pairs = spectral_products(graph_spectrum(graph), filter, 40)
    assert pairs.candidates.shape == (600, 40)
    assert pairs.candidates[:, 0].tolist() == list(range(600))
    for row in pairs.candidates.tolist():
        members = [u for u in row if u >= 0]
        assert len(set(members)) == len(members)
    patches = SpectralPatches(pairs, filter, 10).patches()
    R = 0.5 * np.linalg.inv(np.eye(600) - 0.5 * dense.normalised(graph))
    dense.check(patches, R, atol=3e-6)


def test_every_node_of_a_small_graph_is_a_candidate(graphs):
    pairs = spectral_products(graph_spectrum(graphs.make("connected")), Adaptive(), 4)
    assert sorted(pairs.candidates[5].tolist()) == list(range(24))


@pytest.mark.parametrize(("size", "candidates", "count"), [(16, 4, 64), (32, 4, 128), (4, 2, 64), (100, 1, 100)])
def test_the_number_of_candidates(size, candidates, count):
    assert AdaptiveFilter(size=size, candidates=candidates).candidate_count == count


def test_wide_candidates_follow_the_near_ones_without_repeats():
    near = np.array([[0, 3, 5], [1, 2, -1]], np.int32)
    wide = np.array([[0, 5, 7, 3, 8], [1, 2, -1, -1, -1]], np.int32)
    assert merge_candidates(near, wide, 5).tolist() == [[0, 3, 5, 7, 8], [1, 2, -1, -1, -1]]
    assert wide[0].tolist() == [0, 5, 7, 3, 8], "the argument is not changed"


@pytest.mark.parametrize("filter", [Adaptive(K=3), Polynomial(K=3)], ids=["adaptive", "polynomial"])
def test_products_do_not_depend_on_the_choice_of_eigenvectors(graphs, filter):
    # a ring has its inner eigenvalues twice: their vectors may rotate within the plane
    n = 12
    spectrum = eigenpairs(graphs.ring(n), dtype=np.float32)
    rotated = spectrum.vectors * np.where(np.arange(n) % 3, -1, 1).astype(np.float32)
    pair = np.flatnonzero(np.abs(np.diff(spectrum.values)) < 1e-5)[0]
    angle = 0.7
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], np.float32)
    rotated[:, pair : pair + 2] = rotated[:, pair : pair + 2] @ rotation
    one = spectral_products(spectrum, filter, 64)
    two = spectral_products(Spectrum(spectrum.values, rotated), filter, 64)
    for v in range(n):
        a, b = (pairs.products[v][pairs.candidates[v].argsort()] for pairs in (one, two))
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_products_of_missing_candidates_are_zero(graphs):
    pairs = spectral_products(graph_spectrum(graphs.make("isolated")), Adaptive(), 64)
    missing = pairs.candidates < 0
    assert missing.any()
    assert (pairs.products[missing] == 0).all()


def test_pairs_of_some_nodes_and_their_members(graphs):
    pairs = AdaptiveFilter(size=4, K=4).prepare(graphs.make("isolated"))
    part = pairs[np.array([0, 25])]  # isolated: no candidate but themselves
    assert part.members().tolist() == [0, 25]
    relabelled = part.relabel(part.members())
    assert relabelled.candidates[:, 0].tolist() == [0, 1]
    assert (relabelled.candidates[:, 1:] == -1).all()
    torch.testing.assert_close(relabelled.products, pairs.products[[0, 25]])
    assert pairs.nbytes == pairs.candidates.numel() * 4 + pairs.products.numel() * 4


# ------------------------------------------------------------------------------------------------ learned filters


def make_source(graph, filter, size, count=64):
    return SpectralPatches(spectral_products(graph_spectrum(graph), filter, count), filter, size)


def randomise(filter, seed=0):
    torch.manual_seed(seed)
    with torch.no_grad():
        filter.weight.copy_(torch.randn_like(filter.weight))


def filtered(filter, A):
    """R = g(Ã) of a learned filter with any weights."""
    values, U = np.linalg.eigh(A)
    with torch.no_grad():
        g = filter(torch.tensor(np.clip(values, -1, 1), dtype=torch.float32)).numpy().astype(float)
    return (U * g) @ U.T


@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.parametrize("size", [1, 5, 40])
def test_learned_filters_start_as_extract_patches_gives_them(graphs, dense, name, size):
    graph = graphs.make("disconnected")
    extractor = LEARNED[name](size=size, K=dense.K, c=dense.c)
    patches = extractor.source(extractor.prepare(graph)).patches()
    dense.check(patches, dense.scores(name, graph), atol=3e-6)
    np.testing.assert_allclose(patches.score, extract_patches(graph, extractor).score, atol=3e-6)


def test_scores_are_entries_of_r_for_any_weights(graphs, dense, filter):
    graph = graphs.make("weighted")
    source = make_source(graph, filter, 6)
    randomise(filter)
    source.reselect()
    R = filtered(filter, dense.normalised(graph))
    dense.check(source.patches(), R, atol=3e-5 * np.abs(R).max())
    spectrum = graph_spectrum(graph)
    whole = spectral_patches(spectrum, filter(torch.from_numpy(spectrum.values)).detach().numpy(), 6)
    np.testing.assert_allclose(source.patches().score, whole.score, atol=3e-5 * np.abs(R).max())


def test_scores_follow_the_weights_between_two_selections(graphs, dense):
    graph = graphs.make("connected")
    filter = Adaptive(K=4)
    source = make_source(graph, filter, 6)
    before = source.patches().index
    randomise(filter)
    nodes = torch.tensor([4, 0, 11])
    index, score = source(nodes)
    np.testing.assert_array_equal(index, before[nodes])
    R = filtered(filter, dense.normalised(graph))
    np.testing.assert_allclose(score.detach(), R[nodes[:, None], index], atol=3e-5 * np.abs(R).max())


def test_gradient_of_the_scores_reaches_the_weights(graphs, filter):
    source = make_source(graphs.make("connected"), filter, 6)
    _, score = source(torch.arange(24))
    scale = torch.linspace(0.3, 2, score.numel()).view_as(score)
    (score * scale).sum().backward()
    grad = filter.weight.grad
    assert torch.isfinite(grad).all()
    assert grad.abs().max() > 1e-2
    # against a finite difference along the gradient
    step = 1e-3 * grad / grad.norm()
    with torch.no_grad():
        filter.weight += step
        up = (source(torch.arange(24))[1] * scale).sum()
        filter.weight -= 2 * step
        down = (source(torch.arange(24))[1] * scale).sum()
    assert (up - down).item() == pytest.approx(2e-3 * grad.norm().item(), rel=0.05)


def test_reselecting_follows_the_filter(graphs, dense):
    """On a ring, a low-pass filter prefers neighbours, and its mirror image nodes at distance 2."""
    n = 20
    graph = graphs.ring(n)
    filter = Polynomial(K=8, c=0.5)
    source = make_source(graph, filter, 3)
    assert all({(v - 1) % n, (v + 1) % n} == set(source.patches().index[v, 1:].tolist()) for v in range(n))
    with torch.no_grad():
        filter.weight[::2] *= -1  # g(λ) -> g(-λ): odd powers change sign
    old = source.patches().index.copy()
    np.testing.assert_array_equal(old[:, 0], np.arange(n))
    assert {1, n - 1} == set(old[0, 1:].tolist()), "not before reselect"
    source.reselect()
    new = source.patches()
    assert all({(v - 2) % n, (v + 2) % n} == set(new.index[v, 1:].tolist()) for v in range(n))
    dense.check(new, filtered(filter, dense.normalised(graph)), atol=1e-5)


# ------------------------------------------------------------------------------------------------ saved selections


def test_the_selection_is_part_of_the_state(graphs):
    graph = graphs.make("connected")
    filter = Adaptive(K=4)
    source = make_source(graph, filter, 6)
    start = source.patches().index.copy()
    randomise(filter)
    source.reselect()
    reselected = source.patches()
    assert (reselected.index != start).any()
    state = {name: value.clone() for name, value in source.state_dict().items()}
    assert "members" in state
    fresh = make_source(graph, Adaptive(K=4), 6)
    fresh.load_state_dict(state)
    np.testing.assert_array_equal(fresh.patches().index, reselected.index)
    np.testing.assert_array_equal(fresh.patches().score, reselected.score)


def test_a_saved_selection_names_nodes_whatever_the_order_of_the_candidates(graphs):
    """Rounding (threads, another machine) may reorder candidates of equal score; a saved selection stays the same."""
    graph = graphs.make("connected")
    filter = Adaptive(K=4)
    pairs = spectral_products(graph_spectrum(graph), filter, 64)
    source = SpectralPatches(pairs, filter, 6)
    randomise(filter)
    source.reselect()
    order = torch.cat([torch.tensor([0]), 1 + torch.randperm(pairs.candidates.shape[1] - 1)])
    other = SpectralPatches(PairProducts(pairs.candidates[:, order], pairs.products[:, order]), Adaptive(K=4), 6)
    other.load_state_dict(source.state_dict())
    np.testing.assert_array_equal(other.patches().index, source.patches().index)


def test_a_saved_member_that_is_not_a_candidate_leaves_its_position_empty(graphs):
    """Beyond 512 nodes rounding may change the candidates; the node itself must not replace a lost one."""
    graph = graphs.make("connected")
    filter = Adaptive(K=4)
    pairs = spectral_products(graph_spectrum(graph), filter, 64)
    source = SpectralPatches(pairs, filter, 6)
    gone = int(source.patches().index[0, 2])
    left = torch.stack([row[:-1] if v == gone else row[row != gone] for v, row in enumerate(pairs.candidates)])
    columns = [(pairs.candidates[v] == u).nonzero()[0, 0] for v in range(24) for u in left[v]]
    products = pairs.products[torch.arange(24).repeat_interleave(left.shape[1]), torch.stack(columns)]
    other = SpectralPatches(PairProducts(left, products.view(24, left.shape[1], -1)), Adaptive(K=4), 6)
    other.load_state_dict(source.state_dict())
    for row in other.patches().index.tolist():
        members = [u for u in row if u >= 0]
        assert gone not in members[1:]
        assert len(set(members)) == len(members), "a node twice in one patch"


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AdaptiveFilter(c=1.5), "1.5"),
        (lambda: AdaptiveFilter(K=0), "K.*got 0"),
        (lambda: AdaptiveFilter(sigma="nonsense"), "nonsense"),
        (lambda: AdaptiveFilter(candidates=0), "candidates must be at least 1, got 0"),
        (lambda: SharedFilter(K=2.5), "K.*got 2.5"),
        (lambda: PolynomialFilter(c=1.5), "1.5"),
        (lambda: PolynomialFilter(c=0.0), r"c must lie in \(0, 1\), got 0"),
        (lambda: PolynomialFilter(eps=2.0), "eps.*got 2.0"),
    ],
)
def test_parameters_outside_their_range_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()
