"""Ids of nodes in tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError, counted, some, warn_input
from gpatcher.tables.reader import TableFile, first_line
from gpatcher.tables.values import is_text


def require_type_of(table: TableFile, column: str, values: Any, old: Any) -> None:
    if values.type != old.type:
        raise InputError(
            f"{table.path}: the ids in column {column!r} are {type_name(values.type)}, those of the graph are "
            f"{type_name(old.type)}, such as {old[0].as_py()!r}; write both the same way"
        )


def clean_ids(table: TableFile, column: str, values: Any, on_missing: str) -> tuple[Any, IntArray | None, int]:
    """Return ids as int64, text or what else they are, their rows (None for all), and how many rows lack one."""
    values = id_values(table, column, values)
    missing = values.is_null(nan_is_null=True)
    if is_text(values.type):
        missing = pc.or_(missing, pc.fill_null(pc.equal(values, ""), True))
    lacking = missing.to_numpy(zero_copy_only=False) if isinstance(missing, pa.Array) else missing.to_numpy()
    if on_missing == "error":
        way = "every row needs an id; on_missing_id='drop' (--on-missing-id) leaves them out"
        table.refuse(column, lacking, values, "are missing", way)
    rows = np.flatnonzero(~lacking) if lacking.any() else None
    if rows is not None:
        values = values.take(pa.array(rows))
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy()
        wrong = (numbers % 1 != 0) | (np.abs(numbers) >= 2**53)
        way = "store them as integers or text"
        table.refuse(column, wrong, values, "are floating-point numbers that could be mistaken for others", way, rows)
        values = values.cast(pa.int64())
    return values, rows, int(lacking.sum())


def id_values(table: TableFile, column: str, values: Any) -> Any:
    if pa.types.is_floating(values.type) and not table.is_typed and not values.null_count:
        # numbers longer than 64 bits, or versions such as 1.10: as floats, different ids could become the same
        values = table.read([column], as_text=True)[column]
    kind = values.type
    if pa.types.is_nested(kind):
        raise InputError(f"{table.path}: column {column!r} holds {kind}; an id is an integer or text")
    if is_text(kind):
        return values.cast(pa.large_string())
    if pa.types.is_integer(kind):
        try:
            return values.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InputError(f"{table.path}: column {column!r}: {first_line(error)}; store the ids as text") from None
    return values


def type_name(kind: Any) -> str:
    return "text" if pa.types.is_large_string(kind) else str(kind)


def match_text_type(table: TableFile, column: str, values: Any, others: Any) -> Any:
    """Read ids again as text where the others are text: in a text file, a column of digits may be either."""
    if table.is_typed or is_text(values.type) or not is_text(others.type):
        return values
    return id_values(table, column, table.read([column], as_text=True)[column])


def require_same_type(
    table: TableFile, column: str, values: Any, other: TableFile, other_column: str, others: Any
) -> None:
    """Refuse ids that could never match, and show one that is to blame."""
    if values.type == others.type:
        return
    example = ""
    for t, c, ids in ((table, column, values), (other, other_column, others)):
        if pa.types.is_large_string(ids.type):
            rows = np.flatnonzero(~pc.match_substring_regex(ids, r"^-?\d+$").to_numpy(zero_copy_only=False))
            if rows.size:
                row = int(rows[0])
                example = f"; {rows.size} of {c!r} are no integers, the first {ids[row].as_py()!r} on {t.place(row)}"
    raise InputError(
        f"the ids differ in type: column {column!r} is {type_name(values.type)} in {table.path}, "
        f"column {other_column!r} is {type_name(others.type)} in {other.path}{example}; write both the same way"
    )


def drop_duplicate_ids(
    table: TableFile, column: str, ids: Any, rows: IntArray | None, on_duplicate: str
) -> tuple[Any, IntArray | None, int]:
    """Return each id once, the rows they come from, and how many rows repeat an id."""
    ids = pa.concat_arrays(ids.chunks) if ids.num_chunks != 1 else ids.chunk(0)
    if len(pc.unique(ids)) == len(ids):
        return ids, rows, 0
    code = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    doubled = np.flatnonzero(np.bincount(code) > 1)
    if on_duplicate == "error":
        at = np.flatnonzero(code == doubled[0])
        places = some(table.place(int(row if rows is None else rows[row])) for row in at)
        raise InputError(
            f"{table.path}: {counted(doubled.size, 'id')} in column {column!r} "
            f"{'appears' if doubled.size == 1 else 'appear'} more than once, the first "
            f"{ids[int(at[0])].as_py()!r} on {places}; each node has one row, or pass on_duplicate_id='first' "
            "(--on-duplicate-id) to take the first one"
        )
    _, first = np.unique(code, return_index=True)
    first = np.sort(first)
    repeats = len(ids) - first.size
    warn_input(
        f"{table.path}: {counted(repeats, 'row repeats', 'rows repeat')} an id of column "
        f"{column!r}; only the first one counts"
    )
    return ids.take(pa.array(first)), first if rows is None else rows[first], repeats
