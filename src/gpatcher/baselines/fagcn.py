"""FAGCN: Bo et al. Beyond Low-frequency Information in Graph Convolutional Networks. AAAI 2021."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import FAConv

from gpatcher.baselines.base import Baseline, FeatureProduct
from gpatcher.errors import check_at_least
from gpatcher.graph.graph import Graph
from gpatcher.model.dropout import dropout
from gpatcher.model.inputs import FeatureTable, SparseProduct


class _Gated(FAConv):  # type: ignore[misc]
    """FAConv that sums over neighbours by sparse products."""

    def __init__(self, product: SparseProduct, *shape: Any) -> None:
        super().__init__(*shape, normalize=False)
        self.product = product

    def message_and_aggregate(self, adj_t: Tensor, x: Tensor, alpha: tuple[Tensor, Tensor]) -> Tensor:
        """Return the sums, shape (n, h)."""
        gate = (alpha[0].squeeze(1)[self.product.columns] + alpha[1].squeeze(1)[self.product.rows]).tanh()
        gate = dropout(gate, self.dropout, self.training)
        return self.product(gate * adj_t.values(), x)


class FAGCN(Baseline):
    r"""Propagation with gates per edge that may be negative.

    .. math:: h_v \leftarrow \epsilon h_v^{(0)} + \sum_{u \in N(v)} \frac{a_{vu}}{\sqrt{d_v d_u}} h_u, \quad
        a_{vu} = \tanh(g^\top [h_v \,\|\, h_u])

    The graph has no self-loops: a node keeps its own representation by ε. The other parameters are those of
    `Baseline`.

    Parameters
    ----------
    dropout : float
        Dropout of features, hidden representation and gates.
    layers : int
        Number of propagations.
    eps : float
        Weight ε of the first representation, at least 0.
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {"layers": [2, 3, 4], "eps": [0.1, 0.2, 0.3, 0.5, 0.9]}

    def __init__(
        self, graph: Graph, features: int, *, hidden: int = 64, dropout: float = 0.5, layers: int = 2, eps: float = 0.3
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        check_at_least(0, eps=eps)
        self.sums = SparseProduct(graph.normalised())
        self.product = FeatureProduct(features, hidden, dropout=dropout)
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.convolutions = nn.ModuleList(_Gated(self.sums, hidden, eps, dropout) for _ in range(layers))
        self.classifier = nn.Linear(hidden, self.classes)

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        start = self.drop(F.relu(self.product(x) + self.bias))
        h = start
        for convolution in self.convolutions:
            h = convolution(h, start, self.sums.matrix())
        return self.classifier(h[nodes])
