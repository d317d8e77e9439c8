"""Graphs from tables: one of nodes, one of edges, as CSV, Parquet, or in memory.

Every column is handled whole by pyarrow, so a million rows take about a second.
"""

from __future__ import annotations

import csv
import difflib
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from gpatcher.data.splits import split_from_parts, stratified_folds, stratified_split, time_split
from gpatcher.encoding import TableEncoder, is_number, is_text, to_numbers, to_seconds
from gpatcher.graph import (
    Features,
    FloatArray,
    Graph,
    InputError,
    IntArray,
    Split,
    counted,
    encode_labels,
    some,
    warn_input,
)

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".csv.gz": ",", ".tsv.gz": "\t"}
_PARQUET = (".parquet", ".pq")
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_DEFAULT_LABEL = "label"
_HEADER_BYTES = 1 << 22
# Edges are handled in pieces of so many rows, as each costs one hash table of the ids. A text file of at most so many
# bytes is one piece; a larger one is read in blocks, several of which pyarrow keeps in flight.
_PIECE_ROWS = 1 << 20
_WHOLE_BYTES = 1 << 25
_BLOCK_BYTES = 1 << 18
_POOL = pa.system_memory_pool()  # gives back what is freed; the default one keeps as much again
_WHOLE_BLOCK = 2**31 - 1  # the largest block pyarrow's reader takes
# what pandas calls the row numbers that it writes along
_ROW_NUMBERS = ("", "Unnamed: 0", "__index_level_0__")
# empty in a column of numbers, but text in a column of text
_MISSING_WORDS = ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none")
_CHOICES = {
    "on_unknown_id": ("error", "drop", "add"),
    "on_duplicate_id": ("error", "first"),
    "on_missing_id": ("error", "drop"),
    "on_rare_class": ("error", "keep", "unlabel"),
}


@dataclass(frozen=True)
class TableOptions:
    """Which columns mean what, and what to do with rows that cannot be used as they are.

    Parameters
    ----------
    id : column of the nodes with integers, text or what else, each value once; kept in ``node_ids``
    label : column of the nodes with the class, empty where unknown; None for no labels
    source, target : columns of the edges with the ids of the two ends
    weight : column of the edges with positive numbers; by default every edge counts as 1
    features : columns of the nodes that become features; by default all others
    columns : kind of a column where it is not to be found by its type; see `gpatcher.encoding.KINDS`
    delimiter : what separates the fields of a text file; by default found in its first line
    directed : keep the direction of the edges; by default each row is an edge in both directions
    on_unknown_id : edge to an id that is not in the nodes: ``error``, ``drop`` the edge or ``add`` the node
    on_duplicate_id : id in several rows: ``error`` or keep the ``first`` row
    on_missing_id : row without an id, edge without an end: ``error`` or ``drop`` it
    on_rare_class : class with one labelled node, where a split is to be made: ``error``, ``keep`` or ``unlabel``
    split_column : column of the nodes with train, validation or test
    time : column of the nodes by which train comes before validation and validation before test
    group : column of the nodes whose values are never in two parts
    folds : make so many splits, each labelled node being in the test part of one
    name : what to call the graph; by default the name of the edges' file
    """

    id: str = "id"
    label: str | None = _DEFAULT_LABEL
    source: str = "source"
    target: str = "target"
    weight: str | None = None
    features: Sequence[str] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    delimiter: str | None = None
    directed: bool = False
    on_unknown_id: str = "error"
    on_duplicate_id: str = "error"
    on_missing_id: str = "error"
    on_rare_class: str = "error"
    split_column: str | None = None
    time: str | None = None
    group: str | None = None
    folds: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for option, known in _CHOICES.items():
            if getattr(self, option) not in known:
                raise InputError(f"{option} must be one of {', '.join(known)}, got {getattr(self, option)!r}")
        if self.source == self.target:
            raise InputError(f"source and target are both column {self.source!r}; name the columns of the two ends")
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise InputError(f"delimiter must be one character such as , or ; got {self.delimiter!r}")
        ways = [name for name in ("split_column", "time", "folds") if getattr(self, name) is not None]
        ways += ["group"] if self.group is not None and ways != ["folds"] else []
        if len(ways) > 1:
            raise InputError(f"{' and '.join(ways)} are different ways to split; choose one (group goes with folds)")

    @property
    def roles(self) -> dict[str, str]:
        """Columns of the nodes that say how to split, by their option."""
        given = {name: getattr(self, name) for name in ("split_column", "time", "group")}
        return {option: column for option, column in given.items() if column is not None}


