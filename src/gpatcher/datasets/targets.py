"""Regressions on real graphs, where no number is published with the data: one made of columns that are then removed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import stratified_split

_SPLITS = 5


def component_target(graph: Graph) -> Graph:
    """Return the graph with the leading principal component of half of its columns as labels, the others as features.

    Even columns make the label, which depends neither on the edges nor on the classes; odd columns stay. There are five
    splits, stratified by quantiles of the label.
    """
    from scipy.sparse.linalg import svds  # a tenth of a second, which every graph that is loaded would pay

    x: Any = graph.x
    if x is None or x.shape[1] < 4:
        raise InputError(f"{graph.name} has {graph.num_features} columns; a component of half of them needs four")
    target = np.asarray(x[:, ::2].toarray() if sp.issparse(x) else x[:, ::2], dtype=np.float64)
    target = target - target.mean(0)
    vector = svds(target, k=1, v0=np.ones(min(target.shape)))[2][0]
    y = target @ vector * (1.0 if vector[np.abs(vector).argmax()] > 0 else -1.0)
    features = sp.csr_array(sp.csc_array(x)[:, 1::2]) if sp.issparse(x) else np.ascontiguousarray(x[:, 1::2])
    graph = replace(graph, x=features, y=y, classes=(), splits=(), name=f"component:{graph.name}")
    return graph.with_splits([stratified_split(y, 0.6, 0.2, seed) for seed in range(_SPLITS)])
