"""The receptive field of a node: the nodes that R rounds let reach its prediction, and their patches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gpatcher.model.gpatcher import GPatcher, PatchView


@dataclass(frozen=True, eq=False)
class Field:
    """The nodes whose features reach a prediction, and how."""

    nodes: Tensor  # (f,): ascending
    views: list[PatchView]  # patches over positions in ``nodes``; empty at the border, which is read and reads nothing
    row: int  # position of the node itself

    def logits(self, model: GPatcher, h: Tensor, labels: Tensor | None) -> Tensor:
        """Return the logits of the node, shape (1, C), from its encoded field (f, h) and the labels in it (f, C)."""
        own = slice(self.row, self.row + 1)
        views = [PatchView(view.index[own], view.score[own], view.mask[own]) for view in self.views]
        return model.classify(model.propagate(h, [self.views]), views, labels)


@torch.no_grad()
def receptive_field(model: GPatcher, node: int) -> Field:
    """Return the nodes within R patches of a node; a patch starts with its own node, so each set holds the last."""
    device = model.weight.device
    inner = nodes = torch.tensor([node], device=device)
    for _ in range(model.config.rounds):
        inner = nodes
        members = [source(inner)[0].flatten() for source in model.sources]
        nodes = torch.unique(torch.cat(members))
        nodes = nodes[nodes >= 0]
    at = torch.searchsorted(nodes, inner)
    views = []
    for source in model.sources:
        index, score = source(inner)
        shape = (len(nodes), source.size)
        rows = torch.zeros(shape, dtype=torch.long, device=device)
        rows[:, 0] = torch.arange(len(nodes), device=device)
        rows[at] = torch.searchsorted(nodes, index.clamp_min(0)).clamp_max(len(nodes) - 1)
        scores, mask = torch.zeros(shape, device=device), torch.zeros(shape, device=device)
        scores[at], mask[at] = score, (index >= 0).to(score.dtype)
        views.append(PatchView(rows, scores, mask))
    return Field(nodes, views, int(torch.searchsorted(nodes, torch.tensor(node, device=device))))
