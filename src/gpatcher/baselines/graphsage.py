"""GraphSAGE: Hamilton, Ying and Leskovec. Inductive Representation Learning on Large Graphs. NeurIPS 2017."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from gpatcher.baselines.base import Baseline, FeatureProduct, sparse_tensor
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


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
        self.register_buffer("matrix", sparse_tensor(matrix), persistent=False)
        first = self.widths[0]
        self.product = FeatureProduct(features, first, blocks=2, dropout=dropout)
        # x may be sparse, so `product` multiplies it with both weights and the first layer only takes the mean
        self.first = SAGEConv(first, first, bias=False)
        self.first.lin_l, self.first.lin_r = nn.Identity(), nn.Identity()
        self.bias = nn.Parameter(torch.zeros(first))
        self.rest = nn.ModuleList(SAGEConv(a, b) for a, b in itertools.pairwise(self.widths))

    matrix: Tensor

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        neighbours, own = self.product(x).chunk(2, dim=1)
        h: Tensor = self.first((neighbours.contiguous(), own), self.matrix) + self.bias
        for convolution in self.rest:
            h = convolution(self.drop(F.relu(h)), self.matrix)
        return h[nodes]
