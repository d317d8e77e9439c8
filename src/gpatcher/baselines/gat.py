"""GAT (Veličković et al., 2018), by torch_geometric's layer."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from gpatcher.baselines.base import Baseline, EdgeProduct, FeatureProduct, sparse_tensor
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class _Attention(GATConv):  # type: ignore[misc]
    """The layer with its sum over neighbours made by sparse products; attention and weights are the layer's own."""

    def __init__(self, product: EdgeProduct, *shape: int, **options: Any) -> None:
        super().__init__(*shape, add_self_loops=False, **options)
        self.product = product

    def message_and_aggregate(self, adj_t: Tensor, x: tuple[Tensor, Tensor], alpha: Tensor) -> Tensor:
        """Return the sum of each head, shape (n, heads, width)."""
        return torch.stack([self.product(alpha[:, k], x[0][:, k]) for k in range(self.heads)], 1)


class GAT(Baseline):
    """Attention over neighbours and the node itself; heads side by side, averaged in the last layer.

    Parameters
    ----------
    hidden : width of all heads of a layer together
    dropout : of the inputs of each layer and of the attention
    heads : number of heads in all layers but the last
    output_heads : number of heads in the last layer
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {"layers": [2, 3], "heads": [1, 4, 8]}
    WEIGHTED: ClassVar[bool] = False

    def __init__(
        self,
        graph: Graph,
        features: int,
        *,
        hidden: int = 64,
        dropout: float = 0.6,
        layers: int = 2,
        heads: int = 8,
        output_heads: int = 1,
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        for name, value in (("heads", heads), ("output_heads", output_heads)):
            if value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        if hidden % heads:
            raise InputError(f"hidden must be a multiple of heads, got hidden={hidden} and heads={heads}")
        matrix = graph.adjacency(self_loops=True)
        self.register_buffer("matrix", sparse_tensor(matrix), persistent=False)
        sums = EdgeProduct(matrix)
        shapes = [(hidden // heads, heads)] * (layers - 1) + [(self.classes, output_heads)]
        self.product = FeatureProduct(features, shapes[0][0] * shapes[0][1], dropout=dropout)
        convolutions = [
            _Attention(sums, hidden, width, count, concat=at < layers - 1, dropout=dropout)
            for at, (width, count) in enumerate(shapes)
        ]
        # the first product is that of the features, which may be sparse: only the attention is left to the layer
        convolutions[0].lin = nn.Identity()
        self.convolutions = nn.ModuleList(convolutions)

    matrix: Tensor

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        h: Tensor = self.convolutions[0](self.product(x), self.matrix)
        for convolution in self.convolutions[1:]:
            h = convolution(self.drop(F.elu(h)), self.matrix)
        return h[nodes]
