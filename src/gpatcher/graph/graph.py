"""Graph: the container of edges, features, labels and splits, checked once and never changed.

Everything downstream may rely on what is checked here: ids lie in [0, n), rows are sorted and hold each neighbour
once, weights are positive and finite, features are finite, labels lie in [-1, C).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gpatcher.arrays import Features, FloatArray, IntArray
from gpatcher.errors import InputError, counted, warn_input
from gpatcher.graph import convert
from gpatcher.graph.checks import (
    BLOCK_BYTES,
    check_edge_ids,
    check_features,
    check_labels,
    check_split,
    check_weights,
    edge_rows,
    node_count,
)
from gpatcher.graph.split import Split
from gpatcher.kernels.csr import (
    clear_diagonal,
    count_edges,
    count_one_way,
    count_reversed,
    count_self_loops,
    merge_rows,
    place_both_ways,
    place_edges,
    scale_both_sides,
    sort_rows,
    sum_rows,
)

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import Data


_EDGE_FACTS = ("one_way_edges", "self_loops", "fingerprint")


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph with features, labels and splits, checked once and never changed.

    The adjacency is kept as it was given, directed or not, in CSR form with sorted rows:
    an undirected edge is stored in both rows. ``undirected()`` gives the graph that the filters see.

    Parameters
    ----------
    indptr : int64 array, shape (n + 1,)
    indices : int32 array (int64 from 2^31 nodes on), shape (m,)
    weights : float array, shape (m,), or None where every edge counts as 1
    x : features, shape (n, d): dense, memory-mapped or scipy CSR; None where there are none
    y : int64 array, shape (n,), class of each node and -1 where unknown; None where there are no labels
    classes : names of the classes, in the order of the numbers in ``y``
    splits : the splits that came with the data
    name : what to call the graph in tables and records
    duplicate_edges : edges of the input that repeated another one and were merged with it
    facts : mapping, optional
        Facts measured before, which would take long to measure again: ``one_way_edges``, ``self_loops``,
        ``fingerprint``, ``content``.

    Build one with `from_edge_index`, `from_pyg`, `from_scipy` or `from_networkx`; they check and sort.

    Examples
    --------
    >>> graph = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], y=[0, 1, 0])
    >>> graph.n, graph.m, graph.neighbours(1).tolist()
    (3, 2, [0, 2])
    """

    indptr: IntArray
    indices: IntArray
    weights: FloatArray | None = None
    x: Features | None = None
    y: IntArray | None = None
    classes: tuple[str, ...] = ()
    splits: tuple[Split, ...] = ()
    name: str = "graph"
    duplicate_edges: int = 0
    node_ids: npt.NDArray[Any] | None = None
    # not a field: dataclasses.replace() drops the facts, since other edges or features have others
    facts: InitVar[Mapping[str, Any] | None] = None

    def __post_init__(self, facts: Mapping[str, Any] | None) -> None:
        for name, value in (facts or {}).items():
            object.__setattr__(self, name, value)  # a cached property with a value is not measured again

    # ---- what it holds

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.indptr.size - 1

    @property
    def stored_edges(self) -> int:
        """Number of entries of the adjacency: each direction of an edge counts."""
        return self.indices.size

    @cached_property
    def m(self) -> int:
        """Number of undirected edges, a self-loop and a pair of opposite edges counting once each."""
        entries = self.undirected().stored_edges
        return (entries - self.self_loops) // 2 + self.self_loops

    @property
    def num_features(self) -> int:
        """Number of feature columns, 0 where there are none."""
        return 0 if self.x is None else int(self.x.shape[1])

    @property
    def num_classes(self) -> int:
        """Number of classes, 0 where there are no labels."""
        return len(self.classes)

    @cached_property
    def self_loops(self) -> int:
        """Number of edges from a node to itself."""
        return int(count_self_loops(self.indptr, self.indices))

    @cached_property
    def one_way_edges(self) -> int:
        """Number of edges without an equal edge in the opposite direction."""
        return int(count_one_way(self.indptr, self.indices, self.weights, self.indptr[:-1].copy()))

    @property
    def is_directed(self) -> bool:
        """Whether some edge has no equal edge in the opposite direction."""
        return self.one_way_edges > 0

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        x = self.x
        features = 0 if x is None else x.nbytes if not sp.issparse(x) else _sparse_bytes(x)
        rest = (self.indptr, self.indices, self.weights, self.y, self.node_ids)
        return features + sum(array.nbytes for array in rest if array is not None)

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of the undirected graph's structure and weights: the key of caches."""
        digest = hashlib.sha256()
        both = self.undirected()
        for array, kind in ((both.indptr, np.int64), (both.indices, np.int64), (both.weights, None)):
            if array is None:
                digest.update(b"none")
                continue
            step = BLOCK_BYTES // 8
            for start in range(0, array.size, step):
                digest.update(np.ascontiguousarray(array[start : start + step], dtype=kind).tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def content(self) -> str:
        """Sixteen hexadecimal digits of everything: edges as given, weights, features, labels and splits."""
        digest = hashlib.sha256()
        x: Any = self.x
        features = [x.indptr, x.indices, x.data] if sp.issparse(x) else [x]
        parts: list[Any] = [self.indptr, self.indices, self.weights, self.y, *features]
        for array in parts:
            if array is None:
                digest.update(b"none")
                continue
            digest.update(f"{array.dtype} {array.shape}".encode())
            step = max(1, BLOCK_BYTES // max(1, array[:1].nbytes))
            for start in range(0, len(array), step):
                digest.update(np.ascontiguousarray(array[start : start + step]).tobytes())
        for split in self.splits:
            digest.update(split.hash.encode())
        return digest.hexdigest()[:16]

    def neighbours(self, v: int) -> IntArray:
        """Return the sorted neighbours of node v."""
        return self.indices[self.indptr[v] : self.indptr[v + 1]]

    def labels(self) -> IntArray:
        """Return ``y``; an error where no node has a label."""
        if self.y is None or not self.num_classes:
            raise InputError(f"{self.name} has no labels; pass y with a class number for each node, -1 for unknown")
        return self.y

    # ---- what follows from it

    def undirected(self) -> Graph:
        """Return the graph with every edge in both directions; itself where that is so already.

        Where the two directions differ in weight, the larger one counts.
        """
        return self if not self.is_directed else self._both_ways

    @cached_property
    def _both_ways(self) -> Graph:
        degree = np.diff(self.indptr)
        count_reversed(self.indptr, self.indices, degree)
        indptr = np.concatenate([[0], np.cumsum(degree)])
        indices, weights = self._entries(int(indptr[-1]), self.indices.dtype, self.weights)
        place_both_ways(self.indptr, self.indices, self.weights, indptr[:-1].copy(), indices, weights)
        indptr, indices, weights, _ = _sort_and_merge(indptr, indices, weights, add=False)
        _freeze(indptr, indices, weights)
        return replace(self, indptr=indptr, indices=indices, weights=weights, facts={"one_way_edges": 0})

    def degrees(self) -> FloatArray:
        """Return the sum of the weights at each node of the undirected graph; shape (n,)."""
        both = self.undirected()
        if both.weights is None:
            return np.diff(both.indptr).astype(np.float64)
        degree = np.zeros(self.n)
        sum_rows(both.indptr, both.weights, degree)
        return degree

    @cached_property
    def isolated(self) -> IntArray:
        """Ids of the nodes without any neighbour but themselves."""
        both = self.undirected()
        degree = np.diff(both.indptr)
        single = np.flatnonzero(degree == 1)
        looped = single[both.indices[both.indptr[single]] == single]
        return np.sort(np.concatenate([np.flatnonzero(degree == 0), looped]))

    def adjacency(self, dtype: npt.DTypeLike = np.float64) -> sp.csr_array:
        """Return the adjacency as stored, as a scipy CSR array that shares the index arrays."""
        data = np.ones(self.stored_edges, dtype) if self.weights is None else self.weights.astype(dtype)
        return self._csr(data)

    def walk(self, self_loops: bool = False, dtype: npt.DTypeLike = np.float64) -> sp.csr_array:
        """Return the undirected adjacency that Ã is made of: no self-loops, or one of weight 1 at every node."""
        matrix = self.undirected().adjacency(dtype)
        if self.self_loops:
            matrix = matrix.copy()  # the index arrays are the graph's own
            clear_diagonal(matrix.indptr, matrix.indices, matrix.data)
            matrix.eliminate_zeros()
        if self_loops:
            matrix = sp.csr_array(matrix + sp.eye_array(self.n, dtype=dtype))
        return matrix

    def normalised(self, self_loops: bool = False, dtype: npt.DTypeLike = np.float64) -> sp.csr_array:
        """Return Ã = D^-1/2 A D^-1/2 of the undirected graph; shape (n, n).

        Self-loops of the input are left out, or with ``self_loops=True`` every node gets one of weight 1.
        A node without neighbours has a zero row. The eigenvalues lie in [-1, 1].

        Examples
        --------
        >>> Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3).normalised().toarray()
        array([[0., 1., 0.],
               [1., 0., 0.],
               [0., 0., 0.]])
        """
        matrix = self.walk(self_loops, dtype)
        degree = matrix.sum(axis=1)
        scale = np.zeros(self.n)
        np.divide(1.0, np.sqrt(degree), out=scale, where=degree > 0)
        scale_both_sides(matrix.indptr, matrix.indices, matrix.data, scale)
        return matrix

    def _csr(self, data: npt.NDArray[Any]) -> sp.csr_array:
        # SciPy wants both index arrays of one type: narrow the offsets where they fit, else widen the ids
        kind = np.int32 if self.indices.dtype == np.int32 and data.size < 2**31 else np.int64
        parts = (data, self.indices.astype(kind, copy=False), self.indptr.astype(kind, copy=False))
        matrix = sp.csr_array(parts, shape=(self.n, self.n))
        matrix.has_sorted_indices = True
        return matrix

    # ---- building

    @staticmethod
    def _entries(size: int, kind: npt.DTypeLike, weights: FloatArray | None) -> tuple[IntArray, FloatArray | None]:
        return np.empty(size, kind), None if weights is None else np.empty(size, weights.dtype)

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Any,
        x: Any = None,
        y: Any = None,
        num_nodes: int | None = None,
        *,
        weights: Any = None,
        classes: Sequence[str] | None = None,
        splits: Sequence[Split] = (),
        name: str = "graph",
        node_ids: npt.NDArray[Any] | None = None,
    ) -> Graph:
        """Build a graph from edges given as two rows, sources and targets, as torch_geometric does.

        Every column is one direction of an edge. Repeated edges are merged, their weights added, and a
        warning says how many there were; self-loops stay and are counted.

        Parameters
        ----------
        edge_index : array or tensor of integers, shape (2, m), or a pair of arrays
        x : features, shape (n, d); dense, memory-mapped or scipy sparse; shared, not copied
        y : class number of each node, shape (n,); -1 for unknown
        num_nodes : by default the rows of x or y, else the largest id + 1
        weights : positive weight of each edge, shape (m,)
        classes : names of the classes; by default their numbers
        splits : the splits that belong to the data
        """
        source, target = edge_rows(edge_index)
        n = node_count(num_nodes, x, y, source, target)
        for row, what in ((source, "source"), (target, "target")):
            check_edge_ids(row, what, n)
        weight = check_weights(weights, source.size)

        degree = np.zeros(n + 1, np.int64)
        count_edges(source, degree[1:])
        indptr: IntArray = np.cumsum(degree)
        indices, kept = cls._entries(source.size, np.int32 if n <= 2**31 - 1 else np.int64, weight)
        place_edges(source, target, weight, indptr[:-1].copy(), indices, kept)
        indptr, indices, kept, repeated = _sort_and_merge(indptr, indices, kept, add=True)
        if repeated:
            done = "merged into one" if weight is None else "merged, their weights added"
            warn_input(f"{name}: {repeated} of {source.size} edges repeat another one; they were {done}")
            if kept is not None and not np.isfinite(kept).all():
                raise InputError("the weights of repeated edges add up to a number that is not finite; scale them down")
        if not indices.size:
            warn_input(f"{name}: no edges, so {'the one node is' if n == 1 else f'all {n} nodes are'} isolated")

        checked_y, names = check_labels(y, n, classes, name)
        graph = cls(
            indptr=indptr,
            indices=indices,
            weights=kept,
            x=check_features(x, n),
            y=checked_y,
            classes=names,
            name=name,
            duplicate_edges=repeated,
            node_ids=node_ids,
        )
        _freeze(indptr, indices, kept, checked_y)
        if graph.self_loops:
            warn_input(
                f"{name}: {counted(graph.self_loops, 'edge joins', 'edges join')} a node to itself: kept and counted "
                "as a neighbour, but the normalised adjacency leaves it out"
            )
        return graph.with_splits(splits)

    def with_splits(self, splits: Sequence[Split]) -> Graph:
        """Return the graph with these splits, each checked against it."""
        for number, split in enumerate(splits):
            check_split(split, f"{self.name}, split {number}", self.labels(), self.classes)
        return self._with(splits=tuple(splits))

    def with_features(self, x: Any) -> Graph:
        """Return the graph with these features, shape (n, d), checked against it; shared, not copied."""
        return self._with(x=check_features(x, self.n))

    def _with(self, **fields: Any) -> Graph:
        """Return a copy with other features or splits; the facts about the edges measured so far stay."""
        facts = {name: vars(self)[name] for name in _EDGE_FACTS if name in vars(self)}
        return replace(self, **fields, facts=facts)

    # ---- from and to other libraries

    @classmethod
    def from_pyg(cls, data: Data, name: str = "graph") -> Graph:
        """Build a graph from a PyG ``Data``: edge_index, edge_weight, x, y and the three masks."""
        return convert.from_pyg(cls, data, name)

    def to_pyg(self) -> Data:
        """Return a PyG ``Data`` with the same edges, features and labels, and masks of shape (n, splits)."""
        return convert.to_pyg(self)

    @classmethod
    def from_scipy(cls, adjacency: Any, x: Any = None, y: Any = None, name: str = "graph") -> Graph:
        """Build a graph from a square SciPy sparse matrix; its values are the weights, unless all are 1."""
        return convert.from_scipy(cls, adjacency, x, y, name)

    def to_scipy(self) -> sp.csr_array:
        """Return the adjacency as a SciPy CSR array; the same as `adjacency`."""
        return self.adjacency()

    @classmethod
    def from_networkx(cls, graph: nx.Graph, label: str | None = None, features: Sequence[str] = ()) -> Graph:
        """Build a graph from NetworkX; node v is the v-th node of ``graph``, its name is ``node_ids[v]``.

        Parameters
        ----------
        graph : networkx.Graph
            Directed or undirected. The edge attribute ``weight`` is read if all edges have it.
        label : str, optional
            Node attribute with the class; a node without it is unlabelled.
        features : sequence of str
            Numeric node attributes, one feature column each.
        """
        return convert.from_networkx(cls, graph, label, features)

    def to_networkx(self) -> nx.Graph:
        """Return a NetworkX graph, directed if this one is, with the attributes ``label`` and ``weight``."""
        return convert.to_networkx(self)

    def __repr__(self) -> str:
        parts = [counted(self.n, "node"), counted(self.stored_edges, "stored edge")]
        if self.num_features:
            parts.append(counted(self.num_features, "feature"))
        if self.num_classes:
            parts.append(f"{self.num_classes} classes")
        if self.splits:
            parts.append(counted(len(self.splits), "split"))
        return f"Graph({self.name!r}: {', '.join(parts)})"


def _sparse_bytes(x: Any) -> int:
    return int(x.data.nbytes + x.indices.nbytes + x.indptr.nbytes)


def _freeze(*arrays: npt.NDArray[Any] | None) -> None:
    for array in arrays:
        if array is not None:
            array.flags.writeable = False


def _sort_and_merge(
    indptr: IntArray, indices: IntArray, weights: FloatArray | None, *, add: bool
) -> tuple[IntArray, IntArray, FloatArray | None, int]:
    sort_rows(indptr, indices, weights)
    merged = int(merge_rows(indptr, indices, weights, add))
    if merged:
        # shrink in place: a copy would need the memory of both
        indices.resize(indices.size - merged, refcheck=False)
        if weights is not None:
            weights.resize(weights.size - merged, refcheck=False)
    return indptr, indices, weights, merged
