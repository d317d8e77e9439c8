"""Nodes that came after a cut in time: predicted as unseen nodes, and scored where they have a label."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpatcher.errors import InputError, counted, some
from gpatcher.estimator.base import NodeModel, NodeRegressor
from gpatcher.graph.split import is_labelled
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.runs.predict import logit_columns, typed_ids
from gpatcher.tables.result import Tables
from gpatcher.tables.unseen import read_new_tables
from gpatcher.tables.write import write_table
from gpatcher.training.metrics import measure_all

LATER = "later.parquet"


@dataclass(frozen=True, eq=False)
class LaterNodes:
    """What lies after a cut: a sentence, and the nodes with their classes, -1 where unknown, or numbers, NaN there."""

    note: str
    unseen: UnseenNodes | None = None
    y: npt.NDArray[Any] | None = None

    @classmethod
    def read(cls, tables: Tables) -> LaterNodes | None:
        """Read the nodes after the cut of these tables, None without one."""
        if tables.cut is None:
            return None
        note = tables.cut.describe()
        if tables.cut.later is None:
            return cls(note)
        graph = tables.graph
        try:
            options = vars(tables.options)
            ids, x, edge_index, weights = read_new_tables(graph, *tables.cut.later, tables.encoder, options)
            unseen = UnseenNodes.join(graph, edge_index, x, len(ids), weights=weights, node_ids=ids)
        except InputError as error:
            return cls(f"{note} Nodes after it cannot be predicted: {error}.")
        position = {str(key): v for v, key in enumerate(ids.tolist())}
        y = np.full(len(ids), np.nan if graph.is_regression else -1)
        names = {name: c for c, name in enumerate(graph.classes)}
        new_classes = set()
        for key, label in tables.cut.later_labels(graph):
            if graph.is_regression:
                y[position[key]] = _number(label)
                continue
            y[position[key]] = names.get(label, -1)
            new_classes |= {label} - names.keys()
        if new_classes:
            note += f" Classes that only nodes after it have are not scored: {some(sorted(new_classes))}."
        return cls(note, unseen, y[unseen.predicted()])

    def score(self, classifier: NodeModel, folder: Path) -> list[str]:
        """Write the predictions of the later nodes; return sentences on what was cut and how good they are."""
        if self.unseen is None or self.y is None:
            return [self.note]
        chosen = self.unseen.predicted()
        try:
            logits = classifier.decision_function(self.unseen)[chosen]
        except InputError as error:
            return [self.note, f"Nodes after the cut cannot be predicted: {error}."]
        ids: Any = np.asarray(self.unseen.node_ids)[chosen]
        parts = np.zeros(len(logits), np.int8)
        columns = logit_columns(classifier, logits, typed_ids(self.unseen.graph, ids), self.y, parts)
        del columns["part"]
        write_table(columns, folder / LATER)
        labelled = is_labelled(self.y)
        found = f"Predictions for {counted(len(logits), 'node')} after the cut, as unseen nodes, are in {LATER}."
        if not labelled.any():
            return [self.note, found]
        count = counted(int(labelled.sum()), "labelled node")
        if isinstance(classifier, NodeRegressor):
            figures = classifier.task_.measure_all(logits[labelled], self.y[labelled])
            r2 = "not defined" if figures["r2"] is None else f"{figures['r2']:.3f}"
            return [self.note, f"{found} On {count} among them: R² {r2}, RMSE {figures['rmse']:.4g}."]
        figures = measure_all(self.y[labelled], classifier.calibration_.probability(logits[labelled]))
        auc = "" if figures.get("roc_auc") is None else f", ROC-AUC {figures['roc_auc']:.1%}"
        return [self.note, f"{found} On {count} among them: accuracy {figures['accuracy']:.1%}{auc}."]


def _number(text: str) -> float:
    """Return a label as a number; NaN if it is not a finite number, which is not scored."""
    try:
        value = float(text)
    except ValueError:
        return np.nan
    return value if np.isfinite(value) else np.nan
