"""What is predicted, classes or numbers: the loss, the score, and how an output of a model is read.

Labels of a classification are integers, -1 where unknown; those of a regression are floats, NaN where unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from scipy.special import softmax
from torch import Tensor

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError
from gpatcher.training.metrics import METRICS, REGRESSION_METRICS, log_loss, measure, measure_all


@dataclass(frozen=True)
class Classification:
    """Classes: the outputs are logits."""

    metric = "accuracy"  # the score of a model, the larger the better

    def target(self, y: npt.NDArray[Any]) -> Tensor:
        """Return labels as the loss takes them."""
        return torch.as_tensor(np.array(y))

    def loss(self, outputs: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the cross-entropy, with weights of the classes."""
        return F.cross_entropy(outputs, target, weight=weights)

    def measure(self, name: str, outputs: Tensor, target: Tensor) -> float | None:
        """Return a metric of outputs; None if it is undefined."""
        if name not in METRICS:
            raise InputError(f"monitor={name} is for numbers; for classes it is loss, {', '.join(METRICS)} or last")
        if name == "accuracy":
            return float((outputs.argmax(1) == target).double().mean())
        return measure(name, target.numpy(), outputs.softmax(1).numpy())

    def answer(self, outputs: FloatArray) -> FloatArray:
        """Return the outputs as they are: logits, shape (b, C)."""
        return outputs

    def score(self, answers: FloatArray, y: npt.NDArray[Any]) -> float:
        """Return the accuracy."""
        return float((answers.argmax(1) == y).mean())

    def node_scores(self, answers: FloatArray, y: npt.NDArray[Any]) -> FloatArray:
        """Return 1 for a correct answer, else 0; the mean is the score."""
        return np.asarray((answers.argmax(1) == y).astype(float))

    def mean_loss(self, answers: FloatArray, y: npt.NDArray[Any]) -> float:
        """Return the log loss."""
        return log_loss(answers, y)

    def measure_all(self, answers: FloatArray, y: npt.NDArray[Any]) -> dict[str, Any]:
        """Return all metrics of answers."""
        return measure_all(y, softmax(answers, axis=1))


@dataclass(frozen=True)
class Regression:
    """Numbers: a model's output is standardised by the mean and the standard deviation of the training labels."""

    mean: float
    scale: float

    metric = "r2"

    def target(self, y: npt.NDArray[Any]) -> Tensor:
        """Return standardised labels, NaN where unknown."""
        return torch.as_tensor((np.asarray(y) - self.mean) / self.scale).float()

    def loss(self, outputs: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean squared error; there are no classes to weight."""
        return F.mse_loss(outputs.squeeze(1), target)

    def measure(self, name: str, outputs: Tensor, target: Tensor) -> float | None:
        """Return a metric of standardised outputs, negated if it is an error; R² instead of a metric of classes."""
        name = name if name in REGRESSION_METRICS else "r2"
        value = REGRESSION_METRICS[name](target.double().numpy(), outputs.squeeze(1).double().numpy())
        return value if name == "r2" or value is None else -value

    def answer(self, outputs: FloatArray) -> FloatArray:
        """Return the outputs in the unit of the labels, shape (b, 1)."""
        return np.asarray(self.mean + self.scale * np.asarray(outputs, dtype=np.float64))

    def score(self, answers: FloatArray, y: npt.NDArray[Any]) -> float:
        """Return R², NaN if all labels are equal."""
        value = REGRESSION_METRICS["r2"](y, answers[:, 0])
        return float("nan") if value is None else value

    def node_scores(self, answers: FloatArray, y: npt.NDArray[Any]) -> FloatArray:
        """Return 1 - (error)² / variance of the labels; the mean is the score."""
        return np.asarray(1.0 - np.square(answers[:, 0] - y) / (np.var(y) or self.scale**2))

    def mean_loss(self, answers: FloatArray, y: npt.NDArray[Any]) -> float:
        """Return the mean squared error."""
        return float(np.square(answers[:, 0] - y).mean())

    def measure_all(self, answers: FloatArray, y: npt.NDArray[Any]) -> dict[str, Any]:
        """Return all metrics of answers."""
        return {name: metric(np.asarray(y), answers[:, 0]) for name, metric in REGRESSION_METRICS.items()}


Task = Classification | Regression


def task_of(y: npt.NDArray[Any], train: IntArray) -> Task:
    """Return the task that the labels belong to; numbers are standardised by those of the training nodes."""
    y = np.asarray(y)
    if y.dtype.kind != "f":
        return Classification()
    return Regression(float(y[train].mean()), float(y[train].std()) or 1.0)
