"""Compare `gpatcher fit` as it comes with plain methods, on tables with a part of the labels hidden.

    python tools/real_graphs.py TABLES              # tables of real graphs; any folder with these files will do
    python tools/own_tables.py TABLES [--only a,b]  # → results/portfolio/own_tables.jsonl

TABLES has a folder per graph with nodes.csv, edges.csv and truth.csv, the hidden labels. gpatcher is run from the
command line without options. The plain methods get the same columns and labels: majority class, logistic regression on
the columns and on the adjacency rows (the best of three strengths on the hidden labels, so a high bar), GCN, GraphSAGE
and LINKX (mean of three seeds, a quarter of the labels for early stopping). Finished rows are skipped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import scipy.sparse as sp
import torch
from sklearn.linear_model import LogisticRegression

from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split, stratified_split
from gpatcher.io import write_text
from gpatcher.runs.run import Job, run_job
from gpatcher.runs.settings import resolve_settings
from gpatcher.tables.load import read_tables

RECORDS = Path(__file__).parents[1] / "results/portfolio/own_tables.jsonl"
PROGRAM = [sys.executable, "-c", "from gpatcher.cli import main; main()"]
NETWORKS = {"GCN": "gcn", "GraphSAGE": "graphsage", "LINKX": "linkx"}
_SEEDS = 3


def read_truth(folder: Path) -> dict[str, str]:
    """Return the hidden labels by node id."""
    text = pyarrow.csv.ConvertOptions(column_types={"id": pyarrow.string(), "label": pyarrow.string()})
    table = pyarrow.csv.read_csv(folder / "truth.csv", convert_options=text)
    return dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))


def run_program(folder: Path, truth: dict[str, str]) -> float:
    """Return the accuracy of `gpatcher fit` on the hidden labels."""
    with tempfile.TemporaryDirectory() as scratch:
        tables = ["--nodes", str(folder / "nodes.csv"), "--edges", str(folder / "edges.csv")]
        subprocess.run([*PROGRAM, "fit", *tables, "--out", f"{scratch}/run"], check=True, stdout=subprocess.DEVNULL)
        table = pyarrow.parquet.read_table(f"{scratch}/run/predictions.parquet", columns=["id", "predicted"])
    given = dict(zip(map(str, table["id"].to_pylist()), map(str, table["predicted"].to_pylist()), strict=True))
    return float(np.mean([given[node] == label for node, label in truth.items()]))


def plain_methods(graph: Graph, truth: dict[str, str]) -> Iterator[tuple[str, float]]:
    """Yield name and accuracy on the hidden labels of each plain method."""
    y = graph.labels()
    shown = np.flatnonzero(y >= 0)
    classes = {str(name): number for number, name in enumerate(graph.classes)}
    position = {str(node): number for number, node in enumerate(graph.node_ids)}
    hidden = np.array([position[node] for node in truth])
    target = np.array([classes.get(label, -1) for label in truth.values()])
    yield "majority class", float((target == np.bincount(y[shown]).argmax()).mean())
    if graph.x is not None:
        yield "logistic regression, columns", _logistic(sp.csr_array(graph.x), y, shown, hidden, target)
    yield "logistic regression, adjacency", _logistic(sp.csr_array(graph.adjacency()), y, shown, hidden, target)
    changes = {"features.adjacency_features": True} if graph.x is None else {}
    for title, name in NETWORKS.items():
        settings = resolve_settings(name, preset="default", changes=changes)[0]
        figures = []
        for seed in range(_SEEDS):
            part = stratified_split(y, 0.75, 0.25, seed)
            split = Split(part.train, part.val, np.empty(0, np.int64))
            job = Job("own_tables", graph.name, name, settings, 0, seed)
            figures.append((run_job(job, graph, split).predict(hidden) == target).mean())
        yield title, float(np.mean(figures))


def _logistic(rows: Any, y: Any, shown: Any, hidden: Any, target: Any) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = (LogisticRegression(C=c, max_iter=500).fit(rows[shown], y[shown]) for c in (0.01, 0.1, 1.0))
        return max(float((model.predict(rows[hidden]) == target).mean()) for model in models)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--only", default="", help="names of folders, separated by commas")
    parser.add_argument("--records", type=Path, default=RECORDS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = options.records.read_text().splitlines() if options.records.exists() else []
    done = {(record["graph"], record["row"]) for record in map(json.loads, lines)}

    def keep(folder: Path, row: str, accuracy: float, nodes: int, started: float) -> None:
        record = {"graph": folder.name, "row": row, "accuracy": round(accuracy, 4), "hidden": nodes}
        lines.append(json.dumps(record | {"seconds": round(time.perf_counter() - started, 1)}))
        write_text(options.records, "\n".join(lines) + "\n")
        print(lines[-1], flush=True)

    wanted = {name for name in options.only.split(",") if name}
    for folder in sorted(path.parent for path in options.tables.glob("*/truth.csv")):
        if wanted and folder.name not in wanted:
            continue
        truth = read_truth(folder)
        started = time.perf_counter()
        if (folder.name, "gpatcher") not in done:
            keep(folder, "gpatcher", run_program(folder, truth), len(truth), started)
        if (folder.name, "LINKX") not in done:
            graph = read_tables(folder / "nodes.csv", folder / "edges.csv")
            for row, accuracy in plain_methods(graph, truth):
                if (folder.name, row) not in done:
                    keep(folder, row, accuracy, len(truth), started)


if __name__ == "__main__":
    main()
