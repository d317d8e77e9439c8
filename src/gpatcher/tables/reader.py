"""One table: a file, a folder of Parquet files or a table in memory."""

from __future__ import annotations

import csv
import difflib
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError, counted, some, warn_input

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".csv.gz": ",", ".tsv.gz": "\t"}
_PARQUET = (".parquet", ".pq")
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_HEADER_BYTES = 1 << 22
# Edges are handled in pieces of so many rows, as each costs one hash table of the ids. A text file of at most so many
# bytes is one piece; a larger one is read in blocks, several of which pyarrow keeps in flight.
_PIECE_ROWS = 1 << 20
_WHOLE_BYTES = 1 << 25
_BLOCK_BYTES = 1 << 18
MEMORY_POOL = pa.system_memory_pool()  # gives back what is freed; the default one keeps as much again
_WHOLE_BLOCK = 2**31 - 1  # the largest block pyarrow's reader takes


@dataclass(frozen=True)
class TableFile:
    """A file, folder or table in memory whose columns are known and whose rows are not read yet."""

    path: Path
    suffix: str
    columns: tuple[str, ...]
    delimiter: str = ","
    files: tuple[Path, ...] = ()
    memory: Any = None

    @classmethod
    def open(cls, source: Any, delimiter: str | None = None, name: str = "table") -> TableFile:
        """Look at a table; ``name`` is what to call one that is in memory."""
        if not isinstance(source, str | Path):
            return cls._in_memory(source, name)
        path = Path(source)
        lower = path.name.lower()
        suffix = next((s for s in (*_DELIMITERS, *_PARQUET) if lower.endswith(s)), None)
        files: tuple[Path, ...] = (path,)
        if path.is_dir():
            files = tuple(sorted(file for file in path.iterdir() if file.suffix.lower() in _PARQUET))
            if not files:
                raise InputError(f"{path} is a folder without Parquet files; pass a file, or a folder of *.parquet")
            suffix = files[0].suffix.lower()
        elif suffix is None:
            raise InputError(
                f"{path}: unknown kind of file; its name must end in {', '.join((*_DELIMITERS, *_PARQUET))}"
            )
        elif not path.is_file():
            raise InputError(f"{path}: there is no such file; looked in {path.absolute().parent}")
        mark = _DELIMITERS.get(str(suffix), ",")
        try:
            if suffix in _PARQUET:
                columns = _parquet_columns(files)
            else:
                columns, mark = _header(path, mark, delimiter)
        except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
            kind = "Parquet" if suffix in _PARQUET else "text in UTF-8"
            raise InputError(f"{path} cannot be read as {kind} ({first_line(error)}); save it anew") from None
        if not columns:
            raise InputError(f"{path} is empty; it needs a first line with the names of the columns")
        _refuse_doubled_names(path, columns)
        return cls(path, str(suffix), tuple(columns), mark, files)

    @classmethod
    def _in_memory(cls, source: Any, name: str) -> TableFile:
        if hasattr(source, "__dataframe__") and not isinstance(source, pa.Table):
            try:
                source = pa.Table.from_pandas(source, preserve_index=False)
            except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
                raise InputError(f"the frame of {name} cannot be read: {first_line(error)}") from None
        if not isinstance(source, pa.Table):
            raise InputError(f"{name} must be a path, a pyarrow table or a pandas frame, got {type(source).__name__}")
        _refuse_doubled_names(name, source.column_names)
        return cls(Path(name), "", tuple(source.column_names), memory=source)

    @property
    def stem(self) -> str:
        if self.memory is not None:
            return "graph"
        name = self.path.name
        return name[: -len(self.suffix)] if name.lower().endswith(self.suffix) else name

    def place(self, row: int) -> str:
        """Say where a row is: in a text file the first row is on line 2."""
        if len(self.files) > 1:
            for file in self.files:
                rows = pa.parquet.read_metadata(file).num_rows
                if row < rows:
                    return f"row {row} of {file.name}"
                row -= rows
        return f"row {row}" if self.is_typed else f"line {row + 2}"

    def require(self, wanted: dict[str, str]) -> None:
        """Refuse the file where it lacks a column; ``wanted`` maps the option to the column that it names."""
        for option, column in wanted.items():
            if column not in self.columns:
                raise InputError(f"{self.path} has no column {column!r}; {self._way_out(option, column)}")

    def _way_out(self, option: str, column: str) -> str:
        for mark, called in _MARKS.items():
            parts = [part.strip(' "') for header in self.columns for part in header.split(mark)]
            if len(parts) > len(self.columns) and column in parts:
                return f"its columns are separated by {called}: pass delimiter={mark!r} (--delimiter)"
        close = difflib.get_close_matches(column.lower(), {c.lower(): c for c in self.columns})
        meant = [c for c in self.columns if close and c.lower() == close[0]]
        hint = (
            f"did you mean {option}={meant[0]!r} (--{option})? "
            if meant
            else f"name it with {option}=... (--{option}). "
        )
        return f"{hint}The columns are: {', '.join(self.columns)}"

    @property
    def is_typed(self) -> bool:
        """Whether the types of the columns are given; in a text file they are guesses."""
        return self.suffix in _PARQUET or self.memory is not None

    def read(self, names: list[str], *, as_text: bool = False) -> dict[str, Any]:
        """Read these columns; in chunks, dictionaries decoded. A text file's types are guesses, if not text."""
        names = list(dict.fromkeys(names))
        try:
            table = self._read_typed(names) if self.is_typed else self._read_text(names, as_text)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self.path} cannot be read: {first_line(error)}") from None
        if not table.num_rows:
            raise InputError(f"{self.path} has the columns {', '.join(self.columns)} but no rows")
        columns: dict[str, Any] = {}
        for column in names:
            values = table.column(column)
            if pa.types.is_dictionary(values.type):
                values = values.cast(values.type.value_type)
            if pa.types.is_binary(values.type) and not self.is_typed:
                wrong = np.array([not _is_utf8(value.as_py()) for value in values])
                self.refuse(column, wrong, values, "are not text in UTF-8", "save the file in that encoding")
            columns[column] = values
        return columns

    def pieces(self, names: list[str]) -> Iterator[Any]:
        """Read these columns a million rows or so at a time; the types of a text file are those of its first block."""
        if self.memory is not None:
            yield from (pa.table(batch) for batch in self.memory.select(names).to_batches(_PIECE_ROWS))
            return
        if self.is_typed:
            for path in self.files:
                with pa.parquet.ParquetFile(path) as file:
                    for batch in file.iter_batches(_PIECE_ROWS, columns=names):
                        yield pa.table(batch)
            return
        convert = pa.csv.ConvertOptions(include_columns=names)
        parse = pa.csv.ParseOptions(delimiter=self.delimiter)
        options = dict(convert_options=convert, parse_options=parse, memory_pool=MEMORY_POOL)
        if self.suffix in (".csv", ".tsv") and self.path.stat().st_size <= _WHOLE_BYTES:
            yield pa.csv.read_csv(self.path, **options)  # on all cores, unlike the reader of blocks
            return
        read = pa.csv.ReadOptions(block_size=_BLOCK_BYTES)
        with pa.csv.open_csv(self.path, read_options=read, **options) as batches:
            waiting: list[Any] = []
            rows = 0
            for batch in batches:
                waiting.append(batch)
                rows += batch.num_rows
                if rows >= _PIECE_ROWS:
                    yield pa.Table.from_batches(waiting)
                    waiting, rows = [], 0
            if waiting:
                yield pa.Table.from_batches(waiting)

    def _read_typed(self, names: list[str]) -> Any:
        if self.memory is not None:
            return self.memory.select(names)
        parts = []
        for path in self.files:
            # not read_table, which takes folders called key=value for columns
            with pa.parquet.ParquetFile(path) as file:
                parts.append(file.read(columns=names))
        try:
            return pa.concat_tables(parts, promote_options="permissive")
        except pa.ArrowException as error:
            raise InputError(f"{self.path}: the files differ in their types ({first_line(error)})") from None

    def _read_text(self, names: list[str], as_text: bool) -> Any:
        types = dict.fromkeys(names, pa.string()) if as_text else {}
        convert = pa.csv.ConvertOptions(include_columns=names, column_types=types)
        try:
            parse = pa.csv.ParseOptions(delimiter=self.delimiter)
            return pa.csv.read_csv(self.path, convert_options=convert, parse_options=parse)
        except pa.ArrowInvalid:
            # The types were guessed from the first block and a later one differs, a block ends within a quoted
            # line break, or a row is broken: read as one block by one thread, which is slower, the first two are
            # resolved and the third is given its number.
            with pa.input_stream(str(self.path), compression="detect") as stream:
                text = stream.read()
            parse = pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)
            read = pa.csv.ReadOptions(block_size=min(len(text) + 1, _WHOLE_BLOCK), use_threads=False)
            whole = pa.BufferReader(text)
            return pa.csv.read_csv(whole, read_options=read, convert_options=convert, parse_options=parse)

    def refuse(
        self, column: str, wrong: npt.NDArray[np.bool_], values: Any, what: str, way: str, rows: IntArray | None = None
    ) -> None:
        """Raise where some row is wrong, with the number of them and the first one's value and place.

        ``rows`` are the rows of the file that the values come from, by default all.
        """
        at = np.flatnonzero(wrong)
        if at.size:
            first = int(at[0])
            value = values[first].as_py()
            shown = "" if value is None or value == "" else f" ({value!r})"
            raise InputError(
                f"{self.path}: {at.size} of {wrong.size} values in column {column!r} {what}, "
                f"the first on {self.place(first if rows is None else int(rows[first]))}{shown}; {way}"
            )


