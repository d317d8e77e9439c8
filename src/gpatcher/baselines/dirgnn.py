"""Dir-GNN: Rossi et al. Edge Directionality Improves Learning on Heterophilic Graphs. LoG 2023."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import JumpingKnowledge

from gpatcher.baselines.base import Baseline, FeatureProduct, Propagation, normalise, plain_adjacency
from gpatcher.errors import check_choice, check_fraction
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable

CONVOLUTIONS = ("gcn", "sage")
MODES = ("cat", "max", "last")


class DirGNN(Baseline):
    r"""Convolutions with separate weights for the edges out of a node and those into it, edges as filed.

    .. math:: h \leftarrow \mathrm{ReLU}\big(\alpha S_{\to} h W_{\to} + (1 - \alpha) S_{\gets} h W_{\gets}
        + h W_0 + b\big), \quad \mathrm{logits} = \mathrm{AGG}(h^{(1)}, \dots, h^{(L)})\, W + b

    Dir-GCN has :math:`S_\to = D_{out}^{-1/2} A D_{in}^{-1/2}`, its transpose for the edges into a node, and no W_0.
    Dir-SAGE has the means over the nodes that v points to and over those that point to v. On an undirected graph the
    two directions are equal, so the model is a GCN without self-loops or a GraphSAGE with one weight in two parts. The
    other parameters are those of `Baseline`.

    Parameters
    ----------
    dropout : float
        Dropout of the output of each layer.
    alpha : float
        Weight α of the edges out of a node, in [0, 1]; at 1 those into it are not used, at 0 they alone are.
    conv : {"gcn", "sage"}
        Kind of convolution.
    mode : {"cat", "max", "last"}
        AGG: concatenation, the maximum of each entry, or the last layer alone.
    unit_rows : bool
        Whether each row of a layer's output is divided by its L2 norm.
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {
        "hidden": [64, 128, 256],
        "dropout": [0.5, 0.2, 0.0],
        "layers": [2, 3, 5],
        "alpha": [0.5, 1.0, 0.0],
        "conv": ["sage", "gcn"],
        "mode": ["cat", "max"],
        "unit_rows": [False, True],
        "train.weight_decay": [5e-4, 0.0, 5e-5, 2e-3, 5e-3],
        "train.monitor": ["loss", "accuracy"],
        "train.epochs": [500, 2000],
        "train.patience": [50, 400],
    }
    # for Chameleon and Squirrel
    START: ClassVar[dict[str, Any]] = {
        "hidden": 128,
        "dropout": 0.0,
        "layers": 5,
        "alpha": 1.0,
        "conv": "gcn",
        "mode": "max",
        "unit_rows": True,
        "train.weight_decay": 0.0,
        "train.monitor": "accuracy",
        "train.epochs": 2000,
        "train.patience": 400,
    }

    def __init__(
        self,
        graph: Graph,
        features: int,
        *,
        hidden: int = 64,
        dropout: float = 0.5,
        layers: int = 2,
        alpha: float = 0.5,
        conv: str = "sage",
        mode: str = "cat",
        unit_rows: bool = False,
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        check_fraction("alpha", alpha, one=True)
        check_choice("conv", conv, CONVOLUTIONS)
        check_choice("mode", mode, MODES)
        self.unit_rows = unit_rows
        out = plain_adjacency(graph, directed=True)
        pairs = [(alpha, out), (1 - alpha, sp.csr_array(out.T))]
        # a direction of weight 0 has no parameters
        self.directions = nn.ModuleList(Propagation(w * normalise(a, mean=conv == "sage")) for w, a in pairs if w > 0)
        blocks = len(self.directions) + (conv == "sage")
        self.product = FeatureProduct(features, hidden, blocks=blocks)
        self.rest = nn.ModuleList(nn.Linear(hidden, blocks * hidden, bias=False) for _ in range(layers - 1))
        self.biases = nn.ParameterList(torch.zeros(hidden) for _ in range(layers))
        self.jump = None if mode == "last" else JumpingKnowledge(mode)
        self.classifier = nn.Linear(hidden * (layers if mode == "cat" else 1), self.classes)

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        outputs = [self._layer(self.product(x), self.biases[0])]
        for weight, bias in zip(self.rest, self.biases[1:], strict=True):
            outputs.append(self._layer(weight(outputs[-1]), bias))
        return self.classifier(self.jump([h[nodes] for h in outputs]) if self.jump else outputs[-1][nodes])

    def _layer(self, products: Tensor, bias: Tensor) -> Tensor:
        """Return the output of a layer for [h W_→ | h W_← | h W_0], as far as it has these."""
        terms = products.chunk(products.shape[1] // len(bias), 1)
        h = sum((p(term) if p else term for p, term in itertools.zip_longest(self.directions, terms)), bias)
        h = self.drop(F.relu(h))
        return F.normalize(h, dim=1) if self.unit_rows else h
