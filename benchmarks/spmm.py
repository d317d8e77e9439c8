"""Sparse products: S · h and its gradient compared with torch's CSR tensors, on one thread.

python benchmarks/spmm.py
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import record
import scipy.sparse as sp
import torch
from torch import Tensor

from gpatcher.model.inputs import SparseProduct

_SHAPES = ((2_200, 182_000), (10_000, 80_000), (11_700, 1_038_000), (100_000, 2_000_000))  # nodes, edges
_WIDTH = 64


class _Peer(torch.autograd.Function):
    """torch's CSR product; its own gradient would transpose the matrix in every step."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
        """Return S · h."""
        ctx.transposed = transposed
        return matrix @ h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """Return Sᵀ · grad."""
        return ctx.transposed @ grad, None, None


def both_passes(multiply: Callable[[Tensor], Tensor], h: Tensor) -> None:
    """Multiply and send a gradient back."""
    multiply(h).sum().backward()
    h.grad = None


def main() -> None:
    """Measure graphs of four sizes."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    rows = []
    for n, m in _SHAPES:
        ends = rng.integers(n, size=(2, m))
        matrix = sp.csr_array((np.ones(m, np.float32), tuple(ends)), shape=(n, n))
        product = SparseProduct(matrix)
        pair = product.matrix(), SparseProduct(sp.csr_array(matrix.T)).matrix()
        h = torch.randn(n, _WIDTH, requires_grad=True)
        functions = (partial(product, product.values), lambda h, pair=pair: _Peer.apply(h, *pair))
        ours, theirs = (record.timed(partial(both_passes, function, h), 15) for function in functions)
        rows.append({"nodes": n, "edges": matrix.nnz, "ms": 1e3 * ours, "torch_ms": 1e3 * theirs})
        rows[-1]["ratio"] = ours / theirs
    record.write("spmm", rows)


if __name__ == "__main__":
    main()
