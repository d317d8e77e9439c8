"""From PostgreSQL to predictions and back: reading compared with the driver's own fetch, 100,000 nodes.

python benchmarks/database.py [NODES EDGES]    (default 100,000 and 500,000)

A server of its own is started on the loopback address; see tools/postgres.py. Each reading has a new connection.
"""

import os
import runpy
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import record
from adbc_driver_postgresql import dbapi

from gpatcher import cli
from gpatcher.datasets.synthetic import rmat
from gpatcher.tables.database import Database, TargetTable
from gpatcher.tables.load import load_tables
from gpatcher.tables.reader import TableSource

LIMIT, ROUNDS = 1.5, 9
SERVER = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "postgres.py"))


def fill(url: str, nodes: int, edges: int) -> None:
    """Write the tables nodes, with an id, a label and ten columns of several types, and edges."""
    rng = np.random.default_rng(0)
    graph = rmat(n=nodes, m=edges)
    y = rng.integers(0, 4, graph.n)
    columns = {"id": np.arange(graph.n), "label": np.array(["red", "green", "blue", "grey"])[y]}
    columns |= {f"number{j}": rng.normal(size=graph.n) + (y == j) for j in range(4)}
    columns |= {f"town{j}": np.char.add("town ", rng.integers(0, 40, graph.n).astype(str)) for j in range(4)}
    columns["flag"] = rng.random(graph.n) < 0.3
    columns["day"] = np.datetime64("2015-01-01") + rng.integers(0, 3000, graph.n).astype("timedelta64[D]")
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    once = source < graph.indices
    links = {"source": source[once], "target": graph.indices[once].astype(np.int64)}
    for name, table in (("nodes", columns), ("edges", links)):
        TargetTable(Database.parse(url), name).write([table])


def bare(url: str, name: str) -> pa.Table:
    """Fetch a table by the driver alone."""
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {name}")
        return cursor.fetch_arrow_table()


def read(url: str, name: str) -> dict[str, pa.ChunkedArray]:
    """Read the columns of a table as `fit` does before it encodes them."""
    with Database.parse(url).reading() as reader:
        table = TableSource.open(name, name=name, reader=reader)
        return table.read(table.columns, written=table.columns[:2])


def alternate(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Time the calls alternately; return the medians without the first round."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - started)
    return {name: float(np.median(times[1:])) for name, times in seconds.items()}


def command(*arguments: str) -> float:
    """Run a command in this process and return its seconds."""
    sys.argv = ["gpatcher", *arguments]
    started = time.perf_counter()
    cli.app(standalone_mode=False)
    return time.perf_counter() - started


def main() -> None:
    nodes, edges = map(int, sys.argv[1:3]) if len(sys.argv) == 3 else (100_000, 500_000)
    warnings.simplefilter("ignore")
    rows = []
    with SERVER["server"]() as server, tempfile.TemporaryDirectory() as scratch:
        os.environ["PGPASSWORD"] = server.password
        url = server.url
        fill(url, nodes, edges)
        for name in ("nodes", "edges"):
            times = alternate(
                {"driver": lambda name=name: bare(url, name), "gpatcher": lambda name=name: read(url, name)}
            )
            count = bare(url, name).num_rows
            row = {"what": f"read {name}", "rows": count, "driver_s": times["driver"], "gpatcher_s": times["gpatcher"]}
            rows.append(row | {"ratio": times["gpatcher"] / times["driver"]})
        both = alternate(
            {
                "driver": lambda: [bare(url, name) for name in ("nodes", "edges")],
                "gpatcher": lambda: load_tables("nodes", "edges", database=url),
            }
        )
        row = {"what": "both, to a graph with features", "rows": sum(row["rows"] for row in rows)}
        rows.append(
            row
            | {"driver_s": both["driver"], "gpatcher_s": both["gpatcher"], "ratio": both["gpatcher"] / both["driver"]}
        )
        run, at = str(Path(scratch) / "run"), ("--database", url)
        options = ("--model", "fast", "--set", "train.epochs=2", "--no-compare", "--out", run)
        seconds = command("fit", *at, "--nodes", "nodes", "--edges", "edges", *options)
        rows.append({"what": "fit, 2 epochs", "rows": nodes, "driver_s": "", "gpatcher_s": seconds, "ratio": ""})
        seconds = command("predict", run, *at, "--to-table", "predictions")
        written = bare(url, "predictions").num_rows
        rows.append({"what": "predict --to-table", "rows": written, "driver_s": "", "gpatcher_s": seconds, "ratio": ""})
    record.write("database", rows)
    print(f"bound: reading at most {LIMIT} x the driver's own fetch")


if __name__ == "__main__":
    main()
