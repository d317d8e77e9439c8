"""Columns of a table as features: numbers, booleans, categories, dates and short text.

The encoder is fitted once and is a small JSON file, so that it can be kept with a model and applied again later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gpatcher.arrays import Features, FloatArray
from gpatcher.errors import InputError, counted, some, warn_input
from gpatcher.kernels.columns import append_categories, append_columns
from gpatcher.kernels.text_hash import append_words
from gpatcher.tables.columns import (
    COLUMN_KINDS,
    KINDS,
    READERS,
    CategoryColumn,
    Column,
    NumberColumn,
    TextColumn,
    find_kind,
)
from gpatcher.tables.values import Refuse, Say

_FORMAT, _FORMAT_VERSION = "gpatcher-encoder", 2
_ROWS = 1 << 12  # rows that are written at a time
_SPARSE = 0.25  # with a smaller share of non-zeros the features are a sparse matrix, as in gpatcher.model.inputs


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

    coders: tuple[Column, ...]
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
            if kind in READERS:
                ready[column] = READERS[kind](column, columns[column], refuse)
            return None if kind == "ignore" else COLUMN_KINDS[kind].fit(column, ready[column], refuse), reason

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
        wide = [coder for coder in coders if isinstance(coder, CategoryColumn | TextColumn)]
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

    def _ordered(self) -> list[Column]:
        """Return the dense kinds first, then categories, then text, as the features are laid out."""
        order: dict[type, int] = {CategoryColumn: 1, TextColumn: 2}
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
            groups.setdefault(type(coder) if type(coder) in (CategoryColumn, TextColumn) else NumberColumn, []).append(
                coder
            )
        dense = groups.get(NumberColumn, [])
        width = sum(coder.width for coder in dense)
        categories = groups.get(CategoryColumn, [])
        texts = groups.get(TextColumn, [])
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
            filled: int = append_columns(values[:, first:last], *own)
            filled += append_categories(codes[:, first:last], offsets[: len(categories)], *own)
            for offset, (entries, column, value) in zip(offsets[len(categories) :], hashed, strict=False):
                append_words(entries[first : last + 1], column, value, offset, *own)
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
                coder = COLUMN_KINDS[about.pop("kind")]
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
