"""Graphs on disk from tables of edges larger than memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gpatcher.errors import InputError
from gpatcher.graph.checks import check_labels, warn_duplicates, warn_self_loops
from gpatcher.graph.graph import Graph
from gpatcher.graph.storage import map_array, open_graph, save_graph, write_graph
from gpatcher.io import new_folder
from gpatcher.scale.external_sort import sort_edges
from gpatcher.tables.edge_columns import EdgePlan, EdgeSums
from gpatcher.tables.edges import (
    IrregularTableError,
    edge_ids,
    indexed_edges,
    open_edges,
    prefetch,
    warn_unequal_weights,
)
from gpatcher.tables.ids import id_index
from gpatcher.tables.load import add_node_data, encode_nodes, plan_edges, read_node_table, read_tables
from gpatcher.tables.nodes import NodeRows
from gpatcher.tables.options import TableOptions
from gpatcher.tables.reader import TableSource
from gpatcher.tables.typed import is_typed, read_typed


def store_tables(nodes: Any, edges: Any, folder: str | Path, *, memory: int = 1 << 30, **options: Any) -> Graph:
    """Build a graph on disk from tables, as `read_tables` does; the table of edges may be of any size.

    Each edge is written to the file of its range of nodes, then the files are sorted one by one. The table of edges is
    read once, and once before for the ids if there is no table of nodes, which is read whole.

    Parameters
    ----------
    nodes : str, Path or None
        Table of the nodes, see `gpatcher.tables.load.read_tables`.
    edges : str or Path
        Table of the edges. Several tables by type are sorted in memory: 160 bytes a row, or an InputError.
    folder : str or Path
        A new folder.
    memory : int
        Bytes that sorting may take, besides a few numbers per node and the features.
    **options
        Fields of `gpatcher.tables.options.TableOptions`.
    """
    if memory < 1:
        raise InputError(f"memory must be a positive number of bytes, got {memory}")
    parsed = TableOptions.parse(options)
    if parsed.cut is not None:
        raise InputError(f"cut {parsed.cut!r} is for training; store the rows before it as tables first")
    if is_typed(nodes, edges):
        save_graph(read_typed(nodes, edges, parsed, memory).graph, folder)
        return open_graph(folder)
    sorted_on_disk = True
    with parsed.reading() as reader:
        table = open_edges(edges, parsed, reader)
        with new_folder(folder) as draft:
            try:
                plan = plan_edges(table, parsed, nodes, None)
                rows = read_node_table(nodes, parsed, None, reader)
                graph = _sorted_graph(table, rows, parsed, plan, memory, draft)
            except MemoryError as error:  # of pyarrow or NumPy
                raise InputError(f"out of memory ({error}); lower memory=... (--memory)") from None
            except (IrregularTableError, pa.ArrowException):
                graph, sorted_on_disk = read_tables(nodes, edges, **options), False
            write_graph(graph, draft, edges=not sorted_on_disk)
            del graph  # closes the memory maps before the folder is renamed
    return open_graph(folder)


def _sorted_graph(
    table: TableSource, rows: NodeRows | None, options: TableOptions, plan: EdgePlan, memory: int, draft: Path
) -> Graph:
    """Write the edges to the draft folder and return the graph, memory-mapped."""
    ids = edge_ids(table, options) if rows is None else rows.ids.values
    index = id_index(ids) if rows is None else rows.ids.index
    sums = EdgeSums(plan, len(ids))
    columns = [*options.edge_columns.values(), *plan.edge_names]
    weighted = options.weight is not None
    with prefetch(table.iter_batches(columns, written=options.endpoints)) as batches:
        indptr, counts = sort_edges(
            indexed_edges(batches, options, index, sums),
            len(ids),
            weighted=weighted,
            directed=bool(options.directed),
            memory=memory,
            draft=draft,
        )
    name = table.stem if options.name is None else options.name
    duplicates, loops, unequal, edges = counts.tolist()
    warn_duplicates(name, duplicates, edges, weighted=weighted)
    warn_self_loops(name, loops)
    if weighted:
        warn_unequal_weights(name, unequal // 2)
    np.save(draft / "indptr.npy", indptr)
    y, classes = (None, ()) if rows is None else check_labels(rows.y, len(ids), rows.classes, name, rows.task)
    # counting one-way edges would read the whole file in random order
    facts = {"self_loops": loops} | ({} if options.directed else {"one_way_edges": 0})
    graph = Graph(
        indptr=indptr,
        indices=map_array(draft / "indices.npy"),
        weights=map_array(draft / "weights.npy") if weighted else None,
        y=y,
        classes=classes,
        name=name,
        duplicate_edges=duplicates,
        node_ids=ids.to_numpy(zero_copy_only=False),
        facts=facts,
    )
    if rows is not None:
        rows.columns |= sums.node_columns()
    _, graph = add_node_data(graph, rows, encode_nodes(rows, options, None, plan))
    return graph
