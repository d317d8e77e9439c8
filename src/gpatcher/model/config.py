"""Configuration of the model: its options, and how many parameters they make."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.errors import InputError

READOUTS = ("ego", "mean", "mixer")


class UnitNorm(nn.Module):
    """Divide each row by its L2 norm; a row of zeros stays as it is."""

    def __init__(self, hidden: int) -> None:
        super().__init__()

    def forward(self, h: Tensor) -> Tensor:
        """Return rows of norm 1."""
        return F.normalize(h, dim=1)


NORMS = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": nn.BatchNorm1d, "unit": UnitNorm}


@dataclass(frozen=True)
class ModelConfig:
    """Architecture of the model.

    Parameters
    ----------
    hidden : int
        Width h of the encoder.
    mixer_hidden : int, optional
        Width of the mixer; None for h.
    layers : int
        Number of mixer blocks.
    dropout : float
        Dropout probability in the encoder, the mixer and the classifier.
    input_dropout : float
        Fraction of the input features dropped.
    skip : bool
        Whether mixer blocks have skip connections.
    readout : tuple of str
        What a round reads, some of `READOUTS`: the node itself, the score-weighted mean of its patch, the mixed patch.
        With ``labels`` the classifier also reads the score-weighted histogram of the training labels in the patch.
    rounds : int
        Number of rounds R of gather and mix. All but the last update every node; the classifier reads the last.
    norm : {"layer", "batch", "unit", "none"}
        Normalisation of each round, if there are several; ``unit`` divides each row by its L2 norm.
    residual : bool
        Whether a round is added to its input, h ← h + dropout(relu(W · round(norm(h)))), or replaces it,
        h ← dropout(relu(norm(W · round(h)))), where W has a part for the node itself if ``readout`` has ``ego``.
    jump : bool
        Whether the last round reads the nodes as they were after each of the others, side by side (jumping knowledge,
        Xu et al., 2018).
    ego_gate, mixer_gate : float
        Fixed factors that scale these readouts; smaller ones learn more slowly.
    selection : bool
        Whether a round selects softly among what it reads, as FSGNN does (Maurya et al., 2021): each readout of each
        source, with ``jump`` of each round too, is divided by its L2 norm and multiplied by a learned weight; the
        weights are a softmax.
    mean_ego : bool
        Whether the node itself is part of the mean.
    aggregate : {"mean", "sum"}
        Whether the scores are divided by their sum, or used unchanged, as in a GCN; the result then depends on how many
        members a patch has.
    head_layers : {1, 2}
        1 for a linear classifier, 2 for an MLP as in Algorithm 1.
    """

    hidden: int = 64
    mixer_hidden: int | None = 16
    layers: int = 2
    dropout: float = 0.5
    input_dropout: float = 0.5
    skip: bool = False
    readout: tuple[str, ...] = READOUTS
    rounds: int = 1
    norm: str = "layer"
    residual: bool = True
    jump: bool = False
    ego_gate: float = 1.0
    mixer_gate: float = 1.0
    selection: bool = False
    mean_ego: bool = False
    aggregate: str = "mean"
    head_layers: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "readout", tuple(self.readout))
        if not set(self.readout) <= {*READOUTS, "labels"} or not set(self.readout) & set(READOUTS):
            raise InputError(
                f"readout must be some of {', '.join(READOUTS)}, and labels beside them, got "
                f"{', '.join(self.readout) or 'none'}"
            )
        for name in ("dropout", "input_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must lie in [0, 1), got {getattr(self, name)}")
        if self.aggregate not in ("mean", "sum"):
            raise InputError(f"aggregate must be mean or sum, got {self.aggregate!r}")
        if self.norm not in NORMS:
            raise InputError(f"norm must be one of {', '.join(NORMS)}, got {self.norm!r}")
        for name in ("hidden", "mixer_hidden", "layers", "rounds"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        if self.head_layers not in (1, 2):
            raise InputError(f"head_layers must be 1 or 2, got {self.head_layers}")

    @property
    def mean_weighting(self) -> tuple[bool, bool]:
        """Whether the node itself is part of the mean, and whether scores are divided by their sum."""
        return self.mean_ego, self.aggregate == "mean"


def count_parameters(
    config: ModelConfig, sizes: Sequence[int], features: int, classes: int, label_columns: int = 0
) -> int:
    """Return the number of parameters of a `GPatcher` before it is built, without those of its patch sources."""

    def linear(a: int, b: int) -> int:
        return (a + 1) * b

    def round_(width: int, norm: bool = True) -> tuple[int, int]:
        """Return the parameters of a round and the width of what it reads."""
        mixed = config.mixer_hidden or config.hidden
        count = 2 * width * (norm and config.rounds > 1 and config.norm in ("layer", "batch"))
        if "mixer" in config.readout:
            count += (linear(width, mixed) if mixed != width else 0) + 2 * mixed
            channels, norms = (config.layers - 1) * 2 * linear(mixed, mixed), 2 * mixed * (2 * config.layers - 1)
            count += sum(config.layers * 2 * linear(size, size) + channels + norms for size in sizes)
        nodes = [config.hidden] * (width // config.hidden)
        widths = {"ego": nodes, "mean": nodes * len(sizes), "mixer": [mixed] * len(sizes)}
        parts = [part for name in config.readout for part in widths.get(name, [])]
        return count + config.selection * len(parts), sum(parts)

    hidden, jumped = config.hidden, config.hidden * (config.rounds if config.jump else 1)
    count, read = round_(hidden)
    total = linear(features, hidden) + (config.rounds - 1) * (count + linear(read, hidden))
    count, read = round_(jumped, config.residual)
    head = [read + label_columns, *[hidden] * (config.head_layers - 1), classes]
    return total + count + sum(linear(a, b) for a, b in itertools.pairwise(head))
