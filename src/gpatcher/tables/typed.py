"""Graphs from several tables of nodes and edges, one for each type.

Every table is read as the only one would be. Then the endpoints of each table of edges are looked up among the ids of
their node types, and the features of each node type are a block of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import Features
from gpatcher.errors import InputError, warn_input
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import split_from_parts
from gpatcher.graph.types import NodeTypes
from gpatcher.tables.edge_columns import EdgePlan, EdgeSums, plan_edge_columns
from gpatcher.tables.edges import (
    EdgeRows,
    IrregularTableError,
    Piece,
    indexed_edges,
    join_pieces,
    make_undirected,
    points,
    prefetch,
    read_edges,
)
from gpatcher.tables.encoder import ColumnSummary, TableEncoder
from gpatcher.tables.ids import Ids
from gpatcher.tables.nodes import NodeRows, read_nodes
from gpatcher.tables.options import Counts, TableOptions
from gpatcher.tables.reader import TableSource
from gpatcher.tables.result import Link, Tables
from gpatcher.tables.typed_encoder import Encoder, TypedEncoder
from gpatcher.tables.values import to_numpy

_NAME = re.compile(r"[^\W\d][\w-]*")  # of a type: it is part of ids and of names of columns
ONLY = "nodes"  # the name of the only table of nodes
_EDGE_BYTES = 160  # peak memory per row of a table of edges, measured by benchmarks/typed_tables.py


def is_typed(nodes: Any, edges: Any) -> bool:
    """Return whether there are tables by type rather than one of each."""
    return isinstance(nodes, Mapping) or isinstance(edges, Mapping)


def read_typed(nodes: Any, edges: Any, options: TableOptions, memory: float = np.inf) -> Tables:
    """Read a graph from mappings of types to tables; edges that need more bytes of memory raise an InputError."""
    node_tables, edge_tables = name_tables(nodes, edges)
    options.check_tables(list(node_tables) if isinstance(nodes, Mapping) else [], list(edge_tables))
    if options.on_unknown_id == "add":
        raise InputError(
            "on_unknown_id='add' is for one table of nodes and one of edges; with several, add the nodes to their "
            "table, or pass 'drop' (--on-unknown-id)"
        )
    named = isinstance(nodes, Mapping)
    several = len(node_tables) > 1
    with options.reading() as reader, ThreadPoolExecutor(1) as pool:

        def opened(tables: Mapping[str, Any]) -> dict[str, TableSource]:
            return {name: TableSource.open(table, options.delimiter, name, reader) for name, table in tables.items()}

        node_sources, edge_sources = opened(node_tables), opened(edge_tables)
        labelled = _labelled_type(node_sources, options)
        rows = {
            name: read_nodes(source, _node_options(options, name, labelled, named), None)
            for name, source in node_sources.items()
        }
        first = offsets({name: len(part.ids.values) for name, part in rows.items()})
        n = sum(len(part.ids.values) for part in rows.values())
        node_ids = pool.submit(_node_ids, rows)  # while the edges are read
        relations: dict[str, Graph] = {}
        links: list[Link] = []
        counts: list[dict[str, int]] = []
        for name, table in edge_sources.items():
            own = edge_options(options, name, edge_sources)
            ends = options.ends.get(name) or _matching_types(name, table, own, rows)
            plan = plan_edge_columns(table, own, nodes=True, name=name)
            if ends[0] == ends[1]:
                plan = replace(plan, directed=options.directed is not False)
            left = memory - _EDGE_BYTES * sum(counted["edge_rows"] for counted in counts)
            relations[name], directed, edge_counts = _read_relation(table, own, rows, ends, plan, first, n, left)
            links.append(Link(name, ends[0], ends[1], edge_counts["edge_rows"], directed))
            counts.append(edge_counts)
    part = rows[labelled]
    y = np.full(n, np.nan if part.task == "regression" else -1)
    at = slice(first[labelled], first[labelled] + len(part.ids.values))
    if part.y is not None:
        y[at] = part.y
    graph = Graph.from_relations(
        relations,
        y=None if part.y is None else y,
        classes=part.classes,
        task=part.task,
        name=options.name or "+".join(relations),
        node_ids=node_ids.result(),
        node_types=_node_types(rows, labelled) if several else None,
    )
    if not several and len(relations) == 1:
        graph = replace(graph, relations={})
    encoder, x, columns = _encode(rows, options, several, named)
    graph = graph.with_features(x)
    split_values = {option: _spread(values, at, n) for option, values in part.split_values.items()}
    if "split_column" in split_values:
        graph = graph.with_splits([split_from_parts(split_values["split_column"])])
    total: Counter[str] = Counter()
    for one in (*counts, *(part.counts for part in rows.values())):
        total.update(one)
    options = replace(options, ends={link.name: (link.source, link.target) for link in links})
    return Tables(
        graph,
        encoder,
        Counts(**total, duplicate_edges=graph.duplicate_edges),
        options,
        split_values,
        columns,
        part.label_type,
        tuple(links),
    )


def name_tables(nodes: Any, edges: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tables of nodes and of edges by name, and check the names."""
    if nodes is None:
        raise InputError("several tables of edges need a table of nodes; pass nodes (--nodes)")
    node_tables = dict(nodes) if isinstance(nodes, Mapping) else {ONLY: nodes}
    edge_tables = dict(edges) if isinstance(edges, Mapping) else {"edges": edges}
    for kind, tables in (("nodes", node_tables), ("edges", edge_tables)):
        if not tables:
            raise InputError(f"{kind} is an empty mapping; pass a table for each type")
        for name in tables:
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise InputError(f"{kind}: a type is named by letters, digits, _ and -, such as person; got {name!r}")
    both = sorted(node_tables.keys() & edge_tables.keys())
    if both:
        raise InputError(f"{both[0]!r} is the name of a table of nodes and of one of edges; rename one of them")
    return node_tables, edge_tables


