"""Three tables of nodes and two of edges with two columns each: reading and encoding compared with pyarrow's reading.

python benchmarks/typed_tables.py [NODES EDGES]    (default 1,000,000 and 10,000,000)

Each part runs in its own process, so that peaks are separate. Building the graph, beside which nothing else runs, is
timed apart. `cpu_ratio` compares what the cores spent, which depends less on other work of the machine.
"""

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import record

from gpatcher.graph.graph import Graph
from gpatcher.tables import typed
from gpatcher.tables.load import load_tables

RATIO_LIMIT, MEMORY_LIMIT_GB = 2.5, 6.0
KINDS = ("person", "device", "shop")
ENDS = {"uses": ("person", "device"), "paid": ("person", "shop")}


def prepare(folder: Path, nodes: int, edges: int) -> None:
    """Write a table per type: half of the nodes are people, a quarter devices, a quarter shops."""
    rng = np.random.default_rng(0)
    sizes = dict(zip(KINDS, (nodes // 2, nodes // 4, nodes - nodes // 2 - nodes // 4), strict=True))
    cities = np.array([f"city {i}" for i in range(40)])
    for kind, n in sizes.items():
        columns = {"id": np.char.add(kind[0], np.arange(n).astype(str))}
        if kind == "person":
            columns["label"] = np.array(["", "fraud", "honest"])[rng.integers(0, 3, n)]
        columns |= {f"number{j}": rng.normal(size=n).round(4) for j in range(4)}
        columns |= {"city": cities[rng.integers(0, 40, n)]}
        pa.csv.write_csv(pa.table(columns), folder / f"{kind}.csv")
    for name, (source, target) in ENDS.items():
        m = edges // len(ENDS)
        columns = {
            end: np.char.add(kind[0], rng.integers(0, sizes[kind], m).astype(str))
            for end, kind in (("source", source), ("target", target))
        }
        columns |= {"amount": rng.lognormal(size=m).round(2), "day": _days(rng, m)}
        pa.csv.write_csv(pa.table(columns), folder / f"{name}.csv")


def _days(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.datetime64("2023-01-01") + rng.integers(0, 700, count).astype("timedelta64[D]")


def read_only(folder: Path) -> None:
    """Read all files by pyarrow alone, one after the other."""
    for name in (*KINDS, *ENDS):
        pa.csv.read_csv(folder / f"{name}.csv")


def read_and_encode(folder: Path) -> None:
    """Read all files into a graph with types, features and aggregated edge columns."""
    tables = ({name: folder / f"{name}.csv" for name in names} for names in (KINDS, ENDS))
    load_tables(*tables, ends=ENDS)


def clock() -> np.ndarray:
    """Return seconds on the clock, and seconds that the cores have spent on this process."""
    return np.array([time.perf_counter(), time.process_time()])


def time_graph() -> list[np.ndarray]:
    """Add the seconds of all that builds the graph to a list that is returned."""
    spent: list[np.ndarray] = []

    def timed(build: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            started = clock()
            result = build(*args, **options)
            spent.append(clock() - started)
            return result

        return run

    for name in ("from_edge_index", "from_relations"):
        setattr(Graph, name, timed(getattr(Graph, name)))
    typed.make_undirected = timed(typed.make_undirected)
    return spent


def measure(folder: Path, variant: str, rounds: int) -> None:
    """Time a variant and print the medians without the first round, and the peak memory."""
    warnings.simplefilter("ignore")
    spent = time_graph()
    seconds, graph = [], []
    for _ in range(rounds + 1):
        spent.clear()
        started = clock()
        globals()[variant](folder)
        graph.append(np.sum([np.zeros(2), *spent], axis=0))
        seconds.append(clock() - started - graph[-1])
    peak = record.memory_bytes("VmHWM") / 1e9
    medians = [np.median(part[1:], axis=0).tolist() for part in (seconds, graph)]
    print(json.dumps({"seconds": medians[0], "graph": medians[1], "peak_gb": peak}))


def main(nodes: int = 1_000_000, edges: int = 10_000_000) -> None:
    """Run both variants, each in its own process."""
    with tempfile.TemporaryDirectory() as scratch:
        prepare(Path(scratch), nodes, edges)
        results = {}
        for variant in ("read_only", "read_and_encode"):
            command = [sys.executable, __file__, "measure", scratch, variant, "3"]
            results[variant] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    ours, peer = results["read_and_encode"], results["read_only"]
    (seconds, cores), (peer_seconds, peer_cores) = ours["seconds"], peer["seconds"]
    row = {
        "what": f"five tables, {nodes:,} nodes, {edges:,} edges: read, encode, edge features / read by pyarrow",
        "ours_s": seconds,
        "peer_s": peer_seconds,
        "ratio": seconds / peer_seconds,
        "cpu_ratio": cores / peer_cores,
        "graph_s": ours["graph"][0],
        "with_graph": (seconds + ours["graph"][0]) / peer_seconds,
        "peak_gb": ours["peak_gb"],
        "bound": f"at most {RATIO_LIMIT}, below {MEMORY_LIMIT_GB} GB",
    }
    record.write("typed_tables", [row])


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        main(*map(int, sys.argv[1:]))
