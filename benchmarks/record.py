"""What the benchmarks share: timing, memory of the process, records.

python benchmarks/record.py    (writes the tables of README.md from the records in results/; each benchmark does so too)
"""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gpatcher.io import make_folder, write_json, write_text

RESULTS, README = Path(__file__).parent / "results", Path(__file__).parent / "README.md"
_START, _END = "<!-- records: made by benchmarks/record.py -->\n", "<!-- end of records -->\n"
COMMAND = [sys.executable, "-m", "gpatcher"]  # of this environment


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


def machine_seconds() -> float:
    """Return the seconds that all cores of the machine have worked since it started."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def reset_peak() -> None:
    """Reset the peak of the resident memory to its present value."""
    Path("/proc/self/clear_refs").write_text("5")


def _cells(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the columns of a record, and its rows as text."""

    def text(value: Any) -> str:
        if not isinstance(value, int | float):
            return str(value)
        return f"{value:,.0f}" if abs(value) >= 1000 or isinstance(value, int) else f"{value:.4g}"

    columns = list(rows[0])
    return columns, [[text(row[column]) for column in columns] for row in rows]


def readme() -> str:
    """Return the text of README.md with the tables of all records."""
    lines = []
    for path in sorted(RESULTS.glob("*.json")):
        columns, cells = _cells(json.loads(path.read_text())["rows"])
        table = [columns, ["---"] * len(columns), *([cell.replace("|", "\\|") for cell in line] for line in cells)]
        lines += [f"### {path.stem}", "", *(f"| {' | '.join(line)} |" for line in table), ""]
    before, _, rest = README.read_text().partition(_START)
    return before + _START + "\n".join(lines) + _END + rest.partition(_END)[2]


def write(name: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table, and write them with the environment to ``results/`` and as a table to README.md."""
    columns, cells = _cells(rows)
    width = [max(len(c), *(len(line[i]) for line in cells)) for i, c in enumerate(columns)]
    for line in [columns, *cells]:
        print("  ".join(cell.ljust(w) for cell, w in zip(line, width, strict=True)).rstrip())
    environment = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        **{package: version(package) for package in ("numpy", "scipy", "numba", "torch", "gpatcher")},
    }
    write_json(make_folder(RESULTS) / f"{name}.json", {"rows": rows, "environment": environment})
    write_text(README, readme())


if __name__ == "__main__":
    write_text(README, readme())
