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
from gpatcher.estimator.base import NodeModel
from gpatcher.estimator.classifier import PatchModel
from gpatcher.estimator.ensemble import AutoModel
from gpatcher.io import write_bytes
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.views import split_views
from gpatcher.patches.extract import extractor_parameters
from gpatcher.training.task import Regression

TOLERANCE = 1e-4  # largest difference of an output that is accepted
_CHECKED = 64  # nodes that the check runs on, fewer if there are many features
_ELEMENTS = 1 << 24


class ServedPatches(nn.Module):
    """A trained model of one round as a function of the members of patches."""

    def __init__(
        self, model: GPatcher, temperature: float, task: Regression | None = None, factor: float = 1.0
    ) -> None:
        super().__init__()
        self.model, self.temperature, self.task, self.factor = model, temperature, task, factor
        self.sizes = [source.size for source in model.sources]

    def forward(self, x: Tensor, score: Tensor, mask: Tensor, labels: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return logits and calibrated probabilities, shape (b, C), or numbers, (b,); see `export_onnx`."""
        b, p, d = x.shape
        rows = torch.arange(b * p, device=x.device).reshape(b, p)
        views = split_views(rows, score, mask, self.sizes)
        known = None if labels is None else labels.reshape(b * p, -1)
        return self._outputs(self.model.classify(self._encode(x.reshape(b * p, d)), views, known))

    def _outputs(self, logits: Tensor) -> tuple[Tensor, ...]:
        if self.task is not None:
            return (self.task.mean + self.task.scale * logits.squeeze(1),)
        logits = self.factor * logits
        return logits, (logits / self.temperature).softmax(1)

    def _encode(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.model.weight + self.model.bias)


class ServedGraph(ServedPatches):
    """A trained model of several rounds as a function of a whole graph with its patches."""

    def forward(  # type: ignore[override]
        self, x: Tensor, index: Tensor, score: Tensor, mask: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return logits and calibrated probabilities of all nodes, shape (n, C), or numbers, shape (n,)."""
        views = split_views(index, score, mask, self.sizes)
        h = self.model.propagate(self._encode(x), [[views]] * len(self.model.updates))
        return self._outputs(self.model.classify(h, views, labels))


def export_onnx(classifier: NodeModel, path: str | Path) -> float:
    """Write the trained encoder, mixer and classifier as ONNX; return the largest difference of an output.

    With one round the model takes the patches of any number of nodes: ``x`` (b, p, d), the members' features as made by
    `node_features`, ``score`` (b, p) and ``mask`` (b, p), 1 where a position has a member. With several rounds it takes
    a whole graph: ``x`` (n, d), ``index`` (n, p), ``score`` and ``mask`` (n, p). If the model reads labels, ``labels``
    follows, one-hot and 0 where unknown: (b, p, C) or (n, C); numbers are followed by a column that is 1 where they are
    known. The outputs are ``logits`` and calibrated ``probability``, (b, C) or (n, C); in a regression ``predicted`` in
    the unit of the labels, (b,) or (n,). Patches must be extracted beforehand, by `extract_patches` or into a patch
    table; those of several sources are concatenated. The metadata contain the classes and how features and patches are
    made. Before the file is written, the model is run with onnxruntime; a difference above 1e-4 is an error.

    Parameters
    ----------
    classifier : GPatcherClassifier, GPatcherRegressor, AutoClassifier or AutoRegressor
        A fitted model, with its graph. Of an ensemble only one patch model may be left, see `AutoClassifier.keep_best`;
        the one that predicts new nodes is written.
    path : str or Path
        The file to write.
    """
    network, factor = _network(classifier)
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  the exporter of torch needs it
    except ImportError as error:
        raise InputError(f"the export needs the package {error.name}: pip install gpatcher[onnx]") from None
    path = Path(path)
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path.parent} is not a folder; create it first or choose another folder for {path.name}")
    inputs = _examples(network)
    served = _served(network, classifier.calibration_, factor)
    batch = torch.export.Dim("nodes")
    with _quiet():
        program = torch.onnx.export(
            served,
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=["logits", "probability"] if served.task is None else ["predicted"],
            dynamic_shapes=({0: batch},) * len(inputs),
            dynamo=True,
            verbose=False,
        )
    if program is None:
        raise InputError("torch gave no ONNX program; this version of torch cannot export the model")
    model = program.model_proto
    about = {
        "classes": classifier.class_names_,
        "features": asdict(network.features),
        "patches": [{"name": e.name, **extractor_parameters(e)} for e in network.extractors_],
        "temperature": served.temperature,
    }
    onnx.helper.set_model_props(model, {f"gpatcher.{name}": json.dumps(value) for name, value in about.items()})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    largest = 0.0
    for count in (len(inputs["x"]), 1):  # also a number of nodes that the export did not see
        part = {name: value[:count] for name, value in inputs.items()}
        if "index" in part:
            part["index"] = part["index"].clamp_max(count - 1)
        with torch.no_grad():
            ours = served(*part.values())
        theirs = session.run(None, {name: value.numpy() for name, value in part.items()})
        for a, b in zip(ours, theirs, strict=True):
            unit = 1.0 if served.task is None else max(served.task.scale, abs(served.task.mean))
            largest = max(largest, float(np.abs(a.numpy() - b).max()) / unit)
    if not largest <= TOLERANCE:
        raise InputError(f"the exported model differs from the trained one by {largest:.2g}, more than {TOLERANCE}")
    write_bytes(path, model.SerializeToString())
    return largest


