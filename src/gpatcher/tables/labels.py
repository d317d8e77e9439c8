"""Labels of a table of nodes: classes, or numbers to predict."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import FloatArray
from gpatcher.errors import InputError, some, warn_input
from gpatcher.graph.checks import encode_labels
from gpatcher.tables.reader import TableSource
from gpatcher.tables.values import (
    MISSING_WORDS,
    Reject,
    blanks_to_null,
    combine_chunks,
    is_number,
    is_text,
    to_floats,
    to_numbers,
    to_numpy,
)

_MANY = 20  # distinct numbers up to which labels are classes
_SHARE = 0.05  # of the labelled nodes, up to which distinct numbers are classes
_LEADING_ZERO = r"^\s*[+-]?0[0-9]"  # of codes, such as 007


def read_labels(
    table: TableSource, column: str, values: Any, reject: Reject, task: str | None
) -> tuple[npt.NDArray[Any], tuple[str, ...] | None]:
    """Return the label of each node and the names of the classes.

    Numbers are to be predicted (a regression) if the task says so, or by default if they have more than 20 distinct
    values, and more than a twentieth as many as there are labelled nodes; they are floats, NaN where missing. Else
    labels are classes: integers, -1 where missing. Codes with leading zeros are classes.
    """
    values = combine_chunks(values)
    if task == "regression":
        return _numbers(column, values, reject), None
    numbers = _as_numbers(table, values) if task is None else None
    if numbers is not None:
        known = numbers[~np.isnan(numbers)]
        distinct = np.unique(known).size
        if distinct > max(_MANY, _SHARE * known.size):
            found = f"column {column!r} has {distinct:,} distinct numbers in {known.size:,} labels"
            warn_input(
                f"{table.path}: {found}, so numbers are predicted; for classes pass task='classification' (--task)"
            )
            return _numbers(column, values, reject), None
    return _classes(table, column, values, reject)


def _as_numbers(table: TableSource, values: Any) -> FloatArray | None:
    """Return labels as numbers, None if they are not: booleans, text of a typed table, codes with leading zeros."""
    if is_text(values.type) and not table.is_typed:
        if pc.any(pc.match_substring_regex(values.unique(), _LEADING_ZERO)).as_py():
            return None
        with suppress(pa.ArrowInvalid):
            return _parse(values, trim=True)
        return None
    numeric = is_number(values.type) and not pa.types.is_boolean(values.type)
    return to_floats(values) if numeric else None


def _parse(values: Any, *, trim: bool = False) -> FloatArray:
    """Return text as numbers, NaN where blank; each distinct text is parsed once."""
    encoded = values.dictionary_encode()
    distinct = blanks_to_null(encoded.dictionary)
    numbers = to_floats(pc.utf8_trim_whitespace(distinct) if trim else distinct)
    parsed: FloatArray = np.append(numbers, np.nan)[to_numpy(encoded.indices.fill_null(-1))]
    return parsed


def _numbers(column: str, values: Any, reject: Reject) -> FloatArray:
    if pa.types.is_boolean(values.type):
        reject(column, to_numpy(values.is_valid()), values, "are booleans, not numbers", "predict them as classes")
    if is_text(values.type):
        words = pc.fill_null(pc.is_in(pc.utf8_trim_whitespace(values), value_set=pa.array(MISSING_WORDS)), False)
        reject(column, to_numpy(words), values, "are not numbers", "leave the field empty where the number is unknown")
    return to_numbers(column, values, reject)


def label_type(dtype: Any, y: npt.NDArray[Any] | None) -> str | None:
    """Return the dtype of labels that are numbers or booleans; those of other dtypes are text."""
    if y is not None and y.dtype.kind == "f":
        return "double"
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype):
        return "int64"
    return "bool" if pa.types.is_boolean(dtype) else None


def _classes(table: TableSource, column: str, values: Any, reject: Reject) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
    """Return the class of each node, -1 where missing, and the names of the classes."""
    fix = "classes are text, integers or booleans; put numbers into bins first, or predict them with task='regression'"
    if is_text(values.type) and not table.is_typed:
        with suppress(pa.ArrowInvalid):
            numbers = _parse(values)
            reject(column, numbers % 1 > 0, values, "are fractions, not classes", fix)
    if pa.types.is_floating(values.type):
        numbers = to_floats(values)
        reject(column, numbers % 1 > 0, values, "are fractions, not classes", fix)
        reject(column, np.abs(numbers) >= 2**63, values, "are infinite or too large", fix)
        values = pa.array(numbers, from_pandas=True).cast(pa.int64())
    if pa.types.is_nested(values.type):
        raise InputError(f"{table.path}: column {column!r} holds {values.type}; labels are text, integers or booleans")
    encoded = values.dictionary_encode()
    labels = [None if label == "" else label for label in encoded.dictionary.to_pylist()]
    suspicious = [label for label in labels if label in MISSING_WORDS or (label == -1 and not isinstance(label, bool))]
    if suspicious:
        warn_input(
            f"{table.path}: in column {column!r}, {some(map(repr, suspicious))} is read as a class like any other; "
            "leave the field empty where the class is unknown"
        )
    y, classes = encode_labels(labels)
    codes = to_numpy(encoded.indices.fill_null(len(labels)))
    return np.append(y, -1)[codes], classes
