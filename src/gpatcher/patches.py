"""Patches: for each node, itself and the nodes most relevant to it, in order.

Fixed extractors make `Patches` once. `SpectralPatches` is the learnable one: the scores carry the gradient to the
filter's weights, and `renew` lets the selection follow them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher import kernels
from gpatcher.engine import LocalEngine
from gpatcher.filters import Adaptive, Bandpass, Heat, LearnableFilter, Polynomial, Shared, response
from gpatcher.graph import FloatArray, Graph, InputError, IntArray, counted, some
from gpatcher.spectrum import Spectrum, cache_folder, eigenpairs, is_affordable

_REACHED = 1e-6  # a score below this share of the row's largest is rounding: the node is not reached
_BLOCK = 1024  # rows of R made at a time
_ALL_NODES = 512  # up to here every node is a candidate
_EXACT = 1e-16  # what is left of a score, or a score that is none
_TIE = 1e-6  # scores that differ less, as a share, are equal in single precision
_PUSHED = 256  # nodes pushed from in one go

# indptr, indices, weights, degrees and their codes
Walk = tuple[IntArray, IntArray, FloatArray | None, FloatArray, kernels.Array]


@dataclass(frozen=True, eq=False)
class Patches:
    """The patch of every node.

    Parameters
    ----------
    index : int32, shape (n, p); the node itself, then others by falling score and rising id, then -1
    score : float32, shape (n, p); 0 where index is -1
    """

    index: IntArray
    score: FloatArray

    @property
    def size(self) -> int:
        """Number of places in a patch, p."""
        return int(self.index.shape[1])

    def __getitem__(self, nodes: Any) -> Patches:
        return Patches(self.index[nodes], self.score[nodes])


def _check_size(size: int) -> int:
    if not size >= 1 or size != int(size):
        raise InputError(f"the patch size must be a whole number of at least 1, got {size}")
    return int(size)


def empty_patches(rows: int, size: int) -> Patches:
    """Return patches in which nobody is yet."""
    return Patches(np.full((rows, size), -1, np.int32), np.zeros((rows, size), np.float32))


# -------------------------------------------------------------------------------------- with eigenvectors


def spectral_patches(spectrum: Spectrum, g: FloatArray, size: int) -> Patches:
    """Take the top of each row of R = U g(Λ) Uᵀ (Eq. 5 and 6), a block of rows at a time.

    NOTE[DIFF] the node itself always comes first, whatever its score: the sum of Eq. 5 starts at k = 1, so nothing
    else would put it there, and the appendix has a patch hold "a node and its top p".
    """
    patches = empty_patches(len(spectrum.values), _check_size(size))
    scaled = spectrum.vectors * g.astype(spectrum.vectors.dtype)
    for start in range(0, len(scaled), _BLOCK):
        rows = scaled[start : start + _BLOCK] @ spectrum.vectors.T
        part = slice(start, start + len(rows))
        kernels.top_of_rows(rows, start, _REACHED, patches.index[part], patches.score[part])
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
        self.size = _check_size(size)
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
        kernels.top_of_candidates(self.around.numpy(force=True), score.numpy(force=True), places)
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


# ----------------------------------------------------------------------------------- without eigenvectors


def push_patches(
    graph: Graph,
    size: int,
    c: float = 0.5,
    eps: float = 1e-5,
    self_loops: bool = False,
    nodes: IntArray | None = None,
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> Patches:
    """Take the top of r_v = (1 - c)(I - cÃ)^-1 e_v (Eq. 8 to 10, Fast-GPatcher) by local push.

    The error of a score is at most eps · sqrt(d_v d_u). A node that the walk does not reach is in no patch.

    Parameters
    ----------
    nodes : the nodes whose patches are wanted; all by default
    progress : called with nodes done and nodes in all
    threads : by default one for each core; the result does not depend on it
    """
    size = check_push(size, c, eps)
    sources = np.arange(graph.n) if nodes is None else np.asarray(nodes)
    sources = np.flatnonzero(sources) if sources.dtype.kind == "b" else sources.astype(np.int64)
    beyond = sources[(sources < 0) | (sources >= graph.n)]
    if beyond.size:
        raise InputError(
            f"{counted(beyond.size, 'node is', 'nodes are')} not in the graph: {some(beyond)}; it "
            f"has 0 to {graph.n - 1}"
        )
    return push_from(walk_arrays(graph, self_loops), sources, size, c, eps, progress=progress, threads=threads)


def push_from(
    walk: Walk,
    sources: IntArray,
    size: int,
    c: float,
    eps: float,
    *,
    added: kernels.Added = None,
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> Patches:
    """Take the top by local push from these nodes of an adjacency, to which rows may be added."""
    patches = empty_patches(len(sources), size)

    def work(part: slice) -> None:
        kernels.push_ppr(*walk, sources[part], c, eps, patches.index[part], patches.score[part], added)

    done = 0
    parts = (slice(start, min(start + _PUSHED, len(sources))) for start in range(0, len(sources), _PUSHED))
    for part, _ in LocalEngine(threads).map(work, parts):
        done += part.stop - part.start
        if progress is not None:
            progress(done, len(sources))
    return patches


def check_push(size: int, c: float, eps: float) -> int:
    """Refuse what personalised PageRank cannot be asked for; return the size."""
    if not 0 < c < 1:
        raise InputError(f"c must lie in (0, 1), got {c}")
    if not 0 < eps < 1:
        raise InputError(f"eps must lie in (0, 1), got {eps}")
    return _check_size(size)


def walk_arrays(graph: Graph, self_loops: bool) -> Walk:
    """Return the adjacency that Ã is made of, as CSR arrays, its degrees and their codes."""
    both = graph.undirected()
    if not graph.self_loops and not self_loops:
        indptr, indices, weights, degree = both.indptr, both.indices, both.weights, both.degrees()
    else:
        matrix = graph.walk(self_loops)
        indptr, indices, weights = matrix.indptr.astype(np.int64), matrix.indices, matrix.data
        degree = np.asarray(matrix.sum(axis=1))
    return indptr, indices, weights, degree, kernels.degree_codes(degree)


def push_block(
    part: tuple[int, int],
    indptr: IntArray,
    indices: IntArray,
    weights: FloatArray | None,
    degree: FloatArray,
    codes: kernels.Array,
    size: int,
    c: float,
    eps: float,
) -> Patches:
    """Return the patches of the nodes from part[0] up to part[1]; a piece of work for an engine."""
    sources = np.arange(*part)
    patches = empty_patches(len(sources), size)
    kernels.push_ppr(indptr, indices, weights, degree, codes, sources, c, eps, patches.index, patches.score)
    return patches


def ppr_scores(graph: Graph, nodes: IntArray, c: float, self_loops: bool = False) -> FloatArray:
    """Return the rows r_v = (1 - c)(I - cÃ)^-1 e_v of these nodes to the precision of float64; shape (b, n).

    (1 - c) / (1 - cλ) has the Chebyshev coefficients w_0 = (1 - c) / s and w_k = 2 w_0 t^k, where s = sqrt(1 - c²) and
    t = (1 - s) / c, so a few products with Ã are exact: O(m) each, which is for checks and not for all nodes.
    """
    matrix = graph.normalised(self_loops)
    root = np.sqrt(1 - c * c)
    ratio = (1 - root) / c
    before = np.zeros((graph.n, len(nodes)))
    before[nodes, np.arange(len(nodes))] = 1.0
    now = matrix @ before
    weight = 2 * (1 - c) / root * ratio
    total = (1 - c) / root * before + weight * now
    while weight > _EXACT:
        weight *= ratio
        before, now = now, 2 * (matrix @ now) - before
        total += weight * now
    return np.ascontiguousarray(total.T)


def top_recall(patches: Patches, scores: FloatArray) -> FloatArray:
    """Return, for each patch, the share of its node's true top p - 1 that it holds; shape (b,).

    Where several nodes score the same as the last of the true ones, any of them is right.

    Parameters
    ----------
    patches : of some nodes
    scores : exact scores of all nodes for each of them, shape (b, n)
    """
    recall = np.ones(len(scores))
    for row, (members, exact) in enumerate(zip(patches.index, scores, strict=True)):
        others = exact.copy()
        others[members[0]] = 0.0
        wanted = min(patches.size - 1, int((others > _EXACT).sum()))
        if wanted:
            last = np.partition(others, -wanted)[-wanted]
            found = members[1:][members[1:] >= 0]
            recall[row] = (others[found] >= last * (1 - _TIE)).sum() / wanted
    return recall


# ------------------------------------------------------------------------------------------ by one name

# the learnable filters: K, c, σ -> module; the fixed ones: K -> response
LEARNABLE: dict[str, Callable[[int, float, str], LearnableFilter]] = {
    "heterophily-aware": lambda K, c, sigma: Adaptive(K=K, c=c, sigma=sigma),
    "polynomial": lambda K, c, sigma: Polynomial(K=K, c=c),
    "shared": lambda K, c, sigma: Shared(K=K),
}
FIXED: dict[str, Callable[[int], Heat | Bandpass]] = {"heat": lambda K: Heat(K=K), "bandpass": lambda K: Bandpass(K=K)}
EXTRACTORS = (*LEARNABLE, *FIXED, "ppr")


def check_extractor(name: str) -> str:
    """Return the name of an extractor, or an error that lists them."""
    if name not in EXTRACTORS:
        raise InputError(f"there is no extractor {name!r}; there are {', '.join(EXTRACTORS)}")
    return name


def graph_spectrum(graph: Graph, self_loops: bool = False, memory: int | None = None) -> Spectrum:
    """Return the eigenpairs in single precision, from the cache where they are kept."""
    cache = cache_folder() if graph.n >= 1000 else None
    return eigenpairs(graph, self_loops, np.float32, memory=memory, cache=cache)


def extract_patches(
    graph: Graph,
    method: str = "ppr",
    size: int = 32,
    *,
    K: int = 10,
    c: float = 0.5,
    eps: float = 1e-5,
    self_loops: bool = False,
    memory: int | None = None,
) -> Patches:
    """Extract the patch of every node; a learnable filter is taken as it starts, before any training.

    Parameters
    ----------
    method : one of `EXTRACTORS`
    size : p, the node itself included
    K : number of powers, or of times or windows
    c, eps : of personalised PageRank; a learnable filter starts as PageRank with this c
    self_loops : add one to every node
    memory : bytes that eigenvectors may take

    Examples
    --------
    >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> extract_patches(path, method="ppr", size=2).index
    array([[0, 1],
           [1, 0],
           [2, 1]], dtype=int32)
    """
    if check_extractor(method) == "ppr":
        return push_patches(graph, size, c, eps, self_loops)
    if method == "polynomial" and not is_affordable(graph.n, memory):
        raise InputError(
            f"eigenvectors of {graph.n:,} nodes take more than the memory or ten minutes; before training, a "
            f"polynomial filter ranks as personalised PageRank with c={c}: take method='ppr', or train the "
            "filter without eigenvectors by GPatcherClassifier(extractor='polynomial')"
        )
    spectrum = graph_spectrum(graph, self_loops, memory)
    kind = LEARNABLE[method](K, c, "none") if method in LEARNABLE else FIXED[method](K)
    return spectral_patches(spectrum, response(kind, spectrum.values), size)
