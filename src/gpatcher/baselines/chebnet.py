"""ChebNet (Defferrard et al., 2016)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.baselines.base import Baseline, FeatureProduct, Propagation
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class ChebNet(Baseline):
    """Layers Σ_k T_k(L̂) · h · W_k + b, k = 0..K, with the Chebyshev polynomials T_k and L̂ = -D^-1/2 A D^-1/2.

    All products h · W_k are made at once and the sum by Clenshaw's rule: the numbers of torch_geometric's ChebConv,
    whose first product cannot take sparse features. As in Kipf and Welling's runs of it, weight decay acts on the
    first layer only.

    Parameters
    ----------
    K : order of the polynomial; ChebConv counts its K + 1 terms
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {"layers": [2, 3], "K": [1, 2, 3]}

    def __init__(
        self, graph: Graph, features: int, *, hidden: int = 64, dropout: float = 0.5, layers: int = 2, K: int = 2
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        if K < 1:
            raise InputError(f"K must be at least 1, got {K}")
        self.K = K
        self.propagate = Propagation(-graph.normalised())
        widths = [hidden] * (layers - 1) + [self.classes]
        self.product = FeatureProduct(features, widths[0], blocks=K + 1, dropout=dropout)
        self.weights = nn.ParameterList(
            torch.cat([nn.init.xavier_uniform_(torch.empty(a, b)) for _ in range(K + 1)], 1)
            for a, b in itertools.pairwise(widths)
        )
        self.biases = nn.ParameterList(torch.zeros(width) for width in widths)

    def undecayed(self) -> Iterable[nn.Parameter]:
        """Return all but the first layer's parameters."""
        return [*self.weights, *self.biases[1:]]

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        h: Tensor = self._sum(self.product(x)) + self.biases[0]
        for weight, bias in zip(self.weights, self.biases[1:], strict=True):
            h = self._sum(self.drop(F.relu(h)) @ weight) + bias
        return h[nodes]

    def _sum(self, products: Tensor) -> Tensor:
        """Return Σ_k T_k(L̂) · products_k by Clenshaw's rule, from the highest order down."""
        terms = products.chunk(self.K + 1, dim=1)
        one, two = terms[-1], torch.zeros_like(terms[-1])
        for term in terms[-2:0:-1]:
            one, two = term + 2 * self.propagate(one) - two, one
        total: Tensor = terms[0] + self.propagate(one) - two
        return total
