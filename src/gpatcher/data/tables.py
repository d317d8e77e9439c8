"""Graphs from tables: one file of nodes, one of edges, as CSV or Parquet.

Every column is handled whole by pyarrow, so a million rows take about a second.
"""

from __future__ import annotations

import csv
import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from gpatcher.graph import FloatArray, Graph, InputError, IntArray, encode_labels, some, warn_input

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".csv.gz": ",", ".tsv.gz": "\t"}
_PARQUET = (".parquet", ".pq")
_DEFAULT_LABEL = "label"
_HEADER_BYTES = 1 << 22
# Edges are handled in pieces of so many rows, as each costs one hash table of the ids. A text file is read in smaller
# blocks, several of which pyarrow keeps in flight.
_PIECE_ROWS = 1 << 20
_BLOCK_BYTES = 1 << 18
_POOL = pa.system_memory_pool()  # gives back what is freed; the default one keeps as much again
_WHOLE_BLOCK = 2**31 - 1  # the largest block pyarrow's reader takes
# what pandas calls the row numbers that it writes along
_ROW_NUMBERS = ("", "Unnamed: 0", "__index_level_0__")
# empty in a column of numbers, but text in a column of text
_MISSING_WORDS = ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none")


def read_tables(
    nodes: str | Path | None,
    edges: str | Path,
    *,
    id: str = "id",
    label: str | None = _DEFAULT_LABEL,
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    features: Sequence[str] | None = None,
    directed: bool = False,
    name: str | None = None,
) -> Graph:
    """Build a graph from a table of nodes and a table of edges (.csv, .tsv, either with .gz, .parquet, .pq).

    Parameters
    ----------
    nodes : one row per node; None takes the ids that the edges name, in sorted order and without labels
    edges : one row per edge
    id : column of ``nodes`` with integers or text, each value once; kept in ``node_ids``
    label : column of ``nodes`` with the class, empty where unknown; None for no labels
    source, target : columns of ``edges`` with the ids of the two ends
    weight : column of ``edges`` with positive numbers; by default every edge counts as 1
    features : columns of ``nodes``; by default all others that hold numbers or booleans; held as float32
    directed : keep the direction of the edges; by default each row is an edge in both directions
    name : what to call the graph; by default the name of the file of edges
    """
    edge_table = _Table.open(edges)
    wanted = {"source": source, "target": target} | ({} if weight is None else {"weight": weight})
    edge_table.require(wanted)
    if source == target:
        raise InputError(f"source and target are both column {source!r}; name the columns of the two ends")
    unused = [column for column in edge_table.columns if column not in wanted.values()]
    if unused:
        hint = "; to use the weights, pass weight='weight' (--weight)" if "weight" in unused else ""
        warn_input(f"{edge_table.path}: {len(unused)} columns are not used: {some(unused)}{hint}")

    x: FloatArray | None = None
    y: IntArray | None = None
    classes: tuple[str, ...] | None = None
    ids: Any = None
    if nodes is not None:
        node_table = _Table.open(nodes)
        ids, x, y, classes = _read_nodes(node_table, id, label, features)
    elif features is not None or label not in (None, _DEFAULT_LABEL):
        raise InputError("labels and features are columns of the table of nodes; pass nodes, or leave them out")

    try:
        ids, numbers, weights = _stream_edges(edge_table, source, target, weight, ids)
    except (_NotPlainError, pa.ArrowException):
        # the whole columns at once tell in full what is wrong, or that nothing is
        ids, numbers, weights = _whole_edges(
            edge_table, source, target, weight, ids, None if nodes is None else node_table, id
        )
    pa.default_memory_pool().release_unused()
    graph = Graph.from_edge_index(
        numbers,
        x=x,
        y=y,
        num_nodes=len(ids),
        weights=weights,
        classes=classes,
        name=name if name is not None else edge_table.stem,
        node_ids=ids.to_numpy(zero_copy_only=False),
    )
    del numbers, weights
    return graph if directed else _both_ways(graph)


def write_table(columns: Mapping[str, npt.ArrayLike], path: str | Path) -> Path:
    """Write columns of equal length as .csv or .parquet, whole or not at all."""
    return write_pieces([columns], path)


def write_pieces(pieces: Iterable[Mapping[str, npt.ArrayLike]], path: str | Path) -> Path:
    """Write a table that comes in pieces of the same columns, one after the other; whole or not at all."""
    path = Path(path)
    kinds = {".csv": pa.csv.CSVWriter, ".parquet": pa.parquet.ParquetWriter, ".pq": pa.parquet.ParquetWriter}
    if path.suffix.lower() not in kinds:
        raise InputError(f"{path}: unknown kind of file; its name must end in {', '.join(kinds)}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path.parent} is not a folder; make it first or choose another place for {path.name}")
    draft = path.with_name(f".{path.name}.partial")
    try:
        with ExitStack() as stack:
            writer = None
            for piece in pieces:
                table = pa.table(dict(piece))
                writer = writer or stack.enter_context(kinds[path.suffix.lower()](draft, table.schema))
                writer.write_table(table)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


