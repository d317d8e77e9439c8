"""GPRGNN (Chien et al., 2021): an MLP, then a learnable polynomial over what it predicts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.baselines.base import Baseline, Perceptron, Propagation, check_share, check_steps
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class GPRGNN(Baseline):
    """An MLP's predictions h spread by a learnable polynomial Σ_k γ_k Â^k h, with Â = D^-1/2 (A + I) D^-1/2.

    γ starts as personalised PageRank, γ_k = α (1 - α)^k and γ_K = (1 - α)^K, may turn negative, and is not decayed.

    Parameters
    ----------
    K : the highest power
    alpha : α of the start
    spread_dropout : share of the entries of h dropped before it is spread
    """

    # what its authors' settings for their data sets range over; K is the same for all
    SEARCH: ClassVar[dict[str, list[Any]]] = {
        "alpha": [0.1, 0.2, 0.5, 0.9, 1.0, 0.0],
        "spread_dropout": [0.5, 0.0, 0.7],
        "lr": [0.01, 0.05, 0.002, 0.005],
        "weight_decay": [5e-4, 0.0, 5e-3],
    }

    def __init__(
        self,
        graph: Graph,
        features: int,
        *,
        hidden: int = 64,
        dropout: float = 0.5,
        layers: int = 2,
        K: int = 10,
        alpha: float = 0.1,
        spread_dropout: float = 0.5,
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        check_steps(K, alpha)
        check_share("spread_dropout", spread_dropout)
        self.spread_dropout = spread_dropout
        self.perceptron = Perceptron(features, hidden, self.classes, layers=layers, dropout=dropout)
        self.propagate = Propagation(graph.normalised(self_loops=True))
        gamma = alpha * (1 - alpha) ** torch.arange(K + 1)
        gamma[-1] = (1 - alpha) ** K
        self.gamma = nn.Parameter(gamma)

    def undecayed(self) -> Iterable[nn.Parameter]:
        """Return γ: decay would pull it towards a filter that lets nothing through."""
        return [self.gamma]

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        z: Tensor = F.dropout(self.perceptron(x), self.spread_dropout, self.training)
        total = self.gamma[0] * z
        for gamma in self.gamma[1:]:
            z = self.propagate(z)
            total = total + gamma * z
        return total[nodes]
