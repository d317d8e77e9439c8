"""Types of arrays, and conversion of lists, arrays and tensors to NumPy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpatcher.errors import InputError

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.floating[Any]]
Features: TypeAlias = Any  # a dense or memory-mapped array, or a scipy CSR array; SciPy carries no types


def as_numpy(values: Any, what: str) -> npt.NDArray[Any]:
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


def as_integers(values: Any, what: str) -> IntArray:
    """Return ``values`` as an integer array; floats, text and ragged input are refused."""
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
    """Shim."""
    if isinstance(nodes, slice):
        return np.arange(n)[nodes]
    ids = np.atleast_1d(np.asarray(nodes))
    if ids.size and ids.dtype.kind not in "iub":
        raise InputError(f"nodes must be integers or a mask, got {ids.dtype}")
    ids = np.flatnonzero(ids) if ids.dtype.kind == "b" else ids.astype(np.int64)
    beyond = ids[(ids < 0) | (ids >= n)]
    if beyond.size:
        raise InputError(f"{beyond.size} nodes are not in the {what}: {beyond[:5].tolist()}; it has 0 to {n - 1}")
    return ids
