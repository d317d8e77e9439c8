"""What an explanation of a prediction holds, with its texts and its figure; `gpatcher.trust.explain` computes it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpatcher.arrays import FloatArray
from gpatcher.trust.palette import GREY, class_colour

if TYPE_CHECKING:
    import pyarrow as pa

DRAWN = 256  # members in a figure; with several rounds there may be many more
_NAMED = 24  # members up to which all are named in a figure; of more, those that contribute least are not


@dataclass(frozen=True)
class OwnColumn:
    """The contribution of one of the node's own columns."""

    name: str
    value: str  # as in the user's table
    contribution: float  # to the difference of the logits


@dataclass(frozen=True)
class Member:
    """One member of a patch; a node that several sources select is a member of each."""

    source: int  # that selected it, from 0
    position: int  # in the patch of that source; 0 for the node itself, -1 if only reached by further rounds
    node: int  # index in the graph
    id: Any  # the user's id
    score: float  # relevance to the node, by the filter of the source
    hops: int | None  # length of the shortest path from the node; None if not connected
    label: str | None  # None if the node has no label
    part: str  # train, validation, test or empty; the model has seen only the labels of train
    contribution: float  # to the difference of the logits


@dataclass(frozen=True)
class Explanation:
    """The patch of a node and the contributions of its members to the decision between two classes, or to a number.

    ``margin = start + Σ contribution + remainder``: the margin, the logit of the predicted class minus that of the
    runner-up, is that of a patch of average nodes, plus the contribution of each member by deviating from the average.
    The sum runs over the patches of all sources; the remainder is the integration error. The members are in the order
    of the patch, source by source; an edge, in either direction, is a pair of indices into ``members`` of one source.
    The columns, if known, divide the contribution of the node itself. In a regression there are no classes: the margin
    is the predicted number, and all contributions are in the unit of the labels.
    """

    node: int
    id: Any
    label: str | None
    part: str
    predicted: str
    runner_up: str  # empty in a regression
    probability: float | None  # of the predicted class, calibrated; None in a regression
    margin: float
    start: float
    remainder: float
    members: tuple[Member, ...]
    edges: tuple[tuple[int, int], ...]
    columns: tuple[OwnColumn, ...]  # largest contribution first; empty if not known
    classes: tuple[str, ...]  # of the graph, in order

    @property
    def num_sources(self) -> int:
        """Number of patch sources."""
        return 1 + max(member.source for member in self.members)

    def ranked(self) -> list[int]:
        """Return the indices of the members, largest contribution first."""
        return sorted(range(len(self.members)), key=lambda i: -abs(self.members[i].contribution))

    def own(self) -> float:
        """Return the contribution of the node itself, summed over the patches of all sources."""
        return sum(member.contribution for member in self.members if member.node == self.node)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary of numbers, strings and lists, for JSON."""
        return {
            **vars(self),  # not asdict, which copies every value of thousands of members
            "members": [{**vars(member)} for member in self.members],
            "edges": [list(edge) for edge in self.edges],
            "columns": [asdict(column) for column in self.columns],
            "classes": list(self.classes),
        }

    def frame(self) -> pa.Table:
        """Return the members as a pyarrow table; its ``to_pandas()`` returns a data frame."""
        import pyarrow as pa

        return pa.Table.from_pylist([asdict(member) for member in self.members])

    def layout(self) -> FloatArray:
        """Return coordinates to draw the members at, shape (members, 2).

        The node is in the centre and the others on rings by hops; the patches of several sources are side by side.
        """
        xy = np.zeros((len(self.members), 2))
        source = np.array([member.source for member in self.members])
        centre, radius = 0.0, 0
        for number in range(self.num_sources):
            own = np.flatnonzero(source == number)
            hops = [self.members[i].hops for i in own]
            if not own.size:
                continue
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
        """Return a plotly figure of the patch: size is the contribution, colour the class that it favours."""
        import plotly.graph_objects as go

        members = self.members[:DRAWN]
        xy = self.layout()[:DRAWN]
        lines = [[xy[a], xy[b], (None, None)] for a, b in self.edges]
        ends = np.array([end for line in lines for end in line], dtype=object).reshape(-1, 2)
        contribution = np.array([m.contribution for m in members])
        largest = float(np.abs(contribution).max()) or 1.0
        weak = np.abs(contribution) < (0.05 * largest if len(members) > _NAMED else 0.0)
        favoured = [self.predicted if value >= 0 else self.runner_up for value in contribution]
        figure = go.Figure()
        figure.add_scatter(
            x=ends[:, 0], y=ends[:, 1], mode="lines", line={"color": GREY, "width": 0.7}, hoverinfo="skip"
        )
        figure.add_scatter(
            x=xy[:, 0],
            y=xy[:, 1],
            mode="markers+text",
            text=["" if one and m.hops != 0 else str(m.id) for m, one in zip(members, weak, strict=True)],
            textposition="bottom center",
            hovertext=[
                f"{m.id}: position {position_text(m, self)}, score {m.score:.4f}, {hops_text(m.hops)}<br>"
                f"label {label_text(m)}<br>contribution {m.contribution:+.3f}"
                for m in members
            ],
            hoverinfo="text",
            marker={
                "size": 12 + 22 * np.abs(contribution) / largest,
                "color": [
                    class_colour(self.classes.index(name) if self.classes else int(v < 0))
                    for name, v in zip(favoured, contribution, strict=True)
                ],
                "opacity": 1,
                "line": {"color": GREY, "width": [0 if m.hops else 4 for m in members]},
            },
        )
        figure.update_layout(showlegend=False, height=460)
        figure.update_xaxes(visible=False)
        figure.update_yaxes(visible=False, scaleanchor="x")
        return figure


def position_text(member: Member, explanation: Explanation) -> str:
    """Return the position of a member as text; with its source if there are several, as in ``1:0``.

    A node that is only reached by further rounds is beyond the patch.
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


def number_text(value: float) -> str:
    """Return a predicted number or a label as text."""
    return f"{float(value):.6g}"
