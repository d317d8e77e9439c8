"""Explanations: the patch of a node and the contribution of each member to the decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split, is_labelled
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import FeatureTable
from gpatcher.training.task import Regression
from gpatcher.trust.attribution import attribute, attribute_features
from gpatcher.trust.columns import ColumnGroup
from gpatcher.trust.explanation import DRAWN, Explanation, Member, OwnColumn, number_text

_COLUMNS = 12  # columns that are listed; the others are summed
_BASELINE_NODES = 10_000  # training nodes whose mean is the baseline


def top_two(logits: FloatArray) -> IntArray:
    """Return the two classes with the largest logits of each node, shape (b, 2)."""
    return np.argsort(-logits, axis=1, kind="stable")[:, :2]


class Describer:
    """Turns attributions into explanations with the user's ids and labels."""

    def __init__(self, graph: Graph, split: Split, classes: Sequence[str]) -> None:
        self.graph, self.classes = graph, tuple(map(str, classes))
        self.undirected = graph.undirected()
        self.parts = np.full(graph.n, "", dtype="<U10")
        for part, ids in (("train", split.train), ("validation", split.val), ("test", split.test)):
            self.parts[ids] = part

    def about(self, v: int) -> dict[str, Any]:
        """Return the fields of a node that explanations and members share."""
        known = self.graph.y is not None and bool(is_labelled(self.graph.y[v : v + 1])[0])
        label = self.graph.labels()[v] if known else -1
        return {
            "node": int(v),
            "id": int(v) if self.graph.node_ids is None else self.graph.node_ids[v : v + 1].tolist()[0],
            "label": (self.classes[label] if self.classes else number_text(label)) if known else None,
            "part": str(self.parts[v]),
        }

    def explanation(
        self,
        node: int,
        pair: Sequence[int],
        figures: dict[str, Any],
        members: dict[str, npt.NDArray[Any]],
        columns: tuple[OwnColumn, ...] = (),
    ) -> Explanation:
        """Return the explanation of a node.

        ``figures`` are its probability, margin and start; ``members`` has the arrays node, source, position, score and
        contribution of the nodes that reach the prediction.
        """
        ids = members["node"]
        rows = zip(*(members[name].tolist() for name in _PLACE), hops(self.undirected, node, ids).tolist(), strict=True)
        listed = tuple(
            Member(
                **self.about(v), **dict(zip(_PLACE[1:], place, strict=True)), hops=distance if distance >= 0 else None
            )
            for v, *place, distance in rows
        )
        remainder = figures["margin"] - figures["start"] - float(members["contribution"].sum())
        return Explanation(
            **self.about(node),
            predicted=self.classes[pair[0]] if self.classes else number_text(figures["margin"]),
            runner_up=self.classes[pair[1]] if self.classes else "",
            probability=figures["probability"],
            margin=figures["margin"],
            start=figures["start"],
            remainder=remainder,
            members=listed,
            edges=_edges_among(self.undirected, ids, members["source"]),
            columns=columns,
            classes=self.classes,
        )

    def own_columns(
        self, x: FeatureTable, node: int, contribution: FloatArray, groups: Sequence[ColumnGroup]
    ) -> tuple[OwnColumn, ...]:
        """Return the columns of a node from the contributions of its features, shape (d,)."""
        own = self.graph.x
        values = x.rows(torch.tensor([node]))[0].numpy(force=True) if own is None else _dense_row(own, node)
        borders = np.cumsum([0, *(group.width for group in groups)])
        return tuple(
            OwnColumn(group.name, group.show(values[first:last]), float(contribution[first:last].sum()))
            for group, first, last in zip(groups, borders[:-1], borders[1:], strict=True)
        )


_PLACE = ("node", "source", "position", "score", "contribution")


def shorten(columns: Sequence[OwnColumn]) -> tuple[OwnColumn, ...]:
    """Return the columns with the largest contributions, the others summed."""
    listed = sorted(columns, key=lambda column: -abs(column.contribution))
    others = listed[_COLUMNS:]
    if others:
        total = sum(column.contribution for column in others)
        listed = [*listed[:_COLUMNS], OwnColumn(f"{len(others):,} others", "", total)]
    return tuple(listed)


