"""Unseen nodes: the same answer as the extended graph gives, at a cost that does not depend on its size."""

import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError, InputWarning
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.prepare import prepare
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.model.config import ModelConfig
from gpatcher.model.inputs import FeatureConfig, FeatureTable, node_features
from gpatcher.patches import EXTRACTORS, PPR, AdaptiveFilter, HeatKernel, PolynomialFilter, make_extractor
from gpatcher.patches.ppr import push_patches
from gpatcher.training.loop import TrainConfig, predict_logits

TINY = 1000  # bytes: too few for any eigenvector
PATCHES = {name: make_extractor(name, {"size": 6, "K": 6}) for name in EXTRACTORS} | {
    "polynomial without eigenvectors": PolynomialFilter(size=6, K=6, exact=False),
    "two sources": (PPR(size=4), AdaptiveFilter(size=6, K=6)),
    "three sources": (PolynomialFilter(size=5, K=6, exact=False), PPR(size=3), HeatKernel(size=6, K=6)),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "cache"))


def quietly(call, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        return call(*arguments, **options)


def quick(patches=PATCHES["ppr"], filter_lr=1.0, **options):
    train = TrainConfig(epochs=12, reselect_every=4, filter_lr=filter_lr)
    return GPatcherClassifier(patches=patches, model=ModelConfig(hidden=8, mixer_hidden=4), train=train, **options)


def any_graph(seed, n=40, weighted=False, directed=False, loops=True):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, n - 2, (2, 3 * n))
    weights = rng.uniform(0.1, 4.0, edges.shape[1]) if weighted else None
    x = rng.normal(size=(n, 5)).astype(np.float32)
    if not loops:
        keep = edges[0] != edges[1]
        edges, weights = edges[:, keep], None if weights is None else weights[keep]
    graph = quietly(Graph.from_edge_index, edges, x=x, y=rng.integers(0, 2, n), num_nodes=n, weights=weights)
    return graph if directed else graph.undirected()


def join_unseen(graph, seed=0, count=4, edges=9):
    """Unseen nodes with edges to the graph, among themselves, duplicates and self-loops; the last has none."""
    rng = np.random.default_rng(seed)
    new = rng.integers(graph.n, graph.n + count - 1, edges)
    other = rng.integers(0, graph.n + count - 1, edges)
    endpoints = np.where(rng.random(edges) < 0.5, np.stack([new, other]), np.stack([other, new]))
    x = None if graph.x is None else rng.normal(size=(count, graph.x.shape[1])).astype(np.float32)
    weights = None if graph.weights is None else rng.uniform(0.1, 4.0, edges)
    return quietly(UnseenNodes.join, graph, endpoints, x, count, weights=weights)


def extended_answer(model, unseen):
    """The probabilities by the fitted weights on the extended graph, all of it prepared as for training."""
    extended, n = unseen.extended(), unseen.graph.n
    prepared = prepare(extended, model.extractors_, model.features, memory=model.memory)
    x = prepared.x
    if model.features.adjacency_features:
        rows = [extended.adjacency(np.float32)]
        rows += [sp.csr_array(rows[0].T)] if unseen.graph.is_directed else []
        own = node_features(extended, replace(model.features, adjacency_features=False)).rows(torch.arange(extended.n))
        x = FeatureTable(sp.csr_array(sp.hstack([sp.csr_array(own.numpy()), *(r[:, :n] for r in rows)])))
    whole = replace(prepared, x=x).build(len(model.classes_), model.model)
    state = {name: value for name, value in model.model_.state_dict().items() if not name.endswith(".members")}
    missing, unexpected = whole.load_state_dict(state, strict=False)
    assert all(name.endswith(".members") for name in missing)
    assert not unexpected
    whole.reselect()
    return model.calibration_.probability(predict_logits(whole, x, unseen.nodes).numpy())


# ------------------------------------------------------------------------------------------------ patches


@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_patches_are_those_of_the_extended_graph(seed, weighted, directed, self_loops):
    graph = any_graph(seed, weighted=weighted, directed=directed)
    unseen = join_unseen(graph, seed)
    extended = unseen.extended()
    assert extended.is_directed == graph.is_directed
    extractor = PPR(size=8, c=0.6, eps=1e-4, self_loops=self_loops)
    patches = extractor.prepare_unseen(unseen)
    expected = push_patches(extended, extractor, nodes=unseen.nodes)
    np.testing.assert_array_equal(patches.index, expected.index)
    np.testing.assert_array_equal(patches.score, expected.score)


