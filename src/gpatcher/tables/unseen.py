"""Tables of unseen nodes: nodes that arrive after training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import Features, FloatArray, IntArray
from gpatcher.errors import InputError, counted
from gpatcher.graph.graph import Graph
from gpatcher.tables.edge_columns import EdgeSums
from gpatcher.tables.edges import edge_weights, open_edges
from gpatcher.tables.encoder import TableEncoder
from gpatcher.tables.ids import Ids, dtype_name
from gpatcher.tables.nodes import NodeRows, read_nodes
from gpatcher.tables.options import TableOptions
from gpatcher.tables.reader import TableSource
from gpatcher.tables.values import combine_chunks, is_number, is_text, to_numbers, to_numpy

_OPTIONS = ("id", "source", "target", "weight", "delimiter", "on_duplicate_id", "on_missing_id", "database")


def read_new_tables(
    graph: Graph, nodes: Any, edges: Any, encoder: TableEncoder | None, options: Mapping[str, Any]
) -> tuple[npt.NDArray[Any], Features | None, IntArray, FloatArray | None]:
    """Read unseen nodes, and their edges among themselves and to the graph: ids, features, edge index and weights.

    In the edge index, the unseen nodes are n, n + 1, ... Without an ``encoder``, all numeric columns are features, if
    the graph has features. ``options`` are those of `TableOptions` that the graph was read with; other keys are
    ignored.
    """
    parsed = TableOptions(**{name: options[name] for name in _OPTIONS if name in options}, label=None)
    raw_features = graph.x is not None and encoder is None
    if raw_features and "edges" in options:
        raise InputError(
            "the features of this graph are computed from its edges, which unseen nodes change; to predict unseen "
            "nodes, train with features from columns"
        )
    if encoder is None and not raw_features:
        parsed = replace(parsed, features=())
    features = [] if encoder is None else encoder.edges.edge_names
    with parsed.reading() as reader:
        edge_table = open_edges(edges, parsed, reader)
        for column in features:
            edge_table.require({"edge_features": column})
        rows = read_nodes(TableSource.open(nodes, parsed.delimiter, "nodes", reader), parsed, encoder)
        # in one query: a second one might return the rows in another order
        columns = edge_table.read([*parsed.edge_columns.values(), *features], written=parsed.endpoints)

    old = _like_read(_first_id(graph), rows.ids.values.type)
    ids = rows.ids.like(old)
    _require_dtype_of_graph(ids, old)
    new = combine_chunks(ids.values)
    ids.reject(graph.positions(to_numpy(new)) >= 0, "are in the graph already", "pass unseen nodes only")
    edge_index = []
    for column in parsed.endpoints:
        endpoints = Ids.read(edge_table, column, columns[column]).like(old).drop_missing("error").exact()
        _require_dtype_of_graph(endpoints, old)
        index = graph.positions(to_numpy(endpoints.values))
        unseen = to_numpy(pc.index_in(endpoints.values, value_set=new).fill_null(-1)).astype(np.int64)
        index = np.where(unseen >= 0, graph.n + unseen, index)
        problem = f"are neither in {ids.table.path} nor in the graph"
        endpoints.reject(index < 0, problem, "add these nodes or remove these edges")
        edge_index.append(index)
    weights = None
    if parsed.weight is not None:
        weights = edge_weights(edge_table, parsed.weight, columns[parsed.weight], None)
    x: Features | None = None
    if encoder is not None and encoder.encoders:
        if encoder.edges.columns:
            sums = EdgeSums(encoder.edges, graph.n + len(new))
            batch = pa.table({name: columns[name] for name in features})
            sums.add(batch, edge_index[0], edge_index[1], edge_table.reject)
            rows.columns |= sums.node_columns(first=graph.n)
        x = encoder.transform(rows.columns, rows.reject)
    elif raw_features:
        x = _raw_features(rows, graph.num_features)
    return to_numpy(new), x, np.stack(edge_index), weights


def known_positions(graph: Graph, ids: Any) -> IntArray:
    """Return the indices of nodes of the graph from an array of their ids, -1 if there is none."""
    table = TableSource.open(pa.table({"id": ids}), name="ids")
    known = Ids.read(table, "id", table.read(["id"])["id"]).drop_missing("error").exact()
    _require_dtype_of_graph(known, _like_read(_first_id(graph), known.values.type))
    return graph.positions(to_numpy(known.values))


def _first_id(graph: Graph) -> Any:
    """Return an array with the first id of the graph, as an example and for its dtype."""
    return pa.array(np.arange(1) if graph.node_ids is None else graph.node_ids[:1])


def _like_read(ids: Any, dtype: Any) -> Any:
    """Return the ids of a graph in the dtype in which ids are read, which ids stored as decimals have lost."""
    if is_text(ids.type):
        return ids.cast(pa.large_string())
    if pa.types.is_decimal(ids.type):
        return ids.cast(dtype) if pa.types.is_decimal(dtype) and dtype.scale >= ids.type.scale else ids
    return ids.cast(pa.int64()) if is_number(ids.type) else ids


def _require_dtype_of_graph(ids: Ids, old: Any) -> None:
    """Raise an InputError if ids can never match those of the graph."""
    if ids.values.type != old.type:
        raise InputError(
            f"{ids.table.path}: the ids in column {ids.column!r} are {dtype_name(ids.values.type)}, those of the graph "
            f"are {dtype_name(old.type)}, such as {old[0].as_py()!r}; store both the same way"
        )


def _raw_features(rows: NodeRows, width: int) -> FloatArray:
    """Return the numeric columns unchanged, in order."""
    numbers = {name: values for name, values in rows.columns.items() if is_number(values.type)}
    if len(numbers) != width:
        raise InputError(
            f"{rows.ids.table.path} has {counted(len(numbers), 'column')} of numbers beside the id, the graph has "
            f"{counted(width, 'feature')}; pass one column for each, in the order of the graph"
        )
    columns = [to_numbers(name, values, rows.reject) for name, values in numbers.items()]
    for (name, values), column in zip(numbers.items(), columns, strict=True):
        rows.reject(name, np.isnan(column), values, "are missing", "fill them in")
    return np.stack(columns, axis=1).astype(np.float32)
