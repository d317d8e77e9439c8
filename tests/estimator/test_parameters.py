"""Parameters of the classifier: nested names, clones, settings, and what is refused."""

import json
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_is_fitted

from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier, GPatcherRegressor
from gpatcher.estimator.ensemble import AutoClassifier, AutoRegressor
from gpatcher.estimator.linear import LinearClassifier
from gpatcher.estimator.settings import to_parts, to_settings
from gpatcher.estimator.tables import TableClassifier, TableRegressor
from gpatcher.estimator.trees import TreesClassifier
from gpatcher.model.config import ModelConfig
from gpatcher.model.inputs import FeatureConfig
from gpatcher.patches import EXTRACTORS, PPR, AdaptiveFilter, HeatKernel
from gpatcher.training.loop import TrainConfig

# ------------------------------------------------------------------------------------------ nested parameters


def test_parameters_are_stored_as_given():
    patches, model = HeatKernel(size=9), ModelConfig(readout=["ego"])
    classifier = GPatcherClassifier(patches=patches, model=model, seed=4, memory=1 << 30, device="cpu")
    assert classifier.patches is patches
    assert classifier.model is model
    shallow = classifier.get_params(deep=False)
    assert set(shallow) == {"patches", "features", "model", "train", "memory", "device", "seed"}
    assert (shallow["patches"], shallow["seed"], shallow["memory"]) == (patches, 4, 1 << 30)
    assert GPatcherClassifier(patches="ppr").patches == "ppr"
    with pytest.raises(TypeError):
        GPatcherClassifier(PPR())  # by keyword alone


def test_deep_parameters_are_those_of_the_parts():
    deep = GPatcherClassifier(patches=HeatKernel(size=9), train=TrainConfig(lr=0.1)).get_params()
    assert deep["patches__size"] == 9
    assert deep["train__lr"] == 0.1
    assert deep["model__readout"] == ("ego", "mean", "mixer")
    assert deep["features__normalise"] == "none"
    assert "patches__sigma" not in deep  # of another extractor
    names = [name.partition("__")[0] for name in deep if "__" in name]
    assert set(names) == {"patches", "features", "model", "train"}
    # a name, and several sources, have no parameters to nest
    assert not any(name.startswith("patches__") for name in GPatcherClassifier(patches="ppr").get_params())
    assert not any(name.startswith("patches__") for name in GPatcherClassifier(patches=(PPR(), PPR())).get_params())


def test_set_params_replaces_one_value_of_a_part():
    part = TrainConfig(epochs=7)
    classifier = GPatcherClassifier(patches=PPR(size=9, c=0.3), train=part)
    assert classifier.set_params(train__lr=0.1, train__patience=3, patches__size=5, seed=2) is classifier
    assert classifier.train == TrainConfig(epochs=7, lr=0.1, patience=3)
    assert classifier.patches == PPR(size=5, c=0.3)
    assert classifier.seed == 2
    assert part == TrainConfig(epochs=7)  # a part is never changed in place
    with pytest.raises(FrozenInstanceError):
        part.lr = 0.1
    # a whole part together with one of its values, in any order
    assert classifier.set_params(patches__size=3, patches=AdaptiveFilter(K=2)).patches == AdaptiveFilter(size=3, K=2)
    # back and forth
    other = GPatcherClassifier(patches=AdaptiveFilter()).set_params(**classifier.get_params())
    assert other.get_params() == classifier.get_params()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nonsense": 1}, "nonsense.*patches"),
        ({"nonsense__lr": 1}, "nonsense__lr"),
        ({"train__nonsense": 1}, "train__nonsense.*lr"),
        ({"patches__sigma": "tanh"}, r"patches__sigma.*PPR.*eps"),
        ({"patches": "ppr", "patches__size": 4}, "patches__size.*'ppr'.*no parameters"),
        ({"patches": (PPR(), PPR()), "patches__size": 4}, "patches__size"),
        ({"seed__size": 4}, "seed__size"),
        ({"train__lr": -1.0}, "lr.*-1.0"),
        ({"model__readout": ("nonsense",)}, "nonsense"),
    ],
    ids=str,
)
def test_wrong_parameters_change_nothing(changes, words):
    classifier = GPatcherClassifier(patches=PPR(size=9))
    before = classifier.get_params()
    with pytest.raises(ValueError, match=words):
        classifier.set_params(seed=5, train__epochs=3, **changes)
    assert classifier.get_params() == before


