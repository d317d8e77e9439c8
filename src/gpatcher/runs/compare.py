"""Runs compared on the test nodes that all of them have, from the predictions in their folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError, counted, some
from gpatcher.runs.folder import PREDICTIONS, RECORDS
from gpatcher.runs.paired import PairedDifference, mean_interval, paired_difference, paired_errors, wilson
from gpatcher.runs.records import read_records
from gpatcher.training.metrics import REGRESSION_METRICS
from gpatcher.trust.calibration import reliability

_QUANTILES = 5  # of numbers, by which errors are grouped


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A run on the common test nodes."""

    name: str  # of its folder
    model: str
    test: int  # all its test nodes with a label
    predicted: npt.NDArray[Any]  # class or number of each common node
    probability: FloatArray | None  # shape (nodes, C); None for numbers
    figures: dict[str, float]  # accuracy and calibration_error, or mae, rmse and r2 of numbers
    interval: tuple[float, float]  # 95 %, of the first figure
    difference: PairedDifference | None  # from the first run; None for the first itself


@dataclass(frozen=True, eq=False)
class RunComparison:
    """Several runs, compared with the first on the same nodes."""

    runs: list[ComparedRun]
    ids: npt.NDArray[Any]  # of the common test nodes
    y: npt.NDArray[Any]  # their classes or numbers
    classes: tuple[str, ...]  # none in a regression

    def disputed(self) -> IntArray:
        """Return the positions of the nodes on which the runs do not agree, of numbers the largest difference first."""
        predicted = np.stack([run.predicted for run in self.runs])
        if self.classes:
            return np.flatnonzero((predicted != predicted[0]).any(0))
        spread = np.ptp(predicted, axis=0)
        return np.argsort(-spread, kind="stable")[: np.count_nonzero(spread)]

    def groups(self) -> tuple[list[str], IntArray]:
        """Return the names of groups of nodes, and the group of each node: classes, or quantiles of the numbers."""
        if self.classes:
            return list(self.classes), self.y
        borders = np.unique(np.quantile(self.y, np.linspace(0, 1, _QUANTILES + 1)[1:]))
        return [f"up to {border:.4g}" for border in borders], np.searchsorted(borders, self.y)


def compare_runs(folders: Sequence[Path]) -> RunComparison:
    """Compare runs on the test nodes with a label that all of them have; nodes are matched by their ids."""
    if len(folders) < 2:
        raise InputError(f"a comparison needs at least two runs, got {counted(len(folders), 'run')}")
    names = _names(folders)
    tables = [_test_nodes(folder) for folder in folders]
    numbers = not _classes(tables[0])
    for folder, table in zip(folders, tables, strict=True):
        if numbers == bool(_classes(table)):
            kinds = ("numbers", "classes") if numbers else ("classes", "numbers")
            raise InputError(f"{folders[0]} predicts {kinds[0]} and {folder} {kinds[1]}: they cannot be compared")
    common = tables[0]["id"].unique()
    for table in tables[1:]:
        if table["id"].type != common.type:
            raise InputError(
                f"the ids are {common.type} in {folders[0]} and {table['id'].type} in another run: not the same nodes"
            )
        common = common.filter(pa.compute.is_in(common, table["id"].unique()))
    if len(common) < 1 + numbers:
        found = f"{len(common)} test node" if len(common) else "no test node"
        raise InputError(
            f"{some(names)} have {found} in common, so they cannot be compared; train them with the same split: the "
            "same tables and --seed, or a --split-column"
        )
    rows = [table.take(pa.compute.index_in(common, table["id"])) for table in tables]
    labels = _column(rows[0], "label", numbers)
    for folder, table in zip(folders[1:], rows[1:], strict=True):
        differ = np.flatnonzero(_column(table, "label", numbers) != labels)
        if differ.size:
            at = int(differ[0])
            raise InputError(
                f"node {common[at]} has the label {labels[at].item()!r} in {folders[0]} and "
                f"{table['label'][at].as_py()!r} in {folder}: the runs learned different things and cannot be compared"
            )
    classes = tuple(sorted({name for table in rows for name in _classes(table)}))
    y: npt.NDArray[Any] = labels if numbers else np.searchsorted(classes, labels)
    runs: list[ComparedRun] = []
    for folder, name, table, whole in zip(folders, names, rows, tables, strict=True):
        known = (name, _model(folder), len(whole))
        compare = _compare_numbers if numbers else _compare_classes
        runs.append(ComparedRun(*known, *compare(table, y, classes, runs[0].predicted if runs else None)))
    return RunComparison(runs, np.asarray(common.to_pylist()), y, classes)


