"""From two CSV files to predictions: reading and encoding beside pyarrow's reading, and the whole command's memory.

100k nodes, 1M edges and 50 columns of all kinds; each part in a process of its own. Arguments: nodes and edges.
"""

import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import record

from gpatcher.datasets.synthetic import rmat
from gpatcher.tables.load import load_tables

RATIO_LIMIT, MEMORY_LIMIT_GB = 2.0, 4.0


def prepare(folder: Path, nodes: int, edges: int) -> None:
    """Write nodes.csv and edges.csv: 25 numbers, 5 booleans, 12 categories, 4 dates and 4 texts, some missing."""
    rng = np.random.default_rng(0)
    graph = rmat(n=nodes, m=edges)
    n = graph.n
    ids = np.char.add("user", np.arange(n).astype(str))
    kinds = np.array(["red", "green", "blue", "grey"])
    y = rng.integers(0, 4, n)
    columns = {"id": ids, "label": pa.array(kinds[y], mask=rng.random(n) < 0.3)}
    for j in range(25):
        columns[f"number{j}"] = pa.array(rng.normal(size=n) + (y == j % 4), mask=rng.random(n) < 0.05 * (j % 5 == 0))
    for j in range(5):
        columns[f"flag{j}"] = rng.random(n) < 0.3
    for j in range(12):
        cities = np.array([f"city {i}" for i in range(20 + 40 * (j % 3))])
        columns[f"city{j}"] = cities[rng.integers(0, len(cities), n)]
    for j in range(4):
        columns[f"day{j}"] = np.datetime64("2015-01-01") + rng.integers(0, 3000, n).astype("timedelta64[D]")
    words = np.array([f"w{i:04d}" for i in range(5000)])
    for j in range(4):
        columns[f"note{j}"] = [" ".join(row) for row in words[rng.integers(0, 5000, (n, 6))].tolist()]
    pa.csv.write_csv(pa.table(columns), folder / "nodes.csv")
    source = np.repeat(np.arange(n), np.diff(graph.indptr))
    once = source < graph.indices
    ends = {"source": ids[source[once]], "target": ids[graph.indices[once]]}
    pa.csv.write_csv(pa.table(ends), folder / "edges.csv")


def read_only(folder: Path) -> None:
    """Read both files by pyarrow and do nothing with them."""
    for name in ("nodes.csv", "edges.csv"):
        pa.csv.read_csv(folder / name)


def read_and_encode(folder: Path) -> None:
    """Read both files into a graph with features."""
    load_tables(folder / "nodes.csv", folder / "edges.csv")


def measure(folder: Path) -> None:
    """Time both ways in turns, warm, and print the medians."""
    warnings.simplefilter("ignore")
    seconds: dict[str, list[float]] = {"read_only": [], "read_and_encode": []}
    for _ in range(16):
        for way in (read_only, read_and_encode):
            started = time.perf_counter()
            way(folder)
            seconds[way.__name__].append(time.perf_counter() - started)
    print(json.dumps({way: float(np.median(found[1:])) for way, found in seconds.items()}))


def whole_command(folder: Path) -> None:
    """Run the command in this process and print its seconds and peak memory."""
    from gpatcher import cli

    arguments = ["--nodes", folder / "nodes.csv", "--edges", folder / "edges.csv", "--out", folder / "run"]
    sys.argv = ["gpatcher", "fit", *map(str, arguments), "--model", "fast", "--epochs", "5"]
    started = time.perf_counter()
    cli.app(standalone_mode=False)
    rows = pa.parquet.read_metadata(folder / "run" / "predictions.parquet").num_rows
    found = {"seconds": time.perf_counter() - started, "peak": record.memory_bytes("VmHWM"), "rows": rows}
    print(json.dumps(found))


def child(part: str, folder: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, part, folder], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    if len(sys.argv) == 3 and not sys.argv[1].isdigit():
        {"measure": measure, "whole": whole_command}[sys.argv[1]](Path(sys.argv[2]))
        return
    nodes, edges = map(int, sys.argv[1:3]) if len(sys.argv) == 3 else (100_000, 1_000_000)
    with tempfile.TemporaryDirectory() as scratch:
        prepare(Path(scratch), nodes, edges)
        times, whole = child("measure", scratch), child("whole", scratch)
    row = {
        "nodes": nodes,
        "edges": edges,
        "pyarrow_s": times["read_only"],
        "read_and_encode_s": times["read_and_encode"],
    }
    row["ratio"] = times["read_and_encode"] / times["read_only"]
    row |= {"command_s": whole["seconds"], "predicted": whole["rows"], "peak_gb": whole["peak"] / 1e9}
    record.write("own_data", [row])
    print(f"bounds: ratio at most {RATIO_LIMIT}, peak below {MEMORY_LIMIT_GB} GB")


if __name__ == "__main__":
    main()
