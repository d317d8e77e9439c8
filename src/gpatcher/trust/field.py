"""The receptive field of a node: the nodes that reach its prediction in R rounds, and their patches."""

from __future__ import annotations

from dataclasses import dataclass

import scipy.sparse as sp
import torch
from torch import Tensor

from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import FeatureTable
from gpatcher.model.views import PatchView, mean_weights


@dataclass(frozen=True, eq=False)
class Field:
    """The nodes whose features reach a prediction, and how."""

    nodes: Tensor  # (f,): the node itself, then the others in its patches, then those in theirs, and so on
    within: list[int]  # number of nodes within 0, 1, …, R patches
    views: list[PatchView]  # patches over positions in ``nodes``, of the nodes within R - 1 patches
    means: list[sp.csr_array]  # (within R - 1, f): weights of the means over these patches

    def logits(self, model: GPatcher, h: Tensor, labels: Tensor | None) -> Tensor:
        """Return the logits of the node, shape (q, C), for q encodings of its field (q, f, h) and the labels in it."""
        q, rounds = len(h), len(self.within) - 1
        # each round computes the nodes that the later ones read
        patches = [[self._patches(level, q)] for level in range(rounds - 1, 0, -1)]
        h = model.propagate(h.transpose(0, 1).flatten(0, 1), patches)
        known = None if labels is None else labels.transpose(0, 1).flatten(0, 1)
        return model.classify(h, self._patches(0, q), known)

    def _patches(self, level: int, q: int) -> list[PatchView]:
        """Return the patches of the nodes within ``level`` patches, q times each: encodings are interleaved."""
        count, rows = self.within[level : level + 2]
        copy = torch.arange(q, device=self.nodes.device)[:, None]
        views = []
        for view, means in zip(self.views, self.means, strict=True):
            index = (q * view.index[:count, None] + copy).flatten(0, 1)
            score, mask = (part[:count].repeat_interleave(q, 0) for part in (view.score, view.mask))
            table = FeatureTable(sp.kron(means[:count, :rows], sp.eye_array(q), format="csr"), copy.device)
            views.append(PatchView(index, score, mask, table))
        return views


@torch.no_grad()
def receptive_field(model: GPatcher, node: int) -> Field:
    """Return the nodes within R patches of a node."""
    nodes = new = torch.tensor([node], device=model.weight.device)
    within = [1]
    for _ in range(model.config.rounds):
        members = torch.unique(torch.cat([source(new)[0].flatten() for source in model.sources]))
        new = members[(members >= 0) & ~torch.isin(members, nodes)]
        nodes = torch.cat([nodes, new])
        within.append(len(nodes))
    ordered, order = nodes.sort()
    views = []
    for source in model.sources:
        index, score = source(nodes[: within[-2]])
        mask = (index >= 0).to(score.dtype)
        width = max(1, int(mask.sum(1).max()))  # drop positions that are empty in all patches
        width = source.size if "mixer" in model.config.readout else width
        position = order[torch.searchsorted(ordered, index.clamp_min(0)).clamp_max(len(nodes) - 1)]
        views.append(PatchView(position[:, :width], score[:, :width], mask[:, :width]))
    means = [mean_weights(view, len(nodes), *model.config.mean_weighting) for view in views]
    return Field(nodes, within, views, means)
