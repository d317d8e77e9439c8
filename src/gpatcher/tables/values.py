"""Arrow columns as numbers, dates, booleans, categories and text; NaN, -1 or null where a value is missing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import BoolArray, FloatArray, IntArray
from gpatcher.errors import InputError
from gpatcher.kernels.integers import parse_integers

# reject(column, invalid, values, problem, fix) raises an InputError if a value is invalid; see `reject_values`
Reject: TypeAlias = Callable[[str, BoolArray, Any, str, str], None]
# warn(message) collects a warning: columns are encoded on threads, whose stack does not have the caller's line
Warn: TypeAlias = Callable[[str], None]
DAY = 86_400.0
# missing values if all other values are integers; plain text in a text column
MISSING_WORDS = ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none")
_BOOLEANS = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}


def reject_values(
    column: str,
    invalid: BoolArray,
    values: Any,
    problem: str,
    fix: str,
    prefix: str = "",
    location: Callable[[int], str] = "row {}".format,
) -> None:
    """Raise an InputError if a value is invalid, with the number of such values, the first of them and its row.

    ``problem`` says what is wrong, ``fix`` how to correct it; ``location`` maps the position of a value to its row.
    """
    positions = np.flatnonzero(invalid)
    if positions.size:
        value = values[int(positions[0])].as_py()
        where = location(int(positions[0]))
        shown = "" if value is None or value == "" else f" ({value!r})"
        raise InputError(
            f"{prefix}{positions.size} of {invalid.size} values in column {column!r} {problem}, the first "
            f"{'on' if where.startswith('line') else 'in'} {where}{shown}; {fix}"
        )


def first_line(error: Exception) -> str:
    """Return the first line of an error message; those of pyarrow have many."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def is_number(dtype: Any) -> bool:
    """Whether an arrow dtype holds numbers or booleans."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(dtype) for test in tests)


def is_text(dtype: Any) -> bool:
    """Whether an arrow dtype holds text."""
    return any(test(dtype) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def is_date(dtype: Any) -> bool:
    """Whether an arrow dtype holds dates or timestamps."""
    return bool(pa.types.is_date(dtype) or pa.types.is_timestamp(dtype))


def to_numpy(values: Any) -> npt.NDArray[Any]:
    """Return an arrow array, chunked or not, as a NumPy array."""
    array: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array


def combine_chunks(values: Any) -> Any:
    """Return a chunked array as one array; text of more than 1 GiB gets 64-bit offsets."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    wide = pa.types.is_string(values.type) and values.nbytes > 2**30
    return (values.cast(pa.large_string()) if wide else values).combine_chunks()


def as_written(values: Any) -> Any:
    """Return ids or labels of a text file as int64 if they convert back to the same text, else as text.

    007, 1.0 and integers beyond 64 bits stay text. Values that are not UTF-8 stay binary.
    """
    try:
        text = values.cast(pa.string())
    except pa.ArrowInvalid:
        return values
    integers, other = _integers(text)
    if other in MISSING_WORDS:
        words = pc.is_in(text, value_set=pa.array(MISSING_WORDS))
        integers, other = _integers(pc.if_else(words, "", text))
    return text if other else integers


def _integers(text: Any) -> tuple[Any, str]:
    """Return text as int64, and the first value that is not an integer, after which nothing is read."""
    chunks = []
    for chunk in text.chunks:
        numbers, missing = np.empty(len(chunk), np.int64), np.empty(len(chunk), bool)
        parsed = parse_integers(*text_buffers(chunk), numbers, missing)
        if parsed < len(chunk):
            return None, chunk[parsed].as_py()
        chunks.append(pa.array(numbers, mask=missing))
    return pa.chunked_array(chunks, pa.int64()), ""


def plain(values: Any) -> Any:
    """Return a column without dictionary, view and half-precision types, for which pyarrow lacks functions."""
    dtype = values.type
    if pa.types.is_dictionary(dtype):
        return plain(values.cast(dtype.value_type))
    simpler = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.float16(): pa.float32()}
    return values.cast(simpler[dtype]) if dtype in simpler else values


def blanks_to_null(values: Any) -> Any:
    """Return text with null in place of empty and blank strings."""
    blank = pc.or_(pc.utf8_is_space(values), pc.equal(pc.binary_length(values), 0))
    return pc.if_else(blank, None, values) if pc.any(blank).as_py() else values


def missing_mask(values: Any) -> BoolArray:
    """Return a mask of values that are null or NaN."""
    return to_numpy(values.is_null(nan_is_null=True))


def uncastable_mask(values: Any, dtype: Any) -> BoolArray:
    """Return a mask of values that cannot be cast to a dtype; slow, for messages only."""

    def fails(value: Any) -> bool:
        try:
            value.cast(dtype)
        except pa.ArrowInvalid:
            return True
        return False

    return np.array([fails(value) for value in values], bool)


