"""FAGCN (Bo et al., 2021), by torch_geometric's layer."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import FAConv

from gpatcher.baselines.base import Baseline, EdgeProduct, FeatureProduct, sparse_tensor
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class _Gated(FAConv):  # type: ignore[misc]
    """The layer with its sum over neighbours made by sparse products; gates and weights are the layer's own."""

    def __init__(self, product: EdgeProduct, target: Tensor, *shape: Any) -> None:
        super().__init__(*shape, normalize=False)
        self.product = product
        self.register_buffer("target", target, persistent=False)

    def message_and_aggregate(self, adj_t: Tensor, x: Tensor, alpha: tuple[Tensor, Tensor]) -> Tensor:
        """Return the sums, shape (n, h)."""
        gate = (alpha[0].squeeze(1)[adj_t.col_indices()] + alpha[1].squeeze(1)[self.target]).tanh()
        gate = F.dropout(gate, self.dropout, self.training)
        total: Tensor = self.product(gate * adj_t.values(), x)
        return total


class FAGCN(Baseline):
    """Layers h_v ← ε h_v(0) + Σ_u a_vu / sqrt(d_v d_u) h_u with gates a_vu = tanh(gᵀ [h_v, h_u]) that may be negative.

    The graph has no self-loops: a node keeps itself by ε.

    Parameters
    ----------
    dropout : of features, hidden representation and gates
    layers : number of propagations
    eps : ε, the share of the first representation
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {"layers": [2, 3, 4], "eps": [0.1, 0.2, 0.3, 0.5, 0.9]}

    def __init__(
        self, graph: Graph, features: int, *, hidden: int = 64, dropout: float = 0.5, layers: int = 2, eps: float = 0.3
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        if not eps >= 0:
            raise InputError(f"eps must be at least 0, got {eps}")
        matrix = graph.normalised()
        self.register_buffer("matrix", sparse_tensor(matrix), persistent=False)
        sums = EdgeProduct(matrix)
        target = torch.from_numpy(np.repeat(np.arange(graph.n), np.diff(matrix.indptr)))
        self.product = FeatureProduct(features, hidden, dropout=dropout)
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.convolutions = nn.ModuleList(_Gated(sums, target, hidden, eps, dropout) for _ in range(layers))
        self.classifier = nn.Linear(hidden, self.classes)

    matrix: Tensor

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        start = self.drop(F.relu(self.product(x) + self.bias))
        h = start
        for convolution in self.convolutions:
            h = convolution(h, start, self.matrix)
        logits: Tensor = self.classifier(h[nodes])
        return logits
