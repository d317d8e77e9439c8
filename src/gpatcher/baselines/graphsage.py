"""GraphSAGE (Hamilton et al., 2017) with the mean of all neighbours, by torch_geometric's layer."""

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
    """The node itself and the mean of its neighbours, each with weights of its own: h W_2 + mean(h) W_1 + b.

    NOTE[DIFF] all neighbours are met, not a sample of them: the graphs here fit.
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {"layers": [2, 3]}
    WEIGHTED: ClassVar[bool] = False

    def __init__(self, graph: Graph, features: int, *, hidden: int = 64, dropout: float = 0.5, layers: int = 2) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        matrix = graph.adjacency(self_loops=False)
        matrix.data = np.ones_like(matrix.data)
        self.register_buffer("matrix", sparse_tensor(matrix), persistent=False)
        widths = [hidden] * (layers - 1) + [self.classes]
        self.product = FeatureProduct(features, widths[0], blocks=2, dropout=dropout)
        # both weights act on the features, which may be sparse: only the mean is left to the first layer
        self.first = SAGEConv(widths[0], widths[0], bias=False)
        self.first.lin_l, self.first.lin_r = nn.Identity(), nn.Identity()
        self.bias = nn.Parameter(torch.zeros(widths[0]))
        self.rest = nn.ModuleList(SAGEConv(a, b) for a, b in itertools.pairwise(widths))

    matrix: Tensor

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        around, own = self.product(x).chunk(2, dim=1)
        h: Tensor = self.first((around.contiguous(), own), self.matrix) + self.bias
        for convolution in self.rest:
            h = convolution(self.drop(F.relu(h)), self.matrix)
        return h[nodes]
