"""Read one table: a text file, a Parquet file, a folder of Parquet files, a table in memory or a query."""

from __future__ import annotations

import csv
import difflib
import io
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from gpatcher.arrays import BoolArray, IntArray
from gpatcher.errors import InputError, counted, some, warn_input
from gpatcher.tables.database import Query, Reader
from gpatcher.tables.values import as_written, first_line, plain, reject_values, uncastable_mask

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".csv.gz": ",", ".tsv.gz": "\t"}
_PARQUET = (".parquet", ".pq")
_DELIMITER_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes"}
_HEADER_BYTES = 1 << 22
_BATCH_ROWS = 1 << 20  # of edges
_BATCH_BYTES = 1 << 23  # of edges in a text file; larger arrays are returned to the system, and cost page faults
_MAX_BLOCK_BYTES = 2**31 - 1  # of pyarrow's CSV reader
MEMORY_POOL = pa.system_memory_pool()  # returns freed memory to the system; the default pool would keep it


@dataclass(frozen=True)
class TableSource:
    """A table whose column names have been read and whose rows have not."""

    path: Path  # for a table in memory or a query, its name in messages
    suffix: str  # in lower case, empty for a table in memory or a query
    columns: tuple[str, ...]
    delimiter: str = ","  # of a text file
    files: tuple[Path, ...] = ()  # several in a folder, none in memory
    memory: Any = None  # the table in memory
    query: Query | None = None  # of a database
    rows: IntArray | None = None  # of the table that these are, where `only` chose some

    @classmethod
    def open(
        cls, source: Any, delimiter: str | None = None, name: str = "table", reader: Reader | None = None
    ) -> TableSource:
        """Read the column names of a file, folder or table in memory, which is called ``name`` in messages.

        A table that is open is returned.

        With a ``reader`` of a database, the source is the name of a table there, or a query.
        """
        if isinstance(source, TableSource):
            return source
        if reader is not None:
            query = reader.query(source, name)
            _check_duplicate_names(query.shown, query.columns)
            return cls(Path(query.shown), "", query.columns, query=query)
        if not isinstance(source, str | Path):
            return cls._in_memory(source, name)
        path = Path(source)
        suffix = next((s for s in (*_DELIMITERS, *_PARQUET) if path.name.lower().endswith(s)), "")
        files: tuple[Path, ...] = (path,)
        if path.is_dir():
            files = tuple(sorted(file for file in path.iterdir() if file.suffix.lower() in _PARQUET))
            if not files:
                raise InputError(f"{path} is a folder without Parquet files; pass a file, or a folder of *.parquet")
            suffix = files[0].suffix.lower()
        elif not suffix:
            raise InputError(f"{path}: unknown file format; use one of {', '.join((*_DELIMITERS, *_PARQUET))}")
        elif not path.is_file():
            raise InputError(f"{path}: no such file in {path.absolute().parent}; check the path")
        try:
            if suffix in _PARQUET:
                columns, delimiter = _parquet_columns(files), ","
            else:
                columns, delimiter = _header(path, _DELIMITERS[suffix], delimiter)
        except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
            file_format = "Parquet" if suffix in _PARQUET else "text in UTF-8"
            raise InputError(f"{path} cannot be read as {file_format} ({first_line(error)}); save it again") from None
        if not columns:
            raise InputError(f"{path} is empty; its first line must hold the column names")
        _check_duplicate_names(path, columns)
        return cls(path, suffix, tuple(columns), delimiter, files)

    @classmethod
    def _in_memory(cls, source: Any, name: str) -> TableSource:
        if hasattr(source, "__dataframe__") and not isinstance(source, pa.Table):
            try:
                source = pa.Table.from_pandas(source, preserve_index=False)
            except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
                raise InputError(f"the DataFrame of {name} cannot be read: {first_line(error)}") from None
        if not isinstance(source, pa.Table):
            got = type(source).__name__
            raise InputError(f"{name} must be a path, a pyarrow Table or a pandas DataFrame, got {got}")
        _check_duplicate_names(name, source.column_names)
        return cls(Path(name), "", tuple(source.column_names), memory=source)

    @property
    def stem(self) -> str:
        """Name of the file without its suffix, or of a table in a database; ``graph`` in memory and for a query."""
        if self.query is not None:
            return self.query.table or "graph"
        if self.memory is not None and not self.suffix:
            return "graph"
        name = self.path.name
        return name[: -len(self.suffix)] if name.lower().endswith(self.suffix) else name

    @property
    def is_typed(self) -> bool:
        """Whether the table has dtypes; those of a text file are inferred."""
        return self.suffix not in _DELIMITERS

    def only(self, content: Any, rows: IntArray) -> TableSource:
        """Return some rows of this table, whose content was read, as a table; messages give their place in this one."""
        return replace(self, memory=content.take(pa.array(rows)), rows=rows)

    def location(self, row: int) -> str:
        """Return the line of a row in a text file, where row 0 is line 2, or its row elsewhere."""
        if self.rows is not None:
            row = int(self.rows[row])
        if len(self.files) > 1:
            for file in self.files:
                rows = pa.parquet.read_metadata(file).num_rows
                if row < rows:
                    return f"row {row} of {file.name}"
                row -= rows
        return f"row {row}" if self.is_typed else f"line {row + 2}"

    def require(self, columns: Mapping[str, str]) -> None:
        """Raise an InputError if a column is missing; ``columns`` maps each option to its column."""
        for option, column in columns.items():
            if column not in self.columns:
                raise InputError(f"{self.path} has no column {column!r}; {self._hint(option, column)}")

    def _hint(self, option: str, column: str) -> str:
        """Return advice for a missing column: another delimiter, the closest column or all columns."""
        for delimiter, name in _DELIMITER_NAMES.items():
            parts = [part.strip(' "') for header in self.columns for part in header.split(delimiter)]
            if len(parts) > len(self.columns) and column in parts:
                return f"its columns are separated by {name}: pass delimiter={delimiter!r} (--delimiter)"
        lower = {name.lower(): name for name in self.columns}
        close = difflib.get_close_matches(column.lower(), lower, n=1)
        hint = (
            f"did you mean {option}={lower[close[0]]!r} (--{option})?"
            if close
            else f"name it with {option}=... (--{option})."
        )
        return f"{hint} The columns are: {', '.join(self.columns)}"

    def reject(
        self, column: str, invalid: BoolArray, values: Any, problem: str, fix: str, rows: IntArray | None = None
    ) -> None:
        """Raise an InputError as `reject_values` does, with the file and the line; the values are those of ``rows``."""
        location = self.location if rows is None else lambda position: self.location(int(rows[position]))
        reject_values(column, invalid, values, problem, fix, f"{self.path}: ", location)

    def read(self, columns: Sequence[str], *, written: Sequence[str] = ()) -> dict[str, Any]:
        """Read whole columns as chunked arrays of plain dtypes, those of ``written`` by `as_written`."""
        names = list(dict.fromkeys(columns))
        try:
            whole = self.is_typed or self.memory is not None
            table = self._read_typed(names, written) if whole else self._read_text(names, written)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self.path} cannot be read: {first_line(error)}") from None
        if not table.num_rows:
            raise InputError(f"{self.path} has the columns {', '.join(self.columns)} but no rows")
        result: dict[str, Any] = {}
        for name in names:
            values = plain(table.column(name))
            if name in written and not self.is_typed:
                values = as_written(values)
            if pa.types.is_binary(values.type) and not self.is_typed:
                invalid = uncastable_mask(values, pa.string())
                self.reject(name, invalid, values, "are not text in UTF-8", "save the file in that encoding")
            result[name] = values
        return result

    def iter_batches(self, columns: list[str], *, written: Sequence[str] = ()) -> Generator[Any, None, None]:
        """Yield tables of up to a million rows; see `read`. Dtypes of a text file are inferred from its first rows."""
        for batch in self._batches(columns, written):
            convert = plain if self.is_typed else as_written
            arrays = [convert(batch.column(name)) if name in written else batch.column(name) for name in columns]
            if batch.num_rows:
                yield pa.table(arrays, columns)

    def _batches(self, columns: list[str], written: Sequence[str]) -> Iterator[Any]:
        if self.memory is not None:
            yield from (pa.table(batch) for batch in self.memory.select(columns).to_batches(_BATCH_ROWS))
            return
        if self.query is not None:
            yield from self.query.batches(columns, written, _BATCH_ROWS)
            return
        if self.is_typed:
            for path in self.files:
                with pa.parquet.ParquetFile(path) as file:
                    for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
                        yield pa.table(batch)
            return
        # not pa.csv.open_csv, which converts on one core and takes half as much time again
        parse = pa.csv.ParseOptions(delimiter=self.delimiter)
        read, dtypes = pa.csv.ReadOptions(), dict.fromkeys(written, pa.binary())
        for part in _iter_lines(self.path):
            convert = pa.csv.ConvertOptions(include_columns=columns, column_types=dtypes)
            table = pa.csv.read_csv(pa.BufferReader(part), read, parse, convert, MEMORY_POOL)
            yield table
            # after the first part, which has the names and whose dtypes are those of all
            read, dtypes = (
                pa.csv.ReadOptions(column_names=self.columns),
                dict(zip(columns, table.schema.types, strict=True)),
            )

    def _read_typed(self, columns: list[str], written: Sequence[str]) -> Any:
        if self.memory is not None:
            return self.memory.select(columns)
        if self.query is not None:
            return next(self.query.batches(columns, written, sys.maxsize))
        parts = []
        for path in self.files:
            # not read_table, which interprets folders named key=value as columns
            with pa.parquet.ParquetFile(path) as file:
                parts.append(file.read(columns=columns))
        try:
            return pa.concat_tables(parts, promote_options="permissive")
        except pa.ArrowException as error:
            raise InputError(f"{self.path}: the files differ in their dtypes ({first_line(error)})") from None

    def _read_text(self, columns: list[str], written: Sequence[str]) -> Any:
        convert = pa.csv.ConvertOptions(include_columns=columns, column_types=dict.fromkeys(written, pa.binary()))
        try:
            parse = pa.csv.ParseOptions(delimiter=self.delimiter)
            return pa.csv.read_csv(self.path, convert_options=convert, parse_options=parse)
        except pa.ArrowInvalid:
            # A later block does not have the dtype inferred from the first, a block ends within a quoted line break,
            # or a row is malformed. One block on one thread is slower, but handles the first two and gives the third
            # its row number.
            with pa.input_stream(str(self.path), compression="detect") as stream:
                text = stream.read()
            parse = pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)
            read = pa.csv.ReadOptions(block_size=min(len(text) + 1, _MAX_BLOCK_BYTES), use_threads=False)
            return pa.csv.read_csv(
                pa.BufferReader(text), read_options=read, convert_options=convert, parse_options=parse
            )


