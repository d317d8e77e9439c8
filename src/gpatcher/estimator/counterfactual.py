"""Counterfactuals: the smallest change among the edges of a node that changes its class, or its number by enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError
from gpatcher.estimator.base import NodeModel
from gpatcher.graph.graph import Graph
from gpatcher.trust.conformal import threshold
from gpatcher.trust.explanation import number_text

_LEVEL = 0.9  # of the conformal interval that a number must leave
_SINGLE = 16  # edges that are removed one by one
_SPECTRAL = 1_000  # nodes up to which eigenvectors take a moment, and are not cached


@dataclass(frozen=True)
class Counterfactual:
    """A change among the edges of a node that changes its class or number, or that none was found."""

    removed: tuple[Any, ...]  # ids of neighbours; without the edges to these the answer is another
    predicted: str | None  # the class or number then; None if no change was found
    amount: float | None  # by which a number must change at least; None for classes
    single: int  # edges that were removed one by one
    tried: int  # graphs that were predicted, in all
    degree: int  # neighbours of the node

    def sentence(self, now: str) -> str:
        """Return the result in words; ``now`` is the class or number with all edges."""
        tried = f"{self.tried} of its possible changes were tried"
        is_answered = "be classed" if self.amount is None else "be predicted"
        if not self.degree:
            return "It has no edges that could be taken away."
        if self.predicted is None:
            if self.amount is None:
                return f"It would {is_answered} {now} without all of its {self.degree} edges, too ({tried})."
            moved = f"None of the changes of its {self.degree} edges moves the number by {self.amount:.4g} or more"
            return f"{moved} ({tried})."
        named = [str(name) for name in self.removed]
        edges = f"edge to {named[0]}" if len(named) == 1 else f"edges to {', '.join(named[:-1])} and {named[-1]}"
        text = f"Without its {edges} it would {is_answered} {self.predicted}, not {now}"
        text += "" if self.amount is None else f", a change of {self.amount:.4g} or more"
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
    model: NodeModel, graph: Graph, node: int, first: IntArray | None = None, amount: float | None = None
) -> Counterfactual:
    """Search the smallest set of edges without which a node has another class, or a number that differs by an amount.

    Edges are removed one by one, those to the neighbours in ``first`` before others, at most sixteen; if none is
    enough, the strongest of them together, ever more up to all edges. Every change is predicted on the changed graph
    with the weights as they are. By default the amount is half the width of the conformal interval at 90 %.
    """
    if not graph.is_regression and amount is not None:
        raise InputError(f"amount={amount} is for numbers; this model predicts classes, where any other class counts")
    if graph.is_regression:
        amount = _amount(model, amount)
    if graph.n > _SPECTRAL and any(e.needs_eigenvectors for one in model.prepared() for e in one.extractors):
        raise InputError(
            "a counterfactual of this model needs eigenvectors of every changed graph, which is done up to "
            f"{_SPECTRAL:,} nodes; {graph.name} has {graph.n:,}"
        )
    neighbours = graph.undirected().neighbours(node)
    neighbours = neighbours[neighbours != node]
    if first is not None:
        neighbours = np.concatenate([first[np.isin(first, neighbours)], np.setdiff1d(neighbours, first)])
    now = model.decision_function(graph, [node])[0]
    best = int(now.argmax())
    tried = 0

    def margin(removed: IntArray) -> tuple[float, str | None]:
        """Return how far the answer without these edges is from a change, and the answer if it has changed."""
        nonlocal tried
        tried += 1
        changed = drop_edges(graph, lambda a, b: (a == node) & np.isin(b, removed) | (b == node) & np.isin(a, removed))
        then = model.on_graph(changed).decision_function(changed, [node])[0]
        if amount is not None:
            moved = abs(float(then[0] - now[0]))
            return amount - moved, number_text(then[0]) if moved >= amount else None
        left = float(then[best] - np.delete(then, best).max())
        label = int(then.argmax())
        return left, None if label == best else model.class_names_[label]

    def found(removed: IntArray, answer: str | None) -> Counterfactual:
        ids = removed.tolist() if graph.node_ids is None else graph.node_ids[removed].tolist()
        return Counterfactual(tuple(ids), answer, amount, min(_SINGLE, len(neighbours)), tried, len(neighbours))

    margins = []
    for one in neighbours[:_SINGLE]:
        value, answer = margin(np.array([one]))
        if answer is not None:
            return found(np.array([one]), answer)
        margins.append(value)
    order = np.argsort(margins, kind="stable")
    ranked = np.concatenate([neighbours[order], neighbours[len(margins) :]])
    sizes = {2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512, len(ranked)}
    for size in sorted(size for size in sizes if 2 <= size <= len(ranked)):
        _, answer = margin(ranked[:size])
        if answer is not None:
            return found(ranked[:size], answer)
    return found(ranked[:0], None)


def _amount(model: NodeModel, amount: float | None) -> float:
    """Return the change of a number that counts: as given, or half the width of the conformal interval."""
    if amount is None:
        amount = threshold(model.calibration_.scores, _LEVEL)
        if not np.isfinite(amount):
            raise InputError(
                f"{model.calibration_.nodes} validation nodes are too few for an interval at {_LEVEL:.0%}, so there is "
                "no size from which a change counts; pass one as amount (--amount)"
            )
    if not amount > 0 or not np.isfinite(amount):
        raise InputError(f"the amount by which a number changes must be above 0 and finite, got {amount}")
    return float(amount)
