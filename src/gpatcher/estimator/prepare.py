"""Computed once per graph and shared by all runs on it: features, and patches or products of pairs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.model.config import ModelConfig
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import FeatureConfig, FeatureTable, node_features, unseen_features
from gpatcher.patches.base import Extractor, LocalExtractor, PatchesOnDemand, PatchSource, Progress
from gpatcher.patches.extract import make_extractor
from gpatcher.patches.store import PatchTable
from gpatcher.training.task import task_of

_FEW = 64  # patches of fewer than this part of the nodes are made for them alone
Patching = Extractor | str | Sequence[Extractor | str]  # accepted as ``patches`` by classifiers


@dataclass(frozen=True, eq=False)
class Prepared:
    """A graph prepared for training."""

    graph: Graph
    extractors: tuple[Extractor, ...]  # one per patch source
    features: FeatureConfig
    x: FeatureTable
    data: tuple[Any, ...]  # what each extractor prepared
    seconds: float  # taken by the extractors
    on_demand: bool = False  # whether patches are made for the nodes that are asked for

    @property
    def from_disk(self) -> bool:
        """Whether patches are read from a table on disk."""
        return any(isinstance(data, PatchTable) for data in self.data)

    @property
    def table(self) -> Path | None:
        """Folder of the patch table, if there is one."""
        return next((data.folder for data in self.data if isinstance(data, PatchTable)), None)

    def fits(
        self,
        graph: Graph,
        extractors: tuple[Extractor, ...],
        features: FeatureConfig,
        device: str,
        nodes: IntArray | None = None,
    ) -> bool:
        """Return whether this was prepared with these arguments, for ``nodes``, by default all."""
        wanted = (features, torch.device(device))
        same = self.graph.x is graph.x and self.has_patches(graph, extractors, nodes)
        return same and wanted == (self.features, self.x.device)

    def has_patches(self, graph: Graph, extractors: tuple[Extractor, ...], nodes: IntArray | None) -> bool:
        """Return whether these patches, which depend on the edges alone, are of this graph."""
        same = all(getattr(self.graph, part) is getattr(graph, part) for part in ("indptr", "indices", "weights"))
        return same and self.extractors == extractors and self.has_nodes(nodes)

    def has_nodes(self, nodes: IntArray | None) -> bool:
        """Return whether the patches of these nodes, by default of all, are made, or few enough to make on demand."""
        return not self.on_demand or _are_few(nodes, self.graph)

    def build(
        self, classes: int, config: ModelConfig, train: IntArray | None = None, nodes: IntArray | None = None
    ) -> GPatcher:
        """Return the model before training, with the labels of the training nodes if it reads them.

        ``nodes`` are the nodes of the rows of ``x``, by default all nodes of the graph.
        """
        labels = self._labels(config, train, nodes)
        return GPatcher(self._sources(), self.x.shape[1], classes, config, labels).to(self.x.device)

    def adapt(self, model: GPatcher, train: IntArray, nodes: IntArray) -> GPatcher:
        """Return a model like `build`, sharing the weights of a trained model except those of its sources."""
        labels = self._labels(model.config, train, nodes)
        sources = [source.to(self.x.device) for source in self._sources()]
        return model.with_sources(sources, None if labels is None else labels.to(self.x.device))

    def _sources(self) -> list[PatchSource]:
        return [extractor.source(data) for extractor, data in zip(self.extractors, self.data, strict=True)]

    def _labels(self, config: ModelConfig, train: IntArray | None, nodes: IntArray | None) -> Tensor | None:
        if "labels" not in config.readout or train is None:
            return None
        labels = training_labels(self.graph.labels(), train)
        if nodes is not None:
            none = torch.nan if labels.is_floating_point() else -1
            labels = F.pad(labels, (0, int(nodes[-1]) + 1), value=none)[torch.from_numpy(nodes)]
        return labels


def training_labels(y: npt.NDArray[Any], train: IntArray) -> Tensor:
    """Return the classes of the training nodes, -1 elsewhere, or standardised numbers, NaN elsewhere; shape (n,)."""
    target = task_of(y, train).target(y)
    labels = torch.full_like(target, torch.nan if target.is_floating_point() else -1)
    labels[train.copy()] = target[train.copy()]
    return labels


def as_extractors(patches: Patching) -> tuple[Extractor, ...]:
    """Return the extractors that a classifier was given, one per patch source."""
    given = tuple(patches) if isinstance(patches, list | tuple) else (patches,)
    extractors = tuple(make_extractor(one) if isinstance(one, str) else one for one in given)
    if not extractors or not all(isinstance(one, Extractor) for one in extractors):
        raise InputError(
            f"patches must be an extractor such as PPR(size=16), its name, or a list of these, got {patches!r}"
        )
    return extractors


def resolve(extractors: tuple[Extractor, ...], graph: Graph, memory: int | None) -> list[tuple[Extractor, ...]]:
    """Return the choices of extractors to train with on this graph; more than one with `AutoExtractor`."""
    options = [extractor.resolve(graph, memory) for extractor in extractors]
    if len(options) == 1:
        return [(option,) for option in options[0]]
    if any(len(option) > 1 for option in options):
        raise InputError("'auto' chooses between extractors; it cannot be one of several patch sources")
    return [tuple(option[0] for option in options)]


def prepare(
    graph: Graph,
    extractors: tuple[Extractor, ...],
    features: FeatureConfig,
    *,
    device: str = "cpu",
    memory: int | None = None,
    progress: Progress | None = None,
    shared: list[Prepared] | None = None,
    nodes: IntArray | None = None,
) -> Prepared:
    """Compute features and patches, which do not depend on a split, for resolved extractors, one per patch source.

    ``memory`` limits the bytes of eigenvectors; ``progress`` is called if none are needed. The models of an ensemble
    pass a list that they share: what is in it is not computed again. If only the patches of a few ``nodes`` are needed,
    and the extractors can do without the others, they are made when the model asks for them.
    """
    for one in shared or ():
        if one.fits(graph, extractors, features, device, nodes):
            return one
    local = [extractor for extractor in extractors if isinstance(extractor, LocalExtractor)]
    on_demand = _are_few(nodes, graph) and len(local) == len(extractors)
    x = node_features(graph, features, check_device(device))
    started = time.perf_counter()
    same = [one for one in shared or () if one.has_patches(graph, extractors, nodes)]
    if same:
        data, on_demand = same[0].data, same[0].on_demand
    elif on_demand:
        data = tuple(PatchesOnDemand(e, graph) for e in local)
    else:
        data = tuple(e.prepare(graph, memory=memory, progress=progress) for e in extractors)
    prepared = Prepared(graph, extractors, features, x, data, time.perf_counter() - started, on_demand)
    if shared is not None:
        shared.append(prepared)
    return prepared


def _are_few(nodes: IntArray | None, graph: Graph) -> bool:
    return nodes is not None and _FEW * len(nodes) <= graph.n


def prepare_table(
    graph: Graph,
    table: PatchTable | str | Path,
    extractors: tuple[Extractor, ...],
    features: FeatureConfig,
    device: str = "cpu",
) -> Prepared:
    """Read patches from a table instead of computing them; it must be of this graph and this extractor."""
    opened = PatchTable.open(table.folder if isinstance(table, PatchTable) else table, graph)
    if extractors != (opened.extractor,):
        raise InputError(
            f"the patch table in {opened.folder} was made with {opened.extractor}, this classifier has "
            f"{', '.join(map(str, extractors))}; pass the table's: GPatcherClassifier(patches=table.extractor, ...)"
        )
    x = node_features(graph, features, check_device(device))
    return Prepared(graph, extractors, features, x, (opened,), 0.0)


def prepare_unseen(
    unseen: UnseenNodes,
    extractors: tuple[Extractor, ...],
    features: FeatureConfig,
    *,
    whole: bool = False,
    device: str = "cpu",
    memory: int | None = None,
) -> tuple[Prepared, IntArray]:
    """Do the same as `prepare` for unseen nodes, and return the result with the nodes of its rows.

    Patches are those of the unseen nodes only, restricted to the nodes in them; or those of the ``whole`` extended
    graph, which several rounds need.
    """
    if whole:
        extended = unseen.extended()
        nodes = np.arange(extended.n)
        data = tuple(extractor.prepare(extended, memory=memory) for extractor in extractors)
    else:
        parts = [extractor.prepare_unseen(unseen, memory=memory) for extractor in extractors]
        nodes = np.unique(np.concatenate([part.members() for part in parts]))
        data = tuple(part.relabel(nodes) for part in parts)
    x = unseen_features(unseen, nodes, features, check_device(device))
    return Prepared(unseen.graph, extractors, features, x, data, 0.0), nodes


def check_device(device: str) -> torch.device:
    """Return the device; an error if it cannot be used."""
    try:
        checked = torch.device(device)
        torch.empty(1, device=checked).cpu()  # fails on a device without data, such as meta
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise InputError(f"the device {device!r} cannot be used: {str(error).splitlines()[0]}") from None
    return checked
