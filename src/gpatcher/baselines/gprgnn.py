"""GPRGNN: Chien et al. Adaptive Universal Generalized PageRank Graph Neural Network. ICLR 2021."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gpatcher.baselines.base import Baseline, Perceptron, Propagation
from gpatcher.errors import check_at_least, check_fraction
from gpatcher.graph.graph import Graph
from gpatcher.model.dropout import dropout
from gpatcher.model.inputs import FeatureTable


class GPRGNN(Baseline):
    r"""An MLP, whose predictions h are propagated by a learnable polynomial.

    .. math:: z = \sum_{k=0}^K \gamma_k \hat A^k h, \quad \hat A = D^{-1/2} (A + I) D^{-1/2}

    γ is initialised as personalised PageRank, γ_k = α (1 - α)^k and γ_K = (1 - α)^K. Its entries may become negative,
    and it has no weight decay. The other parameters are those of `Baseline`.

    Parameters
    ----------
    K : int
        Highest power.
    alpha : float
        α of the initial γ, in [0, 1].
    spread_dropout : float
        Fraction of the entries of h that is dropped before propagation, in [0, 1).
    """

    # the range of its authors' settings over their data sets; K is the same for all
    SEARCH: ClassVar[dict[str, list[Any]]] = {
        "alpha": [0.1, 0.2, 0.5, 0.9, 1.0, 0.0],
        "spread_dropout": [0.5, 0.0, 0.7],
        "train.lr": [0.01, 0.05, 0.002, 0.005],
        "train.weight_decay": [5e-4, 0.0, 5e-3],
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
        check_at_least(1, K=K)
        check_fraction("alpha", alpha, one=True)
        check_fraction("spread_dropout", spread_dropout)
        self.spread_dropout = spread_dropout
        self.perceptron = Perceptron(features, hidden, self.classes, layers=layers, dropout=dropout)
        self.propagate = Propagation(graph.normalised(self_loops=True))
        gamma = alpha * (1 - alpha) ** torch.arange(K + 1)
        gamma[-1] = (1 - alpha) ** K
        self.gamma = nn.Parameter(gamma)

    def no_weight_decay(self) -> Iterable[nn.Parameter]:
        """Return γ: decay would pull it towards a filter that passes nothing."""
        return [self.gamma]

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        z: Tensor = dropout(self.perceptron(x), self.spread_dropout, self.training)
        total = self.gamma[0] * z
        for gamma in self.gamma[1:]:
            z = self.propagate(z)
            total = total + gamma * z
        return total[nodes]
