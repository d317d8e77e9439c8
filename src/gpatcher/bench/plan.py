"""What is to be run: experiments (one per table or figure), their rows, and the jobs they ask for.

A new data set: an entry in `gpatcher.datasets.registry.NAMED`, then its key in an experiment's ``datasets``.
A new experiment: one file in `gpatcher.bench.experiments` with an `Experiment` called ``EXPERIMENT``; its name is the
file's. A new model: one file in `gpatcher.baselines`; its name is the file's.
"""

from __future__ import annotations

import difflib
import json
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpatcher.baselines import PAPER_BASELINES, baseline_titles
from gpatcher.errors import InputError

if TYPE_CHECKING:
    from gpatcher.graph.graph import Graph
    from gpatcher.runs.run import Job
    from gpatcher.runs.settings import Shipped


PAPER_DATASETS = ("texas", "cornell", "wisconsin", "chameleon", "squirrel", "actor", "cora", "citeseer", "pubmed")
# all models and their titles; the title of a new one is its name
TITLES = {
    **baseline_titles(),
    "fast": "Fast-GPatcher",
    "deep": "Deep-GPatcher",
    "gpatcher": "GPatcher",
    "auto": "GPatcher (auto)",
}
PAPER_MODELS = (*PAPER_BASELINES, "fast", "gpatcher")
_DRAWS = "0,1,2,3,4"  # graphs drawn of a generator for "all" splits


@dataclass(frozen=True)
class Row:
    """One row of a table: a model, and what is particular about it.

    Parameters
    ----------
    model : str
        A name of `gpatcher.runs.settings.MODELS`.
    changes : mapping
        Settings that are replaced, by dotted name.
    preset : str, optional
        ``paper`` or ``default`` in place of the settings for the data set.
    ablation : mapping
        See `gpatcher.runs.run.Job`; ``induced: True`` stands for GPatcher's settings for the data set.
    """

    model: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    preset: str | None = None
    ablation: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A table or a figure: what is run for it.

    Parameters
    ----------
    title, description : str
        For people.
    datasets : tuple of str
        Keys of `gpatcher.datasets.registry.NAMED` or generators such as ``csbm:phi=0.5``, of which each split draws
        another graph.
    rows : mapping
        Rows of the table by name.
    splits : str
        ``all``, or numbers such as ``0,1,2``.
    task : str
        What a job does: a name of `gpatcher.bench.tasks.TASKS`.
    view : {"table", "grid", "sweep", "response", "statistics", "runtime"}
        How the report shows it.
    """

    title: str
    description: str
    datasets: tuple[str, ...]
    rows: Mapping[str, Row]
    splits: str = "all"
    task: str = "train"
    view: str = "table"


def experiment_names() -> list[str]:
    """Return the names of all experiments, those of the paper first."""
    import gpatcher.bench.experiments as folder

    names = [module.name for module in pkgutil.iter_modules(folder.__path__)]
    first = [name for name in folder.ORDER if name in names]
    return first + [name for name in names if name not in first]


def load_experiment(name: str) -> Experiment:
    """Return an experiment by its name."""
    names = experiment_names()
    if name not in names:
        close = difflib.get_close_matches(name, names)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise InputError(f"unknown experiment {name!r}; {hint}choose one of {', '.join(names)}")
    experiment: Experiment = import_module(f"gpatcher.bench.experiments.{name}").EXPERIMENT
    return experiment


def paper_figures(experiment: str) -> dict[str, Any]:
    """Return the paper's row → data set → [mean, standard deviation]; of ``statistics``, data set → measure → value."""
    figures: dict[str, Any] = json.loads((files("gpatcher.bench") / "paper.json").read_text())
    return dict(figures.get(experiment, {}))


