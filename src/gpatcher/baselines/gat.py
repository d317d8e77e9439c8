"""GAT: Veličković et al. Graph Attention Networks. ICLR 2018."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from gpatcher.baselines.base import Baseline, FeatureProduct
from gpatcher.errors import InputError, check_at_least
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable, SparseProduct


class Attention(GATConv):  # type: ignore[misc]
    """GATConv over the edges of a pattern, which sums over neighbours by sparse products."""

    def __init__(self, product: SparseProduct, *shape: int, linear: bool = True, **options: Any) -> None:
        super().__init__(*shape, add_self_loops=False, **options)
        self.product = product
        if not linear:  # the input is multiplied by the weight already
            self.lin = nn.Identity()

    def forward(self, h: Tensor) -> Tensor:
        """Return the heads side by side, or their mean; shape (n, width)."""
        return super().forward(h, self.product.matrix())

    def message_and_aggregate(self, adj_t: Tensor, x: tuple[Tensor, Tensor], alpha: Tensor) -> Tensor:
        """Return the sum of each head, shape (n, heads, width)."""
        return torch.stack([self.product(alpha[:, k], x[0][:, k]) for k in range(self.heads)], 1)


class GAT(Baseline):
    r"""Graph attention network over neighbours and the node itself.

    .. math:: h_v \leftarrow \mathrm{ELU}\Big(\sum_u \alpha_{vu} W h_u + b\Big), \quad
        \alpha_{vu} = \mathrm{softmax}_u\, \mathrm{LeakyReLU}(a^\top [W h_v \,\|\, W h_u])

    Heads are concatenated, and averaged in the last layer. The other parameters are those of `Baseline`.

    Parameters
    ----------
    hidden : int
        Width of all heads of a layer together.
    dropout : float
        Dropout of the inputs of each layer and of the attention coefficients.
    heads : int
        Number of heads in all layers but the last; must divide ``hidden``.
    output_heads : int
        Number of heads in the last layer.
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
        check_at_least(1, heads=heads, output_heads=output_heads)
        if hidden % heads:
            raise InputError(f"hidden must be a multiple of heads, got hidden={hidden} and heads={heads}")
        sums = SparseProduct(graph.adjacency(self_loops=True))
        shapes = [(hidden // heads, heads)] * (layers - 1) + [(self.classes, output_heads)]
        self.product = FeatureProduct(features, shapes[0][0] * shapes[0][1], dropout=dropout)
        # x may be sparse, so `product` multiplies it with the first weight and the first layer only attends
        self.convolutions = nn.ModuleList(
            Attention(sums, hidden, width, count, linear=layer > 0, concat=layer < layers - 1, dropout=dropout)
            for layer, (width, count) in enumerate(shapes)
        )

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        h: Tensor = self.convolutions[0](self.product(x))
        for convolution in self.convolutions[1:]:
            h = convolution(self.drop(F.elu(h)))
        return h[nodes]
