"""What is to be run: presets (one per table or figure), their rows, and the jobs they ask for.

A new data set: an entry in `gpatcher.datasets.registry.NAMED`, then its key in a preset's ``datasets``.
A new preset: one file in `gpatcher.bench.experiments` with a `Preset` called ``PRESET``; its name is the file's.
A new model: one file in `gpatcher.baselines`; its name is the file's.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpatcher.baselines import baseline_titles
from gpatcher.errors import InputError

if TYPE_CHECKING:
    from gpatcher.graph.graph import Graph

Cells = dict[str, dict[str, list[float]]]  # row → data set → mean and standard deviation, %
Tuned = dict[str, dict[str, dict[str, Any]]]  # data set → model → {"config", "trials", ...}
PAPER_DATASETS = ("texas", "cornell", "wisconsin", "chameleon", "squirrel", "actor", "cora", "citeseer", "pubmed")

# all models and what they are called; the name of a new one is its title
TITLES = baseline_titles() | {"fast": "Fast-GPatcher", "gpatcher": "GPatcher"}


@dataclass(frozen=True)
class Row:
    """One row of a table: a model, and what is particular about it here.

    Parameters
    ----------
    model : a name of `gpatcher.runs.models.MODELS`
    options : parameters that replace those of its settings
    base : where its settings come from: None for tuned or shipped ones, ``paper`` for the paper's plain reading
    """

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    base: str | None = None


@dataclass(frozen=True)
class Experiment:
    """A table or a figure: what is run for it, and the paper's own figures where it has them.

    Parameters
    ----------
    title, about : for people; ``about`` is one sentence
    datasets : keys of `gpatcher.datasets.registry.NAMED` or generators such as ``csbm:phi=0.5``, of which each split draws
        another graph
    rows : rows of the table by their names
    splits : "all", or numbers such as "0,1,2"
    task : what a job does: a name of `gpatcher.bench.jobs.TASKS`
    view : how the report shows it: table, grid, dial, response, statistics or runtime
    """

    title: str
    about: str
    datasets: tuple[str, ...]
    rows: Mapping[str, Row]
    splits: str = "all"
    task: str = "train"
    view: str = "table"


@dataclass(frozen=True)
class Job:
    """One run; its id is a hash of all that it depends on.

    ``tuned`` tells of how many trials the configuration is the best; None where it was not tuned.
    """

    preset: str
    task: str
    dataset: str
    row: str
    model: str
    config: Mapping[str, Any]
    split: int
    seed: int
    tuned: int | None = None

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits."""
        parts = [self.preset, self.task, self.dataset, self.row, self.model, self.config, self.split, self.seed]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def experiment_names() -> list[str]:
    """Return the names of all presets, those of the paper first."""
    import gpatcher.bench.experiments as folder

    found = [module.name for module in pkgutil.iter_modules(folder.__path__)]
    first = [name for name in folder.ORDER if name in found]
    return first + [name for name in found if name not in first]


def load_experiment(name: str) -> Experiment:
    """Return a preset by its name."""
    names = experiment_names()
    if name not in names:
        close = difflib.get_close_matches(name, names)
        meant = f"did you mean {' or '.join(close)}? There" if close else "there"
        raise InputError(f"there is no preset {name!r}; {meant} are {', '.join(names)}")
    preset: Experiment = import_module(f"gpatcher.bench.experiments.{name}").PRESET
    return preset


def paper_figures(preset: str) -> dict[str, Any]:
    """Return the paper's own figures for a preset: row → data set → [mean, standard deviation]; empty if it has none.

    For ``statistics``: data set → measure → value.
    """
    found: dict[str, Any] = json.loads((files("gpatcher.bench") / "paper.json").read_text())
    return dict(found.get(preset, {}))


