"""Unseen nodes: nodes that arrive after training, with their edges and features.

Their indices follow those of the graph: n, n + 1, … Extractors overlay the graph with the few rows that are new or have
new neighbours, so that the graph is not copied and the cost does not grow with n.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gpatcher.arrays import Features, IntArray
from gpatcher.errors import InputError, InputWarning, counted, some
from gpatcher.graph.checks import check_features
from gpatcher.graph.graph import Graph


@dataclass(frozen=True, eq=False)
class UnseenNodes:
    """Unseen nodes and their edges to a graph; build them with `join`, which checks the input.

    Parameters
    ----------
    graph : Graph
        The graph without them.
    count : int
        Number of unseen nodes.
    rows : int array
        Nodes with a new edge and all unseen nodes, ascending.
    edges : Graph
        The new edges, between positions in ``rows``; directed if the graph is.
    x : array or scipy CSR array, shape (count, d), optional
        Features of the unseen nodes.
    node_ids : array, shape (count,), optional
        Ids of the unseen nodes.
    relations : mapping of str to Graph
        The new edges of each type.
    """

    graph: Graph
    count: int
    rows: IntArray
    edges: Graph
    x: Features | None = None
    node_ids: npt.NDArray[Any] | None = None
    relations: Mapping[str, Graph] = field(default_factory=dict)

    @classmethod
    def join(
        cls,
        graph: Graph,
        edge_index: Any,
        x: Any = None,
        count: int | None = None,
        *,
        weights: Any = None,
        node_ids: npt.NDArray[Any] | None = None,
    ) -> UnseenNodes:
        """Add unseen nodes to a graph.

        Parameters
        ----------
        graph : Graph
        edge_index : int array, shape (2, edges)
            Nodes 0 to n - 1 are those of the graph, the unseen nodes follow. Every edge has an unseen endpoint. If the
            graph is undirected, an edge counts in both directions. If its edges have types, a mapping of these to
            such arrays.
        x : array or scipy sparse matrix, shape (count, d), optional
            Features of the unseen nodes, with the columns of the graph.
        count : int, optional
            Number of unseen nodes; by default the rows of ``x`` or ``node_ids``.
        weights : float array, shape (edges,), optional
            Edge weights; required if the graph has weights. With edge types, a mapping of these to weights.
        node_ids : array, shape (count,), optional
            Ids of the unseen nodes; they must not occur in the graph.

        Examples
        --------
        >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> UnseenNodes.join(path, [[3, 3], [2, 4]], count=2).extended().neighbours(3).tolist()
        [2, 4]
        """
        n = graph.n
        lengths = [v.shape[0] if hasattr(v, "shape") else len(v) for v in (x, node_ids) if v is not None]
        count = count if count is not None else lengths[0] if lengths else None
        if count is None or count < 1 or any(length != count for length in lengths):
            raise InputError(
                f"count must be at least 1 and equal the rows of x and node_ids, got count={count} and rows={lengths}"
            )
        if (graph.x is None) != (x is None):
            have, lack = ("the graph", "the unseen nodes") if x is None else ("the unseen nodes", "the graph")
            raise InputError(f"{have} have features and {lack} have none; pass x with the columns of the graph")
        x = check_features(x, count)
        if x is not None and x.shape[1] != graph.num_features:
            raise InputError(
                f"the unseen nodes have {x.shape[1]} feature columns, the graph has {graph.num_features}: "
                "pass the same columns in the same order"
            )
        _check_node_ids(graph, node_ids)
        parts = {name: (index, (weights or {}).get(name)) for name, index in _by_type(graph, edge_index).items()}
        if not graph.relations:
            parts = {"": (edge_index, weights)}
        checked = {name: _endpoints(graph, index, count) for name, (index, _) in parts.items()}
        rows = np.unique(np.concatenate([*(part.ravel() for part in checked.values()), np.arange(n, n + count)]))
        edges = {
            name: _new_edges(graph.of_type(name or None), np.searchsorted(rows, checked[name]), weight, len(rows), name)
            for name, (_, weight) in parts.items()
        }
        if not graph.relations:
            return cls(graph, count, rows, edges[""], x, node_ids)
        return cls(graph, count, rows, Graph.from_relations(edges), x, node_ids, edges)

    @property
    def nodes(self) -> IntArray:
        """Positions of the unseen nodes in the extended graph."""
        return np.arange(self.graph.n, self.graph.n + self.count)

    def predicted(self) -> IntArray:
        """Return the positions among the unseen nodes of those that are predicted: all, or of the labelled type."""
        types = self.graph.node_types
        if types is None or self.node_ids is None:
            return np.arange(self.count)
        return np.flatnonzero([text.startswith(f"{types.labelled}:") for text in self.node_ids])

    def of_type(self, edge_type: str | None) -> UnseenNodes:
        """Return the unseen nodes with the edges of a type alone, without features; itself for None."""
        if edge_type is None:
            return self
        return UnseenNodes(self.graph.of_type(edge_type), self.count, self.rows, self.relations[edge_type])

    def extended(self) -> Graph:
        """Return the graph extended by the unseen nodes, which are unlabelled; O(n + m)."""
        graph, edges = self.graph, self.edges
        unknown = np.full(self.count, np.nan if graph.is_regression else -1)
        y = None if graph.y is None else np.append(graph.y, unknown)
        x = None if self.x is None else stack_rows(graph.x, self.x)
        if graph.relations:
            parts = {name: self.of_type(name).extended() for name in graph.relations}
            task = "regression" if graph.is_regression else None
            merged = Graph.from_relations(parts, y, classes=graph.classes or None, task=task, name=graph.name)
            return merged.with_features(x)
        endpoints = []
        for part, position in ((graph, np.arange(graph.n)), (edges, self.rows)):
            source = np.repeat(position, np.diff(part.indptr))
            endpoints.append(np.stack([source, position[part.indices]]))
        weights = None
        if graph.weights is not None and edges.weights is not None:
            weights = np.concatenate([graph.weights, edges.weights])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # both parts were checked when they were built
            return Graph.from_edge_index(
                np.hstack(endpoints),
                x=x,
                y=y,
                num_nodes=graph.n + self.count,
                weights=weights,
                classes=graph.classes or None,
                task="regression" if graph.is_regression else None,
                name=graph.name,
            )


def stack_rows(first: Any, second: Any) -> Any:
    """Stack the rows of two feature matrices; sparse if one of them is."""
    if sp.issparse(first) or sp.issparse(second):
        return sp.csr_array(sp.vstack([sp.csr_array(first), sp.csr_array(second)]))
    return np.concatenate([np.asarray(first), np.asarray(second, dtype=first.dtype)])


def _by_type(graph: Graph, edge_index: Any) -> dict[str, Any]:
    """Return the new edges of each edge type of the graph, none for those that are not given."""
    if not graph.relations:
        return {}
    if not isinstance(edge_index, Mapping):
        raise InputError(f"the edges of the graph have the types {', '.join(graph.relations)}; pass new edges by type")
    for name in edge_index:
        graph.of_type(name)  # an unknown type is an error
    return {name: edge_index.get(name, np.zeros((2, 0), np.int64)) for name in graph.relations}


def _endpoints(graph: Graph, edge_index: Any, count: int) -> npt.NDArray[Any]:
    endpoints = np.asarray(edge_index)
    if endpoints.size == 0:
        endpoints = np.zeros((2, 0), np.int64)
    if endpoints.ndim != 2 or endpoints.shape[0] != 2 or endpoints.dtype.kind not in "iu":
        raise InputError(f"edge_index must be integers of shape (2, edges), got {endpoints.dtype} of {endpoints.shape}")
    _check_endpoints(graph, endpoints, count)
    return endpoints


def _new_edges(graph: Graph, endpoints: npt.NDArray[Any], weights: Any, rows: int, edge_type: str) -> Graph:
    """Return new edges as a graph, directed and weighted as the graph that they extend."""
    of_type = f" of type {edge_type}" if edge_type else ""
    if weights is None and graph.weights is not None and not endpoints.size:
        weights = np.zeros(0)
    if (graph.weights is None) != (weights is None):
        raise InputError(
            f"the graph has weights, so new edges{of_type} need them too: pass weights"
            if weights is None
            else f"the graph has no weights, so new edges{of_type} cannot have them either"
        )
    if graph.weights is not None:
        weights = np.asarray(weights, graph.weights.dtype)
    with warnings.catch_warnings():
        if edge_type:
            warnings.filterwarnings("ignore", ".*no edges", InputWarning)  # of this type
        edges = Graph.from_edge_index(endpoints, num_nodes=rows, weights=weights, name=f"{graph.name}, unseen nodes")
    return edges if graph.is_directed else edges.undirected()


def _check_endpoints(graph: Graph, endpoints: npt.NDArray[Any], count: int) -> None:
    n = graph.n
    for row in endpoints:
        outside = np.flatnonzero((row < 0) | (row >= n + count))
        if outside.size:
            raise InputError(
                f"{counted(outside.size, 'new edge has', 'new edges have')} an endpoint that does not exist: "
                f"{some(row[outside])}, the first at edge {outside[0]}; the graph has 0 to {n - 1}, the unseen nodes "
                f"are {n} to {n + count - 1}"
            )
    within = np.flatnonzero((endpoints < n).all(axis=0))
    if within.size:
        first = endpoints[:, within[0]]
        shown = first.tolist() if graph.node_ids is None else [str(id) for id in graph.node_ids[first]]
        raise InputError(
            f"{counted(within.size, 'new edge joins', 'new edges join')} two nodes of the graph, the first {shown} at "
            f"edge {within[0]}; such edges change the graph: remove them, or train on the graph with them"
        )


def _check_node_ids(graph: Graph, node_ids: npt.NDArray[Any] | None) -> None:
    if node_ids is None:
        return
    values, counts = np.unique(np.asarray(node_ids), return_counts=True)
    if (counts > 1).any():
        duplicates = values[counts > 1]
        raise InputError(
            f"{counted(len(duplicates), 'id of unseen nodes appears', 'ids of unseen nodes appear')} more than once: "
            f"{some(duplicates)}; each has one row"
        )
    if graph.node_ids is None:
        return
    values = values.astype(object) if values.dtype.kind == "U" else values
    taken = values[graph.positions(values) >= 0]
    if taken.size:
        raise InputError(
            f"{counted(taken.size, 'unseen node has', 'unseen nodes have')} an id that the graph has already: "
            f"{some(taken)}; remove them"
        )