@given(st.integers(0, 10_000), st.booleans(), st.booleans())
@settings(max_examples=15, deadline=None)
def test_products_are_those_of_the_extended_graph(seed, weighted, self_loops):
    unseen = join_unseen(any_graph(seed, weighted=weighted), seed)
    extractor = PolynomialFilter(size=4, K=5, self_loops=self_loops, exact=False)
    pairs = extractor.prepare_unseen(unseen)
    expected = extractor.prepare(unseen.extended())[unseen.nodes]
    np.testing.assert_array_equal(pairs.candidates, expected.candidates)
    np.testing.assert_allclose(pairs.products, expected.products, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_products_on_a_graph_with_more_nodes_than_candidates(weighted):
    unseen = join_unseen(any_graph(5, n=300, weighted=weighted), count=8, edges=40)
    extractor = PolynomialFilter(size=4, K=5, exact=False)
    pairs = extractor.prepare_unseen(unseen)
    assert pairs.candidates.shape == (8, 64)
    expected = extractor.prepare(unseen.extended())[unseen.nodes]
    np.testing.assert_array_equal(pairs.candidates, expected.candidates)
    np.testing.assert_allclose(pairs.products, expected.products, atol=1e-6)


def test_the_extended_graph():
    graph = any_graph(3, loops=False)
    unseen = UnseenNodes.join(graph, [[40, 41, 7], [3, 40, 41]], np.ones((3, 5)), node_ids=np.array([7, 8, 9]))
    extended = unseen.extended()
    assert extended.n == 43
    assert unseen.nodes.tolist() == [40, 41, 42]
    assert extended.neighbours(40).tolist() == [3, 41]
    assert extended.neighbours(41).tolist() == [7, 40]
    assert extended.neighbours(42).tolist() == []
    assert extended.neighbours(3).tolist() == [*graph.neighbours(3).tolist(), 40]
    np.testing.assert_array_equal(extended.x[:40], graph.x)
    np.testing.assert_array_equal(extended.x[40:], 1)
    np.testing.assert_array_equal(extended.y[:40], graph.y)
    assert extended.y[40:].tolist() == [-1, -1, -1]


@pytest.mark.parametrize("directed", [False, True])
def test_the_extended_graph_keeps_directions_and_weights(directed):
    graph = any_graph(3, weighted=True, directed=directed, loops=False)
    unseen = UnseenNodes.join(graph, [[40, 3], [5, 41]], np.ones((2, 5)), weights=[2.5, 0.5])
    A, extended = graph.adjacency().toarray(), unseen.extended().adjacency().toarray()
    np.testing.assert_allclose(extended[:40, :40], A)
    assert (extended[40, 5], extended[3, 41]) == (2.5, 0.5)
    assert (extended[5, 40], extended[41, 3]) == ((0, 0) if directed else (2.5, 0.5))
    assert unseen.rows.tolist() == [3, 5, 40, 41]


# ------------------------------------------------------------------------------------------------ predictions


@pytest.mark.parametrize("patches", PATCHES.values(), ids=PATCHES)
def test_the_answer_is_that_of_the_extended_graph(patches):
    graph = csbm(phi=-0.5, n=80, features=6)
    model = quick(patches, filter_lr=10.0).fit(graph)
    unseen = join_unseen(graph)
    probability = model.predict_proba(unseen)
    assert probability.shape == (4, 2)
    np.testing.assert_allclose(probability, extended_answer(model, unseen), atol=1e-5)
    np.testing.assert_array_equal(model.predict(unseen), model.classes_[probability.argmax(1)])
    np.testing.assert_array_equal(
        model.predict_sets(unseen, level=0.8), model.calibration_.sets(model.decision_function(unseen), 0.8)
    )


def test_a_filter_that_was_trained_without_eigenvectors_needs_none_for_unseen_nodes():
    graph = csbm(phi=-0.5, n=80, features=6)
    model = quick(PolynomialFilter(size=6, K=6), memory=TINY, filter_lr=10.0).fit(graph)
    assert model.extractors_ == (PolynomialFilter(size=6, K=6, exact=False),)
    unseen = join_unseen(graph)
    np.testing.assert_allclose(model.predict_proba(unseen), extended_answer(model, unseen), atol=1e-5)


@pytest.mark.parametrize("normalise", ["none", "l1", "l2", "standard"])
@pytest.mark.parametrize("sparse", [False, True])
def test_features_are_normalised_as_in_training(normalise, sparse):
    graph = any_graph(1, weighted=True)
    if sparse:
        graph = replace(graph, x=sp.csr_array(np.where(np.asarray(graph.x) > 0.5, graph.x, 0)))
    model = quietly(quick(features=FeatureConfig(normalise=normalise)).fit, graph)
    unseen = join_unseen(graph)
    np.testing.assert_allclose(model.predict_proba(unseen), extended_answer(model, unseen), atol=1e-5)


@pytest.mark.parametrize("directed", [False, True])
def test_adjacency_rows_keep_the_columns_of_training(directed):
    graph = any_graph(2, directed=directed)
    model = quietly(quick(features=FeatureConfig(adjacency_features=True)).fit, graph)
    unseen = join_unseen(graph)
    np.testing.assert_allclose(model.predict_proba(unseen), extended_answer(model, unseen), atol=1e-5)


def test_a_loaded_model_needs_the_graph_of_the_unseen_nodes_only(tmp_path):
    graph = csbm(phi=-0.5, n=80, features=6)
    model = quick().fit(graph)
    model.save(tmp_path)
    unseen = join_unseen(graph)
    loaded = GPatcherClassifier.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(unseen), model.predict_proba(unseen))
    assert not hasattr(loaded, "model_")  # nothing was prepared for the nodes of training


