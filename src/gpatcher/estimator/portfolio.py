"""The portfolio: configurations that together do well on many kinds of graphs, in order of expected gain.

``portfolio.json`` is made by ``tools/portfolio.py`` from logged runs; it contains no data set names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from gpatcher.estimator.base import NodeModel
from gpatcher.estimator.classifier import GPatcherClassifier, GPatcherRegressor
from gpatcher.estimator.linear import LinearClassifier, LinearRegressor
from gpatcher.estimator.prepare import as_extractors
from gpatcher.estimator.settings import sources_to_settings, to_sources
from gpatcher.estimator.trees import TreesClassifier, TreesRegressor
from gpatcher.graph.graph import Graph
from gpatcher.patches.extract import EXTRACTORS

_ENOUGH_EDGES = 100  # stored edges from which an edge type is a patch source
_EDGE_TYPES = 4  # at most so many, the largest: a model reads every source
_COVERAGE = 0.02  # fraction of the nodes that have another member, from which a source is read
_STRUCTURE = ("degree", "clustering")  # features that are also defined for unseen nodes
_REGRESSORS: dict[str, Any] = {
    GPatcherClassifier.kind: GPatcherRegressor,
    TreesClassifier.kind: TreesRegressor,
    LinearClassifier.kind: LinearRegressor,
}
KINDS: dict[str, Any] = {c.kind: c for c in (GPatcherClassifier, TreesClassifier, LinearClassifier)}
KINDS |= {c.kind: c for c in _REGRESSORS.values()}


@dataclass(frozen=True)
class Candidate:
    """A configuration of the portfolio.

    Parameters
    ----------
    name : str
    kind : {"patches", "trees", "linear"}
        The classifier.
    settings : dict
        Its settings; missing ones have their defaults.
    cost : float
        Its training time, as a multiple of the mean over the portfolio.
    """

    name: str
    kind: str
    settings: dict[str, Any] = field(hash=False)
    cost: float = 1.0

    def adapted(self, graph: Graph) -> Candidate:
        """Return the configuration for this graph.

        If it is undirected, sources that differ only in direction are merged. If its edges have types, sources are
        repeated for each type. Sources in which hardly any node has another member are left out. If it has no features,
        structural features are used instead. If numbers are predicted, it is a regressor.
        """
        settings, kind = dict(self.settings), self.kind
        if graph.relations and "patches" not in settings:
            settings["patches"] = sources_to_settings(as_extractors(KINDS[self.kind]().patches))
        if graph.is_regression and kind in _REGRESSORS:
            kind = _REGRESSORS[kind].kind
            for name in ("class_weights", "consistency") if "train" in settings else ():  # of classes only
                settings["train"] = {key: value for key, value in settings["train"].items() if key != name}
        sources, features = settings.get("patches"), settings.get("features", {})
        if not graph.is_directed and isinstance(sources, list):
            undirected = [{k: v for k, v in source.items() if k != "direction"} for source in sources]
            settings["patches"] = sources = _distinct(undirected)
        sources = settings.get("patches")
        if graph.relations and sources is not None:
            settings["patches"] = _by_edge_type(sources if isinstance(sources, list) else [sources], graph)
        if isinstance(settings.get("patches"), list):
            read = [source for source in settings["patches"] if to_sources(source)[0].coverage(graph) >= _COVERAGE]
            settings["patches"] = read or settings["patches"][:1]
        if graph.x is None and not features.get("adjacency_features") and not features.get("structure"):
            settings["features"] = {**features, "structure": list(_STRUCTURE)}
        return replace(self, kind=kind, settings=settings)

    def to_dict(self) -> dict[str, Any]:
        """Return what is trained, for JSON; the cost is not part of it."""
        return {"name": self.name, "kind": self.kind, "settings": self.settings}

    def make(self, **parameters: Any) -> NodeModel:
        """Return the model, unfitted."""
        model: NodeModel = KINDS[self.kind].from_settings(self.settings, **parameters)
        return model


def _by_edge_type(sources: list[dict[str, Any]], graph: Graph) -> list[dict[str, Any]]:
    """Return the sources, and those that follow edges also for each of the largest edge types alone."""
    large = sorted(graph.relations, key=lambda name: -graph.relations[name].stored_edges)[:_EDGE_TYPES]
    typed = []
    for name in graph.relations:
        if name in large and graph.relations[name].stored_edges >= _ENOUGH_EDGES:
            left_out = () if graph.relations[name].is_directed else ("direction",)
            typed += [
                {key: value for key, value in source.items() if key not in left_out} | {"edge_type": name}
                for source in sources
                if hasattr(EXTRACTORS[source["name"]], "edge_type")
            ]
    return _distinct([*sources, *typed])


def _distinct(sources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [source for i, source in enumerate(sources) if source not in sources[:i]]


@cache
def shipped_portfolio() -> tuple[Candidate, ...]:
    """Return the portfolio that ships with the package."""
    content = json.loads((files("gpatcher.estimator") / "portfolio.json").read_text(encoding="utf-8"))
    return tuple(Candidate(**entry) for entry in content["members"])
