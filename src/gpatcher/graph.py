"""Graph and Split: the one container of the project, and the only place that judges input.

Everything downstream may rely on what is checked here: ids lie in [0, n), rows are sorted and hold each
neighbour once, weights are positive and finite, features are finite, labels lie in [-1, C).
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gpatcher import kernels

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import Data

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.floating[Any]]
Features: TypeAlias = Any  # a dense or memory-mapped array, or a scipy CSR array; SciPy carries no types

_SHOWN = 5  # offending values spelt out in a message
_BLOCK_BYTES = 1 << 24  # features are scanned in blocks of this size, so a check needs no copy of them


class InputError(ValueError):
    """The input cannot be used; the message names the value, the place and the way out."""


class InputWarning(UserWarning):
    """The input can be used, but not quite as given; the message says what was done."""


def warn_input(message: str) -> None:
    """Warn about the input at the line of the caller outside this package."""
    # point at the caller's line, not at one of ours
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("gpatcher"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, InputWarning, stacklevel=level)


def some(values: Iterable[Any]) -> str:
    """Spell out the first few values for a message: ``3, 7, 9, 12, 15, ... (40 in all)``."""
    values = list(values)
    text = ", ".join(str(value) for value in values[:_SHOWN])
    return text if len(values) <= _SHOWN else f"{text}, ... ({len(values)} in all)"


def counted(number: int, one: str, many: str | None = None) -> str:
    """Spell out a number with its noun.

    Examples
    --------
    >>> counted(1, "column"), counted(1200, "column"), counted(2, "class", "classes")
    ('1 column', '1,200 columns', '2 classes')
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def read_description(path: Path, kind: str, version: int, what: str) -> dict[str, Any]:
    """Read the JSON file that describes a folder; ``what`` the folder holds is for messages on other kinds of files."""
    try:
        about: dict[str, Any] = json.loads(path.read_text())
        known = about["format"] == kind
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise InputError(f"{path} is not the description of a {what}; choose another folder")
    if about.get("version") != version:
        raise InputError(
            f"the {what} in {path.parent} has version {about.get('version')}, this gpatcher reads {version}; "
            "make it anew"
        )
    return about


def _as_numpy(values: Any, what: str) -> npt.NDArray[Any]:
    """Turn a list, array or tensor into an array without a copy where there is a buffer to share."""
    if hasattr(values, "detach"):  # a torch tensor, recognised without importing torch
        values = values.detach().cpu()
        if getattr(values, "is_sparse", False):
            raise InputError(f"{what} is a sparse tensor; pass a scipy.sparse matrix or a dense one")
        try:
            return np.asarray(values.numpy())
        except TypeError:
            raise InputError(f"{what} has dtype {values.dtype}, which NumPy lacks; convert with .float()") from None
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{what} is a masked array; fill in what is masked, with .filled(...)")
    try:
        return np.asanyarray(values)
    except ValueError as error:
        raise InputError(f"{what} is ragged: all rows must have the same length ({error})") from None


def _integers(values: Any, what: str) -> IntArray:
    """Return ``values`` as an integer array; floats, text and ragged input are refused."""
    array = _as_numpy(values, what)
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        hint = ""
        if array.dtype.kind == "f" and array.size and bool(np.isnan(array).any()):
            hint = f"; {int(np.isnan(array).sum())} of them are NaN"
        raise InputError(f"{what} must be integers, got dtype {array.dtype}{hint}; convert with .astype('int64')")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


# ---------------------------------------------------------------------------------------------- Split


