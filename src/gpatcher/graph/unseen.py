"""Nodes that came after training: their edges and features, and how walks and models see them.

They are numbered on from the graph: n, n + 1, … A walk that starts at one of them sees the graph and, laid over it,
the few rows that are new or have new neighbours, so nothing is copied and nothing costs in proportion to n.
"""

from __future__ import annotations

import warnings
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from gpatcher.arrays import Features, IntArray
from gpatcher.errors import InputError, InputWarning, counted, some
from gpatcher.graph.checks import check_features
from gpatcher.graph.graph import Graph
from gpatcher.kernels.csr import sum_rows
from gpatcher.kernels.overlay import Overlay
from gpatcher.model.inputs import FeatureTable, own_rows, side_by_side
from gpatcher.patches.base import Patches
from gpatcher.patches.polynomial import moment_budget, walk_products
from gpatcher.patches.ppr import Walk, check_push, push_from, walk_arrays
from gpatcher.patches.spectral import PairProducts

# what walks need of a graph, made once however many newcomers are asked about
_WALKS: MutableMapping[Graph, dict[bool, Walk]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class UnseenNodes:
    """Nodes that joined a graph; build them with `join`, which checks.

    Parameters
    ----------
    graph : the graph as it was
    count : how many nodes are new
    rows : numbers of the nodes with a new edge and of all new nodes, rising
    edges : the new edges alone, as a graph over ``rows``; directed where the graph is
    x : features of the new nodes, shape (count, d)
    node_ids : their ids, shape (count,)
    """

    graph: Graph
    count: int
    rows: IntArray
    edges: Graph
    x: Features | None = None
    node_ids: npt.NDArray[Any] | None = None

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
        """Let nodes join a graph.

        Parameters
        ----------
        edge_index : shape (2, edges), numbers of nodes: 0 to n - 1 were there, the new ones follow; every edge has a
            new end. Where the graph is undirected, an edge counts in both directions
        x : features of the new nodes, in the columns of the graph
        count : number of new nodes; by default the rows of ``x`` or ``node_ids``
        weights : of the edges, where the graph has weights
        node_ids : ids of the new nodes, none of which the graph has

        Examples
        --------
        >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> UnseenNodes.join(path, [[3, 3], [2, 4]], count=2).extended().neighbours(3).tolist()
        [2, 4]
        """
        n = graph.n
        known = [len(v) if not hasattr(v, "shape") else v.shape[0] for v in (x, node_ids) if v is not None]
        count = count if count is not None else known[0] if known else None
        if count is None or count < 1 or any(k != count for k in known):
            raise InputError(f"the number of new nodes must be at least 1 and that of their rows, got {count}, {known}")
        if (graph.x is None) != (x is None):
            have, lack = ("the graph", "the new nodes") if x is None else ("the new nodes", "the graph")
            raise InputError(f"{have} have features and {lack} have none; pass x with the columns of the graph")
        x = check_features(x, count)
        if x is not None and x.shape[1] != graph.num_features:
            raise InputError(
                f"the new nodes have {x.shape[1]} feature columns, the graph has {graph.num_features}: "
                "pass the same columns in the same order"
            )
        if (graph.weights is None) != (weights is None):
            raise InputError(
                "the graph has weights, so new edges need them too: pass weights"
                if weights is None
                else "the graph has no weights, so new edges cannot have them either"
            )
        _check_node_ids(graph, node_ids)
        ends = np.asarray(edge_index)
        if ends.size == 0:
            ends = np.zeros((2, 0), np.int64)
        if ends.ndim != 2 or ends.shape[0] != 2 or ends.dtype.kind not in "iu":
            raise InputError(f"edge_index must hold integers in shape (2, edges), got {ends.dtype} in {ends.shape}")
        for end in ends:
            wrong = np.flatnonzero((end < 0) | (end >= n + count))
            if wrong.size:
                raise InputError(
                    f"{wrong.size} new edges lead to a node that is not there: {some(end[wrong])}, the first at edge "
                    f"{wrong[0]}; the graph has 0 to {n - 1}, the new nodes are {n} to {n + count - 1}"
                )
        old = np.flatnonzero((ends < n).all(axis=0))
        if old.size:
            raise InputError(
                f"{old.size} new edges join two nodes that were there before, the first {ends[:, old[0]].tolist()} at "
                f"edge {old[0]}; they change the graph: leave them out, or train on the graph with them"
            )
        rows = np.unique(np.concatenate([ends.ravel(), np.arange(n, n + count)]))
        name = f"{graph.name}, new nodes"
        small = np.searchsorted(rows, ends)
        if graph.weights is not None:
            weights = np.asarray(weights, graph.weights.dtype)
        edges = Graph.from_edge_index(small, num_nodes=len(rows), weights=weights, name=name)
        edges = edges if graph.is_directed else edges.undirected()
        return cls(graph, count, rows, edges, x, node_ids)

    @property
    def nodes(self) -> IntArray:
        """Numbers of the new nodes."""
        return np.arange(self.graph.n, self.graph.n + self.count)

    def extended(self) -> Graph:
        """Return the whole graph with the newcomers in it, their labels unknown; O(n + m)."""
        graph, edges = self.graph, self.edges
        ends = []
        for part, number in ((graph, np.arange(graph.n)), (edges, self.rows)):
            source = np.repeat(number, np.diff(part.indptr))
            ends.append(np.stack([source, number[part.indices]]))
        weights = None
        if graph.weights is not None and edges.weights is not None:
            weights = np.concatenate([graph.weights, edges.weights])
        x = None if self.x is None else _stacked(graph.x, self.x)
        y = None if graph.y is None else np.concatenate([graph.y, np.full(self.count, -1)])
        n = graph.n + self.count
        classes = graph.classes or None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # all was said when graph and newcomers were made
            return Graph.from_edge_index(
                np.hstack(ends), x=x, y=y, num_nodes=n, weights=weights, classes=classes, name=graph.name
            )

    # ---- walks from the new nodes

    def overlay(self, walk: Walk, self_loops: bool) -> Overlay:
        """Return the rows that the newcomers add to the adjacency that Ã is made of."""
        new = self.rows >= self.graph.n
        matrix = self.edges.adjacency(self_loops=False)
        if self_loops:
            matrix = sp.csr_array(matrix + sp.diags_array(new.astype(np.float64)))  # the old ones have theirs
        matrix.sort_indices()
        indices = self.rows[matrix.indices].astype(walk[1].dtype)
        weights = None if walk[2] is None else matrix.data.astype(walk[2].dtype)
        # in the order of the row, from what the old ones have: the very sum that the whole graph would give
        degree = np.zeros(len(self.rows))
        degree[~new] = walk[3][self.rows[~new]]
        sum_rows(matrix.indptr, matrix.data, degree)
        return self.rows, matrix.indptr.astype(np.int64), indices, weights, degree

    def patches(self, size: int, c: float, eps: float, self_loops: bool = False) -> Patches:
        """Return the patches of the new nodes by personalised PageRank: those that the extended graph would give."""
        check_push(size, c, eps)
        walk = _walk(self.graph, self_loops)
        return push_from(walk, self.nodes, size, c, eps, added=self.overlay(walk, self_loops))

    def products(self, K: int, candidates: int, c: float, eps: float, self_loops: bool = False) -> PairProducts:
        """Return candidates and moments of the new nodes: those that the extended graph would give."""
        check_push(candidates, c, eps)
        walk = _walk(self.graph, self_loops)
        budget = moment_budget(self.graph.n + self.count, K)
        return walk_products(walk, self.nodes, K, candidates, c, eps, budget, added=self.overlay(walk, self_loops))

    # ---- features

    def features(
        self, nodes: IntArray, normalise: str, structure: bool, mass: bool, device: torch.device | str
    ) -> FeatureTable:
        """Return the features of these nodes, old or new, as a model trained on the graph knows them.

        With ``structure``, rows of the adjacency reach as far as the columns that were there at training: edges to
        newcomers have no column.
        """
        n = self.graph.n
        old, new = nodes[nodes < n], nodes[nodes >= n] - n
        x: Any = self.graph.x
        parts = [] if x is None else [own_rows(_stacked(x[old], self.x[new]), normalise, mass)]  # type: ignore[index]
        if not structure:
            return FeatureTable(parts[0], device)
        whole, added = self.graph.adjacency(np.float32), self.edges.adjacency(np.float32)
        # from the numbers of the small graph to those of the columns known
        count = int((self.rows < n).sum())
        spread = sp.csr_array((np.ones(count), (np.arange(count), self.rows[:count])), shape=(len(self.rows), n))
        at = np.searchsorted(self.rows, new + n)
        for turned in (False, True) if self.graph.is_directed else (False,):
            there, here = (sp.csr_array(m.T) if turned else m for m in (whole, added))
            parts.append(sp.vstack([there[old], here[at] @ spread]))
        return FeatureTable(side_by_side(parts), device)


def localise(index: npt.NDArray[Any], nodes: IntArray) -> npt.NDArray[Any]:
    """Return the place of each number among ``nodes``, which rise; -1 stays."""
    return np.where(index >= 0, np.searchsorted(nodes, index), -1).astype(np.int32)


def _walk(graph: Graph, self_loops: bool) -> Walk:
    known = _WALKS.setdefault(graph, {})
    if self_loops not in known:
        known[self_loops] = walk_arrays(graph, self_loops)
    return known[self_loops]


def _stacked(old: Any, new: Any) -> Any:
    if sp.issparse(old) or sp.issparse(new):
        return sp.csr_array(sp.vstack([sp.csr_array(old), sp.csr_array(new)]))
    return np.concatenate([np.asarray(old), np.asarray(new, dtype=old.dtype)])


def _check_node_ids(graph: Graph, node_ids: npt.NDArray[Any] | None) -> None:
    if node_ids is None:
        return
    values, counts = np.unique(np.asarray(node_ids), return_counts=True)
    if (counts > 1).any():
        doubled = values[counts > 1]
        raise InputError(
            f"{counted(len(doubled), 'id of new nodes appears', 'ids of new nodes appear')} more "
            f"than once: {some(doubled)}; each has one row"
        )
    there = values[np.isin(values, graph.node_ids)] if graph.node_ids is not None else values[:0]
    if there.size:
        raise InputError(f"{there.size} new nodes have an id that the graph has already: {some(there)}; remove them")
