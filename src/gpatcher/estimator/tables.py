"""TableClassifier and TableRegressor, and the files that a run on tables saves in its folder."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError, counted, some
from gpatcher.estimator.base import NodeClassifier, NodeModel, NodeRegressor
from gpatcher.estimator.classifier import PatchModel
from gpatcher.estimator.ensemble import AutoClassifier, AutoModel, AutoRegressor
from gpatcher.estimator.folder import ENCODER, GRAPH
from gpatcher.graph.graph import Graph
from gpatcher.graph.storage import save_graph
from gpatcher.model.structure import with_structure_features
from gpatcher.tables.load import load_tables
from gpatcher.tables.result import Tables
from gpatcher.tables.write import write_table

_SPLIT = "split.parquet"
_PARTS = {"train": "train", "val": "validation", "test": "test"}


class _TableModel(BaseEstimator, ABC):  # type: ignore[misc]
    """What `TableClassifier` and `TableRegressor` share."""

    task: ClassVar[str]
    id: Any
    label: Any
    source: Any
    target: Any
    tables: dict[str, Any] | None
    seed: int
    model_: NodeModel  # fitted

    @abstractmethod
    def _make(self) -> Any:
        """Return the model to train, unfitted."""

    def fit(self, nodes: Any, edges: Any) -> Self:
        """Train on tables: paths, pyarrow tables or pandas frames; nodes without a label are predicted like others.

        Several tables of nodes or edges are a mapping of types to tables.
        """
        names: dict[str, Any] = {"id": self.id, "label": self.label, "source": self.source, "target": self.target}
        options = self.tables or {}
        if "task" in options:
            raise InputError(f"{type(self).__name__} is for {self.task}; leave 'task' out of tables")
        twice = [name for name in options if name in names]
        if twice:
            raise InputError(f"tables names {twice[0]!r}, which is a parameter of its own; pass {twice[0]}=...")
        tables = load_tables(nodes, edges, task=self.task, **names, **options).with_split(seed=self.seed)
        model = self._make()
        reads_rows = isinstance(model, PatchModel) and model.features.adjacency_features
        if tables.graph.x is None and not reads_rows:
            tables = replace(tables, graph=with_structure_features(tables.graph))
        self.tables_ = tables
        self.encoder_ = tables.encoder
        types = tables.graph.node_types
        self._rows = np.arange(tables.graph.n) if types is None else types.nodes()
        ids = node_ids(tables.graph)[self._rows]
        self.ids_ = ids if types is None else types.ids(ids)
        if isinstance(model, AutoModel):
            given = tables.options.split_columns or tables.options.folds
            refit = not (tables.options.split_column or tables.options.folds)
            self.model_ = model.fit(tables.graph, refit=refit, cross_validate=not given)
        else:
            self.model_ = model.fit(tables.graph)
        return self

    def predict(self, ids: Any = None) -> npt.NDArray[Any]:
        """Return the predicted class or number of these ids, by default of all in the order of ``ids_``."""
        check_is_fitted(self)
        return self.model_.predict(nodes=self._positions(ids))

    def score(self, ids: Any = None) -> float:
        """Return the accuracy, or R² of numbers, on these ids, by default on the test part of the split."""
        check_is_fitted(self)
        return self.model_.score(nodes=None if ids is None else self._positions(ids))

    def _positions(self, ids: Any) -> IntArray:
        if ids is None:
            return self._rows
        position = dict(zip(self.ids_.tolist(), self._rows.tolist(), strict=True))
        ids = np.asarray(ids, dtype=object).tolist()
        unknown = [value for value in ids if value not in position]
        if unknown:
            raise InputError(
                f"{counted(len(unknown), 'id is', 'ids are')} not among the nodes: "
                f"{some(repr(value) for value in unknown)}"
            )
        return np.array([position[value] for value in ids], dtype=np.int64)


class TableClassifier(ClassifierMixin, _TableModel):  # type: ignore[misc]
    """Node classifier on a table of nodes and a table of edges.

    Parameters
    ----------
    id, label, source, target : str
        Column names, as in `gpatcher.tables.options.TableOptions`.
    tables : dict, optional
        Other options of `TableOptions`, e.g. ``{"features": ["age"], "on_unknown_id": "drop"}``.
    classifier : NodeClassifier, optional
        The classifier to train, such as ``GPatcherClassifier()``; by default ``AutoClassifier()``.
    seed : int
        Seed of the split, if none is given.

    Attributes
    ----------
    classes_ : array of str
        Names of the classes.
    ids_ : array
        Ids of the nodes that are predicted, in the order of all predictions; of several types, the one with labels.
    encoder_ : TableEncoder, TypedEncoder or None
        The fitted encoder, None if the tables have no features.
    tables_ : Tables
        The graph, and counts of dropped and added rows.
    classifier_ : NodeClassifier
        The fitted classifier.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from gpatcher import GPatcherClassifier
    >>> from gpatcher.patches import PPR
    >>> from gpatcher.training.loop import TrainConfig
    >>> nodes = pa.table({"id": list("abcdefgh"), "label": ["x", "y"] * 4, "size": [1.0, 5.0] * 4})
    >>> edges = pa.table({"source": list("abcdefg"), "target": list("bcdefgh")})
    >>> model = TableClassifier(classifier=GPatcherClassifier(patches=PPR(size=4), train=TrainConfig(epochs=20)))
    >>> model.fit(nodes, edges).predict(["a", "b"]).shape
    (2,)
    """

    task = "classification"

    def __init__(
        self,
        *,
        id: Any = "id",
        label: Any = "label",
        source: Any = "source",
        target: Any = "target",
        tables: dict[str, Any] | None = None,
        classifier: NodeClassifier | None = None,
        seed: int = 0,
    ) -> None:
        self.id = id
        self.label = label
        self.source = source
        self.target = target
        self.tables = tables
        self.classifier = classifier
        self.seed = seed

    def _make(self) -> Any:
        return AutoClassifier(seed=self.seed) if self.classifier is None else clone(self.classifier)

    @property
    def classifier_(self) -> NodeModel:
        """The fitted classifier."""
        return self.model_

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """Names of the classes."""
        return np.array(self.model_.class_names_)

    def score(self, ids: Any = None) -> float:
        """Return the accuracy on these ids, by default on the test part of the split."""
        return _TableModel.score(self, ids)

    def predict_proba(self, ids: Any = None) -> FloatArray:
        """Return the probability of each class for these ids, by default for all in the order of ``ids_``."""
        check_is_fitted(self)
        return cast(NodeClassifier, self.model_).predict_proba(nodes=self._positions(ids))


class TableRegressor(RegressorMixin, _TableModel):  # type: ignore[misc]
    """Regressor of numbers on a table of nodes and a table of edges; see `TableClassifier`.

    Parameters
    ----------
    label : str
        Column of the nodes with the number to predict, empty where unknown.
    regressor : NodeRegressor, optional
        The regressor to train, such as ``GPatcherRegressor()``; by default ``AutoRegressor()``.
    id, source, target, tables, seed
        As for `TableClassifier`.
    """

    task = "regression"

    def __init__(
        self,
        *,
        id: Any = "id",
        label: Any = "label",
        source: Any = "source",
        target: Any = "target",
        tables: dict[str, Any] | None = None,
        regressor: NodeRegressor | None = None,
        seed: int = 0,
    ) -> None:
        self.id = id
        self.label = label
        self.source = source
        self.target = target
        self.tables = tables
        self.regressor = regressor
        self.seed = seed

    def _make(self) -> Any:
        return AutoRegressor(seed=self.seed) if self.regressor is None else clone(self.regressor)

    def predict_interval(self, ids: Any = None, *, level: float = 0.9) -> FloatArray:
        """Return conformal intervals of these ids, low and high, by default of all in the order of ``ids_``."""
        check_is_fitted(self)
        return cast(NodeRegressor, self.model_).predict_interval(nodes=self._positions(ids), level=level)

    def score(self, ids: Any = None) -> float:
        """Return R² on these ids, by default on the test part of the split."""
        return _TableModel.score(self, ids)


def node_ids(graph: Graph) -> npt.NDArray[Any]:
    """Return the ids of the nodes as in the table; their positions if there are none."""
    return np.arange(graph.n) if graph.node_ids is None else graph.node_ids


def keep_tables(tables: Tables, folder: Path) -> None:
    """Write encoder, split and graph into the folder of a run, so that it can predict without the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    if tables.encoder is not None:
        tables.encoder.save(folder / ENCODER)
    else:
        (folder / ENCODER).unlink(missing_ok=True)
    graph = tables.graph
    types = graph.node_types
    rows = np.arange(graph.n) if types is None else types.nodes()
    ids = node_ids(graph)[rows]
    columns: dict[str, npt.NDArray[Any]] = {"id": ids if types is None else types.ids(ids)}
    for number, split in enumerate(graph.splits):
        parts = np.full(graph.n, None, dtype=object)
        for part, name in _PARTS.items():
            parts[getattr(split, part)] = name
        columns["part" if len(graph.splits) == 1 else f"part_{number}"] = parts[rows]
    write_table(columns, folder / _SPLIT)
    if (folder / GRAPH / "graph.json").is_file():
        shutil.rmtree(folder / GRAPH)  # the graph of an earlier run
    save_graph(graph, folder / GRAPH)
