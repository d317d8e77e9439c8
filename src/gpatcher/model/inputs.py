"""Input features of the models: features of the nodes and, optionally, adjacency rows, as one table."""

from __future__ import annotations

import mmap
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError, check_choice
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes, stack_rows
from gpatcher.model.dropout import dropout
from gpatcher.model.structure import STRUCTURE, structure_columns, unseen_structure

NORMALISATIONS = ("none", "l1", "l2", "standard")
_SPARSE = 0.25  # features with a smaller fraction of non-zeros are kept as a sparse matrix
_SMALL_BYTES = 1 << 26  # memory-mapped features up to this size may be copied
_KEPT_BYTES = 1 << 26  # sparse rows up to this size are kept, see `FeatureTable.take`


@dataclass(frozen=True)
class FeatureConfig:
    """Input features of a node.

    Parameters
    ----------
    normalise : {"none", "l1", "l2", "standard"}
        Whether each row is divided by its L1 or L2 norm, or standardised to mean 0 and standard deviation 1
        (``standard``, the LayerNorm of Algorithm 1 without its affine part), or left unchanged.
    adjacency_features : bool
        Append the node's adjacency rows, outgoing and incoming (one row if the graph is undirected), as in LINKX (Lim
        et al., 2021).
    log_l1_norm : bool
        Append log(1 + ‖x‖₁) of each row, which normalisation removes and input dropout perturbs.
    structure : tuple of str
        Append columns computed from the edges, some of `STRUCTURE`: logarithms of the degrees (``degree``, out and in
        if the graph is directed) and of PageRank (``pagerank``), the clustering coefficient (``clustering``), eight
        singular vectors of Ã (``spectral``). PageRank and singular vectors are not defined for unseen nodes.
    """

    normalise: str = "none"
    adjacency_features: bool = False
    log_l1_norm: bool = False
    structure: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "structure", tuple(self.structure))
        unknown = [name for name in self.structure if name not in STRUCTURE]
        if unknown:
            raise InputError(f"structure must be some of {', '.join(STRUCTURE)}, got {', '.join(unknown)}")
        check_choice("normalise", self.normalise, NORMALISATIONS)


# ------------------------------------------------------------------------------------------------ the table


