"""GPatcher (Algorithm 1) and Fast-GPatcher (Algorithm 2): encode, gather, mix, classify.

The two differ only in where patches come from: a learned filter, or personalised PageRank. A model may read several
sources side by side. Shapes: b nodes in a batch, p positions in a patch, h hidden features, C classes.
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
from gpatcher.patches.base import PatchSource

READOUTS = ("ego", "mean", "mixer")


@dataclass(frozen=True)
class ModelConfig:
    """Shape of the model.

    Parameters
    ----------
    hidden : int
        Width h of the encoder.
    mixer_hidden : int, optional
        Width of the mixer; None for h.
    layers : int
        Blocks of the mixer.
    dropout : float
        Of the encoder, the mixer and the classifier.
    input_dropout : float
        Fraction of the input features dropped.
    skip : bool
        Whether mixer blocks add their input back.
    readout : tuple of str
        What reaches the classifier, some of `READOUTS`: the node itself, the score-weighted mean of its patch, the
        mixed patch.
    ego_gate, mixer_gate : float
        Fixed factors that scale these readouts, and so slow their learning.
    mean_ego : bool
        Whether the node itself is part of the mean.
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
    ego_gate: float = 1.0
    mixer_gate: float = 1.0
    mean_ego: bool = False
    head_layers: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "readout", tuple(self.readout))
        unknown = [name for name in self.readout if name not in READOUTS]
        if unknown or not self.readout:
            raise InputError(f"readout must be some of {', '.join(READOUTS)}, got {', '.join(self.readout) or 'none'}")
        for name in ("dropout", "input_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must lie in [0, 1), got {getattr(self, name)}")
        for name in ("hidden", "mixer_hidden", "layers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        if self.head_layers not in (1, 2):
            raise InputError(f"head_layers must be 1 or 2, got {self.head_layers}")


@dataclass(frozen=True, eq=False)
class PatchView:
    """The patches of a batch from one source.

    Parameters
    ----------
    index : Tensor, shape (b, p)
        Row of each member; any row where ``mask`` is 0.
    score : Tensor, shape (b, p)
    mask : Tensor, shape (b, p)
        1 where a position has a member, else 0.
    """

    index: Tensor
    score: Tensor
    mask: Tensor


def split_views(index: Tensor, score: Tensor, mask: Tensor, sizes: Sequence[int]) -> list[PatchView]:
    """Return the views of several sources from tensors that hold their positions side by side."""
    parts = (torch.split(tensor, list(sizes), 1) for tensor in (index, score, mask))
    return [PatchView(*view) for view in zip(*parts, strict=True)]


@dataclass(frozen=True, eq=False)
class Batch:
    """All that a step reads: patches from each source, and the features of the nodes in them.

    Parameters
    ----------
    views : tuple of PatchView
        One per source; ``index`` counts rows of ``x``.
    x : FeatureTable
        Features of the distinct nodes in the patches, or of all nodes.
    """

    views: tuple[PatchView, ...]
    x: FeatureTable


class GPatcher(nn.Module):
    """The whole model.

    Each node is encoded once, x → h; the patches of the batch are gathered from that, so [n, p, d] never exists. Rows
    are scaled by their scores, which is how the loss reaches a learned filter.

    NOTE[DIFF] the classifier reads up to three things side by side: the node itself (``ego``), the score-weighted mean
    of its patch (``mean``) and the mixed patch (``mixer``), the last two once per source. The paper's plain reading is
    the mixer alone. Under heterophily a node is unlike its patch and must not drown in it; with few labels the mean
    generalises where the mixer overfits.

    Parameters
    ----------
    sources : PatchSource or sequence of PatchSource
        Where patches come from.
    features, classes : int
        d and C.
    config : ModelConfig, optional
    """

    def __init__(
        self,
        sources: PatchSource | Sequence[PatchSource],
        features: int,
        classes: int,
        config: ModelConfig | None = None,
    ) -> None:
        super().__init__()
        config = config or ModelConfig()
        self.config = config
        modules = nn.ModuleList([sources] if isinstance(sources, PatchSource) else sources)
        self.sources: Sequence[PatchSource] = modules  # type: ignore[assignment]
        self.gates = {"ego": config.ego_gate, "mean": 1.0, "mixer": config.mixer_gate}
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(features, config.hidden)))
        self.bias = nn.Parameter(torch.zeros(config.hidden))
        width = config.mixer_hidden or config.hidden
        if "mixer" in config.readout:
            narrow = nn.Linear(config.hidden, width) if width != config.hidden else nn.Identity()
            self.rows = nn.Sequential(narrow, nn.LayerNorm(width))  # per node, before the gather
            self.mixers = nn.ModuleList(
                PatchMixer(source.size, width, config.layers, config.dropout, config.skip) for source in self.sources
            )
        count = len(self.sources)
        widths = {"ego": config.hidden, "mean": count * config.hidden, "mixer": count * width}
        readout = sum(widths[name] for name in config.readout)
        if config.head_layers == 1:
            self.classifier: nn.Module = nn.Linear(readout, classes)
        else:
            head = (nn.Linear(readout, config.hidden), nn.ReLU(), nn.Dropout(config.dropout))
            self.classifier = nn.Sequential(*head, nn.Linear(config.hidden, classes))

    def fetch(self, x: FeatureTable, nodes: Tensor) -> Batch:
        """Read what `forward` needs for these nodes; with fixed patches it can be read ahead of time."""
        views = []
        for source in self.sources:
            index, score = source(nodes)
            views.append(PatchView(index.clamp_min(0), score, (index >= 0).to(score.dtype)))
        entries = torch.cat([view.index.flatten() for view in views])
        if x.mapped or entries.numel() < x.shape[0]:  # a small batch: only the nodes in its patches
            members, inverse = torch.unique(entries, return_inverse=True)
            parts = torch.split(inverse, [view.index.numel() for view in views])
            views = [
                PatchView(part.view_as(view.index), view.score, view.mask)
                for part, view in zip(parts, views, strict=True)
            ]
            x = x.take(members)
        return Batch(tuple(views), x)

    @property
    def reads_ahead(self) -> bool:
        """Whether a batch does not depend on the weights, so that it may be fetched before they change."""
        return not any(source.learned for source in self.sources)

    def forward(self, x: FeatureTable, nodes: Tensor | Batch) -> Tensor:
        """Return the logits of these nodes, or of a batch fetched for them, shape (b, C)."""
        batch = nodes if isinstance(nodes, Batch) else self.fetch(x, nodes)
        return self.classify(self.encode(batch.x), batch.views)

    def encode(self, x: FeatureTable) -> Tensor:
        """Return the representation of each node, the first channel mixing; shape (n, h)."""
        z = x.linear(self.weight, self.config.input_dropout if self.training else 0.0) + self.bias
        return F.dropout(F.relu(z), self.config.dropout, self.training)

    def classify(self, h: Tensor, views: Sequence[PatchView]) -> Tensor:
        """Return the logits of patches whose members are rows of ``h``, shape (b, C).

        Parameters
        ----------
        h : Tensor, shape (rows, h)
            Encoded nodes.
        views : sequence of PatchView
            One per source.
        """
        parts = {"ego": h[views[0].index[:, 0]]}
        if "mean" in self.config.readout:
            parts["mean"] = torch.cat([self._mean(h, view) for view in views], 1)
        if "mixer" in self.config.readout:
            rows = self.rows(h)
            mixed = [self._mix(rows, view, mixer) for view, mixer in zip(views, self.mixers, strict=True)]
            parts["mixer"] = torch.cat(mixed, 1)
        readout = torch.cat([self.gates[name] * parts[name] for name in self.config.readout], 1)
        logits: Tensor = self.classifier(F.dropout(readout, self.config.dropout, self.training))
        return logits

    def _mean(self, h: Tensor, view: PatchView) -> Tensor:
        """Return the score-weighted mean of each patch, shape (b, h)."""
        weight = view.score
        if not self.config.mean_ego:
            weight = torch.cat([torch.zeros_like(weight[:, :1]), weight[:, 1:]], 1)
        weight = weight / weight.abs().sum(1, keepdim=True).clamp_min(1e-9)
        return F.embedding_bag(view.index, h, mode="sum", per_sample_weights=weight)

    def _mix(self, rows: Tensor, view: PatchView, mixer: nn.Module) -> Tensor:
        """Return each patch mixed, its rows scaled by scores of mean size 1; shape (b, mixer_hidden)."""
        score, mask = view.score, view.mask
        scale = score * mask.sum(1, keepdim=True) / score.abs().sum(1, keepdim=True).clamp_min(1e-9)
        mixed: Tensor = mixer(F.embedding(view.index, rows) * scale[..., None], mask)
        return mixed

    def step_bytes(self, batch: int, x: FeatureTable) -> int:
        """Return about how many bytes a training step on ``batch`` nodes takes, with the next batch read ahead.

        Counted in numbers of 4 bytes that are alive when the gradient is made, from the widths of the model alone:

            r (5 d + 8 h) + b p (30 + 3 h + m (18 L - 2)),

        b nodes with p positions over all sources, r = min(b p, n) distinct nodes, d features (non-zeros where sparse),
        h hidden, m the width of the mixer and L its layers.
        """
        positions = batch * sum(source.size for source in self.sources)
        hidden = self.config.hidden
        rows = min(positions, x.shape[0])
        per_position = 30 + 3 * hidden * ("mean" in self.config.readout)
        if "mixer" in self.config.readout:
            per_position += (self.config.mixer_hidden or hidden) * (18 * self.config.layers - 2)
        return 4 * (rows * (5 * x.width + 8 * hidden) + positions * per_position)

    def reselect(self) -> None:
        """Let the selection of every source follow its weights."""
        for source in self.sources:
            source.reselect()

    def parameter_groups(self, lr: float, weight_decay: float, filter_lr: float) -> list[dict[str, object]]:
        """Return the filters' weights apart: their own learning rate, and no decay towards a filter of zero."""
        filters = [p for source in self.sources for p in source.parameters()]
        ids = {id(p) for p in filters}
        rest = [p for p in self.parameters() if id(p) not in ids]
        groups: list[dict[str, object]] = [{"params": rest, "lr": lr, "weight_decay": weight_decay}]
        if filters:
            groups.append({"params": filters, "lr": lr * filter_lr, "weight_decay": 0.0})
        return groups