@dataclass(frozen=True)
class Counts:
    """What became of every row.

    nodes = node_rows - doubled - nameless + added; edges = edge_rows - endless - unknown - repeated.
    """

    node_rows: int
    doubled: int
    nameless: int
    added: int
    edge_rows: int
    endless: int
    unknown: int
    repeated: int


@dataclass(frozen=True, eq=False)
class Tables:
    """What was read from tables of nodes and edges.

    Parameters
    ----------
    graph : with the splits that its tables name or that were asked for
    encoder : made the features of the graph; None where there are none
    counts : of the rows, used and not used
    """

    graph: Graph
    encoder: TableEncoder | None
    counts: Counts
    options: TableOptions
    roles: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def with_split(self, train: float = 0.6, val: float = 0.2, seed: int = 0) -> Tables:
        """Split the labelled nodes: by the columns that the options name, in folds, or at random, stratified.

        Parameters
        ----------
        train, val : shares of the labelled nodes; folds and groups have shares of their own
        """
        options, graph = self.options, self.graph
        if graph.splits:
            return self
        if graph.y is None or not graph.num_classes:
            raise InputError(
                f"no node has a label: column {options.label!r} of the nodes is not there or empty; name the column "
                "with label=... (--label) and fill it in for a part of the nodes"
            )
        graph = _with_common_classes(graph, options.on_rare_class)
        y = graph.labels()
        splits: list[Split]
        if options.time is not None:
            splits = [time_split(y, self.roles["time"], train, val)]
        elif options.folds is not None:
            splits = stratified_folds(y, options.folds, seed, self.roles.get("group"))
        elif options.group is not None:
            splits = stratified_folds(y, 5, seed, self.roles["group"])[:1]
        else:
            splits = [stratified_split(y, train, val, seed)]
        return replace(self, graph=graph.with_splits(splits))


def read_tables(nodes: Any, edges: Any, **options: Any) -> Graph:
    """Build a graph from a table of nodes and a table of edges; see `load_tables`, which tells more about them."""
    return load_tables(nodes, edges, **options).graph