def test_unseen_nodes_of_another_graph_are_refused():
    model = quick().fit(csbm(phi=-0.5, n=80, features=6))
    with pytest.raises(InputError, match="its edges differ"):
        model.predict_proba(join_unseen(csbm(phi=-0.5, n=80, features=6, seed=1)))


def test_nodes_cannot_be_selected_among_unseen_nodes():
    graph = csbm(phi=-0.5, n=80, features=6)
    with pytest.raises(InputError, match="leave it out for unseen nodes"):
        quick().fit(graph).predict_proba(join_unseen(graph), nodes=[0])


def test_isolated_unseen_nodes_are_alone_in_their_patches():
    graph = csbm(phi=-0.5, n=60, features=6)
    with pytest.warns(InputWarning, match="csbm, unseen nodes: no edges"):
        unseen = UnseenNodes.join(graph, [[], []], np.ones((2, 6), np.float32))
    patches = PPR(size=3, eps=1e-4).prepare_unseen(unseen)
    assert patches.index.tolist() == [[60, -1, -1], [61, -1, -1]]
    for extractor in (PPR(size=6), AdaptiveFilter(size=6, K=6)):
        assert np.isfinite(quick(extractor).fit(graph).predict_proba(unseen)).all()


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("edges", "options", "words"),
    [
        ([[80], [90]], {}, "1 new edge has an endpoint that does not exist: 90, the first at edge 0"),
        ([[80, -1], [3, 80]], {}, "does not exist: -1, the first at edge 1"),
        ([[80, 3], [3, 4]], {}, r"two nodes of the graph, the first \['3', '4'\] at edge 1"),
        ([[80.0], [3.0]], {}, "integers"),
        ([80, 3], {}, "shape"),
        ([[80], [3]], {"x": np.ones((2, 7))}, "7 feature columns, the graph has 6"),
        ([[80], [3]], {"x": None, "count": 2}, "the unseen nodes have none"),
        ([[80], [3]], {"x": np.full((2, 6), np.nan)}, "not finite"),
        ([[80], [3]], {"count": 3}, "count.*3"),
        ([[80], [3]], {"weights": [1.0]}, "no weights"),
        ([[80], [3]], {"node_ids": np.array(["a", "a"])}, "more than once: a"),
        ([[80], [3]], {"node_ids": np.array([7, 80])}, "has already: 7"),
    ],
)
def test_wrong_arguments_are_refused(edges, options, words):
    graph = replace(csbm(phi=-0.5, n=80, features=6), node_ids=np.arange(80))
    with pytest.raises(InputError, match=words):
        UnseenNodes.join(graph, edges, **{"x": np.ones((2, 6))} | options)


def test_new_edges_of_a_weighted_graph_need_weights():
    with pytest.raises(InputError, match="need them too"):
        UnseenNodes.join(any_graph(0, weighted=True), [[40], [3]], np.ones((1, 5)))


def test_no_array_of_the_size_of_the_graph_is_made():
    """The memory taken does not grow with the graph, once its adjacency is cached."""
    peaks = []
    for n in (40_000, 400_000):
        ring = np.arange(n)
        edges = np.stack([np.r_[ring, (ring + 1) % n], np.r_[(ring + 1) % n, ring]])
        x = np.ones((n, 2), np.float32)
        x[:, 0] = ring % 2
        graph = Graph.from_edge_index(edges, x=x, y=ring % 2)
        model = GPatcherClassifier(
            patches=PPR(size=4, eps=1e-3),
            model=ModelConfig(hidden=4, mixer_hidden=4),
            train=TrainConfig(epochs=1),
        ).fit(graph)

        def predict(graph=graph, model=model, n=n):
            unseen = UnseenNodes.join(graph, [[n, n, n + 1], [5, 9, n]], np.ones((2, 2), np.float32))
            return model.predict_proba(unseen)

        predict()
        tracemalloc.start()
        predict()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] + 10_000
