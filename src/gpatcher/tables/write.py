"""Tables out: CSV and Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from gpatcher.errors import InputError


def write_table(columns: Mapping[str, npt.ArrayLike], path: str | Path) -> Path:
    """Write columns of equal length as .csv or .parquet, whole or not at all."""
    return write_pieces([columns], path)


def write_pieces(pieces: Iterable[Mapping[str, npt.ArrayLike]], path: str | Path) -> Path:
    """Write a table that comes in pieces of the same columns, one after the other; whole or not at all."""
    path = Path(path)
    kinds = {".csv": pa.csv.CSVWriter, ".parquet": pa.parquet.ParquetWriter, ".pq": pa.parquet.ParquetWriter}
    if path.suffix.lower() not in kinds:
        raise InputError(f"{path}: unknown kind of file; its name must end in {', '.join(kinds)}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path.parent} is not a folder; make it first or choose another place for {path.name}")
    draft = path.with_name(f".{path.name}.partial")
    try:
        with ExitStack() as stack:
            writer = None
            for piece in pieces:
                table = pa.table(dict(piece))
                writer = writer or stack.enter_context(kinds[path.suffix.lower()](draft, table.schema))
                writer.write_table(table)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path
