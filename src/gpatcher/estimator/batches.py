"""Predictions of a patch model in batches on their own: any of them, in any order, equals that of all together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock

import numpy as np
import torch

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.model.gpatcher import Encoded, GPatcher
from gpatcher.model.inputs import FeatureTable
from gpatcher.training.loop import predict_logits
from gpatcher.training.task import Task

Batch = tuple[IntArray, Callable[[], FloatArray]]  # nodes, and what computes their logits


def separate_batches(
    model: GPatcher, x: FeatureTable, task: Task, pieces: Sequence[IntArray], size: int
) -> list[Batch]:
    """Return the batches in which ``predict_logits(model, x, piece, size)`` predicts each piece.

    Parameters
    ----------
    model : GPatcher
        With one round and fixed patches.
    x : FeatureTable
    task : Classification or Regression
    pieces : sequence of int arrays
    size : int
        Nodes of a batch.
    """
    lock, encoded = Lock(), list[Encoded]()

    def table(count: int) -> FeatureTable | Encoded:
        if not model.encodes_once(x, count, size):
            return x
        with lock, torch.no_grad():
            if not encoded:
                encoded.append(model.eval().encode_all(x))
        return encoded[0]

    def logits(nodes: IntArray, count: int) -> FloatArray:
        return task.answer(predict_logits(model, table(count), nodes).numpy())

    return [
        (part, partial(logits, part, len(piece)))
        for piece in pieces
        for part in np.split(piece, range(size, len(piece), size))
    ]
