"""ChebNet: Defferrard et al. CNNs on Graphs with Fast Localized Spectral Filtering. NeurIPS 2016."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.baselines.base import Baseline, FeatureProduct, Propagation
from gpatcher.errors import check_at_least
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class ChebNet(Baseline):
    r"""Spectral convolutions by Chebyshev polynomials.

    .. math:: h \leftarrow \mathrm{ReLU}\Big(\sum_{k=0}^K T_k(\hat L)\, h W_k + b\Big), \quad
        \hat L = -D^{-1/2} A D^{-1/2}

    One product gives all h W_k, and Clenshaw's recurrence the sum: the result is that of torch_geometric's ChebConv,
    which cannot take sparse features. As in Kipf and Welling's runs of it, weight decay acts on the first layer only.
    The other parameters are those of `Baseline`.

    Parameters
    ----------
    K : int
        Order of the polynomial; ChebConv counts its K + 1 terms instead.
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {"layers": [2, 3], "K": [1, 2, 3]}

    def __init__(
        self, graph: Graph, features: int, *, hidden: int = 64, dropout: float = 0.5, layers: int = 2, K: int = 2
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        check_at_least(1, K=K)
        self.K = K
        self.propagate = Propagation(-graph.normalised())
        self.product = FeatureProduct(features, self.widths[0], blocks=K + 1, dropout=dropout)
        self.weights = nn.ParameterList(
            torch.cat([nn.init.xavier_uniform_(torch.empty(a, b)) for _ in range(K + 1)], 1)
            for a, b in itertools.pairwise(self.widths)
        )
        self.biases = nn.ParameterList(torch.zeros(width) for width in self.widths)

    def no_weight_decay(self) -> Iterable[nn.Parameter]:
        """Return the parameters of all layers but the first."""
        return [*self.weights, *self.biases[1:]]

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        h: Tensor = self._filter(self.product(x)) + self.biases[0]
        for weight, bias in zip(self.weights, self.biases[1:], strict=True):
            h = self._filter(self.drop(F.relu(h)) @ weight) + bias
        return h[nodes]

    def _filter(self, products: Tensor) -> Tensor:
        """Return Σ_k T_k(L̂) · products_k by Clenshaw's recurrence, from the highest order down."""
        terms = products.chunk(self.K + 1, dim=1)
        current, previous = terms[-1], torch.zeros_like(terms[-1])
        for term in terms[-2:0:-1]:
            current, previous = term + 2 * self.propagate(current) - previous, current
        return terms[0] + self.propagate(current) - previous
