"""Choosing configurations: Optuna over one space per model, the same number of trials for each, validation data only.

A folder holds ``trials.jsonl``, the log and at once the state: a search that was cut short reads its trials from it and
goes on, and draws what it would have drawn, because trial k samples with seed + k. ``best.json`` is made from it and is
what ``gpatcher bench --tuned`` reads.
"""

from __future__ import annotations

import inspect
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpatcher.baselines import BASELINES, SEARCH
from gpatcher.bench.jobs import claim, load_kept
from gpatcher.bench.plan import TITLES, Tuned, chosen, experiment_names, is_generated, load_experiment, load_source
from gpatcher.datasets.registry import NAMED
from gpatcher.errors import InputError, InputWarning
from gpatcher.graph.split import Split, plan_runs
from gpatcher.runs.models import MODELS, PROTOCOL, Kept, full_config, train_model
from gpatcher.runs.records import append_record, config_hash, read_records, versions
from gpatcher.runs.settings import MODELS as PATCHERS
from gpatcher.scale.executors import Engine

Space = dict[str, list[Any]]  # parameter → values to try
_LR = [0.005, 0.01, 0.008, 0.003, 0.001]


_TRAINING: Space = {
    "lr": [0.005, 0.01, 0.003, 0.001],
    "weight_decay": [5e-4, 5e-5, 2e-3, 5e-3, 1e-2],
    "normalise": ["none", "l1", "l2"],
}


_PATCHER: Space = {
    **_TRAINING,
    "hidden": [64, 128, 256],
    "dropout": [0.5, 0.2, 0.7],
    "input_dropout": [0.5, 0.2, 0.0],
    "patch_size": [16, 8, 32, 64],
    "c": [0.5, 0.9],
    "self_loops": [False, True],
    "structure": [False, True],
    "mass": [False, True],
    "layers": [2, 1],
    "paths": ["ego,mean,mixer", "ego,mean"],
    "skip": [False, True],
    "mixer_gate": [1.0, 0.1],
    "ego_gate": [1.0, 0.1],
    "mean_ego": [False, True],
    "head_layers": [1, 2],
    "average": [0.0, 0.95],
}


# What is tried before the sampler has a say, within the budget: the defaults, then settings that differ by kind of
# graph (features or edges tell, few or many labels). The list for GPatcher is that of tools/search.py: with few labels
# the filter hardly learns.
_LEAN = {"paths": "ego,mean"}


_FEW = {"normalise": "l1", "self_loops": True, "c": 0.9, "lr": 0.01, "ego_gate": 0.1, "mean_ego": True, **_LEAN}
_FEW |= {"filter_lr": 0.003}
_MANY = {"normalise": "l2", "structure": True, "weight_decay": 2e-3}
_NOISY = {"weight_decay": 5e-3, "input_dropout": 0.2, "head_layers": 2, "average": 0.95, **_LEAN}


_PATCHER_STARTS: list[dict[str, Any]] = [
    {},
    {**_FEW, "patch_size": 64},
    {**_MANY, "hidden": 128, "patch_size": 32, **_LEAN},
    {**_NOISY, "hidden": 128, "patch_size": 8},
    {"layers": 1, "hidden": 128, "patch_size": 8, "weight_decay": 1e-2},
    {**_MANY, "layers": 1, "mixer_gate": 0.1},
    {**_NOISY, "hidden": 256, "patch_size": 8, "normalise": "l2", "mass": True, "input_dropout": 0.0}
    | {"weight_decay": 2e-3},
]


_STARTS: list[dict[str, Any]] = [
    {},
    {"lr": 0.01, "normalise": "l1"},
    {"lr": 0.01, "normalise": "l2", "weight_decay": 5e-5},
    {"lr": 0.01, "weight_decay": 5e-3},
]


def search_space(name: str, model: str) -> Space:
    """Return the values to try for a model: ``paper`` is the paper's grid, ``broad`` a wider space.

    The paper's grid is learning rate × patch size × number of filters; a model without patches has the learning rate
    and its own hyper-parameters.
    """
    if model not in MODELS:
        raise InputError(f"there is no model {model!r}; there are {', '.join(MODELS)}")
    if name == "paper":
        patches: Space = {"patch_size": [16, 8, 32, 64, 96]} if model in PATCHERS else SEARCH[model]
        return {"lr": _LR, **patches, **({"filters": [10, 50, 100, 150, 200]} if model == "gpatcher" else {})}
    if name == "broad":
        if model not in PATCHERS:
            return {**_TRAINING, **SEARCH[model]}
        return {**_PATCHER, **({"filters": [10, 50], "filter_lr": [1.0, 0.2, 0.003]} if model == "gpatcher" else {})}
    raise InputError(f"there is no search space {name!r}; there are paper, broad")


