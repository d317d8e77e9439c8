"""The table of nodes: ids, labels, columns and what the nodes are split by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError, some, warn_input
from gpatcher.graph.checks import encode_labels
from gpatcher.tables.encoder import TableEncoder
from gpatcher.tables.ids import clean_ids, drop_duplicate_ids
from gpatcher.tables.options import DEFAULT_LABEL, TableOptions
from gpatcher.tables.reader import TableFile
from gpatcher.tables.values import is_number, to_seconds

# what pandas calls the row numbers that it writes along
_ROW_NUMBERS = ("", "Unnamed: 0", "__index_level_0__")
# empty in a column of numbers, but text in a column of text
_MISSING_WORDS = ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none")


@dataclass
class NodeRows:
    """The rows of the nodes that are used, with what they were."""

    table: TableFile
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


def read_nodes(table: TableFile, options: TableOptions, encoder: TableEncoder | None) -> NodeRows:
    id, label = options.id, options.label
    table.require({"id": id})
    if label == DEFAULT_LABEL and label not in table.columns:
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

    ids, rows, nameless = clean_ids(table, id, columns[id], options.on_missing_id)
    if nameless:
        warn_input(f"{table.path}: {nameless} of {rows_read} rows have no id in column {id!r} and are not used")
    ids, rows, doubled = drop_duplicate_ids(table, id, ids, rows, options.on_duplicate_id)
    if rows is not None:
        columns = {name: values.take(pa.array(rows)) for name, values in columns.items()}
    refuse = partial(table.refuse, rows=rows)
    y, classes = None, None
    if label is not None:
        y, classes = _labels(table, label, columns[label], refuse)
    found = {option: _role(option, column, columns[column], refuse) for option, column in options.roles.items()}
    features = {name: columns[name] for name in wanted}
    return NodeRows(table, id, ids, y, classes, features, found, rows, rows_read, doubled, nameless)


def _role(option: str, column: str, values: Any, refuse: Any) -> npt.NDArray[Any]:
    """Return what the nodes are split by: part or group as objects, time as a number; None or NaN where missing."""
    if option == "time":
        if not is_number(values.type):
            return to_seconds(column, values, refuse)
        return to_floats(column, values)
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


def to_floats(column: str, values: Any) -> FloatArray:
    numbers: FloatArray = values.cast(pa.float64(), safe=False).to_numpy()
    return numbers


def _labels(table: TableFile, column: str, values: Any, refuse: Any) -> tuple[IntArray, tuple[str, ...]]:
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
