"""One class per kind of column: how its values become features.

Each class reads an arrow column with ``read``, learns from the values read with ``fit`` and turns them into features
with ``encode``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import BoolArray, FloatArray, IntArray
from gpatcher.errors import counted, some
from gpatcher.kernels.columns import moments, standardise
from gpatcher.kernels.words import count_row_words, count_words, weigh_words
from gpatcher.tables.values import (
    DAY,
    Categorical,
    Reject,
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
    to_numpy,
    to_seconds,
    to_text,
)

MAX_CATEGORIES = 256  # of a column with a feature each
MAX_WORDS = 4096  # of a text column with a feature each
_FEW_VALUES = 64  # text with at most this many distinct values is a category, whatever the number of rows
_SAMPLE = 1 << 14  # rows from which the kind of a column is inferred
_CLIP = 10.0  # standard deviations or fitted ranges at which a value is clipped
_HEAVY_TAILED = 10.0  # kurtosis above which numbers are put on a logarithmic scale; 3 for a normal distribution
_WORD = re.compile(r"\w+")
_SEPARATED = r"[\s;,|]+[^\s;,|]"  # separators in a text or a list, with the character after them
_ID_NAME = re.compile(r"(^|[\W_])(id|uuid|guid|key|hash)$", re.IGNORECASE)


def _warn_missing(warn: Warn, missing: BoolArray, replacement: str) -> None:
    """Warn of missing values in a column without a missing indicator."""
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

    @property
    def nonzeros(self) -> float:
        """Number of features of a row that are not 0, at most or on average."""
        return self.width

    @property
    def note(self) -> str:
        """A remark for the user."""
        return ""


@dataclass(frozen=True)
class DenseColumn(Column):
    """A column of numbers, NaN where missing, with dense features; by default the numbers unchanged."""

    indicator: bool  # whether the last feature is a missing indicator, because values were missing at fitting

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
    """A number, standardised by the fitted mean and standard deviation; the mean where missing.

    Heavy-tailed numbers are first transformed to a logarithmic scale: sign(x - centre) · log(1 + |x - centre| / unit).
    """

    kind: ClassVar[str] = "number"
    read = staticmethod(to_numbers)
    mean: float
    scale: float
    centre: float
    unit: float  # 0 if the scale is linear
    low: float  # smallest and largest fitted value
    high: float

    @classmethod
    def fit(cls, column: str, values: FloatArray) -> Self:
        """Fit the scale, mean and standard deviation."""
        count, mean, scale, kurtosis, low, high = moments(values)
        centre = unit = 0.0
        if kurtosis > _HEAVY_TAILED:
            centre, unit = _log_scale(values[~np.isnan(values)], low, high)
            _, mean, scale, *_ = moments(_signed_log(values, centre, unit))
        # rounding errors of a constant column are not variation
        scale = scale if scale > 1e-12 * abs(mean) else 0.0
        return cls(column, count < values.size, mean, scale, centre, unit, low, high)

    @property
    def note(self) -> str:
        """Whether the scale is logarithmic."""
        return "logarithmic scale" if self.unit else ""

    @property
    def _replacement(self) -> str:
        return "the mean of its logarithms" if self.unit else f"the mean, {self.mean:.6g}"

    def _features(self, values: FloatArray, missing: BoolArray, warn: Warn) -> list[FloatArray]:
        scaled = np.zeros(values.size, np.float32)
        numbers = _signed_log(values, self.centre, self.unit) if self.unit else values
        if self.scale and standardise(numbers, self.mean, 1 / self.scale, _CLIP, scaled):
            outside = (values < self.low) | (values > self.high)
            far = np.where(outside, (numbers - self.mean) * (1 / self.scale), 0.0)
            _warn_clipped(warn, far, values, "standard deviations")
        return [scaled]

    def original(self, feature: float) -> float:
        """Return the number that became this feature, unless it was missing or clipped."""
        number = self.mean + feature * self.scale
        return self.centre + float(np.copysign(np.expm1(abs(number)), number)) * self.unit if self.unit else number


def _log_scale(values: FloatArray, low: float, high: float) -> tuple[float, float]:
    """Return centre and unit: the end of the short tail and the smallest usual distance, or, if both are long, medians.

    Counts whose least value is common have their least step as unit, so that they become log(1 + x).
    """
    centre, share = float(np.median(values)), 0.5
    if not 0.1 < (high - centre) / max(centre - low, 1e-300) < 10:
        centre, share = (low if high - centre > centre - low else high), 0.05
    distances = np.abs(values - centre)
    distances = distances[distances > 0]
    return centre, max(float(np.quantile(distances, share)), 1e-6 * float(distances.max()))


def _signed_log(values: FloatArray, centre: float, unit: float) -> FloatArray:
    distances = values - centre
    logs: FloatArray = np.copysign(np.log1p(np.abs(distances) / unit), distances)
    return logs


@dataclass(frozen=True)
class RawColumn(DenseColumn):
    """A number, unchanged; 0 where missing."""

    kind: ClassVar[str] = "raw"
    read = staticmethod(to_numbers)

    @classmethod
    def fit(cls, column: str, values: FloatArray) -> Self:
        """Check whether values are missing."""
        return cls(column, bool(np.isnan(values).any()))


@dataclass(frozen=True)
class BooleanColumn(DenseColumn):
    """0 or 1, from booleans, the numbers 0 and 1, or text such as yes and false; the fitted mean where missing."""

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
    """Return times and the index of each row's time: one per day if all are at midnight and many share a day."""
    day = np.floor(seconds / DAY)
    first, last = day.min(initial=np.inf), day.max(initial=-np.inf)
    if not last - first < seconds.size or (day * DAY != seconds).any():
        return seconds, slice(None)
    return np.arange(first, last + 1) * DAY, (day - first).astype(np.int64)


