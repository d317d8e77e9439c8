"""Calibration error on test nodes: raw, with a temperature, with vector scaling, and as the classifier chooses.

python benchmarks/calibration.py [root]    (folder of the data sets; by default $GPATCHER_DATA)
"""

import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import record
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from gpatcher.datasets.load import load_graph
from gpatcher.datasets.registry import is_present
from gpatcher.runs.run import Cache, Job, run_job
from gpatcher.runs.settings import resolve_settings
from gpatcher.trust.calibration import choose_temperature, fit_temperature, reliability

EPOCHS = 150
PHIS, SEEDS = (-0.8, -0.3, 0.0, 0.5), (0, 1)
# data set: number of splits; with one split, of seeds. Those whose files are not here are left out
SETS = {
    "texas": 10,
    "cornell": 10,
    "wisconsin": 10,
    "chameleon-filtered": 4,
    "squirrel-filtered": 3,
    "cora": 3,
    "citeseer": 3,
    "chameleon": 5,
    "squirrel": 2,
    "actor": 2,
    "minesweeper": 2,
    "tolokers": 2,
}
# the eigenvectors of these take minutes
FAST_ALONE = ("cora", "citeseer", "squirrel", "actor", "minesweeper", "tolokers")
MODELS = ("fast", "gpatcher")
PENALTY = 0.01  # of vector scaling

Sample = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def train(source: str, model: str, split: int, seed: int, root: str | None, cache: Cache) -> Sample:
    """Train one model; return logits and labels of its validation and test nodes."""
    graph = load_graph(source, root)
    settings, _ = resolve_settings(model, "" if ":" in source else source, None)
    settings["train"]["epochs"] = min(settings["train"]["epochs"], EPOCHS)
    run = run_job(Job("fit", source, model, settings, split, seed), graph, cache=cache)
    y = graph.labels()
    val, test = (part[y[part] >= 0] for part in (run.classifier.split_.val, run.classifier.split_.test))
    logits = run.classifier.decision_function
    return logits(graph, val), y[val], logits(graph, test), y[test]


def samples(root: str | None) -> dict[str, list[Sample]]:
    """Return what each group of graphs gave: block models by size, and data sets."""
    groups = defaultdict(list)
    for n in (300, 1500):
        for source in (f"csbm:phi={phi},n={n},features=16,seed={seed}" for phi in PHIS for seed in SEEDS):
            groups[f"csbm, {n} nodes"] += [train(source, model, 0, 0, root, Cache()) for model in MODELS]
    for name, count in SETS.items():
        if not is_present(name, None if root is None else Path(root)):
            print(f"{name}: its files are not here", flush=True)
            continue
        splits = len(load_graph(name, root).splits)
        for model in MODELS[:1] if name in FAST_ALONE else MODELS:
            cache = Cache()
            for i in range(count):
                groups[name].append(train(name, model, i if splits > 1 else 0, i, root, cache))
            print(name, model, flush=True)
    return groups


def fit_vector(logits: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Fit a scale and a shift per class (Guo et al., 2017), with a small quadratic penalty."""
    classes = logits.shape[1]

    def loss(p: np.ndarray) -> tuple[float, np.ndarray]:
        scale, z = np.exp(p[:classes]), logits * np.exp(p[:classes]) + p[classes:]
        error = softmax(z, axis=1)
        error[np.arange(len(y)), y] -= 1
        gradient = np.concatenate([(error * logits).mean(0) * scale, error.mean(0)]) + 2 * PENALTY * p
        return float(-log_softmax(z, axis=1)[np.arange(len(y)), y].mean() + PENALTY * p @ p), gradient

    p = minimize(loss, np.zeros(2 * classes), jac=True, method="L-BFGS-B").x
    return lambda z: z * np.exp(p[:classes]) + p[classes:]


def errors(sample: Sample) -> dict[str, float]:
    """Return the expected calibration error on test nodes of each way, in points."""
    val, y_val, test, y_test = sample
    scaled = {
        "raw": test,
        "temperature": test / fit_temperature(val, y_val),
        "vector": fit_vector(val.astype(float), y_val)(test),
        "chosen": test / choose_temperature(val, y_val),
    }
    return {way: 100 * reliability(softmax(z, axis=1), y_test).error for way, z in scaled.items()}


if __name__ == "__main__":
    rows = []
    for name, group in samples(sys.argv[1] if len(sys.argv) > 1 else None).items():
        table = [errors(sample) for sample in group]
        means = {way: float(np.mean([line[way] for line in table])) for way in table[0]}
        change = np.array([line["chosen"] - line["raw"] for line in table])
        error = float(change.std(ddof=1) / np.sqrt(len(change)))
        rows.append({"what": name, "runs": len(table), **means, "change": float(change.mean()), "error of it": error})
    ways = ("raw", "temperature", "vector", "chosen", "change")
    runs = sum(row["runs"] for row in rows)
    rows.append({"what": "mean of the above", "runs": runs, **{way: np.mean([r[way] for r in rows]) for way in ways}})
    rows[-1]["error of it"] = ""
    record.write("calibration", rows)
