"""Graphs on disk from tables of edges larger than memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError, counted, warn_input
from gpatcher.graph.checks import check_labels
from gpatcher.graph.graph import Graph
from gpatcher.graph.storage import map_array, open_graph, write_edges, write_rest
from gpatcher.io import new_folder
from gpatcher.scale.external_sort import sort_edges
from gpatcher.tables.edges import IrregularTableError, edge_ids, indexed_edges, open_edges, warn_unequal_weights
from gpatcher.tables.load import add_node_data, encode_nodes, read_node_table, read_tables
from gpatcher.tables.nodes import NodeRows
from gpatcher.tables.options import TableOptions
from gpatcher.tables.reader import TableSource


def store_tables(
    nodes: str | Path | None, edges: str | Path, folder: str | Path, *, memory: int = 1 << 30, **options: Any
) -> Graph:
    """Build a graph on disk from tables, as `read_tables` does; the table of edges may be of any size.

    The edges are read twice: once to count the degrees, once to write each edge to the file of its range of nodes. Then
    the ranges are sorted one by one. The table of nodes is read whole.

    Parameters
    ----------
    nodes, edges : str or Path
        The tables; ``nodes`` may be None. See `gpatcher.tables.load.read_tables`.
    folder : str or Path
        A new folder.
    memory : int
        Bytes that a range of edges may take, beside a few numbers per node and the features.
    **options
        Fields of `gpatcher.tables.options.TableOptions`.
    """
    if memory < 1:
        raise InputError(f"memory must be a positive number of bytes, got {memory}")
    parsed = TableOptions.parse(options)
    table = open_edges(edges, parsed)
    with new_folder(folder) as draft:
        try:
            graph = _sorted_graph(table, read_node_table(nodes, parsed, None), parsed, memory, draft)
        except MemoryError as error:  # of pyarrow or NumPy
            raise InputError(f"out of memory ({error}); lower memory=... (--memory)") from None
        except (IrregularTableError, pa.ArrowException):
            graph = read_tables(nodes, edges, **options)
            write_edges(graph, draft)
        write_rest(graph, draft)
        del graph  # closes the memory maps before the folder is renamed
    return open_graph(folder)


def _sorted_graph(table: TableSource, rows: NodeRows | None, options: TableOptions, memory: int, draft: Path) -> Graph:
    """Write the edges to the draft folder and return the graph, memory-mapped."""
    ids = edge_ids(table, options) if rows is None else rows.ids.values
    encoded = encode_nodes(rows, options, None)
    columns = list(options.edge_columns.values())
    weighted = options.weight is not None
    indptr, counts = sort_edges(
        lambda: indexed_edges(table.iter_batches(columns), options, ids),
        len(ids),
        weighted=weighted,
        directed=options.directed,
        memory=memory,
        draft=draft,
    )
    name = table.stem if options.name is None else options.name
    _warn_merged(name, counts, weighted)
    np.save(draft / "indptr.npy", indptr)
    y, classes = (None, ()) if rows is None else check_labels(rows.y, len(ids), rows.classes, name)
    facts = {"self_loops": int(counts[1])}
    if not options.directed:
        facts["one_way_edges"] = 0  # to count them would read the whole file in random order
    graph = Graph(
        indptr=indptr,
        indices=map_array(draft / "indices.npy"),
        weights=map_array(draft / "weights.npy") if weighted else None,
        y=y,
        classes=classes,
        name=name,
        duplicate_edges=int(counts[0]),
        node_ids=ids.to_numpy(zero_copy_only=False),
        facts=facts,
    )
    _, graph = add_node_data(graph, rows, encoded)
    return graph


def _warn_merged(name: str, counts: IntArray, weighted: bool) -> None:
    """Issue the warnings of `Graph.from_edge_index` and `make_undirected`."""
    duplicates, loops, unequal, edges = counts.tolist()
    if duplicates:
        done = "merged, their weights added" if weighted else "merged into one"
        warn_input(f"{name}: {duplicates} of {edges} edges repeat another one; they were {done}")
    if loops:
        warn_input(
            f"{name}: {counted(loops, 'edge joins', 'edges join')} a node to itself: kept and counted "
            "as a neighbour, but the normalised adjacency leaves it out"
        )
    if weighted:
        warn_unequal_weights(name, unequal // 2)
