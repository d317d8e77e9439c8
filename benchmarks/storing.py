"""Store a graph from a table of edges in less memory than the table takes.

python benchmarks/storing.py [EDGES]    (default 40,000,000, a twentieth as many nodes)

The edges are in a folder of Parquet files. ``other_cores`` is the mean number of cores that other processes used. The
memory is the peak of the anonymous pages of the process, sampled 100 times a second: pages of mapped files, which the
system can reclaim at any time, do not count.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import record

from gpatcher.graph.storage import open_graph
from gpatcher.tables.store import store_tables

ROWS_PER_FILE = 10_000_000


def prepare(folder: Path, edges: int) -> None:
    """Write edges between random nodes."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for start in range(0, edges, ROWS_PER_FILE):
        pairs = rng.integers(0, edges // 20, (2, min(ROWS_PER_FILE, edges - start)))
        pq.write_table(pa.table({"source": pairs[0], "target": pairs[1]}), folder / f"{start:012d}.parquet")


def store(folder: Path, memory: int) -> None:
    """Store the edges in this process, and print the time and the peak of its memory beyond the start."""
    start = peak = record.memory_bytes("RssAnon")
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, record.memory_bytes("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    machine, own, started = record.machine_seconds(), time.process_time(), time.perf_counter()
    try:
        store_tables(None, folder / "edges", folder / "graph", memory=memory)
    finally:
        done.set()
        watcher.join()
    seconds, own = time.perf_counter() - started, time.process_time() - own
    others = max(0.0, record.machine_seconds() - machine - own) / seconds
    print(json.dumps({"peak": peak - start, "seconds": seconds, "cpu_seconds": own, "other_cores": others}))


def main(edges: int) -> None:
    columns = 16 * edges  # bytes of two columns of ids
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        prepare(folder / "edges", edges)
        command = [sys.executable, __file__, str(folder), str(columns // 16)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        result = json.loads(done.stdout.splitlines()[-1])
        graph = open_graph(folder / "graph")
        row = {"edges": edges, "nodes": graph.n, "stored_edges": graph.m, "columns_gb": columns / 1e9}
    peak = result.pop("peak")
    row |= {"peak_gb": peak / 1e9, "ratio": peak / columns, **result}
    record.write("storing", [row | {"bound": "ratio below 1"}])


if __name__ == "__main__":
    if len(sys.argv) == 3:
        store(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) == 2 else 40_000_000)
