"""One class per kind of column: how its values become features.

Each class reads an arrow column with ``read``, learns from the values read with ``fit`` and turns them into features
with ``encode``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import BoolArray, FloatArray, IntArray
from gpatcher.errors import counted, some
from gpatcher.kernels.columns import mean_and_deviation, standardise
from gpatcher.kernels.text_hash import hash_words
from gpatcher.tables.values import (
    DAY,
    Categorical,
    Warn,
    blanks_to_null,
    combine_chunks,
    is_date,
    is_number,
    is_text,
    text_buffers,
    to_booleans,
    to_categorical,
    to_numbers,
    to_seconds,
    to_text,
)

MAX_CATEGORIES = 64  # of a column that get a feature each
TEXT_FEATURES = 1024  # that the words of a text column are hashed into
_SAMPLE = 1 << 14  # rows from which the kind of a text column is inferred
_CLIP = 1e6  # standard deviations or fitted ranges at which a value is clipped
_WORD = re.compile(r"\b\w\w+\b")  # as in scikit-learn's vectorizers


def _warn_missing(warn: Warn, missing: BoolArray, replacement: str) -> None:
    """Warn of missing values in a column without a feature that marks them."""
    if missing.any():
        warn(f"{missing.sum()} of {missing.size} values are missing, none was at fitting: encoded as {replacement}")


def _warn_clipped(warn: Warn, scaled: FloatArray, values: npt.NDArray[Any], unit: str) -> None:
    """Warn of values that are clipped because they would become infinite or dominate all others."""
    with np.errstate(invalid="ignore"):
        rows = np.flatnonzero(np.abs(scaled) > _CLIP)
    if rows.size:
        warn(
            f"{rows.size} of {scaled.size} values are clipped at {_CLIP:,.0f} {unit} from the fitted values, the first "
            f"in row {rows[0]} ({values[rows[0]].item()}); check them"
        )


@dataclass(frozen=True)
class Column(ABC):
    """A column with its features."""

    kind: ClassVar[str]
    column: str  # its name

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the features."""

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.names())


@dataclass(frozen=True)
class DenseColumn(Column):
    """A column of numbers, NaN where missing, with dense features; by default the numbers as they are."""

    indicator: bool  # whether a last feature marks missing values: it does where some were missing at fitting

    def names(self) -> list[str]:
        """Return the names of the features."""
        return [*self._names(), *([f"{self.column}: missing"] if self.indicator else [])]

    def encode(self, values: FloatArray, warn: Warn) -> list[npt.NDArray[Any]]:
        """Return the features, each of shape (rows,)."""
        missing = np.isnan(values)
        if not self.indicator:
            _warn_missing(warn, missing, self._replacement)
        return [*self._features(values, missing, warn), *([missing] if self.indicator else [])]

    @property
    def _replacement(self) -> str:
        """How missing values are encoded."""
        return "0"

    def _names(self) -> list[str]:
        return [self.column]

    def _features(self, values: FloatArray, missing: BoolArray, warn: Warn) -> list[FloatArray]:
        return [np.where(missing, 0.0, values)]


@dataclass(frozen=True)
class NumberColumn(DenseColumn):
    """A number, standardised by the mean and standard deviation at fitting; the mean where missing."""

    kind: ClassVar[str] = "number"
    read = staticmethod(to_numbers)
    mean: float
    scale: float

    @classmethod
    def fit(cls, column: str, values: FloatArray) -> Self:
        """Fit mean and standard deviation."""
        count, mean, scale = mean_and_deviation(values)
        # rounding errors of a constant column are not variation
        return cls(column, count < values.size, mean, scale if scale > 1e-12 * abs(mean) else 0.0)

    @property
    def _replacement(self) -> str:
        return f"the mean, {self.mean:.6g}"

    def _features(self, values: FloatArray, missing: BoolArray, warn: Warn) -> list[FloatArray]:
        scaled = np.zeros(values.size, np.float32)
        if self.scale and standardise(values, self.mean, 1 / self.scale, _CLIP, scaled):
            _warn_clipped(warn, (values - self.mean) * (1 / self.scale), values, "standard deviations")
        return [scaled]


@dataclass(frozen=True)
class RawColumn(DenseColumn):
    """A number as it is; 0 where missing."""

    kind: ClassVar[str] = "raw"
    read = staticmethod(to_numbers)

    @classmethod
    def fit(cls, column: str, values: FloatArray) -> Self:
        """Find out whether values are missing."""
        return cls(column, bool(np.isnan(values).any()))


