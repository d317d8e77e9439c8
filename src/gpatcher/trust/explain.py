"""Explanations: the patch of a node, member by member, and what each contributes to the decision."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.model.gpatcher import GPatcher, split_views
from gpatcher.model.inputs import FeatureTable
from gpatcher.trust.field import Field, receptive_field

TOLERANCE = 1e-3  # largest remainder aimed at, relative to the difference that is explained (at least 1 logit)
_ORDER = 16  # points of the quadrature in a panel
_PANELS = (1, 4, 16, 64, 256)  # more while the remainder is too large
_ELEMENTS = 1 << 22  # numbers in one forward pass
_WORK = 1 << 26  # numbers on the path of one node; those of a patch stay far below
_DRAWN = 256  # members in a figure; several rounds reach many more
_BASELINE_NODES = 10_000  # training nodes whose mean is the baseline


@dataclass(frozen=True)
class Member:
    """One member of a patch; a node that several sources select is a member of each."""

    source: int  # that selected it, counted from 0
    position: int  # in the patch of that source; 0 for the node itself, -1 for one that only further rounds reach
    node: int  # number in the graph
    id: Any  # the user's id
    score: float  # relevance to the node, by the filter of the source
    hops: int | None  # length of the shortest path from the node; None where they are not connected
    label: str | None  # None where the node has no label
    part: str  # train, validation, test or empty; the model was shown the labels of train alone
    contribution: float  # to the difference of the logits


@dataclass(frozen=True)
class Explanation:
    """The patch of a node and what its members contribute to the decision between two classes.

    ``margin = start + Σ contribution + remainder``: the logit of the predicted class minus that of the runner-up is
    that of a patch of average nodes, plus what each member contributes by not being average. The sum runs over the
    patches of all sources; the remainder is the error of the integration. The members are in the order of the patch,
    source after source; an edge joins two members of one source in either direction, as indices into ``members``.
    """

    node: int
    id: Any
    label: str | None
    part: str
    predicted: str
    runner_up: str
    probability: float  # of the predicted class, calibrated
    margin: float
    start: float
    remainder: float
    members: tuple[Member, ...]
    edges: tuple[tuple[int, int], ...]

    @property
    def num_sources(self) -> int:
        """Number of patch sources."""
        return 1 + max(member.source for member in self.members)

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, strings and lists alone, ready for JSON."""
        return {**asdict(self), "members": [asdict(m) for m in self.members], "edges": [list(e) for e in self.edges]}

    def frame(self) -> pa.Table:
        """Return the members as a pyarrow table; its ``to_pandas()`` gives a data frame."""
        return pa.Table.from_pylist([asdict(member) for member in self.members])

    def layout(self) -> FloatArray:
        """Return coordinates to draw the members at, shape (members, 2).

        The node is in the centre and the others on rings by hops; the patches of several sources lie side by side.
        """
        xy = np.zeros((len(self.members), 2))
        source = np.array([member.source for member in self.members])
        centre, radius = 0.0, 0
        for number in range(self.num_sources):
            own = np.flatnonzero(source == number)
            hops = [self.members[i].hops for i in own]
            outer = 1 + max(h or 0 for h in hops)  # for members that are not connected
            ring = np.array([outer if h is None else h for h in hops])
            centre += radius + 1 + ring.max() if number else 0
            radius = ring.max()
            xy[own, 0] = centre
            for distance in np.unique(ring[ring > 0]):
                on = own[ring == distance]
                angle = 2 * math.pi * np.arange(len(on)) / len(on) + 0.6 * distance
                xy[on] += distance * np.stack([np.cos(angle), np.sin(angle)], 1)
        return xy

    def plot(self) -> Any:
        """Return a plotly figure of the patch: colour and size show the contributions, lines the edges within it."""
        import plotly.graph_objects as go

        members = self.members[:_DRAWN]
        xy = self.layout()[:_DRAWN]
        lines = [[xy[a], xy[b], (None, None)] for a, b in self.edges]
        ends = np.array([end for line in lines for end in line], dtype=object).reshape(-1, 2)
        contribution = np.array([m.contribution for m in members])
        largest = float(np.abs(contribution).max()) or 1.0
        figure = go.Figure()
        figure.add_scatter(
            x=ends[:, 0], y=ends[:, 1], mode="lines", line={"color": "#c3cbd3", "width": 1}, hoverinfo="skip"
        )
        figure.add_scatter(
            x=xy[:, 0],
            y=xy[:, 1],
            mode="markers+text",
            text=[str(m.id) for m in members],
            textposition="bottom center",
            hovertext=[
                f"{m.id}: position {position_text(m, self)}, score {m.score:.4f}, {hops_text(m.hops)}<br>"
                f"label {label_text(m)}<br>contribution {m.contribution:+.3f}"
                for m in members
            ],
            hoverinfo="text",
            marker={
                "size": 12 + 22 * np.abs(contribution) / largest,
                "color": contribution,
                "cmin": -largest,
                "cmax": largest,
                "colorscale": [[0, "#e07b39"], [0.5, "#f2f4f6"], [1, "#2f6fb0"]],
                "line": {"color": "#1d2733", "width": [1 if m.position else 3 for m in members]},
                "colorbar": {"title": "contribution", "thickness": 12},
            },
        )
        figure.update_layout(showlegend=False, height=460)
        figure.update_xaxes(visible=False)
        figure.update_yaxes(visible=False, scaleanchor="x")
        return figure


