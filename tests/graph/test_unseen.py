"""Nodes that came after training: the same answer as the whole graph gives, without work in proportion to it."""

import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError, InputWarning
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.model.inputs import FeatureTable, node_features
from gpatcher.patches.extract import EXTRACTORS
from gpatcher.patches.polynomial import moment_products
from gpatcher.patches.ppr import push_patches
from gpatcher.training.loop import predict_logits

QUICK = {"patch_size": 6, "hidden": 8, "mixer_hidden": 4, "epochs": 12, "filters": 6, "renew_every": 4}
TINY = 1000  # bytes: too few for any eigenvector


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "cache"))


def quietly(call, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        return call(*arguments, **options)


def any_graph(seed, n=40, weighted=False, directed=False, loops=True):
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, n - 2, (2, 3 * n))
    weights = rng.uniform(0.1, 4.0, ends.shape[1]) if weighted else None
    x = rng.normal(size=(n, 5)).astype(np.float32)
    if not loops:
        keep = ends[0] != ends[1]
        ends, weights = ends[:, keep], None if weights is None else weights[keep]
    graph = quietly(Graph.from_edge_index, ends, x=x, y=rng.integers(0, 2, n), num_nodes=n, weights=weights)
    if directed:
        return graph
    return replace(graph.undirected())


def arrivals(graph, seed=0, count=4, edges=9):
    """New nodes with edges to old ones and among themselves, doubled edges and self-loops; the last has none."""
    rng = np.random.default_rng(seed)
    new = rng.integers(graph.n, graph.n + count - 1, edges)
    other = rng.integers(0, graph.n + count - 1, edges)
    ends = np.where(rng.random(edges) < 0.5, np.stack([new, other]), np.stack([other, new]))
    x = None if graph.x is None else rng.normal(size=(count, graph.x.shape[1])).astype(np.float32)
    weights = None if graph.weights is None else rng.uniform(0.1, 4.0, edges)
    return quietly(UnseenNodes.join, graph, ends, x, count, weights=weights)


def whole_answer(model, newcomers):
    """The fitted weights on the extended graph, all of it prepared as for training."""
    extended = newcomers.extended()
    prepared = model.prepare(extended, extractor=model.extractor_, exact=model.exact_)
    x = prepared.x
    if model.structure:
        n, old = newcomers.graph.n, newcomers.graph
        rows = [extended.adjacency(np.float32)]
        rows += [sp.csr_array(rows[0].T)] if old.is_directed else []
        own = node_features(extended, model.normalise)
        dense = own._tensor.numpy() if own._tensor is not None else own._sparse.toarray()
        x = FeatureTable(sp.csr_array(sp.hstack([sp.csr_array(dense), *(r[:, :n] for r in rows)])))
    whole = model._build(newcomers.graph, replace(prepared, x=x))
    state = {k: v for k, v in model.model_.state_dict().items() if k != "patches.members"}
    missing, unexpected = whole.load_state_dict(state, strict=False)
    assert set(missing) <= {"patches.members"}
    assert not unexpected
    whole.renew()
    return model.calibration_.probability(predict_logits(whole, x, newcomers.nodes).numpy())


# ------------------------------------------------------------------------------------------------- patches


@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_patches_are_those_of_the_extended_graph(seed, weighted, directed, self_loops):
    graph = any_graph(seed, weighted=weighted, directed=directed)
    newcomers = arrivals(graph, seed)
    extended = newcomers.extended()
    assert extended.is_directed == graph.is_directed
    found = newcomers.patches(8, 0.6, 1e-4, self_loops)
    expected = push_patches(extended, 8, 0.6, 1e-4, self_loops, nodes=newcomers.nodes)
    np.testing.assert_array_equal(found.index, expected.index)
    np.testing.assert_array_equal(found.score, expected.score)


@given(st.integers(0, 10_000), st.booleans(), st.booleans())
@settings(max_examples=15, deadline=None)
def test_products_are_those_of_the_extended_graph(seed, weighted, self_loops):
    newcomers = arrivals(any_graph(seed, weighted=weighted), seed)
    found = newcomers.products(5, 16, 0.5, 1e-5, self_loops)
    expected = moment_products(newcomers.extended(), 5, 16, self_loops=self_loops)
    np.testing.assert_array_equal(found.around, expected.around[newcomers.nodes])
    np.testing.assert_allclose(found.products, expected.products[newcomers.nodes], atol=1e-6)


def test_the_extended_graph():
    graph = any_graph(3, loops=False)
    newcomers = UnseenNodes.join(graph, [[40, 41, 7], [3, 40, 41]], np.ones((3, 5)), node_ids=np.array([7, 8, 9]))
    extended = newcomers.extended()
    assert extended.n == 43
    assert extended.neighbours(40).tolist() == [3, 41]
    assert extended.neighbours(41).tolist() == [7, 40]
    assert extended.neighbours(42).tolist() == []
    assert extended.neighbours(3).tolist() == [*graph.neighbours(3).tolist(), 40]
    np.testing.assert_array_equal(extended.x[:40], graph.x)
    assert extended.y[40:].tolist() == [-1, -1, -1]


# --------------------------------------------------------------------------------------------- predictions


@pytest.mark.parametrize("extractor", [*EXTRACTORS, "moments", "auto"])
def test_the_answer_is_that_of_the_whole_graph(extractor):
    graph = csbm(phi=-0.5, n=80, features=6)
    options = {"extractor": "polynomial", "memory": TINY} if extractor == "moments" else {"extractor": extractor}
    model = GPatcherClassifier(**QUICK, **options, filter_lr=10.0).fit(graph)
    newcomers = arrivals(graph)
    found = model.predict_proba_new(newcomers)
    assert found.shape == (4, 2)
    np.testing.assert_allclose(found, whole_answer(model, newcomers), atol=1e-5)
    np.testing.assert_array_equal(model.predict_new(newcomers), model.classes_[found.argmax(1)])