@dataclass(frozen=True)
class BooleanColumn(DenseColumn):
    """0 or 1, from booleans, the numbers 0 and 1, or text such as yes and false; the mean at fitting where missing."""

    kind: ClassVar[str] = "boolean"
    read = staticmethod(to_booleans)
    mean: float

    @classmethod
    def fit(cls, column: str, values: FloatArray) -> Self:
        """Fit the mean."""
        present = values[~np.isnan(values)]
        return cls(column, present.size < values.size, float(present.mean()) if present.size else 0.0)

    @property
    def _replacement(self) -> str:
        return f"the mean, {self.mean:.2g}"

    def _features(self, values: FloatArray, missing: BoolArray, warn: Warn) -> list[FloatArray]:
        return [np.where(missing, self.mean, values)]


@dataclass(frozen=True)
class DateColumn(DenseColumn):
    """A date: position in the fitted range, sine and cosine of its time of year, week and day; 0 where missing."""

    kind: ClassVar[str] = "date"
    read = staticmethod(to_seconds)
    low: float
    high: float
    hours: bool  # whether a fitted value is not at midnight

    @classmethod
    def fit(cls, column: str, values: FloatArray) -> Self:
        """Fit the range."""
        present = values[~np.isnan(values)]
        if not present.size:
            return cls(column, True, 0.0, 0.0, False)
        hours = bool((present % DAY != 0).any())
        return cls(column, present.size < values.size, float(present.min()), float(present.max()), hours)

    def _names(self) -> list[str]:
        cycles = ("year", "week", "day")[: 2 + self.hours]
        return [self.column, *(f"{self.column}: {f} of {cycle}" for cycle in cycles for f in ("sine", "cosine"))]

    def _features(self, values: FloatArray, missing: BoolArray, warn: Warn) -> list[FloatArray]:
        seconds = np.where(missing, self.low, values)
        position = (seconds - self.low) / ((self.high - self.low) or 1.0)
        _warn_clipped(warn, position, seconds.astype("datetime64[s]"), "times the fitted range")
        distinct, rows = _distinct_days(seconds)
        days = distinct.astype("datetime64[s]").astype("datetime64[D]")
        cycles = [(days - days.astype("datetime64[Y]")).astype(np.float32) / 365.25, distinct / DAY % 7 / 7]
        if self.hours:
            cycles.append(distinct % DAY / DAY)
        features: list[FloatArray] = [np.clip(position, -_CLIP, _CLIP)]
        for cycle in cycles:
            angle = cycle.astype(np.float32) * np.float32(2 * np.pi)
            features += [np.sin(angle)[rows], np.cos(angle)[rows]]
        for feature in features:
            feature[missing] = 0.0
        return features


def _distinct_days(seconds: FloatArray) -> tuple[FloatArray, Any]:
    """Return times and the index of each row's time: one per day where all are at midnight and many share a day."""
    day = np.floor(seconds / DAY)
    first, last = day.min(initial=np.inf), day.max(initial=-np.inf)
    if not last - first < seconds.size or (day * DAY != seconds).any():
        return seconds, slice(None)
    return np.arange(first, last + 1) * DAY, (day - first).astype(np.int64)


@dataclass(frozen=True)
class CategoryColumn(Column):
    """One feature per frequent value, one for all rare values, one for missing values.

    A value that is new since fitting counts as rare. Without rare values at fitting it has zeros only, and so has a
    missing value where none was missing.
    """

    kind: ClassVar[str] = "category"
    read = staticmethod(to_categorical)
    values: list[str]  # with a feature each, the most frequent first
    rare: list[str]
    indicator: bool  # whether a last feature marks missing values

    @classmethod
    def fit(cls, column: str, values: Categorical) -> Self:
        """Find the frequent values."""
        counts = zip(values.categories, values.counts(), strict=True)
        ranked = sorted((-count, value) for value, count in counts if count)
        frequent = [value for count, value in ranked if count < -1][:MAX_CATEGORIES]
        rare = sorted({value for _, value in ranked}.difference(frequent)) if frequent else []
        return cls(column, frequent, rare, bool((values.codes < 0).any()))

    def names(self) -> list[str]:
        """Return the names of the features."""
        names = [f"{self.column} = {value}" for value in self.values]
        return names + [f"{self.column}: rare"] * bool(self.rare) + [f"{self.column}: missing"] * self.indicator

    def encode(self, values: Categorical, warn: Warn) -> list[IntArray]:
        """Return the index of the feature that is 1 in each row, -1 where none is."""
        index = {value: j for j, value in enumerate(self.values)}
        rare = len(index) if self.rare else -1
        missing = len(index) + bool(self.rare) if self.indicator else rare
        fallback = "'rare'" if self.rare else "no category"
        if not self.indicator:
            _warn_missing(warn, values.codes < 0, fallback)
        fitted = index.keys() | set(self.rare)
        if not fitted.issuperset(values.categories):
            counts = zip(values.categories, values.counts(), strict=True)
            new = Counter({value: count for value, count in counts if count and value not in fitted})
            if new:
                shown = some(f"{value!r} ({count})" for value, count in new.most_common())
                warn(f"{counted(len(new), 'value is', 'values are')} new, encoded as {fallback}: {shown}")
        features = np.array([*(index.get(value, rare) for value in values.categories), missing], np.int32)
        return [np.take(features, values.codes, mode="wrap")]  # code -1 takes the last


