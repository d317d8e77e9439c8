"""The patch mixer of Algorithm 1, lines 6 to 8. Shapes: b nodes in a batch, p positions in a patch, h features."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.errors import InputError
from gpatcher.model.dropout import Dropout


class MixerBlock(nn.Module):
    """Token mixing over the p positions of a patch, preceded by channel mixing except in the first block.

    Algorithm 1 applies LayerNorm, MLP and σ in each of the two. The first channel mixing and the LayerNorm after it
    treat every row separately, so `GPatcher` runs them once per node before patches are gathered, with the same result,
    and before rows are scaled by their scores, which a LayerNorm would cancel.
    NOTE[DIFF] "across patches" in section 4.1 would mix different nodes' patches; Algorithm 1 mixes within one.
    NOTE[DIFF] ``skip`` adds skip connections, as in MLP-Mixer; Algorithm 1 has none, nor has the default.

    Parameters
    ----------
    size : int
        Positions in a patch, p.
    dim : int
        Features, h.
    dropout : float
    skip : bool
        Whether to use skip connections.
    first : bool
        Whether this is the first block.
    """

    def __init__(self, size: int, dim: int, dropout: float, skip: bool, first: bool) -> None:
        super().__init__()
        self.skip = skip
        self.channel_mlp = None if first else _mlp(dim, dropout)
        self.channel_norm = None if first else nn.LayerNorm(dim)
        self.token_mlp = _mlp(size, dropout)
        self.token_norm = None if first else nn.LayerNorm(dim)

    def forward(self, z: Tensor) -> Tensor:
        """Mix patches, shape (b, p, h) in and out."""
        if self.channel_mlp is not None and self.channel_norm is not None:
            mixed = self.channel_mlp(self.channel_norm(z))
            z = z + mixed if self.skip else F.gelu(mixed)
        rows = z if self.token_norm is None else self.token_norm(z)
        mixed = self.token_mlp(rows.transpose(1, 2))
        if self.skip:
            return z + mixed.transpose(1, 2)
        mixed = F.gelu(mixed)
        if mixed.requires_grad:  # the gradient comes transposed, with which torch's GELU takes four times as long
            mixed.register_hook(Tensor.contiguous)  # type: ignore[no-untyped-call]
        return mixed.transpose(1, 2)


def _mlp(dim: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, dim), nn.GELU(), Dropout(dropout), nn.Linear(dim, dim))


class PatchMixer(nn.Module):
    """The blocks of Algorithm 1 and the mean over the positions of a patch that have a member.

    Parameters
    ----------
    size : int
        Positions in a patch, p.
    dim : int
        Features, h.
    layers : int
        Number of blocks.
    dropout : float
    skip : bool
        Whether blocks have skip connections.
    """

    def __init__(self, size: int, dim: int, layers: int = 2, dropout: float = 0.5, skip: bool = False) -> None:
        super().__init__()
        if layers < 1:
            raise InputError(f"layers must be at least 1, got {layers}")
        self.blocks = nn.Sequential(*(MixerBlock(size, dim, dropout, skip, first=i == 0) for i in range(layers)))
        self.norm = nn.LayerNorm(dim)
        self.dropout, self.skip = dropout, skip

    def forward(self, z: Tensor, mask: Tensor) -> Tensor:
        """Mix patches.

        Parameters
        ----------
        z : Tensor, shape (b, p, h)
        mask : Tensor, shape (b, p)
            1 where a position has a member, else 0.

        Returns
        -------
        Tensor, shape (b, h)
        """
        mixed = self.blocks(z) * mask[..., None]
        out: Tensor = self.norm(mixed.sum(1) / mask.sum(1, keepdim=True).clamp_min(1.0))
        return out
