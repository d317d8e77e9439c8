"""BM-GCN: He et al. Block Modeling-Guided Graph Convolutional Neural Networks. AAAI 2022."""

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
from gpatcher.baselines.base import Baseline, FeatureProduct, Perceptron, Propagation
from gpatcher.errors import InputError, check_at_least
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable, SparseProduct


class BMGCN(Baseline):
    r"""Convolutions on edges that are weighted by how alike the classes of their endpoints connect.

    .. math:: H = (Y^\top A' Y) \oslash (Y^\top A' 1), \quad Q = \mathrm{rows}(H H^\top \odot E), \quad
        g_{vu} = \mathrm{softmax}_u\, A'_{vu} (B Q B^\top)_{vu}, \quad
        h \leftarrow \mathrm{ReLU}(g h W_1 + h W_2 + b)

    B are the soft labels of an MLP, Y is B with the labels of the training nodes in place, A' = A + βI, E is 1 with
    ``enhance`` on the diagonal, and rows(·) scales each row to sum 1. The loss of the MLP on the training nodes is
    added to that of the model (`extra_loss`). The other parameters are those of `Baseline`.

    NOTE[DIFF] the MLP is trained with the rest from the start, not before it.

    Parameters
    ----------
    labels : ndarray of int
        Class of each training node, -1 for all other nodes, shape (n,).
    loop, enhance, balance : float
        Weight β of the self-loops, factor on the diagonal of Q, and weight of the loss of the MLP; at least 0.
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
        check_at_least(0, loop=loop, enhance=enhance, balance=balance)
        if graph.is_regression:
            raise InputError(f"BM-GCN models which classes are linked; the labels of {graph.name} are numbers")
        self.balance = balance
        matrix = graph.adjacency(self_loops=False)
        if loop:
            matrix = sp.csr_array(matrix + loop * sp.eye_array(graph.n))
        self.sums, self.neighbours = SparseProduct(matrix), Propagation(matrix)
        labelled = np.flatnonzero(np.asarray(labels) >= 0)
        self.register_buffer("labelled", torch.from_numpy(labelled), persistent=False)
        truth = F.one_hot(torch.from_numpy(np.asarray(labels)[labelled].astype(np.int64)), self.classes).float()
        self.register_buffer("truth", truth, persistent=False)
        self.register_buffer("diagonal", 1 + (enhance - 1) * torch.eye(self.classes), persistent=False)
        self.perceptron = Perceptron(features, hidden, self.classes, layers=2, dropout=dropout)
        self.product = FeatureProduct(features, self.widths[0], blocks=2, dropout=dropout)
        self.bias = nn.Parameter(torch.zeros(self.widths[0]))
        pairs = list(itertools.pairwise(self.widths))
        self.around = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairs)
        self.own = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)

    labelled: Tensor
    truth: Tensor
    diagonal: Tensor

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        g = self.edge_weights(torch.softmax(self.perceptron(x), 1))
        around, own = self.product(x).chunk(2, dim=1)
        h: Tensor = self.sums(g, around) + own + self.bias
        for of_neighbours, of_itself in zip(self.around, self.own, strict=True):
            h = self.drop(F.relu(h))
            h = self.sums(g, of_neighbours(h)) + of_itself(h)
        return h[nodes]

    def extra_loss(self, x: FeatureTable, nodes: Tensor, target: Tensor) -> Tensor:
        """Return the weighted cross-entropy of the soft labels of these nodes."""
        return self.balance * F.cross_entropy(self.perceptron(x, nodes), target)

    def edge_weights(self, soft: Tensor) -> Tensor:
        """Return g for soft labels B, shape (n, C); one weight per edge, shape (m,)."""
        rows = self.sums.rows
        score = ((soft @ self.block_similarity(soft))[rows] * soft[self.sums.columns]).sum(1)
        return softmax(self.sums.values * score, rows, num_nodes=len(soft))

    def block_similarity(self, soft: Tensor) -> Tensor:
        """Return Q, shape (C, C)."""
        labels = soft.index_copy(0, self.labelled, self.truth)
        blocks = labels.T @ self.neighbours(labels)
        rows = blocks.sum(1, keepdim=True)  # every row of labels has sum 1, so this is Yᵀ A' 1
        blocks = blocks / rows.clamp_min(1e-12)
        similarity = blocks @ blocks.T * self.diagonal
        return similarity / similarity.sum(1, keepdim=True).clamp_min(1e-12)