def dataset_title(dataset: str) -> str:
    """Return the title of a data set in tables; of most generators, the first argument, such as ``φ = -0.9``."""
    from gpatcher.datasets.registry import NAMED

    kind, _, argument = dataset.partition(":")
    if dataset in NAMED or argument in NAMED:
        return NAMED[argument or dataset].name
    if kind == "neighbour_sum":
        return "neighbour sum"
    first = argument.partition(",")[0] or dataset
    return first.replace("phi", "φ").replace("=", " = ")


def row_title(row: str) -> str:
    """Return the title of a row in tables, such as ``GCN-JKNet`` or ``p = 8, K = 10``."""
    return TITLES.get(row, row.replace(" k=", ", K = ").replace("p=", "p = "))


def select(names: Sequence[str] | None, available: Sequence[str], what: str) -> list[str]:
    """Return the selected ones of ``available``, in their order; an argument such as ``phi=0.5`` names a generator."""
    if names is None:
        return list(available)
    selected = set()
    for name in (name.strip().lower() for name in names):
        matching = [t for t in available if name in (t, *t.partition(":")[2].split(","))] if name else []
        if not matching:
            raise InputError(f"unknown {what} {name!r}; choose from {', '.join(available)}")
        selected.update(matching)
    return [name for name in available if name in selected]


def is_generated(dataset: str) -> bool:
    """Return whether this is a generator of which each split draws another graph."""
    from gpatcher.datasets.synthetic import GENERATORS

    return dataset.partition(":")[0] in GENERATORS and "seed=" not in dataset


def load_source(dataset: str, split: int, root: Path | None) -> Graph:
    """Load the graph of a job; of a generator, the graph drawn for this split."""
    from gpatcher.datasets.load import load_graph

    if is_generated(dataset):
        return load_graph(f"{dataset}{',' if ':' in dataset else ':'}seed={split}", root)
    return load_graph(dataset, root)


def plan_splits(dataset: str, splits: str, seed: int, graph: Graph) -> list[tuple[int, int]]:
    """Return (split, seed) of each run that ``splits`` asks for; a generator draws another graph for each."""
    from gpatcher.graph.split import parse_splits, plan_runs

    if is_generated(dataset):
        return [(k, k) for k in parse_splits(_DRAWS if splits.strip() == "all" else splits)]
    return plan_runs(graph, splits, seed)


def plan_jobs(
    name: str,
    *,
    datasets: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    splits: str | None = None,
    seed: int = 0,
    shipped: Shipped | None = None,
    root: Path | None = None,
) -> tuple[list[Job], list[str]]:
    """Return the jobs of an experiment, and a sentence for each data set that cannot be loaded.

    A data set that was asked for by name and cannot be loaded is an error.
    """
    experiment = load_experiment(name)
    selected = select(rows, list(experiment.rows), "model")
    chosen = select(datasets, experiment.datasets, "data set")
    # after the names are checked: it loads torch
    from gpatcher.runs.run import Job
    from gpatcher.runs.settings import resolve_settings

    jobs: list[Job] = []
    notes: list[str] = []
    for dataset in chosen:
        runs = [(0, seed)]
        if experiment.task != "runtime":
            try:
                graph = load_source(dataset, 0, root)
            except InputError as error:
                if datasets is not None:
                    raise
                notes.append(f"{dataset} is not run: {error}")
                continue
            if experiment.task != "statistics":
                runs = plan_splits(dataset, experiment.splits if splits is None else splits, seed, graph)
        for row in selected:
            about = experiment.rows[row]
            settings: dict[str, Any] = dict(about.changes)
            trials = None
            ablation = dict(about.ablation)
            if experiment.task in ("train", "response"):
                settings, trials = resolve_settings(
                    about.model, dataset, about.preset, shipped=shipped, changes=about.changes
                )
                if ablation.get("induced"):  # the graph depends on GPatcher's settings too
                    ablation["induced"] = resolve_settings("gpatcher", dataset, shipped=shipped)[0]
            jobs += [
                Job(name, dataset, about.model, settings, split, run_seed, row, trials, ablation, experiment.task)
                for split, run_seed in runs
            ]
    return jobs, notes