def starting_points(name: str, model: str) -> list[dict[str, Any]]:
    """Return what is tried first: points of the space, each told by where it differs from the model's defaults."""
    space, whole = search_space(name, model), search_space("broad", model)
    starts = _PATCHER_STARTS if model in PATCHERS else _STARTS
    own = [{k: v for k, v in start.items() if k in whole} for start in starts]
    return [start for start in own if all(k in space and v in space[k] for k, v in start.items())]


@dataclass(frozen=True)
class Search:
    """One search: a model on a data set; ``trials`` may be raised later and the search goes on."""

    model: str
    dataset: str
    space: str
    splits: str
    seed: int
    trials: int

    @property
    def key(self) -> str:
        """What tells its trials in the log from those of others, and of another space under the same name."""
        known = {k: v for k, v in asdict(self).items() if k != "trials"}
        tried = [search_space(self.space, self.model), starting_points(self.space, self.model)]
        return config_hash({**known, "tried": tried})


def plan_searches(
    target: str,
    *,
    trials: int,
    space: str = "broad",
    splits: str = "0,1,2",
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    seed: int = 0,
    root: Path | None = None,
) -> tuple[list[Search], list[str]]:
    """Return the searches for a preset or for ``MODEL/DATASET``, and a sentence for each data set that is not there."""
    if trials < 1:
        raise InputError(f"trials must be at least 1, got {trials}")
    every_model: tuple[str, ...]
    every_dataset: tuple[str, ...]
    if "/" in target:
        model, _, dataset = target.partition("/")
        every_model, every_dataset = (model,), (dataset.lower(),)
    elif target in experiment_names():
        preset = load_experiment(target)
        every_model = tuple(dict.fromkeys(row.model for row in preset.rows.values() if row.model in TITLES))
        every_dataset = preset.datasets
    else:
        raise InputError(
            f"{target!r} is neither MODEL/DATASET, such as gcn/texas, nor a preset: {', '.join(experiment_names())}"
        )
    picked = chosen(models, every_model, "model")
    for model in picked:
        search_space(space, model)
    searches, notes = [], []
    for dataset in chosen(datasets, every_dataset, "data set"):
        try:
            graph = load_source(dataset, 0, root)
        except InputError as error:
            if datasets is not None or "/" in target:
                raise
            notes.append(f"{dataset} is not tuned: {error}")
            continue
        plan_runs(graph, splits, 0)  # refuses splits that are not there
        searches += [Search(model, dataset, space, splits, seed, trials) for model in picked]
    return searches, notes


def run_searches(
    searches: Sequence[Search], out: Path, engine: Engine, root: Path | None = None
) -> Iterator[tuple[Search, str]]:
    """Run searches, each in one process; yield each with a sentence on its outcome, and write best.json at the end.

    The workers write to ``out``, so on a cluster it must be a shared folder.
    """
    import_optuna()
    out.mkdir(parents=True, exist_ok=True)
    out = out.resolve()
    yield from engine.map(run_search, searches, (out, root))
    draft = out / ".best.json.partial"
    draft.write_text(json.dumps(best_of(out), indent=1) + "\n")
    draft.replace(out / "best.json")


def run_search(search: Search, out: Path, root: Path | None) -> str:
    """Run the trials that are missing; return a sentence on the outcome."""
    torch.set_num_threads(1)
    with claim(out, search.key) as mine:
        if not mine:
            return "at work in another process"
        kept = Kept()
        while len(done := _logged(out, search)) < search.trials:
            _trial(search, done, out, root, kept)
    scored = [r for r in done if r["error"] is None]
    if not scored:
        return f"all {len(done)} trials failed: {done[-1]['error']}"
    best = max(scored, key=lambda r: r["mean"])
    return f"validation {100 * best['mean']:.1f} by trial {best['number']} of {len(done)}"


