"""Choosing settings: Optuna over one space per model, the same number of trials for each, validation data only.

A folder holds ``trials.jsonl``, the log and at once the state: a search that was interrupted reads its trials from it
and draws what it would have drawn, because trial k samples with seed + k. Optuna's own storage would add a data base
beside the log. ``best.json`` is made from it; it has the format of the shipped settings.
"""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpatcher.baselines import BASELINES, baseline_space, baseline_start
from gpatcher.bench.plan import experiment_names, load_experiment, load_source, plan_splits, select
from gpatcher.bench.tasks import load_split
from gpatcher.errors import InputError, InputWarning, check_at_least
from gpatcher.io import claimed, make_folder, write_json
from gpatcher.runs.records import RECORD_VERSION, append_record, read_records, settings_hash, versions
from gpatcher.runs.run import Cache, Job, run_job
from gpatcher.runs.settings import MODELS, PATCHERS, Shipped, resolve_settings
from gpatcher.scale.executors import Engine

Space = dict[str, list[Any]]  # setting by dotted name → values to try; lists and patch sources as text
_LISTS = ("model.readout", "features.structure")
TRIALS, BEST, CLAIMS = "trials.jsonl", "best.json", "claims"

_LR = [0.005, 0.01, 0.008, 0.003, 0.001]
_TRAINING: Space = {
    "train.lr": [0.005, 0.01, 0.003, 0.001],
    "train.weight_decay": [5e-4, 5e-5, 2e-3, 5e-3, 1e-2],
    "features.normalise": ["none", "l1", "l2"],
}
_PATCHER: Space = {
    **_TRAINING,
    "model.hidden": [64, 128, 256],
    "model.dropout": [0.5, 0.2, 0.7],
    "model.input_dropout": [0.5, 0.2, 0.0],
    "patches.size": [16, 8, 32, 64],
    "patches.c": [0.5, 0.9],
    "patches.self_loops": [False, True],
    "features.adjacency_features": [False, True],
    "features.log_l1_norm": [False, True],
    "model.layers": [2, 1],
    "model.readout": ["ego,mean,mixer", "ego,mean"],
    "model.skip": [False, True],
    "model.mixer_gate": [1.0, 0.1],
    "model.ego_gate": [1.0, 0.1],
    "model.selection": [False, True],
    "model.mean_ego": [False, True],
    "model.head_layers": [1, 2],
    "train.ema_decay": [0.0, 0.95],
    "train.consistency": [0.0, 2.0],
}
# What is tried before the sampler draws, within the budget: the defaults, then settings that differ by kind of graph
# (informative features or edges, few or many labels). With few labels the filter hardly learns.
_NO_MIXER = {"model.readout": "ego,mean"}
_FEW_LABELS = {
    "features.normalise": "l1",
    "patches.self_loops": True,
    "patches.c": 0.9,
    "train.lr": 0.01,
    "train.filter_lr": 0.003,
    "model.ego_gate": 0.1,
    "model.mean_ego": True,
    **_NO_MIXER,
}
_INFORMATIVE_EDGES = {"features.normalise": "l2", "features.adjacency_features": True, "train.weight_decay": 2e-3}
_NOISY = {
    "train.weight_decay": 5e-3,
    "model.input_dropout": 0.2,
    "model.head_layers": 2,
    "train.ema_decay": 0.95,
    **_NO_MIXER,
}
_PATCHER_STARTS: list[dict[str, Any]] = [
    {},
    {**_FEW_LABELS, "patches.size": 64, "train.consistency": 2.0},
    {**_INFORMATIVE_EDGES, "model.hidden": 128, "patches.size": 32, **_NO_MIXER},
    {**_NOISY, "model.hidden": 128, "patches.size": 8},
    {
        **_NO_MIXER,
        "patches.size": 8,
        "model.selection": True,
        "model.dropout": 0.2,
        "model.input_dropout": 0.0,
        "model.head_layers": 2,
        "train.lr": 0.01,
        "train.weight_decay": 2e-3,
    },
    {"model.layers": 1, "model.hidden": 128, "patches.size": 8, "train.weight_decay": 1e-2},
    {**_INFORMATIVE_EDGES, "model.layers": 1, "model.mixer_gate": 0.1},
    {
        **_NOISY,
        "model.hidden": 256,
        "patches.size": 8,
        "features.normalise": "l2",
        "features.log_l1_norm": True,
        "model.input_dropout": 0.0,
        "train.weight_decay": 2e-3,
    },
]
# Deep-GPatcher: which edges, how far, how many rounds
_OUT_AND_IN = "hop:size=512,direction=out + hop:size=512,direction=in"
_ALL_AND_SAME = f"{_OUT_AND_IN} + overlap:size=64,direction=out + overlap:size=64,direction=in"
_OUT_AND_SAME = "hop:size=512,direction=out + overlap:size=64,direction=out"
_DEEP: Space = {
    "train.lr": [0.01, 0.005, 0.003, 0.001],
    "train.weight_decay": [5e-4, 0.0, 5e-5, 2e-3, 5e-3],
    "train.monitor": ["accuracy", "loss"],
    "train.epochs": [500, 1500],
    "train.patience": [100, 200],
    "train.ema_decay": [0.0, 0.95],
    "features.normalise": ["none", "l1", "l2"],
    "features.adjacency_features": [False, True],
    "features.structure": ["", "degree,clustering"],
    "model.hidden": [64, 128, 256],
    "model.dropout": [0.5, 0.2, 0.7, 0.0],
    "model.input_dropout": [0.2, 0.0, 0.5],
    "model.head_layers": [1, 2],
    "model.jump": [False, True],
    "model.rounds": [4, 1, 2, 8, 15],
    "model.norm": ["batch", "layer", "unit"],
    "model.residual": [True, False],
    "model.selection": [False, True],
    "model.aggregate": ["sum", "mean"],
    # not the mixer: over 512 positions it takes minutes for a run on 183 nodes, and in five trials it never won
    "model.readout": ["ego,mean", "mean", "ego,mean,labels", "mean,labels"],
    "patches": [
        "hop:size=512",
        "hop:size=512,direction=out",
        _OUT_AND_IN,
        _OUT_AND_SAME,
        _ALL_AND_SAME,
        "hop:size=512,direction=out + hop:size=512,hop=2,direction=out",
        "hop:size=512 + ppr:size=32,c=0.9",
        "ppr:size=32",
    ],
}
_TWO_ROUNDS = {"patches": _OUT_AND_IN, "model.rounds": 2, "model.norm": "layer", "model.input_dropout": 0.5}
_ONE_ROUND = {
    "patches": _OUT_AND_IN,
    "model.rounds": 1,
    "model.input_dropout": 0.5,
    "train.weight_decay": 5e-3,
    "train.monitor": "loss",
}
_SELECTION = {
    "patches": _OUT_AND_IN,
    "model.rounds": 1,
    "model.selection": True,
    "model.dropout": 0.2,
    "model.input_dropout": 0.0,
    "model.head_layers": 2,
    "train.weight_decay": 2e-3,
    "train.monitor": "loss",
    "train.epochs": 1500,
}
_UNIT_ROUNDS = {
    "patches": "hop:size=512,direction=out",
    "model.norm": "unit",
    "model.residual": False,
    "model.jump": True,
    "model.selection": True,
    "model.readout": "mean",
    "model.dropout": 0.0,
    "model.input_dropout": 0.0,
    "model.head_layers": 2,
    "train.weight_decay": 0.0,
    "train.epochs": 1500,
    "train.patience": 200,
}
_DEEP_STARTS: list[dict[str, Any]] = [
    {**_ONE_ROUND, "features.adjacency_features": True},
    _SELECTION,
    {**_SELECTION, "patches": _ALL_AND_SAME, "model.readout": "ego,mean,labels"},
    {**_UNIT_ROUNDS, "patches": _OUT_AND_SAME, "model.readout": "mean,labels"},
    _UNIT_ROUNDS,
    {},
    _TWO_ROUNDS,
    {**_ONE_ROUND, "model.hidden": 256, "model.input_dropout": 0.2, "model.head_layers": 2, "train.ema_decay": 0.95},
    {**_TWO_ROUNDS, "model.rounds": 4, "model.jump": True},
    {
        "model.rounds": 15,
        "model.residual": False,
        "model.dropout": 0.2,
        "model.input_dropout": 0.0,
        "train.weight_decay": 0.0,
        "train.epochs": 1500,
        "train.patience": 200,
    },
    {
        "patches": "hop:size=512 + ppr:size=32,c=0.9",
        "model.rounds": 1,
        "model.aggregate": "mean",
        "model.readout": "ego,mean,labels",
        "features.normalise": "l1",
        "model.input_dropout": 0.5,
        "train.monitor": "loss",
    },
]
_STARTS: list[dict[str, Any]] = [
    {},
    {"train.lr": 0.01, "features.normalise": "l1"},
    {"train.lr": 0.01, "features.normalise": "l2", "train.weight_decay": 5e-5},
    {"train.lr": 0.01, "train.weight_decay": 5e-3},
]


