"""LINKX: Lim et al. Large Scale Learning on Non-Homophilous Graphs. NeurIPS 2021."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.baselines.base import Baseline, Perceptron, Propagation, plain_adjacency
from gpatcher.errors import check_at_least
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class LINKX(Baseline):
    r"""Adjacency rows and features, each through an MLP of its own; an MLP on both.

    .. math:: h_A = \mathrm{MLP}_A(A), \quad h_X = \mathrm{MLP}_X(X), \quad
        \mathrm{logits} = \mathrm{MLP}\big(\mathrm{ReLU}(W [h_A \,\|\, h_X] + b + h_A + h_X)\big)

    Nothing is propagated, so the rows of a batch suffice. As in the paper, features and adjacency rows are not dropped.
    The other parameters are those of `Baseline`.

    NOTE[DIFF] the hidden layers have no batch norm.

    Parameters
    ----------
    dropout : float
        Dropout of the inputs of each layer of the last MLP.
    layers : int
        Number of layers of the last MLP.
    input_layers : int
        Number of layers of MLP_A and of MLP_X.
    directed : bool
        Whether row v of A has the edges from v alone, as filed, or those in both directions.
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {
        "hidden": [64, 32, 128, 256],
        "layers": [2, 1, 3],
        "directed": [False, True],
    }

    def __init__(
        self,
        graph: Graph,
        features: int,
        *,
        hidden: int = 64,
        dropout: float = 0.5,
        layers: int = 2,
        input_layers: int = 1,
        directed: bool = False,
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        check_at_least(1, input_layers=input_layers)
        self.adjacency = Propagation(plain_adjacency(graph, directed))
        self.of_edges, self.of_features = (
            Perceptron(width, hidden, hidden, layers=input_layers, dropout=0.0) for width in (graph.n, features)
        )
        self.join = nn.Linear(2 * hidden, hidden)
        self.head = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise([hidden, *self.widths]))

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        edges: Tensor = self.of_edges(self.adjacency.table(nodes.device), nodes)
        own: Tensor = self.of_features(x, nodes)
        h: Tensor = self.join(torch.cat([edges, own], 1)) + edges + own
        for layer in self.head:
            h = layer(self.drop(F.relu(h)))
        return h