def load_tables(nodes: Any, edges: Any, *, encoder: TableEncoder | None = None, **options: Any) -> Tables:
    """Read a table of nodes and a table of edges.

    Parameters
    ----------
    nodes : one row per node: a file (.csv, .tsv, either with .gz, .parquet, .pq), a folder of Parquet files, a pyarrow
        table or a pandas frame; None takes the ids that the edges name, in sorted order and without labels
    edges : one row per edge, likewise
    encoder : one that was fitted before; by default one is fitted on these nodes
    options : see `TableOptions`
    """
    unknown = set(options) - {part.name for part in fields(TableOptions)}
    if unknown:
        raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
    chosen = TableOptions(**options)
    edge_table = _Table.open(edges, chosen.delimiter, "edges")
    wanted = {"source": chosen.source, "target": chosen.target}
    wanted |= {} if chosen.weight is None else {"weight": chosen.weight}
    edge_table.require(wanted)
    unused = [column for column in edge_table.columns if column not in wanted.values()]
    if unused:
        hint = "; to use the weights, pass weight='weight' (--weight)" if "weight" in unused else ""
        warn_input(
            f"{edge_table.path}: {counted(len(unused), 'column is', 'columns are')} not used: {some(unused)}{hint}"
        )

    pieces = _ahead(edge_table.pieces(list(wanted.values())))
    found: _Nodes | None = None
    if nodes is not None:
        found = _read_nodes(_Table.open(nodes, chosen.delimiter, "nodes"), chosen, encoder)
    elif chosen.features is not None or chosen.label not in (None, _DEFAULT_LABEL) or chosen.columns or chosen.roles:
        raise InputError("labels, features and splits are columns of the table of nodes; pass nodes, or leave them out")

    # features on one side, edges on the other: neither needs the other, and both let go of the interpreter
    with ThreadPoolExecutor(1) as aside:
        features = None if found is None else aside.submit(_features, found, chosen, encoder)
        given = None if found is None else found.ids
        try:
            ends = _stream_edges(edge_table, pieces, chosen.source, chosen.target, chosen.weight, given)
        except (_NotPlainError, pa.ArrowException):
            # the whole columns at once tell in full what is wrong, or that nothing is
            ends = _whole_edges(edge_table, chosen, found)
        pa.default_memory_pool().release_unused()
        added = len(ends.ids) - (0 if found is None else len(found.ids))
        if found is not None and features is not None and added:
            features.exception()  # waits; what was made without the added nodes is of no use
            found.add_rows(added)
            features = aside.submit(_features, found, chosen, encoder)
        graph = Graph.from_edge_index(
            ends.numbers,
            y=None if found is None else found.y,
            num_nodes=len(ends.ids),
            weights=ends.weights,
            classes=None if found is None else found.classes,
            name=chosen.name if chosen.name is not None else edge_table.stem,
            node_ids=ends.ids.to_numpy(zero_copy_only=False),
        )
        counts = Counts(
            node_rows=0 if found is None else found.rows_read,
            doubled=0 if found is None else found.doubled,
            nameless=0 if found is None else found.nameless,
            added=added,
            edge_rows=ends.rows,
            endless=ends.endless,
            unknown=ends.unknown,
            repeated=graph.duplicate_edges,
        )
        if not chosen.directed:
            graph = _both_ways(graph)
        x: Features | None = None
        if features is not None:
            encoder, x, notes = features.result()
            for note in notes:
                warn_input(note)
            graph = graph.with_features(x)
    roles = {} if found is None else found.roles
    if "split_column" in roles:
        graph = graph.with_splits([split_from_parts(roles["split_column"])])
    return Tables(graph, encoder if x is not None else None, counts, chosen, roles)


def _features(
    found: _Nodes, options: TableOptions, encoder: TableEncoder | None
) -> tuple[TableEncoder, Features | None, list[str]]:
    """Return the encoder, by default a new one, the features that it makes, if any, and what is to be told of them."""
    if encoder is None:
        return TableEncoder.fit_transform(found.columns, options.columns, found.refuse)
    return encoder, *(encoder.features(found.columns, found.refuse) if encoder.coders else (None, []))


def _with_common_classes(graph: Graph, on_rare: str) -> Graph:
    """Deal with classes of one labelled node, which cannot be in train and in test."""
    y = graph.labels()
    sizes = np.bincount(y[y >= 0], minlength=graph.num_classes)
    rare = np.flatnonzero(sizes == 1)
    if not rare.size:
        return graph
    names = some(repr(graph.classes[c]) for c in rare)
    if on_rare == "error":
        node = int(np.flatnonzero(y == rare[0])[0])
        shown = node if graph.node_ids is None else graph.node_ids[node]
        raise InputError(
            f"{counted(rare.size, 'class', 'classes')} of one labelled node: {names}, "
            f"the first at id {shown!r}; label more nodes of "
            "it, or pass on_rare_class='keep' (for training alone) or 'unlabel' (--on-rare-class)"
        )
    if on_rare == "keep":
        warn_input(
            f"{counted(rare.size, 'class', 'classes')} of one labelled node, which is for training alone: {names}"
        )
        return graph
    kept = np.flatnonzero(sizes > 1)
    if not kept.size:
        raise InputError("every class has one labelled node; label more nodes")
    number = np.full(graph.num_classes + 1, -1)
    number[kept] = np.arange(kept.size)
    warn_input(f"{counted(rare.size, 'class', 'classes')} of one labelled node, taken as unlabelled: {names}")
    return replace(graph, y=number[y], classes=tuple(graph.classes[c] for c in kept))