def _to_dtype(column: str, values: Any, dtype: Any, is_valid: Callable[[Any], bool], reject: Reject, what: str) -> Any:
    """Parse text, and reject other dtypes that are not ``what``."""
    if not is_text(values.type):
        if not is_valid(values.type) and not pa.types.is_null(values.type):
            invalid = ~missing_mask(values)
            reject(column, invalid, values, f"are {values.type}, not {what}", f"convert the column to {what}")
        return values
    values = blanks_to_null(values)
    trimmed = pc.utf8_trim_whitespace(values)
    try:
        return trimmed.cast(dtype)
    except pa.ArrowInvalid:
        invalid = uncastable_mask(trimmed, dtype)
        reject(column, invalid, values, f"are not {what}", "correct them or leave the fields empty")
        raise


def to_floats(values: Any) -> FloatArray:
    """Return a column of numbers as float64, NaN where missing."""
    return to_numpy(values.cast(pa.float64(), safe=False))


def to_numbers(column: str, values: Any, reject: Reject) -> FloatArray:
    """Return a column as float64; infinite values and text that is not a number are rejected."""
    values = _to_dtype(column, values, pa.float64(), is_number, reject, "numbers")
    numbers = to_numpy(values.cast(pa.float64(), safe=False))
    with np.errstate(invalid="ignore"):
        invalid = np.abs(numbers) > np.finfo(np.float32).max
    reject(column, invalid, values, "are not finite as 32-bit numbers", "correct them or leave the column out")
    return numbers


def to_seconds(column: str, values: Any, reject: Reject) -> FloatArray:
    """Return dates and timestamps as seconds since 1970."""
    values = _to_dtype(column, values, pa.timestamp("us"), is_date, reject, "dates")
    try:
        stamps = values.cast(pa.timestamp("us", getattr(values.type, "tz", None)), safe=False).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise InputError(f"column {column!r}: {first_line(error)}; correct the date or leave it out") from None
    seconds: FloatArray = to_numpy(stamps.cast(pa.float64(), safe=False)) / 1e6
    return seconds


def to_booleans(column: str, values: Any, reject: Reject) -> FloatArray:
    """Return booleans, the numbers 0 and 1, and text such as yes and false as 0.0 and 1.0."""
    if is_text(values.type):
        encoded = combine_chunks(values).dictionary_encode()
        words = [str(word).strip().lower() for word in encoded.dictionary.to_pylist()]
        codes = to_numpy(encoded.indices.fill_null(len(words)))
        numbers: FloatArray = np.array([*(_BOOLEANS.get(word, np.nan) for word in words), np.nan])[codes]
        invalid = np.array([*(word != "" and word not in _BOOLEANS for word in words), False])[codes]
    else:
        numbers = to_numbers(column, values, reject)
        invalid = ~np.isnan(numbers) & (numbers != 0) & (numbers != 1)
    reject(column, invalid, values, "are neither true nor false", "correct them or leave the fields empty")
    return numbers


def to_text(column: str, values: Any, reject: Reject | None = None) -> Any:
    """Return a column as one array of text; whole floats are written as integers."""
    if pa.types.is_floating(values.type):
        values = combine_chunks(values)
        values = pc.if_else(pc.is_nan(values), None, values)
        with suppress(pa.ArrowInvalid):
            values = values.cast(pa.int64())
    if not is_text(values.type):
        try:
            values = values.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InputError(
                f"column {column!r} holds {values.type}, which cannot be read as text; leave it out of the features"
            ) from None
    return combine_chunks(values)


@dataclass(frozen=True, eq=False)
class Categorical:
    """The distinct values of a column as text, and for each row the index of its value, -1 where missing or blank."""

    categories: list[str]
    codes: IntArray

    def counts(self) -> list[int]:
        """Return the number of rows of each category."""
        counts: list[int] = np.bincount(self.codes[self.codes >= 0], minlength=len(self.categories)).tolist()
        return counts


def to_categorical(column: str, values: Any, reject: Reject | None = None) -> Categorical:
    """Return the categories of a column, in the order of their first rows."""
    encoded = to_text(column, values).dictionary_encode()
    categories = encoded.dictionary.to_pylist()
    codes = to_numpy(encoded.indices.fill_null(-1))
    if any(not word.strip() for word in categories):
        codes = np.array([j if word.strip() else -1 for j, word in enumerate(categories)] + [-1], np.int32)[codes]
    return Categorical(categories, codes)


def text_buffers(text: Any) -> tuple[IntArray, npt.NDArray[np.uint8]]:
    """Return the offsets (rows + 1,) and the bytes of a text array, without a copy."""
    _, offsets, content = text.buffers()
    starts: IntArray = np.frombuffer(offsets, np.int32 if pa.types.is_string(text.type) else np.int64)
    return starts[text.offset : text.offset + len(text) + 1], np.frombuffer(content or b"", np.uint8)
