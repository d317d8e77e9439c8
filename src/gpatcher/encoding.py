"""Columns of a table as features: numbers, booleans, categories, dates and short text.

The encoder is fitted once and is a small JSON file, so that it can be kept with a model and applied again later.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from gpatcher import kernels
from gpatcher.graph import Features, FloatArray, InputError, IntArray, counted, some, warn_input

# called with column, wrong rows, values, what is wrong, the way out; raises an error that names the place
Refuse: TypeAlias = Callable[[str, npt.NDArray[np.bool_], Any, str, str], None]
# called with what is to be known about some values of a column
Say: TypeAlias = Callable[[str], None]

CATEGORIES = 64  # most categories of a column that get a feature each
TEXT_WIDTH = 1024  # features that the words of a text column are hashed into
_FORMAT, _FORMAT_VERSION = "gpatcher-encoder", 2
_SAMPLE = 1 << 14  # values that the kind of a column of text is judged by
_ROWS = 1 << 12  # rows that are written at a time
_SPARSE = 0.25  # with a smaller share of non-zeros the features are a sparse matrix, as in gpatcher.features
_DAY = 86_400.0
_FAR = 1e6  # deviations or spans beyond which a value is cut off
_WORD = re.compile(r"\b\w\w+\b")  # as scikit-learn's vectorizers have it
_TRUTH = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}


# ------------------------------------------------------------------------------------------ values, read as a kind


def is_number(kind: Any) -> bool:
    """Whether an arrow type holds numbers or booleans."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def is_text(kind: Any) -> bool:
    """Whether an arrow type holds text."""
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_date(kind: Any) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _numpy(values: Any) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = (
        values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    )
    return array


def _no_blanks(values: Any) -> Any:
    """Return text with null in place of what is empty or blank."""
    blank = pc.or_(pc.utf8_is_space(values), pc.equal(pc.binary_length(values), 0))
    return pc.if_else(blank, None, values) if pc.any(blank).as_py() else values


def _parsed(column: str, values: Any, to: Any, refuse: Refuse, what: str) -> Any:
    """Read text as numbers or dates; the first that is none is named."""
    values = _no_blanks(values)
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
    numbers = _numpy(values.cast(pa.float64(), safe=False))
    with np.errstate(invalid="ignore"):
        wrong = np.abs(numbers) > np.finfo(np.float32).max
    refuse(column, wrong, values, "are not finite as 32-bit numbers", "correct them, or leave the column out")
    return numbers


def _unlike(column: str, values: Any, refuse: Refuse, what: str) -> None:
    way = f"keep the type of the fitted table, or choose another kind: --column {column}=..."
    refuse(column, ~_missing(values), values, f"are {values.type}, not {what}", way)


def _missing(values: Any) -> npt.NDArray[np.bool_]:
    missing: npt.NDArray[np.bool_] = _numpy(values.is_null(nan_is_null=True))
    return missing


def to_seconds(column: str, values: Any, refuse: Refuse) -> FloatArray:
    """Return dates and times as seconds since 1970, NaN where empty."""
    if isinstance(values, np.ndarray):
        return values  # read before
    if is_text(values.type):
        values = _parsed(column, values, pa.timestamp("us"), refuse, "dates")
    elif not _is_date(values.type) and not pa.types.is_null(values.type):
        _unlike(column, values, refuse, "dates")
    try:
        stamps = values.cast(pa.timestamp("us", getattr(values.type, "tz", None)), safe=False).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise InputError(f"column {column!r}: {str(error).splitlines()[0]}; correct the date or leave it out") from None
    seconds: FloatArray = _numpy(stamps.cast(pa.float64(), safe=False)) / 1e6
    return seconds


