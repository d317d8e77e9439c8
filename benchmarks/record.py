"""What the benchmarks share: timing, memory of the process, records."""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gpatcher.io import make_folder, write_json

RESULTS = Path(__file__).parent / "results"
COMMAND = [sys.executable, "-c", "from gpatcher.cli import main; main()"]  # gpatcher, of this environment


def timed(call: Callable[[], Any], repeats: int = 3) -> float:
    """Return the median seconds of several calls."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def memory_bytes(field: str) -> int:
    """Return a field of /proc/self/status in bytes: ``VmRSS`` for the resident memory, ``VmHWM`` for its peak."""
    # not getrusage, whose peak a child process inherits from its parent
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def reset_peak() -> None:
    """Reset the peak of the resident memory to its present value."""
    Path("/proc/self/clear_refs").write_text("5")


def write(name: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table and write them with the environment to ``results/``."""
    columns = list(rows[0])
    cells = [[f"{row[c]:.4g}" if isinstance(row[c], float) else str(row[c]) for c in columns] for row in rows]
    width = [max(len(c), *(len(line[i]) for line in cells)) for i, c in enumerate(columns)]
    for line in [columns, *cells]:
        print("  ".join(cell.ljust(w) for cell, w in zip(line, width, strict=True)).rstrip())
    environment = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        **{package: version(package) for package in ("numpy", "scipy", "numba", "torch", "gpatcher")},
    }
    write_json(make_folder(RESULTS) / f"{name}.json", {"rows": rows, "environment": environment})