def _iter_lines(path: Path) -> Iterator[Any]:
    """Yield the bytes of a text file in parts of whole lines; raises ArrowInvalid if one ends within quotes."""
    with pa.input_stream(str(path), compression="detect") as stream:
        rest = b""
        while block := stream.read(_BATCH_BYTES):
            rest += block
            end = rest.rfind(b"\n") + 1
            if end:
                yield _unquoted(pa.py_buffer(rest).slice(0, end))
                rest = rest[end:]
        if rest:
            yield _unquoted(pa.py_buffer(rest))


def _unquoted(lines: Any) -> Any:
    if np.count_nonzero(np.frombuffer(lines, np.uint8) == ord('"')) % 2:
        raise pa.ArrowInvalid("a line break within quotes")
    return lines


def _header(path: Path, default: str, delimiter: str | None) -> tuple[list[str], str]:
    """Return column names and delimiter: the one passed, the default, or the best if that gives one column."""
    with pa.input_stream(str(path), compression="detect") as stream:
        start: bytes = stream.read(_HEADER_BYTES)
    lines = (line for part in io.BytesIO(start) for line in part.splitlines())
    first = next((line for line in lines if line.strip()), b"").decode("utf-8-sig")

    def split(delimiter: str) -> list[str]:
        return next(csv.reader([first], delimiter=delimiter), [])

    if delimiter is not None:
        return split(delimiter), delimiter
    if len(split(default)) < 2:
        best = max((default, *_DELIMITER_NAMES), key=lambda candidate: len(split(candidate)))
        if best != default:
            warn_input(f"{path}: the columns are separated by {_DELIMITER_NAMES[best]}, judging by the first line")
            return split(best), best
    return split(default), default


def _parquet_columns(files: tuple[Path, ...]) -> list[str]:
    columns: list[str] = pa.parquet.read_schema(files[0]).names
    for file in files[1:]:
        different = sorted(set(pa.parquet.read_schema(file).names) ^ set(columns))
        if different:
            raise InputError(
                f"{file} and {files[0].name} differ in their columns: {some(different)}; all files need the same ones"
            )
    return columns


def _check_duplicate_names(source: Any, columns: Sequence[str]) -> None:
    duplicates = [column for column, count in Counter(columns).items() if count > 1]
    if duplicates:
        raise InputError(
            f"{source}: {counted(len(duplicates), 'column name appears', 'column names appear')} more than once: "
            f"{some(duplicates)}; rename them"
        )
