"""Array types, and conversion of lists, arrays and tensors to NumPy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpatcher.errors import InputError, counted, some

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.floating[Any]]
BoolArray = npt.NDArray[np.bool_]
Features: TypeAlias = Any  # a dense or memory-mapped array, or a scipy CSR array; SciPy carries no types


def as_numpy(values: Any, what: str) -> npt.NDArray[Any]:
    """Return a list, array or tensor, called ``what`` in messages, as an array, without a copy where possible."""
    if hasattr(values, "detach"):  # a torch tensor, recognised without importing torch
        values = values.detach().cpu()
        if getattr(values, "is_sparse", False):
            raise InputError(f"{what} is a sparse tensor; pass a scipy.sparse matrix or a dense tensor")
        try:
            return np.asarray(values.numpy())
        except TypeError:
            raise InputError(
                f"{what} has dtype {values.dtype}, which NumPy does not support; convert it with .float()"
            ) from None
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{what} is a masked array; fill the masked values with .filled(...)")
    try:
        return np.asanyarray(values)
    except ValueError as error:
        raise InputError(f"{what} is ragged: all rows must have the same length ({error})") from None


def as_integers(values: Any, what: str) -> IntArray:
    """Return an integer array in native byte order; floats, text and ragged input are refused."""
    array = as_numpy(values, what)
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        hint = ""
        if array.dtype.kind == "f" and array.size and bool(np.isnan(array).any()):
            hint = f"; {int(np.isnan(array).sum())} of them are NaN"
        raise InputError(f"{what} must be integers, got dtype {array.dtype}{hint}; convert with .astype('int64')")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def as_node_index(nodes: Any, n: int, what: str = "graph") -> IntArray:
    """Return node ids, a boolean mask of shape (n,) or a slice as an int64 array of node ids, in their order.

    Examples
    --------
    >>> as_node_index([2, 0], n=3), as_node_index([True, False, True], n=3), as_node_index(slice(1, None), n=3)
    (array([2, 0]), array([0, 2]), array([1, 2]))
    """
    if isinstance(nodes, slice):
        return np.arange(n)[nodes]
    array = np.atleast_1d(as_numpy(nodes, "nodes"))
    if array.ndim != 1:
        raise InputError(f"nodes must be one-dimensional, got shape {array.shape}")
    if array.dtype.kind == "b":
        if array.size != n:
            raise InputError(f"the mask of nodes has length {array.size}, but the {what} has {counted(n, 'node')}")
        return np.flatnonzero(array)
    index = as_integers(array, "nodes").astype(np.int64)
    outside = index[(index < 0) | (index >= n)]
    if outside.size:
        raise InputError(
            f"{counted(outside.size, 'node is', 'nodes are')} not in the {what}: {some(outside)}; "
            f"valid ids are 0 to {n - 1}"
        )
    return index