def read_new_tables(
    graph: Graph, nodes: Any, edges: Any, encoder: TableEncoder | None, options: Mapping[str, Any]
) -> tuple[npt.NDArray[Any], Features | None, IntArray, FloatArray | None]:
    """Read nodes that came after a graph was made, and their edges among themselves and to it.

    Returns the ids (count,), the features (count, d) or None, the ends of the edges (2, edges) as numbers, of which the
    new nodes have n, n + 1, …, and the weights or None: what `Newcomers.join` takes.

    Parameters
    ----------
    nodes : one row per new node, with the columns of the graph's table; a label is not read
    edges : one row per edge; its ends are ids of new nodes or of the graph's
    encoder : what made the graph's features; None where they are no table's: then every column of numbers is one
    options : of `TableOptions`, as the graph was read with; others are passed over
    """
    columns = ("id", "source", "target", "weight", "delimiter", "on_duplicate_id", "on_missing_id")
    chosen = TableOptions(**{name: options[name] for name in columns if name in options}, label=None)
    made = graph.x is not None and encoder is None
    if made and "edges" in options:
        raise InputError(
            "the features of this graph were made from its structure, which new nodes change; train with features "
            "from columns to predict nodes that come later"
        )
    if encoder is None and not made:
        chosen = replace(chosen, features=())
    edge_table = _Table.open(edges, chosen.delimiter, "edges")
    wanted = {"source": chosen.source, "target": chosen.target}
    edge_table.require(wanted if chosen.weight is None else wanted | {"weight": chosen.weight})
    found = _read_nodes(_Table.open(nodes, chosen.delimiter, "nodes"), chosen, encoder)
    known = np.arange(graph.n) if graph.node_ids is None else graph.node_ids
    old = pa.array(known)
    old = old.cast(pa.large_string()) if is_text(old.type) else old.cast(pa.int64()) if is_number(old.type) else old
    new = found.ids
    if new.type != old.type:
        again = _as_text_too(found.table, chosen.id, found.table.read([chosen.id])[chosen.id], old)
        new = _combined(again if found.rows is None else again.take(pa.array(found.rows)))
    _refuse_other_type(found.table, chosen.id, new, old)
    there = pc.is_in(new, value_set=old).to_numpy(zero_copy_only=False)
    found.refuse(chosen.id, there, new, "are in the graph already", "this table is for new nodes only")
    everyone = pa.concat_arrays([old, new])
    both = []
    for column in (chosen.source, chosen.target):
        values = _as_text_too(edge_table, column, edge_table.read([column])[column], old)
        values = _combined(_ids(edge_table, column, values, "error")[0])
        _refuse_other_type(edge_table, column, values, old)
        at = pc.index_in(values, value_set=everyone).fill_null(-1).to_numpy(zero_copy_only=False)
        where = f"{found.table.path} nor in the graph"
        edge_table.refuse(column, at < 0, values, f"are neither in {where}", "add these nodes or remove these edges")
        both.append(at.astype(np.int64))
    weights = None
    if chosen.weight is not None:
        weights = _weights(edge_table, chosen.weight, edge_table.read([chosen.weight])[chosen.weight], None)
    x: Features | None = None
    if encoder is not None and encoder.coders:
        x = encoder.transform(found.columns, partial(_refuse_new, found))
    elif made:
        x = _plain_features(found, graph.num_features)
    return new.to_numpy(zero_copy_only=False), x, np.stack(both), weights


def _refuse_new(found: _Nodes, column: str, wrong: npt.NDArray[np.bool_], values: Any, what: str, way: str) -> None:
    """Refuse values of new nodes: the kind of a column was settled at training."""
    found.refuse(column, wrong, values, what, "correct them, or leave the fields empty" if "--column" in way else way)


def _combined(values: Any) -> Any:
    return pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values


def _refuse_other_type(table: _Table, column: str, values: Any, old: Any) -> None:
    if values.type != old.type:
        raise InputError(
            f"{table.path}: the ids in column {column!r} are {_type_name(values.type)}, those of the graph are "
            f"{_type_name(old.type)}, such as {old[0].as_py()!r}; write both the same way"
        )


