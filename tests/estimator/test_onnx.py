"""The exported model gives the numbers of the trained one, outside of torch."""

import json
import sys

import numpy as np
import pytest

from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.onnx import TOLERANCE, export_onnx, serving_inputs

QUICK = {"patch_size": 5, "hidden": 8, "mixer_hidden": 4, "epochs": 6, "filters": 4}


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.5, n=80, features=6)


def served(path, inputs):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    assert names == ["x", "score", "there"]
    return session, session.run(["logits", "probability"], dict(zip(names, map(np.asarray, inputs), strict=True)))


@pytest.mark.parametrize(
    "options",
    [
        {"extractor": "ppr"},
        {"extractor": "heterophily-aware", "head_layers": 2, "skip": False},
        {"extractor": "ppr", "paths": ("ego", "mean"), "structure": True, "normalise": "l2"},
    ],
    ids=["ppr", "learned", "sparse"],
)
def test_the_outputs_agree(graph, tmp_path, options):
    model = GPatcherClassifier(**{**QUICK, **options}).fit(graph)
    path = tmp_path / "model.onnx"
    assert export_onnx(model, path) <= TOLERANCE
    # nodes, and a number of them, that the export did not see
    nodes = np.arange(80)
    session, (logits, probability) = served(path, serving_inputs(model, nodes))
    np.testing.assert_allclose(logits, model.decision_function(), atol=TOLERANCE)
    np.testing.assert_allclose(probability, model.predict_proba(), atol=TOLERANCE)
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["gpatcher.classes"]) == model.classes_.tolist()
    assert json.loads(about["gpatcher.normalise"]) == model.normalise
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_what_stands_at_empty_places_does_not_matter(graph, tmp_path):
    model = GPatcherClassifier(extractor="ppr", eps=0.05, **QUICK).fit(graph)
    export_onnx(model, tmp_path / "m.onnx")
    x, score, there = serving_inputs(model, np.arange(80))
    assert (there == 0).any()
    x = x + 7.0 * (1 - there[..., None])
    _, (logits, _) = served(tmp_path / "m.onnx", (x, score, there))
    np.testing.assert_allclose(logits, model.decision_function(), atol=TOLERANCE)


def test_without_the_extra(graph, tmp_path, monkeypatch):
    model = GPatcherClassifier(extractor="ppr", **QUICK).fit(graph)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"onnxruntime.*pip install gpatcher\[onnx\]"):
        export_onnx(model, tmp_path / "m.onnx")
    monkeypatch.undo()
    with pytest.raises(InputError, match="not a folder"):
        export_onnx(model, tmp_path / "no" / "m.onnx")