@pytest.mark.parametrize(
    "patches", [PPR(size=5), "heat", (PPR(size=5), AdaptiveFilter(size=3))], ids=["one", "by name", "two"]
)
def test_a_clone_has_equal_parameters(patches):
    model = GPatcherClassifier(patches=patches, model=ModelConfig(hidden=4), seed=3).set_params(train__lr=0.1)
    other = clone(model)
    assert other is not model
    assert other.get_params() == model.get_params()
    other.set_params(train__lr=0.2, model__hidden=6)
    assert (model.train.lr, model.model.hidden) == (0.1, 4)


def test_the_representation_names_what_differs_from_the_defaults():
    assert repr(GPatcherClassifier()) == "GPatcherClassifier()"
    shown = repr(GPatcherClassifier(patches="heat", train=TrainConfig(lr=0.1), seed=3))
    assert shown == f"GPatcherClassifier(patches='heat', train={TrainConfig(lr=0.1)}, seed=3)"


def test_scikit_learn_takes_the_models_for_estimators(graph, quick):
    """They have its interface without its base class, see `NestedParameters`."""
    for one in (GPatcherClassifier(), AutoClassifier(), TreesClassifier(), LinearClassifier(), TableClassifier()):
        assert is_classifier(one)
        assert not is_regressor(one)
        with pytest.raises(NotFittedError):
            check_is_fitted(one)
    for one in (GPatcherRegressor(), AutoRegressor(), TableRegressor()):
        assert is_regressor(one)
        assert not is_classifier(one)
    check_is_fitted(quick().fit(graph))


def test_a_grid_of_nested_parameters(graph, quick):
    """What GridSearchCV does with an estimator: clone, set, fit, compare."""
    base = quick(seed=1)
    grid = ParameterGrid({"patches__size": [2, 4], "train__lr": [0.01, 0.1], "model__readout": [("mean",), ("mixer",)]})
    fitted = [clone(base).set_params(**point).fit(graph) for point in grid]
    assert len(fitted) == 8
    for point, model in zip(grid, fitted, strict=True):
        assert {name: model.get_params()[name] for name in point} == point
        assert model.patches_.size == point["patches__size"]
        alone = quick(
            patches={"size": point["patches__size"]},
            train={"lr": point["train__lr"]},
            model={"readout": point["model__readout"]},
            seed=1,
        ).fit(graph)
        np.testing.assert_array_equal(alone.predict_proba(), model.predict_proba())
    losses = {model.result_.val_loss for model in fitted}
    assert len(losses) == 8
    assert base.get_params() == quick(seed=1).get_params()
    assert not hasattr(base, "model_")


def test_parameters_of_a_classifier_within_a_table_classifier():
    model = TableClassifier(classifier=GPatcherClassifier(patches=PPR(size=4)))
    assert model.get_params()["classifier__train__lr"] == TrainConfig().lr
    model.set_params(classifier__train__lr=0.5, classifier__patches__size=7)
    assert (model.classifier.train.lr, model.classifier.patches) == (0.5, PPR(size=7))
    assert clone(model).get_params()["classifier__patches__size"] == 7


# ------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize("name", EXTRACTORS)
def test_settings_of_every_extractor_there_and_back(name):
    model = GPatcherClassifier(
        patches=name, features=FeatureConfig("l2"), model=ModelConfig(hidden=9), train=TrainConfig(epochs=3)
    )
    settings = model.settings()
    assert settings["patches"]["name"] == name
    assert (settings["model"]["hidden"], settings["features"]["normalise"]) == (9, "l2")
    assert json.loads(json.dumps(settings)) == settings
    again = GPatcherClassifier.from_settings(settings, seed=5)
    assert again.settings() == settings
    assert type(again.patches) is EXTRACTORS[name]
    assert (again.model, again.train, again.seed) == (model.model, model.train, 5)