def _plain_features(found: _Nodes, width: int) -> FloatArray:
    """Return the columns of numbers as they are, in their order."""
    numbers = {name: values for name, values in found.columns.items() if is_number(values.type)}
    if len(numbers) != width:
        raise InputError(
            f"{found.table.path} has {counted(len(numbers), 'column')} of numbers beside the id, "
            f"the graph has {counted(width, 'feature')}; "
            "give one column for each, in the order of the graph's"
        )
    columns = [to_numbers(name, values, found.refuse) for name, values in numbers.items()]
    for name, column in zip(numbers, columns, strict=True):
        found.refuse(name, np.isnan(column), numbers[name], "are missing", "fill them in")
    return np.stack(columns, axis=1).astype(np.float32)


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
    """A file, folder or table in memory whose columns are known and whose rows are not read yet."""

    path: Path
    suffix: str
    columns: tuple[str, ...]
    delimiter: str = ","
    files: tuple[Path, ...] = ()
    memory: Any = None

    @classmethod
    def open(cls, source: Any, delimiter: str | None = None, name: str = "table") -> _Table:
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
            raise InputError(f"{path} cannot be read as {kind} ({_first_line(error)}); save it anew") from None
        if not columns:
            raise InputError(f"{path} is empty; it needs a first line with the names of the columns")
        _refuse_doubled_names(path, columns)
        return cls(path, str(suffix), tuple(columns), mark, files)

    @classmethod
    def _in_memory(cls, source: Any, name: str) -> _Table:
        if hasattr(source, "__dataframe__") and not isinstance(source, pa.Table):
            try:
                source = pa.Table.from_pandas(source, preserve_index=False)
            except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
                raise InputError(f"the frame of {name} cannot be read: {_first_line(error)}") from None
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
            raise InputError(f"{self.path} cannot be read: {_first_line(error)}") from None
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
        options = dict(convert_options=convert, parse_options=parse, memory_pool=_POOL)
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
            raise InputError(f"{self.path}: the files differ in their types ({_first_line(error)})") from None

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


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


# ------------------------------------------------------------------------------------------ nodes


@dataclass
class _Nodes:
    """The rows of the nodes that are used, with what they were."""

    table: _Table
    id: str
    ids: Any
    y: IntArray | None
    classes: tuple[str, ...] | None
    columns: dict[str, Any]
    roles: dict[str, Any]
    rows: IntArray | None  # rows of the table, where not all are used
    rows_read: int
    doubled: int
    nameless: int

    def refuse(self, column: str, wrong: npt.NDArray[np.bool_], values: Any, what: str, way: str) -> None:
        self.table.refuse(column, wrong, values, what, way, self.rows)

    def add_rows(self, count: int) -> None:
        """Append nodes of which nothing is known."""
        if not count:
            return
        if self.y is not None:
            self.y = np.append(self.y, np.full(count, -1))
        for name, values in self.columns.items():
            self.columns[name] = pa.chunked_array([*values.chunks, pa.nulls(count, values.type)], values.type)
        for name, values in self.roles.items():
            self.roles[name] = np.append(values, np.full(count, None if values.dtype == object else np.nan))


def _read_nodes(table: _Table, options: TableOptions, encoder: TableEncoder | None) -> _Nodes:
    id, label = options.id, options.label
    table.require({"id": id})
    if label == _DEFAULT_LABEL and label not in table.columns:
        warn_input(
            f"{table.path} has no column {label!r}, so the graph has no labels; name it with label=... or pass None"
        )
        label = None
    table.require(({} if label is None else {"label": label}) | options.roles)
    for column in options.columns:
        table.require({"columns": column})
    for column in options.features or ():
        table.require({"features": column})
        if column == label:
            raise InputError(f"column {column!r} is the label; a model that sees it as a feature has nothing to learn")
    taken = (id, label, *options.roles.values())
    if encoder is not None:
        wanted = list(encoder.columns)
        absent = [column for column in wanted if column not in table.columns]
        if absent:
            raise InputError(
                f"{table.path} has no column {absent[0]!r}, which the model was trained with; add it, its fields empty "
                f"where nothing is known. The columns are: {some(table.columns)}"
            )
    elif options.features is not None:
        wanted = list(dict.fromkeys(options.features))
    else:
        numbered = [c for c in table.columns if c in _ROW_NUMBERS and c not in taken]
        if numbered:
            warn_input(
                f"{table.path}: column {numbered[0]!r} is not used, being row numbers; name it in features to use it"
            )
        wanted = [column for column in table.columns if column not in (*taken, *numbered)]
    roles = list(options.roles.values())
    columns = table.read([id, *([] if label is None else [label]), *roles, *wanted])
    rows_read = len(columns[id])

    ids, rows, nameless = _ids(table, id, columns[id], options.on_missing_id)
    if nameless:
        warn_input(f"{table.path}: {nameless} of {rows_read} rows have no id in column {id!r} and are not used")
    ids, rows, doubled = _once(table, id, ids, rows, options.on_duplicate_id)
    if rows is not None:
        columns = {name: values.take(pa.array(rows)) for name, values in columns.items()}
    refuse = partial(table.refuse, rows=rows)
    y, classes = None, None
    if label is not None:
        y, classes = _labels(table, label, columns[label], refuse)
    found = {option: _role(option, column, columns[column], refuse) for option, column in options.roles.items()}
    features = {name: columns[name] for name in wanted}
    return _Nodes(table, id, ids, y, classes, features, found, rows, rows_read, doubled, nameless)


