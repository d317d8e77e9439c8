"""The row of threads: the same fit with one thread and with two, and how far the answers differ."""

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from bases import Bases

GRAPH = "csbm:n=1000,features=200,degree=8"
FITS = {
    "fast": ("--model", "fast", "--set", "train.epochs=20"),
    "gpatcher": ("--model", "gpatcher", "--set", "train.epochs=20"),
    "deep": ("--model", "deep", "--set", "train.epochs=10"),
}


def use_threads(count: int) -> Callable[[], None]:
    """Return what sets the threads of torch and BLAS in a fork."""

    def use() -> None:
        import threadpoolctl
        import torch

        torch.set_num_threads(count)
        threadpoolctl.threadpool_limits(count)

    return use


def threads(bases: Bases, rng: np.random.Generator) -> dict[str, Any]:
    """Fit and predict with one thread and with two, each with eigenvectors of its own."""
    model = list(FITS)[rng.integers(len(FITS))]
    seed = int(rng.integers(1000))
    folder = bases.fresh()
    tables = []
    for count in (1, 2):
        for words in (
            ("fit", GRAPH, *FITS[model], "--no-compare", "--seed", str(seed), "--out", f"run{count}"),
            ("predict", f"run{count}", "--out", f"{count}.parquet"),
        ):
            before = use_threads(count)
            ended = bases.run(words, folder, before=before, timeout=600.0)
            if ended.outcome != "done":
                shutil.rmtree(folder)
                return {"what": f"{model}, seed {seed}", "outcome": ended.outcome, "message": ended.message}
        tables.append(pq.read_table(folder / f"{count}.parquet"))
        shutil.rmtree(folder / "cache", ignore_errors=True)
    columns = [name for name in tables[0].column_names if name.startswith("probability")]
    one, two = (np.stack([table[name].to_numpy() for name in columns]) for table in tables)
    changed = np.mean(tables[0]["predicted"].to_numpy() != tables[1]["predicted"].to_numpy())
    shutil.rmtree(folder)
    return {
        "what": f"{model}, seed {seed}",
        "outcome": "right" if tables[0].equals(tables[1]) else "differs",
        "classes": round(float(changed), 4),
        "probability": float(f"{np.abs(one - two).max():.1e}"),
        "message": "",
    }
