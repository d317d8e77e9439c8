"""The exported model gives the numbers of the trained one, outside of torch."""

import json
import sys

import numpy as np
import pytest

from gpatcher.errors import InputError
from gpatcher.estimator.onnx import TOLERANCE, export_onnx, serving_inputs
from gpatcher.model.inputs import FeatureConfig
from gpatcher.patches import make_extractor


def served(path, inputs):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == list(inputs)
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    return session, session.run(["logits", "probability"], arrays)


@pytest.mark.parametrize(
    "options",
    [
        {
            "patches": {"size": 5, "eps": 0.05},  # with empty positions
            "model": {"readout": ("ego", "mean", "mixer")},
            "features": {"adjacency_features": True, "normalise": "l2"},
        },
        {
            "name": [{"name": "ppr", "size": 5}, {"name": "heterophily-aware", "size": 3, "K": 4}],
            "model": {"head_layers": 2, "mean_ego": True, "readout": ("ego", "mean", "mixer", "labels")},
        },
        {
            "name": [{"name": "hop", "size": 4}, {"name": "ppr", "size": 5}],
            "model": {"rounds": 3, "norm": "batch", "readout": ("ego", "mean", "labels"), "jump": True},
        },
        {
            "name": [{"name": "hop", "size": 4}, {"name": "overlap", "size": 5, "threshold": 0.2}],
            "model": {"readout": ("ego", "mean", "labels"), "selection": True},
        },
        {"name": [{"name": "hop", "size": 4}], "model": {"rounds": 3, "readout": ("ego", "mean"), "residual": False}},
        {"name": [{"name": "hop", "size": 4}], "model": {"rounds": 3, "readout": ("ego", "mean"), "selection": True}},
    ],
    ids=[
        "sparse with empty positions",
        "fixed, learned and labels",
        "rounds and labels",
        "overlap and labels",
        "replace",
        "selection",
    ],
)
def test_the_outputs_agree(graph, tmp_path, quick, options):
    model = quick(**options, train={"epochs": 6}).fit(graph)
    path = tmp_path / "model.onnx"
    assert export_onnx(model, path) <= TOLERANCE
    # nodes, and a number of them, that the export did not see
    nodes = np.arange(80)
    inputs = serving_inputs(model, nodes)
    positions = sum(extractor.size for extractor in model.extractors_)
    shapes = {name: tuple(part.shape) for name, part in inputs.items()}
    width = model.features_.shape[1]
    assert shapes["x"] == ((80, positions, width) if model.model.rounds == 1 else (80, width))
    assert shapes["score"] == shapes["mask"] == (80, positions)
    assert ("labels" in shapes) == ("labels" in model.model.readout)
    session, (logits, probability) = served(path, inputs)
    np.testing.assert_allclose(logits, model.decision_function(), atol=TOLERANCE)
    np.testing.assert_allclose(probability, model.predict_proba(), atol=TOLERANCE)
    about = {key: json.loads(value) for key, value in session.get_modelmeta().custom_metadata_map.items()}
    assert about["gpatcher.classes"] == model.classes_.tolist()
    assert FeatureConfig(**about["gpatcher.features"]) == model.features
    sources = about["gpatcher.patches"]
    extractors = tuple(make_extractor(source.pop("name"), source) for source in sources)
    assert extractors == model.extractors_  # what is needed to make the patches of other nodes
    assert about["gpatcher.temperature"] == model.calibration_.temperature
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["model.onnx"]
    if model.model.rounds == 1:
        # features at empty positions do not matter
        assert "eps" not in options.get("patches", {}) or (inputs["mask"] == 0).any()
        inputs["x"] += 7.0 * (1 - inputs["mask"][..., None])
        np.testing.assert_allclose(served(path, inputs)[1][0], logits, atol=TOLERANCE)


def test_without_the_extra(graph, tmp_path, quick, monkeypatch):
    model = quick().fit(graph)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"onnxruntime.*pip install gpatcher\[onnx\]"):
        export_onnx(model, tmp_path / "m.onnx")
    monkeypatch.undo()
    with pytest.raises(InputError, match="not a folder"):
        export_onnx(model, tmp_path / "no" / "m.onnx")
