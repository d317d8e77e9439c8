"""The logits of all nodes of the graph, made in batches: in the background, or when a request needs them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError
from gpatcher.estimator.base import NodeModel
from gpatcher.graph.graph import Graph
from gpatcher.io import claimed, draft_of
from gpatcher.runs.predict import piecewise

_LOGITS, _MADE = "logits.npy", "made.npy"


class KnownLogits:
    """Logits of the nodes of a graph, bitwise those of ``gpatcher predict``, in files that all workers share.

    Where a model predicts nothing in batches on their own, all is made here and now.

    Parameters
    ----------
    classifier : NodeModel
    graph : Graph
    shared : Path
        Folder of the files, the same for all workers.
    """

    def __init__(self, classifier: NodeModel, graph: Graph, shared: Path) -> None:
        pieces = list(piecewise(graph, classifier.num_outputs))
        self._batches = classifier.decision_batches(graph, pieces)
        self._first = np.array([nodes[0] for nodes, _ in self._batches])
        self._locks = [threading.Lock() for _ in self._batches]
        self._shared = shared
        dtype = np.float32 if classifier.class_names_ else np.float64
        self._logits = _open(shared, _LOGITS, np.dtype(dtype), (graph.n, classifier.num_outputs))
        self._made = _open(shared, _MADE, np.dtype(np.bool_), (len(self._batches),))
        self._filler = threading.Thread(target=self._fill, name="gpatcher-fill", daemon=True)
        self._stopped = threading.Event()
        if len(self._batches) == len(pieces):
            self._make_all()

    @property
    def ready(self) -> float:
        """Fraction of the batches that are made."""
        return float(self._made.mean())

    def __getitem__(self, nodes: IntArray) -> FloatArray:
        for batch in np.unique(np.searchsorted(self._first, nodes, "right") - 1).tolist():
            self._make(batch)
        return np.array(self._logits[nodes])

    def start(self) -> None:
        """Make the rest in the background, in one of the workers."""
        if not self._made.all():
            self._filler.start()

    def close(self) -> None:
        """Stop after the batch that is being made."""
        self._stopped.set()
        if self._filler.is_alive():
            self._filler.join()

    def _fill(self) -> None:
        with claimed(self._shared, "fill") as mine:
            for batch in range(len(self._batches)) if mine else ():
                if self._stopped.is_set():
                    return
                try:
                    self._make(batch)
                except InputError:  # told to those who ask for these nodes
                    continue

    def _make_all(self) -> None:
        """Make all batches, unless another worker does."""
        while not self._made.all():
            with claimed(self._shared, "fill") as mine:
                for batch in range(len(self._batches)) if mine else ():
                    self._make(batch)
            if not mine:
                time.sleep(0.1)

    def _make(self, batch: int) -> None:
        if self._made[batch]:
            return
        with self._locks[batch]:
            if not self._made[batch]:
                nodes, predict = self._batches[batch]
                self._logits[nodes] = predict()
                self._made[batch] = True


def _open(folder: Path, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.memmap:
    """Map an array of zeros that the first worker creates; its pages take no room until they are written."""
    path = folder / name
    while not path.is_file():
        with claimed(folder, name) as mine:
            if mine and not path.is_file():
                with draft_of(path) as draft:
                    np.lib.format.open_memmap(draft, mode="w+", dtype=dtype, shape=shape).flush()
            elif not mine:
                time.sleep(0.1)
    return np.lib.format.open_memmap(path, mode="r+")
