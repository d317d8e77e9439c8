"""Probes: how well a linear model classifies nodes from a single source of information, in seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.graph.graph import Graph
from gpatcher.spectral.results import SOURCES, Probe

_NODES = 1000  # labelled nodes that are scored
_PENALTIES = 10.0 ** np.arange(-4, 4)  # of the ridge, relative to the mean eigenvalue


def probe_sources(graph: Graph, seed: int = 0) -> dict[str, Probe]:
    """Measure how predictive of the labels each of `SOURCES` is on its own, and ``majority``, the most frequent class.

    Half of the labelled nodes, at most 1,000, are scored by ridge regression on their one-hot labels, leaving one out
    at a time; only the labels of the other half are visible at neighbours. In a directed graph adjacency rows,
    neighbours and their classes are read in both directions, side by side. The cost is O(n + m) plus a few
    decompositions of a matrix over the scored nodes.

    Parameters
    ----------
    graph : Graph
        A graph with labels; without features, the sources that need them are omitted.
    seed : int
        Seed of the choice of scored nodes.

    Returns
    -------
    dict of str to Probe
        By source; empty with fewer than ten labelled nodes or a single class.

    Examples
    --------
    >>> from gpatcher.datasets.synthetic import csbm
    >>> probes = probe_sources(csbm(phi=0.9, n=400, features=10))
    >>> probes["neighbours"].accuracy > probes["columns"].accuracy
    True
    """
    if graph.y is None:
        return {}
    y = graph.y
    # a separate random stream: the mines of Minesweeper are the first nodes of default_rng(0).permutation(n)
    labelled = np.random.default_rng([seed, graph.n, 1]).permutation(np.flatnonzero(y >= 0))
    if len(labelled) < 10 or len(np.unique(y[labelled])) < 2:
        return {}
    scored = np.sort(labelled[: min(_NODES, len(labelled) // 2)])
    known = np.zeros((graph.n, graph.num_classes), np.float32)
    others = np.setdiff1d(labelled, scored)
    known[others, y[others]] = 1.0
    rows = graph.adjacency(np.float32)
    steps = [_mean_weights(step) for step in ([rows, sp.csr_array(rows.T)] if graph.is_directed else [rows])]
    own = [step[scored] for step in steps]
    sources: dict[str, list[Any]] = {
        "adjacency": own,
        "labels": [step @ known for step in own],
        "two_hop_labels": [step @ (other @ known) for step in own for other in steps],
    }
    if graph.x is not None:
        sources |= {"columns": [graph.x[scored]], "neighbours": [step @ graph.x for step in own]}
    majority = float(np.bincount(y[scored]).max() / len(scored))
    probes = {"majority": Probe(majority, float(np.sqrt(majority * (1 - majority) / len(scored))), 0.0, 0.0)}
    for name in SOURCES:
        if name in sources:
            kernel = sum(_kernel(part) for part in sources[name])
            probes[name] = _leave_one_out(np.asarray(kernel), y[scored])
    return probes


def best_source(probes: dict[str, Probe]) -> str | None:
    """Return the source that explains most; among those within a standard error of it, the first in `SOURCES`.

    None if no source explains more than two standard errors.
    """
    sources = [name for name in SOURCES if name in probes]
    if not sources:
        return None
    best = max((probes[name] for name in sources), key=lambda probe: probe.explained)
    if best.explained <= 2 * best.explained_error:
        return None
    return next(name for name in sources if probes[name].explained >= best.explained - best.explained_error)


def _mean_weights(step: sp.csr_array) -> sp.csr_array:
    """Divide rows by their sums."""
    sums = np.asarray(step.sum(axis=1)).ravel()
    return sp.csr_array(sp.diags_array(np.divide(1, sums, out=np.zeros_like(sums), where=sums > 0)) @ step)


def _kernel(rows: Any) -> FloatArray:
    """Return the cosine similarities between rows, shape (b, b)."""
    product = rows @ rows.T
    product = np.asarray(product.toarray() if sp.issparse(product) else product, dtype=np.float64)
    norm = np.sqrt(product.diagonal())
    return np.asarray(product / np.maximum(np.outer(norm, norm), 1e-12))


def _leave_one_out(kernel: FloatArray, y: IntArray) -> Probe:
    """Return the result of ridge regression on one-hot labels; the penalty minimises the leave-one-out error.

    With H = K (K + λ I)⁻¹ and targets T, the prediction for a left-out node is t_i - (t_i - (H T)_i) / (1 -
    H_ii), so that one decomposition of K serves all nodes and all λ.
    """
    values, vectors = scipy.linalg.eigh(kernel + 1.0, driver="evd")  # the constant is the intercept
    values = np.maximum(values, 0.0)
    one_hot = np.eye(int(y.max()) + 1)[y]
    target = one_hot - one_hot.mean(0)
    projected, squares = vectors.T @ target, vectors**2
    smallest, left_out = np.inf, target
    for penalty in _PENALTIES * values.mean():
        shrunk = values / (values + penalty)
        residual = (target - vectors @ (shrunk[:, None] * projected)) / (1 - squares @ shrunk)[:, None]
        if (squared := float((residual**2).sum())) < smallest:
            smallest, left_out = squared, residual
    accuracy = float(((one_hot - left_out).argmax(1) == y).mean())
    gains = (target**2 - left_out**2).sum(1) / max(float((target**2).sum(1).mean()), 1e-12)
    errors = np.sqrt([accuracy * (1 - accuracy), gains.var()]) / np.sqrt(len(y))
    return Probe(accuracy, float(errors[0]), float(gains.mean()), float(errors[1]))
