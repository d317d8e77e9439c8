"""What the records of a bench say: runs by row and data set, ranks, comparisons, and a verdict in words."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gpatcher.bench.plan import Experiment, dataset_title, experiment_names, load_experiment, paper_figures, row_title
from gpatcher.bench.statistics import Cell, Ranks, paired_p, rank, sum_up
from gpatcher.datasets.registry import NAMED
from gpatcher.errors import InputError, counted
from gpatcher.runs.records import Record, read_records

NOT_RUN = "not run"
OURS = "gpatcher"
TWIN = "fast"  # GPatcher too, by another extractor: no baseline


@dataclass(frozen=True, eq=False)
class Runs:
    """The runs of one row on one data set, all with one configuration (the one recorded last)."""

    records: list[Record]
    other: int  # runs with earlier configurations, which are not shown

    @cached_property
    def by_run(self) -> dict[tuple[int, int], float]:
        """(split, seed) → test result."""
        return {(r["split"], r["seed"]): r["test"] for r in self.records if r.get("test") is not None}

    @cached_property
    def cell(self) -> Cell | None:
        """The test results summed up; None where there are none."""
        return sum_up(list(self.by_run.values())) if self.by_run else None

    @property
    def splits(self) -> str:
        """Eight digits that tell the splits of these runs from any others."""
        hashes = sorted({r["split_hash"] for r in self.records})
        return hashes[0][:8] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:8]

    def mean(self, name: str) -> float:
        """Return the mean of a field over the runs."""
        return float(np.mean([r[name] for r in self.records]))


@dataclass(frozen=True, eq=False)
class Board:
    """One preset as the records have it."""

    name: str
    preset: Experiment
    runs: dict[tuple[str, str], Runs]  # (row, data set)
    failures: list[Record]

    @property
    def rows(self) -> list[str]:
        """The rows that the preset has, in its order."""
        return list(self.preset.rows)

    @property
    def datasets(self) -> list[str]:
        """The data sets that the preset has, in its order."""
        return list(self.preset.datasets)

    @property
    def is_comparison(self) -> bool:
        """Whether it compares models with GPatcher, and is no ablation."""
        return OURS in self.rows and "mlp" in self.rows

    @property
    def is_table(self) -> bool:
        """Whether its cells are test results."""
        return self.preset.view in ("table", "dial", "grid")

    def cell(self, row: str, dataset: str) -> Cell | None:
        """Return the result of a row on a data set; None where it was not run."""
        runs = self.runs.get((row, dataset))
        return None if runs is None else runs.cell

    def run_counts(self, dataset: str) -> str:
        """Return the number of runs in the cells of a data set; empty where there are none."""
        counts = sorted({c.count for row in self.rows if (c := self.cell(row, dataset)) is not None})
        return "" if not counts else str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"

    def split_codes(self, dataset: str) -> str:
        """Return the code of the splits of a data set; empty where nothing was run."""
        codes = {self.runs[row, dataset].splits for row in self.rows if (row, dataset) in self.runs}
        return "" if not codes else codes.pop() if len(codes) == 1 else f"{len(codes)} different"

    @cached_property
    def paper(self) -> dict[str, Any]:
        """The paper's figures, in %."""
        return paper_figures(self.name)

    def printed(self, row: str, dataset: str) -> tuple[float, float] | None:
        """Return the paper's mean and standard deviation for a cell, in %."""
        found = self.paper.get(row, {}).get(dataset)
        return None if found is None else (found[0], found[1])

    def ranks(self, datasets: Collection[str] | None = None, without: str | None = None) -> Ranks | None:
        """Rank the rows over the data sets, or over some of them; ``without`` leaves a row out."""
        means: dict[str, dict[str, float]] = {}
        for row in (row for row in self.rows if row != without):
            cells = {d: self.cell(row, d) for d in self.datasets if datasets is None or d in datasets}
            means[row] = {d: cell.mean for d, cell in cells.items() if cell is not None}
        return rank(means)

    @cached_property
    def budgets(self) -> dict[str, int]:
        """The number of trials on each data set on which all models that were run had the same."""
        found: dict[str, int] = {}
        for dataset in self.datasets:
            trials = {r["tuned"] for (_, d), runs in self.runs.items() if d == dataset for r in runs.records}
            if len(trials) == 1 and None not in trials:
                found[dataset] = trials.pop()
        return found


def is_leaky(dataset: str) -> bool:
    """Return whether copies of test nodes are in train."""
    return dataset in NAMED and NAMED[dataset].leaky


def metric_of(dataset: str) -> str:
    """Return what a data set's results are: accuracy or roc_auc."""
    return NAMED[dataset].metric if dataset in NAMED else "accuracy"


def read_bench(folder: Path) -> list[Board]:
    """Read all records.jsonl at or below a folder; the last record of a job counts."""
    paths = [folder] if folder.is_file() else sorted(folder.rglob("records.jsonl"))
    latest: dict[str, Record] = {}
    for path in paths:
        for record in read_records(path):
            if "job" in record:  # `gpatcher fit` writes records too; they belong to no bench
                latest.pop(record["job"], None)
                latest[record["job"]] = record
    if not latest:
        raise InputError(
            f"there are no records of 'gpatcher bench' at or below {folder}; run e.g. gpatcher bench table1"
        )
    grouped: dict[str, dict[tuple[str, str], list[Record]]] = defaultdict(lambda: defaultdict(list))
    failures: dict[str, list[Record]] = defaultdict(list)
    for record in latest.values():
        if record["error"] is None:
            grouped[record["preset"]][record["row"], record["dataset"]].append(record)
        else:
            failures[record["preset"]].append(record)
    boards = []
    for name in experiment_names():
        if name in grouped or name in failures:
            runs = {key: _one_configuration(found) for key, found in grouped[name].items()}
            boards.append(Board(name, load_experiment(name), runs, failures[name]))
    if not boards:
        raise InputError(f"the records below {folder} are of presets that are not there: {', '.join(grouped)}")
    return boards


