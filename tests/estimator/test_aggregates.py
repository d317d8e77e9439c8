"""Trees and linear models on patch aggregates."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError, InputWarning
from gpatcher.estimator.ensemble import load_model
from gpatcher.estimator.linear import LinearClassifier, LinearConfig
from gpatcher.estimator.trees import _TREE, TreesClassifier, TreesConfig, _flat_trees
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.kernels.trees import attribute_trees, sum_trees
from gpatcher.model.aggregates import aggregate, components, member_weights
from gpatcher.model.inputs import FeatureConfig, FeatureTable
from gpatcher.patches import PPR, AdaptiveFilter, Hop, extract_patches

SOURCES = (Hop(size=64, direction="out"), Hop(size=64, direction="in"), PPR(size=8))
CLASSIFIERS = [
    TreesClassifier(patches=SOURCES, model=TreesConfig(iterations=30)),
    LinearClassifier(patches=SOURCES, model=LinearConfig(strengths=(0.1, 1.0))),
    LinearClassifier(patches=SOURCES, features=FeatureConfig(adjacency_features=True)),
]


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.8, n=150, features=6)


def test_flat_trees_sum_as_scikit_learn_does():
    random = np.random.default_rng(0)
    rows = random.normal(size=(300, 5)).astype(np.float32)
    for classes in (2, 4):
        y = random.integers(0, classes, 300) * (rows[:, 0] > 0)
        model = HistGradientBoostingClassifier(max_iter=20, max_leaf_nodes=6).fit(rows, y)
        state = _flat_trees(model, 20)
        out = np.tile(state["start"], (300, 1))
        sum_trees(rows, *(state[name] for name in _TREE), out)
        expected = model.decision_function(rows).reshape(300, -1)
        np.testing.assert_allclose(out, expected, atol=1e-6)
        parts = np.zeros((300, out.shape[1], 6))
        attribute_trees(rows, *(state[name] for name in _TREE), parts)
        np.testing.assert_allclose(parts.sum(2) + state["start"], out, atol=1e-6)
        assert np.abs(parts[:, :, 0]).sum() > np.abs(parts[:, :, 3]).sum()


def test_aggregates_of_a_path():
    path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], x=np.eye(3, dtype=np.float32))
    weights = member_weights(extract_patches(path, Hop(size=4)), 3)
    own = np.array([[1.0], [2.0], [4.0]], np.float32)
    rows = aggregate(own, [weights], np.arange(3), np.array([0, 1, -1]), np.array([0.5, 0.5]))
    # own column; mean of the neighbours; classes of the labelled ones; how much is labelled
    np.testing.assert_allclose(rows[0], [1, 2, 0, 1, 1])
    np.testing.assert_allclose(rows[1], [2, 2.5, 1, 0, 0.5], atol=1e-6)
    np.testing.assert_allclose(rows[2], [4, 2, 0, 1, 1])


def test_a_node_does_not_read_its_own_label(graph):
    patches = extract_patches(graph, PPR(size=8))
    own, prior = np.zeros((graph.n, 1), np.float32), np.full(2, 0.5)
    y = graph.labels().copy()
    before = aggregate(own, [member_weights(patches, graph.n)], np.arange(graph.n), y, prior)
    for v in (0, 7):
        flipped = y.copy()
        flipped[v] = 1 - flipped[v]
        weights = [member_weights(patches[[v]], graph.n)]
        np.testing.assert_array_equal(aggregate(own, weights, np.array([v]), flipped, prior)[0], before[v])


def test_components_keep_narrow_columns_and_span_wide_ones():
    random = np.random.default_rng(0)
    narrow = FeatureTable(random.normal(size=(20, 3)).astype(np.float32))
    np.testing.assert_array_equal(components(narrow, 4), np.eye(3))
    low_rank = (random.normal(size=(40, 3)) @ random.normal(size=(3, 30))).astype(np.float32)
    basis = components(FeatureTable(low_rank), 3)
    np.testing.assert_allclose(low_rank @ basis @ basis.T, low_rank, atol=1e-4)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_they_learn_repeat_and_come_back_from_disk(graph, tmp_path, classifier):
    model = classifier.fit(graph)
    assert model.score() > 0.6
    again = type(classifier)(**classifier.get_params(deep=False)).fit(graph)
    np.testing.assert_array_equal(again.decision_function(), model.decision_function())
    model.save(tmp_path)
    loaded = load_model(tmp_path, graph)
    np.testing.assert_array_equal(loaded.decision_function(), model.decision_function())
    assert loaded.settings() == model.settings()
    asked = load_model(tmp_path)  # makes the patches of the node that is asked for, then those of all
    np.testing.assert_array_equal(asked.decision_function(graph, [3]), model.decision_function(nodes=[3]))
    assert asked._prepared.on_demand
    np.testing.assert_array_equal(asked.decision_function(nodes=[4, 5]), model.decision_function(nodes=[4, 5]))
    fixed = model.fixed(model.stopped_)
    every = Split(np.arange(graph.n), [], [])
    assert fixed.fit(graph, every).stopped_ == model.stopped_


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_unseen_nodes_are_predicted_as_in_the_extended_graph(graph, classifier):
    model = classifier.fit(graph)
    edges = np.array([[150, 150, 151], [3, 8, 150]])
    unseen = UnseenNodes.join(graph, edges, np.ones((2, 6), np.float32))
    logits = model.decision_function(unseen)
    extended = unseen.extended()
    assert logits.shape == (2, 2)
    if not classifier.features.adjacency_features:  # its rows have a column per node of training
        y = np.concatenate([graph.labels(), [-1, -1]])
        whole = replace(extended, y=y, classes=graph.classes)
        twin = type(classifier)(**classifier.get_params(deep=False))
        twin.split_, twin.task_, twin.fingerprint_ = model.split_, model.task_, whole.fingerprint
        twin.class_names_ = model.class_names_
        twin.extractors_, twin.present_, twin.state_ = model.extractors_, model.present_, model.state_
        twin._components, twin._prior = model._components, model._prior
        np.testing.assert_allclose(twin.decision_function(whole, [150, 151]), logits, atol=1e-4)


def test_a_class_without_training_nodes_and_a_single_class(graph):
    y = np.full(graph.n, 0)
    y[:3] = 1
    split = Split(np.arange(10, 60), np.arange(60, 90), np.arange(0, 5))
    lone = replace(graph, y=y, splits=())
    for classifier in CLASSIFIERS:
        with pytest.warns(InputWarning, match="no training node"):
            model = classifier.fit(lone, split)
        assert np.isfinite(model.decision_function()).all()
        assert (model.predict_proba().argmax(1) == 0).all()


def test_learned_filters_and_unknown_settings_are_refused(graph):
    with pytest.raises(InputError, match=r"fixed patches.*learned filter"):
        TreesClassifier(patches=AdaptiveFilter()).fit(graph)
    with pytest.raises(InputError, match=r"trees.*nonsense"):
        TreesClassifier.from_settings({"model": {"nonsense": 1}})