def _role(option: str, column: str, values: Any, refuse: Any) -> npt.NDArray[Any]:
    """Return what the nodes are split by: part or group as objects, time as a number; None or NaN where missing."""
    if option == "time":
        if not is_number(values.type):
            return to_seconds(column, values, refuse)
        return _floats(column, values)
    if option == "group":
        missing = values.is_null(nan_is_null=True)
        code = pc.fill_null(pa.concat_arrays(values.chunks).dictionary_encode().indices, -1).to_numpy()
        names: npt.NDArray[Any] = np.array([None, *range(int(code.max(initial=-1)) + 1)], dtype=object)[code + 1]
        names[missing.to_numpy()] = None
        return names
    parts = np.array([None if v is None else str(v).strip().lower() or None for v in values.to_pylist()], dtype=object)
    known = {None: None, "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val"}
    known |= {"dev": "val", "test": "test", "testing": "test"}
    wrong = np.array([part not in known for part in parts])
    refuse(column, wrong, values, "name no part", "write train, validation or test, or leave the field empty")
    return np.array([known[part] for part in parts], dtype=object)


def _floats(column: str, values: Any) -> FloatArray:
    numbers: FloatArray = values.cast(pa.float64(), safe=False).to_numpy()
    return numbers


def _labels(table: _Table, column: str, values: Any, refuse: Any) -> tuple[IntArray, tuple[str, ...]]:
    values = pa.concat_arrays(values.chunks)
    if pa.types.is_floating(values.type):
        numbers: FloatArray = values.to_numpy(zero_copy_only=False).astype(np.float64)
        way = "classes are text, integers or booleans; put numbers into bins first"
        refuse(column, numbers % 1 > 0, values, "are fractions, not classes", way)
        refuse(column, np.abs(numbers) >= 2**63, values, "are infinite or too large", way)
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


def _ids(table: _Table, column: str, values: Any, on_missing: str) -> tuple[Any, IntArray | None, int]:
    """Return ids as int64, text or what else they are, their rows (None for all), and how many rows lack one."""
    values = _id_values(table, column, values)
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


def _id_values(table: _Table, column: str, values: Any) -> Any:
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
            raise InputError(f"{table.path}: column {column!r}: {_first_line(error)}; store the ids as text") from None
    return values


def _type_name(kind: Any) -> str:
    return "text" if pa.types.is_large_string(kind) else str(kind)


def _as_text_too(table: _Table, column: str, values: Any, others: Any) -> Any:
    """Read ids again as text where the others are text: in a text file, a column of digits may be either."""
    if table.is_typed or is_text(values.type) or not is_text(others.type):
        return values
    return _id_values(table, column, table.read([column], as_text=True)[column])


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


