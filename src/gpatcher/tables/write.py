"""Write tables as CSV and Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from gpatcher.errors import InputError
from gpatcher.io import draft_of

_WRITERS = {".csv": pa.csv.CSVWriter, ".parquet": pa.parquet.ParquetWriter, ".pq": pa.parquet.ParquetWriter}


def write_table(columns: Mapping[str, npt.ArrayLike], path: str | Path) -> Path:
    """Write columns of equal length to a .csv, .parquet or .pq file, atomically."""
    return write_pieces([columns], path)


def write_pieces(pieces: Iterable[Mapping[str, npt.ArrayLike]], path: str | Path) -> Path:
    """Write a table that comes in chunks of rows with the same columns; see `write_table`."""
    path = Path(path)
    writer_class = _WRITERS.get(path.suffix.lower())
    if writer_class is None:
        raise InputError(f"{path}: unknown file format; use one of {', '.join(_WRITERS)}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path.parent} is not a folder; create it or choose another one for {path.name}")
    with draft_of(path) as draft, ExitStack() as stack:
        writer = None
        for piece in pieces:
            table = pa.table(dict(piece))
            writer = writer or stack.enter_context(writer_class(draft, table.schema))
            writer.write_table(table)
    return path