def test_settings_of_several_sources_there_and_back():
    parts = (PPR(size=4), AdaptiveFilter(size=3, K=2))
    settings = GPatcherClassifier(patches=parts).settings()
    assert [source["name"] for source in settings["patches"]] == ["ppr", "heterophily-aware"]
    assert GPatcherClassifier.from_settings(settings).patches == parts
    assert to_parts({"patches": [{"name": "ppr", "size": 4}]})["patches"] == PPR(size=4)
    assert to_settings(["ppr"], FeatureConfig(), ModelConfig(), TrainConfig())["patches"]["name"] == "ppr"


def test_settings_leave_out_what_has_its_default():
    assert to_parts({}) == {}
    assert to_parts({"train": {"lr": 0.1}}) == {"train": TrainConfig(lr=0.1)}
    assert GPatcherClassifier.from_settings({}).get_params() == GPatcherClassifier().get_params()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"nonsense": {}}, "nonsense.*patches, features, model, train"),
        ({"train": {"epoch": 3}}, "train.epoch; did you mean train.epochs"),
        ({"model": {"zzz": 3}}, "model.zzz; model has hidden"),
        ({"patches": {"size": 3}}, "name.*'size': 3"),
        ({"patches": "ppr"}, "'ppr'"),
        ({"patches": {"name": "nonsense"}}, "nonsense.*ppr"),
        ({"patches": {"name": "ppr", "sizes": 3}}, "'sizes'; did you mean 'size'"),
        ({"train": 3}, "train.*3"),
        ([1], r"\[1\]"),
    ],
    ids=str,
)
def test_settings_that_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        GPatcherClassifier.from_settings(settings)


# --------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"patches": {"size": 0}}, "size.*got 0"),
        ({"name": "heat", "patches": {"K": 0}}, "got 0"),
        ({"features": {"normalise": "nonsense"}}, "nonsense"),
        ({"model": {"readout": ()}}, "none"),
        ({"train": {"monitor": "nonsense"}}, "nonsense"),
        ({"patches": {"c": 2.0}}, "got 2.0"),
        ({"name": "heterophily-aware", "patches": {"c": 2.0}}, "2.0"),
        ({"name": "heterophily-aware", "patches": {"sigma": "nonsense"}}, "nonsense"),
        ({"name": "heterophily-aware", "patches": {"candidates": 0}}, "candidates.*0"),
        ({"model": {"dropout": 1.5}}, "dropout.*1.5"),
        ({"model": {"hidden": 0}}, "hidden.*0"),
        ({"train": {"batch_size": 0}}, "batch_size.*0"),
        ({"train": {"lr": 0}}, "lr.*0"),
    ],
    ids=str,
)
def test_impossible_values_are_refused_by_the_parts(quick, options, words):
    with pytest.raises(InputError, match=words):
        quick(**options)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"device": "cuda:77"}, "cuda:77"),
        ({"device": "nonsense"}, "nonsense"),
        ({"patches": "nonsense"}, "nonsense.*ppr"),
        ({"patches": None}, "None"),
        ({"patches": ()}, r"\(\)"),
        ({"patches": 16}, "16"),
        ({"patches": (PPR(), 16)}, "16"),
        ({"patches": ("auto", PPR())}, "'auto'"),
        ({"patches": "heat", "memory": 10}, "ppr"),
        ({"patches": "ppr", "memory": 10}, "memory=0.00 GiB is too little"),
    ],
    ids=str,
)
def test_impossible_parameters_are_refused_when_fitting(graph, quick, parameters, words):
    model = GPatcherClassifier(**{**quick().get_params(deep=False), **parameters})  # storing is no error
    assert model.get_params(deep=False)["patches"] is parameters.get("patches", model.patches)
    with pytest.raises(InputError, match=words):
        model.fit(graph)