@dataclass(frozen=True)
class CategoryColumn(Column):
    """One feature per frequent value, one for all rare values, one for missing values.

    A value that was not seen at fitting counts as rare. If there were no rare values at fitting, all its features are
    0; likewise for a missing value if none was missing.
    """

    kind: ClassVar[str] = "category"
    has_missing: ClassVar[bool] = True  # whether missing values get a feature
    read = staticmethod(to_categorical)
    values: list[str]  # with a feature each, the most frequent first
    rare: list[str]
    indicator: bool  # whether the last feature is a missing indicator

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

    @property
    def nonzeros(self) -> float:
        """One feature of a row is 1."""
        return 1

    @property
    def note(self) -> str:
        """How many values have no feature of their own."""
        return f"{counted(len(self.rare), 'rare value')} share a feature" if self.rare else ""

    def encode(self, values: Categorical, warn: Warn) -> list[IntArray]:
        """Return the index of the feature that is 1 in each row, -1 if none is."""
        index = {value: j for j, value in enumerate(self.values)}
        rare = len(index) if self.rare else -1
        missing = len(index) + bool(self.rare) if self.indicator else rare if self.has_missing else -1
        fallback = "'rare'" if self.rare else "no category"
        if self.has_missing and not self.indicator:
            _warn_missing(warn, values.codes < 0, fallback)
        fitted = index.keys() | set(self.rare)
        if not fitted.issuperset(values.categories):
            counts = zip(values.categories, values.counts(), strict=True)
            new = Counter({value: count for value, count in counts if count and value not in fitted})
            if new:
                shown = some(f"{value!r} ({count})" for value, count in new.most_common())
                warn(f"{counted(len(new), 'value is', 'values are')} new, encoded as {fallback}: {shown}")
        features = np.array([*(index.get(value, rare) for value in values.categories), missing], np.int32)
        return [np.take(features, values.codes, mode="wrap")]  # code -1 takes the last entry


@dataclass(frozen=True)
class CodeColumn(CategoryColumn):
    """The categories of whole numbers; the `NumberColumn` of the same column has the missing indicator."""

    kind: ClassVar[str] = "code"
    has_missing: ClassVar[bool] = False

    @classmethod
    def fit(cls, column: str, values: Categorical) -> Self:
        """Find the frequent values."""
        return replace(super().fit(column, values), indicator=False)


