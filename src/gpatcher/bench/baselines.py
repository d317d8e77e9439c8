"""Baselines: the plain models somebody would try first."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from gpatcher.features import FeatureTable
from gpatcher.graph import Graph


class MLP(nn.Module):
    """Two layers on the features of a node alone; what the graph adds shows against it."""

    def __init__(self, graph: Graph, features: int, hidden: int = 64, dropout: float = 0.5) -> None:
        super().__init__()
        self.dropout = dropout
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(features, hidden)))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.classifier = nn.Linear(hidden, graph.num_classes)

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        h = F.relu(x.linear(self.weight, self.dropout if self.training else 0.0, nodes) + self.bias)
        logits: Tensor = self.classifier(F.dropout(h, self.dropout, self.training))
        return logits


class GCN(nn.Module):
    """Two graph convolutions (Kipf and Welling, 2017), by torch_geometric's layer on the undirected graph."""

    def __init__(self, graph: Graph, features: int, hidden: int = 64, dropout: float = 0.5) -> None:
        super().__init__()
        self.dropout = dropout
        both = graph.undirected()
        source = np.repeat(np.arange(graph.n), np.diff(both.indptr))
        self.register_buffer("edges", torch.from_numpy(np.stack([source, both.indices.astype(np.int64)])))
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(features, hidden)))
        # the first layer's product is that of the features, which may be sparse; its convolution comes after
        self.first = GCNConv(hidden, hidden, bias=True, cached=True)
        del self.first.lin
        self.first.lin = nn.Identity()
        self.second = GCNConv(hidden, graph.num_classes, cached=True)

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        h = x.linear(self.weight, self.dropout if self.training else 0.0)
        h = F.dropout(F.relu(self.first(h, self.edges)), self.dropout, self.training)
        logits: Tensor = self.second(h, self.edges)[nodes]
        return logits
