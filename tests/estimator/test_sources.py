"""Models that read several patch sources side by side."""

import json

import numpy as np
import pytest
import torch

from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.prepare import prepare
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.model.config import ModelConfig
from gpatcher.patches import PPR, AdaptiveFilter, HeatKernel, PolynomialFilter, extract_patches
from gpatcher.training.loop import TrainConfig, predict_logits

SOURCES = {
    "fixed": (PPR(size=4), HeatKernel(size=3, K=4)),
    "same kind": (PPR(size=4, c=0.2), PPR(size=4, c=0.9)),
    "fixed and learned": (PPR(size=4), AdaptiveFilter(size=3, K=4)),
    "learned": (PolynomialFilter(size=3, K=4, exact=False), AdaptiveFilter(size=4, K=4)),
    "three": (PPR(size=2), PPR(size=3), PolynomialFilter(size=4, K=3, exact=True)),
}


@pytest.fixture(params=SOURCES.values(), ids=SOURCES)
def sources(request):
    return request.param


def several(sources, *, train=None, seed=0):
    return GPatcherClassifier(
        patches=sources,
        model=ModelConfig(hidden=8, mixer_hidden=4),
        train=TrainConfig(**{"epochs": 4, "filter_lr": 10.0, **(train or {})}),
        seed=seed,
    )


def test_fit_and_predict(graph, sources):
    model = several(sources).fit(graph)
    assert model.extractors_ == sources
    assert list(model.compared_) == [" + ".join(extractor.name for extractor in sources)]
    probability = model.predict_proba()
    assert probability.shape == (80, 2)
    np.testing.assert_allclose(probability.sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(model.predict(), model.classes_[probability.argmax(1)])
    assert model.score() == model.result_.test_accuracy
    np.testing.assert_allclose(model.predict_proba(nodes=[7, 3]), probability[[7, 3]], atol=1e-5)
    assert [source.size for source in model.model_.sources] == [extractor.size for extractor in sources]
    for extractor, source in zip(sources, model.model_.sources, strict=True):
        if not source.learned:
            np.testing.assert_array_equal(source.patches().index, extract_patches(graph, extractor).index)
    np.testing.assert_array_equal(model.patches_.index, model.model_.sources[0].patches().index)
    np.testing.assert_array_equal(several(sources).fit(graph).predict_proba(), probability)  # same seed


def test_every_source_reaches_the_prediction(graph, sources):
    model = several(sources).fit(graph)
    before = model.decision_function()
    for source in model.model_.sources:
        if source.learned:
            with torch.no_grad():
                for weight in source.filter.parameters():
                    weight.add_(0.3 * torch.arange(weight.numel()).view_as(weight).cos())
        else:
            source.score.copy_(source.score.flip(1))
        after = model.decision_function()
        assert np.abs(after - before).max() > 1e-4
        before = after


def test_filters_are_learned_apart(graph, sources):
    model = several(sources).fit(graph)
    for number, source in enumerate(model.model_.sources):
        response = model.filter_response(points=21, source=number)
        expected = sources[number].response(torch.from_numpy(response.values)).numpy()
        np.testing.assert_array_equal(response.start, expected)
        assert (np.abs(response.response - response.start).max() > 1e-4) == source.learned


def test_one_source_in_a_list_is_that_source(graph):
    one, listed, named = (several(patches).fit(graph) for patches in (PPR(), [PPR()], ["ppr"]))
    assert one.extractors_ == listed.extractors_ == named.extractors_ == (PPR(),)
    np.testing.assert_array_equal(listed.predict_proba(), one.predict_proba())
    np.testing.assert_array_equal(named.predict_proba(), one.predict_proba())


def test_a_loaded_model_predicts_the_same(graph, sources, tmp_path):
    model = several(sources, train={"epochs": 12, "reselect_every": 3}).fit(graph)
    model.save(tmp_path)
    manifest = json.loads((tmp_path / "model.json").read_text())
    assert [source["name"] for source in manifest["details"]["extractors"]] == [extractor.name for extractor in sources]
    loaded = GPatcherClassifier.load(tmp_path, graph)
    assert loaded.get_params() == model.get_params()
    assert (loaded.extractors_, loaded.compared_) == (model.extractors_, model.compared_)
    np.testing.assert_array_equal(loaded.predict_proba(), model.predict_proba())
    for one, other in zip(loaded.model_.sources, model.model_.sources, strict=True):
        np.testing.assert_array_equal(one.patches().index, other.patches().index)
        np.testing.assert_array_equal(one.patches().score, other.patches().score)


def test_what_was_prepared_is_shared(graph, sources):
    model = several(sources)
    [prepared] = model.prepare(graph)
    assert len(prepared.data) == len(sources)
    assert model.fit(graph, prepared=(prepared,))._prepared is prepared
    # another order of the sources is another model
    turned = several(sources[::-1]).fit(graph, prepared=(prepared,))
    assert turned._prepared is not prepared
    assert turned.extractors_ == sources[::-1]


def test_training_in_batches(graph, sources):
    model = several(sources, train={"batch_size": 16, "epochs": 6}).fit(graph)
    assert model.batch_size_ == 16
    probability = model.predict_proba()
    assert np.isfinite(probability).all()
    model.set_params(train__batch_size=80)
    np.testing.assert_allclose(model.predict_proba(), probability, atol=1e-5)


def unseen_nodes(graph, count=5):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(count, graph.num_features)).astype(np.float32)
    # the last one has no edge; the others are joined to the graph and to one another
    new = np.r_[np.repeat(np.arange(count - 1), 3), 0]
    old = np.r_[rng.choice(graph.n, 3 * (count - 1), replace=False), graph.n + 1]
    return UnseenNodes.join(graph, np.stack([graph.n + new, old]), x)