def _to_truth(column: str, values: Any, refuse: Refuse) -> FloatArray:
    """Return 0 and 1, NaN where empty."""
    if isinstance(values, np.ndarray):
        return values  # read before
    if is_text(values.type):
        coded = _combined(values).dictionary_encode()
        known = [_TRUTH.get(str(v).strip().lower(), np.nan) for v in coded.dictionary.to_pylist()]
        blank = [not str(v).strip() for v in coded.dictionary.to_pylist()]
        code = _numpy(coded.indices.fill_null(len(known)))
        truth: FloatArray = np.append(known, np.nan)[code]
        wrong = np.isnan(truth) & ~np.append(blank, True)[code]
    else:
        truth = to_numbers(column, values, refuse)
        wrong = ~np.isnan(truth) & (truth != 0) & (truth != 1)
    refuse(column, wrong, values, "are neither true nor false", f"choose another kind: --column {column}=number")
    return truth


def _to_words(column: str, values: Any) -> Any:
    """Return a column as one array of text, null where empty; whole floats are written as integers."""
    if pa.types.is_floating(values.type):
        values = _combined(values)
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
    return _combined(values)


@dataclass(frozen=True, eq=False)
class _Coded:
    """The distinct values of a column as text, and the number of each row's one; -1 where it is missing or blank."""

    words: list[str]
    code: IntArray

    @classmethod
    def of(cls, column: str, values: Any) -> _Coded:
        if isinstance(values, cls):
            return values
        coded = _to_words(column, values).dictionary_encode()
        words = coded.dictionary.to_pylist()
        code = _numpy(coded.indices.fill_null(-1))
        if any(not word.strip() for word in words):
            code = np.array([j if word.strip() else -1 for j, word in enumerate(words)] + [-1], np.int32)[code]
        return cls(words, code)

    def __len__(self) -> int:
        return self.code.size


def _combined(values: Any) -> Any:
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    # text of more than 2 GB needs wide offsets
    wide = pa.types.is_string(values.type) and values.nbytes > 2**30
    return (values.cast(pa.large_string()) if wide else values).combine_chunks()


def _bytes(words: Any) -> tuple[IntArray, npt.NDArray[np.uint8]]:
    """Return where each text starts and ends in the bytes of all, and those bytes; shared with the arrow array."""
    _, start, text = words.buffers()
    ends: IntArray = np.frombuffer(start, np.int32 if pa.types.is_string(words.type) else np.int64)
    return ends[words.offset : words.offset + len(words) + 1], np.frombuffer(text or b"", np.uint8)


# ------------------------------------------------------------------------------------------ one class per kind


def _distinct_days(seconds: FloatArray) -> tuple[FloatArray, Any]:
    """Return moments, and which of them each row has: one per day where all are at midnight and many share a day."""
    day = np.floor(seconds / _DAY)
    first, last = day.min(initial=np.inf), day.max(initial=-np.inf)
    if not last - first < seconds.size or (day * _DAY != seconds).any():
        return seconds, slice(None)
    return np.arange(first, last + 1) * _DAY, (day - first).astype(np.int64)


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
class _Number:
    """A number, standardised by the mean and deviation it was fitted with; the mean where it is missing."""

    kind: ClassVar[str] = "number"
    column: str
    mean: float
    scale: float
    flag: bool  # a further feature says where the value was missing

    @classmethod
    def fit(cls, column: str, values: Any, refuse: Refuse) -> Self:
        numbers = to_numbers(column, values, refuse)
        known, mean, scale = kernels.mean_and_deviation(numbers)
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
        if self.scale and kernels.standardise(numbers, self.mean, 1 / self.scale, _FAR, places):
            _say_far(say, (numbers - self.mean) * (1 / self.scale), values, "deviations")
        return [places] + ([missing.astype(np.float32)] if self.flag else [])


@dataclass(frozen=True)
class _Raw(_Number):
    """A number left as it is, 0 where it is missing."""

    kind: ClassVar[str] = "raw"

    def columns(self, values: Any, refuse: Refuse, say: Say) -> list[FloatArray]:
        numbers = to_numbers(self.column, values, refuse)
        missing = np.isnan(numbers)
        _say_missing(say, missing, self.flag, "0 stands for them")
        return [np.where(missing, 0.0, numbers)] + ([missing.astype(np.float32)] if self.flag else [])


