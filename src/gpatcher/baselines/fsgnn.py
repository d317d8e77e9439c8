"""FSGNN: Maurya, Liu and Murata. Improving Graph Neural Networks with Simple Architecture Design. 2021."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.baselines.base import Baseline, FeatureProduct, compact, normalise, plain_adjacency
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class FSGNN(Baseline):
    r"""Features of several hops, each with a weight of its own, and soft selection among them.

    .. math:: \mathrm{logits} = \mathrm{ReLU}\big(\big\|_{i=0}^{2K} \alpha_i\, \mathrm{unit}(X_i W_i + b_i)\big)\, W + b
        , \quad (X_i) = X, \hat A X, \tilde A X, \dots, \hat A^K X, \tilde A^K X, \quad \alpha = \mathrm{softmax}(a)

    Ã = D^-1/2 A D^-1/2 has no self-loops, Â is that of A + I, and unit(·) divides each row by its L2 norm. The X_i are
    computed once, at the first call. The other parameters are those of `Baseline`.

    NOTE[DIFF] one learning rate for all parameters; the authors have one of its own for a.

    Parameters
    ----------
    hidden : int
        Width of each X_i W_i.
    dropout : float
        Dropout of the inputs of the classifier.
    layers : int
        Number of hops K.
    directed : bool
        Whether edges count in their direction alone, as filed, or in both. A node then reads those it points to, and D
        has the numbers of edges out of nodes, at least 1.
    attention_decay, classifier_decay : float, optional
        Weight decay of a, and of W and b; by default that of the other parameters.
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {
        "hidden": [64],
        "layers": [3, 8],
        "dropout": [0.5, 0.6, 0.7],
        "directed": [False, True],
        "attention_decay": [None, 0.0],
        "classifier_decay": [None, 0.0],
    }

    def __init__(
        self,
        graph: Graph,
        features: int,
        *,
        hidden: int = 64,
        dropout: float = 0.5,
        layers: int = 3,
        directed: bool = False,
        attention_decay: float | None = None,
        classifier_decay: float | None = None,
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        self.layers, self.attention_decay, self.classifier_decay = layers, attention_decay, classifier_decay
        edges = plain_adjacency(graph, directed)
        loops = sp.eye_array(graph.n, dtype=edges.dtype)
        self._matrices = [normalise(sp.csr_array(a), by_rows=True) for a in (edges + loops, edges)]
        self._hops: tuple[FeatureTable, list[FeatureTable]] | None = None  # of the last table of features
        count = 1 + 2 * layers
        self.products = nn.ModuleList(FeatureProduct(features, hidden) for _ in range(count))
        # not 0: a zero row, such as that of an isolated node, would have no direction
        bound = 1 / math.sqrt(features)
        self.bias = nn.Parameter(torch.empty(count, hidden).uniform_(-bound, bound))
        self.attention = nn.Parameter(torch.ones(count))
        self.classifier = nn.Linear(count * hidden, self.classes)

    def parameter_groups(self, lr: float, weight_decay: float, filter_lr: float) -> list[dict[str, object]]:
        """Return the parameter groups of the optimiser: the products, the attention and the classifier."""
        parts = [
            ([*self.products.parameters(), self.bias], None),
            ([self.attention], self.attention_decay),
            (list(self.classifier.parameters()), self.classifier_decay),
        ]
        return [
            {"params": parameters, "lr": lr, "weight_decay": weight_decay if decay is None else decay}
            for parameters, decay in parts
        ]

    def hops(self, x: FeatureTable) -> list[FeatureTable]:
        """Return X, ÂX, ÃX, Â²X, Ã²X, ..., 2K + 1 tables."""
        if self._hops is None or self._hops[0] is not x:
            current = [sp.csr_array(x.rows(torch.arange(x.shape[0])).numpy(force=True))] * 2
            tables = [x]
            for _ in range(self.layers):
                current = [sp.csr_array(matrix @ h) for matrix, h in zip(self._matrices, current, strict=True)]
                tables += [FeatureTable(compact(h), x.device) for h in current]
            self._hops = x, tables
        return self._hops[1]

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        parts = [
            weight * F.normalize(product(hop, nodes) + bias, dim=1)
            for weight, product, hop, bias in zip(
                self.attention.softmax(0), self.products, self.hops(x), self.bias, strict=True
            )
        ]
        return self.classifier(self.drop(F.relu(torch.cat(parts, 1))))