def _header(path: Path, usual: str, given: str | None) -> tuple[list[str], str]:
    """Return the names of the columns and what separates them: as given, as usual, or found where that gives one."""
    with pa.input_stream(str(path), compression="detect") as stream:
        start: bytes = stream.read(_HEADER_BYTES)
    lines = (line for part in io.BytesIO(start) for line in part.splitlines())  # no more of them than needed
    first = next((line for line in lines if line.strip()), b"").decode("utf-8-sig")
    found = {}
    for mark in (usual, *_MARKS) if given is None else (given,):
        rows = list(csv.reader([first], delimiter=mark))
        found[mark] = rows[0] if rows else []
    best = max(found, key=lambda mark: len(found[mark])) if len(found.get(usual, "12")) < 2 else usual
    mark = best if given is None else given
    if mark != usual and given is None:
        warn_input(f"{path}: the columns are separated by {_MARKS[mark]}, as its first line shows")
    return found[mark], mark


def _parquet_columns(files: tuple[Path, ...]) -> list[str]:
    columns: list[str] = pa.parquet.read_schema(files[0]).names
    for file in files[1:]:
        others = pa.parquet.read_schema(file).names
        if set(others) != set(columns):
            odd = sorted(set(others) ^ set(columns))
            raise InputError(f"{file} and {files[0].name} differ in their columns: {some(odd)}; they must be the same")
    return columns


def _refuse_doubled_names(where: Any, columns: Sequence[str]) -> None:
    doubled = [column for column, count in Counter(columns).items() if count > 1]
    if doubled:
        raise InputError(
            f"{where}: {counted(len(doubled), 'column name appears', 'column names appear')} more "
            f"than once: {some(doubled)}; rename them"
        )


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
