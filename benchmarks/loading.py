"""Peak memory of loading a graph, compared with the bytes of its arrays; each variant in its own process."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import record

from gpatcher.datasets.synthetic import rmat
from gpatcher.graph.graph import Graph
from gpatcher.tables.load import read_tables

LIMIT = 3.0
NODES, EDGES, FEATURES = 1_000_000, 10_000_000, 16


def prepare(folder: Path) -> None:
    """Write the graph in every form that is loaded, each undirected edge once."""
    graph = rmat(n=NODES, m=EDGES, features=FEATURES)
    source = np.repeat(np.arange(graph.n, dtype=np.int64), np.diff(graph.indptr))
    once = source < graph.indices
    edges = pa.table({"source": source[once], "target": graph.indices[once].astype(np.int64)})
    columns = {"id": np.arange(graph.n), "label": graph.y}
    columns |= {f"f{j}": graph.x[:, j] for j in range(FEATURES)}
    pa.parquet.write_table(edges, folder / "edges.parquet")
    pa.parquet.write_table(pa.table(columns), folder / "nodes.parquet")
    pa.csv.write_csv(edges, folder / "edges.csv")
    np.save(folder / "edges.npy", np.stack([source[once], graph.indices[once]]).astype(np.int32))
    np.save(folder / "x.npy", graph.x)


def from_arrays(folder: Path) -> Graph:
    """Load int32 edges, each once, and memory-mapped features."""
    x = np.load(folder / "x.npy", mmap_mode="r")
    return Graph.from_edge_index(np.load(folder / "edges.npy"), x=x, num_nodes=NODES).undirected()


VARIANTS = {
    "rmat generator": lambda folder: rmat(n=NODES, m=EDGES),
    "arrays, memory-mapped x": from_arrays,
    "Parquet tables": lambda folder: read_tables(folder / "nodes.parquet", folder / "edges.parquet"),
    "CSV edges alone": lambda folder: read_tables(None, folder / "edges.csv"),
}


def measure(variant: str, folder: Path) -> None:
    """Load once in this process and print the bytes beyond those of a warmed-up interpreter."""
    small = rmat(n=1000, m=5000, features=2)  # compile the kernels, import the modules
    with tempfile.TemporaryDirectory() as scratch:
        pa.parquet.write_table(pa.table({"source": [0], "target": [1]}), f"{scratch}/e.parquet")
        read_tables(None, f"{scratch}/e.parquet")
    del small
    record.reset_peak()
    before = record.memory_bytes("VmRSS")
    graph = VARIANTS[variant](folder)
    print(json.dumps({"peak": record.memory_bytes("VmHWM") - before, "arrays": graph.nbytes}))


def main() -> None:
    if len(sys.argv) == 3:
        measure(sys.argv[1], Path(sys.argv[2]))
        return
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        prepare(Path(scratch))
        for variant in VARIANTS:
            command = [sys.executable, __file__, variant, scratch]
            result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            peak, arrays = result["peak"] / 2**20, result["arrays"] / 2**20
            rows.append({"way": variant, "arrays_mib": arrays, "peak_mib": peak, "ratio": peak / arrays})
    record.write("loading", rows)
    print(f"bound: ratio at most {LIMIT}")


if __name__ == "__main__":
    main()