class FeatureTable:
    """A feature matrix, dense, memory-mapped or sparse, that can be multiplied by a weight matrix.

    Parameters
    ----------
    matrix : array, memmap or scipy CSR array, shape (n, d)
    device : torch.device or str
        Device of the products.
    normalise : str
        How memory-mapped rows are normalised when they are read, see `FeatureConfig`.
    """

    def __init__(self, matrix: Any, device: torch.device | str = "cpu", normalise: str = "none") -> None:
        self.shape: tuple[int, int] = (int(matrix.shape[0]), int(matrix.shape[1]))
        self.device = torch.device(device)
        self._mapped: Any = None
        self._sparse: Any = None
        self._tensor: Tensor | None = None
        self._normalise = normalise
        # the last two parts: without batches, each epoch takes the training and then the validation nodes
        self._taken: list[tuple[IntArray, FeatureTable]] = []
        if isinstance(matrix, np.memmap):
            self._mapped = matrix  # rows are read on demand
        elif isinstance(matrix, Tensor):
            self._tensor = matrix
        elif sp.issparse(matrix):
            self._sparse = sp.csr_array(matrix).astype(np.float32, copy=False)
            if not self._sparse.has_sorted_indices:
                self._sparse = self._sparse.sorted_indices()
        else:
            self._tensor = _read_only(matrix).to(self.device)

    def __reduce__(self) -> tuple[Any, ...]:
        # pickled for other processes: the path of a memory-mapped file, or arrays that can be shared
        matrix = self._sparse if self._tensor is None else self._tensor.numpy(force=True)
        if self._mapped is not None:
            matrix = self._mapped
            if type(matrix.base) is mmap.mmap:  # the whole file, not a view of a part
                place = (str(matrix.filename), matrix.dtype, "r", matrix.offset, matrix.shape)
                return _open_mapped, (place, str(self.device), self._normalise)
        return FeatureTable, (matrix, str(self.device), self._normalise)

    @property
    def mapped(self) -> bool:
        """Whether the rows are memory-mapped, and read a few at a time."""
        return self._mapped is not None

    @property
    def width(self) -> int:
        """Numbers per row in memory: d, or the mean number of non-zeros if sparse."""
        return self.shape[1] if self._sparse is None else -(-self._sparse.nnz // max(1, self.shape[0]))

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in memory; memory-mapped rows do not count."""
        if self._tensor is not None:
            return self._tensor.nbytes
        return 0 if self._sparse is None else int(self._sparse.nnz * 8 + self._sparse.indptr.nbytes)

    @property
    def dense(self) -> Tensor | None:
        """The rows as a tensor, if they are dense and in memory."""
        return self._tensor

    def take(self, rows: Tensor) -> FeatureTable:
        """Return a table of only these rows, in memory."""
        if self._tensor is not None:
            # faster than indexing, with the same values
            return FeatureTable(self._tensor.index_select(0, rows), self.device)
        ids = rows.cpu().numpy()
        if self._sparse is not None:
            for taken, part in self._taken:
                if np.array_equal(taken, ids):
                    return part
            part = FeatureTable(self._sparse[ids], self.device)
            part._product  # noqa: B018  # built here, so that a prefetching thread does this work too
            if part.nbytes <= _KEPT_BYTES:
                self._taken = [(ids.copy(), part), *self._taken[:1]]
            return part
        # np.take, unlike indexing, releases the GIL while pages are read
        read = np.asarray(np.take(self._mapped, ids, axis=0), dtype=np.float32)
        return FeatureTable(_normalised(read, self._normalise, dense=True), self.device)

    def matrix(self) -> Any:
        """Return the rows as an array in memory, or as a CSR array if sparse."""
        if self.mapped:
            return self.take(torch.arange(self.shape[0])).matrix()
        return self._sparse if self._tensor is None else self._tensor.numpy(force=True)

    def linear(self, weight: Tensor, p: float = 0.0, rows: Tensor | None = None) -> Tensor:
        """Return x[rows] · weight with entries of x dropped with probability p; shape (rows or n, h)."""
        if rows is not None or self.mapped:
            part = self.take(torch.arange(self.shape[0]) if rows is None else rows)
            return part.linear(weight, p)
        if self._tensor is not None:
            return dropout(self._tensor, p) @ weight
        return self._product(dropout(self._product.values, p), weight)

    def rows(self, ids: Tensor) -> Tensor:
        """Return rows of the table as a dense tensor, shape (len(ids), d)."""
        part = self.take(ids)
        return torch.from_numpy(part._sparse.toarray()).to(self.device) if part._tensor is None else part._tensor

    @cached_property
    def _product(self) -> SparseProduct:
        return SparseProduct(self._sparse).to(self.device)


def _open_mapped(place: tuple[Any, ...], device: str, normalise: str) -> FeatureTable:
    return FeatureTable(np.memmap(*place), device, normalise)


class SparseProduct(nn.Module):
    """S · h for the sparsity pattern of a SciPy CSR array, differentiable in the values of S and in h.

    Forward and backward pass are sparse products, so rows of h are not copied per entry. They are computed by
    `embedding_bag`, which on a CPU is faster than torch's product of a CSR tensor (``benchmarks/spmm.py``).
    """

    def __init__(self, matrix: Any) -> None:
        super().__init__()
        self.shape = matrix.shape
        order = np.arange(matrix.nnz, dtype=np.int64)
        transposed = sp.csr_array(sp.csr_array((order, matrix.indices, matrix.indptr), shape=matrix.shape).T)
        self.register_buffer("values", _read_only(matrix.data), persistent=False)
        indices = {"indptr": matrix.indptr, "columns": matrix.indices, "order": transposed.data}
        indices |= {"transposed_indptr": transposed.indptr, "transposed_columns": transposed.indices}
        for name, part in indices.items():
            self.register_buffer(name, torch.from_numpy(part.astype(np.int64)), persistent=False)
        self._transposed: tuple[Tensor, Tensor] | None = None  # the own values, and in the order of the transpose

    values: Tensor
    indptr: Tensor
    columns: Tensor
    order: Tensor  # positions of the transpose's entries in the matrix
    transposed_indptr: Tensor
    transposed_columns: Tensor

    @property
    def rows(self) -> Tensor:
        """Row of each entry, shape (m,)."""
        return torch.repeat_interleave(self.indptr.diff())

    def matrix(self, values: Tensor | None = None) -> Tensor:
        """Return S as a CSR tensor, with its own or with other values."""
        make: Any = torch.sparse_csr_tensor  # its stub lacks this overload
        values = self.values if values is None else values
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return make(self.indptr, self.columns, values, self.shape, check_invariants=False)

    def forward(self, values: Tensor, h: Tensor) -> Tensor:
        """Return the product for values (m,) and h; shape (rows of S, columns of h)."""
        return _Product.apply(values, h, self)  # type: ignore[no-untyped-call]

    def multiply(self, values: Tensor, h: Tensor) -> Tensor:
        """Return S · h without a gradient."""
        return _row_sums(self.indptr, self.columns, values, h)

    def multiply_transposed(self, values: Tensor, h: Tensor) -> Tensor:
        """Return Sᵀ · h without a gradient."""
        return _row_sums(self.transposed_indptr, self.transposed_columns, self._in_order(values), h)

    def _in_order(self, values: Tensor) -> Tensor:
        """Return values in the order of the transpose; the module's own are ordered once on each device."""
        if values is not self.values:
            return values[self.order]
        if self._transposed is None or self._transposed[0] is not values:
            self._transposed = values, values[self.order]
        return self._transposed[1]


def _row_sums(indptr: Tensor, columns: Tensor, values: Tensor, h: Tensor) -> Tensor:
    """Return the sums of the rows of h that each row of a CSR matrix names, times the values."""
    return F.embedding_bag(
        columns, h.contiguous(), indptr, mode="sum", per_sample_weights=values, include_last_offset=True
    )


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, h: Tensor, pattern: SparseProduct) -> Tensor:
        # h, often large, is only needed for the gradient of the values
        ctx.save_for_backward(values if values is not pattern.values else None, h if ctx.needs_input_grad[0] else None)
        ctx.pattern = pattern
        return pattern.multiply(values, h)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        values, h = ctx.saved_tensors
        values = ctx.pattern.values if values is None else values
        grad_values = grad_h = None
        if ctx.needs_input_grad[0]:
            zeros = ctx.pattern.matrix(torch.zeros_like(values))
            grad_values = torch.sparse.sampled_addmm(zeros, grad.contiguous(), h.T).values()
        if ctx.needs_input_grad[1]:
            grad_h = ctx.pattern.multiply_transposed(values, grad)
        return grad_values, grad_h, None