def search_space(name: str, model: str) -> Space:
    """Return the values to try for a model: ``paper`` is the paper's grid, ``broad`` a wider space.

    The paper's grid is learning rate × patch size × number of filters; a model without patches has the learning rate
    and its own hyper-parameters.
    """
    if model not in MODELS:
        raise InputError(f"unknown model {model!r}; choose one of {', '.join(MODELS)}")
    if name not in ("paper", "broad"):
        raise InputError(f"unknown search space {name!r}; choose paper or broad")
    if model not in PATCHERS:
        own = baseline_space(model)
        return {"train.lr": _LR, **own} if name == "paper" else {**_TRAINING, **own}
    if model == "deep" and name == "broad":
        return _DEEP
    learned = model == "gpatcher"
    if name == "paper":
        filters: Space = {"patches.K": [10, 50, 100, 150, 200]} if learned else {}
        return {"train.lr": _LR, "patches.size": [16, 8, 32, 64, 96], **filters}
    return {**_PATCHER, **({"patches.K": [10, 50], "train.filter_lr": [1.0, 0.2, 0.003]} if learned else {})}


def starting_points(name: str, model: str) -> list[dict[str, Any]]:
    """Return what is tried first: points of the space, each by where it differs from the model's defaults."""
    space, broad = search_space(name, model), search_space("broad", model)
    if model in PATCHERS:
        starts = _DEEP_STARTS if model == "deep" else _PATCHER_STARTS
    else:
        start = baseline_start(model)
        starts = [*_STARTS, *([start] if start else [])]
    own = [{k: v for k, v in start.items() if k in broad} for start in starts]
    return [start for start in own if all(k in space and v in space[k] for k, v in start.items())]


