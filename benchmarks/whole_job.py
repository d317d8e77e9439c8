"""Seconds and peak memory of a whole job by stage: load, extract, five epochs on labelled nodes, predict all nodes.

python benchmarks/whole_job.py [FRACTION [JOB]]    FRACTION of the full size, 1 by default; 0.01 for a quick check

JOB is the start of the name of one job; rows of the others stay on record.

Each size runs in its own process. The peaks include resident pages of mapped files.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import record

from gpatcher.datasets.synthetic import rmat
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.patches import PPR
from gpatcher.patches.store import write_patches
from gpatcher.runs.predict import write_predictions
from gpatcher.training.loop import TrainConfig

FEATURES, DEGREE, EPOCHS, LABELLED, PATCH = 128, 10, 5, 100_000, 32
GIB = 2**30
# nodes, whether the features stay in a file, bound on the peak in GB, memory limit of the training in GiB
JOBS = {
    "1M nodes, features in memory": (1_000_000, False, 3, 4),
    "4M nodes, features in a file": (4_000_000, True, 12, 6),
}


def prepare(folder: Path, nodes: int) -> None:
    """Write edges (each once), features and labels as .npy files, the input of the job."""
    graph = rmat(n=nodes, m=DEGREE * nodes, a=0.45, b=0.15, c=0.15, seed=1)
    source = np.repeat(np.arange(graph.n, dtype=np.int32), np.diff(graph.indptr))
    once = source < graph.indices
    np.save(folder / "edges.npy", np.stack([source[once], graph.indices[once]]))
    np.save(folder / "y.npy", graph.y)
    rng = np.random.default_rng(0)
    mean = rng.standard_normal((graph.num_classes, FEATURES), dtype=np.float32)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (graph.n, FEATURES))
    for start in range(0, graph.n, 1 << 16):
        y = graph.y[start : start + (1 << 16)]
        x[start : start + len(y)] = rng.standard_normal((len(y), FEATURES), dtype=np.float32) + 0.1 * mean[y]


def load(folder: Path, mapped: bool, labelled: int) -> Graph:
    """Build the graph with a split of ``labelled`` training nodes."""
    x = np.load(folder / "x.npy", mmap_mode="r" if mapped else None)
    y = np.load(folder / "y.npy")
    graph = Graph.from_edge_index(np.load(folder / "edges.npy"), x=x, y=y).undirected()
    nodes = np.random.default_rng(0).permutation(graph.n)
    val = labelled // 5
    return graph.with_splits([Split(nodes[:labelled], nodes[labelled : labelled + val], nodes[-val:])])


def job(name: str, fraction: float, folder: Path) -> None:
    """Run the stages in this process and print the cost of each."""
    _, mapped, _, memory = JOBS[name]
    rows: list[dict[str, Any]] = []

    def stage(what: str, call: Callable[[], Any]) -> Any:
        record.reset_peak()
        started = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - started
        rows.append({"job": name, "stage": what, "seconds": seconds, "peak_gb": record.memory_bytes("VmHWM") / 1e9})
        return result

    graph = stage("load", lambda: load(folder, mapped, int(fraction * LABELLED)))
    table = stage("extract", lambda: write_patches(graph, folder / "patches", PPR(size=PATCH)))
    model = GPatcherClassifier(patches=table.extractor, train=TrainConfig(epochs=EPOCHS), memory=memory * GIB)
    stage("train", lambda: model.fit(graph, 0, patch_table=table))
    stage("predict", lambda: write_predictions(model, graph, folder / "predictions.parquet"))
    summary = f"batches of {model.batch_size_}, test accuracy {model.result_.test_accuracy:.3f}"
    print(json.dumps({"rows": rows, "summary": summary}))


def main() -> None:
    if len(sys.argv) == 4:
        job(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
        return
    fraction = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    chosen = {name: job for name, job in JOBS.items() if name.startswith(sys.argv[2] if len(sys.argv) > 2 else "")}
    path = record.RESULTS / "whole_job.json"
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = [row for row in old if row["job"] not in chosen]
    for name, (nodes, _, bound, _) in chosen.items():
        with tempfile.TemporaryDirectory() as scratch:
            prepare(Path(scratch), int(fraction * nodes))
            command = [sys.executable, __file__, name, str(fraction), scratch]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        result = json.loads(done.stdout.splitlines()[-1])
        print(f"{name}: {result['summary']}")
        whole = {"job": name, "stage": "all", "seconds": sum(row["seconds"] for row in result["rows"])}
        whole |= {"peak_gb": max(row["peak_gb"] for row in result["rows"])}
        rows += [row | {"bound": ""} for row in result["rows"]] + [whole | {"bound": f"below {bound} GB"}]
        record.write("whole_job", rows)


if __name__ == "__main__":
    main()
