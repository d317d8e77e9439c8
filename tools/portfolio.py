"""Learn the portfolio that ships, and show what it does on data sets that it was not learned from.

    python tools/portfolio.py train FOLDER --datasets 'texas;cora' --splits 0,1 # every candidate: predictions
    python tools/portfolio.py log FOLDER                                        # predictions → results/portfolio
    python tools/portfolio.py learn                                             # results/portfolio → portfolio.json
    python tools/portfolio.py shrink                                            # results/portfolio → a table
    python tools/portfolio.py evaluate FOLDER                                   # leave one data set out → records

``train`` keeps logits of validation and test nodes in FOLDER (not committed) and skips what is there already, so it can
be interrupted and run several times side by side. A data set is a name, a generator, or a folder with nodes.csv and
edges.csv. ``log`` keeps the figures, and the probabilities of some validation nodes in 256 levels, which ``learn`` and
``shrink`` read: the second compares how far the weights may be shrunk towards equal ones. ``evaluate`` learns the
portfolio without a data set, combines its members there by validation nodes, and reads the test nodes once.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from candidates import POOL
from scipy.special import log_softmax, softmax

from gpatcher.datasets.load import load_graph
from gpatcher.datasets.registry import NAMED, canonical_key
from gpatcher.estimator.ensemble import QUALITIES
from gpatcher.estimator.members import choose_seeds
from gpatcher.estimator.portfolio import Candidate
from gpatcher.estimator.weights import ensemble_weights, greedy_weights
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import stratified_split
from gpatcher.io import claimed, draft_of, write_json, write_text
from gpatcher.runs.records import settings_hash
from gpatcher.tables.load import read_tables
from gpatcher.training.metrics import log_loss, measure
from gpatcher.trust.calibration import fit_temperature

ROOT = Path(__file__).parents[1]
PORTFOLIO = ROOT / "src/gpatcher/estimator/portfolio.json"
RESULTS = ROOT / "results/portfolio"
Logits = dict[str, Any]
Runs = dict[tuple[str, int], dict[str, Logits]]  # data set and split, then candidate
LOG, VALIDATION = RESULTS / "log.jsonl", RESULTS / "validation.npz"
RECORDS = RESULTS / "leave_one_out.jsonl"
_NODES = 500  # validation nodes of a run that the portfolio is learned from
SHARES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)  # of equal weights
_LEVELS = 30  # of a logarithm of a probability, per unit


def train(folder: Path, datasets: Sequence[str], splits: Sequence[int], names: Sequence[str]) -> None:
    """Train every candidate on every split, and keep its logits."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    for number in splits:
        for dataset in datasets:
            graph = _load(dataset, number)
            for candidate in POOL:
                if not names or candidate.name in names:
                    _train_one(folder, Path(dataset).name, graph, number, candidate)


def _load(dataset: str, number: int) -> Graph:
    if not (Path(dataset) / "nodes.csv").is_file():
        return load_graph(dataset)
    graph = read_tables(Path(dataset) / "nodes.csv", Path(dataset) / "edges.csv")
    return graph.with_splits([stratified_split(graph.labels(), 0.6, 0.2, number)])


def _train_one(folder: Path, dataset: str, graph: Graph, number: int, candidate: Candidate) -> None:
    path = folder / f"{dataset}__{candidate.name}__{number}.npz"
    with claimed(folder / "claims", path.stem) as free:
        if not free or path.exists():
            return
        split = graph.splits[number if len(graph.splits) > 1 else 0]
        parts = {"val": split.val, "test": split.test}
        logits: dict[str, Any] = dict.fromkeys(parts, 0.0)
        seeds = choose_seeds(graph, number, QUALITIES["good"].models)
        adapted, prepared, seconds, y = candidate.adapted(graph), None, 0.0, graph.labels()
        for seed in seeds:
            started = time.process_time()  # time on the core, which other work does not change
            model: Any = adapted.make(seed=seed)
            prepared = prepared or model.prepare(graph)
            model.fit(graph, split, prepared=prepared)
            seconds += time.process_time() - started
            for part, nodes in parts.items():
                logits[part] = logits[part] + model.decision_function(graph, nodes) / len(seeds)
        with draft_of(path) as draft, draft.open("wb") as file:
            np.savez_compressed(file, **logits, yv=y[split.val], yt=y[split.test], sec=seconds, seeds=len(seeds))
        loss = log_loss(logits["val"], y[split.val])
        said = f"{dataset}, {candidate.name}, split {number}, {len(seeds)} seeds"
        print(f"{said}: validation loss {loss:.4f}, {seconds:.1f} s", flush=True)


