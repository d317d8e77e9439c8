"""Boosted trees on patch aggregates, a strong baseline on graphs with tabular features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import FloatArray
from gpatcher.estimator.aggregates import AggregateModel
from gpatcher.estimator.base import NodeClassifier, NodeRegressor
from gpatcher.kernels.trees import attribute_trees, sum_trees


@dataclass(frozen=True)
class TreesConfig:
    """Gradient-boosted trees.

    Parameters
    ----------
    components : int
        If there are more features, they are replaced by their projections on this many singular vectors.
    learning_rate : float
    leaves : int
        Maximum number of leaves per tree.
    iterations : int
        Maximum number of boosting iterations, with one tree per class (one for two classes).
    patience : int
        Iterations without a smaller validation loss after which training stops.
    l2 : float
        L2 regularisation of the leaf values.
    column_fraction : float
        Fraction of the columns that each split may choose from.
    """

    components: int = 48
    learning_rate: float = 0.05
    leaves: int = 15
    iterations: int = 400
    patience: int = 20
    l2: float = 1.0
    column_fraction: float = 0.5


class TreesModel(AggregateModel):
    """Gradient-boosted trees on patch aggregates, for classes and for numbers."""

    config = TreesConfig

    def _learn(self, rows: Any, y: npt.NDArray[Any], val_rows: Any, val_y: npt.NDArray[Any]) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        config = self._config()
        stop = len(val_y) > 0
        trees = HistGradientBoostingClassifier if self.class_names_ else HistGradientBoostingRegressor
        model = trees(
            learning_rate=config.learning_rate,
            max_leaf_nodes=config.leaves,
            max_iter=config.iterations,
            l2_regularization=config.l2,
            max_features=config.column_fraction,
            min_samples_leaf=int(np.clip(len(y) // 20, 2, 20)),
            early_stopping=stop,
            n_iter_no_change=config.patience,
            random_state=self.seed,
        )
        model.fit(rows, y, X_val=val_rows, y_val=val_y) if stop else model.fit(rows, y)
        self.stopped_ = float(max(1, model.n_iter_ - config.patience if stop else model.n_iter_))
        self.state_ = _flat_trees(model, int(self.stopped_))

    def _fits(self, columns: int) -> bool:
        return bool(self.state_["feature"].max(initial=-1) < columns)

    def _scores(self, rows: FloatArray) -> FloatArray:
        state = self.state_
        out = np.tile(state["start"], (len(rows), 1))
        sum_trees(np.ascontiguousarray(rows), *(state[name] for name in _TREE), out)
        return np.hstack([np.zeros_like(out), out]) if out.shape[1] < len(self.present_) else out

    def _attribute(self, row: FloatArray) -> tuple[FloatArray, FloatArray]:
        state = self.state_
        out = np.zeros((1, state["start"].shape[1], row.shape[1] + 1))
        attribute_trees(np.ascontiguousarray(row), *(state[name] for name in _TREE), out)
        return out[0, :, :-1], out[0, :, -1] + state["start"][0]

    def fixed(self, stopped: float) -> Self:
        """Return an unfitted copy with this number of iterations."""
        model = replace(self._config(), iterations=round(stopped))
        return type(self)(**{**self.get_params(deep=False), "model": model})


class TreesClassifier(NodeClassifier, TreesModel):
    """Gradient-boosted trees on patch aggregates.

    Examples
    --------
    >>> from gpatcher.datasets.synthetic import csbm
    >>> graph = csbm(phi=0.9, n=200, features=10)
    >>> TreesClassifier(model=TreesConfig(iterations=20)).fit(graph).predict(nodes=[0, 1]).shape
    (2,)
    """

    kind = "trees"


class TreesRegressor(NodeRegressor, TreesModel):
    """Gradient-boosted trees on patch aggregates, for numbers."""

    kind = "trees-regressor"


_TREE = ("root", "output", "feature", "threshold", "left", "right", "value")


def _flat_trees(model: Any, iterations: int) -> dict[str, npt.NDArray[Any]]:
    """Return the trees as flat arrays, for `sum_trees` and for files without pickle.

    scikit-learn has no public form of these trees; a test compares the sums with its own.
    """
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in _TREE}
    offset = 0
    for trees in model._predictors[:iterations]:
        for output, tree in enumerate(trees):
            nodes = tree.nodes
            leaf = nodes["is_leaf"].astype(bool)
            left, right = nodes["left"].astype(np.int64), nodes["right"].astype(np.int64)
            value, count = nodes["value"].astype(np.float64), nodes["count"].astype(np.float64)
            for node in np.flatnonzero(~leaf)[::-1]:  # children come after their parent
                a, b = left[node], right[node]
                value[node] = (count[a] * value[a] + count[b] * value[b]) / (count[a] + count[b])
            columns["root"].append(np.array([offset]))
            columns["output"].append(np.array([output]))
            columns["feature"].append(np.where(leaf, -1, nodes["feature_idx"].astype(np.int64)))
            columns["threshold"].append(nodes["num_threshold"].astype(np.float64))
            columns["left"].append(offset + left)
            columns["right"].append(offset + right)
            columns["value"].append(value)
            offset += len(nodes)
    start = np.asarray(model._baseline_prediction, dtype=np.float64).reshape(1, -1)
    return {"start": start} | {name: np.concatenate(parts) for name, parts in columns.items()}
