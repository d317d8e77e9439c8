"""Values of a column, read as numbers, dates, booleans or text."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError

# called with column, wrong rows, values, what is wrong, the way out; raises an error that names the place
Refuse: TypeAlias = Callable[[str, npt.NDArray[np.bool_], Any, str, str], None]
# called with what is to be known about some values of a column
Say: TypeAlias = Callable[[str], None]
DAY = 86_400.0
_TRUTH = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}


def is_number(kind: Any) -> bool:
    """Whether an arrow type holds numbers or booleans."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def is_text(kind: Any) -> bool:
    """Whether an arrow type holds text."""
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def is_date(kind: Any) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def to_numpy(values: Any) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = (
        values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    )
    return array


def blanks_to_null(values: Any) -> Any:
    """Return text with null in place of what is empty or blank."""
    blank = pc.or_(pc.utf8_is_space(values), pc.equal(pc.binary_length(values), 0))
    return pc.if_else(blank, None, values) if pc.any(blank).as_py() else values


def _parsed(column: str, values: Any, to: Any, refuse: Refuse, what: str) -> Any:
    """Read text as numbers or dates; the first that is none is named."""
    values = blanks_to_null(values)
    trimmed = pc.utf8_trim_whitespace(values)
    try:
        return trimmed.cast(to)
    except pa.ArrowInvalid:
        wrong = np.array([not _castable(value, to) for value in trimmed])
        refuse(column, wrong, values, f"are no {what}", f"correct them, or choose another kind: --column {column}=...")
        raise


def _castable(value: Any, to: Any) -> bool:
    try:
        value.cast(to)
    except pa.ArrowInvalid:
        return False
    return True


def to_numbers(column: str, values: Any, refuse: Refuse) -> FloatArray:
    """Return a column as float64, NaN where it is empty; infinite values and text that is no number are refused.

    An array that this function returned is given back, here and in the other functions that read a column.
    """
    if isinstance(values, np.ndarray):
        return values  # read before
    if is_text(values.type):
        values = _parsed(column, values, pa.float64(), refuse, "numbers")
    elif not is_number(values.type) and not pa.types.is_null(values.type):
        _unlike(column, values, refuse, "numbers")
    numbers = to_numpy(values.cast(pa.float64(), safe=False))
    with np.errstate(invalid="ignore"):
        wrong = np.abs(numbers) > np.finfo(np.float32).max
    refuse(column, wrong, values, "are not finite as 32-bit numbers", "correct them, or leave the column out")
    return numbers


def _unlike(column: str, values: Any, refuse: Refuse, what: str) -> None:
    way = f"keep the type of the fitted table, or choose another kind: --column {column}=..."
    refuse(column, ~missing_mask(values), values, f"are {values.type}, not {what}", way)


def missing_mask(values: Any) -> npt.NDArray[np.bool_]:
    missing: npt.NDArray[np.bool_] = to_numpy(values.is_null(nan_is_null=True))
    return missing


def to_seconds(column: str, values: Any, refuse: Refuse) -> FloatArray:
    """Return dates and times as seconds since 1970, NaN where empty."""
    if isinstance(values, np.ndarray):
        return values  # read before
    if is_text(values.type):
        values = _parsed(column, values, pa.timestamp("us"), refuse, "dates")
    elif not is_date(values.type) and not pa.types.is_null(values.type):
        _unlike(column, values, refuse, "dates")
    try:
        stamps = values.cast(pa.timestamp("us", getattr(values.type, "tz", None)), safe=False).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise InputError(f"column {column!r}: {str(error).splitlines()[0]}; correct the date or leave it out") from None
    seconds: FloatArray = to_numpy(stamps.cast(pa.float64(), safe=False)) / 1e6
    return seconds


def to_truth(column: str, values: Any, refuse: Refuse) -> FloatArray:
    """Return 0 and 1, NaN where empty."""
    if isinstance(values, np.ndarray):
        return values  # read before
    if is_text(values.type):
        coded = combined(values).dictionary_encode()
        known = [_TRUTH.get(str(v).strip().lower(), np.nan) for v in coded.dictionary.to_pylist()]
        blank = [not str(v).strip() for v in coded.dictionary.to_pylist()]
        code = to_numpy(coded.indices.fill_null(len(known)))
        truth: FloatArray = np.append(known, np.nan)[code]
        wrong = np.isnan(truth) & ~np.append(blank, True)[code]
    else:
        truth = to_numbers(column, values, refuse)
        wrong = ~np.isnan(truth) & (truth != 0) & (truth != 1)
    refuse(column, wrong, values, "are neither true nor false", f"choose another kind: --column {column}=number")
    return truth


def to_words(column: str, values: Any) -> Any:
    """Return a column as one array of text, null where empty; whole floats are written as integers."""
    if pa.types.is_floating(values.type):
        values = combined(values)
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
    return combined(values)


@dataclass(frozen=True, eq=False)
class Codes:
    """The distinct values of a column as text, and the number of each row's one; -1 where it is missing or blank."""

    words: list[str]
    code: IntArray

    @classmethod
    def of(cls, column: str, values: Any) -> Codes:
        if isinstance(values, cls):
            return values
        coded = to_words(column, values).dictionary_encode()
        words = coded.dictionary.to_pylist()
        code = to_numpy(coded.indices.fill_null(-1))
        if any(not word.strip() for word in words):
            code = np.array([j if word.strip() else -1 for j, word in enumerate(words)] + [-1], np.int32)[code]
        return cls(words, code)

    def __len__(self) -> int:
        return self.code.size


def combined(values: Any) -> Any:
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    # text of more than 2 GB needs wide offsets
    wide = pa.types.is_string(values.type) and values.nbytes > 2**30
    return (values.cast(pa.large_string()) if wide else values).combine_chunks()


def text_buffers(words: Any) -> tuple[IntArray, npt.NDArray[np.uint8]]:
    """Return where each text starts and ends in the bytes of all, and those bytes; shared with the arrow array."""
    _, start, text = words.buffers()
    ends: IntArray = np.frombuffer(start, np.int32 if pa.types.is_string(words.type) else np.int64)
    return ends[words.offset : words.offset + len(words) + 1], np.frombuffer(text or b"", np.uint8)
