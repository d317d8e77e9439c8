"""What every extractor must do, whatever its filter: one contract over all of them."""

import warnings

import numpy as np
import pytest
import torch

from gpatcher.errors import InputWarning
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.patches import EXTRACTORS, PolynomialFilter, extract_patches, make_extractor
from gpatcher.patches.base import LocalExtractor, Patches, PatchesOnDemand, PatchSource

NAMES = [name for name in EXTRACTORS if name != "auto"]
WITHOUT_EIGENVECTORS = "polynomial without eigenvectors"
SIZE = 6


def make(name, size=SIZE, **parameters):
    parameters = {"size": size, "K": 6, "c": 0.6, "eps": 1e-9, "threshold": 0.05} | parameters
    if name == WITHOUT_EIGENVECTORS:
        return make_extractor("polynomial", parameters | {"exact": False})
    return make_extractor(name, parameters)


@pytest.fixture(params=[*NAMES, WITHOUT_EIGENVECTORS])
def name(request):
    return request.param


def make_source(extractor, graph):
    return extractor.source(extractor.prepare(graph))


def randomise(source, seed=0):
    """Replace the weights of a learned source; a fixed one has none."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    source.reselect()


def check_layout(patches, n, size):
    """Check the shape, the node first, and padding of -1 and score 0 after the last member."""
    assert isinstance(patches, Patches)
    assert patches.index.shape == patches.score.shape == (n, size)
    assert (patches.index.dtype, patches.score.dtype) == (np.int32, np.float32)
    np.testing.assert_array_equal(patches.index[:, 0], np.arange(n))
    mask = patches.index >= 0
    assert np.all(mask[:, :-1] >= mask[:, 1:]), "padding comes last"
    assert np.all(patches.index[~mask] == -1)
    assert np.all(patches.score[~mask] == 0)
    assert patches.index.max() < n
    assert np.isfinite(patches.score).all()
    for row in patches.index:
        members = row[row >= 0].tolist()
        assert len(set(members)) == len(members), "a node twice in one patch"
    for row, filled in zip(patches.score, mask, strict=True):
        assert np.all(np.diff(row[filled][1:]) <= 0), "descending scores"


# ------------------------------------------------------------------------------------------------ layout


@pytest.mark.parametrize("size", [1, 6, 40])
@pytest.mark.parametrize("kind", ["connected", "disconnected", "weighted", "directed", "looped", "isolated"])
def test_layout_of_patches(graphs, name, kind, size):
    graph = graphs.make(kind)
    extractor = make(name, size)
    source = make_source(extractor, graph)
    check_layout(source.patches(), graph.n, size)
    check_layout(extract_patches(graph, extractor), graph.n, size)


def test_before_training_a_source_serves_what_extract_patches_returns(graphs, name):
    graph = graphs.make("weighted")
    extractor = make(name)
    served, extracted = make_source(extractor, graph).patches(), extract_patches(graph, extractor)
    np.testing.assert_allclose(served.score, extracted.score, atol=3e-6)
    np.testing.assert_array_equal(served.index, extracted.index)


@pytest.mark.parametrize("name", [name for name in NAMES if isinstance(make(name), LocalExtractor)])
@pytest.mark.parametrize("kind", ["connected", "weighted", "directed", "looped", "isolated"])
def test_patches_of_some_nodes_are_those_of_all(graphs, name, kind):
    graph, extractor = graphs.make(kind), make(name)
    every, some = extractor.prepare(graph), PatchesOnDemand(extractor, graph)
    asked = np.array([5, 1, 5])
    index, score = extractor.source(some)(torch.from_numpy(asked))
    for made in (some[asked], Patches(index.numpy(), score.numpy())):
        np.testing.assert_array_equal(made.index, every[asked].index)
        np.testing.assert_array_equal(made.score, every[asked].score)


@pytest.mark.parametrize("learned", [False, True], ids=["before training", "any weights"])
def test_a_patch_larger_than_the_graph_is_padded(graphs, name, learned):
    graph = graphs.undirected([[0, 1], [1, 2]])
    source = make_source(make(name, size=8), graph)
    if learned:
        randomise(source)
    patches = source.patches()
    check_layout(patches, 3, 8)
    assert (patches.index[:, 3:] == -1).all()
    assert patches.index[0, 1] >= 0, "a node with neighbours is not alone"


@pytest.mark.parametrize("learned", [False, True], ids=["before training", "any weights"])
@pytest.mark.parametrize("self_loops", [False, True])
def test_an_isolated_node_is_alone_in_its_patch_and_in_no_other(graphs, name, learned, self_loops):
    graph = graphs.make("isolated")
    source = make_source(make(name, self_loops=self_loops), graph)
    if learned:
        randomise(source)
    patches = source.patches()
    for v in (0, 25, 26):
        assert patches.index[v].tolist() == [v] + [-1] * (SIZE - 1)
        assert (np.delete(patches.index, v, axis=0) != v).all()


def test_a_graph_without_edges(graphs, name):
    graph = graphs.build([], [], 5)
    patches = make_source(make(name, size=3), graph).patches()
    check_layout(patches, 5, 3)
    assert (patches.index[:, 1:] == -1).all()


# ------------------------------------------------------------------------------------------------ sources


def test_a_source_serves_any_nodes_in_any_order(graphs, name):
    source = make_source(make(name), graphs.make("weighted"))
    assert isinstance(source, PatchSource)
    assert source.size == SIZE
    assert source.learned == bool(list(source.parameters()))
    randomise(source)
    patches = source.patches()
    nodes = torch.tensor([7, 0, 7, 23])
    index, score = source(nodes)
    assert index.shape == score.shape == (4, SIZE)
    assert index.dtype == torch.int64
    np.testing.assert_array_equal(index, patches.index[nodes])
    np.testing.assert_allclose(score.detach(), patches.score[nodes], atol=1e-6)
    assert source(nodes[:0])[0].shape == (0, SIZE)


def test_gradient_reaches_the_weights_of_a_learned_source_and_no_other(graphs, name):
    source = make_source(make(name), graphs.make("weighted"))
    _, score = source(torch.arange(24))
    assert score.requires_grad == source.learned
    if source.learned:
        score.square().sum().backward()
        for key, parameter in source.named_parameters():
            assert torch.isfinite(parameter.grad).all(), key
            assert parameter.grad.abs().max() > 0, key


def test_two_sources_share_what_was_prepared_but_no_weights(graphs, name):
    extractor = make(name)
    prepared = extractor.prepare(graphs.make("weighted"))
    one, two = extractor.source(prepared), extractor.source(prepared)
    before = two.patches()
    randomise(one)
    np.testing.assert_array_equal(two.patches().score, before.score)
    assert prepared.nbytes > 0


def test_resolving_keeps_the_parameters(graphs, name):
    graph = graphs.make("connected")
    extractor = make(name)
    [resolved] = extractor.resolve(graph)
    assert (resolved.name, resolved.size, resolved.self_loops) == (extractor.name, SIZE, False)
    assert resolved.resolve(graph) == (resolved,)
    one, two = (make_source(e, graph).patches() for e in (extractor, resolved))
    np.testing.assert_array_equal(one.index, two.index)


def test_the_response_has_a_value_for_each_eigenvalue(name):
    values = torch.linspace(-1, 1, 41)
    response = make(name).response(values)
    assert response.shape == (41,)
    assert response.dtype == values.dtype
    assert not response.requires_grad
    assert torch.isfinite(response).all()
    torch.testing.assert_close(make(name).response(values[[7]]), response[[7]])


def test_scores_are_the_response_applied_to_the_adjacency(graphs, dense, name):
    """R = g(Ã) with g the response that the extractor states; a row of R holds the scores of a patch."""
    graph = graphs.make("weighted")
    extractor = make(name)
    values, U = np.linalg.eigh(dense.normalised(graph))
    R = (U * extractor.response(torch.from_numpy(np.clip(values, -1, 1))).numpy()) @ U.T
    if name == "overlap":  # the cosine of two rows of Ã, from Ã²
        R = R / np.sqrt(np.outer(R.diagonal(), R.diagonal()))
        R[extractor.threshold > R] = 0
    dense.check(extract_patches(graph, extractor), R, atol=3e-6)


# ------------------------------------------------------------------------------------------------ invariance


@pytest.mark.parametrize("learned", [False, True], ids=["before training", "any weights"])
def test_relabelling_the_nodes_relabels_the_patches(graphs, name, learned):
    rng = np.random.default_rng(5)
    pairs = graphs.random_pairs(30, rng, degree=4)
    weights = rng.uniform(0.5, 2.0, len(pairs))  # distinct: no ties and no multiple eigenvalue
    new = rng.permutation(30)  # old id -> new id
    results = []
    for edges in (pairs, new[pairs]):
        source = make_source(make(name, eps=1e-10), graphs.undirected(edges, weights=weights))
        if learned:
            randomise(source)
        results.append(source.patches())
    one, two = results
    scale = np.abs(one.score).max()
    atol = 3e-6 if not learned else 3e-5 * scale
    clear_positions = 0
    for v in range(30):
        np.testing.assert_allclose(two.score[new[v]], one.score[v], atol=atol)
        # rounding may swap members whose scores lie close together
        clear = np.abs(np.diff(one.score[v])) > 7 * atol
        for j in range(1, SIZE - 1):
            if clear[j - 1] and clear[j]:
                assert two.index[new[v], j] == new[one.index[v, j]]
                clear_positions += 1
    assert clear_positions > 30


# ------------------------------------------------------------------------------------------------ unseen nodes


def join_unseen(graph, seed=0, count=4, edges=9):
    """Unseen nodes with edges to the graph, among themselves, duplicates and self-loops; the last has none."""
    rng = np.random.default_rng(seed)
    new = rng.integers(graph.n, graph.n + count - 1, edges)
    other = rng.integers(0, graph.n + count - 1, edges)
    endpoints = np.where(rng.random(edges) < 0.5, np.stack([new, other]), np.stack([other, new]))
    weights = None if graph.weights is None else rng.uniform(0.1, 4.0, edges)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        return UnseenNodes.join(graph, endpoints, count=count, weights=weights)


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("kind", ["connected", "disconnected", "weighted", "directed", "looped", "isolated"])
def test_patches_of_unseen_nodes_are_those_of_the_extended_graph_with_the_same_weights(graphs, name, kind, self_loops):
    graph = graphs.make(kind)
    unseen = join_unseen(graph)
    extractor = make(name, self_loops=self_loops)
    alone = extractor.source(extractor.prepare_unseen(unseen))
    whole = make_source(extractor, unseen.extended())
    for source in (alone, whole):
        randomise(source)  # the same weights
    result, expected = alone.patches(), whole.patches()[unseen.nodes]
    assert result.index.shape == (4, SIZE)
    np.testing.assert_array_equal(result.index[:, 0], unseen.nodes)
    assert result.index[3].tolist() == [unseen.nodes[3]] + [-1] * (SIZE - 1)
    scale = max(1.0, float(np.abs(expected.score).max()))
    np.testing.assert_allclose(result.score, expected.score, atol=1e-5 * scale)
    np.testing.assert_array_equal(result.index >= 0, expected.index >= 0)
    # rounding may swap members whose scores lie close together
    gaps = np.abs(np.diff(expected.score, axis=1, append=np.inf)) > 1e-4 * scale
    clear = gaps & np.roll(gaps, 1, axis=1)
    assert clear.sum() > 4
    np.testing.assert_array_equal(result.index[clear], expected.index[clear])


def test_what_is_prepared_for_unseen_nodes_can_be_relabelled_to_its_members(graphs, name):
    extractor = make(name)
    unseen = join_unseen(graphs.make("weighted"))
    data = extractor.prepare_unseen(unseen)
    members = data.members()
    assert np.all(np.diff(members) > 0)
    assert set(unseen.nodes) <= set(members.tolist())
    whole, part = extractor.source(data).patches(), extractor.source(data.relabel(members)).patches()
    np.testing.assert_array_equal(part.score, whole.score)
    mask = whole.index >= 0
    np.testing.assert_array_equal(part.index >= 0, mask)
    np.testing.assert_array_equal(members[part.index[mask]], whole.index[mask])


def test_the_polynomial_filter_decides_for_unseen_nodes_as_for_the_graph(graphs):
    """Left open, ``exact`` must mean the same in `prepare` and `prepare_unseen`."""
    unseen = join_unseen(graphs.make("connected"))
    extractor = PolynomialFilter(size=4)
    for memory in (None, 1000):
        alone = extractor.prepare_unseen(unseen, memory=memory)
        whole = extractor.prepare(unseen.extended(), memory=memory)[unseen.nodes]
        np.testing.assert_array_equal(alone.candidates, whole.candidates)
        np.testing.assert_allclose(alone.products, whole.products, atol=1e-6)