def _to_words(column: str, values: Any, reject: Reject) -> Any:
    """Return a column as one array of text, without nulls; the items of lists are joined."""
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        items = combine_chunks(values)
        values = pc.binary_join(items.cast(pa.list_(pa.string())), " ")
    text = to_text(column, values, reject)
    if not pa.types.is_string(text.type):
        text = text.cast(pa.large_string())
    text = text.fill_null("") if text.null_count else text
    if pc.all(pc.string_is_ascii(text)).as_py() is not False:
        return text
    # the kernels lower-case ASCII only; other rows are split into words here
    other = pc.invert(pc.string_is_ascii(text))
    words = [" ".join(_WORD.findall(row.lower())) for row in text.filter(other).to_pylist()]
    return pc.replace_with_mask(text, other, pa.array(words, text.type))


def _to_lengths(column: str, values: Any, reject: Reject) -> FloatArray:
    """Return the logarithm of the number of words of each text; NaN if there are none."""
    offsets, text = text_buffers(_to_words(column, values, reject))
    lengths = np.empty(len(offsets) - 1)
    count_row_words(offsets, text, lengths)
    return np.log(lengths, out=np.full_like(lengths, np.nan), where=lengths > 0)


@dataclass(frozen=True)
class LengthColumn(NumberColumn):
    """The number of words of a text on a logarithmic scale, in addition to the `TextColumn` of the same column."""

    kind: ClassVar[str] = "length"
    read = staticmethod(_to_lengths)

    def _names(self) -> list[str]:
        return [f"{self.column}: length"]


@dataclass(frozen=True)
class TextColumn(Column):
    """A feature for each of the most frequent words that occur in at least two rows: 1 + log of the count in the row.

    Rows are scaled to the same norm, such that a word weighs about as much as a category. Words are sequences of
    letters, digits and underscores in lower case, so the numbers in ``3;17;254`` are words too. Zeros if the text is
    missing or has no word of the vocabulary.
    """

    kind: ClassVar[str] = "text"
    read = staticmethod(_to_words)
    words: list[str]
    length: float  # words of the vocabulary in a text, on average

    @classmethod
    def fit(cls, column: str, values: Any) -> Self:
        """Learn the vocabulary."""
        offsets, text = text_buffers(values)
        keys, places, counts = count_words(offsets, text)
        # ties in frequency are broken by hash, so that the order of the rows does not matter
        chosen = np.lexsort((keys, -counts))[: min(MAX_WORDS, int((counts > 1).sum()))]
        words = [text[start:end].tobytes().decode().lower() for start, end in places[chosen]]
        return cls(column, words, float(counts[chosen].sum() / max(np.count_nonzero(np.diff(offsets)), 1)))

    def names(self) -> list[str]:
        """Return the names of the features."""
        return [f"{self.column}: {word}" for word in self.words]

    @property
    def nonzeros(self) -> float:
        """Words of the vocabulary in a text, on average."""
        return self.length

    @property
    def note(self) -> str:
        """How many words have a feature."""
        return f"the {len(self.words):,} most frequent words" if len(self.words) == MAX_WORDS else ""

    def encode(self, values: Any, warn: Warn) -> tuple[npt.NDArray[Any], ...]:
        """Return the words of each row in the form that `append_words` takes."""
        # without idf weights, which cost 4 points on CiteSeer and 6 on Texas in a logistic regression
        vocabulary = np.frombuffer("\n".join(self.words).encode(), np.uint8)
        keys, _, _ = count_words(np.array([0, vocabulary.size]), vocabulary)
        offsets, text = text_buffers(values)
        room = (text.size + len(values)) // 2  # a word takes at least two bytes: a character and a separator
        entries = np.empty(len(values) + 1, np.int64), np.empty(room, np.int32), np.empty(room, np.float32)
        weigh_words(offsets, text, keys, self.length**0.5, *entries)
        return entries


_COLUMNS = (NumberColumn, RawColumn, BooleanColumn, DateColumn, CategoryColumn, CodeColumn, TextColumn, LengthColumn)
COLUMN_KINDS: dict[str, Any] = {column.kind: column for column in _COLUMNS}
KINDS = (*COLUMN_KINDS, "ignore")
_PARTS = {"code": ("number", "code"), "text": ("length", "text"), "ignore": ()}  # of kinds with several encoders