@dataclass(frozen=True)
class _Boolean:
    """0 or 1, from booleans, 0 and 1, or true/false and yes/no; the fitted share where it is missing."""

    kind: ClassVar[str] = "boolean"
    column: str
    share: float
    flag: bool

    @classmethod
    def fit(cls, column: str, values: Any, refuse: Refuse) -> Self:
        truth = _to_truth(column, values, refuse)
        known = truth[~np.isnan(truth)]
        return cls(column, float(known.mean()) if known.size else 0.0, known.size < truth.size)

    @property
    def width(self) -> int:
        return 1 + self.flag

    def names(self) -> list[str]:
        return [self.column] + ([f"{self.column}: missing"] if self.flag else [])

    def columns(self, values: Any, refuse: Refuse, say: Say) -> list[FloatArray]:
        truth = _to_truth(self.column, values, refuse)
        missing = np.isnan(truth)
        _say_missing(say, missing, self.flag, f"the fitted share of true, {self.share:.2g}, stands for them")
        return [np.where(missing, self.share, truth)] + ([missing.astype(np.float32)] if self.flag else [])


@dataclass(frozen=True)
class _Date:
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
        hours = bool((known % _DAY != 0).any())
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
        turns = [(days - year).astype(np.float32) / 365.25, (moments / _DAY % 7 / 7).astype(np.float32)]
        if self.hours:
            turns.append((moments % _DAY / _DAY).astype(np.float32))
        _say_far(say, place, values, "times the fitted span")
        parts = [np.clip(place, -_FAR, _FAR)]
        for turn in turns:
            angle = turn * np.float32(2 * np.pi)
            parts += [np.sin(angle)[at], np.cos(angle)[at]]
        for part in parts:
            part[missing] = 0.0
        return parts + ([missing.astype(np.float32)] if self.flag else [])


@dataclass(frozen=True)
class _Category:
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
        coded = _Coded.of(column, values)
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
        coded = _Coded.of(self.column, values)
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
class _Text:
    """Words of two letters or more in small letters, hashed to features with a sign and scaled to length 1.

    The same as scikit-learn's ``HashingVectorizer``; zeros where the text is missing.
    """

    kind: ClassVar[str] = "text"
    column: str
    width: int

    @classmethod
    def fit(cls, column: str, values: Any, refuse: Refuse) -> Self:
        _to_words(column, values[:1])  # an error where it is no text
        return cls(column, TEXT_WIDTH)

    def names(self) -> list[str]:
        return [f"{self.column}: words {j}" for j in range(self.width)]

    def hashed(self, values: Any) -> tuple[npt.NDArray[Any], ...]:
        """Return the hashed words of each row, as `kernels.append_words` takes them."""
        words = _to_words(self.column, values)
        if not pa.types.is_string(words.type):
            words = words.cast(pa.large_string())
        words = words.fill_null("") if words.null_count else words
        start, text = _bytes(words)
        if text.max(initial=0) > 127:
            # the kernel knows the small letters of ASCII alone; of other text it gets the words one by one
            beyond = pc.invert(pc.string_is_ascii(words))
            plain = [" ".join(_WORD.findall(row.lower())) for row in words.filter(beyond).to_pylist()]
            start, text = _bytes(pc.replace_with_mask(words, beyond, pa.array(plain, words.type)))
        room = (text.size + len(words)) // 3  # for two letters and what parts them from the next
        hashed = np.empty(len(words) + 1, np.int64), np.empty(room, np.int32), np.empty(room, np.float32)
        kernels.hash_words(start, text, self.width, *hashed)
        return hashed


