"""Node ids in columns of tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import BoolArray, IntArray
from gpatcher.errors import InputError, counted, some, warn_input
from gpatcher.kernels.ids import count_marks, find_ids, find_marks, insert_ids, list_marks, mark_ids, text_keys
from gpatcher.tables.reader import TableSource
from gpatcher.tables.values import combine_chunks, first_line, is_text, missing_mask, text_buffers, to_numpy

_MAX_HASHED_IDS = 1 << 22  # with more ids, binary search is as fast as hash tables and needs no memory
_MAX_DISTANCE = 32  # mean distance of ids up to which a bitmap takes no more memory than they
_MAX_MARKS = 1 << 30  # bits of a bitmap of ids that are not known yet: 256 MiB, of which only used pages count


class IdIndex:
    """Looks up ids, int64 or text, by a hash table; several threads may do so at once."""

    def __init__(self, ids: Any) -> None:
        self.dtype = ids.type
        keys, *self._text = _keys(ids)
        # key and index side by side, in one line of the cache
        self._table = np.zeros((1 << (2 * max(len(ids), 1)).bit_length(), 2), np.uint64)
        self.unique = bool(insert_ids(self._table, keys, *self._text))

    def find(self, values: Any, offset: int = 0) -> IntArray | None:
        """Return index + offset of each id in a chunked array; None if one is missing, unknown or of another dtype."""
        same = is_text(values.type) if is_text(self.dtype) else values.type == self.dtype
        index = np.empty(len(values), np.int32)
        if not same or values.null_count:
            return None
        start = 0
        for chunk in values.chunks:
            out = index[start : start + len(chunk)]
            if not find_ids(self._table, *self._text, *_keys(chunk), offset, out):
                return None
            start += len(chunk)
        return index


class SortedIds:
    """Looks up ascending integers by binary search, in place of an `IdIndex`."""

    unique = True

    def __init__(self, ids: IntArray) -> None:
        self._ids = ids

    def find(self, values: Any, offset: int = 0) -> IntArray | None:
        """Return index + offset of each id; see `IdIndex.find`."""
        if values.type != pa.int64() or values.null_count:
            return None
        numbers = to_numpy(values)
        index: IntArray = np.searchsorted(self._ids, numbers).astype(np.int32)
        known = np.array_equal(self._ids[np.minimum(index, self._ids.size - 1)], numbers)
        return index + np.int32(offset) if known else None


class MarkedIds:
    """Looks up ascending integers that are not far apart by a bitmap, in place of an `IdIndex`."""

    unique = True

    def __init__(self, ids: IntArray) -> None:
        self._first, self._last = int(ids[0]), int(ids[-1])
        self._marks = np.zeros(((self._last - self._first) // 64 + 1, 2), np.uint64)
        mark_ids(ids, self._first, self._marks)
        count_marks(self._marks)

    def find(self, values: Any, offset: int = 0) -> IntArray | None:
        """Return index + offset of each id; see `IdIndex.find`."""
        if values.type != pa.int64() or values.null_count:
            return None
        index = np.empty(len(values), np.int32)
        found = find_marks(self._marks, self._first, self._last, to_numpy(values), offset, index)
        return index if found else None


class DistinctIds:
    """Collects distinct integers in a bitmap that grows with their range."""

    def __init__(self) -> None:
        self._first, self._marks = 0, np.zeros((0, 2), np.uint64)

    def add(self, ids: IntArray) -> bool:
        """Add integers; False, without adding them, if all those so far are too far apart."""
        if not ids.size:
            return True
        low, high = int(ids.min()) & ~63, int(ids.max())
        rows = len(self._marks)
        if not rows:
            self._first = low
        first, last = min(low, self._first), max(high + 1, self._first + 64 * rows)
        if last - first > _MAX_MARKS:
            return False
        if last - first > 64 * rows:
            marks = np.zeros((-(-(last - first) // 64), 2), np.uint64)
            at = (self._first - first) // 64
            marks[at : at + rows] = self._marks
            self._first, self._marks = first, marks
        mark_ids(ids, self._first, self._marks)
        return True

    def ascending(self) -> IntArray:
        """Return the integers in ascending order."""
        ids = np.empty(count_marks(self._marks), np.int64)
        list_marks(self._marks, self._first, ids)
        return ids


def _keys(ids: Any) -> tuple[Any, Any, Any]:
    """Return the keys of ids, int64 or text without nulls, and the offsets and bytes of text."""
    if not is_text(ids.type):
        return to_numpy(ids).view(np.uint64), None, None
    keys = np.empty(len(ids), np.uint64)
    start, text = text_buffers(ids)
    text_keys(start, text, keys)
    return keys, start, text


Index: TypeAlias = IdIndex | SortedIds | MarkedIds | None  # None: the ids are neither integers nor text


@dataclass(frozen=True, eq=False)
class Ids:
    """The ids in a column of a table."""

    table: TableSource
    column: str
    values: Any  # an arrow array, chunked or not: int64, large_string or another scalar dtype
    rows: IntArray | None = None  # of the table that the ids come from; by default all

    @classmethod
    def read(cls, table: TableSource, column: str, values: Any) -> Ids:
        """Return the ids in a column, text as large_string and integers as int64."""
        if pa.types.is_nested(values.type):
            raise InputError(f"{table.path}: column {column!r} holds {values.type}; ids must be integers or text")
        if is_text(values.type):
            values = values.cast(pa.large_string())
        elif pa.types.is_integer(values.type):
            try:
                values = values.cast(pa.int64())
            except pa.ArrowInvalid as error:
                hint = "store the ids as text"
                raise InputError(f"{table.path}: column {column!r}: {first_line(error)}; {hint}") from None
        return cls(table, column, values)

    @cached_property
    def index(self) -> Index:
        """Looks up these ids; None if they are neither integers nor text."""
        return id_index(self.values)

    def like(self, other: Any) -> Ids:
        """Return integers of a text file as text, as written, if the ids of ``other`` are text."""
        if self.table.is_typed or is_text(self.values.type) or not is_text(other.type):
            return self
        return replace(self, values=self.values.cast(pa.large_string()))

    def take(self, positions: IntArray) -> Ids:
        """Return the ids at some positions."""
        rows = positions if self.rows is None else self.rows[positions]
        return replace(self, values=self.values.take(pa.array(positions)), rows=rows)

    def reject(self, invalid: BoolArray, problem: str, fix: str) -> None:
        """Raise an InputError if an id is invalid; see `reject_values`."""
        self.table.reject(self.column, invalid, self.values, problem, fix, self.rows)

    def missing(self, on_missing: str) -> BoolArray:
        """Return a mask of missing ids; rejects them if ``on_missing`` is "error"."""
        missing = missing_mask(self.values)
        if is_text(self.values.type):
            missing = missing | to_numpy(pc.fill_null(pc.equal(self.values, ""), True))
        if on_missing == "error":
            fix = "every row needs an id, or pass on_missing_id='drop' (--on-missing-id) to drop the rows without"
            self.reject(missing, "are missing", fix)
        return missing

    def exact(self) -> Ids:
        """Return floats as int64, and reject those that are not exact integers; other dtypes unchanged."""
        if not pa.types.is_floating(self.values.type):
            return self
        numbers = self.values.to_numpy()
        inexact = (numbers % 1 != 0) | (np.abs(numbers) >= 2**53)
        problem = "are floating-point numbers that could be mistaken for others"
        self.reject(inexact, problem, "store them as integers or text")
        return replace(self, values=self.values.cast(pa.int64()))

    def drop_missing(self, on_missing: str) -> Ids:
        """Return the ids that are not missing; see `missing`."""
        missing = self.missing(on_missing)
        return self.take(np.flatnonzero(~missing)) if missing.any() else self

    def drop_duplicates(self, on_duplicate: str) -> Ids:
        """Return the ids without duplicates, with a warning; rejects duplicates if ``on_duplicate`` is "error"."""
        ids = replace(self, values=combine_chunks(self.values))
        if len(pc.unique(ids.values)) == len(ids.values) if ids.index is None else ids.index.unique:
            return ids
        codes = to_numpy(ids.values.dictionary_encode().indices)
        if on_duplicate == "error":
            duplicates = np.flatnonzero(np.bincount(codes) > 1)
            positions = np.flatnonzero(codes == duplicates[0])
            raise InputError(
                f"{self.table.path}: {counted(duplicates.size, 'id')} in column {self.column!r} "
                f"{'appears' if duplicates.size == 1 else 'appear'} more than once, the first "
                f"{ids.values[int(positions[0])].as_py()!r} ({some(map(ids.location, positions.tolist()))}); keep one "
                "row per node, or pass on_duplicate_id='first' (--on-duplicate-id) to keep the first"
            )
        first = np.sort(np.unique(codes, return_index=True)[1])
        repeated = counted(codes.size - first.size, "row repeats", "rows repeat")
        warn_input(f"{self.table.path}: {repeated} an id of column {self.column!r}; the first row of each id is kept")
        return ids.take(first)

    def location(self, position: int) -> str:
        """Return the row or line of an id."""
        return self.table.location(int(position if self.rows is None else self.rows[position]))

    def require_same_dtype(self, other: Ids) -> None:
        """Raise an InputError, with an example, if the ids can never match those of another column."""
        if self.values.type == other.values.type:
            return
        example = ""
        for ids in (self, other):
            if pa.types.is_large_string(ids.values.type):
                positions = np.flatnonzero(~to_numpy(pc.match_substring_regex(ids.values, r"^-?\d+$")))
                if positions.size:
                    first = int(positions[0])
                    shown = f"{ids.values[first].as_py()!r} ({ids.location(first)})"
                    example = f"; {positions.size} of {ids.column!r} are not integers, the first {shown}"
        raise InputError(
            f"the ids differ in dtype: column {self.column!r} is {dtype_name(self.values.type)} in {self.table.path}, "
            f"column {other.column!r} is {dtype_name(other.values.type)} in {other.table.path}{example}; "
            "store both the same way"
        )


def id_index(ids: Any) -> Index:
    """Return what looks up ids in an array without nulls; None if they are neither int64 nor text."""
    if ids.type == pa.int64() and len(ids):
        numbers = to_numpy(ids)
        if np.all(numbers[1:] > numbers[:-1]):
            if int(numbers[-1]) - int(numbers[0]) <= _MAX_DISTANCE * len(ids):
                return MarkedIds(numbers)
            if len(ids) > _MAX_HASHED_IDS:
                return SortedIds(numbers)
    return IdIndex(ids) if is_text(ids.type) or ids.type == pa.int64() else None


def dtype_name(dtype: Any) -> str:
    """Return the name of an arrow dtype in messages."""
    return "text" if is_text(dtype) else str(dtype)