def offsets(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the index of the first node of each type."""
    return dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist(), strict=False))


def _labelled_type(tables: Mapping[str, TableSource], options: TableOptions) -> str:
    """Return the node type that has labels."""
    label = options.label
    if isinstance(label, Mapping):
        found = [name for name in tables if label.get(name) is not None]
        for name in found:
            tables[name].require({"label": label[name]})
    else:
        found = [name for name, table in tables.items() if label in table.columns]
    if len(found) == 1:
        return found[0]
    if not found and len(tables) > 1 and label is not None:
        raise InputError(
            f"no table of nodes has a column {label!r}; name it with label={{{next(iter(tables))!r}: ...}} "
            f"(--label {next(iter(tables))}=COLUMN)"
        )
    if len(found) > 1:
        raise InputError(
            f"the tables {', '.join(found)} all have labels, and only one type can be predicted; say which with "
            f"label={{{found[0]!r}: ...}} (--label {found[0]}=COLUMN)"
        )
    return next(iter(tables))


def _node_options(options: TableOptions, name: str, labelled: str, named: bool) -> TableOptions:
    """Return the options of a table of nodes; only the labelled type has labels and a split."""
    own = options.of_table(name) if named else options
    if name == labelled:
        return own
    return replace(own, label=None, split_column=None, time=None, group=None, folds=None)


def edge_options(options: TableOptions, name: str, tables: Mapping[str, TableSource]) -> TableOptions:
    """Return the options of a table of edges, which must have the columns; a weight for all is used where it exists."""
    own = options.of_table(name)
    if own.source == own.target:
        raise InputError(f"source and target of {name} are both column {own.source!r}; name the columns of both")
    if isinstance(options.weight, str) and options.weight not in tables[name].columns:
        if not any(options.weight in table.columns for table in tables.values()):
            tables[name].require({"weight": options.weight})
        own = replace(own, weight=None)
    tables[name].require(own.edge_columns)
    return own


def _matching_types(
    name: str, table: TableSource, options: TableOptions, rows: Mapping[str, NodeRows]
) -> tuple[str, str]:
    """Return the node types of the sources and the targets: those that have the ids of the first rows."""
    if len(rows) == 1:
        [only] = rows
        return only, only
    try:
        batch = next(table.iter_batches(options.endpoints, written=options.endpoints), None)
        values = {} if batch is None else {column: batch.column(column) for column in options.endpoints}
    except pa.ArrowException:
        values = {}
    if not values or any(pa.types.is_binary(column.type) for column in values.values()):
        # whole columns: no rows, and bytes that are not text, are then an error with their line
        values = table.read(options.endpoints, written=options.endpoints)
    way_out = f"ends={{{name!r}: (..., ...)}} (--ends {name}={','.join([*rows][:2])})"
    ends = []
    for column in options.endpoints:
        share = {kind: _share_of_ids(table, column, values[column], part) for kind, part in rows.items()}
        best = max(share.values())
        kinds = [kind for kind, value in share.items() if value == best]
        if best == 0:
            raise InputError(
                f"{table.path}: no id in column {column!r} is in a table of nodes ({', '.join(rows)}); check the "
                f"column, or say which types the edges join with {way_out}"
            )
        if len(kinds) > 1:
            raise InputError(
                f"{table.path}: the ids in column {column!r} are in several tables of nodes: {', '.join(kinds)}; say "
                f"which types the edges join with {way_out}"
            )
        ends.append(kinds[0])
    return ends[0], ends[1]


def _share_of_ids(table: TableSource, column: str, values: Any, rows: NodeRows) -> float:
    """Return the share of the ids that a node type has."""
    ids = Ids.read(table, column, values).like(rows.ids.values).values
    if ids.type != rows.ids.values.type or not len(ids):
        return 0.0
    return float(np.mean(to_numpy(pc.is_in(ids, value_set=rows.ids.values))))


def _read_relation(
    table: TableSource,
    options: TableOptions,
    rows: Mapping[str, NodeRows],
    ends: Sequence[str],
    plan: EdgePlan,
    first: Mapping[str, int],
    n: int,
    memory: float,
) -> tuple[Graph, bool, dict[str, int]]:
    """Return the graph of one edge type, whether it is directed, and the counts; adds node columns to the rows."""
    source, target = (rows[end] for end in ends)
    at = first[ends[0]], first[ends[1]]
    sums = EdgeSums(plan, n)
    names = [*options.edge_columns.values(), *plan.edge_names]
    ids = source.ids.values
    try:
        with prefetch(table.iter_batches(names, written=options.endpoints)) as batches:
            found = indexed_edges(batches, options, source.ids.index, sums, targets=target.ids.index, offsets=at)
            edge_index, weight = join_pieces(_within(found, memory, table))
        counts = {"edge_rows": edge_index.shape[1]}
    except (IrregularTableError, pa.ArrowException):
        sums = EdgeSums(plan, n)
        read = read_edges(table, options, source, plan, targets=target, sums=sums, offsets=at)
        edge_index, weight, counts = read.edge_index, read.weights, read.counts
    for end in dict.fromkeys(ends):
        part = slice(first[end], first[end] + len(rows[end].ids.values))
        rows[end].columns |= sums.node_columns(part) if plan.columns else {}
        rows[end].plans.append(plan)
    graph = Graph.from_edge_index(edge_index, num_nodes=n, weights=weight, name=plan.name)
    directed = options.directed
    if directed is None:
        local = EdgeRows(ids, edge_index - at[0], None, {}, {})
        directed = ends[0] == ends[1] and points(graph, local)
    return (graph if directed else make_undirected(graph)), directed, counts


def _within(pieces: Iterator[Piece], memory: float, table: TableSource) -> Iterator[Piece]:
    """Yield the pieces of a table of edges while they fit into memory."""
    rows = 0
    for piece in pieces:
        rows += len(piece[0])
        if _EDGE_BYTES * rows > memory:
            raise InputError(
                f"{table.path}: the edges of several tables are sorted in memory, and {rows:,} rows of this one need "
                f"{_EDGE_BYTES * rows / 2**30:.3g} GiB, above the {max(memory, 0) / 2**30:.3g} GiB left for it; raise "
                "memory=... (--memory), or store one table of nodes and one of edges, which is sorted on disk"
            )
        yield piece


def _node_ids(rows: Mapping[str, NodeRows]) -> npt.NDArray[Any]:
    """Return the ids; those of several types as text, type:id."""
    if len(rows) == 1:
        return to_numpy(next(iter(rows.values())).ids.values)
    return to_numpy(pa.chunked_array([type_ids(name, part.ids.values) for name, part in rows.items()]))


def type_ids(name: str, values: Any) -> Any:
    """Return ids of a type as text, type:id."""
    text = pa.large_string()
    return pc.binary_join_element_wise(pa.scalar(f"{name}:", text), values.cast(text), pa.scalar("", text))


def _node_types(rows: Mapping[str, NodeRows], labelled: str) -> NodeTypes:
    sizes = [len(part.ids.values) for part in rows.values()]
    integers = [name for name, part in rows.items() if pa.types.is_integer(part.ids.values.type)]
    return NodeTypes(np.repeat(np.arange(len(sizes), dtype=np.int8), sizes), tuple(rows), labelled, tuple(integers))


def _encode(
    rows: Mapping[str, NodeRows], options: TableOptions, several: bool, named: bool
) -> tuple[Encoder | None, Features | None, tuple[ColumnSummary, ...]]:
    """Fit an encoder for each type; return the encoder, the features and how each column is encoded."""
    blocks: dict[str, TableEncoder] = {}
    features: dict[str, Features | None] = {}
    for name, part in rows.items():
        own = options.of_table(name) if named else options
        edge_columns = [column for plan in part.plans for column in plan.node_names()]
        kinds = {**dict.fromkeys(edge_columns, "number"), **own.columns}
        encoder, x, messages = TableEncoder.fit_transform(part.columns, kinds, part.reject)
        blocks[name] = replace(encoder, edges=tuple(part.plans))
        features[name] = x if encoder.encoders else None
        for message in messages:
            warn_input(f"{name}: {message}" if several else message)
    if not several:
        [(name, block)] = blocks.items()
        return (block if block.encoders else None), features[name], tuple(block.describe(rows[name].columns))
    sizes = {name: len(part.ids.values) for name, part in rows.items()}
    joined = TypedEncoder.of(blocks, sizes)
    columns = joined.describe({name: part.columns for name, part in rows.items()})
    return joined, joined.join(features, sizes), tuple(columns)


def _spread(values: npt.NDArray[Any], at: slice, n: int) -> npt.NDArray[Any]:
    """Return values of the labelled type for all nodes, missing for the others."""
    spread = np.full(n, None if values.dtype == object else np.nan, values.dtype)
    spread[at] = values
    return spread
