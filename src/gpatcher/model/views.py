"""The patches of a batch, as the rounds of the model read them: gather, mean and histogram over members.

Shapes: b nodes in a batch, p positions in a patch, h hidden features, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from gpatcher.model.inputs import FeatureTable, SparseProduct


@dataclass(frozen=True, eq=False)
class PatchView:
    """The patches of a batch from one source."""

    index: Tensor  # (b, p): row of each member; arbitrary where mask is 0
    score: Tensor  # (b, p)
    mask: Tensor  # (b, p): 1 where a position has a member, else 0
    means: FeatureTable | None = None  # (b, rows): weights of the mean as a sparse matrix, if they are constant
    counts: FeatureTable | None = None  # (b, rows): weights of the label histogram
    members: SparseProduct | None = None  # (b p, rows): each position's member, for a faster gradient of `gather`
    compiled: bool = False  # whether compiled kernels encode and mix these patches
    first: int | None = None  # row of the first node, if the nodes of the batch are consecutive rows

    def ego(self, h: Tensor) -> Tensor:
        """Return the rows of ``h`` of the nodes themselves, shape (b, h)."""
        if self.first is not None:  # a slice has the cheaper gradient
            return h[self.first : self.first + len(self.index)]
        return h.index_select(0, self.index[:, 0])

    def weights(self, ego: bool, divide: bool) -> Tensor:
        """Return the scores, with or without the node's own, divided by their sum or not; shape (b, p)."""
        weight = self.score
        if not ego:
            weight = torch.cat([torch.zeros_like(weight[:, :1]), weight[:, 1:]], 1)
        return weight / weight.abs().sum(1, keepdim=True).clamp_min(1e-9) if divide else weight

    def scale(self) -> Tensor:
        """Return the scores divided by their mean magnitude, shape (b, p)."""
        total = self.score.abs().sum(1, keepdim=True).clamp_min(1e-9)
        return self.score * self.mask.sum(1, keepdim=True) / total

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of each patch, scaled by scores of mean magnitude 1; shape (b, p, h)."""
        scale = self.scale()
        if self.members is not None:
            return self.members(scale.flatten(), rows).view(*scale.shape, -1)
        return F.embedding(self.index, rows) * scale[..., None]

    def mean(self, h: Tensor, ego: bool, divide: bool) -> Tensor:
        """Return the mean of rows of ``h`` over each patch by `weights`, shape (b, h)."""
        if self.means is not None:
            return self.means.linear(h)
        weights = self.weights(ego, divide)
        return F.embedding_bag(self.index, h, mode="sum", per_sample_weights=weights)

    def histogram(self, labels: Tensor) -> Tensor:
        """Return the score-weighted mean of the other members' one-hot labels, shape (b, C)."""
        if self.counts is not None:
            return self.counts.linear(labels)
        weights = self.weights(ego=False, divide=True)
        return F.embedding_bag(self.index, labels, mode="sum", per_sample_weights=weights)


def split_views(index: Tensor, score: Tensor, mask: Tensor, sizes: Sequence[int]) -> list[PatchView]:
    """Return the views of several sources from tensors that hold their positions side by side."""
    parts = (torch.split(tensor, list(sizes), 1) for tensor in (index, score, mask))
    return [PatchView(*view) for view in zip(*parts, strict=True)]


def mean_weights(view: PatchView, n: int, ego: bool, divide: bool) -> sp.csr_array:
    """Return the weights of the mean of constant patches as a sparse matrix, shape (b, n)."""
    weights = view.weights(ego, divide).numpy(force=True)
    mask = view.mask.numpy(force=True) > 0
    mask &= weights != 0
    indptr = np.concatenate([[0], mask.sum(1).cumsum()])
    return sp.csr_array((weights[mask], view.index.numpy(force=True)[mask], indptr), shape=(len(mask), n))
