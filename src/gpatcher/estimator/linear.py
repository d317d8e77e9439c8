"""Linear models on patch aggregates: on some graphs adjacency rows and a linear model are enough."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.estimator.aggregates import AggregateModel
from gpatcher.estimator.base import NodeClassifier, NodeRegressor
from gpatcher.estimator.prepare import Prepared
from gpatcher.patches.base import Patches


@dataclass(frozen=True)
class LinearConfig:
    """Multinomial logistic or ridge regression, which also reads the node's own features unreduced.

    Parameters
    ----------
    components : int
        If there are more features, their projections on this many singular vectors are averaged over patches.
    strengths : tuple of float
        Inverse strengths C of the L2 penalty to try; the one with the smallest validation loss is kept.
    """

    components: int = 128
    strengths: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "strengths", tuple(self.strengths))


class LinearModel(AggregateModel):
    """A linear model on the node's own features and patch aggregates, for classes and for numbers."""

    config = LinearConfig

    def _assemble(
        self, prepared: Prepared, own: FloatArray, patches: list[Patches], rows: IntArray, labels: IntArray
    ) -> Any:
        columns = super()._assemble(prepared, own, patches, rows, labels)[:, own.shape[1] :]
        as_they_are = prepared.x.take(torch.as_tensor(np.array(rows))).matrix()
        return sp.csr_array(sp.hstack([sp.csr_array(as_they_are), sp.csr_array(columns)]))

    def _learn(self, rows: Any, y: npt.NDArray[Any], val_rows: Any, val_y: npt.NDArray[Any]) -> None:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression, Ridge

        mean = np.asarray(rows.mean(axis=0)).ravel()
        squares = np.asarray(rows.multiply(rows).mean(axis=0)).ravel()
        scale = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 1e-12)
        # sparse columns, such as those of adjacency rows, are not scaled up
        scale = np.minimum(scale, 1.0)
        smallest = np.inf
        for strength in self._config().strengths:
            model = LogisticRegression(C=strength, max_iter=200) if self.class_names_ else Ridge(1 / strength)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(rows.multiply(scale).tocsr(), y)
            coefficients = np.atleast_2d(model.coef_) * scale
            state = {"coefficients": coefficients, "intercept": np.atleast_1d(model.intercept_), "mean": mean}
            state = {name: np.asarray(value, dtype=np.float32) for name, value in state.items()}
            loss = self.task_.mean_loss(_linear_scores(state, val_rows, len(self.present_)), val_y) if len(val_y) else 0
            if loss < smallest:
                smallest, self.state_, self.stopped_ = loss, state, strength

    def _fits(self, columns: int) -> bool:
        return bool(self.state_["coefficients"].shape[1] == columns)

    def _scores(self, rows: Any) -> FloatArray:
        return _linear_scores(self.state_, rows, len(self.present_))

    def _attribute(self, row: Any) -> tuple[FloatArray, FloatArray]:
        coefficients, mean = self.state_["coefficients"], self.state_["mean"]
        columns = coefficients * (np.asarray(row.todense()).ravel() - mean)
        return columns, coefficients @ mean + self.state_["intercept"]

    def _widths(self) -> tuple[int, int, int]:
        return self._prepared.x.shape[1], self._components.shape[1], self.num_outputs + 1

    def _feature_shares(self, node: int, own: FloatArray) -> FloatArray:
        return own

    def fixed(self, stopped: float) -> Self:
        """Return an unfitted copy with only this strength."""
        model = replace(self._config(), strengths=(stopped,))
        return type(self)(**{**self.get_params(deep=False), "model": model})


class LinearClassifier(NodeClassifier, LinearModel):
    """Logistic regression on the node's own features and patch aggregates.

    Examples
    --------
    >>> from gpatcher.datasets.synthetic import csbm
    >>> graph = csbm(phi=0.9, n=200, features=10)
    >>> LinearClassifier().fit(graph).predict(nodes=[0, 1]).shape
    (2,)
    """

    kind = "linear"


class LinearRegressor(NodeRegressor, LinearModel):
    """Ridge regression on the node's own features and patch aggregates."""

    kind = "linear-regressor"


def _linear_scores(state: dict[str, Any], rows: Any, outputs: int) -> FloatArray:
    scores = np.asarray(rows @ state["coefficients"].T + state["intercept"])
    return np.hstack([np.zeros_like(scores), scores]) if scores.shape[1] < outputs else scores
