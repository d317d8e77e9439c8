"""What a model sees of a node on its own: its features, optionally its row of the adjacency, as one table."""

from __future__ import annotations

import mmap
import warnings
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from gpatcher.arrays import FloatArray
from gpatcher.errors import InputError
from gpatcher.graph.graph import Graph

NORMS = ("none", "l1", "l2", "standard")
_csr: Any = torch.sparse_csr_tensor  # its stub knows one of its forms only
_SPARSE = 0.25  # features with a smaller share of non-zeros are worked with as a sparse matrix


class FeatureTable:
    """Rows of features, dense, memory-mapped or sparse, that can be multiplied by a weight.

    Parameters
    ----------
    matrix : shape (n, d); an array, a memory-mapped one or a scipy CSR array
    device : where products are made
    normalise : how memory-mapped rows are normalised when they are read, see `node_features`
    """

    def __init__(self, matrix: Any, device: torch.device | str = "cpu", normalise: str = "none") -> None:
        self.shape: tuple[int, int] = matrix.shape
        self.device = torch.device(device)
        self._mapped: Any = None
        self._sparse: Any = None
        self._tensor: Tensor | None = None
        self._normalise = normalise
        if isinstance(matrix, np.memmap):
            self._mapped = matrix  # rows are read when they are asked for
        elif sp.issparse(matrix):
            self._sparse = sp.csr_array(matrix).astype(np.float32, copy=False)
            if not self._sparse.has_sorted_indices:
                self._sparse = self._sparse.sorted_indices()
        else:
            with warnings.catch_warnings():
                # a graph's own arrays cannot be written to, and nothing here does
                warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
                self._tensor = torch.from_numpy(np.asarray(matrix, dtype=np.float32)).to(self.device)

    def __reduce__(self) -> tuple[Any, ...]:
        # to other processes goes the place of what is mapped, and arrays that they can share
        matrix = self._sparse if self._tensor is None else self._tensor.numpy(force=True)
        if self._mapped is not None:
            matrix = self._mapped
            if type(matrix.base) is mmap.mmap:  # the file itself, no part of it
                place = (str(matrix.filename), matrix.dtype, "r", matrix.offset, matrix.shape)
                return _open_mapped, (place, str(self.device), self._normalise)
        return FeatureTable, (matrix, str(self.device), self._normalise)

    @property
    def mapped(self) -> bool:
        """Whether the rows are in a file, to be read a few at a time."""
        return self._mapped is not None

    @property
    def width(self) -> int:
        """Numbers that an average row takes in memory: d, or the non-zeros of a sparse one."""
        return self.shape[1] if self._sparse is None else -(-self._sparse.nnz // max(1, self.shape[0]))

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that are held in memory; those in a file count for nothing."""
        if self._tensor is not None:
            return self._tensor.nbytes
        return 0 if self._sparse is None else int(self._sparse.nnz * 8 + self._sparse.indptr.nbytes)

    def take(self, rows: Tensor) -> FeatureTable:
        """Return a table of these rows alone, in memory."""
        if self._tensor is not None:
            part = FeatureTable.__new__(FeatureTable)
            part.__dict__ |= self.__dict__ | {"_tensor": self._tensor[rows], "shape": (len(rows), self.shape[1])}
            return part
        ids = rows.cpu().numpy()
        if self._sparse is not None:
            part = FeatureTable(self._sparse[ids], self.device)
            part._whole  # noqa: B018  # made here, so that a thread that reads ahead does this work too
            return part
        # take, unlike brackets, lets other threads run while pages are read
        read = np.asarray(np.take(self._mapped, ids, axis=0), dtype=np.float32)
        return FeatureTable(_normalised(read, self._normalise, dense=True), self.device)

    def linear(self, weight: Tensor, dropout: float = 0.0, rows: Tensor | None = None) -> Tensor:
        """Return x[rows] · weight with entries of x dropped at random; shape (rows or n, h)."""
        if rows is not None or self.mapped:
            part = self.take(torch.arange(self.shape[0]) if rows is None else rows)
            return part.linear(weight, dropout)
        if self._tensor is not None:
            return F.dropout(self._tensor, dropout) @ weight
        return self._whole.linear(weight, dropout)

    def rows(self, ids: Tensor) -> Tensor:
        """Return rows of the table as they are, dense; shape (len(ids), d)."""
        part = self.take(ids)
        return torch.from_numpy(part._sparse.toarray()).to(self.device) if part._tensor is None else part._tensor

    @cached_property
    def _whole(self) -> _SparseRows:
        return _SparseRows(self._sparse, self.device)


def _open_mapped(place: tuple[Any, ...], device: str, normalise: str) -> FeatureTable:
    return FeatureTable(np.memmap(*place), device, normalise)


class _SparseRows:
    """A constant sparse matrix and its transpose, so that the gradient of S · w is one more sparse product."""

    def __init__(self, matrix: Any, device: torch.device) -> None:
        places = sp.csr_array(
            (np.arange(matrix.nnz, dtype=np.int64), matrix.indices, matrix.indptr), shape=matrix.shape
        )
        turned = sp.csr_array(places.T)
        self.shape = matrix.shape
        self.values = torch.from_numpy(matrix.data).to(device)
        self._turn = torch.from_numpy(turned.data).to(device)
        self._forward = [torch.from_numpy(part.astype(np.int64)).to(device) for part in (matrix.indptr, matrix.indices)]
        self._backward = [
            torch.from_numpy(part.astype(np.int64)).to(device) for part in (turned.indptr, turned.indices)
        ]

    def linear(self, weight: Tensor, dropout: float) -> Tensor:
        values = F.dropout(self.values, dropout) if dropout else self.values
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            there = _csr(*self._forward, values, self.shape, check_invariants=False)
            back = _csr(*self._backward, values[self._turn], self.shape[::-1], check_invariants=False)
        product: Tensor = _Product.apply(weight, there, back)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, there: Tensor, back: Tensor) -> Tensor:
        ctx.back = back
        return there @ weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back @ grad, None, None


def node_features(
    graph: Graph,
    normalise: str = "none",
    structure: bool = False,
    mass: bool = False,
    device: torch.device | str = "cpu",
) -> FeatureTable:
    """Build the table of features of a graph.

    Parameters
    ----------
    normalise : each row divided by its sum of sizes (``l1``) or length (``l2``), or brought to mean 0 and
        deviation 1 (``standard``, the LayerNorm of Algorithm 1 without its affine part), or left as it is
    structure : append the node's rows of the adjacency, outgoing and incoming (once where the graph is undirected):
        which nodes it is joined to becomes a feature, as in LINKX (Lim et al., 2021)
    mass : append log(1 + Σ|x|) of each row: how much a node has of everything, which normalisation takes away and
        dropout of the input blurs
    """
    if normalise not in NORMS:
        raise InputError(f"there is no normalisation {normalise!r}; there are {', '.join(NORMS)}")
    x = graph.x
    if x is None and not structure:
        raise InputError(
            f"{graph.name} has no features; let the adjacency rows serve as such (structure=True, --structure)"
        )
    if isinstance(x, np.memmap) and not structure:
        if mass:
            raise InputError("mass would copy memory-mapped features whole; leave it out, or pass them in memory")
        return FeatureTable(x, device, normalise)
    parts = [] if x is None else [own_rows(x, normalise, mass)]
    if structure:
        rows = graph.adjacency(np.float32)
        parts += [rows, sp.csr_array(rows.T)] if graph.is_directed else [rows]
    return FeatureTable(side_by_side(parts), device)


def own_rows(x: Any, normalise: str, mass: bool) -> Any:
    """Return what `node_features` makes of the features alone, shape (n, d) or, with ``mass``, (n, d + 1)."""
    rows = _normalised(x, normalise)
    if not mass:
        return rows
    total = np.asarray(abs(x).sum(axis=1), dtype=np.float32).reshape(-1, 1)
    return side_by_side([rows, np.log1p(total)])


def side_by_side(parts: list[Any]) -> Any:
    """Return the columns of all parts in one matrix, sparse where any of them is."""
    if len(parts) == 1:
        return parts[0]
    if any(sp.issparse(part) for part in parts):
        return sp.csr_array(sp.hstack([sp.csr_array(part) for part in parts]))
    return np.hstack(parts)


def _normalised(x: Any, how: str, dense: bool = False) -> Any:
    """Return the rows normalised; as a sparse matrix where most of it is 0, unless ``dense`` is asked for."""
    if not sp.issparse(x) and not dense and how != "standard":
        x = np.asarray(x, dtype=np.float32)
        if np.count_nonzero(x) < _SPARSE * x.size:
            x = sp.csr_array(x)
    if sp.issparse(x):
        x = x.astype(np.float32, copy=False)
    if how == "none":
        return x
    if how == "standard":
        x = x.toarray() if sp.issparse(x) else np.asarray(x, dtype=np.float32)
        deviation = x.std(axis=1, keepdims=True)
        return (x - x.mean(axis=1, keepdims=True)) / np.where(deviation > 0, deviation, 1.0)
    sizes = abs(x) if how == "l1" else x.multiply(x) if sp.issparse(x) else x * x
    total = np.asarray(sizes.sum(axis=1), dtype=np.float32).ravel()
    total = total if how == "l1" else np.sqrt(total)
    scale = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    return sp.csr_array(sp.diags_array(scale) @ x) if sp.issparse(x) else x * scale[:, None]


def with_structure(graph: Graph, coordinates: int = 8) -> Graph:
    """Return the graph with features made of its edges alone, where it has none.

    Per node: the logarithms of degree and PageRank, standardised, and coordinates from the leading singular vectors of
    Ã, times √n. These are eigenvectors with λ near 1 (which part of the graph) and near -1 (which side of a bipartite
    one).

    Parameters
    ----------
    coordinates : how many singular vectors

    Examples
    --------
    >>> with_structure(Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]), coordinates=1).x.shape
    (3, 3)
    """
    from sklearn.utils.extmath import randomized_svd

    logs = np.stack([np.log1p(graph.degrees()), np.log(graph.n * pagerank(graph))], axis=1)
    deviation = logs.std(axis=0)
    logs = (logs - logs.mean(axis=0)) / np.where(deviation > 1e-9, deviation, 1.0)
    count = min(coordinates, graph.n)
    vectors = randomized_svd(sp.csr_matrix(graph.normalised()), count, n_iter=8, random_state=0)[0]
    return replace(graph, x=np.hstack([logs, vectors * np.sqrt(graph.n)]).astype(np.float32))


def pagerank(graph: Graph, damping: float = 0.85, steps: int = 64) -> FloatArray:
    """Return the PageRank of each node of the graph as stored, r = (1 - d) / n + d Pᵀ r; shape (n,), sum 1."""
    adjacency = graph.adjacency()
    out = np.asarray(adjacency.sum(axis=1))
    share = np.divide(1.0, out, out=np.zeros(graph.n), where=out > 0)
    back = sp.csr_array(adjacency.T)
    rank = np.full(graph.n, 1 / graph.n)
    for _ in range(steps):
        # what nodes without an edge would pass on is spread over all
        rank = (1 - damping + damping * rank[out == 0].sum()) / graph.n + damping * (back @ (rank * share))
    return rank
