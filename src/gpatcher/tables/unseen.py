"""Tables of nodes that arrive after training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import Features, FloatArray, IntArray
from gpatcher.errors import InputError, counted
from gpatcher.graph.graph import Graph
from gpatcher.tables.edges import edge_weights
from gpatcher.tables.encoder import TableEncoder
from gpatcher.tables.ids import clean_ids, match_text_type, require_type_of
from gpatcher.tables.load import combined
from gpatcher.tables.nodes import NodeRows, read_nodes
from gpatcher.tables.options import TableOptions
from gpatcher.tables.reader import TableFile
from gpatcher.tables.values import is_number, is_text, to_numbers


def read_new_tables(
    graph: Graph, nodes: Any, edges: Any, encoder: TableEncoder | None, options: Mapping[str, Any]
) -> tuple[npt.NDArray[Any], Features | None, IntArray, FloatArray | None]:
    """Read nodes that came after a graph was made, and their edges among themselves and to it.

    Returns the ids (count,), the features (count, d) or None, the ends of the edges (2, edges) as numbers, of which the
    new nodes have n, n + 1, …, and the weights or None: what `Newcomers.join` takes.

    Parameters
    ----------
    nodes : one row per new node, with the columns of the graph's table; a label is not read
    edges : one row per edge; its ends are ids of new nodes or of the graph's
    encoder : what made the graph's features; None where they are no table's: then every column of numbers is one
    options : of `TableOptions`, as the graph was read with; others are passed over
    """
    columns = ("id", "source", "target", "weight", "delimiter", "on_duplicate_id", "on_missing_id")
    chosen = TableOptions(**{name: options[name] for name in columns if name in options}, label=None)
    made = graph.x is not None and encoder is None
    if made and "edges" in options:
        raise InputError(
            "the features of this graph were made from its structure, which new nodes change; train with features "
            "from columns to predict nodes that come later"
        )
    if encoder is None and not made:
        chosen = replace(chosen, features=())
    edge_table = TableFile.open(edges, chosen.delimiter, "edges")
    wanted = {"source": chosen.source, "target": chosen.target}
    edge_table.require(wanted if chosen.weight is None else wanted | {"weight": chosen.weight})
    found = read_nodes(TableFile.open(nodes, chosen.delimiter, "nodes"), chosen, encoder)
    known = np.arange(graph.n) if graph.node_ids is None else graph.node_ids
    old = pa.array(known)
    old = old.cast(pa.large_string()) if is_text(old.type) else old.cast(pa.int64()) if is_number(old.type) else old
    new = found.ids
    if new.type != old.type:
        again = match_text_type(found.table, chosen.id, found.table.read([chosen.id])[chosen.id], old)
        new = combined(again if found.rows is None else again.take(pa.array(found.rows)))
    require_type_of(found.table, chosen.id, new, old)
    there = pc.is_in(new, value_set=old).to_numpy(zero_copy_only=False)
    found.refuse(chosen.id, there, new, "are in the graph already", "this table is for new nodes only")
    everyone = pa.concat_arrays([old, new])
    both = []
    for column in (chosen.source, chosen.target):
        values = match_text_type(edge_table, column, edge_table.read([column])[column], old)
        values = combined(clean_ids(edge_table, column, values, "error")[0])
        require_type_of(edge_table, column, values, old)
        at = pc.index_in(values, value_set=everyone).fill_null(-1).to_numpy(zero_copy_only=False)
        where = f"{found.table.path} nor in the graph"
        edge_table.refuse(column, at < 0, values, f"are neither in {where}", "add these nodes or remove these edges")
        both.append(at.astype(np.int64))
    weights = None
    if chosen.weight is not None:
        weights = edge_weights(edge_table, chosen.weight, edge_table.read([chosen.weight])[chosen.weight], None)
    x: Features | None = None
    if encoder is not None and encoder.coders:
        x = encoder.transform(found.columns, partial(_refuse_new, found))
    elif made:
        x = _plain_features(found, graph.num_features)
    return new.to_numpy(zero_copy_only=False), x, np.stack(both), weights


def _refuse_new(found: NodeRows, column: str, wrong: npt.NDArray[np.bool_], values: Any, what: str, way: str) -> None:
    """Refuse values of new nodes: the kind of a column was settled at training."""
    found.refuse(column, wrong, values, what, "correct them, or leave the fields empty" if "--column" in way else way)


def _plain_features(found: NodeRows, width: int) -> FloatArray:
    """Return the columns of numbers as they are, in their order."""
    numbers = {name: values for name, values in found.columns.items() if is_number(values.type)}
    if len(numbers) != width:
        raise InputError(
            f"{found.table.path} has {counted(len(numbers), 'column')} of numbers beside the id, "
            f"the graph has {counted(width, 'feature')}; "
            "give one column for each, in the order of the graph's"
        )
    columns = [to_numbers(name, values, found.refuse) for name, values in numbers.items()]
    for name, column in zip(numbers, columns, strict=True):
        found.refuse(name, np.isnan(column), numbers[name], "are missing", "fill them in")
    return np.stack(columns, axis=1).astype(np.float32)
