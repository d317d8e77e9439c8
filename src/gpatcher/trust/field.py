"""The receptive field of a node: the nodes that reach its prediction in R rounds, and their patches."""

from __future__ import annotations

from dataclasses import dataclass

import scipy.sparse as sp
import torch
from torch import Tensor

from gpatcher.model.gpatcher import GPatcher, PatchView, mean_weights
from gpatcher.model.inputs import FeatureTable


@dataclass(frozen=True, eq=False)
class Field:
    """The nodes whose features reach a prediction, and how."""

    nodes: Tensor  # (f,): ascending
    views: list[PatchView]  # patches over positions in ``nodes``; empty for nodes of the outermost patches
    means: list[sp.csr_array]  # (f, f): weights of the means over these patches
    row: int  # position of the node itself

    def logits(self, model: GPatcher, h: Tensor, labels: Tensor | None) -> Tensor:
        """Return the logits of the node, shape (q, C), for q encodings of its field (q, f, h) and the labels in it."""
        q, f = h.shape[:2]
        shift = f * torch.arange(q, device=h.device)[:, None, None]
        views, own = [], []
        for view, means in zip(self.views, self.means, strict=True):
            index = (view.index + shift).flatten(0, 1)
            score, mask = view.score.repeat(q, 1), view.mask.repeat(q, 1)
            table = FeatureTable(sp.kron(sp.eye_array(q), means, format="csr"), h.device)
            views.append(PatchView(index, score, mask, table))
            rows = torch.arange(q, device=h.device) * f + self.row
            own.append(PatchView(index[rows], score[rows], mask[rows]))
        known = None if labels is None else labels.flatten(0, 1)
        return model.classify(model.propagate(h.flatten(0, 1), [views]), own, known)


@torch.no_grad()
def receptive_field(model: GPatcher, node: int) -> Field:
    """Return the nodes within R patches of a node; a patch contains its own node, so the sets are nested."""
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
        width = max(1, int((mask > 0).sum(1).max()))  # drop positions that are empty in all patches
        width = source.size if "mixer" in model.config.readout else width
        views.append(PatchView(rows[:, :width], scores[:, :width], mask[:, :width]))
    means = [mean_weights(view, len(nodes), model.config.mean_ego, model.config.aggregate == "mean") for view in views]
    return Field(nodes, views, means, int(torch.searchsorted(nodes, torch.tensor(node, device=device))))
