"""GPatcherClassifier: scikit-learn's conventions, saving and loading, and that the filter is learned."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError, InputWarning
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.patches.extract import EXTRACTORS, extract_patches
from gpatcher.spectral.filters import Adaptive

QUICK = {"patch_size": 4, "hidden": 8, "mixer_hidden": 4, "epochs": 4, "filters": 4}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.5, n=80, features=6)


def quick(extractor="ppr", **options):
    return GPatcherClassifier(extractor=extractor, **{**QUICK, **options})


def build(source, target, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        return Graph.from_edge_index((np.r_[source, target], np.r_[target, source]), **options)


# ------------------------------------------------------------------------------------------ conventions


def test_parameters_are_stored_as_given_and_cloned():
    model = GPatcherClassifier(extractor="heat", patch_size=9, paths=["ego"], seed=4)
    params = model.get_params()
    assert (params["extractor"], params["patch_size"], params["paths"], params["seed"]) == ("heat", 9, ["ego"], 4)
    model.set_params(patch_size=5, lr=0.1)
    assert (model.patch_size, model.lr) == (5, 0.1)
    twin = clone(model)
    assert twin is not model
    assert twin.get_params() == model.get_params()
    with pytest.raises(ValueError, match="nonsense"):
        model.set_params(nonsense=1)


def test_a_clone_of_a_fitted_model_is_not_fitted(graph):
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
        lambda model, graph: model.filter_response(),
        lambda model, graph: model.patches_,
        lambda model, graph: model.save("nowhere"),
    ],
)
def test_nothing_is_told_before_fit(graph, ask):
    with pytest.raises(NotFittedError):
        ask(quick("heterophily-aware"), graph)


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_fit_and_predict(graph, extractor):
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


def test_probabilities_are_calibrated_unless_raw_ones_are_asked_for(tmp_path):
    graph = csbm(phi=0.1, n=120, features=20)  # hard enough for a few mistakes
    model = quick(epochs=30).fit(graph)
    logits = torch.from_numpy(model.decision_function())
    t = model.calibration_.temperature
    assert t != 1.0
    np.testing.assert_allclose(model.predict_proba(), (logits / t).softmax(1), atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(calibrated=False), logits.softmax(1), atol=1e-6)
    # learned from the validation nodes alone
    from gpatcher.trust.calibration import calibrate

    val = model.split_.val
    again = calibrate(model.decision_function(nodes=val), graph.y[val], model.seed)
    assert again.temperature == pytest.approx(t)
    # and saved with the model
    model.save(tmp_path)
    kept = type(model).load(tmp_path, graph)
    np.testing.assert_allclose(kept.predict_proba(), model.predict_proba())
    np.testing.assert_array_equal(kept.predict_sets(level=0.9), model.predict_sets(level=0.9))
    assert model.predict_sets(level=0.8).any(1).all()


def test_names_of_the_classes():
    base = csbm(phi=-0.5, n=60, features=6)
    named = replace(base, classes=("ant", "bee"))
    model = quick().fit(named)
    assert model.classes_.tolist() == ["ant", "bee"]
    assert set(model.predict(nodes=[0, 1, 2])) <= {"ant", "bee"}


@pytest.mark.parametrize("extractor", ["ppr", "heterophily-aware"])
def test_same_seed_same_predictions(graph, extractor):
    one, two, other = (quick(extractor, seed=s).fit(graph).predict_proba() for s in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - other).max() > 1e-4


def test_fitting_again_forgets(graph):
    model = quick().fit(graph)
    first = model.predict_proba()
    model.fit(graph)
    np.testing.assert_array_equal(model.predict_proba(), first)


def test_nodes_may_be_any_or_none(graph):
    model = quick().fit(graph)
    assert model.predict_proba(nodes=[]).shape == (0, 2)
    mask = np.zeros(graph.n, bool)
    mask[[3, 9]] = True
    np.testing.assert_allclose(model.predict_proba(nodes=mask), model.predict_proba(nodes=[3, 9]), atol=1e-6)
    for bad in (-1, graph.n):
        with pytest.raises(InputError, match=str(bad)):
            model.predict(nodes=[bad])


# ------------------------------------------------------------------------------------------------ splits


def test_the_split_may_be_chosen(graph):
    from gpatcher.graph.split import stratified_split

    splits = [stratified_split(graph.y, 0.5, 0.25, seed=s) for s in range(3)]
    several = graph.with_splits(splits)
    assert quick().fit(several).split_ is splits[0]
    assert quick().fit(several, 2).split_ is splits[2]
    assert quick().fit(several, splits[1]).split_ is splits[1]
    with pytest.raises(InputError, match="no split 3: csbm has 3"):
        quick().fit(several, 3)
    with pytest.raises(InputError, match="no split -1"):
        quick().fit(several, -1)


def test_without_splits_a_stratified_one_is_made(graph):
    bare = graph.with_splits([])
    model = quick(seed=3).fit(bare)
    sizes = model.split_.sizes
    assert sum(sizes) == 80
    assert sizes == (48, 16, 16)
    for part in (model.split_.train, model.split_.val, model.split_.test):
        assert np.bincount(bare.y[part]).tolist() == [len(part) // 2] * 2
    assert quick(seed=3).fit(bare).split_.hash == model.split_.hash
    assert quick(seed=4).fit(bare).split_.hash != model.split_.hash


def test_a_split_beyond_the_graph_is_refused(graph):
    with pytest.raises(InputError, match="not there"):
        quick().fit(graph, Split(train=[0], val=[1], test=[500]))


# -------------------------------------------------------------------------------------------- edge cases


@pytest.mark.parametrize("extractor", ["ppr", "heterophily-aware"])
def test_unlabelled_nodes_are_predicted_too(graph, extractor):
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
def test_a_class_missing_from_train(class_weights):
    base = csbm(phi=-0.5, n=60, features=6)
    y = base.y.copy()
    y[:6] = 2
    three = replace(base, y=y, classes=("0", "1", "2"), splits=())
    split = Split(train=np.arange(10, 40), val=np.arange(40, 50), test=np.r_[0:6, 50:60])
    with pytest.warns(InputWarning, match="no training node"):
        model = quick(class_weights=class_weights).fit(three, split)
    assert model.predict_proba().shape == (60, 3)
    assert np.isfinite(model.predict_proba()).all()
    assert model.result_.test_accuracy == model.score()


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_isolated_nodes_and_patches_larger_than_the_graph(extractor):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 3)).astype(np.float32)
    graph = build([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6], x=x, y=np.arange(12) % 2)
    model = quick(extractor, patch_size=20).fit(graph)
    assert np.isfinite(model.predict_proba()).all()
    assert all(np.isfinite(h["train_loss"]) for h in model.result_.history)
    patches = model.patches_
    assert patches.index.shape == (12, 20)
    assert patches.index[11].tolist() == [11] + [-1] * 19


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_a_patch_of_the_node_alone(graph, extractor):
    model = quick(extractor, patch_size=1).fit(graph)
    np.testing.assert_array_equal(model.patches_.index[:, 0], np.arange(80))


def test_a_graph_without_edges():
    rng = np.random.default_rng(0)
    bare = build(np.zeros(0, int), np.zeros(0, int), x=rng.normal(size=(20, 3)).astype("f"), y=np.arange(20) % 2)
    for extractor in ("ppr", "heterophily-aware"):
        assert np.isfinite(quick(extractor).fit(bare).predict_proba()).all()


def test_features_may_be_missing_where_structure_serves(graph):
    bare = replace(graph, x=None)
    with pytest.raises(InputError, match="structure=True"):
        quick().fit(bare)
    assert quick(structure=True).fit(bare).predict_proba().shape == (80, 2)


def test_directed_input_with_structure_is_told_apart():
    """Turning the edges round leaves the filter as it is, but not the features made of them."""
    x = np.ones((6, 2), np.float32)
    edges = np.array([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, 2]])
    split = Split(train=[0, 1], val=[2, 3], test=[4, 5])
    one, two = (Graph.from_edge_index(e, x=x, y=[0, 1] * 3, splits=[split]) for e in (edges, edges[::-1]))
    model = quick(structure=True, patch_size=2)
    prepared = model.prepare(one)
    with_own = model.fit(two).predict_proba()
    with_other = model.fit(two, prepared=prepared).predict_proba()
    np.testing.assert_array_equal(with_other, with_own)


def test_what_was_prepared_is_shared_and_checked(graph):
    model = quick("heterophily-aware")
    prepared = model.prepare(graph)
    expected = model.fit(graph).predict_proba()
    shared = model.fit(graph, prepared=prepared)
    assert shared._prepared is prepared
    np.testing.assert_array_equal(shared.predict_proba(), expected)
    # for another patch size or graph it is made anew
    model.set_params(patch_size=6).fit(graph, prepared=prepared)
    assert model.patches_.size == 6
    other = csbm(phi=-0.5, n=80, features=6, seed=1)
    model.set_params(patch_size=4).fit(other, prepared=prepared)
    np.testing.assert_array_equal(model.predict_proba(), quick("heterophily-aware").fit(other).predict_proba())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "cuda:77"}, "cuda:77"),
        ({"device": "nonsense"}, "nonsense"),
        ({"extractor": "nonsense"}, "nonsense.*ppr"),
        ({"patch_size": 0}, "got 0"),
        ({"filters": 0, "extractor": "heat"}, "got 0"),
        ({"normalise": "nonsense"}, "nonsense"),
        ({"paths": ()}, "none"),
        ({"stop": "nonsense"}, "nonsense"),
        ({"c": 2.0}, "got 2.0"),
        ({"c": 2.0, "extractor": "heterophily-aware"}, "2.0"),
        ({"sigma": "nonsense", "extractor": "heterophily-aware"}, "nonsense"),
        ({"dropout": 1.5}, "dropout.*1.5"),
        ({"hidden": 0}, "hidden.*0"),
        ({"memory": 10, "extractor": "heat"}, "ppr"),
    ],
    ids=str,
)
def test_impossible_parameters_are_refused_when_fitting(graph, options, words):
    model = quick(**options)  # storing is no error
    with pytest.raises(InputError, match=words):
        model.fit(graph)


def test_a_graph_without_labels_is_refused(graph):
    with pytest.raises(InputError, match="no labels"):
        quick().fit(replace(graph, y=None, classes=(), splits=()))


# ---------------------------------------------------------------------------------------------- keeping


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_a_loaded_model_predicts_the_same(graph, extractor, tmp_path):
    # long enough for the selection to be renewed
    model = quick(extractor, epochs=12, renew_every=3, filter_lr=20.0).fit(graph)
    model.save(tmp_path / "m")
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["model.json", "model.safetensors"]
    loaded = GPatcherClassifier.load(tmp_path / "m", graph)
    np.testing.assert_array_equal(loaded.predict_proba(), model.predict_proba())
    np.testing.assert_array_equal(loaded.predict(nodes=[3]), model.predict(nodes=[3]))
    np.testing.assert_array_equal(loaded.patches_.index, model.patches_.index)
    assert loaded.score() == model.score()
    assert loaded.get_params() == model.get_params()
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert loaded.split_.hash == model.split_.hash
    np.testing.assert_array_equal(loaded.filter_response().response, model.filter_response().response)


def test_the_graph_may_come_later(graph, tmp_path):
    model = quick().fit(graph)
    model.save(tmp_path)
    np.testing.assert_array_equal(GPatcherClassifier.load(tmp_path).predict_proba(graph), model.predict_proba())
    for what in ("predict", "predict_proba", "score"):
        with pytest.raises(InputError, match="pass it"):
            getattr(GPatcherClassifier.load(tmp_path), what)()


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, folder: model.patches_,
        lambda model, folder: model.filter_response(),
        lambda model, folder: model.save(folder / "again"),
    ],
    ids=["patches_", "filter_response", "save"],
)
def test_a_loaded_model_without_its_graph_says_what_it_lacks(graph, tmp_path, ask):
    quick("heterophily-aware").fit(graph).save(tmp_path)
    with pytest.raises(InputError, match="graph"):
        ask(GPatcherClassifier.load(tmp_path), tmp_path)


def test_a_loaded_model_can_be_saved_again(graph, tmp_path):
    model = quick("heterophily-aware").fit(graph)
    model.save(tmp_path / "a")
    GPatcherClassifier.load(tmp_path / "a", graph).save(tmp_path / "b")
    again = GPatcherClassifier.load(tmp_path / "b", graph)
    np.testing.assert_array_equal(again.predict_proba(), model.predict_proba())


def test_another_graph_is_refused(graph, tmp_path):
    model = quick().fit(graph)
    model.save(tmp_path)
    other = csbm(phi=-0.5, n=80, features=6, seed=1)
    with pytest.raises(InputError, match=f"{graph.fingerprint}.*{other.fingerprint}"):
        GPatcherClassifier.load(tmp_path, other)
    with pytest.raises(InputError, match="its edges differ"):
        model.predict(other)
    wider = replace(graph, x=np.hstack([graph.x, graph.x]))
    with pytest.raises(InputError, match="do not fit"):
        GPatcherClassifier.load(tmp_path, wider)


def test_other_weights_on_the_same_edges_are_another_graph(graph):
    weights = np.random.default_rng(0).uniform(0.1, 9.0, graph.indices.size)
    weighted = replace(graph, weights=weights)
    assert weighted.fingerprint != graph.fingerprint
    model = quick().fit(graph)
    with pytest.raises(InputError, match="fingerprint"):
        model.predict(weighted)
    prepared = quick().prepare(graph)
    refitted = quick().fit(weighted, prepared=prepared).patches_
    np.testing.assert_array_equal(refitted.score, extract_patches(weighted, "ppr", 4).score)


def test_new_features_on_the_same_edges_are_used(graph):
    model = quick().fit(graph)
    before = model.predict_proba()
    after = model.predict_proba(replace(graph, x=graph.x + 1))
    assert np.abs(before - after).max() > 1e-3
    np.testing.assert_array_equal(model.predict_proba(graph), before)


def spoil_json(folder, **changes):
    about = json.loads((folder / "model.json").read_text())
    for key, value in changes.items():
        if value is None:
            del about[key]
        else:
            about[key] = value
    (folder / "model.json").write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "model.json").unlink(), "no saved model.*model.json"),
        (lambda f: (f / "model.json").write_text('{"format": "gpa'), "model.json is damaged"),
        (lambda f: (f / "model.json").write_bytes(b"\xff\xfe\x00"), "model.json is damaged"),
        (lambda f: (f / "model.json").write_text("[]"), "does not describe a gpatcher model"),
        (lambda f: spoil_json(f, format="another"), "does not describe a gpatcher model"),
        (lambda f: spoil_json(f, format=None), "damaged"),
        (lambda f: spoil_json(f, format_version=99), "format 99.*newer gpatcher"),
        (lambda f: spoil_json(f, format_version="x"), "damaged"),
        (lambda f: spoil_json(f, parameters=None), "model"),
        (lambda f: spoil_json(f, parameters={"paths": ["ego"], "nonsense": 1}), "nonsense"),
        (lambda f: spoil_json(f, classes=None), "classes"),
        (lambda f: spoil_json(f, fingerprint=None), "fingerprint"),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors is missing or damaged"),
        (lambda f: (f / "model.safetensors").write_bytes(b""), "model.safetensors is missing or damaged"),
        (lambda f: (f / "model.safetensors").write_bytes(b"garbage" * 9), "model.safetensors is missing or damaged"),
        (
            lambda f: safetensors.torch.save_file({"a": torch.zeros(1)}, f / "model.safetensors"),
            "does not hold a whole model",
        ),
    ],
)
def test_damaged_models_are_refused(graph, tmp_path, spoil, words):
    quick().fit(graph).save(tmp_path)
    spoil(tmp_path)
    with pytest.raises(InputError, match=words):
        GPatcherClassifier.load(tmp_path, graph)


def test_a_cut_safetensors_file_is_refused(graph, tmp_path):
    quick().fit(graph).save(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(InputError, match="missing or damaged"):
        GPatcherClassifier.load(tmp_path, graph)


def test_weights_of_another_shape_are_refused(graph, tmp_path):
    quick(hidden=8).fit(graph).save(tmp_path / "a")
    quick(hidden=6).fit(graph).save(tmp_path / "b")
    (tmp_path / "b" / "model.safetensors").replace(tmp_path / "a" / "model.safetensors")
    with pytest.raises(InputError, match="do not fit"):
        GPatcherClassifier.load(tmp_path / "a", graph)


def test_the_source_is_kept(graph, tmp_path):
    quick().fit(graph).save(tmp_path, source={"name": "csbm"})
    assert json.loads((tmp_path / "model.json").read_text())["source"] == {"name": "csbm"}


# ------------------------------------------------------------------------------------------- the filter


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_filter_response(graph, extractor):
    model = quick(extractor, c=0.6, filter_lr=10.0).fit(graph)
    found = model.filter_response(points=33)
    assert found.values.shape == found.response.shape == found.start.shape == (33,)
    assert (found.values[0], found.values[-1]) == (-1, 1)
    moved = np.abs(found.response - found.start).max()
    assert (moved > 1e-4) == (extractor in ("heterophily-aware", "polynomial", "shared"))
    if extractor in ("ppr", "heterophily-aware"):
        np.testing.assert_allclose(found.start, 0.4 / (1 - 0.6 * found.values), rtol=1e-4)
    figure = found.plot()
    assert [trace.name for trace in figure.data] == ["before training", "after training"]
    np.testing.assert_allclose(figure.data[1].y, found.response)
    np.testing.assert_allclose(figure.data[0].y, found.start)


def test_patches_are_those_of_the_extractor(graph):
    for extractor in ("ppr", "heat"):
        model = quick(extractor).fit(graph)
        expected = extract_patches(graph, extractor, 4, K=4)
        np.testing.assert_array_equal(model.patches_.index, expected.index)
        np.testing.assert_array_equal(model.patches_.score, expected.score)


def test_the_filter_learns_heterophily():
    """On a heterophilous graph the learned response leaves its start and other nodes enter the patches."""
    graph = csbm(phi=-0.9, n=400, features=20)
    model = GPatcherClassifier(patch_size=8, hidden=16, epochs=60, lr=0.01, seed=0, filter_lr=5.0, skip=True)
    model.fit(graph)
    found = model.filter_response()
    assert np.abs(found.response - found.start).max() > 0.1
    start = extract_patches(graph, "heterophily-aware", 8, c=0.5)
    learned = model.patches_
    share = np.mean([len(set(a) - set(b)) > 0 for a, b in zip(learned.index, start.index, strict=True)])
    assert share > 0.2
    # the scores are those of the learned response
    values, U = np.linalg.eigh(graph.normalised().toarray())
    kind = model.model_.patches.filter
    assert isinstance(kind, Adaptive)
    with torch.no_grad():
        g = kind(torch.tensor(values, dtype=torch.float32)).numpy()
    R = (U * g) @ U.T
    there = learned.index >= 0
    expected = np.take_along_axis(R, np.maximum(learned.index, 0), 1)
    np.testing.assert_allclose(learned.score[there], expected[there], atol=1e-4)
    assert model.score() > 0.65


# ------------------------------------------------------------------------------------------------- auto


@pytest.mark.parametrize(("affordable", "adaptive"), [(True, "heterophily-aware"), (False, "polynomial")])
def test_auto_trains_what_the_size_allows_and_keeps_what_validates_best(
    graph, affordable, adaptive, tmp_path, monkeypatch
):
    # a graph whose eigenvectors are out of reach would be too large for a test
    monkeypatch.setattr("gpatcher.spectral.spectrum.is_affordable", lambda n, memory: affordable)
    model = quick("auto", seed=2).fit(graph)
    alone = {name: quick(name, seed=2).fit(graph) for name in (adaptive, "ppr")}
    assert model.compared_ == {name: one.result_.val_loss for name, one in alone.items()}
    best = min(alone, key=lambda name: alone[name].result_.val_loss)
    assert (model.extractor, model.extractor_) == ("auto", best)
    np.testing.assert_array_equal(model.predict_proba(), alone[best].predict_proba())
    assert model.result_.val_loss == alone[best].result_.val_loss
    np.testing.assert_array_equal(model.filter_response().response, alone[best].filter_response().response)
    model.save(tmp_path)
    loaded = GPatcherClassifier.load(tmp_path, graph)
    assert (loaded.extractor, loaded.extractor_, loaded.compared_) == ("auto", best, model.compared_)
    np.testing.assert_array_equal(loaded.predict_proba(), model.predict_proba())
    assert clone(model).get_params()["extractor"] == "auto"


def test_auto_prepares_once_for_all_splits(graph):
    model = quick("auto")
    prepared = model.prepare(graph)
    assert [option.key[0] for option in prepared.options] == ["heterophily-aware", "ppr"]
    expected = quick("auto").fit(graph).predict_proba()
    np.testing.assert_array_equal(model.fit(graph, prepared=prepared).predict_proba(), expected)
    assert any(model._prepared is option for option in prepared.options)


@pytest.mark.parametrize("extractor", ["ppr", "heterophily-aware"])
def test_real_data(data_root, extractor, tmp_path):
    from gpatcher.datasets.load import load_dataset

    texas = load_dataset("texas", data_root)
    model = GPatcherClassifier(extractor=extractor, patch_size=8, hidden=32, epochs=60, lr=0.01, weight_decay=5e-3)
    model.fit(texas, 0)
    assert model.split_ is texas.splits[0]
    history = model.result_.history
    assert history[-1]["train_loss"] < 0.7 * history[0]["train_loss"]
    assert model.score() > 0.6
    model.save(tmp_path)
    np.testing.assert_array_equal(GPatcherClassifier.load(tmp_path, texas).predict(), model.predict())
