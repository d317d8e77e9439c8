"""Patches by spectral filters, fixed or learned, from the eigenvectors of Ã (Eq. 4 to 6)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import check_at_least
from gpatcher.graph.graph import Graph
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.kernels.topk import top_of_candidates, top_of_rows
from gpatcher.patches.base import Extractor, Patches, PatchSource, Progress, positions
from gpatcher.spectral.filters import Adaptive, Bandpass, Heat, LearnableFilter, Polynomial, Shared, response
from gpatcher.spectral.spectrum import Spectrum, graph_spectrum

_NEGLIGIBLE = 1e-6  # a score below this fraction of the row's largest is a rounding error: the node is not reached
_BLOCK = 1024  # rows of R at a time
_ALL_NODES = 512  # up to this many nodes, every node is a candidate
_FEWEST_CANDIDATES = 64
WIDE_C = 0.9  # damping factor of the PageRank that finds the farther candidates


@dataclass(frozen=True)
class SpectralExtractor(Extractor):
    """Patches from the eigenvectors of Ã.

    Parameters
    ----------
    K : int
        Number of powers of the filter.
    self_loops : bool
        Whether every node gets a self-loop.
    """

    needs_eigenvectors: ClassVar[bool] = True
    K: int = 10
    self_loops: bool = False

    @abstractmethod
    def filter(self) -> Any:
        """Return the filter before training: a function of λ."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.filter()  # checks the parameters

    def response(self, values: Tensor) -> Tensor:
        """Return g(λ) before training."""
        with torch.no_grad():
            return self.filter()(values)

    def prepare_unseen(self, unseen: UnseenNodes, *, memory: int | None = None) -> Any:
        """Return the patches or products of the unseen nodes, from the eigenvectors of the extended graph."""
        return self.prepare(unseen.extended(), memory=memory)[unseen.nodes]


# ------------------------------------------------------------------------------------------------ fixed filters


@dataclass(frozen=True)
class FixedFilter(SpectralExtractor):
    """Patches by a filter without weights."""

    def prepare(self, graph: Graph, *, memory: int | None = None, progress: Progress | None = None) -> Patches:
        """Return the patches of all nodes."""
        spectrum = graph_spectrum(graph, self.self_loops, memory)
        return spectral_patches(spectrum, response(self.filter(), spectrum.values), self.size)


@dataclass(frozen=True)
class HeatKernel(FixedFilter):
    """Patches by the fixed filter `Heat`."""

    name: ClassVar[str] = "heat"

    def filter(self) -> Heat:
        """Return the filter."""
        return Heat(self.K)


@dataclass(frozen=True)
class BandpassFilter(FixedFilter):
    """Patches by the fixed filter `Bandpass`."""

    name: ClassVar[str] = "bandpass"

    def filter(self) -> Bandpass:
        """Return the filter."""
        return Bandpass(self.K)


def spectral_patches(spectrum: Spectrum, g: FloatArray, size: int) -> Patches:
    """Select the top p of each row of R = U g(Λ) Uᵀ (Eq. 5 and 6), a block of rows at a time.

    NOTE[DIFF] the node itself always comes first, whatever its score: the sum of Eq. 5 starts at k = 1, so its score
    need not be the largest, and in the appendix a patch is "a node and its top p".
    """
    patches = Patches.empty(len(spectrum.values), size)
    scaled = spectrum.vectors * g.astype(spectrum.vectors.dtype)
    for start in range(0, len(scaled), _BLOCK):
        rows = scaled[start : start + _BLOCK] @ spectrum.vectors.T
        part = slice(start, start + len(rows))
        top_of_rows(rows, start, _NEGLIGIBLE, patches.index[part], patches.score[part])
    return patches


# ------------------------------------------------------------------------------------------------ learned filters


