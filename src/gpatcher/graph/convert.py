"""Conversion between `Graph` and PyG, SciPy and NetworkX; the methods of `Graph` call these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from gpatcher.errors import InputError
from gpatcher.graph.checks import encode_labels
from gpatcher.graph.split import PARTS, Split

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import Data

    from gpatcher.graph.graph import Graph


def from_pyg(cls: type[Graph], data: Data, name: str) -> Graph:
    """Build a graph from a PyG ``Data``; see `Graph.from_pyg`."""
    if data.edge_index is None:
        raise InputError("the Data object has no edge_index; convert adj_t or HeteroData to edge_index first")
    y = data.y
    if y is not None and y.dim() == 2 and y.size(1) == 1:
        y = y.view(-1)
    # only an explicit number of nodes: PyG would infer one, with a warning of its own
    n = data.num_nodes if "num_nodes" in data or data.x is not None else None
    graph = cls.from_edge_index(data.edge_index, x=data.x, y=y, num_nodes=n, weights=data.edge_weight, name=name)
    masks = [data.get(f"{part}_mask") for part in PARTS]
    if masks[0] is None:
        return graph
    if any(mask is None for mask in masks):
        raise InputError("the Data object has a train_mask but not all of train_mask, val_mask and test_mask")
    columns = [mask.view(mask.size(0), -1).numpy().T for mask in masks]
    return graph.with_splits([Split(*parts) for parts in zip(*columns, strict=True)])


def to_pyg(graph: Graph) -> Data:
    """Return a PyG ``Data``; see `Graph.to_pyg`."""
    import torch
    from torch_geometric.data import Data

    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    data = Data(edge_index=torch.from_numpy(np.stack([source, graph.indices.astype(np.int64)])))
    data.num_nodes = graph.n
    if graph.weights is not None:
        data.edge_weight = torch.from_numpy(graph.weights.copy())
    if graph.x is not None:
        x = graph.x.toarray() if sp.issparse(graph.x) else graph.x
        data.x = torch.from_numpy(np.array(x))
    if graph.y is not None:
        data.y = torch.from_numpy(graph.y.copy())
    for part in PARTS if graph.splits else ():
        mask = np.zeros((graph.n, len(graph.splits)), dtype=bool)
        for column, split in enumerate(graph.splits):
            mask[getattr(split, part), column] = True
        data[f"{part}_mask"] = torch.from_numpy(mask)
    return data


def from_scipy(cls: type[Graph], adjacency: Any, x: Any, y: Any, name: str) -> Graph:
    """Build a graph from a square SciPy sparse matrix; see `Graph.from_scipy`."""
    if not sp.issparse(adjacency):
        raise InputError(f"adjacency must be a scipy sparse matrix, got {type(adjacency).__name__}")
    if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise InputError(f"adjacency must be square, got shape {adjacency.shape}")
    coo = sp.coo_array(adjacency)
    weights = None if bool((coo.data == 1).all()) else coo.data
    return cls.from_edge_index((coo.row, coo.col), x=x, y=y, num_nodes=coo.shape[0], weights=weights, name=name)


def from_networkx(cls: type[Graph], source: nx.Graph, label: str | None, features: Sequence[str]) -> Graph:
    """Build a graph from a NetworkX graph; see `Graph.from_networkx`."""
    nodes = dict(source.nodes(data=True))
    position = {node: i for i, node in enumerate(nodes)}
    edges = [(position[a], position[b], attributes.get("weight")) for a, b, attributes in source.edges(data=True)]
    if not source.is_directed():
        edges += [(b, a, w) for a, b, w in edges if a != b]
    columns = list(zip(*edges, strict=True)) or [(), (), ()]
    weighted = bool(edges) and all(w is not None for w in columns[2])
    for node, attributes in nodes.items():
        missing = [f for f in features if f not in attributes]
        if missing:
            raise InputError(f"node {node!r} has no attribute {missing[0]!r}; add the attribute or remove the node")
    y, classes = None, None
    if label is not None:
        y, classes = encode_labels([attributes.get(label) for attributes in nodes.values()])
    ids = np.empty(len(nodes), dtype=object)
    ids[:] = list(nodes)
    return cls.from_edge_index(
        (np.array(columns[0], np.int64), np.array(columns[1], np.int64)),
        x=np.array([[attributes[f] for f in features] for attributes in nodes.values()]) if features else None,
        y=y,
        num_nodes=len(nodes),
        weights=columns[2] if weighted else None,
        classes=classes,
        name=source.name or "graph",
        node_ids=ids,
    )


def to_networkx(graph: Graph) -> nx.Graph:
    """Return a NetworkX graph; see `Graph.to_networkx`."""
    import networkx as nx

    result: nx.Graph = nx.DiGraph() if graph.is_directed else nx.Graph()
    names = list(range(graph.n)) if graph.node_ids is None else list(graph.node_ids)
    y = np.full(graph.n, -1) if graph.y is None else graph.y
    for node, label in zip(names, y, strict=True):
        result.add_node(node, **({"label": graph.classes[label]} if label >= 0 else {}))
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    for e, (a, b) in enumerate(zip(source, graph.indices, strict=True)):
        attributes = {} if graph.weights is None else {"weight": float(graph.weights[e])}
        result.add_edge(names[a], names[b], **attributes)
    return result
