"""Patches for torch_geometric: a transform that adds them to `Data`."""

from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.patches.base import Extractor
from gpatcher.patches.extract import extract_patches, make_extractor
from gpatcher.patches.ppr import PPR


class AddPatches(BaseTransform):  # type: ignore[misc]
    """Add the patch of every node to a graph: ``patch_index`` (n, p) and ``patch_score`` (n, p).

    The node itself comes first, then others by descending score; patches are padded with -1 and score 0. Edges are
    treated as undirected, unless the extractor has a ``direction``. Not for batches of several graphs: torch_geometric
    would shift the padding -1 too.

    Parameters
    ----------
    extractor : Extractor or str
        An extractor such as ``PPR(size=32)``, or the name of one with its defaults.
    memory : int, optional
        Bytes that eigenvectors may take.

    Examples
    --------
    >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
    >>> AddPatches(PPR(size=2))(data).patch_index
    tensor([[0, 1],
            [1, 0],
            [2, 1]])
    """

    def __init__(self, extractor: Extractor | str = PPR(size=32), *, memory: int | None = None) -> None:
        self.extractor = make_extractor(extractor) if isinstance(extractor, str) else extractor
        self.memory = memory

    def forward(self, data: Data) -> Data:
        """Return the data with the patches."""
        if data.edge_index is None:
            raise InputError("the data have no edge_index; apply AddPatches before a transform that removes it")
        graph = Graph.from_edge_index(data.edge_index, num_nodes=data.num_nodes, weights=data.edge_weight)
        patches = extract_patches(graph, self.extractor, memory=self.memory)
        data.patch_index = torch.from_numpy(patches.index).long().to(data.edge_index.device)
        data.patch_score = torch.from_numpy(patches.score).to(data.edge_index.device)
        return data

    def __repr__(self) -> str:
        return f"AddPatches({self.extractor})"
