"""H2GCN (Zhu et al., 2020)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.baselines.base import Baseline, FeatureProduct, Propagation
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable


class H2GCN(Baseline):
    """Rounds r_k = [Ã_1 r_(k-1) | Ã_2 r_(k-1)], and a linear classifier on [r_0 | r_1 | ... | r_K].

    r_0 = ReLU(x W), or x W, is the only hidden layer with weights; no layer has a bias. Ã_1 and Ã_2 are the normalised
    adjacencies of the neighbours at distance 1 and at distance 2, neither holding the node itself; there is no
    non-linearity between rounds. Edge weights do not count: the paper has sets of neighbours.

    Parameters
    ----------
    dropout : of what the classifier sees
    layers : K, number of rounds; the width doubles with each
    relu : whether r_0 has the ReLU
    """

    # what its authors choose from on each data set
    SEARCH: ClassVar[dict[str, list[Any]]] = {"layers": [1, 2], "relu": [True, False], "dropout": [0.0, 0.5]}
    WEIGHTED: ClassVar[bool] = False

    def __init__(
        self,
        graph: Graph,
        features: int,
        *,
        hidden: int = 64,
        dropout: float = 0.5,
        layers: int = 2,
        relu: bool = True,
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        self.layers, self.relu = layers, relu
        self.product = FeatureProduct(features, hidden)
        near, far = distance_rings(graph)
        self.near, self.far = Propagation(near), Propagation(far)
        # 1 + 2 + 4 + ... times the hidden width
        self.classifier = nn.Linear(hidden * (2 ** (layers + 1) - 1), self.classes, bias=False)
        nn.init.xavier_uniform_(self.classifier.weight)

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        start: Tensor = self.product(x)
        rounds = [F.relu(start) if self.relu else start]
        for _ in range(self.layers):
            rounds.append(torch.cat([self.near(rounds[-1]), self.far(rounds[-1])], 1))
        seen = torch.cat([r[nodes] for r in rounds], 1)
        logits: Tensor = self.classifier(self.drop(seen))
        return logits


def distance_rings(graph: Graph) -> tuple[Any, Any]:
    """Return D^-1/2 A D^-1/2 of the neighbours at distance exactly 1 and exactly 2, each with its own degrees.

    Examples
    --------
    >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> distance_rings(path)[1].toarray()
    array([[0., 0., 1.],
           [0., 0., 0.],
           [1., 0., 0.]], dtype=float32)
    """
    near = graph.adjacency(np.float32, self_loops=False)
    near.data = np.ones_like(near.data)
    reached = sp.csr_array(near @ near)
    reached.data = np.ones_like(reached.data)
    closer = near + sp.eye_array(graph.n, dtype=np.float32)
    # entries of the closer ones become 0 and are left out
    far = sp.csr_array(reached - reached.multiply(closer))
    far.eliminate_zeros()
    return _normalised(near), _normalised(far)


def _normalised(matrix: Any) -> Any:
    degree = matrix.sum(axis=1)
    scale = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    return sp.csr_array(sp.diags_array(scale) @ matrix @ sp.diags_array(scale))
