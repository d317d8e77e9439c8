"""Patches: for each node, itself and the nodes most relevant to it, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError


@dataclass(frozen=True, eq=False)
class Patches:
    """The patch of every node.

    Parameters
    ----------
    index : int32, shape (n, p); the node itself, then others by falling score and rising id, then -1
    score : float32, shape (n, p); 0 where index is -1
    """

    index: IntArray
    score: FloatArray

    @property
    def size(self) -> int:
        """Number of places in a patch, p."""
        return int(self.index.shape[1])

    def __getitem__(self, nodes: Any) -> Patches:
        return Patches(self.index[nodes], self.score[nodes])


def check_size(size: int) -> int:
    if not size >= 1 or size != int(size):
        raise InputError(f"the patch size must be a whole number of at least 1, got {size}")
    return int(size)


def empty_patches(rows: int, size: int) -> Patches:
    """Return patches in which nobody is yet."""
    return Patches(np.full((rows, size), -1, np.int32), np.zeros((rows, size), np.float32))


class FixedPatches(nn.Module):
    """Patches made before training; nothing in them is learned."""

    def __init__(self, patches: Patches) -> None:
        super().__init__()
        self.size = patches.size
        self.register_buffer("index", torch.from_numpy(patches.index), persistent=False)
        self.register_buffer("score", torch.from_numpy(patches.score), persistent=False)

    index: Tensor
    score: Tensor

    def forward(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return index and score of these nodes."""
        return self.index[nodes].long(), self.score[nodes]

    def patches(self) -> Patches:
        """Return the patches of all nodes."""
        return Patches(self.index.numpy(), self.score.numpy())
