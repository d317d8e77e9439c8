"""Choose the presets: python tools/search.py texas cornell --write.

One list of configurations is tried on every data set alike; no name is looked at. Each is trained as Fast-GPatcher on a
few splits, the best go on to all splits, and the highest mean validation accuracy wins. GPatcher takes the two best
of the first round and tries three speeds for its filter with each. Test nodes are taken out before anything is
trained. The log is results/search.jsonl; `--write` puts the winners into src/gpatcher/presets.json.
"""

import argparse
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gpatcher.datasets.load import load_dataset
from gpatcher.datasets.registry import canonical_key
from gpatcher.errors import InputWarning
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split, plan_runs
from gpatcher.runs.records import append_record, read_records
from gpatcher.runs.settings import MODELS

LOG = Path("results/search.jsonl")
PRESETS = Path("src/gpatcher/presets.json")
SMALL = 500  # nodes up to which the first round has all splits: one node more or less is a whole point there

# Every configuration stops on the validation loss. One that stops on the accuracy reports the largest of many noisy
# accuracies, and so would win a comparison by accuracy without being better.
LEAN = {"paths": ["ego", "mean"]}
SPACE = [
    {"layers": 1, "hidden": 128, "patch_size": 8, "weight_decay": 1e-2, "patience": 40},
    {"layers": 2, "hidden": 64, "patch_size": 16, "weight_decay": 5e-3, "patience": 40},
    {"normalise": "l2", "structure": True, "layers": 1, "patch_size": 16, "weight_decay": 2e-3, "mixer_gate": 0.1},
    {"normalise": "l2", "structure": True, "patch_size": 16, "weight_decay": 5e-4, "patience": 30, **LEAN},
    {
        "normalise": "l2",
        "structure": True,
        "hidden": 128,
        "patch_size": 32,
        "weight_decay": 2e-3,
        "patience": 30,
        **LEAN,
    },
    {"normalise": "l1", "self_loops": True, "c": 0.9, "patch_size": 32, "lr": 0.01, "ego_gate": 0.1}
    | {"mean_ego": True, **LEAN},
    {"normalise": "l1", "self_loops": True, "c": 0.9, "patch_size": 64, "lr": 0.01, "ego_gate": 0.1}
    | {"mean_ego": True, **LEAN},
    {"c": 0.9, "patch_size": 16, "weight_decay": 5e-3, "input_dropout": 0.2, "head_layers": 2, "average": 0.95}
    | {"patience": 30, **LEAN},
    {"hidden": 128, "patch_size": 8, "weight_decay": 5e-3, "input_dropout": 0.2, "head_layers": 2, "average": 0.95}
    | {"patience": 30, **LEAN},
    *(
        {"normalise": "l2", "mass": True, "hidden": 128, "patch_size": 8, "weight_decay": 2e-3, "input_dropout": 0.0}
        | {"head_layers": 2, "average": 0.95, "patience": 30, **LEAN, **other}
        for other in ({}, {"hidden": 256}, {"dropout": 0.7}, {"weight_decay": 4e-3}, {"average": 0.98, "lr": 0.003})
    ),
]
FIXED = {"skip": True}  # what all of them share
# how fast the filter learns, beside the rest: hardly at all where labels are few
FILTER_LR = (0.003, 0.2, 1.0)


def validate(graph: Graph, model: str, config: dict[str, object], count: int, prepared: dict) -> list[float]:
    """Return the validation accuracies on the first ``count`` splits (or seeds)."""
    # what is made once per graph is shared by the splits, and only the last one is kept
    classifier = GPatcherClassifier(extractor=MODELS[model], **FIXED, **config)
    key = json.dumps(config, sort_keys=True)
    if key not in prepared:
        prepared.clear()
        prepared[key] = classifier.prepare(graph)
    found = []
    for split, seed in plan_runs(graph, "all", 0)[:count]:
        classifier.set_params(seed=seed).fit(graph, split, prepared=prepared[key])
        found.append(classifier.result_.val_accuracy)
    return found


def search(
    graph: Graph, name: str, model: str, space: list[dict[str, object]], few: int, best: int
) -> list[dict[str, object]]:
    """Run both rounds for one model on one data set; return the configurations, best of the first round first.

    What the log has already is not run again.
    """
    logged = {
        (json.dumps(r["config"], sort_keys=True), len(r["val_accuracy"])): r["val_accuracy"]
        for r in read_records(LOG)
        if r["dataset"] == name and r["model"] == model
    }
    prepared: dict = {}
    whole = len(plan_runs(graph, "all", 0))

    def run(config: dict[str, object], count: int) -> float:
        key = (json.dumps(config, sort_keys=True), count)
        if key not in logged:
            started = time.perf_counter()
            logged[key] = validate(graph, model, config, count, prepared)
            record = {"dataset": name, "model": model, "config": config, "val_accuracy": logged[key]}
            append_record(LOG, record | {"seconds": round(time.perf_counter() - started, 1)})
            print(f"{name} {model} {count} {np.mean(logged[key]):.4f} {json.dumps(config)}", flush=True)
        return float(np.mean(logged[key]))

    first = whole if graph.n <= SMALL else few
    ranked = sorted(space, key=lambda config: -run(config, first))
    for config in ranked[:best]:
        run(config, whole)
    return ranked


def winners() -> dict[str, dict[str, dict[str, object]]]:
    """Return, from the log, the best configuration of each model on each data set over all its splits."""
    best: dict[tuple[str, str], tuple[float, dict]] = {}
    whole: dict[str, int] = {}
    records = read_records(LOG)
    for r in records:
        whole[r["dataset"]] = max(whole.get(r["dataset"], 0), len(r["val_accuracy"]))
    for r in records:
        key = (r["dataset"], r["model"])
        score = float(np.mean(r["val_accuracy"]))
        if len(r["val_accuracy"]) == whole[r["dataset"]] and score > best.get(key, (-1.0, {}))[0]:
            best[key] = (score, r["config"])
    found: dict[str, dict[str, dict[str, object]]] = {}
    for (dataset, model), (_, config) in sorted(best.items()):
        found.setdefault(dataset, {})[model] = config | FIXED
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="*")
    parser.add_argument("--few", type=int, default=3, help="splits of the first round")
    parser.add_argument("--best", type=int, default=3, help="configurations of the second round")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="write the winners into the package")
    options = parser.parse_args()
    warnings.simplefilter("ignore", InputWarning)  # what is odd about the splits is known
    torch.set_num_threads(options.threads)
    LOG.parent.mkdir(exist_ok=True)
    for dataset in options.datasets:
        graph = load_dataset(dataset)
        blind = [replace(split, test=np.empty(0, np.int64)) for split in graph.splits]
        graph = graph.with_splits([Split(s.train, s.val, s.test) for s in blind])
        ranked = search(graph, canonical_key(dataset), "fast", SPACE, options.few, options.best)
        learned = [{**config, "filter_lr": rate} for config in ranked[:2] for rate in FILTER_LR]
        search(graph, canonical_key(dataset), "gpatcher", learned, options.few, options.best)
    if options.write:
        PRESETS.write_text(json.dumps(winners(), indent=1) + "\n")
        print(json.dumps(winners(), indent=1))