def position_text(member: Member, explanation: Explanation) -> str:
    """Return the position of a member as text; with its source where there are several, as in ``1:0``.

    A node that only further rounds reach is beyond the patch.
    """
    if member.position < 0:
        return "beyond"
    return str(member.position) if explanation.num_sources == 1 else f"{member.source}:{member.position}"


def hops_text(hops: int | None) -> str:
    """Return a distance as text."""
    return "not connected" if hops is None else "itself" if hops == 0 else f"{hops} hop{'s' if hops > 1 else ''}"


def label_text(node: Member | Explanation) -> str:
    """Return a label as text, and whether the model was trained on it."""
    if node.label is None:
        return "unknown"
    return f"{node.label} (trained on)" if node.part == "train" else node.label


def find_node(graph: Graph, name: str) -> int:
    """Return the number of the node with this id, as text; the ids of a graph without any are 0 to n - 1."""
    if graph.node_ids is None:
        if not name.isdecimal() or int(name) >= graph.n:
            raise InputError(f"there is no node {name!r}: {graph.name} has the nodes 0 to {graph.n - 1}")
        return int(name)
    ids = np.asarray(graph.node_ids).astype(str)
    matches = np.flatnonzero(ids == name)
    if not matches.size:
        close = difflib.get_close_matches(name, ids[:20_000].tolist(), n=3)
        hint = f"; did you mean {', '.join(close)}?" if close else f", e.g. {ids[0]}"
        raise InputError(f"{graph.name} has no node with the id {name!r}{hint}")
    return int(matches[0])


@dataclass(frozen=True, eq=False)
class Attribution:
    """Contributions of the members of b patches, the p positions of several sources side by side."""

    index: IntArray  # members, shape (b, p); -1 where a position is empty
    score: FloatArray  # shape (b, p)
    logits: FloatArray  # shape (b, C)
    best: IntArray  # classes with the largest logits, shape (b,)
    second: IntArray
    margin: FloatArray  # difference of these two logits, shape (b,)
    start: FloatArray  # that of the baseline, shape (b,)
    contribution: FloatArray  # shape (b, p), 0 at empty positions
    source: IntArray  # where the member is in the patches of the node, shape (b, p)
    position: IntArray  # -1 for a node that only further rounds reach