# ------------------------------------------------------------------------------------------ one file


@dataclass(frozen=True)
class _Table:
    """A file whose columns are known and whose rows are not read yet."""

    path: Path
    suffix: str
    columns: tuple[str, ...]

    @classmethod
    def open(cls, path: str | Path) -> _Table:
        path = Path(path)
        lower = path.name.lower()
        suffix = next((s for s in (*_DELIMITERS, *_PARQUET) if lower.endswith(s)), None)
        if suffix is None:
            raise InputError(
                f"{path}: unknown kind of file; its name must end in {', '.join((*_DELIMITERS, *_PARQUET))}"
            )
        if path.is_dir():
            raise InputError(f"{path} is a folder; pass a file")
        if not path.is_file():
            raise InputError(f"{path}: there is no such file; looked in {path.absolute().parent}")
        try:
            columns = pa.parquet.read_schema(path).names if suffix in _PARQUET else _header(path, _DELIMITERS[suffix])
        except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
            kind = "Parquet" if suffix in _PARQUET else "text in UTF-8"
            raise InputError(f"{path} cannot be read as {kind} ({_first_line(error)}); save it anew") from None
        if not columns:
            raise InputError(f"{path} is empty; it needs a first line with the names of the columns")
        doubled = [column for column, count in Counter(columns).items() if count > 1]
        if doubled:
            raise InputError(f"{path}: {len(doubled)} column names appear more than once: {some(doubled)}; rename them")
        return cls(path, suffix, tuple(columns))

    @property
    def stem(self) -> str:
        return self.path.name[: -len(self.suffix)]

    def place(self, row: int) -> str:
        """Say where a row is: in a text file the first row is on line 2."""
        return f"row {row}" if self.is_parquet else f"line {row + 2}"

    def require(self, wanted: dict[str, str]) -> None:
        """Refuse the file where it lacks a column; ``wanted`` maps the option to the column that it names."""
        for option, column in wanted.items():
            if column not in self.columns:
                raise InputError(f"{self.path} has no column {column!r}; {self._way_out(option, column)}")

    def _way_out(self, option: str, column: str) -> str:
        for mark, called in (("\t", "tabs"), (";", "semicolons"), (",", "commas"), ("|", "bars")):
            parts = [part.strip(' "') for header in self.columns for part in header.split(mark)]
            if len(parts) > len(self.columns) and column in parts:
                return f"its columns are separated by {called}: use commas in a .csv file and tabs in a .tsv file"
        close = difflib.get_close_matches(column.lower(), {c.lower(): c for c in self.columns})
        meant = [c for c in self.columns if close and c.lower() == close[0]]
        hint = (
            f"did you mean {option}={meant[0]!r} (--{option})? "
            if meant
            else f"name it with {option}=... (--{option}) "
        )
        return f"{hint}The columns are: {', '.join(self.columns)}"

    @property
    def is_parquet(self) -> bool:
        return self.suffix in _PARQUET

    def read(self, names: list[str], *, as_text: bool = False) -> dict[str, Any]:
        """Read these columns; in chunks, dictionaries decoded. A text file's types are guesses, if not text."""
        names = list(dict.fromkeys(names))
        try:
            table = self._read_parquet(names) if self.is_parquet else self._read_text(names, as_text)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self.path} cannot be read: {_first_line(error)}") from None
        if not table.num_rows:
            raise InputError(f"{self.path} has the columns {', '.join(self.columns)} but no rows")
        columns: dict[str, Any] = {}
        for column in names:
            values = table.column(column)
            if pa.types.is_dictionary(values.type):
                values = values.cast(values.type.value_type)
            if pa.types.is_binary(values.type) and not self.is_parquet:
                raise InputError(f"{self.path}: column {column!r} is not text in UTF-8; save the file in that encoding")
            columns[column] = values
        return columns

    def pieces(self, names: list[str]) -> Iterator[Any]:
        """Read these columns a million rows or so at a time; the types of a text file are those of its first block."""
        if self.is_parquet:
            with pa.parquet.ParquetFile(self.path) as file:
                for batch in file.iter_batches(_PIECE_ROWS, columns=names):
                    yield pa.table(batch)
            return
        convert = pa.csv.ConvertOptions(include_columns=names)
        parse = pa.csv.ParseOptions(delimiter=_DELIMITERS[self.suffix])
        read = pa.csv.ReadOptions(block_size=_BLOCK_BYTES)
        options = dict(read_options=read, convert_options=convert, parse_options=parse, memory_pool=_POOL)
        with pa.csv.open_csv(self.path, **options) as batches:
            waiting: list[Any] = []
            for batch in batches:
                waiting.append(batch)
                if sum(part.num_rows for part in waiting) >= _PIECE_ROWS:
                    yield pa.Table.from_batches(waiting)
                    waiting = []
            if waiting:
                yield pa.Table.from_batches(waiting)

    def _read_parquet(self, names: list[str]) -> Any:
        # not read_table, which takes folders called key=value for columns
        with pa.parquet.ParquetFile(self.path) as file:
            return file.read(columns=names)

    def _read_text(self, names: list[str], as_text: bool) -> Any:
        types = dict.fromkeys(names, pa.string()) if as_text else {}
        convert = pa.csv.ConvertOptions(include_columns=names, column_types=types)
        delimiter = _DELIMITERS[self.suffix]
        try:
            parse = pa.csv.ParseOptions(delimiter=delimiter)
            return pa.csv.read_csv(self.path, convert_options=convert, parse_options=parse)
        except pa.ArrowInvalid:
            # The types were guessed from the first block and a later one differs, a block ends within a quoted
            # line break, or a row is broken: read as one block by one thread, which is slower, the first two are
            # resolved and the third is given its number.
            with pa.input_stream(str(self.path), compression="detect") as stream:
                text = stream.read()
            parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
            read = pa.csv.ReadOptions(block_size=min(len(text) + 1, _WHOLE_BLOCK), use_threads=False)
            whole = pa.BufferReader(text)
            return pa.csv.read_csv(whole, read_options=read, convert_options=convert, parse_options=parse)

    def refuse(self, column: str, wrong: npt.NDArray[np.bool_], values: Any, what: str, way: str) -> None:
        """Raise where some row is wrong, with the number of them and the first one's value and place."""
        rows = np.flatnonzero(wrong)
        if rows.size:
            first = int(rows[0])
            value = values[first].as_py()
            shown = "" if value is None or value == "" else f" ({value!r})"
            raise InputError(
                f"{self.path}: {rows.size} of {wrong.size} values in column {column!r} {what}, "
                f"the first on {self.place(first)}{shown}; {way}"
            )


