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
from gpatcher.runs.paired import PairedDifference, paired_difference, wilson
from gpatcher.runs.records import read_records
from gpatcher.trust.calibration import reliability


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A run on the common test nodes."""

    name: str  # of its folder
    model: str
    test: int  # all its test nodes with a label
    predicted: IntArray  # class of each common node
    probability: FloatArray  # shape (nodes, C)
    accuracy: float
    interval: tuple[float, float]  # 95 %, by Wilson's formula
    calibration_error: float
    difference: PairedDifference | None  # from the first run; None for the first itself


@dataclass(frozen=True, eq=False)
class RunComparison:
    """Several runs, compared with the first on the same nodes."""

    runs: list[ComparedRun]
    ids: npt.NDArray[Any]  # of the common test nodes
    y: IntArray  # their classes
    classes: tuple[str, ...]

    def disputed(self) -> IntArray:
        """Return the positions of the nodes on which the runs do not agree."""
        predicted = np.stack([run.predicted for run in self.runs])
        return np.flatnonzero((predicted != predicted[0]).any(0))

    def by_class(self) -> tuple[IntArray, FloatArray]:
        """Return the number of nodes of each class, and the accuracy of each run on them, shape (runs, C)."""
        count = np.bincount(self.y, minlength=len(self.classes))
        right = [np.bincount(self.y[run.predicted == self.y], minlength=len(self.classes)) for run in self.runs]
        return count, np.stack(right) / np.maximum(count, 1)


def compare_runs(folders: Sequence[Path]) -> RunComparison:
    """Compare runs on the test nodes with a label that all of them have; nodes are matched by their ids."""
    if len(folders) < 2:
        raise InputError(f"a comparison needs at least two runs, got {counted(len(folders), 'run')}")
    names = _names(folders)
    tables = [_test_nodes(folder) for folder in folders]
    for folder, table in zip(folders, tables, strict=True):
        if not _classes(table):
            raise InputError(
                f"{folder} predicts numbers; runs are compared by their classes, see its page for R² and RMSE"
            )
    common = tables[0]["id"].unique()
    for table in tables[1:]:
        if table["id"].type != common.type:
            raise InputError(
                f"the ids are {common.type} in {folders[0]} and {table['id'].type} in another run: not the same nodes"
            )
        common = common.filter(pa.compute.is_in(common, table["id"].unique()))
    if not len(common):
        raise InputError(
            f"{some(names)} have no test node in common, so their accuracies cannot be compared; train them with the "
            "same split: the same tables and --seed, or a --split-column"
        )
    rows = [table.take(pa.compute.index_in(common, table["id"])) for table in tables]
    labels = rows[0]["label"].to_numpy(zero_copy_only=False).astype(str)
    for folder, table in zip(folders[1:], rows[1:], strict=True):
        differ = np.flatnonzero(table["label"].to_numpy(zero_copy_only=False).astype(str) != labels)
        if differ.size:
            at = int(differ[0])
            raise InputError(
                f"node {common[at]} has the label {str(labels[at])!r} in {folders[0]} and "
                f"{table['label'][at].as_py()!r} in {folder}: the runs learned different things and cannot be compared"
            )
    classes = tuple(sorted({name for table in rows for name in _classes(table)}))
    y = np.searchsorted(classes, labels)
    runs: list[ComparedRun] = []
    for folder, name, table, whole in zip(folders, names, rows, tables, strict=True):
        predicted = np.searchsorted(classes, table["predicted"].to_numpy(zero_copy_only=False).astype(str))
        probability = np.zeros((len(y), len(classes)))
        for one in _classes(table):
            probability[:, classes.index(one)] = table[f"{_PROBABILITY}{one}"].to_numpy()
        right = predicted == y
        runs.append(
            ComparedRun(
                name=name,
                model=_model(folder),
                test=len(whole),
                predicted=predicted,
                probability=probability,
                accuracy=float(right.mean()),
                interval=wilson(int(right.sum()), len(y)),
                calibration_error=reliability(probability, y).error,
                difference=paired_difference(right, runs[0].predicted == y) if runs else None,
            )
        )
    return RunComparison(runs, np.asarray(common.to_pylist()), y, classes)


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
    if not pa.types.is_string(table["predicted"].type):
        raise InputError(f"{folder} predicts numbers; 'gpatcher compare' compares runs that predict classes")
    if "type" in table.column_names:  # an id may occur in several types
        key = pa.compute.binary_join_element_wise(table["type"].cast(pa.string()), table["id"].cast(pa.string()), " ")
        table = table.set_column(table.column_names.index("id"), "id", key)
    return table.filter((pa.compute.field("part") == "test") & pa.compute.field("label").is_valid())
