"""Saved models: loaded ones predict the same, damaged ones and other graphs are refused."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.folder import read_model_manifest
from gpatcher.estimator.persistence import SavedModel
from gpatcher.io import list_files, write_json
from gpatcher.patches import EXTRACTORS, PPR, extract_patches


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_a_loaded_model_predicts_the_same(graph, extractor, tmp_path, quick):
    # long enough for members to be selected again
    model = quick(extractor, train={"epochs": 12, "reselect_every": 3, "filter_lr": 20.0}, seed=2, memory=1 << 33)
    model.fit(graph)
    model.save(tmp_path / "m")
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["model.json", "model.safetensors"]
    loaded = GPatcherClassifier.load(tmp_path / "m", graph)
    np.testing.assert_array_equal(loaded.predict_proba(), model.predict_proba())
    np.testing.assert_array_equal(loaded.predict(nodes=[3]), model.predict(nodes=[3]))
    np.testing.assert_array_equal(loaded.patches_.index, model.patches_.index)
    assert loaded.score() == model.score()
    assert loaded.get_params() == model.get_params()
    assert (loaded.extractors_, loaded.compared_) == (model.extractors_, model.compared_)
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert loaded.split_.hash == model.split_.hash
    np.testing.assert_array_equal(loaded.filter_response().response, model.filter_response().response)


def test_the_graph_may_be_passed_to_predict(graph, tmp_path, quick):
    model = quick().fit(graph)
    model.save(tmp_path)
    np.testing.assert_array_equal(GPatcherClassifier.load(tmp_path).predict_proba(graph), model.predict_proba())
    for what in ("predict", "predict_proba", "score"):
        with pytest.raises(InputError, match="pass it"):
            getattr(GPatcherClassifier.load(tmp_path), what)()


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: model.patches_,
        lambda model: model.filter_response(),
        lambda model: model.features_,
        lambda model: model.explain(3),
    ],
    ids=["patches_", "filter_response", "features_", "explain"],
)
def test_a_loaded_model_needs_its_graph(graph, tmp_path, ask, quick):
    quick("heterophily-aware").fit(graph).save(tmp_path)
    with pytest.raises(InputError, match="graph"):
        ask(GPatcherClassifier.load(tmp_path))


@pytest.mark.parametrize("extractor", ["ppr", "hop"])
def test_a_loaded_model_makes_no_patches_that_are_not_asked_for(graph, extractor, tmp_path, quick):
    model = quick(extractor).fit(graph)
    model.save(tmp_path)
    loaded = GPatcherClassifier.load(tmp_path)
    np.testing.assert_allclose(loaded.decision_function(graph, [3]), model.decision_function(nodes=[3]), rtol=1e-5)
    assert loaded._prepared.on_demand
    assert loaded.explain(3).margin == pytest.approx(model.explain(3).margin, rel=1e-5)
    assert GPatcherClassifier.load(tmp_path).decision_function(graph, []).shape == (0, len(graph.classes))
    # an answer for another node is not that of an empty patch
    np.testing.assert_array_equal(loaded.decision_function(nodes=[4]), model.decision_function(nodes=[4]))
    np.testing.assert_array_equal(loaded.decision_function(), model.decision_function())


@pytest.mark.parametrize("given", [True, False])
def test_a_loaded_model_can_be_saved_again(graph, tmp_path, quick, given):
    model = quick("heterophily-aware").fit(graph)
    model.save(tmp_path / "a")
    GPatcherClassifier.load(tmp_path / "a", graph if given else None).save(tmp_path / "b")
    again = GPatcherClassifier.load(tmp_path / "b", graph)
    np.testing.assert_array_equal(again.predict_proba(), model.predict_proba())


def test_another_graph_is_refused(graph, tmp_path, quick):
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


def test_other_weights_on_the_same_edges_are_another_graph(graph, quick):
    weights = np.random.default_rng(0).uniform(0.1, 9.0, graph.indices.size)
    weighted = replace(graph, weights=weights)
    assert weighted.fingerprint != graph.fingerprint
    model = quick().fit(graph)
    with pytest.raises(InputError, match="fingerprint"):
        model.predict(weighted)
    prepared = quick().prepare(graph)
    refitted = quick().fit(weighted, prepared=prepared).patches_
    np.testing.assert_array_equal(refitted.score, extract_patches(weighted, PPR(size=4)).score)


def test_new_features_on_the_same_edges_are_used(graph, quick):
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
    write_json(folder / "model.json", about)  # with the right checksum


def spoil_tensors(folder, tensors):
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    spoil_json(folder, files=list_files([folder / "model.safetensors"]))


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def spoil_settings(folder, **changes):
    parameters = json.loads((folder / "model.json").read_text())["parameters"]
    spoil_json(folder, parameters={**parameters, "settings": {**parameters["settings"], **changes}})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "model.json").unlink(), "no saved model.*model.json"),
        (lambda f: (f / "model.json").write_text('{"format": "gpa'), "model.json does not describe a saved model"),
        (lambda f: (f / "model.json").write_bytes(b"\xff\xfe\x00"), "model.json does not describe a saved model"),
        (lambda f: (f / "model.json").write_text("[]"), "does not describe a saved model"),
        (lambda f: spoil_json(f, format="another"), "does not describe a saved model"),
        (lambda f: spoil_json(f, format=None), "does not describe a saved model"),
        (lambda f: spoil_json(f, version=99), "version 99, this gpatcher reads 3"),
        (lambda f: spoil_json(f, version="x"), "version x"),
        (lambda f: spoil_json(f, version=None), "version None"),
        (lambda f: spoil_json(f, parameters=None), "model.json is damaged: saved model lacks the field .parameters"),
        (lambda f: spoil_json(f, parameters={"seed": 1}), "incomplete.*settings"),
        (lambda f: spoil_json(f, parameters=3), "model.json is damaged: saved model.parameters must be an object"),
        (lambda f: spoil_settings(f, train={"nonsense": 1}), "train.nonsense"),
        (lambda f: spoil_settings(f, patches={"name": "nonsense"}), "nonsense.*ppr"),
        (lambda f: spoil_settings(f, nonsense=1), "nonsense"),
        (lambda f: spoil_settings(f, model={"layers": None}), "incomplete.*model.layers must be an integer, got null"),
        (lambda f: spoil_settings(f, features={"log_l1_norm": -1}), "features.log_l1_norm must be true or false"),
        (lambda f: spoil_json(f, details={"extractors": [{"name": "hop", "hop": {}}]}), "hop must be an integer"),
        (lambda f: spoil_json(f, details={"extractors": [{"size": 3}]}), "incomplete.*name"),
        (lambda f: spoil_json(f, details={}), "incomplete.*extractors"),
        (lambda f: spoil_json(f, details=None), "model.json is damaged.*lacks the field .details"),
        (lambda f: spoil_json(f, classes=None), "model.json is damaged.*lacks the field .classes"),
        (lambda f: spoil_json(f, calibration={"nonsense": 1}), "incomplete.*nonsense"),
        (lambda f: spoil_json(f, fingerprint=None), "model.json is damaged.*lacks the field .fingerprint"),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors cannot be read"),
        (lambda f: (f / "model.safetensors").write_bytes(b""), "model.safetensors is damaged: it has 0 bytes"),
        (lambda f: (f / "model.safetensors").write_bytes(b"garbage" * 9), "model.safetensors is damaged"),
        (lambda f: spoil_tensors(f, {"a": torch.zeros(1)}), "incomplete.*split"),
        (lambda f: edit(f / "model.json", '"seed": 0', '"seed": 1'), "model.json .*its own checksum"),
    ],
)
def test_damaged_models_are_refused(graph, tmp_path, spoil, words, quick):
    quick().fit(graph).save(tmp_path)
    spoil(tmp_path)
    with pytest.raises(InputError, match=words):
        GPatcherClassifier.load(tmp_path, graph)


def test_a_cut_safetensors_file_is_refused(graph, tmp_path, quick):
    quick().fit(graph).save(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(InputError, match=r"model.safetensors is damaged: it has .* bytes"):
        GPatcherClassifier.load(tmp_path, graph)


def test_no_bit_of_a_saved_model_can_change_unnoticed(graph, tmp_path, quick):
    model = quick().fit(graph)
    model.save(tmp_path)
    random = np.random.default_rng(0)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for bit in random.integers(len(whole) * 8, size=40):
            content = bytearray(whole)
            content[bit // 8] ^= 1 << (bit % 8)
            path.write_bytes(content)
            with pytest.raises(InputError, match=path.name):
                GPatcherClassifier.load(tmp_path, graph)
        path.write_bytes(whole)
    np.testing.assert_array_equal(GPatcherClassifier.load(tmp_path, graph).predict_proba(), model.predict_proba())


def test_outputs_that_are_not_finite_are_an_error(graph, quick):
    model = quick().fit(graph)
    x = np.array(graph.x)
    x[3] = 1e38  # finite, but not after a few products
    with pytest.raises(InputError, match=r"not a finite number for .*node.* 3"):
        model.predict_proba(replace(graph, x=x))


def test_weights_of_another_shape_are_refused(graph, tmp_path, quick):
    quick(model={"hidden": 8}).fit(graph).save(tmp_path / "a")
    quick(model={"hidden": 6}).fit(graph).save(tmp_path / "b")
    (tmp_path / "b" / "model.safetensors").replace(tmp_path / "a" / "model.safetensors")
    spoil_json(tmp_path / "a", files=list_files([tmp_path / "a" / "model.safetensors"]))
    with pytest.raises(InputError, match="do not fit"):
        GPatcherClassifier.load(tmp_path / "a", graph)


def test_the_source_is_saved(graph, tmp_path, quick):
    quick().fit(graph).save(tmp_path, source={"name": "csbm"})
    assert json.loads((tmp_path / "model.json").read_text())["source"] == {"name": "csbm"}


def test_no_array_is_pickled_and_the_manifest_is_readable(graph, tmp_path, quick):
    model = quick(seed=7).fit(graph)
    model.save(tmp_path)
    manifest = read_model_manifest(tmp_path)
    assert manifest.parameters["settings"] == model.settings()
    assert manifest.parameters["seed"] == 7
    assert manifest.details["extractors"] == [
        {"name": "ppr", "size": 4, "c": 0.5, "eps": 1e-5, "self_loops": False, "direction": "both"}
    ]
    assert manifest.fingerprint == graph.fingerprint
    assert manifest.details["patch_table"] is None
    saved = SavedModel.read(tmp_path)
    assert set(saved.state) == set(model.model_.state_dict())
    np.testing.assert_array_equal(saved.split.test, model.split_.test)


def test_an_earlier_model_in_the_folder_is_replaced(graph, tmp_path, quick):
    quick(seed=1).fit(graph).save(tmp_path)
    model = quick("heterophily-aware", seed=2).fit(graph)
    model.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["model.json", "model.safetensors"]
    np.testing.assert_array_equal(GPatcherClassifier.load(tmp_path, graph).predict_proba(), model.predict_proba())


def test_a_folder_that_cannot_be_written(graph, tmp_path, quick):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "file"))):
        quick().fit(graph).save(tmp_path / "file" / "model")