@dataclass(frozen=True, eq=False)
class Split:
    """Which nodes are for training, validation and test: three disjoint sets of node ids.

    Each part may be given as ids or as a boolean mask over the nodes; it is kept as sorted ids.

    Examples
    --------
    >>> Split(train=[0, 2], val=[1], test=[3, 4]).sizes
    (2, 1, 2)
    """

    train: IntArray
    val: IntArray
    test: IntArray

    def __post_init__(self) -> None:
        given = {part: _as_numpy(getattr(self, part), part) for part in ("train", "val", "test")}
        lengths = {part: array.size for part, array in given.items() if array.dtype.kind == "b"}
        if len(set(lengths.values())) > 1:
            raise InputError(f"the masks must have one length, that of the graph, got {lengths}")
        for part in given:
            object.__setattr__(self, part, self._ids(getattr(self, part), part))
        for a, b in (("train", "val"), ("train", "test"), ("val", "test")):
            both = np.intersect1d(getattr(self, a), getattr(self, b), assume_unique=True)
            if both.size:
                raise InputError(
                    f"{counted(both.size, 'node is', 'nodes are')} in both {a} and {b}: "
                    f"{some(both)}; each node belongs to one part"
                )
        if not self.train.size:
            raise InputError("the split has no training node; put labelled nodes into train")

    @staticmethod
    def _ids(values: Any, part: str) -> IntArray:
        array = _as_numpy(values, part)
        if array.ndim != 1:
            raise InputError(f"{part} must be one-dimensional, got shape {array.shape}; pass one Split per column")
        if array.dtype.kind == "b":
            array = np.flatnonzero(array)
        array = np.sort(_integers(array, part)).astype(np.int64)
        repeated = np.unique(array[1:][array[1:] == array[:-1]])
        if repeated.size:
            raise InputError(f"{part} lists {counted(repeated.size, 'node')} more than once: {some(repeated)}")
        if array.size and array[0] < 0:
            raise InputError(f"{part} holds the negative node id {array[0]}")
        array.flags.writeable = False
        return array

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Number of nodes in train, validation and test."""
        return self.train.size, self.val.size, self.test.size

    @cached_property
    def hash(self) -> str:
        """Sixteen hexadecimal digits that tell this split from any other."""
        digest = hashlib.sha256()
        for part in (self.train, self.val, self.test):
            digest.update(np.int64(part.size).tobytes())
            digest.update(part.astype("<i8").tobytes())
        return digest.hexdigest()[:16]


# ---------------------------------------------------------------------------------------------- Graph


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
    node_ids: npt.NDArray[Any] | None = field(default=None, repr=False)

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
        return int(kernels.count_self_loops(self.indptr, self.indices))

    @cached_property
    def one_way_edges(self) -> int:
        """Number of edges without an equal edge in the opposite direction."""
        return self._count_one_way(self.stored_edges)

    def _count_one_way(self, most: int) -> int:
        return int(kernels.count_one_way(self.indptr, self.indices, self.weights, self.indptr[:-1].copy(), most))

    @cached_property
    def is_directed(self) -> bool:
        """Whether some edge has no equal edge in the opposite direction."""
        known: int | None = self.__dict__.get("one_way_edges")
        return (self._count_one_way(1) if known is None else known) > 0

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
            step = _BLOCK_BYTES // 8
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
            step = max(1, _BLOCK_BYTES // max(1, array[:1].nbytes))
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
        kernels.count_reversed(self.indptr, self.indices, degree)
        indptr = np.concatenate([[0], np.cumsum(degree)])
        indices, weights = self._entries(int(indptr[-1]), self.indices.dtype, self.weights)
        kernels.place_both_ways(self.indptr, self.indices, self.weights, indptr[:-1].copy(), indices, weights)
        indptr, indices, weights, _ = _sort_and_merge(indptr, indices, weights, add=False)
        _freeze(indptr, indices, weights)
        both = replace(self, indptr=indptr, indices=indices, weights=weights)
        # known without looking: nothing is left one-way
        both.__dict__["one_way_edges"] = 0
        return both

    def degrees(self) -> FloatArray:
        """Return the sum of the weights at each node of the undirected graph; shape (n,)."""
        both = self.undirected()
        if both.weights is None:
            return np.diff(both.indptr).astype(np.float64)
        degree = np.zeros(self.n)
        kernels.sum_rows(both.indptr, both.weights, degree)
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
            kernels.clear_diagonal(matrix.indptr, matrix.indices, matrix.data)
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
        kernels.scale_both_sides(matrix.indptr, matrix.indices, matrix.data, scale)
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
        source, target = _edge_rows(edge_index)
        n = _node_count(num_nodes, x, y, source, target)
        for row, what in ((source, "source"), (target, "target")):
            _check_ids(row, what, n)
        weight = _check_weights(weights, source.size)

        degree = np.zeros(n + 1, np.int64)
        kernels.count_edges(source, degree[1:])
        indptr: IntArray = np.cumsum(degree)
        indices, kept = cls._entries(source.size, np.int32 if n <= 2**31 - 1 else np.int64, weight)
        kernels.place_edges(source, target, weight, indptr[:-1].copy(), indices, kept)
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
            self._check_split(split, number)
        return self._with(splits=tuple(splits))

    def with_features(self, x: Any) -> Graph:
        """Return the graph with these features, shape (n, d), checked against it; shared, not copied."""
        return self._with(x=check_features(x, self.n))

    def _with(self, **parts: Any) -> Graph:
        graph = replace(self, **parts)
        # what is known of the edges stays known: to look at them again may take long
        known = ("fingerprint", "is_directed", "one_way_edges", "self_loops")
        graph.__dict__.update({name: self.__dict__[name] for name in known if name in self.__dict__})
        return graph

    def _check_split(self, split: Split, number: int) -> None:
        where = f"{self.name}, split {number}"
        for part in ("train", "val", "test"):
            ids = getattr(split, part)
            if ids.size and ids[-1] >= self.n:
                beyond = ids[ids >= self.n]
                raise InputError(
                    f"{where}: {part} names {counted(beyond.size, 'node')} not there: {some(beyond)}; "
                    f"the graph has nodes 0 to {self.n - 1}"
                )
            unknown = ids[self.labels()[ids] < 0]
            if unknown.size and part == "train":
                raise InputError(
                    f"{where}: {counted(unknown.size, 'training node has', 'training nodes have')} no label (-1): "
                    f"{some(unknown)}; take them out of train"
                )
            if unknown.size:
                warn_input(
                    f"{where}: {counted(unknown.size, 'node')} of {part} without a label cannot be "
                    f"scored: {some(unknown)}"
                )
        present = np.bincount(self.labels()[split.train], minlength=self.num_classes) > 0
        elsewhere = self.labels()[np.concatenate([split.val, split.test])]
        needed = np.bincount(elsewhere[elsewhere >= 0], minlength=self.num_classes) > 0
        missing = [self.classes[c] for c in np.flatnonzero(needed & ~present)]
        if missing:
            warn_input(
                f"{where}: {len(missing)} of {self.num_classes} classes have no training node and will never be "
                f"predicted: {some(missing)}; a stratified split avoids this"
            )

    # ---- from and to other libraries

    @classmethod
    def from_pyg(cls, data: Data, name: str = "graph") -> Graph:
        """Build a graph from a torch_geometric ``Data``: edge_index, edge_weight, x, y and the three masks."""
        if data.edge_index is None:
            raise InputError("the Data object has no edge_index; an adj_t or a HeteroData is not read")
        y = data.y
        if y is not None and y.dim() == 2 and y.size(1) == 1:
            y = y.view(-1)
        # only what was said: PyG would guess num_nodes, with a warning of its own
        n = data.num_nodes if "num_nodes" in data or data.x is not None else None
        graph = cls.from_edge_index(data.edge_index, x=data.x, y=y, num_nodes=n, weights=data.edge_weight, name=name)
        masks = [data.get(f"{part}_mask") for part in ("train", "val", "test")]
        if masks[0] is None:
            return graph
        if any(mask is None for mask in masks):
            raise InputError("the Data object has a train_mask but not all of train_mask, val_mask and test_mask")
        columns = [mask.view(mask.size(0), -1).numpy().T for mask in masks]
        return graph.with_splits([Split(*parts) for parts in zip(*columns, strict=True)])

    def to_pyg(self) -> Data:
        """Return a torch_geometric ``Data`` with the same edges, features, labels and masks (n, splits)."""
        import torch
        from torch_geometric.data import Data

        source = np.repeat(np.arange(self.n), np.diff(self.indptr))
        data = Data(edge_index=torch.from_numpy(np.stack([source, self.indices.astype(np.int64)])))
        data.num_nodes = self.n
        if self.weights is not None:
            data.edge_weight = torch.from_numpy(self.weights.copy())
        if self.x is not None:
            x = self.x.toarray() if sp.issparse(self.x) else self.x
            data.x = torch.from_numpy(np.array(x))
        if self.y is not None:
            data.y = torch.from_numpy(self.y.copy())
        for part in ("train", "val", "test") if self.splits else ():
            mask = np.zeros((self.n, len(self.splits)), dtype=bool)
            for column, split in enumerate(self.splits):
                mask[getattr(split, part), column] = True
            data[f"{part}_mask"] = torch.from_numpy(mask)
        return data

    @classmethod
    def from_scipy(cls, adjacency: Any, x: Any = None, y: Any = None, name: str = "graph") -> Graph:
        """Build a graph from a square scipy sparse matrix; its values are the weights, all ones mean none."""
        if not sp.issparse(adjacency):
            raise InputError(f"adjacency must be a scipy sparse matrix, got {type(adjacency).__name__}")
        if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
            raise InputError(f"adjacency must be square, got shape {adjacency.shape}")
        coo = sp.coo_array(adjacency)
        weights = None if bool((coo.data == 1).all()) else coo.data
        return cls.from_edge_index((coo.row, coo.col), x=x, y=y, num_nodes=coo.shape[0], weights=weights, name=name)

    def to_scipy(self) -> sp.csr_array:
        """Return the adjacency as a scipy CSR array; the same as `adjacency`."""
        return self.adjacency()

    @classmethod
    def from_networkx(cls, graph: nx.Graph, label: str | None = None, features: Sequence[str] = ()) -> Graph:
        """Build a graph from networkx, its nodes numbered in their order and their names in ``node_ids``.

        Parameters
        ----------
        graph : a networkx graph, directed or not; the edge attribute ``weight`` is read where all edges have it
        label : node attribute with the class; a node without it is unlabelled
        features : node attributes with numbers, one column each
        """
        nodes = list(graph.nodes)
        number = {node: i for i, node in enumerate(nodes)}
        edges = [(number[a], number[b], d.get("weight")) for a, b, d in graph.edges(data=True)]
        if not graph.is_directed():
            edges += [(b, a, w) for a, b, w in edges if a != b]
        columns = list(zip(*edges, strict=True)) or [(), (), ()]
        weighted = bool(edges) and all(w is not None for w in columns[2])
        x = None
        if features:
            for node, values in graph.nodes(data=True):
                absent = [f for f in features if f not in values]
                if absent:
                    raise InputError(f"node {node!r} has no attribute {absent[0]!r}; give it one or leave it out")
            x = np.array([[values[f] for f in features] for _, values in graph.nodes(data=True)])
        y, classes = None, None
        if label is not None:
            named = [values.get(label) for _, values in graph.nodes(data=True)]
            y, classes = encode_labels(named)
        ids = np.empty(len(nodes), dtype=object)
        ids[:] = nodes
        return cls.from_edge_index(
            (np.array(columns[0], np.int64), np.array(columns[1], np.int64)),
            x=x,
            y=y,
            num_nodes=len(nodes),
            weights=columns[2] if weighted else None,
            classes=classes,
            name=graph.name or "graph",
            node_ids=ids,
        )

    def to_networkx(self) -> nx.Graph:
        """Return a networkx graph, directed where this one is, with ``label`` and ``weight`` attributes."""
        import networkx as nx

        out: nx.Graph = nx.DiGraph() if self.is_directed else nx.Graph()
        names = list(range(self.n)) if self.node_ids is None else list(self.node_ids)
        for v, node in enumerate(names):
            labelled = self.y is not None and self.y[v] >= 0
            out.add_node(node, **({"label": self.classes[self.y[v]]} if labelled and self.y is not None else {}))
        source = np.repeat(np.arange(self.n), np.diff(self.indptr))
        for e, (a, b) in enumerate(zip(source, self.indices, strict=True)):
            extra = {} if self.weights is None else {"weight": float(self.weights[e])}
            out.add_edge(names[a], names[b], **extra)
        return out

    def __repr__(self) -> str:
        parts = [counted(self.n, "node"), counted(self.stored_edges, "stored edge")]
        if self.num_features:
            parts.append(counted(self.num_features, "feature"))
        if self.num_classes:
            parts.append(f"{self.num_classes} classes")
        if self.splits:
            parts.append(counted(len(self.splits), "split"))
        return f"Graph({self.name!r}: {', '.join(parts)})"


# ------------------------------------------------------------------------------------- checks, one each


def _sparse_bytes(x: Any) -> int:
    return int(x.data.nbytes + x.indices.nbytes + x.indptr.nbytes)


def _freeze(*arrays: npt.NDArray[Any] | None) -> None:
    for array in arrays:
        if array is not None:
            array.flags.writeable = False


def _sort_and_merge(
    indptr: IntArray, indices: IntArray, weights: FloatArray | None, *, add: bool
) -> tuple[IntArray, IntArray, FloatArray | None, int]:
    kernels.sort_rows(indptr, indices, weights)
    merged = int(kernels.merge_rows(indptr, indices, weights, add))
    if merged:
        # shrink in place: a copy would need the memory of both
        indices.resize(indices.size - merged, refcheck=False)
        if weights is not None:
            weights.resize(weights.size - merged, refcheck=False)
    return indptr, indices, weights, merged


def _edge_rows(edge_index: Any) -> tuple[IntArray, IntArray]:
    if isinstance(edge_index, tuple) and len(edge_index) == 2:
        rows = tuple(_integers(row, f"edge_index[{i}]") for i, row in enumerate(edge_index))
        if rows[0].shape != rows[1].shape or rows[0].ndim != 1:
            raise InputError(
                f"edge_index must hold as many targets as sources, got shapes {rows[0].shape} and {rows[1].shape}"
            )
        return rows[0], rows[1]
    array = _integers(edge_index, "edge_index")
    if array.ndim != 2 or array.shape[0] != 2:
        turned = "; it looks transposed, pass edge_index.T" if array.ndim == 2 and array.shape[1] == 2 else ""
        raise InputError(f"edge_index must have shape (2, m), got {array.shape}{turned}")
    return array[0], array[1]


def _rows_of(values: Any) -> int | None:
    if values is None:
        return None
    shape = getattr(values, "shape", None)
    if shape is None:
        return len(values) if hasattr(values, "__len__") else None
    return int(shape[0]) if len(shape) else None


def _node_count(num_nodes: int | None, x: Any, y: Any, source: IntArray, target: IntArray) -> int:
    if num_nodes is None:
        num_nodes = _rows_of(x)
    if num_nodes is None:
        num_nodes = _rows_of(y)
    if num_nodes is None:
        num_nodes = max(int(row.max()) + 1 if row.size else 0 for row in (source, target))
    if num_nodes != int(num_nodes):
        raise InputError(f"num_nodes must be a whole number, got {num_nodes}")
    if num_nodes < 1:
        raise InputError(f"the graph is empty: num_nodes must be at least 1, got {num_nodes}")
    return int(num_nodes)


def _check_ids(ids: IntArray, what: str, n: int) -> None:
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= n):
        wrong = np.flatnonzero((ids < 0) | (ids >= n))
        raise InputError(
            f"{counted(wrong.size, 'edge has', 'edges have')} a {what} outside 0 to {n - 1}: "
            f"{some(ids[wrong[:_SHOWN]])}, "
            f"the first at edge {wrong[0]}; ids count from 0, and num_nodes={n}"
        )


def _check_weights(weights: Any, edges: int) -> FloatArray | None:
    if weights is None:
        return None
    array = _as_numpy(weights, "weights")
    if array.dtype.kind not in "iuf":
        raise InputError(f"weights must be numbers, got dtype {array.dtype}")
    if array.shape != (edges,):
        raise InputError(f"weights must have shape ({edges},), one per edge, got {array.shape}")
    # single precision stays as it is, everything else is worked with in double
    array = array.astype(np.float32 if array.dtype == np.float32 else np.float64, copy=False)
    for wrong, kind, way in (
        (~np.isfinite(array), "not finite", "replace or remove them"),
        (
            array < 0,
            "negative",
            "the normalised adjacency needs positive weights; shift them or drop these edges",
        ),
        (array == 0, "zero", "an edge of weight 0 is no edge; remove them"),
    ):
        at = np.flatnonzero(wrong)
        if at.size:
            raise InputError(
                f"{counted(at.size, 'weight is', 'weights are')} {kind}: {array[at[0]]} at edge {at[0]}; {way}"
            )
    return array


def check_features(x: Any, n: int) -> Features | None:
    """Return features as a 2-D array or scipy CSR, shared where possible; refuse what cannot be learned from."""
    if x is None:
        return None
    x = sp.csr_array(x) if sp.issparse(x) else _as_numpy(x, "x")
    if x.ndim != 2:
        hint = "; pass x.reshape(-1, 1) for a single feature" if x.ndim == 1 else ""
        raise InputError(f"x must have shape (n, d), got {x.shape}{hint}")
    if x.shape[0] != n:
        raise InputError(f"x has {x.shape[0]} rows, but the graph has {n} nodes; pass one row per node")
    if x.dtype.kind not in "fiub":
        raise InputError(f"x must hold numbers, got dtype {x.dtype}; encode text and categories first")
    if x.dtype.kind == "f":
        _check_finite(x)
    return x


def _check_finite(x: Any) -> None:
    values, width = (x.data, 1) if sp.issparse(x) else (x, max(1, x.shape[1]))
    step = max(1, _BLOCK_BYTES // (width * x.dtype.itemsize))
    count, first = 0, None
    for start in range(0, values.shape[0], step):
        finite = np.isfinite(values[start : start + step])
        if finite.all():
            continue
        if first is None:
            first = np.argwhere(~finite)[0]
            first[0] += start
        count += int(np.count_nonzero(~finite))
    if first is None:
        return
    if sp.issparse(x):
        row, column = int(np.searchsorted(x.indptr, first[0], side="right")) - 1, int(x.indices[first[0]])
        value = values[first[0]]
    else:
        row, column = int(first[0]), int(first[1])
        value = values[row, column]
    raise InputError(
        f"x holds {counted(count, 'value that is', 'values that are')} not finite, the first "
        f"{value} at row {row}, column {column}; "
        "fill them in (a mean, a 0 and a column that says so) or remove those nodes"
    )


def encode_labels(values: Sequence[Any]) -> tuple[IntArray, tuple[str, ...]]:
    """Return the number of each value among the sorted classes, -1 for None and NaN, and the names of the classes.

    Examples
    --------
    >>> encode_labels(["cat", None, "ant"])
    (array([ 1, -1,  0]), ('ant', 'cat'))
    """
    known = [v is not None and v == v for v in values]  # NaN is the one value unlike itself
    kinds = {v for v, there in zip(values, known, strict=True) if there}
    try:
        names = sorted(kinds)
    except TypeError:
        names = sorted(kinds, key=str)
    number = {name: i for i, name in enumerate(names)}
    y = np.array([number[v] if there else -1 for v, there in zip(values, known, strict=True)], dtype=np.int64)
    return y, tuple(str(name) for name in names)


def check_labels(y: Any, n: int, classes: Sequence[str] | None, name: str) -> tuple[IntArray | None, tuple[str, ...]]:
    """Return labels as int64 with -1 for unknown, and the names of the classes."""
    if y is None:
        return None, ()
    array = _as_numpy(y, "y")
    if array.dtype.kind == "b":
        array = array.astype(np.int64)
    array = _integers(array, "y (labels)").astype(np.int64)  # a copy: the graph's own, not to be written
    if array.shape != (n,):
        raise InputError(f"y must have shape ({n},), one label per node, got {array.shape}")
    if int(array.min()) < -1:
        low = np.flatnonzero(array < -1)
        raise InputError(
            f"{counted(low.size, 'label is', 'labels are')} below -1: {array[low[0]]} at node "
            f"{low[0]}; classes count from 0, -1 means unknown"
        )
    top = int(array.max())
    if classes is not None and top >= len(classes):
        raise InputError(f"label {top} has no name: only {len(classes)} classes are named")
    if classes is None and top >= n:
        raise InputError(f"label {top} in a graph of {n} nodes; number the classes 0, 1, 2, ...")
    names = tuple(str(c) for c in classes) if classes is not None else tuple(str(c) for c in range(top + 1))
    if top < 0:
        warn_input(f"{name}: no node has a label, so nothing about classes can be said or learned")
        return array, names
    empty = np.flatnonzero(np.bincount(array[array >= 0], minlength=len(names)) == 0)
    if empty.size:
        warn_input(f"{name}: {empty.size} of {len(names)} classes have no node: {some(names[c] for c in empty)}")
    return array, names
