"""Every model behind one function: `train_model`.

A new model: a module ``model(x, nodes) -> logits`` in one file of `gpatcher.baselines`. `settings` gives it the
protocol's parameters, `train_model` the one loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.baselines import BASELINES, make_baseline
from gpatcher.bench.plan import Tuned
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier, Prepared
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.model.inputs import FeatureTable, node_features
from gpatcher.patches.base import Patches
from gpatcher.patches.extract import LEARNABLE
from gpatcher.runs.settings import MODELS as PATCHERS
from gpatcher.runs.settings import parameters
from gpatcher.training.loop import FitResult, TrainConfig, fit, predict_logits

MODELS = (*BASELINES, *PATCHERS)


# the paper's protocol for every model; a model's own parameters keep their paper's values
PROTOCOL: dict[str, Any] = {
    "hidden": 64,
    "dropout": 0.5,
    "normalise": "none",
    "lr": 0.005,
    "weight_decay": 5e-4,
    "epochs": 500,
    "patience": 50,
    "stop": "loss",
}


_POINTS = 41  # of a filter's response in a record


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one run gave.

    Parameters
    ----------
    fit : figures of the training
    val, test : by the metric asked for; test is None where it was not to be read
    test_accuracy : None where the test set was not to be read
    extract_seconds : what making the patches took, which several runs may share
    response : g(λ) at `_POINTS` places from -1 to 1, where a filter was learned
    model : the trained model
    """

    fit: FitResult
    val: float
    test: float | None
    test_accuracy: float | None
    extract_seconds: float
    response: list[float] | None
    model: nn.Module


class Kept:
    """What one process makes once and uses for many runs: the features and the patches of the last graph."""

    def __init__(self) -> None:
        self.prepared: Prepared | None = None
        self._features: dict[str, FeatureTable] = {}
        self._graph: Graph | None = None

    def features(self, graph: Graph, normalise: str) -> FeatureTable:
        """Return the features, made once per graph and normalisation."""
        if self._graph is not graph:
            self._features, self._graph = {}, graph
        if normalise not in self._features:
            self._features[normalise] = node_features(graph, normalise)
        return self._features[normalise]


def settings(model: str, dataset: str, tuned: Tuned, base: str | None = None) -> tuple[dict[str, Any], int | None]:
    """Return the parameters of a model on a data set, and the trials they are the best of (None: not tuned).

    Tuned ones come first, then those that ship with the package, then the protocol's.

    Parameters
    ----------
    base : ``paper`` for the paper's plain reading of GPatcher, whatever was tuned
    """
    if model not in MODELS:
        raise InputError(f"there is no model {model!r}; there are {', '.join(MODELS)}")
    found = tuned.get(dataset, {}).get(model) if base is None else None
    if model not in PATCHERS:
        return ({**PROTOCOL, **found["config"]}, int(found["trials"])) if found else (dict(PROTOCOL), None)
    start = parameters(model, "", "default") | found["config"] if found else parameters(model, dataset, base)
    return full_config(start), int(found["trials"]) if found else None


def full_config(given: dict[str, Any]) -> dict[str, Any]:
    """Return all parameters of `GPatcherClassifier` that a result depends on, defaults included."""
    given = {**given, "paths": list(given["paths"])} if "paths" in given else given
    try:
        every = GPatcherClassifier(**given).get_params()
    except TypeError as error:
        raise InputError(f"unknown parameter: {error}") from None
    every["paths"] = list(every["paths"])
    return {k: v for k, v in every.items() if k not in ("seed", "memory", "device")}


