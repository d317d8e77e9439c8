"""Edge columns aggregated to columns of both end nodes: count, mean, sum and fraction of each category."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import check_choice, counted, some, warn_input
from gpatcher.kernels.columns import add_edges
from gpatcher.tables.columns import COLUMN_KINDS, CategoryColumn, infer_kind
from gpatcher.tables.options import TableOptions
from gpatcher.tables.reader import TableSource
from gpatcher.tables.values import Reject

_MAX_CATEGORIES = 16  # of an edge column with a fraction each
_MEASURES = {"number": ("mean", "sum"), "date": ("mean",), "boolean": ("mean",), "category": ("mean",)}


@dataclass(frozen=True)
class EdgeColumn:
    """A column of the edges that becomes columns of the nodes."""

    column: str
    kind: str
    values: list[str]  # categories with a fraction each

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, _MEASURES)

    @property
    def parts(self) -> list[str]:
        """What is averaged: the values, or an indicator of each category."""
        return [f"{self.column} = {value}" for value in self.values] if self.kind == "category" else [self.column]

    def read(self, values: Any, reject: Reject) -> Iterator[FloatArray]:
        """Yield the numbers of each part, NaN where missing."""
        read = COLUMN_KINDS[self.kind].read(self.column, values, reject)
        if self.kind != "category":
            yield read
            return
        index = {value: j for j, value in enumerate(self.values)}
        codes = np.array([*(index.get(value, len(index)) for value in read.categories), -1])[read.codes]
        for j in index.values():
            yield np.where(codes < 0, np.nan, codes == j)


@dataclass(frozen=True)
class EdgePlan:
    """Which columns of the edges become columns of the nodes, and whether directions are distinguished."""

    columns: tuple[EdgeColumn, ...] = ()
    directed: bool = False
    name: str = ""  # of the edge type

    @property
    def sides(self) -> tuple[str, ...]:
        """Kinds of edges that are summed separately."""
        return () if not self.columns else ("outgoing edges", "incoming edges") if self.directed else ("edges",)

    @property
    def edge_names(self) -> list[str]:
        """Columns of the edges that are read."""
        return [column.column for column in self.columns]

    def node_names(self) -> list[str]:
        """Return the names of the columns of the nodes."""
        return list(self.node_kinds())

    def node_kinds(self) -> dict[str, str]:
        """Return the columns of the nodes, each with the kind of the edge column that it is made of."""
        prefix = f"{self.name}: " if self.name else ""
        kinds = {}
        for side in self.sides:
            kinds[f"{prefix}number of {side}"] = "number"
            for column in self.columns:
                for part in column.parts:
                    kinds |= {f"{prefix}{part}: {m} of {side}": column.kind for m in _MEASURES[column.kind]}
        return kinds


class EdgeSums:
    """Numbers of edges and sums of their columns at each node, accumulated batch by batch."""

    def __init__(self, plan: EdgePlan, nodes: int) -> None:
        self.plan, self.nodes = plan, nodes
        self.parts = sum(len(column.parts) for column in plan.columns)
        # the numbers of a node side by side: its edges, the total of each part, and how many of its values are missing
        self.sums = np.zeros((len(plan.sides), nodes, 1 + 2 * self.parts))

    def add(self, batch: Any, source: IntArray, target: IntArray, reject: Reject) -> None:
        """Add a table of edges with the indices of their endpoints."""
        if not self.plan.columns:
            return
        values = np.empty((self.parts, len(source)))
        read = (part for column in self.plan.columns for part in column.read(batch.column(column.column), reject))
        for row, part in zip(values, read, strict=True):
            row[:] = part
        for end, index in enumerate((source, target)):
            add_edges(index, values, self.sums[end if self.plan.directed else 0])

    def node_columns(self, nodes: slice = slice(None)) -> dict[str, Any]:
        """Return a column of numbers per measure, missing if a node has no value; for some of the nodes."""
        columns: list[FloatArray] = []
        kinds = [column.kind for column in self.plan.columns for _ in column.parts]
        for edges, *rest in (side[nodes].T for side in self.sums):
            columns.append(edges)
            for kind, total, missing in zip(kinds, rest[: self.parts], rest[self.parts :], strict=True):
                count = edges - missing
                mean = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
                columns += [mean if measure == "mean" else total for measure in _MEASURES[kind]]
        arrays = (pa.chunked_array([pa.array(column, from_pandas=True)]) for column in columns)
        return dict(zip(self.plan.node_names(), arrays, strict=True))


def plan_edge_columns(table: TableSource, options: TableOptions, *, nodes: bool, name: str = "") -> EdgePlan:
    """Infer the kinds and categories of edge columns from the first rows; warn of columns that are not used.

    Text, ids and columns not in ``options.edge_features`` are not used, nor any column without a table of nodes.
    """
    others = [column for column in table.columns if column not in options.edge_columns.values()]
    names = others if options.edge_features is None else options.edge_features
    for column in names:
        table.require({"edge_features": column})
    columns = (
        [] if not nodes or not names else [_plan_column(name, values) for name, values in _first_rows(table, names)]
    )
    plan = EdgePlan(tuple(column for column in columns if column is not None), bool(options.directed), name)
    unused = [name for name in names if name not in plan.edge_names]
    hint = "; to weigh the edges, pass weight='weight' (--weight)"
    if unused:
        warn_input(
            f"{table.path}: {counted(len(unused), 'column is', 'columns are')} not used: {some(unused)}"
            f"{hint if 'weight' in unused else ''}"
        )
    if "weight" in plan.edge_names and options.edge_features is None:
        warn_input(f"{table.path}: column 'weight' becomes features of both ends{hint}")
    return plan


def _first_rows(table: TableSource, names: Sequence[str]) -> list[tuple[str, Any]]:
    """Return the first rows of columns; no columns for an empty table."""
    try:
        batch = next(table.iter_batches(list(names)), None)
    except pa.ArrowException:
        return list(table.read(names).items())
    return [] if batch is None else [(name, batch.column(name)) for name in names]


def _plan_column(name: str, values: Any) -> EdgeColumn | None:
    kind, _ = infer_kind(values, name)
    kind = "number" if kind == "code" else kind
    if kind not in _MEASURES:
        return None
    frequent = CategoryColumn.fit(name, CategoryColumn.read(name, values)).values if kind == "category" else []
    return EdgeColumn(name, kind, frequent[:_MAX_CATEGORIES])
