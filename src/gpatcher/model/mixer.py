"""The patch mixer of Algorithm 1, lines 6 to 8."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.errors import InputError


class MixerBlock(nn.Module):
    """Mixing over the p places of a patch, before that (but for the first block) over its h features.

    Algorithm 1 applies LayerNorm, MLP and σ in each of the two. The first feature mixing and the LayerNorm after it
    treat every row on its own, so `GPatcher` runs them once per node before the gather, with the same result, and
    before rows are scaled by their scores, which a LayerNorm would undo.
    NOTE[DIFF] "across patches" in section 4.1 would mix different nodes' patches; Algorithm 1 mixes within one.
    NOTE[DIFF] ``skip`` adds the input back, as in MLP-Mixer; Algorithm 1 writes none, and that is the default.
    """

    def __init__(self, size: int, dim: int, dropout: float, skip: bool, first: bool) -> None:
        super().__init__()
        self.skip = skip
        self.channel_mlp = None if first else _mlp(dim, dropout)  # over features
        self.channel_norm = None if first else nn.LayerNorm(dim)
        self.token_mlp = _mlp(size, dropout)  # over places
        self.token_norm = None if first else nn.LayerNorm(dim)

    def forward(self, z: Tensor) -> Tensor:
        """Mix patches, shape (b, p, h) in and out."""
        if self.channel_mlp is not None and self.channel_norm is not None:
            z = self._add(z, self.channel_mlp(self.channel_norm(z)))
        rows = z if self.token_norm is None else self.token_norm(z)
        return self._add(z, self.token_mlp(rows.transpose(1, 2)).transpose(1, 2))

    def _add(self, z: Tensor, mixed: Tensor) -> Tensor:
        return z + mixed if self.skip else F.gelu(mixed)


def _mlp(dim: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(dim, dim))


class PatchMixer(nn.Module):
    """The blocks of Algorithm 1, lines 6 to 8, and the mean over the places of a patch that are taken."""

    def __init__(self, size: int, dim: int, layers: int = 2, dropout: float = 0.5, skip: bool = False) -> None:
        super().__init__()
        if layers < 1:
            raise InputError(f"layers must be at least 1, got {layers}")
        self.blocks = nn.Sequential(*(MixerBlock(size, dim, dropout, skip, first=i == 0) for i in range(layers)))
        self.norm = nn.LayerNorm(dim)

    def forward(self, z: Tensor, there: Tensor) -> Tensor:
        """Mix patches (b, p, h) of which ``there`` (b, p) are real; return (b, h)."""
        mixed = self.blocks(z) * there[..., None]
        out: Tensor = self.norm(mixed.sum(1) / there.sum(1, keepdim=True).clamp_min(1.0))
        return out
