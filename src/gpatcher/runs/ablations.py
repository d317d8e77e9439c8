"""Ablations of a run: patches without their order, and the graph that patches induce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.patches.base import Extractor, Patches, PatchSource, Progress


@dataclass(frozen=True)
class ShuffledExtractor(Extractor):
    """An extractor whose patches lose their order: the positions after the node itself are permuted, once per node.

    Parameters
    ----------
    size : int
        Patch size p.
    extractor : Extractor
        Where patches come from.
    seed : int
        Of the permutations.
    """

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
        """Return the extractor's module with its positions permuted."""
        return ShuffledPatches(self.extractor.source(data), self.seed)

    def response(self, values: Tensor) -> Tensor:
        """Return the response of the extractor."""
        return self.extractor.response(values)


class ShuffledPatches(PatchSource):
    """Patches of another source with the positions after the node itself permuted, once per node."""

    def __init__(self, source: PatchSource, seed: int) -> None:
        super().__init__()
        self.inner, self.size, self.seed = source, source.size, seed
        self.learned = source.learned  # type: ignore[misc]
        self.order: Tensor | None = None

    def forward(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return index and score, shape (b, p)."""
        if self.order is None:
            n = len(self.inner.patches().index)
            columns = np.tile(np.arange(1, self.size), (n, 1))
            order = np.random.default_rng(self.seed).permuted(columns, axis=1)
            self.order = torch.from_numpy(np.hstack([np.zeros((n, 1), np.int64), order]))
        index, score = self.inner(nodes)
        return index.gather(1, self.order[nodes]), score.gather(1, self.order[nodes])

    def patches(self) -> Patches:
        """Return the patches of all nodes."""
        index, score = self(torch.arange(len(self.inner.patches().index)))
        return Patches(index.numpy().astype(np.int32), score.detach().numpy())

    def reselect(self) -> None:
        """Let the selection follow the weights."""
        self.inner.reselect()


def patch_graph(graph: Graph, patches: Patches) -> Graph:
    """Return the graph in which each node is joined to the members of its patch; features and labels stay.

    Examples
    --------
    >>> graph = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> patch_graph(graph, Patches(np.array([[0, 2], [1, -1], [2, 0]]), np.ones((3, 2)))).neighbours(0).tolist()
    [2]
    """
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
