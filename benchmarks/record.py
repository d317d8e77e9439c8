"""What every benchmark shares: a warm call timed, a process's peak memory, a record of what was printed."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def timed(call: Callable[[], Any], repeats: int = 3) -> float:
    """Return the median seconds of a few calls."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def memory_bytes(kind: str) -> int:
    """Return this process's resident memory now (``VmRSS``) or at its largest (``VmHWM``)."""
    # not getrusage, whose peak a child process takes over from its parent
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) * 1024


def forget_peak() -> None:
    """Let the largest resident memory start anew from what is held now."""
    Path("/proc/self/clear_refs").write_text("5")


def write(name: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table and keep them with the environment."""
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
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps({"rows": rows, "environment": environment}, indent=1) + "\n")
