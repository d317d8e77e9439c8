"""Estimates of --dry-run against what the commands take: time and peak memory of a process, and bytes on disk.

python benchmarks/estimate.py
"""

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

import record

CASES = [
    *(["patches", f"rmat:n={n},m={10 * n}"] for n in (20_000, 100_000, 500_000)),
    *(["fit", f"csbm:n={n},phi=-0.5,features=32", "--model", "fast"] for n in (1_000, 5_000, 20_000)),
    *(["fit", f"csbm:n={n},phi=-0.5,features=32", "--model", "auto"] for n in (300, 1_000, 3_000)),
]
UNITS = {"s": 1, "min": 60, "h": 3600, "MiB": 2**20, "GiB": 2**30}
FIGURES = re.compile(r"about ([\d.]+) (s|min|h), ([\d.]+) GiB of memory and ([\d.,]+) (MiB|GiB)")


def estimated(case: list[str]) -> tuple[float, float, float]:
    """Return the seconds, bytes of memory and bytes of disk that --dry-run prints."""
    done = subprocess.run([*record.COMMAND, *case, "--dry-run"], capture_output=True, text=True, check=True)
    found = FIGURES.search(done.stdout)
    assert found, done.stdout
    disk = float(found[4].replace(",", "")) * UNITS[found[5]]
    return float(found[1]) * UNITS[found[2]], float(found[3]) * 2**30, disk


def measured(case: list[str]) -> tuple[float, float, float]:
    """Run the command; return seconds, peak memory and bytes of its files."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out"
        started = time.perf_counter()
        process = subprocess.Popen([*record.COMMAND, *case, "--out", str(out)], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0, case
        seconds, peak = time.perf_counter() - started, usage.ru_maxrss * 1024
        files = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return seconds, peak, files


if __name__ == "__main__":
    rows = []
    for case in CASES:
        rows.append({"what": " ".join(case)})
        for name, guess, real in zip(("seconds", "memory", "disk"), estimated(case), measured(case), strict=True):
            rows[-1] |= {f"{name} estimated": guess, f"{name} measured": real, f"{name} ratio": guess / real}
        rows[-1]["bound"] = "ratios of 0.5 to 2"
        print(rows[-1], flush=True)
    record.write("estimate", rows)
