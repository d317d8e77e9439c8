"""APPNP: Gasteiger, Bojchevski and Günnemann. Predict then Propagate. ICLR 2019."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from torch import Tensor, nn

from gpatcher.baselines.base import Baseline, Perceptron, Propagation
from gpatcher.errors import check_at_least, check_fraction
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class APPNP(Baseline):
    r"""An MLP, whose predictions h are propagated by K steps of personalised PageRank.

    .. math:: z \leftarrow (1 - \alpha) \hat A z + \alpha h, \quad \hat A = D^{-1/2} (A + I) D^{-1/2}

    The steps are not those of torch_geometric's layer: with dropout of edges, that layer drops from the edges that the
    step before has left, so after K steps hardly any remain. Here each step draws again, as in the paper. Without
    dropout the two agree. As in the paper, weight decay acts on the first layer only. The other parameters are those
    of `Baseline`.

    Parameters
    ----------
    dropout : float
        Dropout of the inputs of each layer and of the entries of Â.
    K : int
        Number of steps.
    alpha : float
        Teleport probability α: the weight of the node's own prediction, in [0, 1].
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
        check_at_least(1, K=K)
        check_fraction("alpha", alpha, one=True)
        self.K, self.alpha = K, alpha
        self.perceptron = Perceptron(features, hidden, self.classes, layers=layers, dropout=dropout)
        self.propagate = Propagation(graph.normalised(self_loops=True))

    def no_weight_decay(self) -> Iterable[nn.Parameter]:
        """Return the parameters of all layers but the first."""
        return self.perceptron.rest.parameters()

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        h: Tensor = self.perceptron(x)
        z = h
        for _ in range(self.K):
            z = (1 - self.alpha) * self.propagate(z, self.dropout if self.training else 0.0) + self.alpha * h
        return z[nodes]
