"""Records: one JSON line per run, appended to a file, and the summary over them.

Every record has the fields that `gpatcher.runs.run.run_job` writes; ``version`` is that of the schema.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # its modules load on first use

from gpatcher.errors import InputError, counted, some, warn_input
from gpatcher.io import append_line, checksum

Record = dict[str, Any]
RECORD_VERSION = 2
_CUT = b" cut short\n"  # appended to a line that a killed process left unfinished


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Append one line, with its checksum, in a single write, so that lines of two processes do not interleave."""
    line = (json.dumps(seal(record), allow_nan=False) + "\n").encode()
    tail = path.read_bytes().rpartition(b"\n")[2] if path.is_file() else b""
    if tail:
        # a killed process left a line without newline: end it, and mark it if it is not a complete record
        line = (b"\n" if _is_json(tail) else _CUT) + line
    append_line(path, line)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def seal(record: Mapping[str, Any]) -> Record:
    """Return a record with its checksum, as it is written; `parse_record` takes it off."""
    return {**record, "checksum": _checksum(record)}


def _checksum(record: Mapping[str, Any]) -> str:
    return checksum(json.dumps(record).encode())


def parse_record(line: bytes) -> Record:
    """Return the record of a line, without its checksum; raise a ValueError if it is damaged."""
    try:
        record: Any = json.loads(line)
    except RecursionError as error:
        raise ValueError from error
    if not isinstance(record, dict):
        raise ValueError("not an object")
    expected = record.pop("checksum", None)  # records of earlier versions have none
    if expected is not None and expected != _checksum(record):
        raise ValueError("the checksum differs")
    return record


def read_records(path: Path) -> list[Record]:
    """Read the records of a file; damaged lines are skipped, with a warning that names them."""
    if not path.is_file():
        return []
    records, damaged = [], []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); choose another folder") from None
    for number, line in enumerate(lines, 1):
        try:
            record = parse_record(line)
        except ValueError:
            if not line.endswith(_CUT.rstrip(b"\n")):  # such a job was run again
                damaged.append(number)
            continue
        if record.get("version") != RECORD_VERSION:
            raise InputError(
                f"{path}, line {number} has version {record.get('version', 1)}, this gpatcher reads {RECORD_VERSION}; "
                "convert the file with tools/convert_records.py, or choose another folder"
            )
        records.append(record)
    if damaged:
        lines_of = f"{counted(len(damaged), 'line is', 'lines are')} damaged and left out: {some(damaged)}"
        warn_input(f"{path}: {lines_of}; the other {counted(len(records), 'record is', 'records are')} used")
    return records


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Return eight hexadecimal digits that identify settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def versions() -> dict[str, str]:
    """Return what a result depends on besides its settings: versions of packages, and the threads of torch."""
    import torch

    return {**_package_versions(), "threads": str(torch.get_num_threads())}


@cache
def _package_versions() -> dict[str, str]:
    packages = ("gpatcher", "torch", "torch_geometric", "numpy", "scipy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


@dataclass(frozen=True)
class Summary:
    """The results of several runs; a single run has no standard deviation and no interval."""

    count: int
    mean: float
    std: float | None
    low: float | None  # 95 % interval (Student's t) of the mean
    high: float | None

    @property
    def spread(self) -> str:
        """The standard deviation in %, such as ``± 2.0``; empty for a single run."""
        return "" if self.std is None else f"± {100 * self.std:.1f}"

    @property
    def interval(self) -> str:
        """The interval of the mean as text, in %."""
        if self.low is None or self.high is None:
            return "one run"
        return f"95 % interval {100 * self.low:.1f} to {100 * self.high:.1f}"

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f} {self.spread}".rstrip()


def summarise(values: Sequence[float]) -> Summary:
    """Summarise results up to 1 of several runs; the interval ends at 1, and at 0 unless some are negative, as R²."""
    array = np.asarray(values, dtype=float)
    if not array.size:
        raise InputError("there are no runs to summarise")
    mean = float(array.mean())
    if array.size == 1:
        return Summary(1, mean, None, None, None)
    std = float(array.std(ddof=1))
    half = float(scipy.special.stdtrit(array.size - 1, 0.975)) * std / np.sqrt(array.size)
    return Summary(array.size, mean, std, max(0.0 if array.min() >= 0 else -np.inf, mean - half), min(1.0, mean + half))
