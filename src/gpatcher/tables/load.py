"""Graphs from a table of nodes and a table of edges: CSV, Parquet, in memory or in a database.

Columns are processed as a whole by pyarrow, so a million rows take about a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from gpatcher.arrays import Features
from gpatcher.errors import InputError, counted, some, warn_input
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import is_labelled, split_from_parts, stratified_folds, stratified_split, time_split
from gpatcher.tables.cut import Cut, cut_tables
from gpatcher.tables.database import Reader
from gpatcher.tables.edge_columns import EdgePlan, plan_edge_columns
from gpatcher.tables.edges import (
    IrregularTableError,
    edge_ids,
    make_undirected,
    open_edges,
    points,
    prefetch,
    read_edges,
    stream_edges,
)
from gpatcher.tables.encoder import ColumnSummary, TableEncoder
from gpatcher.tables.nodes import NodeRows, read_nodes
from gpatcher.tables.options import DEFAULT_LABEL, Counts, TableOptions
from gpatcher.tables.reader import TableSource
from gpatcher.tables.typed import Link, is_typed, read_typed
from gpatcher.tables.typed_encoder import Encoder

EncodedNodes: TypeAlias = tuple[TableEncoder | None, Features | None, list[str]]  # encoder, features, warnings


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


def read_tables(nodes: Any, edges: Any, **options: Any) -> Graph:
    """Read a graph from a table of nodes and a table of edges; `load_tables` also returns encoder and counts.

    Parameters
    ----------
    nodes : str, Path, pyarrow.Table, pandas.DataFrame or None
        One row per node: a file (.csv, .tsv, both also as .gz, .parquet or .pq), a folder of Parquet files, or a table
        in memory. With the option ``database``, the name of a table there, or a query. With None the nodes are the
        endpoints, sorted by id and without labels. Several tables are a mapping of node types to tables.
    edges : str, Path, pyarrow.Table or pandas.DataFrame
        One row per edge. Several tables are a mapping of edge types to tables.
    **options
        Fields of `gpatcher.tables.options.TableOptions`.
    """
    return load_tables(nodes, edges, **options).graph


def load_tables(nodes: Any, edges: Any, *, encoder: TableEncoder | None = None, **options: Any) -> Tables:
    """Read a graph as `read_tables` does, with a fitted ``encoder`` if given; return encoder and row counts too."""
    parsed = TableOptions.parse(options)
    if parsed.cut is not None:
        nodes, edges, cut = cut_tables(nodes, edges, parsed)
        tables = load_tables(nodes, edges, encoder=encoder, **{**options, "cut": None, "edge_time": None})
        return replace(tables, cut=cut)
    if is_typed(nodes, edges):
        return Tables(**vars(read_typed(nodes, edges, parsed)))
    parsed.check_single()
    with parsed.reading() as reader:
        edge_table = open_edges(edges, parsed, reader)
        plan = plan_edges(edge_table, parsed, nodes, encoder)
        names = [*parsed.edge_columns.values(), *plan.edge_names]
        with prefetch(edge_table.iter_batches(names, written=parsed.endpoints)) as batches:
            node_rows = read_node_table(nodes, parsed, encoder, reader)
            return _join_tables(node_rows, edge_table, batches, parsed, plan, encoder)


def _join_tables(
    node_rows: NodeRows | None,
    edge_table: TableSource,
    batches: Iterator[Any],
    parsed: TableOptions,
    plan: EdgePlan,
    encoder: TableEncoder | None,
) -> Tables:
    """Build a graph from the nodes and the batches of edges."""
    # features on one thread, edges on another: both release the GIL, and are independent if there are no edge columns
    with ThreadPoolExecutor(1) as pool:
        encoded = None if plan.columns else pool.submit(encode_nodes, node_rows, parsed, encoder, plan)
        try:
            ids = edge_ids(edge_table, parsed) if node_rows is None else node_rows.ids.values
            edge_rows = stream_edges(batches, parsed, ids, plan)
        except (IrregularTableError, pa.ArrowException):
            edge_rows = read_edges(edge_table, parsed, node_rows, plan)
        pa.default_memory_pool().release_unused()
        added = len(edge_rows.ids) - (0 if node_rows is None else len(node_rows.ids.values))
        if node_rows is not None and (added or plan.columns):
            if encoded is not None:
                encoded.exception()  # waits; features without the added nodes are useless
            node_rows.add_rows(added)
            node_rows.columns |= edge_rows.node_columns
            encoded = None
        if encoded is None:
            encoded = pool.submit(encode_nodes, node_rows, parsed, encoder, plan)
        graph = Graph.from_edge_index(
            edge_rows.edge_index,
            y=None if node_rows is None else node_rows.y,
            num_nodes=len(edge_rows.ids),
            weights=edge_rows.weights,
            classes=None if node_rows is None else node_rows.classes,
            task=None if node_rows is None else node_rows.task,
            name=edge_table.stem if parsed.name is None else parsed.name,
            node_ids=edge_rows.ids.to_numpy(zero_copy_only=False),
        )
        counts = Counts(**edge_rows.counts, added=added, duplicate_edges=graph.duplicate_edges)
        if not (points(graph, edge_rows) if parsed.directed is None else parsed.directed):
            graph = make_undirected(graph)
        encoder, graph = add_node_data(graph, node_rows, encoded.result())
    if node_rows is None:
        return Tables(graph, None, counts, parsed)
    columns = (encoder or TableEncoder(())).describe(node_rows.columns)
    counts = replace(counts, **node_rows.counts)
    return Tables(graph, encoder, counts, parsed, node_rows.split_values, tuple(columns), node_rows.label_type)


def plan_edges(table: TableSource, options: TableOptions, nodes: Any, encoder: TableEncoder | None) -> EdgePlan:
    """Return which columns of the edges become features: those of the encoder if one is passed."""
    if encoder is not None:
        [plan] = encoder.edges
        for column in plan.edge_names:
            table.require({"edge_features": column})
        return plan
    return plan_edge_columns(table, options, nodes=nodes is not None)


def read_node_table(
    nodes: Any, options: TableOptions, encoder: TableEncoder | None, reader: Reader | None = None
) -> NodeRows | None:
    """Read the table of nodes if there is one; without it, options that name its columns raise an InputError."""
    if nodes is not None:
        return read_nodes(TableSource.open(nodes, options.delimiter, "nodes", reader), options, encoder)
    if options.features is not None or options.columns or options.split_columns:
        raise InputError(
            "features and splits are columns of the table of nodes; pass nodes, or leave these options out"
        )
    if options.label not in (None, DEFAULT_LABEL):
        raise InputError(f"label {options.label!r} is a column of the table of nodes; pass nodes, or leave label out")
    return None


def encode_nodes(
    rows: NodeRows | None, options: TableOptions, encoder: TableEncoder | None, plan: EdgePlan
) -> EncodedNodes:
    """Return the encoder, by default a new one, the features and the warnings; None for both without features."""
    if rows is None:
        return None, None, []
    if encoder is None:
        kinds = {**dict.fromkeys(plan.node_names(), "number"), **options.columns}
        encoder, x, messages = TableEncoder.fit_transform(rows.columns, kinds, rows.reject)
        encoder = replace(encoder, edges=(plan,))
    else:
        x, messages = encoder.encode(rows.columns, rows.reject)
    return (encoder, x, messages) if encoder.encoders else (None, None, messages)


def add_node_data(graph: Graph, rows: NodeRows | None, encoded: EncodedNodes) -> tuple[TableEncoder | None, Graph]:
    """Add features and a split by column to a graph, and issue the warnings of `encode_nodes`."""
    encoder, x, messages = encoded
    for message in messages:
        warn_input(message)
    graph = graph.with_features(x)
    if rows is not None and "split_column" in rows.split_values:
        graph = graph.with_splits([split_from_parts(rows.split_values["split_column"])])
    return encoder, graph


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
        shown = node if graph.node_ids is None else graph.node_ids[node]
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
