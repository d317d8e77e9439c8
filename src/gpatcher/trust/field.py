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
        """Return the logits of the node, shape (b, C), for b encodings of its field (b, f, h) and labels (b, f, C)."""
        rows = model.propagate(h.flatten(0, 1), [self._repeated(len(h), slice(None))])
        own = self._repeated(len(h), slice(self.row, self.row + 1))
        return model.classify(rows, own, None if labels is None else labels.flatten(0, 1))

    def _repeated(self, count: int, rows: slice) -> list[PatchView]:
        """Return the patches of some rows in ``count`` copies of the field, one after another."""
        first = len(self.nodes) * torch.arange(count, device=self.nodes.device)[:, None, None]
        return [
            PatchView(
                (view.index[rows] + first).flatten(0, 1),
                view.score[rows].repeat(count, 1),
                view.mask[rows].repeat(count, 1),
            )
            for view in self.views
        ]


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
        # a mixer has weights for every position; else those that no patch fills are left out
        width = source.size if "mixer" in model.config.readout else max(1, int(mask.sum(1).max()))
        views.append(PatchView(rows[:, :width], scores[:, :width], mask[:, :width]))
    return Field(nodes, views, int(torch.searchsorted(nodes, torch.tensor(node, device=device))))
