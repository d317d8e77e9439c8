"""Models on patch aggregates: the common base of boosted trees and linear models."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import log_softmax

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.codec import from_json
from gpatcher.errors import InputError
from gpatcher.estimator.base import NodeModel, labelled
from gpatcher.estimator.persistence import SavedModel
from gpatcher.estimator.prepare import Patching, Prepared, as_extractors, prepare, prepare_unseen, training_labels
from gpatcher.estimator.settings import Settings, make_config, sources_to_settings, to_sources
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split, is_labelled
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.model.aggregates import aggregate, components, member_weights
from gpatcher.model.inputs import FeatureConfig
from gpatcher.patches.base import Patches
from gpatcher.patches.hop import Hop
from gpatcher.patches.ppr import PPR
from gpatcher.tables.typed_encoder import Encoder
from gpatcher.training.task import Regression
from gpatcher.trust.calibration import calibrate
from gpatcher.trust.columns import column_groups
from gpatcher.trust.explain import Describer, shorten, top_two
from gpatcher.trust.explanation import Explanation

_ROWS = 1 << 16  # nodes predicted at a time
_ABSENT = -12.0  # logit of a class without training nodes
_PATCHES = (Hop(size=512), PPR(size=64, c=0.9))


class AggregateModel(NodeModel):
    """A scikit-learn model on patch aggregates.

    Parameters
    ----------
    patches : Extractor, str or sequence of Extractor
        How patches are made; not by learned filters.
    features : FeatureConfig
        The node's own features.
    model : TreesConfig or LinearConfig
    memory, device, seed
        See `GPatcherClassifier`; the device is always cpu.

    Attributes
    ----------
    split_, calibration_
        See `NodeModel`.
    stopped_ : float
        Chosen on the validation nodes: the number of boosting iterations, or the inverse strength of the penalty.
    """

    config: ClassVar[type[Any]]

    def __init__(
        self,
        *,
        patches: Patching = _PATCHES,
        features: FeatureConfig = FeatureConfig(),
        model: Any = None,
        memory: int | None = None,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        self.patches = patches
        self.features = features
        self.model = model
        self.memory = memory
        self.device = device
        self.seed = seed

    @classmethod
    def from_settings(cls, settings: Settings, **parameters: Any) -> Self:
        """Return a classifier from settings with the sections patches, features and model."""
        parts: dict[str, Any] = {}
        if "patches" in settings:
            parts["patches"] = to_sources(settings["patches"])
        if "features" in settings:
            parts["features"] = make_config("features", settings["features"])
        parts["model"] = from_json(cls.config, settings.get("model", {}), f"the model {cls.kind!r}")
        return cls(**parts, **parameters)

    def settings(self) -> Settings:
        """Return the settings, defaults included."""
        sources = sources_to_settings(as_extractors(self.patches))
        features = {**asdict(self.features), "structure": list(self.features.structure)}
        return {"patches": sources, "features": features, "model": asdict(self._config())}

    def _config(self) -> Any:
        return self.config() if self.model is None else self.model

    # ---- fitting

    def prepare(self, graph: Graph) -> Prepared:
        """Compute the features and patches, which do not depend on a split."""
        extractors = tuple(one for e in as_extractors(self.patches) for one in e.resolve(graph, self.memory))
        prepared = prepare(graph, extractors, self.features, memory=self.memory)
        if not all(isinstance(data, Patches) for data in prepared.data):
            raise InputError(f"{self.kind} reads fixed patches; choose ppr or hop, not a learned filter")
        return prepared

    def fit(self, graph: Graph, split: Split | int | None = None, *, prepared: Prepared | None = None) -> Self:
        """Train on a graph; see `NodeClassifier.fit`. ``prepared`` is what `prepare` returned for it."""
        self._begin(graph, split)
        self._prepared = self.prepare(graph) if prepared is None else prepared
        self._own_of: Prepared | None = None
        self.extractors_ = self._prepared.extractors
        self._components = components(self._prepared.x, self._config().components, self.seed)
        train, val = self.split_.train, labelled(graph, self.split_.val)
        y = graph.labels()
        self.state_: dict[str, Any] = {}
        self.stopped_ = 0.0
        if isinstance(self.task_, Regression):
            # one output, the standardised number
            self.present_, self._prior = np.zeros(1, np.int64), np.zeros(1, np.float32)
            target = self.task_.target(y).double().numpy()
            self._learn(self._columns(train), target[train], self._columns(val), target[val])
        else:
            self.present_ = np.unique(y[train])
            self._prior = (np.bincount(y[train], minlength=self.num_outputs) / len(train)).astype(np.float32)
            if len(self.present_) > 1:
                seen = val[np.isin(y[val], self.present_)]
                position = np.searchsorted(self.present_, y)
                self._learn(self._columns(train), position[train], self._columns(seen), position[seen])
        held_out = val if val.size else train
        self.calibration_ = calibrate(self.decision_function(graph, held_out), y[held_out], self.seed)
        return self

    @abstractmethod
    def _learn(self, rows: Any, y: npt.NDArray[Any], val_rows: Any, val_y: npt.NDArray[Any]) -> None:
        """Fit ``state_`` and ``stopped_``; without validation rows, with the largest number of iterations."""

    @abstractmethod
    def _fits(self, columns: int) -> bool:
        """Whether the weights are of this many columns."""

    @abstractmethod
    def _scores(self, rows: Any) -> FloatArray:
        """Return the scores of the classes that have training nodes, shape (b, len(present_)), or numbers (b, 1)."""

    @abstractmethod
    def fixed(self, stopped: float) -> Self:
        """Return an unfitted copy with the number of iterations, or the penalty, fixed to ``stopped``."""

    def _own(self) -> FloatArray:
        """Return the columns of all nodes that are averaged over patches, shape (n, k)."""
        if self._own_of is not self._prepared:
            self._own_columns = self._prepared.x.linear(torch.from_numpy(self._components)).numpy()
            self._own_of = self._prepared
        return self._own_columns

    def _columns(self, nodes: IntArray) -> Any:
        """Return the input of the model for some nodes of the graph."""
        labels = training_labels(self._prepared.graph.labels(), self.split_.train).numpy()
        patches = [data[nodes] for data in self._prepared.data]
        return self._assemble(self._prepared, self._own(), patches, nodes, labels)

    def _assemble(
        self, prepared: Prepared, own: FloatArray, patches: list[Patches], rows: IntArray, labels: IntArray
    ) -> Any:
        weights = [member_weights(one, len(own)) for one in patches]
        return aggregate(own, weights, rows, labels, self._prior)

    # ---- prediction

    def decision_function(self, graph: Graph | UnseenNodes | None = None, nodes: Any = None) -> FloatArray:
        """Return the logits; see `NodeClassifier.decision_function`."""
        if isinstance(graph, UnseenNodes):
            if nodes is not None:
                raise InputError("nodes selects nodes of a graph; leave it out for unseen nodes")
            return self._unseen_logits(graph)
        graph, ids = self._select(graph, nodes)
        parts = [self._logits(self._columns(part)) for part in np.split(ids, range(_ROWS, len(ids), _ROWS))]
        return np.concatenate(parts)

    def _logits(self, rows: Any) -> FloatArray:
        if isinstance(self.task_, Regression):
            return self.task_.answer(self._checked_scores(rows))
        logits = np.full((rows.shape[0], self.num_outputs), _ABSENT, np.float32)
        scores = self._checked_scores(rows) if len(self.present_) > 1 else np.zeros((rows.shape[0], 1))
        logits[:, self.present_] = log_softmax(scores, axis=1)
        return logits

    def _checked_scores(self, rows: Any) -> FloatArray:
        if not self._fits(rows.shape[1]):  # compiled code would read beyond them
            raise InputError(f"the weights in {self.saved_in} do not fit {rows.shape[1]:,} columns; train again")
        return self._scores(rows)

    def _unseen_logits(self, unseen: UnseenNodes) -> FloatArray:
        self._check_edges(unseen.graph)
        prepared, nodes = prepare_unseen(unseen, self.extractors_, self.features, memory=self.memory)
        known = training_labels(unseen.graph.labels(), self.split_.train).numpy()
        labels = np.append(known, np.full(unseen.count, np.nan if known.dtype.kind == "f" else -1, known.dtype))
        own = prepared.x.linear(torch.from_numpy(self._components)).numpy()
        rows = np.searchsorted(nodes, unseen.nodes)
        return self._logits(self._assemble(prepared, own, list(prepared.data), rows, labels[nodes]))

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
        """Explain several nodes; see `NodeClassifier.explain_nodes`.

        The contribution of a column is exact: the changes of value along the decision paths of the trees, or the
        coefficient times the deviation from the mean. The contribution of a mean or histogram over a patch is divided
        among the members by weight.
        """
        self._check_fitted()
        graph, ids = self._select(graph, nodes)
        rows, logits = self._columns(ids), self.decision_function(graph, ids)
        asked = pairs is not None
        regression = isinstance(self.task_, Regression)
        if pairs is None:
            pairs = np.zeros((len(ids), 2), np.int64) if regression else top_two(logits)
        describer = Describer(graph, self.split_, self.class_names_)
        groups = column_groups(encoder, graph.num_features, self._prepared.x.shape[1]) if columns else ()
        probability = [None] * len(ids) if regression else self.calibration_.probability(logits).max(1).tolist()
        known = is_labelled(training_labels(graph.labels(), self.split_.train).numpy())
        explanations = []
        for i, node in enumerate(ids.tolist()):
            own, parts, start = self._contributions(rows[[i]], pairs[i])
            members: list[tuple[int, int, int, float, float]] = []
            total = float(own.sum())
            for source, ((mean, labels), data) in enumerate(zip(parts, self._prepared.data, strict=True)):
                patch = data[[node]]
                at = np.flatnonzero(patch.index[0] >= 0)[1:]
                who, score = patch.index[0, at], patch.score[0, at]
                share = np.abs(score) / max(np.abs(score).sum(), 1e-12)
                labelled_share = share * known[who] / max((share * known[who]).sum(), 1e-12)
                added = mean * share + labels * labelled_share
                total += (mean + labels) - float(added.sum())  # an empty patch: its columns count as the node's
                figures = zip(who.tolist(), at.tolist(), score.tolist(), added.tolist(), strict=True)
                members += [(v, source, int(position), s, c) for v, position, s, c in figures]
            members.insert(0, (node, 0, 0, 1.0, total))
            names = ("node", "source", "position", "score", "contribution")
            arrays = {name: np.array([m[k] for m in members]) for k, name in enumerate(names)}
            margin = float(logits[i, 0] if regression else logits[i, pairs[i, 0]] - logits[i, pairs[i, 1]])
            figures_ = {"margin": margin, "start": start, "probability": probability[i]}
            listed = describer.own_columns(self._prepared.x, node, self._feature_shares(node, own), groups)
            listed = listed if asked else shorten(listed)
            explanations.append(
                describer.explanation(node, pairs[i].tolist(), figures_, arrays, listed if columns else ())
            )
        return explanations

    def _contributions(self, row: Any, pair: IntArray) -> tuple[FloatArray, list[tuple[float, float]], float]:
        """Return the contributions of own columns, of the mean and the labels of each source, and the bias."""
        task = self.task_
        if not np.isin(pair, self.present_).all():
            logits = self._logits(row)[0]  # a class without training nodes: its logit is constant
            own = np.zeros(self._widths()[0])
            return own, [(0.0, 0.0)] * len(self.extractors_), float(logits[pair[0]] - logits[pair[1]])
        per_class, biases = self._attribute(row)
        if len(biases) < len(self.present_):  # two classes with one output
            per_class, biases = np.vstack([np.zeros_like(per_class), per_class]), np.append(0.0, biases)
        if isinstance(task, Regression):
            difference, start = task.scale * per_class[0], task.mean + task.scale * float(biases[0])
        else:
            a, b = np.searchsorted(self.present_, pair)
            difference, start = per_class[a] - per_class[b], float(biases[a] - biases[b])
        first, mean, histogram = self._widths()
        parts = []
        at = first
        for _ in self.extractors_:
            parts.append(
                (float(difference[at : at + mean].sum()), float(difference[at + mean : at + mean + histogram].sum()))
            )
            at += mean + histogram
        return difference[:first], parts, start

    def _widths(self) -> tuple[int, int, int]:
        """Return the numbers of own columns, and of the means and label columns of each source."""
        width = self._components.shape[1]
        return width, width, self.num_outputs + 1

    @abstractmethod
    def _attribute(self, row: Any) -> tuple[FloatArray, FloatArray]:
        """Return the contribution of each column to each output, shape (outputs, columns), and the biases."""

    def _feature_shares(self, node: int, own: FloatArray) -> FloatArray:
        """Divide the contributions of the own columns among the features they are computed from, shape (d,)."""
        values = self._prepared.x.rows(torch.tensor([node]))[0].numpy(force=True)
        parts = np.abs(values[:, None] * self._components)
        total = parts.sum(0)
        shares = np.divide(parts, total, out=np.full_like(parts, 1 / len(parts)), where=total > 0)
        return np.asarray(shares @ own)

    def _attach(self, graph: Graph | None, nodes: IntArray | None = None) -> Graph:
        if self._is_prepared(graph, nodes, "cpu"):
            return self._prepared_graph(graph)
        graph = self._prepared_graph(graph)
        self._check_edges(graph)
        self._prepared = prepare(
            graph, self.extractors_, self.features, memory=self.memory, shared=self.shared, nodes=nodes
        )
        self._own_of = None
        return graph

    # ---- persistence

    def to_saved(self, source: dict[str, Any] | None = None) -> SavedModel:
        """Return the fitted model as it is saved on disk."""
        return SavedModel(
            kind=self.kind,
            parameters={"settings": self.settings(), "memory": self.memory, "seed": self.seed},
            details={
                "extractors": sources_to_settings(self.extractors_),
                "present": self.present_.tolist(),
                "stopped": self.stopped_,
                **self._target(),
            },
            classes=self.class_names_,
            fingerprint=self.fingerprint_,
            split=self.split_,
            calibration=self.calibration_,
            state={
                "components": torch.from_numpy(self._components),
                "prior": torch.from_numpy(self._prior),
                **{name: torch.as_tensor(value) for name, value in self.state_.items()},
            },
            source=source,
        )

    @classmethod
    def from_saved(cls, saved: SavedModel) -> Self:
        """Return the fitted classifier, which needs its graph before it predicts."""
        parameters = dict(saved.parameters)
        model = cls.from_settings(parameters.pop("settings"), **parameters)
        model.extractors_ = to_sources(saved.details["extractors"])
        model.present_ = np.array(from_json(list[int], saved.details["present"], "present"))
        if not ((model.present_ >= 0) & (model.present_ < max(1, len(saved.classes)))).all():
            raise InputError(f"present must be positions in {len(saved.classes)} classes, got {model.present_}")
        model.stopped_ = from_json(float, saved.details["stopped"], "stopped")
        state = {name: value.numpy() for name, value in saved.state.items()}
        model._components, model._prior = state.pop("components"), state.pop("prior")
        model.state_ = state
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "state_")
