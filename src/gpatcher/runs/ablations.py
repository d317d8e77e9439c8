"""Ablations of a run: patches without their order, and the graph that patches induce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.patches.base import Extractor, Patches, PatchSource, Progress


@dataclass(frozen=True)
class ShuffledExtractor(Extractor):
    """An extractor with shuffled patches: the positions after the node itself are permuted, once per node."""

    name: ClassVar[str] = "shuffled"
    extractor: Extractor
    seed: int = 0

    def prepare(self, graph: Graph, *, memory: int | None = None, progress: Progress | None = None) -> Any:
        """Return what the extractor prepares."""
        return self.extractor.prepare(graph, memory=memory, progress=progress)

    def prepare_unseen(self, unseen: UnseenNodes, *, memory: int | None = None) -> Any:
        """Return what the extractor prepares."""
        return self.extractor.prepare_unseen(unseen, memory=memory)

    def source(self, data: Any) -> PatchSource:
        """Return the extractor's module with the positions of its patches permuted."""
        module = self.extractor.source(data)
        n = len(module.patches().index)
        columns = np.tile(np.arange(1, self.size), (n, 1))
        permuted = np.random.default_rng(self.seed).permuted(columns, axis=1)
        order = torch.from_numpy(np.hstack([np.zeros((n, 1), np.int64), permuted]))

        def shuffle(_: nn.Module, nodes: tuple[Tensor], patches: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            columns = order[nodes[0]]
            return patches[0].gather(1, columns), patches[1].gather(1, columns)

        module.register_forward_hook(shuffle)
        return module

    def response(self, values: Tensor) -> Tensor:
        """Return the response of the extractor."""
        return self.extractor.response(values)


def patch_graph(graph: Graph, patches: Patches) -> Graph:
    """Return the graph with an edge from each node to the members of its patch; features and labels stay."""
    members = patches.index[:, 1:]
    source, column = np.nonzero(members >= 0)
    edges = np.stack([source, members[source, column]]).astype(np.int64)
    return Graph.from_edge_index(
        np.unique(np.hstack([edges, edges[::-1]]), axis=1),
        x=graph.x,
        y=graph.y,
        num_nodes=graph.n,
        classes=graph.classes,
        name=graph.name,
    )