def _one_configuration(records: list[Record]) -> Runs:
    last = records[-1]["config_hash"]
    kept = [r for r in records if r["config_hash"] == last]
    return Runs(sorted(kept, key=lambda r: (r["split"], r["seed"])), len(records) - len(kept))


def head(dataset: str) -> str:
    """Return the title of a data set over a column: † where it leaks, and the metric where it is not accuracy."""
    auc = " (AUC)" if metric_of(dataset) == "roc_auc" else ""
    return dataset_title(dataset) + (" †" if is_leaky(dataset) else "") + auc


def compare(board: Board, a: str, b: str, dataset: str) -> tuple[float, float | None, int] | None:
    """Return mean difference, p-value and number of pairs of two rows on a data set; None where one was not run."""
    ours, theirs = board.runs.get((a, dataset)), board.runs.get((b, dataset))
    if ours is None or theirs is None:
        return None
    shared = [key for key in ours.by_run if key in theirs.by_run]
    if not shared:
        return None
    x, y = ([runs.by_run[key] for key in shared] for runs in (ours, theirs))
    train, _, test = ours.records[0]["split_sizes"]
    several = len({r["split_hash"] for r in ours.records}) > 1
    return float(np.mean(x) - np.mean(y)), paired_p(x, y, test / train if several else 0.0), len(shared)


def verdict(boards: Sequence[Board]) -> list[str]:
    """Say plainly how GPatcher stands, and what the comparison lacks."""
    lines = []
    for board in boards:
        if not board.is_comparison:
            continue
        whole = board.ranks()
        if whole is None or OURS not in whole.models:
            lines.append(f"{board.name}: too few cells were run to rank the models.")
        else:
            lines.append(f"{board.name}: {standing(whole)}")
            if next(iter(whole.mean)) == TWIN and (alone := board.ranks(whole.datasets, without=TWIN)):
                lines.append(f"{board.name}, against the baselines alone: {standing(alone)}")
            lines += [f"{board.name}: not ranked: {reason}." for reason in whole.left_out]
            parts = {
                "without leaky data sets": {d for d in whole.datasets if not is_leaky(d)},
                "where all models were tuned alike": {d for d in whole.datasets if d in board.budgets},
            }
            for where, datasets in parts.items():
                found = board.ranks(datasets) if 0 < len(datasets) < len(whole.datasets) else None
                if found is not None and OURS in found.models:
                    lines.append(f"{board.name}, {where}: {standing(found)}")
        lines.append(f"{board.name}: {_tuning(board)}")
    missing = [
        f"{board.name}: {dataset_title(d)}"
        for board in boards
        for d in board.datasets
        if board.preset.view == "table" and not any((row, d) in board.runs for row in board.rows)
    ]
    if missing:
        lines.append(f"Not run: {'; '.join(missing)}.")
    older = sum(runs.other for board in boards for runs in board.runs.values())
    if older:
        lines.append(f"{older} runs with configurations that were replaced since are not shown.")
    failed = sum(len(board.failures) for board in boards)
    if failed:
        lines.append(f"{failed} jobs failed; they are listed below.")
    return lines or ["These presets compare no models with GPatcher."]


def standing(found: Ranks) -> str:
    """Say where GPatcher stands, and how far behind the first it is."""
    first, place = next(iter(found.mean)), list(found.mean).index(OURS) + 1
    sets = counted(len(found.datasets), "data set")
    own = f"mean rank {found.mean[OURS]:.2f} of {len(found.models)} models over {sets}"
    level = [row_title(m) for m, mean in found.mean.items() if m != OURS and abs(mean - found.mean[OURS]) < 1e-9]
    if found.mean[OURS] <= found.mean[first] + 1e-9:
        return f"GPatcher is first{', level with ' + ', '.join(level) if level else ''}, {own}."
    behind, error = found.gap(OURS)
    text = f"GPatcher is NOT first but number {place}, {own}; {row_title(first)} has {found.mean[first]:.2f}. "
    if len(found.datasets) < 2:
        return text + "One data set gives no standard error."
    how = "within" if behind <= error else "more than"
    return text + f"It is {behind:.2f} behind, {how} one standard error ({error:.2f})."


def _tuning(board: Board) -> str:
    trials = [r["tuned"] for runs in board.runs.values() for r in runs.records]
    if not any(trials):
        return "nothing was tuned; baselines have the protocol's settings, GPatcher those shipped for the data set."
    alike = ", ".join(f"{dataset_title(d)} {count}" for d, count in board.budgets.items())
    text = f"trials on validation data, the same for every model: {alike}. " if alike else ""
    others = [
        dataset_title(d) for d in board.datasets if d not in board.budgets and any(d == on for _, on in board.runs)
    ]
    if others:
        text += f"Models were not tuned alike, or not at all, on {', '.join(others)}."
    return text.strip()
