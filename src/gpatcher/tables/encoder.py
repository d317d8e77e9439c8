"""Columns of a table as features: numbers, booleans, categories, dates and short text.

The encoder is fitted once and saved with the model as a small JSON file, to encode later tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gpatcher.arrays import BoolArray, Features, FloatArray, IntArray
from gpatcher.codec import from_json
from gpatcher.errors import InputError, check_choice, counted, some, warn_input
from gpatcher.io import read_manifest, write_json
from gpatcher.kernels.columns import append_categories, append_columns
from gpatcher.kernels.words import append_words
from gpatcher.tables.columns import (
    COLUMN_KINDS,
    KINDS,
    CategoryColumn,
    Column,
    DenseColumn,
    TextColumn,
    fit_column,
    infer_kind,
)
from gpatcher.tables.edge_columns import EdgePlan
from gpatcher.tables.values import Reject, blanks_to_null, is_text, missing_mask, reject_values

FORMAT, VERSION = "gpatcher-encoder", 5
_BATCH_ROWS = 1 << 12  # rows written to the CSR array at a time; fewer are not worth a thread
SPARSE = 0.25  # features with a smaller fraction of non-zeros are a sparse matrix, as in gpatcher.model.inputs


class ColumnSummary(NamedTuple):
    """How a column of a table is encoded."""

    column: str
    kind: str
    features: int  # number of features
    missing: int  # rows without a value
    note: str


@dataclass(frozen=True)
class TableEncoder:
    """Encodes columns of a table as features: dense ones come first, then categories, then text.

    Examples
    --------
    >>> import pyarrow as pa
    >>> columns = {"age": pa.chunked_array([[20, 40, None]]), "city": pa.chunked_array([["Rome", "Oslo", "Rome"]])}
    >>> encoder = TableEncoder.fit(columns)
    >>> encoder.names()
    ['age', 'age: missing', 'city = Rome', 'city: rare']
    >>> encoder.transform(columns).tolist()
    [[-1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]]
    """

    encoders: tuple[Column, ...]  # of the columns that are used: two for a code or a text, else one
    sparse: bool = False  # whether the features are a SciPy CSR array
    edges: tuple[EdgePlan, ...] = ()  # how columns of each table of edges are aggregated to node columns

    @property
    def width(self) -> int:
        """Number of features."""
        return sum(encoder.width for encoder in self.encoders)

    @property
    def columns(self) -> dict[str, str]:
        """Kind of each column that is used."""
        return {encoder.column: encoder.kind for encoder in self.encoders}

    def describe(self, columns: Mapping[str, Any]) -> list[ColumnSummary]:
        """Return for each column of a table how it is encoded."""
        rows = []
        for name, values in columns.items():
            encoders = [encoder for encoder in self.encoders if encoder.column == name]
            kind = encoders[-1].kind if encoders else "ignore"
            note = "; ".join(filter(None, (encoder.note for encoder in encoders)))
            note = note if encoders else infer_kind(values, name)[1] or "left out"
            missing = int(missing_mask(blanks_to_null(values) if is_text(values.type) else values).sum())
            rows.append(ColumnSummary(name, kind, sum(encoder.width for encoder in encoders), missing, note))
        return rows

    def edge_columns(self) -> list[str]:
        """Return the columns that are aggregated from edges."""
        return [name for plan in self.edges for name in plan.node_names()]

    def names(self) -> list[str]:
        """Return the names of the features, in order."""
        return [name for group in self._groups() for encoder in group for name in encoder.names()]

    def _groups(self) -> list[list[Any]]:
        """Return the dense, categorical and text columns."""
        kinds = (DenseColumn, CategoryColumn, TextColumn)
        return [[encoder for encoder in self.encoders if isinstance(encoder, kind)] for kind in kinds]

    @classmethod
    def fit(
        cls, columns: Mapping[str, Any], kinds: Mapping[str, str] | None = None, reject: Reject = reject_values
    ) -> TableEncoder:
        """Fit an encoder to columns of equal length; ``kinds`` maps columns to `KINDS`, by default inferred.

        ``reject`` is called for values that are not of the kind; by default it raises an error with the row.
        """
        encoder, _, messages = cls._fit(columns, kinds or {}, reject)
        for message in messages:
            warn_input(message)
        return encoder

    @classmethod
    def fit_transform(
        cls, columns: Mapping[str, Any], kinds: Mapping[str, str], reject: Reject
    ) -> tuple[TableEncoder, Features, list[str]]:
        """Return a fitted encoder, the features and the warnings, for callers on a thread; reads each column once."""
        encoder, values, messages = cls._fit(columns, kinds, reject)
        x, more = encoder._features(_rows(columns), lambda column: values[column.column, column.kind])
        return encoder, x, messages + more

    @classmethod
    def _fit(
        cls, columns: Mapping[str, Any], kinds: Mapping[str, str], reject: Reject
    ) -> tuple[TableEncoder, dict[tuple[str, str], Any], list[str]]:
        """Return the encoder, the values read for each column and kind, and the warnings."""
        for name, kind in kinds.items():
            if kind not in KINDS:
                raise InputError(f"column {name!r}: unknown kind {kind!r}; choose one of {', '.join(KINDS)}")

        def reject_with_hint(column: str, invalid: BoolArray, values: Any, problem: str, fix: str) -> None:
            reject(column, invalid, values, problem, f"{fix}, or choose another kind: {_kind_option(column)}")

        def fit(name: str) -> tuple[list[Any], list[Any], str]:
            kind, reason = (kinds[name], "") if name in kinds else infer_kind(columns[name], name)
            fitted, values = fit_column(name, kind, columns[name], reject_with_hint)
            if any(encoder.width for encoder in fitted):
                return fitted, values, ""
            return [], [], reason or ("no word is in two rows" if kind == "text" else "different in every row")

        encoders: list[Any] = []
        read: dict[tuple[str, str], Any] = {}
        ignored: dict[str, list[str]] = {}
        for name, (fitted, values, reason) in zip(columns, _on_threads(fit, columns), strict=True):
            encoders += fitted
            read |= {(name, encoder.kind): part for encoder, part in zip(fitted, values, strict=True)}
            if not fitted and kinds.get(name) != "ignore":
                ignored.setdefault(reason, []).append(name)
        messages = [
            f"{counted(len(names), 'column is', 'columns are')} not used ({reason}): {some(map(repr, names))}; "
            f"choose a kind to use {'it' if len(names) == 1 else 'them'}: {_kind_option(names[0])}"
            for reason, names in ignored.items()
        ]
        width = sum(encoder.width for encoder in encoders)
        # per row on average; only categories and words make the features sparse
        nonzeros = [encoder.nonzeros for encoder in encoders]
        wide = any(not isinstance(encoder, DenseColumn) for encoder in encoders)
        return cls(tuple(encoders), wide and sum(nonzeros) < SPARSE * width), read, messages

    def transform(self, columns: Mapping[str, Any], reject: Reject = reject_values) -> Features:
        """Encode the rows of a table that has the fitted columns; dense or sparse as at fitting.

        Warns of new categories, of extreme values, and of missing values in a column that had none at fitting.
        """
        x, messages = self.encode(columns, reject)
        for message in messages:
            warn_input(message)
        return x

    def encode(self, columns: Mapping[str, Any], reject: Reject) -> tuple[Features, list[str]]:
        """Return the features and the warnings, for callers on a thread."""
        missing = [encoder.column for encoder in self.encoders if encoder.column not in columns]
        if missing:
            raise InputError(
                f"{counted(len(missing), 'fitted column is', 'fitted columns are')} missing: "
                f"{some(map(repr, missing))}; the columns are: {', '.join(map(str, columns))}"
            )
        return self._features(_rows(columns), lambda column: column.read(column.column, columns[column.column], reject))

    def _features(self, rows: int, read: Callable[[Any], Any]) -> tuple[Features, list[str]]:
        """Encode the values that ``read`` returns for each column."""
        dense, categories, texts = self._groups()
        borders = [0, *accumulate(encoder.width for encoder in dense)]
        values = np.empty((borders[-1], rows), np.float32)
        codes = np.empty((len(categories), rows), np.int32)
        targets = [values[first:last] for first, last in pairwise(borders)]
        targets += [codes[j : j + 1] for j in range(len(categories))]
        # one list per column: filled on threads, reported in the order of the columns
        messages: dict[str, list[str]] = {encoder.column: [] for encoder in self.encoders}

        def encode(encoder: Any, target: npt.NDArray[Any] | None) -> Any:
            encoded = encoder.encode(read(encoder), messages[encoder.column].append)
            if target is None:
                return encoded
            for row, feature in zip(target, encoded, strict=True):
                row[:] = feature
            return None

        columns = (*dense, *categories, *texts), (*targets, *[None] * len(texts))
        encoded = list(map(encode, *columns)) if rows < _BATCH_ROWS else _on_threads(encode, *columns)
        words = encoded[len(targets) :]
        lines = [f"column {column!r}: {message}" for column in messages for message in messages[column]]
        if not categories and not texts:
            return np.ascontiguousarray(values.T), lines
        x = _to_csr(values, codes, words, [encoder.width for encoder in (*categories, *texts)])
        return (x if self.sparse else x.toarray()), lines

    def save(self, path: Path) -> Path:
        """Write the encoder as JSON."""
        write_json(path, {"format": FORMAT, "version": VERSION, **self.content()})
        return path

    def content(self) -> dict[str, Any]:
        """Return the encoder as JSON values."""
        columns = [{"kind": encoder.kind, **asdict(encoder)} for encoder in self.encoders]
        return {"sparse": self.sparse, "columns": columns, "edges": [asdict(plan) for plan in self.edges]}

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> TableEncoder:
        """Return the encoder from what `content` returned."""
        encoders = []
        for number, fields in enumerate(content["columns"]):
            kind, where = fields["kind"], f"columns[{number}]"
            check_choice(f"{where}.kind", kind, COLUMN_KINDS)
            own = {name: value for name, value in fields.items() if name != "kind"}
            encoders.append(from_json(COLUMN_KINDS[kind], own, where))
        edges = from_json(tuple[EdgePlan, ...], content["edges"], "edges")
        return cls(tuple(encoders), from_json(bool, content["sparse"], "sparse"), edges)

    @classmethod
    def load(cls, path: Path) -> TableEncoder:
        """Read an encoder written by `save`."""
        encoder: TableEncoder = read_encoder(path, cls.from_content)
        return encoder


def read_encoder(path: Path, make: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Read the file of an encoder; ``make`` returns it from the content."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; 'gpatcher fit' on tables writes the encoder")
    manifest = read_manifest(path, FORMAT, VERSION, "table encoder")
    try:
        return make(manifest)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); train again") from None


def _to_csr(values: FloatArray, codes: IntArray, words: list[Any], widths: list[int]) -> Any:
    """Return a CSR array whose rows have dense values (d, rows), an entry per category code (c, rows) and the words.

    ``widths`` are those of the categories and the texts.
    """
    dense, rows = values.shape
    offsets = np.cumsum([dense, *widths])
    counts = np.full(rows, dense + len(codes), np.int64)
    for entries, _, _ in words:
        counts += np.diff(entries)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    cursor = indptr[:-1].copy()
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)

    def fill(first: int) -> int:
        """Write a batch of rows; return the number of non-zeros."""
        last = min(first + _BATCH_ROWS, rows)
        out = cursor[first:last], indices, data
        nonzeros: int = append_columns(values[:, first:last], *out)
        nonzeros += append_categories(codes[:, first:last], offsets[: len(codes)], *out)
        for offset, (entries, column, value) in zip(offsets[len(codes) :], words, strict=False):
            append_words(entries[first : last + 1], column, value, offset, *out)
            nonzeros += int(entries[last] - entries[first])
        return nonzeros

    nonzeros = fill(0) if rows < _BATCH_ROWS else sum(_on_threads(fill, range(0, rows, _BATCH_ROWS)))
    if indptr[-1] < 2**31:
        indptr = indptr.astype(np.int32)  # the dtype of the indices; otherwise SciPy would copy them
    x = sp.csr_array((data, indices, indptr), shape=(rows, offsets[-1]))
    if nonzeros < data.size / 2:
        x.eliminate_zeros()
    return x


def _rows(columns: Mapping[str, Any]) -> int:
    return len(next(iter(columns.values()), ()))


def _kind_option(column: str) -> str:
    return f"columns={{{column!r}: ...}} (--column {column}=...)"


def _on_threads(work: Callable[..., Any], *items: Iterable[Any]) -> list[Any]:
    """Return the results in order; pyarrow, NumPy and the kernels release the GIL."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(work, *items))