# ------------------------------------------------------------------------------------------------ of a graph


def node_features(
    graph: Graph, config: FeatureConfig | None = None, device: torch.device | str = "cpu"
) -> FeatureTable:
    """Build the feature table of a graph; products are computed on ``device``."""
    config = config or FeatureConfig()
    x = graph.x
    if x is None and not config.adjacency_features and not config.structure:
        raise InputError(
            f"{graph.name} has no features; use its adjacency rows or columns made of its edges as features "
            "(features.adjacency_features=true, features.structure=degree,clustering)"
        )
    if isinstance(x, np.memmap) and not config.adjacency_features:
        if not (config.log_l1_norm or config.structure):
            return FeatureTable(x, device, config.normalise)
        if is_large_map(x):
            name = "log_l1_norm" if config.log_l1_norm else "structure"
            raise InputError(f"{name} would copy memory-mapped features; leave it out, or pass them in memory")
    parts = [] if x is None else [_own_columns(x, config)]
    if config.structure:
        parts.append(structure_columns(graph, config.structure))
    if config.adjacency_features:
        rows = graph.adjacency(np.float32)
        parts += [rows, sp.csr_array(rows.T)] if graph.is_directed else [rows]
    return FeatureTable(_hstack(parts), device)


def is_large_map(x: Any) -> bool:
    """Return whether features are memory-mapped and too large to be copied."""
    return isinstance(x, np.memmap) and x.nbytes > _SMALL_BYTES


def unseen_features(
    unseen: UnseenNodes, nodes: IntArray, config: FeatureConfig, device: torch.device | str = "cpu"
) -> FeatureTable:
    """Build the feature table of some nodes of an extended graph, in ascending order, with the columns of training.

    With ``adjacency_features``, edges to unseen nodes are dropped: there was no column for them in training.
    """
    graph, n = unseen.graph, unseen.graph.n
    old, new = nodes[nodes < n], nodes[nodes >= n] - n
    x: Any = graph.x
    parts = [] if x is None else [_own_columns(stack_rows(x[old], unseen.x[new]), config)]  # type: ignore[index]
    if config.structure:
        parts.append(unseen_structure(unseen, nodes, config.structure))
    if not config.adjacency_features:
        return FeatureTable(_hstack(parts), device)
    matrices = graph.adjacency(np.float32), unseen.edges.adjacency(np.float32)
    # from positions in the small graph to the columns of training
    count = int((unseen.rows < n).sum())
    spread = sp.csr_array((np.ones(count), (np.arange(count), unseen.rows[:count])), shape=(len(unseen.rows), n))
    at = np.searchsorted(unseen.rows, new + n)
    for transposed in (False, True) if graph.is_directed else (False,):
        whole, added = (sp.csr_array(m.T) if transposed else m for m in matrices)
        parts.append(sp.vstack([whole[old], added[at] @ spread]))
    return FeatureTable(_hstack(parts), device)


def _own_columns(x: Any, config: FeatureConfig) -> Any:
    """Return the columns computed from the features, shape (n, d) or, with ``log_l1_norm``, (n, d + 1)."""
    rows = _normalised(x, config.normalise)
    if not config.log_l1_norm:
        return rows
    norm = np.asarray(abs(x).sum(axis=1), dtype=np.float32).reshape(-1, 1)
    return _hstack([rows, np.log1p(norm)])


def _hstack(parts: list[Any]) -> Any:
    """Stack the columns of all parts into one matrix, sparse if any of them is."""
    if len(parts) == 1:
        return parts[0]
    if any(sp.issparse(part) for part in parts):
        return sp.csr_array(sp.hstack([sp.csr_array(part) for part in parts]))
    return np.hstack(parts)


def _normalised(x: Any, how: str, dense: bool = False) -> Any:
    """Return the rows normalised; as a sparse matrix if most entries are 0, unless ``dense``."""
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
    norm = np.asarray(sizes.sum(axis=1), dtype=np.float32).ravel()
    norm = norm if how == "l1" else np.sqrt(norm)
    scale = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)
    return sp.csr_array(sp.diags_array(scale) @ x) if sp.issparse(x) else x * scale[:, None]


def _read_only(array: Any) -> Tensor:
    """Return an array as a tensor without a copy; the arrays of a graph are read-only, and nobody writes to them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(array, dtype=np.float32))
