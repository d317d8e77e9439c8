"""What the baselines share: the contract, products with sparse features, and propagation."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.errors import InputError, warn_input
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable

_DENSE = 0.1  # a matrix with a larger fraction of non-zeros is smaller and faster as a dense one


class Baseline(nn.Module):
    """Base class of the baselines: ``forward(x, nodes)`` returns the logits of these nodes, shape (b, C).

    Directed edges count in both directions, unless a model says otherwise. Where `WEIGHTED` is false, edge weights are
    ignored with a warning.

    Parameters
    ----------
    graph : Graph
        Graph to train on: its edges and the number of classes. Its labels are not read.
    features : int
        Number of columns of x.
    hidden : int
        Width of the hidden layers.
    dropout : float
        Fraction of the inputs of each layer that is dropped, x included; in [0, 1).
    layers : int
        Number of layers.
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {}  # parameters of the model or of its training, and values to try
    WEIGHTED: ClassVar[bool] = True

    def __init__(self, graph: Graph, features: int, *, hidden: int, dropout: float, layers: int) -> None:
        super().__init__()
        check_at_least(1, features=features, hidden=hidden, layers=layers)
        check_fraction("dropout", dropout)
        if not graph.num_classes:
            raise InputError(f"{graph.name} has no labels, so the number of classes is unknown; pass y")
        if not self.WEIGHTED:
            self.warn_weights(graph)
        self.classes = graph.num_classes
        self.widths = [hidden] * (layers - 1) + [self.classes]
        self.dropout = dropout

    def warn_weights(self, graph: Graph) -> None:
        """Warn that edge weights are ignored, if the graph has any."""
        if graph.weights is not None:
            warn_input(f"{graph.name}: {type(self).__name__} does not use edge weights; every edge counts as 1")

    def drop(self, h: Tensor) -> Tensor:
        """Return h with dropout, while training."""
        return F.dropout(h, self.dropout, self.training)

    def no_weight_decay(self) -> Iterable[nn.Parameter]:
        """Return the parameters without weight decay: none, unless the paper of the model has it otherwise."""
        return ()

    def parameter_groups(self, lr: float, weight_decay: float, filter_lr: float) -> list[dict[str, object]]:
        """Return the parameter groups of the optimiser: with weight decay and without."""
        free = list(self.no_weight_decay())
        excluded = {id(p) for p in free}
        decayed = [p for p in self.parameters() if id(p) not in excluded]
        groups: list[dict[str, object]] = [{"params": decayed, "lr": lr, "weight_decay": weight_decay}]
        return groups + [{"params": free, "lr": lr, "weight_decay": 0.0}] * bool(free)


def check_at_least(minimum: int, **values: float) -> None:
    """Raise if one of the values is smaller, or not a number."""
    for name, value in values.items():
        if not value >= minimum:
            raise InputError(f"{name} must be at least {minimum}, got {value}")


