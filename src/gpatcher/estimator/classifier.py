"""GPatcherClassifier and GPatcherRegressor: the model with scikit-learn's conventions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError
from gpatcher.estimator.base import NodeClassifier, NodeModel, NodeRegressor, labelled
from gpatcher.estimator.batches import Batch, separate_batches
from gpatcher.estimator.cluster import train_on_cluster
from gpatcher.estimator.memory import DEFAULT_BATCH, choose_batch_size
from gpatcher.estimator.persistence import SavedModel
from gpatcher.estimator.prepare import (
    Patching,
    Prepared,
    as_extractors,
    prepare,
    prepare_table,
    prepare_unseen,
    resolve,
)
from gpatcher.estimator.settings import Settings, sources_to_settings, to_parts, to_settings, to_sources
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.model.config import ModelConfig
from gpatcher.model.gpatcher import CHUNK, GPatcher
from gpatcher.model.inputs import FeatureConfig, FeatureTable
from gpatcher.patches.base import LocalExtractor, Patches
from gpatcher.patches.base import Progress as ExtractionProgress
from gpatcher.patches.spectral import AdaptiveFilter, SpectralPatches
from gpatcher.patches.store import PatchTable
from gpatcher.scale.executors import RayEngine
from gpatcher.spectral.results import FilterResponse
from gpatcher.tables.typed_encoder import Encoder
from gpatcher.training.loop import FitResult, Progress, TrainConfig, fit, predict_logits
from gpatcher.training.task import Regression
from gpatcher.trust.calibration import calibrate
from gpatcher.trust.columns import column_groups
from gpatcher.trust.explain import explain_nodes
from gpatcher.trust.explanation import Explanation


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A model trained with one choice of extractors."""

    prepared: Prepared
    model: GPatcher
    result: FitResult
    batch_size: int | None
    workers_peak_mb: float


