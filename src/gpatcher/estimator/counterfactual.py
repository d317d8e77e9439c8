"""Counterfactuals: the smallest change among the edges of a node that would change its class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError
from gpatcher.estimator.base import NodeClassifier
from gpatcher.graph.graph import Graph

_SINGLE = 16  # edges that are removed one by one
_SPECTRAL = 1_000  # nodes up to which eigenvectors take a moment, and are not cached


@dataclass(frozen=True)
class Counterfactual:
    """A change among the edges of a node that changes its class, or that none was found."""

    removed: tuple[Any, ...]  # ids of neighbours; without the edges to these the class is another
    predicted: str | None  # the class then; None if no change was found
    single: int  # edges that were removed one by one
    tried: int  # graphs that were predicted, in all
    degree: int  # neighbours of the node

    def sentence(self, now: str) -> str:
        """Return the result in words; ``now`` is the class with all edges."""
        tried = f"{self.tried} of its possible changes were tried"
        if not self.degree:
            return "It has no edges that could be taken away."
        if self.predicted is None:
            return f"It would be classed {now} without all of its {self.degree} edges, too ({tried})."
        named = [str(name) for name in self.removed]
        edges = f"edge to {named[0]}" if len(named) == 1 else f"edges to {', '.join(named[:-1])} and {named[-1]}"
        text = f"Without its {edges} it would be classed {self.predicted}, not {now}"
        if len(named) == 1:
            return f"{text}: the smallest change among its {self.degree} edges ({tried})."
        which = "one" if self.single == self.degree else f"of the {self.single} tried"
        return f"{text}. No single edge, {which}, is enough; a smaller set may exist, the search is greedy ({tried})."


def drop_edges(graph: Graph, drop: Callable[[IntArray, IntArray], npt.NDArray[np.bool_]]) -> Graph:
    """Return a graph without the edges of any type for whose sources and targets ``drop`` returns True."""
    source, target = np.repeat(np.arange(graph.n), np.diff(graph.indptr)), np.asarray(graph.indices)
    kept = ~drop(source, target)
    indptr = np.zeros(graph.n + 1, np.int64)
    np.cumsum(np.bincount(source[kept], minlength=graph.n), out=indptr[1:])
    weights = None if graph.weights is None else np.asarray(graph.weights)[kept]
    relations = {name: drop_edges(part, drop) for name, part in graph.relations.items()}
    return replace(graph, indptr=indptr, indices=target[kept], weights=weights, relations=relations)


def find_counterfactual(
    classifier: NodeClassifier, graph: Graph, node: int, first: IntArray | None = None
) -> Counterfactual:
    """Search the smallest set of edges without which a node has another class.

    Edges are removed one by one, those to the neighbours in ``first`` before others, at most sixteen; if none is
    enough, the strongest of them together, ever more up to all edges. Every change is predicted on the changed graph
    with the weights as they are.
    """
    if graph.is_regression:
        raise InputError("a counterfactual is a change of edges that changes a class; this model predicts numbers")
    now = classifier.decision_function(graph, [node])[0]
    if graph.n > _SPECTRAL and any(e.needs_eigenvectors for one in classifier.prepared() for e in one.extractors):
        raise InputError(
            "a counterfactual of this model needs eigenvectors of every changed graph, which is done up to "
            f"{_SPECTRAL:,} nodes; {graph.name} has {graph.n:,}"
        )
    neighbours = graph.undirected().neighbours(node)
    neighbours = neighbours[neighbours != node]
    if first is not None:
        neighbours = np.concatenate([first[np.isin(first, neighbours)], np.setdiff1d(neighbours, first)])
    best = int(now.argmax())
    tried = 0

    def margin(removed: IntArray) -> tuple[float, int]:
        """Return the logit of the present class minus the largest other one without these edges, and the class."""
        nonlocal tried
        tried += 1
        changed = drop_edges(graph, lambda a, b: (a == node) & np.isin(b, removed) | (b == node) & np.isin(a, removed))
        logits = classifier.on_graph(changed).decision_function(changed, [node])[0]
        return float(logits[best] - np.delete(logits, best).max()), int(logits.argmax())

    def found(removed: IntArray, label: int | None) -> Counterfactual:
        ids = removed.tolist() if graph.node_ids is None else graph.node_ids[removed].tolist()
        name = None if label is None else str(classifier.classes_[label])
        return Counterfactual(tuple(ids), name, min(_SINGLE, len(neighbours)), tried, len(neighbours))

    margins = []
    for one in neighbours[:_SINGLE]:
        value, label = margin(np.array([one]))
        if label != best:
            return found(np.array([one]), label)
        margins.append(value)
    order = np.argsort(margins, kind="stable")
    ranked = np.concatenate([neighbours[order], neighbours[len(margins) :]])
    sizes = {2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512, len(ranked)}
    for size in sorted(size for size in sizes if 2 <= size <= len(ranked)):
        _, label = margin(ranked[:size])
        if label != best:
            return found(ranked[:size], label)
    return found(ranked[:0], None)
