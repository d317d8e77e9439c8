"""Tables of unseen nodes: nodes that arrive after training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import Features, FloatArray, IntArray
from gpatcher.errors import InputError, counted
from gpatcher.graph.graph import Graph
from gpatcher.tables.edge_columns import EdgePlan, EdgeSums
from gpatcher.tables.edges import edge_weights
from gpatcher.tables.ids import Ids, dtype_name
from gpatcher.tables.nodes import NodeRows, read_nodes
from gpatcher.tables.options import TableOptions
from gpatcher.tables.reader import TableSource
from gpatcher.tables.typed import edge_options, name_tables, offsets, type_ids
from gpatcher.tables.typed_encoder import Encoder, TypedEncoder
from gpatcher.tables.values import combine_chunks, is_number, is_text, to_numbers, to_numpy

_OPTIONS = ("id", "source", "target", "weight", "delimiter", "ends", "on_duplicate_id", "on_missing_id", "database")


def read_new_tables(
    graph: Graph, nodes: Any, edges: Any, encoder: Encoder | None, options: Mapping[str, Any]
) -> tuple[npt.NDArray[Any], Features | None, Any, Any]:
    """Read unseen nodes, and their edges among themselves and to the graph: ids, features, edge index and weights.

    In the edge index, the unseen nodes are n, n + 1, ... Without an ``encoder``, all numeric columns are features, if
    the graph has features. ``options`` are those of `TableOptions` that the graph was read with; other keys are
    ignored. Where the edges of the graph have types, tables, edge index and weights are mappings of these.
    """
    parsed = TableOptions(**{name: options[name] for name in _OPTIONS if name in options}, label=None)
    raw_features = graph.x is not None and encoder is None
    if raw_features and "edges" in options:
        raise InputError(
            "there is no encoder.json: the features of this graph are computed from its edges, which unseen nodes "
            "change, or the file was removed; to predict unseen nodes, train with features from columns"
        )
    if encoder is None and not raw_features:
        parsed = replace(parsed, features=())
    node_tables, edge_tables = _tables_of(graph, nodes, edges)
    blocks = encoder.blocks if isinstance(encoder, TypedEncoder) else dict.fromkeys(node_tables, encoder)
    plans = {plan.name: plan for block in blocks.values() if block is not None for plan in block.edges}
    with parsed.reading() as reader:

        def opened(tables: Mapping[str, Any]) -> dict[str, TableSource]:
            return {name: TableSource.open(table, parsed.delimiter, name, reader) for name, table in tables.items()}

        sources, edge_sources = opened(node_tables), opened(edge_tables)
        own = {name: edge_options(parsed, name, edge_sources) for name in edge_sources}
        for name, table in edge_sources.items():
            for column in plans.get(_type(graph, name), EdgePlan()).edge_names:
                table.require({"edge_features": column})
        rows = {
            name: read_nodes(table, parsed.of_table(name) if graph.node_types else parsed, blocks[name])
            for name, table in sources.items()
        }
        # in one query: a second one might return the rows in another order
        columns = {
            name: table.read(
                [*own[name].edge_columns.values(), *plans.get(_type(graph, name), EdgePlan()).edge_names],
                written=own[name].endpoints,
            )
            for name, table in edge_sources.items()
        }
    new = {name: _NewIds.read(graph, name, part.ids) for name, part in rows.items()}
    sizes = {name: len(ids.values) for name, ids in new.items()}
    first = {name: graph.n + offset for name, offset in offsets(sizes).items()}
    total = sum(sizes.values())
    edge_index: dict[str, IntArray] = {}
    weights: dict[str, FloatArray | None] = {}
    sums = {name: EdgeSums(plan, graph.n + total) for name, plan in plans.items()}
    for name, table in edge_sources.items():
        ends = parsed.ends.get(name) or [*node_tables] * 2
        values = columns[name]
        edge_index[name] = np.stack(
            [
                _endpoint_index(graph, Ids.read(table, column, values[column]), end, new, first)
                for column, end in zip(own[name].endpoints, ends, strict=False)
            ]
        )
        weight = own[name].weight
        weights[name] = None if weight is None else edge_weights(table, weight, values[weight], None)
        plan = plans.get(_type(graph, name), EdgePlan())
        if plan.columns:
            batch = pa.table({column: values[column] for column in plan.edge_names})
            sums[plan.name].add(batch, edge_index[name][0], edge_index[name][1], table.reject)
    features: dict[str, Features | None] = {}
    for name, part in rows.items():
        block = blocks[name]
        if block is not None and block.encoders:
            nodes_of_type = slice(first[name], first[name] + sizes[name])
            for plan in block.edges:
                part.columns |= sums[plan.name].node_columns(nodes_of_type)
            features[name] = block.transform(part.columns, part.reject)
        elif raw_features:
            features[name] = _raw_features(part, graph.num_features)
    ids = np.concatenate([ids.keys for ids in new.values()])
    if isinstance(encoder, TypedEncoder):
        x: Features | None = encoder.join(features, sizes)
    else:
        x = next(iter(features.values()), None)
    if graph.relations:
        return ids, x, edge_index, weights
    [only] = edge_index
    return ids, x, edge_index[only], weights[only]


def _tables_of(graph: Graph, nodes: Any, edges: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tables by name; their types must be those of the graph."""
    types = () if graph.node_types is None else graph.node_types.names
    for kind, tables, known in (("nodes", nodes, types), ("edges", edges, tuple(graph.relations))):
        named = isinstance(tables, Mapping)
        if known and not named:
            raise InputError(
                f"the {kind} of the graph have the types {', '.join(known)}; pass the tables by type, such as "
                f"{kind}={{{known[0]!r}: ...}} (--{kind} {known[0]}=TABLE)"
            )
        if named and not known and len(tables) > 1:
            raise InputError(f"the {kind} of the graph have no types; pass one table, got {', '.join(tables)}")
        for name in tables if named and known else ():
            if name not in known:
                raise InputError(f"the {kind} of the graph have no type {name!r}; they have {', '.join(known)}")
    return name_tables(nodes, edges)


