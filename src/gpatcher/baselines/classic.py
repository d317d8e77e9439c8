"""Classic GNNs, tuned: Luo, Shi and Wu. Classic GNNs are Strong Baselines. NeurIPS 2024."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.baselines.base import Baseline, FeatureProduct, Propagation, normalise
from gpatcher.baselines.gat import Attention
from gpatcher.errors import InputError, check_choice
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable, SparseProduct

CONVOLUTIONS = ("gcn", "sage", "gat")
NORMS = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": nn.BatchNorm1d}


class Classic(Baseline):
    r"""A stack of L convolutions with what Luo et al. found to matter, and a linear classifier.

    .. math:: h^{(l)} = \mathrm{dropout}\,\mathrm{ReLU}\big(\mathrm{norm}(S h^{(l-1)} W_l + h^{(l-1)} R_l + b_l)\big),
        \quad \mathrm{logits} = \mathrm{AGG}(h^{(1)}, \dots, h^{(L)})\, W + b

    S is D^-1/2 (A + I) D^-1/2 (``gcn``), the mean over neighbours (``sage``) or attention over neighbours and the node
    itself (``gat``). R is the residual connection. GraphSAGE always has it: its weight of the node itself is the same.
    The features themselves are not dropped. The other parameters are those of `Baseline`.

    Parameters
    ----------
    dropout : float
        Dropout of the outputs of each layer.
    layers : int
        Number of convolutions L.
    conv : {"gcn", "sage", "gat"}
        Kind of convolution. Attention does not use edge weights.
    residual : bool
        Whether layers have the residual connection R.
    norm : {"none", "layer", "batch"}
        Normalisation of each layer.
    input_layer : bool
        Whether a linear layer comes before the convolutions.
    jump : bool
        AGG: the sum of the outputs of all layers (jumping knowledge), or the last alone.
    heads : int
        Number of heads of ``gat``; must divide ``hidden``.
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {
        "hidden": [64, 256, 512],
        "dropout": [0.5, 0.2, 0.7],
        "layers": [2, 4, 8, 12],
        "conv": list(CONVOLUTIONS),
        "residual": [True, False],
        "norm": ["layer", "batch", "none"],
        "input_layer": [False, True],
        "train.monitor": ["accuracy", "loss"],
        "train.patience": [100],
    }
    START: ClassVar[dict[str, Any]] = {
        "layers": 12,
        "norm": "batch",
        "dropout": 0.2,
        "train.lr": 0.01,
        "train.monitor": "accuracy",
    }

    def __init__(
        self,
        graph: Graph,
        features: int,
        *,
        hidden: int = 64,
        dropout: float = 0.5,
        layers: int = 2,
        conv: str = "gcn",
        residual: bool = True,
        norm: str = "layer",
        input_layer: bool = False,
        jump: bool = False,
        heads: int = 1,
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        check_choice("conv", conv, CONVOLUTIONS)
        check_choice("norm", norm, NORMS)
        if heads < 1 or hidden % heads:
            raise InputError(f"hidden must be a multiple of heads, got hidden={hidden} and heads={heads}")
        self.input_layer, self.jump = input_layer, jump
        self.own = residual or conv == "sage"
        blocks = 1 + self.own
        self.product = FeatureProduct(features, hidden, blocks=1 if input_layer else blocks)
        self.bias = nn.Parameter(torch.zeros(hidden)) if input_layer else None
        self.weights = nn.ModuleList(
            nn.Linear(hidden, blocks * hidden, bias=False) for _ in range(layers - (not input_layer))
        )
        # batch norm would take a bias out again
        self.biases = nn.ParameterList(torch.zeros(hidden) for _ in range(layers if norm != "batch" else 0))
        self.norms = nn.ModuleList(NORMS[norm](hidden) for _ in range(layers))
        self.convolutions = self._convolutions(graph, conv, hidden, heads, layers)
        self.classifier = nn.Linear(hidden, self.classes)

    def _convolutions(self, graph: Graph, conv: str, hidden: int, heads: int, layers: int) -> nn.ModuleList:
        """Return the product with S of each layer; all layers share it unless it has parameters."""
        if conv == "gat":
            self.warn_weights(graph)
            sums = SparseProduct(graph.adjacency(self_loops=True))
            shape = hidden, hidden // heads, heads
            return nn.ModuleList(Attention(sums, *shape, linear=False, bias=False) for _ in range(layers))
        neighbours = graph.adjacency(np.float32, self_loops=conv == "gcn")
        return nn.ModuleList([Propagation(normalise(neighbours, mean=conv == "sage"))] * layers)

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        products: Tensor = self.product(x)
        weights = list(self.weights)
        if self.bias is not None:
            products = weights.pop(0)(self.drop(products + self.bias))
        outputs: list[Tensor] = []
        for k, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            products = weights[k - 1](outputs[-1]) if k else products
            around, *own = products.chunk(1 + self.own, 1)
            h = sum(own, convolution(around.contiguous()))
            h = h + self.biases[k] if len(self.biases) else h
            outputs.append(self.drop(F.relu(norm(h))))
        total = torch.stack([h[nodes] for h in outputs]).sum(0) if self.jump else outputs[-1][nodes]
        return self.classifier(total)