def _logged(out: Path, search: Search) -> list[dict[str, Any]]:
    return [r for r in read_records(out / "trials.jsonl") if r["search"] == search.key]


def _trial(search: Search, done: list[dict[str, Any]], out: Path, root: Path | None, kept: Kept) -> None:
    number = len(done)
    drawn = _draw(search, done)
    record: dict[str, Any] = {"search": search.key, **asdict(search), "number": number, "drawn": drawn, "error": None}
    started = time.perf_counter()
    earlier = next((r for r in done if r["drawn"] == drawn), None)
    if earlier is not None:  # the sampler came back to it: the same seeds give the same figures
        record |= {key: earlier[key] for key in ("config", "val", "mean", "error")} | {"repeats": earlier["number"]}
    else:
        config = {k: v.split(",") if k == "paths" else v for k, v in drawn.items()}
        record |= {"config": config, "val": [], "mean": None}
        try:
            record["val"] = validate(search, config, root, kept)
            record["mean"] = float(np.mean(record["val"]))
        except Exception as error:
            record["error"] = f"{type(error).__name__}: {error}"
    seconds = round(time.perf_counter() - started, 3)
    append_record(out / "trials.jsonl", record | {"seconds": seconds, "versions": versions()})


def _draw(search: Search, done: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the parameters of the next trial: a starting point, or what the sampler makes of the trials so far."""
    optuna = import_optuna()
    space = search_space(search.space, search.model)
    starts = starting_points(search.space, search.model)
    if len(done) < len(starts):
        start = {**_defaults(search.model), **starts[len(done)]}
        return {k: start[k] if start.get(k) in values else values[0] for k, values in space.items()}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    choices = {name: optuna.distributions.CategoricalDistribution(values) for name, values in space.items()}
    sampler = optuna.samplers.TPESampler(seed=search.seed + len(done), n_startup_trials=8)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for r in done:
        failed = r["error"] is not None
        state = optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE
        value = None if failed else r["mean"]
        study.add_trial(optuna.trial.create_trial(params=r["drawn"], distributions=choices, value=value, state=state))
    return dict(study.ask(choices).params)


def _defaults(model: str) -> dict[str, Any]:
    """Return the parameters that a model has without tuning, in the form of a search space."""
    if model in PATCHERS:
        config = full_config({"extractor": PATCHERS[model]})
        return {**config, "paths": ",".join(config["paths"])}
    own = inspect.signature(BASELINES[model]).parameters.values()
    return {p.name: p.default for p in own if p.default is not p.empty} | PROTOCOL


def validate(search: Search, config: dict[str, Any], root: Path | None, kept: Kept) -> list[float]:
    """Return the validation results of a configuration; the test nodes are taken out before anything is trained."""
    named = NAMED.get(search.dataset)
    metric = named.metric if named else "accuracy"
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        first = load_kept(search.dataset, 0, root)
        for split, seed in plan_runs(first, search.splits, 0):
            generated = is_generated(search.dataset)
            graph = load_kept(search.dataset, seed, root) if generated else first
            own = _blind(graph.splits[0 if generated else split])
            outcome = train_model(search.model, graph, own, seed, config, metric=metric, read_test=False, kept=kept)
            found.append(outcome.val)
    return found


def _blind(split: Split) -> Split:
    return Split(split.train, split.val, np.empty(0, np.int64))


def best_of(out: Path) -> Tuned:
    """Return, from the log, the best configuration of each model on each data set, by its latest search."""
    latest: dict[tuple[str, str], str] = {}
    records = read_records(out / "trials.jsonl")
    for r in records:
        latest[r["dataset"], r["model"]] = r["search"]
    found: Tuned = {}
    for (dataset, model), key in sorted(latest.items()):
        own = [r for r in records if r["search"] == key]
        scored = [r for r in own if r["error"] is None]
        if scored:
            best = max(scored, key=lambda r: r["mean"])  # the first of equals
            entry = {"config": best["config"], "trials": len(own), "val": best["mean"]}
            found.setdefault(dataset, {})[model] = entry | {k: best[k] for k in ("space", "splits", "seed")}
    return found


def import_optuna() -> Any:
    """Return the module of Optuna; an error that says how to install it where it is missing."""
    try:
        import optuna
    except ImportError:
        raise InputError("Optuna is not installed; install it with: pip install 'gpatcher[tune]'") from None
    return optuna
