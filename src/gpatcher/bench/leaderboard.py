"""Results of an experiment from its records: runs by row and data set, ranks, comparisons, and a summary in words."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gpatcher.bench.plan import Experiment, dataset_title, experiment_names, load_experiment, paper_figures, row_title
from gpatcher.bench.statistics import Ranks, paired_p, rank
from gpatcher.datasets.registry import NAMED
from gpatcher.errors import InputError, counted
from gpatcher.runs.records import Record, Summary, read_records, summarise
from gpatcher.runs.settings import AUTO

NOT_RUN = "not run"
_FEW_RUNS = 5  # of a cell; with fewer, the summary says that its ranks are not final
OURS = "gpatcher"
# the same method with other patches and rounds, and the portfolio: no baselines
OWN_MODELS = (OURS, "fast", "deep", AUTO)


@dataclass(frozen=True, eq=False)
class Runs:
    """The runs of one row on one data set, all with the settings that were recorded last."""

    records: list[Record]  # by split and seed
    outdated: int  # number of runs with earlier settings, which are not shown

    @cached_property
    def by_run(self) -> dict[tuple[int, int], float]:
        """Test result of each (split, seed)."""
        return {(r["split"], r["seed"]): r["test"] for r in self.records if r.get("test") is not None}

    @cached_property
    def summary(self) -> Summary | None:
        """Mean and spread of the test results; None if there are none."""
        return summarise(list(self.by_run.values())) if self.by_run else None

    @property
    def splits(self) -> str:
        """Hash of the splits, eight hexadecimal digits."""
        hashes = sorted({r["split_hash"] for r in self.records})
        return hashes[0][:8] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:8]

    def mean(self, name: str) -> float:
        """Return the mean of a field over the runs."""
        return float(np.mean([r[name] for r in self.records]))


@dataclass(frozen=True, eq=False)
class ResultTable:
    """The results of an experiment: one row per model or variant, one column per data set."""

    name: str
    experiment: Experiment
    runs: dict[tuple[str, str], Runs]  # of each (row, data set) that was run
    failures: list[Record]  # of the jobs that failed

    @property
    def records(self) -> list[Record]:
        """Records of all runs that are shown."""
        return [record for runs in self.runs.values() for record in runs.records]

    @property
    def rows(self) -> list[str]:
        """Rows of the experiment, in order."""
        return list(self.experiment.rows)

    @property
    def datasets(self) -> list[str]:
        """Data sets of the experiment, in order."""
        return list(self.experiment.datasets)

    def is_run(self, row: str) -> bool:
        """Whether a row was run on any data set."""
        return any((row, dataset) in self.runs for dataset in self.datasets)

    @property
    def is_comparison(self) -> bool:
        """Whether it compares GPatcher with baselines, rather than variants of GPatcher."""
        return OURS in self.rows and "mlp" in self.rows

    @property
    def is_table(self) -> bool:
        """Whether its cells are test results."""
        return self.experiment.view in ("table", "sweep", "grid")

    def cell(self, row: str, dataset: str) -> Summary | None:
        """Return the result of a row on a data set; None if it was not run."""
        runs = self.runs.get((row, dataset))
        return None if runs is None else runs.summary

    def best(self, dataset: str) -> float | None:
        """Return the largest mean on a data set; None if fewer than two rows were run."""
        means = [cell.mean for row in self.rows if (cell := self.cell(row, dataset)) is not None]
        return max(means) if len(means) > 1 else None

    def run_counts(self, dataset: str) -> str:
        """Return the number of runs per cell of a data set, such as ``10`` or ``3 to 10``; empty if none."""
        counts = sorted({c.count for row in self.rows if (c := self.cell(row, dataset)) is not None})
        return "" if not counts else str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"

    def split_codes(self, dataset: str) -> str:
        """Return the hash of the splits of a data set; empty if nothing was run."""
        codes = {self.runs[row, dataset].splits for row in self.rows if (row, dataset) in self.runs}
        return "" if not codes else codes.pop() if len(codes) == 1 else f"{len(codes)} different"

    @cached_property
    def paper(self) -> dict[str, Any]:
        """Results printed in the paper, in %."""
        return paper_figures(self.name)

    def printed(self, row: str, dataset: str) -> tuple[float, float] | None:
        """Return the mean and standard deviation that the paper prints for a cell, in %; None if it has none."""
        result = self.paper.get(row, {}).get(dataset)
        return None if result is None else (result[0], result[1])

    def ranks(self, datasets: Collection[str] | None = None, without: Collection[str] = ()) -> Ranks | None:
        """Rank the rows but some over all or some data sets; see `gpatcher.bench.statistics.rank`."""
        means: dict[str, dict[str, float]] = {}
        for row in (row for row in self.rows if row not in without):
            cells = {d: self.cell(row, d) for d in self.datasets if datasets is None or d in datasets}
            means[row] = {d: cell.mean for d, cell in cells.items() if cell is not None}
        return rank(means)

    @cached_property
    def budgets(self) -> dict[str, int]:
        """Tuning trials per model, for the data sets on which every model but the portfolio had the same number."""
        budgets: dict[str, int] = {}
        tuned = [record for record in self.records if record["model"] != AUTO]
        for dataset in self.datasets:
            trials = {record["trials"] for record in tuned if record["dataset"] == dataset}
            if len(trials) == 1 and None not in trials:
                budgets[dataset] = trials.pop()
        return budgets


def is_leaky(dataset: str) -> bool:
    """Return whether test nodes of a data set are duplicated in train."""
    return dataset in NAMED and NAMED[dataset].leaky


def metric_of(dataset: str) -> str:
    """Return the metric of a data set: accuracy, roc_auc, or r2 if numbers are predicted."""
    if dataset.partition(":")[0] in ("neighbour_sum", "component"):
        return "r2"
    return NAMED[dataset].metric if dataset in NAMED else "accuracy"


def head(dataset: str) -> str:
    """Return the column title of a data set: with † if it leaks, and the metric if it is not accuracy."""
    auc = {"roc_auc": " (AUC)", "r2": " (R²)"}.get(metric_of(dataset), "")
    return dataset_title(dataset) + (" †" if is_leaky(dataset) else "") + auc


def read_bench(folder: Path) -> list[ResultTable]:
    """Read the results of every experiment from the records.jsonl files in and below a folder, or from one file.

    If a job has several records, the last one counts. A cell that was not run may come from another experiment with the
    same row. The tables are in the order of the experiments.
    """
    paths = [folder] if folder.is_file() else sorted(folder.rglob("records.jsonl"))
    latest: dict[str, Record] = {}
    for path in paths:
        for record in read_records(path):
            if record["experiment"] != "fit":
                latest.pop(record["job"], None)
                latest[record["job"]] = record
    if not latest:
        raise InputError(f"{folder} has no records of 'gpatcher bench'; run e.g. gpatcher bench table1 first")
    grouped: dict[str, dict[tuple[str, str], list[Record]]] = defaultdict(lambda: defaultdict(list))
    failures: dict[str, list[Record]] = defaultdict(list)
    for record in latest.values():
        if record["error"] is None:
            grouped[record["experiment"]][record["row"], record["dataset"]].append(record)
        else:
            failures[record["experiment"]].append(record)
    experiments = {name: load_experiment(name) for name in experiment_names()}
    runs = {name: {key: _last_settings(r) for key, r in grouped.get(name, {}).items()} for name in experiments}
    tables = [
        ResultTable(name, experiment, _shared_cells(experiment, experiments, runs) | runs[name], failures[name])
        for name, experiment in experiments.items()
        if name in grouped or name in failures
    ]
    if not tables:
        unknown = ", ".join({**grouped, **failures})
        raise InputError(
            f"the records in {folder} are of unknown experiments: {unknown}; this version has "
            f"{', '.join(experiment_names())}"
        )
    return tables


def _shared_cells(
    experiment: Experiment,
    experiments: Mapping[str, Experiment],
    runs: Mapping[str, Mapping[tuple[str, str], Runs]],
) -> dict[tuple[str, str], Runs]:
    """Return the cells of an experiment that are on record for others with the same row; with the most runs of each."""
    shared = [
        ((row, dataset), Runs(found.records, outdated=0))
        for name, other in experiments.items()
        if other.task == experiment.task
        for (row, dataset), found in runs[name].items()
        if dataset in experiment.datasets and row in experiment.rows and experiment.rows[row] == other.rows.get(row)
    ]
    return dict(sorted(shared, key=lambda item: len(item[1].records)))


def _last_settings(records: list[Record]) -> Runs:
    last = records[-1]["settings_hash"]
    kept = [r for r in records if r["settings_hash"] == last]
    return Runs(sorted(kept, key=lambda r: (r["split"], r["seed"])), len(records) - len(kept))


def compare(table: ResultTable, a: str, b: str, dataset: str) -> tuple[float, float | None, int] | None:
    """Return the mean difference a - b, its p-value and the number of pairs, over the runs that both rows have.

    See `gpatcher.bench.statistics.paired_p`; None if the rows have no run in common.
    """
    first, second = table.runs.get((a, dataset)), table.runs.get((b, dataset))
    shared = [key for key in first.by_run if key in second.by_run] if first and second else []
    if not first or not second or not shared:
        return None
    x, y = ([runs.by_run[key] for key in shared] for runs in (first, second))
    train, _, test = first.records[0]["split_sizes"]
    several = len({r["split_hash"] for r in first.records}) > 1
    return float(np.mean(x) - np.mean(y)), paired_p(x, y, test / train if several else 0.0), len(shared)


def verdict(tables: Sequence[ResultTable]) -> list[str]:
    """Return in sentences how GPatcher ranks, how the models were tuned, and what is missing."""
    lines = []
    for table in (table for table in tables if table.is_comparison):
        lines += [*_ranking(table), f"{table.name}: {_tuning(table)}"]
    missing = [
        f"{table.name}: {dataset_title(d)}"
        for table in tables
        for d in table.datasets
        if table.experiment.view == "table" and not any((row, d) in table.runs for row in table.rows)
    ]
    if missing:
        lines.append(f"Not run: {'; '.join(missing)}.")
    outdated = sum(runs.outdated for table in tables for runs in table.runs.values())
    if outdated:
        lines.append(f"Not shown: {counted(outdated, 'run')} with settings that were replaced later.")
    failed = sum(len(table.failures) for table in tables)
    if failed:
        lines.append(f"Failed: {counted(failed, 'job')}, listed below.")
    return lines or ["These experiments do not compare GPatcher with other models."]


def _ranking(table: ResultTable) -> list[str]:
    """Return how GPatcher ranks over all data sets, against the baselines alone, and over fairer data sets."""
    ranks = table.ranks()
    if ranks is None or OURS not in ranks.models:
        return [f"{table.name}: too few cells were run to rank the models."]
    lines = [f"{table.name}: {rank_sentence(ranks)}"]
    cells = (table.cell(row, dataset) for row in ranks.models for dataset in ranks.datasets)
    fewest = min(cell.count for cell in cells if cell is not None)
    if fewest < _FEW_RUNS:
        lines.append(
            f"{table.name}: some cells are the mean of {counted(fewest, 'run')} only; more may change the ranks."
        )
    if ranks.first in OWN_MODELS[1:] and (baselines := table.ranks(ranks.datasets, without=OWN_MODELS[1:])):
        lines.append(f"{table.name}, against the baselines only: {rank_sentence(baselines)}")
    lines += [f"{table.name}: not ranked: {reason}." for reason in ranks.left_out]
    subsets = {
        "without leaky data sets": {d for d in ranks.datasets if not is_leaky(d)},
        "where all models had the same number of tuning trials": {d for d in ranks.datasets if d in table.budgets},
    }
    for name, datasets in subsets.items():
        subset = table.ranks(datasets) if 0 < len(datasets) < len(ranks.datasets) else None
        if subset is not None and OURS in subset.models:
            lines.append(f"{table.name}, {name}: {rank_sentence(subset)}")
    return lines


def rank_sentence(ranks: Ranks) -> str:
    """Return in a sentence how GPatcher ranks, and its distance to the first model."""
    means = ranks.mean
    mean, best = means[OURS], means[ranks.first]
    scope = f"of {len(ranks.models)} models over {counted(len(ranks.datasets), 'data set')} (mean rank {mean:.2f})"
    if mean <= best + 1e-9:
        ties = [row_title(m) for m, value in means.items() if m != OURS and abs(value - mean) < 1e-9]
        return f"GPatcher is first {scope}{', tied with ' + ', '.join(ties) if ties else ''}."
    text = f"GPatcher is number {list(means).index(OURS) + 1} {scope}; {row_title(ranks.first)} is first ({best:.2f}). "
    if len(ranks.datasets) < 2:
        return text + "One data set gives no standard error."
    gap, error = ranks.gap(OURS)
    within = "within" if gap <= error else "more than"
    return text + f"The gap of {gap:.2f} is {within} one standard error ({error:.2f})."


def _tuning(table: ResultTable) -> str:
    """Return in words how many trials the models were tuned with."""
    if not any(record["trials"] for record in table.records):
        return (
            "no model was tuned; baselines use the settings of the protocol, GPatcher those shipped for the data set."
        )
    equal = ", ".join(f"{dataset_title(d)} {count}" for d, count in table.budgets.items())
    text = f"tuning trials on validation data, the same for every model: {equal}. " if equal else ""
    if any(record["model"] == AUTO for record in table.records):
        text += f"{row_title(AUTO)} is not tuned. "
    run = {dataset for _, dataset in table.runs}
    others = [dataset_title(d) for d in table.datasets if d in run and d not in table.budgets]
    if others:
        text += f"On {', '.join(others)} the models had different numbers of trials or none."
    return text.strip()