@dataclass(frozen=True)
class Search:
    """One search: a model on a data set; ``trials`` may be raised later and the search continues."""

    model: str
    dataset: str
    space: str
    splits: str
    seed: int
    trials: int

    @property
    def key(self) -> str:
        """Identifies its trials in the log; another space or list of starting points is another search."""
        parts = {k: v for k, v in asdict(self).items() if k != "trials"}
        tried = [search_space(self.space, self.model), starting_points(self.space, self.model)]
        return settings_hash({**parts, "tried": tried})


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
    """Return the searches for an experiment or for ``MODEL/DATASET``, and a note for each set that cannot be loaded."""
    check_at_least(1, trials=trials)
    all_models: tuple[str, ...]
    all_datasets: tuple[str, ...]
    if "/" in target:
        model, _, dataset = target.partition("/")
        all_models, all_datasets = (model,), (dataset.lower(),)
    elif target in experiment_names():
        experiment = load_experiment(target)
        all_models = tuple(dict.fromkeys(row.model for row in experiment.rows.values() if row.model in MODELS))
        all_datasets = experiment.datasets
    else:
        raise InputError(
            f"{target!r} is neither MODEL/DATASET, such as gcn/texas, nor an experiment: "
            f"{', '.join(experiment_names())}"
        )
    selected = select(models, all_models, "model")
    for model in selected:
        search_space(space, model)
    searches, notes = [], []
    for dataset in select(datasets, all_datasets, "data set"):
        try:
            graph = load_source(dataset, 0, root)
        except InputError as error:
            if datasets is not None or "/" in target:
                raise
            notes.append(f"{dataset} is not tuned: {error}")
            continue
        plan_splits(dataset, splits, 0, graph)  # refuses splits that the data set does not have
        searches += [Search(model, dataset, space, splits, seed, trials) for model in selected]
    return searches, notes


def run_searches(
    searches: Sequence[Search], out: Path, engine: Engine, root: Path | None = None
) -> Iterator[tuple[Search, str]]:
    """Run searches, each in one process; yield each with a sentence on its outcome, and write best.json at the end.

    The workers write to ``out``, so on a cluster it must be a shared folder.
    """
    import_optuna()
    out = make_folder(out).resolve()
    yield from engine.map(run_search, searches, (out, root))
    write_json(out / BEST, best_settings(out))


def run_search(search: Search, out: Path, root: Path | None) -> str:
    """Run the missing trials; return a sentence on the outcome."""
    torch.set_num_threads(1)
    with claimed(out / CLAIMS, search.key) as mine:
        if not mine:
            return "another process is at it"
        cache = Cache()
        while len(trials := _logged(out, search)) < search.trials:
            _run_trial(search, trials, out, root, cache)
    scored = [trial for trial in trials if trial["error"] is None]
    if not scored:
        return f"all {len(trials)} trials failed: {trials[-1]['error']}"
    best = max(scored, key=lambda trial: trial["mean"])
    return f"validation {100 * best['mean']:.1f} by trial {best['number']} of {len(trials)}"


