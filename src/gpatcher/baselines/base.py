"""What the baselines share: the contract, the product with features that may be sparse, and propagation."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.errors import InputError, warn_input
from gpatcher.graph.graph import Graph
from gpatcher.model.inputs import FeatureTable

_DENSE = 0.1  # a matrix with a larger share of non-zeros is smaller and faster as a dense one


class Baseline(nn.Module):
    """A model under the one contract: ``forward(x, nodes)`` gives the logits of these nodes, shape (b, C).

    Directed input is seen as undirected. Edge weights count where `WEIGHTED` says so; elsewhere a warning tells.

    Parameters
    ----------
    graph : gives edges and the number of classes; its labels are not looked at
    features : number of columns of x
    hidden : width of the hidden layers
    dropout : share of the entries dropped before each layer, those of x among them
    layers : number of layers
    """

    SEARCH: ClassVar[dict[str, list[Any]]] = {}  # parameters worth tuning, its own or its training's, and values
    WEIGHTED: ClassVar[bool] = True

    def __init__(self, graph: Graph, features: int, *, hidden: int, dropout: float, layers: int) -> None:
        super().__init__()
        for name, value in (("features", features), ("hidden", hidden), ("layers", layers)):
            if value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        check_share("dropout", dropout)
        if not graph.num_classes:
            raise InputError(f"{graph.name} has no labels, so the number of classes is not known; pass y")
        if graph.weights is not None and not self.WEIGHTED:
            warn_input(f"{graph.name}: {type(self).__name__} does not use edge weights; every edge counts as 1")
        self.classes = graph.num_classes
        self.dropout = dropout

    def drop(self, h: Tensor) -> Tensor:
        """Return h with entries dropped at random while training."""
        return F.dropout(h, self.dropout, self.training)

    def undecayed(self) -> Iterable[nn.Parameter]:
        """Return the parameters that weight decay leaves alone; none, unless the model's paper says otherwise."""
        return ()

    def parameter_groups(self, lr: float, weight_decay: float, filter_lr: float) -> list[dict[str, object]]:
        """Return the groups of the optimiser: with weight decay and without."""
        free = list(self.undecayed())
        apart = {id(p) for p in free}
        rest = [p for p in self.parameters() if id(p) not in apart]
        groups: list[dict[str, object]] = [{"params": rest, "lr": lr, "weight_decay": weight_decay}]
        return groups + [{"params": free, "lr": lr, "weight_decay": 0.0}] * bool(free)


def check_share(name: str, value: float, *, one: bool = False) -> None:
    """Refuse a value outside [0, 1), or [0, 1] with ``one``."""
    if not (0 <= value < 1 or (one and value == 1)):
        raise InputError(f"{name} must lie in [0, 1{']' if one else ')'}, got {value}")


def check_steps(K: int, alpha: float) -> None:
    """Refuse a number of steps below 1, and a share of the node's own prediction outside [0, 1]."""
    if K < 1:
        raise InputError(f"K must be at least 1, got {K}")
    check_share("alpha", alpha, one=True)


class FeatureProduct(nn.Module):
    """x · [W_1 | ... | W_k], one product for all the weights that act on the features; x may be sparse.

    Parameters
    ----------
    features : rows of each W
    width : columns of each W
    blocks : k; every W is drawn as if it were alone
    dropout : share of the entries of x dropped while training
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
    """An MLP on features that may be sparse; dropout before each layer, ReLU between them.

    Parameters
    ----------
    layers : 1 is a linear classifier
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
    """The product S · h with a constant sparse matrix; no parameters.

    Parameters
    ----------
    matrix : scipy CSR array, shape (n, n)

    Examples
    --------
    >>> path = Graph.from_edge_index([[0, 1], [1, 0]])
    >>> Propagation(path.normalised())(torch.tensor([[1.0], [2.0]]))
    tensor([[2.],
            [1.]])
    """

    def __init__(self, matrix: Any) -> None:
        super().__init__()
        self._matrix = matrix.toarray() if matrix.nnz > _DENSE * matrix.shape[0] ** 2 else matrix
        self._table: FeatureTable | None = None  # made on the device that is first seen

    def forward(self, h: Tensor, dropout: float = 0.0) -> Tensor:
        """Return S · h, entries of S dropped at random where asked; shape of h."""
        if self._table is None or self._table.device != h.device:
            self._table = FeatureTable(self._matrix, h.device)
        return self._table.linear(h, dropout)


class EdgeProduct(nn.Module):
    """Σ_u w_vu h_u over the entries (v, u) of a sparse pattern, with gradients for w and h; no parameters.

    Sparse products throughout: no row of h is copied for each edge.

    Parameters
    ----------
    matrix : scipy CSR array whose entries give the pattern, shape (n, n)

    Examples
    --------
    >>> path = Graph.from_edge_index([[0, 1], [1, 0]])
    >>> EdgeProduct(path.adjacency())(torch.tensor([3.0, 1.0]), torch.tensor([[1.0], [2.0]]))
    tensor([[6.],
            [1.]])
    """

    def __init__(self, matrix: Any) -> None:
        super().__init__()
        places = sp.csr_array((np.arange(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
        turned = sp.csr_array(places.T)
        pattern = (matrix.indptr, matrix.indices, turned.indptr, turned.indices, turned.data)
        for name, part in zip(("rows", "columns", "turned_rows", "turned_columns", "turn"), pattern, strict=True):
            self.register_buffer(name, torch.from_numpy(part.astype(np.int64)), persistent=False)

    rows: Tensor
    columns: Tensor
    turned_rows: Tensor
    turned_columns: Tensor
    turn: Tensor  # where the entries of the transpose stand in the pattern

    def forward(self, weight: Tensor, h: Tensor) -> Tensor:
        """Return the sums for weights (m,) and h (n, c); shape (n, c)."""
        product: Tensor = _Weighted.apply(weight, h, self)  # type: ignore[no-untyped-call]
        return product


class _Weighted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, h: Tensor, pattern: EdgeProduct) -> Tensor:
        ctx.save_for_backward(weight, h)
        ctx.pattern = pattern
        return _csr(pattern.rows, pattern.columns, weight, len(h)) @ h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weight, h = ctx.saved_tensors
        pattern: EdgeProduct = ctx.pattern
        of_weight = of_h = None
        if ctx.needs_input_grad[0]:
            empty = _csr(pattern.rows, pattern.columns, torch.zeros_like(weight), len(h))
            of_weight = torch.sparse.sampled_addmm(empty, grad.contiguous(), h.T).values()
        if ctx.needs_input_grad[1]:
            of_h = _csr(pattern.turned_rows, pattern.turned_columns, weight[pattern.turn], len(h)) @ grad
        return of_weight, of_h, None


def _csr(rows: Tensor, columns: Tensor, values: Tensor, n: int) -> Tensor:
    make: Any = torch.sparse_csr_tensor  # its stub knows one of its forms only
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        tensor: Tensor = make(rows, columns, values, (n, n), check_invariants=False)
    return tensor


def sparse_tensor(matrix: Any) -> Tensor:
    """Return a scipy CSR array as a torch one, the fastest form of an adjacency for torch_geometric's layers.

    Row v holds what node v receives.
    """
    rows, columns = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
    return _csr(rows, columns, torch.from_numpy(matrix.data.astype(np.float32)), matrix.shape[0])
