"""What the bench adds to the training itself, and how long the report takes on 5,000 records.

python benchmarks/harness.py    (block models, and Texas from $GPATCHER_DATA)
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import record

from gpatcher.bench import tasks
from gpatcher.bench.jobs import pending, run_jobs
from gpatcher.bench.plan import load_experiment, paper_figures, plan_jobs
from gpatcher.datasets.registry import NAMED
from gpatcher.runs.records import RECORD_VERSION, versions
from gpatcher.runs.run import Run, run_job

MODELS = ("mlp", "gcn", "fast", "gpatcher")


def overhead() -> list[dict[str, object]]:
    """Time jobs run by the bench, and within them the calls of the training function alone.

    Two separate runs, with and without the bench, would differ by more than the overhead: the speed of a machine
    drifts by some percent within a minute.
    """
    training: list[float] = []

    def timed(*args: Any, **kwargs: Any) -> Run:
        started = time.perf_counter()
        run = run_job(*args, **kwargs)
        training.append(time.perf_counter() - started)
        return run

    tasks.run_job = timed
    rows: list[dict[str, object]] = []
    for dataset, name in (("csbm:n=1000", "csbm_sweep"), ("texas", "table1")):
        planned, _ = plan_jobs(
            name, datasets=["phi=-0.5"] if name == "csbm_sweep" else [dataset], rows=MODELS, splits="0,1"
        )
        for _ in range(2):  # the first pass compiles
            training.clear()
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                for progress in run_jobs(pending(planned, Path(folder)), Path(folder)):
                    assert progress.state == "ran", progress
                ours = time.perf_counter() - started
        row = {"what": f"harness / bare, {len(planned)} jobs on {dataset}", "ours_s": ours, "peer_s": sum(training)}
        rows.append(row | {"ratio": ours / sum(training), "bound": "at most 1.05"})
    return rows


def synthetic_records(count: int) -> list[dict[str, object]]:
    """Return records of many experiments with random results."""
    rng = np.random.default_rng(0)
    records: list[dict[str, object]] = []
    repeats = 0
    while len(records) < count:
        for name in (
            "table1",
            "leak_free",
            "csbm_sweep",
            "sensitivity",
            "response",
            "statistics",
            "runtime",
            "induced",
            "order",
        ):
            experiment, paper = load_experiment(name), paper_figures(name)
            for dataset in experiment.datasets:
                if dataset == "pubmed":
                    continue
                for row, entry in experiment.rows.items():
                    printed = paper.get(row, {}).get(dataset, [70.0, 2.0]) if name != "statistics" else [0, 0]
                    for split in range(10 if experiment.task == "train" else 1):
                        records.append(synthetic_record(rng, name, dataset, row, entry.model, split, repeats, printed))
        repeats += 1
    return records[:count]


def synthetic_record(
    rng: np.random.Generator, name: str, dataset: str, row: str, model: str, split: int, repeat: int, printed: list
) -> dict[str, object]:
    """Return one record, its result drawn around the figure that the paper prints."""
    test = float(np.clip(rng.normal(printed[0] / 100 + 0.03, max(printed[1], 0.2) / 100), 0, 1))
    eigenvalues = np.linspace(-1, 1, 41)
    fields = {
        "job": f"{len(name)}-{name}-{dataset}-{row}-{split}-{repeat}",
        "version": RECORD_VERSION,
        "experiment": name,
        "dataset": dataset,
    }
    fields |= {"row": row, "model": model, "split": split, "seed": split + 10 * repeat, "trials": None, "error": None}
    fields |= {"metric": "accuracy", "val": test, "test": test, "train_seconds": float(rng.exponential(3))}
    fields |= {"extract_seconds": 0.2 if model in ("fast", "gpatcher") else 0.0, "split_hash": f"{split:016x}"}
    fields |= {"split_sizes": [480, 320, 200], "leaky": dataset in NAMED and NAMED[dataset].leaky, "seconds": 3.1}
    fields |= {"node_heterophily": float(rng.random()), "peak_rss_mb": float(rng.normal(800, 50)), "epochs": 120}
    fields |= {"settings_hash": "00000000", "settings": {"train": {"lr": 0.005}}, "versions": versions()}
    if model == "gpatcher":
        fields |= {"response": [round(float(v), 4) for v in 0.5 / (1 - 0.5 * eigenvalues) * rng.normal(1, 0.05, 41)]}
    if name == "response":
        fields |= {"mean_response": float(rng.random())}
    if name == "statistics":
        names = (
            "node_heterophily",
            "edge_homophily",
            "adjusted_homophily",
            "label_informativeness",
            "train_duplicates",
        )
        fields |= {"measures": dict.fromkeys(("nodes", "edges", "classes", "features", "isolated"), 100)}
        fields["measures"] |= dict.fromkeys(names, 0.5)
    if name == "runtime":
        nodes = int(dataset.removeprefix("n="))
        fields |= {"nodes": nodes, "mixer_seconds": 1e-5 * nodes * int(row.removeprefix("p=")) + 1e-4}
    return fields


def report(count: int) -> dict[str, object]:
    """Time the report as a command, with the start of Python and the imports."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in synthetic_records(count)))
        command = [*record.COMMAND, "report", folder]
        command += ["--out", f"{folder}/page.html", "--csv", f"{folder}/cells.csv", "--markdown", f"{folder}/t.md"]
        seconds = record.timed(lambda: subprocess.run(command, check=True, capture_output=True), repeats=3)
    return {"what": f"report on {count:,} records", "ours_s": seconds, "peer_s": 10.0, "ratio": seconds / 10} | {
        "bound": "at most 1 (10 s)"
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["records"]:  # python benchmarks/harness.py records FILE COUNT
        records = synthetic_records(int(sys.argv[3]))
        Path(sys.argv[2]).write_text("".join(json.dumps(r) + "\n" for r in records))
    else:
        record.write("harness", [*overhead(), report(5000)])