def fit_column(column: str, kind: str, values: Any, reject: Reject) -> tuple[list[Any], list[Any]]:
    """Fit a column as one of `KINDS`; return its encoders and the values that each of them has read."""
    kinds = _PARTS.get(kind, (kind,))
    read = [COLUMN_KINDS[part].read(column, values, reject) for part in kinds]
    encoders = [COLUMN_KINDS[part].fit(column, values) for part, values in zip(kinds, read, strict=True)]
    if kind == "text" and not encoders[-1].width:
        return [], []  # the length alone is not informative
    return encoders, read


def infer_kind(values: Any, name: str = "") -> tuple[str, str]:
    """Return the kind of a column, one of `KINDS`, inferred from dtype and sampled values, and why it is ignored."""
    dtype = values.type
    if values.null_count == len(values):
        return "ignore", "empty"
    if pa.types.is_boolean(dtype):
        return "boolean", ""
    if is_number(dtype):
        return _kind_of_numbers(values, name)
    if is_date(dtype):
        return "date", ""
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        items = dtype.value_type
        return ("text", "") if is_text(items) or pa.types.is_integer(items) else ("ignore", str(dtype))
    return _kind_of_text(values) if is_text(dtype) else ("ignore", str(dtype))


def _sample(values: Any) -> Any:
    """Return slices spread over a column, without nulls, as one array."""
    starts = np.linspace(0, max(0, len(values) - _SAMPLE // 16), 16).astype(int)
    slices = [values] if len(values) <= _SAMPLE else [values.slice(int(start), _SAMPLE // 16) for start in starts]
    return combine_chunks(
        pa.chunked_array([chunk for part in slices for chunk in part.chunks], values.type)
    ).drop_null()


def _kind_of_numbers(values: Any, name: str) -> tuple[str, str]:
    """Return the kind of a column of numbers: whole ones may be codes or ids."""
    low, high = (value.as_py() for value in pc.min_max(values).values())
    if low == high and not values.null_count:
        return "ignore", "constant"
    if (low, high) == (0, 1) and pa.types.is_integer(values.type):
        return "boolean", ""
    sample = to_numpy(_sample(values).cast(pa.float64(), safe=False))
    with np.errstate(invalid="ignore"):  # from infinite values, which are rejected later
        if (sample % 1 != 0).any():
            return "number", ""
    distinct, rows = len(np.unique(sample)), sample.size
    if distinct == rows >= 30 and (high - low < 2 * len(values) or _ID_NAME.search(name)):
        return "ignore", "an id: a different whole number in every row"
    return ("code" if 2 < distinct <= MAX_CATEGORIES and distinct * 10 <= rows else "number"), ""


def _kind_of_text(values: Any) -> tuple[str, str]:
    """Return the kind of a column of text by the number of distinct values and of words per value."""
    words = _sample(values)
    unique = words.unique()
    distinct = blanks_to_null(unique).drop_null()
    if not len(distinct):
        return "ignore", "empty"
    trimmed = pc.utf8_trim_whitespace(distinct)
    with suppress(pa.ArrowInvalid):
        for part in (trimmed[:1], trimmed):  # the first value first: a failing cast would still scan all values
            part.cast(pa.timestamp("us"))
        return "date", ""
    rows = len(words) if len(distinct) == len(unique) else len(blanks_to_null(words).drop_null())
    mostly_distinct = len(distinct) * 10 >= rows * 9 and rows > 2
    if pc.mean(pc.count_substring_regex(trimmed, _SEPARATED)).as_py() >= 0.5:  # several words in most values
        vocabulary, _, _ = count_words(*text_buffers(trimmed))
        combinations = len(distinct) > max(_FEW_VALUES, 2 * len(vocabulary))
        if mostly_distinct or combinations or len(distinct) > max(_FEW_VALUES, rows / 10):
            return "text", ""
    elif mostly_distinct:
        with suppress(pa.ArrowInvalid):
            trimmed.cast(pa.float64())
            return "number", ""
        return "ignore", "an id: a different value in nearly every row"
    return "category", ""
