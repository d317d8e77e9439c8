"""GPatcherClassifier: the model behind scikit-learn's conventions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.torch
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from gpatcher import __version__
from gpatcher.data.splits import stratified_split
from gpatcher.features import FeatureTable, node_features
from gpatcher.filters import LearnableFilter, ppr_response, response
from gpatcher.graph import FloatArray, Graph, InputError, IntArray, Split, some
from gpatcher.model import PATHS, FixedPatches, GPatcher
from gpatcher.patches import (
    FIXED,
    LEARNABLE,
    PairProducts,
    Patches,
    SpectralPatches,
    check_extractor,
    graph_spectrum,
    push_patches,
    spectral_patches,
)
from gpatcher.training import FitResult, TrainConfig, fit, predict_logits

_FORMAT = "gpatcher-model"
_FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class FilterResponse:
    """A filter over the frequencies: λ from -1 (high) to 1 (low) and g(λ), the one before training beside it."""

    values: FloatArray
    response: FloatArray
    start: FloatArray

    def plot(self) -> Any:
        """Return a plotly figure of the response."""
        import plotly.graph_objects as go

        figure = go.Figure()
        figure.add_scatter(
            x=self.values, y=self.start, name="before training", line={"dash": "dot", "color": "#8a94a0"}
        )
        figure.add_scatter(x=self.values, y=self.response, name="after training", line={"color": "#2f6fb0"})
        figure.update_xaxes(title="eigenvalue λ (low frequency on the left)", range=[1.02, -1.02])
        figure.update_yaxes(title="response g(λ)")
        return figure


@dataclass(frozen=True, eq=False)
class Prepared:
    """What is made once per graph and shared by all runs on it: features, and patches or products of pairs."""

    graph: Graph
    key: tuple[Any, ...]
    x: FeatureTable
    fixed: Patches | None
    pairs: PairProducts | None
    seconds: float


class GPatcherClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Node classifier by patches; ``extractor="ppr"`` is Fast-GPatcher.

    Parameters
    ----------
    extractor : heterophily-aware, polynomial, shared, heat, bandpass or ppr
    patch_size : p, the node itself included
    filters : K, number of powers of the filter
    c, eps : of personalised PageRank, with which learnable filters start
    self_loops : of the normalised adjacency
    sigma : activation inside the sum of the heterophily-aware filter: none, tanh or relu
    candidates : nodes that may enter a patch, as a multiple of patch_size
    hidden, mixer_hidden, layers, dropout, input_dropout, skip : of encoder and mixer
    paths : what reaches the classifier: some of ego, mean, mixer
    ego_gate, mixer_gate, mean_ego, head_layers : see `GPatcher`
    normalise : of the features: none, l1, l2 or standard
    structure : rows of the adjacency as features too
    lr, weight_decay, epochs, patience, stop, batch_size, renew_every, filter_lr, class_weights, average : see
        `TrainConfig`
    memory : bytes that eigenvectors may take; by default half of what is free
    device : where to train: cpu, cuda, ...
    seed : of weights and dropout

    Attributes
    ----------
    classes_ : names of the classes
    model_ : the fitted `GPatcher`
    split_ : the split used
    result_ : figures of the training run
    patches_ : the patches of all nodes

    Examples
    --------
    >>> from gpatcher.data.synthetic import csbm
    >>> graph = csbm(phi=-0.9, n=200, features=10)
    >>> GPatcherClassifier(extractor="ppr", patch_size=8, epochs=30).fit(graph).predict(nodes=[0, 1]).shape
    (2,)
    """

    def __init__(
        self,
        extractor: str = "heterophily-aware",
        patch_size: int = 16,
        filters: int = 10,
        c: float = 0.5,
        eps: float = 1e-5,
        self_loops: bool = False,
        sigma: str = "none",
        candidates: int = 4,
        hidden: int = 64,
        mixer_hidden: int | None = 16,
        layers: int = 2,
        dropout: float = 0.5,
        input_dropout: float = 0.5,
        skip: bool = True,
        paths: Sequence[str] = PATHS,
        ego_gate: float = 1.0,
        mixer_gate: float = 1.0,
        mean_ego: bool = False,
        head_layers: int = 1,
        normalise: str = "none",
        structure: bool = False,
        lr: float = 0.005,
        weight_decay: float = 5e-4,
        epochs: int = 500,
        patience: int = 50,
        stop: str = "loss",
        batch_size: int | None = None,
        renew_every: int = 10,
        filter_lr: float = 1.0,
        class_weights: bool = False,
        average: float = 0.0,
        memory: int | None = None,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        self.extractor = extractor
        self.patch_size = patch_size
        self.filters = filters
        self.c = c
        self.eps = eps
        self.self_loops = self_loops
        self.sigma = sigma
        self.candidates = candidates
        self.hidden = hidden
        self.mixer_hidden = mixer_hidden
        self.layers = layers
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.skip = skip
        self.paths = paths
        self.ego_gate = ego_gate
        self.mixer_gate = mixer_gate
        self.mean_ego = mean_ego
        self.head_layers = head_layers
        self.normalise = normalise
        self.structure = structure
        self.lr = lr
        self.weight_decay = weight_decay
        self.epochs = epochs
        self.patience = patience
        self.stop = stop
        self.batch_size = batch_size
        self.renew_every = renew_every
        self.filter_lr = filter_lr
        self.class_weights = class_weights
        self.average = average
        self.memory = memory
        self.device = device
        self.seed = seed

    # ---- fitting

    def fit(
        self,
        graph: Graph,
        split: Split | int | None = None,
        *,
        prepared: Prepared | None = None,
        progress: Callable[[int, dict[str, float]], None] | None = None,
        checkpoint: Path | None = None,
    ) -> Self:
        """Train on a graph.

        Parameters
        ----------
        split : a `Split`, or the number of one of the graph's; by default its first, else a stratified one
            (60 % train, 20 % validation, 20 % test of the labelled nodes)
        prepared : what `prepare` returned for this graph, to save making it again
        progress, checkpoint : see `gpatcher.training.fit`
        """
        self.split_ = self._choose(graph, split)
        if prepared is None or not self._fits(prepared, graph):
            prepared = self.prepare(graph)
        torch.manual_seed(self.seed)
        self.model_ = self._build(graph, prepared)
        train = {name: getattr(self, name) for name in TrainConfig.__dataclass_fields__}
        self.result_: FitResult = fit(
            self.model_,
            prepared.x,
            graph.labels(),
            self.split_,
            TrainConfig(**train),
            seed=self.seed,
            progress=progress,
            checkpoint=checkpoint,
        )
        self.classes_ = np.array(graph.classes)
        self.fingerprint_ = graph.fingerprint
        self._remember(graph, prepared)
        return self

    def _choose(self, graph: Graph, split: Split | int | None) -> Split:
        if isinstance(split, Split):
            graph.with_splits([split])  # checks it
            return split
        if split is None and not graph.splits:
            return stratified_split(graph.labels(), 0.6, 0.2, self.seed)
        number = 0 if split is None else split
        if not 0 <= number < len(graph.splits):
            raise InputError(f"there is no split {number}: {graph.name} has {len(graph.splits)}, counted from 0")
        return graph.splits[number]

    def prepare(self, graph: Graph) -> Prepared:
        """Make what does not depend on a split: features, and patches (fixed) or products of pairs (learnable)."""
        x = node_features(graph, self.normalise, self.structure, check_device(self.device))
        started = time.perf_counter()
        fixed, pairs = None, None
        if check_extractor(self.extractor) == "ppr":
            fixed = push_patches(graph, self.patch_size, self.c, self.eps, self.self_loops)
        else:
            spectrum = graph_spectrum(graph, self.self_loops, self.memory)
            if self.extractor in LEARNABLE:
                pairs = PairProducts.build(spectrum, self._filter(), max(self.candidates * self.patch_size, 64))
            else:
                g = response(FIXED[self.extractor](self.filters), spectrum.values)
                fixed = spectral_patches(spectrum, g, self.patch_size)
        return Prepared(graph, self._key(), x, fixed, pairs, time.perf_counter() - started)

    def _key(self) -> tuple[Any, ...]:
        names = ("extractor", "patch_size", "filters", "c", "eps", "self_loops", "sigma", "candidates")
        return tuple(getattr(self, name) for name in (*names, "normalise", "structure", "device"))

    def _fits(self, prepared: Prepared, graph: Graph) -> bool:
        parts = ("indptr", "indices", "weights", "x")
        return prepared.key == self._key() and all(getattr(prepared.graph, p) is getattr(graph, p) for p in parts)

    def _filter(self) -> LearnableFilter:
        return LEARNABLE[self.extractor](self.filters, self.c, self.sigma)

    def _build(self, graph: Graph, prepared: Prepared) -> GPatcher:
        patches: FixedPatches | SpectralPatches
        if prepared.pairs is not None:
            patches = SpectralPatches(prepared.pairs, self._filter(), self.patch_size)
        elif prepared.fixed is not None:
            patches = FixedPatches(prepared.fixed)
        return GPatcher(
            patches,
            prepared.x.shape[1],
            graph.num_classes,
            hidden=self.hidden,
            mixer_hidden=self.mixer_hidden,
            layers=self.layers,
            dropout=self.dropout,
            input_dropout=self.input_dropout,
            paths=tuple(self.paths),
            ego_gate=self.ego_gate,
            mixer_gate=self.mixer_gate,
            mean_ego=self.mean_ego,
            skip=self.skip,
            head_layers=self.head_layers,
        ).to(self.device)

    def _remember(self, graph: Graph, prepared: Prepared) -> None:
        self._graph, self._prepared = graph, prepared

    # ---- using

    def predict_proba(self, graph: Graph | None = None, nodes: Any = None) -> FloatArray:
        """Return the probability of each class, shape (len(nodes), C); by default for all nodes of the graph."""
        check_is_fitted(self)
        graph = self._known(graph)
        ids = np.arange(graph.n) if nodes is None else _ids(nodes, graph)
        logits = predict_logits(self.model_, self._prepared.x, ids, self.batch_size or 4096)
        return logits.softmax(1).numpy()

    def predict(self, graph: Graph | None = None, nodes: Any = None) -> npt.NDArray[Any]:
        """Return the name of the most probable class of each node."""
        probability = self.predict_proba(graph, nodes)
        labels: npt.NDArray[Any] = self.classes_[probability.argmax(1)]
        return labels

    def score(self, graph: Graph | None = None, nodes: Any = None) -> float:
        """Return the accuracy on these nodes, by default the test nodes of the split it was fitted with."""
        check_is_fitted(self)
        graph = self._known(graph)
        ids: IntArray = self.split_.test if nodes is None else _ids(nodes, graph)
        ids = ids[graph.labels()[ids] >= 0]
        if not ids.size:
            raise InputError("none of these nodes has a label to compare with")
        return float((self.predict_proba(graph, ids).argmax(1) == graph.labels()[ids]).mean())

    def _known(self, graph: Graph | None) -> Graph:
        """Return the graph, made ready for this model; a saved model must be given it once."""
        if graph is None:
            if not hasattr(self, "_graph"):
                raise InputError("a loaded model does not carry its graph; pass it: predict(graph)")
            return self._graph
        if not hasattr(self, "_prepared") or not self._fits(self._prepared, graph):
            if graph.fingerprint != self.fingerprint_:
                raise InputError(
                    f"the model was trained on a graph with the fingerprint {self.fingerprint_}, this one has "
                    f"{graph.fingerprint}: its edges differ; train on this graph, or pass the one it was trained on"
                )
            prepared = self.prepare(graph)
            self._attach(graph, prepared)
        self._graph = graph
        return graph

    def _attach(self, graph: Graph, prepared: Prepared) -> None:
        """Put the fitted weights onto a graph prepared anew."""
        state = self.model_.state_dict() if hasattr(self, "model_") else self._state
        model = self._build(_with_classes(graph, len(self.classes_)), prepared)
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise InputError(f"the weights do not fit this graph: {str(error).splitlines()[-1].strip()}") from None
        self.model_ = model
        self._remember(graph, prepared)

    @property
    def patches_(self) -> Patches:
        """The patches of all nodes, as the fitted filter has them."""
        check_is_fitted(self)
        self._known(None)
        source = self.model_.patches
        if isinstance(source, SpectralPatches):
            return source.patches()
        return Patches(source.index.numpy(), source.score.numpy())

    def filter_response(self, points: int = 201) -> FilterResponse:
        """Return λ over [-1, 1] and the response g(λ) of the filter there, learned and at the start."""
        values = np.linspace(-1.0, 1.0, points, dtype=np.float32)
        if self.extractor in LEARNABLE:
            check_is_fitted(self)
            self._known(None)
            learned = response(self.model_.patches.filter, values)  # type: ignore[arg-type]
            return FilterResponse(values, learned, response(self._filter(), values))
        if self.extractor == "ppr":
            fixed = ppr_response(torch.from_numpy(values), self.c).numpy()
        else:
            fixed = response(FIXED[self.extractor](self.filters), values)
        return FilterResponse(values, fixed, fixed)

    # ---- keeping

    def save(self, folder: str | Path, source: dict[str, Any] | None = None) -> Path:
        """Write the weights (model.safetensors) and everything else (model.json) into a folder.

        ``source`` says where the graph came from, for ``gpatcher predict``.
        """
        check_is_fitted(self)
        self._known(None)
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: value.contiguous().clone() for name, value in self.model_.state_dict().items()}
        state |= {
            f"split.{part}": torch.as_tensor(getattr(self.split_, part).copy()) for part in ("train", "val", "test")
        }
        safetensors.torch.save_file(state, folder / "model.safetensors")
        about = {
            "format": _FORMAT,
            "format_version": _FORMAT_VERSION,
            "gpatcher": __version__,
            "parameters": self.get_params(),
            "classes": [str(c) for c in self.classes_],
            "fingerprint": self.fingerprint_,
            "features": int(self._prepared.x.shape[1]),
            "source": source,
        }
        (folder / "model.json").write_text(json.dumps(about, indent=1) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path, graph: Graph | None = None) -> Self:
        """Read a saved model; pass the graph it was trained on here or to `predict`."""
        folder = Path(folder)
        about = read_about(folder)
        try:
            state = safetensors.torch.load_file(folder / "model.safetensors")
        except (OSError, safetensors.SafetensorError) as error:
            raise InputError(f"{folder / 'model.safetensors'} is missing or damaged ({error}); train again") from None
        try:
            parameters = {**about["parameters"], "paths": tuple(about["parameters"]["paths"])}
            model = cls(**parameters)
            model.split_ = Split(*(state.pop(f"split.{part}").numpy() for part in ("train", "val", "test")))
            model.classes_ = np.array(about["classes"])
            model.fingerprint_ = about["fingerprint"]
        except (TypeError, KeyError) as error:
            raise InputError(f"{folder} does not hold a whole model of this version ({error}); train again") from None
        model._state = state
        if graph is not None:
            model._known(graph)
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_") or hasattr(self, "_state")


