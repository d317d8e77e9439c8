"""External sort of edges into CSR rows, for edge tables larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import IntArray
from gpatcher.kernels.csr import count_edges, merge_directions, place_edges, sort_rows

_ENTRY_BYTES = 48  # peak memory per entry while its row is sorted

Pieces = Callable[[], Iterator[tuple[IntArray, IntArray, Any]]]


def sort_edges(
    pieces: Pieces, n: int, *, weighted: bool, directed: bool, memory: int, draft: Path
) -> tuple[IntArray, IntArray]:
    """Sort edges into the rows of a CSR adjacency on disk: ``indices.npy`` and, if weighted, ``weights.npy``.

    ``pieces`` is called twice, each time returning an iterator over sources, targets, and weights or None: first to
    count the edges of each node, then to append each edge to the file of its range of nodes. The ranges take at most
    ``memory`` bytes and are sorted one at a time. Returns indptr, and the counts of `merge_directions` with the number
    of edges.
    """
    degree = np.zeros(n, np.int64)
    edges = 0
    for source, target, _ in pieces():
        edges += source.size
        count_edges(source, degree)
        if not directed:
            count_edges(target[source != target], degree)
    borders = _ranges(degree, memory)
    dtype = np.dtype([("node", "<i4"), ("code", "<i8"), *([("weight", "<f8")] if weighted else [])])
    with ExitStack() as stack:
        files = [stack.enter_context((draft / f"range-{k}").open("wb")) for k in range(len(borders) - 1)]
        for source, target, weights in pieces():
            _append(files, borders, dtype, source, target, 0, weights)
            if not directed:
                two = source != target
                _append(files, borders, dtype, target[two], source[two], 1, None if weights is None else weights[two])
    indptr = np.zeros(n + 1, np.int64)
    counts = np.zeros(4, np.int64)
    counts[3] = edges
    outputs = [_GrowingArray(draft / "indices.npy", np.dtype("<i4"))]
    if weighted:
        outputs.append(_GrowingArray(draft / "weights.npy", np.dtype("<f8")))
    for k, (first, last) in enumerate(pairwise(borders)):
        entries = np.fromfile(draft / f"range-{k}", dtype)
        (draft / f"range-{k}").unlink()
        offsets = np.concatenate([[0], np.cumsum(degree[first:last])])
        codes = np.empty(entries.size, np.int64)
        weights = np.empty(entries.size) if weighted else None
        unsorted = np.ascontiguousarray(entries["weight"]) if weighted else None
        node, code = entries["node"] - first, np.ascontiguousarray(entries["code"])
        del entries
        place_edges(node, code, unsorted, offsets[:-1].copy(), codes, weights)
        del node, code, unsorted
        sort_rows(offsets, codes, weights)
        indices = np.empty(codes.size, np.int32)
        merged = np.empty(codes.size) if weighted else None
        kept = merge_directions(offsets, first, codes, weights, indices, merged, counts)
        indptr[first + 1 : last + 1] = indptr[first] + offsets[1:]
        for output, values in zip(outputs, (indices, merged), strict=False):
            output.append(values[:kept])  # type: ignore[index]
    for output in outputs:
        output.close()
    return indptr, counts


def _ranges(degree: IntArray, memory: int) -> list[int]:
    """Return the borders of ranges of nodes whose edges fit into memory; a range has at least one node."""
    most = max(1, memory // _ENTRY_BYTES)
    total = np.cumsum(degree)
    borders = [0]
    while borders[-1] < degree.size:
        before = total[borders[-1] - 1] if borders[-1] else 0
        borders.append(max(borders[-1] + 1, int(np.searchsorted(total, before + most, side="right"))))
    return borders


def _append(
    files: list[Any],
    borders: list[int],
    dtype: np.dtype[Any],
    node: IntArray,
    neighbour: IntArray,
    reverse: int,
    weights: Any,
) -> None:
    """Append each entry to the file of its node's range, in input order."""
    entries = np.empty(node.size, dtype)
    entries["node"] = node
    entries["code"] = 2 * neighbour.astype(np.int64) + reverse
    if weights is not None:
        entries["weight"] = weights
    number = np.searchsorted(borders, node, side="right") - 1
    order = np.argsort(number, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        if part.size:
            files[int(number[part[0]])].write(entries[part].tobytes())


class _GrowingArray:
    """A one-dimensional .npy file whose length is only known when it is closed."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.file, self.dtype, self.length = path.open("wb"), dtype, 0
        self._write_header()

    def _write_header(self) -> None:
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self.file, header)  # padded, so that any length fits

    def append(self, values: npt.NDArray[Any]) -> None:
        self.file.write(np.ascontiguousarray(values, self.dtype).data.cast("B"))
        self.length += values.size

    def close(self) -> None:
        self.file.seek(0)
        self._write_header()
        self.file.close()
