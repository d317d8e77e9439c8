"""The table of edges: from ids to positions of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError, counted, some, warn_input
from gpatcher.graph.graph import Graph
from gpatcher.tables.ids import clean_ids, id_values, match_text_type, require_same_type
from gpatcher.tables.nodes import NodeRows, to_floats
from gpatcher.tables.options import TableOptions
from gpatcher.tables.reader import MEMORY_POOL, TableFile
from gpatcher.tables.values import is_number, is_text


@dataclass
class EdgeEnds:
    """The edges by number, the ids that the numbers stand for, and what became of the rows."""

    ids: Any
    numbers: IntArray
    weights: FloatArray | None
    rows: int
    endless: int = 0
    unknown: int = 0


class IrregularTableError(Exception):
    """A piece of a file holds something that needs a look at the whole."""


def prefetch(pieces: Iterator[Any]) -> Iterator[Any]:
    """Return what an iterator gives; the next one is fetched on a thread, from now on."""
    pool = ThreadPoolExecutor(1)

    def given(piece: Any) -> Iterator[Any]:
        with pool:
            while (table := piece.result()) is not None:
                piece = pool.submit(next, pieces, None)
                yield table

    return given(pool.submit(next, pieces, None))


def stream_edges(
    table: TableFile, pieces: Iterator[Any], source: str, target: str, weight: str | None, ids: Any
) -> EdgeEnds:
    """Turn the ends of the edges into numbers, piece by piece.

    Only what is plainly right goes this way: any doubt raises `IrregularTableError`.
    """
    if ids is None:
        ids = edge_ids(table, source, target)
    # the reader of text files gives narrow text: to widen a few ids is cheaper than to widen all ends
    sets = {ids.type: ids}
    if is_text(ids.type) and ids.nbytes < 2**31 - 1:
        sets[pa.string()] = ids.cast(pa.string())
    numbers: dict[str, list[IntArray]] = {source: [], target: []}
    weights: list[FloatArray] = []
    for piece in pieces:
        with ThreadPoolExecutor(2) as pool:  # both ends at once
            for parts, found in zip(
                numbers.values(), pool.map(partial(_plain_numbers, piece, sets), numbers), strict=True
            ):
                parts.append(found)
        if weight is not None:
            numbers_here = piece.column(weight).cast(pa.float64()).to_numpy()
            if not np.all(np.isfinite(numbers_here) & (numbers_here > 0)):
                raise IrregularTableError
            weights.append(numbers_here)
    if not numbers[source]:
        raise IrregularTableError
    ends = np.empty((2, sum(map(len, numbers[source]))), np.int32)
    for row, column in enumerate((source, target)):
        np.concatenate(numbers.pop(column), out=ends[row])
    return EdgeEnds(ids, ends, np.concatenate(weights) if weight is not None else None, ends.shape[1])


def _plain_numbers(piece: Any, sets: dict[Any, Any], column: str) -> IntArray:
    values = piece.column(column)
    if values.type not in sets:
        raise IrregularTableError
    found = pc.index_in(values, value_set=sets[values.type], memory_pool=MEMORY_POOL)
    if found.null_count:  # a gap and an empty text are no ids either
        raise IrregularTableError
    numbers: IntArray = found.to_numpy()
    return numbers


def plain_ids(piece: Any, column: str) -> Any:
    """Return a column of int64 or wide text without a gap."""
    values = piece.column(column)
    if is_text(values.type) and pc.any(pc.equal(values, "")).as_py():
        raise IrregularTableError
    if values.null_count or values.type not in (pa.int64(), pa.string(), pa.large_string()):
        raise IrregularTableError
    return values.cast(pa.large_string()) if is_text(values.type) else values


def edge_ids(table: TableFile, source: str, target: str) -> Any:
    """Return the ids that the edges name, sorted."""
    ids = None
    waiting: list[Any] = []  # merged once they outnumber the ids known, so that each is sorted a few times only
    for piece in table.pieces([source, target]):
        here = _sorted_union([*plain_ids(piece, source).chunks, *plain_ids(piece, target).chunks])
        ids = here[:0] if ids is None else ids
        if ids.type != here.type:
            raise IrregularTableError
        waiting.append(here)
        if sum(map(len, waiting)) > len(ids):
            ids, waiting = _sorted_union([ids, *waiting]), []
    if ids is None:
        raise IrregularTableError
    return _sorted_union([ids, *waiting]) if waiting else ids


def _sorted_union(parts: list[Any]) -> Any:
    """Return the distinct values of arrays of one type, sorted."""
    if pa.types.is_integer(parts[0].type):  # in place, where numpy and arrow make hash tables
        values = np.concatenate([part.to_numpy() for part in parts])
        values.sort()
        return pa.array(values[np.append(True, values[1:] != values[:-1])] if values.size else values, parts[0].type)
    ids = pc.unique(pa.chunked_array(parts))
    return ids.take(pc.array_sort_indices(ids))


def read_edges(table: TableFile, options: TableOptions, nodes: NodeRows | None) -> EdgeEnds:
    """Read the edges in one go; the same as `stream_edges`, but whatever is wrong is named with its place."""
    source, target, weight = options.source, options.target, options.weight
    columns = table.read([source, target, *([] if weight is None else [weight])])
    total = len(columns[source])
    values = {column: id_values(table, column, columns[column]) for column in (source, target)}
    for column, other in ((source, target), (target, source)):
        values[column] = match_text_type(table, column, values[column], values[other] if nodes is None else nodes.ids)
    kept = np.ones(total, bool)
    ends: dict[str, Any] = {}
    for column in (source, target):
        found, rows, lacking = clean_ids(table, column, values[column], options.on_missing_id)
        if lacking:
            there = np.zeros(total, bool)
            there[rows] = True
            kept &= there
        if nodes is not None:
            require_same_type(nodes.table, nodes.id, nodes.ids, table, column, found)
    endless = int(total - kept.sum())
    if endless:
        warn_input(f"{table.path}: {endless} of {total} edges lack an end and are not used")
    rows = np.flatnonzero(kept)
    for column in (source, target):
        # typed as `clean_ids` leaves them, over the rows where both ends are there
        ends[column] = clean_ids(table, column, values[column].take(pa.array(rows)), "error")[0]
    if nodes is None:
        require_same_type(table, source, ends[source], table, target, ends[target])
    if nodes is None or options.on_unknown_id == "add":
        met = pc.unique(pa.chunked_array([*ends[source].chunks, *ends[target].chunks], ends[source].type))
    if nodes is None:
        ids = met.take(pc.array_sort_indices(met))
    else:
        ids = nodes.ids
        if options.on_unknown_id == "add":
            new = met.filter(pc.invert(pc.is_in(met, value_set=ids)))
            if len(new):
                shown = some(repr(v.as_py()) for v in new[:6])
                warn_input(
                    f"{table.path}: {counted(len(new), 'id is', 'ids are')} not in "
                    f"{nodes.table.path} and added as nodes: {shown}"
                )
            ids = pa.concat_arrays([ids, new])
    numbers = np.empty((2, rows.size), np.int32)
    for row, column in enumerate((source, target)):
        numbers[row] = pc.fill_null(pc.index_in(ends[column], value_set=ids), -1).to_numpy()
        if nodes is not None and options.on_unknown_id == "error":
            way = "add these nodes, remove these edges, or pass on_unknown_id='drop' or 'add' (--on-unknown-id)"
            table.refuse(column, numbers[row] < 0, ends[column], f"are not in {nodes.table.path}", way, rows)
    known = (numbers >= 0).all(axis=0)
    unknown = int(rows.size - known.sum())
    if unknown:
        warn_input(f"{table.path}: {unknown} of {total} edges name an id that is not among the nodes and are not used")
        numbers, rows = numbers[:, known], rows[known]
    weights = None if weight is None else edge_weights(table, weight, columns[weight].take(pa.array(rows)), rows)
    return EdgeEnds(ids, numbers, weights, total, endless, unknown)


def edge_weights(table: TableFile, column: str, values: Any, rows: IntArray | None) -> FloatArray:
    way = "correct or remove these edges"
    if is_text(values.type):
        odd = np.array([not _is_number_text(value) for value in values.to_pylist()])
        table.refuse(column, odd, values, "are no numbers", way, rows)
    if not is_number(values.type) and not pa.types.is_null(values.type):
        raise InputError(f"{table.path}: column {column!r} holds {values.type}, not numbers; weights are numbers")
    weights = to_floats(column, values)
    wrong = ~((weights > 0) & np.isfinite(weights))  # NaN is not above 0
    table.refuse(column, wrong, values, "are missing, not positive or not finite", way, rows)
    return weights


def _is_number_text(value: str | None) -> bool:
    try:
        float(value or "")
    except ValueError:
        return False
    return True


def make_undirected(graph: Graph) -> Graph:
    both = graph.undirected()
    if graph.weights is not None:
        # of the edges without an equal one back, those that do have one back differ from it in weight
        given, loops = graph.stored_edges - graph.self_loops, graph.self_loops
        pairs = given - (both.stored_edges - loops) // 2
        unequal = graph.one_way_edges - (given - 2 * pairs)
        if unequal:
            warn_input(
                f"{graph.name}: {counted(unequal // 2, 'edge is', 'edges are')} given in both "
                f"directions with different weights; "
                "the larger one counts"
            )
    return both
