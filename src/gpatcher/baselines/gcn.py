"""GCN (Kipf and Welling, 2017), by torch_geometric's layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from gpatcher.baselines.base import Baseline, FeatureProduct, sparse_tensor
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class Convolutions(nn.Module):
    """The layers Â · h · W + b of the given widths, Â = D^-1/2 (A + I) D^-1/2."""

    def __init__(self, graph: Graph, features: int, widths: list[int], dropout: float) -> None:
        super().__init__()
        self.register_buffer("matrix", sparse_tensor(graph.normalised(self_loops=True)), persistent=False)
        self.dropout = dropout
        self.product = FeatureProduct(features, widths[0], dropout=dropout)
        convolutions = [GCNConv(a, b, normalize=False) for a, b in zip([widths[0], *widths], widths, strict=False)]
        # the first product is that of the features, which may be sparse: only the convolution is left to the layer
        convolutions[0].lin = nn.Identity()
        self.convolutions = nn.ModuleList(convolutions)

    matrix: Tensor

    def forward(self, x: FeatureTable) -> list[Tensor]:
        """Return what each layer gives, before its activation; shapes (n, width)."""
        found: list[Tensor] = [self.convolutions[0](self.product(x), self.matrix)]
        for convolution in self.convolutions[1:]:
            h = F.dropout(F.relu(found[-1]), self.dropout, self.training)
            found.append(convolution(h, self.matrix))
        return found


class GCN(Baseline):
    """Convolutions Â · h · W + b with Â = D^-1/2 (A + I) D^-1/2 and ReLU between them.

    As in the paper, weight decay acts on the first layer only.
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {"layers": [2, 3]}

    def __init__(self, graph: Graph, features: int, *, hidden: int = 64, dropout: float = 0.5, layers: int = 2) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        self.stack = Convolutions(graph, features, [hidden] * (layers - 1) + [self.classes], dropout)

    def undecayed(self) -> Iterable[nn.Parameter]:
        """Return all but the first layer's parameters."""
        return self.stack.convolutions[1:].parameters()

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        logits: Tensor = self.stack(x)[-1][nodes]
        return logits