def train_model(
    name: str,
    graph: Graph,
    split: Split,
    seed: int,
    config: dict[str, Any],
    *,
    metric: str = "accuracy",
    read_test: bool = True,
    kept: Kept | None = None,
) -> Outcome:
    """Train one model on one split by the one loop; the test nodes are read once, at the end.

    Parameters
    ----------
    name : one of `MODELS`
    config : parameters of the model and of `TrainConfig`; ``normalise`` of the features; ``patch_order: shuffled``
        permutes the places of a patch, ``induced`` (a configuration of GPatcher) trains on the graph of its patches
    metric : accuracy or roc_auc (two classes)
    read_test : False while a configuration is being chosen
    kept : shares features and patches between runs on one graph

    Examples
    --------
    >>> from gpatcher.datasets.synthetic import csbm
    >>> graph = csbm(phi=0.8, n=200, features=10)
    >>> outcome = train_model("mlp", graph, graph.splits[0], 0, {"hidden": 8, "epochs": 5})
    >>> outcome.fit.epochs
    5
    """
    kept = kept or Kept()
    blind = Split(split.train, split.val, np.empty(0, np.int64))
    config = dict(config)
    inducing = config.pop("induced", None)
    if inducing is not None:
        graph = induced_graph(graph, blind, seed, inducing, kept)
    extract_seconds, response = 0.0, None
    model: nn.Module
    if name in PATCHERS:
        shuffled = config.pop("patch_order", "ranked") == "shuffled"
        config = {"extractor": PATCHERS[name], **config}
        classifier = (_ShuffledClassifier if shuffled else GPatcherClassifier)(**config, seed=seed)
        classifier.fit(graph, blind, prepared=kept.prepared)
        kept.prepared = classifier._prepared
        x, model, result = kept.prepared.x, classifier.model_, classifier.result_
        extract_seconds = kept.prepared.seconds
        if classifier.extractor in LEARNABLE:
            found = classifier.filter_response(_POINTS).response
            response = [round(float(g), 4) for g in found]
        batch = classifier.batch_size
    else:
        x = kept.features(graph, config.pop("normalise", "none"))
        train = {key: config.pop(key) for key in TrainConfig.__dataclass_fields__ if key in config}
        torch.manual_seed(seed)
        model = make_baseline(name, graph, x.shape[1], blind, **config)
        result = fit(model, x, graph.labels(), blind, TrainConfig(**train), seed=seed)
        batch = train.get("batch_size")
    scores = {}
    for part in ("val", "test") if read_test else ("val",):
        ids = getattr(split, part)
        ids = ids[graph.labels()[ids] >= 0]
        logits = predict_logits(model, x, ids, batch) if ids.size else torch.empty(0, graph.num_classes)
        y = graph.labels()[ids]
        scores[part] = (score(logits, y, metric), score(logits, y, "accuracy"))
    val = scores["val"][0]
    if val is None:
        raise InputError(f"{metric} is not defined on the validation nodes of {graph.name}")
    test, test_accuracy = scores.get("test", (None, None))
    return Outcome(result, val, test, test_accuracy, extract_seconds, response, model)


def score(logits: Tensor, y: IntArray, metric: str) -> float | None:
    """Return the metric; None where it is not defined (no labelled node, or one class only for roc_auc)."""
    if not len(y):
        return None
    if metric == "accuracy":
        return float((logits.argmax(1).numpy() == y).mean())
    if metric != "roc_auc":
        raise InputError(f"there is no metric {metric!r}; there are accuracy, roc_auc")
    if logits.shape[1] != 2 or len(np.unique(y)) < 2:
        return None
    return float(roc_auc_score(y, logits.softmax(1)[:, 1].numpy()))


class _ShuffledClassifier(GPatcherClassifier):
    """GPatcher whose patches lose their order: the places after the node itself are permuted, once per node."""

    def _build(self, graph: Graph, prepared: Prepared) -> Any:
        model = super()._build(graph, prepared)
        rng = np.random.default_rng(self.seed)
        order = rng.permuted(np.tile(np.arange(1, self.patch_size), (graph.n, 1)), axis=1)
        places = torch.from_numpy(np.hstack([np.zeros((graph.n, 1), np.int64), order]))

        def shuffle(_: nn.Module, given: tuple[Tensor], out: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            chosen = places[given[0]]
            return out[0].gather(1, chosen), out[1].gather(1, chosen)

        model.patches.register_forward_hook(shuffle)
        return model


def induced_graph(graph: Graph, split: Split, seed: int, config: dict[str, Any], kept: Kept) -> Graph:
    """Train GPatcher on this split and join each node to the members of its patch.

    Test nodes must not be in ``split``; the labels that reach the graph are those of training and, by early stopping,
    of validation.
    """
    classifier = GPatcherClassifier(**config, seed=seed)
    classifier.fit(graph, split, prepared=kept.prepared)
    kept.prepared = classifier._prepared
    return patch_graph(graph, classifier.patches_)


def patch_graph(graph: Graph, patches: Patches) -> Graph:
    """Return the graph in which each node is joined to the members of its patch; features and labels stay.

    Examples
    --------
    >>> graph = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> patch_graph(graph, Patches(np.array([[0, 2], [1, -1], [2, 0]]), np.ones((3, 2)))).neighbours(0).tolist()
    [2]
    """
    members = patches.index[:, 1:]
    source, place = np.nonzero(members >= 0)
    ends = np.stack([source, members[source, place]]).astype(np.int64)
    return Graph.from_edge_index(
        np.unique(np.hstack([ends, ends[::-1]]), axis=1),
        x=graph.x,
        y=graph.y,
        num_nodes=graph.n,
        classes=graph.classes,
        name=graph.name,
    )


def mean_response(values: FloatArray, response: list[float]) -> float:
    """Return the mean of g over the eigenvalues, g scaled to a largest size of 1 there.

    The scale of g is arbitrary, because a patch's scores are brought to size 1; its shape is not.

    Parameters
    ----------
    values : the eigenvalues, shape (n,)
    response : g at equally spaced places from -1 to 1
    """
    g = np.interp(values, np.linspace(-1, 1, len(response)), response)
    return float(g.mean() / max(np.abs(g).max(), 1e-12))
