"""GCN-JKNet: Xu et al. Representation Learning on Graphs with Jumping Knowledge Networks. ICML 2018."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.nn import JumpingKnowledge

from gpatcher.baselines.base import Baseline
from gpatcher.baselines.gcn import Convolutions
from gpatcher.errors import check_choice
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable

MODES = ("cat", "max")


class JKNet(Baseline):
    r"""GCN whose classifier reads the outputs of all L layers.

    .. math:: h^{(l)} = \mathrm{ReLU}(\hat A h^{(l-1)} W_l + b_l), \quad
        \mathrm{logits} = \mathrm{AGG}(h^{(1)}, \dots, h^{(L)})\, W + b

    The other parameters are those of `Baseline`.

    Parameters
    ----------
    mode : {"cat", "max"}
        AGG: concatenation, or the maximum of each entry.
    """

    # hidden and dropout include the values of its best published runs with few labels (Rong et al., 2020)
    SEARCH: ClassVar[dict[str, list[Any]]] = {
        "layers": [2, 3, 4],
        "mode": list(MODES),
        "hidden": [32, 64, 128],
        "dropout": [0.2, 0.5, 0.8],
    }

    def __init__(
        self, graph: Graph, features: int, *, hidden: int = 64, dropout: float = 0.5, layers: int = 2, mode: str = "cat"
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        check_choice("mode", mode, MODES)
        self.stack = Convolutions(graph, features, [hidden] * layers, dropout)
        self.jump = JumpingKnowledge(mode)
        self.classifier = nn.Linear(hidden * (layers if mode == "cat" else 1), self.classes)

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        aggregated = self.jump([torch.relu(h[nodes]) for h in self.stack(x)])
        return self.classifier(self.drop(aggregated))
