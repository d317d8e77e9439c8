"""GPatcherClassifier: scikit-learn's conventions, splits, edge cases, and that the filter is learned."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError, InputWarning
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split, stratified_split
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.patches import EXTRACTORS, PPR, AdaptiveFilter, HeatKernel, extract_patches
from gpatcher.spectral.filters import Adaptive
from gpatcher.trust.calibration import calibrate


def build(source, target, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        return Graph.from_edge_index((np.r_[source, target], np.r_[target, source]), **options)


# ------------------------------------------------------------------------------------------ conventions


def test_a_clone_of_a_fitted_model_is_not_fitted(graph, quick):
    model = quick().fit(graph)
    with pytest.raises(NotFittedError):
        clone(model).predict_proba(graph)


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, graph: model.predict(),
        lambda model, graph: model.predict(graph),
        lambda model, graph: model.predict_proba(),
        lambda model, graph: model.predict_proba(graph),
        lambda model, graph: model.score(),
        lambda model, graph: model.score(graph),
        lambda model, graph: model.decision_function(),
        lambda model, graph: model.predict(UnseenNodes.join(graph, [[80], [0]], np.zeros((1, 6)))),
        lambda model, graph: model.predict_sets(),
        lambda model, graph: model.explain(3),
        lambda model, graph: model.filter_response(),
        lambda model, graph: model.patches_,
        lambda model, graph: model.features_,
        lambda model, graph: model.save("nowhere"),
    ],
)
def test_everything_but_fit_needs_a_fitted_model(graph, quick, ask):
    with pytest.raises(NotFittedError):
        ask(quick("heterophily-aware"), graph)


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_fit_and_predict(graph, extractor, quick):
    model = quick(extractor)
    assert model.fit(graph) is model
    probability = model.predict_proba()
    assert probability.shape == (80, 2)
    np.testing.assert_allclose(probability.sum(1), 1, atol=1e-5)
    assert (probability >= 0).all()
    predicted = model.predict()
    assert set(predicted) <= set(model.classes_)
    np.testing.assert_array_equal(predicted, model.classes_[probability.argmax(1)])
    test = model.split_.test
    assert model.score() == np.mean(predicted[test] == model.classes_[graph.y[test]])
    assert model.score() == model.result_.test_accuracy
    some = model.predict_proba(graph, [7, 3])
    np.testing.assert_allclose(some, probability[[7, 3]], atol=1e-5)
    assert model.score(nodes=model.split_.val) == pytest.approx(model.result_.val_accuracy)


def test_probabilities_are_calibrated_unless_raw_ones_are_asked_for(tmp_path, quick):
    graph = csbm(phi=0.1, n=1500, features=20)  # hard enough for a few mistakes
    model = quick(train={"epochs": 30, "lr": 0.02}).fit(graph)
    logits = torch.from_numpy(model.decision_function())
    t = model.calibration_.temperature
    assert t != 1.0
    np.testing.assert_allclose(model.predict_proba(), (logits / t).softmax(1), atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(calibrated=False), logits.softmax(1), atol=1e-6)
    # fitted on the validation nodes alone
    val = model.split_.val
    again = calibrate(model.decision_function(nodes=val), graph.y[val], model.seed)
    assert again.temperature == pytest.approx(t)
    # and saved with the model
    model.save(tmp_path)
    kept = type(model).load(tmp_path, graph)
    np.testing.assert_allclose(kept.predict_proba(), model.predict_proba())
    np.testing.assert_array_equal(kept.predict_sets(level=0.9), model.predict_sets(level=0.9))
    assert model.predict_sets(level=0.8).any(1).all()


def test_names_of_the_classes(quick):
    base = csbm(phi=-0.5, n=60, features=6)
    named = replace(base, classes=("ant", "bee"))
    model = quick().fit(named)
    assert model.classes_.tolist() == ["ant", "bee"]
    assert set(model.predict(nodes=[0, 1, 2])) <= {"ant", "bee"}


@pytest.mark.parametrize("extractor", ["ppr", "heterophily-aware"])
def test_same_seed_same_predictions(graph, extractor, quick):
    one, two, other = (quick(extractor, seed=s).fit(graph).predict_proba() for s in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - other).max() > 1e-4


def test_fitting_again_forgets(graph, quick):
    model = quick().fit(graph)
    first = model.predict_proba()
    model.fit(graph)
    np.testing.assert_array_equal(model.predict_proba(), first)


def test_nodes_may_be_any_or_none(graph, quick):
    model = quick().fit(graph)
    assert model.predict_proba(nodes=[]).shape == (0, 2)
    mask = np.zeros(graph.n, bool)
    mask[[3, 9]] = True
    np.testing.assert_allclose(model.predict_proba(nodes=mask), model.predict_proba(nodes=[3, 9]), atol=1e-6)
    for bad in (-1, graph.n):
        with pytest.raises(InputError, match=str(bad)):
            model.predict(nodes=[bad])


# ------------------------------------------------------------------------------------------------ splits


def test_the_split_may_be_chosen(graph, quick):
    splits = [stratified_split(graph.y, 0.5, 0.25, seed=s) for s in range(3)]
    several = graph.with_splits(splits)
    assert quick().fit(several).split_ is splits[0]
    assert quick().fit(several, 2).split_ is splits[2]
    assert quick().fit(several, splits[1]).split_ is splits[1]
    with pytest.raises(InputError, match=r"csbm has no split 3.*0 to 2"):
        quick().fit(several, 3)
    with pytest.raises(InputError, match="no split -1"):
        quick().fit(several, -1)


def test_without_splits_a_stratified_one_is_made(graph, quick):
    bare = graph.with_splits([])
    model = quick(seed=3).fit(bare)
    sizes = model.split_.sizes
    assert sum(sizes) == 80
    assert sizes == (48, 16, 16)
    for part in (model.split_.train, model.split_.val, model.split_.test):
        assert np.bincount(bare.y[part]).tolist() == [len(part) // 2] * 2
    assert quick(seed=3).fit(bare).split_.hash == model.split_.hash
    assert quick(seed=4).fit(bare).split_.hash != model.split_.hash


def test_a_split_beyond_the_graph_is_refused(graph, quick):
    with pytest.raises(InputError, match="500"):
        quick().fit(graph, Split(train=[0], val=[1], test=[500]))


# -------------------------------------------------------------------------------------------- edge cases


@pytest.mark.parametrize("extractor", ["ppr", "heterophily-aware"])
def test_unlabelled_nodes_are_predicted_too(graph, extractor, quick):
    y = graph.y.copy()
    y[::3] = -1
    partly = replace(graph, y=y, splits=())
    model = quick(extractor).fit(partly)
    for part in (model.split_.train, model.split_.val, model.split_.test):
        assert (y[part] >= 0).all()
    assert model.predict().shape == (80,)
    with pytest.raises(InputError, match="none of these nodes has a label"):
        model.score(nodes=[0, 3, 6])


@pytest.mark.parametrize("class_weights", [False, True])
def test_a_class_missing_from_train(class_weights, quick):
    base = csbm(phi=-0.5, n=60, features=6)
    y = base.y.copy()
    y[:6] = 2
    three = replace(base, y=y, classes=("0", "1", "2"), splits=())
    split = Split(train=np.arange(10, 40), val=np.arange(40, 50), test=np.r_[0:6, 50:60])
    with pytest.warns(InputWarning, match="no training node"):
        model = quick(train={"class_weights": class_weights}).fit(three, split)
    assert model.predict_proba().shape == (60, 3)
    assert np.isfinite(model.predict_proba()).all()
    assert model.result_.test_accuracy == model.score()


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_isolated_nodes_and_patches_larger_than_the_graph(extractor, quick):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 3)).astype(np.float32)
    graph = build([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6], x=x, y=np.arange(12) % 2)
    model = quick(extractor, patches={"size": 20}).fit(graph)
    assert np.isfinite(model.predict_proba()).all()
    assert all(np.isfinite(h["train_loss"]) for h in model.result_.history)
    patches = model.patches_
    size = 3 if extractor == "hop" else 20  # at most two neighbours
    assert patches.index.shape == (12, size)
    assert patches.index[11].tolist() == [11] + [-1] * (size - 1)


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_a_patch_of_the_node_alone(graph, extractor, quick):
    model = quick(extractor, patches={"size": 1}).fit(graph)
    np.testing.assert_array_equal(model.patches_.index[:, 0], np.arange(80))


def test_a_graph_without_edges(quick):
    rng = np.random.default_rng(0)
    bare = build(np.zeros(0, int), np.zeros(0, int), x=rng.normal(size=(20, 3)).astype("f"), y=np.arange(20) % 2)
    for extractor in ("ppr", "heterophily-aware"):
        assert np.isfinite(quick(extractor).fit(bare).predict_proba()).all()


def test_adjacency_rows_replace_missing_features(graph, quick):
    bare = replace(graph, x=None)
    with pytest.raises(InputError, match="adjacency_features=true"):
        quick().fit(bare)
    assert quick(features={"adjacency_features": True}).fit(bare).predict_proba().shape == (80, 2)


def test_prepared_adjacency_rows_of_reversed_edges_are_not_reused(quick):
    """Reversing the edges leaves the filter as it is, but not the features made of them."""
    x = np.ones((6, 2), np.float32)
    edges = np.array([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, 2]])
    split = Split(train=[0, 1], val=[2, 3], test=[4, 5])
    one, two = (Graph.from_edge_index(e, x=x, y=[0, 1] * 3, splits=[split]) for e in (edges, edges[::-1]))
    model = quick(patches={"size": 2}, features={"adjacency_features": True})
    prepared = model.prepare(one)
    with_own = model.fit(two).predict_proba()
    with_other = model.fit(two, prepared=prepared).predict_proba()
    np.testing.assert_array_equal(with_other, with_own)


def test_what_was_prepared_is_shared_and_checked(graph, quick):
    model = quick("heterophily-aware")
    [prepared] = model.prepare(graph)
    expected = model.fit(graph).predict_proba()
    shared = model.fit(graph, prepared=(prepared,))
    assert shared._prepared is prepared
    np.testing.assert_array_equal(shared.predict_proba(), expected)
    # for other splits and weights it serves as well
    assert clone(model).set_params(seed=3, train__lr=0.1).fit(graph, prepared=(prepared,))._prepared is prepared
    # for another patch size, other features or another graph it is made anew
    model.set_params(patches__size=6).fit(graph, prepared=(prepared,))
    assert model.patches_.size == 6
    model.set_params(patches__size=4, features__normalise="l2").fit(graph, prepared=(prepared,))
    assert model._prepared is not prepared
    other = csbm(phi=-0.5, n=80, features=6, seed=1)
    model.set_params(features__normalise="none").fit(other, prepared=(prepared,))
    np.testing.assert_array_equal(model.predict_proba(), quick("heterophily-aware").fit(other).predict_proba())


def test_a_graph_without_labels_is_refused(graph, quick):
    with pytest.raises(InputError, match="no labels"):
        quick().fit(replace(graph, y=None, classes=(), splits=()))


# ------------------------------------------------------------------------------------------- the filter


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_filter_response(graph, extractor, quick):
    model = quick(extractor, patches={"c": 0.6}, train={"filter_lr": 10.0}).fit(graph)
    response = model.filter_response(points=33)
    assert response.values.shape == response.response.shape == response.start.shape == (33,)
    assert (response.values[0], response.values[-1]) == (-1, 1)
    moved = np.abs(response.response - response.start).max()
    name = model.extractors_[0].name  # what was chosen, where the extractor stands for a choice
    assert (moved > 1e-4) == (name in ("heterophily-aware", "polynomial", "shared"))
    if name in ("ppr", "heterophily-aware"):
        np.testing.assert_allclose(response.start, 0.4 / (1 - 0.6 * response.values), rtol=1e-4)
    figure = response.plot()
    assert [trace.name for trace in figure.data] == ["before training", "after training"]
    np.testing.assert_allclose(figure.data[1].y, response.response)
    np.testing.assert_allclose(figure.data[0].y, response.start)


def test_patches_are_those_of_the_extractor(graph, quick):
    for extractor in (PPR(size=4), HeatKernel(size=4, K=4)):
        model = quick(extractor.name).fit(graph)
        assert model.extractors_ == (extractor,)
        expected = extract_patches(graph, extractor)
        np.testing.assert_array_equal(model.patches_.index, expected.index)
        np.testing.assert_array_equal(model.patches_.score, expected.score)


def test_the_filter_learns_heterophily():
    """On a heterophilous graph the learned response leaves its start and other nodes enter the patches."""
    graph = csbm(phi=-0.9, n=400, features=20)
    extractor = AdaptiveFilter(size=8)
    model = GPatcherClassifier.from_settings(
        {"model": {"hidden": 16, "skip": True}, "train": {"epochs": 60, "lr": 0.01, "filter_lr": 5.0}},
        patches=extractor,
    ).fit(graph)
    response = model.filter_response()
    assert np.abs(response.response - response.start).max() > 0.1
    start = extract_patches(graph, extractor)
    learned = model.patches_
    share = np.mean([len(set(a) - set(b)) > 0 for a, b in zip(learned.index, start.index, strict=True)])
    assert share > 0.2
    # the scores are those of the learned response
    values, U = np.linalg.eigh(graph.normalised().toarray())
    kind = model.model_.sources[0].filter
    assert isinstance(kind, Adaptive)
    with torch.no_grad():
        g = kind(torch.tensor(values, dtype=torch.float32)).numpy()
    R = (U * g) @ U.T
    mask = learned.index >= 0
    expected = np.take_along_axis(R, np.maximum(learned.index, 0), 1)
    np.testing.assert_allclose(learned.score[mask], expected[mask], atol=1e-4)
    assert model.score() > 0.65


# ------------------------------------------------------------------------------------------------- auto


@pytest.mark.parametrize(("affordable", "learned"), [(True, "heterophily-aware"), (False, "polynomial")])
def test_auto_trains_what_the_size_allows_and_keeps_what_validates_best(
    graph, quick, affordable, learned, tmp_path, monkeypatch
):
    # a graph whose eigenvectors are out of reach would be too large for a test
    for module in ("extract", "polynomial"):
        monkeypatch.setattr(f"gpatcher.patches.{module}.is_affordable", lambda n, memory=None: affordable)
    model = quick("auto", seed=2).fit(graph)
    alone = {name: quick(name, seed=2).fit(graph) for name in (learned, "ppr")}
    assert model.compared_ == {name: one.result_.val_loss for name, one in alone.items()}
    best = min(alone, key=lambda name: alone[name].result_.val_loss)
    assert model.patches.name == "auto"
    assert [extractor.name for extractor in model.extractors_] == [best]
    assert model.extractors_ == alone[best].extractors_
    np.testing.assert_array_equal(model.predict_proba(), alone[best].predict_proba())
    assert model.result_.val_loss == alone[best].result_.val_loss
    np.testing.assert_array_equal(model.filter_response().response, alone[best].filter_response().response)
    model.save(tmp_path)
    loaded = GPatcherClassifier.load(tmp_path, graph)
    assert loaded.patches == model.patches
    assert (loaded.extractors_, loaded.compared_) == (model.extractors_, model.compared_)
    np.testing.assert_array_equal(loaded.predict_proba(), model.predict_proba())
    assert clone(model).get_params()["patches"] == model.patches


def test_auto_prepares_once_for_all_splits(graph, quick):
    model = quick("auto")
    prepared = model.prepare(graph)
    assert [option.extractors[0].name for option in prepared] == ["heterophily-aware", "ppr"]
    expected = quick("auto").fit(graph).predict_proba()
    np.testing.assert_array_equal(model.fit(graph, prepared=prepared).predict_proba(), expected)
    assert any(model._prepared is option for option in prepared)


def test_auto_keeps_a_checkpoint_for_each_choice(graph, tmp_path, quick):
    model = quick("auto").fit(graph, checkpoint=tmp_path / "state.safetensors")
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert names == ["state-heterophily-aware.safetensors", "state-ppr.safetensors"]
    epochs = []
    again = quick("auto").fit(
        graph, checkpoint=tmp_path / "state.safetensors", progress=lambda epoch, _: epochs.append(epoch)
    )
    assert epochs == []  # both were finished
    assert again.compared_ == model.compared_


@pytest.mark.parametrize("extractor", ["ppr", "heterophily-aware"])
def test_real_data(data_root, extractor, tmp_path):
    from gpatcher.datasets.load import load_dataset

    texas = load_dataset("texas", data_root)
    model = GPatcherClassifier.from_settings(
        {
            "patches": {"name": extractor, "size": 8},
            "model": {"hidden": 32},
            "train": {"epochs": 60, "lr": 0.01, "weight_decay": 5e-3},
        }
    )
    model.fit(texas, 0)
    assert model.split_ is texas.splits[0]
    history = model.result_.history
    assert history[-1]["train_loss"] < 0.7 * history[0]["train_loss"]
    assert model.score() > 0.6
    model.save(tmp_path)
    np.testing.assert_array_equal(GPatcherClassifier.load(tmp_path, texas).predict(), model.predict())
