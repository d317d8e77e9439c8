"""Export of a trained model to ONNX, for serving without torch."""

from __future__ import annotations

import contextlib
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.model.gpatcher import GPatcher

TOLERANCE = 1e-4  # the largest difference of a logit that passes
_CHECKED = 64  # nodes that the check runs on, fewer where the features are wide
_ELEMENTS = 1 << 24


class ServedPatches(nn.Module):
    """A trained model as a function of a patch's content alone.

    Parameters
    ----------
    model : the trained model
    temperature : of the probabilities
    """

    def __init__(self, model: GPatcher, temperature: float) -> None:
        super().__init__()
        self.model, self.temperature = model, temperature

    def forward(self, x: Tensor, score: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and calibrated probabilities, shape (b, C).

        Parameters
        ----------
        x : features of the members, shape (b, p, d)
        score, there : shape (b, p); ``there`` is 1 where a place is taken, else 0
        """
        b, p, d = x.shape
        h = torch.relu(x.reshape(b * p, d) @ self.model.weight + self.model.bias)
        places = torch.arange(b * p, device=x.device).reshape(b, p)
        logits = self.model.classify(h, places, score, there)
        return logits, (logits / self.temperature).softmax(1)


def export_onnx(classifier: GPatcherClassifier, path: str | Path) -> float:
    """Write the trained encoder, mixer and classifier as ONNX; return the largest difference of a logit.

    The file takes the patches of any number of nodes: ``x`` (b, p, d) the members' features as `node_features` makes
    them, ``score`` (b, p), ``there`` (b, p) 1 where a place is taken; it gives ``logits`` and ``probability`` (b, C),
    calibrated. Where patches come from stays outside: `extract_patches` or a table. Its metadata hold the classes and
    how the features are made. It is run with onnxruntime on nodes of the graph before it is kept; a difference above
    1e-4 is an error.
    """
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  the exporter of torch needs it
    except ImportError as error:
        raise InputError(f"the export needs the package {error.name}: pip install gpatcher[onnx]") from None
    path = Path(path)
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path.parent} is not a folder; make it first or choose another place for {path.name}")
    inputs = _examples(classifier)
    served = ServedPatches(classifier.model_, classifier.calibration_.temperature).eval()
    batch = torch.export.Dim("nodes")
    with _quiet():
        program = torch.onnx.export(
            served,
            inputs,
            input_names=["x", "score", "there"],
            output_names=["logits", "probability"],
            dynamic_shapes=({0: batch}, {0: batch}, {0: batch}),
            dynamo=True,
            verbose=False,
        )
    if program is None:
        raise InputError("torch gave no ONNX program; this version of torch cannot export the model")
    model = program.model_proto
    about = {
        "classes": [str(c) for c in classifier.classes_],
        "normalise": classifier.normalise,
        "structure": classifier.structure,
        "patch_size": int(inputs[0].shape[1]),
        "temperature": classifier.calibration_.temperature,
    }
    onnx.helper.set_model_props(model, {f"gpatcher.{name}": json.dumps(value) for name, value in about.items()})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    largest = 0.0
    for count in (len(inputs[0]), 1):  # another number of nodes than the export saw, too
        part = tuple(t[:count] for t in inputs)
        with torch.no_grad():
            ours = served(*part)
        theirs = session.run(None, {n: t.numpy() for n, t in zip(("x", "score", "there"), part, strict=True)})
        for a, b in zip(ours, theirs, strict=True):
            largest = max(largest, float(np.abs(a.numpy() - b).max()))
    if not largest <= TOLERANCE:
        raise InputError(f"the exported model differs from the trained one by {largest:.2g}, more than {TOLERANCE}")
    draft = path.with_name(f".{path.name}.partial")
    draft.write_bytes(model.SerializeToString())
    draft.replace(path)
    return largest


def serving_inputs(classifier: GPatcherClassifier, nodes: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return x, score and there of these nodes of the graph, as the exported model takes them."""
    x = classifier.features_
    with torch.no_grad():
        index, score = classifier.model_.patches(torch.as_tensor(np.array(nodes)))
    rows = x.rows(index.clamp_min(0).flatten()).reshape(*index.shape, -1)
    there = (index >= 0).to(score.dtype)
    return rows * there[..., None], score, there


def _examples(classifier: GPatcherClassifier) -> tuple[Tensor, Tensor, Tensor]:
    n, width = classifier.features_.shape
    fitting = max(2, _ELEMENTS // (classifier.patch_size * width))
    nodes = np.random.default_rng(0).choice(n, min(n, _CHECKED, fitting), replace=False)
    return serving_inputs(classifier, nodes)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's talk about its own progress away from the user."""
    levels = {
        logging.getLogger(name): logging.getLogger(name).level for name in ("torch.onnx", "onnxscript", "onnx_ir")
    }
    for logger in levels:
        logger.setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(None):
        warnings.simplefilter("ignore")
        yield
    for logger, level in levels.items():
        logger.setLevel(level)