def _network(model: NodeModel) -> tuple[PatchModel, float]:
    """Return the patch model of a model, and the factor of its logits."""
    only, factor = model.only_model() if isinstance(model, AutoModel) else (model, 1.0)
    if isinstance(only, PatchModel):
        return only, factor
    fix = "serve it ('gpatcher serve'), or train one patch model to export (--model fast)"
    if isinstance(model, AutoModel) and only is None:
        members = ", ".join(f"{member.candidate.name} ({member.candidate.kind})" for member in model.used)
        raise InputError(
            f"an ensemble is not exported, since each member reads patches and features of its own: {members}; {fix}. "
            "'gpatcher fit --keep-best' leaves the best member, which is exported if it is a patch model"
        )
    kind = (only or model).kind
    raise InputError(f"trees and linear models are not exported, and this is a model of kind {kind!r}; {fix}")


def _served(classifier: PatchModel, calibration: Any, factor: float) -> ServedPatches:
    served = ServedPatches if classifier.model.rounds == 1 else ServedGraph
    if isinstance(classifier.task_, Regression):
        return served(classifier.model_, 1.0, classifier.task_).eval()
    return served(classifier.model_, calibration.temperature, factor=factor).eval()


def serving_inputs(classifier: PatchModel, nodes: Any) -> dict[str, Tensor]:
    """Return the inputs of the exported model for these nodes; with several rounds, only members among these."""
    x, model = classifier.features_, classifier.model_
    with torch.no_grad():
        ids = torch.as_tensor(np.array(nodes))
        patches = [source(ids) for source in model.sources]
    index, score = (torch.cat(parts, 1) for parts in zip(*patches, strict=True))
    mask = (index >= 0).to(score.dtype)
    index = index.clamp_min(0)
    labels = model.known_labels()
    if classifier.model.rounds > 1:
        order = torch.full((x.shape[0],), -1).index_copy(0, ids, torch.arange(len(ids)))
        inside = order[index]
        mask = mask * (inside >= 0)
        inputs = {"x": x.rows(ids), "index": inside.clamp_min(0), "score": score * mask, "mask": mask}
        return inputs if labels is None else {**inputs, "labels": labels[ids]}
    rows = x.rows(index.flatten()).reshape(*index.shape, -1)
    inputs = {"x": rows * mask[..., None], "score": score, "mask": mask}
    return inputs if labels is None else {**inputs, "labels": labels[index] * mask[..., None]}


def _examples(classifier: PatchModel) -> dict[str, Tensor]:
    n, width = classifier.features_.shape
    positions = sum(extractor.size for extractor in classifier.extractors_)
    count = max(2, _ELEMENTS // (positions * width))
    nodes = np.random.default_rng(0).choice(n, min(n, _CHECKED, count), replace=False)
    return serving_inputs(classifier, nodes)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the progress messages of the exporter."""
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
