"""Graph: edges, features, labels and splits, checked once and immutable.

Other modules rely on these invariants: node ids lie in [0, n), rows are sorted and free of duplicates, weights
are positive and finite, features are finite, labels lie in [-1, C).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gpatcher.arrays import Features, FloatArray, IntArray
from gpatcher.errors import InputError, counted, warn_input
from gpatcher.graph.checks import (
    check_edge_ids,
    check_features,
    check_labels,
    check_split,
    check_weights,
    edge_rows,
    node_count,
    warn_duplicates,
    warn_self_loops,
)
from gpatcher.graph.csr import count_one_way, rows_of_edges, undirected_rows, update_hash
from gpatcher.graph.split import PARTS, Split, is_labelled
from gpatcher.graph.types import NodeTypes
from gpatcher.kernels.csr import clear_diagonal, count_self_loops, scale_both_sides, sum_rows

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import Data

_EDGE_FACTS = ("one_way_edges", "self_loops", "fingerprint")


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph with features, labels and splits, checked once and immutable.

    The adjacency is stored as given, directed or undirected, in CSR form with sorted rows; an undirected edge is stored
    in both rows. The filters work on ``undirected()``.

    Build a graph with `from_edge_index`, `from_pyg`, `from_scipy` or `from_networkx`, which check and sort. The
    constructor itself checks nothing.

    Parameters
    ----------
    indptr : int64 array, shape (n + 1,)
        Row v of the adjacency is ``indices[indptr[v]:indptr[v + 1]]``.
    indices : int32 array, shape (m,)
        Neighbours, in ascending order within each row.
    weights : float array, shape (m,), optional
        Edge weights; None if every edge has weight 1.
    x : array or scipy CSR array, shape (n, d), optional
        Features; the array may be memory-mapped.
    y : int64 or float64 array, shape (n,), optional
        Class of each node, -1 for unlabelled nodes; or the number to predict, NaN for unlabelled nodes.
    classes : tuple of str
        Names of the classes; empty if numbers are predicted.
    splits : tuple of Split
        Splits that belong to the data.
    name : str
        Name for tables, records and messages.
    duplicate_edges : int
        Number of input edges that were merged into an equal edge.
    node_ids : array, shape (n,), optional
        Ids of the nodes in the source of the data.
    relations : mapping of str to Graph
        The edges of each type, as a graph on the same nodes; empty if the edges have no types. See `from_relations`.
    node_types : NodeTypes, optional
        The type of each node, if there are several.
    facts : mapping of str to value, optional
        Known properties, such as ``self_loops``, that would otherwise take a pass over the edges.

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
    y: IntArray | FloatArray | None = None
    classes: tuple[str, ...] = ()
    splits: tuple[Split, ...] = ()
    name: str = "graph"
    duplicate_edges: int = 0
    node_ids: npt.NDArray[Any] | None = None
    relations: Mapping[str, Graph] = field(default_factory=dict, repr=False)
    node_types: NodeTypes | None = None
    # not a field: dataclasses.replace() must drop the facts, because they may not hold for the new edges or features
    facts: InitVar[Mapping[str, Any] | None] = None

    def __post_init__(self, facts: Mapping[str, Any] | None) -> None:
        for name, value in (facts or {}).items():
            object.__setattr__(self, name, value)  # fills the cached property of that name

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.indptr.size - 1

    @property
    def stored_edges(self) -> int:
        """Number of stored entries of the adjacency: both directions of an edge count."""
        return self.indices.size

    @cached_property
    def m(self) -> int:
        """Number of undirected edges; a self-loop and a pair of opposite edges count once each."""
        return (self.undirected().stored_edges + self.self_loops) // 2

    @property
    def num_features(self) -> int:
        """Number of feature columns, 0 without features."""
        return 0 if self.x is None else int(self.x.shape[1])

    @property
    def num_classes(self) -> int:
        """Number of classes, 0 without labels."""
        return len(self.classes)

    @property
    def is_regression(self) -> bool:
        """Whether the labels are numbers to predict, not classes."""
        return self.y is not None and self.y.dtype.kind == "f"

    @property
    def num_outputs(self) -> int:
        """Outputs of a model: one per class, or one number; 0 without labels."""
        return 1 if self.is_regression else self.num_classes

    @cached_property
    def self_loops(self) -> int:
        """Number of edges from a node to itself."""
        return int(count_self_loops(self.indptr, self.indices))

    @cached_property
    def one_way_edges(self) -> int:
        """Number of edges without an equal edge in the opposite direction."""
        return count_one_way(self.indptr, self.indices, self.weights)

    @property
    def is_directed(self) -> bool:
        """Whether some edge has no equal edge in the opposite direction."""
        return self.one_way_edges > 0

    @cached_property
    def nbytes(self) -> int:
        """Total size of all arrays in bytes."""
        arrays = (self.indptr, self.indices, self.weights, self.y, self.node_ids, *_feature_arrays(self.x))
        types: int = sum(part.nbytes for part in self.relations.values())
        own: int = sum(array.nbytes for array in arrays if array is not None)
        return own + types

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the undirected edges and their weights, 16 hexadecimal digits: the key of caches."""
        digest = hashlib.sha256()
        undirected = self.undirected()
        update_hash(digest, undirected.indptr, np.int64)
        update_hash(digest, undirected.indices, np.int64)
        update_hash(digest, undirected.weights)
        self._hash_relations(digest)
        return digest.hexdigest()[:16]

    def _hash_relations(self, digest: Any) -> None:
        for name, part in self.relations.items():
            digest.update(f"{name} {part.content_hash}".encode())

    @cached_property
    def content_hash(self) -> str:
        """Hash of edges as stored, weights, features, labels and splits, 16 hexadecimal digits."""
        digest = hashlib.sha256()
        for array in (self.indptr, self.indices, self.weights, self.y, *_feature_arrays(self.x)):
            if array is not None:
                digest.update(f"{array.dtype} {array.shape}".encode())
            update_hash(digest, array)
        self._hash_relations(digest)
        for split in self.splits:
            digest.update(split.hash.encode())
        return digest.hexdigest()[:16]

    def positions(self, ids: npt.NDArray[Any]) -> IntArray:
        """Return the index of the node with each id, -1 if there is none; text is looked up as objects.

        The first call sorts the ids; later calls use binary search.

        Examples
        --------
        >>> graph = Graph.from_edge_index([[0, 1], [1, 0]], node_ids=np.array(["b", "a"], object))
        >>> graph.positions(np.array(["a", "c"], object)).tolist()
        [1, -1]
        """
        if self.node_ids is None:
            return np.where((ids >= 0) & (ids < self.n), ids, -1)
        order, ascending = self._sorted_ids
        at = np.minimum(np.searchsorted(ascending, ids), self.n - 1)
        return np.where(ascending[at] == ids, order[at], -1)

    @cached_property
    def _sorted_ids(self) -> tuple[IntArray, npt.NDArray[Any]]:
        """The nodes sorted by id, and the sorted ids."""
        ids = np.asarray(self.node_ids)
        ids = ids.astype(object) if ids.dtype.kind == "U" else ids
        order = np.argsort(ids, kind="stable")
        return order, ids[order]

    def neighbours(self, v: int) -> IntArray:
        """Return the neighbours of node v in ascending order."""
        return self.indices[self.indptr[v] : self.indptr[v + 1]]

    def _sources(self) -> IntArray:
        """Return the source of each stored edge, shape (m,); its target is in ``indices``."""
        return np.repeat(np.arange(self.n), np.diff(self.indptr))

    def labels(self) -> npt.NDArray[Any]:
        """Return ``y``; raise an error if no node has a label."""
        if self.y is None or not (self.num_classes or (self.is_regression and is_labelled(self.y).any())):
            raise InputError(f"{self.name} has no labels; pass y with the class of each node, -1 for unlabelled nodes")
        return self.y

    def of_type(self, edge_type: str | None) -> Graph:
        """Return the graph of the edges of a type, without features and labels; itself for None."""
        if edge_type is None:
            return self
        if edge_type not in self.relations:
            types = f"its edges have the types {', '.join(self.relations)}" if self.relations else "its edges have none"
            raise InputError(f"{self.name} has no edge type {edge_type!r}; {types}")
        return self.relations[edge_type]

    def undirected(self) -> Graph:
        """Return the graph with every edge in both directions, the larger weight kept; itself if undirected."""
        return self._undirected if self.is_directed else self

    @cached_property
    def _undirected(self) -> Graph:
        indptr, indices, weights = undirected_rows(self.indptr, self.indices, self.weights)
        return replace(self, indptr=indptr, indices=indices, weights=weights, facts={"one_way_edges": 0})

    def degrees(self) -> FloatArray:
        """Return the sum of the edge weights at each node of the undirected graph, shape (n,)."""
        undirected = self.undirected()
        if undirected.weights is None:
            return np.diff(undirected.indptr).astype(np.float64)
        degree = np.zeros(self.n)
        sum_rows(undirected.indptr, undirected.weights, degree)
        return degree

    @cached_property
    def isolated(self) -> IntArray:
        """Ids of the nodes without a neighbour other than themselves."""
        undirected = self.undirected()
        degree = np.diff(undirected.indptr)
        single = np.flatnonzero(degree == 1)
        looped = single[undirected.indices[undirected.indptr[single]] == single]
        return np.sort(np.concatenate([np.flatnonzero(degree == 0), looped]))

    def adjacency(self, dtype: npt.DTypeLike = np.float64, *, self_loops: bool | None = None) -> sp.csr_array:
        """Return the adjacency matrix A, shape (n, n).

        Parameters
        ----------
        dtype : dtype
            Type of the values.
        self_loops : bool, optional
            None returns the adjacency as stored, which shares its index arrays with the graph. Otherwise the adjacency
            is that of the undirected graph, without self-loops (False) or with one of weight 1 at every node (True).

        Examples
        --------
        >>> Graph.from_edge_index([[0], [1]]).adjacency(self_loops=True).toarray()
        array([[1., 1.],
               [1., 1.]])
        """
        if self_loops is None:
            data = np.ones(self.stored_edges, dtype) if self.weights is None else self.weights.astype(dtype)
            # SciPy needs both index arrays in one dtype: narrow the offsets if they fit, else widen the ids
            index = np.int32 if self.indices.dtype == np.int32 and data.size < 2**31 else np.int64
            parts = (data, self.indices.astype(index, copy=False), self.indptr.astype(index, copy=False))
            matrix = sp.csr_array(parts, shape=(self.n, self.n))
            matrix.has_sorted_indices = True
            return matrix
        matrix = self.undirected().adjacency(dtype)
        if self.self_loops:
            matrix = matrix.copy()  # the index arrays belong to the graph
            clear_diagonal(matrix.indptr, matrix.indices, matrix.data)
            matrix.eliminate_zeros()
        return sp.csr_array(matrix + sp.eye_array(self.n, dtype=dtype)) if self_loops else matrix

    def normalised(self, self_loops: bool = False, dtype: npt.DTypeLike = np.float64) -> sp.csr_array:
        """Return the symmetrically normalised adjacency Ã = D^-1/2 A D^-1/2 of the undirected graph, shape (n, n).

        An isolated node has a zero row. The eigenvalues lie in [-1, 1].

        Parameters
        ----------
        self_loops : bool
            Whether every node gets a self-loop of weight 1. Self-loops of the input are always removed.
        dtype : dtype
            Type of the values.

        Examples
        --------
        >>> Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3).normalised().toarray()
        array([[0., 1., 0.],
               [1., 0., 0.],
               [0., 0., 0.]])
        """
        matrix = self.adjacency(dtype, self_loops=self_loops)
        degree = matrix.sum(axis=1)
        scale = np.zeros(self.n)
        np.divide(1.0, np.sqrt(degree), out=scale, where=degree > 0)
        scale_both_sides(matrix.indptr, matrix.indices, matrix.data, scale)
        return matrix

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
        task: str | None = None,
        splits: Sequence[Split] = (),
        name: str = "graph",
        node_ids: npt.NDArray[Any] | None = None,
    ) -> Graph:
        """Build a graph from an edge index as in PyG: a row of sources and a row of targets.

        Each column is one direction of an edge. Duplicate edges are merged and their weights added, with a warning that
        states their number. Self-loops are kept and counted.

        Parameters
        ----------
        edge_index : array or tensor of int, shape (2, m), or pair of arrays
            Sources and targets.
        x : array, tensor or scipy sparse matrix, shape (n, d), optional
            Features; shared, not copied.
        y : array or tensor, shape (n,), optional
            Class of each node, -1 for unlabelled nodes; or the number to predict, NaN for unlabelled nodes.
        num_nodes : int, optional
            Number of nodes; by default the number of rows of ``x`` or ``y``, else the largest id + 1.
        weights : array or tensor, shape (m,), optional
            Positive edge weights.
        classes : sequence of str, optional
            Class names; by default "0", "1", ...
        task : {"classification", "regression"}, optional
            What ``y`` is; by default regression if some label has a fraction.
        splits, name, node_ids
            See `Graph`.
        """
        source, target = edge_rows(edge_index)
        n = node_count(num_nodes, x, y, source, target)
        for row, endpoint in ((source, "source"), (target, "target")):
            check_edge_ids(row, endpoint, n)
        weight = check_weights(weights, source.size)
        (indptr, indices, merged), duplicates = rows_of_edges(source, target, weight, n)
        warn_duplicates(name, duplicates, source.size, weighted=weight is not None)
        if not indices.size:
            warn_input(f"{name}: no edges, so {'the one node is' if n == 1 else f'all {n} nodes are'} isolated")

        checked_y, names = check_labels(y, n, classes, name, task)
        graph = cls(
            indptr=indptr,
            indices=indices,
            weights=merged,
            x=check_features(x, n),
            y=checked_y,
            classes=names,
            name=name,
            duplicate_edges=duplicates,
            node_ids=node_ids,
        )
        warn_self_loops(name, graph.self_loops)
        return graph.with_splits(splits)

    @classmethod
    def from_relations(
        cls,
        relations: Mapping[str, Graph],
        y: Any = None,
        *,
        classes: Sequence[str] | None = None,
        task: str | None = None,
        name: str = "graph",
        node_ids: npt.NDArray[Any] | None = None,
        node_types: NodeTypes | None = None,
    ) -> Graph:
        """Build a graph whose edges have types, from the graph of each type; all are on the same nodes.

        An edge of several types is stored once, with the sum of its weights; an edge without a weight counts as 1.

        Examples
        --------
        >>> knows = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3)
        >>> paid = Graph.from_edge_index([[0, 0], [1, 2]], num_nodes=3)
        >>> graph = Graph.from_relations({"knows": knows, "paid": paid})
        >>> graph.stored_edges, graph.of_type("paid").neighbours(0).tolist()
        (3, [1, 2])
        """
        parts = list(relations.values())
        n = parts[0].n
        if any(part.n != n for part in parts):
            raise InputError(
                f"the graphs of all edge types need the same nodes, got {[part.n for part in parts]} nodes"
            )
        weight = None
        if any(part.weights is not None for part in parts):
            weight = np.concatenate([np.ones(p.stored_edges) if p.weights is None else p.weights for p in parts])
        source = np.concatenate([part._sources() for part in parts])
        rows, _ = rows_of_edges(source, np.concatenate([part.indices for part in parts]), weight, n)
        checked_y, names = check_labels(y, n, classes, name, task)
        return cls(
            *rows,
            y=checked_y,
            classes=names,
            name=name,
            duplicate_edges=sum(part.duplicate_edges for part in parts),
            node_ids=node_ids,
            relations=dict(relations),
            node_types=node_types,
        )

    def with_splits(self, splits: Sequence[Split]) -> Graph:
        """Return the graph with other splits, after checking them against the labels."""
        for number, split in enumerate(splits):
            check_split(split, f"{self.name}, split {number}", self.labels(), self.classes)
        return self._with(splits=tuple(splits))

    def with_features(self, x: Any) -> Graph:
        """Return the graph with other features, shape (n, d), after checking them; they are shared, not copied."""
        return self._with(x=check_features(x, self.n))

    def _with(self, **fields: Any) -> Graph:
        """Return a copy with other features or splits; the facts about the edges measured so far stay."""
        facts = {name: vars(self)[name] for name in _EDGE_FACTS if name in vars(self)}
        return replace(self, **fields, facts=facts)

    @classmethod
    def from_pyg(cls, data: Data, name: str = "graph") -> Graph:
        """Build a graph from a PyG ``Data``: edge_index, edge_weight, x, y and the three masks."""
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

    def to_pyg(self) -> Data:
        """Return a PyG ``Data`` with the same edges, features and labels, and masks of shape (n, splits)."""
        import torch
        from torch_geometric.data import Data

        edge_index = np.stack([self._sources(), self.indices.astype(np.int64)])
        data = Data(edge_index=torch.from_numpy(edge_index), num_nodes=self.n)
        if self.weights is not None:
            data.edge_weight = torch.from_numpy(self.weights.copy())
        if self.x is not None:
            data.x = torch.from_numpy(np.array(self.x.toarray() if sp.issparse(self.x) else self.x))
        if self.y is not None:
            data.y = torch.from_numpy(self.y.copy())
        for part in PARTS if self.splits else ():
            mask = np.zeros((self.n, len(self.splits)), dtype=bool)
            for column, split in enumerate(self.splits):
                mask[getattr(split, part), column] = True
            data[f"{part}_mask"] = torch.from_numpy(mask)
        return data

    @classmethod
    def from_scipy(cls, adjacency: Any, x: Any = None, y: Any = None, name: str = "graph") -> Graph:
        """Build a graph from a square SciPy sparse matrix; its values are the weights, unless all are 1."""
        if not sp.issparse(adjacency):
            raise InputError(f"adjacency must be a scipy sparse matrix, got {type(adjacency).__name__}")
        if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
            raise InputError(f"adjacency must be square, got shape {adjacency.shape}")
        coo = sp.coo_array(adjacency)
        weights = None if bool((coo.data == 1).all()) else coo.data
        return cls.from_edge_index((coo.row, coo.col), x=x, y=y, num_nodes=coo.shape[0], weights=weights, name=name)

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
        from gpatcher.graph.networkx import from_networkx

        return from_networkx(graph, label, features)

    def to_networkx(self) -> nx.Graph:
        """Return a NetworkX graph, directed if this one is, with the attributes ``label`` and ``weight``."""
        from gpatcher.graph.networkx import to_networkx

        return to_networkx(self)

    def __repr__(self) -> str:
        parts = [counted(self.n, "node"), counted(self.stored_edges, "stored edge")]
        if self.relations:
            parts.append(f"edge types {', '.join(self.relations)}")
        if self.num_features:
            parts.append(counted(self.num_features, "feature"))
        if self.num_classes:
            parts.append(f"{self.num_classes} classes")
        if self.is_regression:
            parts.append("numbers to predict")
        if self.splits:
            parts.append(counted(len(self.splits), "split"))
        return f"Graph({self.name!r}: {', '.join(parts)})"


def _feature_arrays(x: Any) -> list[Any]:
    """Return the arrays of dense or sparse features."""
    return [x.indptr, x.indices, x.data] if sp.issparse(x) else [x]
