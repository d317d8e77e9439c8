"""External sort of edges by node, for tables of edges larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError
from gpatcher.kernels.csr import count_edges, merge_directions, place_edges, sort_rows

_ENTRY_BYTES = 48  # that an edge takes at most while its row is sorted


Pieces = Callable[[], Iterator[tuple[IntArray, IntArray, Any]]]


def sort_edges(
    pieces: Pieces, n: int, *, weighted: bool, directed: bool, memory: int, draft: Path
) -> tuple[IntArray, IntArray]:
    """Sort edges into the rows of a CSR adjacency on disk: ``indices.npy`` and, if weighted, ``weights.npy``.

    Parameters
    ----------
    pieces : callable
        Yields sources, targets and weights (or None), a piece at a time. It is called twice.
    n : int
        Number of nodes.
    weighted, directed : bool
        Whether the edges have weights, and whether they keep their direction.
    memory : int
        Bytes that the edges of a range of nodes may take.
    draft : Path
        Folder to write into.

    Returns
    -------
    indptr : int64 array, shape (n + 1,)
    counts : int64 array, shape (4,)
        Those of `merge_directions`, and the number of edges read.
    """
    degree = np.zeros(n, np.int64)
    edges = 0
    for start, stop, _ in pieces():
        edges += start.size
        count_edges(start, degree)
        if not directed:
            count_edges(stop[start != stop], degree)
    borders = _ranges(degree, memory)
    kind = np.dtype([("node", "<i4"), ("code", "<i8"), *([("weight", "<f8")] if weighted else [])])
    files = [(draft / f"range-{k}").open("wb") for k in range(len(borders) - 1)]
    try:
        for start, stop, weights in pieces():
            _drop(files, borders, kind, start, stop, 0, weights)
            if not directed:
                two = start != stop
                _drop(files, borders, kind, stop[two], start[two], 1, None if weights is None else weights[two])
    finally:
        for file in files:
            file.close()
    indptr = np.zeros(n + 1, np.int64)
    counts = np.zeros(4, np.int64)
    counts[3] = edges
    outs = [_Growing(draft / "indices.npy", np.dtype("<i4"))]
    if weighted:
        outs.append(_Growing(draft / "weights.npy", np.dtype("<f8")))
    for k, (first, last) in enumerate(pairwise(borders)):
        rows = np.fromfile(draft / f"range-{k}", kind)
        (draft / f"range-{k}").unlink()
        offsets = np.concatenate([[0], np.cumsum(degree[first:last])])
        codes = np.empty(rows.size, np.int64)
        weights = np.empty(rows.size) if weighted else None
        given = None if weights is None else np.ascontiguousarray(rows["weight"])
        node, code = rows["node"] - first, np.ascontiguousarray(rows["code"])
        del rows
        place_edges(node, code, given, offsets[:-1].copy(), codes, weights)
        del node, code, given
        sort_rows(offsets, codes, weights)
        indices = np.empty(codes.size, np.int32)
        merged = None if weights is None else np.empty(codes.size)
        kept = merge_directions(offsets, first, codes, weights, indices, merged, counts)
        indptr[first + 1 : last + 1] = indptr[first] + offsets[1:]
        for out, values in zip(outs, (indices, merged), strict=False):
            out.append(values[:kept])  # type: ignore[index]
    for out in outs:
        out.close()
    if weighted and not np.isfinite(np.load(draft / "weights.npy", mmap_mode="r")).all():
        raise InputError("the weights of repeated edges add up to a number that is not finite; scale them down")
    return indptr, counts


def _ranges(degree: IntArray, memory: int) -> list[int]:
    """Return borders of ranges of nodes whose edges fit into the memory; a range has one node at least."""
    most = max(1, memory // _ENTRY_BYTES)
    ends = np.cumsum(degree)
    borders = [0]
    while borders[-1] < degree.size:
        before = ends[borders[-1] - 1] if borders[-1] else 0
        borders.append(max(borders[-1] + 1, int(np.searchsorted(ends, before + most, side="right"))))
    return borders


def _drop(
    files: list[Any],
    borders: list[int],
    kind: np.dtype[Any],
    node: IntArray,
    other: IntArray,
    turned: int,
    weights: Any,
) -> None:
    """Append each edge to the file of its node's range, in the order in which they come."""
    rows = np.empty(node.size, kind)
    rows["node"] = node
    rows["code"] = 2 * other.astype(np.int64) + turned
    if weights is not None:
        rows["weight"] = weights
    where = np.searchsorted(borders, node, side="right") - 1
    order = np.argsort(where, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(where[order])) + 1):
        if part.size:
            files[int(where[part[0]])].write(rows[part].tobytes())


class _Growing:
    """An .npy file of one dimension whose length is known at its end."""

    def __init__(self, path: Path, kind: np.dtype[Any]) -> None:
        self.file, self.kind, self.length = path.open("wb"), kind, 0
        self._header()

    def _header(self) -> None:
        about = {"descr": np.lib.format.dtype_to_descr(self.kind), "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self.file, about)  # leaves room for any length

    def append(self, values: npt.NDArray[Any]) -> None:
        self.file.write(np.ascontiguousarray(values, self.kind).data.cast("B"))
        self.length += values.size

    def close(self) -> None:
        self.file.seek(0)
        self._header()
        self.file.close()