@dataclass(frozen=True, eq=False)
class PairProducts:
    """Entries of φ_f(Ã) for candidates u around each node v: T[v, u, f] = Σ_i φ_f(λ_i) U_vi U_ui.

    A filter's score of a pair is T[v, u] · coefficients(w): exact, and without computing R. Computed once per graph
    and kind of filter, and shared by all training runs.
    """

    candidates: Tensor  # int32, (n, candidates): the node itself first, padded with -1
    products: Tensor  # float32, (n, candidates, F)

    @property
    def nbytes(self) -> int:
        """Bytes of both tensors."""
        return self.candidates.nbytes + self.products.nbytes

    def __getitem__(self, nodes: Any) -> PairProducts:
        return PairProducts(self.candidates[nodes], self.products[nodes])

    def members(self) -> IntArray:
        """Return the distinct candidates, ascending."""
        return np.unique(self.candidates[self.candidates >= 0].numpy())

    def relabel(self, nodes: IntArray) -> PairProducts:
        """Return the pairs with each candidate replaced by its position in ``nodes``, which must ascend."""
        return PairProducts(torch.from_numpy(positions(self.candidates.numpy(), nodes)), self.products)


@dataclass(frozen=True)
class LearnedFilter(SpectralExtractor):
    """Patches by a filter whose weights are trained with the model.

    Parameters
    ----------
    c : float
        Damping factor of the initial filter, personalised PageRank.
    candidates : int
        Nodes that may enter a patch, as a multiple of ``size``; at least 64.
    """

    c: float = 0.5
    candidates: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, candidates=self.candidates)

    @property
    def candidate_count(self) -> int:
        """Candidates around each node, itself included."""
        return max(self.candidates * self.size, _FEWEST_CANDIDATES)

    def prepare(self, graph: Graph, *, memory: int | None = None, progress: Progress | None = None) -> PairProducts:
        """Choose candidates around every node and compute their products."""
        return spectral_products(graph_spectrum(graph, self.self_loops, memory), self.filter(), self.candidate_count)

    def source(self, data: PairProducts) -> SpectralPatches:
        """Return the module that learns the filter."""
        return SpectralPatches(data, self.filter(), self.size)


@dataclass(frozen=True)
class AdaptiveFilter(LearnedFilter):
    """Patches by the paper's heterophily-aware filter, `Adaptive`; see `LearnedFilter` for the other parameters.

    Parameters
    ----------
    sigma : {"none", "tanh", "relu"}
        Activation inside the sum of Eq. 4.
    """

    name: ClassVar[str] = "heterophily-aware"
    sigma: str = "none"

    def filter(self) -> Adaptive:
        """Return the filter before training."""
        return Adaptive(K=self.K, c=self.c, sigma=self.sigma)


@dataclass(frozen=True)
class SharedFilter(LearnedFilter):
    """Patches by the filter `Shared`: one weight per eigenvalue, shared by all powers."""

    name: ClassVar[str] = "shared"

    def filter(self) -> Shared:
        """Return the filter before training."""
        return Shared(K=self.K)


