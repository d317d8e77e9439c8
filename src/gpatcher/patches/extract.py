"""Extractors by name, the choice between them, and patches in one call."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from gpatcher.codec import from_json
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.patches.base import Extractor, Patches, Progress
from gpatcher.patches.hop import Hop
from gpatcher.patches.overlap import Overlap
from gpatcher.patches.polynomial import PolynomialFilter
from gpatcher.patches.ppr import PPR
from gpatcher.patches.spectral import (
    AdaptiveFilter,
    BandpassFilter,
    HeatKernel,
    LearnedFilter,
    SharedFilter,
    spectral_patches,
)
from gpatcher.spectral.spectrum import graph_spectrum, is_affordable


@dataclass(frozen=True)
class AutoExtractor(Extractor):
    """The choice between a learned filter and personalised PageRank, by validation loss.

    The learned filter is `AdaptiveFilter`, or `PolynomialFilter` without eigenvectors if these would exceed the memory
    or ten minutes.

    Parameters
    ----------
    size, K, self_loops, c, candidates, sigma, eps
        Parameters of the extractors that are compared.
    """

    name: ClassVar[str] = "auto"
    K: int = 10
    self_loops: bool = False
    c: float = 0.5
    candidates: int = 4
    sigma: str = "none"
    eps: float = 1e-5

    def resolve(self, graph: Graph, memory: int | None = None) -> tuple[Extractor, ...]:
        """Return the extractors to compare."""
        parameters = extractor_parameters(self)
        learned = (
            make_extractor("heterophily-aware", parameters)
            if is_affordable(graph.n, memory)
            else make_extractor("polynomial", {**parameters, "exact": False})
        )
        return learned, make_extractor("ppr", parameters)

    def prepare(self, graph: Graph, *, memory: int | None = None, progress: Progress | None = None) -> Any:
        """Raise an error: the data depend on the choice."""
        raise InputError("auto stands for several extractors; prepare those of resolve(graph)")

    def prepare_unseen(self, unseen: UnseenNodes, *, memory: int | None = None) -> Any:
        """Raise an error: the data depend on the choice."""
        raise InputError("auto stands for several extractors; use the one that was chosen")

    def response(self, values: Tensor) -> Tensor:
        """Raise an error: the response depends on the choice."""
        raise InputError("auto has no response before it is fitted")


_ALL = (AdaptiveFilter, PolynomialFilter, SharedFilter, HeatKernel, BandpassFilter, PPR, Hop, Overlap, AutoExtractor)
EXTRACTORS: dict[str, type[Extractor]] = {extractor.name: extractor for extractor in _ALL}


def extractor_parameters(extractor: Extractor) -> dict[str, Any]:
    """Return the parameters of an extractor without its name; the edge type only if there is one."""
    parameters = {part.name: getattr(extractor, part.name) for part in fields(extractor)}
    return {name: value for name, value in parameters.items() if name != "edge_type" or value is not None}


def make_extractor(name: str, parameters: Mapping[str, Any] | None = None) -> Extractor:
    """Return the extractor of this name; parameters of other extractors are ignored, unknown ones are an error.

    Examples
    --------
    >>> make_extractor("ppr", {"size": 8, "K": 10})
    PPR(size=8, c=0.5, eps=1e-05, self_loops=False, direction='both', edge_type=None)
    """
    if not isinstance(name, str) or name not in EXTRACTORS:
        raise InputError(f"unknown extractor {name!r}; choose one of {', '.join(EXTRACTORS)}")
    own = {part.name for part in fields(EXTRACTORS[name])}
    every = {part.name for extractor in EXTRACTORS.values() for part in fields(extractor)}
    parameters = dict(parameters or {})
    for parameter in parameters:
        if parameter not in every:
            close = difflib.get_close_matches(parameter, sorted(every))
            hint = f"; did you mean {close[0]!r}?" if close else f"; {name} has {', '.join(sorted(own))}"
            raise InputError(f"extractors have no parameter {parameter!r}{hint}")
    extractor: Extractor = from_json(EXTRACTORS[name], {k: v for k, v in parameters.items() if k in own}, name)
    return extractor


def extract_patches(graph: Graph, extractor: Extractor | str = "ppr", *, memory: int | None = None) -> Patches:
    """Extract the patch of every node; a learned filter has its initial weights.

    Parameters
    ----------
    graph : Graph
    extractor : Extractor or str
        An extractor such as ``PPR(size=8)``, or the name of one with its defaults.
    memory : int, optional
        Bytes that eigenvectors may take; by default half of the free memory.

    Returns
    -------
    Patches

    Examples
    --------
    >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> extract_patches(path, PPR(size=2)).index
    array([[0, 1],
           [1, 0],
           [2, 1]], dtype=int32)
    """
    extractor = make_extractor(extractor) if isinstance(extractor, str) else extractor
    if not isinstance(extractor, LearnedFilter):
        return extractor.prepare(graph, memory=memory)
    exact = extractor.exact if isinstance(extractor, PolynomialFilter) else True
    if exact is False:
        return extractor.source(extractor.prepare(graph)).patches()
    if exact is None and not is_affordable(graph.n, memory):
        raise InputError(
            f"eigenvectors of {graph.n:,} nodes take more than the memory or ten minutes; before training, a "
            f"polynomial filter ranks as personalised PageRank: use PPR(c={extractor.c}), or train the filter without "
            "eigenvectors by GPatcherClassifier(patches=PolynomialFilter())"
        )
    spectrum = graph_spectrum(graph, extractor.self_loops, memory)
    g = extractor.response(torch.from_numpy(spectrum.values)).numpy()
    return spectral_patches(spectrum, g, extractor.size)