def attribute(model: GPatcher, x: FeatureTable, nodes: IntArray, baseline: Tensor) -> Attribution:
    r"""Distribute the difference of the two largest logits over the nodes that reach the prediction.

    Integrated gradients (Sundararajan et al., 2017) over the encoded members h from a baseline h', shape (h,), where
    every member is the average node:

    .. math:: a_j = (h_j - h') \cdot \int_0^1 \frac{\partial f}{\partial h_j} \big(h' + t (h - h')\big)\, dt

    with f the logit difference; the a_j, over the positions of all sources, sum to f(h) - f(h'). The readout ego counts
    at position 0 of the first source; where the model reads labels, a member's label counts as its own, from a baseline
    where it is unknown. With several rounds the sum is over all nodes within R patches, each once. The integral is by
    Gauss-Legendre quadrature, exact where only the readouts ego and mean reach a linear classifier, else refined until
    the remainder is within `TOLERANCE`. The baseline is the average node, not zero: a LayerNorm right after the encoder
    would make f discontinuous at zero.
    """
    model.eval()
    if model.config.rounds > 1:
        return _attribute_fields(model, x, nodes, baseline)
    with torch.no_grad():
        patches = [source(torch.as_tensor(np.array(nodes)).to(x.device)) for source in model.sources]
        index, score = (torch.cat(tensors, 1) for tensors in zip(*patches, strict=True))
        members, inverse = torch.unique(index.clamp_min(0), return_inverse=True)
        rows = model.encode(x.take(members))
        known = model.known_labels()
    mask = (index >= 0).to(score.dtype)
    sizes = [source.size for source in model.sources]
    size = max(1, _ELEMENTS // (_ORDER * index.shape[1] * rows.shape[1]))
    parts = []
    for begin in range(0, len(index), size):
        part = slice(begin, begin + size)
        h = torch.where(index[part][..., None] >= 0, rows[inverse[part]], baseline)
        labels = None if known is None else known[index[part].clamp_min(0)] * mask[part][..., None]
        inputs = (score[part].detach(), mask[part])

        def logits(h: Tensor, labels: Tensor | None, rows: Tensor, inputs: Any = inputs) -> Tensor:
            score, mask = (value[rows] for value in inputs)
            return _logits(model, h, score, mask, labels)

        parts.append((index[part], score[part], *_integrate(logits, h, labels, baseline, h.shape[2])))
    columns = [np.concatenate([np.asarray(p[i].detach().cpu()) for p in parts]) for i in range(8)]
    source = np.repeat(np.arange(len(sizes)), sizes)
    position = np.concatenate([np.arange(size) for size in sizes])
    return Attribution(*columns, *(np.broadcast_to(value, index.shape) for value in (source, position)))


def _attribute_fields(model: GPatcher, x: FeatureTable, nodes: IntArray, baseline: Tensor) -> Attribution:
    """Attribute to every node within R patches; positions are those in the patch of the node, -1 beyond it."""
    known = model.known_labels()
    rows = []
    for node in np.asarray(nodes).tolist():
        field = receptive_field(model, node)
        with torch.no_grad():
            h = model.encode(x.take(field.nodes))[None]
        labels = None if known is None else known[field.nodes][None]

        def logits(h: Tensor, labels: Tensor | None, rows: Tensor, field: Field = field) -> Tensor:
            return field.logits(model, h, labels)

        widest = max(view.index.shape[1] for view in field.views)
        found = _integrate(logits, h, labels, baseline, max(h.shape[2], widest))
        place = np.zeros((3, len(field.nodes)))  # source, position, score; of the first source that has the node
        place[1] = -1
        for number, view in reversed(list(enumerate(field.views))):
            own = view.mask[field.row] > 0
            at = view.index[field.row, own].cpu().numpy()
            place[0, at], place[1, at] = number, np.flatnonzero(own.cpu().numpy())
            place[2, at] = view.score[field.row, own].detach().cpu().numpy()
        place[:2, field.row] = 0
        *figures, contribution = (part.detach().cpu().numpy() for part in found)
        # the patches in their order, then the others by the size of their contribution
        order = np.lexsort((-np.abs(contribution[0]), place[1], place[0], place[1] < 0))
        rows.append((field.nodes.cpu().numpy()[order], place[:, order], *figures, contribution[0, order]))
    width = max(len(row[0]) for row in rows)

    def padded(values: Any, fill: float, dtype: Any) -> Any:
        return np.stack([np.pad(v.astype(dtype), (0, width - len(v)), constant_values=fill) for v in values])

    index = padded([row[0] for row in rows], -1, np.int64)
    score = padded([row[1][2] for row in rows], 0, np.float32)
    source, position = (padded([row[1][i] for row in rows], -1, np.int64) for i in (0, 1))
    logits_, best, second, margin, start = (np.concatenate([row[i] for row in rows]) for i in range(2, 7))
    contribution = padded([row[7] for row in rows], 0, np.float32)
    return Attribution(index, score, logits_, best, second, margin, start, contribution, source, position)


def _integrate(
    logits: Callable[[Tensor, Tensor | None, Tensor], Tensor],
    h: Tensor,
    labels: Tensor | None,
    baseline: Tensor,
    width: int,
) -> tuple[Tensor, ...]:
    """Return logits, best and second class, their difference at the baseline, and contributions (b, p).

    ``logits`` maps encoded members (b, p, h), their labels (b, p, C) and the rows that these belong to, to (b, C), and
    takes about ``width`` numbers per member.
    """
    every = torch.arange(len(h), device=h.device)
    with torch.no_grad():
        ends = logits(h, labels, every)
        start = logits(baseline.expand_as(h), None if labels is None else torch.zeros_like(labels), every)
    if ends.shape[1] < 2:
        raise InputError("a model of one class has no runner-up to compare with; there is nothing to explain")
    best, second = ends.topk(2).indices.unbind(1)

    def difference(z: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return (z.gather(1, a[:, None]) - z.gather(1, b[:, None])).squeeze(1)

    margin, least = (difference(z, best, second) for z in (ends, start))
    target = margin - least
    contribution = torch.zeros(h.shape[:2], device=h.device)
    pending = every
    for panels in _PANELS:
        if panels > 1 and panels * _ORDER * h[0].numel() > _WORK:
            break  # a large field: the remainder that is left is reported
        points, weights = (torch.as_tensor(v, dtype=h.dtype, device=h.device) for v in _quadrature(panels))
        # fewer rows at a time where many points are needed, and fewer points: a pass has a bounded size
        passes = max(1, _ELEMENTS // (h.shape[1] * width))
        for rows in torch.split(pending, max(1, passes // len(points))):
            moves = [h[rows] - baseline] + ([] if labels is None else [labels[rows]])
            contribution[rows] = 0
            for at, weight in zip(torch.split(points, passes), torch.split(weights, passes), strict=True):
                steps = len(at)
                at = at[None, :, None, None]
                path = [(baseline + at * moves[0][:, None]).flatten(0, 1).requires_grad_()]
                path += [(at * move[:, None]).flatten(0, 1).requires_grad_() for move in moves[1:]]
                repeated = rows.repeat_interleave(steps)
                with torch.enable_grad():
                    z = logits(path[0], path[1] if len(path) > 1 else None, repeated)
                    total = (difference(z, best[repeated], second[repeated]).view(-1, steps) * weight).sum()
                for move, gradient in zip(moves, torch.autograd.grad(total, path), strict=True):
                    contribution[rows] += (move * gradient.view(-1, steps, *move.shape[1:]).sum(1)).sum(2)
        remainder = (target - contribution.sum(1)).abs()
        pending = (remainder > TOLERANCE * target.abs().clamp_min(1.0)).nonzero().squeeze(1)
        if not len(pending):
            break
    return ends, best, second, margin, least, contribution


def _quadrature(panels: int) -> tuple[FloatArray, FloatArray]:
    """Return points and weights of the Gauss-Legendre rule on equal panels of [0, 1].

    Panels, not more points in one: after long training f bends within a short stretch of the path, where 64 panels of
    16 points err less than 1,024 points in one.
    """
    points, weights = np.polynomial.legendre.leggauss(_ORDER)
    left = np.arange(panels)[:, None]
    return ((left + (points + 1) / 2) / panels).ravel(), np.tile(weights / (2 * panels), panels)


def _logits(model: GPatcher, h: Tensor, score: Tensor, mask: Tensor, labels: Tensor | None) -> Tensor:
    """Return the logits of patches whose encoded members are given, shape (b, p, h) over all sources."""
    rows = torch.arange(h.shape[0] * h.shape[1], device=h.device).view(h.shape[:2])
    views = split_views(rows, score, mask, [source.size for source in model.sources])
    return model.classify(h.flatten(0, 1), views, None if labels is None else labels.flatten(0, 1))


def explain_nodes(
    model: GPatcher,
    x: FeatureTable,
    graph: Graph,
    split: Split,
    classes: Sequence[str],
    nodes: IntArray,
    temperature: float = 1.0,
) -> list[Explanation]:
    """Explain the predictions of some nodes; the baseline is the mean of the split's training nodes."""
    if not len(nodes):
        return []
    with torch.no_grad():
        train = torch.as_tensor(split.train[:_BASELINE_NODES].copy()).to(x.device)
        baseline = model.eval().encode(x.take(train)).mean(0)
    attribution = attribute(model, x, nodes, baseline)
    remainder = attribution.margin - attribution.start - attribution.contribution.sum(1)
    probability = torch.from_numpy(attribution.logits / np.float32(temperature)).softmax(1).amax(1).numpy()
    undirected = graph.undirected()
    parts = np.full(graph.n, "", dtype="<U10")
    for part, ids in (("train", split.train), ("validation", split.val), ("test", split.test)):
        parts[ids] = part

    def describe(v: int) -> dict[str, Any]:
        label = -1 if graph.y is None else graph.y[v]
        return {
            "node": int(v),
            "id": int(v) if graph.node_ids is None else graph.node_ids[v : v + 1].tolist()[0],
            "label": str(classes[label]) if label >= 0 else None,
            "part": str(parts[v]),
        }

    explanations = []
    for row, node in enumerate(np.asarray(nodes).tolist()):
        columns = np.flatnonzero(attribution.index[row] >= 0)
        ids = attribution.index[row, columns]
        members = tuple(
            Member(
                **describe(v),
                source=int(attribution.source[row, column]),
                position=int(attribution.position[row, column]),
                score=float(attribution.score[row, column]),
                hops=int(distance) if distance >= 0 else None,
                contribution=float(attribution.contribution[row, column]),
            )
            for column, v, distance in zip(columns, ids, hops(undirected, node, ids), strict=True)
        )
        explanations.append(
            Explanation(
                **describe(node),
                predicted=str(classes[attribution.best[row]]),
                runner_up=str(classes[attribution.second[row]]),
                probability=float(probability[row]),
                margin=float(attribution.margin[row]),
                start=float(attribution.start[row]),
                remainder=float(remainder[row]),
                members=members,
                edges=_edges_among(undirected, ids, attribution.source[row, columns]),
            )
        )
    return explanations


def hops(undirected: Graph, source: int, targets: IntArray) -> IntArray:
    """Return the length of the shortest path to each target, -1 where there is none.

    By breadth-first search in an undirected graph, which ends once all targets are reached.
    """
    distance = np.full(undirected.n, -1, np.int64)
    distance[source] = 0
    frontier = np.array([source])
    step = 0
    while frontier.size and (distance[targets] < 0).any():
        step += 1
        # all neighbours of the frontier at once: its rows of the CSR arrays one after another
        count = undirected.indptr[frontier + 1] - undirected.indptr[frontier]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        neighbours = undirected.indices[np.repeat(undirected.indptr[frontier], count) + within]
        frontier = np.unique(neighbours[distance[neighbours] < 0])
        distance[frontier] = step
    return np.asarray(distance[targets])


def _edges_among(undirected: Graph, ids: IntArray, source: IntArray) -> tuple[tuple[int, int], ...]:
    """Return the pairs i < j of one source that are drawn and neighbours; rows of the graph are sorted."""
    pairs = []
    ids = ids[:_DRAWN]
    source = source[:_DRAWN]
    for i, v in enumerate(ids):
        row, rest = undirected.neighbours(int(v)), ids[i + 1 :]
        if row.size:
            joined = row[np.minimum(np.searchsorted(row, rest), row.size - 1)] == rest
            joined &= source[i + 1 :] == source[i]
            pairs += [(i, i + 1 + int(j)) for j in np.flatnonzero(joined)]
    return tuple(pairs)
