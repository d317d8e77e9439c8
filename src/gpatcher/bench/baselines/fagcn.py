"""FAGCN (Bo et al., 2021), by torch_geometric's layer."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import FAConv

from gpatcher.bench.baselines.base import Baseline, FeatureProduct, edge_list
from gpatcher.features import FeatureTable
from gpatcher.graph import Graph, InputError


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
        edges, weights = edge_list(graph.normalised())
        self.register_buffer("edges", edges, persistent=False)
        self.register_buffer("weights", weights, persistent=False)
        self.product = FeatureProduct(features, hidden, dropout=dropout)
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.convolutions = nn.ModuleList(FAConv(hidden, eps, dropout, normalize=False) for _ in range(layers))
        self.classifier = nn.Linear(hidden, self.classes)

    edges: Tensor
    weights: Tensor

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        start = self.drop(F.relu(self.product(x) + self.bias))
        h = start
        for convolution in self.convolutions:
            h = convolution(h, start, self.edges, self.weights)
        logits: Tensor = self.classifier(h[nodes])
        return logits
