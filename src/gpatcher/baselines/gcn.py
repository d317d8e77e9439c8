"""GCN: Kipf and Welling. Semi-Supervised Classification with Graph Convolutional Networks. ICLR 2017."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from gpatcher.baselines.base import Baseline, FeatureProduct, Propagation
from gpatcher.graph.graph import Graph
from gpatcher.model.dropout import dropout
from gpatcher.model.inputs import FeatureTable


class _Convolution(GCNConv):  # type: ignore[misc]
    """`GCNConv` with the sparse product of this package, which is faster in the backward pass."""

    def __init__(self, matrix: Propagation, *shape: int) -> None:
        super().__init__(*shape, normalize=False)
        self.matrix = matrix

    def propagate(self, edge_index: None, x: Tensor, **_: Any) -> Tensor:
        """Return the product of the matrix and the nodes."""
        return self.matrix(x)


class Convolutions(nn.Module):
    """The convolutions of a GCN with these output widths, and dropout of the inputs of each."""

    def __init__(self, graph: Graph, features: int, widths: list[int], dropout: float) -> None:
        super().__init__()
        matrix = Propagation(graph.normalised(self_loops=True))
        self.dropout = dropout
        self.product = FeatureProduct(features, widths[0], dropout=dropout)
        convolutions = [_Convolution(matrix, a, b) for a, b in zip([widths[0], *widths], widths, strict=False)]
        # x may be sparse, so `product` multiplies it with the first weight and the first layer only propagates
        convolutions[0].lin = nn.Identity()
        self.convolutions = nn.ModuleList(convolutions)

    def forward(self, x: FeatureTable) -> list[Tensor]:
        """Return the output of each layer before its activation; shapes (n, width)."""
        outputs: list[Tensor] = [self.convolutions[0](self.product(x), None)]
        for convolution in self.convolutions[1:]:
            h = dropout(F.relu(outputs[-1]), self.dropout, self.training)
            outputs.append(convolution(h, None))
        return outputs


class GCN(Baseline):
    r"""Graph convolutional network.

    .. math:: h \leftarrow \mathrm{ReLU}(\hat A h W + b), \quad \hat A = D^{-1/2} (A + I) D^{-1/2}

    As in the paper, weight decay acts on the first layer only. The parameters are those of `Baseline`.
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {"layers": [2, 3]}

    def __init__(self, graph: Graph, features: int, *, hidden: int = 64, dropout: float = 0.5, layers: int = 2) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        self.stack = Convolutions(graph, features, self.widths, dropout)

    def no_weight_decay(self) -> Iterable[nn.Parameter]:
        """Return the parameters of all layers but the first."""
        return self.stack.convolutions[1:].parameters()

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        return self.stack(x)[-1][nodes]
