"""Why a node was given its class: its patch, member by member, and what each adds to the decision."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
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

TOLERANCE = 1e-3  # the remainder that is aimed at, as a share of the difference that is explained (at least 1 logit)
_STEPS = (16, 64, 256, 1024)  # points on the way from the baseline, more where the remainder is still too large
_ELEMENTS = 1 << 22  # numbers in one pass
_BASE_NODES = 10_000  # training nodes whose mean is the baseline


@dataclass(frozen=True)
class Member:
    """One member of a patch.

    Parameters
    ----------
    place : 0 for the node itself
    node, id : number in the graph, and the user's id
    score : of the filter
    hops : edges on the shortest way from the node; None where they are not connected
    label : None where unknown
    part : train, validation, test or empty; only a label of train was ever shown to the model
    contribution : to the difference of the logits
    """

    place: int
    node: int
    id: Any
    score: float
    hops: int | None
    label: str | None
    part: str
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """The patch of a node and what its members add to the decision between two classes.

    ``margin = start + Σ contribution + remainder``: the logit of the predicted class less that of the runner-up is
    what a patch of average nodes would get, plus what each member adds by not being average. The remainder is the
    error of the integration.

    Parameters
    ----------
    node, id, label, part : as of a `Member`
    predicted, runner_up : the two classes with the largest logits
    probability : of the predicted class, calibrated
    margin, start, remainder : see above
    members : in the order of the patch
    edges : pairs of places that are joined by an edge of the graph, seen as undirected
    """

    node: int
    id: Any
    label: str | None
    part: str
    predicted: str
    runner_up: str
    probability: float
    margin: float
    start: float
    remainder: float
    members: tuple[Member, ...]
    edges: tuple[tuple[int, int], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain numbers, strings and lists, ready for JSON."""
        return {**asdict(self), "members": [asdict(m) for m in self.members], "edges": [list(e) for e in self.edges]}

    def frame(self) -> pa.Table:
        """Return the members as a pyarrow table; its ``to_pandas()`` gives a data frame."""
        return pa.Table.from_pylist([asdict(member) for member in self.members])

    def places(self) -> FloatArray:
        """Return where to draw the members, shape (members, 2): the node in the middle, others on rings by hops."""
        far = 1 + max((m.hops or 0 for m in self.members), default=0)
        ring = np.array([far if m.hops is None else m.hops for m in self.members])
        ring = np.where(ring == 0, np.where(np.arange(len(ring)) > 0, 1, 0), ring)
        spot = np.zeros((len(ring), 2))
        for distance in np.unique(ring[ring > 0]):
            on = np.flatnonzero(ring == distance)
            angle = 2 * math.pi * np.arange(len(on)) / len(on) + 0.6 * distance
            spot[on] = distance * np.stack([np.cos(angle), np.sin(angle)], 1)
        return spot

    def plot(self) -> Any:
        """Return a plotly figure of the patch: colour and size show the contributions, lines the edges within it."""
        import plotly.graph_objects as go

        spot = self.places()
        lines = [[spot[a], spot[b], (None, None)] for a, b in self.edges]
        ends = np.array([end for line in lines for end in line], dtype=object).reshape(-1, 2)
        added = np.array([m.contribution for m in self.members])
        most = float(np.abs(added).max()) or 1.0
        figure = go.Figure()
        figure.add_scatter(
            x=ends[:, 0], y=ends[:, 1], mode="lines", line={"color": "#c3cbd3", "width": 1}, hoverinfo="skip"
        )
        figure.add_scatter(
            x=spot[:, 0],
            y=spot[:, 1],
            mode="markers+text",
            text=[str(m.id) for m in self.members],
            textposition="bottom center",
            hovertext=[
                f"{m.id}: place {m.place}, score {m.score:.4f}, {hops_text(m.hops)}<br>label {label_text(m)}<br>"
                f"contribution {m.contribution:+.3f}"
                for m in self.members
            ],
            hoverinfo="text",
            marker={
                "size": 12 + 22 * np.abs(added) / most,
                "color": added,
                "cmin": -most,
                "cmax": most,
                "colorscale": [[0, "#e07b39"], [0.5, "#f2f4f6"], [1, "#2f6fb0"]],
                "line": {"color": "#1d2733", "width": [3] + [1] * (len(added) - 1)},
                "colorbar": {"title": "contribution", "thickness": 12},
            },
        )
        figure.update_layout(showlegend=False, height=460)
        figure.update_xaxes(visible=False)
        figure.update_yaxes(visible=False, scaleanchor="x")
        return figure


def hops_text(hops: int | None) -> str:
    """Say a distance in words."""
    return "not connected" if hops is None else "itself" if hops == 0 else f"{hops} hop{'s' if hops > 1 else ''}"


