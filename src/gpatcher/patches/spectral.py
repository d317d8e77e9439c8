"""Patches by spectral filters, fixed or learnable, from eigenvectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.kernels.topk import top_of_candidates, top_of_rows
from gpatcher.patches.base import Patches, check_size, empty_patches
from gpatcher.spectral.filters import LearnableFilter, Polynomial, response
from gpatcher.spectral.spectrum import Spectrum

_REACHED = 1e-6  # a score below this share of the row's largest is rounding: the node is not reached
_BLOCK = 1024  # rows of R made at a time
_ALL_NODES = 512  # up to here every node is a candidate


def spectral_patches(spectrum: Spectrum, g: FloatArray, size: int) -> Patches:
    """Take the top of each row of R = U g(Λ) Uᵀ (Eq. 5 and 6), a block of rows at a time.

    NOTE[DIFF] the node itself always comes first, whatever its score: the sum of Eq. 5 starts at k = 1, so nothing
    else would put it there, and the appendix has a patch hold "a node and its top p".
    """
    patches = empty_patches(len(spectrum.values), check_size(size))
    scaled = spectrum.vectors * g.astype(spectrum.vectors.dtype)
    for start in range(0, len(scaled), _BLOCK):
        rows = scaled[start : start + _BLOCK] @ spectrum.vectors.T
        part = slice(start, start + len(rows))
        top_of_rows(rows, start, _REACHED, patches.index[part], patches.score[part])
    return patches


@dataclass(frozen=True, eq=False)
class PairProducts:
    """For candidates u around each node v, the entries of φ_f(Ã): T[v, u, f] = Σ_i φ_f(λ_i) U_vi U_ui.

    A filter's score of a pair is T[v, u] · coefficients(w): exact, and without making R.
    Made once per graph and kind of filter; every training run can share it.

    Parameters
    ----------
    around : int32, shape (n, candidates); the node itself first, -1 where there are no more
    products : float32, shape (n, candidates, F)
    """

    around: Tensor
    products: Tensor

    @classmethod
    def build(cls, spectrum: Spectrum, filter: LearnableFilter, candidates: int) -> PairProducts:
        """Choose candidates and make their products.

        Half of the candidates are the top of each row by the filter as it is, half by a wide PageRank; in a graph
        of up to 512 nodes every node is one.
        """
        n = len(spectrum.values)
        g = response(filter, spectrum.values)
        around = _candidates(spectrum, g, n if n <= _ALL_NODES else min(candidates, n))
        values = torch.from_numpy(np.ascontiguousarray(spectrum.values))
        with torch.no_grad():
            basis = filter.basis(values).numpy()
        return cls(torch.from_numpy(around), torch.from_numpy(pair_products(spectrum, around, basis)))


class SpectralPatches(nn.Module):
    """The learnable extractor: a filter's weights decide, by way of the scores, who is in a patch and how it counts.

    Parameters
    ----------
    pairs : candidates and their products
    filter : the learnable filter; its weights are this module's parameters
    size : p
    """

    def __init__(self, pairs: PairProducts, filter: LearnableFilter, size: int) -> None:
        super().__init__()
        self.size = check_size(size)
        self.filter = filter
        n, candidates = pairs.around.shape
        self.register_buffer("around", pairs.around, persistent=False)
        self.register_buffer("products", pairs.products, persistent=False)
        width = min(self.size, candidates)
        self.register_buffer("members", torch.zeros(n, width, dtype=torch.int32))
        self.register_buffer("places", torch.zeros(n, width, dtype=torch.int64), persistent=False)
        self.register_load_state_dict_post_hook(lambda module, _: module._find())  # type: ignore[no-untyped-call]
        self.renew()

    around: Tensor  # (n, candidates)
    products: Tensor  # (n, candidates, F)
    members: Tensor  # (n, p) ids of the selected nodes; what is saved
    places: Tensor  # (n, p) where they stand among the candidates

    @torch.no_grad()
    def renew(self) -> None:
        """Select anew, by the current weights: the node itself, then the candidates by falling score."""
        score = self.products @ self.filter.coefficients()
        floor = _REACHED * score.abs().amax(1, keepdim=True)
        score = torch.where((score.abs() > floor) & (self.around >= 0), score, -torch.inf)
        score[:, 0] = torch.inf  # the node itself
        places = np.empty(self.places.shape, np.int64)
        top_of_candidates(self.around.numpy(force=True), score.numpy(force=True), places)
        self.places.copy_(torch.from_numpy(places))
        self.members.copy_(self.around.gather(1, self.places))

    def _find(self) -> None:
        """Find the members among the candidates, whose order may differ between machines."""
        for start in range(0, len(self.members), _BLOCK):
            part = slice(start, start + _BLOCK)
            same = self.members[part, :, None] == self.around[part, None]
            self.places[part] = same.int().argmax(2)
            # one that is no candidate any more leaves its place empty
            self.members[part] = torch.where(same.any(2), self.members[part], -1)

    def forward(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return index (b, p), -1 where a patch runs short, and score (b, p) of these nodes."""
        picked = self.places[nodes]
        index = self.members[nodes]
        score = self.products[nodes[:, None], picked] @ self.filter.coefficients()
        # a candidate that the filter does not reach is no member
        size = score.detach().abs()
        there = (index >= 0) & (size > _REACHED * size.amax(1, keepdim=True))
        there[:, 0] = True
        index, score = torch.where(there, index, -1).long(), torch.where(there, score, 0.0)
        short = self.size - index.shape[1]  # a graph of fewer than p nodes
        return F.pad(index, (0, short), value=-1), F.pad(score, (0, short))

    @torch.no_grad()
    def patches(self) -> Patches:
        """Return the current patches of all nodes."""
        index, score = self(torch.arange(len(self.around)))
        return Patches(index.numpy().astype(np.int32), score.numpy())


