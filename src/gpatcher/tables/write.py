"""Write tables as CSV and Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from gpatcher.errors import InputError, counted, warn_input
from gpatcher.io import draft_of

_FORMULA, _NUMBER = r"^[=+\-@\t\r]", r"^[+-]?[0-9.]+([eE][+-]?[0-9]+)?$"
_PARQUET = partial(pa.parquet.ParquetWriter, write_page_checksum=True)
_WRITERS: dict[str, Any] = {".csv": pa.csv.CSVWriter, ".parquet": _PARQUET, ".pq": _PARQUET}


def write_table(columns: Mapping[str, npt.ArrayLike], path: str | Path) -> Path:
    """Write columns of equal length to a .csv, .parquet or .pq file, atomically."""
    return write_pieces([columns], path)


def write_pieces(
    pieces: Iterable[Mapping[str, npt.ArrayLike]], path: str | Path, *, escape_formulas: bool = False
) -> Path:
    """Write a table that comes in chunks of rows with the same columns; see `write_table`.

    In CSV, text that a spreadsheet would run as a formula gets an apostrophe with ``escape_formulas``; otherwise it is
    written as it is, with a warning.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    writer_class = _WRITERS.get(suffix)
    if writer_class is None:
        raise InputError(f"{path}: unknown file format; use one of {', '.join(_WRITERS)}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path.parent} is not a folder; create it or choose another one for {path.name}")
    found = 0
    with draft_of(path) as draft, ExitStack() as stack:
        writer = None
        for piece in pieces:
            table = pa.table(dict(piece))
            if suffix == ".csv":
                escaped, count = _escape_formulas(table)
                table, found = escaped if escape_formulas else table, found + count
            writer = writer or stack.enter_context(writer_class(draft, table.schema))
            writer.write_table(table)
    if found and not escape_formulas:
        warn_input(
            f"{path}: {counted(found, 'value')} would run as a formula in a spreadsheet (text with =, +, - or @); "
            "write them with an apostrophe in front (--escape-formulas), or open the file as text"
        )
    return path


def _escape_formulas(table: pa.Table) -> tuple[pa.Table, int]:
    """Return the table with an apostrophe before text that a spreadsheet would run, names included; and how many."""
    count = 0
    for i, name in enumerate(table.column_names):
        column = table.column(i)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            risky = _would_run(column)
            count += pc.sum(risky).as_py() or 0
            column = pc.if_else(risky, pc.binary_join_element_wise("'", column, ""), column)
        if _would_run(pa.array([name]))[0].as_py():
            name, count = f"'{name}", count + 1
        table = table.set_column(i, name, column)
    return table, count


def _would_run(text: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return where text starts as a formula does, and is no number."""
    return pc.and_not(pc.match_substring_regex(text, _FORMULA), pc.match_substring_regex(text, _NUMBER))