def _header(path: Path, delimiter: str) -> list[str]:
    with pa.input_stream(str(path), compression="detect") as stream:
        start: bytes = stream.read(_HEADER_BYTES)
    first = next((line for line in start.splitlines() if line.strip()), b"")
    rows = list(csv.reader([first.decode("utf-8-sig")], delimiter=delimiter))
    return rows[0] if rows else []


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


# ------------------------------------------------------------------------------------------ nodes


def _read_nodes(
    table: _Table, id: str, label: str | None, features: Sequence[str] | None
) -> tuple[Any, FloatArray | None, IntArray | None, tuple[str, ...] | None]:
    table.require({"id": id})
    if label == _DEFAULT_LABEL and label not in table.columns:
        warn_input(
            f"{table.path} has no column {label!r}, so the graph has no labels; name it with label=... or pass None"
        )
        label = None
    if label is not None:
        table.require({"label": label})
    for column in features or ():
        table.require({"features": column})
        if column == label:
            raise InputError(f"column {column!r} is the label; a model that sees it as a feature has nothing to learn")
    others = [column for column in table.columns if column not in (id, label)] if features is None else list(features)
    columns = table.read([id, *([] if label is None else [label]), *others])

    ids = pa.concat_arrays(_ids(table, id, columns[id]).chunks)
    _refuse_doubled(table, id, ids)
    y, classes = (None, None) if label is None else _labels(table, label, pa.concat_arrays(columns[label].chunks))
    if features is None:
        unused = [c for c in others if c in _ROW_NUMBERS or not _is_number(columns[c].type)]
        if unused:
            warn_input(
                f"{table.path}: {len(unused)} columns are not used, being text, dates, empty or row numbers: "
                f"{some(repr(c) for c in unused)}; encode them as numbers to use them"
            )
        others = [column for column in others if column not in unused]
    if not others:
        return ids, None, y, classes
    x = np.empty((len(ids), len(others)), np.float32)
    for j, column in enumerate(others):
        # dropped one by one, so that the table shrinks as x fills
        x[:, j] = _feature(table, column, columns[column] if features is not None else columns.pop(column))
    return ids, x, y, classes