def _type(graph: Graph, name: str) -> str:
    """Return the edge type of a table; the only table has none."""
    return name if graph.relations else ""


@dataclass(frozen=True, eq=False)
class _NewIds:
    """The ids of unseen nodes of one type."""

    ids: Ids
    values: Any  # as in the table, in the dtype of the graph
    keys: npt.NDArray[Any]  # as in the graph

    @classmethod
    def read(cls, graph: Graph, name: str, ids: Ids) -> _NewIds:
        """Check the ids, which must not be in the graph."""
        old = example_id(graph, name, ids.values.type)
        ids = ids.like(old)
        _require_dtype_of_graph(ids, old)
        values = combine_chunks(ids.values)
        keys = _keys(graph, name, values)
        ids.reject(graph.positions(keys) >= 0, "are in the graph already", "pass unseen nodes only")
        return cls(ids, values, keys)


def _endpoint_index(
    graph: Graph, endpoints: Ids, end: str, new: Mapping[str, _NewIds], first: Mapping[str, int]
) -> IntArray:
    """Return the indices of endpoints of a node type, in the graph or among the unseen nodes."""
    old = example_id(graph, end, endpoints.values.type)
    endpoints = endpoints.like(old).drop_missing("error").exact()
    _require_dtype_of_graph(endpoints, old)
    index = graph.positions(_keys(graph, end, combine_chunks(endpoints.values)))
    places = "the graph"
    if end in new:
        unseen = to_numpy(pc.index_in(endpoints.values, value_set=new[end].values).fill_null(-1)).astype(np.int64)
        index = np.where(unseen >= 0, first[end] + unseen, index)
        places = f"{new[end].ids.table.path} nor in the graph"
    problem = f"are neither in {places}" if end in new else f"are not in {places}"
    endpoints.reject(index < 0, problem, "add these nodes or remove these edges")
    return index


def example_id(graph: Graph, name: str, dtype: Any = None) -> Any:
    """Return an array with an id of the graph, or of a node type, as an example and for its dtype."""
    types = graph.node_types
    if types is None:
        return _like_read(_first_id(graph), dtype)
    text = str(np.asarray(graph.node_ids)[types.nodes(name)[0]]).partition(":")[2]
    return pa.array([int(text)]) if name in types.integer_ids else pa.array([text], pa.large_string())


def _keys(graph: Graph, name: str, values: Any) -> npt.NDArray[Any]:
    """Return ids as the graph has them: with several node types as type:id."""
    return to_numpy(values) if graph.node_types is None else type_ids(name, values).to_numpy(zero_copy_only=False)


def known_positions(graph: Graph, ids: Any) -> IntArray:
    """Return the indices of nodes of the graph, of the labelled type, from their ids; -1 if there is none."""
    table = TableSource.open(pa.table({"id": ids}), name="ids")
    known = Ids.read(table, "id", table.read(["id"])["id"]).drop_missing("error").exact()
    labelled = "" if graph.node_types is None else graph.node_types.labelled
    _require_dtype_of_graph(known, example_id(graph, labelled, known.values.type))
    return graph.positions(_keys(graph, labelled, combine_chunks(known.values)))


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