def _candidates(spectrum: Spectrum, g: FloatArray, count: int) -> IntArray:
    """Return the ids of the candidates of each node, itself first, -1 where they run short; shape (n, count)."""
    near = spectral_patches(spectrum, g, (count + 1) // 2).index
    wide = spectral_patches(spectrum, response(Polynomial(K=20, c=0.9), spectrum.values), count).index
    return merge_candidates(near, wide, count)


def merge_candidates(near: IntArray, wide: IntArray, count: int) -> IntArray:
    """Return the near ones and then, in their order, the wide ones that are not among them; shape (n, count)."""
    wide = wide.copy()
    for start in range(0, len(wide), _BLOCK):
        part = slice(start, start + _BLOCK)
        wide[part][(wide[part, :, None] == near[part, None]).any(2)] = -1
    # what is left of the wide ones moves up in its order
    order = np.argsort(wide < 0, axis=1, kind="stable")
    rest = np.take_along_axis(wide, order, 1)[:, : count - near.shape[1]]
    return np.ascontiguousarray(np.hstack([near, rest]))


def pair_products(spectrum: Spectrum, around: IntArray, basis: FloatArray) -> FloatArray:
    """Return T[v, j, f] = Σ_i φ_f(λ_i) U_vi U_ui for u = around[v, j]; shape (n, candidates, F).

    It holds entries of the matrices φ_f(Ã), so it does not depend on the choice of the eigenvectors.
    """
    n, width = around.shape
    vectors = torch.from_numpy(np.ascontiguousarray(spectrum.vectors))
    phi = torch.from_numpy(np.ascontiguousarray(basis)).to(vectors.dtype)
    index = torch.from_numpy(around).long()
    out = torch.zeros(n, width, phi.shape[1], dtype=torch.float32)
    step = max(1, (1 << 24) // (width * n))  # about 64 MB of products at a time
    for start in range(0, n, step):
        ids = index[start : start + step]
        pairs = vectors[ids.clamp_min(0)] * vectors[start : start + step, None]
        out[start : start + step] = (pairs @ phi).float() * (ids >= 0)[..., None]
    return out.numpy()