@cache
def read(folder: Path) -> Runs:
    """Return the logits by data set and split, then by candidate; at a temperature chosen on validation nodes."""
    runs: Runs = {}
    for path in sorted(folder.glob("*.npz")):
        dataset, name, number = path.stem.split("__")
        with np.load(path, allow_pickle=False) as arrays:
            run = {key: arrays[key] for key in arrays.files}
        temperature = fit_temperature(run["val"], run["yv"])
        run["val"], run["test"] = run["val"] / temperature, run["test"] / temperature
        runs.setdefault((dataset, int(number)), {})[name] = run
    return runs


def write_log(folder: Path) -> None:
    """Write the figures of all runs, and the probabilities of some of their validation nodes.

    What is on the log and not in the folder is kept, as long as the data set has the same validation nodes.
    """
    lines: dict[tuple[str, int, str], str] = {}
    arrays: dict[str, Any] = {}
    if LOG.exists():
        kept = [json.loads(line) for line in LOG.read_text().splitlines()]
        lines = {(r["dataset"], r["split"], r["candidate"]): json.dumps(r) for r in kept}
        with np.load(VALIDATION, allow_pickle=False) as logged:
            arrays = dict(logged)
    for (dataset, number), members in read(folder).items():
        y = next(iter(members.values()))["yv"]
        some = np.sort(np.random.default_rng(0).permutation(len(y))[:_NODES])
        known = arrays.setdefault(f"{dataset}__{number}__y", y[some].astype(np.uint8))
        if not np.array_equal(known, y[some]):
            raise SystemExit(f"{dataset}, split {number}: other validation nodes than on the log; train all candidates")
        for candidate in POOL:
            if candidate.name not in members:
                continue
            run = members[candidate.name]
            record: dict[str, Any] = {"dataset": dataset, "split": number, "candidate": candidate.name}
            record |= {"settings_hash": settings_hash(candidate.settings), "seeds": int(run["seeds"])}
            record["seconds"] = round(float(run["sec"]), 1)
            record |= {"val_loss": round(log_loss(run["val"], y), 4), "val": _score(dataset, run["val"], y)}
            lines[dataset, number, candidate.name] = json.dumps(record)
            levels = np.round(-_LEVELS * log_softmax(run["val"][some], axis=1))
            arrays[f"{dataset}__{number}__{candidate.name}"] = np.minimum(levels, 255).astype(np.uint8)
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_text(LOG, "\n".join(lines[key] for key in sorted(lines)) + "\n")
    with draft_of(VALIDATION) as draft, draft.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_log() -> Runs:
    """Return what `write_log` kept of the runs of today's candidates."""
    hashes = {candidate.name: settings_hash(candidate.settings) for candidate in POOL}
    runs: Runs = {}
    with np.load(VALIDATION, allow_pickle=False) as arrays:
        for line in LOG.read_text().splitlines():
            record = json.loads(line)
            place, name = f"{record['dataset']}__{record['split']}", record["candidate"]
            if record["settings_hash"] == hashes.get(name):
                run = {"val": -arrays[f"{place}__{name}"].astype(float) / _LEVELS, "yv": arrays[f"{place}__y"]}
                runs.setdefault((record["dataset"], record["split"]), {})[name] = run | {"sec": record["seconds"]}
    return runs


