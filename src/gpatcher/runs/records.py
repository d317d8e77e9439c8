"""Records: one JSON line per training run, appended to a file, and the statistics over them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from gpatcher.errors import InputError

Record = dict[str, Any]
_CUT = b" cut short\n"  # ends a line that a kill left unfinished


def append_record(path: Path, record: Record) -> None:
    """Append one line in one write, so that two processes never mix theirs."""
    line = (json.dumps(record, allow_nan=False) + "\n").encode()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        tail = path.read_bytes().rpartition(b"\n")[2]
        if tail:
            # a killed run left a line without its end: finish it, or mark it where it is no record
            line = (b"\n" if _is_json(tail) else _CUT) + line
        os.write(handle, line)
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def read_records(path: Path) -> list[Record]:
    """Read the records of a file; a last line cut short by a kill is passed over, any other damage is an error."""
    if not path.is_file():
        return []
    records = []
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line))
        except ValueError:
            if number < len(lines) and not line.endswith(_CUT.decode().rstrip("\n")):
                raise InputError(f"{path}, line {number} is no record; remove it") from None
    return records


def config_hash(config: dict[str, Any]) -> str:
    """Return eight hexadecimal digits that tell this configuration from any other."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:8]


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    packages = ("gpatcher", "torch", "torch_geometric", "numpy", "scipy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def peak_rss_mb() -> float:
    """Return the largest resident memory of this process so far, in MB."""
    status = Path("/proc/self/status")
    if status.is_file():
        # not getrusage's, which a process takes over from the one that started it
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return round(int(peak.split()[1]) / 1024, 1)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation and 95 % interval (Student's t) of the mean over runs."""

    count: int
    mean: float
    std: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.count < 2:
            return f"{100 * self.mean:.1f}, one run"
        interval = f"95 % interval {100 * self.low:.1f} to {100 * self.high:.1f}"
        return f"{100 * self.mean:.1f} ± {100 * self.std:.1f}, {interval}"


def summarise(values: Sequence[float]) -> Summary:
    """Summarise accuracies of several runs; the interval is cut at 0 and 1.

    Examples
    --------
    >>> str(summarise([0.8, 0.82, 0.84]))
    '82.0 ± 2.0, 95 % interval 77.0 to 87.0'
    """
    array = np.asarray(values, dtype=float)
    mean = float(array.mean())
    if len(array) < 2:
        return Summary(len(array), mean, 0.0, mean, mean)
    std = float(array.std(ddof=1))
    half = float(stats.t.ppf(0.975, len(array) - 1)) * std / np.sqrt(len(array))
    return Summary(len(array), mean, std, max(0.0, mean - half), min(1.0, mean + half))
