"""Conversion of graphs to and from NetworkX."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np

from gpatcher.errors import InputError
from gpatcher.graph.checks import encode_labels
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import is_labelled


def from_networkx(graph: nx.Graph, label: str | None, features: Sequence[str]) -> Graph:
    """Build a graph from NetworkX; see `Graph.from_networkx`."""
    nodes = dict(graph.nodes(data=True))
    position = {node: i for i, node in enumerate(nodes)}
    edges = [(position[a], position[b], attributes.get("weight")) for a, b, attributes in graph.edges(data=True)]
    if not graph.is_directed():
        edges += [(b, a, w) for a, b, w in edges if a != b]
    source, target, weights = zip(*edges, strict=True) if edges else ((), (), ())
    for node, attributes in nodes.items():
        missing = [f for f in features if f not in attributes]
        if missing:
            raise InputError(f"node {node!r} has no attribute {missing[0]!r}; add the attribute or remove the node")
    y, classes = None, None
    if label is not None:
        y, classes = encode_labels([attributes.get(label) for attributes in nodes.values()])
    ids = np.empty(len(nodes), dtype=object)
    ids[:] = list(nodes)
    return Graph.from_edge_index(
        (np.array(source, np.int64), np.array(target, np.int64)),
        x=np.array([[attributes[f] for f in features] for attributes in nodes.values()]) if features else None,
        y=y,
        num_nodes=len(nodes),
        weights=weights if edges and None not in weights else None,
        classes=classes,
        name=graph.name or "graph",
        node_ids=ids,
    )


def to_networkx(graph: Graph) -> nx.Graph:
    """Return a NetworkX graph; see `Graph.to_networkx`."""
    result: nx.Graph = nx.DiGraph() if graph.is_directed else nx.Graph()
    names = list(range(graph.n)) if graph.node_ids is None else list(graph.node_ids)
    y = np.full(graph.n, -1) if graph.y is None else graph.y
    for node, label in zip(names, y, strict=True):
        known = bool(is_labelled(np.asarray(label)))
        result.add_node(node, **({"label": graph.classes[label] if graph.classes else float(label)} if known else {}))
    for e, (a, b) in enumerate(zip(graph._sources(), graph.indices, strict=True)):
        attributes = {} if graph.weights is None else {"weight": float(graph.weights[e])}
        result.add_edge(names[a], names[b], **attributes)
    return result