def regret(runs: dict[str, Logits], names: Sequence[str]) -> float:
    """Return how far the ensemble of these candidates is from that of all, as a fraction of what can be gained.

    The loss is that of validation nodes: the weights are chosen on one half of them and scored on the other.
    """
    y = next(iter(runs.values()))["yv"]
    prior = np.bincount(y) / len(y)
    entropy = -float((prior[prior > 0] * np.log(prior[prior > 0])).sum())
    best = _halves_loss(runs, frozenset(runs))
    own = frozenset(names) & frozenset(runs)
    return (_halves_loss(runs, own) - best) / max(entropy - best, 1e-3) if own else 1.0


_known: dict[tuple[int, frozenset[str]], float] = {}


def _halves_loss(runs: dict[str, Logits], names: frozenset[str]) -> float:
    key = id(runs), names
    if key not in _known:
        y = next(iter(runs.values()))["yv"]
        halves = np.array_split(np.random.default_rng(0).permutation(len(y))[:_NODES], 2)
        logits = np.stack([runs[name]["val"] for name in sorted(names)]).astype(float)
        losses = []
        for chosen, scored in (halves, halves[::-1]):
            weights = greedy_weights(logits[:, chosen], y[chosen])
            losses.append(log_loss(np.tensordot(weights, logits[:, scored], 1), y[scored]))
        _known[key] = float(np.mean(losses))
    return _known[key]


def order(runs: Runs, count: int) -> tuple[list[str], list[float]]:
    """Return candidates in the order of a greedy choice, and the mean regret over the data sets after each.

    The next candidate is the one that lowers the regret most for the time that it takes.
    """
    datasets = sorted({dataset for dataset, _ in runs})
    costs = _costs(runs)
    chosen: list[str] = []
    path = [1.0]  # that of predicting the class frequencies
    while len(chosen) < count:
        figures = {}
        for candidate in POOL:
            if candidate.name not in chosen:
                names = [*chosen, candidate.name]
                each = [
                    np.mean([regret(run, names) for key, run in runs.items() if key[0] == dataset])
                    for dataset in datasets
                ]
                figures[candidate.name] = float(np.mean(each))
        best = max(figures, key=lambda name: (path[-1] - figures[name]) / costs[name])
        chosen.append(best)
        path.append(figures[best])
    return chosen, [round(figure, 4) for figure in path[1:]]


def _costs(runs: Runs) -> dict[str, float]:
    """Return the time of each candidate relative to the mean of all on a run, geometric mean over the runs."""
    relative: dict[str, list[float]] = {}
    for members in runs.values():
        mean = float(np.mean([run["sec"] for run in members.values()]))
        for name, run in members.items():
            relative.setdefault(name, []).append(float(run["sec"]) / mean)
    return {name: float(np.exp(np.mean(np.log(values)))) for name, values in relative.items()}


def learn() -> None:
    """Write the portfolio learned from all data sets of the log."""
    logged = read_log()
    names, path = order(logged, len(POOL))
    costs = _costs(logged)
    by_name = {candidate.name: candidate for candidate in POOL}
    content = {
        "about": "Made by tools/portfolio.py from results/portfolio; regret: mean over data sets after each member, "
        "as a fraction of what all candidates gain over the class frequencies",
        "regret": path,
        "members": [asdict(replace(by_name[name], cost=round(costs[name], 2))) for name in names],
    }
    write_json(PORTFOLIO, content)
    for name, figure in zip(names, path, strict=True):
        print(f"{figure:.4f} {name}")