def read_about(folder: Path) -> dict[str, Any]:
    """Read and check the description of a saved model."""
    path = folder / "model.json"
    if not path.is_file():
        raise InputError(f"{folder} holds no saved model: there is no {path.name} in it")
    try:
        about: Any = json.loads(path.read_text())
        if not isinstance(about, dict) or about["format"] != _FORMAT:
            raise InputError(f"{path} does not describe a gpatcher model")
        version = int(about["format_version"])
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged ({error}); train again") from None
    if version > _FORMAT_VERSION:
        raise InputError(
            f"{path} was written by gpatcher {about.get('gpatcher')} in format {version}; this one reads up to "
            f"{_FORMAT_VERSION}: install a newer gpatcher"
        )
    return about


def _ids(nodes: Any, graph: Graph) -> IntArray:
    """Return node ids from ids or a mask, all of them in the graph."""
    array = np.asarray(nodes)
    array = np.flatnonzero(array) if array.dtype.kind == "b" else array.astype(np.int64)
    beyond = array[(array < 0) | (array >= graph.n)]
    if beyond.size:
        raise InputError(f"{beyond.size} nodes are not in the graph: {some(beyond)}; it has 0 to {graph.n - 1}")
    return array


def check_device(device: str) -> torch.device:
    """Return the device, or an error where it is not there."""
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"the device {device!r} cannot be used: {str(error).splitlines()[0]}") from None
    return place


def _with_classes(graph: Graph, count: int) -> Graph:
    return graph if graph.num_classes == count else replace(graph, classes=tuple(str(c) for c in range(count)))
