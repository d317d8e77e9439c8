"""GCN-JKNet (Xu et al., 2018), by torch_geometric's layers."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.nn import JumpingKnowledge

from gpatcher.baselines.base import Baseline
from gpatcher.baselines.gcn import Convolutions
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable

MODES = ("cat", "max")


class JKNet(Baseline):
    """GCN whose classifier sees every layer's output, side by side (``cat``) or the largest of each entry (``max``)."""

    # hidden and dropout reach to those of its best published runs with few labels (Rong et al., 2020)
    SEARCH: ClassVar[dict[str, list[Any]]] = {
        "layers": [2, 3, 4],
        "mode": list(MODES),
        "hidden": [32, 64, 128],
        "dropout": [0.2, 0.5, 0.8],
    }

    def __init__(
        self,
        graph: Graph,
        features: int,
        *,
        hidden: int = 64,
        dropout: float = 0.5,
        layers: int = 2,
        mode: str = "cat",
    ) -> None:
        super().__init__(graph, features, hidden=hidden, dropout=dropout, layers=layers)
        if mode not in MODES:
            raise InputError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        self.stack = Convolutions(graph, features, [hidden] * layers, dropout)
        self.jump = JumpingKnowledge(mode)
        self.classifier = nn.Linear(hidden * (layers if mode == "cat" else 1), self.classes)

    def forward(self, x: FeatureTable, nodes: Tensor) -> Tensor:
        """Return the logits of these nodes, shape (b, C)."""
        seen = self.jump([torch.relu(h[nodes]) for h in self.stack(x)])
        logits: Tensor = self.classifier(self.drop(seen))
        return logits
