"""What the baselines share: the contract, products with sparse features, and propagation."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.errors import InputError, check_at_least, check_fraction, check_memory, warn_input
from gpatcher.graph.graph import Graph
from gpatcher.model.dropout import dropout
from gpatcher.model.inputs import FeatureTable

_DENSE = 0.25  # products with a dense matrix take less time from about this fraction of non-zeros on


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

    SEARCH: ClassVar[dict[str, list[Any]]] = {}  # parameters of the model, or train.NAME, and values to try
    START: ClassVar[dict[str, Any]] = {}  # what its authors recommend, a point of the search space to begin with
    WEIGHTED: ClassVar[bool] = True

    def __init__(self, graph: Graph, features: int, *, hidden: int, dropout: float, layers: int) -> None:
        super().__init__()
        check_at_least(1, features=features, hidden=hidden, layers=layers)
        check_fraction("dropout", dropout)
        weights = hidden * (features + hidden * max(0, layers - 2))
        check_memory(20.0 * weights, f"a model with {weights:,} weights, in training,", "lower hidden or layers")
        if not graph.num_outputs:
            raise InputError(f"{graph.name} has no labels, so the number of classes is unknown; pass y")
        if not self.WEIGHTED:
            self.warn_weights(graph)
        self.classes = graph.num_outputs  # 1 if numbers are predicted
        self.widths = [hidden] * (layers - 1) + [self.classes]
        self.dropout = dropout

    def warn_weights(self, graph: Graph) -> None:
        """Warn that edge weights are ignored, if the graph has any."""
        if graph.weights is not None:
            warn_input(f"{graph.name}: {type(self).__name__} does not use edge weights; every edge counts as 1")

    def drop(self, h: Tensor) -> Tensor:
        """Return h with dropout, while training."""
        return dropout(h, self.dropout, self.training)

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
            h = layer(dropout(F.relu(h), self.dropout, self.training))
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
    """Return a sparse matrix as it is, or as a dense array where that is faster."""
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
