"""Integrated gradients: the contribution of each patch member, and of each column of a node, to a decision."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import FeatureTable
from gpatcher.model.views import split_views
from gpatcher.trust.field import Field, receptive_field

TOLERANCE = 1e-3  # target for the remainder, relative to the explained difference (at least 1 logit)
_ORDER = 16  # quadrature points per panel of the path
_DIVISIONS = 8  # how often a panel may be divided, into four each time
_ELEMENTS = 1 << 19  # numbers in one forward pass: small enough for the cache
_WORK = 1 << 23  # limit on the numbers per node; a single patch stays far below


@dataclass(frozen=True, eq=False)
class Attribution:
    """Contributions of the members of b patches; p positions, those of several sources concatenated."""

    index: IntArray  # members, shape (b, p); -1 where a position is empty
    score: FloatArray  # shape (b, p)
    logits: FloatArray  # shape (b, C)
    best: IntArray  # classes with the largest logits, shape (b,)
    second: IntArray
    margin: FloatArray  # difference of these two logits, shape (b,)
    start: FloatArray  # the same difference at the baseline, shape (b,)
    contribution: FloatArray  # shape (b, p), 0 at empty positions
    gradient: FloatArray  # of the difference by the node's own encoding, integrated over the path, shape (b, h)
    source: IntArray  # patch source of the member, shape (b, p)
    position: IntArray  # in that source's patch, shape (b, p); -1 if only reached by further rounds


def attribute(
    model: GPatcher,
    x: FeatureTable,
    nodes: IntArray,
    baseline: Tensor,
    pairs: IntArray | None = None,
    share: float = 1.0,
) -> Attribution:
    r"""Distribute the difference of the two largest logits over the nodes that reach the prediction.

    With ``pairs``, shape (b, 2), the difference of the logits of these classes is distributed; a predicted number is
    distributed itself.

    Integrated gradients (Sundararajan et al., 2017) over the encoded members h, from a baseline h', shape (h,), at
    which every member is the average node:

    .. math:: a_j = (h_j - h') \cdot \int_0^1 \frac{\partial f}{\partial h_j} \big(h' + t (h - h')\big)\, dt

    with f the logit difference; the a_j, over the positions of all sources, sum to f(h) - f(h'). The readout ``ego`` is
    attributed to position 0 of the first source. If the model reads labels, a label is attributed to the member that
    has it; at the baseline all labels are unknown. With several rounds the sum is over all nodes within R patches, each
    once. The integral is computed by Gauss-Legendre quadrature: exact if the model has only the readouts ``ego`` and
    ``mean`` and a linear classifier, else refined until the remainder is within `TOLERANCE`. The baseline is the
    average node, not zero: a LayerNorm right after the encoder would make f discontinuous at zero.

    In an ensemble, a model's ``share`` of the weight divides the tolerance by its square root and limits the work in
    proportion: an ensemble is explained about as precisely as a single model, in about the same time.
    """
    model.eval()
    if model.config.rounds > 1:
        return _attribute_fields(model, x, nodes, baseline, pairs, share)
    ego = torch.as_tensor(np.array(nodes)).to(x.device)
    with torch.no_grad():
        patches = [source(ego) for source in model.sources]
        index, score = (torch.cat(tensors, 1) for tensors in zip(*patches, strict=True))
        members, inverse = torch.unique(index.clamp_min(0), return_inverse=True)
        rows = model.encode(x.take(members))
        known = model.known_labels()
    mask = (index >= 0).to(score.dtype)
    sizes = [source.size for source in model.sources]
    size = max(1, _ELEMENTS // (_ORDER * index.shape[1] * rows.shape[1]))
    parts = []
    for begin in range(0, len(index), size):
        part = slice(begin, begin + size)
        h = torch.where(index[part][..., None] >= 0, rows[inverse[part]], baseline)
        labels = None if known is None else known[index[part].clamp_min(0)] * mask[part][..., None]
        inputs = (score[part].detach(), mask[part])

        def logits(h: Tensor, labels: Tensor | None, rows: Tensor, inputs: Any = inputs) -> Tensor:
            score, mask = (value[rows] for value in inputs)
            return _logits(model, h, score, mask, labels)

        own = index[part] == ego[part, None]
        asked = None if pairs is None else pairs[part]
        parts.append(
            (index[part], score[part], *_integrate(logits, h, labels, baseline, own, h.shape[2], share, asked))
        )
    columns = [np.concatenate([np.asarray(p[i].detach().cpu()) for p in parts]) for i in range(9)]
    source = np.repeat(np.arange(len(sizes)), sizes)
    position = np.concatenate([np.arange(size) for size in sizes])
    return Attribution(*columns, *(np.broadcast_to(value, index.shape) for value in (source, position)))


def _attribute_fields(
    model: GPatcher, x: FeatureTable, nodes: IntArray, baseline: Tensor, pairs: IntArray | None, share: float
) -> Attribution:
    """Attribute to every node within R patches; positions are those in the node's own patch, -1 beyond it."""
    known = model.known_labels()
    rows = []
    for number, node in enumerate(np.asarray(nodes).tolist()):
        asked = None if pairs is None else pairs[[number]]
        field = receptive_field(model, node)
        with torch.no_grad():
            h = model.encode(x.take(field.nodes))[None]
        labels = None if known is None else known[field.nodes][None]

        def logits(h: Tensor, labels: Tensor | None, rows: Tensor, field: Field = field) -> Tensor:
            return field.logits(model, h, labels)

        widest = max(view.index.shape[1] for view in field.views)
        own = (field.nodes == node)[None]
        found = _integrate(logits, h, labels, baseline, own, max(h.shape[2], widest), share, asked)
        place = np.zeros((3, len(field.nodes)))  # source, position, score; from the first source that has the node
        place[1] = -1
        for source, view in reversed(list(enumerate(field.views))):
            own = view.mask[0] > 0
            at = view.index[0, own].cpu().numpy()
            place[0, at], place[1, at] = source, np.flatnonzero(own.cpu().numpy())
            place[2, at] = view.score[0, own].detach().cpu().numpy()
        place[:2, 0] = 0
        *figures, contribution, gradient = (part.detach().cpu().numpy() for part in found)
        # members of patches in their order, then the others by magnitude of contribution
        order = np.lexsort((-np.abs(contribution[0]), place[1], place[0], place[1] < 0))
        rows.append((field.nodes.cpu().numpy()[order], place[:, order], *figures, contribution[0, order], gradient))
    width = max(len(row[0]) for row in rows)

    def padded(values: Any, fill: float, dtype: Any) -> Any:
        return np.stack([np.pad(v.astype(dtype), (0, width - len(v)), constant_values=fill) for v in values])

    index = padded([row[0] for row in rows], -1, np.int64)
    score = padded([row[1][2] for row in rows], 0, np.float32)
    sources, position = (padded([row[1][i] for row in rows], -1, np.int64) for i in (0, 1))
    logits_, best, second, margin, start = (np.concatenate([row[i] for row in rows]) for i in range(2, 7))
    contribution = padded([row[7] for row in rows], 0, np.float32)
    gradient = np.concatenate([row[8] for row in rows])
    return Attribution(index, score, logits_, best, second, margin, start, contribution, gradient, sources, position)


def _integrate(
    logits: Callable[[Tensor, Tensor | None, Tensor], Tensor],
    h: Tensor,
    labels: Tensor | None,
    baseline: Tensor,
    own: Tensor,
    width: int,
    share: float,
    pairs: IntArray | None = None,
) -> tuple[Tensor, ...]:
    """Return logits, best and second class, their margin, that at the baseline, contributions and gradient.

    ``logits`` maps encoded members (b, p, h), their labels (b, p, C) and their row numbers to logits (b, C), and takes
    about ``width`` numbers per member. The gradient (b, h) is that at the node's ``own`` positions (b, p).
    """
    every = torch.arange(len(h), device=h.device)
    with torch.no_grad():
        ends = logits(h, labels, every)
        start = logits(baseline.expand_as(h), None if labels is None else torch.zeros_like(labels), every)
    if ends.shape[1] < 2 and pairs is None:
        raise InputError("a model of one class has no runner-up to compare with; there is nothing to explain")
    chosen = ends.topk(2).indices if pairs is None else torch.as_tensor(pairs.copy(), device=h.device)
    best, second = chosen.unbind(1)

    def difference(z: Tensor, a: Tensor, b: Tensor) -> Tensor:
        if z.shape[1] == 1:
            return z[:, 0]  # a number has nothing to be compared with
        return (z.gather(1, a[:, None]) - z.gather(1, b[:, None])).squeeze(1)

    margin, least = (difference(z, best, second) for z in (ends, start))
    target = margin - least
    tolerance = TOLERANCE / math.sqrt(share) * target.abs().clamp_min(1.0)
    moves = [h - baseline] + ([] if labels is None else [labels])
    passes = max(1, _ELEMENTS // (h.shape[1] * width))  # points per forward pass
    points, weights = (torch.as_tensor(v, dtype=h.dtype, device=h.device) for v in _gauss_legendre())

    def along(rows: Tensor, at: Tensor) -> list[Tensor]:
        """Return the inputs of these rows at these positions of the path."""
        at = at[:, None, None]
        return [baseline + at * moves[0][rows], *(at * move[rows] for move in moves[1:])]

    def value(rows: Tensor, at: Tensor) -> Tensor:
        """Return f at these positions of the path."""
        parts = []
        for one, t in zip(torch.split(rows, passes), torch.split(at, passes), strict=True):
            path = along(one, t)
            with torch.no_grad():
                z = logits(path[0], path[1] if len(path) > 1 else None, one)
            parts.append(difference(z, best[one], second[one]))
        return torch.cat(parts)

    contribution = torch.zeros(h.shape[:2], device=h.device)
    integrated = torch.zeros_like(h[:, 0])
    error, spent = torch.zeros_like(target), torch.zeros_like(every)
    # Panels of the path: row, begin, length and the change of f, which the sum of contributions must equal. After long
    # training f changes within a short part of the path, so only panels with a large error are divided.
    row, begin, length, change = every, torch.zeros_like(target), torch.ones_like(target), target
    for division in range(_DIVISIONS + 1):
        part, gradient = h.new_zeros(len(row), h.shape[1]), h.new_zeros(len(row), h.shape[2])
        panel = torch.arange(len(row), device=h.device).repeat_interleave(_ORDER)
        at = (begin[:, None] + length[:, None] * points).flatten()
        weight = (length[:, None] * weights).flatten()
        for some in torch.split(torch.arange(len(at), device=h.device), passes):
            rows, owner = row[panel[some]], panel[some]
            path = [one.requires_grad_() for one in along(rows, at[some])]
            with torch.enable_grad():
                z = logits(path[0], path[1] if len(path) > 1 else None, rows)
                total = (difference(z, best[rows], second[rows]) * weight[some]).sum()
            gradients = torch.autograd.grad(total, path)
            gradient.index_add_(0, owner, (gradients[0] * own[rows][..., None]).sum(1))
            for move, slope in zip(moves, gradients, strict=True):
                part.index_add_(0, owner, (move[rows] * slope).sum(2))
        spent.index_add_(0, row, torch.full_like(row, _ORDER * h[0].numel()))
        missed = change - part.sum(1)
        remainder = error.index_add(0, row, missed).abs()
        rough = (remainder > tolerance)[row] & (missed.abs() > tolerance[row] / 16)
        if division == _DIVISIONS:
            rough[:] = False
        further = torch.zeros_like(spent).index_add(0, row, rough.long()) * 4 * _ORDER * h[0].numel()
        rough &= (spent + further <= share * _WORK)[row]  # a large receptive field: the remainder is reported
        contribution.index_add_(0, row[~rough], part[~rough])
        integrated.index_add_(0, row[~rough], gradient[~rough])
        error.index_add_(0, row[~rough], missed[~rough])
        if not rough.any():
            break
        row, length = row[rough].repeat_interleave(4), length[rough].repeat_interleave(4) / 4
        begin = begin[rough].repeat_interleave(4) + length * torch.arange(4, device=h.device).repeat(int(rough.sum()))
        change = value(row, begin + length) - value(row, begin)
    return ends, best, second, margin, least, contribution, integrated


def _gauss_legendre() -> tuple[FloatArray, FloatArray]:
    """Return points and weights of the Gauss-Legendre rule on [0, 1]."""
    points, weights = np.polynomial.legendre.leggauss(_ORDER)
    return (points + 1) / 2, weights / 2


def _logits(model: GPatcher, h: Tensor, score: Tensor, mask: Tensor, labels: Tensor | None) -> Tensor:
    """Return the logits of patches whose encoded members are given, shape (b, p, h) over all sources."""
    rows = torch.arange(h.shape[0] * h.shape[1], device=h.device).view(h.shape[:2])
    views = split_views(rows, score, mask, [source.size for source in model.sources])
    return model.classify(h.flatten(0, 1), views, None if labels is None else labels.flatten(0, 1))


@torch.no_grad()
def attribute_features(
    model: GPatcher, x: FeatureTable, node: int, baseline: Tensor, gradient: FloatArray
) -> FloatArray:
    r"""Distribute the contribution of the node itself over its features, shape (d,).

    The encoding is h = relu(xW + b), and the baseline of `attribute` is its mean over the nodes i of ``baseline``. With
    g the integrated ``gradient``, feature j contributes

    .. math:: \frac1N \sum_i (x_j - x_{ij}) \sum_k W_{jk} g_k \frac{h_k - h_{ik}}{z_k - z_{ik}}, \quad z = xW + b,

    integrated gradients from each of these nodes to this one. The sum over j is g · (h - h'), without a remainder.
    """
    g = torch.as_tensor(gradient).to(x.device)
    row = x.rows(torch.tensor([node], device=x.device))[0]
    z = row @ model.weight + model.bias
    total = torch.zeros_like(row)
    for part in torch.split(baseline, max(1, _ELEMENTS // len(row))):
        others = x.rows(part)
        gap = z - (others @ model.weight + model.bias)
        slope = torch.where(gap == 0, 0.0, (z.relu() - (z - gap).relu()) / torch.where(gap == 0, 1.0, gap))
        total += ((row - others) * ((slope * g) @ model.weight.T)).sum(0)
    return np.asarray((total / len(baseline)).cpu())