class PatchModel(NodeModel):
    """The model that reads patches, for classes and for numbers; see `GPatcherClassifier`."""

    _state: dict[str, Tensor]  # weights of a loaded model, until its graph is known

    def __init__(
        self,
        *,
        patches: Patching = AdaptiveFilter(),
        features: FeatureConfig = FeatureConfig(),
        model: ModelConfig = ModelConfig(),
        train: TrainConfig = TrainConfig(),
        memory: int | None = None,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        self.patches = patches
        self.features = features
        self.model = model
        self.train = train
        self.memory = memory
        self.device = device
        self.seed = seed

    # ---- parameters

    @classmethod
    def from_settings(cls, settings: Settings, **parameters: Any) -> Self:
        """Return a classifier from settings, see `gpatcher.estimator.settings`, and its other parameters."""
        return cls(**to_parts(settings), **parameters)

    def settings(self) -> Settings:
        """Return the settings, defaults included."""
        return to_settings(self.patches, self.features, self.model, self.train)

    # ---- fitting

    def fit(
        self,
        graph: Graph,
        split: Split | int | None = None,
        *,
        patch_table: PatchTable | str | Path | None = None,
        prepared: tuple[Prepared, ...] | None = None,
        progress: Progress | None = None,
        checkpoint: Path | None = None,
        engine: RayEngine | None = None,
        workers: int | None = None,
    ) -> Self:
        """Train on a graph.

        Parameters
        ----------
        graph : Graph
        split : Split or int, optional
            A split, or the number of one of the graph's splits. By default the graph's first split; if there is none,
            the labelled nodes are split at random, stratified (60 % train, 20 % validation, 20 % test).
        patch_table : PatchTable, str or Path, optional
            A patch table of this graph, or its folder; the edges are then not read.
        prepared : tuple of Prepared, optional
            The result of `prepare` for this graph, to avoid computing it again.
        progress : callable, optional
            Called after each epoch with its number and its metrics.
        checkpoint : Path, optional
            File for the state of training; if it exists, training continues from it.
        engine : RayEngine, optional
            A cluster to train on; needs ``patch_table``, and a ``checkpoint`` on a file system that all machines share.
        workers : int, optional
            Processes on the cluster; by default one per CPU (or GPU, with ``device="cuda"``), up to 8.
        """
        self._begin(graph, split)
        if prepared is None or not self._matches(prepared, graph):
            prepared = self.prepare(graph, patch_table)
        options = {}
        for option in prepared:
            name = " + ".join(extractor.name for extractor in option.extractors)
            path = checkpoint
            if checkpoint is not None and len(prepared) > 1:
                path = checkpoint.with_name(f"{checkpoint.stem}-{name}{checkpoint.suffix}")
            options[name] = self._train_option(option, progress, path, engine, workers)
        self.compared_ = {name: option.result.val_loss for name, option in options.items()}
        best = options[min(self.compared_, key=lambda name: self.compared_[name])]
        self.extractors_ = best.prepared.extractors
        self.result_, self.batch_size_, self.workers_peak_mb_ = best.result, best.batch_size, best.workers_peak_mb
        self.model_, self._prepared, self._table = best.model, best.prepared, best.prepared.table
        held_out = labelled(graph, self.split_.val if self.split_.val.size else self.split_.train)
        self.calibration_ = calibrate(self._logits(held_out), graph.labels()[held_out], self.seed)
        return self

    def fixed(self, stopped: float) -> Self:
        """Return an unfitted copy that trains for ``stopped`` epochs, without validation."""
        train = replace(self.train, monitor="last", epochs=max(1, round(stopped)))
        return type(self)(**{**self.get_params(deep=False), "train": train})

    @property
    def stopped_(self) -> float:
        """The epoch whose weights were kept."""
        return float(self.result_.best_epoch)

    def _train_option(
        self,
        prepared: Prepared,
        progress: Progress | None,
        checkpoint: Path | None,
        engine: RayEngine | None,
        workers: int | None,
    ) -> _Fitted:
        torch.manual_seed(self.seed)
        graph = prepared.graph
        model = prepared.build(graph.num_outputs, self.model, self.split_.train)
        passes = 4 if self.train.consistency else 1  # two, over as many nodes without a label again
        batch_size = self.train.batch_size or choose_batch_size(model, prepared, self.memory, passes)
        config = replace(self.train, batch_size=batch_size)
        model.check_training_memory(min(graph.n, batch_size or graph.n))
        peak = 0.0
        if engine is not None:
            peak = train_on_cluster(
                engine,
                prepared,
                self.split_,
                self.model,
                config,
                seed=self.seed,
                checkpoint=checkpoint,
                workers=workers,
                progress=progress,
            )
        result = fit(
            model,
            prepared.x,
            graph.labels(),
            self.split_,
            config,
            seed=self.seed,
            progress=progress,
            checkpoint=checkpoint,
        )
        return _Fitted(prepared, model, result, batch_size, peak)

    def prepare(
        self,
        graph: Graph,
        patch_table: PatchTable | str | Path | None = None,
        *,
        progress: ExtractionProgress | None = None,
    ) -> tuple[Prepared, ...]:
        """Compute features and patches, which do not depend on a split, for each choice of extractors to train.

        Parameters
        ----------
        graph : Graph
        patch_table : PatchTable, str or Path, optional
            A patch table of the graph, or its folder, to read instead of computing patches.
        progress : callable, optional
            Called with the steps done and the total, if no eigenvectors are needed.
        """
        extractors = as_extractors(self.patches)
        if patch_table is not None:
            return (prepare_table(graph, patch_table, extractors, self.features, self.device),)
        return tuple(
            prepare(graph, option, self.features, device=self.device, memory=self.memory, progress=progress)
            for option in resolve(extractors, graph, self.memory)
        )

    def _matches(self, prepared: tuple[Prepared, ...], graph: Graph) -> bool:
        if prepared[0].from_disk:
            options = [as_extractors(self.patches)]
        else:
            options = resolve(as_extractors(self.patches), graph, self.memory)
        return len(options) == len(prepared) and all(
            one.fits(graph, option, self.features, self.device) for one, option in zip(prepared, options, strict=True)
        )

    # ---- prediction

    def decision_function(self, graph: Graph | UnseenNodes | None = None, nodes: Any = None) -> FloatArray:
        """Return the logits.

        Parameters
        ----------
        graph : Graph or UnseenNodes, optional
            The training graph, needed once for a loaded model; or unseen nodes, for which the result is that of the
            same weights on the extended graph. With `PPR`, and with `PolynomialFilter` without eigenvectors, only walks
            from the unseen nodes are needed, so the cost does not depend on the size of the graph. `Hop` and
            `Overlap` build the extended graph; other extractors compute its eigenvectors.
        nodes : int or bool array, optional
            Nodes of the graph as ids or as a mask; all by default.

        Returns
        -------
        float array, shape (len(nodes), C)
        """
        self._check_fitted()
        if isinstance(graph, UnseenNodes):
            if nodes is not None:
                raise InputError("nodes selects nodes of a graph; leave it out for unseen nodes")
            return self._unseen_logits(graph)
        graph, ids = self._select(graph, nodes)
        return self._logits(ids)

    def decision_batches(self, graph: Graph, pieces: Sequence[IntArray]) -> list[Batch]:
        """Return the parts of `decision_function` that can be computed on their own; see `NodeModel`."""
        self._check_fitted()
        local = all(isinstance(extractor, LocalExtractor) for extractor in self.extractors_)
        # a model of fewer nodes may read all of them in each step
        if not local or self.model.rounds > 1 or graph.n <= CHUNK:
            return super().decision_batches(graph, pieces)
        self._attach(graph, pieces[0][:1])
        return separate_batches(self.model_, self._prepared.x, self.task_, pieces, self._batch_size())

    def explain_nodes(
        self,
        nodes: Any,
        graph: Graph | None = None,
        *,
        encoder: Encoder | None = None,
        columns: bool = False,
        pairs: IntArray | None = None,
        share: float = 1.0,
    ) -> list[Explanation]:
        """Explain several nodes; see `NodeClassifier.explain_nodes`."""
        self._check_fitted()
        graph, ids = self._select(graph, nodes)
        x = self._prepared.x
        groups = column_groups(encoder, graph.num_features, x.shape[1]) if columns else ()
        parts = (self.model_, x, graph, self.split_, self.class_names_, ids)
        if isinstance(self.task_, Regression):
            return explain_nodes(*parts, None, groups, pairs, self.task_, share)
        return explain_nodes(*parts, self.calibration_.temperature, groups, pairs, share=share)

    def on_graph(self, graph: Graph, shared: list[Prepared] | None = None) -> Self:
        """Return a copy that reads another graph of the same nodes; see `NodeClassifier.on_graph`."""
        model = super().on_graph(graph, shared)
        if not all(isinstance(extractor, LocalExtractor) for extractor in model.extractors_):
            model._attach(graph)
            if graph.fingerprint != self.fingerprint_:
                model.model_.reselect()
        return model

    def _batch_size(self) -> int:
        """Return how many nodes are predicted at a time."""
        chosen = self.train.batch_size or choose_batch_size(self.model_, self._prepared, self.memory)
        return chosen or DEFAULT_BATCH

    def _logits(self, ids: IntArray) -> FloatArray:
        batch = len(ids) if self.model_.reads_all(self._prepared.graph.n) else self._batch_size()
        return self.task_.answer(predict_logits(self.model_, self._prepared.x, ids, batch).numpy())

    def _unseen_logits(self, unseen: UnseenNodes) -> FloatArray:
        self._check_edges(unseen.graph)
        rounds = self.model.rounds > 1
        prepared, nodes = prepare_unseen(
            unseen, self.extractors_, self.features, whole=rounds, device=self.device, memory=self.memory
        )
        if hasattr(self, "model_"):
            model = prepared.adapt(self.model_, self.split_.train, nodes)
            for source, trained in zip(model.sources, self.model_.sources, strict=True):
                _load_unseen(source, trained.state_dict(), self.saved_in)
        else:
            model = prepared.build(self.num_outputs, self.model, self.split_.train, nodes)
            _load_unseen(model, self._state, self.saved_in)
        model.reselect()
        ids = unseen.nodes if rounds else np.arange(unseen.count)
        batch = len(ids) if rounds else self.train.batch_size or DEFAULT_BATCH
        return self.task_.answer(predict_logits(model, prepared.x, ids, batch).numpy())

    # ---- the graph

    def _attach(self, graph: Graph | None, nodes: IntArray | None = None) -> Graph:
        """Return the graph, prepared for this model; see `NodeModel._attach`."""
        nodes = None if self.model.rounds > 1 else nodes
        if self._is_prepared(graph, nodes, self.device):
            return self._prepared_graph(graph)
        graph = self._prepared_graph(graph)
        self._check_edges(graph)
        table = self._existing_table()
        if table is not None:
            prepared = prepare_table(graph, table, self.extractors_, self.features, self.device)
        else:
            prepared = prepare(
                graph,
                self.extractors_,
                self.features,
                device=self.device,
                memory=self.memory,
                shared=self.shared,
                nodes=nodes,
            )
        model = prepared.build(self.num_outputs, self.model, self.split_.train)
        _load_weights(model, dict(self._weights()), self.saved_in)
        self.model_, self._prepared = model, prepared
        return graph

    def _weights(self) -> Iterator[tuple[str, Tensor]]:
        state = self.model_.state_dict() if hasattr(self, "model_") else self._state
        return iter(state.items())

    def _existing_table(self) -> Path | None:
        """Return the folder of the patch table that the model was trained with; an error if it does not exist."""
        table: Path | None = getattr(self, "_table", None)
        if table is not None and not table.is_dir():
            [extractor] = self.extractors_
            options = f"--size {extractor.size} --c {extractor.c} --eps {extractor.eps}"  # type: ignore[attr-defined]
            options += f" --direction {extractor.direction}"  # type: ignore[attr-defined]
            options += " --self-loops" if extractor.self_loops else ""  # type: ignore[attr-defined]
            options += f" --edge-type {extractor.edge_type}" if extractor.edge_type else ""  # type: ignore[attr-defined]
            raise InputError(
                f"the patch table {table} that the model was trained with does not exist; make it again with "
                f"'gpatcher patches SOURCE {options} --out {table}', or pass its new folder (patch_table=, --patches)"
            )
        return table

    @property
    def patches_(self) -> Patches:
        """The patches of all nodes, from the first source."""
        self._check_fitted()
        self._attach(None)
        return self.model_.sources[0].patches()

    @property
    def features_(self) -> FeatureTable:
        """The table of input features."""
        self._check_fitted()
        self._attach(None)
        return self._prepared.x

    def filter_response(self, points: int = 201, source: int = 0) -> FilterResponse:
        """Return the response of a filter over [-1, 1], before and after training.

        Parameters
        ----------
        points : int
            Number of values of λ.
        source : int
            Index of the patch source.
        """
        self._check_fitted()
        self._attach(None)
        values = torch.from_numpy(np.linspace(-1.0, 1.0, points, dtype=np.float32))
        start = learned = self.extractors_[source].response(values).numpy()
        module = self.model_.sources[source]
        if isinstance(module, SpectralPatches):
            with torch.no_grad():
                learned = module.filter(values).numpy()
        return FilterResponse(values.numpy(), learned, start)

    # ---- persistence

    def to_saved(self, source: dict[str, Any] | None = None) -> SavedModel:
        """Return the fitted model as it is saved on disk."""
        self._check_fitted()
        return SavedModel(
            kind=self.kind,
            parameters={"settings": self.settings(), "memory": self.memory, "device": self.device, "seed": self.seed},
            details={
                "extractors": sources_to_settings(self.extractors_),
                "compared": self.compared_,
                "patch_table": None if self._table is None else str(self._table.absolute()),
                **self._target(),
            },
            classes=self.class_names_,
            fingerprint=self.fingerprint_,
            split=self.split_,
            calibration=self.calibration_,
            state=dict(self._weights()),
            source=source,
        )

    @classmethod
    def from_saved(cls, saved: SavedModel) -> Self:
        """Return the fitted classifier, which needs its graph before it predicts."""
        parameters = dict(saved.parameters)
        model = cls.from_settings(parameters.pop("settings"), **parameters)
        model.extractors_ = to_sources(saved.details["extractors"])
        model.compared_, table = saved.details["compared"], saved.details["patch_table"]
        model._table = None if table is None else Path(table)
        model._state = saved.state
        return model

    @classmethod
    def load(cls, folder: str | Path, graph: Graph | None = None, patch_table: str | Path | None = None) -> Self:
        """Read a saved model; pass the graph it was trained on here or to `predict`.

        ``patch_table`` is the folder of its patch table, if that has moved.
        """
        model = super().load(folder)
        if patch_table is not None:
            model._table = Path(patch_table)
        if graph is not None:
            model._attach(graph)
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_") or hasattr(self, "_state")


class GPatcherClassifier(NodeClassifier, PatchModel):
    """Node classifier that reads patches; with ``patches=PPR()`` it is Fast-GPatcher.

    Parameters
    ----------
    patches : Extractor, str or sequence of Extractor
        How patches are made: an extractor of `gpatcher.patches`, the name of one with its defaults, or several that the
        model reads side by side. ``"auto"`` trains a learned filter and personalised PageRank, and keeps the one with
        the smaller validation loss.
    features : FeatureConfig
        Input features of a node.
    model : ModelConfig
        Architecture of the model.
    train : TrainConfig
        Training parameters.
    memory : int, optional
        Bytes that eigenvectors may take, by default half of the free memory. With fixed patches, bytes that the whole
        run may take: batches have 4096 nodes, or as many as fit.
    device : str
        Where to train: cpu, cuda, ...
    seed : int
        Seed of the weights, of dropout and, if the graph has no split, of the split.

    Parameters of the parts are nested: ``set_params(train__lr=0.01)``.

    Attributes
    ----------
    extractors_ : tuple of Extractor
        The extractors in use, one per patch source: as given, or as chosen by ``auto``.
    compared_ : dict
        Validation loss of each choice of extractors that was compared.
    model_ : GPatcher
        The fitted model.
    result_ : FitResult
        Metrics of the training run.
    batch_size_ : int or None
        Nodes per step; None for all at once.
    patches_ : Patches
        The patches of all nodes, from the first source.
    features_ : FeatureTable
        The input features of all nodes.
    classes_, split_, calibration_
        See `NodeClassifier`.

    Examples
    --------
    >>> from gpatcher.datasets.synthetic import csbm
    >>> from gpatcher.patches import PPR
    >>> graph = csbm(phi=-0.9, n=200, features=10)
    >>> model = GPatcherClassifier(patches=PPR(size=8), train=TrainConfig(epochs=30)).fit(graph)
    >>> model.predict(nodes=[0, 1]).shape
    (2,)
    """

    kind = "patches"


class GPatcherRegressor(NodeRegressor, PatchModel):
    """Regressor of nodes that reads patches; see `GPatcherClassifier` for its parameters.

    Examples
    --------
    >>> from gpatcher.datasets.synthetic import neighbour_sum
    >>> from gpatcher.patches import PPR
    >>> graph = neighbour_sum(n=200)
    >>> model = GPatcherRegressor(patches=PPR(size=8), train=TrainConfig(epochs=30)).fit(graph)
    >>> model.predict(nodes=[0, 1]).shape, model.predict_interval(nodes=[0, 1], level=0.8).shape
    ((2,), (2, 2))
    """

    kind = "patch-regressor"


def _load_unseen(module: nn.Module, state: dict[str, Tensor], saved_in: Path | None) -> None:
    """Load all weights but the selected members, which are selected again for the unseen nodes."""
    kept = {name: value for name, value in state.items() if name.rpartition(".")[2] != "members"}
    if kept:
        _load_weights(module, kept, saved_in, strict=False)


def _load_weights(model: nn.Module, state: dict[str, Tensor], saved_in: Path | None, strict: bool = True) -> None:
    try:
        model.load_state_dict(state, strict=strict)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"the weights in {saved_in} do not fit this graph: {reason}; train again") from None
