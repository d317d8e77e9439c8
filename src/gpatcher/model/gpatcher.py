"""GPatcher (Algorithm 1) and Fast-GPatcher (Algorithm 2): encode, gather, mix, classify.

The two differ only in where patches come from: a learnable `SpectralPatches`, or `FixedPatches` made once.
Shapes: b nodes in a batch, p places in a patch, h hidden features, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.errors import InputError
from gpatcher.model.inputs import FeatureTable
from gpatcher.model.mixer import PatchMixer
from gpatcher.patches.base import FixedPatches
from gpatcher.patches.spectral import SpectralPatches
from gpatcher.patches.store import TablePatches

PATHS = ("ego", "mean", "mixer")


@dataclass(frozen=True, eq=False)
class Batch:
    """All that a step reads: the patches of some nodes, and the features of the nodes met in them.

    Parameters
    ----------
    index : shape (b, p), rows of ``x``; any row where ``there`` is 0
    score : shape (b, p)
    there : shape (b, p), 1 for a member and 0 where a patch runs short
    x : features, of the distinct nodes met or of all
    """

    index: Tensor
    score: Tensor
    there: Tensor
    x: FeatureTable


class GPatcher(nn.Module):
    """The whole model.

    Each node is encoded once, x → h; the batch's patches are gathered from that, so [n, p, d] never exists. Rows are
    scaled by their scores, which is how the loss reaches the filter.

    NOTE[DIFF] the classifier sees up to three things side by side: the node itself (``ego``), the score-weighted mean
    of its patch (``mean``) and the mixed patch (``mixer``). The paper's plain reading is the mixer alone. Under
    heterophily a node is unlike its patch and must not drown in it; with few labels the mean generalises where the
    mixer overfits.

    Parameters
    ----------
    patches : where patches come from
    features, classes : d and C
    hidden : h of the encoder
    mixer_hidden : width of the mixer; by default h
    layers, dropout, skip : of the mixer
    input_dropout : share of the input features dropped
    paths : what reaches the classifier, some of `PATHS`
    ego_gate, mixer_gate : fixed factors that hold these paths back, and so slow their learning
    mean_ego : whether the node itself is part of the mean
    head_layers : 1 for a linear classifier, 2 for an MLP as Algorithm 1 has it
    """

    def __init__(
        self,
        patches: FixedPatches | TablePatches | SpectralPatches,
        features: int,
        classes: int,
        *,
        hidden: int = 64,
        mixer_hidden: int | None = None,
        layers: int = 2,
        dropout: float = 0.5,
        input_dropout: float = 0.5,
        paths: Sequence[str] = PATHS,
        ego_gate: float = 1.0,
        mixer_gate: float = 1.0,
        mean_ego: bool = False,
        skip: bool = False,
        head_layers: int = 1,
    ) -> None:
        super().__init__()
        unknown = [path for path in paths if path not in PATHS]
        if unknown or not paths:
            raise InputError(f"paths must be some of {', '.join(PATHS)}, got {', '.join(paths) or 'none'}")
        for name, value in (("dropout", dropout), ("input_dropout", input_dropout)):
            if not 0 <= value < 1:
                raise InputError(f"{name} must lie in [0, 1), got {value}")
        for name, width_of in (("hidden", hidden), ("mixer_hidden", mixer_hidden or 1)):
            if width_of < 1:
                raise InputError(f"{name} must be at least 1, got {width_of}")
        self.patches = patches
        self.paths, self.mean_ego = tuple(paths), mean_ego
        self.gates = {"ego": ego_gate, "mean": 1.0, "mixer": mixer_gate}
        self.dropout, self.input_dropout = dropout, input_dropout
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(features, hidden)))
        self.bias = nn.Parameter(torch.zeros(hidden))
        width = {"ego": hidden, "mean": hidden, "mixer": mixer_hidden or hidden}
        if "mixer" in paths:
            narrow = nn.Linear(hidden, width["mixer"]) if width["mixer"] != hidden else nn.Identity()
            self.rows = nn.Sequential(narrow, nn.LayerNorm(width["mixer"]))  # per node, before the gather
            self.mixer = PatchMixer(patches.size, width["mixer"], layers, dropout, skip)
        readout = sum(width[path] for path in self.paths)
        if head_layers == 1:
            self.classifier: nn.Module = nn.Linear(readout, classes)
        elif head_layers == 2:
            head = (nn.Linear(readout, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, classes))
            self.classifier = nn.Sequential(*head)
        else:
            raise InputError(f"head_layers must be 1 or 2, got {head_layers}")

    def fetch(self, x: FeatureTable, nodes: Tensor) -> Batch:
        """Read what `forward` needs for these nodes; with fixed patches it can be read ahead of time."""
        index, score = self.patches(nodes)
        there = (index >= 0).to(score.dtype)
        index = index.clamp_min(0)
        if x.mapped or index.numel() < x.shape[0]:  # a small batch: only the nodes it meets
            met, index = torch.unique(index, return_inverse=True)
            x = x.take(met)
        return Batch(index, score, there, x)

    @property
    def reads_ahead(self) -> bool:
        """Whether a batch does not depend on the weights, so that it may be fetched before they change."""
        return not isinstance(self.patches, SpectralPatches)

    def forward(self, x: FeatureTable, nodes: Tensor | Batch) -> Tensor:
        """Return the logits of these nodes, or of a batch fetched for them, shape (b, C)."""
        batch = nodes if isinstance(nodes, Batch) else self.fetch(x, nodes)
        index, score, there = batch.index, batch.score, batch.there
        h = self.encode(batch.x)
        return self.classify(h, index, score, there)

    def classify(self, h: Tensor, index: Tensor, score: Tensor, there: Tensor) -> Tensor:
        """Return the logits of patches whose members are rows of ``h``.

        Parameters
        ----------
        h : encoded nodes, shape (rows, h)
        index : which row stands at each place, shape (b, p); any row where a place is empty
        score, there : shape (b, p); ``there`` is 1 where a place is taken, else 0
        """
        parts = {"ego": h[index[:, 0]]}
        if "mean" in self.paths:
            weight = score if self.mean_ego else torch.cat([torch.zeros_like(score[:, :1]), score[:, 1:]], 1)
            weight = weight / weight.abs().sum(1, keepdim=True).clamp_min(1e-9)
            parts["mean"] = F.embedding_bag(index, h, mode="sum", per_sample_weights=weight)
        if "mixer" in self.paths:
            # scores of size 1 on average, whatever their scale
            scale = score * there.sum(1, keepdim=True) / score.abs().sum(1, keepdim=True).clamp_min(1e-9)
            parts["mixer"] = self.mixer(F.embedding(index, self.rows(h)) * scale[..., None], there)
        readout = torch.cat([self.gates[path] * parts[path] for path in self.paths], 1)
        logits: Tensor = self.classifier(F.dropout(readout, self.dropout, self.training))
        return logits

    def encode(self, x: FeatureTable) -> Tensor:
        """Return the representation of each node, the first feature mixing; shape (n, h)."""
        z = x.linear(self.weight, self.input_dropout if self.training else 0.0) + self.bias
        return F.dropout(F.relu(z), self.dropout, self.training)

    def step_bytes(self, batch: int, x: FeatureTable) -> int:
        """Return about how many bytes a training step on ``batch`` nodes takes, with the next batch read ahead.

        Counted in numbers of 4 bytes that are alive when the gradient is made, from the widths of the model alone:

            r (5 d + 8 h) + b p (30 + 3 h + m (18 L - 2)),

        b nodes with p places, r = min(b p, n) distinct nodes met, d features (non-zeros where sparse), h hidden, m
        the width of the mixer and L its layers.
        """
        places, hidden = batch * self.patches.size, len(self.bias)
        met = min(places, x.shape[0])
        mixer = 0
        if "mixer" in self.paths:
            mixer = self.mixer.norm.normalized_shape[0] * (18 * len(self.mixer.blocks) - 2)
        return 4 * (met * (5 * x.width + 8 * hidden) + places * (30 + 3 * hidden * ("mean" in self.paths) + mixer))

    def renew(self) -> None:
        """Let the selection follow the filter's weights; nothing where patches are fixed."""
        if isinstance(self.patches, SpectralPatches):
            self.patches.renew()

    def parameter_groups(self, lr: float, weight_decay: float, filter_lr: float) -> list[dict[str, object]]:
        """Return the filter's weights apart: their own learning rate, and no decay towards a filter of zero."""
        chosen = {id(p) for p in self.patches.parameters()}
        rest = [p for p in self.parameters() if id(p) not in chosen]
        groups: list[dict[str, object]] = [{"params": rest, "lr": lr, "weight_decay": weight_decay}]
        if chosen:
            groups.append({"params": list(self.patches.parameters()), "lr": lr * filter_lr, "weight_decay": 0.0})
        return groups
