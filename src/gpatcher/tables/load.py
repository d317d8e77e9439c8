"""Graphs from a table of nodes and a table of edges: CSV, Parquet, in memory or in a database.

Columns are processed as a whole by pyarrow, so a million rows take about a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from gpatcher.arrays import Features
from gpatcher.errors import InputError, warn_input
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import split_from_parts
from gpatcher.tables.cut import cut_tables
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
from gpatcher.tables.encoder import TableEncoder
from gpatcher.tables.ids import id_index
from gpatcher.tables.nodes import NodeRows, read_nodes
from gpatcher.tables.options import DEFAULT_LABEL, Counts, TableOptions
from gpatcher.tables.reader import TableSource
from gpatcher.tables.result import Tables
from gpatcher.tables.typed import is_typed, read_typed

EncodedNodes: TypeAlias = tuple[TableEncoder | None, Features | None, list[str]]  # encoder, features, warnings


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
        if encoder is not None:
            raise InputError("a fitted encoder is for one table of nodes and one of edges; leave it out")
        return read_typed(nodes, edges, parsed)
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
            index = id_index(ids) if node_rows is None else node_rows.ids.index
            edge_rows = stream_edges(batches, parsed, ids, index, plan)
            del index
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
        directed = points(graph, edge_rows) if parsed.directed is None else parsed.directed
        del edge_rows  # whose arrays are as large as those of the undirected graph
        if not directed:
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