def compare_shrinking() -> None:
    """Print the loss of the ensemble by how far its weights are shrunk, relative to not at all.

    As for the order of the members, the weights are chosen on one half of the validation nodes and scored on the other.
    """
    members = [member["name"] for member in json.loads(PORTFOLIO.read_text())["members"]]
    members = members[: QUALITIES["good"].members]
    losses: dict[float, dict[str, list[float]]] = {share: {} for share in SHARES}
    for (dataset, number), run in read_log().items():
        y = next(iter(run.values()))["yv"]
        logits = np.stack([run[name]["val"] for name in members if name in run]).astype(float)
        halves = np.array_split(np.random.default_rng(number).permutation(len(y)), 2)
        for chosen, scored in (halves, halves[::-1]):
            for share in SHARES:
                weights = ensemble_weights(list(logits[:, chosen]), y[chosen], number, share)
                loss = log_loss(np.tensordot(weights, logits[:, scored], 1), y[scored])
                losses[share].setdefault(dataset, []).append(loss)
    for share in SHARES:
        each = [np.mean(values) / np.mean(losses[0.0][dataset]) for dataset, values in losses[share].items()]
        worse = sum(ratio > 1 for ratio in each)
        print(
            f"shrink {share:.2f}: loss {np.mean(each):.4f} of that without, larger on {worse} of {len(each)} data sets"
        )


def evaluate(folder: Path) -> None:
    """Write what `good` does on each data set with a portfolio that was learned from the others.

    Records of data sets that are not in the folder are kept; they name the members that they were made with.
    """
    runs, logged = read(folder), read_log()
    records = [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []
    records = [record for record in records if record["dataset"] not in {dataset for dataset, _ in runs}]
    for dataset in sorted({dataset for dataset, _ in runs if canonical_key(dataset) in NAMED}):
        # Chameleon and Squirrel are left out together with their filtered versions
        others = {key: run for key, run in logged.items() if key[0].split("-")[0] != dataset.split("-")[0]}
        names, _ = order(others, QUALITIES["good"].members)
        for (own, number), members in runs.items():
            if own != dataset:
                continue
            if not members.keys() >= set(names):
                print(f"{dataset}, split {number} is left out: not all members are trained", flush=True)
                continue
            y, test = members[names[0]]["yv"], members[names[0]]["yt"]
            weights = ensemble_weights([members[name]["val"] for name in names], y, number)
            val, score = (
                _score(dataset, sum(w * members[name][part] for w, name in zip(weights, names, strict=True)), target)
                for part, target in (("val", y), ("test", test))
            )
            record: dict[str, Any] = {"dataset": dataset, "split": number, "members": names}
            record |= {"weights": [round(float(w), 3) for w in weights], "val": val, "test": score}
            record["seconds"] = round(sum(float(members[name]["sec"]) for name in names), 1)
            records.append(record)
            print(json.dumps(record), flush=True)
    records.sort(key=lambda record: (record["dataset"], record["split"]))
    write_text(RECORDS, "".join(json.dumps(record) + "\n" for record in records))


def _score(dataset: str, logits: np.ndarray, y: np.ndarray) -> float:
    known = NAMED.get(canonical_key(dataset))
    figure = measure(known.metric if known else "accuracy", y, softmax(logits, axis=1))
    if figure is None:
        raise ValueError(f"{dataset}: its metric is not defined on test nodes of one class")
    return round(figure, 5)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("train", "log", "learn", "shrink", "evaluate"))
    parser.add_argument("folder", type=Path, nargs="?", help="folder of the logits, not for learn and shrink")
    parser.add_argument("--datasets", default="texas;cornell;wisconsin;cora;citeseer", help="separated by ';'")
    parser.add_argument("--splits", default="0")
    parser.add_argument("--candidates", default="", help="names separated by ';', by default all")
    options = parser.parse_args()
    if (options.folder is None) != (options.command in ("learn", "shrink")):
        parser.error("pass a folder to train, log and evaluate, and none to learn and shrink")
    if options.command == "train":
        splits = [int(number) for number in options.splits.split(",")]
        names = [name.strip() for name in options.candidates.split(";") if name.strip()]
        train(options.folder, options.datasets.split(";"), splits, names)
    elif options.command == "log":
        write_log(options.folder)
    elif options.command == "learn":
        learn()
    elif options.command == "shrink":
        compare_shrinking()
    else:
        evaluate(options.folder)


if __name__ == "__main__":
    main()
