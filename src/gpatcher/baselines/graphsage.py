"""GraphSAGE: Hamilton, Ying and Leskovec. Inductive Representation Learning on Large Graphs. NeurIPS 2017."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from gpatcher.baselines.base import Baseline, FeatureProduct, Propagation, normalise
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class _Convolution(SAGEConv):  # type: ignore[misc]
    """`SAGEConv` with the sparse product of this package, which is faster in the backward pass."""

    def __init__(self, means: Propagation, *shape: int, **options: Any) -> None:
        super().__init__(*shape, **options)
        self.means = means

    def propagate(self, edge_index: None, x: tuple[Tensor, Tensor], **_: Any) -> Tensor:
        """Return the mean of the neighbours of each node."""
        return self.means(x[0])


class GraphSAGE(Baseline):
    r"""The node itself and the mean of its neighbours, with separate weights.

    .. math:: h_v \leftarrow \mathrm{ReLU}\big(h_v W_2 + \mathrm{mean}_{u \in N(v)}(h_u)\, W_1 + b\big)

    The parameters are those of `Baseline`.

    NOTE[DIFF] the mean is over all neighbours, not over a sample of them: the graphs of the bench fit into memory.
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {"layers": [2, 3]}
    WEIGHTED: ClassVar[bool] = False

    def __init__(self, graph: Graph, features: int, *, hidden: int = 64, dropout: float = 0.5, layers: int = 2) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        matrix = graph.adjacency(self_loops=False)
        matrix.data = np.ones_like(matrix.data)
        means = Propagation(normalise(matrix, mean=True))
        first = self.widths[0]
        self.product = FeatureProduct(features, first, blocks=2, dropout=dropout)
        # x may be sparse, so `product` multiplies it with both weights and the first layer only takes the mean
        self.first = _Convolution(means, first, first, bias=False)
        self.first.lin_l, self.first.lin_r = nn.Identity(), nn.Identity()
        self.bias = nn.Parameter(torch.zeros(first))
        self.rest = nn.ModuleList(_Convolution(means, a, b) for a, b in itertools.pairwise(self.widths))

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        neighbours, own = self.product(x).chunk(2, dim=1)
        h: Tensor = self.first((neighbours.contiguous(), own), None) + self.bias
        for convolution in self.rest:
            h = convolution(self.drop(F.relu(h)), None)
        return h[nodes]
