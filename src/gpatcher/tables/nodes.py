"""Read the table of nodes: ids, labels, feature columns and the columns that define the split."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpatcher.arrays import BoolArray
from gpatcher.errors import InputError, some, warn_input
from gpatcher.tables.edge_columns import EdgePlan
from gpatcher.tables.encoder import TableEncoder
from gpatcher.tables.ids import Ids
from gpatcher.tables.labels import label_type, read_labels
from gpatcher.tables.options import DEFAULT_LABEL, TableOptions
from gpatcher.tables.reader import TableSource
from gpatcher.tables.values import (
    Reject,
    combine_chunks,
    is_number,
    missing_mask,
    to_floats,
    to_numpy,
    to_seconds,
)

_INDEX_COLUMNS = ("", "Unnamed: 0", "__index_level_0__")  # names that pandas writes for an index
_PARTS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val"}
_PARTS |= {"test": "test", "testing": "test"}


@dataclass
class NodeRows:
    """The rows of nodes that are used."""

    ids: Ids  # unique, with the rows that they come from
    y: npt.NDArray[Any] | None  # class of each node, -1 where unknown, or its number, NaN where unknown
    classes: tuple[str, ...] | None
    columns: dict[str, Any]  # columns that become features
    split_values: dict[str, npt.NDArray[Any]]  # value of each node, by option
    counts: dict[str, int]  # the fields of Counts that concern nodes
    label_type: str | None = None  # int64, bool or double, None if labels are text
    plans: list[EdgePlan] = field(default_factory=list)  # of columns that were added from edges of a type

    @property
    def task(self) -> str | None:
        """Regression or classification, None without labels."""
        return None if self.y is None else "regression" if self.y.dtype.kind == "f" else "classification"

    def reject(self, column: str, invalid: BoolArray, values: Any, problem: str, fix: str) -> None:
        """Raise an InputError if a value is invalid; see `reject_values`."""
        self.ids.table.reject(column, invalid, values, problem, fix, self.ids.rows)

    def add_rows(self, count: int) -> None:
        """Append nodes whose values are all missing; their ids are those of the edges."""
        if self.y is not None:
            self.y = np.append(self.y, np.full(count, np.nan if self.y.dtype.kind == "f" else -1))
        for name, values in self.columns.items():
            self.columns[name] = pa.chunked_array([*values.chunks, pa.nulls(count, values.type)], values.type)
        for option, values in self.split_values.items():
            missing = None if values.dtype == object else np.nan
            self.split_values[option] = np.append(values, np.full(count, missing))


def read_nodes(table: TableSource, options: TableOptions, encoder: TableEncoder | None) -> NodeRows:
    """Read the columns that the options name, and those of the encoder if one is passed."""
    label = options.label
    table.require({"id": options.id})
    if label == DEFAULT_LABEL and label not in table.columns:
        warn_input(
            f"{table.path} has no column {label!r}, so the graph has no labels; name it with label=... or pass None"
        )
        label = None
    used = {"id": options.id, **({} if label is None else {"label": label}), **options.split_columns}
    table.require(used)
    feature_columns = _feature_columns(table, options, encoder, list(used.values()))
    written = [options.id] if label is None else [options.id, label]
    columns = table.read([*used.values(), *feature_columns], written=written)
    node_rows = len(columns[options.id])

    ids = Ids.read(table, options.id, columns[options.id]).drop_missing(options.on_missing_id).exact()
    with_id = len(ids.values)
    if with_id < node_rows:
        missing = f"{node_rows - with_id} of {node_rows} rows"
        warn_input(f"{table.path}: {missing} have no id in column {options.id!r} and are not used")
    ids = ids.drop_duplicates(options.on_duplicate_id)
    if ids.rows is not None:
        columns = {name: values.take(pa.array(ids.rows)) for name, values in columns.items()}
    reject = partial(table.reject, rows=ids.rows)
    y, classes = (None, None) if label is None else read_labels(table, label, columns[label], reject, options.task)
    return NodeRows(
        ids,
        y,
        classes,
        columns={name: columns[name] for name in feature_columns},
        split_values={
            option: _split_values(option, column, columns[column], reject)
            for option, column in options.split_columns.items()
        },
        counts={"node_rows": node_rows, "missing_ids": node_rows - with_id, "duplicate_ids": with_id - len(ids.values)},
        label_type=None if label is None else label_type(columns[label].type, y),
    )


def _feature_columns(
    table: TableSource, options: TableOptions, encoder: TableEncoder | None, used: list[str]
) -> list[str]:
    """Return the columns that become features: those of the encoder, of the options, or all other columns."""
    for column in options.columns:
        table.require({"columns": column})
    for column in options.features or ():
        table.require({"features": column})
        if column == options.label:
            raise InputError(f"column {column!r} is the label; a model that sees it as a feature has nothing to learn")
    if encoder is not None:
        fitted = [column for column in encoder.columns if column not in encoder.edge_columns()]
        missing = [column for column in fitted if column not in table.columns]
        if missing:
            raise InputError(
                f"{table.path} has no column {missing[0]!r}, which the model was trained with; add it, empty where "
                f"unknown. The columns are: {some(table.columns)}"
            )
        return fitted
    if options.features is not None:
        return list(dict.fromkeys(options.features))
    unused = [column for column in table.columns if column not in used]
    index = [column for column in unused if column in _INDEX_COLUMNS]
    if index:
        warn_input(f"{table.path}: column {index[0]!r} is not used (row numbers); name it in features to use it")
    return [column for column in unused if column not in index]


def _split_values(option: str, column: str, values: Any, reject: Reject) -> npt.NDArray[Any]:
    """Return the part or group of each node as objects, None where missing, or its time, NaN where missing."""
    if option == "time":
        return to_floats(values) if is_number(values.type) else to_seconds(column, values, reject)
    if option == "group":
        codes = to_numpy(combine_chunks(values).dictionary_encode().indices.fill_null(-1))
        groups: npt.NDArray[Any] = codes.astype(object)
        groups[missing_mask(values)] = None
        return groups
    parts = [str(value).strip().lower() if value is not None else "" for value in values.to_pylist()]
    invalid = np.array([part not in ("", *_PARTS) for part in parts])
    reject(column, invalid, values, "name no part", "write train, validation or test, or leave the field empty")
    return np.array([_PARTS.get(part) for part in parts], dtype=object)