@pytest.mark.parametrize("normalise", ["none", "l1", "l2", "standard"])
@pytest.mark.parametrize("sparse", [False, True])
def test_features_are_normalised_as_in_training(normalise, sparse):
    graph = any_graph(1, weighted=True)
    if sparse:
        graph = replace(graph, x=sp.csr_array(np.where(np.asarray(graph.x) > 0.5, graph.x, 0)))
    model = quietly(GPatcherClassifier(**QUICK, extractor="ppr", normalise=normalise).fit, graph)
    newcomers = arrivals(graph)
    np.testing.assert_allclose(model.predict_proba_new(newcomers), whole_answer(model, newcomers), atol=1e-5)


@pytest.mark.parametrize("directed", [False, True])
def test_rows_of_the_adjacency_keep_the_columns_of_training(directed):
    graph = any_graph(2, directed=directed)
    model = quietly(GPatcherClassifier(**QUICK, extractor="ppr", structure=True).fit, graph)
    newcomers = arrivals(graph)
    np.testing.assert_allclose(model.predict_proba_new(newcomers), whole_answer(model, newcomers), atol=1e-5)


def test_a_loaded_model_needs_the_graph_of_the_newcomers_only(tmp_path):
    graph = csbm(phi=-0.5, n=80, features=6)
    model = GPatcherClassifier(**QUICK, extractor="ppr").fit(graph)
    model.save(tmp_path)
    newcomers = arrivals(graph)
    loaded = GPatcherClassifier.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba_new(newcomers), model.predict_proba_new(newcomers))
    assert not hasattr(loaded, "model_")  # nothing was prepared for the nodes that were there


def test_newcomers_of_another_graph_are_refused():
    model = GPatcherClassifier(**QUICK, extractor="ppr").fit(csbm(phi=-0.5, n=80, features=6))
    with pytest.raises(InputError, match="its edges differ"):
        model.predict_proba_new(arrivals(csbm(phi=-0.5, n=80, features=6, seed=1)))


def test_lone_newcomers_have_themselves_alone():
    graph = csbm(phi=-0.5, n=60, features=6)
    with pytest.warns(InputWarning, match="csbm, new nodes: no edges"):
        newcomers = UnseenNodes.join(graph, [[], []], np.ones((2, 6), np.float32))
    assert newcomers.patches(3, 0.5, 1e-4).index.tolist() == [[60, -1, -1], [61, -1, -1]]
    for extractor in ("ppr", "heterophily-aware"):
        found = GPatcherClassifier(**QUICK, extractor=extractor).fit(graph).predict_proba_new(newcomers)
        assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("edges", "options", "words"),
    [
        ([[80], [90]], {}, "1 new edges lead to a node that is not there: 90, the first at edge 0"),
        ([[80, -1], [3, 80]], {}, "not there: -1, the first at edge 1"),
        ([[80, 3], [3, 4]], {}, r"two nodes that were there before, the first \[3, 4\] at edge 1"),
        ([[80.0], [3.0]], {}, "integers"),
        ([80, 3], {}, "shape"),
        ([[80], [3]], {"x": np.ones((2, 7))}, "7 feature columns, the graph has 6"),
        ([[80], [3]], {"x": None, "count": 2}, "the new nodes have none"),
        ([[80], [3]], {"x": np.full((2, 6), np.nan)}, "not finite"),
        ([[80], [3]], {"count": 3}, "number of new nodes.*3"),
        ([[80], [3]], {"weights": [1.0]}, "no weights"),
        ([[80], [3]], {"node_ids": np.array(["a", "a"])}, "more than once: a"),
        ([[80], [3]], {"node_ids": np.array([7, 80])}, "has already: 7"),
    ],
)
def test_what_cannot_join(edges, options, words):
    graph = replace(csbm(phi=-0.5, n=80, features=6), node_ids=np.arange(80))
    with pytest.raises(InputError, match=words):
        UnseenNodes.join(graph, edges, **{"x": np.ones((2, 6))} | options)


def test_new_edges_of_a_weighted_graph_need_weights():
    with pytest.raises(InputError, match="need them too"):
        UnseenNodes.join(any_graph(0, weighted=True), [[40], [3]], np.ones((1, 5)))


def test_no_array_of_the_size_of_the_graph_is_made():
    """What is asked for in memory does not grow with the graph, once its degrees are known."""
    peaks = []
    for n in (40_000, 400_000):
        ring = np.arange(n)
        ends = np.stack([np.r_[ring, (ring + 1) % n], np.r_[(ring + 1) % n, ring]])
        x = np.ones((n, 2), np.float32)
        x[:, 0] = ring % 2
        graph = Graph.from_edge_index(ends, x=x, y=ring % 2)
        small = {"patch_size": 4, "hidden": 4, "mixer_hidden": 4, "epochs": 1, "eps": 1e-3}
        model = GPatcherClassifier(extractor="ppr", **small).fit(graph)

        def ask(graph=graph, model=model, n=n):
            newcomers = UnseenNodes.join(graph, [[n, n, n + 1], [5, 9, n]], np.ones((2, 2), np.float32))
            return model.predict_proba_new(newcomers)

        ask()
        tracemalloc.start()
        ask()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] + 10_000
