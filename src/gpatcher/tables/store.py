"""Graphs on disk from tables of edges larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError, counted, warn_input
from gpatcher.graph.graph import Graph
from gpatcher.graph.storage import map_array, new_folder, open_graph, write_edges, write_rest
from gpatcher.scale.external_sort import sort_edges
from gpatcher.tables.edges import IrregularTableError, edge_ids, plain_ids
from gpatcher.tables.load import read_tables
from gpatcher.tables.reader import TableFile

EdgeColumns: TypeAlias = tuple[str, str, str | None]  # source, target, weight


def store_tables(
    nodes: str | Path | None, edges: str | Path, folder: str | Path, *, memory: int = 1 << 30, **options: Any
) -> Graph:
    """Build a graph on disk from tables, the table of edges being of any size; the same graph as `read_tables` gives.

    The edges are read twice: to count those of each node, and to drop each into the file of its range of nodes. Then
    the ranges are sorted one by one. The table of nodes is read whole; so are the edges of a graph that stays
    directed, when its undirected form is asked for.

    Parameters
    ----------
    folder : a new folder
    memory : bytes that a range of edges may take; a few numbers per node and the features come on top
    nodes, edges, options : see `gpatcher.tables.load.read_tables`
    """
    if memory < 1:
        raise InputError(f"memory must be a positive number of bytes, got {memory}")
    weight = options.get("weight")
    columns = (options.get("source", "source"), options.get("target", "target"), weight)
    table = TableFile.open(edges, options.get("delimiter"), "edges")
    table.require({"source": columns[0], "target": columns[1]} | ({} if weight is None else {"weight": weight}))
    name = options.pop("name", None) or table.stem
    with new_folder(Path(folder)) as draft:
        try:
            around = _nodes_alone(nodes, table, columns, {**options, "name": name}, draft)
            ids = edge_ids(table, *columns[:2]) if around is None else pa.array(around.node_ids)
            if pa.types.is_string(ids.type):
                ids = ids.cast(pa.large_string())
            indptr, counts = sort_edges(
                partial(_edge_pieces, table, columns, ids),
                len(ids),
                weighted=weight is not None,
                directed=bool(options.get("directed")),
                memory=memory,
                draft=draft,
            )
        except MemoryError as error:  # arrow's and numpy's
            way_out = "give a range of edges less of it: memory=... (--memory)"
            raise InputError(f"memory ran out ({error}); {way_out}") from None
        except (IrregularTableError, pa.ArrowException):
            # the whole columns at once tell in full what is wrong, or that nothing is
            graph = read_tables(nodes, edges, **options, name=name)
            write_edges(graph, draft)
        else:
            _warn(name, counts, weight is not None)
            np.save(draft / "indptr.npy", indptr)
            graph = Graph(
                indptr=indptr,
                indices=map_array(draft / "indices.npy"),
                weights=None if weight is None else map_array(draft / "weights.npy"),
                name=name,
                duplicate_edges=int(counts[0]),
                node_ids=ids.to_numpy(zero_copy_only=False),
            )
            if around is not None:
                graph = replace(graph, x=around.x, y=around.y, classes=around.classes, splits=around.splits)
            graph.__dict__["self_loops"] = int(counts[1])
            if not options.get("directed"):
                graph.__dict__["one_way_edges"] = 0  # and to look would jump about the whole file
        write_rest(graph, draft)
        del graph  # its maps, before the folder is renamed
    return open_graph(folder)


def _nodes_alone(
    nodes: str | Path | None, table: TableFile, columns: EdgeColumns, options: dict[str, Any], draft: Path
) -> Graph | None:
    """Return the nodes with all that their table says of them, in a graph of the first edge alone."""
    if nodes is None:
        return None
    first = next(table.pieces([column for column in columns if column is not None]), None)
    if first is None or not first.num_rows:
        raise IrregularTableError
    one = draft / "first.parquet"
    pa.parquet.write_table(first.slice(0, 1), one)
    graph = read_tables(nodes, one, **options)
    one.unlink()
    return graph


def _finder(ids: Any) -> Callable[[Any], IntArray]:
    """Return a function from values to their places among the ids; one that is not there is no plain table."""
    known: IntArray = ids.to_numpy() if pa.types.is_integer(ids.type) else np.empty(0, np.int64)

    def search(values: Any) -> IntArray:
        given = values.to_numpy()
        at: IntArray = np.asarray(np.searchsorted(known, given))
        if not np.array_equal(known[np.minimum(at, known.size - 1)], given):
            raise IrregularTableError
        return at

    def look_up(values: Any) -> IntArray:
        found = pc.index_in(values, value_set=ids)
        if found.null_count:
            raise IrregularTableError
        at: IntArray = found.to_numpy()
        return at

    return search if known.size and np.all(known[1:] > known[:-1]) else look_up


def _edge_pieces(table: TableFile, columns: EdgeColumns, ids: Any) -> Iterator[tuple[IntArray, IntArray, Any]]:
    """Yield the numbers of both ends and the weights, a million edges or so at a time."""
    find, empty = _finder(ids), True
    for piece in table.pieces([column for column in columns if column is not None]):
        ends = []
        for column in columns[:2]:
            values = plain_ids(piece, column)
            if values.type != ids.type:
                raise IrregularTableError
            ends.append(find(values))
        weights = None
        if columns[2] is not None:
            weights = piece.column(columns[2]).cast(pa.float64()).to_numpy()
            if not np.all(np.isfinite(weights) & (weights > 0)):
                raise IrregularTableError
        empty = False
        yield ends[0], ends[1], weights
    if empty:
        raise IrregularTableError


def _warn(name: str, counts: IntArray, weighted: bool) -> None:
    repeated, loops, unequal, edges = counts.tolist()
    if repeated:
        done = "merged, their weights added" if weighted else "merged into one"
        warn_input(f"{name}: {repeated} of {edges} edges repeat another one; they were {done}")
    if loops:
        warn_input(
            f"{name}: {counted(loops, 'edge joins', 'edges join')} a node to itself: kept and counted "
            "as a neighbour, but the normalised adjacency leaves it out"
        )
    if weighted and unequal:
        warn_input(
            f"{name}: {counted(unequal // 2, 'edge is', 'edges are')} given in both directions with different weights; "
            "the larger one counts"
        )
