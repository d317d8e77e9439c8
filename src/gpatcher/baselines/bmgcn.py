"""BM-GCN (He et al., 2022)."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import softmax

from gpatcher.arrays import IntArray
from gpatcher.baselines.base import Baseline, EdgeProduct, FeatureProduct, Perceptron, Propagation
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class BMGCN(Baseline):
    """Convolutions on edges reweighted by how alike the classes at their ends connect.

    An MLP gives soft labels B; where the label is known, Y has it in the place of B. With A' = A + βI:

        H = (Yᵀ A' Y) / (Yᵀ A' 1),  Q = H Hᵀ with its diagonal times `enhance`, rows of sum 1
        g_vu = softmax over the neighbours u of v of A'_vu (B Q Bᵀ)_vu,  h ← ReLU(g h W_1 + h W_2 + b)

    The MLP's own loss on the training nodes is added to the model's (`extra_loss`).

    NOTE[DIFF] the MLP is trained with the rest from the start, not before it.

    Parameters
    ----------
    labels : class of each node, -1 for all that training must not know, shape (n,)
    loop : β
    enhance : factor on the diagonal of Q
    balance : factor on the loss of the MLP
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {"layers": [2, 3], "loop": [0.0, 1.5], "enhance": [0.8, 1.0, 2.0, 4.0]}

    def __init__(
        self,
        graph: Graph,
        features: int,
        labels: IntArray,
        *,
        hidden: int = 64,
        dropout: float = 0.5,
        layers: int = 3,
        loop: float = 0.0,
        enhance: float = 2.0,
        balance: float = 1.0,
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        for name, value in (("loop", loop), ("enhance", enhance), ("balance", balance)):
            if not value >= 0:
                raise InputError(f"{name} must be at least 0, got {value}")
        self.balance = balance
        matrix = graph.adjacency(self_loops=False)
        if loop:
            matrix = sp.csr_array(matrix + loop * sp.eye_array(graph.n))
        self.sums, self.neighbours = EdgeProduct(matrix), Propagation(matrix)
        target = np.repeat(np.arange(graph.n), np.diff(matrix.indptr))
        self.register_buffer("target", torch.from_numpy(target), persistent=False)
        self.register_buffer("weights", torch.from_numpy(matrix.data.astype(np.float32)), persistent=False)
        given = np.asarray(labels)
        self.register_buffer("known", torch.from_numpy(np.flatnonzero(given >= 0)), persistent=False)
        truth = F.one_hot(torch.from_numpy(given[given >= 0].astype(np.int64)), self.classes).float()
        self.register_buffer("truth", truth, persistent=False)
        self.register_buffer("diagonal", 1 + (enhance - 1) * torch.eye(self.classes), persistent=False)
        self.perceptron = Perceptron(features, hidden, self.classes, layers=2, dropout=dropout)
        widths = [hidden] * (layers - 1) + [self.classes]
        self.product = FeatureProduct(features, widths[0], blocks=2, dropout=dropout)
        self.bias = nn.Parameter(torch.zeros(widths[0]))
        pairs = list(itertools.pairwise(widths))
        self.around = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairs)
        self.own = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)

    target: Tensor
    weights: Tensor
    known: Tensor
    truth: Tensor
    diagonal: Tensor

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        g = self.edge_weights(torch.softmax(self.perceptron(x), 1))
        around, own = self.product(x).chunk(2, dim=1)
        h: Tensor = self.sums(g, around) + own + self.bias
        for spread, keep in zip(self.around, self.own, strict=True):
            h = self.drop(F.relu(h))
            h = self.sums(g, spread(h)) + keep(h)
        return h[nodes]

    def extra_loss(self, x: FeatureTable, nodes: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy of the soft labels of these nodes."""
        return self.balance * F.cross_entropy(self.perceptron(x, nodes), target)

    def edge_weights(self, soft: Tensor) -> Tensor:
        """Return g of each edge from soft labels B, shape (n, C); shape (m,)."""
        score = ((soft @ self.block_similarity(soft))[self.target] * soft[self.sums.columns]).sum(1)
        weight: Tensor = softmax(self.weights * score, self.target, num_nodes=len(soft))
        return weight

    def block_similarity(self, soft: Tensor) -> Tensor:
        """Return Q, shape (C, C)."""
        labels = soft.index_copy(0, self.known, self.truth)
        blocks = labels.T @ self.neighbours(labels)
        rows = blocks.sum(1, keepdim=True)  # every row of labels has sum 1, so this is Yᵀ A' 1
        blocks = blocks / rows.clamp_min(1e-12)
        similarity = blocks @ blocks.T * self.diagonal
        total: Tensor = similarity / similarity.sum(1, keepdim=True).clamp_min(1e-12)
        return total
