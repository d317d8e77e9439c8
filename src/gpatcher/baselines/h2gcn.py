"""H2GCN: Zhu et al. Beyond Homophily in Graph Neural Networks. NeurIPS 2020."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.baselines.base import Baseline, FeatureProduct, Propagation, normalise
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class H2GCN(Baseline):
    r"""Neighbours at distance 1 and 2, propagated apart; a linear classifier on all rounds.

    .. math:: r_0 = \mathrm{ReLU}(x W_0), \quad r_k = [\tilde A_1 r_{k-1} \,\|\, \tilde A_2 r_{k-1}], \quad
        \mathrm{logits} = [r_0 \,\|\, \dots \,\|\, r_K]\, W

    Ã_1 and Ã_2 are the normalised adjacencies of the nodes at distance exactly 1 and exactly 2. There are no biases,
    no self-loops and no non-linearity between rounds. Edge weights are not used: the paper has sets of neighbours. The
    other parameters are those of `Baseline`.

    Parameters
    ----------
    dropout : float
        Dropout of the inputs of the classifier.
    layers : int
        Number of rounds K; the width doubles with each.
    relu : bool
        Whether r_0 has the ReLU.
    """

    # its authors choose from these for each data set
    SEARCH: ClassVar[dict[str, list[Any]]] = {"layers": [1, 2], "relu": [True, False], "dropout": [0.0, 0.5]}
    WEIGHTED: ClassVar[bool] = False

    def __init__(
        self, graph: Graph, features: int, *, hidden: int = 64, dropout: float = 0.5, layers: int = 2, relu: bool = True
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        self.layers, self.relu = layers, relu
        self.product = FeatureProduct(features, hidden)
        self.one_hop, self.two_hop = map(Propagation, distance_rings(graph))
        # widths of the rounds: hidden times 1 + 2 + 4 + ...
        self.classifier = nn.Linear(hidden * (2 ** (layers + 1) - 1), self.classes, bias=False)
        nn.init.xavier_uniform_(self.classifier.weight)

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        start: Tensor = self.product(x)
        rounds = [F.relu(start) if self.relu else start]
        for _ in range(self.layers):
            rounds.append(torch.cat([self.one_hop(rounds[-1]), self.two_hop(rounds[-1])], 1))
        return self.classifier(self.drop(torch.cat([r[nodes] for r in rounds], 1)))


def distance_rings(graph: Graph) -> tuple[Any, Any]:
    """Return D^-1/2 A D^-1/2 of the nodes at distance exactly 1 and exactly 2, each with its own degrees."""
    one_hop = graph.adjacency(np.float32, self_loops=False)
    one_hop.data = np.ones_like(one_hop.data)
    reached = sp.csr_array(one_hop @ one_hop)
    reached.data = np.ones_like(reached.data)
    closer = one_hop + sp.eye_array(graph.n, dtype=np.float32)
    # the difference is 0 where a node is closer than 2
    two_hop = sp.csr_array(reached - reached.multiply(closer))
    two_hop.eliminate_zeros()
    return normalise(one_hop), normalise(two_hop)
