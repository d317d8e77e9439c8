"""MLP: the features of a node alone, to show what the graph adds."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from gpatcher.baselines.base import Baseline, Perceptron
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class MLP(Baseline):
    r"""Multilayer perceptron on the features; edges are not used.

    .. math:: h \leftarrow \mathrm{ReLU}(h W + b)

    The parameters are those of `Baseline`.
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {"layers": [1, 2, 3]}

    def __init__(self, graph: Graph, features: int, *, hidden: int = 64, dropout: float = 0.5, layers: int = 2) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        self.perceptron = Perceptron(features, hidden, self.classes, layers=layers, dropout=dropout)

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        return self.perceptron(x, nodes)
