"""Memory that a run takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpatcher.graph.graph import Graph
from gpatcher.patches.base import Patches

if TYPE_CHECKING:
    from gpatcher.estimator.classifier import Prepared

_PROGRAM = 700 << 20  # the interpreter with all that is imported


def held_bytes(graph: Graph, prepared: Prepared) -> int:
    """Return the bytes that a run holds beside its batches: the program, arrays in memory, labels and their copies."""
    arrays = (graph.indptr, graph.indices, graph.weights, graph.y, graph.node_ids)
    held = sum(array.nbytes for array in arrays if array is not None and not isinstance(array, np.memmap))
    if isinstance(prepared.fixed, Patches):
        held += prepared.fixed.index.nbytes + prepared.fixed.score.nbytes
    return _PROGRAM + held + prepared.x.nbytes + 40 * graph.n
