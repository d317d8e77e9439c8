"""What checking files costs: opening a graph of a million nodes, and the share of a fit.

python benchmarks/checksums.py [NODES]    (default 1,000,000, ten times as many edges)

The share of a fit is the time inside the functions that hash and check, in one `fit` of a stored graph by the command.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import record

import gpatcher.io
from gpatcher import cli
from gpatcher.datasets.load import load_graph
from gpatcher.graph import storage

FIT = ("--model", "fast", "--no-compare", "--set", "train.epochs=50", "--set", "train.patience=50")


class Spent:
    """Time inside some functions; a call from another of them counts once."""

    def __init__(self) -> None:
        self.seconds, self.depth = 0.0, 0

    def watch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its time counted."""

        def call(*arguments: Any, **options: Any) -> Any:
            started = time.perf_counter()
            self.depth += 1
            try:
                return function(*arguments, **options)
            finally:
                self.depth -= 1
                if not self.depth:
                    self.seconds += time.perf_counter() - started

        return call

    def replace(self, *functions: Callable[..., Any]) -> None:
        """Count these functions wherever a module of the package names them."""
        for function in functions:
            watched = self.watch(function)
            for name, module in list(sys.modules.items()):
                if name.startswith("gpatcher") and getattr(module, function.__name__, None) is function:
                    setattr(module, function.__name__, watched)


def main(nodes: int) -> None:
    """Measure and write the record."""
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        os.environ["GPATCHER_CACHE"] = str(Path(scratch) / "cache")
        storage.save_graph(load_graph(f"rmat:n={nodes},m={10 * nodes}"), Path("large"))
        size = sum(path.stat().st_size for path in Path("large").iterdir()) / 1e9
        started = time.perf_counter()
        storage.open_graph(Path("large"))
        first = time.perf_counter() - started
        rows: list[dict[str, Any]] = [
            {"what": "open a graph, first use", "nodes": nodes, "gb": size, "seconds": first, "share": ""},
            {
                "what": "open a graph",
                "nodes": nodes,
                "gb": size,
                "seconds": record.timed(lambda: storage.open_graph(Path("large"))),
                "share": "",
            },
        ]
        storage.save_graph(load_graph("csbm:n=5000,features=100,degree=10"), Path("graph"))
        seconds, spent = [], Spent()
        for run in ("warm", "run"):
            if run == "run":
                spent.replace(gpatcher.io.checksum, gpatcher.io.check_file, storage._check_structure)
            sys.argv = ["gpatcher", "fit", "graph", *FIT, "--out", run]
            started = time.perf_counter()
            try:
                cli.main()
            except SystemExit as end:
                if end.code:
                    raise
            seconds.append(time.perf_counter() - started)
        rows.append({"what": "fit", "nodes": 5_000, "gb": 0.0, "seconds": seconds[-1]})
        rows[-1]["share"] = spent.seconds / seconds[-1]
    record.write("checksums", rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) == 2 else 1_000_000)
