"""Read the table of edges: from ids to node indices.

The fast path, `stream_edges`, reads valid tables. If anything is irregular, it raises `IrregularTableError`, and the
slow path, `read_edges`, reads the table again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import BoolArray, FloatArray, IntArray
from gpatcher.errors import InputError, counted, some, warn_input
from gpatcher.graph.checks import MAX_WEIGHT, MIN_WEIGHT, is_weight
from gpatcher.graph.graph import Graph
from gpatcher.tables.database import Reader
from gpatcher.tables.edge_columns import EdgePlan, EdgeSums
from gpatcher.tables.ids import DistinctIds, Ids, Index
from gpatcher.tables.nodes import NodeRows
from gpatcher.tables.options import TableOptions
from gpatcher.tables.reader import TableSource
from gpatcher.tables.values import combine_chunks, is_number, is_text, to_floats, to_numpy, uncastable_mask


class IrregularTableError(Exception):
    """The fast path gives up; the slow path then reads whole columns and reports what is wrong, if anything."""


Piece: TypeAlias = tuple[IntArray, IntArray, FloatArray | None]  # sources, targets and weights of a batch
_ENOUGH_EDGES = 100  # edges needed to judge whether their direction is meaningful
_UNBALANCED = 2.0  # imbalance of out- and in-degrees from which edges count as directed; 1 for a random order


@dataclass
class EdgeRows:
    """The rows of edges that are used."""

    ids: Any  # of all nodes, a pyarrow.Array
    edge_index: IntArray  # of the endpoints among the ids, shape (2, m)
    weights: FloatArray | None
    counts: dict[str, int]  # the fields of Counts that concern edges
    node_columns: dict[str, Any]  # aggregated from the other columns of the edges


def open_edges(source: Any, options: TableOptions, reader: Reader | None = None) -> TableSource:
    """Open the table of edges, which must have the columns of the options."""
    table = TableSource.open(source, options.delimiter, "edges", reader)
    table.require(options.edge_columns)
    return table


@contextmanager
def prefetch(batches: Generator[Any, None, None]) -> Iterator[Iterator[Any]]:
    """Yield an iterator that prefetches batches on a thread, which starts at once and is joined on exit."""
    with closing(batches), ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, batches, None)

        def rest() -> Iterator[Any]:
            batch = first
            while (table := batch.result()) is not None:
                batch = pool.submit(next, batches, None)
                yield table

        yield rest()


def stream_edges(batches: Iterator[Any], options: TableOptions, ids: Any, index: Index, plan: EdgePlan) -> EdgeRows:
    """Look up the endpoints of the edges among the ids of the nodes, batch by batch."""
    sums = EdgeSums(plan, len(ids))
    edge_index, weights = join_pieces(indexed_edges(batches, options, index, sums))
    return EdgeRows(ids, edge_index, weights, {"edge_rows": edge_index.shape[1]}, sums.node_columns())


def join_pieces(pieces: Iterator[Piece]) -> tuple[IntArray, FloatArray | None]:
    """Return sources and targets, shape (2, m), and weights of all batches."""
    sources, targets, weights = zip(*pieces, strict=True)
    edge_index = np.empty((2, sum(map(len, sources))), np.int32)
    np.concatenate(sources, out=edge_index[0])
    del sources
    np.concatenate(targets, out=edge_index[1])
    return edge_index, None if weights[0] is None else np.concatenate(weights)


def indexed_edges(
    batches: Iterator[Any],
    options: TableOptions,
    sources: Index,
    sums: EdgeSums | None = None,
    *,
    targets: Index = None,
    offsets: tuple[int, int] = (0, 0),
) -> Iterator[Piece]:
    """Yield source indices, target indices and weights of each batch; add the other columns to ``sums``.

    The ``targets`` are the ids of the targets where they are of another type; ``offsets`` are the indices of the first
    id of both. Anything irregular, such as an id that is missing or unknown, raises IrregularTableError.
    """
    if sources is None:
        raise IrregularTableError
    finds = sources.find, (sources if targets is None else targets).find
    with ThreadPoolExecutor(2) as pool:  # both endpoints at once, while the columns of the batch before are summed

        def look_up(batch: Any) -> tuple[Any, list[Future[IntArray | None]]]:
            columns = map(batch.column, options.endpoints)
            return batch, [pool.submit(find, *of_end) for find, *of_end in zip(finds, columns, offsets, strict=True)]

        empty = True
        for batch, found in _ahead(map(look_up, batches)):
            weights = None
            if options.weight is not None:
                weights = to_numpy(batch.column(options.weight).cast(pa.float64()))
                if not np.all(is_weight(weights)):
                    raise IrregularTableError
            source, target = (end.result() for end in found)
            if source is None or target is None:
                raise IrregularTableError
            if sums is not None:
                sums.add(batch, source, target, _reject_batch)
            empty = False
            yield source, target, weights
    if empty:
        raise IrregularTableError


def _ahead(items: Iterator[Any]) -> Iterator[Any]:
    """Yield each item after the next one was made."""
    for item in items:
        for following in items:
            yield item
            item = following
        yield item


def _reject_batch(column: str, invalid: BoolArray, values: Any, problem: str, fix: str) -> None:
    """Leave invalid values to the slow path, which knows their rows."""
    if invalid.any():
        raise IrregularTableError


def edge_ids(table: TableSource, options: TableOptions) -> Any:
    """Return the ids of all endpoints, sorted."""
    ids: Any = None
    marks: DistinctIds | None = None  # of integers, unless they are too far apart
    waiting: list[Any] = []  # merged once they outnumber the ids, so that each is sorted only a few times
    for batch in table.iter_batches(options.endpoints, written=options.endpoints):
        chunks = [chunk for column in (options.source, options.target) for chunk in _regular_ids(batch.column(column))]
        if ids is None:
            ids = chunks[0][:0]
            marks = DistinctIds() if pa.types.is_integer(ids.type) else None
        if any(chunk.type != ids.type for chunk in chunks):
            raise IrregularTableError
        if marks is not None:
            if all(marks.add(to_numpy(chunk)) for chunk in chunks):
                continue
            waiting.append(pa.array(marks.ascending()))
            marks = None
        waiting.append(_sorted_union(chunks))
        if sum(map(len, waiting)) > len(ids):
            ids, waiting = _sorted_union([ids, *waiting]), []
    if ids is None:
        raise IrregularTableError
    if marks is not None:
        return pa.array(marks.ascending())
    return _sorted_union([ids, *waiting]) if waiting else ids


def _regular_ids(values: Any) -> list[Any]:
    """Return the chunks of a column of int64 or text, as large_string, without missing values."""
    if values.null_count or not (is_text(values.type) or values.type == pa.int64()):
        raise IrregularTableError
    if is_text(values.type) and pc.any(pc.equal(values, "")).as_py():
        raise IrregularTableError
    chunks: list[Any] = (values.cast(pa.large_string()) if is_text(values.type) else values).chunks
    return chunks


def _sorted_union(arrays: list[Any]) -> Any:
    """Return the distinct values of arrays of one dtype, sorted."""
    if pa.types.is_integer(arrays[0].type):  # sorted in place; NumPy and arrow would build hash tables
        values = np.concatenate([array.to_numpy() for array in arrays])
        values.sort()
        return pa.array(values[np.append(True, values[1:] != values[:-1])] if values.size else values)
    ids = pc.unique(pa.chunked_array(arrays))
    return ids.take(pc.array_sort_indices(ids))


def read_edges(
    table: TableSource,
    options: TableOptions,
    nodes: NodeRows | None,
    plan: EdgePlan,
    *,
    targets: NodeRows | None = None,
    sums: EdgeSums | None = None,
    offsets: tuple[int, int] = (0, 0),
) -> EdgeRows:
    """Read all edges at once, with errors and warnings; without ``nodes``, the nodes are the sorted endpoints.

    See `indexed_edges` for ``targets`` and ``offsets``.
    """
    columns = table.read([*options.edge_columns.values(), *plan.edge_names], written=options.endpoints)
    endpoints = [Ids.read(table, column, columns[column]) for column in (options.source, options.target)]
    sides = [nodes, nodes if targets is None else targets]
    others = [
        other.values if side is None else side.ids.values
        for side, other in zip(sides, reversed(endpoints), strict=True)
    ]
    endpoints = [ids.like(other) for ids, other in zip(endpoints, others, strict=True)]
    missing = np.logical_or(*(ids.missing(options.on_missing_id) for ids in endpoints))
    missing_endpoints = int(missing.sum())
    if missing_endpoints:
        warn_input(f"{table.path}: {missing_endpoints} of {missing.size} edges lack an endpoint and are not used")
        endpoints = [ids.take(np.flatnonzero(~missing)) for ids in endpoints]
    endpoints = [ids.exact() for ids in endpoints]
    if nodes is None:
        endpoints[0].require_same_dtype(endpoints[1])
        ids = _sorted_union([combine_chunks(endpoint.values) for endpoint in endpoints])
    elif targets is None:
        ids = _node_ids(nodes, endpoints, options)
    else:
        for rows_of_end, endpoint in zip((nodes, targets), endpoints, strict=True):
            rows_of_end.ids.require_same_dtype(endpoint)
        ids = nodes.ids.values
    value_sets = ids, ids if targets is None else targets.ids.values
    edge_index = np.stack(
        [
            to_numpy(pc.index_in(endpoint.values, value_set=value_set).fill_null(-1))
            for endpoint, value_set in zip(endpoints, value_sets, strict=True)
        ]
    )
    if options.on_unknown_id == "error":
        fix = "add these nodes, remove these edges, or pass on_unknown_id='drop' or 'add' (--on-unknown-id)"
        for endpoint, index, side in zip(endpoints, edge_index, sides, strict=True):
            if side is not None:
                endpoint.reject(index < 0, f"are not in {side.ids.table.path}", fix)
    rows = np.flatnonzero(~missing)
    in_nodes = (edge_index >= 0).all(axis=0)
    unknown_ids = int(rows.size - in_nodes.sum())
    if unknown_ids:
        warn_input(
            f"{table.path}: {unknown_ids} of {missing.size} edges have an id that is not a node and are not used"
        )
        edge_index, rows = edge_index[:, in_nodes], rows[in_nodes]
    edge_index = edge_index + np.array(offsets, edge_index.dtype)[:, None]
    weights = None
    if options.weight is not None:
        weights = edge_weights(table, options.weight, columns[options.weight].take(pa.array(rows)), rows)
    counts = {"edge_rows": missing.size, "missing_endpoints": missing_endpoints, "unknown_ids": unknown_ids}
    sums = EdgeSums(plan, len(ids)) if sums is None else sums
    used = pa.table({name: columns[name].take(pa.array(rows)) for name in plan.edge_names})
    sums.add(used, edge_index[0], edge_index[1], partial(table.reject, rows=rows))
    return EdgeRows(ids, edge_index, weights, counts, sums.node_columns())


def _node_ids(nodes: NodeRows, endpoints: list[Ids], options: TableOptions) -> Any:
    """Return the ids of the nodes, including, if the options say so, those that only occur in the edges."""
    for endpoint in endpoints:
        nodes.ids.require_same_dtype(endpoint)
    ids = nodes.ids.values
    if options.on_unknown_id != "add":
        return ids
    unique = pc.unique(
        pa.chunked_array([chunk for endpoint in endpoints for chunk in endpoint.values.chunks], ids.type)
    )
    new = unique.filter(pc.invert(pc.is_in(unique, value_set=ids)))
    if len(new):
        warn_input(
            f"{endpoints[0].table.path}: {counted(len(new), 'id is', 'ids are')} not in {nodes.ids.table.path} and "
            f"added as nodes: {some(map(repr, new.to_pylist()))}"
        )
    return pa.concat_arrays([ids, new])


def edge_weights(table: TableSource, column: str, values: Any, rows: IntArray | None) -> FloatArray:
    """Return weights as float64, and reject those that are not positive and finite; see `TableSource.reject`."""
    fix = "correct or remove these edges"
    if is_text(values.type):
        table.reject(column, uncastable_mask(values, pa.float64()), values, "are not numbers", fix, rows)
    if not is_number(values.type) and not pa.types.is_null(values.type):
        raise InputError(f"{table.path}: column {column!r} holds {values.type}; weights must be numbers")
    weights = to_floats(values)
    invalid = ~((weights > 0) & np.isfinite(weights))  # NaN > 0 is False
    table.reject(column, invalid, values, "are missing, not positive or not finite", fix, rows)
    scale = f"scale them to between {MIN_WEIGHT:g} and {MAX_WEIGHT:g}"
    table.reject(column, ~is_weight(weights), values, "are extreme", scale, rows)
    return weights


def points(graph: Graph, rows: EdgeRows) -> bool:
    """Return whether the direction of the edges seems to be meaningful.

    It is if some edges, but not all, have a reverse edge. If hardly any has, the table may list each undirected edge
    once: then its two nodes are in a fixed order (of the nodes, of the rows, or of the ids) or in random order. In
    random order the out- and in-degree of a node differ only by chance, and the mean of (out - in)² / (out + in) is 1.
    """
    edges = graph.stored_edges - graph.self_loops
    mutual = edges - graph.one_way_edges
    if mutual >= _ENOUGH_EDGES and 0.02 * edges <= mutual:
        return mutual <= 0.98 * edges
    source, target = rows.edge_index
    n = len(rows.ids)
    outgoing, incoming = (np.bincount(end, minlength=n) for end in (source, target))
    # in a bipartite graph the direction adds nothing to the side of a node
    if edges < _ENOUGH_EDGES or not (outgoing * incoming).any() or _is_ordered(rows, n):
        return False
    degree = outgoing + incoming
    imbalance = (outgoing - incoming)[degree > 0] ** 2 / degree[degree > 0]
    return bool(imbalance.mean() > _UNBALANCED)


def _is_ordered(rows: EdgeRows, n: int) -> bool:
    """Return whether nearly all edges go from the earlier to the later node, or reversed, in one of three orders."""
    source, target = rows.edge_index

    def orders() -> Iterator[tuple[IntArray, Any]]:
        yield np.arange(n), slice(None)
        first = np.full(n, len(source))  # first row in which a node is a source
        first[source[::-1]] = np.arange(len(source))[::-1]
        yield first, first[target] < len(source)
        by_id = np.empty(n, np.int64)
        by_id[pc.array_sort_indices(rows.ids).to_numpy()] = np.arange(n)
        yield by_id, slice(None)

    return any(not 0.02 <= (rank[source] < rank[target])[known].mean() <= 0.98 for rank, known in orders())


def make_undirected(graph: Graph) -> Graph:
    """Return the graph with every edge in both directions; warn if the two have different weights."""
    both = graph.undirected()
    if graph.weights is not None:
        # an edge has no equal reverse edge because it has none, or because the weights differ
        edges = graph.stored_edges - graph.self_loops
        pairs = edges - (both.stored_edges - graph.self_loops) // 2
        warn_unequal_weights(graph.name, (graph.one_way_edges - (edges - 2 * pairs)) // 2)
    return both


def warn_unequal_weights(name: str, pairs: int) -> None:
    """Warn of edges given in both directions with different weights."""
    if pairs:
        warn_input(
            f"{name}: {counted(pairs, 'edge is', 'edges are')} given in both directions with different weights; "
            "the larger one counts"
        )
