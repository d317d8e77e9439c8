"""Patches for torch_geometric: a transform that adds them to `Data`."""

from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.patches.extract import check_extractor, extract_patches


class AddPatches(BaseTransform):  # type: ignore[misc]
    """Add the patch of every node to a graph: ``patch_index`` (n, size) and ``patch_score`` (n, size).

    The node itself comes first, then others by falling score; -1 and score 0 where a patch runs short. A directed
    graph is seen as undirected. For one graph with many nodes: torch_geometric's batches of several graphs would shift
    the -1 too.

    Parameters
    ----------
    method, size, K, c, eps, self_loops, memory : see `extract_patches`

    Examples
    --------
    >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
    >>> AddPatches(size=2)(data).patch_index
    tensor([[0, 1],
            [1, 0],
            [2, 1]])
    """

    def __init__(
        self,
        method: str = "ppr",
        size: int = 32,
        *,
        K: int = 10,
        c: float = 0.5,
        eps: float = 1e-5,
        self_loops: bool = False,
        memory: int | None = None,
    ) -> None:
        self.method = check_extractor(method)
        self.size = size
        self.options = {"K": K, "c": c, "eps": eps, "self_loops": self_loops, "memory": memory}

    def forward(self, data: Data) -> Data:
        """Return the data with the patches."""
        if data.edge_index is None:
            raise InputError("the data have no edge_index; put AddPatches before a transform that takes it away")
        graph = Graph.from_edge_index(data.edge_index, num_nodes=data.num_nodes, weights=data.edge_weight)
        patches = extract_patches(graph, self.method, self.size, **self.options)  # type: ignore[arg-type]
        data.patch_index = torch.from_numpy(patches.index).long().to(data.edge_index.device)
        data.patch_score = torch.from_numpy(patches.score).to(data.edge_index.device)
        return data

    def __repr__(self) -> str:
        return f"AddPatches(method={self.method!r}, size={self.size})"
