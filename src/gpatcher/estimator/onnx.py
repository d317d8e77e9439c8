"""Export of a trained model to ONNX, for serving without torch."""

from __future__ import annotations

import contextlib
import json
import logging
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.io import write_bytes
from gpatcher.model.gpatcher import GPatcher, split_views
from gpatcher.patches.extract import extractor_parameters

TOLERANCE = 1e-4  # largest difference of an output that passes
_CHECKED = 64  # nodes that the check runs on, fewer where the features are wide
_ELEMENTS = 1 << 24


class ServedPatches(nn.Module):
    """A trained model as a function of the members of patches alone.

    Parameters
    ----------
    model : GPatcher
        The trained model.
    temperature : float
        Of the probabilities.
    """

    def __init__(self, model: GPatcher, temperature: float) -> None:
        super().__init__()
        self.model, self.temperature = model, temperature
        self.sizes = [source.size for source in model.sources]

    def forward(self, x: Tensor, score: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and calibrated probabilities, shape (b, C).

        Parameters
        ----------
        x : Tensor, shape (b, p, d)
            Features of the members, the patches of several sources side by side.
        score : Tensor, shape (b, p)
        mask : Tensor, shape (b, p)
            1 where a position has a member, else 0.
        """
        b, p, d = x.shape
        h = torch.relu(x.reshape(b * p, d) @ self.model.weight + self.model.bias)
        rows = torch.arange(b * p, device=x.device).reshape(b, p)
        logits = self.model.classify(h, split_views(rows, score, mask, self.sizes))
        return logits, (logits / self.temperature).softmax(1)


def export_onnx(classifier: GPatcherClassifier, path: str | Path) -> float:
    """Write the trained encoder, mixer and classifier as ONNX; return the largest difference of an output.

    The file takes the patches of any number of nodes: ``x`` (b, p, d), the members' features as `node_features` makes
    them, ``score`` (b, p) and ``mask`` (b, p), 1 where a position has a member. It gives ``logits`` and calibrated
    ``probability`` (b, C). Patches are made outside, by `extract_patches` or from a patch table; those of several
    sources lie side by side. The metadata hold the classes and how features and patches are made. Before it is written
    the model is run with onnxruntime on nodes of the graph; a difference above 1e-4 is an error.

    Parameters
    ----------
    classifier : GPatcherClassifier
        Fitted, with its graph.
    path : str or Path
        The file.
    """
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  the exporter of torch needs it
    except ImportError as error:
        raise InputError(f"the export needs the package {error.name}: pip install gpatcher[onnx]") from None
    path = Path(path)
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path.parent} is not a folder; create it first or choose another folder for {path.name}")
    inputs = _examples(classifier)
    served = ServedPatches(classifier.model_, classifier.calibration_.temperature).eval()
    batch = torch.export.Dim("nodes")
    with _quiet():
        program = torch.onnx.export(
            served,
            inputs,
            input_names=["x", "score", "mask"],
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
        "features": asdict(classifier.features),
        "patches": [{"name": e.name, **extractor_parameters(e)} for e in classifier.extractors_],
        "temperature": classifier.calibration_.temperature,
    }
    onnx.helper.set_model_props(model, {f"gpatcher.{name}": json.dumps(value) for name, value in about.items()})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    largest = 0.0
    for count in (len(inputs[0]), 1):  # another number of nodes than the export saw, too
        part = tuple(t[:count] for t in inputs)
        with torch.no_grad():
            ours = served(*part)
        theirs = session.run(None, {n: t.numpy() for n, t in zip(("x", "score", "mask"), part, strict=True)})
        for a, b in zip(ours, theirs, strict=True):
            largest = max(largest, float(np.abs(a.numpy() - b).max()))
    if not largest <= TOLERANCE:
        raise InputError(f"the exported model differs from the trained one by {largest:.2g}, more than {TOLERANCE}")
    write_bytes(path, model.SerializeToString())
    return largest


def serving_inputs(classifier: GPatcherClassifier, nodes: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return x, score and mask of these nodes of the graph, as the exported model takes them."""
    x = classifier.features_
    with torch.no_grad():
        patches = [source(torch.as_tensor(np.array(nodes))) for source in classifier.model_.sources]
    index, score = (torch.cat(parts, 1) for parts in zip(*patches, strict=True))
    rows = x.rows(index.clamp_min(0).flatten()).reshape(*index.shape, -1)
    mask = (index >= 0).to(score.dtype)
    return rows * mask[..., None], score, mask


def _examples(classifier: GPatcherClassifier) -> tuple[Tensor, Tensor, Tensor]:
    n, width = classifier.features_.shape
    positions = sum(extractor.size for extractor in classifier.extractors_)
    count = max(2, _ELEMENTS // (positions * width))
    nodes = np.random.default_rng(0).choice(n, min(n, _CHECKED, count), replace=False)
    return serving_inputs(classifier, nodes)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's own progress messages."""
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
