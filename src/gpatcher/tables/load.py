"""Graphs from tables: one of nodes, one of edges, as CSV, Parquet, or in memory.

Every column is handled whole by pyarrow, so a million rows take about a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpatcher.arrays import Features
from gpatcher.errors import InputError, counted, some, warn_input
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split, split_from_parts, stratified_folds, stratified_split, time_split
from gpatcher.tables.edges import IrregularTableError, make_undirected, prefetch, read_edges, stream_edges
from gpatcher.tables.encoder import TableEncoder
from gpatcher.tables.nodes import NodeRows, read_nodes
from gpatcher.tables.options import DEFAULT_LABEL, Counts, TableOptions
from gpatcher.tables.reader import TableFile


@dataclass(frozen=True, eq=False)
class Tables:
    """What was read from tables of nodes and edges.

    Parameters
    ----------
    graph : with the splits that its tables name or that were asked for
    encoder : made the features of the graph; None where there are none
    counts : of the rows, used and not used
    """

    graph: Graph
    encoder: TableEncoder | None
    counts: Counts
    options: TableOptions
    roles: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def with_split(self, train: float = 0.6, val: float = 0.2, seed: int = 0) -> Tables:
        """Split the labelled nodes: by the columns that the options name, in folds, or at random, stratified.

        Parameters
        ----------
        train, val : shares of the labelled nodes; folds and groups have shares of their own
        """
        options, graph = self.options, self.graph
        if graph.splits:
            return self
        if graph.y is None or not graph.num_classes:
            raise InputError(
                f"no node has a label: column {options.label!r} of the nodes is not there or empty; name the column "
                "with label=... (--label) and fill it in for a part of the nodes"
            )
        graph = _with_common_classes(graph, options.on_rare_class)
        y = graph.labels()
        splits: list[Split]
        if options.time is not None:
            splits = [time_split(y, self.roles["time"], train, val)]
        elif options.folds is not None:
            splits = stratified_folds(y, options.folds, seed, self.roles.get("group"))
        elif options.group is not None:
            splits = stratified_folds(y, 5, seed, self.roles["group"])[:1]
        else:
            splits = [stratified_split(y, train, val, seed)]
        return replace(self, graph=graph.with_splits(splits))


def read_tables(nodes: Any, edges: Any, **options: Any) -> Graph:
    """Build a graph from a table of nodes and a table of edges; see `load_tables`, which tells more about them."""
    return load_tables(nodes, edges, **options).graph


def load_tables(nodes: Any, edges: Any, *, encoder: TableEncoder | None = None, **options: Any) -> Tables:
    """Read a table of nodes and a table of edges.

    Parameters
    ----------
    nodes : one row per node: a file (.csv, .tsv, either with .gz, .parquet, .pq), a folder of Parquet files, a pyarrow
        table or a pandas frame; None takes the ids that the edges name, in sorted order and without labels
    edges : one row per edge, likewise
    encoder : one that was fitted before; by default one is fitted on these nodes
    options : see `TableOptions`
    """
    unknown = set(options) - {part.name for part in fields(TableOptions)}
    if unknown:
        raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
    chosen = TableOptions(**options)
    edge_table = TableFile.open(edges, chosen.delimiter, "edges")
    wanted = {"source": chosen.source, "target": chosen.target}
    wanted |= {} if chosen.weight is None else {"weight": chosen.weight}
    edge_table.require(wanted)
    unused = [column for column in edge_table.columns if column not in wanted.values()]
    if unused:
        hint = "; to use the weights, pass weight='weight' (--weight)" if "weight" in unused else ""
        warn_input(
            f"{edge_table.path}: {counted(len(unused), 'column is', 'columns are')} not used: {some(unused)}{hint}"
        )

    pieces = prefetch(edge_table.pieces(list(wanted.values())))
    found: NodeRows | None = None
    if nodes is not None:
        found = read_nodes(TableFile.open(nodes, chosen.delimiter, "nodes"), chosen, encoder)
    elif chosen.features is not None or chosen.label not in (None, DEFAULT_LABEL) or chosen.columns or chosen.roles:
        raise InputError("labels, features and splits are columns of the table of nodes; pass nodes, or leave them out")

    # features on one side, edges on the other: neither needs the other, and both let go of the interpreter
    with ThreadPoolExecutor(1) as aside:
        features = None if found is None else aside.submit(_features, found, chosen, encoder)
        given = None if found is None else found.ids
        try:
            ends = stream_edges(edge_table, pieces, chosen.source, chosen.target, chosen.weight, given)
        except (IrregularTableError, pa.ArrowException):
            # the whole columns at once tell in full what is wrong, or that nothing is
            ends = read_edges(edge_table, chosen, found)
        pa.default_memory_pool().release_unused()
        added = len(ends.ids) - (0 if found is None else len(found.ids))
        if found is not None and features is not None and added:
            features.exception()  # waits; what was made without the added nodes is of no use
            found.add_rows(added)
            features = aside.submit(_features, found, chosen, encoder)
        graph = Graph.from_edge_index(
            ends.numbers,
            y=None if found is None else found.y,
            num_nodes=len(ends.ids),
            weights=ends.weights,
            classes=None if found is None else found.classes,
            name=chosen.name if chosen.name is not None else edge_table.stem,
            node_ids=ends.ids.to_numpy(zero_copy_only=False),
        )
        counts = Counts(
            node_rows=0 if found is None else found.rows_read,
            doubled=0 if found is None else found.doubled,
            nameless=0 if found is None else found.nameless,
            added=added,
            edge_rows=ends.rows,
            endless=ends.endless,
            unknown=ends.unknown,
            repeated=graph.duplicate_edges,
        )
        if not chosen.directed:
            graph = make_undirected(graph)
        x: Features | None = None
        if features is not None:
            encoder, x, notes = features.result()
            for note in notes:
                warn_input(note)
            graph = graph.with_features(x)
    roles = {} if found is None else found.roles
    if "split_column" in roles:
        graph = graph.with_splits([split_from_parts(roles["split_column"])])
    return Tables(graph, encoder if x is not None else None, counts, chosen, roles)


def _features(
    found: NodeRows, options: TableOptions, encoder: TableEncoder | None
) -> tuple[TableEncoder, Features | None, list[str]]:
    """Return the encoder, by default a new one, the features that it makes, if any, and what is to be told of them."""
    if encoder is None:
        return TableEncoder.fit_transform(found.columns, options.columns, found.refuse)
    return encoder, *(encoder.features(found.columns, found.refuse) if encoder.coders else (None, []))


def _with_common_classes(graph: Graph, on_rare: str) -> Graph:
    """Deal with classes of one labelled node, which cannot be in train and in test."""
    y = graph.labels()
    sizes = np.bincount(y[y >= 0], minlength=graph.num_classes)
    rare = np.flatnonzero(sizes == 1)
    if not rare.size:
        return graph
    names = some(repr(graph.classes[c]) for c in rare)
    if on_rare == "error":
        node = int(np.flatnonzero(y == rare[0])[0])
        shown = node if graph.node_ids is None else graph.node_ids[node]
        raise InputError(
            f"{counted(rare.size, 'class', 'classes')} of one labelled node: {names}, "
            f"the first at id {shown!r}; label more nodes of "
            "it, or pass on_rare_class='keep' (for training alone) or 'unlabel' (--on-rare-class)"
        )
    if on_rare == "keep":
        warn_input(
            f"{counted(rare.size, 'class', 'classes')} of one labelled node, which is for training alone: {names}"
        )
        return graph
    kept = np.flatnonzero(sizes > 1)
    if not kept.size:
        raise InputError("every class has one labelled node; label more nodes")
    number = np.full(graph.num_classes + 1, -1)
    number[kept] = np.arange(kept.size)
    warn_input(f"{counted(rare.size, 'class', 'classes')} of one labelled node, taken as unlabelled: {names}")
    return replace(graph, y=number[y], classes=tuple(graph.classes[c] for c in kept))


def combined(values: Any) -> Any:
    return pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
