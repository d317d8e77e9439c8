"""The row of threads: the same fit with one thread and with two, or by two Ray workers, against another seed."""

import json
import os
import shutil
import traceback
from pathlib import Path
from typing import Any

import numpy as np
from bases import Bases

GRAPH = "csbm:n=1000,features=200,degree=8,phi=0.3"
EPOCHS = {"fast": 20, "gpatcher": 20, "deep": 10, "fast on 2 Ray workers": 20}
SEEDS = 10


def _fit(model: str, seed: int, threads: int, workers: int | None) -> None:
    """Fit in this process and write probabilities and test accuracy to the working folder."""
    import threadpoolctl
    import torch

    from gpatcher.datasets.load import load_graph
    from gpatcher.estimator.prepare import as_extractors
    from gpatcher.estimator.settings import to_parts
    from gpatcher.patches.store import write_patches
    from gpatcher.runs.run import Job, run_job
    from gpatcher.runs.settings import resolve_settings
    from gpatcher.scale.executors import RayEngine

    torch.set_num_threads(threads)
    more: dict[str, Any] = {}
    with threadpoolctl.threadpool_limits(threads):
        graph = load_graph(GRAPH)
        changes: dict[str, Any] = {"train.epochs": EPOCHS[model]}
        if "Ray" in model:  # several steps in an epoch
            changes["train.batch_size"] = 256
        name = model.split()[0]
        settings, _ = resolve_settings(name, changes=changes)
        if "Ray" in model:
            [extractor] = as_extractors(to_parts(settings)["patches"])
            write_patches(graph, Path("patches"), extractor)
            more = {"patch_table": Path("patches"), "checkpoint": Path("checkpoint.safetensors")}
            if workers is not None:
                more |= {"engine": RayEngine("local"), "workers": workers}
        run = run_job(Job("fit", GRAPH, name, settings, 0, seed), graph, graph.splits[0], **more)
        np.save("probability.npy", run.classifier.predict_proba(graph))
    Path("accuracy.json").write_text(json.dumps(run.record["test_accuracy"]))


def _in_fork(folder: Path, *arguments: Any) -> str:
    """Fit in a fork; return what it raised, or nothing."""
    folder.mkdir()
    pid = os.fork()
    if not pid:
        try:
            os.chdir(folder)
            _fit(*arguments)
        except BaseException:
            Path("error").write_text(traceback.format_exc())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    error = folder / "error"
    return error.read_text() if error.exists() else ""


def threads(bases: Bases, number: int) -> dict[str, Any]:
    """Fit three times: with one thread, with two (or on two workers), and with one thread and another seed."""
    model, seed = list(EPOCHS)[number // SEEDS], number % SEEDS
    what = f"{model}, seed {seed}"
    folder = bases.fresh()
    other = (seed, 1, 2) if "Ray" in model else (seed, 2, None)
    fits = {"one": (seed, 1, None), "two": other, "other seed": (seed + 1000, 1, None)}
    errors = [_in_fork(folder / name, model, *fit) for name, fit in fits.items()]
    if any(errors):
        shutil.rmtree(folder)
        return {"what": what, "outcome": "traceback", "message": "".join(errors)[-300:]}
    one, two, seeds = (np.load(folder / name / "probability.npy") for name in fits)
    accuracy = [json.loads((folder / name / "accuracy.json").read_text()) for name in fits]
    shutil.rmtree(folder)
    return {
        "what": what,
        "outcome": "right" if np.array_equal(one, two) else "differs",
        "classes": round(float(np.mean(one.argmax(1) != two.argmax(1))), 4),
        "probability": float(f"{np.abs(one - two).max():.1e}"),
        "classes_other_seed": round(float(np.mean(one.argmax(1) != seeds.argmax(1))), 4),
        "accuracy": [round(value, 4) for value in accuracy],
        "message": "",
    }