def read_tuned(path: Path | None = None) -> Tuned:
    """Return tuned configurations, by default those of the package; `gpatcher.bench.tuning` writes such files."""
    if path is None:
        shipped: Tuned = json.loads((files("gpatcher.bench") / "tuned.json").read_text())
        return shipped
    path = path / "best.json" if path.is_dir() else path
    try:
        found: Tuned = json.loads(path.read_text())
        for models in found.values():
            for entry in models.values():
                dict(entry["config"]), int(entry["trials"])
    except OSError:
        raise InputError(f"there is no file {path}; 'gpatcher tune' writes one called best.json") from None
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise InputError(f"{path} is no file of tuned configurations ({error}); 'gpatcher tune' writes one") from None
    return found


def chosen(wanted: Sequence[str] | None, there: Sequence[str], what: str) -> list[str]:
    """Return those of ``there`` that are wanted, in their order; all by default.

    A generator may be named by one of its arguments.

    Examples
    --------
    >>> chosen(["phi=0.5"], ["csbm:phi=-0.5,n=100", "csbm:phi=0.5,n=100"], "data set")
    ['csbm:phi=0.5,n=100']
    """
    if wanted is None:
        return list(there)
    found = set()
    for name in (name.strip().lower() for name in wanted):
        matching = [t for t in there if name in (t, *t.partition(":")[2].split(","))] if name else []
        if not matching:
            raise InputError(f"there is no {what} {name!r} here; there are {', '.join(there)}")
        found.update(matching)
    return [t for t in there if t in found]


def dataset_title(dataset: str) -> str:
    """Return what a data set is called in tables.

    Examples
    --------
    >>> dataset_title("chameleon-filtered"), dataset_title("csbm:phi=-0.9,n=1000"), dataset_title("n=100")
    ('Chameleon-filtered', 'φ = -0.9', 'n = 100')
    """
    from gpatcher.datasets.registry import NAMED

    if dataset in NAMED:
        return NAMED[dataset].name
    first = dataset.partition(":")[2].partition(",")[0] or dataset
    return first.replace("phi", "φ").replace("=", " = ")


def row_title(row: str) -> str:
    """Return what a row is called in tables.

    Examples
    --------
    >>> row_title("jknet"), row_title("p=8 k=10"), row_title("shuffled")
    ('GCN-JKNet', 'p = 8, K = 10', 'shuffled')
    """
    return TITLES.get(row, row.replace(" k=", ", K = ").replace("p=", "p = "))


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


def plan_jobs(
    name: str,
    *,
    datasets: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    splits: str | None = None,
    seed: int = 0,
    tuned: Tuned | None = None,
    root: Path | None = None,
) -> tuple[list[Job], list[str]]:
    """Return the jobs of a preset, and a sentence for each data set that cannot be had.

    A data set that was asked for by name and cannot be had is an error.
    """
    from gpatcher.graph.split import plan_runs
    from gpatcher.runs.models import settings

    preset = load_experiment(name)
    picked_rows = chosen(rows, list(preset.rows), "model")
    jobs: list[Job] = []
    notes: list[str] = []
    for dataset in chosen(datasets, preset.datasets, "data set"):
        if preset.task == "runtime":
            runs = [(0, seed)]
        elif is_generated(dataset):
            numbers = splits or preset.splits
            runs = [(k, k) for k in _numbers("0,1,2,3,4" if numbers.strip() == "all" else numbers)]
        else:
            try:
                graph = load_source(dataset, 0, root)
            except InputError as error:
                if datasets is not None:
                    raise
                notes.append(f"{dataset} is not run: {error}")
                continue
            runs = [(0, seed)] if preset.task == "statistics" else plan_runs(graph, splits or preset.splits, seed)
        for row in picked_rows:
            about = preset.rows[row]
            trains = preset.task in ("train", "response")
            config, trials = settings(about.model, dataset, tuned or {}, about.base) if trains else ({}, None)
            config = {**config, **about.options}
            if config.get("induced"):  # the graph depends on GPatcher's settings too
                config["induced"] = settings("gpatcher", dataset, tuned or {})[0]
            jobs += [
                Job(name, preset.task, dataset, row, about.model, config, split, run_seed, trials)
                for split, run_seed in runs
            ]
    return jobs, notes


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise InputError(f"splits must be 'all' or numbers such as 0,1, got {text!r}")
    return numbers
