"""Patches: for each node, itself and the nodes most relevant to it, in order; and the extractors that make them.

An extractor is a frozen dataclass of its parameters. It prepares a graph once, turns the result into a module that the
model reads patches from, does the same for unseen nodes, and returns the response of its filter. No other code branches
on its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import check_count, check_memory
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes

Progress = Callable[[int, int], None]  # called with the steps done and the total


@dataclass(frozen=True, eq=False)
class Patches:
    """The patches of some or all nodes.

    Parameters
    ----------
    index : int32 array, shape (n, p)
        The node itself, then others by descending score and ascending id, then -1.
    score : float32 array, shape (n, p)
        Relevance of each member; 0 where ``index`` is -1.
    """

    index: IntArray
    score: FloatArray

    @classmethod
    def empty(cls, rows: int, size: int) -> Patches:
        """Return patches without members, to be filled in place."""
        check_memory(8.0 * rows * size, f"patches of {size:,} nodes for {rows:,} nodes", "choose a smaller patch size")
        return cls(np.full((rows, size), -1, np.int32), np.zeros((rows, size), np.float32))

    @property
    def size(self) -> int:
        """Patch size p."""
        return int(self.index.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return int(self.index.nbytes + self.score.nbytes)

    def __getitem__(self, nodes: Any) -> Patches:
        return Patches(self.index[nodes], self.score[nodes])

    def members(self) -> IntArray:
        """Return the distinct nodes in these patches, ascending."""
        return np.unique(self.index[self.index >= 0])

    def relabel(self, nodes: IntArray) -> Patches:
        """Return the patches with each member replaced by its position in ``nodes``, which must ascend."""
        return Patches(positions(self.index, nodes), self.score)

    def source(self) -> FixedPatches:
        """Return the module that serves these patches."""
        return FixedPatches(self)


class PatchesOnDemand:
    """The patches of a graph, made for the nodes that are asked for; the last ones are kept.

    Parameters
    ----------
    extractor : LocalExtractor
    graph : Graph
    """

    def __init__(self, extractor: LocalExtractor, graph: Graph) -> None:
        self.extractor, self.graph = extractor, graph
        self._last: tuple[IntArray, Patches] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the patches of all nodes, so that batches are as large as with these."""
        return 8 * self.graph.n * self.extractor.size

    def __getitem__(self, nodes: Any) -> Patches:
        asked, last = np.asarray(nodes), self._last
        if last is None or not np.array_equal(last[0], asked):
            last = asked, self.extractor.patches_of(self.graph, asked)
            self._last = last
        return last[1]

    def source(self) -> OnDemandSource:
        """Return the module that serves these patches."""
        return OnDemandSource(self)


def positions(index: IntArray, nodes: IntArray) -> IntArray:
    """Return the position of each entry of ``index`` in ``nodes``, which must ascend; -1 stays -1."""
    return np.where(index >= 0, np.searchsorted(nodes, index), -1).astype(np.int32)


class PatchSource(nn.Module, ABC):
    """A module that maps nodes to their patches."""

    size: int  # of a patch, p
    learned: ClassVar[bool] = False  # whether the patches depend on weights that are trained
    rows: int | None = None  # number of patches, where they are in memory
    fill: float = 1.0  # upper bound of the fraction of positions that have a member

    @abstractmethod
    def forward(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return index, shape (b, p), padded with -1, and score, shape (b, p)."""

    @abstractmethod
    def patches(self) -> Patches:
        """Return the patches of all nodes."""

    def reselect(self) -> None:
        """Select the members again by the current weights; does nothing if patches are fixed."""


class FixedPatches(PatchSource):
    """Patches of all nodes, computed before training."""

    def __init__(self, patches: Patches) -> None:
        super().__init__()
        self.size, self.rows = patches.size, len(patches.index)
        self.fill = float((patches.index >= 0).mean()) if patches.index.size else 1.0
        self.register_buffer("index", torch.from_numpy(patches.index), persistent=False)
        self.register_buffer("score", torch.from_numpy(patches.score), persistent=False)

    index: Tensor
    score: Tensor

    def forward(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return index and score of the patches of these nodes."""
        return self.index.index_select(0, nodes).long(), self.score.index_select(0, nodes)

    def patches(self) -> Patches:
        """Return all patches."""
        return Patches(self.index.numpy(force=True), self.score.numpy(force=True))


class OnDemandSource(PatchSource):
    """Patches that are made when they are asked for."""

    def __init__(self, made: PatchesOnDemand) -> None:
        super().__init__()
        self.made, self.size = made, made.extractor.size

    def forward(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return index and score of the patches of these nodes."""
        patches = self.made[nodes.numpy(force=True)]
        return (
            torch.from_numpy(patches.index).to(nodes.device).long(),
            torch.from_numpy(patches.score).to(nodes.device),
        )

    def patches(self) -> Patches:
        """Return the patches of all nodes."""
        return self.made.extractor.prepare(self.made.graph)


@dataclass(frozen=True)
class Extractor(ABC):
    """Base class of extractors; one subclass per filter.

    Parameters
    ----------
    size : int
        Patch size p, the node itself included.
    """

    name: ClassVar[str]
    needs_eigenvectors: ClassVar[bool] = False
    size: int = field(default=16, kw_only=True)

    def __post_init__(self) -> None:
        check_count(size=self.size)

    def resolve(self, graph: Graph, memory: int | None = None) -> tuple[Extractor, ...]:
        """Return the extractors to compare on this graph, with all choices made; usually one.

        ``memory`` is the bytes that eigenvectors may take; by default half of the free memory.
        """
        return (self,)

    @abstractmethod
    def prepare(self, graph: Graph, *, memory: int | None = None, progress: Progress | None = None) -> Any:
        """Return the data that all training runs on a graph share: patches, or candidates and their products."""

    def source(self, data: Any) -> PatchSource:
        """Return the module that serves patches from what `prepare` or `prepare_unseen` returned."""
        return data.source()

    @abstractmethod
    def prepare_unseen(self, unseen: UnseenNodes, *, memory: int | None = None) -> Any:
        """Return the result of `prepare` on the extended graph, for the unseen nodes only."""

    def coverage(self, graph: Graph) -> float:
        """Return the fraction of nodes with a member beside themselves; from a sample where members can be rare."""
        return 1.0

    @abstractmethod
    def response(self, values: Tensor) -> Tensor:
        """Return g(λ) before training, shape (len(values),)."""


@dataclass(frozen=True)
class LocalExtractor(Extractor):
    """Base class of extractors that make the patches of some nodes without those of the others."""

    @abstractmethod
    def patches_of(self, graph: Graph, nodes: IntArray, progress: Progress | None = None) -> Patches:
        """Return the patches of these nodes, in their order."""

    def prepare(self, graph: Graph, *, memory: int | None = None, progress: Progress | None = None) -> Patches:
        """Return the patches of all nodes."""
        return self.patches_of(graph, np.arange(graph.n), progress)