def logits_on_the_extended_graph(model, unseen):
    """The answer of a model with the same weights, prepared on the whole extended graph."""
    prepared = prepare(unseen.extended(), model.extractors_, model.features)
    other = prepared.build(len(model.classes_), model.model)
    weights = {name: w for name, w in model.model_.state_dict().items() if not name.endswith(".members")}
    other.load_state_dict(weights, strict=False)
    other.reselect()
    return predict_logits(other, prepared.x, unseen.nodes).numpy()


def test_unseen_nodes_get_the_answer_of_the_extended_graph(graph, sources, tmp_path):
    model = several(sources, train={"epochs": 12, "reselect_every": 3}).fit(graph)
    before = model.predict_proba()
    unseen = unseen_nodes(graph)
    logits = model.decision_function(unseen)
    assert logits.shape == (5, 2)
    np.testing.assert_allclose(logits, logits_on_the_extended_graph(model, unseen), atol=2e-4)
    np.testing.assert_allclose(model.predict_proba(unseen), model.calibration_.probability(logits), atol=1e-6)
    np.testing.assert_array_equal(model.predict(unseen), model.classes_[logits.argmax(1)])
    np.testing.assert_array_equal(model.predict_sets(unseen), model.calibration_.sets(logits, 0.9))
    # the model itself is as before, and a loaded one needs no more than the unseen nodes
    np.testing.assert_array_equal(model.predict_proba(), before)
    model.save(tmp_path)
    np.testing.assert_array_equal(GPatcherClassifier.load(tmp_path).decision_function(unseen), logits)


@pytest.mark.parametrize("name", ["ppr", "heat", "heterophily-aware", "polynomial", "shared"])
def test_unseen_nodes_of_one_source(graph, quick, name):
    model = quick(name, train={"epochs": 12, "reselect_every": 3, "filter_lr": 10.0}).fit(graph)
    unseen = unseen_nodes(graph)
    expected = logits_on_the_extended_graph(model, unseen)
    np.testing.assert_allclose(model.decision_function(unseen), expected, atol=2e-4)


def test_unseen_nodes_that_are_refused(graph, quick):
    model = quick().fit(graph)
    with pytest.raises(InputError, match="nodes"):
        model.predict(unseen_nodes(graph), nodes=[1])
    other = Graph.from_edge_index([[0, 1], [1, 0]], x=np.zeros((2, 6)), y=[0, 1])
    with pytest.raises(InputError, match=f"{graph.fingerprint}.*{other.fingerprint}"):
        model.predict(UnseenNodes.join(other, [[2], [0]], np.zeros((1, 6))))


def test_isolated_nodes_and_patches_larger_than_the_graph(sources):
    rng = np.random.default_rng(0)
    edges = np.array([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])
    graph = Graph.from_edge_index(edges, x=rng.normal(size=(9, 3)), y=np.arange(9) % 2, num_nodes=9)
    model = several((*sources[:-1], PPR(size=20))).fit(graph)
    assert np.isfinite(model.predict_proba()).all()
    for source in model.model_.sources:
        assert source.patches().index[8].tolist() == [8] + [-1] * (source.size - 1)
