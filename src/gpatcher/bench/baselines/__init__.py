"""Baselines under the one contract, by name.

Each is a class that takes the graph, the number of features and its hyper-parameters; ``forward(x, nodes)`` gives
logits and `gpatcher.training.fit` trains it. A new one is a file with a subclass of `Baseline` and a line here.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from gpatcher.bench.baselines.base import Baseline
from gpatcher.bench.baselines.bmgcn import BMGCN
from gpatcher.bench.baselines.chebnet import ChebNet
from gpatcher.bench.baselines.fagcn import FAGCN
from gpatcher.bench.baselines.gat import GAT
from gpatcher.bench.baselines.gcn import GCN, JKNet
from gpatcher.bench.baselines.graphsage import GraphSAGE
from gpatcher.bench.baselines.h2gcn import H2GCN
from gpatcher.bench.baselines.mlp import MLP
from gpatcher.bench.baselines.pagerank import APPNP, GPRGNN
from gpatcher.graph import Graph, InputError, Split

BASELINES: dict[str, type[Baseline]] = {
    "mlp": MLP,
    "gcn": GCN,
    "gat": GAT,
    "graphsage": GraphSAGE,
    "chebnet": ChebNet,
    "appnp": APPNP,
    "jknet": JKNet,
    "gprgnn": GPRGNN,
    "fagcn": FAGCN,
    "h2gcn": H2GCN,
    "bmgcn": BMGCN,
}

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
    >>> from gpatcher.data.synthetic import csbm
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