def explain_nodes(
    model: GPatcher,
    x: FeatureTable,
    graph: Graph,
    split: Split,
    classes: Sequence[str],
    nodes: IntArray,
    temperature: float | None = 1.0,
    groups: Sequence[ColumnGroup] = (),
    pairs: IntArray | None = None,
    task: Regression | None = None,
    share: float = 1.0,
) -> list[Explanation]:
    """Explain the predictions of some nodes; the baseline is the mean of the split's training nodes.

    With ``groups`` of the features, see `column_groups`, the contribution of the node itself is divided among them.
    With ``pairs``, shape (b, 2), the difference of the logits of these classes is explained, and all columns are
    listed. With the ``task`` of a regression, the predicted number is explained, in the unit of the labels. ``share``
    is the weight of the model in an ensemble, see `attribute`.
    """
    if not len(nodes):
        return []
    asked = pairs is not None
    mean, scale = (0.0, 1.0) if task is None else (task.mean, task.scale)
    pairs = pairs if task is None else np.zeros((len(nodes), 2), np.int64)
    with torch.no_grad():
        train = torch.as_tensor(split.train[:_BASELINE_NODES].copy()).to(x.device)
        baseline = model.eval().encode(x.take(train)).mean(0)
    made = attribute(model, x, nodes, baseline, pairs, share)
    probability: list[Any] = [None] * len(nodes)
    if temperature is not None:
        probability = torch.from_numpy(made.logits / np.float32(temperature)).softmax(1).amax(1).tolist()
    describer = Describer(graph, split, classes)
    explanations = []
    for row, node in enumerate(np.asarray(nodes).tolist()):
        at = np.flatnonzero(made.index[row] >= 0)
        members = {name: getattr(made, name)[row, at] for name in _PLACE[1:]} | {"node": made.index[row, at]}
        members["contribution"] = scale * members["contribution"]
        figures: dict[str, Any] = {
            "margin": mean + scale * float(made.margin[row]),
            "start": mean + scale * float(made.start[row]),
            "probability": probability[row],
        }
        columns: tuple[OwnColumn, ...] = ()
        if groups:
            contribution = scale * attribute_features(model, x, node, train, made.gradient[row])
            columns = describer.own_columns(x, node, contribution, groups)
            columns = columns if asked else shorten(columns)
        pair = (int(made.best[row]), int(made.second[row]))
        explanations.append(describer.explanation(node, pair, figures, members, columns))
    return explanations


def combine(
    describer: Describer,
    explanations: Sequence[Explanation],
    weights: Sequence[float],
    pair: Sequence[int],
    probability: float | None,
) -> Explanation:
    """Return the explanation of a weighted sum of models from their explanations of the same node and classes.

    A node is listed once, with the sum of its contributions; position and score are those in the first model that has
    it in a patch.
    """
    merged: dict[int, list[float]] = {}  # position, score, contribution
    columns: dict[str, OwnColumn] = {}
    for one, weight in zip(explanations, weights, strict=True):
        for member in one.members:
            entry = merged.setdefault(member.node, [member.position, member.score, 0.0])
            if entry[0] < 0 <= member.position:
                entry[:2] = member.position, member.score
            entry[2] += weight * member.contribution
        for column in one.columns:
            before = columns.get(column.name, OwnColumn(column.name, column.value, 0.0))
            columns[column.name] = replace(before, contribution=before.contribution + weight * column.contribution)
    node = explanations[0].node
    order = sorted(merged, key=lambda v: (v != node, merged[v][0] < 0, -abs(merged[v][2])))
    position, score, contribution = (np.array([merged[v][i] for v in order]) for i in range(3))
    members = {"node": np.array(order), "source": np.zeros(len(order), np.int64), "position": position.astype(np.int64)}
    figures: dict[str, Any] = {
        "margin": float(sum(w * e.margin for e, w in zip(explanations, weights, strict=True))),
        "start": float(sum(w * e.start for e, w in zip(explanations, weights, strict=True))),
        "probability": probability,
    }
    members |= {"score": score, "contribution": contribution}
    return describer.explanation(node, pair, figures, members, shorten(tuple(columns.values())))


def _dense_row(x: Any, node: int) -> FloatArray:
    row = x[[node]]
    return np.asarray(row.toarray() if hasattr(row, "toarray") else row).ravel()


def hops(undirected: Graph, source: int, targets: IntArray) -> IntArray:
    """Return the length of the shortest path to each target, -1 if there is none.

    Breadth-first search in an undirected graph; stops once all targets are reached.
    """
    distance = np.full(undirected.n, -1, np.int64)
    distance[source] = 0
    frontier = np.array([source])
    step = 0
    while frontier.size and (distance[targets] < 0).any():
        step += 1
        # all neighbours of the frontier at once: the concatenation of its CSR rows
        count = undirected.indptr[frontier + 1] - undirected.indptr[frontier]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        neighbours = undirected.indices[np.repeat(undirected.indptr[frontier], count) + within]
        frontier = np.unique(neighbours[distance[neighbours] < 0])
        distance[frontier] = step
    return np.asarray(distance[targets])


def _edges_among(undirected: Graph, ids: IntArray, source: IntArray) -> tuple[tuple[int, int], ...]:
    """Return the pairs i < j of one source that are drawn and neighbours; rows of the graph are sorted."""
    pairs = []
    ids = ids[:DRAWN]
    source = source[:DRAWN]
    for i, v in enumerate(ids):
        row, rest = undirected.neighbours(int(v)), ids[i + 1 :]
        if row.size:
            joined = row[np.minimum(np.searchsorted(row, rest), row.size - 1)] == rest
            joined &= source[i + 1 :] == source[i]
            pairs += [(i, i + 1 + int(j)) for j in np.flatnonzero(joined)]
    return tuple(pairs)