def _logged(out: Path, search: Search) -> list[dict[str, Any]]:
    return [trial for trial in read_records(out / TRIALS) if trial["search"] == search.key]


def _run_trial(search: Search, trials: list[dict[str, Any]], out: Path, root: Path | None, cache: Cache) -> None:
    drawn = _draw(search, trials)
    record: dict[str, Any] = {"version": RECORD_VERSION, "search": search.key, **asdict(search)}
    record |= {"number": len(trials), "drawn": drawn, "error": None}
    started = time.perf_counter()
    earlier = next((trial for trial in trials if trial["drawn"] == drawn), None)
    if earlier is not None:  # the sampler drew it again: the same seeds give the same figures
        record |= {key: earlier[key] for key in ("val", "mean", "error")} | {"repeats": earlier["number"]}
    else:
        record |= {"val": [], "mean": None}
        try:
            record["val"] = validate(search, drawn, root, cache)
            record["mean"] = float(np.mean(record["val"]))
        except Exception as error:
            record["error"] = f"{type(error).__name__}: {error}"
    seconds = round(time.perf_counter() - started, 3)
    append_record(out / TRIALS, record | {"seconds": seconds, "versions": versions()})


def _draw(search: Search, trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the values of the next trial: a starting point, or what the sampler makes of the trials so far."""
    optuna = import_optuna()
    space = search_space(search.space, search.model)
    starts = starting_points(search.space, search.model)
    if len(trials) < len(starts):
        start = {**_defaults(search.model), **starts[len(trials)]}
        return {k: start[k] if start.get(k) in values else values[0] for k, values in space.items()}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    choices = {name: optuna.distributions.CategoricalDistribution(values) for name, values in space.items()}
    sampler = optuna.samplers.TPESampler(seed=search.seed + len(trials), n_startup_trials=8)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for trial in trials:
        failed = trial["error"] is not None
        state = optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE
        value = None if failed else trial["mean"]
        study.add_trial(
            optuna.trial.create_trial(params=trial["drawn"], distributions=choices, value=value, state=state)
        )
    return dict(study.ask(choices).params)


def _defaults(model: str) -> dict[str, Any]:
    """Return the settings that a model has without tuning, by dotted name, in the form of a search space."""
    settings = resolve_settings(model, preset="default")[0]
    flat = {f"{section}.{name}": value for section, values in settings.items() for name, value in values.items()}
    if model in PATCHERS:
        return {**flat, **{name: ",".join(flat[name]) for name in _LISTS}}
    own = inspect.signature(BASELINES[model]).parameters.values()
    return {f"model.{p.name}": p.default for p in own if p.default is not p.empty} | flat


def trial_settings(model: str, drawn: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a trial: the model's defaults with the drawn values."""
    changes = {k: [part for part in v.split(",") if part] if k in _LISTS else v for k, v in drawn.items()}
    return resolve_settings(model, preset="default", changes=changes)[0]


def validate(search: Search, drawn: dict[str, Any], root: Path | None, cache: Cache) -> list[float]:
    """Return the validation results of a trial; the test nodes are taken out before anything is trained."""
    settings = trial_settings(search.model, drawn)
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        for split, seed in plan_splits(search.dataset, search.splits, 0, load_split(search.dataset, 0, root)[0]):
            graph, own = load_split(search.dataset, split, root)
            job = Job("tune", search.dataset, search.model, settings, split, seed)
            results.append(float(run_job(job, graph, own, cache=cache, read_test=False).record["val"]))
    return results


def best_settings(out: Path) -> Shipped:
    """Return, from the log, the best settings of each model on each data set, by its latest search."""
    records = read_records(out / TRIALS)
    latest = {(trial["dataset"], trial["model"]): trial["search"] for trial in records}
    best: Shipped = {}
    for (dataset, model), key in sorted(latest.items()):
        trials = [trial for trial in records if trial["search"] == key]
        scored = [trial for trial in trials if trial["error"] is None]
        if scored:
            top = max(scored, key=lambda trial: trial["mean"])  # the first of equals
            entry = {"settings": trial_settings(model, top["drawn"]), "trials": len(trials), "val": top["mean"]}
            best.setdefault(dataset, {})[model] = entry | {k: top[k] for k in ("space", "splits", "seed")}
    return best


def import_optuna() -> Any:
    """Return the module of Optuna; an error that says how to install it where it is missing."""
    try:
        import optuna
    except ImportError:
        raise InputError("Optuna is not installed; install it with: pip install 'gpatcher[tune]'") from None
    return optuna
