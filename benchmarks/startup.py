"""What commands take from the prompt to the answer, beside a bare import of torch in the same run.

python benchmarks/startup.py    (a run of Fast-GPatcher on 2,000 nodes is trained first)
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import record

from gpatcher.datasets.synthetic import csbm

NODES, COLUMNS = 2000, 8
TORCH = [sys.executable, "-c", "import torch"]
# an installed package has its bytecode cached, whatever the variable says
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def prepare(folder: Path) -> None:
    """Write nodes.csv and edges.csv, every second node labelled, and a new node with its edges."""
    graph = csbm(phi=-0.5, n=NODES, features=COLUMNS)
    ids = np.char.add("p", np.arange(NODES).astype(str))
    label = pa.array(np.array(["seller", "buyer"])[graph.y], mask=np.arange(NODES) % 2 == 1)
    columns = {f"c{j}": np.asarray(graph.x)[:, j] for j in range(COLUMNS)}
    source = np.repeat(np.arange(NODES), np.diff(graph.indptr))
    once = source < graph.indices
    tables = {
        "nodes": {"id": ids, "label": label} | columns,
        "edges": {"source": ids[source[once]], "target": ids[graph.indices[once]]},
        "new": {"id": ["new"]} | {name: values[:1] for name, values in columns.items()},
        "new_edges": {"source": ["new", "new"], "target": ids[:2]},
    }
    for name, table in tables.items():
        pa.csv.write_csv(pa.table(table), folder / f"{name}.csv")


def run(command: list[str], folder: Path) -> None:
    """Run a command in a folder; its output is not shown."""
    subprocess.run(command, cwd=folder, env=ENVIRONMENT, check=True, capture_output=True)


def measure(folder: Path) -> list[dict[str, object]]:
    """Return the median seconds of three runs of each command, once the first has filled all caches."""
    prepare(folder)
    fit = [*record.COMMAND, "fit", "--nodes", "nodes.csv", "--edges", "edges.csv"]
    run([*fit, "--model", "fast", "--out", "run"], folder)
    commands = {
        "import gpatcher": ([sys.executable, "-c", "import gpatcher"], ""),
        "gpatcher --help": ([*record.COMMAND, "--help"], "at most 1 s"),
        "gpatcher datasets": ([*record.COMMAND, "datasets"], "below 2 s"),
        "gpatcher settings": ([*record.COMMAND, "settings"], ""),
        "gpatcher report RUN": ([*record.COMMAND, "report", "run"], ""),
        "gpatcher explain": ([*record.COMMAND, "explain", "run", "p7"], "below 4 s"),
        "gpatcher predict": ([*record.COMMAND, "predict", "run"], ""),
        "gpatcher predict, one unseen node": (
            [*record.COMMAND, "predict", "run", "--nodes", "new.csv", "--edges", "new_edges.csv"],
            "",
        ),
    }
    torch_s = record.timed(lambda: run(TORCH, folder))
    rows: list[dict[str, object]] = [{"what": "import torch", "ours_s": torch_s, "ratio": 1.0, "bound": ""}]
    for what, (command, bound) in commands.items():
        run(command, folder)
        seconds = record.timed(lambda command=command: run(command, folder))
        rows.append({"what": what, "ours_s": seconds, "ratio": seconds / torch_s, "bound": bound})
    return rows


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        record.write("startup", measure(Path(folder)))
