"""Find a node by its id, without importing torch."""

from __future__ import annotations

import difflib

import numpy as np

from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph


def find_node(graph: Graph, name: str) -> int:
    """Return the index of the node whose id, as text, is ``name``; a graph without ids has 0 to n - 1."""
    if graph.node_ids is None:
        if not name.isdecimal() or int(name) >= graph.n:
            raise InputError(f"there is no node {name!r}: {graph.name} has the nodes 0 to {graph.n - 1}")
        return int(name)
    ids = np.asarray(graph.node_ids).astype(str)
    matches = np.flatnonzero(ids == name)
    if not matches.size and graph.node_types is not None:
        matches = np.flatnonzero(ids == f"{graph.node_types.labelled}:{name}")
    if not matches.size:
        close = difflib.get_close_matches(name, ids[:20_000].tolist(), n=3)
        hint = f"; did you mean {', '.join(close)}?" if close else f", e.g. {ids[0]}"
        raise InputError(f"{graph.name} has no node with the id {name!r}{hint}")
    return int(matches[0])
