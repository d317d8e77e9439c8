"""What a model sees of a node on its own: its features, optionally its row of the adjacency, as one table."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from gpatcher.graph import FloatArray, Graph, InputError

NORMS = ("none", "l1", "l2", "standard")
_csr: Any = torch.sparse_csr_tensor  # its stub knows one of its forms only
_SPARSE = 0.25  # features with a smaller share of non-zeros are worked with as a sparse matrix


class FeatureTable:
    """Rows of features, dense, memory-mapped or sparse, that can be multiplied by a weight.

    Parameters
    ----------
    matrix : shape (n, d); an array, a memory-mapped one or a scipy CSR array
    device : where products are made
    """

    def __init__(self, matrix: Any, device: torch.device | str = "cpu") -> None:
        self.shape: tuple[int, int] = matrix.shape
        self.device = torch.device(device)
        self._dense: Any = None
        self._sparse: Any = None
        self._tensor: Tensor | None = None
        if sp.issparse(matrix):
            self._sparse = sp.csr_array(matrix).astype(np.float32)
            self._sparse.sort_indices()
            self._whole = _SparseRows(self._sparse, self.device)
        elif isinstance(matrix, np.memmap):
            self._dense = matrix  # rows are read when they are asked for
        else:
            dense = np.asarray(matrix, dtype=np.float32)
            self._tensor = torch.from_numpy(dense if dense.flags.writeable else dense.copy()).to(self.device)

    def linear(self, weight: Tensor, dropout: float = 0.0, rows: Tensor | None = None) -> Tensor:
        """Return x[rows] · weight with entries of x dropped at random; shape (rows or n, h)."""
        if self._sparse is not None:
            table = self._whole if rows is None else _SparseRows(self._sparse[rows.cpu().numpy()], self.device)
            return table.linear(weight, dropout)
        if self._tensor is not None:
            x = self._tensor if rows is None else self._tensor[rows]
        else:
            part = self._dense if rows is None else self._dense[rows.cpu().numpy()]
            x = torch.from_numpy(np.array(part, dtype=np.float32)).to(self.device)
        return F.dropout(x, dropout) @ weight


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
    graph: Graph, normalise: str = "none", structure: bool = False, device: torch.device | str = "cpu"
) -> FeatureTable:
    """Build the table of features of a graph.

    Parameters
    ----------
    normalise : each row divided by its sum of sizes (``l1``) or length (``l2``), or brought to mean 0 and
        deviation 1 (``standard``, the LayerNorm of Algorithm 1 without its affine part), or left as it is
    structure : append the node's rows of the adjacency, outgoing and incoming (once where the graph is undirected):
        which nodes it is joined to becomes a feature, as in LINKX (Lim et al., 2021)
    """
    if normalise not in NORMS:
        raise InputError(f"there is no normalisation {normalise!r}; there are {', '.join(NORMS)}")
    x = graph.x
    if x is None and not structure:
        raise InputError(f"{graph.name} has no features; let the adjacency rows serve as such (structure=True)")
    if x is not None:
        x = _normalised(x, normalise)
    if not structure:
        return FeatureTable(x, device)
    rows = [graph.adjacency(np.float32)]
    if graph.is_directed:
        rows.append(sp.csr_array(rows[0].T))
    parts = rows if x is None else [sp.csr_array(x), *rows]
    return FeatureTable(sp.csr_array(sp.hstack(parts)), device)


def _normalised(x: Any, how: str) -> Any:
    if not sp.issparse(x) and not isinstance(x, np.memmap) and how != "standard":
        x = np.asarray(x, dtype=np.float32)
        if np.count_nonzero(x) < _SPARSE * x.size:
            x = sp.csr_array(x)
    if sp.issparse(x):
        x = x.astype(np.float32)
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