def _is_number(kind: Any) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def _floats(table: _Table, column: str, values: Any) -> FloatArray:
    """Return a column of numbers as float64, NaN where it is empty."""
    if not _is_number(values.type) and not pa.types.is_null(values.type):
        raise InputError(
            f"{table.path}: column {column!r} holds {values.type}, not numbers; encode it as numbers first"
        )
    numbers: FloatArray = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _feature(table: _Table, column: str, values: Any) -> FloatArray:
    with np.errstate(over="ignore"):  # what does not fit becomes infinite and is refused below
        numbers = _floats(table, column, values).astype(np.float32)
    way = "fill them in, or leave the column out of features"
    table.refuse(column, ~np.isfinite(numbers), values, "are missing or not finite", way)
    return numbers


def _labels(table: _Table, column: str, values: Any) -> tuple[IntArray, tuple[str, ...]]:
    if pa.types.is_floating(values.type):
        numbers = _floats(table, column, values)
        way = "classes are text, integers or booleans; put numbers into bins first"
        table.refuse(column, numbers % 1 > 0, values, "are fractions, not classes", way)
        table.refuse(column, np.isinf(numbers), values, "are infinite", way)
        values = pa.array(numbers, from_pandas=True).cast(pa.int64())
    if pa.types.is_nested(values.type):
        raise InputError(
            f"{table.path}: column {column!r} holds {values.type}; a label is text, an integer or a boolean"
        )
    coded = values.dictionary_encode()
    kinds = [None if kind == "" else kind for kind in coded.dictionary.to_pylist()]
    odd = [kind for kind in kinds if kind in _MISSING_WORDS or (kind == -1 and not isinstance(kind, bool))]
    if odd:
        warn_input(
            f"{table.path}: in column {column!r}, {some(repr(kind) for kind in odd)} is taken for a class like any "
            "other; leave the field empty where the class is unknown"
        )
    number, classes = encode_labels(kinds)
    code = coded.indices.fill_null(len(kinds)).to_numpy(zero_copy_only=False)
    return np.append(number, -1)[code], classes


# ------------------------------------------------------------------------------------------ ids and edges


def _ids(table: _Table, column: str, values: Any) -> Any:
    """Return a column of ids as int64, text or what else it is; each row must have one."""
    if pa.types.is_floating(values.type) and not table.is_parquet and not values.null_count:
        # numbers longer than 64 bits, or versions such as 1.10: as floats, different ids could become the same
        values = table.read([column], as_text=True)[column]
    kind = values.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if pa.types.is_nested(kind):
        raise InputError(f"{table.path}: column {column!r} holds {kind}; an id is an integer or text")
    if text:
        values = values.cast(pa.large_string())
    missing = values.is_null(nan_is_null=True)
    if text:
        missing = pc.or_(missing, pc.fill_null(pc.equal(values, ""), True))
    table.refuse(column, missing.to_numpy(zero_copy_only=False), values, "are missing", "every row needs an id")
    if pa.types.is_floating(kind):
        raise InputError(
            f"{table.path}: the ids in column {column!r} are floating-point numbers, such as {values[0].as_py()!r}; "
            "store them as integers or text"
        )
    if pa.types.is_integer(kind):
        try:
            values = values.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InputError(f"{table.path}: column {column!r}: {_first_line(error)}; store the ids as text") from None
    return values


def _type_name(kind: Any) -> str:
    return "text" if pa.types.is_large_string(kind) else str(kind)


def _as_text_too(table: _Table, column: str, values: Any, others: Any) -> Any:
    """Read ids again as text where the others are text: in a text file, a column of digits may be either."""
    if table.is_parquet or pa.types.is_large_string(values.type) or not pa.types.is_large_string(others.type):
        return values
    return _ids(table, column, table.read([column], as_text=True)[column])


def _same_type(table: _Table, column: str, values: Any, other: _Table, other_column: str, others: Any) -> None:
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
        f"the ids differ in type: column {column!r} is {_type_name(values.type)} in {table.path}, "
        f"column {other_column!r} is {_type_name(others.type)} in {other.path}{example}; write both the same way"
    )


def _refuse_doubled(table: _Table, column: str, ids: Any) -> None:
    code = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    doubled = np.flatnonzero(np.bincount(code) > 1)
    if doubled.size:
        rows = np.flatnonzero(code == doubled[0])
        raise InputError(
            f"{table.path}: {doubled.size} ids in column {column!r} appear more than once, the first "
            f"{ids[int(rows[0])].as_py()!r} on {some(table.place(int(row)) for row in rows)}; each node has one row"
        )


class _NotPlainError(Exception):
    """A piece of a file holds something that needs a look at the whole."""


