"""External sort of edges into CSR rows, for edge tables larger than memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.kernels.radix import (
    bin_ranges,
    bin_shift,
    count_bins,
    divide_edges,
    merge_directions,
    select_keys,
    sort_keys,
)

_FILE_NODES = 12, 8  # a file has the entries of 2^12 nodes at least, and there are 2^8 files at most
_THREADS = 2  # parts that are sorted at a time
_ENTRY_BYTES = 24  # of an entry while it is sorted: its key, a copy and the neighbour; twice with weights
_BLOCK = 1 << 17  # entries read at a time

Piece: TypeAlias = tuple[IntArray, IntArray, Any]


class _Part(NamedTuple):
    """Rows that are sorted at once: all those of a file, or some if they are too many."""

    file: int
    first: int
    last: int
    entries: int


class _Rows(NamedTuple):
    """Sorted rows."""

    lengths: IntArray
    indices: IntArray
    weights: FloatArray | None
    counts: IntArray  # of `merge_directions`


def sort_edges(
    pieces: Iterator[Piece], n: int, *, weighted: bool, directed: bool, memory: int, draft: Path
) -> tuple[IntArray, IntArray]:
    """Sort edges into the rows of a CSR adjacency on disk: ``indices.npy`` and, if weighted, ``weights.npy``.

    The ``pieces`` are sources, targets, and weights or None. Each entry is appended to the file of its range of nodes,
    in 8 bytes and 8 for a weight; then the files are sorted in parts that take at most ``memory`` bytes, and removed.
    Returns indptr, and the counts of `merge_directions` with the number of edges.
    """
    files = _Files(draft, n, weighted)
    edges = files.append(pieces, directed)
    indptr = np.zeros(n + 1, np.int64)
    counts = np.array([0, 0, 0, edges])
    outputs = [_GrowingArray(draft / "indices.npy", np.dtype("<i4"))]
    if weighted:
        outputs.append(_GrowingArray(draft / "weights.npy", np.dtype("<f8")))
    with ThreadPoolExecutor(_THREADS) as pool:
        sorting: deque[tuple[_Part, Future[_Rows]]] = deque()

        def write() -> None:
            part, future = sorting.popleft()
            rows = future.result()
            indptr[part.first + 1 : part.last + 1] = rows.lengths
            counts[:3] += rows.counts
            for output, values in zip(outputs, (rows.indices, rows.weights), strict=False):
                output.append(values)  # type: ignore[arg-type]
            if part.last == files.rows(part.file)[1]:
                files.remove(part.file)

        for part in files.parts(memory):
            if len(sorting) == _THREADS:
                write()
            sorting.append((part, pool.submit(files.sort, part)))
        while sorting:
            write()
    for output in outputs:
        output.close()
    return np.cumsum(indptr, out=indptr), counts


class _Files:
    """The entries of ranges of nodes, in a file of keys and one of weights each."""

    def __init__(self, draft: Path, n: int, weighted: bool) -> None:
        bits = (n - 1).bit_length()
        self.draft, self.n, self.weighted = draft, n, weighted
        self.width, self.low = max(_FILE_NODES[0], bits - _FILE_NODES[1]), bits + 1  # see `divide_edges`
        self.sizes = np.zeros(((n - 1) >> self.width) + 1, np.int64)

    def rows(self, number: int) -> tuple[int, int]:
        """Return the first row of a file and the one after its last."""
        return number << self.width, min((number + 1) << self.width, self.n)

    def _paths(self, number: int) -> list[Path]:
        return [self.draft / f"{kind}-{number}" for kind in ("keys", "weights")[: 1 + self.weighted]]

    def remove(self, number: int) -> None:
        """Remove a file that is sorted."""
        for path in self._paths(number):
            path.unlink()

    def append(self, pieces: Iterator[Piece], directed: bool) -> int:
        """Write the entries of all edges, and return the number of edges."""
        edges = 0
        ends = np.empty_like(self.sizes)
        with ExitStack() as stack:
            files = [
                [stack.enter_context(path.open("wb", buffering=0)) for path in self._paths(number)]
                for number in range(ends.size)
            ]
            for source, target, weight in pieces:
                edges += source.size
                keys = np.empty(source.size if directed else 2 * source.size, np.int64)
                weights = np.empty(keys.size) if self.weighted else None
                divide_edges(source, target, weight, directed, self.width, self.low, ends, keys, weights)
                for number, (start, stop) in enumerate(pairwise([0, *ends.tolist()])):
                    self.sizes[number] += stop - start
                    for file, values in zip(files[number], (keys, weights), strict=False):
                        left = values[start:stop].data.cast("B")  # type: ignore[index]
                        while left:  # a raw write may be short
                            left = left[file.write(left) :]
        return edges

    def _blocks(self, number: int) -> Iterator[list[Any]]:
        """Yield blocks of keys and, if there are any, weights."""
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("rb")) for path in self._paths(number)]
            for _ in range(0, int(self.sizes[number]), _BLOCK):
                yield [np.fromfile(file, dtype, _BLOCK) for file, dtype in zip(files, "qd", strict=False)]

    def parts(self, memory: int) -> Iterator[_Part]:
        """Yield all rows in parts that are sorted in ``memory`` bytes; a part has at least one row."""
        most = memory // (_THREADS * _ENTRY_BYTES * (1 + self.weighted))
        shift = bin_shift(1 << self.width)
        for number, size in enumerate(self.sizes.tolist()):
            first, last = self.rows(number)
            if size <= most:
                yield _Part(number, first, last, size)
                continue
            counts = np.zeros(((last - first - 1) >> shift) + 1, np.int64)
            for keys, *_ in self._blocks(number):
                count_bins(keys, self.low + shift, counts)
            for a, b in pairwise(bin_ranges(counts, most)):
                yield _Part(number, first + (a << shift), min(first + (b << shift), last), int(counts[a:b].sum()))

    def sort(self, part: _Part) -> _Rows:
        """Read the entries of a part, sort and merge them."""
        keys = np.empty(part.entries + 1, np.int64)  # see `gather_edges`
        weights = np.empty(part.entries + 1) if self.weighted else None
        start = self.rows(part.file)[0]
        first, last = (part.first - start) << self.low, (part.last - start) << self.low
        at = 0
        for block, *block_weights in self._blocks(part.file):
            at = select_keys(block, *(block_weights or [None]), first, last, keys, weights, at)
        keys, weights = keys[:at], None if weights is None else weights[:at]
        spare, merged = np.empty_like(keys), None if weights is None else np.empty_like(weights)
        sort_keys(keys, weights, spare, merged, 0, self.low + (part.last - part.first - 1).bit_length())
        del spare
        lengths, counts = np.zeros(part.last - part.first, np.int64), np.zeros(3, np.int64)
        indices = np.empty(at, np.int32)
        kept = merge_directions(keys, weights, part.first, self.low, lengths, indices, merged, counts)
        return _Rows(lengths, indices[:kept], None if merged is None else merged[:kept], counts)


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