def check_fraction(name: str, value: float, *, one: bool = False) -> None:
    """Raise if the value lies outside [0, 1), or outside [0, 1] with ``one``."""
    if not (0 <= value < 1 or (one and value == 1)):
        raise InputError(f"{name} must lie in [0, 1{']' if one else ')'}, got {value}")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise if the value is none of the choices."""
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_propagation(K: int, alpha: float) -> None:
    """Raise if the number of steps is below 1 or the teleport probability lies outside [0, 1]."""
    check_at_least(1, K=K)
    check_fraction("alpha", alpha, one=True)


class FeatureProduct(nn.Module):
    """One product x · [W_1 | ... | W_k] for all the weights that act on the features; x may be sparse.

    Parameters
    ----------
    features, width, blocks : int
        Rows and columns of each W, and their number k; each is initialised on its own.
    dropout : float
        Fraction of the entries of x that is dropped while training.
    """

    def __init__(self, features: int, width: int, *, blocks: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        parts = [nn.init.xavier_uniform_(torch.empty(features, width)) for _ in range(blocks)]
        self.weight = nn.Parameter(torch.cat(parts, 1))
        self.dropout = dropout

    def forward(self, x: FeatureTable, rows: Tensor | None = None) -> Tensor:
        """Return the product for all nodes or these rows, shape (n or b, k · width)."""
        return x.linear(self.weight, self.dropout if self.training else 0.0, rows)


class Perceptron(nn.Module):
    """MLP on features that may be sparse, with dropout before each layer and ReLU between layers.

    Parameters
    ----------
    features, hidden, classes : int
        Width of the input, of the hidden layers and of the output.
    layers, dropout : int, float
        Number of layers (1 is a linear classifier), and fraction of the inputs of each that is dropped while training.
    """

    def __init__(self, features: int, hidden: int, classes: int, *, layers: int, dropout: float) -> None:
        super().__init__()
        widths = [hidden] * (layers - 1) + [classes]
        self.dropout = dropout
        self.first = FeatureProduct(features, widths[0], dropout=dropout)
        self.bias = nn.Parameter(torch.zeros(widths[0]))
        self.rest = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))

    def forward(self, x: FeatureTable, rows: Tensor | None = None) -> Tensor:
        """Return the outputs for all nodes or these rows, shape (n or b, C)."""
        h: Tensor = self.first(x, rows) + self.bias
        for layer in self.rest:
            h = layer(F.dropout(F.relu(h), self.dropout, self.training))
        return h


class Propagation(nn.Module):
    """The product S · h with a constant sparse matrix S, a SciPy CSR array; no parameters."""

    def __init__(self, matrix: Any) -> None:
        super().__init__()
        self._matrix = compact(matrix)
        self._table: FeatureTable | None = None  # created on the device of the first input

    def table(self, device: torch.device) -> FeatureTable:
        """Return the rows of S as a table."""
        if self._table is None or self._table.device != device:
            self._table = FeatureTable(self._matrix, device)
        return self._table

    def forward(self, h: Tensor, dropout: float = 0.0) -> Tensor:
        """Return S · h with this fraction of the entries of S dropped; shape of h."""
        return self.table(h.device).linear(h, dropout)


def compact(matrix: Any) -> Any:
    """Return a sparse matrix as it is, or as a dense array where that is smaller and faster."""
    return matrix.toarray() if matrix.nnz > _DENSE * matrix.shape[0] * matrix.shape[1] else matrix


def plain_adjacency(graph: Graph, directed: bool) -> Any:
    """Return A without self-loops: A_vu = 1 for an edge v → u, or for one in either direction unless ``directed``."""
    if not directed:
        return graph.adjacency(np.float32, self_loops=False)
    matrix = graph.adjacency(np.float32)
    matrix = sp.csr_array(matrix - sp.diags_array(matrix.diagonal()))
    matrix.eliminate_zeros()
    return matrix


def normalise(matrix: Any, *, mean: bool = False, by_rows: bool = False) -> Any:
    """Return D_r^-1/2 A D_c^-1/2 with the sums of rows and columns, or D_r^-1 A (``mean``); 0 where a sum is 0.

    With ``by_rows``, D_c has the sums of rows too, and 1 where a sum is 0.
    """
    rows, columns = (
        np.divide(1.0, np.sqrt(sums), out=np.zeros_like(sums), where=sums > 0)
        for sums in (np.asarray(matrix.sum(axis=axis)) for axis in (1, 0))
    )
    if mean:
        return sp.csr_array(sp.diags_array(rows**2) @ matrix)
    columns = np.where(rows > 0, rows, 1) if by_rows else columns
    return sp.csr_array(sp.diags_array(rows) @ matrix @ sp.diags_array(columns))


class EdgeProduct(nn.Module):
    """Σ_u w_vu h_u over the entries (v, u) of a SciPy CSR array, differentiable in w and h; no parameters.

    Both passes use sparse products, so no row of h is copied per edge.
    """

    def __init__(self, matrix: Any) -> None:
        super().__init__()
        order = sp.csr_array((np.arange(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
        self.register_buffer("matrix", sparse_tensor(matrix), persistent=False)
        self.register_buffer("rows", torch.from_numpy(matrix.tocoo().row.astype(np.int64)), persistent=False)
        self.register_buffer("columns", torch.from_numpy(matrix.indices.astype(np.int64)), persistent=False)
        transpose = sp.csr_array(order.T)
        for name, part in (("indptr", transpose.indptr), ("columns", transpose.indices), ("order", transpose.data)):
            self.register_buffer(f"transpose_{name}", torch.from_numpy(part.astype(np.int64)), persistent=False)

    matrix: Tensor  # for torch_geometric's layers
    rows: Tensor
    columns: Tensor
    transpose_indptr: Tensor
    transpose_columns: Tensor
    transpose_order: Tensor  # positions of the transpose's entries in the pattern

    def forward(self, weight: Tensor, h: Tensor) -> Tensor:
        """Return the sums for weights (m,) and h (n, c); shape (n, c)."""
        product: Tensor = _EdgeProduct.apply(weight, h, self)  # type: ignore[no-untyped-call]
        return product


class _EdgeProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, h: Tensor, pattern: EdgeProduct) -> Tensor:
        ctx.save_for_backward(weight, h)
        ctx.pattern = pattern
        return _csr(pattern.matrix.crow_indices(), pattern.columns, weight, len(h)) @ h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weight, h = ctx.saved_tensors
        pattern: EdgeProduct = ctx.pattern
        grad_weight = grad_h = None
        if ctx.needs_input_grad[0]:
            zeros = _csr(pattern.matrix.crow_indices(), pattern.columns, torch.zeros_like(weight), len(h))
            grad_weight = torch.sparse.sampled_addmm(zeros, grad.contiguous(), h.T).values()
        if ctx.needs_input_grad[1]:
            values = weight[pattern.transpose_order]
            grad_h = _csr(pattern.transpose_indptr, pattern.transpose_columns, values, len(h)) @ grad
        return grad_weight, grad_h, None


def _csr(indptr: Tensor, columns: Tensor, values: Tensor, n: int) -> Tensor:
    make: Any = torch.sparse_csr_tensor  # its stub lacks this overload
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        tensor: Tensor = make(indptr, columns, values, (n, n), check_invariants=False)
    return tensor


def sparse_tensor(matrix: Any) -> Tensor:
    """Return a SciPy CSR array as a torch CSR tensor, for torch_geometric's layers; row v holds the edges into v."""
    indptr, columns = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
    return _csr(indptr, columns, torch.from_numpy(matrix.data.astype(np.float32)), matrix.shape[0])
