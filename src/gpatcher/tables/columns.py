"""One class per kind of column: how it becomes features."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import counted, some
from gpatcher.kernels.columns import mean_and_deviation, standardise
from gpatcher.kernels.text_hash import hash_words
from gpatcher.tables.values import (
    DAY,
    Codes,
    Refuse,
    Say,
    blanks_to_null,
    combined,
    is_date,
    is_number,
    is_text,
    text_buffers,
    to_numbers,
    to_seconds,
    to_truth,
    to_words,
)

CATEGORIES = 64  # most categories of a column that get a feature each
TEXT_WIDTH = 1024  # features that the words of a text column are hashed into
_SAMPLE = 1 << 14  # values that the kind of a column of text is judged by
_FAR = 1e6  # deviations or spans beyond which a value is cut off
_WORD = re.compile(r"\b\w\w+\b")  # as scikit-learn's vectorizers have it


def _distinct_days(seconds: FloatArray) -> tuple[FloatArray, Any]:
    """Return moments, and which of them each row has: one per day where all are at midnight and many share a day."""
    day = np.floor(seconds / DAY)
    first, last = day.min(initial=np.inf), day.max(initial=-np.inf)
    if not last - first < seconds.size or (day * DAY != seconds).any():
        return seconds, slice(None)
    return np.arange(first, last + 1) * DAY, (day - first).astype(np.int64)


def _say_missing(say: Say, missing: npt.NDArray[np.bool_], flag: bool, instead: str) -> None:
    """Tell of gaps in a column that had none at fitting, so that no feature says where they are."""
    if missing.any() and not flag:
        say(f"{missing.sum()} of {missing.size} values are missing, none was at fitting; {instead}")


def _say_far(say: Say, places: FloatArray, values: Any, unit: str) -> None:
    """Tell of places that are cut off because they would become infinite or drown all else."""
    with np.errstate(invalid="ignore"):
        far = np.flatnonzero(np.abs(places) > _FAR)
    if far.size:
        first = int(far[0])
        say(
            f"{far.size} of {places.size} values lie more than {_FAR:,.0f} {unit} from the fitted ones and are cut off "
            f"there, the first in row {first} ({values[first].as_py()!r}); see whether they are right"
        )


@dataclass(frozen=True)
class NumberColumn:
    """A number, standardised by the mean and deviation it was fitted with; the mean where it is missing."""

    kind: ClassVar[str] = "number"
    column: str
    mean: float
    scale: float
    flag: bool  # a further feature says where the value was missing

    @classmethod
    def fit(cls, column: str, values: Any, refuse: Refuse) -> Self:
        numbers = to_numbers(column, values, refuse)
        known, mean, scale = mean_and_deviation(numbers)
        # what rounding leaves of a constant column is no variation
        return cls(column, mean, scale if scale > 1e-12 * abs(mean) else 0.0, known < numbers.size)

    @property
    def width(self) -> int:
        return 1 + self.flag

    def names(self) -> list[str]:
        return [self.column] + ([f"{self.column}: missing"] if self.flag else [])

    def columns(self, values: Any, refuse: Refuse, say: Say) -> list[FloatArray]:
        numbers = to_numbers(self.column, values, refuse)
        missing = np.isnan(numbers)
        _say_missing(say, missing, self.flag, f"the mean, {self.mean:.6g}, stands for them")
        places = np.zeros(numbers.size, np.float32)
        if self.scale and standardise(numbers, self.mean, 1 / self.scale, _FAR, places):
            _say_far(say, (numbers - self.mean) * (1 / self.scale), values, "deviations")
        return [places] + ([missing.astype(np.float32)] if self.flag else [])


@dataclass(frozen=True)
class RawColumn(NumberColumn):
    """A number left as it is, 0 where it is missing."""

    kind: ClassVar[str] = "raw"

    def columns(self, values: Any, refuse: Refuse, say: Say) -> list[FloatArray]:
        numbers = to_numbers(self.column, values, refuse)
        missing = np.isnan(numbers)
        _say_missing(say, missing, self.flag, "0 stands for them")
        return [np.where(missing, 0.0, numbers)] + ([missing.astype(np.float32)] if self.flag else [])


@dataclass(frozen=True)
class BooleanColumn:
    """0 or 1, from booleans, 0 and 1, or true/false and yes/no; the fitted share where it is missing."""

    kind: ClassVar[str] = "boolean"
    column: str
    share: float
    flag: bool

    @classmethod
    def fit(cls, column: str, values: Any, refuse: Refuse) -> Self:
        truth = to_truth(column, values, refuse)
        known = truth[~np.isnan(truth)]
        return cls(column, float(known.mean()) if known.size else 0.0, known.size < truth.size)

    @property
    def width(self) -> int:
        return 1 + self.flag

    def names(self) -> list[str]:
        return [self.column] + ([f"{self.column}: missing"] if self.flag else [])

    def columns(self, values: Any, refuse: Refuse, say: Say) -> list[FloatArray]:
        truth = to_truth(self.column, values, refuse)
        missing = np.isnan(truth)
        _say_missing(say, missing, self.flag, f"the fitted share of true, {self.share:.2g}, stands for them")
        return [np.where(missing, self.share, truth)] + ([missing.astype(np.float32)] if self.flag else [])


@dataclass(frozen=True)
class DateColumn:
    """A date: its place in the fitted span (0 to 1), and the time of year, of week and of day as points on a circle."""

    kind: ClassVar[str] = "date"
    column: str
    low: float
    high: float
    hours: bool  # whether some fitted value is not at midnight
    flag: bool

    @classmethod
    def fit(cls, column: str, values: Any, refuse: Refuse) -> Self:
        seconds = to_seconds(column, values, refuse)
        known = seconds[~np.isnan(seconds)]
        if not known.size:
            return cls(column, 0.0, 0.0, False, True)
        hours = bool((known % DAY != 0).any())
        return cls(column, float(known.min()), float(known.max()), hours, known.size < seconds.size)

    @property
    def width(self) -> int:
        return 5 + 2 * self.hours + self.flag

    def names(self) -> list[str]:
        circles = ["year", "week", *(["day"] if self.hours else [])]
        turns = [f"{self.column}: {part} of {name}" for name in circles for part in ("sine", "cosine")]
        return [self.column, *turns] + ([f"{self.column}: missing"] if self.flag else [])

    def columns(self, values: Any, refuse: Refuse, say: Say) -> list[FloatArray]:
        seconds = to_seconds(self.column, values, refuse)
        missing = np.isnan(seconds)
        _say_missing(say, missing, self.flag, "zeros stand for them")
        seconds = np.where(missing, self.low, seconds)
        place = (seconds - self.low) / ((self.high - self.low) or 1.0)
        moments, at = _distinct_days(seconds)
        days = moments.astype("datetime64[s]").astype("datetime64[D]")
        year = days.astype("datetime64[Y]")
        turns = [(days - year).astype(np.float32) / 365.25, (moments / DAY % 7 / 7).astype(np.float32)]
        if self.hours:
            turns.append((moments % DAY / DAY).astype(np.float32))
        _say_far(say, place, values, "times the fitted span")
        parts = [np.clip(place, -_FAR, _FAR)]
        for turn in turns:
            angle = turn * np.float32(2 * np.pi)
            parts += [np.sin(angle)[at], np.cos(angle)[at]]
        for part in parts:
            part[missing] = 0.0
        return parts + ([missing.astype(np.float32)] if self.flag else [])


@dataclass(frozen=True)
class CategoryColumn:
    """One feature per frequent value, one for the rare ones together, one for missing ones.

    A value that was not there when the encoder was fitted counts as rare; where nothing was rare or missing then, such
    a value has zeros only.
    """

    kind: ClassVar[str] = "category"
    column: str
    values: list[str]
    rare: list[str]
    flag: bool

    @classmethod
    def fit(cls, column: str, values: Any, refuse: Refuse) -> Self:
        coded = Codes.of(column, values)
        words, code = coded.words, coded.code
        counts = np.bincount(code[code >= 0], minlength=len(words)).tolist()
        found = sorted((-count, word) for word, count in zip(words, counts, strict=True) if count)
        kept = [word for count, word in found if count < -1][:CATEGORIES]
        rare = sorted({word for _, word in found}.difference(kept)) if kept else []
        return cls(column, kept, rare, bool((code < 0).any()))

    @property
    def width(self) -> int:
        return len(self.values) + bool(self.rare) + self.flag

    def names(self) -> list[str]:
        rest = [
            f"{self.column}: {rest}" for rest, there in (("rare", bool(self.rare)), ("missing", self.flag)) if there
        ]
        return [f"{self.column} = {value}" for value in self.values] + rest

    def codes(self, values: Any, say: Say, out: IntArray) -> None:
        """Write the feature of each row, -1 where it has none."""
        coded = Codes.of(self.column, values)
        words, code = coded.words, coded.code
        place = {value: j for j, value in enumerate(self.values)}
        rare = len(place) if self.rare else -1
        missing = len(place) + bool(self.rare) if self.flag else rare
        table = np.array([*(place.get(word, rare) for word in words), missing], np.int32)
        instead = "'rare' stands for them" if self.rare else "no category stands for them"
        _say_missing(say, code < 0, self.flag, instead)
        seen = place.keys() | set(self.rare)
        if not seen.issuperset(words):
            counts = np.bincount(code[code >= 0], minlength=len(words)).tolist()
            new = Counter({w: c for w, c in zip(words, counts, strict=True) if c and w not in seen})
            if new:
                shown = some(f"{value!r} ({count})" for value, count in new.most_common())
                say(
                    f"{counted(len(new), 'value is new and counts', 'values are new and count')} as "
                    f"{'rare' if self.rare else 'no category'}: {shown}"
                )
        np.take(table, code, out=out, mode="wrap")  # -1 is the last one


@dataclass(frozen=True)
class TextColumn:
    """Words of two letters or more in small letters, hashed to features with a sign and scaled to length 1.

    The same as scikit-learn's ``HashingVectorizer``; zeros where the text is missing.
    """

    kind: ClassVar[str] = "text"
    column: str
    width: int

    @classmethod
    def fit(cls, column: str, values: Any, refuse: Refuse) -> Self:
        to_words(column, values[:1])  # an error where it is no text
        return cls(column, TEXT_WIDTH)

    def names(self) -> list[str]:
        return [f"{self.column}: words {j}" for j in range(self.width)]

    def hashed(self, values: Any) -> tuple[npt.NDArray[Any], ...]:
        """Return the hashed words of each row, as `append_words` takes them."""
        words = to_words(self.column, values)
        if not pa.types.is_string(words.type):
            words = words.cast(pa.large_string())
        words = words.fill_null("") if words.null_count else words
        start, text = text_buffers(words)
        if text.max(initial=0) > 127:
            # the kernel knows the small letters of ASCII alone; of other text it gets the words one by one
            beyond = pc.invert(pc.string_is_ascii(words))
            plain = [" ".join(_WORD.findall(row.lower())) for row in words.filter(beyond).to_pylist()]
            start, text = text_buffers(pc.replace_with_mask(words, beyond, pa.array(plain, words.type)))
        room = (text.size + len(words)) // 3  # for two letters and what parts them from the next
        hashed = np.empty(len(words) + 1, np.int64), np.empty(room, np.int32), np.empty(room, np.float32)
        hash_words(start, text, self.width, *hashed)
        return hashed


Column: TypeAlias = NumberColumn | BooleanColumn | DateColumn | CategoryColumn | TextColumn
COLUMN_KINDS: dict[str, Any] = {
    coder.kind: coder for coder in (NumberColumn, RawColumn, BooleanColumn, DateColumn, CategoryColumn, TextColumn)
}
KINDS = (*COLUMN_KINDS, "ignore")


# what a column is read by, once for fitting and transforming it; text is hashed as it is
READERS: dict[str, Callable[[str, Any, Refuse], Any]] = {
    "number": to_numbers,
    "raw": to_numbers,
    "boolean": to_truth,
    "date": to_seconds,
    "category": lambda column, values, refuse: Codes.of(column, values),
}


def find_kind(values: Any) -> tuple[str, str]:
    """Return the kind of a column, judged by its type and a sample of its values, and the reason where it is ignored.

    Examples
    --------
    >>> find_kind(pa.chunked_array([[1.5, 2.5]])), find_kind(pa.chunked_array([["a", "b", "a"]]))
    (('number', ''), ('category', ''))
    """
    kind = values.type
    if values.null_count == len(values):
        return "ignore", "empty"
    if pa.types.is_boolean(kind):
        return "boolean", ""
    if is_number(kind):
        for part in (values[:100], values):  # the first few tell of most columns
            low, high = (value.as_py() for value in pc.min_max(part).values())
            if low != high and (low, high) != (0, 1):
                return "number", ""
        if low == high and not values.null_count:
            return "ignore", "constant"
        return ("boolean" if pa.types.is_integer(kind) and (low, high) == (0, 1) else "number"), ""
    if is_date(kind):
        return "date", ""
    if not is_text(kind):
        return "ignore", str(kind)
    # stretches from the whole length of the column
    starts = np.linspace(0, max(0, len(values) - _SAMPLE // 16), 16).astype(int)
    stretches = [values] if len(values) <= _SAMPLE else [values.slice(int(at), _SAMPLE // 16) for at in starts]
    chunks = [chunk for stretch in stretches for chunk in stretch.chunks]
    words = combined(pa.chunked_array(chunks, values.type)).drop_null()
    every = words.unique()
    distinct = blanks_to_null(every).drop_null()
    if not len(distinct):
        return "ignore", "empty"
    with suppress(pa.ArrowInvalid):
        for part in (distinct[:1], distinct):  # a cast that fails goes through all values
            pc.utf8_trim_whitespace(part).cast(pa.timestamp("us"))
        return "date", ""
    rows = len(words) if len(distinct) == len(every) else len(blanks_to_null(words).drop_null())
    if len(distinct) == rows > 2:
        spaced = pc.any(pc.match_substring(distinct, " ")).as_py()
        return ("text", "") if spaced else ("ignore", "different in every row")
    return ("category" if len(distinct) <= CATEGORIES or len(distinct) * 10 <= rows else "text"), ""