def _column(table: pa.Table, name: str, numbers: bool) -> npt.NDArray[Any]:
    return np.asarray(table[name].to_numpy(zero_copy_only=False).astype(float if numbers else str))


def _compare_classes(table: pa.Table, y: IntArray, classes: tuple[str, ...], first: IntArray | None) -> tuple[Any, ...]:
    """Return the fields of a `ComparedRun` from its predictions; ``first`` are those of the first run."""
    predicted = np.searchsorted(classes, _column(table, "predicted", False))
    probability = np.zeros((len(y), len(classes)))
    for one in _classes(table):
        probability[:, classes.index(one)] = table[f"{_PROBABILITY}{one}"].to_numpy()
    right = predicted == y
    figures = {"accuracy": float(right.mean()), "calibration_error": reliability(probability, y).error}
    difference = None if first is None else paired_difference(right, first == y)
    return predicted, probability, figures, wilson(int(right.sum()), len(y)), difference


def _compare_numbers(table: pa.Table, y: FloatArray, _: tuple[str, ...], first: FloatArray | None) -> tuple[Any, ...]:
    """Return the fields of a `ComparedRun`, see `_compare_classes`; all labels may be equal, then R² is NaN."""
    predicted = _column(table, "predicted", True)
    measured = {name: REGRESSION_METRICS[name](y, predicted) for name in ("mae", "rmse", "r2")}
    figures = {name: float("nan") if value is None else value for name, value in measured.items()}
    errors = np.abs(predicted - y)
    difference = None if first is None else paired_errors(errors, np.abs(first - y))
    return predicted, None, figures, mean_interval(errors), difference


_PROBABILITY = "probability_"


def _classes(table: pa.Table) -> list[str]:
    return [name.removeprefix(_PROBABILITY) for name in table.column_names if name.startswith(_PROBABILITY)]


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the last parts of the paths that tell the folders apart."""
    paths = [folder.resolve() for folder in folders]
    if len(set(paths)) < len(paths):
        raise InputError(f"the same run is given twice: {some(map(str, folders))}")
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]


def _model(folder: Path) -> str:
    """Return the model of a run as `gpatcher fit --model` takes it."""
    records = read_records(folder / RECORDS) if (folder / RECORDS).is_file() else []
    return str(records[-1]["model"]) if records else "unknown"


def _test_nodes(folder: Path) -> pa.Table:
    """Return the predictions of the test nodes with a label."""
    path = folder / PREDICTIONS
    if not path.is_file():
        raise InputError(f"{folder} has no {PREDICTIONS}; 'gpatcher predict {folder} --out {path}' writes it")
    try:
        table = pq.read_table(path, page_checksum_verification=True)
        missing = {"id", "predicted", "label", "part"} - set(table.column_names)
        if missing:
            raise InputError(
                f"{path} lacks the column {min(missing)!r}; 'gpatcher predict {folder} --out {path}' writes it"
            )
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(
            f"{path} cannot be read ({error}); 'gpatcher predict {folder} --out {path}' writes it again"
        ) from None
    if "type" in table.column_names:  # an id may occur in several types
        key = pa.compute.binary_join_element_wise(table["type"].cast(pa.string()), table["id"].cast(pa.string()), " ")
        table = table.set_column(table.column_names.index("id"), "id", key)
    return table.filter((pa.compute.field("part") == "test") & pa.compute.field("label").is_valid())
