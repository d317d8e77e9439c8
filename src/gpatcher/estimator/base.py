"""The interface of all models of nodes: classifiers and regressors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch

from gpatcher.arrays import FloatArray, IntArray, as_node_index
from gpatcher.codec import from_json
from gpatcher.errors import InputError
from gpatcher.estimator.batches import Batch
from gpatcher.estimator.parameters import NestedParameters
from gpatcher.estimator.persistence import SavedModel
from gpatcher.estimator.prepare import Prepared
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split, is_labelled, stratified_split
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.model.inputs import FeatureConfig
from gpatcher.patches.base import Extractor
from gpatcher.tables.typed_encoder import Encoder
from gpatcher.training.task import Classification, Regression, Task, task_of
from gpatcher.trust.calibration import Calibration, Intervals
from gpatcher.trust.explanation import Explanation


class NodeModel(NestedParameters, ABC):
    """A model of the nodes of one graph, and of unseen nodes that link to it.

    Attributes
    ----------
    split_ : Split
        The split used.
    task_ : Classification or Regression
        The loss and the scale of the outputs.
    calibration_ : Calibration or Intervals
        Temperature and conformal thresholds, fitted on the validation nodes.
    fingerprint_ : str
        Hash of the edges of the training graph.
    """

    kind: ClassVar[str]  # in the manifest of a saved model
    device: str
    seed: int
    split_: Split
    task_: Task
    calibration_: Any
    fingerprint_: str
    class_names_: list[str]  # empty in a regression
    saved_in: Path | None = None  # the folder it was read from, for messages
    extractors_: tuple[Extractor, ...]  # of models that read patches, as are the next two
    features: FeatureConfig
    _prepared: Prepared
    shared: list[Prepared] | None = None  # with the other models of an ensemble, see `prepare`

    @abstractmethod
    def fit(self, graph: Graph, split: Split | int | None = None) -> Self:
        """Train on a graph.

        ``split`` is a split, or the number of one of the graph's splits. By default it is the graph's first split; if
        there is none, the labelled nodes are split at random, stratified (60 % train, 20 % validation, 20 % test).
        """

    @abstractmethod
    def decision_function(self, graph: Graph | UnseenNodes | None = None, nodes: Any = None) -> FloatArray:
        """Return the logits, or the predicted numbers.

        Parameters
        ----------
        graph : Graph or UnseenNodes, optional
            The training graph, needed once for a loaded model; or unseen nodes, for which the result is that of the
            same weights on the extended graph.
        nodes : int or bool array, optional
            Nodes of the graph as ids or as a mask; all by default.

        Returns
        -------
        float array, shape (len(nodes), C) or (len(nodes), 1)
        """

    def decision_batches(self, graph: Graph, pieces: Sequence[IntArray]) -> list[Batch]:
        """Return the parts of the results of `decision_function` for ``pieces`` that can be computed on their own.

        Each part has its nodes and a function for their logits, which are bitwise those of the whole piece. By default
        a part is a piece.
        """
        return [(nodes, partial(self.decision_function, graph, nodes)) for nodes in pieces]

    @abstractmethod
    def predict(self, graph: Graph | UnseenNodes | None = None, nodes: Any = None) -> npt.NDArray[Any]:
        """Return the predicted class or number of each node; see `decision_function`."""

    def score(self, graph: Graph | None = None, nodes: Any = None) -> float:
        """Return the accuracy, or R² of numbers, on these nodes, by default on the test nodes of ``split_``."""
        self._check_fitted()
        graph = self._attach(graph)
        ids = self.split_.test if nodes is None else as_node_index(nodes, graph.n)
        ids = labelled(graph, ids)
        if not ids.size:
            raise InputError("none of these nodes has a label to compare with")
        return self.task_.score(self.decision_function(graph, ids), graph.labels()[ids])

    def validation_score(self, graph: Graph | None = None) -> float:
        """Return the score on the validation nodes, from models that were not trained on them."""
        self._check_fitted()
        return self.score(graph, self.split_.val)

    def explain(self, node: int, graph: Graph | None = None, encoder: Encoder | None = None) -> Explanation:
        """Return the node's patch and the contribution of each member to the decision; see `explain_nodes`."""
        return self.explain_nodes([node], graph, encoder=encoder, columns=True)[0]

    @abstractmethod
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
        """Explain several nodes; faster than `explain` for each.

        Parameters
        ----------
        nodes : int or bool array
        graph : Graph, optional
            See `decision_function`.
        encoder : TableEncoder, optional
            Encoder of the tables that the graph came from; the node's own columns are then shown with their values.
        columns : bool
            Whether to divide the contribution of the node itself among its columns.
        pairs : int array, shape (nodes, 2), optional
            The classes whose logits are compared; by default the two most probable ones.
        share : float
            Weight of the model in an ensemble; with a smaller one its integrals are computed less precisely.
        """

    def on_graph(self, graph: Graph, shared: list[Prepared] | None = None) -> Self:
        """Return a copy with the same weights that reads another graph of the same nodes, such as without an edge.

        The copy must be given the graph when it predicts. ``shared`` are prepared graphs that it may reuse, see
        `prepare`.
        """
        saved = self.to_saved()
        if graph.fingerprint != saved.fingerprint:  # a patch table is of the graph itself
            saved = replace(saved, fingerprint=graph.fingerprint, details={**saved.details, "patch_table": None})
        model = self.restore(saved)
        model.shared = shared
        return model

    def prepared(self) -> list[Prepared]:
        """Return the graph as prepared for this model, or for the members of an ensemble."""
        return [self._prepared]

    @abstractmethod
    def to_saved(self, source: dict[str, Any] | None = None) -> SavedModel:
        """Return the fitted model as it is saved on disk; ``source`` says where the graph came from."""

    @classmethod
    @abstractmethod
    def from_saved(cls, saved: SavedModel) -> Self:
        """Return the fitted model without the attributes that `restore` sets."""

    @classmethod
    def restore(cls, saved: SavedModel) -> Self:
        """Return the fitted model, which needs its graph before it predicts."""
        try:
            model = cls.from_saved(saved)
            model.task_ = (
                Classification() if saved.classes else from_json(Regression, saved.details["target"], "target")
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the saved model in {saved.folder} is incomplete ({error}); train again") from None
        model.class_names_, model.fingerprint_ = list(saved.classes), saved.fingerprint
        model.saved_in = saved.folder
        model.split_, model.calibration_ = saved.split, saved.calibration
        return model

    @classmethod
    def load(cls, folder: str | Path, graph: Graph | None = None) -> Self:
        """Read a saved model; pass the graph it was trained on here or to `predict`."""
        saved = SavedModel.read(Path(folder))
        if saved.kind != cls.kind:
            raise InputError(f"the model in {folder} is of the kind {saved.kind!r}, not {cls.kind!r}; use load_model")
        model = cls.restore(saved)
        if graph is not None:
            model._attach(graph)
        return model

    def save(self, folder: str | Path, source: dict[str, Any] | None = None) -> Path:
        """Write the weights (model.safetensors) and everything else (model.json) into a folder.

        ``source`` says where the graph came from, for ``gpatcher predict``.
        """
        self.to_saved(source).write(Path(folder))
        return Path(folder)

    @abstractmethod
    def _attach(self, graph: Graph | None, nodes: IntArray | None = None) -> Graph:
        """Return the graph, prepared for this model and at least these nodes; a loaded model must be given it once."""

    def _is_prepared(self, graph: Graph | None, nodes: IntArray | None, device: str) -> bool:
        """Return whether this graph, by default that of the last call, is prepared for these nodes, by default all."""
        if not hasattr(self, "_prepared"):
            return False
        if graph is None:
            return self._prepared.has_nodes(nodes)
        return self._prepared.fits(graph, self.extractors_, self.features, device, nodes)

    def _prepared_graph(self, graph: Graph | None) -> Graph:
        """Return this graph, by default that of the last call; an error if there is none."""
        if graph is not None:
            return graph
        if not hasattr(self, "_prepared"):
            raise InputError("a loaded model does not contain its graph; pass it: predict(graph)")
        return self._prepared.graph

    def _select(self, graph: Graph | None, nodes: Any) -> tuple[Graph, IntArray]:
        """Return the graph, prepared for these nodes, by default all, and their indices."""
        if nodes is None:
            graph = self._attach(graph)
            return graph, np.arange(graph.n)
        ids = as_node_index(nodes, self._prepared_graph(graph).n)
        return self._attach(graph, ids), ids

    @abstractmethod
    def _check_labels(self, graph: Graph) -> None:
        """Raise an InputError if the labels of the graph are not what this model predicts."""

    def _begin(self, graph: Graph, split: Split | int | None) -> None:
        """Check the labels, and set the attributes that are known before training."""
        self._check_labels(graph)
        self.split_ = self._choose_split(graph, split)
        self.task_ = task_of(graph.labels(), self.split_.train)
        self.class_names_, self.fingerprint_ = list(graph.classes), graph.fingerprint

    @property
    def num_outputs(self) -> int:
        """Number of classes, or 1 in a regression."""
        return len(self.class_names_) or 1

    def _target(self) -> dict[str, Any]:
        """Return the mean and the scale of numbers as a detail of a saved model; nothing for classes."""
        return {"target": asdict(self.task_)} if isinstance(self.task_, Regression) else {}

    def _choose_split(self, graph: Graph, split: Split | int | None) -> Split:
        if isinstance(split, Split):
            if not any(split is own for own in graph.splits):
                graph.with_splits([split])  # checks it
            return split
        if split is None and not graph.splits:
            return stratified_split(graph.labels(), 0.6, 0.2, self.seed)
        number = 0 if split is None else split
        if not 0 <= number < len(graph.splits):
            raise InputError(f"{graph.name} has no split {number}; its splits are 0 to {len(graph.splits) - 1}")
        return graph.splits[number]

    def _check_edges(self, graph: Graph) -> None:
        if graph.fingerprint != self.fingerprint_:
            where = "" if self.saved_in is None else f" in {self.saved_in}"
            raise InputError(
                f"the model{where} was trained on a graph with the fingerprint {self.fingerprint_}, this one has "
                f"{graph.fingerprint}: its edges differ; train on this graph, or pass the one it was trained on"
            )


class NodeClassifier(NodeModel):
    """A classifier of nodes, see `NodeModel`.

    Attributes
    ----------
    classes_ : array of str
        Names of the classes.
    """

    _estimator_type = "classifier"
    calibration_: Calibration

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """Names of the classes."""
        return np.array(self.class_names_)

    def predict_proba(
        self, graph: Graph | UnseenNodes | None = None, nodes: Any = None, *, calibrated: bool = True
    ) -> FloatArray:
        """Return the probability of each class, shape (len(nodes), C); see `decision_function`.

        ``calibrated=False`` returns the softmax of the logits, before calibration.
        """
        logits = self.decision_function(graph, nodes)
        return self.calibration_.probability(logits) if calibrated else torch.from_numpy(logits).softmax(1).numpy()

    def predict_sets(
        self, graph: Graph | UnseenNodes | None = None, nodes: Any = None, *, level: float = 0.9
    ) -> npt.NDArray[Any]:
        """Return conformal prediction sets as a mask, shape (len(nodes), C); see `Calibration.sets`.

        A set contains the true class with probability ``level``.
        """
        logits = self.decision_function(graph, nodes)
        return self.calibration_.sets(logits, level)

    def predict(self, graph: Graph | UnseenNodes | None = None, nodes: Any = None) -> npt.NDArray[Any]:
        """Return the name of the most probable class of each node; see `decision_function`."""
        chosen = self.predict_proba(graph, nodes).argmax(1)
        names: npt.NDArray[Any] = self.classes_[chosen]
        return names

    def _check_labels(self, graph: Graph) -> None:
        if graph.is_regression:
            raise InputError(
                f"the labels of {graph.name} are numbers, not classes; use a regressor, such as GPatcherRegressor or "
                "AutoRegressor"
            )


class NodeRegressor(NodeModel):
    """A regressor of nodes, see `NodeModel`; labels are standardised by those of the training nodes."""

    _estimator_type = "regressor"
    calibration_: Intervals

    def predict(self, graph: Graph | UnseenNodes | None = None, nodes: Any = None) -> FloatArray:
        """Return the predicted number of each node, in the unit of the labels; see `decision_function`."""
        return np.asarray(self.decision_function(graph, nodes)[:, 0])

    def predict_interval(
        self, graph: Graph | UnseenNodes | None = None, nodes: Any = None, *, level: float = 0.9
    ) -> FloatArray:
        """Return conformal intervals, low and high, shape (len(nodes), 2); see `Intervals.intervals`.

        An interval contains the true number with probability ``level``.
        """
        return self.calibration_.intervals(self.decision_function(graph, nodes), level)

    def _check_labels(self, graph: Graph) -> None:
        if not graph.is_regression:
            raise InputError(
                f"the labels of {graph.name} are classes, not numbers; use a classifier, or build the graph with "
                "task='regression'"
            )


def labelled(graph: Graph, nodes: IntArray) -> IntArray:
    """Return the nodes that have a label."""
    return nodes[is_labelled(np.asarray(graph.labels())[nodes])]