class SpectralPatches(PatchSource):
    """Patches of a learned filter: its scores select the members of a patch and weight them."""

    learned = True

    def __init__(self, pairs: PairProducts, filter: LearnableFilter, size: int) -> None:
        super().__init__()
        self.size = size
        self.filter = filter
        n, count = pairs.candidates.shape
        self.register_buffer("candidates", pairs.candidates, persistent=False)
        self.register_buffer("products", pairs.products, persistent=False)
        width = min(self.size, count)
        self.register_buffer("members", torch.zeros(n, width, dtype=torch.int32))
        self.register_buffer("columns", torch.zeros(n, width, dtype=torch.int64), persistent=False)
        self.register_load_state_dict_post_hook(lambda module, _: module._locate())  # type: ignore[no-untyped-call]
        self.reselect()

    candidates: Tensor  # (n, candidates)
    products: Tensor  # (n, candidates, F)
    members: Tensor  # (n, p) ids of the selected nodes; saved with the model
    columns: Tensor  # (n, p) their columns among the candidates

    @torch.no_grad()
    def reselect(self) -> None:
        """Select by the current weights: the node itself, then the candidates by descending score."""
        score = self.products @ self.filter.coefficients()
        floor = _NEGLIGIBLE * score.abs().amax(1, keepdim=True)
        score = torch.where((score.abs() > floor) & (self.candidates >= 0), score, -torch.inf)
        score[:, 0] = torch.inf  # the node itself
        columns = np.empty(self.columns.shape, np.int64)
        top_of_candidates(self.candidates.numpy(force=True), score.numpy(force=True), columns)
        self.columns.copy_(torch.from_numpy(columns))
        self.members.copy_(self.candidates.gather(1, self.columns))

    def _locate(self) -> None:
        """Find the members' columns among the candidates, whose order may differ between machines."""
        for start in range(0, len(self.members), _BLOCK):
            part = slice(start, start + _BLOCK)
            same = self.members[part, :, None] == self.candidates[part, None]
            self.columns[part] = same.int().argmax(2)
            # a member that is no longer a candidate leaves its position empty
            self.members[part] = torch.where(same.any(2), self.members[part], -1)

    def forward(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return index, shape (b, p), padded with -1, and score, shape (b, p)."""
        index = self.members[nodes]
        score = self.products[nodes[:, None], self.columns[nodes]] @ self.filter.coefficients()
        # a candidate that the filter does not reach is not a member
        magnitude = score.detach().abs()
        mask = (index >= 0) & (magnitude > _NEGLIGIBLE * magnitude.amax(1, keepdim=True))
        mask[:, 0] = True
        index, score = torch.where(mask, index, -1).long(), torch.where(mask, score, 0.0)
        short = self.size - index.shape[1]  # positive if the graph has fewer than p nodes
        return F.pad(index, (0, short), value=-1), F.pad(score, (0, short))

    @torch.no_grad()
    def patches(self) -> Patches:
        """Return the current patches of all nodes."""
        index, score = self(torch.arange(len(self.candidates), device=self.candidates.device))
        return Patches(index.numpy(force=True).astype(np.int32), score.numpy(force=True))


def spectral_products(spectrum: Spectrum, filter: LearnableFilter, count: int) -> PairProducts:
    """Choose candidates and compute their products.

    Half of the candidates are the top of each row by the filter before training, half by a PageRank with a wider
    reach; in a graph of up to 512 nodes every node is a candidate.
    """
    n = len(spectrum.values)
    count = n if n <= _ALL_NODES else min(count, n)
    near = spectral_patches(spectrum, response(filter, spectrum.values), (count + 1) // 2).index
    wide = spectral_patches(spectrum, response(Polynomial(K=20, c=WIDE_C), spectrum.values), count).index
    candidates = merge_candidates(near, wide, count)
    values = torch.from_numpy(np.ascontiguousarray(spectrum.values))
    with torch.no_grad():
        basis = filter.basis(values).numpy()
    products = pair_products(spectrum, candidates, basis)
    return PairProducts(torch.from_numpy(candidates), torch.from_numpy(products))


def merge_candidates(near: IntArray, wide: IntArray, count: int) -> IntArray:
    """Return the near candidates, then the wide ones that are not among them, in their order; shape (n, count)."""
    wide = wide.copy()
    for start in range(0, len(wide), _BLOCK):
        part = slice(start, start + _BLOCK)
        wide[part][(wide[part, :, None] == near[part, None]).any(2)] = -1
    order = np.argsort(wide < 0, axis=1, kind="stable")
    rest = np.take_along_axis(wide, order, 1)[:, : count - near.shape[1]]
    return np.ascontiguousarray(np.hstack([near, rest]))


def pair_products(spectrum: Spectrum, candidates: IntArray, basis: FloatArray) -> FloatArray:
    """Return T[v, j, f] = Σ_i φ_f(λ_i) U_vi U_ui for u = candidates[v, j]; shape (n, candidates, F).

    These are entries of the matrices φ_f(Ã), so they do not depend on the choice of the eigenvectors.
    """
    n, width = candidates.shape
    vectors = torch.from_numpy(np.ascontiguousarray(spectrum.vectors))
    phi = torch.from_numpy(np.ascontiguousarray(basis)).to(vectors.dtype)
    index = torch.from_numpy(candidates).long()
    out = torch.zeros(n, width, phi.shape[1], dtype=torch.float32)
    step = max(1, (1 << 24) // (width * n))  # about 64 MB of products at a time
    for start in range(0, n, step):
        ids = index[start : start + step]
        pairs = vectors[ids.clamp_min(0)] * vectors[start : start + step, None]
        out[start : start + step] = (pairs @ phi).float() * (ids >= 0)[..., None]
    return out.numpy()
