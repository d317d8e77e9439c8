"""What is read from tables: a graph, its encoder, and counts of what was dropped, added and inferred."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpatcher.errors import InputError, counted, some, warn_input
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import is_labelled, stratified_folds, stratified_split, time_split
from gpatcher.tables.encoder import ColumnSummary
from gpatcher.tables.options import Counts, TableOptions
from gpatcher.tables.typed_encoder import Encoder


@dataclass(frozen=True)
class Link:
    """What was read from a table of edges."""

    name: str
    source: str  # node type
    target: str
    rows: int
    directed: bool


@dataclass(frozen=True, eq=False)
class Cut:
    """What lies after the cut and is not seen in training."""

    at: str  # the time, as text
    nodes: int  # rows, before and after
    later_nodes: int
    edges: int
    later_edges: int  # after the cut, or of a node that came later
    later: tuple[Any, Any] | None = field(default=None, repr=False)  # tables of later nodes and of their edges
    columns: tuple[str, str] | None = None  # id and label of the labelled type

    def later_labels(self, graph: Graph) -> Iterator[tuple[str, str]]:
        """Yield id, as the graph has it, and class of later nodes of the labelled type, as text, where known."""
        if self.later is None or self.columns is None:
            return
        table, prefix = self.later[0], ""
        if isinstance(table, Mapping):
            name = next(iter(table)) if graph.node_types is None else graph.node_types.labelled
            prefix = "" if graph.node_types is None else f"{name}:"
            table = table.get(name)
        if table is None or self.columns[1] not in table.columns:
            return
        read = table.read(self.columns, written=self.columns)
        labels = read[self.columns[1]].to_pylist()
        for id, label in zip(read[self.columns[0]].to_pylist(), labels, strict=True):
            if id is not None and label is not None and label != "":
                whole = isinstance(label, float) and label.is_integer()
                yield f"{prefix}{id}", str(int(label) if whole else label)

    def describe(self) -> str:
        """Return a sentence for the page and the terminal."""
        share = self.later_edges / max(self.edges, 1)
        return (
            f"Cut at {self.at}: {self.later_edges:,} of {self.edges:,} edges ({share:.1%}) and {self.later_nodes:,} of "
            f"{self.nodes:,} nodes lie after it and are not seen in training."
        )


@dataclass(frozen=True, eq=False)
class Tables:
    """A graph read from tables."""

    graph: Graph  # with a split if `split_column` is an option
    encoder: Encoder | None  # None without features
    counts: Counts
    options: TableOptions
    split_values: Mapping[str, Any] = field(default_factory=dict, repr=False)  # value of each node, by option
    columns: tuple[ColumnSummary, ...] = ()  # how each column of the nodes is encoded
    label_type: str | None = None  # int64, bool or double, None if labels are text
    links: tuple[Link, ...] = ()  # what each edge type joins, if edges have types
    cut: Cut | None = None  # what lies after a cut in time

    def describe_columns(self) -> list[tuple[str, ...]]:
        """Return a row of text per column: column, kind, features, missing, note."""
        return [tuple(f"{cell:,}" if isinstance(cell, int) else cell for cell in row) for row in self.columns]

    def with_split(self, train: float = 0.6, val: float = 0.2, seed: int = 0) -> Tables:
        """Split the labelled nodes as the options say: by a column, into folds, or at random and stratified.

        The fractions are not used for folds and groups; the seed is only used if the split is random.
        """
        options, graph = self.options, self.graph
        if graph.splits:
            return self
        if graph.y is None or not is_labelled(graph.y).any():
            raise InputError(
                f"no node has a label: column {options.label!r} of the nodes is missing or empty; name the column with "
                "label=... (--label) and fill it in for some of the nodes"
            )
        if not graph.is_regression:
            graph = _handle_rare_classes(graph, options.on_rare_class)
        y = graph.labels()
        if options.time is not None:
            splits = [time_split(y, self.split_values["time"], train, val)]
        elif options.folds is not None:
            splits = stratified_folds(y, options.folds, seed, self.split_values.get("group"))
        elif options.group is not None:
            splits = stratified_folds(y, 5, seed, self.split_values["group"])[:1]
        else:
            splits = [stratified_split(y, train, val, seed)]
        return replace(self, graph=graph.with_splits(splits))


def _handle_rare_classes(graph: Graph, on_rare_class: str) -> Graph:
    """Keep, unlabel or reject classes with one labelled node, which cannot be in both train and test."""
    y = graph.labels()
    sizes = np.bincount(y[y >= 0], minlength=graph.num_classes)
    rare = np.flatnonzero(sizes == 1)
    if not rare.size:
        return graph
    classes = f"{counted(rare.size, 'class has', 'classes have')} one labelled node"
    names = some(repr(graph.classes[c]) for c in rare)
    if on_rare_class == "error":
        node = int(np.flatnonzero(y == rare[0])[0])
        shown = node if graph.node_ids is None else graph.node_ids[[node]].tolist()[0]
        raise InputError(
            f"{classes}: {names}, the first at id {shown!r}; label more nodes of it, or pass on_rare_class='keep' (for "
            "training only) or 'unlabel' (--on-rare-class)"
        )
    if on_rare_class == "keep":
        warn_input(f"{classes}, used for training only: {names}")
        return graph
    kept = np.flatnonzero(sizes > 1)
    if not kept.size:
        raise InputError("every class has one labelled node; label more nodes")
    warn_input(f"{classes}, which is treated as unlabelled: {names}")
    new_class = np.full(graph.num_classes + 1, -1)  # the last entry is for unlabelled nodes, -1
    new_class[kept] = np.arange(kept.size)
    return replace(graph, y=new_class[y], classes=tuple(graph.classes[c] for c in kept))