@dataclass(frozen=True)
class TextColumn(Column):
    """Lower-case words of two characters or more, hashed to signed features and scaled to length 1.

    The same features as scikit-learn's ``HashingVectorizer`` gives; zeros where the text is missing.
    """

    kind: ClassVar[str] = "text"
    read = staticmethod(to_text)
    n_features: int

    @classmethod
    def fit(cls, column: str, values: Any) -> Self:
        """Return the column; hashing has nothing to learn."""
        return cls(column, TEXT_FEATURES)

    def names(self) -> list[str]:
        """Return the names of the features."""
        return [f"{self.column}: words {j}" for j in range(self.n_features)]

    def encode(self, values: Any, warn: Warn) -> tuple[npt.NDArray[Any], ...]:
        """Return the hashed words of each row as `append_words` takes them."""
        if not pa.types.is_string(values.type):
            values = values.cast(pa.large_string())
        values = values.fill_null("") if values.null_count else values
        offsets, text = text_buffers(values)
        if text.max(initial=0) > 127:
            # the kernel lower-cases ASCII only; other rows are split into words here
            other = pc.invert(pc.string_is_ascii(values))
            words = [" ".join(_WORD.findall(row.lower())) for row in values.filter(other).to_pylist()]
            offsets, text = text_buffers(pc.replace_with_mask(values, other, pa.array(words, values.type)))
        room = (text.size + len(values)) // 3  # a word has two characters and a separator at least
        hashed = np.empty(len(values) + 1, np.int64), np.empty(room, np.int32), np.empty(room, np.float32)
        hash_words(offsets, text, self.n_features, *hashed)
        return hashed


COLUMN_KINDS: dict[str, Any] = {
    column.kind: column for column in (NumberColumn, RawColumn, BooleanColumn, DateColumn, CategoryColumn, TextColumn)
}
KINDS = (*COLUMN_KINDS, "ignore")


def infer_kind(values: Any) -> tuple[str, str]:
    """Return the kind of a column, one of `KINDS`, by its dtype and a sample of its values, and why it is ignored."""
    dtype = values.type
    if values.null_count == len(values):
        return "ignore", "empty"
    if pa.types.is_boolean(dtype):
        return "boolean", ""
    if is_number(dtype):
        for part in (values[:100], values):  # the first rows are enough for most columns
            low, high = (value.as_py() for value in pc.min_max(part).values())
            if low != high and (low, high) != (0, 1):
                return "number", ""
        if low == high and not values.null_count:
            return "ignore", "constant"
        return ("boolean" if pa.types.is_integer(dtype) and (low, high) == (0, 1) else "number"), ""
    if is_date(dtype):
        return "date", ""
    if not is_text(dtype):
        return "ignore", str(dtype)
    # the sample: slices from the whole length of the column
    starts = np.linspace(0, max(0, len(values) - _SAMPLE // 16), 16).astype(int)
    slices = [values] if len(values) <= _SAMPLE else [values.slice(int(start), _SAMPLE // 16) for start in starts]
    chunks = [chunk for part in slices for chunk in part.chunks]
    words = combine_chunks(pa.chunked_array(chunks, dtype)).drop_null()
    unique = words.unique()
    distinct = blanks_to_null(unique).drop_null()
    if not len(distinct):
        return "ignore", "empty"
    with suppress(pa.ArrowInvalid):
        for part in (distinct[:1], distinct):  # a cast that fails still goes through all values
            pc.utf8_trim_whitespace(part).cast(pa.timestamp("us"))
        return "date", ""
    rows = len(words) if len(distinct) == len(unique) else len(blanks_to_null(words).drop_null())
    if len(distinct) == rows > 2:
        spaced = pc.any(pc.match_substring(distinct, " ")).as_py()
        return ("text", "") if spaced else ("ignore", "different in every row")
    return ("category" if len(distinct) <= MAX_CATEGORIES or len(distinct) * 10 <= rows else "text"), ""
