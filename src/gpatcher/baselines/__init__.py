"""Baselines under the one contract, by name.

Each is a class that takes the graph, the number of features and its hyper-parameters; ``forward(x, nodes)`` gives
logits and `gpatcher.training.loop.fit` trains it. A new one is one file here with a subclass of `Baseline`; its name is the
file's.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import numpy as np

from gpatcher.baselines.base import Baseline
from gpatcher.bench.plan import baseline_names
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split


def _load(name: str) -> type[Baseline]:
    module = import_module(f"{__name__}.{name}")
    found = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Baseline) and kind.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise TypeError(f"{module.__file__} must define one subclass of Baseline, it has {len(found)}")
    return found[0]


BASELINES: dict[str, type[Baseline]] = {name: _load(name) for name in baseline_names()}

# what to tune for each: hyper-parameter -> values to try
SEARCH: dict[str, dict[str, list[Any]]] = {
    name: {"hidden": [64, 32, 128], "dropout": [0.2, 0.5, 0.7], **kind.SEARCH} for name, kind in BASELINES.items()
}


def make_baseline(name: str, graph: Graph, features: int, split: Split, **parameters: Any) -> Baseline:
    """Build a baseline, with the labels of ``split.train`` for those that need labels and never any others.

    Parameters
    ----------
    name : one of `BASELINES`
    features : number of columns of the feature table it will be called with
    parameters : its hyper-parameters

    Examples
    --------
    >>> from gpatcher.datasets.synthetic import csbm
    >>> graph = csbm(phi=0.5, n=60, features=4)
    >>> make_baseline("appnp", graph, 4, graph.splits[0], alpha=0.2).alpha
    0.2
    """
    if name not in BASELINES:
        raise InputError(f"there is no baseline {name!r}; there are {', '.join(BASELINES)}")
    kind = BASELINES[name]
    own = inspect.signature(kind).parameters
    given: dict[str, Any] = {}
    if "labels" in own:
        given["labels"] = np.full(graph.n, -1)
        given["labels"][split.train] = graph.labels()[split.train]
    known = [p for p in own if p not in ("graph", "features", "labels")]
    for parameter in parameters:
        if parameter not in known:
            raise InputError(f"{name} has no parameter {parameter!r}; it has {', '.join(known)}")
    return kind(graph, features, **given, **parameters)