def _once(
    table: _Table, column: str, ids: Any, rows: IntArray | None, on_duplicate: str
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


@dataclass
class _Ends:
    """The edges by number, the ids that the numbers stand for, and what became of the rows."""

    ids: Any
    numbers: IntArray
    weights: FloatArray | None
    rows: int
    endless: int = 0
    unknown: int = 0


class _NotPlainError(Exception):
    """A piece of a file holds something that needs a look at the whole."""


def _ahead(pieces: Iterator[Any]) -> Iterator[Any]:
    """Return what an iterator gives; the next one is fetched on a thread, from now on."""
    pool = ThreadPoolExecutor(1)

    def given(piece: Any) -> Iterator[Any]:
        with pool:
            while (table := piece.result()) is not None:
                piece = pool.submit(next, pieces, None)
                yield table

    return given(pool.submit(next, pieces, None))


def _stream_edges(
    table: _Table, pieces: Iterator[Any], source: str, target: str, weight: str | None, ids: Any
) -> _Ends:
    """Turn the ends of the edges into numbers, piece by piece.

    Only what is plainly right goes this way: any doubt raises `_NotPlainError`.
    """
    if ids is None:
        ids = _edge_ids(table, source, target)
    # the reader of text files gives narrow text: to widen a few ids is cheaper than to widen all ends
    sets = {ids.type: ids}
    if is_text(ids.type) and ids.nbytes < 2**31 - 1:
        sets[pa.string()] = ids.cast(pa.string())
    numbers: dict[str, list[IntArray]] = {source: [], target: []}
    weights: list[FloatArray] = []
    for piece in pieces:
        with ThreadPoolExecutor(2) as pool:  # both ends at once
            for parts, found in zip(
                numbers.values(), pool.map(partial(_plain_numbers, piece, sets), numbers), strict=True
            ):
                parts.append(found)
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
    return _Ends(ids, ends, np.concatenate(weights) if weight is not None else None, ends.shape[1])


def _plain_numbers(piece: Any, sets: dict[Any, Any], column: str) -> IntArray:
    values = piece.column(column)
    if values.type not in sets:
        raise _NotPlainError
    found = pc.index_in(values, value_set=sets[values.type], memory_pool=_POOL)
    if found.null_count:  # a gap and an empty text are no ids either
        raise _NotPlainError
    numbers: IntArray = found.to_numpy()
    return numbers


def _plain_ids(piece: Any, column: str) -> Any:
    """Return a column of int64 or wide text without a gap."""
    values = piece.column(column)
    if is_text(values.type) and pc.any(pc.equal(values, "")).as_py():
        raise _NotPlainError
    if values.null_count or values.type not in (pa.int64(), pa.string(), pa.large_string()):
        raise _NotPlainError
    return values.cast(pa.large_string()) if is_text(values.type) else values


def _edge_ids(table: _Table, source: str, target: str) -> Any:
    """Return the ids that the edges name, sorted."""
    ids = None
    waiting: list[Any] = []  # merged once they outnumber the ids known, so that each is sorted a few times only
    for piece in table.pieces([source, target]):
        here = _sorted_union([*_plain_ids(piece, source).chunks, *_plain_ids(piece, target).chunks])
        ids = here[:0] if ids is None else ids
        if ids.type != here.type:
            raise _NotPlainError
        waiting.append(here)
        if sum(map(len, waiting)) > len(ids):
            ids, waiting = _sorted_union([ids, *waiting]), []
    if ids is None:
        raise _NotPlainError
    return _sorted_union([ids, *waiting]) if waiting else ids


def _sorted_union(parts: list[Any]) -> Any:
    """Return the distinct values of arrays of one type, sorted."""
    if pa.types.is_integer(parts[0].type):  # in place, where numpy and arrow make hash tables
        values = np.concatenate([part.to_numpy() for part in parts])
        values.sort()
        return pa.array(values[np.append(True, values[1:] != values[:-1])] if values.size else values, parts[0].type)
    ids = pc.unique(pa.chunked_array(parts))
    return ids.take(pc.array_sort_indices(ids))


def _whole_edges(table: _Table, options: TableOptions, nodes: _Nodes | None) -> _Ends:
    """Read the edges in one go; the same as `_stream_edges`, but whatever is wrong is named with its place."""
    source, target, weight = options.source, options.target, options.weight
    columns = table.read([source, target, *([] if weight is None else [weight])])
    total = len(columns[source])
    values = {column: _id_values(table, column, columns[column]) for column in (source, target)}
    for column, other in ((source, target), (target, source)):
        values[column] = _as_text_too(table, column, values[column], values[other] if nodes is None else nodes.ids)
    kept = np.ones(total, bool)
    ends: dict[str, Any] = {}
    for column in (source, target):
        found, rows, lacking = _ids(table, column, values[column], options.on_missing_id)
        if lacking:
            there = np.zeros(total, bool)
            there[rows] = True
            kept &= there
        if nodes is not None:
            _same_type(nodes.table, nodes.id, nodes.ids, table, column, found)
    endless = int(total - kept.sum())
    if endless:
        warn_input(f"{table.path}: {endless} of {total} edges lack an end and are not used")
    rows = np.flatnonzero(kept)
    for column in (source, target):
        # typed as `_ids` leaves them, over the rows where both ends are there
        ends[column] = _ids(table, column, values[column].take(pa.array(rows)), "error")[0]
    if nodes is None:
        _same_type(table, source, ends[source], table, target, ends[target])
    if nodes is None or options.on_unknown_id == "add":
        met = pc.unique(pa.chunked_array([*ends[source].chunks, *ends[target].chunks], ends[source].type))
    if nodes is None:
        ids = met.take(pc.array_sort_indices(met))
    else:
        ids = nodes.ids
        if options.on_unknown_id == "add":
            new = met.filter(pc.invert(pc.is_in(met, value_set=ids)))
            if len(new):
                shown = some(repr(v.as_py()) for v in new[:6])
                warn_input(
                    f"{table.path}: {counted(len(new), 'id is', 'ids are')} not in "
                    f"{nodes.table.path} and added as nodes: {shown}"
                )
            ids = pa.concat_arrays([ids, new])
    numbers = np.empty((2, rows.size), np.int32)
    for row, column in enumerate((source, target)):
        numbers[row] = pc.fill_null(pc.index_in(ends[column], value_set=ids), -1).to_numpy()
        if nodes is not None and options.on_unknown_id == "error":
            way = "add these nodes, remove these edges, or pass on_unknown_id='drop' or 'add' (--on-unknown-id)"
            table.refuse(column, numbers[row] < 0, ends[column], f"are not in {nodes.table.path}", way, rows)
    known = (numbers >= 0).all(axis=0)
    unknown = int(rows.size - known.sum())
    if unknown:
        warn_input(f"{table.path}: {unknown} of {total} edges name an id that is not among the nodes and are not used")
        numbers, rows = numbers[:, known], rows[known]
    weights = None if weight is None else _weights(table, weight, columns[weight].take(pa.array(rows)), rows)
    return _Ends(ids, numbers, weights, total, endless, unknown)


def _weights(table: _Table, column: str, values: Any, rows: IntArray | None) -> FloatArray:
    way = "correct or remove these edges"
    if is_text(values.type):
        odd = np.array([not _is_number_text(value) for value in values.to_pylist()])
        table.refuse(column, odd, values, "are no numbers", way, rows)
    if not is_number(values.type) and not pa.types.is_null(values.type):
        raise InputError(f"{table.path}: column {column!r} holds {values.type}, not numbers; weights are numbers")
    weights = _floats(column, values)
    wrong = ~((weights > 0) & np.isfinite(weights))  # NaN is not above 0
    table.refuse(column, wrong, values, "are missing, not positive or not finite", way, rows)
    return weights


def _is_number_text(value: str | None) -> bool:
    try:
        float(value or "")
    except ValueError:
        return False
    return True


def _both_ways(graph: Graph) -> Graph:
    both = graph.undirected()
    if graph.weights is not None:
        # of the edges without an equal one back, those that do have one back differ from it in weight
        given, loops = graph.stored_edges - graph.self_loops, graph.self_loops
        pairs = given - (both.stored_edges - loops) // 2
        unequal = graph.one_way_edges - (given - 2 * pairs)
        if unequal:
            warn_input(
                f"{graph.name}: {counted(unequal // 2, 'edge is', 'edges are')} given in both "
                f"directions with different weights; "
                "the larger one counts"
            )
    return both
