"""Patch aggregates: the input columns of trees and linear models.

The node's own columns, their score-weighted mean over the patch of each source, and the training labels of the other
members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.graph.split import is_labelled
from gpatcher.model.inputs import FeatureTable
from gpatcher.patches.base import Patches

_SVD_ROWS = 20_000  # nodes sampled to compute the singular vectors


def components(x: FeatureTable, count: int, seed: int = 0) -> FloatArray:
    """Return the leading right singular vectors of the features, shape (d, count); the identity if d ≤ count."""
    from sklearn.utils.extmath import randomized_svd

    if x.shape[1] <= count:
        return np.eye(x.shape[1], dtype=np.float32)
    rows = np.arange(x.shape[0])
    if len(rows) > _SVD_ROWS:
        rows = np.random.default_rng(seed).choice(rows, _SVD_ROWS, replace=False)
    matrix = x.take(torch.from_numpy(rows)).matrix()
    vectors = randomized_svd(matrix, count, n_iter=4, random_state=seed)[2]
    return np.ascontiguousarray(vectors.T, dtype=np.float32)


def member_weights(patches: Patches, n: int) -> sp.csr_array:
    """Return the scores of each patch without the node itself, absolute values summing to 1, shape (patches, n)."""
    mask = patches.index >= 0
    mask[:, 0] = False
    score = np.where(mask, patches.score, 0.0)
    score /= np.maximum(np.abs(score).sum(1, keepdims=True), 1e-12)
    indptr = np.concatenate([[0], mask.sum(1).cumsum()])
    return sp.csr_array((score[mask], patches.index[mask], indptr), shape=(len(mask), n))


def aggregate(
    own: FloatArray, weights: Sequence[sp.csr_array], rows: IntArray, labels: npt.NDArray[Any], prior: FloatArray
) -> FloatArray:
    """Return the aggregates of some nodes.

    Parameters
    ----------
    own : float array, shape (n, k)
        Columns of all nodes.
    weights : sequence of CSR array, shape (len(rows), n)
        Weights of the members of each node's patch, one array per source.
    rows : int array
        The nodes.
    labels : array, shape (n,)
        Training labels: classes, -1 where unknown, or standardised numbers, NaN where unknown. A node is not a member
        of its own patch here, so its label is never read.
    prior : float array, shape (C,)
        Fractions of the classes among all training nodes; the mean of numbers, with C = 1.

    Returns
    -------
    float32 array, shape (len(rows), k + S (k + C + 1))
        The own columns; for each of S sources, the mean of the members' columns, the class frequencies among the
        labelled members, or the mean of their numbers (the prior if there are none), and the labelled fraction of the
        patch.
    """
    known = is_labelled(labels)
    if labels.dtype.kind == "f":
        one_hot = np.nan_to_num(labels)[:, None].astype(np.float32)
    else:
        one_hot = np.asarray(F.one_hot(torch.as_tensor(np.array(labels)) + 1, len(prior) + 1)[:, 1:], dtype=np.float32)
    parts = [own[rows]]
    for weight in weights:
        labelled = np.asarray(weight @ known.astype(np.float32))[:, None]
        histogram = np.divide(weight @ one_hot, labelled, out=np.tile(prior, (len(rows), 1)), where=labelled > 0)
        parts += [weight @ own, histogram, labelled]
    return np.hstack(parts).astype(np.float32)
