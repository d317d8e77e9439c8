"""APPNP (Gasteiger et al., 2019): an MLP, then steps of personalised PageRank over what it predicts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from torch import Tensor, nn

from gpatcher.baselines.base import Baseline, Perceptron, Propagation, check_steps
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class APPNP(Baseline):
    """An MLP's predictions h spread by K steps z ← (1 - α) Â z + α h, with Â = D^-1/2 (A + I) D^-1/2.

    The steps are not torch_geometric's: where edges are dropped, its layer drops from what the step before has left,
    so that after K steps next to none remain. Here each step drops anew, as in the paper. Without dropout the two
    agree. As in the paper, weight decay acts on the first layer only.

    Parameters
    ----------
    dropout : of the inputs of each layer, and of the entries of Â
    K : number of steps
    alpha : α, the share of the node's own prediction
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {"K": [5, 10], "alpha": [0.1, 0.2, 0.5, 0.9]}

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
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        check_steps(K, alpha)
        self.K, self.alpha = K, alpha
        self.perceptron = Perceptron(features, hidden, self.classes, layers=layers, dropout=dropout)
        self.propagate = Propagation(graph.normalised(self_loops=True))

    def undecayed(self) -> Iterable[nn.Parameter]:
        """Return all but the first layer's parameters."""
        return self.perceptron.rest.parameters()

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        h: Tensor = self.perceptron(x)
        z = h
        for _ in range(self.K):
            z = (1 - self.alpha) * self.propagate(z, self.dropout if self.training else 0.0) + self.alpha * h
        return z[nodes]