def label_text(of: Member | Explanation) -> str:
    """Say a label in words, and whether the model was shown it."""
    if of.label is None:
        return "unknown"
    return f"{of.label} (trained on)" if of.part == "train" else of.label


def find_node(graph: Graph, name: str) -> int:
    """Return the number of the node with this id; without ids of its own a graph counts its nodes from 0."""
    if graph.node_ids is None:
        if not name.isdecimal() or int(name) >= graph.n:
            raise InputError(f"there is no node {name!r}: {graph.name} has the nodes 0 to {graph.n - 1}")
        return int(name)
    ids = np.asarray(graph.node_ids).astype(str)
    found = np.flatnonzero(ids == name)
    if not found.size:
        near = difflib.get_close_matches(name, ids[:20_000].tolist(), n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else f", e.g. {ids[0]}"
        raise InputError(f"{graph.name} has no node with the id {name!r}{hint}")
    return int(found[0])


@dataclass(frozen=True, eq=False)
class Attribution:
    """Contributions of the places of a batch of patches.

    Parameters
    ----------
    index, score : of the patches, shape (b, p)
    logits : shape (b, C)
    best, second : classes with the largest logits, shape (b,)
    start : logit difference of the baseline, shape (b,)
    contribution : shape (b, p), 0 at empty places
    """

    index: IntArray
    score: FloatArray
    logits: FloatArray
    best: IntArray
    second: IntArray
    start: FloatArray
    contribution: FloatArray

    @property
    def margin(self) -> FloatArray:
        """Difference of the two largest logits, shape (b,)."""
        rows = np.arange(len(self.logits))
        return np.asarray(self.logits[rows, self.best] - self.logits[rows, self.second])

    @property
    def remainder(self) -> FloatArray:
        """What the contributions leave unexplained, shape (b,)."""
        return np.asarray(self.margin - self.start - self.contribution.sum(1))


def attribute(model: GPatcher, x: FeatureTable, nodes: IntArray, average: Tensor) -> Attribution:
    r"""Share the difference of the two largest logits out among the members of each patch.

    Integrated gradients (Sundararajan et al., 2017) over the encoded members h from a baseline h' where every member
    is the average node:

    .. math:: a_j = (h_j - h') \cdot \int_0^1 \frac{\partial f}{\partial h_j} \big(h' + t (h - h')\big)\, dt

    with f the logit difference; the a_j add up to f(h) - f(h'). The integral is by Gauss-Legendre points, exact where
    only the paths ego and mean lead to a linear classifier, else refined until the remainder is within `TOLERANCE`.
    The average node, not zero: a LayerNorm right after the encoder would make f jump at zero.

    Parameters
    ----------
    average : the encoded average node, shape (h,)
    """
    model.eval()
    device = x.device
    parts = []
    with torch.no_grad():
        patches = [source(torch.as_tensor(np.array(nodes)).to(device)) for source in model.sources]
        index, score = (torch.cat(tensors, 1) for tensors in zip(*patches, strict=True))
        members, inverse = torch.unique(index.clamp_min(0), return_inverse=True)
        rows = model.encode(x.take(members))
    width = max(1, _ELEMENTS // (_STEPS[0] * index.shape[1] * rows.shape[1]))
    for begin in range(0, len(index), width):
        part = slice(begin, begin + width)
        parts.append(_attribute(model, rows[inverse[part]], index[part], score[part].detach(), average))
    return Attribution(*(np.concatenate([np.asarray(p[i].cpu()) for p in parts]) for i in range(7)))


def _attribute(model: GPatcher, h: Tensor, index: Tensor, score: Tensor, average: Tensor) -> tuple[Tensor, ...]:
    mask = (index >= 0).to(score.dtype)
    h = torch.where(index[..., None] >= 0, h, average)
    ends = torch.cat([h, average.expand_as(h)])
    with torch.no_grad():
        logits, start = torch.split(_logits(model, ends, score.repeat(2, 1), mask.repeat(2, 1)), len(h))
    if logits.shape[1] < 2:
        raise InputError("a model of one class has no runner-up to compare with; there is nothing to explain")
    best, second = logits.topk(2).indices.unbind(1)

    def difference(z: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return (z.gather(1, a[:, None]) - z.gather(1, b[:, None])).squeeze(1)

    goal = difference(logits, best, second) - difference(start, best, second)
    found = torch.zeros_like(score)
    open_ = torch.arange(len(h), device=h.device)
    for steps in _STEPS:
        points, weights = (torch.as_tensor(v, dtype=h.dtype, device=h.device) / 2 for v in _legendre(steps))
        # one after the other where many points are needed: a pass has a bounded size
        size = max(1, _ELEMENTS // (steps * h.shape[1] * h.shape[2]))
        for some in torch.split(open_, size):
            way = average + (points + 0.5)[None, :, None, None] * (h[some] - average)[:, None]
            way = way.flatten(0, 1).requires_grad_()
            classes = (t[some].repeat_interleave(steps) for t in (best, second))
            with torch.enable_grad():
                z = _logits(model, way, *(t[some].repeat_interleave(steps, 0) for t in (score, mask)))
                total = (difference(z, *classes).view(-1, steps) * weights).sum()
            (slope,) = torch.autograd.grad(total, way)
            found[some] = ((h[some] - average) * slope.view(-1, steps, *h.shape[1:]).sum(1)).sum(2)
        left = (goal - found.sum(1)).abs() > TOLERANCE * goal.abs().clamp_min(1.0)
        open_ = left.nonzero().squeeze(1)
        if not len(open_):
            break
    return index, score, logits, best, second, difference(start, best, second), found


def _legendre(steps: int) -> tuple[FloatArray, FloatArray]:
    return np.polynomial.legendre.leggauss(steps)


def _logits(model: GPatcher, h: Tensor, score: Tensor, mask: Tensor) -> Tensor:
    """Return the logits of patches whose members are given one by one, shape (b, p, h) over all sources."""
    rows = torch.arange(h.shape[0] * h.shape[1], device=h.device).view(h.shape[:2])
    views = split_views(rows, score, mask, [source.size for source in model.sources])
    return model.classify(h.flatten(0, 1), views)


def explain_nodes(
    model: GPatcher,
    x: FeatureTable,
    graph: Graph,
    split: Split,
    classes: Sequence[str],
    nodes: IntArray,
    temperature: float = 1.0,
) -> list[Explanation]:
    """Explain these nodes one by one; see `Explanation`."""
    with torch.no_grad():
        average = model.eval().encode(x.take(torch.as_tensor(split.train[:_BASE_NODES].copy()).to(x.device))).mean(0)
    found = attribute(model, x, nodes, average)
    probability = torch.from_numpy(found.logits / np.float32(temperature)).softmax(1).amax(1).numpy()
    both = graph.undirected()
    parts = np.full(graph.n, "", dtype="<U10")
    for part, ids in (("train", split.train), ("validation", split.val), ("test", split.test)):
        parts[ids] = part

    def who(v: int) -> dict[str, Any]:
        label = -1 if graph.y is None else graph.y[v]
        return {
            "node": int(v),
            "id": int(v) if graph.node_ids is None else graph.node_ids[v : v + 1].tolist()[0],
            "label": str(classes[label]) if label >= 0 else None,
            "part": str(parts[v]),
        }

    explanations = []
    for row, node in enumerate(np.asarray(nodes).tolist()):
        there = np.flatnonzero(found.index[row] >= 0)
        ids = found.index[row, there]
        distance = hops(both, node, ids)
        members = tuple(
            Member(
                **who(v),
                place=int(place),
                score=float(found.score[row, place]),
                hops=int(d) if d >= 0 else None,
                contribution=float(found.contribution[row, place]),
            )
            for place, v, d in zip(there, ids, distance, strict=True)
        )
        explanations.append(
            Explanation(
                **who(node),
                predicted=str(classes[found.best[row]]),
                runner_up=str(classes[found.second[row]]),
                probability=float(probability[row]),
                margin=float(found.margin[row]),
                start=float(found.start[row]),
                remainder=float(found.remainder[row]),
                members=members,
                edges=_edges_among(both, ids),
            )
        )
    return explanations


def hops(both: Graph, source: int, targets: IntArray) -> IntArray:
    """Return the edges on the shortest way to each target, -1 where there is none; it ends once all are found.

    Parameters
    ----------
    both : an undirected graph
    """
    distance = np.full(both.n, -1, np.int64)
    distance[source] = 0
    front = np.array([source])
    far = 0
    while front.size and (distance[targets] < 0).any():
        far += 1
        # all neighbours of the front at once: its rows of the CSR arrays one after another
        count = both.indptr[front + 1] - both.indptr[front]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        near = both.indices[np.repeat(both.indptr[front], count) + within]
        front = np.unique(near[distance[near] < 0])
        distance[front] = far
    return np.asarray(distance[targets])


def _edges_among(both: Graph, ids: IntArray) -> tuple[tuple[int, int], ...]:
    """Return the pairs of places i < j whose nodes are joined; rows of the graph are sorted."""
    pairs = []
    for i, v in enumerate(ids):
        row, rest = both.neighbours(int(v)), ids[i + 1 :]
        if row.size:
            joined = row[np.minimum(np.searchsorted(row, rest), row.size - 1)] == rest
            pairs += [(i, i + 1 + int(j)) for j in np.flatnonzero(joined)]
    return tuple(pairs)