_Coder: TypeAlias = _Number | _Boolean | _Date | _Category | _Text
_CODERS: dict[str, Any] = {coder.kind: coder for coder in (_Number, _Raw, _Boolean, _Date, _Category, _Text)}
KINDS = (*_CODERS, "ignore")
# what a column is read by, once for fitting and transforming it; text is hashed as it is
_READERS: dict[str, Callable[[str, Any, Refuse], Any]] = {
    "number": to_numbers,
    "raw": to_numbers,
    "boolean": _to_truth,
    "date": to_seconds,
    "category": lambda column, values, refuse: _Coded.of(column, values),
}


# ------------------------------------------------------------------------------------------ the encoder


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
    if _is_date(kind):
        return "date", ""
    if not is_text(kind):
        return "ignore", str(kind)
    # stretches from the whole length of the column
    starts = np.linspace(0, max(0, len(values) - _SAMPLE // 16), 16).astype(int)
    stretches = [values] if len(values) <= _SAMPLE else [values.slice(int(at), _SAMPLE // 16) for at in starts]
    chunks = [chunk for stretch in stretches for chunk in stretch.chunks]
    words = _combined(pa.chunked_array(chunks, values.type)).drop_null()
    every = words.unique()
    distinct = _no_blanks(every).drop_null()
    if not len(distinct):
        return "ignore", "empty"
    with suppress(pa.ArrowInvalid):
        for part in (distinct[:1], distinct):  # a cast that fails goes through all values
            pc.utf8_trim_whitespace(part).cast(pa.timestamp("us"))
        return "date", ""
    rows = len(words) if len(distinct) == len(every) else len(_no_blanks(words).drop_null())
    if len(distinct) == rows > 2:
        spaced = pc.any(pc.match_substring(distinct, " ")).as_py()
        return ("text", "") if spaced else ("ignore", "different in every row")
    return ("category" if len(distinct) <= CATEGORIES or len(distinct) * 10 <= rows else "text"), ""


@dataclass(frozen=True)
class TableEncoder:
    """Turns columns of a table into features, the same way each time.

    Parameters
    ----------
    coders : one per column that is used
    sparse : whether the features are a scipy CSR array

    Examples
    --------
    >>> columns = {"age": pa.chunked_array([[20, 40, None]]), "city": pa.chunked_array([["Rome", "Oslo", "Rome"]])}
    >>> encoder = TableEncoder.fit(columns)
    >>> encoder.names()
    ['age', 'age: missing', 'city = Rome', 'city: rare']
    >>> encoder.transform(columns).tolist()
    [[-1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]]
    """

    coders: tuple[_Coder, ...]
    sparse: bool = False

    @classmethod
    def fit(
        cls, columns: Mapping[str, Any], kinds: Mapping[str, str] | None = None, refuse: Refuse | None = None
    ) -> TableEncoder:
        """Fit an encoder.

        Parameters
        ----------
        columns : name → arrow column, all of one length
        kinds : column → number, raw, boolean, category, date, text or ignore, where it is not to be found by type
        refuse : called where values cannot be read as the kind; by default an error with the row
        """
        encoder, _, notes = cls._fitted(columns, kinds or {}, refuse or _refuse)
        for note in notes:
            warn_input(note)
        return encoder

    @classmethod
    def fit_transform(
        cls, columns: Mapping[str, Any], kinds: Mapping[str, str], refuse: Refuse
    ) -> tuple[TableEncoder, Features | None, list[str]]:
        """Fit and transform on a thread: the warnings are returned, and there are no features without a column."""
        encoder, columns, notes = cls._fitted(columns, kinds, refuse)
        if not encoder.coders:
            return encoder, None, notes
        x, more = encoder.features(columns, refuse)
        return encoder, x, notes + more

    @classmethod
    def _fitted(
        cls, columns: Mapping[str, Any], kinds: Mapping[str, str], refuse: Refuse
    ) -> tuple[TableEncoder, Mapping[str, Any], list[str]]:
        """Return the encoder, the columns as far as they were read for it, and what is to be told."""
        for column, kind in kinds.items():
            if kind not in KINDS:
                raise InputError(f"column {column!r}: there is no kind {kind!r}; there are {', '.join(KINDS)}")
        ready = dict(columns)

        def one(column: str) -> tuple[Any, str]:
            kind, reason = (kinds[column], "") if column in kinds else find_kind(columns[column])
            if kind in _READERS:
                ready[column] = _READERS[kind](column, columns[column], refuse)
            return None if kind == "ignore" else _CODERS[kind].fit(column, ready[column], refuse), reason

        coders: list[Any] = []
        ignored: dict[str, list[str]] = {}
        for column, (coder, reason) in zip(columns, _on_threads(one, columns), strict=True):
            if coder is not None and coder.width:
                coders.append(coder)
            elif coder is not None or reason:
                ignored.setdefault(reason or "different in every row", []).append(column)
        notes = []
        for reason, names in ignored.items():
            way = f"choose a kind to use {'it' if len(names) == 1 else 'them'} all the same: --column {names[0]}=..."
            notes.append(
                f"{counted(len(names), 'column is', 'columns are')} not used, being {reason}: "
                f"{some(repr(c) for c in names)}; {way}"
            )
        encoder = cls(tuple(coders))
        wide = [coder for coder in coders if isinstance(coder, _Category | _Text)]
        filled = encoder.width - sum(coder.width for coder in wide) + 8 * len(wide)
        return cls(tuple(coders), bool(wide) and filled < _SPARSE * encoder.width), ready, notes

    @property
    def width(self) -> int:
        """Number of features."""
        return sum(coder.width for coder in self.coders)

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are used, with their kinds."""
        return {coder.column: coder.kind for coder in self.coders}

    def names(self) -> list[str]:
        """Return the names of the features, in their order."""
        return [name for coder in self._ordered() for name in coder.names()]

    def _ordered(self) -> list[_Coder]:
        """Return the dense kinds first, then categories, then text, as the features are laid out."""
        order: dict[type, int] = {_Category: 1, _Text: 2}
        return sorted(self.coders, key=lambda coder: order.get(type(coder), 0))

    def transform(self, columns: Mapping[str, Any], refuse: Refuse | None = None) -> Features:
        """Return the features of the rows, float32, shape (rows, width): dense or CSR as the encoder was fitted.

        Values unlike those at fitting (new categories, gaps where there were none, numbers out of all proportion) are
        told in a warning, with their number; a column that is not there is an error.
        """
        x, notes = self.features(columns, refuse or _refuse)
        for note in notes:
            warn_input(note)
        return x

    def features(self, columns: Mapping[str, Any], refuse: Refuse) -> tuple[Features, list[str]]:
        """Transform on a thread: the warnings are returned along with the features."""
        lost = [coder.column for coder in self.coders if coder.column not in columns]
        if lost:
            raise InputError(
                f"{counted(len(lost), 'column')} that the model was fitted with "
                f"{'is' if len(lost) == 1 else 'are'} not there: {some(repr(c) for c in lost)}; "
                f"the columns are: {', '.join(map(str, columns))}"
            )
        n = len(next(iter(columns.values()))) if columns else 0
        groups: dict[type, list[Any]] = {}
        for coder in self._ordered():
            groups.setdefault(type(coder) if type(coder) in (_Category, _Text) else _Number, []).append(coder)
        dense = groups.get(_Number, [])
        width = sum(coder.width for coder in dense)
        categories = groups.get(_Category, [])
        texts = groups.get(_Text, [])
        values = np.empty((width, n), np.float32)
        codes = np.empty((len(categories), n), np.int32)
        # a list for each column: they are filled on threads, and told in the order of the columns
        told: dict[str, list[str]] = {coder.column: [] for coder in self.coders}
        jobs: list[Callable[[], Any]] = []
        at = 0
        for coder in dense:
            jobs.append(partial(_fill, coder, columns[coder.column], refuse, told[coder.column].append, values, at))
            at += coder.width
        for coder, row in zip(categories, codes, strict=True):
            jobs.append(partial(coder.codes, columns[coder.column], told[coder.column].append, row))
        jobs += [partial(coder.hashed, columns[coder.column]) for coder in texts]
        hashed = _on_threads(lambda job: job(), jobs)[len(dense) + len(categories) :]
        notes = [f"column {column!r}: {note}" for column, found in told.items() for note in found]
        if not categories and not texts:
            return np.ascontiguousarray(values.T), notes

        # the rows of a CSR array: every dense feature, one entry per category, the words
        offsets = np.cumsum([width, *(coder.width for coder in (*categories, *texts))])
        count = np.full(n, width + len(categories), np.int64)
        for entries, _, _ in hashed:
            count += np.diff(entries)
        indptr = np.concatenate([[0], np.cumsum(count)])
        cursor = indptr[:-1].copy()
        indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)

        def fill(first: int) -> int:
            """Write some rows; return how many of their entries are not 0."""
            last = min(first + _ROWS, n)
            own = cursor[first:last], indices, data
            filled: int = kernels.append_columns(values[:, first:last], *own)
            filled += kernels.append_categories(codes[:, first:last], offsets[: len(categories)], *own)
            for offset, (entries, column, value) in zip(offsets[len(categories) :], hashed, strict=False):
                kernels.append_words(entries[first : last + 1], column, value, offset, *own)
                filled += int(entries[last] - entries[first])
            return filled

        filled = sum(_on_threads(fill, range(0, n, _ROWS)))
        if indptr[-1] < 2**31:
            indptr = indptr.astype(np.int32)  # of one type with the indices, which would be copied otherwise
        x = sp.csr_array((data, indices, indptr), shape=(n, offsets[-1]))
        if filled < data.size / 2:
            x.eliminate_zeros()
        return (x if self.sparse else x.toarray()), notes

    # ---- keeping

    def to_dict(self) -> dict[str, Any]:
        """Return the encoder as plain lists and numbers."""
        coders = [{"kind": coder.kind, **asdict(coder)} for coder in self.coders]
        return {"format": _FORMAT, "format_version": _FORMAT_VERSION, "sparse": self.sparse, "columns": coders}

    def save(self, path: Path) -> Path:
        """Write the encoder as JSON."""
        draft = path.with_name(f".{path.name}.partial")
        draft.write_text(json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return draft.replace(path)

    @classmethod
    def load(cls, path: Path) -> TableEncoder:
        """Read what `save` wrote."""
        if not path.is_file():
            raise InputError(f"{path}: there is no such file; the encoder is written by 'gpatcher fit' on tables")
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["format"] != _FORMAT:
                raise ValueError("another format")
            if found["format_version"] != _FORMAT_VERSION:
                raise ValueError(f"format version {found['format_version']}, this gpatcher reads {_FORMAT_VERSION}")
            coders = []
            for about in found["columns"]:
                coder = _CODERS[about.pop("kind")]
                if set(about) != {part.name for part in fields(coder)}:
                    raise ValueError(f"column {about.get('column')!r} has the parts {some(about)}")
                coders.append(coder(**about))
            return cls(tuple(coders), bool(found["sparse"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is no encoder of this version or damaged ({error}); train again") from None


def _on_threads(work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Return the results in order; pyarrow and NumPy let go of the interpreter while they work."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(work, items))


def _fill(coder: Any, values: Any, refuse: Refuse, say: Say, data: FloatArray, at: int) -> None:
    for j, part in enumerate(coder.columns(values, refuse, say)):
        data[at + j] = part


def _refuse(column: str, wrong: npt.NDArray[np.bool_], values: Any, what: str, way: str) -> None:
    rows = np.flatnonzero(wrong)
    if rows.size:
        first = int(rows[0])
        raise InputError(
            f"{rows.size} of {wrong.size} values in column {column!r} {what}, "
            f"the first in row {first} ({values[first].as_py()!r}); {way}"
        )
