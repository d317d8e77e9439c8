"""From two CSV files to predictions: reading and encoding compared with pyarrow's reading, and the peak of `fit`.

python benchmarks/own_data.py [NODES EDGES]    (default 100,000 and 1,000,000; 50 columns of all types)

Each part runs in its own process.
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
    colours = np.array(["red", "green", "blue", "grey"])
    y = rng.integers(0, 4, n)
    columns = {"id": ids, "label": pa.array(colours[y], mask=rng.random(n) < 0.3)}
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
    endpoints = {"source": ids[source[once]], "target": ids[graph.indices[once]]}
    pa.csv.write_csv(pa.table(endpoints), folder / "edges.csv")


def read_only(folder: Path) -> None:
    """Read both files by pyarrow alone."""
    for name in ("nodes.csv", "edges.csv"):
        pa.csv.read_csv(folder / name)


def read_and_encode(folder: Path) -> None:
    """Read both files into a graph with features."""
    load_tables(folder / "nodes.csv", folder / "edges.csv")


def measure(folder: Path) -> None:
    """Time both variants alternately and print the medians without the first round."""
    warnings.simplefilter("ignore")
    seconds: dict[str, list[float]] = {"read_only": [], "read_and_encode": []}
    for _ in range(16):
        for variant in (read_only, read_and_encode):
            started = time.perf_counter()
            variant(folder)
            seconds[variant.__name__].append(time.perf_counter() - started)
    print(json.dumps({variant: float(np.median(times[1:])) for variant, times in seconds.items()}))


def whole_command(folder: Path) -> None:
    """Run the command in this process and print its seconds and peak memory."""
    from gpatcher import cli

    arguments = ["--nodes", folder / "nodes.csv", "--edges", folder / "edges.csv", "--out", folder / "run"]
    sys.argv = ["gpatcher", "fit", *map(str, arguments), "--model", "fast", "--set", "train.epochs=5"]
    started = time.perf_counter()
    cli.app(standalone_mode=False)
    rows = pa.parquet.read_metadata(folder / "run" / "predictions.parquet").num_rows
    result = {"seconds": time.perf_counter() - started, "peak": record.memory_bytes("VmHWM"), "rows": rows}
    print(json.dumps(result))


def in_new_process(part: str, folder: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, part, folder], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    if len(sys.argv) == 3 and not sys.argv[1].isdigit():
        {"measure": measure, "whole": whole_command}[sys.argv[1]](Path(sys.argv[2]))
        return
    nodes, edges = map(int, sys.argv[1:3]) if len(sys.argv) == 3 else (100_000, 1_000_000)
    with tempfile.TemporaryDirectory() as scratch:
        prepare(Path(scratch), nodes, edges)
        times, whole = in_new_process("measure", scratch), in_new_process("whole", scratch)
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