def _stream_edges(
    table: _Table, source: str, target: str, weight: str | None, ids: Any
) -> tuple[Any, IntArray, FloatArray | None]:
    """Read the edges piece by piece; return the ids of the nodes, the numbers of the ends (2, edges), the weights.

    Only what is plainly right goes this way: any doubt raises `_NotPlainError`.
    """
    if ids is None:
        for piece in table.pieces([source, target]):
            here = [*_plain_ids(piece, source).chunks, *_plain_ids(piece, target).chunks]
            if ids is not None and ids.type != here[0].type:
                raise _NotPlainError
            ids = pc.unique(pa.chunked_array(here if ids is None else [ids, *here]), memory_pool=_POOL)
        if ids is None:
            raise _NotPlainError
        ids = ids.take(pc.array_sort_indices(ids))
    numbers: dict[str, list[IntArray]] = {source: [], target: []}
    weights: list[FloatArray] = []
    for piece in table.pieces([source, target, *([] if weight is None else [weight])]):
        for column, parts in numbers.items():
            values = _plain_ids(piece, column)
            if values.type != ids.type:
                raise _NotPlainError
            found = pc.index_in(values, value_set=ids, memory_pool=_POOL)
            if found.null_count:
                raise _NotPlainError
            parts.append(found.to_numpy())
        if weight is not None:
            numbers_here = piece.column(weight).cast(pa.float64()).to_numpy()
            if not np.all(np.isfinite(numbers_here) & (numbers_here > 0)):
                raise _NotPlainError
            weights.append(numbers_here)
    if not numbers[source]:
        raise _NotPlainError
    ends = np.empty((2, sum(map(len, numbers[source]))), np.int32)
    for row, column in enumerate((source, target)):
        np.concatenate(numbers.pop(column), out=ends[row])
    return ids, ends, np.concatenate(weights) if weight is not None else None


def _plain_ids(piece: Any, column: str) -> Any:
    """Return a column of int64 or text without a gap."""
    values = piece.column(column)
    if pa.types.is_string(values.type):
        values = values.cast(pa.large_string())
        if pc.any(pc.equal(values, "")).as_py():
            raise _NotPlainError
    if values.null_count or values.type not in (pa.int64(), pa.large_string()):
        raise _NotPlainError
    return values


def _whole_edges(
    table: _Table, source: str, target: str, weight: str | None, ids: Any, nodes: _Table | None, id: str
) -> tuple[Any, IntArray, FloatArray | None]:
    """Read the edges in one go; the same as `_stream_edges`, but whatever is wrong is named with its place."""
    columns = table.read([source, target, *([] if weight is None else [weight])])
    weights = None if weight is None else _weights(table, weight, columns[weight])
    ends = {column: _ids(table, column, columns[column]) for column in (source, target)}
    if nodes is None:
        for column, other in ((source, target), (target, source)):
            ends[column] = _as_text_too(table, column, ends[column], ends[other])
        _same_type(table, source, ends[source], table, target, ends[target])
        ids = pc.unique(pa.chunked_array([*ends[source].chunks, *ends[target].chunks]))
        ids = ids.take(pc.array_sort_indices(ids))
    else:
        for column in (source, target):
            ends[column] = _as_text_too(table, column, ends[column], ids)
            _same_type(nodes, id, ids, table, column, ends[column])
    numbers = np.empty((2, len(ends[source])), np.int32)
    for row, column in enumerate((source, target)):
        numbers[row] = pc.index_in(ends[column], value_set=ids).fill_null(-1).to_numpy()
        where = "the table of nodes" if nodes is None else str(nodes.path)
        way = "add these nodes or remove these edges"
        table.refuse(column, numbers[row] < 0, ends[column], f"are not in {where}", way)
    return ids, numbers, weights


def _weights(table: _Table, column: str, values: Any) -> FloatArray:
    weights = _floats(table, column, values)
    wrong = ~((weights > 0) & np.isfinite(weights))  # NaN is not above 0
    table.refuse(column, wrong, values, "are missing, not positive or not finite", "correct or remove these edges")
    return weights


def _both_ways(graph: Graph) -> Graph:
    both = graph.undirected()
    if graph.weights is not None:
        # of the edges without an equal one back, those that do have one back differ from it in weight
        given, loops = graph.stored_edges - graph.self_loops, graph.self_loops
        pairs = given - (both.stored_edges - loops) // 2
        unequal = graph.one_way_edges - (given - 2 * pairs)
        if unequal:
            warn_input(
                f"{graph.name}: {unequal // 2} edges are given in both directions with different weights; "
                "the larger one counts"
            )
    return both
